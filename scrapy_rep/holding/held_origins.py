"""The origins with requests at the gate: how many of each and in total, what the log says of them, and
the hold that keeps those that are held."""

from __future__ import annotations

import math
import time
from heapq import heappop, heappush, nlargest
from operator import attrgetter
from typing import TYPE_CHECKING

from scrapy_rep import signals
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.text import counted, duration
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.holding.hold import Held, HeldOrigin, Hold, announce
from scrapy_rep.origins.policy import Room
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.record import kind_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scrapy import Request

    from scrapy_rep.holding.disk import DiskHold
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins

logger = get_logger(__name__)

# An origin may hold this many times the room that is left: there is always room for one more origin
# ("dynamic thresholds", as in network switches).
_SHARE = 10
# At most this many are held of a scheduler that isn't Scrapy's, without a JOBDIR: it may be shared.
_MOST_SHARED = 1000
# An origin that holds this many or fewer is not greedy, however small the hold.
_FEW = 3
# Requests that may wait for first answers, per CONCURRENT_REQUESTS: for the fetches at a time
# (flights.py), and as many that are next. Of an origin whose answer takes long, this many count.
_WAITING, _WEIGHTY = 8, 4
# A greedy origin has one in this many of those that wait, at least.
_MANY = 2
# In place of CONCURRENT_REQUESTS = 0 (unlimited).
_UNLIMITED = 100
# Origins that the log names.
_NAMED = 3
# Seconds between log lines that say that nothing else is left to do.
_IDLE_SECONDS = 10.0
_HOLDING = "Holding requests to %(origin)s"


class Log:
    """What the log says of each origin, and of the limits."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._slow = Limiter(logger, "origins that are slow to answer")
        self._held = Limiter(logger, "origins with an unreachable robots.txt")
        self._given_up = Limiter(logger, "origins whose requests were given up")
        self._released = Limiter(logger, "origins whose requests were released")
        self._warned: set[bool] = set()

    def unreachable(self, one: HeldOrigin) -> None:
        """Log that requests are held because robots.txt is unreachable, once."""
        if not one.told_unreachable:
            one.told_unreachable = True
            self._tell(self._held, one, _HOLDING + " until its robots.txt can be fetched")

    def slow(self, one: HeldOrigin) -> None:
        """Log that the first answer is slow, once."""
        if not (one.told_unreachable or one.told_slow):
            one.told_slow = True
            self._tell(self._slow, one, _HOLDING + ": its robots.txt has not answered yet")

    def end(self, one: HeldOrigin, kept: bool) -> None:
        """Log what became of the requests.

        :param kept: whether those given up are on disk for the next run
        """
        if one.given_up:
            reason, attempts = one.why
            self._tell(
                self._given_up,
                one,
                "Gave up %(requests)s to %(origin)s after %(seconds).1f s: %(reason)s "
                "(%(times)s at robots.txt)%(kept)s",
                requests=counted(one.given_up, "request"),
                reason=reason,
                times=counted(attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if one.released and (one.told_unreachable or one.told_slow):
            message = "Released %(requests)s to %(origin)s after %(seconds).1f s"
            self._tell(self._released, one, message, requests=counted(one.released, "request"))

    def _tell(self, limiter: Limiter, one: HeldOrigin, message: str, **values: object) -> None:
        values |= {"origin": one.origin, "seconds": one.longest}
        limiter.log(message, values, self._context.spider)

    def full(self, origin: Origin, held: int, full: bool) -> None:
        """Warn that requests are dropped because too many are held: once for the total (*full*), once
        for an origin's share."""
        if full in self._warned:
            return
        self._warned.add(full)
        message = (
            "REP_DEFER_MAX_REQUESTS reached (%(count)d requests held): dropping further requests to "
            "unreachable origins. This is reported once."
            if full
            else "%(origin)s has used its share of REP_DEFER_MAX_REQUESTS (%(count)d requests held, "
            "all origins together): dropping further requests to it. This is reported for one origin "
            "only."
        )
        values = {"origin": origin, "count": held}
        logger.warning(message, values, extra=self._context.extra)


