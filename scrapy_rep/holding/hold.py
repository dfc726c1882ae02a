"""The requests at the gate: how many there may be, where they are kept, and how they leave. Who stands
where is in the origins' queues (:mod:`scrapy_rep.origins.queue`). Those that *wait* for a first answer
are in memory. Those that are *held* are too or, with a JOBDIR, on disk (disk.py). Once there is an answer, or
they are given up, they *leave*: urgent ones first, origins in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext, suppress
from heapq import heappop, heappush
from math import ceil, inf
from typing import TypeAlias
from weakref import WeakKeyDictionary

from scrapy import Request

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.timers import Slices, in_slices
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop
from scrapy_rep.origins.queue import Held, Queue
from scrapy_rep.protocol import Origin
from scrapy_rep.signals import request_given_up, request_held, request_released

_GOOD_SECONDS = 5.0
"""Seconds for which an answer releases requests, however short it may be kept."""
_SHARE = 10
"""An origin may hold so many times the room that is left, so there is always room for another one
("dynamic thresholds", as in network switches)."""
_WAITING = 8
"""Requests that may wait for first answers, for each of CONCURRENT_REQUESTS: one for each fetch at a
time (origins/flights.py), and as many again, which are next."""

Verdict: TypeAlias = "Drop | Exception"


class HeldRequests:
    """The requests at the gate, of all origins. The origin table keeps their origins in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._flights = origins.flights
        self.table = origins.table
        self.queues = origins.flights.queues
        self.tally = origins.flights.tally
        self.now = context.running
        """Seconds for which the crawl has run."""
        self.disk: DiskHold | None = None
        """Where requests are held that outlive the process."""
        self._most_held = context.settings.hold_max_requests
        self._most_waiting = _WAITING * concurrency_of(context.crawler)
        self._number = 0
        """Of the request that came last."""

    # How many may be held, or wait

    def hold_at_most(self, count: int) -> None:
        """Hold no more than *count*, whatever ``REP_HOLD_MAX_REQUESTS`` says."""
        self._most_held = min(self._most_held, count)

    def room_for(self, queue: Queue | None) -> int:
        """Return how many more the origin may hold: others need some room."""
        room = max(0, self._most_held - self.tally.held)
        count = queue.count if queue is not None else 0
        # The origin may take n more as long as count + n <= _SHARE * (room - n): then there is always
        # room left for another one.
        for_this_origin = ceil((_SHARE * room - count) / (_SHARE + 1))
        return max(0, min(room, for_this_origin))

    @property
    def may_wait(self) -> bool:
        """Whether another request may come to wait for a first answer."""
        tally = self.tally
        room = max(0, self._most_held - tally.held)
        return (
            tally.counted < self._most_waiting
            and tally.waiting < room + self._most_waiting
        )

    @property
    def has_requests(self) -> bool:
        return bool(self.tally.waiting or self.tally.held)

    # They come and go

    def add_waiting(
        self, origin: Origin, request: Request, waited: float | None
    ) -> Queue:
        """Keep *request*, which has waited for some seconds before (None: not at all), until there is
        an answer."""
        queue = self._flights.queue_of(origin)
        queue.arrive(self.numbered(queue, request, waited))
        return queue

    def numbered(self, queue: Queue, request: Request, waited: float | None) -> Held:
        """Return *request* with its number, as the last that came."""
        self._number += 1
        since = queue.clock(self.now()) - (waited or 0.0)
        return Held(-request.priority, self._number, since, request)

    def hold_waiting(self, queue: Queue, *, everything: bool = False) -> list[Held]:
        """Hold, count and announce as many of the origin's waiting requests as there is room for;
        with *everything*, all. Return these."""
        room = len(queue.waiting) if everything else self.room_for(queue)
        with self.disk.journal.together() if self.disk is not None else nullcontext():
            moved = queue.hold(room, lambda held: self._kept(queue, held))
        if not moved:
            return []
        if queue.is_answered and not everything:
            self._context.stats.inc_value("rep/held/unreachable", len(moved))
        else:
            queue.unanswered += len(moved)
        self.count_held()
        for held in moved:
            self._context.stats.inc_value("rep/held")
            announce(self._context, request_held, held.request, queue.origin)
        return moved

    def _kept(self, queue: Queue, held: Held) -> Held:
        """Return *held* as it is kept: without its request, if that is on disk."""
        kept = held._replace(counts=True)
        if self.disk is not None:
            kept = self.disk.hold(str(queue.origin), kept)
        self._context.engine.drop_caches(held.request)
        return kept

    def count_held(self) -> None:
        """Bring the stats up to date."""
        stats = self._context.stats
        stats.set_value("rep/held/now", self.tally.held)
        stats.max_value("rep/held/max", self.tally.held)

    def first_leaving(self, queue: Queue) -> Held | None:
        """Return the origin's request that is next to leave; None if there is none, or it can't be
        read: then the engine asks for the one after it, since 100,000 such would take seconds."""
        held = queue.first_leaving()
        if held is None or held.request is not None or self.disk is None:
            return held
        read = self.disk.read(held)
        if read is None:
            queue.pop_first()
            self.count_held()
            self._context.engine.wake()
            return None
        queue.replace_first(read)
        return read

    def waited(self, queue: Queue, held: Held) -> float:
        """Return for how many seconds *held* has waited; if it was released, until then."""
        until = queue.clock(self.now())
        if queue.has_leaving and not queue.fails:
            until = queue.released_at
        return max(0.0, until - held.since)

    def release(self, queue: Queue) -> None:
        """Let all of *queue* leave, since an answer came."""
        queue.let_leave(None, self.now())
        self._begin_anew(queue)

    def recall(self, queue: Queue) -> None:
        """Keep those of *queue* that were about to leave."""
        if queue.has_leaving and not queue.fails:
            self._begin_anew(queue)
        queue.recall(self.now())

    def _begin_anew(self, queue: Queue) -> None:
        """Note on disk that the time of those in *queue* begins anew, if they have to wait again."""
        if self.disk is not None and queue.count:
            self.disk.release(str(queue.origin), queue.clock(self.now()))

    def forget(self, queue: Queue) -> None:
        """Note that all of *queue* have left."""
        if self.disk is not None and queue.released:
            self.disk.forget_release(str(queue.origin))

    def leave_first(self, queue: Queue, held: Held) -> None:
        """Let *held*, which is next to leave, leave."""
        queue.longest = max(queue.longest, self.waited(queue, held))
        queue.pop_first()
        self._left(queue, held, given_up=queue.fails)

    def _left(self, queue: Queue, held: Held, *, given_up: bool) -> None:
        if held.counts:
            if self.disk is not None:
                self.disk.left(str(queue.origin), held, given_up=given_up)
            self.count_held()

    def take_mortal(self, queue: Queue) -> Iterator[Held]:
        """Yield the requests that would end with the process, as they leave."""
        disk = self.disk
        self.recall(queue)
        if disk is not None:
            self.hold_waiting(queue, everything=True)

        def is_mortal(held: Held) -> bool:
            return disk is None or not held.row or not disk.has(held.row)

        for taken in queue.take(is_mortal):
            held: Held | None = taken
            if taken.request is None and disk is not None:
                held = disk.read(taken)
            if held is not None:
                queue.longest = max(queue.longest, self.waited(queue, held))
                self._left(queue, held, given_up=False)
                yield held

    def peek(self, held: Held) -> Request | None:
        """Return the request of *held*; None if it can't be read now."""
        if held.request is None and self.disk is not None:
            with suppress(Exception):  # disk.read() will say so
                return self.disk.load(held)
        return held.request

    def give_up(
        self, held: Held, origin: Origin, waited: float, why: Drop
    ) -> RobotsUnreachable:
        """Return the error with which *held* is to fail. Count and announce it, if it was held."""
        error = RobotsUnreachable(origin, why.reason, why.attempts, why.cause)
        if held.counts:
            error.held_for = waited
            self._context.stats.inc_value("rep/given_up")
            values = {
                "reason": error.reason,
                "attempts": why.attempts,
                "held_for": waited,
            }
            announce(self._context, request_given_up, held.request, origin, **values)
        return error

    async def recover(self, disk: DiskHold) -> AsyncIterator[Queue]:
        """Use *disk* from now on. Yield the queue of each origin of an earlier run, whose requests come
        first. Those held so far stay in memory."""
        self.disk = disk
        async for key, requests in in_slices(disk.recovered.items()):
            try:
                origin = Origin.from_url(key)
            except ValueError as error:
                disk.skip(len(requests), error)
                continue
            queue = self._flights.queue_of(origin)
            queue.logged_as = "unreachable"  # by that run
            self.table.pin(origin)
            queue.recover(requests)
            self.count_held()
            yield queue
        disk.recovered.clear()


