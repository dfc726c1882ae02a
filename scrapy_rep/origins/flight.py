"""One fetch of a robots.txt, called a flight, and how to wait for its answer.

A flight goes through these stages, which flights.py moves it along:

- *queued*: it stands in a queue of ours, since too many others are in flight;
- *in flight*: it has taken off; its request may stand in a queue of the downloader, or
  be sent;
- *being told*: the answer is known, and listeners are being told;
- *landed*: those who wait have been told the result.
"""

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
"""Seconds that a fetch may take to fail once its time is over, or that an answer may
take to be handled."""


@dataclass(frozen=True)
class Limits:
    """How long requests may wait and fetches may take, in seconds."""

    grace: float
    """How long a request waits for a first fetch, from when that began, before it
    counts as held."""
    max_wait: float
    """How long a request is held before it is given up (``REP_HOLD_MAX_WAIT``)."""
    fetch: float
    """How long a fetch may take, from when it is sent, before it fails."""


class Owner(Protocol):
    """What makes flights: :class:`scrapy_rep.origins.flights.Flights`."""

    def clock(self) -> float:
        """Return for how many seconds the crawl has run."""

    def queued(self, flight: Flight, *, is_queued: bool) -> None:
        """Note whether *flight* stands in a queue: of the downloader, or behind another
        process."""

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
    """A fetch, from when it is needed until everybody who waits for it has been told.
    Its times are seconds of the crawl's running time, unless something else is said."""

    origin: Origin
    request: Request
    """The first request that needs the answer; if none does, one for the file
    itself."""
    owner: Owner | None = None
    """None for a flight that nobody waits for (in tests)."""
    again: bool = False
    """Whether it is a retry: requests are held for the origin already. Retries give way
    to first fetches."""
    began_at: float = 0.0
    """When it was needed first."""
    took_off_at: float | None = None
    """When it left our queue; None before."""
    sent_at: float | None = None
    """When it last left a queue that isn't ours (the downloader's, or that behind
    another process); None before."""
    has_place: bool = False
    """It is in flight, and has one of the places that flights may have at a time."""
    is_slow: bool = False
    """It has been in flight for long (:data:`.queue.SLOW_SECONDS`), so another one may
    have its place among the quick ones, which aren't slow."""
    patience: int = 1
    """How many times as long as others it may be in flight before it is slow."""
    is_abandoned: bool = False
    """We cancelled it."""
    is_put_off: bool = False
    """We cancelled it for others that needed its place: another flight to this origin
    is queued instead."""
    running: Deferred[Any] | None = None
    """Its task; None while it is queued."""

    # Set by the cache, which fetches (cache.py).
    fetches: int = 0
    """How often this process has requested the origin's robots.txt for this flight."""
    asked_at: float | None = None
    """When this process first requested robots.txt for it, in seconds since the
    epoch."""
    before: Entry | None = None
    """What was known of the origin before that."""
    answer: Answer | None = None
    """The answer to this process; None if another process's answer came from the
    storage."""
    outcome: Outcome | None = None
    """What the answer means, whoever got it."""

    # Set by the flights when the answer is known.
    answered_at: float = 0.0
    """When the answer was known."""
    state: OriginState | None = None
    """What the answer has made known."""
    callers: list[Deferred[OriginState]] = field(default_factory=list)
    """While it is being told, those who wait for it in coroutines of their own. Before,
    they are in the origin's queue (:attr:`.queue.Queue.callers`)."""
    result: OriginState | Exception | None = None
    """What those who wait are told; None until it has landed."""

    def later(self) -> Flight:
        """Return a flight that asks again in place of this one, which is put off. It
        may be in flight twice as long before it is slow."""
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
        """Return until when those whose time is over still wait for this fetch."""
        since = self.sent_at or self.took_off_at or self.began_at
        # If the fetch fails in time, requests fail with its reason, and not for want of
        # an answer.
        return since + limits.fetch + LANDING_SECONDS

    def queued(self, is_queued: bool) -> None:
        """Note that it has entered a queue of the downloader or behind another process,
        or has left it."""
        if self.owner is not None:
            self.owner.queued(self, is_queued=is_queued)

    async def wait(self, seconds: float | None = None) -> OriginState:
        """Wait for the answer. Raises ``StillWaiting`` after *seconds*, ``CrawlEnding``
        if the spider closes, or one of
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
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
    for caller in list(callers):  # a copy, since each removes itself
        if isinstance(result, Exception):
            caller.errback(result)
        else:
            caller.callback(result)