class HeldOrigins:
    """The origins with requests at the gate. The origin table keeps them in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._table = origins.table
        self.failure = origins.cache.failure
        """What the last attempt for an origin raised, see :meth:`RobotsCache.failure`."""
        self._flights = origins.flights
        self.log = Log(context)
        self._origins: dict[str, HeldOrigin] = {}
        self._total = self._most_held = self._unheld = self._weight = 0
        concurrency = context.crawler.settings.getint("CONCURRENT_REQUESTS") or _UNLIMITED
        self._most = context.settings.defer_max_requests
        self._most_waiting = _WAITING * concurrency
        self._started = time.monotonic()
        self._told_idle = False
        self._told_idle_at = -math.inf
        self.hold = Hold()
        self._number = 0
        """The number of the request that came last."""

    def now(self) -> float:
        """Seconds that the crawl has run, including earlier runs with its JOBDIR."""
        return time.monotonic() - self._started

    def __len__(self) -> int:
        return len(self._origins)

    def all(self) -> list[HeldOrigin]:
        """All of them."""
        return list(self._origins.values())

    def get(self, origin: Origin | str) -> HeldOrigin | None:
        """Return *origin* if it has requests at the gate."""
        return self._origins.get(str(origin))

    # How many may be held, or wait

    @property
    def full(self) -> bool:
        """Whether as many are held as may be."""
        return self._total >= self._most

    def full_for(self, origin: Origin | str) -> bool:
        """Whether *origin* must not hold more."""
        return self.room_for(self.get(origin)) <= 0

    def room_for(self, held_origin: HeldOrigin | None) -> int:
        """Return how many more the origin may hold: others need some room."""
        room = self._most - self._total
        count = held_origin.count if held_origin is not None else 0
        # One more while it has less than _SHARE times what is left.
        return min(room, -((count - _SHARE * room) // (_SHARE + 1)))

    def room(self, origin: Origin) -> Room:
        """Return whether *origin* may hold more requests."""
        held_origin = self.get(origin)
        if self.room_for(held_origin) > 0:
            return Room.FREE
        greedy = (
            held_origin is not None
            and held_origin.unheld >= self._most_waiting // _MANY
            and held_origin.count > max(self._most // _SHARE, _FEW)
        )
        return Room.GREEDY if greedy else Room.FULL

    @property
    def awaits_first_answers(self) -> bool:
        """Whether any requests wait for an answer that may come soon."""
        return self._weight > 0

    @property
    def may_wait(self) -> bool:
        """Whether another request may come to the gate to wait for a first answer."""
        limit = self._most + self._most_waiting
        return self._weight < self._most_waiting and self._unheld + self._total < limit

    def limit_memory(self) -> None:
        """Hold fewer: the scheduler can have them back, and a kill should lose little."""
        self._most = min(self._most, _MOST_SHARED)

    def warn_full(self, origin: Origin) -> None:
        """Warn that requests are dropped because too many are held."""
        self.log.full(origin, self._total, self.full)

    # They come and go

    def wait(self, origin: Origin, request: Request, since: float | None) -> HeldOrigin:
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

    def settle(self, held_origin: HeldOrigin, *, everything: bool = False) -> list[Held]:
        """Hold, count and announce as many of the origin's waiting requests as there is room for, or
        all. Return these."""
        room = len(held_origin.waiting) if everything else max(0, self.room_for(held_origin))
        found, held_origin.waiting = held_origin.waiting[:room], held_origin.waiting[room:]
        if not found:
            return []
        with self.hold.together():
            for held in found:
                heappush(held_origin.heap, self.hold.hold(held_origin.key, held))
        held_origin.unanswered += len(found)
        self.changed(held_origin, unheld=-len(found), held=len(found))
        for held in found:
            self._context.stats.inc_value("rep/deferred")
            announce(self._context, signals.request_deferred, held.request, held_origin.origin)
        return found

    def changed(self, held_origin: HeldOrigin, *, unheld: int = 0, held: int = 0) -> None:
        """Count requests that came, left or were held, and what waits for the origin's first answer: all
        of its requests, a few if that takes long, none if it takes very long. One silent origin must
        not stop the others."""
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

    def first(self, held_origin: HeldOrigin) -> Held | None:
        """Return the request of the origin's first job that is next to leave, if any is left.

        :raises sqlite3.Error: if it can't be read now
        """
        heap = held_origin.jobs[0].heap
        while heap:
            entry = heap[0]
            if isinstance(entry[3], Held):
                return entry[3]
            held = self.hold.read(entry)
            if held is not None:
                heap[0] = (*entry[:3], held)
                return held
            heappop(heap)
            self.changed(held_origin, held=-1)
        return None

    def left(self, held_origin: HeldOrigin, held: Held) -> None:
        """A request has left the gate."""
        held_origin.longest = max(held_origin.longest, self.now() - held.since)
        if held.counts:
            self._told_idle = False
            self.hold.left(held_origin.key, held)
            self.changed(held_origin, held=-1)
        else:
            self.changed(held_origin, unheld=-1)

    def take_waiting(self, held_origin: HeldOrigin) -> list[Held]:
        """Remove and return the requests that wait."""
        found, held_origin.waiting = held_origin.waiting, []
        self.changed(held_origin, unheld=-len(found))
        return found

    def take_mortal(self, held_origin: HeldOrigin) -> Iterator[Held]:
        """Yield the requests that would end with the process, as they leave."""
        yield from self.take_waiting(held_origin)
        for entry in sorted(filter(self.hold.is_mortal, held_origin.heap)):
            held = self.hold.read(entry)
            if held is not None:
                self.left(held_origin, held)
                yield held

    def peek(self, held_origin: HeldOrigin, number: int = 0) -> Request | None:
        """Return the most urgent held request, or another with this *number*, from 0 and round and
        round; if there is none, one that waits."""
        heap, waiting = held_origin.heap, held_origin.waiting
        found = self.hold.peek(heap[number % len(heap)]) if heap else None
        return found or (waiting[0].request if waiting else None)

    def end(self, held_origin: HeldOrigin) -> None:
        """Forget the origin: it has no requests here."""
        del self._origins[held_origin.key]
        if held_origin.given_up or held_origin.released:
            self.log.end(held_origin, kept=self.hold.durable)
        self._table.unpin(held_origin.origin)
        # No waiters left: don't keep the crawl open.
        self._flights.abandon(held_origin.origin)
        if not self._origins and self.hold.durable:
            self.hold.tell_unreadable()

    def why(self, held_origin: HeldOrigin, what: str) -> tuple[str, int]:
        """Return why requests are given up now, and the number of robots.txt attempts."""
        known = self._table.get(held_origin.origin)
        error = known.entry.error if known else None
        attempts = (known.entry.attempts if known else 0) + (held_origin.origin in self._flights)
        return f"{error or 'no answer yet'}; {what}", attempts

    async def move_to(self, hold: DiskHold) -> AsyncIterator[HeldOrigin]:
        """Use *hold* from now on. Requests of an earlier run come before those held so far, which
        stay in memory. Yield each origin of that run."""
        self.hold = hold
        number, ran = hold.last()
        self._number += number
        self._started -= ran
        for held_origin in self._origins.values():
            held_origin.waiting = [
                one._replace(number=one.number + number, since=one.since + ran)
                for one in held_origin.waiting
            ]
            held_origin.heap = [
                (urgency, own + number, since + ran, what)
                for urgency, own, since, what in held_origin.heap
            ]
        slices = Slices()
        requests = 0
        for key, heap in hold.recover():
            try:
                origin = Origin.from_url(key)
            except ValueError as error:
                hold.skip(len(heap), error)
                continue
            held_origin = self._origins.setdefault(str(origin), HeldOrigin(origin, str(origin)))
            held_origin.told_unreachable = True  # by that run
            self._table.pin(origin)
            requests += len(heap)
            self.changed(held_origin, held=len(heap))
            for entry in held_origin.heap:
                heappush(heap, entry)
            held_origin.heap = heap
            yield held_origin
            if slices.over:
                await pause()
        hold.tell_unreadable()
        if requests:
            values = {
                "requests": counted(requests, "request"),
                "origins": counted(len(self), "origin"),
            }
            message = "Still holding %(requests)s to %(origins)s from an earlier run"
            logger.info(message, values, extra=self._context.extra)

    # What the log says

    def tell(self, next_attempt: float, given_up: float, *, idle: bool = False) -> None:
        """Log what is held.

        :param next_attempt: seconds until a robots.txt is fetched again; infinity: now
        :param given_up: seconds until the first requests are given up; infinity: now
        :param idle: log that the crawl can only wait: once, until some requests are released
        """
        if idle:
            if self._told_idle or self.now() < self._told_idle_at + _IDLE_SECONDS:
                return
            self._told_idle, self._told_idle_at = True, self.now()
        values = {
            "begin": "Nothing left to do but wait: " if idle else "",
            "requests": counted(self._total, "request"),
            "which": self._which(),
            "next": "now" if next_attempt == math.inf else f"in {duration(next_attempt)}",
            "given_up": "now" if given_up == math.inf else f"in {duration(given_up)}",
        }
        logger.info(
            "%(begin)s%(requests)s held (%(which)s); next robots.txt attempt %(next)s, giving up "
            "%(given_up)s (REP_DEFER_MAX_WAIT)",
            values,
            extra=self._context.extra,
        )

    def _which(self) -> str:
        """Return which origins have most of them, and why."""
        most = nlargest(_NAMED, self._origins.values(), key=attrgetter("count"))
        parts = []
        for one in most:
            known, why = self._table.get(one.origin), "no answer yet"
            if known is not None:
                error = known.entry.error
                why = kind_of(error, short=True) if error else "answered, about to leave"
            parts.append(f"{one.count:,} to {one.origin}: {why}")
        if others := len(self) - len(most):
            rest = self._total - sum(one.count for one in most)
            parts.append(f"{rest:,} to {counted(others, 'other origin')}")
        return "; ".join(parts)
