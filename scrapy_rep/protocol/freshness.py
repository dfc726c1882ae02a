"""Dates as people write them, how long an answer stays fresh, and when to retry an unreachable origin
(REP.md sections 4, 5, 9 and 10). No clock: times are arguments, in seconds since the epoch."""

from __future__ import annotations

import re
from calendar import monthrange
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone

# Characters: longer text is not a date.
_MAX_LENGTH = 100

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

_MONTH = re.compile(r"(\d{4})(?:-(\d\d?))?", re.ASCII)
_ISO = re.compile(r"(\d{4})(?:([-/.])(\d\d?)\2(\d\d?)|(\d\d)(\d\d))", re.ASCII)
_DOTTED = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})", re.ASCII)
_TIME = re.compile(
    r"(?:(?:^|[ ,])(\d\d?):(\d\d)(?::(\d\d))?|(?<=\d)t(\d\d):?(\d\d)(?::?(\d\d))?)"
    r"(?:[.,]\d+)?(?: ?([ap])\.?m\b\.?)?",
    re.ASCII,
)
# asctime() puts the year after the time, and date(1) a zone in between.
_AFTER = re.compile(r"(.*?)(?:(?<![^ ])(\d{4}))?", re.ASCII)
_OFFSET = re.compile(r"(?:utc|gmt)? ?([+-])([01]?\d|2[0-3]):?([0-5]\d)?", re.ASCII)
_COMMENT = re.compile(r"\([^()]*\)")
_WORD = re.compile(r"[a-z]+|\d+", re.ASCII)


def latest(text: str) -> datetime | None:
    """Return the last moment of *text* ("2024-05" is all of May), by default in UTC; None if it is
    not a date."""
    text = text.strip()
    if "T" in text:
        with suppress(ValueError):  # nearly all, and a few times as fast
            return moment(datetime.fromisoformat(text))
    if (found := _MONTH.fullmatch(text)) and 1 <= (month := int(found[2] or 12)) <= 12:
        text = f"{found[1]}-{month}-{monthrange(int(found[1]), month)[1]}"
    when, has_time = _read(text)
    return (
        when
        if when is None or has_time
        else datetime.combine(when, time.max, timezone.utc)
    )


def moment(value: object) -> datetime:
    """Return the first moment of a date, a datetime or the text of one, by default in UTC.

    :raises ValueError: if *value* is none of these
    """
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    if isinstance(value, date):
        return datetime.combine(value, time.min, timezone.utc)
    if isinstance(value, str) and (when := read_date(value)) is not None:
        return when
    raise ValueError


def read_date(text: str) -> datetime | None:
    """Return the time that *text* means, by default 0:00 UTC; None if it is invalid."""
    return _read(text)[0]


def _read(text: str) -> tuple[datetime | None, bool]:
    """Return the time, and whether *text* names one."""
    if len(text) > _MAX_LENGTH:
        return None, False
    text = " ".join(_COMMENT.sub(" ", text.lower()).split())
    clock = _TIME.search(text)
    try:
        if clock is None:
            return datetime(*_day(text), tzinfo=timezone.utc), False
        after = _AFTER.fullmatch(text, clock.end())
        assert after is not None  # it matches anything
        day = _day(f"{text[: clock.start()]} {after[2] or ''}".strip(" ,"))
        hour, minute, second = (
            int(clock[at] or clock[at + 3] or 0) for at in (1, 2, 3)
        )
        if clock[7]:
            if not 1 <= hour <= 12:
                return None, True
            hour = hour % 12 + (12 if clock[7] == "p" else 0)
        second = 59 if second == 60 else second  # a leap second
        midnight = (hour, minute, second) == (24, 0, 0)  # the day's end, by ISO 8601
        when = datetime(
            *day, 0 if midnight else hour, minute, second, tzinfo=timezone.utc
        )
        when += timedelta(days=midnight)
        zone = after[1].strip()
        east = _ZONES.get(zone)  # in minutes
        if east is None:
            if (offset := _OFFSET.fullmatch(zone)) is None:
                return None, True
            east = int(f"{offset[1]}1") * (60 * int(offset[2]) + int(offset[3] or 0))
        return when - timedelta(minutes=east), True
    except (ValueError, OverflowError):  # 31 February, or before the year 1
        return None, True


