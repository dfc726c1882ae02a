"""The requests at the gate, by origin: how many there may be, and where they are kept. Those that
*wait* for a first answer are in memory. Those that are *held* are too or, with a JOBDIR, on disk
(disk.py). Once there is an answer, or they are given up, they are *ready* to leave."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scrapy import Request
from scrapy.utils.job import job_dir

from scrapy_rep import signals, storages
from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.holding.log import HoldLog
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Room
from scrapy_rep.protocol import Origin
from scrapy_rep.text import counted, iso

if TYPE_CHECKING:
    from scrapy_rep.holding.disk import DiskHold

logger = get_logger(__name__)

# Seconds for which an answer releases requests, however short it may be kept.
_GOOD_SECONDS = 5.0
# An origin may hold this many times the room that is left, so there is always room for another one
# ("dynamic thresholds", as in network switches).
_SHARE = 10
# Requests that may wait for first answers, per CONCURRENT_REQUESTS: for the fetches at a time
# (flights.py), and as many that are next. Of an origin whose answer takes long, this many count.
_WAITING, _WEIGHTY = 8, 4


class Held(NamedTuple):
    number: int  # increases in the order in which requests came to the gate
    since: float  # when it came, in seconds of the crawl's running time
    request: Request
    row: int | None = None  # on disk
    counts: bool = False  # as held; otherwise it only waits for a first answer


Entry: TypeAlias = "tuple[int, int, float, Request | int | Held]"
"""Negated priority, number, since, and the request, or its row on disk; :class:`Held` if it only
waits, or has been read. The garbage collector doesn't track plain tuples of numbers, and a heap of
these yields urgent requests first, then early ones."""


def entry_of(held: Held, what: Request | int | None = None) -> Entry:
    return (-held.request.priority, held.number, held.since, held if what is None else what)


@dataclass(eq=False, slots=True)
class HeldOrigin:
    """An origin with requests at the gate, until none is left."""

    origin: Origin
    key: str  # the same as text
    waiting: list[Held] = field(default_factory=list)  # for a first answer, as they came
    heap: list[Entry] = field(default_factory=list)  # those that are held
    ready: list[Entry] = field(default_factory=list)  # those that may leave, waiting or held before
    failing: list[Entry] = field(default_factory=list)  # those that leave to fail, before others
    good_until: float = 0.0  # the answer that releases them, even if it may not be kept that long
    in_turn: bool = False  # will have a turn to let some leave
    unheld: int = 0  # how many wait, or are ready to leave without having been held
    count: int = 0  # how many are held, including those that are ready
    unanswered: int = 0  # how many of the held ones never had an answer
    answered: bool = False  # if only by a failure
    late: bool = False  # a first answer takes long
    slow: bool = False  # it takes very long
    weight: int = 0  # its part of the limit for first answers, see HeldOrigins.changed()
    leaving: list[Request] = field(default_factory=list)  # may not have reached their download slot
    released: int = 0
    longest: float = 0.0  # seconds for which one that left was held, in earlier runs too
    given_up: int = 0
    why: tuple[str, int] = ("", 0)  # some are given up, and after how many robots.txt attempts
    told: str = ""  # what the log says of it: that it is "slow", or "unreachable"

    @property
    def leaves(self) -> bool:
        return bool(self.ready or self.failing)

    def oldest(self, *, everything: bool = False) -> float | None:
        """Return the earliest ``since``; with *everything*, also of those that may leave."""
        heaps = (self.heap, self.ready, self.failing) if everything else (self.heap,)
        times = [held.since for held in self.waiting]
        for heap in heaps:
            times += map(itemgetter(2), heap)
        return min(times, default=None)

    def let_leave(self, why: tuple[str, int] | None, before: float) -> None:
        """Let those that came *before* then leave; if there is a reason *why*, to fail."""
        if why is None:
            going, self.good_until = self.ready, time.monotonic() + _GOOD_SECONDS
        else:
            going, self.why = self.failing, why
        heap, self.heap = self.heap, []
        if before == math.inf and not going:  # ordering 100,000 again takes long
            going += heap
        else:
            for entry in heap:
                (going if entry[2] <= before else self.heap).append(entry)
            heapify(going)
            heapify(self.heap)
        waiting, self.waiting = self.waiting, []
        for held in waiting:
            if held.since <= before:
                heappush(going, entry_of(held))
            else:
                self.waiting.append(held)

    def recall(self, *, everything: bool = False) -> None:
        """Keep the requests that were to be released; with *everything*, those given up too."""
        going, self.ready = self.ready, []
        if everything:
            going, self.failing = going + self.failing, []
        for entry in going:
            held = entry[3]
            if not isinstance(held, Held):
                self.heap.append(entry)
            elif held.counts:
                self.heap.append(entry_of(held, held.request if held.row is None else held.row))
            else:
                self.waiting.append(held)
        heapify(self.heap)
        self.waiting.sort()


class HeldOrigins:
    """The origins with requests at the gate. The origin table keeps them in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._table = origins.table
        self.failure = origins.cache.failure
        """What the last attempt for an origin raised, see :meth:`RobotsCache.failure`."""
        self._flights = origins.flights
        self.log = HoldLog(context, origins.table)
        self.disk: DiskHold | None = None  # where requests are held that outlive the process
        self._origins: dict[str, HeldOrigin] = {}
        self._total = self._most_held = self._unheld = self._weight = 0
        self.most = context.settings.defer_max_requests
        self._most_waiting = _WAITING * concurrency_of(context.crawler)
        # The spool keeps a page until its request object is freed: the hold must not have a copy.
        self._has_job = bool(job_dir(context.crawler.settings))
        self._started = time.monotonic()
        self._number = 0  # the number of the request that came last

    def now(self) -> float:
        """Seconds that the crawl has run, including earlier runs with its JOBDIR."""
        return time.monotonic() - self._started

    def __len__(self) -> int:
        return len(self._origins)

    def all(self) -> list[HeldOrigin]:
        return list(self._origins.values())

    def get(self, origin: Origin | str) -> HeldOrigin | None:
        return self._origins.get(str(origin))

    # How many may be held, or wait

    @property
    def full(self) -> bool:
        return self._total >= self.most

    def room_for(self, held_origin: HeldOrigin | None) -> int:
        """Return how many more the origin may hold: others need some room."""
        room = self.most - self._total
        count = held_origin.count if held_origin is not None else 0
        # One more while it has less than _SHARE times what is left.
        return min(room, -((count - _SHARE * room) // (_SHARE + 1)))

    def full_for(self, origin: Origin | str) -> bool:
        return self.room_for(self.get(origin)) <= 0

    def room(self, origin: Origin) -> Room:
        held_origin = self.get(origin)
        if self.room_for(held_origin) > 0:
            return Room.FREE
        greedy = (
            held_origin is not None
            and held_origin.unheld >= self._most_waiting // 2  # half of those that wait
            and held_origin.count > max(self.most // _SHARE, 3)  # however small the hold
        )
        return Room.GREEDY if greedy else Room.FULL

    @property
    def awaits_first_answers(self) -> bool:
        """Whether any requests wait for an answer that may come soon."""
        return self._weight > 0

    @property
    def may_wait(self) -> bool:
        """Whether another request may come to the gate to wait for a first answer."""
        limit = self.most + self._most_waiting
        return self._weight < self._most_waiting and self._unheld + self._total < limit

    # They come and go

    def add_waiting(self, origin: Origin, request: Request, since: float | None) -> HeldOrigin:
        """Keep *request*, which came to the gate at *since* (None: now), until there is an answer."""
        key = str(origin)
        held_origin = self._origins.get(key)
        if held_origin is None:
            held_origin = self._origins[key] = HeldOrigin(origin, key)
        self._number += 1
        since = self.now() if since is None else since
        held_origin.waiting.append(Held(self._number, since, request))
        self.changed(held_origin, unheld=1)
        return held_origin

    def hold_waiting(self, held_origin: HeldOrigin, *, everything: bool = False) -> list[Held]:
        """Hold, count and announce as many of the origin's waiting requests as there is room for;
        with *everything*, all. Return these."""
        room = len(held_origin.waiting) if everything else max(0, self.room_for(held_origin))
        found, held_origin.waiting = held_origin.waiting[:room], held_origin.waiting[room:]
        if not found:
            return []
        with self.disk.together() if self.disk is not None else nullcontext():
            for held in found:
                row = self.disk.hold(held_origin.key, held) if self.disk is not None else None
                in_memory = held.request if self._has_job else lean(held.request)
                what = in_memory if row is None else row
                heappush(held_origin.heap, entry_of(held, what))
        held_origin.unanswered += len(found)
        self.changed(held_origin, unheld=-len(found), held=len(found))
        for held in found:
            self._context.stats.inc_value("rep/deferred")
            announce(self._context, signals.request_deferred, held.request, held_origin.origin)
        return found

    def changed(self, held_origin: HeldOrigin, *, unheld: int = 0, held: int = 0) -> None:
        """Count requests that came, left or were held, and those that wait for the origin's first
        answer: all, a few if that takes long, none if very long. One silent origin must not stop
        the others."""
        held_origin.unheld += unheld
        self._unheld += unheld
        held_origin.count += held
        self._total += held
        weight = held_origin.unheld
        if not held_origin.answered:
            weight += held_origin.count
            if held_origin.late:
                weight = 0 if held_origin.slow else min(weight, _WEIGHTY)
        self._weight += weight - held_origin.weight
        held_origin.weight = weight
        if held:
            self._context.stats.set_value("rep/held", self._total)
        if self._total > self._most_held:
            self._most_held = self._total
            self._context.stats.max_value("rep/held/max", self._total)

    def first(self, held_origin: HeldOrigin, heap: list[Entry]) -> Held | None:
        """Return the request of the origin's *heap* that is next to leave, if any;
        ``sqlite3.Error`` if it can't be read now."""
        while heap:
            held = self.read(heap[0])
            if held is not None:
                heap[0] = (*heap[0][:3], held)
                return held
            heappop(heap)
            self.changed(held_origin, held=-1)
        return None

    def read(self, entry: Entry) -> Held | None:
        """Return the request of *entry*; None if unreadable. May raise ``sqlite3.Error``."""
        _, number, since, what = entry
        if isinstance(what, int):
            assert self.disk is not None
            return self.disk.read(number, since, what)
        return what if isinstance(what, Held) else Held(number, since, what, counts=True)

    def left(self, held_origin: HeldOrigin, held: Held) -> None:
        held_origin.longest = max(held_origin.longest, self.now() - held.since)
        if held.counts:
            self.log.told_idle = False
            if self.disk is not None:
                self.disk.left(held_origin.key, held)
            self.changed(held_origin, held=-1)
        else:
            self.changed(held_origin, unheld=-1)

    def take_waiting(self, held_origin: HeldOrigin) -> list[Held]:
        found, held_origin.waiting = held_origin.waiting, []
        self.changed(held_origin, unheld=-len(found))
        return found

    def take_mortal(self, held_origin: HeldOrigin) -> Iterator[Held]:
        """Yield the requests that would end with the process, as they leave."""
        yield from self.take_waiting(held_origin)
        disk = self.disk
        for entry in sorted(
            entry
            for entry in held_origin.heap
            if disk is None or not isinstance(entry[3], int) or not disk.has(entry[3])
        ):
            held = self.read(entry)
            if held is not None:
                self.left(held_origin, held)
                yield held

    def peek(self, held_origin: HeldOrigin, number: int = 0) -> Request | None:
        """Return the most urgent held request, or another by its *number*, counted round and round
        from 0; if there is none, one that waits."""
        found, heap = None, held_origin.heap
        if heap:
            what = heap[number % len(heap)][3]
            if isinstance(what, int):
                found = self.disk.peek(what) if self.disk is not None else None
            else:
                found = what.request if isinstance(what, Held) else what
        waiting = held_origin.waiting
        return found or (waiting[0].request if waiting else None)

    def end(self, held_origin: HeldOrigin) -> None:
        del self._origins[held_origin.key]
        if held_origin.given_up or held_origin.released:
            self.log.end(held_origin, kept=self.disk is not None)
        self._table.unpin(held_origin.origin)
        # No waiters left: don't keep the crawl open.
        self._flights.abandon(held_origin.origin)
        if not self._origins and self.disk is not None:
            self.disk.tell_unreadable()

    def why(self, held_origin: HeldOrigin) -> tuple[str, int]:
        """Return why there is no robots.txt, and the number of attempts."""
        known = self._table.get(held_origin.origin)
        error = known.entry.error if known else None
        attempts = (known.entry.attempts if known else 0) + (held_origin.origin in self._flights)
        return error or "no answer yet", attempts

    async def move_to(self, disk: DiskHold) -> AsyncIterator[HeldOrigin]:
        """Use *disk* from now on. Yield each origin of an earlier run, whose requests come first.
        Those held so far stay in memory."""
        self.disk = disk
        self._move_behind(disk.number, disk.ran)
        slices, requests = Slices(), 0
        for key, heap in disk.recover():
            try:
                origin = Origin.from_url(key)
            except ValueError as error:
                disk.skip(len(heap), error)
                continue
            held_origin = self._origins.setdefault(str(origin), HeldOrigin(origin, str(origin)))
            held_origin.told = "unreachable"  # by that run
            self._table.pin(origin)
            requests += len(heap)
            self.changed(held_origin, held=len(heap))
            held_origin.heap += heap
            heapify(held_origin.heap)
            yield held_origin
            if slices.over:
                await pause()
        disk.tell_unreadable()
        if requests:
            values = {
                "requests": counted(requests, "request"),
                "origins": counted(len(self), "origin"),
            }
            message = "Still holding %(requests)s to %(origins)s from an earlier run"
            logger.info(message, values, extra=self._context.extra)

    def _move_behind(self, number: int, ran: float) -> None:
        """Let those held so far follow *number* requests, of runs that took *ran* seconds."""
        self._number += number
        self._started -= ran
        for one in self._origins.values():
            one.waiting = [
                held._replace(number=held.number + number, since=held.since + ran)
                for held in one.waiting
            ]
            one.heap = [
                (urgency, own + number, since + ran, what) for urgency, own, since, what in one.heap
            ]


def lean(request: Request) -> Request:
    """Return a copy of *request*: with each request object it has seen, Scrapy keeps a kilobyte
    (the parsed URL, the fingerprint) in memory."""
    with suppress(Exception):  # of a user's class
        return copy(request)
    return request


def announce(
    context: CrawlContext, signal: object, request: Request, origin: Origin | None, **told: object
) -> None:
    context.crawler.signals.send_catch_log(
        signal, request=request, origin=origin, spider=context.spider, **told
    )


def held_fields(
    origin: str, requests: int, seconds: float, entry: storages.Entry | None
) -> dict[str, Any]:
    """Return what ``scrapy robots --held --json`` and :meth:`RepMiddleware.held` report about an
    origin. *seconds*: for which its first request has been held. *entry*: what is known of its
    robots.txt."""
    down = entry if entry is not None and entry.unreachable_since is not None else None
    return {
        "origin": origin,
        "requests": requests,
        "held_seconds": round(seconds, 3),
        "unreachable_since": iso(down.unreachable_since) if down else None,
        "error": down.error if down else None,
        "attempts": down.attempts if down else None,
        "next_attempt_at": iso(down.next_attempt_at or None) if down else None,
    }
