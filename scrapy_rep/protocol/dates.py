"""Dates as people write them: W3C date and time in sitemaps and Atom, RFC 822 in RSS and HTTP, and all
the others (REP.md sections 9 and 10)."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, datetime, time, timedelta, timezone

# Characters. Longer text is no date.
_MAX_LENGTH = 100

_W3C = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d?)(?:-(?P<day>\d\d?)"
    r"(?:[T ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?\s*(?P<zone>Z|[+-]\d\d:?\d\d)?)?)?)?",
    re.IGNORECASE | re.ASCII,
)
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


def latest(text: str) -> datetime | None:
    """Return the last moment of *text* ("2024-05" is all of May), in UTC unless it names a time
    zone; None if it is no date."""
    match = _W3C.fullmatch(text[:_MAX_LENGTH].strip())
    if match is None:
        return _from_words(text)
    try:
        return _from_w3c(match)
    except (ValueError, OverflowError):
        return None


def _from_words(text: str) -> datetime | None:
    """Read what people write instead ("May 8, 2024"), as in the rules of a page."""
    found = read_date(text)
    if found is None or has_clock(text):
        return found
    return datetime.combine(found, time.max, timezone.utc)


def _from_w3c(match: re.Match[str]) -> datetime:
    year = int(match["year"])
    month = int(match["month"] or 12)
    day = int(match["day"] or monthrange(year, month)[1])
    if match["clock"] is None:
        return datetime.combine(date(year, month, day), time.max, timezone.utc)
    zone = match["zone"] or "Z"
    offset = "+00:00" if zone in "Zz" else f"{zone[:3]}:{zone[-2:]}"
    return datetime.fromisoformat(f"{date(year, month, day)}T{match['clock']}{offset}")


def moment(value: object) -> datetime:
    """Return the first moment of a date, a datetime or the ISO 8601 text of one.

    :raises ValueError: if *value* is none of these
    """
    if isinstance(value, datetime):
        return _aware(value)
    if isinstance(value, date):
        return datetime.combine(value, time.min, timezone.utc)
    if not isinstance(value, str):
        raise ValueError
    # Python 3.10 reads no Z.
    return _aware(datetime.fromisoformat(re.sub("[Zz]$", "+00:00", value.strip())))


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)


def read_date(text: str) -> datetime | None:
    """Return the time that *text* means, by default 0:00 UTC; None if it is invalid."""
    if len(text) > _MAX_LENGTH:
        return None
    text = " ".join(_COMMENT.sub(" ", text).lower().split())
    clock = _TIME.search(text)
    try:
        if clock is None:
            return datetime(*_day(text), tzinfo=timezone.utc)
        after = _AFTER.fullmatch(text, clock.end())
        assert after is not None  # it matches anything
        day = _day(f"{text[: clock.start()]} {after[2] or ''}".strip(" ,"))
        return datetime(*day, *_clock(clock), tzinfo=timezone.utc) - _offset(after[1].strip())
    except (ValueError, OverflowError):  # 31 February; a moment before the year 1
        return None


def has_clock(text: str) -> bool:
    """Return whether a date names a time of day."""
    return _TIME.search(text.lower()) is not None


def _clock(found: re.Match[str]) -> tuple[int, int, int]:
    hour, minute, second = (int(found[at] or found[at + 3] or 0) for at in (1, 2, 3))
    if found[7]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + (12 if found[7] == "p" else 0)
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
