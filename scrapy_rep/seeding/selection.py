"""Which entries of a sitemap become requests, and why the others do not (REP.md section 9). Those
on another host wait in the spool until it is known whether that host lists the sitemap ("Location
scope")."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any

from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import DeferredSemaphore

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.origins.flights import StillWaiting
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.targets import registrable_domain
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.entries import Entry, Kind
from scrapy_rep.protocol.freshness import latest
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.seeding.discovery import listed_sitemaps
from scrapy_rep.seeding.spool import Row, SeedingContext, SitemapRow, strings
from scrapy_rep.text import PageURLs, resolve_sitemap

logger = get_logger(__name__)

# Characters of an entry's JSON that a page's request carries; that all its requests carry.
_MAX_ENTRY, _MAX_ENTRIES = 65_536, 1 << 20
_MAX_DATE, _MAX_ALTERNATES = 100, 1000
# URL prefixes whose verdict is remembered while a sitemap is read.
_PREFIXES = 10_000
# Entries that are written at a time, while the event loop waits. Each may be on another host.
_AT_A_TIME = 200
# robots.txt files that are fetched for this at a time.
_FETCHES = 16
# Seconds between looks at an unreachable origin: at least, at most.
_LOOK, _LONGEST_LOOK = 0.05, 0.5
# Entries that are accepted or rejected before the event loop has its turn.
_SLICE = 200
# Listings that are kept, and sitemaps that are watched.
_KEPT, _EXPECTED = 100, 1000


class Reason(Enum):
    """Why an entry is rejected, for the log."""

    INVALID = "not an absolute http(s) URL"
    BROKEN = "damaged by broken XML"
    FILTERED = "dropped by sitemap_filter"
    FILTER_ERROR = "sitemap_filter raised"
    OLD = "older than REP_SITEMAP_SINCE"
    NO_RULE = "not in sitemap_rules"
    NOT_FOLLOWED = "not in sitemap_follow"
    CROSS_HOST = "on a host that does not list the sitemap"
    HOSTS = "on a host beyond the first 100 that one origin's sitemaps may name"
    PRIVATE = "on a host with a private address"
    UNPROVEN = "on a host whose robots.txt can't be fetched"
    KNOWN = "already known"
    DEPTH = "nested deeper than REP_SITEMAP_MAX_DEPTH"
    LIMIT = "beyond a limit for this origin"

    @property
    def stat(self) -> str:
        return f"rep/sitemaps/rejected/{self.name.lower()}"


CHOSEN = {
    Reason.FILTERED, Reason.OLD, Reason.NO_RULE, Reason.NOT_FOLLOWED, Reason.KNOWN
}  # fmt: skip
"""Reasons that the project has chosen, or by which nothing is lost."""

Verdict = Reason | bool | None
"""On an entry. True: accepted; a reason: rejected; None: not known yet."""


def host_of(origin: Origin) -> str:
    """Return the host as in REP.md section 9: the same for http and https, not for other ports."""
    default = origin.port == {"http": 80, "https": 443}.get(origin.scheme)
    return origin.host if default else f"{origin.host}:{origin.port}"


def entry_as_json(entry: Entry, pages: int) -> str:
    """Return an entry, without its URL, as JSON; what JSON doesn't know becomes text. Of an entry
    too long for its *pages*, the requests that get it, only ``lastmod`` is left."""
    text = ""
    with suppress(TypeError, ValueError, RecursionError):
        rest = {name: value for name, value in entry.items() if name != "loc"}
        text = json.dumps(rest, default=str, skipkeys=True)
    if text and len(text) <= _MAX_ENTRY and len(text) * pages <= _MAX_ENTRIES:
        return text
    lastmod = entry.get("lastmod")
    return json.dumps({"lastmod": str(lastmod)[:_MAX_DATE]} if lastmod else {})


class Selection:
    """Selects entries of one sitemap, and puts them into the spool."""

    def __init__(
        self,
        context: SeedingContext,
        sitemap: SitemapRow,
        reader: SitemapReader,
        verdict: Callable[[Origin, SitemapRow], Verdict],
    ) -> None:
        """*verdict* on entries of another origin: ``Verifier.verdict``."""
        self._sitemap = sitemap
        self._reader = reader
        self._spool = context.spool
        self._settings = context.crawl.settings
        self._options = context.options
        self._discovery = context.discovery
        self._verdict = verdict
        led_here = Origin.from_url(sitemap.origin)
        self._host = host_of(led_here)
        near = self._settings.sitemap_cross_host == "site"
        self._domain = registrable_domain(led_here.host) if near else None
        _, self._urls = context.spool.sitemaps.counts(sitemap.origin)
        self._pending: deque[tuple[Any, str | None]] = deque()
        """URLs; those of pages with the JSON of their entries."""
        self._page_urls = PageURLs()
        self._by_prefix: dict[str, tuple[int, Verdict]] = {}
        self.accepted = 0
        self.unproven = 0  # how many of these wait for the robots.txt of their host
        self.rejected: Counter[Reason] = Counter()
        self.undated = 0  # entries whose lastmod is not a date

    def add(self, entries: list[Entry]) -> None:
        """Filter *entries*; :meth:`write` writes those that are left."""
        kind = self._reader.kind
        sound = [entry for entry in entries if not entry.get("broken")]
        self.rejected[Reason.BROKEN] += len(entries) - len(sound)
        log = not self.rejected[Reason.FILTER_ERROR]
        kept, failed = self._options.filtered(sound, kind.value if kind else "", log=log)
        self.rejected[Reason.FILTER_ERROR] += failed
        self.rejected[Reason.FILTERED] += max(0, len(sound) - len(kept) - failed)
        recent = [entry for entry in kept if not self._is_old(entry)]
        self.rejected[Reason.OLD] += len(kept) - len(recent)
        for entry in recent:
            urls, text = [entry.get("loc")], None
            if kind is not Kind.INDEX:
                if self._options.alternate_links:
                    urls += strings(entry.get("alternate"))[:_MAX_ALTERNATES]
                text = entry_as_json(entry, len(urls))
            self._pending.extend((url, text) for url in urls)

    def _is_old(self, entry: Entry) -> bool:
        since, lastmod = self._settings.sitemap_since, entry.get("lastmod")
        if not since or not lastmod:
            return False
        changed = latest(str(lastmod))
        self.undated += changed is None
        return changed is not None and changed < since

    def write(self) -> bool:
        """Write some of what was added to the spool, for one slice of time. Return whether there is
        more. After a ``sqlite3.Error``, call it again."""
        urls, rejected = self._urls, Counter(self.rejected)
        is_index = self._reader.kind is Kind.INDEX
        look = self._sitemap_of if is_index else self._page_of
        accepted: list[Any] = []
        slices, done = Slices(), 0
        try:
            for value, entry in islice(self._pending, _AT_A_TIME):
                done += 1
                found = look(value, entry)
                if isinstance(found, Reason):
                    self.rejected[found] += 1
                else:
                    accepted.append(found)
                if slices.over:
                    break
            (self._add_sitemaps if is_index else self._add_pages)(accepted)
        except sqlite3.Error:
            self._urls, self.rejected = urls, rejected
            raise
        for _ in range(done):
            self._pending.popleft()
        return bool(self._pending)

    def _sitemap_of(self, loc: Any, _: str | None) -> tuple[str, str] | Reason:
        """Return the URL of a sitemap, and the origin that it is fetched from."""
        try:
            found = resolve_sitemap(str(loc).strip(), encode=self._page_urls.encode)
        except ValueError:
            return Reason.INVALID
        url = found.url.partition("#")[0]
        if not self._options.follows(url):
            return Reason.NOT_FOLLOWED
        too_deep = len(self._sitemap.line) >= self._settings.sitemap_max_depth
        return Reason.DEPTH if too_deep else (url, str(found.origin))

    def _add_sitemaps(self, accepted: list[tuple[str, str]]) -> None:
        most = self._settings.sitemap_max_files
        add = self._spool.sitemaps.add
        new, beyond = add(self._sitemap.origin, dict(accepted), self._sitemap.line, most=most)
        self.rejected[Reason.LIMIT] += len(beyond)
        self.rejected[Reason.KNOWN] += len(accepted) - len(new) - len(beyond)
        self.accepted += len(new)
        for url in new:
            self._discovery.count(url)

    def _page_of(self, value: Any, entry: str | None) -> tuple[Row, bool] | Reason:
        """Return the row of a page, and whether its host is known to list the sitemap."""
        try:
            url, prefix = self._page_urls.resolve(value)
            site, verdict = self._by_prefix.get(prefix) or self._judge(prefix)
        except ValueError:
            return Reason.INVALID
        if not self._options.callback_for(url)[0]:
            return Reason.NO_RULE
        if isinstance(verdict, Reason):
            return verdict
        if self._urls >= self._settings.sitemap_max_origin_urls:
            return Reason.LIMIT
        self._urls += 1
        return (site, self._sitemap.id, url, entry), verdict is True

    def _add_pages(self, accepted: list[tuple[Row, bool]]) -> None:
        pages = [row for row, is_proven in accepted if is_proven]
        unproven = [row for row, is_proven in accepted if not is_proven]
        self._spool.add_pages(self._sitemap.origin, pages, unproven)
        self.accepted += len(accepted)
        self.unproven += len(unproven)

    def _judge(self, prefix: str) -> tuple[int, Verdict]:
        """Return the site number of URLs with this prefix, and the verdict on them."""
        origin, mode = Origin.from_url(prefix), self._settings.sitemap_cross_host
        verdict: Verdict = True
        near = mode == "any" or host_of(origin) == self._host
        if mode == "site" and registrable_domain(origin.host) == self._domain is not None:
            near = True
        if not near:
            verdict = self._verdict(origin, self._sitemap)
        site = 0 if isinstance(verdict, Reason) else self._spool.site(str(origin))
        # If it isn't known yet, it may be while the sitemap is being read.
        if verdict is not None and len(self._by_prefix) < _PREFIXES:
            self._by_prefix[prefix] = site, verdict
        return site, verdict


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
        slices = Slices()
        return not any(slices.over for _ in self._steps)

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
    """Checks whether an origin lists a sitemap, and settles the entries that wait for that."""

    def __init__(
        self, context: SeedingContext, origins: Origins, warn: Callable[..., None]
    ) -> None:
        """*warn* logs a problem: ``SitemapLog.warn``."""
        self._crawl = context.crawl
        self._spool = context.spool
        self._origins = origins
        self._warn = warn
        self._listings = Listings()
        self.targets = origins.targets
        self._turns = DeferredSemaphore(_FETCHES)
        self._pending: dict[Origin, tuple[Origin, float]] = {}
        """Origins whose entries wait: for each, an origin whose sitemap named it, and the deadline."""
        self._open: dict[int, float] = {}
        """For each sitemap all of whose entries wait: how many. Negative until all of it is read,
        and if any was accepted."""

    def __bool__(self) -> bool:
        return bool(self._pending)

    def recover(self, origins: list[tuple[str, str]]) -> None:
        """Go on with *origins* that an earlier run left, each with one whose sitemap named it."""
        for origin, by in origins:
            with suppress(ValueError):
                self._wait_for(Origin.from_url(origin), by)

    def verdict(self, origin: Origin, sitemap: SitemapRow) -> Verdict:
        """Return whether *origin*'s robots.txt lists *sitemap*, or an index that led to it;
        ``sqlite3.Error`` if the spool can't be read."""
        state = self._origins.cache.get(origin)
        listing = None if state is None or state.unreachable else self._listings.of(state)
        if listing is not None and listing.complete():
            self.targets.keep(origin)
            return True if listing.has_any(sitemap.line) else Reason.CROSS_HOST
        if listing is None and not self._spool.sitemaps.may_name(sitemap.origin, host_of(origin)):
            return Reason.HOSTS
        self._wait_for(origin, sitemap.origin)
        return None

    def expect(self, sitemap: SitemapRow, count: int) -> None:
        """Note that all *count* accepted entries of *sitemap* wait, or waited."""
        self._settled(sitemap, -count, Reason.CROSS_HOST)

    def _settled(self, sitemap: SitemapRow, rejected: float, reason: Reason) -> None:
        left = self._open[sitemap.id] = self._open.pop(sitemap.id, 0) - rejected
        if len(self._open) > _EXPECTED:
            del self._open[next(iter(self._open))]
        if left == 0:  # all of them waited, and none was accepted
            self._crawl.stats.inc_value("rep/sitemaps/nothing_taken")
            message = "Nothing was taken from sitemap %(url)s: its entries are %(why)s"
            self._warn(sitemap.origin, message, url=sitemap.url, why=reason.value)

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
                turn = self._turns.run(lambda: deferred_from_coro(self._try(origin)))
                seconds = await maybe_deferred_to_future(turn)
        except sqlite3.Error:
            self.stop()
        finally:
            self._pending.pop(origin, None)
            if not self._pending:
                self._crawl.engine.wake()  # the crawl may be over

    async def _try(self, origin: Origin) -> float | None:
        """Return the seconds until the next try; None if no other is needed."""
        await pause()  # until the entries are in the spool
        if origin not in self._pending:
            return None
        by, deadline = self._pending[origin]
        state, reason = self._origins.cache.get(origin), Reason.UNPROVEN
        left = deadline - time.monotonic()
        if state is None and left > 0:
            if await self.targets.refuses(origin, by):
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
        """Accept the entries of *origin* whose sitemap its robots.txt lists, and reject the others,
        with the *reason*. *state*: None if the robots.txt can't be fetched."""
        listing = self._listings.of(state) if state is not None else None
        while listing is not None and not listing.complete():
            await pause()
        retry = self._spool.retry
        while origin in self._pending and await retry(self._judge, str(origin), listing, reason):
            await pause()
        if state is None:
            self._origins.flights.abandon(origin)  # no waiters left: don't keep the crawl open

    def _judge(self, origin: str, listing: Listing | None, reason: Reason) -> bool:
        """Settle some entries. Return False if there are none."""
        rows = self._spool.unproven_of(origin, _SLICE)
        if not rows:
            return False
        sitemaps = {row[1]: self._spool.sitemaps.of_row(row[1]) for _, row in rows}
        listed = {
            number
            for number, sitemap in sitemaps.items()
            if listing and listing.has_any(sitemap.line)
        }
        accepted = [row for _, row in rows if row[1] in listed]
        self._spool.settle([number for number, _ in rows], accepted)
        for number, count in Counter(row[1] for _, row in rows).items():
            self._settled(sitemaps[number], math.inf if number in listed else count, reason)
        rejected = len(rows) - len(accepted)
        if rejected:
            self._crawl.stats.inc_value(reason.stat, rejected)
        why = f": {reason.value}" if rejected else ""
        logger.debug(
            "Entries of %(origin)s: %(accepted)d accepted, %(rejected)d rejected%(why)s",
            {"origin": origin, "accepted": len(accepted), "rejected": rejected, "why": why},
            extra=self._crawl.extra,
        )
        return True
