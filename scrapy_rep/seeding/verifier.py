"""Checks whether a host lists a sitemap itself: then entries of that host count (REP.md section 9,
"Location scope"). Entries of hosts whose robots.txt is unknown wait in the spool until it is known."""

from __future__ import annotations

import math
import sqlite3
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import DeferredSemaphore

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import pause, work
from scrapy_rep.origins.flights import StillWaiting
from scrapy_rep.origins.targets import Refusal
from scrapy_rep.protocol import Origin
from scrapy_rep.seeding.discovery import listed_sitemaps
from scrapy_rep.seeding.selection import Reason, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.selection import Verdict
    from scrapy_rep.seeding.spool import SeedingContext

logger = get_logger(__name__)

# robots.txt files that are fetched for this at a time.
_AT_A_TIME = 16
# Seconds between looks at an unreachable origin: at least, at most.
_LOOK, _LONGEST_LOOK = 0.05, 0.5
# Entries that are accepted or rejected before the event loop has its turn.
_SLICE = 200
# Listings that are kept, and sitemaps that are watched.
_KEPT, _EXPECTED = 100, 1000


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
        """Resolve URLs for one slice of time. Return whether that was all."""
        return work(self._steps)

    def has_any(self, urls: Iterable[str]) -> bool:
        """Whether it lists one of *urls*, once it is complete."""
        return not self._hashes.isdisjoint(map(hash, urls))


class Listings:
    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], Listing] = {}

    def of(self, state: OriginState) -> Listing:
        url = state.entry.url or state.origin.robots_url
        file = url, state.entry.sha256  # not the entry, which holds the body
        listing = self._kept.pop(file, None)
        if listing is None:
            listing = Listing(url, state.robots.sitemaps if state.robots is not None else ())
        self._kept[file] = listing
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return listing


