"""The requests at the gate: how many there may be, where they are kept
(:class:`HeldRequests`), and how they leave (:class:`Releases`).

Each origin has a ``Queue`` (origins/queue.py), in which its requests stand as ``Held``.
Those that *wait* for a first answer are in memory. Those that are *held*
(``Held.was_held``) are in memory too or, with a JOBDIR, on disk (disk.py). Once there
is an answer, or they are given up, they *leave*: urgent ones first, origins in turns. A
``Drop`` (origins/policy.py) says why a request fails.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from math import ceil, inf
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from scrapy import Request

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.timers import SLICE_SECONDS, in_slices
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop
from scrapy_rep.origins.queue import Held, Queue
from scrapy_rep.protocol import Origin
from scrapy_rep.signals import request_given_up, request_held, request_released

_GOOD_SECONDS = 5.0
"""For at least this many seconds, an answer releases requests, even if the answer may
not be kept so long. Otherwise robots.txt would be fetched anew for each request."""
_SHARE = 10
"""An origin may hold at most this many times as many requests as there is then still
room for. So there is always room for another origin, as with the "dynamic thresholds"
of network switches."""
_WAITING_PER_SLOT = 8
"""How many requests may wait for first answers, for each of CONCURRENT_REQUESTS: four
with a fetch that runs, since that many fetches may run at a time
(``_FETCHES_PER_SLOT`` in origins/flights.py), and four whose fetches are next."""

Verdict: TypeAlias = "Drop | Exception"
"""Why a request fails in the middleware, or the exception that the middleware raises
for the request."""


class HeldRequests:
    """The requests at the gate, of all origins: they come, are held, and leave."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._engine = context.engine
        self._stats = context.stats
        self._count = context.stats.inc_value
        self._flights = origins.flights
        self.table = origins.table
        self.queues = origins.flights.queues
        """By origin: the queue of each that has a fetch, or somebody who waits."""
        self.tally = origins.flights.tally
        """How many requests are in all these queues."""
        self.now = context.running
        """A clock: seconds for which the crawl has run."""
        self.disk: DiskHold | None = None
        """The file of held requests; None without a JOBDIR, and while the file can't be
        opened."""
        self._most_held = context.settings.hold_max_requests
        self._most_waiting = _WAITING_PER_SLOT * concurrency_of(context.crawler)
        self._last_number = 0
        """The number of the request that came last, see ``Held.number``."""

    # How many may be held, or wait

    def hold_at_most(self, count: int) -> None:
        """Hold no more than *count* requests, whatever ``REP_HOLD_MAX_REQUESTS``
        says."""
        self._most_held = min(self._most_held, count)

    def room_for(self, queue: Queue | None) -> int:
        """Return how many more requests the origin of *queue* (None: an origin without
        a queue) may hold. It gets no more than a share of the room, since other origins
        need some."""
        room = max(0, self._most_held - self.tally.held)
        held_count = queue.count if queue is not None else 0
        # The origin may take n more as long as held_count + n <= _SHARE * (room - n).
        most = (_SHARE * room - held_count) / (_SHARE + 1)
        for_this_origin = max(0, ceil(most))
        return min(room, for_this_origin)

    @property
    def may_wait(self) -> bool:
        """Whether another request may begin to wait for a first answer. Requests whose
        origin answers late hardly count (``Lateness`` in origins/queue.py), but there
        may not be many more of these than can be held."""
        if self.tally.counted >= self._most_waiting:
            return False
        # All that wait, counted or not, may have to be held soon.
        room = max(0, self._most_held - self.tally.held)
        return self.tally.waiting < room + self._most_waiting

    @property
    def has_requests(self) -> bool:
        """Whether any request waits, is held or is about to leave."""
        return bool(self.tally.waiting or self.tally.held)

    # Requests come, and are held

    def new_held(self, queue: Queue, request: Request, waited: float | None) -> Held:
        """Return *request* as it will stand in *queue*, with the next number. *waited*:
        the seconds for which it has waited before; None: not at all."""
        self._last_number += 1
        now = queue.clock(self.now())
        return Held(
            urgency=-request.priority,
            number=self._last_number,
            since=now - (waited or 0.0),
            request=request,
        )

    def hold_waiting(self, queue: Queue, *, everything: bool = False) -> list[Held]:
        """Hold, count and announce as many of those that wait in *queue* as there is
        room for; all of them with *everything*, at the crawl's end. Return those that
        are held now, as they were."""
        room = self.room_for(queue)
        if everything:
            room = len(queue.waiting)

        if self.disk is None:
            moved = queue.hold(room, _kept_in_memory)
        else:
            keep_on_disk = partial(self.disk.hold, str(queue.origin))
            with self.disk.journal.in_one_transaction():
                moved = queue.hold(room, keep_on_disk)
        if not moved:
            return []

        # Count those that are held after a failure. Those that are held before any
        # failure, or only since the crawl ends, are counted when a failure comes, if
        # one does (Holding._count_unanswered).
        if queue.is_answered and not everything:
            self._count("rep/held/unreachable", len(moved))
        else:
            queue.unanswered += len(moved)
        self._stats.set_value("rep/held/now", self.tally.held)
        self._stats.max_value("rep/held/max", self.tally.held)
        has_listeners = self._engine.has_listeners(request_held)
        for held in moved:
            self._engine.drop_caches(held.request)
            self._count("rep/held")
            if has_listeners:
                announce(self._context, request_held, held.request, queue.origin)
        return moved

    # They leave

    def read_first(self, queue: Queue, held: Held) -> Held | None:
        """Return *held*, which is on disk and the next of *queue* to leave, with its
        request. If the request can't be read, skip it and return None. Then the engine
        has to ask again for the next one, since to skip 100,000 at once would take
        seconds."""
        disk = self.disk
        assert disk is not None  # otherwise nothing would be on disk
        try:
            return held._replace(request=disk.load(held))
        except Exception as error:  # noqa: BLE001 (the spider's callback may be gone, say)
            disk.skip(1, error)
            queue.pop_first()
            self._stats.set_value("rep/held/now", self.tally.held)
            self._engine.wake()
            return None

    def waited(self, queue: Queue, held: Held) -> float:
        """Return for how many seconds *held*, which stands in *queue* and isn't
        released, has waited."""
        now = queue.clock(self.now())
        return max(0.0, now - held.since)

    def recall_leaving(self, queue: Queue) -> None:
        """Keep those of *queue* that were about to leave: they wait or are held
        again."""
        now = self.now()
        was_released = queue.leaving and not queue.fails
        if self.disk is not None and was_released and queue.count:
            # The waiting time of those that were held begins anew, in the file, too.
            self.disk.note_release(str(queue.origin), queue.clock(now))
        queue.recall_leaving(now)

    def note_left(self, queue: Queue, held: Held, *, given_up: bool) -> None:
        """Note that *held*, which was held and had not only waited, has left
        *queue*."""
        if self.disk is not None:
            self.disk.note_left(str(queue.origin), held, given_up=given_up)
        self._stats.set_value("rep/held/now", self.tally.held)

    def take_unsaved(self, queue: Queue) -> Iterator[Held]:
        """Remove and yield the requests in *queue* that would end with the process,
        since no file has them. With a JOBDIR, requests that only waited are written to
        disk first, so these aren't among them."""
        self.recall_leaving(queue)
        if self.disk is not None:
            self.hold_waiting(queue, everything=True)
        for held in queue.take(self._is_unsaved):
            taken = self._with_request(held)
            if taken is not None:  # otherwise its request can't be read
                waited = self.waited(queue, taken)
                queue.longest = max(queue.longest, waited)
                if taken.was_held:
                    self.note_left(queue, taken, given_up=False)
                yield taken

    def _is_unsaved(self, held: Held) -> bool:
        """Whether no file has *held*."""
        if self.disk is None or not held.row:
            return True
        return not self.disk.has(held.row)

    def _with_request(self, held: Held) -> Held | None:
        """Return *held* with its request; None if that can't be read from disk."""
        if held.request is None and self.disk is not None:
            return self.disk.read(held)
        return held

    def peek(self, held: Held) -> Request | None:
        """Return the request of *held*; None if it can't be read now."""
        if held.request is None and self.disk is not None:
            # A request that can't be read isn't counted here, but when it is to leave
            # (read_first()).
            with suppress(Exception):
                return self.disk.load(held)
        return held.request

    def give_up(
        self, held: Held, origin: Origin, waited: float, why: Drop
    ) -> RobotsUnreachable:
        """Return the error with which *held*, which has *waited* this many seconds for
        *origin*, is to fail, and *why*. Count and announce that *held* is given up, if
        it was held and had not only waited."""
        error = RobotsUnreachable(
            origin,
            why.reason,
            why.attempts,
            why.cause,
        )
        if held.was_held:
            error.held_for = waited
            self._count("rep/given_up")
            announce(
                self._context,
                request_given_up,
                held.request,
                origin,
                reason=error.reason,
                attempts=why.attempts,
                held_for=waited,
            )
        return error

    async def recover(self, disk: DiskHold) -> AsyncIterator[Queue]:
        """Take over what an earlier run has held on *disk*, and use *disk* from now on.
        Yield the queue of each origin that the earlier run held requests for. These
        leave before requests of this run. What this run has held so far stays in
        memory."""
        self.disk = disk
        async for origin_text, requests in in_slices(disk.recovered.items()):
            try:
                origin = Origin.from_url(origin_text)
            except ValueError as error:
                disk.skip(len(requests), error)
                continue
            queue = self._flights.queue_of(origin)
            queue.logged_as = "unreachable"  # the earlier run has logged it
            self.table.pin(origin)
            queue.recover(requests)
            self._stats.set_value("rep/held/now", self.tally.held)
            self._stats.max_value("rep/held/max", self.tally.held)
            yield queue
        disk.recovered.clear()


