"""Which entries of a sitemap become requests, and why the others do not (REP.md section 9)."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.urls import encoded
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps.kinds import Kind
from scrapy_rep.protocol.sitemaps.lastmod import latest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy_rep.protocol.sitemaps.kinds import Entry
    from scrapy_rep.protocol.sitemaps.reader import SitemapReader
    from scrapy_rep.seeding.sitemap_table import Sitemap
    from scrapy_rep.seeding.spider_options import Conventions
    from scrapy_rep.seeding.spool import Row, Spool
    from scrapy_rep.settings import RepSettings

MAX_URL = 8192
"""Characters. The protocol's limit is 2,048; more than this no server takes."""

_USUAL = re.compile(r"(https?://[a-z0-9.-]+(?::[0-9]{1,5})?)(?:/[!$-~]*)?", re.ASCII)


class Reason(str, Enum):
    """Why an entry is not accepted: the stat that counts it."""

    INVALID = "rep/sitemaps/rejected/invalid"
    BROKEN = "rep/sitemaps/rejected/broken"
    FILTERED = "rep/sitemaps/rejected/filtered"
    FILTER_ERROR = "rep/sitemaps/rejected/filter_error"
    OLD = "rep/sitemaps/rejected/old"
    NO_RULE = "rep/sitemaps/rejected/no_rule"
    NOT_FOLLOWED = "rep/sitemaps/rejected/not_followed"
    CROSS_HOST = "rep/sitemaps/rejected/cross_host"
    HOSTS = "rep/sitemaps/rejected/hosts"
    PRIVATE = "rep/sitemaps/rejected/private"
    UNPROVEN = "rep/sitemaps/rejected/unproven"
    KNOWN = "rep/sitemaps/rejected/known"
    DEPTH = "rep/sitemaps/rejected/depth"
    LIMIT = "rep/sitemaps/rejected/limit"

    @property
    def text(self) -> str:
        """For people."""
        return _TEXTS[self]


Verdict = Reason | bool | None
"""Of an entry of another host: True, it is accepted; a reason why not; None, not known yet."""

_TEXTS = {
    Reason.INVALID: "no absolute http(s) URL",
    Reason.BROKEN: "damaged by broken XML",
    Reason.FILTERED: "left out by sitemap_filter",
    Reason.FILTER_ERROR: "sitemap_filter raised",
    Reason.OLD: "older than REP_SITEMAP_SINCE",
    Reason.NO_RULE: "no sitemap_rules for it",
    Reason.NOT_FOLLOWED: "not in sitemap_follow",
    Reason.CROSS_HOST: "of a host that does not list the sitemap",
    Reason.HOSTS: "of a host beyond the first 100 that one site may name",
    Reason.PRIVATE: "of a host with a private address",
    Reason.UNPROVEN: "of a host whose robots.txt can't be had",
    Reason.KNOWN: "known already",
    Reason.DEPTH: "nested deeper than REP_SITEMAP_MAX_DEPTH",
    Reason.LIMIT: "beyond a limit for this origin",
}


def host_of(origin: Origin) -> str:
    """What REP.md section 9 calls the host: http and https are the same, other ports are not."""
    default = origin.port == {"http": 80, "https": 443}.get(origin.scheme)
    return origin.host if default else f"{origin.host}:{origin.port}"


