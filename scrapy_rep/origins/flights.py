"""Fetches of robots.txt in progress: one per origin, a limited number at a time (docs/DESIGN.md, "The robots.txt fetches themselves must not starve the crawl")."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred

from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin
    from scrapy_rep.storages.base import Entry

logger = get_logger(__name__)

# Fetches at a time per CONCURRENT_REQUESTS, and the seconds for which a fetch counts among them: later
# it is probably to a silent site, and must not block the rest.
_AT_A_TIME = 4
_SLOW_SECONDS = 2.0
# Fetches at a time, slow ones included: so many times the others, but not many more than this.
_SLOW_TIMES = 4
_SOCKETS = 512


class StillWaiting(Exception):
    """The time to wait is over, and there is no answer yet."""


class CrawlEnding(Exception):
    """There will be no answer: the spider is closing."""


class Flight:
    """One fetch, in progress or queued."""

    __slots__ = (
        "_began_at",
        "asked_at",
        "before",
        "expired",
        "fetches",
        "fetching",
        "landing",
        "origin",
        "request",
        "result",
        "running",
        "slow",
        "waiters",
    )

    def __init__(self, origin: Origin, request: Request | None) -> None:
        self.origin = origin
        self.request = request
        """The first request that needs the answer, if a request does."""
        self._began_at = time.monotonic()
        self.waiters: list[Deferred[OriginState]] = []
        self.fetching = False
        """Whether this process waits for the site."""
        self.fetches = 0
        """How often this process has asked the site, and when it began to, in seconds since the epoch."""
        self.asked_at: float | None = None
        self.before: Entry | None = None
        """What was known when it did."""
        self.expired = False
        """Whether the fetch has to end, as failed."""
        self.landing = False
        """Whether there is an answer, and listeners are being told."""
        self.result: OriginState | Exception | None = None
        """Set on landing, which without asyncio may be at once."""
        self.running: Deferred[Any] | None = None
        self.slow = False
        """Whether it has taken so long that it no longer keeps others from starting."""

    def left_of(self, seconds: float) -> float:
        """Return how many of the *seconds* since the flight began are left."""
        return self._began_at + seconds - time.monotonic()

    async def wait(self, seconds: float | None = None) -> OriginState:
        """Wait for the answer, at most *seconds*.

        :raises StillWaiting: after that
        :raises CrawlEnding: if the spider closes
        :raises Exception: one of :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`
        """
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is not None:
            return self.result
        if seconds is not None and seconds <= 0:
            raise StillWaiting
        waiter: Deferred[OriginState] = Deferred()
        self.waiters.append(waiter)
        if seconds is None:
            return await maybe_deferred_to_future(waiter)

        def give_up() -> None:
            if waiter in self.waiters:  # else it landed in this turn of the event loop
                self.waiters.remove(waiter)
                waiter.errback(StillWaiting())

        timer = call_later(seconds, give_up)
        try:
            return await maybe_deferred_to_future(waiter)
        finally:
            timer.cancel()


class Flights:
    """All flights. Those above the cap queue, first attempts ahead of retries."""

    def __init__(self, crawler: Crawler, ask: Callable[[Flight], Awaitable[OriginState]]) -> None:
        """:param ask: fetches the flight's robots.txt and updates what is known"""
        self._crawler = crawler
        self._ask = ask
        self._flights: dict[Origin, Flight] = {}
        self._first: OrderedDict[Flight, None] = OrderedDict()
        self._again: OrderedDict[Flight, None] = OrderedDict()
        self._in_the_air = self._slow = 0
        self._resting: set[Flight] = set()
        concurrency = crawler.settings.getint("CONCURRENT_REQUESTS") or 16
        if crawler.settings.getbool("TWISTED_REACTOR_ENABLED", True):
            self._cap = _AT_A_TIME * concurrency
            self._most = max(self._cap, min(_SLOW_TIMES * self._cap, _SOCKETS))
        else:
            # Scrapy's handler for this mode has CONCURRENT_REQUESTS connections; half are for pages.
            self._cap = self._most = max(1, concurrency // 2)
        self._ended = False

    def __contains__(self, origin: Origin) -> bool:
        return origin in self._flights

    def to(self, origin: Origin, request: Request | None = None, *, again: bool = False) -> Flight:
        """Return the flight to *origin*; begin one if there is none.

        :param request: needs the answer
        :param again: whether this is a retry
        """
        flight = self._flights.get(origin)
        if flight is None:
            flight = Flight(origin, request)
            if self._ended:
                flight.result = CrawlEnding()
                return flight
            self._flights[origin] = flight
            (self._again if again else self._first)[flight] = None
            self._take_off()
        return flight

    def _take_off(self) -> None:
        while (self._first or self._again) and self._may_take_off:
            flight, _ = (self._first or self._again).popitem(last=False)
            self._in_the_air += 1
            # Its own task: it survives the request that began it.
            flight.running = deferred_from_coro(self._fly(flight))
            # Not in _fly(): a task that is cancelled at once does not even begin.
            timer = call_later(_SLOW_SECONDS, self._is_slow, flight)
            flight.running.addBoth(self._came_down, flight, timer)

    def _came_down(self, result: Any, flight: Flight, timer: CallLaterResult) -> Any:
        timer.cancel()
        if flight.slow:
            self._slow -= 1
        else:
            self._in_the_air -= 1
        self._take_off()
        return result

    @property
    def _may_take_off(self) -> bool:
        few = self._in_the_air < self._cap and self._in_the_air + self._slow < self._most
        return few and not self._ended

    def _is_slow(self, flight: Flight) -> None:
        flight.slow = True
        self._in_the_air -= 1
        self._slow += 1
        self._take_off()

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
        self._land(flight, result)

    def _land(self, flight: Flight, result: OriginState | Exception) -> None:
        flight.result = result
        waiters, flight.waiters = flight.waiters, []
        for waiter in waiters:
            if isinstance(result, Exception):
                waiter.errback(result)
            else:
                waiter.callback(result)

    @property
    def landing(self) -> bool:
        """Whether listeners are being told an answer."""
        return any(flight.landing for flight in self._flights.values())

    def get(self, origin: Origin) -> Flight | None:
        """Return the flight to *origin*, if there is one."""
        return self._flights.get(origin)

    def expire(self, origin: Origin) -> bool:
        """Have the fetch from *origin* fail, as one that takes too long. Return whether its end is
        near."""
        flight = self._flights.get(origin)
        if flight is None or flight.running is None or not (flight.fetching or flight.landing):
            return False
        if flight.fetching and not flight.expired:
            flight.expired = True
            flight.running.cancel()
        return True

    def abandon(self, origin: Origin) -> None:
        """Cancel the flight to *origin*, unless something waits for it or it is landing."""
        flight = self._flights.get(origin)
        if flight is not None and not flight.waiters and not flight.landing:
            self._cancel(flight)

    def _cancel(self, flight: Flight) -> None:
        del self._flights[flight.origin]
        self._first.pop(flight, None)
        self._again.pop(flight, None)
        if flight.running is not None:  # else it was queued
            flight.running.addErrback(lambda _: None)
            flight.running.cancel()

    async def rest(self, origin: Origin, seconds: float) -> None:
        """Wait *seconds*.

        :raises CrawlEnding: if the spider closes meanwhile
        """
        rest = Flight(origin, None)
        self._resting.add(rest)
        try:
            if self._ended:
                raise CrawlEnding
            with suppress(StillWaiting):
                await rest.wait(seconds)
        finally:
            self._resting.discard(rest)

    def end(self) -> None:
        """Cancel all flights: their waiters get :class:`CrawlEnding`."""
        self._ended = True
        for rest in list(self._resting):
            self._land(rest, CrawlEnding())
        for flight in list(self._flights.values()):
            self._land(flight, CrawlEnding())
            self._cancel(flight)
