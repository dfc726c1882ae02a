"""What happens to held requests when the spider stops: none is lost silently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredList, succeed

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.release import MARK, tell_given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy import Request
    from twisted.internet.defer import Deferred

    from scrapy_rep.holding.held_origin import HeldOrigin
    from scrapy_rep.holding.held_origins import HeldOrigins
    from scrapy_rep.holding.hold import Held
    from scrapy_rep.holding.release import Releases
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

# Errbacks called before the event loop gets a turn.
_SLICE = 20


class Shutdown:
    """Leaves held requests on disk, else hands them to a scheduler that outlives the process, else
    calls their errbacks."""

    def __init__(self, context: CrawlContext, releases: Releases, held: HeldOrigins) -> None:
        self._context = context
        self._releases = releases
        self._held = held

    async def explain(self) -> None:
        """Note why each origin's requests would be given up, while the fetches under way still count
        as attempts."""
        slices = Slices()
        for held_origin in self._held.all():
            held_origin.why = self._held.why(held_origin, "the crawl ended")
            if slices.over:
                await pause()

    async def empty(self) -> None:
        """Settle all requests that would end with the process; wait for the errbacks' output."""
        slices = Slices()
        settled: list[Deferred[None]] = []
        for request in self._releases.take_back():
            settled.append(self._recall(request))
            if len(settled) >= _SLICE:
                await self._finish(settled, slices)
        await self._finish(settled, slices)
        for held_origin in self._held.all():
            for one in self.settle(held_origin):
                settled.append(one)
                if len(settled) >= _SLICE:
                    await self._finish(settled, slices)
            await self._finish(settled, slices)

    async def _finish(self, settled: list[Deferred[None]], slices: Slices) -> None:
        if settled:
            # Before the engine closes: an errback may still use it.
            await maybe_deferred_to_future(DeferredList(settled))
            settled.clear()
        if slices.over:
            await pause()

    def take(
        self, origin: Origin, held: Held, add: Callable[[Origin, Held, None], HeldOrigin]
    ) -> bool:
        """Take *held*, which is to be held when the spider is closing: keep it on disk if there is a
        JOBDIR, else call its errback. Return False if the scheduler should take it."""
        if self._held.hold.durable:
            held_origin = add(origin, held, None)
            held_origin.why = self._held.why(held_origin, "the crawl ended")
            for _ in self.settle(held_origin):
                pass  # for a request that can't be written to disk
        elif self._context.engine.scheduler_outlives:
            self._releases.mark(held)
            return False
        else:
            cause = self._held.failure(origin)
            self.fail(held, RobotsUnreachable(origin, "the crawl is ending", cause=cause))
        return True

    def settle(self, held_origin: HeldOrigin) -> Iterator[Deferred[None]]:
        """Hand each request that would end with the process to the scheduler, or call its errback.
        Yield a Deferred for the errback's output."""
        origin = held_origin.origin
        cause = self._held.failure(origin)
        for held in self._held.hold.take_mortal(str(origin)):
            self._held.left(held_origin, 1)
            if self._context.engine.scheduler_outlives and self._hand_back(held):
                yield succeed(None)
            else:
                error = RobotsUnreachable(origin, *held_origin.why, cause=cause)
                yield self.fail(held, error)

    def _recall(self, request: Request) -> Deferred[None]:
        """Have *request*, which was to go ahead, join those in the scheduler; if it can't, or was given
        up, call its errback. Return a Deferred for the errback's output."""
        given_up = request.meta[MARK]["given_up"]
        if not given_up and self._scheduled(request):
            return succeed(None)
        try:
            self._releases.arrive(request)
            origin = origin_of(request)
            cause = self._held.failure(origin)
            error = RobotsUnreachable(origin, "the crawl ended", cause=cause)
            tell_given_up(self._context, request, error)
        except RobotsUnreachable as given_up_before:
            error = given_up_before
        return self._context.engine.fail(request, error)

    def _hand_back(self, held: Held) -> bool:
        """Give *held* to the scheduler, for another process. Return whether that worked."""
        self._releases.mark(held)
        if not self._scheduled(held.request):
            return False
        self._context.stats.inc_value("rep/handed_back")
        return True

    def _scheduled(self, request: Request) -> bool:
        """Give *request* to the scheduler. Return whether that worked."""
        crawler = self._context.crawler
        assert crawler.engine is not None
        try:
            crawler.engine.crawl(request)
        except Exception as error:  # noqa: BLE001 (its server may be gone, its disk full)
            logger.error(
                "Can't hand %(request)s back to the scheduler, so it fails: %(error)s",
                {"request": request, "error": error},
                extra=self._context.extra,
            )
            return False
        return True

    def fail(self, held: Held, error: RobotsUnreachable) -> Deferred[None]:
        """Call the errback of *held*."""
        held.request.dont_filter = held.dont_filter
        held.request.meta.pop(MARK, None)
        tell_given_up(self._context, held.request, error)
        return self._context.engine.fail(held.request, error)
