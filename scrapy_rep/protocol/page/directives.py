"""The rules in a header or a meta: separated by commas, some with a value (REP.md section 10)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, TypeAlias

from scrapy_rep.protocol.tokens import GLOBAL, leading_token

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = "int | str | datetime | None"

# fmt: off
FLAGS = frozenset({
    "all", "index", "follow", "noindex", "nofollow", "none", "noarchive", "nocache", "nosnippet",
    "notranslate", "noimageindex", "noodp", "indexifembedded", "noai", "noimageai",
    "noml",
})
# fmt: on
"""Rules without a value."""

PREVIEWS = ("none", "standard", "large")
"""Values of ``max-image-preview``, the most restrictive first."""

_AROUND = " \t\r\n\f\v:"
_NUMBERS = ("max-snippet", "max-video-preview")
_PREVIEW = "max-image-preview"
_DATE = "unavailable_after"
_NAMES = FLAGS | {*_NUMBERS, _PREVIEW, _DATE}

# "Wed, December 3, 2025, 13:09:53 GMT" has the most commas of all dates.
_DATE_PARTS = 4
# Characters. Longer text is no date.
_MAX_DATE = 100

_NUMBER = re.compile(r"-1|\d{1,18}", re.ASCII)
# In a date no word is followed by a colon.
_AGENT = re.compile(r"\s*([A-Za-z*_-][^\s,:]*)\s*:", re.ASCII)
# What people take for blanks: no-break spaces, byte order marks, spaces of no width. Also in UTF-8 that
# is read as Latin-1, the encoding of headers.
_BLANKS = re.compile(
    "[\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
    "|\xc2[\x85\xa0]|\xef\xbb\xbf|\xe2\x80[\x80-\x8d\xa8\xa9\xaf]|\xe2\x81[\x9f\xa0]|\xe3\x80\x80|\xe1\x9a\x80"
)
# Blanks or semicolons instead of commas are wrong, but clear.
_WORD_OF_PART = re.compile(r"[\s;:]*([^\s;:]+)", re.ASCII)
_VALUE = re.compile(r"\s*(:?)\s*([^\s;]*)", re.ASCII)
# Where a date ends, at the latest.
_NEXT = re.compile(rf";|(?<=\s)(?:{'|'.join(sorted(_NAMES))})(?![^\s;:,])", re.ASCII)

# fmt: off
_MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
]
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

# Minutes east of Greenwich. Ambiguous names mean what RFC 822 says, else what Europe does.
_ZONES = {
    "": 0, "z": 0, "ut": 0, "utc": 0, "gmt": 0, "wet": 0, "west": 60, "bst": 60, "cet": 60, "cest": 120,
    "eet": 120, "eest": 180, "msk": 180, "ist": 330, "jst": 540, "kst": 540, "aest": 600,
    "aedt": 660, "est": -300, "edt": -240, "cst": -360, "cdt": -300, "mst": -420, "mdt": -360,
    "pst": -480, "pdt": -420,
}
# fmt: on

_ISO = re.compile(r"(\d{4})(?:([-/.])(\d\d?)\2(\d\d?)|(\d\d)(\d\d))", re.ASCII)
_DOTTED = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})", re.ASCII)
_TIME = re.compile(
    r"(?:(?:^|[ ,])(\d\d?):(\d\d)(?::(\d\d))?|(?<=\d)t(\d\d):?(\d\d)(?::?(\d\d))?)"
    r"(?:[.,]\d+)?(?: ?([ap])\.?m\b\.?)?",
    re.ASCII,
)
# asctime() puts the year after the time, and date(1) a zone in between.
_AFTER = re.compile(r"(.*?)(?:(?<![^ ])(\d{4}))?", re.ASCII)
_OFFSET = re.compile(r"(?:utc|gmt)? ?([+-])(\d\d?):?(\d\d)?", re.ASCII)
_COMMENT = re.compile(r"\([^()]*\)")
_WORD = re.compile(r"[a-z]+|\d+", re.ASCII)


def with_blanks(text: str) -> str:
    """Return *text* with a blank for whatever looks like one."""
    return text if text.isascii() else _BLANKS.sub(" ", text)


def read_header(text: str) -> Iterator[tuple[str, str, Value]]:
    """Yield agent (in lower case, or ``*``), name and value of each rule of a header line."""
    agent = GLOBAL
    parts = with_blanks(text).split(",")
    for at, part in enumerate(parts):
        start = 0
        while (named := _AGENT.match(part, start)) and named[1].lower() not in _NAMES:
            # In a meta, "robots" means all agents.
            name = named[1].lower()
            agent = GLOBAL if name in (GLOBAL, "robots") else leading_token(name)
            start = named.end()
        for rule, value in _read(part[start:], parts[at + 1 : at + _DATE_PARTS]):
            yield agent, rule, value


def read_content(text: str) -> Iterator[tuple[str, Value]]:
    """Yield name and value of each rule of a meta's content."""
    parts = with_blanks(text).split(",")
    for at, part in enumerate(parts):
        yield from _read(part, parts[at + 1 : at + _DATE_PARTS])


