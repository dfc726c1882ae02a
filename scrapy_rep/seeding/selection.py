"""Which entries of a sitemap become requests, among them those on other hosts; why the others do not
(REP.md section 9); and what the log says about it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, deque
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.resolution import registrable_domain
from scrapy_rep.engine.text import PageURLs, counted, resolve_sitemap
from scrapy_rep.engine.timers import Slices
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.freshness import latest
from scrapy_rep.protocol.sitemaps.xml import Kind
from scrapy_rep.reporting.record import SITEMAP, Record
from scrapy_rep.seeding.spool import strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from typing_extensions import Self

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol.sitemaps.reader import SitemapReader
    from scrapy_rep.protocol.sitemaps.xml import Entry
    from scrapy_rep.seeding.spool import Row, SeedingContext, SitemapRow

logger = get_logger(__name__)

# Characters of JSON that a page's request carries of its entry; that all requests of one entry carry.
_MAX_ENTRY, _MAX_ENTRIES = 65_536, 1 << 20
_MAX_DATE, _MAX_ALTERNATES = 100, 1000
# URL prefixes whose verdict is remembered while a sitemap is read.
_PREFIXES = 10_000
# Entries that are written at a time, while the event loop waits. Each may be on another host.
_AT_A_TIME = 200
# Warnings for each origin: an index may list 50,000 missing sitemaps. Origins beyond _ORIGINS share one
# limit.
_WARNINGS, _ORIGINS = 5, 10_000


class Reason(str, Enum):
    """Why an entry is rejected: the stat that counts it, and a text for the log."""

    text: str

    def __new__(cls, stat: str, text: str) -> Self:
        reason = str.__new__(cls, stat)
        reason._value_ = stat
        reason.text = text
        return reason

    INVALID = "rep/sitemaps/rejected/invalid", "not an absolute http(s) URL"
    BROKEN = "rep/sitemaps/rejected/broken", "damaged by broken XML"
    FILTERED = "rep/sitemaps/rejected/filtered", "dropped by sitemap_filter"
    FILTER_ERROR = "rep/sitemaps/rejected/filter_error", "sitemap_filter raised"
    OLD = "rep/sitemaps/rejected/old", "older than REP_SITEMAP_SINCE"
    NO_RULE = "rep/sitemaps/rejected/no_rule", "not in sitemap_rules"
    NOT_FOLLOWED = "rep/sitemaps/rejected/not_followed", "not in sitemap_follow"
    CROSS_HOST = "rep/sitemaps/rejected/cross_host", "on a host that does not list the sitemap"
    HOSTS = (
        "rep/sitemaps/rejected/hosts",
        "on a host beyond the first 100 that one origin's sitemaps may name",
    )
    PRIVATE = "rep/sitemaps/rejected/private", "on a host with a private address"
    UNPROVEN = "rep/sitemaps/rejected/unproven", "on a host whose robots.txt can't be fetched"
    KNOWN = "rep/sitemaps/rejected/known", "already known"
    DEPTH = "rep/sitemaps/rejected/depth", "nested deeper than REP_SITEMAP_MAX_DEPTH"
    LIMIT = "rep/sitemaps/rejected/limit", "beyond a limit for this origin"


_CHOSEN = {
    Reason.FILTERED, Reason.OLD, Reason.NO_RULE, Reason.NOT_FOLLOWED, Reason.KNOWN
}  # fmt: skip
"""Reasons that the project has chosen, or by which nothing is lost."""

Verdict = Reason | bool | None
"""On an entry. True: accepted; a reason: rejected; None: not known yet."""


def host_of(origin: Origin) -> str:
    """Return the host, as REP.md section 9 means it: the same for http and https; another one for other
    ports."""
    default = origin.port == {"http": 80, "https": 443}.get(origin.scheme)
    return origin.host if default else f"{origin.host}:{origin.port}"


def entry_as_json(entry: Entry, pages: int) -> str:
    """Return an entry, without its URL, as JSON. What JSON doesn't know becomes text. Of an entry that is
    too long, only ``lastmod`` is left.

    :param pages: how many requests get it
    """
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
        verdict: Callable[[Origin, str, tuple[str, ...]], Verdict],
    ) -> None:
        """:param verdict: on entries of another origin: ``Verifier.verdict``"""
        self._sitemap = sitemap
        self._reader = reader
        self._spool = context.spool
        self._settings = context.crawl.settings
        self._options = context.options
        self._verdict = verdict
        self._chain = (*sitemap.chain, sitemap.url)
        led_here = Origin.from_url(sitemap.origin)
        self._host = host_of(led_here)
        near = self._settings.sitemap_cross_host == "site"
        self._domain = registrable_domain(led_here.host) if near else None
        _, self._urls = context.spool.sitemaps.counts(sitemap.origin)
        self._pending: deque[tuple[Any, str | None]] = deque()
        """URLs, those of pages with the JSON of their entries."""
        self._page_urls = PageURLs()
        self._by_prefix: dict[str, tuple[int, Verdict]] = {}
        self.accepted = 0
        self.unproven = 0  # how many of these wait for the robots.txt of their host
        self.rejected: Counter[Reason] = Counter()
        self.undated = 0  # entries whose lastmod is not a date
        self._new: list[str] = []

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
        """Write some of what was added to the spool. Return whether there is more. After a ``sqlite3.Error``,
        call it again."""
        write = self._write_sitemaps if self._reader.kind is Kind.INDEX else self._write_pages
        urls, rejected = self._urls, Counter(self.rejected)
        try:
            done = write(islice(self._pending, _AT_A_TIME))
        except sqlite3.Error:
            self._urls, self.rejected = urls, rejected
            raise
        for _ in range(done):
            self._pending.popleft()
        return bool(self._pending)

    def _write_pages(self, some: Iterable[tuple[Any, str | None]]) -> int:
        """Return how many entries are dealt with, whatever becomes of them."""
        slices, done = Slices(), 0
        pages: list[Row] = []
        unproven: list[Row] = []
        for done, (url, text) in enumerate(some, 1):
            row, verdict = self._row(url, text)
            if row is not None:
                (pages if verdict else unproven).append(row)
            if slices.over:
                break
        self._spool.add_pages(self._sitemap.origin, pages, unproven)
        self.accepted += len(pages) + len(unproven)
        self.unproven += len(unproven)
        return done

    def _write_sitemaps(self, some: Iterable[tuple[Any, str | None]]) -> int:
        """Do the same for an index."""
        slices, done = Slices(), 0
        found: list[tuple[str, str]] = []
        for done, (loc, _) in enumerate(some, 1):
            sitemap = self._resolved(loc)
            if isinstance(sitemap, Reason):
                self.rejected[sitemap] += 1
            else:
                found.append(sitemap)
            if slices.over:
                break
        new, beyond = self._spool.sitemaps.add(
            self._sitemap.origin, dict(found), self._chain, most=self._settings.sitemap_max_files
        )
        self.rejected[Reason.LIMIT] += len(beyond)
        self.rejected[Reason.KNOWN] += len(found) - len(new) - len(beyond)
        self.accepted += len(new)
        self._new += new
        return done

    def take_sitemaps(self) -> list[str]:
        """Return the URLs of the new sitemaps that were written since the last call."""
        new, self._new = self._new, []
        return new

    def _resolved(self, loc: Any) -> tuple[str, str] | Reason:
        """Return the URL of a sitemap, and the origin that it is fetched from."""
        try:
            url, origin, _ = resolve_sitemap(str(loc).strip(), encode=self._page_urls.encode)
        except ValueError:
            return Reason.INVALID
        url = url.partition("#")[0]
        if not self._options.follows(url):
            return Reason.NOT_FOLLOWED
        too_deep = len(self._chain) >= self._settings.sitemap_max_depth
        return Reason.DEPTH if too_deep else (url, str(origin))

    def _row(self, value: Any, entry: str | None) -> tuple[Row | None, Verdict]:
        """Return the row of a page, None if it is rejected, and the verdict on it."""
        try:
            url, prefix = self._page_urls.resolve(value)
            site, verdict = self._by_prefix.get(prefix) or self._judge(prefix)
        except ValueError:
            site, verdict = 0, Reason.INVALID
        else:
            if not self._options.callback_for(url)[0]:
                verdict = Reason.NO_RULE
            elif self._urls >= self._settings.sitemap_max_origin_urls and verdict in (True, None):
                verdict = Reason.LIMIT
        if isinstance(verdict, Reason):
            self.rejected[verdict] += 1
            return None, verdict
        self._urls += 1
        return (site, self._sitemap.id, url, None, entry), verdict

    def _judge(self, prefix: str) -> tuple[int, Verdict]:
        """Return the site number of URLs with this prefix, and the verdict on them."""
        origin = Origin.from_url(prefix)
        verdict: Verdict = True
        if not self._is_near(origin):
            verdict = self._verdict(origin, self._sitemap.origin, self._chain)
        site = 0 if isinstance(verdict, Reason) else self._spool.site(str(origin))
        # If it isn't known yet, it may be while the sitemap is being read.
        if verdict is not None and len(self._by_prefix) < _PREFIXES:
            self._by_prefix[prefix] = site, verdict
        return site, verdict

    def _is_near(self, origin: Origin) -> bool:
        """Whether URLs of *origin* are accepted although it may not list the sitemap."""
        mode = self._settings.sitemap_cross_host
        if mode == "any" or host_of(origin) == self._host:
            return True
        return mode == "site" and registrable_domain(origin.host) == self._domain is not None


class SitemapLog:
    """Logs and counts what became of each sitemap."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._problems: Counter[str] = Counter()  # by origin
        self._read = Limiter(logger, "sitemaps read")
        self._unread = Limiter(logger, "sitemaps not read")
        context.crawler.signals.connect(self._spider_closed, scrapy_signals.spider_closed)

    def read(self, sitemap: SitemapRow, reader: SitemapReader, selection: Selection) -> None:
        assert reader.kind is not None
        rejected = {reason: count for reason, count in selection.rejected.items() if count}
        nothing = bool(rejected and not selection.accepted)
        self._context.stats.inc_value("rep/sitemaps/fetched")
        self._context.stats.inc_value("rep/sitemaps/urls", reader.count)
        if selection.undated:
            self._context.stats.inc_value("rep/sitemaps/undated", selection.undated)
        if nothing:
            self._context.stats.inc_value("rep/sitemaps/nothing_taken")
        for reason, count in rejected.items():
            self._context.stats.inc_value(reason.value, count)
        self._record(
            sitemap,
            reason=reader.problem or None,
            kind=reader.kind.value,
            entries=reader.count,
            taken=selection.accepted,
            rejected={reason.text: count for reason, count in rejected.items()},
        )
        why = ", ".join(f"{count:,} {reason.text}" for reason, count in rejected.items())
        waiting = f" ({selection.unproven:,} waiting for another host's robots.txt)"
        message = (
            "Sitemap %(url)s (%(kind)s): %(entries)s, %(accepted)s accepted%(unproven)s%(why)s"
        )
        values = {
            "url": sitemap.url,
            "kind": reader.kind.value,
            "entries": counted(reader.count, "entry", "entries"),
            "accepted": f"{selection.accepted:,}",
            "unproven": waiting if selection.unproven else "",
            "why": f"; rejected: {why}" if why else "",
        }
        if nothing and not _CHOSEN.issuperset(rejected):
            self._warn(sitemap.origin, message, **values)
        else:
            self._read.log(message, values, self._context.spider)
        if reader.problem:
            message = "Sitemap %(url)s: %(why)s"
            self._warn(sitemap.origin, message, url=sitemap.url, why=reader.problem)

    def failed(self, sitemap: SitemapRow, why: str, *, expected: bool) -> None:
        """Log that *sitemap* can't be read: as a warning unless that was *expected*."""
        self._context.stats.inc_value("rep/sitemaps/failed")
        self._record(sitemap, failed=why)
        message, values = "Sitemap %(url)s was not read: %(why)s", {"url": sitemap.url, "why": why}
        if expected:
            self._unread.log(message, values, self._context.spider)
        else:
            self._warn(sitemap.origin, message, **values)

    def _record(self, sitemap: SitemapRow, reason: str | None = None, **about: Any) -> None:
        found = "guessed" if sitemap.guessed else "index" if sitemap.chain else "listed"
        by = sitemap.chain[-1] if sitemap.chain else f"{sitemap.origin}/robots.txt"
        nothing: dict[str, Any] = {
            "kind": None,
            "entries": 0,
            "taken": 0,
            "rejected": {},
            "failed": None,
        }
        fields = {"found": found, "by": by, **nothing, **about}
        at, about_it = self._context.clock(), (sitemap.url, sitemap.origin)
        record = Record(SITEMAP, at, about_it, reason=reason, sitemap=fields)
        self._context.channel.tell(record)

    def nothing_proven(self, sitemap: SitemapRow, reason: Reason) -> None:
        """Log that all entries of *sitemap* are on other hosts, none of which lists it."""
        self._context.stats.inc_value("rep/sitemaps/nothing_taken")
        message = "Nothing was taken from sitemap %(url)s: its entries are %(why)s"
        self._warn(sitemap.origin, message, url=sitemap.url, why=reason.text)

    def too_many(self, url: str, origin: str) -> None:
        """Log that *origin* has too many sitemaps for this one to be read."""
        self._context.stats.inc_value(Reason.LIMIT.value)
        message = "Sitemap %(url)s is skipped: %(origin)s has reached REP_SITEMAP_MAX_FILES"
        self._warn(origin, message, url=url, origin=origin)

    def _warn(self, of: str, message: str, **values: Any) -> None:
        of = of if of in self._problems or len(self._problems) < _ORIGINS else ""
        self._problems[of] += 1
        log = logger.warning if self._problems[of] <= _WARNINGS else logger.debug
        log(message, values, extra=self._context.extra)

    def _spider_closed(self) -> None:
        left_out = [count - _WARNINGS for count in self._problems.values() if count > _WARNINGS]
        if left_out:
            message = "%(count)s with sitemaps of %(origins)s: logged at DEBUG level"
            more, origins = counted(sum(left_out), "more problem"), counted(len(left_out), "origin")
            values = {"count": more, "origins": origins}
            logger.warning(message, values, extra=self._context.extra)
