"""Where requests go that can't stay at the gate: none is lost silently. While the crawl runs, they are
returned to a scheduler that isn't Scrapy's; at its end, to one that outlives the process; else their
errbacks are called.

They go in by the documented ``enqueue_request()``, past the dupe filter, which has seen them, and
without a signal, which was sent. What they were like before is in their meta, for the process that
gets them next.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.job import job_dir
from twisted.internet.defer import DeferredList, succeed

from scrapy_rep import signals
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.disk import dumps
from scrapy_rep.holding.hold import Held, announce
from scrapy_rep.origins.requests import origin_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from twisted.internet.defer import Deferred

    from scrapy_rep.holding.hold import HeldOrigin, HeldOrigins
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# Seconds: what is older comes from a clock that was wrong.
_MAX_WAITED = 365 * 86400.0

HANDED_BACK = "_rep_held"
"""Meta key of a request while the scheduler has it again."""


# Errbacks called before the event loop gets a turn.
_SLICE = 20
# A request that is handed back for want of room comes after all others of its priority; if there is no room
# either when it comes again, it has this priority, after all others.
_LAST = -(1 << 20)


def tell_given_up(context: CrawlContext, request: Request, error: RobotsUnreachable) -> None:
    """Count and announce that *request*, which was held, will fail with *error*."""
    context.stats.inc_value("rep/given_up")
    told = {"reason": error.reason, "attempts": error.attempts, "held_for": error.held_for}
    announce(context, signals.request_given_up, request, error.origin, **told)


class HandingBack:
    """Hands requests back, and restores those that come again."""

    def __init__(self, context: CrawlContext, held: HeldOrigins) -> None:
        self._context = context
        self._held = held
        self._times: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        """How often there was no room for each, before it came again: 2 for more often, too."""
        self.waiting = 0
        """About how many the scheduler has for which there was no room."""
        self.on_handed_back: Callable[[Request], object] = lambda _: None
        """Called with each request that the scheduler has taken."""

    def _keeps(self, request: Request) -> bool:
        """Whether the scheduler would keep *request* when the process ends."""
        engine = self._context.engine
        if engine.scheduler_is_foreign:
            return engine.scheduler_outlives
        spider = self._context.spider
        if spider is None or not job_dir(self._context.crawler.settings):
            return False
        try:
            dumps(request, spider)
        except Exception:  # noqa: BLE001 (from pickling a user's meta)
            return False
        return True

    def one(self, request: Request, since: float | None) -> bool:
        """Hand back *request*, for which there is no room, behind all others of its priority. Return
        whether the scheduler took it: Scrapy's own would return it at once."""
        if self._held.disk is not None or not self._context.engine.scheduler_is_foreign:
            return False
        priority = request.priority - 1
        if self._times.get(request, 0) > 0:
            priority = min(priority, _LAST)
        since = self._held.now() if since is None else since
        handed_back = self._hand_back(request, since, priority)
        self.waiting += handed_back
        return handed_back

    def came_last(self, request: Request) -> bool:
        """Whether *request* came behind all others that the scheduler had."""
        return self._times.get(request, 0) > 1

    def _hand_back(self, request: Request, since: float, priority: int | None = None) -> bool:
        """Give *request*, here since then, to the scheduler. Return whether that worked.

        :param priority: until it comes again; there is no room for it
        """
        no_room = priority is not None
        request.meta[HANDED_BACK] = {
            "dont_filter": request.dont_filter,
            "priority": request.priority,
            "since": time.time() - (self._held.now() - since),
            "times": min(self._times.get(request, 0) + 1, 2) if no_room else 0,
        }
        request.dont_filter = True
        request.priority = request.priority if priority is None else priority
        try:
            if self._context.engine.scheduler.enqueue_request(request):
                self.on_handed_back(request)
                return True
            error: object = "refused"
        except Exception as raised:  # noqa: BLE001 (its server may be gone, its disk full)
            error = raised
        self.restore(request)
        message = "Can't hand %(request)s back to the scheduler, so the request fails: %(error)s"
        logger.error(message, {"request": request, "error": error}, extra=self._context.extra)
        return False

    def restore(self, request: Request) -> float | None:
        """Make *request* what it was before. Return since when it has been held, in seconds of the
        crawl's running time; None if that isn't credible."""
        mark = request.meta.pop(HANDED_BACK)
        try:
            since = float(mark["since"])
            request.dont_filter = bool(mark["dont_filter"])
            request.priority = int(mark["priority"])
            self._times[request] = times = int(mark.get("times", 0))
            self.waiting = max(0, self.waiting - (times > 0))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # somebody else's, or damaged
        waited = time.time() - since
        return self._held.now() - waited if 0 <= waited < _MAX_WAITED else None

    async def empty(self, loose: list[Request]) -> None:
        """Leave nothing that would end with the process: write it to disk, hand it back, or call its
        errback.

        :param loose: these were about to leave
        """
        slices = Slices()
        settled: list[Deferred[None]] = []
        for request in loose:
            settled.append(self._end(Held(0, self._held.now(), request)))
            await self._finish(settled, slices)
        for held_origin in self._held.all():
            if self._held.disk is not None:
                self._held.settle(held_origin, everything=True)
            for held in self._held.take_mortal(held_origin):
                settled.append(self._end(held, held_origin))
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

    def _end(self, held: Held, held_origin: HeldOrigin | None = None) -> Deferred[None]:
        """End the wait of *held*. Return a Deferred for the output of its errback."""
        request = held.request
        if self._keeps(request) and self._hand_back(request, held.since):
            if held.counts:
                self._context.stats.inc_value("rep/handed_back")
            return succeed(None)
        origin = origin_of(request) if held_origin is None else held_origin.origin
        why = ("the crawl ended", 0) if held_origin is None else held_origin.why
        error = RobotsUnreachable(origin, *why, self._held.failure(origin))
        if held.counts:
            error.held_for = self._held.now() - held.since
            tell_given_up(self._context, request, error)
        return self._context.engine.fail(request, error)
