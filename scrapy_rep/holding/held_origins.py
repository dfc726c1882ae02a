"""All requests at the gate: how many of each origin and in total, and the hold that keeps them."""

from __future__ import annotations

import math
import time
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.words import counted, duration
from scrapy_rep.holding.held_origin import HeldOrigin, Log
from scrapy_rep.holding.hold import Held, Hold
from scrapy_rep.origins.policy import Room
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.answers import kind_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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


class HeldOrigins:
    """The origins with requests at the gate. The origin table keeps them in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._table = origins.table
        self.failure = origins.cache.failure
        """What the last attempt for an origin raised, see :meth:`RobotsCache.failure`."""
        self._flights = origins.flights
        self._most = context.settings.defer_max_requests
        self._log = Log(context)
        self._origins: dict[str, HeldOrigin] = {}
        self._total = self._waiting = self._weight = 0
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
        """Whether *origin* must not hold more: other origins need some room."""
        return self._room(self.get(origin)) <= 0

    def _room(self, held_origin: HeldOrigin | None) -> int:
        """Return how many more the origin may hold."""
        room = self._most - self._total
        count = held_origin.count if held_origin is not None else 0
        # One more while it has less than _SHARE times what is left.
        return min(room, -((count - _SHARE * room) // (_SHARE + 1)))

    def room(self, origin: Origin) -> Room:
        """Return whether *origin* may hold more requests."""
        held_origin = self.get(origin)
        if self._room(held_origin) > 0:
            return Room.FREE
        greedy = (
            held_origin is not None
            and held_origin.waiting >= self._most_waiting // _MANY
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
        return self._weight < self._most_waiting and self._waiting + self._total < self._limit

    def weigh(self, held_origin: HeldOrigin) -> None:
        """Count what waits for the origin's first answer: all of its requests, a few if that takes long,
        none if it takes very long. One silent origin must not stop the others."""
        weight = held_origin.waiting
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

    def wait(self, origin: Origin, request: Request, since: float | None = None) -> HeldOrigin:
        """Keep *request* until there is a first answer."""
        return self._add(origin, request, since, self.hold.add)

    def keep(self, origin: Origin, request: Request, since: float | None = None) -> HeldOrigin:
        """Hold *request*, which came to the gate at *since* (default: now)."""
        held_origin = self._add(origin, request, since, self.hold.hold)
        self._are_held(held_origin, 1)
        return held_origin

    def _add(
        self,
        origin: Origin,
        request: Request,
        since: float | None,
        add: Callable[[str, Held], None],
    ) -> HeldOrigin:
        held_origin = self._of(origin)
        self.number += 1
        since = self.now() if since is None else since
        add(str(origin), Held(self.number, since, request))
        self._changed(held_origin, waiting=1)
        return held_origin

    def settle(self, held_origin: HeldOrigin, *, everything: bool = False) -> list[Held]:
        """Hold as many of the origin's waiting requests as there is room for, or all of them. Return
        these."""
        room = held_origin.waiting if everything else self._room(held_origin)
        if not held_origin.waiting or room <= 0:
            return []
        key = str(held_origin.origin)
        found = self.hold.settle(key, held_origin.held_upto, room)
        if found:
            self._are_held(held_origin, len(found), found[-1].number)
        return found

    def _are_held(self, held_origin: HeldOrigin, count: int, upto: int | None = None) -> None:
        held_origin.held_upto = self.number if upto is None else upto
        held_origin.unanswered += count
        self._changed(held_origin, waiting=-count, held=count)

    def _of(self, origin: Origin) -> HeldOrigin:
        held_origin = self.get(origin)
        if held_origin is None:
            held_origin = self._origins[str(origin)] = HeldOrigin(origin, self._log)
            self._table.pin(origin)
        return held_origin

    def _changed(self, held_origin: HeldOrigin, *, waiting: int = 0, held: int = 0) -> None:
        held_origin.waiting += waiting
        self._waiting += waiting
        held_origin.count += held
        self._total += held
        self.weigh(held_origin)
        if not held:
            return
        self._context.stats.set_value("rep/held", self._total)
        self._context.stats.max_value("rep/held/max", self._total)

    def left(self, held_origin: HeldOrigin, held: Held) -> bool:
        """*held* has left the gate. Return whether it had been held, and not only waited."""
        held_origin.longest = max(held_origin.longest, self.now() - held.since)
        if held.number > held_origin.held_upto:
            self._changed(held_origin, waiting=-1)
            return False
        self._told_idle = False
        self._changed(held_origin, held=-1)
        return True

    def take_waiting(self, held_origin: HeldOrigin) -> list[Request]:
        """Remove and return the requests that only wait."""
        found = self.hold.take_new(str(held_origin.origin), held_origin.held_upto)
        self._changed(held_origin, waiting=-held_origin.waiting)
        return [held.request for held in found]

    def end(self, held_origin: HeldOrigin) -> None:
        """Forget the origin: it has no requests here."""
        if self.get(held_origin.origin) is not held_origin:
            return
        # There may be requests that couldn't be read from disk.
        self._changed(held_origin, waiting=-held_origin.waiting, held=-held_origin.count)
        del self._origins[str(held_origin.origin)]
        held_origin.tell_end(kept=self.hold.durable)
        self._table.unpin(held_origin.origin)
        # No waiters left: don't keep the crawl open.
        self._flights.abandon(held_origin.origin)
        if not self._origins:
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
            held_origin.held_upto += number
            for one in early.take_mortal(key):
                hold.add(key, one._replace(number=one.number + number, since=one.since + ran))
        slices = Slices()
        requests = 0
        for key, count, oldest in hold.recover():
            try:
                held_origin = self._of(Origin.from_url(key))
            except ValueError as error:
                hold.leave(key, error)
                continue
            held_origin.told_unreachable = True  # by that run
            held_origin.held_upto = max(held_origin.held_upto, number)
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
