"""Decides which entries of a sitemap become requests, and why the others do not (REP.md
section 9). Entries on another host wait in the spool (seeding/spool.py) until it is
known whether that host's robots.txt lists the sitemap. That is the proof that such
entries need (the "location scope" of sitemaps.org)."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro
from tldextract import TLDExtract

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.timers import in_slices, pause
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.queue import StillWaiting
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.entries import Kind, SitemapEntry
from scrapy_rep.protocol.freshness import latest
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.seeding.discovery import listed_by
from scrapy_rep.seeding.spool import (
    Found,
    NewPage,
    Page,
    SeedingContext,
    Site,
    SitemapRow,
)
from scrapy_rep.text import MAX_LISTED_IDN, Encoder, counted, resolve_sitemap

logger = get_logger(__name__)

# A page's request carries its entry as JSON, with at most this many characters: some
# entries have very long texts.
_MAX_ENTRY_JSON = 65_536
# The requests for all pages of one entry have at most this many characters of JSON
# together. (Each alternate is a page with the same entry.)
_MAX_ENTRY_JSON_IN_ALL = 1 << 20
# Of an entry with more characters, only the lastmod is left, cut to this many.
_MAX_DATE = 100
# At most this many alternate URLs of one entry are requested. More can only be an
# attack.
_MAX_ALTERNATES = 1000
# This writes an entry as JSON. What JSON doesn't know (a sitemap_filter may have added
# it) becomes text.
_encode = json.JSONEncoder(default=str, skipkeys=True).encode

# While a sitemap is read, the sites of at most this many URL prefixes are remembered.
_MAX_PREFIXES = 10_000

# When it is known which sitemaps a host lists, this many of the host's waiting pages
# are accepted or rejected at a time. After that, the event loop has its turn.
_PAGES_SETTLED_AT_A_TIME = 200
# At most this many origins are asked for their robots.txt, as proof, at a time.
_MAX_SITES_ASKED = 16
# An origin that doesn't answer for so many seconds counts as silent, and another origin
# gets its place.
_SECONDS_UNTIL_SILENT = 2.0
# The answers of at most this many silent origins are awaited, since each is a fetch in
# flight.
_MAX_SILENT = 128
# When it is a source's turn, at most this many of its sites are tried, until one is
# found at which nobody is looking yet.
_UNPROVEN_SITES_TRIED_AT_A_TURN = 128
# Seconds until the next look at an origin about which nothing could be decided.
_SECONDS_UNTIL_NEXT_LOOK = 0.25

# Each origin gets at most this many warnings, since an index may list 50,000 missing
# sitemaps.
_MAX_WARNINGS = 5
# Problems are counted for at most this many origins. Further ones share one count.
_MAX_ORIGINS_WITH_PROBLEMS = 10_000
# At most this many sitemaps are remembered while all their accepted pages wait for a
# proof (Undecided).
_MAX_UNDECIDED = 10_000


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
        """The stat that counts entries that were rejected for this reason."""
        return f"rep/sitemaps/rejected/{self.name.lower()}"


AS_EXPECTED = {
    Reason.FILTERED,
    Reason.OLD,
    Reason.NEW,
    Reason.NO_RULE,
    Reason.NOT_FOLLOWED,
    Reason.KNOWN,
    Reason.START,
}
"""Reasons that call for no warning: the project has chosen them, or nothing is lost."""


def host_of(origin: Origin) -> str:
    """Return the host as in REP.md section 9: the same for http and https, with the
    port if that isn't the usual one."""
    default_port = {"http": 80, "https": 443}.get(origin.scheme)
    if origin.port == default_port:
        return origin.host
    return f"{origin.host}:{origin.port}"


def entry_as_json(entry: SitemapEntry, pages: int) -> str:
    """Return an entry, without its URL, as JSON; what JSON doesn't know becomes text.
    The requests for this many *pages* carry the text. If it is too long for that, only
    the entry's ``lastmod`` is left."""
    fields = {name: value for name, value in entry.items() if name != "loc"}
    lastmod = fields.get("lastmod")
    if not lastmod:
        fields.pop("lastmod", None)
    with suppress(TypeError, ValueError, RecursionError):
        text = _encode(fields)
        length_in_all = len(text) * pages
        if len(text) <= _MAX_ENTRY_JSON and length_in_all <= _MAX_ENTRY_JSON_IN_ALL:
            return text
    if not lastmod:
        return "{}"
    short_date = str(lastmod)[:_MAX_DATE]
    return _encode({"lastmod": short_date})


