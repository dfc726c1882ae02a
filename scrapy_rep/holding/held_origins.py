"""All held requests: how many of each origin and in total, and the hold that keeps them."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.words import counted, duration
from scrapy_rep.holding.held_origin import HeldOrigin, Log
from scrapy_rep.holding.hold import Held, Hold
from scrapy_rep.origins.policy import Room
from scrapy_rep.protocol import Origin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request

    from scrapy_rep.holding.disk import DiskHold
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins

logger = get_logger(__name__)

# An origin may hold this many times the room that is left: there is always room for one more origin
# ("dynamic thresholds", as in network switches).
_SHARE = 10
# An origin that holds this many or fewer is not greedy, however small the hold.
_FEW = 3
# Seconds between log lines that say that nothing else is left to do.
_IDLE_SECONDS = 10.0


class HeldOrigins:
    """The origins with held requests. The origin table keeps them in memory."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._table = origins.table
        self.failure = origins.cache.failure
        """What the last attempt for an origin raised, see :meth:`RobotsCache.failure`."""
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
        self.number = 0
        """The number of the request held last."""

    def now(self) -> float:
        """Seconds that the crawl has run, including earlier runs with its JOBDIR."""
        return time.monotonic() - self._started

    def __len__(self) -> int:
        return len(self._origins)

    def all(self) -> list[HeldOrigin]:
        """All of them."""
        return list(self._origins.values())

    def get(self, origin: Origin | str) -> HeldOrigin | None:
        """Return *origin* if it has held requests."""
        return self._origins.get(str(origin))

    # How many may be held

    @property
    def full(self) -> bool:
        """Whether REP_DEFER_MAX_REQUESTS are held."""
        return self._total >= self._most

    def full_for(self, origin: Origin | str) -> bool:
        """Whether *origin* must not hold more: other origins need some room."""
        room = self._most - self._total
        held_origin = self.get(origin)
        return room <= 0 or (held_origin is not None and held_origin.count >= _SHARE * room)

    def room(self, origin: Origin) -> Room:
        """Return whether *origin* may hold more requests."""
        if not self.full_for(origin):
            return Room.FREE
        held_origin = self.get(origin)
        greedy = held_origin is not None and held_origin.count > max(self._most // _SHARE, _FEW)
        return Room.GREEDY if greedy else Room.FULL

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

    def next(self, request: Request, waited: float, row: int | None) -> Held:
        """Return *request*, to be held.

        :param waited: seconds for which it was held before
        :param row: its row on disk, if any
        """
        self.number += 1
        return Held(self.number, self.now() - waited, request.dont_filter, request, row)

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
        """Count *count* of its requests as no longer held."""
        self._told_idle = False
        self._joined(held_origin, -count)

    def end(self, held_origin: HeldOrigin) -> None:
        """Forget the origin: it has no held requests."""
        if self.get(held_origin.origin) is not held_origin:
            return
        self.left(held_origin, held_origin.count)  # requests that couldn't be read from disk
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
            "sites": counted(len(self), "site"),
            "next": "now" if next_attempt == math.inf else f"in {duration(next_attempt)}",
            "given_up": "now" if given_up == math.inf else f"in {duration(given_up)}",
        }
        logger.info(
            "%(begin)s%(requests)s to %(sites)s held; next robots.txt attempt %(next)s, giving up "
            "%(given_up)s (REP_DEFER_MAX_WAIT)",
            values,
            extra=self._context.extra,
        )
