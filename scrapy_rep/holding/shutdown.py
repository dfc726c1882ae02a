"""What happens to the requests at the gate when the spider stops: none is lost silently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredList, succeed

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.release import tell_given_up

if TYPE_CHECKING:
    from scrapy import Request
    from twisted.internet.defer import Deferred

    from scrapy_rep.holding.handing_back import HandingBack
    from scrapy_rep.holding.held_origins import HeldOrigin, HeldOrigins
    from scrapy_rep.holding.hold import Held
    from scrapy_rep.holding.release import Releases
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# Errbacks called before the event loop gets a turn.
_SLICE = 20


class Shutdown:
    """Leaves requests on disk, else hands them to a scheduler that outlives the process, else calls
    their errbacks."""

    def __init__(
        self,
        context: CrawlContext,
        releases: Releases,
        held: HeldOrigins,
        handing_back: HandingBack,
    ) -> None:
        self._context = context
        self._releases = releases
        self._held = held
        self._handing_back = handing_back

    async def explain(self) -> None:
        """Note why each origin's requests would be given up, while the fetches under way still count
        as attempts."""
        slices = Slices()
        for held_origin in self._held.all():
            held_origin.why = self._held.why(held_origin, "the crawl ended")
            if slices.over:
                await pause()

    async def empty(self) -> None:
        """Leave nothing that would end with the process."""
        slices = Slices()
        settled: list[Deferred[None]] = []
        for request in self._releases.take_loose():
            settled.append(self._settle(request, self._held.now()))
            await self._finish(settled, slices)
        for held_origin in self._held.all():
            for held, was_held in self._held.take_mortal(held_origin):
                settled.append(self._end(held_origin, held, was_held=was_held))
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

    def _end(self, held_origin: HeldOrigin, held: Held, *, was_held: bool) -> Deferred[None]:
        """End the wait of *held*. Return a Deferred for the output of its errback."""
        if self._hands_back(held.request, held.since):
            if was_held:
                self._context.stats.inc_value("rep/handed_back")
            return succeed(None)
        cause = self._held.failure(held_origin.origin)
        error = RobotsUnreachable(held_origin.origin, *held_origin.why, cause)
        if was_held:
            tell_given_up(self._context, held.request, error)
        return self._context.engine.fail(held.request, error)

    def _hands_back(self, request: Request, since: float) -> bool:
        handing_back = self._handing_back
        return handing_back.keeps(request) and handing_back.hand_back(request, since)

    def _settle(self, request: Request, since: float) -> Deferred[None]:
        """The same for *request*, which was about to leave."""
        if self._hands_back(request, since):
            return succeed(None)
        origin = origin_of(request)
        cause = self._held.failure(origin)
        error = RobotsUnreachable(origin, "the crawl ended", cause=cause)
        return self._context.engine.fail(request, error)
