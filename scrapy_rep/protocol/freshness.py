"""Reads dates as people write them; tells how long an answer stays fresh, and when to
retry an unreachable origin (REP.md sections 4, 5, 9 and 10). No clock: times are
arguments, in seconds since the epoch."""

from __future__ import annotations

import re
from calendar import monthrange
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from typing import NamedTuple

# Text with more characters is not a date.
_MAX_DATE = 100

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_WEEKDAYS = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
]
# fmt: off
# Time zones, in minutes east of Greenwich. An ambiguous name means what RFC 822 says; if
# that says nothing, what it means in Europe.
_ZONES = {
    # Greenwich
    "": 0, "z": 0, "ut": 0, "utc": 0, "gmt": 0,
    # Europe
    "wet": 0, "west": 60,
    "bst": 60,
    "cet": 60, "cest": 120,
    "eet": 120, "eest": 180,
    "msk": 180,
    # Asia and Australia
    "ist": 330,
    "jst": 540, "kst": 540,
    "aest": 600, "aedt": 660,
    # America
    "est": -300, "edt": -240,
    "cst": -360, "cdt": -300,
    "mst": -420, "mdt": -360,
    "pst": -480, "pdt": -420,
}
# fmt: on
# Words in a date that say nothing: "December 3rd", "3rd of December", "at 13:09".
_FILLERS = frozenset({"st", "nd", "rd", "th", "of", "at"})

# Only a year, or a year and a month: "2024", "2024-05".
_YEAR_AND_MONTH = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d\d?))?", re.ASCII)
# "2024-05-08" (also with dots or slashes) or "20240508".
_ISO_DAY = re.compile(
    r"(?P<year>\d{4})(?:(?P<separator>[-/.])(?P<month>\d\d?)(?P=separator)(?P<day>\d\d?)"
    r"|(?P<packed_month>\d\d)(?P<packed_day>\d\d))",
    re.ASCII,
)
# "8.5.2024", as in Germany.
_DOTTED_DAY = re.compile(r"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})", re.ASCII)
# "13:09", "13:09:53.5", "1:09 p.m."; or what follows the "T" of ISO 8601: "t130953".
_TIME = re.compile(
    r"(?:(?:^|[ ,])(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d))?"
    r"|(?<=\d)t(?P<iso_hour>\d\d):?(?P<iso_minute>\d\d)(?::?(?P<iso_second>\d\d))?)"
    r"(?:[.,]\d+)?(?: ?(?P<half>[ap])\.?m\b\.?)?",
    re.ASCII,
)
# What follows the time: a zone, and sometimes the year, where asctime() and date(1) put
# it.
_AFTER_TIME = re.compile(r"(?P<zone>.*?)(?:(?<![^ ])(?P<year>\d{4}))?", re.ASCII)
# A zone in numbers: "+02:00", "GMT-5".
_OFFSET = re.compile(
    r"(?:utc|gmt)? ?(?P<sign>[+-])(?P<hours>[01]?\d|2[0-3]):?(?P<minutes>[0-5]\d)?",
    re.ASCII,
)
# RFC 2822 allows comments in dates: "13:09 +0200 (CEST)".
_DATE_COMMENT = re.compile(r"\([^()]*\)")
_WORD_OR_NUMBER = re.compile(r"[a-z]+|\d+", re.ASCII)
_NEVER_IN_DATES = re.compile(r"[^\w ,.-]")


class _DateRead(NamedTuple):
    """How a text was understood."""

    moment: datetime | None
    """None if the text is not a date."""
    has_time: bool
    """Whether the text names a time of day; if not, *moment* is the beginning of the
    day."""


def latest(text: str) -> datetime | None:
    """Return the last moment of the date in *text* ("2024-05" is all of May), by
    default in UTC; None if *text* is not a date."""
    text = text.strip()
    if "T" in text:
        # Nearly all dates in sitemaps have times as in ISO 8601. Python reads such
        # dates a few times as fast as _parse().
        with suppress(ValueError):
            return moment(datetime.fromisoformat(text))
    parts = _YEAR_AND_MONTH.fullmatch(text)
    if parts is not None:
        year = parts["year"]
        month = int(parts["month"] or 12)  # a year ends in December
        if 1 <= month <= 12:
            _, last_day = monthrange(int(year), month)
            text = f"{year}-{month}-{last_day}"
    read = _parse(text)
    if read.moment is None or read.has_time:
        return read.moment
    return datetime.combine(read.moment, time.max, timezone.utc)


def moment(value: object) -> datetime:
    """Return the first moment of a date, a datetime or the text of one, by default in
    UTC.

    :raises ValueError: if *value* is none of these
    """
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    if isinstance(value, date):
        return datetime.combine(value, time.min, timezone.utc)
    if isinstance(value, str):
        when = read_date(value)
        if when is not None:
            return when
    raise ValueError


def read_date(text: str) -> datetime | None:
    """Return the time that *text* means, by default 0:00 UTC; None if it is invalid."""
    return _parse(text).moment


