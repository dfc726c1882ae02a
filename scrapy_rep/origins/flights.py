"""Fetches of robots.txt: one per origin in this process, a limited number at a time, and the queues of
those who wait for them (docs/DESIGN.md, "The robots.txt fetches themselves must not starve the crawl").

Whatever happens to an origin or to its queue ends with :meth:`Flights.settle`, which sets the origin's one
alarm anew. However a fetch ends, it *lands*: those who wait for it are told.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.log import Isolation, get_logger
from scrapy_rep.engine.pools import has_small_pool
from scrapy_rep.engine.timers import Alarm, within
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS, ProjectError
from scrapy_rep.origins.flight import (
    CrawlEnding,
    FetchAbandoned,
    Flight,
    Limits,
    StillWaiting,
    tell,
)
from scrapy_rep.origins.queue import (
    ROUNDING,
    Queue,
    Step,
    Tally,
    next_wakeup,
    steps,
)
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Misconfigured, Status, Unreachable
from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

_FETCHES_PER_SLOT = 4
"""Fetches at a time for each of CONCURRENT_REQUESTS, without the slow ones."""
_SLOW_FACTOR = 4
"""All fetches at a time, slow ones included: so many times the others,"""
_MAX_SOCKETS = 512
"""and not more than this."""

CANCELLED = (CancelledError, asyncio.CancelledError)
"""What a cancelled fetch raises, with Twisted and with asyncio. Each is raised by projects' own code, too."""