class ListedSitemap(NamedTuple):
    """An accepted entry of an index."""

    url: str
    host: str
    """The origin that the sitemap is fetched from."""


class SiteOfPrefix(NamedTuple):
    """The site of pages whose URLs have the same prefix."""

    number: int
    """The number that the site (seeding/spool.py) has in the spool."""
    needs_proof: bool
    """Whether the host of these pages has to list the sitemap."""


class AcceptedPage(NamedTuple):
    """An entry that becomes a page in the spool."""

    page: NewPage
    needs_proof: bool
    """See :class:`SiteOfPrefix`."""


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
        led_by = Origin.from_url(sitemap.origin)
        # Pages on this host need no proof.
        self._host = host_of(led_by)
        # With REP_SITEMAP_CROSS_HOST = "site", pages of this domain need none, either.
        self._domain: str | None = None
        if self._settings.sitemap_cross_host == "site":
            self._domain = registrable_domain(led_by.host)
        # How many pages sitemaps of this origin have brought so far.
        self._origin_urls = context.spool.counts(sitemap.origin).urls
        # This encodes the URLs of entries. To encode hosts that aren't ASCII takes
        # time, so only some of them are encoded for one sitemap.
        self._encode = Encoder(MAX_LISTED_IDN)
        # What _site_for() returned for prefixes of URLs. (Most URLs of a sitemap have
        # the same prefix.)
        self._by_prefix: dict[str, SiteOfPrefix | Reason] = {}
        self.accepted = 0
        """How many entries were accepted."""
        self.unproven = 0
        """How many of the accepted entries wait for the robots.txt of their host."""
        self.rejected: Counter[Reason] = Counter()
        """How many entries were rejected, by the reason."""
        self.undated = 0
        """How many entries have a lastmod that is not a date."""

    async def add(self, entries: list[SitemapEntry]) -> None:
        """Put those of *entries* that are accepted into the spool, and count the others
        by reason.

        :raises sqlite3.Error: if the spool's file can't be used, and seeding ends
            before it can
        """
        kept = self._without_unwanted_dates(self._filtered(entries))
        if self.reader.kind is Kind.INDEX:
            await self._select_sitemaps(kept)
        else:
            await self._select_pages(kept)

    def _filtered(self, entries: list[SitemapEntry]) -> list[SitemapEntry]:
        """Return what the spider's ``sitemap_filter`` leaves of *entries*. The filter
        doesn't get damaged entries, which are rejected."""
        sound = [entry for entry in entries if not entry.get("broken")]
        broken = len(entries) - len(sound)
        kind_name = ""
        if self.reader.kind is not None:
            kind_name = self.reader.kind.value
        kept, failures = self._options.filtered(sound, kind_name, self.sitemap.url)
        dropped = len(sound) - len(kept) - failures
        rejected = self.rejected
        rejected[Reason.BROKEN] += broken
        rejected[Reason.FILTER_ERROR] += failures
        # A filter may add entries, so that the difference is negative. Then no entry
        # counts as dropped.
        rejected[Reason.FILTERED] += max(0, dropped)
        return kept

    def _without_unwanted_dates(
        self, entries: list[SitemapEntry]
    ) -> list[SitemapEntry]:
        """Return *entries* without those that ``REP_SITEMAP_SINCE`` or
        ``REP_SITEMAP_UNTIL`` exclude."""
        if not self._since and not self._settings.sitemap_until:
            return entries
        kept = []
        for entry in entries:
            reason = self._reason_of_date(entry)
            if reason is None:
                kept.append(entry)
            else:
                self.rejected[reason] += 1
        return kept

    def _reason_of_date(self, entry: SitemapEntry) -> Reason | None:
        """Return why the project doesn't want *entry*, given its date. None if the
        project wants it, or if the date is missing or can't be read (which is
        counted)."""
        since, until = self._since, self._settings.sitemap_until
        lastmod = entry.get("lastmod")
        if not lastmod:
            return None
        changed_at = latest(str(lastmod))
        if changed_at is None:
            self.undated += 1
            return None
        if since and changed_at < since:
            return Reason.OLD
        if self.reader.kind is Kind.INDEX:
            # The date is that of a sitemap, which may list older pages although it was
            # changed lately.
            return None
        if until and changed_at >= until:
            return Reason.NEW
        return None

    # Entries of an index

    async def _select_sitemaps(self, entries: list[SitemapEntry]) -> None:
        """Put the sitemaps that *entries* list into the spool, and count those that are
        rejected."""
        accepted: list[ListedSitemap] = []
        async for entry in in_slices(entries):
            sitemap = self._sitemap_of(entry.get("loc"))
            if isinstance(sitemap, Reason):
                self.rejected[sitemap] += 1
            else:
                accepted.append(sitemap)
        if accepted:
            await self._spool.retry(self._add_sitemaps, accepted)

    def _sitemap_of(self, loc: Any) -> ListedSitemap | Reason:
        """Return the sitemap that an index lists as *loc*, or why it isn't read."""
        try:
            address = resolve_sitemap(str(loc).strip(), encode=self._encode)
        except ValueError:
            return Reason.INVALID
        url = address.url.partition("#")[0]  # without its fragment
        if not self._options.follows(url):
            return Reason.NOT_FOLLOWED
        if len(self.sitemap.lineage) >= self._settings.sitemap_max_depth:
            return Reason.DEPTH
        return ListedSitemap(url, str(address.origin))

    def _add_sitemaps(self, accepted: list[ListedSitemap]) -> None:
        """Put sitemaps into the spool, and count those that are new."""
        hosts = {sitemap.url: sitemap.host for sitemap in accepted}
        added = self._spool.add_sitemaps(
            self.sitemap.origin,
            hosts,
            self.sitemap.lineage,
            limit=self._settings.sitemap_max_files,
        )
        new = len(added.new)
        beyond_limit = len(added.beyond_limit)
        known_before = len(accepted) - new - beyond_limit
        self.accepted += new
        self.rejected[Reason.LIMIT] += beyond_limit
        self.rejected[Reason.KNOWN] += known_before
        for url in added.new:
            self._discovery.count_if_new(url)

    # Entries that are pages

    async def _select_pages(self, entries: list[SitemapEntry]) -> None:
        """Put the pages that *entries* list into the spool, and count those that are
        rejected."""
        accepted: list[AcceptedPage] = []
        async for url, entry_json in in_slices(self._urls_of(entries)):
            page = await self._page_of(url, entry_json)
            if isinstance(page, Reason):
                self.rejected[page] += 1
            else:
                accepted.append(page)
        if accepted:
            await self._spool.retry(self._add_pages, accepted)

    def _urls_of(self, entries: list[SitemapEntry]) -> Iterator[tuple[Any, str]]:
        """Yield the URLs of *entries*, alternates included if the spider wants these,
        each with its entry as JSON, which the page's request carries."""
        for entry in entries:
            urls = [entry.get("loc")]
            alternates = entry.get("alternate")
            # A sitemap_filter may have put anything there.
            if self._options.alternate_links and isinstance(alternates, list | tuple):
                urls += alternates[:_MAX_ALTERNATES]
            entry_json = entry_as_json(entry, len(urls))
            for url in urls:
                yield url, entry_json

    async def _page_of(self, loc: Any, entry_json: str) -> AcceptedPage | Reason:
        """Return the page at *loc*, or why it isn't requested."""
        try:
            # The prefix is the URL's beginning: its scheme, host and port.
            url, prefix = self._encode.page_and_prefix(loc)
            site = self._by_prefix.get(prefix)
            if site is None:
                site = await self._spool.retry(self._site_for, prefix)
        except ValueError:
            return Reason.INVALID
        if not self._options.callback_for(url).is_wanted:
            return Reason.NO_RULE
        if isinstance(site, Reason):
            return site
        if self._origin_urls >= self._settings.sitemap_max_origin_urls:
            return Reason.LIMIT
        self._origin_urls += 1
        page = NewPage(site.number, self.sitemap.id, url, entry_json)
        return AcceptedPage(page, site.needs_proof)

    def _site_for(self, prefix: str) -> SiteOfPrefix | Reason:
        """Return the site of URLs with this *prefix* (scheme, host and port), or why
        they are rejected. Remember the result for further URLs."""
        origin = Origin.from_url(prefix)
        needs_proof = self._needs_proof(origin)
        # Whether the origin's robots.txt is known, so that the proof needs no request.
        has_robots = False
        if needs_proof:
            state = self._cache.get(origin)
            has_robots = state is not None and not state.unreachable
        number = self._spool.site_number(
            str(origin),
            self.sitemap.origin,
            proven=not needs_proof,
            has_robots=has_robots,
        )
        # Without a number, the sitemaps already name too many hosts.
        site: SiteOfPrefix | Reason = Reason.HOSTS
        if number is not None:
            site = SiteOfPrefix(number, needs_proof)
        if len(self._by_prefix) < _MAX_PREFIXES:
            self._by_prefix[prefix] = site
        return site

    def _needs_proof(self, origin: Origin) -> bool:
        """Return whether the sitemap's pages on *origin* count only if that origin's
        robots.txt lists the sitemap."""
        mode = self._settings.sitemap_cross_host
        if mode == "any" or host_of(origin) == self._host:
            return False
        if mode == "site" and self._domain is not None:
            return registrable_domain(origin.host) != self._domain
        return True  # on another host, in the mode "strict"

    def _add_pages(self, accepted: list[AcceptedPage]) -> None:
        """Put pages into the spool, and count them."""
        pages = [page for page, _ in accepted]
        self._spool.add_pages(self.sitemap.origin, pages)
        self.accepted += len(accepted)
        for _, needs_proof in accepted:
            if needs_proof:
                self.unproven += 1


