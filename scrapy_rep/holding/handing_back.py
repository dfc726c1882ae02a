"""Says what becomes of requests that can't stay at the gate (gate.py): none is lost
silently.

- During the crawl, if there is no room to hold them, they go back to the scheduler,
  unless it is Scrapy's (:meth:`HandingBack.hand_back`).
- At the crawl's end (Ctrl-C, say; :meth:`HandingBack.empty`), those about to leave
  count as waiting or held again. With a JOBDIR, requests that have only waited are held
  now, too, and those on disk stay there for the next run. Without a JOBDIR, requests
  that have only waited go back to the scheduler, where they would be without us.
  Requests that were held, or were about to fail, and aren't on disk go back to a
  scheduler that outlives the process; with any other, their errbacks are called.

The scheduler gets requests by its documented ``enqueue_request()``. So they pass
neither the dupe filter, which has seen them, nor the signal ``request_scheduled``,
which was sent. Their meta (:data:`HANDED_BACK`) says what they were like before, for
the process that gets them next.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from typing import NamedTuple

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.job import job_dir
from twisted.internet.defer import Deferred, DeferredList, succeed

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import in_slices, pause
from scrapy_rep.holding.hold import HeldRequests
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.policy import UNKNOWN_YET, Drop
from scrapy_rep.origins.queue import Held, Queue

logger = get_logger(__name__)

HANDED_BACK = "_rep_held"
"""Meta key of a request while the scheduler has it again."""

_ERRBACKS_AT_A_TIME = 20
"""Errbacks called before the event loop gets a turn: one takes 1 to 5 ms."""
_MOST_SECONDS = 1e9
"""The most seconds of waiting (30 years) that are believed, since anybody may have
written more into a request's meta."""
_LAST_PRIORITY = -(1 << 20)
"""The priority of a request that is handed back for want of room: after all others."""


class Past(NamedTuple):
    """What is known of a request from before the scheduler returned it."""

    waited: float | None = None
    """Seconds for which the request had waited, here and in the scheduler; None: it
    hadn't waited, or its meta doesn't say."""
    came_last: bool = False
    """Whether the request had been put behind all others, for want of room. When it
    comes again, the scheduler has only requests like that."""


NO_PAST = Past()
"""The past of a request that was never handed back."""


