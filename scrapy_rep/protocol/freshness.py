"""How long an answer is fresh, and when an unreachable origin is asked again (REP.md sections 4 and
5). No clock: times are passed in, in seconds since the epoch."""

from __future__ import annotations

import re
from datetime import timezone
from email.utils import parsedate_to_datetime
from enum import Enum

# Blanks after the quote only if there is one: two adjacent \s* would backtrack.
_MAX_AGE = re.compile(r'\bmax-age\s*=\s*(?:"\s*)?(-?[0-9]+)\b', re.IGNORECASE)
_S_MAXAGE = re.compile(r"\bs-maxage\b[^,]*", re.IGNORECASE)
_NO_STORE = re.compile(r"\bno-(?:store|cache)\b", re.IGNORECASE)


def fresh_seconds(
    cache_control: str | None,
    age: str | None,
    *,
    default: float,
    minimum: float,
    maximum: float,
) -> float:
    """Return for how many seconds an answer is fresh (REP.md section 5).

    ``max-age`` less ``Age`` counts, between *minimum* and *maximum*; ``no-store`` and ``no-cache``
    mean *minimum*; without any of these, or with nonsense, it is *default*. Of several
    ``max-age`` the smallest counts. ``s-maxage`` is for proxies and is not looked at.

    :param cache_control: the header's value; several headers joined by commas
    :param age: the ``Age`` header's value
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
    """Return an integer, or a large one for more digits than Python converts."""
    return int(digits) if len(digits) < 19 else 10**18


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` header (seconds or an HTTP date) asks to wait, None
    if it can't be read.

    :param now: seconds since the epoch, for the date
    """
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
    attempts: int,
    *,
    base: float,
    maximum: float,
    jitter: float,
    retry_after: float | None = None,
) -> float:
    """Return the seconds until an unreachable origin is asked again (REP.md section 4).

    Doubles with each failure, from *base* up to *maximum*. *jitter* takes off up to a quarter, so
    that origins that failed together are not asked together for ever.

    :param attempts: failures in a row, including the latest
    :param jitter: a random number from 0 up to 1
    :param retry_after: seconds that the server asked for: a lower bound, within *maximum*
    """
    # 2**64 seconds are beyond any maximum.
    delay = min(maximum, base * 2.0 ** min(attempts - 1, 64)) * (1 - jitter / 4)
    return min(maximum, max(delay, retry_after or 0.0))


# The time between two attempts counts for a quarter of the limit at most: 7.5 of 30 days. So it takes
# five attempts, and no jump of a clock is enough. A larger divisor would shorten the weeks of a crawl
# that runs weekly.
_SHARES = 4


def unreachable_seconds(before: float, attempts: int, elapsed: float, limit: float) -> float:
    """Return for how many seconds an origin counts as unreachable after one more failure (REP.md
    section 4: attempts count, not the clock between two of them).

    :param before: the same after the failure before; 0 if there was none
    :param attempts: failures in the row before this one
    :param elapsed: seconds since the last attempt, by a clock that may have been set meanwhile
    :param limit: the 30 days, in seconds
    """
    if not attempts:
        return 0.0
    share = limit / _SHARES
    return min(before, (attempts - 1) * share) + min(max(elapsed, 0.0), share)


class Standing(Enum):
    """What an origin's entry is good for at some moment."""

    FRESH = "fresh"
    """Apply it."""
    ASK = "ask"
    """Fetch robots.txt before the next decision."""
    STALE = "stale"
    """Unreachable, but there is a copy: apply that."""
    UNREACHABLE = "unreachable"
    """Unreachable, without a copy: everything is disallowed for now."""
    UNRESTRICTED = "unrestricted"
    """Unreachable for more than 30 days, without a copy: no restrictions."""


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
    """Return what an entry is good for *now*, and until when if nothing is fetched (REP.md sections
    4 and 5). All times are in seconds since the epoch.

    :param unreachable_since: the first failure of an unbroken row, None if the last fetch counted
    :param unreachable_for: for how long since, see :func:`unreachable_seconds`
    :param limit: the 30 days, in seconds
    """
    if unreachable_since is None:
        return (Standing.FRESH, fresh_until) if now < fresh_until else (Standing.ASK, now)
    if now >= next_attempt_at:
        return Standing.ASK, now
    if has_copy:  # however old it is, and whatever the limit
        return Standing.STALE, next_attempt_at
    if unreachable_for >= limit:
        return Standing.UNRESTRICTED, next_attempt_at
    return Standing.UNREACHABLE, next_attempt_at