@dataclass(slots=True)
class Undecided:
    """A sitemap of which all accepted pages wait for the robots.txt of their hosts. If
    these pages are all rejected in the end, nothing was taken from the sitemap."""

    waiting: int = 0
    """How many pages wait. All are counted when the sitemap has been read to its end.
    Pages that are rejected before then make the number negative meanwhile."""
    last_reason: Reason | None = None
    """Why the last page was rejected."""


class SitemapLog:
    """Reports what became of sitemaps: in the log, the stats and the record."""

    def __init__(self, context: CrawlContext, tell: Callable[..., None]) -> None:
        """*tell* is ``Recorder.tell``, which puts a line on record."""
        self._context = context
        self._put_line_on_record = tell
        self.has_read = False
        """Whether a sitemap was read in this run."""
        # How many problems each origin's sitemaps had.
        self._problems: Counter[str] = Counter()
        # These log the first ten sitemaps at INFO level, the others at DEBUG level
        # (Limiter in engine/log.py).
        self._log_read = Limiter(logger, "sitemaps read")
        self._log_unread = Limiter(logger, "sitemaps not read")
        # Undecided sitemaps, by URL.
        self._undecided: dict[str, Undecided] = {}

    def note_read(self, sitemap_kind: Kind, selection: Selection) -> None:
        """Report that a sitemap was read, and what was selected from it."""
        sitemap = selection.sitemap
        accepted = selection.accepted
        rejected = +selection.rejected  # + leaves out the reasons with 0 entries
        self.has_read = True
        self._count_entries(selection, rejected)
        self._record(
            sitemap,
            reason=selection.reader.problem,
            sitemap_kind=sitemap_kind.value,
            entries=selection.reader.count,
            taken=accepted,
            rejected={reason.value: count for reason, count in rejected.items()},
        )
        self._log_result(sitemap_kind, selection, rejected)
        if accepted and accepted == selection.unproven:
            # All accepted pages wait for a proof. If no page gets one, nothing was
            # taken from this sitemap, which is worth a warning.
            self._count_waiting(sitemap.origin, sitemap.url, accepted)

    def _count_entries(self, selection: Selection, rejected: Counter[Reason]) -> None:
        """Count a sitemap, and its entries, in the stats."""
        inc_value = self._context.stats.inc_value
        inc_value("rep/sitemaps/fetched")
        inc_value("rep/sitemaps/urls", selection.reader.count)
        if selection.undated:
            inc_value("rep/sitemaps/undated", selection.undated)
        if rejected and not selection.accepted:
            inc_value("rep/sitemaps/nothing_taken")
        for reason, entries in rejected.items():
            inc_value(reason.stat, entries)

    def _log_result(
        self, sitemap_kind: Kind, selection: Selection, rejected: Counter[Reason]
    ) -> None:
        """Log what was selected from a sitemap: as a warning if that may not be what
        the project wants."""
        sitemap = selection.sitemap
        problem = selection.reader.problem
        accepted = selection.accepted
        message = (
            f"Sitemap %(url)s ({sitemap_kind.value}): "
            f"%(entries)s, {accepted:,} accepted"
        )
        if selection.unproven:
            message += (
                f" ({selection.unproven:,} waiting for another host's robots.txt)"
            )
        if rejected:
            parts = [f"{count:,} {reason.value}" for reason, count in rejected.items()]
            message += f"; rejected: {', '.join(parts)}"
        if problem:
            message += "; problem: %(problem)s"
        values = {
            "url": sitemap.url,
            "problem": problem,
            "entries": counted(selection.reader.count, "entry", "entries"),
        }
        # Something was accepted, or there is a good reason why nothing was.
        is_as_expected = accepted > 0 or AS_EXPECTED.issuperset(rejected)
        if is_as_expected and not problem:
            self._log_read.log(message, values, self._context.spider)
        else:
            self.warn(sitemap.origin, message, **values)

    def note_refused(
        self, origin: str, sitemap: str, reason: Reason, count: int
    ) -> None:
        """Note that *count* entries of *sitemap*, to which *origin* led, have waited
        for a proof, and were rejected."""
        self._context.stats.inc_value(reason.stat, count)
        self._count_waiting(origin, sitemap, -count, reason)

    def _count_waiting(
        self, origin: str, url: str, entries: int, reason: Reason | None = None
    ) -> None:
        """Note that this many more *entries* of the sitemap at *url* wait. If the
        number is negative, this many were rejected for this *reason*. Warn if no entry
        is left, and so nothing was taken from the sitemap."""
        # pop(), so that the sitemap is put behind the others below.
        undecided = self._undecided.pop(url, None) or Undecided()
        undecided.waiting += entries
        if reason is not None:
            undecided.last_reason = reason
        if undecided.waiting:
            self._undecided[url] = undecided
            if len(self._undecided) > _MAX_UNDECIDED:
                oldest = next(iter(self._undecided))
                del self._undecided[oldest]
        elif undecided.last_reason is not None:
            self._context.stats.inc_value("rep/sitemaps/nothing_taken")
            message = "Nothing was taken from sitemap %(url)s: its entries are %(why)s"
            self.warn(origin, message, url=url, why=undecided.last_reason.value)

    def note_failed(self, sitemap: SitemapRow, why: str, *, expected: bool) -> None:
        """Log that *sitemap* can't be read: as a warning unless that was *expected*."""
        self._context.stats.inc_value("rep/sitemaps/failed")
        self._record(sitemap, failed=why)
        message = "Sitemap %(url)s was not read: %(why)s"
        values = {"url": sitemap.url, "why": why}
        if expected:
            self._log_unread.log(message, values, self._context.spider)
        else:
            self.warn(sitemap.origin, message, **values)

    def _record(
        self,
        sitemap: SitemapRow,
        *,
        reason: str | None = None,
        sitemap_kind: str | None = None,
        entries: int = 0,
        taken: int = 0,
        rejected: dict[str, int] | None = None,
        failed: str | None = None,
    ) -> None:
        """Put on record what became of *sitemap*. The other arguments are fields of the
        line, see docs/observing.md."""
        found_by = sitemap.found.name.lower()
        referrer = f"{sitemap.origin}/robots.txt"
        if sitemap.chain:
            found_by = "index"
            referrer = sitemap.chain[-1]
        elif sitemap.found is Found.LINKED:
            referrer = sitemap.origin
        fields = {
            "found": found_by,
            "by": referrer,
            "kind": sitemap_kind,
            "entries": entries,
            "taken": taken,
            "rejected": rejected or {},
            "failed": failed,
        }
        self._put_line_on_record(
            "sitemap", sitemap.url, sitemap.origin, reason=reason, sitemap=fields
        )

    def warn(self, origin: str, message: str, /, **values: Any) -> None:
        """Log a problem with an origin's sitemaps: the first ones as warnings, others
        at DEBUG level."""
        has_room = len(self._problems) < _MAX_ORIGINS_WITH_PROBLEMS
        # Origins for which there is no room share one count, whose key is empty.
        key = ""
        if has_room or origin in self._problems:
            key = origin
        self._problems[key] += 1
        problems = self._problems[key]
        level = logging.DEBUG
        if problems <= _MAX_WARNINGS:
            level = logging.WARNING
        if problems == _MAX_WARNINGS:
            message += ". Further problems with this origin's sitemaps are logged at DEBUG level"
        logger.log(level, message, values, extra=self._context.extra)


