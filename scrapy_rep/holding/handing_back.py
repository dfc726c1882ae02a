"""Where requests go that can't stay at the gate: none is lost silently. During the crawl they are
returned to a scheduler that isn't Scrapy's. At its end (Ctrl-C, say), what is on disk under JOBDIR
stays there for the next run; the rest is returned to a scheduler that outlives the process, or
its errbacks are called. Those that only waited are left to any scheduler, as without us.

They go in by the documented ``enqueue_request()``, past the dupe filter, which has seen them, and
without the signal, which was sent. Their meta says what they were like before, for the process that
gets them next.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from itertools import chain

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.job import job_dir
from twisted.internet.defer import Deferred, DeferredList, succeed

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import in_slices, pause
from scrapy_rep.holding.disk import Held, dumps
from scrapy_rep.holding.hold import HeldOrigin, HeldOrigins
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import UNKNOWN_YET, Drop

logger = get_logger(__name__)

HANDED_BACK = "_rep_held"
"""Meta key of a request while the scheduler has it again."""

# Errbacks called before the event loop gets a turn; seconds that a request can have waited.
_SLICE, _LONGEST = 20, 1e9
# The priority of a request that is handed back for want of room: after all others.
_LAST = -(1 << 20)


class HandingBack:
    """Hands requests back, and restores those that come again."""

    def __init__(self, context: CrawlContext, held: HeldOrigins) -> None:
        self._context = context
        self._held = held
        self.waiting = 0  # about how many the scheduler has for which there was no room
        self.came_last = False  # whether the latest to come again had been put behind all others

    def one(self, request: Request, since: float | None) -> bool:
        """Hand back *request*, for which there is no room, behind all others. Return whether the
        scheduler took it: Scrapy's own would return it at once."""
        if self._held.disk is not None or not self._context.engine.scheduler_is_foreign:
            return False
        since = self._held.now() if since is None else since
        handed_back = self._hand_back(request, since, min(request.priority - 1, _LAST))
        self.waiting += handed_back
        return handed_back

    def _hand_back(self, request: Request, since: float, priority: int) -> bool:
        """Give *request*, here since *since*, to the scheduler, with *priority* until it comes
        again. Return whether that worked."""
        waited = self._held.now() - since
        request.meta[HANDED_BACK] = {
            "dont_filter": request.dont_filter,
            "priority": request.priority,
            "since": time.time() - waited,
            "waited": waited,
        }
        request.dont_filter, request.priority = True, priority
        try:
            # Some return nothing.
            if self._context.engine.scheduler.enqueue_request(request) is not False:
                return True
            error: object = "refused"
        except Exception as raised:  # noqa: BLE001 (its server may be gone, its disk full)
            error = raised
        self.restore(request)
        message = "Can't hand %(request)s back to the scheduler, so the request fails: %(error)s"
        logger.error(message, {"request": request, "error": error}, extra=self._context.extra)
        return False

    def restore(self, request: Request) -> float | None:
        """Make *request* what it was before. Return since when it has been held, in seconds since
        the crawl began; None if the mark doesn't say."""
        mark = request.meta.pop(HANDED_BACK)
        self.came_last = request.priority <= _LAST
        self.waiting = max(0, self.waiting - 1)
        try:
            request.dont_filter = bool(mark["dont_filter"])
            request.priority = int(mark["priority"])
            since, waited = float(mark["since"]), min(max(0.0, float(mark["waited"])), _LONGEST)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        # Not while no crawl ran: of its time in the scheduler, what this one knows of.
        now = self._held.now()
        return now - waited - min(max(0.0, time.time() - since - waited), now)

    # The crawl's end

    async def empty(self, *loose: deque[Request] | set[Request]) -> None:
        """Leave nothing that would end with the process: write it to disk, hand it back, or call
        its errback. *loose* requests were about to leave."""
        settled: list[Deferred[None]] = []
        others = [Held(0, 0, self._held.now(), request) for request in chain(*loose)]
        for some in loose:
            some.clear()
        async for held_origin in in_slices((None, *self._held.origins.values())):
            for held in others if held_origin is None else self._held.take_mortal(held_origin):
                settled.append(self._end(held, held_origin))
                if len(settled) >= _SLICE:
                    # Before the engine closes: an errback may still use it.
                    await maybe_deferred_to_future(DeferredList(settled))
                    await pause()
                    settled.clear()
        await maybe_deferred_to_future(DeferredList(settled))

    def _end(self, held: Held, held_origin: HeldOrigin | None) -> Deferred[None]:
        """End the wait of *held*. Return a Deferred for the output of its errback."""
        request = held.request
        if self._context.engine.following.is_kept(request):
            return succeed(None)
        only_waited = not held.counts and not (held_origin is not None and held_origin.fails)
        goes_back = only_waited or self._outlives(request)
        if goes_back and self._hand_back(request, held.since, request.priority):
            if held.counts:
                self._context.stats.inc_value("rep/handed_back")
            return succeed(None)
        origin = origin_of(request) if held_origin is None else held_origin.origin
        why = Drop.of(self._held.table.get(origin))
        if held_origin is None or (held_origin.answered and why.reason == UNKNOWN_YET):
            why = why._replace(reason="about to leave", attempts=0)
        why = why._replace(reason=f"{why.reason}; the crawl ended")
        return self._context.engine.fail(request, self._held.give_up(held, origin, why))

    def _outlives(self, request: Request) -> bool:
        """Whether the scheduler would keep *request* when the process ends."""
        engine, spider = self._context.engine, self._context.spider
        if engine.scheduler_is_foreign:
            return engine.scheduler_outlives
        if spider is None or not job_dir(self._context.crawler.settings):
            return False
        with suppress(Exception):  # from pickling a user's meta
            dumps(request, spider)
            return True
        return False
