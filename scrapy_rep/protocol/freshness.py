"""How long an answer holds, and when an unreachable origin is asked again
(REP.md sections 4 and 5). No clock here: time is passed in, in seconds since the epoch."""

from __future__ import annotations

import re
from datetime import timezone
from email.utils import parsedate_to_datetime
from enum import Enum

# Blanks after the quote only if there is a quote: two runs of blanks side by side would be tried in
# every way to share them.
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
            lifetime = min(map(_number, found)) - _age(age)
            return float(min(max(lifetime, minimum), maximum))
    return default


def _age(value: str | None) -> int:
    value = (value or "").strip()
    return _number(value) if value.isascii() and value.isdigit() else 0


def _number(digits: str) -> int:
    """An integer; one too long to be meant (and, at some length, for Python to convert) is only
    large."""
    return int(digits) if len(digits) < 19 else 10**18


def retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks to wait, None where it says nothing
    that can be read. Both of its forms count: seconds and an HTTP date.

    :param now: seconds since the epoch, for the date
    """
    value = (value or "").strip()
    if value.isascii() and value.isdigit():
        return float(_number(value))
    if not value:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    try:
        return max(0.0, date.timestamp() - now)
    except (ValueError, OverflowError):
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

    Doubles with each failure, from *base* up to *maximum*; up to a quarter of it is taken off
    by *jitter*, so that origins which fell together are not asked together for ever.

    :param attempts: failures in a row, the one just seen included
    :param jitter: a random number from 0 up to 1
    :param retry_after: seconds that the server asked for: a lower bound, within *maximum*
    """
    # 2**64 seconds are beyond any maximum: the bound keeps the power a small number.
    delay = min(maximum, base * 2.0 ** min(attempts - 1, 64)) * (1 - jitter / 4)
    return min(maximum, max(delay, retry_after or 0.0))


# The time between two attempts counts for a quarter of the limit at most: seven and a half of 30 days.
# So it takes five attempts spread over that time, and no jump of a clock comes near it. A larger
# divisor would keep a crawl that runs weekly from ever counting all of its weeks.
_SHARES = 4


def unreachable_seconds(before: float, attempts: int, elapsed: float, limit: float) -> float:
    """Return for how many seconds an origin counts as unreachable after one more failure (REP.md
    section 4: attempts that were made count, not what a clock says between two of them).

    :param before: the same after the failure before; 0 if there was none
    :param attempts: failures in the row before this one
    :param elapsed: seconds since the last attempt, by clocks that may have been set meanwhile
    :param limit: the 30 days, in seconds
    """
    if not attempts:
        return 0.0
    share = limit / _SHARES
    return min(before, (attempts - 1) * share) + min(max(elapsed, 0.0), share)


class Standing(Enum):
    """What an origin's entry is good for at a moment."""

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
    """Return what an entry is good for *now*, and until when that holds unless something is
    fetched (REP.md sections 4 and 5). All times in seconds since the epoch.

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
