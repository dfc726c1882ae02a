"""What to do with a request, given what is known of its origin (REP.md section 4).

The one place that decides whether a request is judged by rules, waits, is held, is dropped, or
passes unjudged. Pure: no I/O, no clock; time is passed in. The middleware and the hold carry it out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.settings import RepSettings


class Decide(NamedTuple):
    """Apply the rules at hand."""


class Pass(NamedTuple):
    """Let it pass unjudged: ``REP_UNREACHABLE`` is "allow"."""


class Wait(NamedTuple):
    """Wait in place, in the downloader, for an answer."""

    seconds: float
    """While nothing is known: at most, from when the fetch was asked for. For an unreachable origin:
    until it may be asked again."""


class Hold(NamedTuple):
    """Set it aside, outside the downloader, until there is an answer."""


class Drop(NamedTuple):
    """Fail it with ``RobotsUnreachable``."""

    reason: str
    attempts: int = 0
    """Failed fetches of robots.txt in a row."""
    for_room: bool = False
    """Whether it is dropped only because too many are held."""

    @classmethod
    def of(cls, state: OriginState) -> Drop:
        """Return the advice for the unreachable origin *state*."""
        return cls(state.entry.error or "unreachable", state.entry.attempts)


Advice: TypeAlias = Decide | Pass | Wait | Hold | Drop


class Room(Enum):
    """How many more requests of an origin may be held."""

    FREE = "free"
    """At least one more."""
    FULL = "full"
    """None: the hold is full, or as full as other origins' shares allow."""
    GREEDY = "greedy"
    """None, and the origin itself holds a large part of them all."""


class Situation(NamedTuple):
    """What counts beside what is known of the origin."""

    direct: bool = False
    """A direct download (a media pipeline's, say), which can't be held."""
    room: Room = Room.FREE
    slot_free: bool = True
    """Whether one more request may wait in place."""
    durable: bool = False
    """Whether what is held outlives the crawl."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Gives advice by the user's settings."""

    unreachable: str
    """``REP_UNREACHABLE``."""
    dead_host_tries: int
    """``REP_DEFER_DEAD_HOST_TRIES``."""
    grace: float
    """``REP_DEFER_GRACE``: seconds that a request waits in place for a first answer."""
    patience: float
    """``REP_DOWNLOAD_TIMEOUT``: seconds that a direct download waits for an unreachable origin."""

    @classmethod
    def of(cls, settings: RepSettings) -> Policy:
        """Return the policy that *settings* ask for."""
        return cls(
            settings.unreachable,
            settings.defer_dead_host_tries,
            settings.defer_grace,
            settings.download_timeout,
        )

    def advise(self, state: OriginState | None, now: float, situation: Situation) -> Advice:
        """Return what to do with a request.

        :param state: what is known of its origin; None: robots.txt has to be asked for
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
        """Return what to do with a request of an origin of which nothing is known."""
        if situation.direct:
            return Wait(math.inf)
        if situation.room is Room.FREE:
            return Wait(self.grace) if situation.slot_free else Hold()
        if situation.room is Room.GREEDY and not situation.slot_free:
            # The other origins need the slots.
            return Drop("too many of its requests are held", for_room=True)
        # Waiting takes slots, which slows down whatever floods the hold with new origins.
        return Wait(math.inf)

    def at_the_end(self, situation: Situation) -> Hold | Drop:
        """Return what to do with a request whose robots.txt won't come: the crawl is ending."""
        if situation.durable and not situation.direct:
            return Hold()
        return Drop("the crawl is ending")

    def is_worth_waiting(self, state: OriginState) -> bool:
        """Whether *state* may soon change, and the user wants to wait for that."""
        alive = state.entry.dead_attempts < self.dead_host_tries
        return state.unreachable and alive and self.unreachable == "defer"
