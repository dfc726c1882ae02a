"""One fetch of a robots.txt, and those who wait for its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from scrapy import Request
from twisted.internet.defer import Deferred

from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages.base import Entry

LANDING_SECONDS = 1.0
"""Seconds after its timeout that a fetch may take to fail, or an answer to be handled."""


@dataclass(frozen=True)
class Limits:
    """How long who waits, in seconds."""

    grace: float
    """From the start of a first fetch until a request counts as held."""
    max_wait: float
    """``REP_HOLD_MAX_WAIT``: until a held request is given up."""
    fetch: float
    """What a fetch may take, from when it is sent."""


class Owner(Protocol):
    """What makes flights: :class:`scrapy_rep.origins.flights.Flights`."""

    def clock(self) -> float:
        """Return for how many seconds the crawl has run."""

    def queued(self, flight: Flight, *, is_queued: bool) -> None:
        """Note whether *flight* stands in a queue."""

    async def wait_for(self, flight: Flight, seconds: float | None) -> OriginState:
        """Wait for *flight*, see :meth:`Flight.wait`."""
        ...


class StillWaiting(Exception):
    """The time to wait is over, and there is no answer yet."""


class CrawlEnding(Exception):
    """There will be no answer: the spider is closing."""


class FetchAbandoned(Exception):
    """Nobody waited for the fetch any more, and it was cancelled."""


@dataclass(slots=True, eq=False)
class Flight:
    """A fetch, from when it is needed until everybody who waits for it has been told."""

    origin: Origin
    request: Request
    """The first request that needs the answer; if none does, one for the file itself."""
    owner: Owner | None = None
    again: bool = False
    """Requests are held for it already: a retry, which gives way to first fetches."""
    began_at: float = 0.0
    """When it was needed first, in seconds of the crawl's running time."""
    took_off_at: float | None = None
    """When it left our queue; None before."""
    sent_at: float | None = None
    """When it left a queue last, of the downloader or behind another process; None before."""
    has_place: bool = False
    """It counts among those that may run at a time."""
    is_slow: bool = False
    """It doesn't count any more among those that may run at a time."""
    patience: int = 1
    """How many times as long as others it may be in flight before it is slow."""
    is_abandoned: bool = False
    """We cancelled it."""
    is_put_off: bool = False
    """We cancelled it for others that needed its place: another flight to this origin is queued instead."""
    running: Deferred[Any] | None = None
    fetches: int = 0
    """How often this process has asked the origin."""
    asked_at: float | None = None
    """When it began to, in seconds since the epoch."""
    before: Entry | None = None
    """What was known then."""
    answer: Answer | None = None
    """None: it came from the storage."""
    outcome: Outcome | None = None
    """What the answer means; without one, what the stored one means."""
    answered_at: float = 0.0
    """When the answer was known, in seconds of the crawl's running time."""
    state: OriginState | None = None
    """What the answer has made known; listeners are being told."""
    callers: list[Deferred[OriginState]] = field(default_factory=list)
    """Those who wait in coroutines of their own, once the answer is known: until listeners have been told."""
    result: OriginState | Exception | None = None
    """Set when it has landed."""

    def later(self) -> Flight:
        """Return a flight that asks again in place of this one, which is put off, and has twice the time."""
        return Flight(
            self.origin,
            self.request,
            owner=self.owner,
            again=self.again,
            began_at=self.began_at,
            patience=2 * self.patience,
        )

    def left_of(self, seconds: float) -> float:
        """Return how many of the *seconds* since the flight began are left."""
        now = self.owner.clock() if self.owner is not None else 0.0
        return self.began_at + seconds - now

    def patient_until(self, limits: Limits) -> float:
        """Return until when those whose time is over wait for this fetch."""
        since = self.sent_at or self.took_off_at or self.began_at
        return since + limits.fetch + LANDING_SECONDS

    def queued(self, is_queued: bool) -> None:
        """Note that a request of it has entered a queue of the downloader, or left it."""
        if self.owner is not None:
            self.owner.queued(self, is_queued=is_queued)

    async def wait(self, seconds: float | None = None) -> OriginState:
        """Wait for the answer: ``StillWaiting`` after *seconds*, ``CrawlEnding`` if the spider
        closes; or one of :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is not None:
            return self.result
        assert self.owner is not None
        return await self.owner.wait_for(self, seconds)

    def land(
        self, callers: Iterable[Deferred[OriginState]], result: OriginState | Exception
    ) -> None:
        """Let *callers* go on with the *result*."""
        self.result = result
        tell(callers, result)


def tell(
    callers: Iterable[Deferred[OriginState]], result: OriginState | Exception
) -> None:
    """Let *callers* go on with *result*."""
    for caller in list(callers):  # each removes itself
        fire: Any = caller.errback if isinstance(result, Exception) else caller.callback
        fire(result)
