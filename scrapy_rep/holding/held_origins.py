"""All held requests: where they are, how many of each origin and in all, and since when."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.words import counted, duration
from scrapy_rep.holding.held_origin import HeldOrigin, Log
from scrapy_rep.holding.hold import Hold
from scrapy_rep.origins.policy import Room
from scrapy_rep.protocol import Origin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy_rep.holding.disk import DiskHold
    from scrapy_rep.holding.hold import Held
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins

logger = get_logger(__name__)

# An origin may hold this many times the room that is left. One alone leaves an eleventh to others;
# however many there are, there is room for one more ("dynamic thresholds", as network switches
# share their buffers).
_SHARE = 10
# An origin that holds no more than this is not greedy, however small the hold is.
_FEW = 3

# Seconds until the log says once more that nothing else is left to do, if that has changed meanwhile.
_IDLE_SECONDS = 10.0


class HeldOrigins:
    """Origins that requests are held of. What is known of these stays in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._table = origins.table
        self._flights = origins.flights
        self._most = context.settings.defer_max_requests
        self._log = Log(context)
        self._origins: dict[str, HeldOrigin] = {}
        self._total = 0
        self._started = time.monotonic()
        self._warned: set[bool] = set()
        self._told_idle = False
        self._told_idle_at = -math.inf
        self.hold = Hold()
        """Where the requests are."""
        self.number = 0
        """Of the request that was held last."""

    def now(self) -> float:
        """Seconds that the crawl has been running, earlier runs with its JOBDIR included."""
        return time.monotonic() - self._started

    def __len__(self) -> int:
        return len(self._origins)

    def all(self) -> list[HeldOrigin]:
        """All of them."""
        return list(self._origins.values())

    def get(self, origin: Origin | str) -> HeldOrigin | None:
        """Return *origin*, if requests of it are held."""
        return self._origins.get(str(origin))

    # How many may be held

    @property
    def full(self) -> bool:
        """Whether no more may be held."""
        return self._total >= self._most

    def full_for(self, origin: Origin | str) -> bool:
        """Whether no more requests of *origin* may be held: some room is left to other origins."""
        room = self._most - self._total
        held_origin = self.get(origin)
        return room <= 0 or (held_origin is not None and held_origin.count >= _SHARE * room)

    def room(self, origin: Origin) -> Room:
        """Return how many more requests of *origin* may be held."""
        if not self.full_for(origin):
            return Room.FREE
        held_origin = self.get(origin)
        greedy = held_origin is not None and held_origin.count > max(self._most // _SHARE, _FEW)
        return Room.GREEDY if greedy else Room.FULL

    def warn_full(self, origin: Origin | str) -> None:
        """Warn that requests of *origin* are dropped because too many are held: once if too many
        are in all, once if too many of one origin are."""
        full = self.full
        if full in self._warned:
            return
        self._warned.add(full)
        message = (
            "As many requests are held as REP_DEFER_MAX_REQUESTS allows (%(count)d): further ones "
            "for unreachable origins are dropped. Others are not reported."
            if full
            else "%(origin)s has its share of REP_DEFER_MAX_REQUESTS (%(count)d requests are held "
            "in all): further requests of it are dropped. Other origins are not reported."
        )
        values = {"origin": origin, "count": self._total}
        logger.warning(message, values, extra=self._context.extra)

    # They come and go

    def add(self, origin: Origin, request: Held) -> HeldOrigin:
        """Hold *request*."""
        held_origin = self._of(origin)
        self._table.pin(origin)
        self.hold.add(str(origin), request)
        self._joined(held_origin, 1)
        held_origin.unanswered += 1
        return held_origin

    def _of(self, origin: Origin) -> HeldOrigin:
        held_origin = self.get(origin)
        if held_origin is None:
            held_origin = self._origins[str(origin)] = HeldOrigin(origin, self._log)
        return held_origin

    def _joined(self, held_origin: HeldOrigin, count: int) -> None:
        held_origin.count += count
        self._total += count
        self._context.stats.set_value("rep/held", self._total)
        self._context.stats.max_value("rep/held/max", self._total)

    def left(self, held_origin: HeldOrigin, count: int) -> None:
        """*count* of its requests are no longer held."""
        self._told_idle = False
        self._joined(held_origin, -count)

    def end(self, held_origin: HeldOrigin) -> None:
        """None of its requests is held any more."""
        if self.get(held_origin.origin) is not held_origin:
            return  # that was known
        self.left(held_origin, held_origin.count)  # what couldn't be read from disk
        del self._origins[str(held_origin.origin)]
        held_origin.tell_end(kept=self.hold.durable)
        self._table.unpin(held_origin.origin)
        # No waiters left: don't keep the crawl open.
        self._flights.abandon(held_origin.origin)
        if not self._origins:
            self.hold.tell_unreadable()

    def why(self, held_origin: HeldOrigin, what: str) -> tuple[str, int]:
        """Why requests are given up now, and how often robots.txt was asked for."""
        known = self._table.get(held_origin.origin)
        error = known.entry.error if known else None
        attempts = (known.entry.attempts if known else 0) + (held_origin.origin in self._flights)
        return f"{error or 'no answer yet'}; {what}", attempts

    async def move_to(self, hold: DiskHold) -> AsyncIterator[tuple[HeldOrigin, float]]:
        """Hold requests there from now on. Those of an earlier run come before those held already,
        which stay in memory. Yield each origin of that run, and since when its requests are held."""
        early, self.hold = self.hold, hold
        number, ran = hold.last()
        self.number += number
        self._started -= ran
        for key in self._origins:
            for one in early.take_mortal(key):
                hold.keep(key, one._replace(number=one.number + number, since=one.since + ran))
        slices = Slices()
        requests = 0
        for key, count, oldest in hold.recover():
            try:
                held_origin = self._of(Origin.from_url(key))
            except ValueError as error:
                hold.leave(key, error)
                continue
            held_origin.told_unreachable = True  # by that run
            self._joined(held_origin, count)
            requests += count
            yield held_origin, oldest
            if slices.over:
                await pause()
        hold.tell_unreadable()
        if requests:
            logger.info(
                "Still held from an earlier run: %(requests)s of %(origins)s",
                {
                    "requests": counted(requests, "request"),
                    "origins": counted(len(self), "origin"),
                },
                extra=self._context.extra,
            )

    # What the log says

    def tell_idle(self, next_attempt: float, given_up: float) -> None:
        """Log that the crawl has nothing to do but to wait: once, until some are held no more. See
        :meth:`tell`."""
        if not self._told_idle and self.now() >= self._told_idle_at + _IDLE_SECONDS:
            self._told_idle, self._told_idle_at = True, self.now()
            self.tell(next_attempt, given_up, "Nothing is left to do but to wait: ")

    def tell(self, next_attempt: float, given_up: float, begin: str = "") -> None:
        """Log what is held.

        :param next_attempt: in how many seconds a robots.txt is asked for again; infinity: one is
            being asked for
        :param given_up: in how many seconds the first requests are given up; infinity: they are on
            their way
        """
        logger.info(
            "%(begin)s%(requests)s to %(sites)s held; %(next)s, given up %(given_up)s "
            "(REP_DEFER_MAX_WAIT)",
            {
                "begin": begin,
                "requests": counted(self._total, "request"),
                "sites": counted(len(self), "site"),
                "next": "robots.txt is being asked for"
                if next_attempt == math.inf
                else f"next attempt in {duration(next_attempt)}",
                "given_up": "now" if given_up == math.inf else f"in {duration(given_up)}",
            },
            extra=self._context.extra,
        )
