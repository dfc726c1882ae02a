"""What to do with a request, given what is known of its origin (REP.md section 4): whether it goes on,
waits, is held, is judged, fails or passes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.origins.answer import failure_in
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry
from scrapy_rep.text import text_of

if TYPE_CHECKING:
    from scrapy_rep.origins.state import OriginState

UNKNOWN_YET = "no answer yet"
"""Why requests wait for an origin that hasn't failed."""

_LAST_SHARE = 4
"""An attempt counts as the last one if it was made in the last quarter of REP_HOLD_MAX_WAIT."""
_PAUSE_SHARE = 2
"""If the times of an origin's requests are over one after the other, robots.txt is not fetched for each: at
least half of the regular pause passes between two extra attempts."""


class Drop(NamedTuple):
    """Why a request fails with ``RobotsUnreachable``."""

    reason: str
    attempts: int = 0
    """Consecutive failed fetches of robots.txt."""
    for_room: bool = False
    """Whether the only reason is that too many are held."""
    cause: BaseException | None = None
    """What the last fetch raised, or an exception like that."""

    @classmethod
    def of(cls, state: OriginState | None) -> Drop:
        """Return why there is no robots.txt of the origin of which *state* is known."""
        entry = None if state is None else state.entry
        if entry is None or entry.error is None:
            return cls(UNKNOWN_YET)
        return cls(entry.error, entry.attempts, cause=failure_in(entry.error))

    @classmethod
    def after(cls, error: Exception) -> Drop:
        """Return that a fetch raised *error*: a misconfiguration, or a bug."""
        why = text_of(error)
        return cls(why, cause=failure_in(why))


NO_REASON = Drop("")


class Action(Enum):
    """What to do with a request."""

    LEAVE = "let it go on to the middleware"
    STAY = "keep it at the gate until there is an answer"
    DECIDE = "apply the rules"
    ALLOW = 'let it pass: REP_UNREACHABLE is "allow"'
    WAIT = "let it wait for the next attempt, which is near"
    FAIL = "fail it with RobotsUnreachable"


@dataclass(frozen=True, slots=True)
class Advice:
    action: Action
    why: Drop = NO_REASON
    """Why it fails, if it does."""


LEAVE = Advice(Action.LEAVE)
STAY = Advice(Action.STAY)
DECIDE = Advice(Action.DECIDE)
ALLOW = Advice(Action.ALLOW)
WAIT = Advice(Action.WAIT)


class Policy:
    """The one place that decides what to do with a request, except when a held request's time is over, or
    there is no room to hold those that waited: holding/holding.py does. Pure: no I/O, no clock."""

    def __init__(self, settings: RepSettings) -> None:
        self.unreachable = settings.unreachable
        """``REP_UNREACHABLE``."""
        self.grace = settings.hold_grace
        """Seconds from the start of a first fetch until a request that waits for it counts as held."""
        self._tries = settings.hold_dead_host_tries
        self._patience = min(settings.download_timeout, settings.hold_max_wait)
        """Seconds that a direct download waits for the next attempt, no more than a held request."""
        self._last_seconds = min(
            settings.retry_delay, settings.hold_max_wait / _LAST_SHARE
        )
        """Seconds since the attempt before, at least, until an extra attempt."""

    def at_the_gate(self, state: OriginState | None, *, full: bool) -> Advice:
        """Return what to do with a request from the scheduler. *state* is what is known of its
        origin; None: a fetch is due. *full*: no more requests to it may be held."""
        if state is not None and not self.is_worth_waiting(state):
            return LEAVE
        if not full:
            return STAY
        drop = (
            Drop.of(state)
            if state is not None
            else Drop("too many of its requests are held")
        )
        return Advice(
            Action.FAIL, drop._replace(for_room=True)
        )  # other origins need the place

    def in_the_middleware(self, state: OriginState, now: float) -> Advice:
        """Return what to do, *now* (seconds since the epoch), with a request that may have passed
        no gate: a direct download (a media pipeline's, say) can't be held, but can wait for the next
        attempt, if that is near."""
        if not state.unreachable:
            return DECIDE
        if self.unreachable == "allow":
            return ALLOW
        seconds = max(0.0, state.entry.next_attempt_at - now)
        if self.is_worth_waiting(state) and seconds < self._patience:
            return WAIT
        return Advice(Action.FAIL, Drop.of(state))

    def is_worth_waiting(self, state: OriginState) -> bool:
        """Whether to wait for *state* to change."""
        alive = state.entry.dead_attempts < self._tries
        return state.unreachable and alive and self.unreachable == "hold"

    def last_attempt_at(self, entry: Entry, extra_attempt: int) -> float:
        """Return from when on (seconds since the epoch) an attempt may be made because the time of
        held requests is over, before the origin's next one is due. *extra_attempt*: the number of the
        last one that was made for this reason."""
        pause = self._last_seconds
        if entry.attempts == extra_attempt:
            pause = max(
                pause, (entry.next_attempt_at - entry.updated_at) / _PAUSE_SHARE
            )
        # Whatever a storage says, the origin's clock goes on.
        not_before = min(entry.not_before, entry.next_attempt_at)
        return max(entry.updated_at + pause, not_before)