class Verifier:
    """Checks whether an origin lists a sitemap."""

    def __init__(self, context: SeedingContext, origins: Origins, feeder: Feeder) -> None:
        self._crawl = context.crawl
        self._spool = context.spool
        self._origins = origins
        self._feeder = feeder
        self._listings = Listings()
        self.targets = origins.targets
        self._turns = DeferredSemaphore(_AT_A_TIME)
        self._pending: dict[Origin, tuple[Origin, float]] = {}
        """Origins whose entries wait. For each: an origin whose sitemap named it, and the deadline."""
        self._expected: dict[int, tuple[int, Callable[[Reason], None]]] = {}
        """Sitemaps all of whose entries wait. For each: how many, and what to call if none is accepted."""
        self._rejected: dict[int, float] = {}
        """How many entries of each sitemap were rejected; less than nothing if any was accepted."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    def recover(self, origins: list[tuple[str, str]]) -> None:
        """Go on with the origins that an earlier run left.

        :param origins: each with one whose sitemap named it
        """
        for origin, by in origins:
            with suppress(ValueError):
                self._wait_for(Origin.from_url(origin), by)

    def verdict(self, origin: Origin, by: str, chain: tuple[str, ...]) -> Verdict:
        """Return whether *origin*'s robots.txt lists one of the sitemaps in *chain*.

        :param by: the origin whose robots.txt led to them
        :raises sqlite3.Error: if the spool can't be read
        """
        state = self._origins.cache.get(origin)
        listing = None if state is None or state.unreachable else self._listings.of(state)
        if listing is not None and listing.complete():
            self.targets.keep(origin)
            return True if listing.has_any(chain) else Reason.CROSS_HOST
        if listing is None and not self._spool.sitemaps.may_name(by, host_of(origin)):
            return Reason.HOSTS
        self._wait_for(origin, by)
        return None

    def expect(self, sitemap: int, count: int, none: Callable[[Reason], None]) -> None:
        """Call *none* if none of the *count* entries of a sitemap, which all wait, is accepted."""
        if len(self._expected) < _EXPECTED:
            self._expected[sitemap] = count, none
            self._tell(sitemap, Reason.CROSS_HOST)

    def _note(self, sitemap: int, rejected: float, reason: Reason) -> None:
        self._rejected[sitemap] = self._rejected.pop(sitemap, 0) + rejected
        if len(self._rejected) > _EXPECTED:
            del self._rejected[next(iter(self._rejected))]
        self._tell(sitemap, reason)

    def _tell(self, sitemap: int, reason: Reason) -> None:
        """Call what expects a sitemap's entries to be accepted, if none is."""
        rejected = self._rejected.get(sitemap, 0)
        if sitemap in self._expected and not 0 <= rejected < self._expected[sitemap][0]:
            _, none = self._expected.pop(sitemap)
            if rejected > 0:
                none(reason)

    def stop(self) -> None:
        """Check nothing more: the crawl is closing, and what waits is for the next run."""
        self._pending.clear()

    def _wait_for(self, origin: Origin, by: str) -> None:
        if origin not in self._pending:
            deadline = time.monotonic() + self._crawl.settings.defer_max_wait
            self._pending[origin] = Origin.from_text(by), deadline
            deferred_from_coro(self._verify(origin))

    async def _verify(self, origin: Origin) -> None:
        """Accept or reject the entries of *origin* once it is known what it lists, or it is too late."""
        seconds: float | None = 0.0
        try:
            while origin in self._pending and seconds is not None:
                await pause(seconds)
                seconds = await self._take_turn(origin)
        except sqlite3.Error:
            self.stop()
        finally:
            self._pending.pop(origin, None)
            if not self._pending:
                self._crawl.engine.wake()  # the crawl may be over

    async def _take_turn(self, origin: Origin) -> float | None:
        """Return the seconds until the next turn; None if no other is needed."""
        await maybe_deferred_to_future(self._turns.acquire())
        try:
            await pause()  # until the entries are in the spool
            return (
                await self._try(origin, *self._pending[origin]) if origin in self._pending else None
            )
        finally:
            self._turns.release()

    async def _try(self, origin: Origin, by: Origin, deadline: float) -> float | None:
        state, reason = self._origins.cache.get(origin), Reason.UNPROVEN
        left = deadline - time.monotonic()
        if state is None and left > 0:
            # If its name can't be resolved, its robots.txt can't be fetched either, and the policy says how
            # often to try.
            if await self.targets.refusal(origin, by) is Refusal.PRIVATE:
                reason = Reason.PRIVATE
            elif origin in self._pending:
                try:
                    state = await self._origins.flights.to(origin).wait(left)
                except StillWaiting:
                    pass
                except Exception:  # noqa: BLE001 (a misconfiguration, which is logged elsewhere)
                    return _LONGEST_LOOK
        if state is not None and state.unreachable:
            if self._origins.policy.is_worth_waiting(state) and time.monotonic() < deadline:
                seconds = state.usable_until - self._crawl.clock()
                return min(max(seconds, _LOOK), _LONGEST_LOOK)
            state = None
        await self._settle(origin, state, reason if state is None else Reason.CROSS_HOST)
        return None

    async def _settle(self, origin: Origin, state: OriginState | None, reason: Reason) -> None:
        """Accept the entries of *origin* whose sitemap its robots.txt lists, and reject the others.

        :param state: None if the robots.txt can't be fetched
        :param reason: why entries are rejected
        """
        listing = self._listings.of(state) if state is not None else None
        while listing is not None and not listing.complete():
            await pause()
        retry = self._spool.retry
        while origin in self._pending and await retry(self._judge, str(origin), listing, reason):
            self._feeder.wake()
            await pause()
        if state is None:
            self._origins.flights.abandon(origin)  # no waiters left: don't keep the crawl open
        self._feeder.wake()

    def _judge(self, origin: str, listing: Listing | None, reason: Reason) -> bool:
        """Settle some entries. Return False if there are none."""
        rows = self._spool.unproven_of(origin, _SLICE)
        if not rows:
            return False
        listed = {
            sitemap
            for sitemap in {row[1] for _, row in rows}
            if listing and listing.has_any(self._spool.sitemaps.chain_of(sitemap))
        }
        accepted = [row for _, row in rows if row[1] in listed]
        self._spool.settle([number for number, _ in rows], accepted)
        for sitemap, count in Counter(row[1] for _, row in rows).items():
            self._note(sitemap, -math.inf if sitemap in listed else count, reason)
        rejected = len(rows) - len(accepted)
        if rejected:
            self._crawl.stats.inc_value(reason.value, rejected)
        why = f": {reason.text}" if rejected else ""
        logger.debug(
            "Entries of %(origin)s: %(accepted)d accepted, %(rejected)d rejected%(why)s",
            {"origin": origin, "accepted": len(accepted), "rejected": rejected, "why": why},
            extra=self._crawl.extra,
        )
        return True
