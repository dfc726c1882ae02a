"""What to do with a request, given what is known of its origin (REP.md section 4).

The one place that decides whether a request is judged, waits, is held, is dropped or passes. Pure: no
I/O, no clock. The middleware and the hold carry the advice out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.settings import RepSettings


# So many times REP_DEFER_GRACE.
_SLOW = 5


class Decide(NamedTuple):
    """Apply the rules."""


class Pass(NamedTuple):
    """Let it pass: ``REP_UNREACHABLE`` is "allow"."""


class Wait(NamedTuple):
    """Wait in the downloader."""

    seconds: float
    """If nothing is known: the longest, from the start of the fetch. If the origin is unreachable:
    until the next attempt."""


class Hold(NamedTuple):
    """Hold it outside the downloader until there is an answer."""


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
        """Return the advice for the unreachable origin *state*."""
        reason = state.entry.error or "unreachable"
        return cls(reason, state.entry.attempts, cause=state.failure)


Advice: TypeAlias = Decide | Pass | Wait | Hold | Drop


class Room(Enum):
    """How many more requests of an origin may be held."""

    FREE = "free"
    """At least one more."""
    FULL = "full"
    """None: the rest of the hold, if any, is for other origins."""
    GREEDY = "greedy"
    """None, and much of what is held is this origin's."""


class Situation(NamedTuple):
    """What else the advice depends on."""

    direct: bool = False
    """Whether it is a direct download (a media pipeline's, say), which can't be held."""
    room: Room = Room.FREE
    slot_free: bool = True
    """Whether another request may wait in place."""
    durable: bool = False
    """Whether the hold outlives the crawl."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decide."""

    unreachable: str
    """``REP_UNREACHABLE``."""
    dead_host_tries: int
    """``REP_DEFER_DEAD_HOST_TRIES``."""
    grace: float
    """``REP_DEFER_GRACE``: seconds to wait in place for a first answer."""
    patience: float
    """``REP_DOWNLOAD_TIMEOUT``: seconds for which a direct download waits for the next attempt."""

    @classmethod
    def of(cls, settings: RepSettings) -> Policy:
        """Return the policy for *settings*."""
        return cls(
            settings.unreachable,
            settings.defer_dead_host_tries,
            settings.defer_grace,
            settings.download_timeout,
        )

    @property
    def slow(self) -> float:
        """Seconds after which a first answer is slow: from the start of the fetch."""
        return _SLOW * self.grace

    def advise(self, state: OriginState | None, now: float, situation: Situation) -> Advice:
        """Return what to do with a request.

        :param state: what is known of its origin; None: a fetch is due
        :param now: seconds since the epoch
        """
        if state is None:
            return self.without_answer(situation)
        if not state.unreachable:
            return Decide()
        if self.unreachable == "allow":
            return Pass()
        drop = Drop.of(state)
        if not self.is_worth_waiting(state):
            return drop
        if situation.direct:
            seconds = max(0.0, state.entry.next_attempt_at - now)
            return Wait(seconds) if seconds < self.patience else drop
        return Hold() if situation.room is Room.FREE else drop._replace(for_room=True)

    def without_answer(self, situation: Situation) -> Wait | Hold | Drop:
        """Return what to do with a request if nothing is known of its origin."""
        if situation.direct:
            return Wait(math.inf)
        if situation.room is Room.FREE:
            return Wait(self.grace) if situation.slot_free else Hold()
        if situation.room is Room.GREEDY and not situation.slot_free:
            # Other origins need the slots.
            return Drop("too many of its requests are held", for_room=True)
        # A waiting request takes a slot, which slows down a flood of new origins.
        return Wait(math.inf)

    def at_the_end(self, situation: Situation) -> Hold | Drop:
        """Return what to do with a request that still waits when the crawl ends."""
        hold = situation.durable and not situation.direct
        return Hold() if hold else Drop("the crawl is ending")

    def is_worth_waiting(self, state: OriginState) -> bool:
        """Whether to wait for *state* to change."""
        alive = state.entry.dead_attempts < self.dead_host_tries
        return state.unreachable and alive and self.unreachable == "defer"