def proper(value: Any) -> tuple[str, str]:
    """Return a `loc` as a URL, and scheme, host and port of it as spelt there.

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


class Sorter:
    """Sorts the entries of one sitemap, and puts those accepted into the spool."""

    def __init__(
        self,
        sitemap: Sitemap,
        reader: SitemapReader,
        spool: Spool,
        settings: RepSettings,
        conventions: Conventions,
        verdict: Callable[[Origin, str, tuple[str, ...]], Verdict],
        found: Callable[[Sitemap, str, str], bool],
    ) -> None:
        """:param verdict: whether entries of another origin are accepted, which this one has led to
            by these sitemaps
        :param found: called with the URL of a sitemap that an index lists, and where that is;
            returns whether it is new
        """
        self._sitemap = sitemap
        self._reader = reader
        self._spool = spool
        self._settings = settings
        self._conventions = conventions
        self._verdict = verdict
        self._found = found
        self._chain = (*sitemap.chain, sitemap.url)
        self._host = host_of(Origin.from_url(sitemap.origin))
        self._files, self._urls = spool.sitemaps.counts(sitemap.origin)
        self._todo: deque[Entry] = deque()
        self._places: dict[str, tuple[int, Verdict]] = {}
        self.accepted = 0
        self.unproven = 0
        """Of those, how many wait for the robots.txt of their host."""
        self.rejected: Counter[Reason] = Counter()

    def take(self, entries: list[Entry]) -> None:
        """Sort some.

        :raises sqlite3.Error: if they can't be written
        """
        self.add(entries)
        self.go_on()

    def add(self, entries: list[Entry]) -> None:
        """Have some sorted by :meth:`go_on`."""
        self._todo.extend(self._wanted(entries))

    def go_on(self) -> None:
        """Sort what was added. May be called again after an error.

        :raises sqlite3.Error: if they can't be written
        """
        if self._reader.kind is Kind.INDEX:
            while self._todo:
                self._add_sitemap(self._todo[0])
                self._todo.popleft()
            return
        urls, rejected = self._urls, Counter(self.rejected)
        pages: list[Row] = []
        unproven: list[Row] = []
        try:
            self._sort(pages, unproven)
            self._spool.add_pages(self._sitemap.origin, pages, unproven)
        except sqlite3.Error:
            self._urls, self.rejected = urls, rejected
            raise
        self._todo.clear()
        self.accepted += len(pages) + len(unproven)
        self.unproven += len(unproven)

    def _sort(self, pages: list[Row], unproven: list[Row]) -> None:
        for entry in self._todo:
            alternate = entry.get("alternate")
            urls = [entry.get("loc")]
            if alternate and self._conventions.alternate_links:
                urls += alternate
            for url in urls:
                self._add_page(url, entry, alternate, pages, unproven)

    def _wanted(self, entries: list[Entry]) -> Iterator[Entry]:
        sound = [entry for entry in entries if not entry.get("broken")]
        self.rejected[Reason.BROKEN] += len(entries) - len(sound)
        kept, failed = self._conventions.filtered(sound, log=not self.rejected[Reason.FILTER_ERROR])
        self.rejected[Reason.FILTER_ERROR] += failed
        self.rejected[Reason.FILTERED] += max(0, len(sound) - len(kept) - failed)
        since = self._settings.sitemap_since
        for entry in kept:
            if since is not None and (lastmod := entry.get("lastmod")):
                changed = latest(str(lastmod))
                if changed is not None and changed < since:
                    self.rejected[Reason.OLD] += 1
                    continue
            yield entry

    def _add_page(
        self,
        value: Any,
        entry: Entry,
        alternate: list[str] | None,
        pages: list[Row],
        unproven: list[Row],
    ) -> None:
        try:
            url, spelling = proper(value)
            place = self._places.get(spelling) or self._place(spelling)
        except ValueError:
            self.rejected[Reason.INVALID] += 1
            return
        site, verdict = place
        if not self._conventions.callback_for(url)[0]:
            self.rejected[Reason.NO_RULE] += 1
        elif isinstance(verdict, Reason):
            self.rejected[verdict] += 1
        elif self._urls >= self._settings.sitemap_max_origin_urls:
            self.rejected[Reason.LIMIT] += 1
        else:
            self._urls += 1
            row = (
                *(site, self._sitemap.id, url, entry.get("lastmod") or None),
                json.dumps(alternate) if alternate else None,
            )
            (pages if verdict else unproven).append(row)

    def _place(self, spelling: str) -> tuple[int, Verdict]:
        """The number of the site of a URL that begins so, and whether its pages are accepted."""
        origin = Origin.from_url(spelling)
        verdict: Verdict = True
        if self._settings.sitemap_cross_host == "strict" and host_of(origin) != self._host:
            verdict = self._verdict(origin, self._sitemap.origin, self._chain)
        site = 0 if isinstance(verdict, Reason) else self._spool.site(str(origin))
        if len(self._places) < 10_000:
            self._places[spelling] = site, verdict
        return site, verdict

    def _add_sitemap(self, entry: Entry) -> None:
        try:
            url, spelling = proper(entry.get("loc"))
            url = encoded(url)  # as a robots.txt that lists the same has it
            host = str(Origin.from_url(spelling))
        except ValueError:
            self.rejected[Reason.INVALID] += 1
            return
        if not self._conventions.follows(url):
            self.rejected[Reason.NOT_FOLLOWED] += 1
        elif len(self._chain) >= self._settings.sitemap_max_depth:
            self.rejected[Reason.DEPTH] += 1
        elif self._files >= self._settings.sitemap_max_files:
            self.rejected[Reason.LIMIT] += 1
        elif not self._found(self._sitemap, url, host):
            self.rejected[Reason.KNOWN] += 1
        else:
            self._files += 1
            self.accepted += 1
