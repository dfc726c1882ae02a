"""Which entries of a sitemap become requests, and why the others do not (REP.md section 9). Those
on another host wait in the spool until it is known whether that host lists the sitemap ("Location
scope")."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro
from tldextract import TLDExtract

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.timers import in_slices, pause
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import StillWaiting
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.entries import Kind, SitemapEntry
from scrapy_rep.protocol.freshness import latest
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.seeding.discovery import listed_by
from scrapy_rep.seeding.spool import Found, Row, SeedingContext, Site, SitemapRow
from scrapy_rep.text import MAX_LISTED_IDN, Encoder, counted, resolve_sitemap

logger = get_logger(__name__)

# Characters of an entry's JSON that a page's request carries; that all its requests carry.
_MAX_ENTRY, _MAX_ENTRIES = 65_536, 1 << 20
_MAX_DATE, _MAX_ALTERNATES = 100, 1000
_encode = json.JSONEncoder(default=str, skipkeys=True).encode
# URL prefixes whose verdict is remembered while a sitemap is read.
_PREFIXES = 10_000
# Entries that are accepted or rejected after a wait before the event loop has its turn.
_AT_A_TIME = 200
# Origins that are asked for proof at a time. Of those, and of the silent ones, that one origin names there
# are no more than the places that are left, so that there is always one for those that another names.
_ORIGINS = 16
# Seconds after which an origin counts as silent, and no longer takes the place of others.
_SILENT_SECONDS = 2.0
# Silent origins whose answer is awaited.
_SILENT = 128
# Sites of one source that a step looks at.
_LOOKS = 128
# Seconds until the next look at an unreachable origin.
_LOOK = 0.25
# Warnings per origin: an index may list 50,000 missing sitemaps. Others share one limit.
_WARNINGS, _MOST = 5, 10_000


class Reason(Enum):
    """Why an entry is rejected, for the log."""

    INVALID = "not an absolute http(s) URL"
    BROKEN = "damaged by broken XML"
    FILTERED = "dropped by sitemap_filter"
    FILTER_ERROR = "sitemap_filter raised"
    OLD = "older than REP_SITEMAP_SINCE"
    NEW = "not older than REP_SITEMAP_UNTIL"
    NO_RULE = "not in sitemap_rules"
    NOT_FOLLOWED = "not in sitemap_follow"
    CROSS_HOST = "on a host that does not list the sitemap"
    HOSTS = "on a host beyond the first 100 that one origin's sitemaps may name"
    PRIVATE = "on a host with a private address"
    UNPROVEN = "on a host whose robots.txt can't be fetched"
    KNOWN = "already known"
    START = "a start request"
    DEPTH = "nested too deep"
    LIMIT = "beyond a limit for this origin"

    @property
    def stat(self) -> str:
        return f"rep/sitemaps/rejected/{self.name.lower()}"


CHOSEN = {
    Reason.FILTERED,
    Reason.OLD,
    Reason.NEW,
    Reason.NO_RULE,
    Reason.NOT_FOLLOWED,
    Reason.KNOWN,
    Reason.START,
}
"""Reasons that the project has chosen, or by which nothing is lost."""


def host_of(origin: Origin) -> str:
    """Return the host as in REP.md section 9: the same for http and https, not for other ports."""
    default = origin.port == {"http": 80, "https": 443}.get(origin.scheme)
    return origin.host if default else f"{origin.host}:{origin.port}"


def entry_as_json(entry: SitemapEntry, pages: int) -> str:
    """Return an entry, without its URL, as JSON; what JSON doesn't know becomes text. Of an entry
    too long for its *pages*, the requests that get it, only ``lastmod`` is left."""
    rest = {name: value for name, value in entry.items() if name != "loc"}
    lastmod = rest.get("lastmod")
    if not lastmod:
        rest.pop("lastmod", None)
    with suppress(TypeError, ValueError, RecursionError):
        text = _encode(rest)
        if len(text) <= _MAX_ENTRY and len(text) * pages <= _MAX_ENTRIES:
            return text
    return _encode({"lastmod": str(lastmod)[:_MAX_DATE]} if lastmod else {})


class Selection:
    """Selects entries of one sitemap, and puts them into the spool."""

    def __init__(
        self, context: SeedingContext, sitemap: SitemapRow, reader: SitemapReader
    ) -> None:
        self.sitemap = sitemap
        self.reader = reader
        self._spool = context.spool
        self._settings = context.crawl.settings
        self._since = context.since.date
        self._options = context.options
        self._discovery = context.discovery
        self._cache = context.origins.cache
        led_here = Origin.from_url(sitemap.origin)
        self._host = host_of(led_here)
        near = self._settings.sitemap_cross_host == "site"
        self._domain = registrable_domain(led_here.host) if near else None
        _, self._origin_urls = context.spool.counts(sitemap.origin)
        self._encode = Encoder(MAX_LISTED_IDN)
        self._by_prefix: dict[str, tuple[int, bool] | Reason] = {}
        self.accepted = 0
        self.unproven = 0  # how many of these wait for the robots.txt of their host
        self.rejected: Counter[Reason] = Counter()
        self.undated = 0  # entries whose lastmod is not a date

    async def add(self, entries: list[SitemapEntry]) -> None:
        """Put those of *entries* that are accepted into the spool; ``sqlite3.Error`` if that ends."""
        is_index = self.reader.kind is Kind.INDEX
        accepted: list[Any] = []
        async for url, text in in_slices(self._urls(self._filtered(entries))):
            found = (
                self._sitemap_of(url) if is_index else await self._page_of(url, text)
            )
            if isinstance(found, Reason):
                self.rejected[found] += 1
            else:
                accepted.append(found)
        if accepted:
            write = self._add_sitemaps if is_index else self._add_pages
            await self._spool.retry(write, accepted)

    def _filtered(self, entries: list[SitemapEntry]) -> list[SitemapEntry]:
        kind = self.reader.kind
        sound = [entry for entry in entries if not entry.get("broken")]
        self.rejected[Reason.BROKEN] += len(entries) - len(sound)
        kept, failed = self._options.filtered(
            sound, kind.value if kind else "", self.sitemap.url
        )
        self.rejected[Reason.FILTER_ERROR] += failed
        self.rejected[Reason.FILTERED] += max(0, len(sound) - len(kept) - failed)
        if not (self._since or self._settings.sitemap_until):
            return kept
        chosen = []
        for entry in kept:
            reason = self._wrong_date(entry)
            if reason is None:
                chosen.append(entry)
            else:
                self.rejected[reason] += 1
        return chosen

    def _wrong_date(self, entry: SitemapEntry) -> Reason | None:
        """Return why the project doesn't want a page that was changed then; None if it does, or if the
        date is missing or can't be read. An index may have been changed since it got a page."""
        since, until = self._since, self._settings.sitemap_until
        lastmod = entry.get("lastmod")
        if not lastmod:
            return None
        changed = latest(str(lastmod))
        if changed is None:
            self.undated += 1
            return None
        if since and changed < since:
            return Reason.OLD
        if until and changed >= until and self.reader.kind is not Kind.INDEX:
            return Reason.NEW
        return None

    def _urls(self, entries: list[SitemapEntry]) -> Iterator[tuple[Any, str]]:
        """Yield the URLs of *entries*, with what their pages' requests carry, as JSON."""
        if self.reader.kind is Kind.INDEX:
            yield from ((entry.get("loc"), "") for entry in entries)
            return
        for entry in entries:
            urls, others = [entry.get("loc")], entry.get("alternate")
            if self._options.alternate_links and isinstance(others, list | tuple):
                urls += others[:_MAX_ALTERNATES]
            text = entry_as_json(entry, len(urls))
            yield from ((url, text) for url in urls)

    def _sitemap_of(self, loc: Any) -> tuple[str, str] | Reason:
        """Return the URL of a sitemap, and the origin that it is fetched from."""
        try:
            found = resolve_sitemap(str(loc).strip(), encode=self._encode)
        except ValueError:
            return Reason.INVALID
        url = found.url.partition("#")[0]
        if not self._options.follows(url):
            return Reason.NOT_FOLLOWED
        too_deep = len(self.sitemap.line) >= self._settings.sitemap_max_depth
        return Reason.DEPTH if too_deep else (url, str(found.origin))

    def _add_sitemaps(self, accepted: list[tuple[str, str]]) -> None:
        most = self._settings.sitemap_max_files
        add = self._spool.add_sitemaps
        new, beyond = add(
            self.sitemap.origin, dict(accepted), self.sitemap.line, most=most
        )
        self.rejected[Reason.LIMIT] += len(beyond)
        self.rejected[Reason.KNOWN] += len(accepted) - len(new) - len(beyond)
        self.accepted += len(new)
        for url in new:
            self._discovery.count(url)

    async def _page_of(self, value: Any, entry: str) -> tuple[Row, bool] | Reason:
        """Return the row of a page, and whether its host has to list the sitemap."""
        try:
            url, prefix = self._encode.page(value)
            found = self._by_prefix.get(prefix)
            if found is None:
                found = await self._spool.retry(self._judge, prefix)
        except ValueError:
            return Reason.INVALID
        if not self._options.callback_for(url)[0]:
            return Reason.NO_RULE
        if isinstance(found, Reason):
            return found
        if self._origin_urls >= self._settings.sitemap_max_origin_urls:
            return Reason.LIMIT
        self._origin_urls += 1
        return (found[0], self.sitemap.id, url, entry), found[1]

    def _add_pages(self, accepted: list[tuple[Row, bool]]) -> None:
        self._spool.add_pages(self.sitemap.origin, [row for row, _ in accepted])
        self.accepted += len(accepted)
        self.unproven += sum(unproven for _, unproven in accepted)

    def _judge(self, prefix: str) -> tuple[int, bool] | Reason:
        """Return the site of URLs with this prefix, and whether its host has to list the sitemap;
        or why they are rejected."""
        origin, mode = Origin.from_url(prefix), self._settings.sitemap_cross_host
        near = mode == "any" or host_of(origin) == self._host
        if (
            mode == "site"
            and registrable_domain(origin.host) == self._domain is not None
        ):
            near = True
        state = None if near else self._cache.get(origin)
        known = state is not None and not state.unreachable
        site = self._spool.site(
            str(origin), self.sitemap.origin, proven=near, known=known
        )
        found = Reason.HOSTS if site is None else (site, not near)
        if len(self._by_prefix) < _PREFIXES:
            self._by_prefix[prefix] = found
        return found


