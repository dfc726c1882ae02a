"""The dates of ``unavailable_after``: RFC 822, RFC 850, ISO 8601 and what else people write."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_UTC: timedelta | None = timedelta()

_LENGTH = 100
"""Characters. Longer text is no date."""

# fmt: off
_MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
]
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

# Minutes east of Greenwich. Ambiguous names mean what RFC 822 says, else what Europe does.
_ZONES = {
    "z": 0, "ut": 0, "utc": 0, "gmt": 0, "wet": 0, "west": 60, "bst": 60, "cet": 60, "cest": 120,
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


def read_date(text: str) -> datetime | None:
    """Return the date and time that *text* means, in UTC; None if it can't be read.

    Without a time it is the beginning of that day, without a time zone UTC.
    """
    if len(text) > _LENGTH:
        return None
    text = " ".join(_COMMENT.sub(" ", text).lower().split())
    try:
        return _read(text)
    except (ValueError, OverflowError):  # 31 February; a moment before the year 1
        return None


def _read(text: str) -> datetime | None:
    time = _TIME.search(text)
    if time is None:
        date, offset, clock = _date(text), _UTC, (0, 0, 0)
    else:
        after = _AFTER.fullmatch(text, time.end())
        assert after is not None  # it matches anything
        date = _date(f"{text[: time.start()]} {after[2] or ''}".strip(" ,"))
        offset, clock = _offset(after[1].strip()), _clock(time)
    if date is None or offset is None:
        return None
    return datetime(*date, *clock, tzinfo=timezone.utc) - offset


def _clock(time: re.Match[str]) -> tuple[int, int, int]:
    hour, minute, second = (int(time[at] or time[at + 3] or 0) for at in (1, 2, 3))
    if time[7]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + (12 if time[7] == "p" else 0)
    return hour, minute, min(second, 59) if second == 60 else second  # a leap second


def _offset(zone: str) -> timedelta | None:
    """Return the offset east of Greenwich; None if *zone* is no time zone."""
    if not zone:
        return _UTC
    if zone in _ZONES:
        return timedelta(minutes=_ZONES[zone])
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    minutes = 60 * int(match[2]) + int(match[3] or 0)
    return timedelta(minutes=minutes if match[1] == "+" else -minutes)


def _date(text: str) -> tuple[int, int, int] | None:
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
            return None
    if month is None or len(numbers) != 2 or re.search(r"[^\w ,.-]", text):
        return None
    first, second = numbers
    day, year = (second, first) if len(first) == 4 else (first, second)
    if len(year) == 2:  # RFC 850, read as RFC 2822 says
        return int(year) + (2000 if int(year) < 50 else 1900), month, int(day)
    return (int(year), month, int(day)) if len(year) == 4 else None


def _name(word: str, names: list[str]) -> str | None:
    """Return the one of *names* that starts with *word*, if that has three letters ("Sept")."""
    return next((one for one in names if len(word) >= 3 and one.startswith(word)), None)
