"""Dates of entries: W3C date and time in sitemaps and Atom, RFC 822 in RSS, and what people write
instead."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, datetime, time, timezone

from scrapy_rep.protocol.page.directives import has_clock, read_date

_W3C = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d?)(?:-(?P<day>\d\d?)"
    r"(?:[T ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?\s*(?P<zone>Z|[+-]\d\d:?\d\d)?)?)?)?",
    re.IGNORECASE | re.ASCII,
)
# Characters. Longer text is no date.
_MAX_LENGTH = 100


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
    date = read_date(text)
    if date is None or has_clock(text):
        return date
    return datetime.combine(date, time.max, timezone.utc)


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
