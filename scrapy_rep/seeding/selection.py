"""Which entries of a sitemap become requests, and why the others do not (REP.md section 9).

`intake.py` makes a :class:`Selection` for each sitemap that it reads."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.encoding import encoded, resolve_sitemap
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps.kinds import Kind
from scrapy_rep.protocol.sitemaps.lastmod import latest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Self

    from scrapy_rep.protocol.sitemaps.kinds import Entry
    from scrapy_rep.protocol.sitemaps.reader import SitemapReader
    from scrapy_rep.seeding.context import SeedingContext
    from scrapy_rep.seeding.sitemap_table import SitemapRow
    from scrapy_rep.seeding.spool import Row

MAX_URL = 8192
"""Characters. The protocol's limit is 2,048; more than this no server takes."""

# Prefixes whose verdict is remembered while one sitemap is read.
_PREFIXES = 10_000

# Longer hosts and ports are for the general way to refuse.
_USUAL = re.compile(r"(https?://[a-z0-9.-]{1,255}(?::[0-9]{1,4})?)(?:/[!$-~]*)?", re.ASCII)


class Reason(str, Enum):
    """Why an entry is not accepted: the stat that counts it."""

    text: str
    """For people."""

    def __new__(cls, stat: str, text: str) -> Self:
        reason = str.__new__(cls, stat)
        reason._value_ = stat
        reason.text = text
        return reason

    INVALID = "rep/sitemaps/rejected/invalid", "no absolute http(s) URL"
    BROKEN = "rep/sitemaps/rejected/broken", "damaged by broken XML"
    FILTERED = "rep/sitemaps/rejected/filtered", "left out by sitemap_filter"
    FILTER_ERROR = "rep/sitemaps/rejected/filter_error", "sitemap_filter raised"
    OLD = "rep/sitemaps/rejected/old", "older than REP_SITEMAP_SINCE"
    NO_RULE = "rep/sitemaps/rejected/no_rule", "no sitemap_rules for it"
    NOT_FOLLOWED = "rep/sitemaps/rejected/not_followed", "not in sitemap_follow"
    CROSS_HOST = "rep/sitemaps/rejected/cross_host", "of a host that does not list the sitemap"
    HOSTS = "rep/sitemaps/rejected/hosts", "of a host beyond the first 100 that one site may name"
    PRIVATE = "rep/sitemaps/rejected/private", "of a host with a private address"
    UNPROVEN = "rep/sitemaps/rejected/unproven", "of a host whose robots.txt can't be had"
    KNOWN = "rep/sitemaps/rejected/known", "known already"
    DEPTH = "rep/sitemaps/rejected/depth", "nested deeper than REP_SITEMAP_MAX_DEPTH"
    LIMIT = "rep/sitemaps/rejected/limit", "beyond a limit for this origin"


Verdict = Reason | bool | None
"""Of an entry of another host: True, it is accepted; a reason why not; None, not known yet."""


def host_of(origin: Origin) -> str:
    """What REP.md section 9 calls the host: http and https are the same, other ports are not."""
    default = origin.port == {"http": 80, "https": 443}.get(origin.scheme)
    return origin.host if default else f"{origin.host}:{origin.port}"


def page_url(value: Any) -> tuple[str, str]:
    """Return the URL that a `loc` means, and its prefix: scheme, host and port.

    :raises ValueError: if it is no absolute http(s) URL
    """
    if not isinstance(value, str) or not 0 < len(value) <= MAX_URL:
        raise ValueError
    usual = _USUAL.fullmatch(value)
    if usual:
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
        """:param verdict: whether entries of another origin are accepted, see
            :meth:`~scrapy_rep.seeding.proof.Proofs.verdict`
        :param found: called with the URL of a sitemap that an index lists, and its origin; returns
            whether it is new
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
        self.unproven = 0
        """Of those, how many wait for the robots.txt of their host."""
        self.rejected: Counter[Reason] = Counter()

    def add(self, entries: list[Entry]) -> None:
        """Take entries, to be written by :meth:`write`."""
        sound = [entry for entry in entries if not entry.get("broken")]
        self.rejected[Reason.BROKEN] += len(entries) - len(sound)
        kept, failed = self._options.filtered(sound, log=not self.rejected[Reason.FILTER_ERROR])
        self.rejected[Reason.FILTER_ERROR] += failed
        self.rejected[Reason.FILTERED] += max(0, len(sound) - len(kept) - failed)
        recent = [entry for entry in kept if not self._is_old(entry)]
        self.rejected[Reason.OLD] += len(kept) - len(recent)
        self._pending.extend(recent)

    def _is_old(self, entry: Entry) -> bool:
        since = self._settings.sitemap_since
        if since is None or not (lastmod := entry.get("lastmod")):
            return False
        changed = latest(str(lastmod))
        return changed is not None and changed < since

    def write(self) -> None:
        """Write what was added to the spool. May be called again after an error.

        :raises sqlite3.Error: if that doesn't work
        """
        if self._reader.kind is Kind.INDEX:
            while self._pending:
                self._add_sitemap(self._pending[0])
                self._pending.popleft()
            return
        urls, rejected = self._urls, Counter(self.rejected)
        try:
            rows = [row for entry in self._pending for row in self._rows(entry)]
            pages = [row for row, verdict in rows if verdict]
            unproven = [row for row, verdict in rows if not verdict]
            self._spool.add_pages(self._sitemap.origin, pages, unproven)
        except sqlite3.Error:
            self._urls, self.rejected = urls, rejected
            raise
        self._pending.clear()
        self.accepted += len(rows)
        self.unproven += len(unproven)

    def _rows(self, entry: Entry) -> Iterator[tuple[Row, Verdict]]:
        """Yield the pages of an entry that are accepted: at once, or maybe (None)."""
        alternate = entry.get("alternate")
        urls = [entry.get("loc")]
        if alternate and self._options.alternate_links:
            urls += alternate
        for value in urls:
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
        """Return the number of the site of URLs with this prefix, and whether they are accepted."""
        origin = Origin.from_url(prefix)
        verdict: Verdict = True
        if self._settings.sitemap_cross_host == "strict" and host_of(origin) != self._host:
            verdict = self._verdict(origin, self._sitemap.origin, self._chain)
        site = 0 if isinstance(verdict, Reason) else self._spool.site(str(origin))
        # What is undecided may be decided before the sitemap is read to its end.
        if verdict is not None and len(self._by_prefix) < _PREFIXES:
            self._by_prefix[prefix] = site, verdict
        return site, verdict

    def _add_sitemap(self, entry: Entry) -> None:
        try:
            # As a robots.txt that lists the same has it.
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
