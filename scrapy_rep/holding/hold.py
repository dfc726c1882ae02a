"""The requests at the gate, by origin: how many there may be, and where they are kept. Those that
*wait* for a first answer are in memory. Those that are *held* are too or, with a JOBDIR, on disk
(disk.py). Once there is an answer, or they are given up, they are *ready* to leave: urgent ones
first, origins in turns."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter
from typing import TypeAlias
from weakref import WeakKeyDictionary

from scrapy import Request

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.timers import in_slices
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.disk import DiskHold, Held
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Drop, Origins
from scrapy_rep.protocol import Origin
from scrapy_rep.signals import request_deferred, request_given_up, request_released

# Seconds for which an answer releases requests, however short it may be kept.
_GOOD_SECONDS = 5.0
# An origin may hold this many times the room that is left, so there is always room for another one
# ("dynamic thresholds", as in network switches).
_SHARE = 10
# Requests that may wait for first answers, for each of CONCURRENT_REQUESTS: one for each fetch at a
# time (flights.py), and as many again, which are next.
_WAITING = 8
# Origins looked at in one step for one whose download slot isn't full.
_LOOKS = 50

Verdict: TypeAlias = "Drop | Exception"


@dataclass(eq=False, slots=True)
class HeldOrigin:
    """An origin with requests at the gate, until none is left."""

    origin: Origin
    key: str  # the same as text
    waiting: list[Held] = field(default_factory=list)  # for a first answer, as they came
    heap: list[Held] = field(default_factory=list)  # those that are held
    ready: list[Held] = field(default_factory=list)  # a heap of those that may leave
    fails: bool = False  # these fail; otherwise they are released
    good_until: float = 0.0  # the answer that releases them, even if it may not be kept that long
    in_turn: bool = False  # will have a turn to let some leave
    unheld: int = 0  # how many wait, or are ready to leave without having been held
    count: int = 0  # how many are held, including those that are ready
    unanswered: int = 0  # how many of the held ones never had an answer
    answered: bool = False  # if only by a failure
    most: float = inf  # how many count while they wait for a first answer
    weight: int = 0  # how many do now, see HeldOrigins.changed()
    last_attempt: int = 0  # which in a row of failures was made because time was over
    leaving: list[Request] = field(default_factory=list)  # may not have reached their download slot
    overtaken: bool = False  # so one may leave though the slot is full
    released: int = 0
    longest: float = 0.0  # seconds for which one that left was held, in earlier runs too
    given_up: int = 0
    why: Drop = None  # type: ignore[assignment]  # some are given up
    told: str = ""  # what the log says of it: that it is "slow", or "unreachable"

    def oldest(self) -> float | None:
        """Return the earliest ``since`` of those that stay."""
        return min((held.since for held in (*self.waiting, *self.heap)), default=None)

    def let_leave(self, why: Drop | None, before: float) -> None:
        """Let those that came *before* then leave; if there is a reason *why*, to fail."""
        if self.fails != (why is not None):
            self.recall()
        self.fails, self.why = why is not None, why or self.why
        if why is None:
            self.good_until = time.monotonic() + _GOOD_SECONDS
        if before == inf and not self.ready:  # ordering 100,000 again takes long
            self.ready, self.heap = self.heap, []
        some, self.heap, self.waiting = self.heap + self.waiting, [], []
        for held in some:
            if held.since <= before:
                heappush(self.ready, held)
            else:
                (self.heap if held.counts else self.waiting).append(held)
        heapify(self.heap)

    def recall(self) -> None:
        """Keep the requests that were to leave."""
        going, self.ready = self.ready, []
        for held in going:
            (self.heap if held.counts else self.waiting).append(held)
        if going:
            heapify(self.heap)
            self.waiting.sort(key=attrgetter("number"))


class HeldOrigins:
    """The origins with requests at the gate. The origin table keeps them in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self.table = origins.table
        self.disk: DiskHold | None = None  # where requests are held that outlive the process
        self.origins: dict[str, HeldOrigin] = {}
        self._total = self._unheld = 0
        self.awaiting = 0  # how many wait for an answer that may come soon
        self.most = context.settings.defer_max_requests
        self._most_waiting = _WAITING * concurrency_of(context.crawler)
        self.may_wait = True  # another request may come to wait for a first answer
        self._started = time.monotonic()
        self._number = 0  # of the request that came last

    def now(self) -> float:
        """Seconds since the crawl began."""
        return time.monotonic() - self._started

    # How many may be held, or wait

    def room_for(self, held_origin: HeldOrigin | None) -> int:
        """Return how many more the origin may hold: others need some room."""
        room = self.most - self._total
        count = held_origin.count if held_origin is not None else 0
        # One more while it has less than _SHARE times what is left.
        return max(0, min(room, -((count - _SHARE * room) // (_SHARE + 1))))

    # They come and go

    def add_waiting(self, origin: Origin, request: Request, since: float | None) -> HeldOrigin:
        """Keep *request*, which came to the gate at *since* (None: now), until there is an answer."""
        key = str(origin)
        held_origin = self.origins.get(key)
        if held_origin is None:
            held_origin = self.origins[key] = HeldOrigin(origin, key)
        self._number += 1
        since = self.now() if since is None else since
        held_origin.waiting.append(Held(-request.priority, self._number, since, request))
        self.changed(held_origin, unheld=1)
        return held_origin

    def hold_waiting(self, held_origin: HeldOrigin, *, everything: bool = False) -> list[Held]:
        """Hold, count and announce as many of the origin's waiting requests as there is room for;
        with *everything*, all. Return these."""
        room = len(held_origin.waiting) if everything else self.room_for(held_origin)
        found, held_origin.waiting = held_origin.waiting[:room], held_origin.waiting[room:]
        if not found:
            return []
        with self.disk.journal.together() if self.disk is not None else nullcontext():
            for held in found:
                kept = held._replace(counts=True)
                if self.disk is not None:
                    kept = self.disk.hold(held_origin.key, kept)
                self._context.engine.drop_caches(held.request)
                heappush(held_origin.heap, kept)
        if held_origin.answered and not everything:
            self._context.stats.inc_value("rep/deferred/unreachable", len(found))
        else:
            held_origin.unanswered += len(found)
        self.changed(held_origin, unheld=-len(found), held=len(found))
        for held in found:
            self._context.stats.inc_value("rep/deferred")
            announce(self._context, request_deferred, held.request, held_origin.origin)
        return found

    def changed(self, held_origin: HeldOrigin, *, unheld: int = 0, held: int = 0) -> None:
        """Count requests that came, left or were held, and those that wait for the origin's first
        answer, up to the *most* that count: one silent origin must not stop the others."""
        held_origin.unheld += unheld
        self._unheld += unheld
        held_origin.count += held
        self._total += held
        awaited = held_origin.unheld + (0 if held_origin.answered else held_origin.count)
        weight = int(min(awaited, held_origin.most))
        self.awaiting += weight - held_origin.weight
        held_origin.weight = weight
        limit = self.most + self._most_waiting
        self.may_wait = self.awaiting < self._most_waiting and self._unheld + self._total < limit
        if held:
            self._context.stats.set_value("rep/held", self._total)
        if held > 0:
            self._context.stats.max_value("rep/held/max", self._total)

    def first(self, held_origin: HeldOrigin) -> Held | None:
        """Return the origin's request that is next to leave; None if there is none, or it can't be
        read: then the engine asks for the one after it, since 100,000 such would take seconds."""
        ready = held_origin.ready
        if ready and ready[0].request is None and self.disk is not None:
            held = self.disk.read(ready[0])
            if held is None:
                heappop(ready)
                self.changed(held_origin, held=-1)
                self._context.engine.wake()
                return None
            ready[0] = held
        return ready[0] if ready else None

    def left(self, held_origin: HeldOrigin, held: Held, *, given_up: bool = False) -> None:
        held_origin.longest = max(held_origin.longest, self.now() - held.since)
        if held.counts and self.disk is not None:
            self.disk.left(held_origin.key, held, given_up=given_up)
        self.changed(held_origin, unheld=-(not held.counts), held=-held.counts)

    def take_mortal(self, held_origin: HeldOrigin) -> Iterator[Held]:
        """Yield the requests that would end with the process, as they leave."""
        disk = self.disk
        held_origin.recall()
        if disk is not None:
            self.hold_waiting(held_origin, everything=True)
        some = held_origin.waiting + held_origin.heap
        mortal = [one for one in some if disk is None or not one.row or not disk.has(one.row)]
        for one in sorted(mortal):
            held = one if one.request is not None or disk is None else disk.read(one)
            if held is not None:
                self.left(held_origin, held)
                yield held

    def peek(self, held: Held) -> Request | None:
        """Return the request of *held*; None if it can't be read now."""
        if held.request is None and self.disk is not None:
            with suppress(Exception):  # disk.read() will say so
                return self.disk.load(held)
        return held.request

    def give_up(self, held: Held, origin: Origin, why: Drop) -> RobotsUnreachable:
        """Return the error with which *held* is to fail. Count and announce it, if it was held."""
        error = RobotsUnreachable(origin, why.reason, why.attempts, why.cause)
        if held.counts:
            error.held_for = self.now() - held.since
            self._context.stats.inc_value("rep/given_up")
            told = {"reason": error.reason, "attempts": why.attempts, "held_for": error.held_for}
            announce(self._context, request_given_up, held.request, origin, **told)
        return error

    async def recover(self, disk: DiskHold) -> AsyncIterator[HeldOrigin]:
        """Use *disk* from now on. Yield each origin of an earlier run, whose requests come first.
        Those held so far stay in memory."""
        self.disk = disk
        async for key, heap in in_slices(disk.recovered.items()):
            try:
                origin = Origin.from_url(key)
            except ValueError as error:
                disk.skip(len(heap), error)
                continue
            held_origin = self.origins.setdefault(str(origin), HeldOrigin(origin, str(origin)))
            held_origin.told = "unreachable"  # by that run
            self.table.pin(origin)
            self.changed(held_origin, held=len(heap))
            held_origin.heap += heap
            heapify(held_origin.heap)
            yield held_origin
        disk.recovered.clear()


class Releases:
    """The origins with requests that may leave, and what becomes of these."""

    def __init__(
        self,
        context: CrawlContext,
        held: HeldOrigins,
        is_due: Callable[[HeldOrigin, Request], bool],
        finished: Callable[[HeldOrigin], None],
    ) -> None:
        """*is_due*: whether an answer is too old to release requests; then it asks for another.
        *finished* is called when all of an origin's that may leave have left."""
        self._context = context
        self._held = held
        self._is_due = is_due
        self._finished = finished
        self.turns: list[tuple[int, int, HeldOrigin]] = []
        """A heap of origins, by the priority of their most urgent request, and in turns."""
        self._turn = 0  # the number of the last turn given
        self._ended = False
        self.loose: deque[Request] = deque()
        """Requests that needn't wait for anything, but couldn't leave at once."""
        self.checked: set[Request] = set()  # they can't leave before a check is over
        self.verdicts: WeakKeyDictionary[Request, Verdict] = WeakKeyDictionary()
        """What was decided about requests that have left, or are about to."""

    def add(self, held_origin: HeldOrigin, why: Drop | None = None, before: float = inf) -> None:
        """Let requests of an origin leave: all, or those that came *before* then. *why* they are
        given up; None to release them."""
        if self._ended:
            return
        held_origin.let_leave(why, before)
        if not held_origin.in_turn:
            self._queue(held_origin)
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

    def next(self) -> Request | None:
        """Return the next request to leave for which a download slot is free, if any."""
        if self.loose:
            return self.loose.popleft()
        looked: list[HeldOrigin] = []
        request = None
        while request is None and self.turns and len(looked) < _LOOKS:
            looked.append(heappop(self.turns)[2])
            request = self._leave(looked[-1])
        for held_origin in looked:
            held_origin.in_turn = False
            if held_origin.ready:
                self._queue(held_origin)
            else:
                self._finished(held_origin)
        if request is None and not all(one.in_turn for one in looked):
            self._context.engine.wake()  # there may be more behind them
        return request

    def one_more(self, held_origin: HeldOrigin) -> None:
        """Let the next request of an origin that holds none leave out of turn."""
        if (request := self._leave(held_origin)) is not None:
            self.let_out(request)

    def _leave(self, held_origin: HeldOrigin) -> Request | None:
        """Give the origin its turn. Return the request that leaves, if any."""
        held = self._held.first(held_origin)
        if held is None:
            return None
        if not held_origin.fails:
            request, is_old = held.request, time.monotonic() >= held_origin.good_until
            if is_old and self._is_due(held_origin, request):
                return None
            is_full = self._context.engine.slots.is_full(request, held_origin.leaving)
            if is_full and not held_origin.overtaken:
                return None
            held_origin.overtaken = False
            held_origin.leaving.append(held.request)
        heappop(held_origin.ready)
        self._held.left(held_origin, held, given_up=held_origin.fails)
        if held_origin.fails:
            self._give_up(held_origin, held)
        elif held.counts:
            held_origin.released += 1
            self._context.stats.inc_value("rep/released")
            told, seconds = held_origin.origin, self._held.now() - held.since
            announce(self._context, request_released, held.request, told, held_for=seconds)
        return held.request

    def _queue(self, held_origin: HeldOrigin) -> None:
        """Let the origin have its turn after the others."""
        held_origin.in_turn = True
        self._turn += 1
        urgency = held_origin.ready[0].urgency if held_origin.ready else 0
        heappush(self.turns, (urgency, self._turn, held_origin))

    def _give_up(self, held_origin: HeldOrigin, held: Held) -> None:
        held_origin.given_up += held.counts
        error = self._held.give_up(held, held_origin.origin, held_origin.why)
        # The origin may be forgotten before it arrives.
        self.verdicts[held.request] = error if held.counts else held_origin.why

    def verdict(self, request: Request) -> Drop | None:
        """Return what was decided at the gate about *request*, which the middleware has now;
        ``RobotsUnreachable`` if it was given up, and what a failed check raised."""
        verdict = self.verdicts.pop(request, None) if self.verdicts else None
        if isinstance(verdict, Exception):
            raise verdict from verdict.__cause__
        return verdict


def announce(
    context: CrawlContext, signal: object, request: Request, origin: Origin | None, **told: object
) -> None:
    context.crawler.signals.send_catch_log(
        signal, request=request, origin=origin, spider=context.spider, **told
    )
