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
from typing import NamedTuple

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.job import job_dir
from twisted.internet.defer import Deferred, DeferredList, succeed

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import in_slices, pause
from scrapy_rep.holding.disk import dumps
from scrapy_rep.holding.hold import HeldRequests
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.policy import UNKNOWN_YET, Drop
from scrapy_rep.origins.queue import Held, Queue

logger = get_logger(__name__)

HANDED_BACK = "_rep_held"
"""Meta key of a request while the scheduler has it again."""

_AT_A_TIME = 20
"""Errbacks called before the event loop gets a turn."""
_LONGEST = 1e9
"""Seconds that a request can have waited."""
_LAST = -(1 << 20)
"""The priority of a request that is handed back for want of room: after all others."""


class Past(NamedTuple):
    """What is known of a request from before the scheduler returned it."""

    waited: float | None = None
    """Seconds for which it had waited here; None: it hadn't, or its mark doesn't say."""
    came_last: bool = False
    """It had been put behind all others."""


NO_PAST = Past()


class HandingBack:
    """Hands requests back, and restores those that come again."""

    def __init__(self, context: CrawlContext, held: HeldRequests) -> None:
        self._context = context
        self._held = held
        self.waiting = 0
        """About how many the scheduler has for which there was no room."""

    def hand_back(self, request: Request, waited: float | None) -> bool:
        """Hand back *request*, for which there is no room, behind all others. Return whether the
        scheduler took it: Scrapy's own would return it at once. *waited*: the seconds for which it has."""
        if self._held.disk is not None or not self._context.engine.scheduler_is_foreign:
            return False
        priority = min(request.priority - 1, _LAST)
        handed_back = self._give_to_scheduler(request, waited or 0.0, priority)
        if handed_back:
            self.waiting += 1
        return handed_back

    def _give_to_scheduler(
        self, request: Request, waited: float, priority: int
    ) -> bool:
        """Give *request*, which has *waited* so many seconds, to the scheduler, with *priority* until it
        comes again. Return whether that worked."""
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
        self._unmark(request)
        message = "Can't hand %(request)s back to the scheduler, so the request fails: %(error)s"
        logger.error(
            message, {"request": request, "error": error}, extra=self._context.extra
        )
        return False

    def restore(self, request: Request) -> Past:
        """Make *request*, which the scheduler has returned, what it was before."""
        came_last = request.priority <= _LAST
        if came_last:
            self.waiting = max(0, self.waiting - 1)
        return Past(self._unmark(request), came_last)

    def _unmark(self, request: Request) -> float | None:
        """Make *request* what it was before. Return for how many seconds it had waited; None if its mark
        doesn't say."""
        mark = request.meta.pop(HANDED_BACK)
        try:
            request.dont_filter = bool(mark["dont_filter"])
            request.priority = int(mark["priority"])
            since, waited = (
                float(mark["since"]),
                min(max(0.0, float(mark["waited"])), _LONGEST),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        # Not while no crawl ran: of its time in the scheduler, what this one knows of.
        in_scheduler = max(0.0, time.time() - since - waited)
        return waited + min(in_scheduler, self._held.now())

    # The crawl's end

    async def empty(self, *loose: deque[Request] | set[Request]) -> None:
        """Leave nothing that would end with the process: write it to disk, hand it back, or call
        its errback. *loose* requests were about to leave."""
        unsettled = _Unsettled()
        for requests in loose:
            about_to_leave = list(requests)
            requests.clear()
            for request in about_to_leave:
                await unsettled.add(self._end_loose(request))
        async for queue in in_slices(list(self._held.queues.values())):
            for held in self._held.take_mortal(queue):
                await unsettled.add(self._end(held, queue))
        await unsettled.settle()

    def _end_loose(self, request: Request) -> Deferred[None]:
        """End the wait of *request*, which was about to leave."""
        if self._context.engine.following.is_kept(request):
            return succeed(None)
        if self._give_to_scheduler(request, 0.0, request.priority):
            return succeed(None)
        origin = origin_of(request)
        why = Drop.of(self._held.table.get(origin))
        ended = why._replace(reason="about to leave; the crawl ended", attempts=0)
        error = self._held.give_up(Held(0, 0, 0.0, request), origin, 0.0, ended)
        return self._context.engine.fail(request, error)

    def _end(self, held: Held, queue: Queue) -> Deferred[None]:
        """End the wait of *held*. Return a Deferred for the output of its errback."""
        request, waited = held.request, self._held.waited(queue, held)
        if self._context.engine.following.is_kept(request):
            return succeed(None)
        only_waited = not held.counts and not queue.fails
        goes_back = only_waited or self._outlives(request)
        if goes_back and self._give_to_scheduler(request, waited, request.priority):
            if held.counts:
                self._context.stats.inc_value("rep/handed_back")
            return succeed(None)
        why = Drop.of(self._held.table.get(queue.origin))
        if queue.is_answered and why.reason == UNKNOWN_YET:
            why = why._replace(reason="about to leave", attempts=0)
        why = why._replace(reason=f"{why.reason}; the crawl ended")
        return self._context.engine.fail(
            request, self._held.give_up(held, queue.origin, waited, why)
        )

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


class _Unsettled:
    """Outputs of errbacks that aren't handled yet, some at a time."""

    def __init__(self) -> None:
        self._outputs: list[Deferred[None]] = []

    async def add(self, output: Deferred[None]) -> None:
        self._outputs.append(output)
        if len(self._outputs) >= _AT_A_TIME:
            # Before the engine closes: an errback may still use it.
            await self.settle()
            await pause()

    async def settle(self) -> None:
        outputs, self._outputs = self._outputs, []
        await maybe_deferred_to_future(DeferredList(outputs))
