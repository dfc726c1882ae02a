"""How long an answer stays fresh, and when to retry an unreachable origin (REP.md sections 4 and 5).
No clock: times are arguments, in seconds since the epoch."""

from __future__ import annotations

import re
from datetime import timezone
from email.utils import parsedate_to_datetime
from enum import Enum

# Two adjacent \s* would backtrack.
_MAX_AGE = re.compile(r'\bmax-age\s*=\s*(?:"\s*)?(-?[0-9]+)\b', re.IGNORECASE)
_S_MAXAGE = re.compile(r"\bs-maxage\b[^,]*", re.IGNORECASE)
_NO_STORE = re.compile(r"\bno-(?:store|cache)\b", re.IGNORECASE)

BLACKOUT = 12 * 3600.0
"""Seconds for which an unreachable origin isn't crawled at all, by Google's rules of April 2026."""

# The time between two attempts counts for at most a quarter of the limit: 7.5 of 30 days, more than
# the week of a weekly crawl. So it takes five attempts, and no jump of the clock suffices.
_SHARES = 4


def fresh_seconds(
    cache_control: str | None, age: str | None, *, default: float, minimum: float, maximum: float
) -> float:
    """Return for how many seconds an answer is fresh (REP.md section 5).

    This is ``max-age`` (the smallest) less ``Age``, within *minimum* and *maximum*; *minimum* for
    ``no-store`` and ``no-cache``; *default* otherwise. ``s-maxage`` is for proxies, and ignored.
    """
    if cache_control:
        if _NO_STORE.search(cache_control):
            return minimum
        found = _MAX_AGE.findall(_S_MAXAGE.sub("", cache_control))
        if found:
            lifetime = min(map(_number, found)) - (_seconds(age) or 0)
            return float(min(max(lifetime, minimum), maximum))
    return default


def _seconds(value: str | None) -> int | None:
    value = (value or "").strip()
    return _number(value) if value.isascii() and value.isdigit() else None


def _number(digits: str) -> int:
    """Return an integer; a large one for more digits than Python converts."""
    return int(digits) if len(digits) < 19 else 10**18


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds to wait by a ``Retry-After`` header, None if it is invalid."""
    seconds = _seconds(value)
    if seconds is not None:
        return float(seconds)
    try:
        date = parsedate_to_datetime((value or "").strip())
        if date.tzinfo is None:
            date = date.replace(tzinfo=timezone.utc)
        return max(0.0, date.timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def backoff(
    attempts: int, *, base: float, maximum: float, jitter: float, retry_after: float | None = None
) -> float:
    """Return the seconds until the next attempt for an unreachable origin (REP.md section 4).

    Doubles with each of *attempts* failures, from *base* to *maximum*, but respects *retry_after*.
    *jitter* (0 to 1, random) takes off up to a quarter, to spread origins that failed together.
    """
    # 2**64 seconds exceed any maximum.
    delay = min(maximum, base * 2.0 ** min(attempts - 1, 64)) * (1 - jitter / 4)
    return min(maximum, max(delay, retry_after or 0.0))


def unreachable_seconds(before: float, attempts: int, elapsed: float, limit: float) -> float:
    """Return the seconds that an origin is unreachable after another failure (REP.md section 4).

    :param before: the result for the previous failure
    :param attempts: failures in a row before this one
    :param elapsed: seconds since the last attempt; the clock may have been set since
    """
    if not attempts:
        return 0.0
    share = limit / _SHARES
    return min(before, (attempts - 1) * share) + min(max(elapsed, 0.0), share)


class Standing(Enum):
    """How an origin's entry can be used."""

    FRESH = "fresh"
    """Apply it."""
    ASK = "ask"
    """Fetch robots.txt before the next decision."""
    STALE = "stale"
    """Unreachable, with a copy: apply that."""
    UNREACHABLE = "unreachable"
    """Unreachable, without a copy: everything is disallowed for now."""
    UNRESTRICTED = "unrestricted"
    """Unreachable for more than 30 days, without a copy: no restrictions."""


def rung(seconds: float, page_ago: float, limit: float, *, has_copy: bool) -> Standing:
    """Return what Google's rules of April 2026 make of an unreachable origin (REP.md section 13).

    :param seconds: how long it has been unreachable, see :func:`unreachable_seconds`
    :param page_ago: seconds since one of its pages answered
    :param limit: the 30 days, in seconds
    """
    if seconds < BLACKOUT:
        return Standing.UNREACHABLE
    if seconds < limit:
        return Standing.STALE if has_copy else Standing.UNRESTRICTED
    # As for attempts: a share of the limit, which is more than the week of a weekly crawl.
    pages_answer = 0 <= page_ago <= limit / _SHARES
    return Standing.UNRESTRICTED if pages_answer else Standing.UNREACHABLE


def standing(
    now: float,
    *,
    fresh_until: float,
    has_copy: bool,
    unreachable_since: float | None,
    unreachable_for: float,
    next_attempt_at: float,
    limit: float,
) -> tuple[Standing, float]:
    """Return how an entry can be used *now*, and until when (REP.md sections 4 and 5).

    :param unreachable_since: the first of the latest failures; None if the last fetch succeeded
    :param unreachable_for: see :func:`unreachable_seconds`
    """
    if unreachable_since is None:
        return (Standing.FRESH, fresh_until) if now < fresh_until else (Standing.ASK, now)
    if now >= next_attempt_at:
        return Standing.ASK, now
    if has_copy:  # however old
        return Standing.STALE, next_attempt_at
    if unreachable_for >= limit:
        return Standing.UNRESTRICTED, next_attempt_at
    return Standing.UNREACHABLE, next_attempt_at