class ResolutionListener:
    """Is notified of answers. A bug in one listener doesn't affect the others."""

    part = "part"
    """Its name in the log."""

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Handle the answer of a *flight*, or news from the storage: requests obey *state* now."""

    def failed(self, origin: Origin, error: Exception) -> None:
        """Handle that there will be no answer. *error* is one of
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`, a bug, or :class:`FetchAbandoned`."""


class WaitingRoom:
    """Acts for the requests at the gate. Where there is no gate, nobody waits in it."""

    def answered(self, queue: Queue, state: OriginState) -> None:
        """Do what *state*, which is known and told, means to those in *queue*."""

    def failed(self, queue: Queue, error: Exception) -> None:
        """Handle that there will be no answer: a misconfiguration, or a bug."""

    def act(self, queue: Queue, step: Step) -> None:
        """Do a *step* that is due. An ``ASK`` may be left to the flights."""


class Flights:
    """All flights and queues. Flights beyond the cap queue, first attempts ahead of retries."""

    def __init__(
        self,
        crawler: Crawler,
        ask: Callable[[Flight], Awaitable[OriginState]],
        tell: Callable[[Flight, OriginState | Exception], Awaitable[None]],
        status_of: Callable[[Origin], tuple[Status, OriginState | None]],
        clock: Callable[[], float],
        limits: Limits,
    ) -> None:
        """*ask* fetches the flight's robots.txt and updates what is known; *tell* tells listeners the
        result; *status_of* returns the status of an origin, and what else is known of it; *clock*: seconds for which the crawl has run."""
        self._crawler = crawler
        self._ask = ask
        self._tell = tell
        self._status_of = status_of
        self._isolated = Isolation(crawler)
        self.clock = clock
        self.limits = limits
        self.tally = Tally()
        self.queues: dict[Origin, Queue] = {}
        """Of the origins with a fetch, or with somebody who waits."""
        self._room = WaitingRoom()
        self._alarm = Alarm(crawler, self._wake_up)
        self._first: OrderedDict[Flight, None] = OrderedDict()
        self._again: OrderedDict[Flight, None] = OrderedDict()
        self._take_off_soon: CallLaterResult | None = None
        self._running = 0
        self._quick = 0
        """How many are in flight, without the slow ones."""
        self._slow: OrderedDict[Flight, None] = OrderedDict()
        """The slow ones in flight."""
        self._telling: set[Flight] = set()
        """Those of whose answers listeners are being told."""
        self._end = Flight(Origin("", "", 0), Request("data:,"))
        """Landed: the spider closes."""
        concurrency = concurrency_of(crawler)
        self._slow_give_way = has_small_pool(crawler)
        """Slow flights are put off if others need their place: there are no further connections."""
        if self._slow_give_way:  # half of the connections are for pages
            self._cap = self._most = max(1, concurrency // 2)
        else:
            self._cap = _FETCHES_PER_SLOT * concurrency
            self._most = max(self._cap, min(_SLOW_FACTOR * self._cap, _MAX_SOCKETS))

    def serve(self, room: WaitingRoom) -> None:
        """From now on, *room* acts for the requests at the gate."""
        self._room = room

    # Who waits

    def get(self, origin: Origin) -> Flight | None:
        """Return the fetch of *origin* that is queued or in flight."""
        queue = self.queues.get(origin)
        return None if queue is None else queue.fetch

    @property
    def is_telling(self) -> bool:
        """Whether listeners are being told of an answer. One that takes longer than a fetch may counts
        no more: it may never return."""
        now = self.clock()
        return any(
            now < flight.answered_at + self.limits.fetch for flight in self._telling
        )

    def queue_of(self, origin: Origin) -> Queue:
        queue = self.queues.get(origin)
        if queue is None:
            queue = self.queues[origin] = Queue(origin, self.tally)
        return queue

    async def wait_for(self, flight: Flight, seconds: float | None) -> OriginState:
        """Wait for *flight*, see :meth:`Flight.wait`."""
        if seconds is not None and seconds <= 0:
            raise StillWaiting
        queue = self.queue_of(flight.origin)
        callers = flight.callers if flight in queue.landing else queue.callers
        return await self._wait_among(callers, queue, seconds)

    async def next_answer(self, origin: Origin) -> OriginState:
        """Wait for the next answer of *origin*, which is asked when its next attempt is due."""
        if self._end.result is not None:
            raise CrawlEnding
        queue = self.queue_of(origin)
        return await self._wait_among(queue.callers, queue, None)

    async def _wait_among(
        self, callers: list[Deferred[OriginState]], queue: Queue, seconds: float | None
    ) -> OriginState:
        caller: Deferred[OriginState] = Deferred()
        callers.append(caller)
        self.settle(queue)
        try:
            return await within(seconds, caller, StillWaiting())
        finally:
            if caller in callers:
                callers.remove(caller)
            self.settle(queue)

    def settle(self, queue: Queue) -> None:
        """Set the alarm of *queue* anew, since something has changed; forget the queue if nobody needs
        it any more."""
        origin = queue.origin
        if self.queues.get(origin) is not queue:
            return
        if queue.is_empty and queue.fetch is None and not queue.landing:
            self._alarm.forget(origin)
            del self.queues[origin]
            return
        now = self.clock()
        moment = next_wakeup(self._status_of(origin)[0], queue, now, self.limits)
        if moment is None:
            self._alarm.forget(origin)
        else:
            self._alarm.set(origin, moment - now)

    def _wake_up(self, origin: Origin) -> None:
        """Do what is due for *origin*."""
        queue = self.queues.get(origin)
        if queue is None:
            return
        done: set[Step] = set()
        # What one step changes (a fetch has begun, say) may make another needless.
        while (step := self._due_step(queue, done)) is not None:
            done.add(step)
            self._act(queue, step, self.clock())
        self.settle(queue)

    def _due_step(self, queue: Queue, done: set[Step]) -> Step | None:
        """Return a step that is due for *queue*, and not among those *done* just now."""
        now = self.clock()
        for step, moment in steps(
            self._status_of(queue.origin)[0], queue, now, self.limits
        ).items():
            if moment <= now + ROUNDING and step not in done:
                return step
        return None

    def _act(self, queue: Queue, step: Step, now: float) -> None:
        flight = queue.fetch
        if step is Step.FREE_PLACE:
            if flight is not None:
                flight.is_slow = True
                self._slow[flight] = None
                self._quick -= 1
                self._take_off()
        elif step is Step.APPLY and queue.landing:
            for late in list(queue.landing):
                if late.answered_at + self.limits.grace <= now + ROUNDING:
                    self._landed(queue, late)
        elif step is Step.APPLY:
            self._apply(queue)
        else:
            self._room.act(queue, step)
            if step is Step.ASK:
                self.to(queue.origin, again=True)

    # Fetches

    def to(
        self, origin: Origin, request: Request | None = None, *, again: bool = False
    ) -> Flight:
        """Return the flight to *origin*, or begin one for *request*. *again*: a retry; then an answer
        that is just being told doesn't count."""
        if self._end.result is not None:
            return self._end
        queue = self.queue_of(origin)
        if queue.fetch is not None:
            return queue.fetch
        if queue.landing and not again:
            return queue.landing[-1]
        now = self.clock()
        flight = Flight(
            origin,
            request or Request(origin.robots_url),
            owner=self,
            again=again,
            began_at=now,
        )
        queue.begin(flight, now)
        (self._again if again else self._first)[flight] = None
        if self._take_off_soon is None:
            # In a step of its own: the caller may be a handler, which must return before it is called back.
            self._take_off_soon = call_later(0, self._take_off)
        self.settle(queue)
        return flight

    def queued(self, flight: Flight, *, is_queued: bool) -> None:
        """Note whether *flight* stands in a queue of the downloader: that time doesn't count."""
        queue = self.queues.get(flight.origin)
        if queue is None or queue.fetch is not flight:
            return
        now = self.clock()
        if is_queued:
            # The alarm may ring too early now, and is set anew then.
            queue.stop_clock(now)
            return
        flight.sent_at = now
        queue.start_clock(now)
        self.settle(queue)

    def _take_off(self) -> None:
        """Let those fly for which there is room."""
        self._take_off_soon = None
        if self._slow_give_way:
            self._put_off_slow()
        while (waiting := self._first or self._again) and self._end.result is None:
            if self._quick >= self._cap or self._running >= self._most:
                break
            flight, _ = waiting.popitem(last=False)
            self._running += 1
            self._quick += 1
            flight.has_place = True
            self.queue_of(flight.origin).take_off(self.clock())
            # A task of its own: it survives the request that began it.
            flight.running = deferred_from_coro(self._fly(flight))
            # Not in _fly(): a task that is cancelled at once does not even begin.
            flight.running.addBoth(self._came_down, flight)
            self.settle(self.queue_of(flight.origin))

    def _put_off_slow(self) -> None:
        """Break off as many slow flights as there are others that never took off and have no place. What is
        broken off was no attempt. It is made again when none of these waits, and may take twice as long: so
        a silent origin keeps its place at last until it has failed."""
        without_place = len(self._first) - (self._most - self._running)
        # Others were cancelled, and have not ended so far.
        slow = [flight for flight in self._slow if self.get(flight.origin) is flight]
        for flight in slow[: max(0, without_place)]:
            later, queue = flight.later(), self.queue_of(flight.origin)
            self._free_place(flight)
            flight.is_abandoned = flight.is_put_off = True
            queue.put_off(later, self.clock())
            self._again[later] = None
            assert flight.running is not None
            flight.running.cancel()
            self.settle(queue)

    def _came_down(self, result: Any, flight: Flight) -> Any:
        self._free_place(flight)
        if isinstance(result, Failure) and isinstance(result.value, CANCELLED):
            return None  # a cancelled task has nothing to tell
        return result

    def _free_place(self, flight: Flight) -> None:
        """Let another take the place of *flight*, unless one has: its fetch has ended."""
        if not flight.has_place:
            return
        flight.has_place = False
        self._running -= 1
        if not flight.is_slow:
            self._quick -= 1
        self._slow.pop(flight, None)
        if self._take_off_soon is None and (self._first or self._again):
            # Without asyncio, hundreds may end at once: none of them may begin the next within itself.
            self._take_off_soon = call_later(0, self._take_off)

    async def _fly(self, flight: Flight) -> None:
        try:
            state = await self._ask(flight)
        except (Exception, asyncio.CancelledError) as error:
            if is_ending_with_loop(error) and not flight.is_abandoned:
                raise
            await self._failed(flight, error)
            return
        # A listener may wait for another fetch, even of this origin.
        self._free_place(flight)
        queue = self.queue_of(flight.origin)
        queue.end_fetch(flight, self.clock())
        flight.state, flight.answered_at = state, self.clock()
        # Those that come from now on, handlers of `robots_resolved` say, see the new status, or wait
        # for the next answer.
        flight.callers, queue.callers = queue.callers, []
        queue.landing.append(flight)
        self.settle(queue)
        self._telling.add(flight)
        try:
            await self._tell(flight, state)
        finally:
            self._telling.remove(flight)
            self._landed(queue, flight)

    async def _failed(
        self, flight: Flight, error: Exception | asyncio.CancelledError
    ) -> None:
        """Tell that there is no answer, and will be none."""
        if flight.is_put_off:
            return
        if flight.is_abandoned:
            await self._tell(flight, FetchAbandoned())
            return
        if not isinstance(error, CONFIGURATION_ERRORS):
            logger.error(
                "Bug in scrapy-rep: the fetch of %(origin)s/robots.txt failed",
                {"origin": flight.origin},
                extra={"spider": self._crawler.spider},
                exc_info=error,
            )
        queue = self.queue_of(flight.origin)
        queue.end_fetch(flight, self.clock())
        flight.result = _as_bug(error)
        try:
            await self._tell(flight, flight.result)
        finally:
            self._give_up(queue, flight.result)
            self.settle(queue)

    def _landed(self, queue: Queue, flight: Flight) -> None:
        """Let those go on who wait for *flight*: all listeners have been told, or one takes too long."""
        if flight not in queue.landing:
            return  # they went on without this listener
        queue.landing.remove(flight)
        assert flight.state is not None
        with self._isolated("holding of requests"):
            self._room.answered(queue, flight.state)
        flight.land(flight.callers, flight.state)
        self.settle(queue)

    def _apply(self, queue: Queue) -> None:
        """Do what is known with those who wait, though no fetch has just ended."""
        status, state = self._status_of(queue.origin)
        if isinstance(status, Misconfigured):
            self._give_up(queue, ProjectError(status.reason))
        elif state is not None:
            self._room.answered(queue, state)
            if not isinstance(status, Unreachable):
                callers, queue.callers = queue.callers, []
                tell(callers, state)

    def _give_up(self, queue: Queue, error: Exception) -> None:
        """Let all fail who wait: there will be no answer."""
        callers, queue.callers = queue.callers, []
        with self._isolated("holding of requests"):
            self._room.failed(queue, error)
        tell(callers, error)

    # Ends

    def abandon(self, origin: Origin) -> None:
        """Cancel the fetch of *origin*, unless somebody else waits for it."""
        queue = self.queues.get(origin)
        if queue is not None and queue.fetch is not None and queue.is_empty:
            self._cancel(queue, queue.fetch)
            self.settle(queue)

    def _cancel(self, queue: Queue, flight: Flight) -> None:
        flight.is_abandoned = True
        queue.end_fetch(flight, self.clock())
        self._first.pop(flight, None)
        self._again.pop(flight, None)
        if flight.running is not None:  # else it was queued
            flight.running.cancel()

    def end(self) -> None:
        """Cancel all fetches: those who wait for them get :class:`CrawlEnding`."""
        self._alarm.stop()
        if self._take_off_soon is not None:
            self._take_off_soon.cancel()
            self._take_off_soon = None
        self._end.result = CrawlEnding()
        for queue in list(self.queues.values()):
            callers, queue.callers = queue.callers, []
            for flight in queue.landing:
                callers += flight.callers
                flight.callers = []
            queue.landing = []  # what a listener may still be told is no longer for those in the queue
            if queue.fetch is not None:
                flight = queue.fetch
                self._cancel(queue, flight)
                flight.result = self._end.result
            tell(callers, self._end.result)


def _as_bug(error: BaseException) -> Exception:
    """Return *error* as what those are told who wait. To cancel is ours: they must not take it for that."""
    if isinstance(error, CANCELLED) or not isinstance(error, Exception):
        return RuntimeError(f"the fetch was cancelled ({type(error).__name__})")
    return error


def is_ending_with_loop(error: BaseException) -> bool:
    """Whether *error* cancels our own task, as the end of the event loop does. Any other
    ``asyncio.CancelledError`` came from what we awaited. (Python 3.10 can't tell.)"""
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task: Any = asyncio.current_task()
    except (
        RuntimeError
    ):  # there is no such loop: the project's code uses asyncio's exception
        return False
    return task is not None and hasattr(task, "cancelling") and task.cancelling() > 0
