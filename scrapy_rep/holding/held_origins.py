"""The origins with requests at the gate: how many of each and in total, what the log says of them, and
the hold that keeps those that are held."""

from __future__ import annotations

import math
import time
from collections import deque
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.text import counted, duration
from scrapy_rep.holding.hold import Held, Hold, Job
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
# At most this many are held of a scheduler that outlives the process, or is shared, without a JOBDIR.
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


class Log:
    """The log of all origins with held requests."""

    def __init__(self, context: CrawlContext) -> None:
        self.context = context
        self.slow = Limiter(logger, "origins that are slow to answer")
        self.held = Limiter(logger, "origins with an unreachable robots.txt")
        self.given_up = Limiter(logger, "origins whose requests were given up")
        self.released = Limiter(logger, "origins whose requests were released")


class HeldOrigin:
    """An origin with requests at the gate, until none is left.

    Its requests *wait* for a first answer, in memory, until ``REP_DEFER_GRACE`` is over; then they are
    *held*: counted, announced, and on disk with a JOBDIR. Once there is an answer, or they are given
    up, they are *ready* to leave.
    """

    __slots__ = (
        "_log",
        "_told_slow",
        "answered",
        "count",
        "given_up",
        "head",
        "jobs",
        "key",
        "late",
        "leaving",
        "longest",
        "origin",
        "released",
        "slow",
        "told_unreachable",
        "unanswered",
        "unheld",
        "waiting",
        "weight",
        "why",
    )

    def __init__(self, origin: Origin, log: Log) -> None:
        self.origin = origin
        self.key = str(origin)
        self._log = log
        self._told_slow = False
        self.told_unreachable = False
        """Whether the log says that its robots.txt is unreachable."""
        self.waiting: list[Held] = []
        """Those that wait for a first answer, as they came."""
        self.unheld = 0
        """How many are not held: they wait, or are ready to leave."""
        self.count = 0
        """How many are held."""
        self.unanswered = 0
        """How many of the held ones never had an answer."""
        self.answered = self.late = self.slow = False
        """Whether there was an answer, if only a failure; whether a first answer takes long, or very
        long."""
        self.weight = 0
        """Its part of the limit for first answers, see :class:`HeldOrigins`."""
        self.jobs: deque[Job] = deque()
        """What is ready, in order."""
        self.head: Held | None = None
        """Taken from the hold, and next to leave."""
        self.leaving: list[Request] = []
        """Those that left last, and may not have reached their download slot."""
        self.released = 0
        self.longest = 0.0
        """Seconds for which one that left was held, in earlier runs too."""
        self.given_up = 0
        self.why = ("", 0)
        """Why the last ones were given up, and after how many robots.txt attempts."""

    def tell_unreachable(self) -> None:
        """Log that requests are held because robots.txt is unreachable, once."""
        if not self.told_unreachable:
            self.told_unreachable = True
            message = "Holding requests to %(origin)s until its robots.txt can be fetched"
            self._tell(self._log.held, message)

    def tell_slow(self) -> None:
        """Log that the first answer is slow, once."""
        if not (self.told_unreachable or self._told_slow):
            self._told_slow = True
            message = "Holding requests to %(origin)s: its robots.txt has not answered yet"
            self._tell(self._log.slow, message)

    def tell_end(self, kept: bool) -> None:
        """Log what became of the requests.

        :param kept: whether those given up are on disk for the next run
        """
        if self.given_up:
            reason, attempts = self.why
            self._tell(
                self._log.given_up,
                "Gave up %(requests)s to %(origin)s after %(seconds).1f s: %(reason)s "
                "(%(times)s at robots.txt)%(kept)s",
                requests=counted(self.given_up, "request"),
                seconds=self.longest,
                reason=reason,
                times=counted(attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if self.released and (self.told_unreachable or self._told_slow):
            self._tell(
                self._log.released,
                "Released %(requests)s to %(origin)s after %(seconds).1f s",
                requests=counted(self.released, "request"),
                seconds=self.longest,
            )

    def _tell(self, limiter: Limiter, message: str, **values: Any) -> None:
        limiter.log(message, {"origin": self.origin, **values}, self._log.context.spider)


class HeldOrigins:
    """The origins with requests at the gate. The origin table keeps them in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._stats = context.stats
        self._most_held = 0
        self._table = origins.table
        self.failure = origins.cache.failure
        """What the last attempt for an origin raised, see :meth:`RobotsCache.failure`."""
        self._flights = origins.flights
        self._most = context.settings.defer_max_requests
        self._log = Log(context)
        self._origins: dict[str, HeldOrigin] = {}
        self._total = self._unheld = self._weight = 0
        concurrency = context.crawler.settings.getint("CONCURRENT_REQUESTS") or _UNLIMITED
        self._most_waiting = _WAITING * concurrency
        self._limit = self._most + self._most_waiting
        self._started = time.monotonic()
        self._warned: set[bool] = set()
        self._told_idle = False
        self._told_idle_at = -math.inf
        self.hold = Hold()
        self.number = 0
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
        return self._weight < self._most_waiting and self._unheld + self._total < self._limit

    def weigh(self, held_origin: HeldOrigin) -> None:
        """Count what waits for the origin's first answer: all of its requests, a few if that takes long,
        none if it takes very long. One silent origin must not stop the others."""
        weight = held_origin.unheld
        if not held_origin.answered:
            weight += held_origin.count
            if held_origin.late:
                weight = 0 if held_origin.slow else min(weight, _WEIGHTY)
        self._weight += weight - held_origin.weight
        held_origin.weight = weight

    def limit_memory(self) -> None:
        """Hold fewer: the scheduler outlives the process, and a kill should lose little."""
        self._most = min(self._most, _MOST_SHARED)
        self._limit = self._most + self._most_waiting

    def warn_full(self, origin: Origin | str) -> None:
        """Warn that requests are dropped because too many are held: once for the total, once for
        an origin's share."""
        full = self.full
        if full in self._warned:
            return
        self._warned.add(full)
        message = (
            "REP_DEFER_MAX_REQUESTS reached (%(count)d requests held): dropping further requests to "
            "unreachable origins. This is reported once."
            if full
            else "%(origin)s has used its share of REP_DEFER_MAX_REQUESTS (%(count)d requests held in "
            "total): dropping further requests to it. Other origins are not reported."
        )
        values = {"origin": origin, "count": self._total}
        logger.warning(message, values, extra=self._context.extra)

    # They come and go

    def wait(
        self, origin: Origin, request: Request, since: float | None = None, *, known: bool = True
    ) -> HeldOrigin:
        """Keep *request* until there is a first answer.

        :param known: whether anything is known of *origin*
        """
        held_origin, held = self._of(origin, known=known), self._held(request, since)
        held_origin.waiting.append(held)
        self._changed(held_origin, unheld=1)
        return held_origin

    def keep(self, origin: Origin, request: Request, since: float | None = None) -> HeldOrigin:
        """Hold *request*, which came to the gate at *since* (default: now)."""
        held_origin = self._of(origin)
        self.hold.hold(held_origin.key, self._held(request, since))
        held_origin.unanswered += 1
        self._changed(held_origin, held=1)
        return held_origin

    def _held(self, request: Request, since: float | None) -> Held:
        self.number += 1
        return Held(self.number, self.now() if since is None else since, request)

    def settle(self, held_origin: HeldOrigin, *, everything: bool = False) -> list[Held]:
        """Hold as many of the origin's waiting requests as there is room for, or all. Return these."""
        waiting = held_origin.waiting
        if not waiting:
            return []
        count = len(waiting) if everything else max(0, self.room_for(held_origin))
        found = waiting[:count]
        del waiting[:count]
        with self.hold.together():
            for held in found:
                self.hold.hold(held_origin.key, held)
        held_origin.unanswered += len(found)
        self._changed(held_origin, unheld=-len(found), held=len(found))
        return found

    def _of(self, origin: Origin, *, known: bool = True) -> HeldOrigin:
        held_origin = self._origins.get(str(origin))
        if held_origin is None:
            held_origin = HeldOrigin(origin, self._log)
            self._origins[held_origin.key] = held_origin
            if known:
                self._table.pin(origin)
        return held_origin

    def _changed(self, held_origin: HeldOrigin, *, unheld: int = 0, held: int = 0) -> None:
        held_origin.unheld += unheld
        self._unheld += unheld
        held_origin.count += held
        self._total += held
        self.weigh(held_origin)
        if held:
            self._stats.set_value("rep/held", self._total)
        if self._total > self._most_held:
            self._most_held = self._total
            self._stats.max_value("rep/held/max", self._total)

    def left(self, held_origin: HeldOrigin, held: Held, *, was_held: bool) -> None:
        """A request has left the gate."""
        held_origin.longest = max(held_origin.longest, self.now() - held.since)
        if was_held:
            self._told_idle = False
            self._changed(held_origin, held=-1)
        else:
            self._changed(held_origin, unheld=-1)

    def take_waiting(self, held_origin: HeldOrigin) -> list[Held]:
        """Remove and return the requests that wait."""
        found, held_origin.waiting = held_origin.waiting, []
        self._changed(held_origin, unheld=-len(found))
        return found

    def take_mortal(self, held_origin: HeldOrigin) -> Iterator[tuple[Held, bool]]:
        """Remove and yield the requests that would end with the process, each with whether it was
        held."""
        yield from ((held, False) for held in self.take_waiting(held_origin))
        for held in self.hold.take_mortal(held_origin.key):
            self.left(held_origin, held, was_held=True)
            yield held, True

    def recall(self, held_origin: HeldOrigin) -> None:
        """Have the requests wait again that were to be released."""
        self.put_back(held_origin)
        for job in [job for job in held_origin.jobs if job.given_up is None]:
            held_origin.jobs.remove(job)
            held_origin.waiting += [held for *_, held in job.ready]
        held_origin.waiting.sort()

    def put_back(self, held_origin: HeldOrigin) -> None:
        """Return the one that would have been next to the hold."""
        head, held_origin.head = held_origin.head, None
        if head is not None:
            self.hold.put_back(held_origin.key, head)

    def oldest(self, held_origin: HeldOrigin) -> float | None:
        """Return the ``since`` of the request that has waited longest, of those that may not leave."""
        times = [held.since for held in held_origin.waiting]
        if held_origin.count and (held := self.hold.oldest(held_origin.key)) is not None:
            times.append(held)
        return min(times, default=None)

    def peek(self, held_origin: HeldOrigin, number: int = 0) -> Request | None:
        """Return the most urgent held request, or another with this *number*, from 0 and round and
        round; if there is none, one that waits."""
        waiting = held_origin.waiting
        return self.hold.peek(held_origin.key, number) or (waiting[0].request if waiting else None)

    def end(self, held_origin: HeldOrigin) -> None:
        """Forget the origin: it has no requests here."""
        # There may be requests that couldn't be read from disk.
        if held_origin.unheld or held_origin.count:
            self._changed(held_origin, unheld=-held_origin.unheld, held=-held_origin.count)
        del self._origins[held_origin.key]
        if held_origin.given_up or held_origin.released:
            held_origin.tell_end(kept=self.hold.durable)
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

    async def move_to(self, hold: DiskHold) -> AsyncIterator[tuple[HeldOrigin, float]]:
        """Use *hold* from now on. Requests of an earlier run come before those held so far, which
        stay in memory. Yield each origin of that run, and since when its requests are held."""
        early, self.hold = self.hold, hold
        number, ran = hold.last()
        self.number += number
        self._started -= ran
        for key, held_origin in self._origins.items():
            held_origin.waiting = [_later(one, number, ran) for one in held_origin.waiting]
            for one in early.take_mortal(key):
                hold.add(key, _later(one, number, ran))
        slices = Slices()
        requests = 0
        for key, count, oldest in hold.recover():
            try:
                held_origin = self._of(Origin.from_url(key))
            except ValueError as error:
                hold.leave(key, error)
                continue
            held_origin.told_unreachable = True  # by that run
            self._changed(held_origin, held=count)
            requests += count
            yield held_origin, oldest
            if slices.over:
                await pause()
        hold.tell_unreadable()
        if requests:
            logger.info(
                "Still holding %(requests)s to %(origins)s from an earlier run",
                {
                    "requests": counted(requests, "request"),
                    "origins": counted(len(self), "origin"),
                },
                extra=self._context.extra,
            )

    # What the log says

    def tell_idle(self, next_attempt: float, given_up: float) -> None:
        """Log that the crawl can only wait: once, until some requests are released. See
        :meth:`tell`."""
        if not self._told_idle and self.now() >= self._told_idle_at + _IDLE_SECONDS:
            self._told_idle, self._told_idle_at = True, self.now()
            self.tell(next_attempt, given_up, "Nothing left to do but wait: ")

    def tell(self, next_attempt: float, given_up: float, begin: str = "") -> None:
        """Log what is held.

        :param next_attempt: seconds until a robots.txt is fetched again; infinity: now
        :param given_up: seconds until the first requests are given up; infinity: now
        """
        values = {
            "begin": begin,
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
            known = self._table.get(one.origin)
            why = "no answer yet"
            if known is not None:
                error = known.entry.error
                why = kind_of(error, short=True) if error else "answered, about to leave"
            parts.append(f"{one.count:,} to {one.origin}: {why}")
        if others := len(self) - len(most):
            rest = self._total - sum(one.count for one in most)
            parts.append(f"{rest:,} to {counted(others, 'other origin')}")
        return "; ".join(parts)


def _later(held: Held, number: int, seconds: float) -> Held:
    return held._replace(number=held.number + number, since=held.since + seconds)