class SitemapLog:
    """Reports what became of sitemaps: in the log, the stats and the record."""

    def __init__(self, context: CrawlContext, tell: Callable[..., None]) -> None:
        """*tell* puts a line on record: ``Recorder.tell``."""
        self._context = context
        self._tell = tell
        self.has_read = False
        """Whether a sitemap was read."""
        self._problems: Counter[str] = Counter()  # by origin
        self._read = Limiter(logger, "sitemaps read")
        self._unread = Limiter(logger, "sitemaps not read")
        self._undecided: dict[str, tuple[int, Reason | None]] = {}
        """Of sitemaps from which nothing was taken, by URL: how many entries wait, less those rejected
        while it is being read; and why the last one was rejected."""

    def read(self, kind: Kind, selection: Selection) -> None:
        sitemap, reader, accepted = (
            selection.sitemap,
            selection.reader,
            selection.accepted,
        )
        rejected = +selection.rejected  # without zeros
        count = self._context.stats.inc_value
        self.has_read = True
        count("rep/sitemaps/fetched")
        count("rep/sitemaps/urls", reader.count)
        if selection.undated:
            count("rep/sitemaps/undated", selection.undated)
        if rejected and not accepted:
            count("rep/sitemaps/nothing_taken")
        for reason, entries in rejected.items():
            count(reason.stat, entries)
        why = {reason.value: entries for reason, entries in rejected.items()}
        about = {
            "kind": kind.value,
            "entries": reader.count,
            "taken": accepted,
            "rejected": why,
        }
        self._record(sitemap, reader.problem, **about)
        self._log(kind, selection, rejected)
        if accepted and accepted == selection.unproven:
            self._count(sitemap.origin, sitemap.url, accepted)

    def _log(self, kind: Kind, selection: Selection, rejected: Counter[Reason]) -> None:
        sitemap, reader, accepted = (
            selection.sitemap,
            selection.reader,
            selection.accepted,
        )
        message = f"Sitemap %(url)s ({kind.value}): %(entries)s, {accepted:,} accepted"
        if selection.unproven:
            message += (
                f" ({selection.unproven:,} waiting for another host's robots.txt)"
            )
        if why := [f"{count:,} {one.value}" for one, count in rejected.items()]:
            message += f"; rejected: {', '.join(why)}"
        if reader.problem:
            message += "; problem: %(problem)s"
        values = {"url": sitemap.url, "problem": reader.problem}
        values["entries"] = counted(reader.count, "entry", "entries")
        if (accepted or CHOSEN.issuperset(rejected)) and not reader.problem:
            self._read.log(message, values, self._context.spider)
        else:
            self.warn(sitemap.origin, message, **values)

    def refused(self, origin: str, sitemap: str, reason: Reason, count: int) -> None:
        """Note that *count* entries of *sitemap*, to which *origin* led, were rejected after a wait."""
        self._context.stats.inc_value(reason.stat, count)
        self._count(origin, sitemap, -count, reason)

    def _count(
        self, origin: str, url: str, entries: int, reason: Reason | None = None
    ) -> None:
        """Note that more *entries* of a sitemap wait, or fewer. Report it if all were rejected."""
        waiting, why = self._undecided.pop(url, (0, None))
        waiting, why = waiting + entries, reason or why
        if waiting:
            self._undecided[url] = waiting, why
            if len(self._undecided) > _MOST:
                del self._undecided[next(iter(self._undecided))]
        elif why is not None:
            self._context.stats.inc_value("rep/sitemaps/nothing_taken")
            message = "Nothing was taken from sitemap %(url)s: its entries are %(why)s"
            self.warn(origin, message, url=url, why=why.value)

    def failed(self, sitemap: SitemapRow, why: str, *, expected: bool) -> None:
        """Log that *sitemap* can't be read: as a warning unless that was *expected*."""
        self._context.stats.inc_value("rep/sitemaps/failed")
        self._record(sitemap, failed=why)
        message, values = (
            "Sitemap %(url)s was not read: %(why)s",
            {"url": sitemap.url, "why": why},
        )
        if expected:
            self._unread.log(message, values, self._context.spider)
        else:
            self.warn(sitemap.origin, message, **values)

    def _record(
        self, sitemap: SitemapRow, reason: str | None = None, **about: Any
    ) -> None:
        found, by = sitemap.found.name.lower(), f"{sitemap.origin}/robots.txt"
        if sitemap.chain:
            found, by = "index", sitemap.chain[-1]
        elif sitemap.found is Found.LINKED:
            by = sitemap.origin
        nothing: Any = {
            "kind": None,
            "entries": 0,
            "taken": 0,
            "rejected": {},
            "failed": None,
        }
        fields: dict[str, Any] = {"found": found, "by": by, **nothing, **about}
        self._tell(
            "sitemap", sitemap.url, sitemap.origin, reason=reason, sitemap=fields
        )

    def warn(self, of: str, message: str, **values: Any) -> None:
        """Log a problem with an origin's sitemaps, as a warning if it is one of the first."""
        of = of if of in self._problems or len(self._problems) < _MOST else ""
        self._problems[of] += 1
        level = logging.WARNING if self._problems[of] <= _WARNINGS else logging.DEBUG
        if self._problems[of] == _WARNINGS:
            message += ". Further problems with this origin's sitemaps are logged at DEBUG level"
        logger.log(level, message, values, extra=self._context.extra)


