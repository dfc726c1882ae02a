"""What to do with a request, given what is known of its origin (REP.md section 4).

The one place that decides whether a request leaves the gate, waits, is held, is judged, is dropped or
passes, except when a held request's time is over: holding/deferral.py does. Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

from scrapy_rep.origins.state import OriginState
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.entry import Entry

# Multiple of REP_DEFER_GRACE.
_SLOW = 5

# An attempt is the last one if it was made within this share of REP_DEFER_MAX_WAIT before the end.
_LATE_SHARE = 4

# Requests come and go: after a last attempt, the next one waits for this share of the pause.
_PAUSE_SHARE = 2

# Origins.
_MOST = 10_000


class Leave(NamedTuple):
    """Let it go on to the middleware."""


class Decide(NamedTuple):
    """Apply the rules."""


class Pass(NamedTuple):
    """Let it pass: ``REP_UNREACHABLE`` is "allow"."""


class Wait(NamedTuple):
    seconds: float
    """The longest wait: from the start of the fetch if nothing is known; until the next attempt if
    the origin is unreachable."""


class Hold(NamedTuple):
    """Hold it until there is an answer."""


class Drop(NamedTuple):
    """Fail it with ``RobotsUnreachable``."""

    reason: str
    attempts: int = 0
    """Consecutive failed fetches of robots.txt."""
    for_room: bool = False
    """Whether the only reason is that too many are held."""
    cause: Exception | None = None
    """What the last fetch raised."""

    @classmethod
    def of(cls, state: OriginState) -> Drop:
        reason = state.entry.error or "unreachable"
        return cls(reason, state.entry.attempts, cause=state.failure)


class Room(Enum):
    """How many more requests of an origin may be held."""

    FREE = "free"
    """At least one more."""
    FULL = "full"
    """None: what room the hold has left is for other origins."""
    GREEDY = "greedy"
    """None, and much of what is at the gate is this origin's."""


class Policy:
    def __init__(self, settings: RepSettings) -> None:
        self.unreachable = settings.unreachable
        """``REP_UNREACHABLE``."""
        self.grace = settings.defer_grace
        """Seconds from the start of a first fetch until a request that waits for it counts as held."""
        self.slow = _SLOW * self.grace
        """Seconds after which a first answer is slow."""
        self._tries = settings.defer_dead_host_tries
        self._patience = settings.download_timeout
        """Seconds that a direct download waits for the next attempt."""

    def at_the_gate(self, state: OriginState | None, room: Room) -> Leave | Wait | Hold | Drop:
        """Return what to do with a request from the scheduler. *state* is what is known of its
        origin; None: a fetch is due. *room* is for more requests to it."""
        if state is None:
            if room is Room.GREEDY:  # other origins need the place
                return Drop("too many of its requests are held", for_room=True)
            return Wait(self.grace)
        if not self.is_worth_waiting(state):
            return Leave()
        return Hold() if room is Room.FREE else Drop.of(state)._replace(for_room=True)

    def in_the_middleware(
        self, state: OriginState | None, now: float
    ) -> Decide | Pass | Wait | Drop:
        """Return what to do, *now* (seconds since the epoch), with a request that may have passed
        no gate: a direct download (a media pipeline's, say) can't be held."""
        if state is None:
            return Wait(math.inf)
        if not state.unreachable:
            return Decide()
        if self.unreachable == "allow":
            return Pass()
        drop = Drop.of(state)
        if not self.is_worth_waiting(state):
            return drop
        seconds = max(0.0, state.entry.next_attempt_at - now)
        return Wait(seconds) if seconds < self._patience else drop

    def is_worth_waiting(self, state: OriginState) -> bool:
        """Whether to wait for *state* to change."""
        alive = state.entry.dead_attempts < self._tries
        return state.unreachable and alive and self.unreachable == "defer"


class LastAttempts:
    """The last attempt at a robots.txt, made when held requests run out of time before the origin's
    next attempt is due (REP.md section 4). No request waits for an attempt that won't be made."""

    def __init__(self, settings: RepSettings) -> None:
        self.late = min(settings.retry_delay, settings.defer_max_wait / _LATE_SHARE)
        """Seconds: an attempt in the last of them was the last one."""
        self.seconds = min(settings.download_timeout, settings.defer_max_wait)
        """Seconds that requests whose time is over wait for an answer."""
        self._made: dict[str, int] = {}
        """Which attempt in a row of failures was a last one, by origin."""

    def is_due(self, entry: Entry | None, now: float) -> bool:
        """Whether to make one *now* (seconds since the epoch), when a request's time is over."""
        if entry is None or entry.unreachable_since is None:
            return True
        least = self._pause(entry) or self.late
        return now >= max(entry.updated_at + least, _not_before(entry))

    def hopeless(self, entry: Entry, now: float) -> float:
        """Return for how many seconds from *now* on, after a failure, none will be made."""
        return max(0.0, entry.updated_at + self._pause(entry) - now, _not_before(entry) - now)

    def made(self, origin: str, entry: Entry | None) -> None:
        if len(self._made) >= _MOST:
            self._made.clear()
        self._made[origin] = entry.attempts + 1 if entry else 1

    def _pause(self, entry: Entry) -> float:
        """Return the seconds for which no other may follow the latest attempt, if that was a last one."""
        if self._made.get(entry.origin) != entry.attempts:
            return 0.0
        return max(0.0, entry.next_attempt_at - entry.updated_at) / _PAUSE_SHARE


def _not_before(entry: Entry) -> float:
    # Whatever a storage says, the origin's clock goes on.
    return min(entry.not_before, entry.next_attempt_at)
