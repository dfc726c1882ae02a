"""Whether a host lists a sitemap itself, so that URLs of that host in it count (REP.md section 9,
"Location scope"). Entries of hosts whose robots.txt is not known wait in the spool, and
:class:`Proofs` has it fetched. `intake.py` asks for verdicts."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import pause, work
from scrapy_rep.origins.flights import StillWaiting
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.discovery import listed_sitemaps
from scrapy_rep.seeding.selection import Reason, host_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.seeding.context import SeedingContext
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.selection import Verdict

logger = get_logger(__name__)

# The most robots.txt files that are asked for at a time for this alone.
_AT_A_TIME = 16
# Seconds until another look at an origin that can't be reached.
_LOOK, _LONGEST_LOOK = 0.05, 0.5
# Entries that are judged before the event loop has its turn.
_SLICE = 200
# Listings that are kept, of the origins that entries were seen of last.
_KEPT = 100


class Listing:
    """The sitemaps of one robots.txt. Hostile files take a second to resolve."""

    def __init__(self, robots_url: str, values: Iterable[str]) -> None:
        self._hashes: set[int] = set()  # URLs can be long
        self._steps = self._resolve(robots_url, values)

    def _resolve(self, robots_url: str, values: Iterable[str]) -> Iterator[None]:
        for _, found in listed_sitemaps(robots_url, values):
            if found is not None:
                self._hashes.add(hash(found.url.partition("#")[0]))
            yield

    def complete(self) -> bool:
        """Work on it, for one slice of time. Return whether it is complete."""
        return work(self._steps)

    def has_any(self, urls: Iterable[str]) -> bool:
        """Whether it lists one of these, once it is complete."""
        return not self._hashes.isdisjoint(map(hash, urls))


class Listings:
    """Makes listings, and keeps some."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[str, str | None], Listing]] = {}

    def of(self, state: OriginState) -> Listing:
        """Return the listing of an origin's robots.txt."""
        kept = self._kept.pop(state.name, None)
        url = state.entry.url or state.origin.robots_url
        file = url, state.entry.sha256  # not the entry, which holds the body
        if kept is None or kept[0] != file:
            values = state.robots.sitemaps if state.robots is not None else ()
            kept = file, Listing(url, values)
        self._kept[state.name] = kept  # the last one again
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return kept[1]


class _Pending(NamedTuple):
    """An origin whose entries wait."""

    origin: Origin
    by: Origin
    """The one whose sitemaps have named it."""
    deadline: float


class Proofs:
    """Knows which origin lists which sitemaps, or finds out."""

    def __init__(self, context: SeedingContext, origins: Origins, feeder: Feeder) -> None:
        self._context = context
        self._spool = context.spool
        self._cache = origins.cache
        self._flights = origins.flights
        self._policy = origins.policy
        self._feeder = feeder
        self._listings = Listings()
        self._targets = Targets(context.crawl.crawler, context.crawl.settings.private_hosts)
        self._pending: set[Origin] = set()
        self._queue: deque[_Pending] = deque()
        self._active = 0

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
        state = self._cache.get(origin)
        listing = None if state is None or state.unreachable else self._listings.of(state)
        if listing is not None and listing.complete():
            return True if listing.has_any(chain) else Reason.CROSS_HOST
        if listing is None and not self._spool.sitemaps.may_name(by, host_of(origin)):
            return Reason.HOSTS
        self._wait_for(origin, by)
        return None

    def stop(self) -> None:
        """The crawl ends: what waits is for the next run."""
        self._pending.clear()
        self._queue.clear()

    def _wait_for(self, origin: Origin, by: str) -> None:
        if origin not in self._pending:
            self._pending.add(origin)
            deadline = time.monotonic() + self._context.crawl.settings.defer_max_wait
            self._put(_Pending(origin, Origin.from_text(by), deadline))

    def _put(self, pending: _Pending) -> None:
        if pending.origin in self._pending:
            self._queue.append(pending)
            self._begin()

    def _begin(self) -> None:
        while self._queue and self._active < _AT_A_TIME:
            self._active += 1
            deferred_from_coro(self._look(self._queue.popleft()))

    async def _look(self, pending: _Pending) -> None:
        """Find out what an origin lists and judge its entries, or look again later."""
        again = None
        try:
            await pause()  # until the entries are in the spool
            again = await self._try(pending)
        except sqlite3.Error:
            self.stop()
        finally:
            self._active -= 1
            if again is None:
                self._pending.discard(pending.origin)
            else:
                call_later(again, self._put, pending)
            self._begin()

    async def _try(self, pending: _Pending) -> float | None:
        """Return after how many seconds to try again; None: not at all."""
        origin, reason = pending.origin, Reason.UNPROVEN
        state = self._cache.get(origin)
        left = pending.deadline - time.monotonic()
        if state is None and left > 0:
            if await self._targets.refuses(origin, pending.by):
                reason = Reason.PRIVATE
            elif origin in self._pending:
                try:
                    state = await self._flights.to(origin).wait(left)
                except StillWaiting:
                    pass
                except Exception:  # noqa: BLE001
                    return _LONGEST_LOOK  # a misconfiguration, say, which is logged elsewhere
        if state is not None and state.unreachable:
            if self._policy.is_worth_waiting(state) and time.monotonic() < pending.deadline:
                seconds = state.usable_until - self._context.crawl.clock()
                return min(max(seconds, _LOOK), _LONGEST_LOOK)
            state = None
        await self._settle(origin, state, reason if state is None else Reason.CROSS_HOST)
        return None

    async def _settle(self, origin: Origin, state: OriginState | None, reason: Reason) -> None:
        """Judge the entries of an origin.

        :param state: what is known of it; None if it has no robots.txt to go by
        :param reason: why those are rejected that are not accepted
        """
        listing = self._listings.of(state) if state is not None else None
        while listing is not None and not listing.complete():
            await pause()
        judge = partial(self._judge, str(origin), listing, reason)
        while origin in self._pending and await self._spool.patience.retry("proofs", judge):
            self._feeder.wake()
            await pause()
        if state is None:
            self._flights.abandon(origin)  # no waiters left: don't keep the crawl open
        self._feeder.wake()

    def _judge(self, origin: str, listing: Listing | None, reason: Reason) -> bool:
        """Judge some. Return False if there are none."""
        rows = self._spool.unproven_of(origin, _SLICE)
        verdicts: dict[int, bool] = {}
        for sitemap in {row[1] for _, row in rows}:
            chain = self._spool.sitemaps.chain_of(sitemap)
            verdicts[sitemap] = listing is not None and listing.has_any(chain)
        accepted = [row for _, row in rows if verdicts[row[1]]]
        self._spool.settle([number for number, _ in rows], accepted)
        rejected = len(rows) - len(accepted)
        if rejected:
            self._context.crawl.stats.inc_value(reason.value, rejected)
        if rows:
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
        return bool(rows)
