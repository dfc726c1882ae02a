"""Which entries of a sitemap become requests, why the others do not (REP.md section 9), and what the
log says of it."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections import Counter, deque
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.encoding import encoded, resolve_sitemap
from scrapy_rep.engine.log import Few, Sparse, get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps.lastmod import latest
from scrapy_rep.protocol.sitemaps.xml import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol.sitemaps.reader import SitemapReader
    from scrapy_rep.protocol.sitemaps.xml import Entry
    from scrapy_rep.seeding.spool import Row, SeedingContext
    from scrapy_rep.seeding.spool_file import SitemapRow

logger = get_logger(__name__)

# Characters. The protocol's limit is 2,048; no server takes more than this.
MAX_URL = 8192
# Prefixes whose verdict is remembered while one sitemap is read.
_PREFIXES = 10_000
# Entries written at a time. The event loop waits meanwhile: each may be on a host of its own.
_AT_A_TIME = 200
# A fast path. Longer hosts and ports are left to Origin.
_USUAL = re.compile(r"(https?://[a-z0-9.-]{1,255}(?::[0-9]{1,4})?)(?:/[!$-~]*)?", re.ASCII)
# Warnings per origin: an index may list 50,000 missing sitemaps. Beyond _ORIGINS, origins share.
_WARNINGS, _ORIGINS = 5, 10_000


class Reason(str, Enum):
    """Why an entry is rejected: the stat that counts it, and a text."""

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
    HOSTS = "rep/sitemaps/rejected/hosts", "on a host beyond the first 100 that one site may name"
    PRIVATE = "rep/sitemaps/rejected/private", "on a host with a private address"
    UNPROVEN = "rep/sitemaps/rejected/unproven", "on a host whose robots.txt can't be fetched"
    KNOWN = "rep/sitemaps/rejected/known", "already known"
    DEPTH = "rep/sitemaps/rejected/depth", "nested deeper than REP_SITEMAP_MAX_DEPTH"
    LIMIT = "rep/sitemaps/rejected/limit", "beyond a limit for this origin"


Verdict = Reason | bool | None
"""On an entry: True, accepted; why it is rejected; None, not known yet."""


def host_of(origin: Origin) -> str:
    """Return the host in the sense of REP.md section 9: the same for http and https, not for other
    ports."""
    default = origin.port == {"http": 80, "https": 443}.get(origin.scheme)
    return origin.host if default else f"{origin.host}:{origin.port}"


def page_url(value: Any) -> tuple[str, str]:
    """Return the URL of a `loc`, and its prefix: scheme, host and port. Raises ValueError if it is
    not an absolute http(s) URL."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_URL:
        raise ValueError
    if usual := _USUAL.fullmatch(value):
        return value, usual[1]
    url = encoded(value.strip()).partition("#")[0]
    origin = Origin.from_url(url)
    if origin.scheme not in ("http", "https"):
        raise ValueError
    return url, str(origin)


class Selection:
    """Selects entries of one sitemap, and puts them into the spool."""

    def __init__(
        self,
        context: SeedingContext,
        sitemap: SitemapRow,
        reader: SitemapReader,
        verdict: Callable[[Origin, str, tuple[str, ...]], Verdict],
        found: Callable[[SitemapRow, str, str], bool],
    ) -> None:
        """:param verdict: on entries of another origin: ``Proofs.verdict``
        :param found: takes the URL and the origin of a sitemap in an index; returns if it is new
        """
        self._sitemap = sitemap
        self._reader = reader
        self._spool = context.spool
        self._settings = context.crawl.settings
        self._options = context.options
        self._verdict = verdict
        self._found = found
        self._chain = (*sitemap.chain, sitemap.url)
        self._host = host_of(Origin.from_url(sitemap.origin))
        self._files, self._urls = context.spool.sitemaps.counts(sitemap.origin)
        self._pending: deque[Entry] = deque()
        self._by_prefix: dict[str, tuple[int, Verdict]] = {}
        self.accepted = 0
        self.unproven = 0  # how many of them wait for the robots.txt of their host
        self.rejected: Counter[Reason] = Counter()

    def add(self, entries: list[Entry]) -> None:
        """Filter entries, for :meth:`write`."""
        sound = [entry for entry in entries if not entry.get("broken")]
        self.rejected[Reason.BROKEN] += len(entries) - len(sound)
        kept, failed = self._options.filtered(sound, log=not self.rejected[Reason.FILTER_ERROR])
        self.rejected[Reason.FILTER_ERROR] += failed
        self.rejected[Reason.FILTERED] += max(0, len(sound) - len(kept) - failed)
        recent = [entry for entry in kept if not self._is_old(entry)]
        self.rejected[Reason.OLD] += len(kept) - len(recent)
        self._pending.extend(recent)

    def _is_old(self, entry: Entry) -> bool:
        since, lastmod = self._settings.sitemap_since, entry.get("lastmod")
        changed = latest(str(lastmod)) if since and lastmod else None
        return changed is not None and since is not None and changed < since

    def write(self) -> bool:
        """Write some of what was added to the spool. Return whether there is more. After a
        ``sqlite3.Error`` call it again."""
        entries = list(islice(self._pending, _AT_A_TIME))
        if self._reader.kind is Kind.INDEX:
            for entry in entries:
                self._add_sitemap(entry)
                self._pending.popleft()
            return bool(self._pending)
        urls, rejected = self._urls, Counter(self.rejected)
        try:
            rows = [row for entry in entries for row in self._rows(entry)]
            pages = [row for row, verdict in rows if verdict]
            unproven = [row for row, verdict in rows if not verdict]
            self._spool.add_pages(self._sitemap.origin, pages, unproven)
        except sqlite3.Error:
            self._urls, self.rejected = urls, rejected
            raise
        for _ in entries:
            self._pending.popleft()
        self.accepted += len(rows)
        self.unproven += len(unproven)
        return bool(self._pending)

    def _rows(self, entry: Entry) -> Iterator[tuple[Row, Verdict]]:
        """Yield the pages of an entry, except those rejected."""
        alternate = entry.get("alternate") or []
        more = alternate if self._options.alternate_links else []
        for value in (entry.get("loc"), *more):
            try:
                url, prefix = page_url(value)
                site, verdict = self._by_prefix.get(prefix) or self._judge(prefix)
            except ValueError:
                self.rejected[Reason.INVALID] += 1
                continue
            if not self._options.callback_for(url)[0]:
                self.rejected[Reason.NO_RULE] += 1
            elif isinstance(verdict, Reason):
                self.rejected[verdict] += 1
            elif self._urls >= self._settings.sitemap_max_origin_urls:
                self.rejected[Reason.LIMIT] += 1
            else:
                self._urls += 1
                others = json.dumps(alternate) if alternate else None
                lastmod = entry.get("lastmod") or None
                yield (site, self._sitemap.id, url, lastmod, others), verdict

    def _judge(self, prefix: str) -> tuple[int, Verdict]:
        """Return the site number of URLs with this prefix, and the verdict on them."""
        origin = Origin.from_url(prefix)
        verdict: Verdict = True
        if self._settings.sitemap_cross_host == "strict" and host_of(origin) != self._host:
            verdict = self._verdict(origin, self._sitemap.origin, self._chain)
        site = 0 if isinstance(verdict, Reason) else self._spool.site(str(origin))
        # Proof may come while the sitemap is being read.
        if verdict is not None and len(self._by_prefix) < _PREFIXES:
            self._by_prefix[prefix] = site, verdict
        return site, verdict

    def _add_sitemap(self, entry: Entry) -> None:
        try:
            url, origin, _ = resolve_sitemap(str(entry.get("loc")).strip())
        except ValueError:
            self.rejected[Reason.INVALID] += 1
            return
        url = url.partition("#")[0]
        if not self._options.follows(url):
            self.rejected[Reason.NOT_FOLLOWED] += 1
        elif len(self._chain) >= self._settings.sitemap_max_depth:
            self.rejected[Reason.DEPTH] += 1
        elif self._files >= self._settings.sitemap_max_files:
            self.rejected[Reason.LIMIT] += 1
        elif not self._found(self._sitemap, url, str(origin)):
            self.rejected[Reason.KNOWN] += 1
        else:
            self._files += 1
            self.accepted += 1