class Verifier:
    """Accepts or rejects pages that wait in the spool because they are on another host
    than their sitemap. They are accepted if that host's robots.txt lists the sitemap
    (the proof). Looks at a few sites (see Site in seeding/spool.py) at a time."""

    def __init__(self, context: SeedingContext, log: SitemapLog) -> None:
        self._crawl = context.crawl
        self._spool = context.spool
        self._origins = context.origins
        self._log = log
        crawler = context.crawl.crawler
        self._max_asked = _MAX_SITES_ASKED
        self._max_silent = _MAX_SILENT
        if not crawler.settings.getbool("TWISTED_REACTOR_ENABLED", True):
            # Without a Twisted reactor, only half of CONCURRENT_REQUESTS robots.txt
            # files are fetched at a time (origins/flights.py). Half of these fetches
            # are left to requests of the crawl, so a quarter is for proofs. Silent
            # origins keep their places.
            self._max_asked = max(2, concurrency_of(crawler) // 4)
            self._max_silent = 0
        # Sites that have one of the _max_asked places, by the site's number. They are
        # being looked at, or were a moment ago.
        self._asked: dict[int, Site] = {}
        # Sites that have lost their place to another one, since their origins didn't
        # answer soon. They are still being looked at.
        self._silent: dict[int, Site] = {}

    def look_at_some_sites(self) -> None:
        """Begin to look at some of the sites whose pages wait for a proof. Their
        sources take turns."""
        sources = self._spool.unproven
        # How many sources in a row had no site to look at. If that is so for all
        # sources, there is nothing more to begin.
        sources_without_site = 0
        while sources_without_site < len(sources):
            is_ending = self._spool.seeding_over or self._spool.crawl_closing
            if is_ending or len(self._asked) >= self._max_asked:
                return
            site = self._next_site(sources.next_source())
            if site is None:
                sources_without_site += 1
                continue
            sources_without_site = 0
            self._asked[site.id] = site
            deferred_from_coro(self._look_at(site))

    def _next_site(self, source: str) -> Site | None:
        """Return a site to look at, of those that *source* names; None if there is no
        site, or no place for one."""
        if not _has_place(source, self._asked, self._max_asked):
            return None
        if not _has_place(source, self._silent, self._max_silent):
            return None
        waiting = self._spool.unproven.sites_of(source)
        for _ in range(min(len(waiting), _UNPROVEN_SITES_TRIED_AT_A_TURN)):
            number, site = next(iter(waiting.items()))
            waiting.move_to_end(number)  # the next turn is another site's
            is_looked_at = number in self._asked or number in self._silent
            if not is_looked_at:
                return site
        return None

    def _make_silent(self, site: Site) -> None:
        """Give the place of *site*, whose origin doesn't answer, to another one."""
        if len(self._silent) < self._max_silent:
            self._silent[site.id] = self._asked.pop(site.id)
            self._spool.wake()

    async def _look_at(self, site: Site) -> None:
        """Try to settle *site*, which has a place until that is done. If the site must
        be tried again, it keeps the place a moment longer, so that it isn't tried
        again at once."""
        is_settled = False
        # If the origin doesn't answer soon, the site loses its place.
        silence_timer = call_later(_SECONDS_UNTIL_SILENT, self._make_silent, site)
        try:
            is_settled = await self._try_to_settle(site)
        except sqlite3.Error:
            pass  # the file has failed for too long, which is logged
        finally:
            silence_timer.cancel()
            is_done = is_settled or self._spool.crawl_closing
            pause_seconds = 0 if is_done else _SECONDS_UNTIL_NEXT_LOOK
            call_later(pause_seconds, self._free_place, site)

    def _free_place(self, site: Site) -> None:
        """Give the place of *site* to another one, or let the site be tried again."""
        self._asked.pop(site.id, None)
        self._silent.pop(site.id, None)
        self._spool.wake()  # for the next site
        self._crawl.engine.wake()  # the crawl may be over

    async def _try_to_settle(self, site: Site) -> bool:
        """Accept or reject the pages of *site* once it is known which sitemaps its
        origin lists, or the time for that (REP_HOLD_MAX_WAIT) is over. Return False if
        the site is to be tried again."""
        origin = Origin.from_url(site.origin)
        now = time.monotonic()
        if site.asked_at is None:
            # The origin's time to answer begins now, since nobody has asked it before.
            site.asked_at = now
        seconds_left = site.asked_at + self._crawl.settings.hold_max_wait - now
        # Why pages are rejected, if they are.
        reason = Reason.UNPROVEN
        # What is known of the origin's robots.txt; None: it must be fetched.
        state = self._origins.cache.get(origin)
        if state is None and seconds_left > 0:
            # Fetch the robots.txt.
            source = Origin.from_url(site.named_by)
            # A public source must not lead us to a private address
            # (origins/targets.py).
            if await self._origins.targets.refuses(origin, source):
                reason = Reason.PRIVATE
            else:
                # A flight is a fetch of robots.txt, for all who need it
                # (origins/flights.py).
                flight = self._origins.flights.to(origin)
                try:
                    state = await flight.wait(seconds_left)
                except StillWaiting:
                    if flight.running is None:
                        # The fetch is queued behind others, so the origin has not been
                        # asked yet.
                        site.asked_at = None
                        return False
                except Exception:  # noqa: BLE001 (the crawl ends; or a misconfiguration, logged elsewhere)
                    return False
        # Find out which sitemaps it lists. An origin that is unreachable for now is
        # tried again.
        listed_urls: Collection[str] = ()
        if state is not None and not state.unreachable:
            listed_urls = await listed_by(state)
            reason = Reason.CROSS_HOST
            # If the origin is public, it must not lead us to a private address, either.
            self._origins.targets.keep(origin)
        elif state is not None:
            is_worth_waiting = self._origins.policy.is_worth_waiting(state)
            if is_worth_waiting and seconds_left > 0:
                return False
        # Accept or reject the pages.
        while site.waiting and not self._spool.crawl_closing:
            await self._spool.retry(self._decide_on_pages, site, listed_urls, reason)
            await pause()
        if reason is Reason.UNPROVEN:
            # A fetch that still goes on must not keep the crawl open if nobody else
            # waits for it.
            self._origins.flights.abandon(origin)
        return True

    def _decide_on_pages(
        self, site: Site, listed_urls: Collection[str], reason: Reason
    ) -> None:
        """Accept the next pages of *site* whose sitemaps are among *listed_urls*, and
        reject others for this *reason*."""
        pages = self._spool.next_pages(site, _PAGES_SETTLED_AT_A_TIME)
        accepted: list[Page] = []
        refused: Counter[str] = Counter()  # by the sitemap's URL
        for page in pages:
            if any(url in listed_urls for url in page.lineage):
                accepted.append(page)
            else:
                refused[page.sitemap_url] += 1
        self._spool.accept_or_reject(site, pages, accepted)
        for url, count in refused.items():
            self._log.note_refused(site.named_by, url, reason, count)


def _has_place(source: str, sites: dict[int, Site], limit: int) -> bool:
    """Whether another site that *source* names may be added to *sites*, of which there
    may be *limit*. A source may add its first site in any case (whether *sites* are
    full is checked elsewhere), and further ones only while more places are left than
    it has sites, so that it can't take them all."""
    sites_of_source = [site for site in sites.values() if site.named_by == source]
    places_left = limit - len(sites)
    return not sites_of_source or len(sites_of_source) < places_left


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of *host* (``www.shop.example.co.uk``:
    ``example.co.uk``); None for IP addresses and public suffixes. The first call takes
    0.1 s."""
    parts = _extractor()(host)
    if not parts.domain or not parts.suffix:
        return None
    return f"{parts.domain}.{parts.suffix}"


@cache
def _extractor() -> TLDExtract:
    # Without URLs, tldextract never uses the network. Without a folder, it never uses
    # another program's copy of the list of public suffixes. With private domains, two
    # users of github.io are two sites.
    return TLDExtract(
        cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True
    )
