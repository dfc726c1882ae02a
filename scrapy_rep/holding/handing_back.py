"""Where requests go that can't stay at the gate: none is lost silently. They are returned to a scheduler
that outlives the process, or that other processes share; else their errbacks are called.

They go in by the documented ``enqueue_request()``, past the dupe filter, which has seen them, and
without a signal, which was sent. What they were like before is in their meta, for the process that
gets them next.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.job import job_dir
from twisted.internet.defer import DeferredList, succeed

from scrapy_rep import signals
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.hold import is_serialisable
from scrapy_rep.origins.requests import origin_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from twisted.internet.defer import Deferred

    from scrapy_rep.holding.gate import Releases
    from scrapy_rep.holding.held_origins import HeldOrigin, HeldOrigins
    from scrapy_rep.holding.hold import Held
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# Seconds: what is older comes from a clock that was wrong.
_MAX_WAITED = 365 * 86400.0

HANDED_BACK = "_rep_held"
"""Meta key of a request while the scheduler has it again."""


# Errbacks called before the event loop gets a turn.
_SLICE = 20


def tell_given_up(context: CrawlContext, request: Request, error: RobotsUnreachable) -> None:
    """Count and announce that *request*, which was held, will fail with *error*."""
    context.stats.inc_value("rep/given_up")
    context.crawler.signals.send_catch_log(
        signals.request_given_up,
        request=request,
        origin=error.origin,
        reason=error.reason,
        attempts=error.attempts,
        held_for=error.held_for,
        spider=context.spider,
    )


class HandingBack:
    """Hands requests back, and restores those that come again."""

    def __init__(self, context: CrawlContext, held: HeldOrigins) -> None:
        self._context = context
        self._held = held
        self.on_handed_back: Callable[[Request], object] = lambda _: None
        """Called with each request that the scheduler has taken."""

    @property
    def _scheduler(self) -> Any:
        return self._context.engine.scheduler

    def keeps(self, request: Request) -> bool:
        """Whether the scheduler would keep *request* when the process ends."""
        engine = self._context.engine
        if engine.scheduler_is_foreign:
            return engine.scheduler_outlives
        spider, directory = self._context.spider, job_dir(self._context.crawler.settings)
        return bool(directory) and spider is not None and is_serialisable(request, spider)

    def one(self, request: Request, since: float | None) -> bool:
        """Hand back *request*, for which there is no room, behind all others of its priority. Return
        whether the scheduler took it: only one that other processes share, or that outlives this
        one."""
        if self._held.hold.durable or not self._context.engine.scheduler_outlives:
            return False
        return self.hand_back(request, self._held.now() if since is None else since, last=True)

    def hand_back(self, request: Request, since: float, *, last: bool = False) -> bool:
        """Give *request*, here since then, to the scheduler. Return whether that worked.

        :param last: lower its priority until it comes again
        """
        mark = {
            "dont_filter": request.dont_filter,
            "priority": request.priority,
            "since": time.time() - (self._held.now() - since),
        }
        request.meta[HANDED_BACK] = mark
        request.dont_filter = True
        request.priority -= last
        try:
            if self._scheduler.enqueue_request(request):
                self.on_handed_back(request)
                return True
            error: object = "refused"
        except Exception as raised:  # noqa: BLE001 (its server may be gone, its disk full)
            error = raised
        self.restore(request)
        logger.error(
            "Can't hand %(request)s back to the scheduler, so it fails: %(error)s",
            {"request": request, "error": error},
            extra=self._context.extra,
        )
        return False

    def restore(self, request: Request) -> float | None:
        """Make *request* what it was before. Return since when it has been held, in seconds of the
        crawl's running time; None if that isn't credible."""
        mark = request.meta.pop(HANDED_BACK)
        try:
            since = float(mark["since"])
            request.dont_filter = bool(mark["dont_filter"])
            request.priority = int(mark["priority"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # somebody else's, or damaged
        waited = time.time() - since
        return self._held.now() - waited if 0 <= waited < _MAX_WAITED else None


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
            error.held_for = self._held.now() - held.since
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
