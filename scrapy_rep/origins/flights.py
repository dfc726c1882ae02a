"""Fetches of robots.txt: one per origin in this process, a limited number at a time, and
the queues of those who wait for them (queue.py). docs/DESIGN.md, "A fetch", tells what
happens to one.

Whatever happens to an origin or to its queue ends with
:meth:`Flights.set_alarm_or_forget`, which sets the origin's one alarm anew. However a
fetch ends, those who wait for it are told.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

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
from scrapy_rep.origins.queue import (
    ROUNDING,
    CrawlEnding,
    FetchAbandoned,
    Flight,
    Limits,
    Queue,
    Step,
    StillWaiting,
    Tally,
    steps,
    tell,
)
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import UNKNOWN, Misconfigured, Status, Unreachable
from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

_FETCHES_PER_SLOT = 4
"""How many quick fetches (those that aren't slow: :data:`.queue.SLOW_SECONDS`) may run
at a time, for each of CONCURRENT_REQUESTS. Fetches may be more than pages, since they
have room of their own in the downloader (``EngineAccess.extra_slot()``), and are
small."""

_SLOW_FACTOR = 4
"""How many times as many fetches as quick ones may run at a time, slow ones included,
so that silent servers don't stop the others."""

_MAX_SOCKETS = 512
"""How many fetches may run at a time, slow ones included, unless more quick ones are
allowed. Each has a socket, and operating systems let a process open some 1,000 files
and sockets."""

_Line: TypeAlias = OrderedDict[Flight, None]
"""Flights in the order in which they came. Each can be removed at once, wherever in the
line it stands."""

CANCELLED = (CancelledError, asyncio.CancelledError)
"""What a cancelled fetch raises, with Twisted and with asyncio. A project's own code
may raise them, too."""


class ResolutionListener:
    """Is notified of answers (:meth:`Flights.notify`). A bug in one listener
    doesn't affect the others."""

    part = "part"
    """Its name in the log."""

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Handle the answer of a *flight*, or news from the storage. Requests obey
        *state* now."""

    def failed(self, origin: Origin, error: Exception) -> None:
        """Handle that there will be no answer. *error* is one of
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`, a bug, or
        :class:`FetchAbandoned`."""


class WaitingRoom:
    """Acts for the requests at the gate (holding/gate.py): its subclass
    :class:`.holding.Holding` does. This class itself is for crawls without a gate, so
    nobody waits in its room."""

    def answered(self, queue: Queue, state: OriginState) -> None:
        """Do what *state*, the answer, means to the requests in *queue*. Listeners have
        been told of the answer."""

    def failed(self, queue: Queue, error: Exception) -> None:
        """Handle that there will be no answer for *queue*: *error* is a
        misconfiguration, or a bug."""

    def act(self, queue: Queue, step: Step) -> None:
        """Do a *step* that is due for *queue*. After ``Step.ASK``, ``Flights`` has
        robots.txt fetched, unless this method has begun a fetch."""


class Flights:
    """All flights of a crawl, and the queue of each origin that somebody waits for.
    Flights for which there is no place stand in line, first attempts ahead of
    retries."""

    def __init__(
        self,
        crawler: Crawler,
        ask: Callable[[Flight], Awaitable[OriginState]],
        status_of: Callable[[Origin], tuple[Status, OriginState | None]],
        clock: Callable[[], float],
        limits: Limits,
    ) -> None:
        """*ask* fetches a flight's robots.txt and updates what is known. *status_of*
        returns the status of an origin, and what else is known of it. *clock*: seconds
        for which the crawl has run. *limits*: how long fetches and waits may take."""
        self._crawler = crawler
        self._ask = ask
        self._status_of = status_of
        self._isolated = Isolation(crawler)
        """Logs a listener's bug, or one of :attr:`_room`, in place of raising it
        (engine/log.py)."""
        self.clock = clock
        self.limits = limits
        self.tally = Tally()
        self.queues: dict[Origin, Queue] = {}
        """The queues of the origins with a fetch, or with somebody who waits."""
        self._listeners: list[ResolutionListener] = []
        """Those that are notified of answers, one after the other."""
        self._room = WaitingRoom()
        """Acts for the requests at the gate, see :meth:`serve`."""
        self._alarm = Alarm(crawler, self._wake_up)
        """Calls for each origin when the next step for its queue is due."""
        self._first_attempts: _Line = OrderedDict()
        """First attempts that stand in line."""
        self._retries: _Line = OrderedDict()
        """Retries that stand in line."""
        self._take_off_soon: CallLaterResult | None = None
        """Calls :meth:`_take_off` in the next step of the event loop; None if that
        isn't needed."""
        self._running_count = 0
        """How many flights have a place: quick and slow ones."""
        self._quick_count = 0
        """How many of these are quick."""
        self._slow: _Line = OrderedDict()
        """Those of them that are slow."""
        self._telling: set[Flight] = set()
        """Flights of whose answers listeners are being told."""
        self._flight_at_end = Flight(Origin("", "", 0), Request("data:,"))
        """The flight that those get who ask once the spider closes. Its result tells
        them so; it has none while the spider is open."""
        concurrency = concurrency_of(crawler)
        self._slow_give_way = has_small_pool(crawler)
        """Whether slow flights are put off if others need their place, since the
        download handler has few connections (engine/pools.py)."""
        if self._slow_give_way:
            # Half of the connections are for pages.
            self._max_quick = max(1, concurrency // 2)
            self._max_running = self._max_quick
        else:
            self._max_quick = _FETCHES_PER_SLOT * concurrency
            with_slow = min(_SLOW_FACTOR * self._max_quick, _MAX_SOCKETS)
            self._max_running = max(self._max_quick, with_slow)

    def serve(self, room: WaitingRoom) -> None:
        """From now on, *room* acts for the requests at the gate."""
        self._room = room

    def notify(self, *listeners: ResolutionListener) -> None:
        """From now on, notify *listeners*, too, of answers: in this order, after those
        that are notified already."""
        self._listeners += listeners

    # Who waits

    def get(self, origin: Origin) -> Flight | None:
        """Return the fetch of *origin* that is queued or in flight."""
        queue = self.queues.get(origin)
        return None if queue is None else queue.fetch

    @property
    def is_telling(self) -> bool:
        """Whether listeners are being told of an answer. A listener that takes longer
        than a fetch may doesn't count any more, since it may never return."""
        earliest = self.clock() - self.limits.fetch
        for flight in self._telling:
            if flight.answered_at > earliest:
                return True
        return False

    def queue_of(self, origin: Origin) -> Queue:
        """Return the queue of *origin*, a new one if there is none. Afterwards,
        :meth:`set_alarm_or_forget` is to be called: it forgets a queue that nobody
        needs."""
        queue = self.queues.get(origin)
        if queue is None:
            queue = Queue(origin, self.tally)
            self.queues[origin] = queue
        return queue

    async def wait_for(self, flight: Flight, seconds: float | None) -> OriginState:
        """Wait for *flight*, see :meth:`Flight.wait`."""
        if seconds is not None and seconds <= 0:
            raise StillWaiting
        queue = self.queue_of(flight.origin)
        callers = queue.callers
        if flight in queue.being_told:  # its callers have been taken from the queue
            callers = flight.callers
        return await self._wait_among(callers, queue, seconds)

    async def next_answer(self, origin: Origin) -> OriginState:
        """Wait for the next answer of *origin*, which is asked when its next attempt is
        due."""
        if self._flight_at_end.result is not None:  # the spider closes
            raise CrawlEnding
        queue = self.queue_of(origin)
        return await self._wait_among(queue.callers, queue, None)

    async def _wait_among(
        self, callers: list[Deferred[OriginState]], queue: Queue, seconds: float | None
    ) -> OriginState:
        """Wait among *callers*, who belong to *queue*, until these are told a result.
        Raise ``StillWaiting`` after some *seconds* (None: no limit)."""
        caller: Deferred[OriginState] = Deferred()
        callers.append(caller)
        self.set_alarm_or_forget(queue)
        try:
            return await within(seconds, caller, StillWaiting())
        finally:
            if caller in callers:
                callers.remove(caller)
            self.set_alarm_or_forget(queue)

    def set_alarm_or_forget(self, queue: Queue) -> None:
        """Set the alarm of *queue* anew, since something has changed; forget the queue
        if nobody needs it any more."""
        origin = queue.origin
        if self.queues.get(origin) is not queue:  # it is forgotten already
            return
        # Forget the queue if nobody needs it.
        has_fetch = queue.fetch is not None or queue.being_told
        if not (has_fetch or queue.has_requests or queue.callers):
            self._alarm.set(origin, None)
            del self.queues[origin]
            return
        # Otherwise set the alarm to the first of its steps.
        status: Status = UNKNOWN
        stays = queue.waiting or queue.held or queue.callers
        if stays and not has_fetch:  # otherwise the status doesn't matter to steps()
            status, _ = self._status_of(origin)
        now = self.clock()
        due = steps(status, queue, now, self.limits)
        seconds = None
        if due:
            seconds = min(due.values()) - now
        self._alarm.set(origin, seconds)

    def _wake_up(self, origin: Origin) -> None:
        """Do what is due for *origin*."""
        queue = self.queues.get(origin)
        if queue is None:
            return
        done_now: set[Step] = set()
        step = self._due_step(queue, done_now)
        while step is not None:
            done_now.add(step)
            self._act(queue, step, self.clock())
            # The next step is looked up anew each time, since what one step has changed
            # (a fetch has begun, say) may make another needless.
            step = self._due_step(queue, done_now)
        self.set_alarm_or_forget(queue)

    def _due_step(self, queue: Queue, done_now: set[Step]) -> Step | None:
        """Return a step that is due for *queue*, and not among those that were done
        just now."""
        now = self.clock()
        status, _ = self._status_of(queue.origin)
        all_steps = steps(status, queue, now, self.limits)
        for step, moment in all_steps.items():
            is_due = moment <= now + ROUNDING
            if is_due and step not in done_now:
                return step
        return None

    def _act(self, queue: Queue, step: Step, now: float) -> None:
        """Do a *step* that is due: what concerns fetches is done here, and the rest by
        :attr:`_room`."""
        if step is Step.FREE_PLACE:
            if queue.fetch is not None:
                self._count_as_slow(queue.fetch)
        elif step is Step.APPLY and queue.being_told:
            # Listeners have taken too long, so those who wait go on without them.
            answered_before = now + ROUNDING - self.limits.grace
            for flight in list(queue.being_told):
                if flight.answered_at <= answered_before:
                    self._landed(queue, flight)
        elif step is Step.APPLY:
            self._apply(queue)
        else:
            self._room.act(queue, step)
            if step is Step.ASK:  # to() begins a fetch, unless there is one now
                self.to(queue.origin, again=True)

    def _count_as_slow(self, flight: Flight) -> None:
        """Let another flight have the place of *flight* among the quick ones."""
        flight.is_slow = True
        self._slow[flight] = None
        self._quick_count -= 1
        self._take_off()

    # Fetches

    def to(
        self, origin: Origin, request: Request | None = None, *, again: bool = False
    ) -> Flight:
        """Return the flight to *origin*, or begin one for *request* (None: for the file
        itself). *again*: a retry; then a flight whose answer is just being told doesn't
        count."""
        if self._flight_at_end.result is not None:  # the spider closes
            return self._flight_at_end
        queue = self.queue_of(origin)
        if queue.fetch is not None:
            return queue.fetch
        if queue.being_told and not again:
            return queue.being_told[-1]  # the latest

        # A new flight gets in line.
        now = self.clock()
        flight = Flight(
            origin,
            request or Request(origin.robots_url),
            owner=self,
            again=again,
            began_at=now,
        )
        queue.begin_fetch(flight, now)
        line = self._retries if again else self._first_attempts
        line[flight] = None
        # The flight doesn't take off now, since the caller may be a signal's handler,
        # which must return before it is called back.
        if self._take_off_soon is None:
            self._take_off_soon = call_later(0, self._take_off)
        self.set_alarm_or_forget(queue)
        return flight

    def _take_off(self) -> None:
        """Let those flights take off for which there is a place."""
        self._take_off_soon = None
        if self._slow_give_way:
            self._put_off_slow()
        while self._first_attempts or self._retries:
            if (
                self._running_count >= self._max_running
                or self._quick_count >= self._max_quick
            ):
                break
            # The first in line takes a place.
            line = self._first_attempts or self._retries
            flight, _ = line.popitem(last=False)
            self._running_count += 1
            self._quick_count += 1
            flight.has_place = True
            queue = self.queues[flight.origin]
            queue.take_off(self.clock())
            # The flight gets a task of its own, which survives the request that began
            # it.
            flight.running = deferred_from_coro(self._fly(flight))
            # A task that is cancelled at once does not even begin, so _fly() can't free
            # its place.
            flight.running.addErrback(self._came_down, flight)
            # Without asyncio, the fetch may have ended already.
            self.set_alarm_or_forget(queue)

    def _put_off_slow(self) -> None:
        """Break off as many slow flights as there are first attempts without a place. A
        fetch that is broken off doesn't count as an attempt. It is made again when no
        first attempt stands in line, and may then be in flight twice as long before it
        is slow. So, in the end, a silent origin keeps its place until its fetch has
        failed."""
        free_places = self._max_running - self._running_count
        without_place = max(0, len(self._first_attempts) - free_places)
        # Some slow flights were cancelled already, and have not ended yet. These are
        # left out.
        slow = [flight for flight in self._slow if self.get(flight.origin) is flight]
        for flight in slow[:without_place]:
            # Another flight to the origin stands in line in its place.
            later = flight.later()
            queue = self.queue_of(flight.origin)
            self._free_place(flight)
            flight.is_abandoned = True
            flight.is_put_off = True
            queue.put_off(later, self.clock())
            self._retries[later] = None
            assert flight.running is not None  # it has been in flight for long
            flight.running.cancel()
            self.set_alarm_or_forget(queue)

    def _came_down(self, failure: Failure, flight: Flight) -> Failure | None:
        """Note that the task of *flight* has ended with a *failure*. Return that unless
        it is only the cancellation."""
        self._free_place(flight)
        if isinstance(failure.value, CANCELLED):
            return None  # a cancelled task has nothing to tell
        return failure

    def _free_place(self, flight: Flight) -> None:
        """Let another flight have the place of *flight*, whose fetch has ended, unless
        its place is free already."""
        if not flight.has_place:
            return
        flight.has_place = False
        self._running_count -= 1
        if not flight.is_slow:
            self._quick_count -= 1
        self._slow.pop(flight, None)
        is_place_needed = self._first_attempts or self._retries
        if is_place_needed and self._take_off_soon is None:
            # The next flight doesn't take off now, since without asyncio hundreds might
            # end at once, each within the call that ends the one before.
            self._take_off_soon = call_later(0, self._take_off)

    async def _fly(self, flight: Flight) -> None:
        """Get robots.txt fetched, then tell listeners and those who wait."""
        try:
            state = await self._ask(flight)
        except (Exception, asyncio.CancelledError) as error:
            if is_ending_with_loop(error) and not flight.is_abandoned:
                raise  # the event loop ends, and not only this fetch
            await self._failed(flight, error)
            self._free_place(flight)
            return
        # The place is free before listeners are told, since a listener may wait for
        # another fetch, even of this origin.
        self._free_place(flight)

        # The answer is known.
        now = self.clock()
        queue = self.queue_of(flight.origin)
        queue.end_fetch(flight, now)
        flight.state = state
        flight.answered_at = now
        # Those who have waited so far are told once listeners have been. Those who come
        # from now on (handlers of the signal `robots_resolved`, say) see the new
        # status, or wait for the next answer.
        if queue.callers:
            flight.callers = queue.remove_callers()
        queue.being_told.append(flight)
        self.set_alarm_or_forget(queue)

        # Tell the listeners, and then those who wait.
        self._telling.add(flight)
        try:
            for listener in self._listeners:
                try:
                    await listener.resolved(state, flight)
                except Exception as bug:  # noqa: BLE001 (whatever a bug raises)
                    self._isolated.contain(listener.part, bug)
        finally:
            self._telling.remove(flight)
            self._landed(queue, flight)

    async def _failed(
        self, flight: Flight, error: Exception | asyncio.CancelledError
    ) -> None:
        """Tell that *flight* has no answer, and will have none."""
        if flight.is_put_off:
            # Those who waited for this flight now wait for the one that stands in line
            # in its place.
            return
        if flight.is_abandoned:
            # Only listeners are told, since nobody waits for the flight.
            self._notify_of_failure(flight, FetchAbandoned())
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
            self._notify_of_failure(flight, flight.result)
        finally:
            self._give_up(queue, flight.result)
            self.set_alarm_or_forget(queue)

    def _notify_of_failure(self, flight: Flight, error: Exception) -> None:
        """Tell the listeners that *flight* has no answer, and why."""
        for listener in self._listeners:
            with self._isolated(listener.part):  # a bug of its is only logged
                listener.failed(flight.origin, error)

    def _landed(self, queue: Queue, flight: Flight) -> None:
        """Let those go on who wait for *flight*, since all listeners have been told, or
        one takes too long."""
        if flight not in queue.being_told:
            return  # those who waited went on when a listener took too long
        queue.being_told.remove(flight)
        assert flight.state is not None  # _fly() has set it before the flight was told
        try:
            self._room.answered(queue, flight.state)
        except Exception as bug:  # noqa: BLE001 (whatever a bug raises)
            self._isolated.contain("holding of requests", bug)
        flight.result = flight.state
        if flight.callers:
            tell(flight.callers, flight.state)
        self.set_alarm_or_forget(queue)

    def _apply(self, queue: Queue) -> None:
        """Let those who wait go on by what is known, though no fetch has just ended."""
        status, state = self._status_of(queue.origin)
        if isinstance(status, Misconfigured):
            self._give_up(queue, ProjectError(status.reason))
        elif state is not None:
            self._room.answered(queue, state)
            # While the origin is unreachable, callers wait for its next attempt.
            if not isinstance(status, Unreachable):
                tell(queue.remove_callers(), state)

    def _give_up(self, queue: Queue, error: Exception) -> None:
        """Let all in *queue* fail with *error*, since there will be no answer."""
        callers = queue.remove_callers()
        with self._isolated("holding of requests"):  # a bug there is only logged
            self._room.failed(queue, error)
        tell(callers, error)

    # Ends

    def abandon(self, origin: Origin) -> None:
        """Cancel the fetch of *origin*, unless somebody waits for it."""
        queue = self.queues.get(origin)
        if queue is None or queue.fetch is None:
            return
        if queue.is_empty:
            self._cancel(queue, queue.fetch)
            self.set_alarm_or_forget(queue)

    def _cancel(self, queue: Queue, flight: Flight) -> None:
        """Cancel *flight*, whose place becomes free when its task has ended."""
        flight.is_abandoned = True
        queue.end_fetch(flight, self.clock())
        self._first_attempts.pop(flight, None)
        self._retries.pop(flight, None)
        if flight.running is not None:  # otherwise it stood in line
            flight.running.cancel()

    def end(self) -> None:
        """Cancel all fetches, since the spider closes: those who wait for them get
        :class:`CrawlEnding`."""
        self._alarm.stop()
        if self._take_off_soon is not None:
            self._take_off_soon.cancel()
            self._take_off_soon = None
        self._flight_at_end.result = CrawlEnding()
        for queue in list(self.queues.values()):
            # Those who wait are told now, though listeners may not have been told yet.
            callers = queue.remove_callers()
            for flight in queue.being_told:
                callers += flight.callers
                flight.callers = []
            queue.being_told = []
            if queue.fetch is not None:
                flight = queue.fetch
                self._cancel(queue, flight)
                flight.result = self._flight_at_end.result
            tell(callers, self._flight_at_end.result)


def _as_bug(error: BaseException) -> Exception:
    """Return what to tell those who wait of an unexpected *error*: never a
    cancellation, since they must not think that they were cancelled."""
    if isinstance(error, CANCELLED) or not isinstance(error, Exception):
        name = type(error).__name__
        return RuntimeError(f"the fetch was cancelled ({name})")
    return error


def is_ending_with_loop(error: BaseException) -> bool:
    """Return whether *error* cancels our own task, as the end of the event loop does.
    Any other ``asyncio.CancelledError`` came from what we awaited."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task: Any = asyncio.current_task()
    except RuntimeError:
        # There is no asyncio loop: the project's code raises asyncio's exception all
        # the same.
        return False
    if task is None or not hasattr(task, "cancelling"):  # Python 3.10 can't tell
        return False
    return bool(task.cancelling() > 0)
