"""Whether a host lists a sitemap itself, so that URLs of that host in it count (REP.md section 9,
"Location scope"). Entries of hosts whose robots.txt is not known wait for it in the spool."""

from __future__ import annotations

import heapq
import logging
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.listing import Listings
from scrapy_rep.seeding.selection import Reason, host_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_rep.origins.cache import RobotsCache
    from scrapy_rep.origins.flights import Flights
    from scrapy_rep.origins.table import Known
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.selection import Verdict
    from scrapy_rep.seeding.spool import Row
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

# So many robots.txt are asked for at a time for this alone.
_AT_A_TIME = 16
# Seconds after which it is looked again whether an answer has come.
_LOOK = 0.1
# So many origins are looked at, or entries settled, before the event loop has its turn.
_SLICE = 200


class Proofs:
    """Knows which origin lists which sitemaps, or finds out."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        cache: RobotsCache,
        flights: Flights,
        worth_waiting: Callable[[Known], bool],
        feeder: Feeder,
    ) -> None:
        """:param worth_waiting: whether an unreachable robots.txt may still come"""
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._settings = settings
        self._cache = cache
        self._flights = flights
        self._worth_waiting = worth_waiting
        self._feeder = feeder
        self._spool = feeder.spool
        self._listings = Listings()
        self._deadlines: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []
        self._in_the_air: set[str] = set()
        self._targets = Targets(crawler, settings.private_hosts)
        self._named_by: dict[str, str] = {}
        self._being_looked_up: set[str] = set()
        self._refused: set[str] = set()
        self._running = False

    def __bool__(self) -> bool:
        """Whether entries wait."""
        return bool(self._deadlines)

    def recover(self, origins: list[tuple[str, str]]) -> None:
        """Go on with what an earlier run left of these, each with one that has led to it."""
        for origin, by in origins:
            with suppress(ValueError):  # it is none
                self._wait_for(str(Origin.from_url(origin)), by)

    def verdict(self, origin: Origin, by: str, chain: tuple[str, ...]) -> Verdict:
        """Whether *origin*'s robots.txt lists one of the sitemaps *chain*: True, or the reason why
        its entries are not accepted; None if that is not known yet: they have to wait then.

        :param by: the origin that has led to these sitemaps
        :raises sqlite3.Error: if that can't be told now
        """
        known = self._cache.get(origin)
        listing = None if known is None or known.unreachable else self._listings.of(known)
        if listing is not None and listing.complete():
            return True if listing.has_any(chain) else Reason.CROSS_HOST
        if listing is None and not self._spool.sitemaps.may_name(by, host_of(origin)):
            return Reason.HOSTS
        self._wait_for(str(origin), by)
        return None

    def _wait_for(self, origin: str, by: str) -> None:
        if origin not in self._deadlines:
            self._named_by[origin] = by
            now = time.monotonic()
            self._deadlines[origin] = now + self._settings.defer_max_wait
            heapq.heappush(self._due, (now, origin))
            self._go_on_in(0)

    def stop(self) -> None:
        """The crawl ends: what waits is for the next run."""
        self._deadlines.clear()
        self._named_by.clear()
        self._due.clear()

    # One step at a time

    def _go_on_in(self, seconds: float) -> None:
        if not self._running:
            self._running = True
            call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._running = False
        try:
            more = self._some()
            self._spool.patience.worked("proofs")
        except sqlite3.Error as error:
            seconds = self._spool.patience.failed("proofs", error)
            if seconds is None:
                self.stop()
            else:
                self._go_on_in(seconds)
            return
        if self._due:
            self._go_on_in(0 if more else _LOOK)

    def _some(self) -> bool:
        """Do what is due. Return whether there is more to do at once."""
        self._in_the_air = {
            one
            for one in self._in_the_air
            if one in self._being_looked_up or Origin.from_url(one) in self._flights
        }
        for _ in range(_SLICE):
            now = time.monotonic()
            if not self._due or self._due[0][0] > now:
                return False
            due, key = heapq.heappop(self._due)
            if key not in self._deadlines:
                continue
            worked = False
            try:
                worked = self._look(key, now)
            finally:
                if key in self._deadlines:
                    # One that is begun goes on first: only some listings are kept.
                    heapq.heappush(self._due, (due if worked else now + _LOOK, key))
            if worked:
                return True
        return True

    def _look(self, key: str, now: float) -> bool:
        """See whether the robots.txt of an origin has come. Return whether entries were settled."""
        origin = Origin.from_url(key)
        known = None if origin in self._flights else self._cache.get(origin)
        if known is not None and not known.unreachable:
            return not self._listings.of(known).complete() or self._settle(key, known)
        if key in self._refused:
            return self._settle(key, None, Reason.PRIVATE)
        if known is not None and not self._worth_waiting(known):
            return self._settle(key, None)
        if now >= self._deadlines[key]:
            return self._settle(key, None)
        if known is None and len(self._in_the_air) < _AT_A_TIME and key not in self._in_the_air:
            self._in_the_air.add(key)
            self._being_looked_up.add(key)
            deferred_from_coro(self._ask(key, origin))
        return False

    async def _ask(self, key: str, origin: Origin) -> None:
        try:
            refused = await self._targets.refuses(origin, Origin.from_text(self._named_by[key]))
        finally:
            self._being_looked_up.discard(key)
        if key in self._deadlines:  # else the crawl has ended
            if refused:
                self._refused.add(key)
            else:
                self._flights.to(origin)

    def _settle(self, key: str, known: Known | None, reason: Reason = Reason.UNPROVEN) -> bool:
        """Judge some entries of an origin.

        :param known: what is known of it; None if it has no robots.txt to go by
        :param reason: why it has none
        """
        rows = self._spool.unproven_of(key, _SLICE)
        if not rows:
            del self._deadlines[key], self._named_by[key]
            self._refused.discard(key)
            if known is None:
                # Nobody is left who wants to know: the crawl need not wait for the answer.
                self._flights.abandon(Origin.from_url(key))
            self._feeder.wake()
            return True
        listing = self._listings.of(known) if known is not None else None
        verdicts: dict[int, bool] = {}
        accepted: list[Row] = []
        for _, row in rows:
            sitemap = row[1]
            if sitemap not in verdicts:
                chain = self._spool.sitemaps.chain_of(sitemap)
                verdicts[sitemap] = listing is not None and listing.has_any(chain)
            if verdicts[sitemap]:
                accepted.append(row)
        self._spool.settle([number for number, _ in rows], accepted)
        rejected = len(rows) - len(accepted)
        reason = reason if known is None else Reason.CROSS_HOST
        if rejected:
            self._stats.inc_value(reason.value, rejected)
        self._log(key, reason.text, Counter(accepted=len(accepted), rejected=rejected))
        self._feeder.wake()
        return True

    def _log(self, key: str, why: str, counts: Counter[str]) -> None:
        logger.log(
            logging.DEBUG,
            "Entries of %(origin)s: %(accepted)d accepted, %(rejected)d not%(why)s",
            {
                "origin": key,
                "accepted": counts["accepted"],
                "rejected": counts["rejected"],
                "why": f": {why}" if counts["rejected"] else "",
            },
            extra={"spider": self._crawler.spider},
        )