def _read(part: str, following: list[str]) -> Iterator[tuple[str, Value]]:
    """Yield the rules of one part. A date may continue in the parts after it."""
    text, at = part.lower(), 0
    if text.lstrip().startswith(":"):  # an agent without a name
        return
    while word := _WORD_OF_PART.match(text, at):
        name, at = word[1], word.end()
        value: Value = None
        if name == _DATE:
            ends = _NEXT.search(text, at)
            if ends is not None:
                value, at = read_date(text[at : ends.start()].strip(_AROUND)), ends.start()
            else:
                value, text = _date(text[at:], following)
                at, following = 0, []
        elif name in _NUMBERS or name == _PREVIEW:
            given = _VALUE.match(text, at)
            assert given is not None  # it matches anything
            value = _value(name, given[2])
            if value is not None or given[1]:
                at = given.end()
        elif name not in FLAGS:
            return
        if value is not None or name in FLAGS:
            yield name, value


def _value(name: str, text: str) -> Value:
    """Return a rule's value; None if it has none that can be read."""
    if name == _PREVIEW:
        return text if text in PREVIEWS else None
    return int(text) if _NUMBER.fullmatch(text) else None


def _date(text: str, following: list[str]) -> tuple[datetime | None, str]:
    """Read a date that may contain commas: with as many of the *following* parts as possible. Return
    what stands after it in the last of them, too."""
    for count in range(len(following), -1, -1):
        last = following[count - 1].lower() if count else ""
        ends = _NEXT.search(last)
        end = len(last) if ends is None else ends.start()
        parts = [text, *following[: count - 1], last[:end]] if count else [text]
        if (date := read_date(",".join(parts).strip(_AROUND))) is not None:
            return date, last[end:]
    return None, ""


def read_date(text: str) -> datetime | None:
    """Return the time that *text* means, by default 0:00 UTC; None if it is invalid."""
    if len(text) > _MAX_DATE:
        return None
    text = " ".join(_COMMENT.sub(" ", text).lower().split())
    time = _TIME.search(text)
    try:
        if time is None:
            return datetime(*_day(text), tzinfo=timezone.utc)
        after = _AFTER.fullmatch(text, time.end())
        assert after is not None  # it matches anything
        day = _day(f"{text[: time.start()]} {after[2] or ''}".strip(" ,"))
        return datetime(*day, *_clock(time), tzinfo=timezone.utc) - _offset(after[1].strip())
    except (ValueError, OverflowError):  # 31 February; a moment before the year 1
        return None


def has_clock(text: str) -> bool:
    """Return whether a date names a time of day."""
    return _TIME.search(text.lower()) is not None


def _clock(time: re.Match[str]) -> tuple[int, int, int]:
    hour, minute, second = (int(time[at] or time[at + 3] or 0) for at in (1, 2, 3))
    if time[7]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + (12 if time[7] == "p" else 0)
    return hour, minute, min(second, 59) if second == 60 else second  # a leap second


def _offset(zone: str) -> timedelta:
    """Return the offset of a time zone, east of Greenwich."""
    if zone in _ZONES:
        return timedelta(minutes=_ZONES[zone])
    match = _OFFSET.fullmatch(zone)
    if match is None:
        raise ValueError
    minutes = 60 * int(match[2]) + int(match[3] or 0)
    return timedelta(minutes=minutes if match[1] == "+" else -minutes)


def _day(text: str) -> tuple[int, int, int]:
    """Return year, month and day."""
    if match := _ISO.fullmatch(text):
        return int(match[1]), int(match[3] or match[5]), int(match[4] or match[6])
    if match := _DOTTED.fullmatch(text):
        return int(match[3]), int(match[2]), int(match[1])
    month, numbers = None, []
    for word in _WORD.findall(text):
        if word.isdigit():
            numbers.append(word)
        elif month is None and (name := _name(word, _MONTHS)):
            month = _MONTHS.index(name) + 1
        elif not _name(word, _WEEKDAYS) and word not in ("st", "nd", "rd", "th", "of", "at"):
            raise ValueError
    if month is None or len(numbers) != 2 or re.search(r"[^\w ,.-]", text):
        raise ValueError
    first, second = numbers
    day, year = (second, first) if len(first) == 4 else (first, second)
    if len(year) == 2:  # RFC 850, read as RFC 2822 says
        return int(year) + (2000 if int(year) < 50 else 1900), month, int(day)
    if len(year) != 4:
        raise ValueError
    return int(year), month, int(day)


def _name(word: str, names: list[str]) -> str | None:
    """Return the one of *names* that begins with *word*, of at least three letters ("Sept")."""
    return next((one for one in names if len(word) >= 3 and one.startswith(word)), None)