class HandingBack:
    """Hands requests back, and restores those that come again."""

    def __init__(self, context: CrawlContext, held: HeldRequests) -> None:
        self._context = context
        self._engine = context.engine
        self._count = context.stats.inc_value
        self._held = held
        self.waiting = 0
        """How many requests that were handed back for want of room are still in the
        scheduler. This number isn't exact if other processes share the scheduler."""

    def hand_back(self, request: Request, waited: float | None) -> bool:
        """Hand back *request*, for which there is no room, behind all others. Return
        whether the scheduler took it. Scrapy's own scheduler isn't asked, since it
        would return the request at once; nor is any other if held requests are on disk.
        *waited*: the seconds for which the request has waited here; None: not at
        all."""
        if self._held.disk is not None:
            return False
        if not self._engine.scheduler_is_foreign:
            return False
        priority = min(request.priority - 1, _LAST_PRIORITY)
        is_taken = self._give_to_scheduler(
            request,
            waited or 0.0,
            priority,
        )
        if is_taken:
            self.waiting += 1
        return is_taken

    def _give_to_scheduler(
        self, request: Request, waited: float, priority: int
    ) -> bool:
        """Give *request*, which has *waited* this many seconds, to the scheduler, with
        *priority* until it comes again. Return whether that worked."""
        request.meta[HANDED_BACK] = {
            "dont_filter": request.dont_filter,
            "priority": request.priority,
            "since": time.time() - waited,
            "waited": waited,
        }
        request.dont_filter = True
        request.priority = priority
        error = self._enqueue(request)
        if error is None:
            return True
        self._unmark(request)
        logger.error(
            "Can't hand %(request)s back to the scheduler, so the request fails: %(error)s",
            {"request": request, "error": error},
            extra=self._context.extra,
        )
        return False

    def _enqueue(self, request: Request) -> object:
        """Give *request* to the scheduler. Return why that didn't work; None if it
        did."""
        try:
            result = self._engine.scheduler.enqueue_request(request)
        except Exception as error:  # noqa: BLE001 (its server may be gone, its disk full)
            return error
        if result is False:  # some schedulers return nothing
            return "refused"
        return None

    def restore(self, request: Request) -> Past:
        """Make *request*, which the scheduler has returned, what it was before it was
        handed back. Return what is known of that time."""
        came_last = request.priority <= _LAST_PRIORITY
        if came_last:
            self.waiting = max(0, self.waiting - 1)
        waited = self._unmark(request)
        return Past(waited, came_last)

    def _unmark(self, request: Request) -> float | None:
        """Make *request* what it was before, as its mark says: what its meta has under
        :data:`HANDED_BACK`. Return for how many seconds it had waited, here and in the
        scheduler; None if the mark doesn't say."""
        mark = request.meta.pop(HANDED_BACK)
        try:
            request.dont_filter = bool(mark["dont_filter"])
            request.priority = int(mark["priority"])
            since = float(mark["since"])
            waited_here = float(mark["waited"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        waited_here = min(max(0.0, waited_here), _MOST_SECONDS)
        # Time without a crawl doesn't count. Of the time in the scheduler, it is only
        # known for how long this crawl has run.
        waited_in_all = time.time() - since
        in_scheduler = max(0.0, waited_in_all - waited_here)
        ran = self._held.now()
        return waited_here + min(in_scheduler, ran)

    # The crawl's end

    async def empty(self, *about_to_leave: deque[Request] | set[Request]) -> None:
        """Leave no request that would be lost with the process: write each to disk,
        hand it back, or call its errback. This concerns the requests in all queues
        (origins/queue.py), and those *about_to_leave*, which stand in no queue."""
        outputs = _ErrbackOutputs()
        # Those that stand in no queue.
        for collection in about_to_leave:
            requests = list(collection)
            collection.clear()
            for request in requests:
                output = self._end_unqueued(request)
                await outputs.add(output)
        # Those in queues.
        queues = list(self._held.queues.values())
        async for queue in in_slices(queues):
            failing = queue.numbers_to_fail()
            for held in self._held.take_unsaved(queue):
                was_to_fail = held.number in failing
                output = self._end(held, queue, was_to_fail=was_to_fail)
                await outputs.add(output)
        await outputs.handle()

    def _end_unqueued(self, request: Request) -> Deferred[None]:
        """End the wait of *request*, which was about to leave, and stands in no queue.
        Return a Deferred for the output of its errback."""
        if self._engine.following.is_kept(request):  # another file of ours has it
            return succeed(None)  # no errback is called
        if self._give_to_scheduler(request, waited=0.0, priority=request.priority):
            return succeed(None)
        origin = origin_of(request)
        last_failure = Drop.of(self._held.table.get(origin))
        drop = last_failure._replace(
            reason="about to leave; the crawl ended",
            attempts=0,  # no failed attempt is why it ends
        )
        # give_up() needs a Held; this one stood in no queue, and was never held.
        never_held = Held(urgency=0, number=0, since=0.0, request=request)
        error = self._held.give_up(never_held, origin, waited=0.0, why=drop)
        return self._engine.fail(request, error)

    def _end(self, held: Held, queue: Queue, *, was_to_fail: bool) -> Deferred[None]:
        """End the wait of *held*, which has been taken from *queue*. *was_to_fail*: it
        was about to leave, to fail. Return a Deferred for the output of its errback."""
        request = held.request
        if self._engine.following.is_kept(request):  # another file of ours has it
            return succeed(None)
        waited = self._held.waited(queue, held)
        # Without us, a request that only waited would be in the scheduler still.
        only_waited = not held.was_held and not was_to_fail
        may_go_back = only_waited or self._outlives(request)
        if may_go_back and self._give_to_scheduler(request, waited, request.priority):
            if held.was_held:
                self._count("rep/handed_back")
            return succeed(None)
        drop = self._why_ended(queue)
        error = self._held.give_up(held, queue.origin, waited, drop)
        return self._engine.fail(request, error)

    def _why_ended(self, queue: Queue) -> Drop:
        """Return why requests in *queue* fail at the crawl's end."""
        drop = Drop.of(self._held.table.get(queue.origin))
        if queue.is_answered and drop.reason == UNKNOWN_YET:
            drop = Drop("about to leave")  # the answer was no failure
        return drop._replace(reason=f"{drop.reason}; the crawl ended")

    def _outlives(self, request: Request) -> bool:
        """Whether *request* would outlive the process in the scheduler."""
        engine = self._engine
        spider = self._context.spider
        if engine.scheduler_is_foreign:
            return engine.scheduler_outlives
        if spider is None or not job_dir(self._context.crawler.settings):
            return False
        try:
            # As Scrapy's scheduler does, to keep it on disk.
            pickle.dumps(request.to_dict(spider=spider), pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 (from pickling a user's meta)
            return False
        return True


class _ErrbackOutputs:
    """Outputs of errbacks that aren't handled yet, a few at a time."""

    def __init__(self) -> None:
        self._outputs: list[Deferred[None]] = []

    async def add(self, output: Deferred[None]) -> None:
        """Add *output*. Once there are :data:`_ERRBACKS_AT_A_TIME`, wait until all are
        handled, and let the event loop have a turn."""
        self._outputs.append(output)
        if len(self._outputs) >= _ERRBACKS_AT_A_TIME:
            await self.handle()
            await pause()

    async def handle(self) -> None:
        """Wait until all outputs are handled. The engine must not close before, since
        errbacks may use the engine."""
        outputs = self._outputs
        self._outputs = []
        await maybe_deferred_to_future(DeferredList(outputs))
