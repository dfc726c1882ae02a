"""What to do with a request, given what is known of its origin (REP.md section 4).

The one place that decides whether a request leaves the gate, waits, is held, is judged, is dropped or
passes, except when a held request's time is over: holding/deferral.py does. Pure: no I/O, no clock.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scrapy_rep.origins.state import OriginState
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.entry import Entry

# An attempt is the last one if it was made within this share of REP_DEFER_MAX_WAIT before the end.
_LATE_SHARE = 4

# Requests come and go: after a last attempt, the next one waits for this share of the pause.
_PAUSE_SHARE = 2


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
    cause: BaseException | None = None
    """What the last fetch raised."""

    @classmethod
    def of(cls, state: OriginState) -> Drop:
        reason = state.entry.error or "unreachable"
        return cls(reason, state.entry.attempts, cause=state.failure)


class Policy:
    def __init__(self, settings: RepSettings) -> None:
        self.unreachable = settings.unreachable
        """``REP_UNREACHABLE``."""
        self.grace = settings.defer_grace
        """Seconds from the start of a first fetch until a request that waits for it counts as held."""
        self._tries = settings.defer_dead_host_tries
        self._patience = settings.download_timeout
        """Seconds that a direct download waits for the next attempt."""
        self._late = min(settings.retry_delay, settings.defer_max_wait / _LATE_SHARE)

    def at_the_gate(self, state: OriginState | None, *, full: bool) -> Leave | Wait | Hold | Drop:
        """Return what to do with a request from the scheduler. *state* is what is known of its
        origin; None: a fetch is due. *full*: no more requests to it may be held."""
        if state is None:
            drop = Drop("too many of its requests are held", for_room=True)
            return drop if full else Wait(self.grace)  # other origins need the place
        if not self.is_worth_waiting(state):
            return Leave()
        return Drop.of(state)._replace(for_room=True) if full else Hold()

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

    def last_attempt_at(self, entry: Entry, latest: int) -> float:
        """Return from when on (seconds since the epoch) an attempt may be made because the time of
        held requests is over, before the origin's next one is due. *latest*: which attempt in a row
        of failures was such a last one."""
        pause = self._late
        if entry.attempts == latest:
            pause = max(pause, (entry.next_attempt_at - entry.updated_at) / _PAUSE_SHARE)
        # Whatever a storage says, the origin's clock goes on.
        not_before = min(entry.not_before, entry.next_attempt_at)
        return max(entry.updated_at + pause, not_before)