class Releases:
    """Gives the engine the requests that may leave the gate: origins take turns, the most urgent first, if
    their download slot has room."""

    def __init__(
        self,
        context: CrawlContext,
        held: HeldRequests,
        refetch_if_stale: Callable[[Queue, Request], bool],
        finished: Callable[[Queue], None],
    ) -> None:
        """*refetch_if_stale* fetches robots.txt again if the answer is too old to release requests by,
        and returns whether it was. *finished* is called when all of an origin's that may leave have left."""
        self._context = context
        self._held = held
        self._refetch_if_stale = refetch_if_stale
        self._finished = finished
        self.turns: list[tuple[int, int, Queue]] = []
        """A heap of queues, by the priority of their most urgent request, and in turns."""
        self._passed_over: list[Queue] = []
        """Queues that had their turn in this round, and none of whose requests could leave."""
        self._turn = 0
        """The number of the last turn given."""
        self._ended = False
        self.loose: deque[Request] = deque()
        """Requests that needn't wait for anything, but couldn't leave at once."""
        self.checked: set[Request] = set()
        """Requests that can't leave before a check is over."""
        self.verdicts: WeakKeyDictionary[Request, Verdict] = WeakKeyDictionary()
        """What was decided about requests that have left, or are about to."""

    @property
    def has_turns(self) -> bool:
        """Whether requests may leave, once their download slot has room."""
        return bool(self.turns or self._passed_over)

    def may_leave(self) -> bool:
        """Whether a request may leave now: it fails, or its download slot has room."""
        return any(self._has_room(queue) for _, _, queue in self.turns)

    def _has_room(self, queue: Queue) -> bool:
        held = queue.first_leaving()
        if held is None:
            return False
        if queue.fails or held.request is None:  # on disk, so far
            return True
        slots = self._context.engine.slots
        return not slots.is_full(held.request, queue.on_their_way)

    def add(self, queue: Queue, why: Drop | None = None, before: float = inf) -> None:
        """Let requests of an origin leave: all, or those that came *before* then. *why* they are
        given up; None to release them."""
        if self._ended:
            return
        if why is None:
            self._held.release(queue)
            queue.good_until = self._held.now() + _GOOD_SECONDS
        else:
            queue.let_leave(why, self._held.now(), before)
        if not queue.has_turn:
            self._give_turn(queue)
            self._context.engine.wake()

    def let_out(self, request: Request, verdict: Verdict | None = None) -> None:
        """Let *request* leave as soon as the engine asks; it fails if there is a *verdict*."""
        if verdict is not None:
            self.verdicts[request] = verdict
        self.loose.append(request)
        self._context.engine.wake()

    def end(self) -> None:
        """Let no more requests leave: the spider closes."""
        self._ended = True
        self.turns.clear()
        self._passed_over.clear()

    def next(self) -> Request | None:
        """Return the next request to leave for which a download slot is free, if any."""
        if self.loose:
            return self.loose.popleft()
        request = None
        slices = Slices()
        while request is None and self.turns:
            queue = heappop(self.turns)[2]
            request = self._leave(queue)
            self._passed_over.append(queue)
            if slices.renew_if_over():
                break
        if request is None and self.turns:
            self._context.engine.wake()  # the round goes on
        else:
            self._end_round()
        return request

    def _end_round(self) -> None:
        """Let all have another turn: the next round begins with the most urgent one."""
        passed_over, self._passed_over = self._passed_over, []
        for queue in passed_over:
            queue.has_turn = False
            if queue.has_leaving:
                self._give_turn(queue)
            else:
                self._finished(queue)

    def let_one_leave(self, queue: Queue) -> None:
        """Let the next request of an origin that holds none leave out of turn."""
        if (request := self._leave(queue)) is not None:
            self.let_out(request)

    def _leave(self, queue: Queue) -> Request | None:
        """Give the origin its turn. Return the request that leaves, if any."""
        held = self._held.first_leaving(queue)
        if held is None:
            return None
        if queue.fails:
            self._held.leave_first(queue, held)
            self._give_up(queue, held)
            return held.request
        is_old = self._held.now() >= queue.good_until
        if is_old and self._refetch_if_stale(queue, held.request):
            return None
        slots = self._context.engine.slots
        queue.on_their_way = slots.not_there_yet(held.request, queue.on_their_way)
        if slots.is_full(held.request, queue.on_their_way) and not queue.was_overtaken:
            return None
        queue.was_overtaken = False
        queue.on_their_way.append(held.request)
        waited = self._held.waited(queue, held)
        self._held.leave_first(queue, held)
        if held.counts:
            queue.released += 1
            self._context.stats.inc_value("rep/released")
            origin = queue.origin
            announce(
                self._context, request_released, held.request, origin, held_for=waited
            )
        return held.request

    def _give_turn(self, queue: Queue) -> None:
        """Let the origin have its turn after the others."""
        queue.has_turn = True
        self._turn += 1
        first = queue.first_leaving()
        urgency = first.urgency if first is not None else 0
        heappush(self.turns, (urgency, self._turn, queue))

    def _give_up(self, queue: Queue, held: Held) -> None:
        queue.given_up += held.counts
        waited = self._held.waited(queue, held)
        error = self._held.give_up(held, queue.origin, waited, queue.why)
        # The origin may be forgotten before it arrives.
        self.verdicts[held.request] = error if held.counts else queue.why

    def verdict(self, request: Request) -> Drop | None:
        """Return what was decided at the gate about *request*, which the middleware has now;
        ``RobotsUnreachable`` if it was given up, and what a failed check raised."""
        verdict = self.verdicts.pop(request, None) if self.verdicts else None
        if isinstance(verdict, Exception):
            raise verdict from verdict.__cause__
        return verdict


def announce(
    context: CrawlContext,
    signal: object,
    request: Request,
    origin: Origin | None,
    **values: object,
) -> None:
    context.crawler.signals.send_catch_log(
        signal, request=request, origin=origin, spider=context.spider, **values
    )