class SitemapLog:
    """Tells what became of each sitemap: a line in the log, and the stats."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._warnings: dict[str, Few] = {}
        self._read = Sparse(logger, "sitemaps read")
        self._unread = Sparse(logger, "sitemaps not read")
        context.crawler.signals.connect(self._spider_closed, scrapy_signals.spider_closed)

    def read(self, sitemap: SitemapRow, reader: SitemapReader, selection: Selection) -> None:
        """*sitemap* was read."""
        inc_value = self._context.stats.inc_value
        inc_value("rep/sitemaps/fetched")
        inc_value("rep/sitemaps/urls", reader.count)
        rejected = {reason: count for reason, count in selection.rejected.items() if count}
        for reason, count in rejected.items():
            inc_value(reason.value, count)
        why = ", ".join(f"{count:,} {reason.text}" for reason, count in rejected.items())
        waiting = f" ({selection.unproven:,} waiting for another host's robots.txt)"
        assert reader.kind is not None
        self._read.log(
            "Sitemap %(url)s (%(kind)s): %(entries)s, %(accepted)s accepted%(unproven)s%(why)s",
            {
                "url": sitemap.url,
                "kind": reader.kind.value,
                "entries": counted(reader.count, "entry", "entries"),
                "accepted": f"{selection.accepted:,}",
                "unproven": waiting if selection.unproven else "",
                "why": f"; rejected: {why}" if why else "",
            },
            self._context.spider,
        )
        if reader.problem:
            message = "Sitemap %(url)s: %(why)s"
            self._warn(sitemap.origin, message, url=sitemap.url, why=reader.problem)

    def failed(self, sitemap: SitemapRow, why: str, *, expected: bool) -> None:
        """*sitemap* can't be read. That deserves no warning if it is *expected*."""
        self._context.stats.inc_value("rep/sitemaps/failed")
        message, values = "Sitemap %(url)s was not read: %(why)s", {"url": sitemap.url, "why": why}
        if expected:
            self._unread.log(message, values, self._context.spider)
        else:
            self._warn(sitemap.origin, message, **values)

    def too_many(self, url: str, origin: str) -> None:
        """*origin* has too many sitemaps to read this one."""
        self._context.stats.inc_value(Reason.LIMIT.value)
        message = "Sitemap %(url)s is skipped: %(origin)s has reached REP_SITEMAP_MAX_FILES"
        self._warn(origin, message, url=url, origin=origin)

    def _warn(self, of: str, message: str, **values: Any) -> None:
        if of not in self._warnings and len(self._warnings) >= _ORIGINS:
            of = ""
        few = self._warnings.setdefault(of, Few(_WARNINGS))
        level = logging.WARNING if few.one_more() else logging.DEBUG
        logger.log(level, message, values, extra=self._context.extra)

    def _spider_closed(self) -> None:
        left_out = [few.left_out for few in self._warnings.values() if few.left_out]
        if left_out:
            logger.warning(
                "%(count)s with sitemaps of %(origins)s: logged at DEBUG level",
                {
                    "count": counted(sum(left_out), "more problem"),
                    "origins": counted(len(left_out), "origin"),
                },
                extra=self._context.extra,
            )