def _parse(text: str) -> _DateRead:
    """Read *text* as a date, with or without a time of day."""
    if len(text) > _MAX_DATE:
        return _DateRead(None, has_time=False)
    text = _DATE_COMMENT.sub(" ", text.lower())
    # Two words have one blank between them now.
    text = " ".join(text.split())
    clock = _TIME.search(text)
    try:
        if clock is not None:
            return _DateRead(_moment_at(clock, text), has_time=True)
        year, month, day = _day(text)
        midnight = datetime(year, month, day, tzinfo=timezone.utc)
        return _DateRead(midnight, has_time=False)
    except (ValueError, OverflowError):
        # The text is no date, or an impossible date, such as 31 February, or a date
        # before the year 1.
        return _DateRead(None, has_time=False)


def _moment_at(clock: re.Match[str], text: str) -> datetime:
    """Return the moment that a *text* with a time of day means. *clock* matches this
    time in it.

    :raises ValueError: if the rest of the text is no date, or date or time are
        impossible
    :raises OverflowError: if the moment is out of Python's range
    """
    after = _AFTER_TIME.fullmatch(text, clock.end())
    assert after is not None  # the pattern matches anything
    before = text[: clock.start()]
    year_after = after["year"] or ""
    day_text = f"{before} {year_after}".strip(" ,")
    year, month, day = _day(day_text)
    hour, minute, second = _time_of_day(clock)
    # Put the parts together. 24:00 is 0:00 of the following day.
    following_days = 0
    if (hour, minute, second) == (24, 0, 0):  # the day's end in ISO 8601
        hour, following_days = 0, 1
    local = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    local += timedelta(days=following_days)
    zone = after["zone"].strip()
    return local - timedelta(minutes=_minutes_east(zone))


def _time_of_day(clock: re.Match[str]) -> tuple[int, int, int]:
    """Return hour, minute and second of a match of ``_TIME``.

    :raises ValueError: for "13 p.m." and the like
    """
    hour = int(clock["hour"] or clock["iso_hour"])
    minute = int(clock["minute"] or clock["iso_minute"])
    second = int(clock["second"] or clock["iso_second"] or 0)
    if second == 60:  # a leap second, which datetime doesn't know
        second = 59
    if clock["half"]:
        if not 1 <= hour <= 12:
            raise ValueError
        hour %= 12  # 12:30 a.m. is 0:30
        if clock["half"] == "p":
            hour += 12
    return hour, minute, second


def _minutes_east(zone: str) -> int:
    """Return how many minutes a time zone is ahead of Greenwich.

    :raises ValueError: if *zone* is neither a known name nor an offset
    """
    if zone in _ZONES:
        return _ZONES[zone]
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        raise ValueError
    hours = int(offset["hours"])
    minutes = int(offset["minutes"] or 0)
    total = 60 * hours + minutes
    return -total if offset["sign"] == "-" else total


def _day(text: str) -> tuple[int, int, int]:
    """Return year, month and day of a date in lower case without a time.

    :raises ValueError: if *text* is no date
    """
    iso = _ISO_DAY.fullmatch(text)
    if iso is not None:
        month = iso["month"] or iso["packed_month"]
        day = iso["day"] or iso["packed_day"]
        return int(iso["year"]), int(month), int(day)
    dotted = _DOTTED_DAY.fullmatch(text)
    if dotted is not None:
        day, month, year = dotted.groups()
        return int(year), int(month), int(day)
    return _day_in_words(text)


def _day_in_words(text: str) -> tuple[int, int, int]:
    """Return year, month and day of a date such as "wed, december 3rd, 2025" or
    "03-dec-25".

    :raises ValueError: if *text* is no such date
    """
    month_index: int | None = None
    numbers = []
    for word in _WORD_OR_NUMBER.findall(text):
        if word.isdigit():
            numbers.append(word)
            continue
        if month_index is None:
            month_index = _abbreviated(word, _MONTHS)
            if month_index is not None:
                continue
        if word not in _FILLERS and _abbreviated(word, _WEEKDAYS) is None:
            raise ValueError
    if month_index is None or len(numbers) != 2 or _NEVER_IN_DATES.search(text):
        raise ValueError
    # The year is the number of four digits, else the second one.
    day, year = numbers
    if len(day) == 4:
        day, year = year, day
    return _full_year(year), month_index + 1, int(day)  # January is 1


def _full_year(digits: str) -> int:
    """Return a year of two or four digits. RFC 850 writes two, and RFC 2822 says how to
    read them.

    :raises ValueError: for any other number of digits
    """
    year = int(digits)
    if len(digits) == 2:
        return year + 2000 if year < 50 else year + 1900
    if len(digits) != 4:
        raise ValueError
    return year


def _abbreviated(word: str, names: list[str]) -> int | None:
    """Return the index of the first of *names* that *word* abbreviates by at least
    three letters, as "sept" does; None if there is none."""
    if len(word) < 3:
        return None
    for index, name in enumerate(names):
        if name.startswith(word):
            return index
    return None


