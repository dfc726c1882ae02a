"""Fetches of robots.txt in progress: one per origin in this process, a limited number at a time
(docs/DESIGN.md, "The robots.txt fetches themselves must not starve the crawl")."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred

from scrapy_rep.engine.access import concurrency_of, has_pool
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Alarm, within
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS, Answer
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages.base import Entry

logger = get_logger(__name__)

# Fetches at a time for each of CONCURRENT_REQUESTS, and the seconds for which a fetch counts among
# them: later it is probably to a silent origin, and must not block the rest.
_AT_A_TIME, _SLOW_SECONDS = 4, 2.0
# All fetches at a time, slow ones included: this many times the others, up to so many sockets.
_SLOW_TIMES, _SOCKETS = 4, 512


class ResolutionListener:
    """Is notified of answers. A bug in one listener doesn't affect the others."""

    part = "part"
    """Its name in the log."""

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Handle the answer of a *flight*, or news from the storage: requests obey *state* now."""

    def failed(self, origin: Origin, error: Exception) -> None:
        """Handle that there will be no answer. *error* is one of
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`, a bug, or ``CancelledError``
        (nothing waits for it)."""


class StillWaiting(Exception):
    """The time to wait is over, and there is no answer yet."""


class CrawlEnding(Exception):
    """There will be no answer: the spider is closing."""


@dataclass(slots=True, eq=False)
class Flight:
    origin: Origin
    request: Request
    """The first request that needs the answer; if none does, one for the file itself."""
    began_at: float = field(default_factory=time.monotonic)
    waiters: list[Deferred[OriginState]] = field(default_factory=list)
    running: Deferred[Any] | None = None
    """None while it is queued."""
    fetches: int = 0
    """How often this process has asked the origin."""
    asked_at: float | None = None
    """When it began to, in seconds since the epoch."""
    sent_at: float | None = None
    """When the transfer that is under way was sent, in seconds of ``time.monotonic()``; None while the
    flight, or the request that it made, waits in a queue."""
    before: Entry | None = None
    """What was known then."""
    answer: Answer | None = None
    """None: it came from the storage."""
    outcome: Outcome | None = None
    """What the answer means; without one, what the stored one means. Once it is set, listeners are
    being notified."""
    result: OriginState | Exception | None = None
    """Set on landing, which may be at once without asyncio."""

    def sent(self, sent_at: float | None) -> None:
        """Note that a transfer has begun, or (None) ended."""
        self.sent_at = sent_at

    def left_of(self, seconds: float) -> float:
        """Return how many of the *seconds* since the flight began are left."""
        return self.began_at + seconds - time.monotonic()

    async def wait(self, seconds: float | None = None) -> OriginState:
        """Wait for the answer: ``StillWaiting`` after *seconds*, ``CrawlEnding`` if the spider
        closes; or one of :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is not None:
            return self.result
        if seconds is not None and seconds <= 0:
            raise StillWaiting
        waiter: Deferred[OriginState] = Deferred()
        self.waiters.append(waiter)
        try:
            return await within(seconds, waiter, StillWaiting())
        finally:
            if waiter in self.waiters:
                self.waiters.remove(waiter)

    def land(self, result: OriginState | Exception) -> None:
        self.result = result
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            fire: Any = waiter.errback if isinstance(result, Exception) else waiter.callback
            fire(result)


class Flights:
    """All flights. Those beyond the cap queue, first attempts ahead of retries."""

    def __init__(self, crawler: Crawler, ask: Callable[[Flight], Awaitable[OriginState]]) -> None:
        """*ask* fetches the flight's robots.txt and updates what is known."""
        self._crawler = crawler
        self._ask = ask
        self._flights: dict[Origin, Flight] = {}
        self._first: OrderedDict[Flight, None] = OrderedDict()
        self._again: OrderedDict[Flight, None] = OrderedDict()
        self._running = 0
        self._quick: set[Flight] = set()
        """Those in the air, without the slow ones."""
        self._slow = Alarm(crawler, self._is_slow)
        self._end = Flight(Origin("", "", 0), Request("data:,"))
        """Lands when the spider closes."""
        concurrency = concurrency_of(crawler)
        if has_pool(crawler):  # of as many connections; half are for pages
            self._cap = self._most = max(1, concurrency // 2)
        else:
            self._cap = _AT_A_TIME * concurrency
            self._most = max(self._cap, min(_SLOW_TIMES * self._cap, _SOCKETS))

    def get(self, origin: Origin) -> Flight | None:
        return self._flights.get(origin)

    def to(self, origin: Origin, request: Request | None = None, *, again: bool = False) -> Flight:
        """Return the flight to *origin*, or begin one for *request* (*again*: a retry)."""
        if self._end.result is not None:
            return self._end
        flight = self._flights.get(origin)
        if flight is None:
            flight = Flight(origin, request or Request(origin.robots_url))
            self._flights[origin] = flight
            (self._again if again else self._first)[flight] = None
            self._take_off()
        return flight

    def _take_off(self) -> None:
        while (queue := self._first or self._again) and self._end.result is None:
            if len(self._quick) >= self._cap or self._running >= self._most:
                break
            flight, _ = queue.popitem(last=False)
            self._running += 1
            self._quick.add(flight)
            self._slow.set(flight.origin, _SLOW_SECONDS)
            # A task of its own: it survives the request that began it.
            flight.running = deferred_from_coro(self._fly(flight))
            # Not in _fly(): a task that is cancelled at once does not even begin.
            flight.running.addBoth(self._came_down, flight)

    def _is_slow(self, origin: Origin) -> None:
        self._quick.discard(self._flights[origin])
        self._take_off()

    def _came_down(self, result: Any, flight: Flight) -> Any:
        self._running -= 1
        self._quick.discard(flight)
        self._take_off()
        return result

    async def _fly(self, flight: Flight) -> None:
        result: OriginState | Exception
        try:
            result = await self._ask(flight)
        except Exception as error:
            if not isinstance(error, (*CONFIGURATION_ERRORS, CancelledError)):
                logger.exception(
                    "Bug in scrapy-rep: the fetch of %(origin)s/robots.txt failed",
                    {"origin": flight.origin},
                    extra={"spider": self._crawler.spider},
                )
            result = error
        finally:
            if self._flights.get(flight.origin) is flight:
                del self._flights[flight.origin]
                self._slow.forget(flight.origin)
        flight.land(result)

    @property
    def landing(self) -> bool:
        return any(flight.outcome is not None for flight in self._flights.values())

    def abandon(self, origin: Origin) -> None:
        """Cancel the flight to *origin*, unless something waits for it or it is landing."""
        flight = self._flights.get(origin)
        if flight is not None and not flight.waiters and flight.outcome is None:
            self._cancel(flight)

    def _cancel(self, flight: Flight) -> None:
        del self._flights[flight.origin]
        self._slow.forget(flight.origin)
        self._first.pop(flight, None)
        self._again.pop(flight, None)
        if flight.running is not None:  # else it was queued
            flight.running.addErrback(lambda _: None)
            flight.running.cancel()

    async def rest(self, seconds: float) -> None:
        """Wait *seconds*; ``CrawlEnding`` if the spider closes meanwhile."""
        with suppress(StillWaiting):
            await self._end.wait(seconds)

    def end(self) -> None:
        """Cancel all flights: their waiters get :class:`CrawlEnding`."""
        self._slow.stop()
        self._end.land(CrawlEnding())
        for flight in list(self._flights.values()):
            flight.land(CrawlEnding())
            self._cancel(flight)