class Verifier:
    """Finds out whether other origins list the sitemaps that their pages are from, a few origins at
    a time, and accepts or rejects these pages."""

    def __init__(self, context: SeedingContext, log: SitemapLog) -> None:
        self._crawl = context.crawl
        self._spool = context.spool
        self._origins = context.origins
        self._log = log
        crawler = context.crawl.crawler
        self._most, self._most_silent = _ORIGINS, _SILENT
        if not crawler.settings.getbool("TWISTED_REACTOR_ENABLED", True):
            # Few robots.txt files are fetched at a time then, and silent ones keep their places. Half
            # are for others.
            self._most, self._most_silent = max(2, concurrency_of(crawler) // 4), 0
        self._asked: dict[
            int, Site
        ] = {}  # those that are being looked at, or were a moment ago
        self._silent: dict[int, Site] = {}  # those of them that don't answer soon

    def begin(self) -> None:
        """Look at some of the sites whose pages wait, in turn."""
        sources = self._spool.unproven
        fruitless = 0  # sources without a site to look at, in a row
        while fruitless < len(sources) and not (self._spool.over or self._spool.ending):
            if len(self._asked) >= self._most:
                return
            site = self._next_of(sources.next_source())
            if site is None:
                fruitless += 1
                continue
            fruitless = 0
            self._asked[site.id] = site
            deferred_from_coro(self._look_at(site))

    def _next_of(self, source: str) -> Site | None:
        """Return a site to look at that *source* names."""
        for sites, most in (
            (self._asked, self._most),
            (self._silent, self._most_silent),
        ):
            named = sum(site.named_by == source for site in sites.values())
            if named and named >= most - len(sites):
                return None
        waiting = self._spool.unproven.sites_of(source)
        for _ in range(min(len(waiting), _LOOKS)):
            number, site = next(iter(waiting.items()))
            waiting.move_to_end(number)
            if number not in self._asked and number not in self._silent:
                return site
        return None

    def _is_silent(self, site: Site) -> None:
        """Give the place of *site*, whose origin doesn't answer, to another one."""
        if len(self._silent) < self._most_silent:
            self._silent[site.id] = self._asked.pop(site.id)
            self._spool.wake()

    async def _look_at(self, site: Site) -> None:
        settled = False
        silent = call_later(_SILENT_SECONDS, self._is_silent, site)
        try:
            settled = await self._try(site)
        except sqlite3.Error:
            pass  # the file has failed for too long, which is logged
        finally:
            silent.cancel()
            call_later(
                0 if settled or self._spool.ending else _LOOK, self._looked_at, site
            )

    def _looked_at(self, site: Site) -> None:
        self._asked.pop(site.id, None)
        self._silent.pop(site.id, None)
        self._spool.wake()  # for the next one
        self._crawl.engine.wake()  # the crawl may be over

    async def _try(self, site: Site) -> bool:
        """Accept or reject the pages of *site* if it is known what its origin lists, or it is too
        late. Return whether that was so."""
        origin, reason = Origin.from_url(site.origin), Reason.UNPROVEN
        now = time.monotonic()
        # Time that passes before anybody asks is not the origin's.
        site.asked_at = site.asked_at or now
        left = site.asked_at + self._crawl.settings.hold_max_wait - now
        state = self._origins.cache.get(origin)
        if state is None and left > 0:
            if await self._origins.targets.refuses(
                origin, Origin.from_url(site.named_by)
            ):
                reason = Reason.PRIVATE
            else:
                flight = self._origins.flights.to(origin)
                try:
                    state = await flight.wait(left)
                except StillWaiting:
                    if flight.running is None:  # it is queued behind others
                        site.asked_at = None
                        return False
                except Exception:  # noqa: BLE001 (the crawl ends; or a misconfiguration, logged elsewhere)
                    return False
        listed: Collection[str] = ()
        if state is not None and not state.unreachable:
            listed = await listed_by(state)
            reason = Reason.CROSS_HOST
            self._origins.targets.keep(origin)
        elif (
            state is not None
            and self._origins.policy.is_worth_waiting(state)
            and left > 0
        ):
            return False
        while site.waiting and not self._spool.ending:
            await self._spool.retry(self._settle, site, listed, reason)
            await pause()
        if reason is Reason.UNPROVEN:
            self._origins.flights.abandon(
                origin
            )  # no waiters left: don't keep the crawl open
        return True

    def _settle(self, site: Site, listed: Collection[str], reason: Reason) -> None:
        """Accept or reject some pages of *site*."""
        pages = self._spool.first_of(site, _AT_A_TIME)
        accepted = [page for page in pages if any(url in listed for url in page.line)]
        self._spool.settle(site, pages, accepted)
        refused = Counter(page.sitemap_url for page in pages)
        refused.subtract(page.sitemap_url for page in accepted)
        for url, count in (+refused).items():
            self._log.refused(site.named_by, url, reason, count)


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of *host* (``www.shop.example.co.uk``: ``example.co.uk``); None
    for IP addresses and public suffixes. The first call takes 0.1 s."""
    found = _extractor()(host)
    return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else None


@cache
def _extractor() -> TLDExtract:
    # No URLs: never the network. No folder: never another program's copy of the list. With private
    # domains: two users of github.io are two sites.
    return TLDExtract(
        cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True
    )