# The max-age in a Cache-Control. Group 1: the number. There is one \s* on each side of
# the quote, not two side by side, which would backtrack.
_MAX_AGE = re.compile(r'\bmax-age\s*=\s*(?:"\s*)?(-?[0-9]+)\b', re.IGNORECASE)
_NO_STORE = re.compile(r"\bno-(?:store|cache)\b", re.IGNORECASE)

NO_CRAWL_SECONDS = 12 * 3600.0
"""Seconds for which an unreachable origin isn't crawled at all, by Google's rules of
April 2026."""

SHARES = 4
"""The pause between two attempts counts for at most this part (a quarter) of the limit,
see :func:`unreachable_seconds`. If the limit is 30 days, a quarter is 7.5 days, more
than the pause between weekly crawls. So it takes five attempts to reach the limit, and
setting the clock isn't enough."""

# Larger numbers in headers count as this one, since Python's floats would become
# infinite.
_MAX_SECONDS = 1e12

# The pause doubles at most so often, since 2**64 seconds exceed any maximum.
_MAX_DOUBLINGS = 64

# A random part of at most a quarter is taken off the pause before the next attempt.
_JITTER_SHARE = 1 / 4


def fresh_seconds(
    cache_control: str | None,
    age: str | None,
    *,
    default: float,
    minimum: float,
    maximum: float,
) -> float:
    """Return for how many seconds an answer is fresh (REP.md section 5).

    This is ``max-age`` (the smallest) less ``Age``, within *minimum* and *maximum*;
    *minimum* for ``no-store`` and ``no-cache``; *default* otherwise. ``s-maxage`` is
    for proxies, and ignored.
    """
    if not cache_control:
        return default
    if _NO_STORE.search(cache_control):
        return minimum
    max_ages = _MAX_AGE.findall(cache_control)
    if not max_ages:
        return default
    shortest = min(map(_seconds, max_ages))
    lifetime = shortest - _age_seconds(age)
    return min(max(lifetime, minimum), maximum)


# Seconds of a Retry-After as people write them: 5, 5.0, +5, 5s, "5".
_WAIT = re.compile(
    r'["\s]*\+?([0-9]+(?:\.[0-9]*)?)(?:\s*(?:s|secs?|seconds?))?["\s;]*',
    re.ASCII | re.IGNORECASE,
)


def _age_seconds(header: str | None) -> float:
    """Return the seconds in an ``Age`` header; 0 without one, or if it is no whole
    number."""
    text = (header or "").strip()
    is_number = text.isascii() and text.isdigit()
    return _seconds(text) if is_number else 0.0


def _seconds(number: str) -> float:
    """Return a *number* in digits, cut to what Python's floats can bear."""
    return min(float(number), _MAX_SECONDS)


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds to wait by a ``Retry-After`` header; None if it is invalid. Of
    several headers, joined by commas in *value*, the longest time counts."""
    header = value or ""
    longest = 0.0
    for part in header.split(","):
        wait = _WAIT.fullmatch(part)
        if wait is None:  # this part is no number of seconds
            break
        longest = max(longest, _seconds(wait[1]))
    else:
        return longest
    # Not all parts are numbers of seconds, so the header must be a date, with a comma
    # after the weekday.
    date = read_date(header.strip('" '))
    if date is None:
        return None
    return max(0.0, date.timestamp() - now)


def backoff(
    attempts: int,
    *,
    base: float,
    maximum: float,
    jitter: float,
    retry_after: float | None = None,
) -> float:
    """Return the seconds until the next attempt for an unreachable origin (REP.md
    section 4): *base* after the first of *attempts* failures in a row, doubled with
    each further failure, or *retry_after* if that is longer; at most *maximum*.
    *jitter* (0 to 1, random) takes off up to a quarter, to spread origins that failed
    together."""
    doublings = min(attempts - 1, _MAX_DOUBLINGS)
    delay = min(maximum, base * 2.0**doublings)
    delay *= 1 - jitter * _JITTER_SHARE
    return min(maximum, max(delay, retry_after or 0.0))


def unreachable_seconds(
    before: float, attempts: int, elapsed: float, limit: float
) -> float:
    """Return for how many seconds an origin has been unreachable when another attempt
    fails (REP.md section 4).

    :param before: the result for the previous failure
    :param attempts: failures in a row before this one
    :param elapsed: seconds since the last attempt; the clock may have been set since
    :param limit: after how many seconds something changes for the origin:
        ``NO_CRAWL_SECONDS``, or Google's 30 days. Each pause between two attempts
        counts for at most ``1 / SHARES`` of this limit
    """
    if not attempts:
        return 0.0
    share = limit / SHARES
    pauses_before = attempts - 1
    counted_before = min(before, pauses_before * share)
    counted_now = min(max(elapsed, 0.0), share)
    return counted_before + counted_now