class Releases:
    """Gives the engine the requests that may leave the gate. Origins take turns, the
    one with the most urgent request first; a request leaves if its download slot has
    room.

    A *turn* is a chance for one request of an origin to leave. In a *round*, each
    origin has a turn, until a request leaves; then the next round begins.
    """

    def __init__(
        self,
        context: CrawlContext,
        held: HeldRequests,
        refetch_if_stale: Callable[[Queue, Request], bool],
        finished: Callable[[Queue], None],
    ) -> None:
        """*refetch_if_stale* fetches robots.txt again if the answer is too old to
        release requests by, and returns whether the answer was too old. *finished* is
        called when all of a queue that may leave have left. Both are methods of
        ``Holding`` (holding.py)."""
        self._context = context
        self._engine = context.engine
        self._stats = context.stats
        self._count = context.stats.inc_value
        self._held = held
        self._refetch_if_stale = refetch_if_stale
        self._finished = finished
        self.turns: list[_Turn] = []
        """A heap of the turns in this round that are still to come. While :meth:`next`
        isn't running, there is at least one turn if any requests are to leave once
        their download slot has room."""
        self._had_turn: list[Queue] = []
        """Queues that had their turn in this round."""
        self._last_turn = 0
        """The number of the last turn given."""
        self._has_ended = False
        """Whether no more requests leave, since the spider closes."""
        self.ready: deque[Request] = deque()
        """Requests that leave next, even if their download slot is full: those that
        fail since there is no room to hold them, and those that needn't wait any
        more."""
        self.being_checked: set[Request] = set()
        """Requests that can't leave before the gate's check of them is over
        (``Gate._begin_check``)."""
        self.verdicts: WeakKeyDictionary[Request, Verdict] = WeakKeyDictionary()
        """What was decided about requests that have left, or are about to: the
        middleware asks for it."""

    def may_leave(self) -> bool:
        """Whether a request may leave now: one that fails, or whose download slot has
        room."""
        return any(self._may_next_leave(turn.queue) for turn in self.turns)

    def _may_next_leave(self, queue: Queue) -> bool:
        """Whether the next of *queue* may leave now. A request on disk counts as one
        that may, so that it needn't be read to find out."""
        held = queue.leaving[0] if queue.leaving else None
        if held is None:
            return False
        if queue.fails or held.request is None:
            return True
        slots = self._engine.slots
        return not slots.is_full(held.request, queue.on_their_way)

    def let_leave(
        self, queue: Queue, why: Drop | None = None, before: float = inf
    ) -> None:
        """Let the requests in *queue* leave. If there is a reason *why*, they are given
        up; otherwise they are released. *before*: a moment, in seconds of the queue's
        clock; only the requests that came until then leave."""
        if self._has_ended:
            return
        now = self._held.now()
        queue.let_leave(why, now, before)
        if why is None:
            queue.good_until = now + _GOOD_SECONDS
            disk = self._held.disk
            if disk is not None and queue.count:
                # The waiting time of those that were held begins anew, if they have to
                # wait again.
                disk.note_release(str(queue.origin), queue.clock(now))
        if not queue.has_turn:
            self._give_turn(queue)
            self._engine.wake()

    def make_ready(self, request: Request, verdict: Verdict | None = None) -> None:
        """Let *request* leave as soon as the engine asks. It fails if there is a
        *verdict*."""
        if verdict is not None:
            self.verdicts[request] = verdict
        self.ready.append(request)
        self._engine.wake()

    def end(self) -> None:
        """Let no more requests leave: the spider closes."""
        self._has_ended = True
        self.turns.clear()
        self._had_turn.clear()

    def next(self) -> Request | None:
        """Return the next request to leave: one that is ready, or whose download slot
        has room; None if there is none now."""
        if self.ready:
            return self.ready.popleft()
        request = None
        slice_end = time.perf_counter() + SLICE_SECONDS
        while request is None and self.turns:
            queue = heappop(self.turns).queue
            request = self._take_turn(queue)
            self._had_turn.append(queue)
            if time.perf_counter() >= slice_end:
                break
        if request is None and self.turns:
            self._engine.wake()  # the engine asks again, and the round goes on
            return None

        # The round ends: a request leaves, or no turns are left. Queues that had their
        # turn get one in the next round, if they have more requests that may leave.
        had_turn = self._had_turn
        self._had_turn = []
        for queue in had_turn:
            queue.has_turn = False
            if queue.leaving:
                self._give_turn(queue)
            else:
                self._finished(queue)
        return request

    def let_one_leave(self, queue: Queue) -> None:
        """Let the next of *queue*, which has no held requests, leave out of turn."""
        request = self._take_turn(queue)
        if request is not None:
            self.make_ready(request)

    def _take_turn(self, queue: Queue) -> Request | None:
        """Let the next of *queue* leave, if it may. Return its request; None if it
        stays."""
        held = queue.leaving[0] if queue.leaving else None
        if held is not None and held.request is None:
            held = self._held.read_first(queue, held)
        if held is None:
            return None
        if queue.fails:
            self._give_up_first(queue, held)
            return held.request

        # The request stays if the answer that released it is too old by now.
        request = held.request
        now = self._held.now()
        if now >= queue.good_until and self._refetch_if_stale(queue, request):
            return None

        # The request stays if its download slot is full, unless a later request to the
        # origin has overtaken it.
        slots = self._engine.slots
        if queue.on_their_way:
            queue.on_their_way = slots.not_there_yet(request, queue.on_their_way)
        has_room = not slots.is_full(request, queue.on_their_way)
        if not (has_room or queue.was_overtaken):
            queue.replace_first(held)  # if it was read from disk, it needn't be again
            return None

        # The request leaves.
        queue.was_overtaken = False
        queue.on_their_way.append(request)
        queue.pop_first()
        waited = max(0.0, queue.released_at - held.since)
        queue.longest = max(queue.longest, waited)

        # If it was held, and had not only waited, count and announce that.
        if held.was_held:
            disk = self._held.disk
            if disk is not None:
                disk.note_left(str(queue.origin), held, given_up=False)
            self._stats.set_value("rep/held/now", self._held.tally.held)
            queue.released += 1
            self._count("rep/released")
            if self._engine.has_listeners(request_released):
                announce(
                    self._context,
                    request_released,
                    request,
                    queue.origin,
                    held_for=waited,
                )
        return request

    def _give_turn(self, queue: Queue) -> None:
        """Give *queue* a turn: after the turns for more urgent requests, and after
        earlier turns for equally urgent ones."""
        queue.has_turn = True
        self._last_turn += 1
        urgency = 0  # of a queue with nobody who may leave: this turn finishes it
        first = queue.leaving[0] if queue.leaving else None
        if first is not None:
            urgency = first.urgency
        turn = _Turn(urgency, self._last_turn, queue)
        heappush(self.turns, turn)

    def _give_up_first(self, queue: Queue, held: Held) -> None:
        """Let *held*, the next of *queue*, leave, and note why it is to fail in the
        middleware, since the origin may be forgotten before the request gets there."""
        queue.pop_first()
        waited = self._held.waited(queue, held)
        queue.longest = max(queue.longest, waited)
        if not held.was_held:
            self.verdicts[held.request] = queue.why
            return
        self._held.note_left(queue, held, given_up=True)
        error = self._held.give_up(held, queue.origin, waited, queue.why)
        self.verdicts[held.request] = error
        queue.given_up += 1

    def pop_verdict(self, request: Request) -> Drop | None:
        """Return why *request*, which the middleware has now, was dropped at the gate;
        None if it wasn't. Raise the error with which it was given up, or what the
        gate's check of it raised."""
        if not self.verdicts:  # nearly always, so this comes first
            return None
        verdict = self.verdicts.pop(request, None)
        if isinstance(verdict, Exception):
            raise verdict from verdict.__cause__
        return verdict


class _Turn(NamedTuple):
    """A queue's turn. Turns are sorted in the order in which they come: urgent ones
    first, then early ones."""

    urgency: int
    """The negated priority of the request that would leave."""
    number: int
    """Increases: no two turns have the same number."""
    queue: Queue


def _kept_in_memory(held: Held) -> Held:
    """Return *held*, which only waited, as one that is held without a file."""
    return held._replace(was_held=True)


def announce(
    context: CrawlContext,
    signal: object,
    request: Request,
    origin: Origin | None,
    **values: object,
) -> None:
    """Send *signal* about *request*. *values* are further arguments."""
    context.crawler.signals.send_catch_log(
        signal, request=request, origin=origin, spider=context.spider, **values
    )