def _day(text: str) -> tuple[int, int, int]:
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
        elif not _name(word, _WEEKDAYS) and word not in (
            "st",
            "nd",
            "rd",
            "th",
            "of",
            "at",
        ):
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
    """Return the one of *names* that *word*, of at least three letters ("Sept"), abbreviates."""
    return next((one for one in names if len(word) >= 3 and one.startswith(word)), None)


# Two adjacent \s* would backtrack.
_MAX_AGE = re.compile(r'\bmax-age\s*=\s*(?:"\s*)?(-?[0-9]+)\b', re.IGNORECASE)
_NO_STORE = re.compile(r"\bno-(?:store|cache)\b", re.IGNORECASE)

BLACKOUT = 12 * 3600.0
"""Seconds for which an unreachable origin isn't crawled at all, by Google's rules of April 2026."""

SHARES = 4
"""The time between two attempts counts for at most a quarter of the limit: 7.5 of 30 days, more than a
weekly crawl's pause. So it takes five attempts, and no change of the clock suffices."""


def fresh_seconds(
    cache_control: str | None,
    age: str | None,
    *,
    default: float,
    minimum: float,
    maximum: float,
) -> float:
    """Return for how many seconds an answer is fresh (REP.md section 5).

    This is ``max-age`` (the smallest) less ``Age``, within *minimum* and *maximum*; *minimum* for
    ``no-store`` and ``no-cache``; *default* otherwise. ``s-maxage`` is for proxies, and ignored.
    """
    if cache_control:
        if _NO_STORE.search(cache_control):
            return minimum
        if found := _MAX_AGE.findall(cache_control):
            lifetime = min(map(_seconds, found)) - (_digits(age) or 0)
            return min(max(lifetime, minimum), maximum)
    return default


# As people write it: 5, 5.0, +5, 5s, "5".
_WAIT = re.compile(
    r'["\s]*\+?([0-9]+)(\.[0-9]*)?(?:\s*(?:s|secs?|seconds?))?["\s;]*',
    re.ASCII | re.IGNORECASE,
)


def _digits(value: str | None) -> float | None:
    value = (value or "").strip()
    return _seconds(value) if value.isascii() and value.isdigit() else None


def _seconds(number: str) -> float:
    return min(float(number), 1e12)


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds to wait by a ``Retry-After`` header, None if it is invalid. Of several headers,
    which are joined by commas, the longest counts."""
    waits = [_WAIT.fullmatch(part) for part in (value or "").split(",")]
    numbers = [_seconds(wait[1] + (wait[2] or "")) for wait in waits if wait]
    if len(numbers) == len(waits):
        return max(numbers)
    date = read_date((value or "").strip('" '))
    return None if date is None else max(0.0, date.timestamp() - now)


def backoff(
    attempts: int,
    *,
    base: float,
    maximum: float,
    jitter: float,
    retry_after: float | None = None,
) -> float:
    """Return the seconds until the next attempt for an unreachable origin (REP.md section 4):
    *base*, doubled with each of *attempts* failures, or *retry_after* if that is longer; at most
    *maximum*. *jitter* (0 to 1, random) takes off up to a quarter, to spread origins that failed
    together."""
    # 2**64 seconds exceed any maximum.
    delay = min(maximum, base * 2.0 ** min(attempts - 1, 64)) * (1 - jitter / 4)
    return min(maximum, max(delay, retry_after or 0.0))


def unreachable_seconds(
    before: float, attempts: int, elapsed: float, limit: float
) -> float:
    """Return the seconds that an origin is unreachable after another failure (REP.md section 4).

    :param before: the result for the previous failure
    :param attempts: failures in a row before this one
    :param elapsed: seconds since the last attempt; the clock may have been set since
    """
    if not attempts:
        return 0.0
    share = limit / SHARES
    return min(before, (attempts - 1) * share) + min(max(elapsed, 0.0), share)
