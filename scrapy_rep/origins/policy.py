"""What to do with a request, given what is known of its origin (REP.md section 4):
whether it goes on, waits, is held, is judged by the rules, fails or passes."""

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
"""The reason of a :class:`Drop` while an origin has neither answered nor failed."""

# An *extra attempt* to fetch robots.txt is made when the time of held requests is over,
# before they are given up, although the origin's next regular attempt isn't due.

_LAST_SHARE = 4
"""An extra attempt comes REP_RETRY_DELAY after the attempt before it, or after this
share (a quarter) of REP_HOLD_MAX_WAIT, if that is shorter."""

_PAUSE_SHARE = 2
"""If the times of an origin's requests are over one after the other, robots.txt is not
fetched for each request: at least this share (half) of the regular pause passes between
two extra attempts."""


class Drop(NamedTuple):
    """Why a request fails with ``RobotsUnreachable``."""

    reason: str
    """In words: a failure's as :func:`.text.text_of` returns it."""
    attempts: int = 0
    """Consecutive failed fetches of robots.txt."""
    for_room: bool = False
    """Whether the request fails only since too many are held."""
    cause: BaseException | None = None
    """What the last fetch raised, or an exception like that one: the request's failure
    has it as its ``__cause__``."""

    @classmethod
    def of(cls, state: OriginState | None) -> Drop:
        """Return why there is no robots.txt of an origin. *state*: what is known of
        it."""
        entry = None if state is None else state.entry
        if entry is None or entry.error is None:
            return cls(UNKNOWN_YET)
        return cls(entry.error, entry.attempts, cause=failure_in(entry.error))

    @classmethod
    def after(cls, error: Exception) -> Drop:
        """Return the reason if a fetch raised *error*: a misconfiguration, or a bug."""
        reason = text_of(error)
        # The cause is not *error* itself, whose frames would keep requests in memory.
        return cls(reason, cause=failure_in(reason))


NO_REASON = Drop("")
"""For requests that don't fail."""


class Action(Enum):
    """What to do with a request. The gate is holding/gate.py."""

    LEAVE = "let it go on to the middleware"
    STAY = "keep it at the gate until there is an answer"
    DECIDE = "apply the rules"
    ALLOW = 'let it pass: REP_UNREACHABLE is "allow"'
    WAIT = "let it wait for the next attempt, which is near"
    FAIL = "fail it with RobotsUnreachable"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with a request, and why."""

    action: Action
    why: Drop = NO_REASON
    """Why it fails, if it does."""


LEAVE = Advice(Action.LEAVE)
STAY = Advice(Action.STAY)
DECIDE = Advice(Action.DECIDE)
ALLOW = Advice(Action.ALLOW)
WAIT = Advice(Action.WAIT)


class Policy:
    """The one place that decides what to do with a request, except when a held
    request's time is over, or there is no room to hold those that waited. Then
    holding/holding.py decides. Pure: no I/O, no clock."""

    def __init__(self, settings: RepSettings) -> None:
        self.unreachable = settings.unreachable
        """``REP_UNREACHABLE``."""
        self.grace = settings.hold_grace
        """Seconds from when a first fetch is needed until a request that waits for it
        counts as held."""
        self._dead_host_tries = settings.hold_dead_host_tries
        """After this many failures in a row to resolve the host or to connect, waiting
        is no use."""
        self._patience = min(settings.download_timeout, settings.hold_max_wait)
        """Seconds that a direct download (which passes no gate) waits for the next
        attempt: at most as long as a held request."""
        last_quarter = settings.hold_max_wait / _LAST_SHARE
        self._extra_pause = min(settings.retry_delay, last_quarter)
        """Seconds between an attempt and an extra attempt (see the top of this module),
        at least."""

    def at_the_gate(self, state: OriginState | None, *, full: bool) -> Advice:
        """Return what to do with a request from the scheduler, at the gate
        (holding/gate.py). *state* is what is known of its origin; None: a fetch is due.
        *full*: no more requests to it may be held."""
        if state is not None and not self.is_worth_waiting(state):
            return LEAVE
        if not full:
            return STAY
        # It has to go, since other origins need the place.
        drop = Drop("too many of its requests are held")
        if state is not None:
            drop = Drop.of(state)
        return Advice(Action.FAIL, drop._replace(for_room=True))

    def in_the_middleware(self, state: OriginState, now: float) -> Advice:
        """Return what to do, *now* (seconds since the epoch), with a request that may
        be a direct download, which has passed no gate (a media pipeline's, say). Such a
        request can't be held, but can wait for the next attempt, if that is near."""
        if not state.unreachable:
            return DECIDE
        if self.unreachable == "allow":
            return ALLOW
        seconds = max(0.0, state.entry.next_attempt_at - now)
        if self.is_worth_waiting(state) and seconds < self._patience:
            return WAIT
        return Advice(Action.FAIL, Drop.of(state))

    def is_worth_waiting(self, state: OriginState) -> bool:
        """Return whether requests wait for *state* to change: the origin is
        unreachable, but not known to be dead, and ``REP_UNREACHABLE`` is "hold"."""
        if not state.unreachable or self.unreachable != "hold":
            return False
        return state.entry.dead_attempts < self._dead_host_tries

    def extra_attempt_allowed_at(self, entry: Entry, extra_attempt: int) -> float:
        """Return from when on (seconds since the epoch) an extra attempt may be made:
        one that is made only because the time of held requests is over, before the
        origin's next attempt is due. *extra_attempt*: the number (``entry.attempts``)
        of the last extra attempt."""
        pause = self._extra_pause
        is_latest_extra = entry.attempts == extra_attempt
        if is_latest_extra:
            regular_pause = entry.next_attempt_at - entry.updated_at
            pause = max(pause, regular_pause / _PAUSE_SHARE)
        # A storage may have any `not_before` (Retry-After). The regular attempt is made
        # whatever that says, so an extra one is allowed then, too.
        not_before = min(entry.not_before, entry.next_attempt_at)
        return max(entry.updated_at + pause, not_before)
