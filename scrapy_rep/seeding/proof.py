"""Whether a host lists a sitemap itself, so that URLs of that host in it count (REP.md section 9,
"Location scope"). Entries of hosts whose robots.txt is not known wait in the spool, and
:class:`Proofs` has it fetched. `intake.py` asks for verdicts."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.listing import Listings
from scrapy_rep.seeding.selection import Reason, host_of

if TYPE_CHECKING:
    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.table import Known
    from scrapy_rep.seeding.context import SeedingContext
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.selection import Verdict
    from scrapy_rep.seeding.spool import Row

logger = get_logger(__name__)

# The most robots.txt files that are asked for at a time for this alone.
_AT_A_TIME = 16
# Seconds until another look whether an answer has come.
_LOOK = 0.1
# Origins that are looked at, or entries settled, before the event loop has its turn.
_SLICE = 200


@dataclass(slots=True)
class _Pending:
    """An origin whose entries wait."""

    origin: Origin
    by: str
    """The origin whose sitemaps have named it."""
    deadline: float
    looking_up: bool = False
    """Whether its address is being looked up."""
    refused: bool = False
    """Whether it has a private address, and must not be asked."""


class Proofs:
    """Knows which origin lists which sitemaps, or finds out."""

    def __init__(
        self, context: SeedingContext, origins: Origins, deferral: Deferral, feeder: Feeder
    ) -> None:
        self._context = context
        self._spool = context.spool
        self._cache = origins.cache
        self._flights = origins.flights
        self._deferral = deferral
        self._feeder = feeder
        self._listings = Listings()
        self._targets = Targets(context.crawl.crawler, context.settings.private_hosts)
        self._pending: dict[Origin, _Pending] = {}
        self._queue: deque[_Pending] = deque()
        """The same, in the order in which they are looked at."""
        self._asked: dict[Origin, _Pending] = {}
        """Those whose robots.txt was asked for and has not come."""
        self._running = False

    def __bool__(self) -> bool:
        """Whether entries wait."""
        return bool(self._pending)

    def recover(self, origins: list[tuple[str, str]]) -> None:
        """Go on with what an earlier run left of these, each with one that has led to it."""
        for origin, by in origins:
            with suppress(ValueError):  # it is none
                self._wait_for(Origin.from_url(origin), by)

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
        self._wait_for(origin, by)
        return None

    def _wait_for(self, origin: Origin, by: str) -> None:
        if origin not in self._pending:
            deadline = time.monotonic() + self._context.settings.defer_max_wait
            self._pending[origin] = pending = _Pending(origin, by, deadline)
            self._queue.append(pending)
            self._go_on_in(0)

    def stop(self) -> None:
        """The crawl ends: what waits is for the next run."""
        self._pending.clear()
        self._queue.clear()

    # One step at a time

    def _go_on_in(self, seconds: float) -> None:
        if not self._running:
            self._running = True
            call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._running = False
        try:
            worked = self._some()
            self._spool.patience.worked("proofs")
        except sqlite3.Error as error:
            seconds = self._spool.patience.failed("proofs", error)
            if seconds is None:
                self.stop()
            else:
                self._go_on_in(seconds)
            return
        if self._queue:
            # A round through the queue takes as long, whatever its length.
            self._go_on_in(0 if worked else _LOOK * _SLICE / max(_SLICE, len(self._queue)))

    def _some(self) -> bool:
        """Look at some. Return whether there was anything to be done."""
        for origin, asked in list(self._asked.items()):
            if not asked.looking_up and origin not in self._flights:
                del self._asked[origin]
        for _ in range(min(_SLICE, len(self._queue))):
            pending = self._queue[0]
            if self._look(pending):
                # One that is begun goes on first: only some listings are kept.
                if pending.origin not in self._pending:
                    self._queue.popleft()
                return True
            self._queue.rotate(-1)
        return False

    def _look(self, pending: _Pending) -> bool:
        """See whether the robots.txt of an origin has come. Return whether entries were settled."""
        origin = pending.origin
        known = None if origin in self._flights else self._cache.get(origin)
        if known is not None and not known.unreachable:
            return not self._listings.of(known).complete() or self._settle(pending, known)
        if pending.refused:
            return self._settle(pending, None, Reason.PRIVATE)
        hopeless = known is not None and not self._deferral.worth_waiting(known)
        if hopeless or time.monotonic() >= pending.deadline:
            return self._settle(pending, None)
        if known is None and origin not in self._asked and len(self._asked) < _AT_A_TIME:
            self._asked[origin] = pending
            pending.looking_up = True
            deferred_from_coro(self._ask(pending))
        return False

    async def _ask(self, pending: _Pending) -> None:
        by = Origin.from_text(pending.by)
        try:
            pending.refused = await self._targets.refuses(pending.origin, by)
        finally:
            pending.looking_up = False
        if pending.origin in self._pending and not pending.refused:  # else the crawl has ended
            self._flights.to(pending.origin)

    def _settle(
        self, pending: _Pending, known: Known | None, reason: Reason = Reason.UNPROVEN
    ) -> bool:
        """Judge some entries of an origin.

        :param known: what is known of it; None if it has no robots.txt to go by
        :param reason: why it has none
        """
        origin = pending.origin
        rows = self._spool.unproven_of(str(origin), _SLICE)
        if not rows:
            del self._pending[origin]
            if known is None:
                self._flights.abandon(origin)  # no waiters left: don't keep the crawl open
        else:
            self._judge(rows, str(origin), known, reason if known is None else Reason.CROSS_HOST)
        self._feeder.wake()
        return True

    def _judge(
        self, rows: list[tuple[int, Row]], origin: str, known: Known | None, reason: Reason
    ) -> None:
        """:param reason: why those are rejected that are not accepted"""
        listing = self._listings.of(known) if known is not None else None
        verdicts: dict[int, bool] = {}
        for sitemap in {row[1] for _, row in rows}:
            chain = self._spool.sitemaps.chain_of(sitemap)
            verdicts[sitemap] = listing is not None and listing.has_any(chain)
        accepted = [row for _, row in rows if verdicts[row[1]]]
        self._spool.settle([number for number, _ in rows], accepted)
        rejected = len(rows) - len(accepted)
        if rejected:
            self._context.stats.inc_value(reason.value, rejected)
        logger.debug(
            "Entries of %(origin)s: %(accepted)d accepted, %(rejected)d not%(why)s",
            {
                "origin": origin,
                "accepted": len(accepted),
                "rejected": rejected,
                "why": f": {reason.text}" if rejected else "",
            },
            extra=self._context.crawl.extra,
        )
