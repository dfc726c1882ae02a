"""What sitemaps list and the crawl has not requested yet, in a SQLite file: under JOBDIR, or
without one in a temporary file, which SQLite deletes itself.

Sitemaps that are done stay there, so that none is read twice in any run with the same JOBDIR. Once
a page went to the scheduler, its row is below its origin's cursor, and stays until the page is
done. The next run requests it again: nothing is lost, and after a kill a few pages come twice.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from scrapy import Spider
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.timers import pause
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.seeding.discovery import Discovery, SpiderOptions
from scrapy_rep.storages.journal import Journal

P = ParamSpec("P")
T = TypeVar("T")

FILE_NAME = "rep-sitemaps.sqlite"  # under JOBDIR

RETRY_SECONDS = 1.0
"""Until the next attempt where the file, or the scheduler, has failed."""

# States of a sitemap: WAITING to be requested; ASKED for; DONE, read or failed.
WAITING, ASKED, DONE = range(3)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sitemaps (
    id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE, host TEXT NOT NULL, origin TEXT NOT NULL,
    chain TEXT NOT NULL, guessed INTEGER NOT NULL, state INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS sitemaps_waiting ON sitemaps (host, id) WHERE state = 0;
CREATE TABLE IF NOT EXISTS origins (
    origin TEXT PRIMARY KEY, files INTEGER NOT NULL, urls INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS sites (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL, named_by TEXT NOT NULL, cursor INTEGER NOT NULL,
    UNIQUE (named_by, origin)
);
CREATE TABLE IF NOT EXISTS pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, site INTEGER NOT NULL, sitemap INTEGER NOT NULL,
    url TEXT NOT NULL, entry TEXT
);
CREATE INDEX IF NOT EXISTS pages_by_site ON pages (site);
"""

# Other hosts that one origin's sitemaps may make us ask for anything.
MAX_HOSTS = 100

Row = tuple[int, int, str, str]
"""Of a page: site, sitemap, url, entry (JSON)."""


class Page(NamedTuple):
    id: int
    sitemap: int
    url: str
    entry: str  # JSON
    sitemap_url: str
    chain: str  # see SitemapRow, with a space between two URLs

    @property
    def line(self) -> tuple[str, ...]:
        """See :attr:`SitemapRow.line`."""
        return (*self.chain.split(), self.sitemap_url)

    @property
    def about(self) -> dict[str, Any]:
        """What its sitemap says about it."""
        entry = json.loads(self.entry)
        return {"lastmod": None, "alternate": [], **entry, "sitemap": self.sitemap_url}


class SitemapRow(NamedTuple):
    id: int
    url: str
    host: str  # the origin that it is fetched from
    origin: str  # the origin whose robots.txt led to it
    chain: tuple[str, ...]  # the indexes that led to it; the robots.txt lists the first
    guessed: bool

    @property
    def line(self) -> tuple[str, ...]:
        """The URLs of its indexes and its own: a host must list one for its entries to count."""
        return (*self.chain, self.url)


@dataclass(slots=True)
class Site:
    """The pages of one origin that wait."""

    id: int
    origin: str
    named_by: str
    """The origin whose sitemaps they are from; empty if they need no proof that *origin* lists these."""
    position: int  # the last row taken in this run
    sent: int  # the last row that went to the scheduler before, and may do so again
    waiting: int = 0
    since: float = field(default_factory=time.monotonic)
    """Since when they wait, in seconds of the monotonic clock."""


def _recover(db: sqlite3.Connection) -> list[Site]:
    # Ask again for what an earlier run has asked for and not read.
    db.execute("UPDATE sitemaps SET state = ? WHERE state = ?", (WAITING, ASKED))
    sites = db.execute(
        "SELECT site, origin, named_by, 0, cursor, count(*) "
        "FROM pages JOIN sites ON sites.id = site GROUP BY site"
    )
    return [Site(*row) for row in sites]


def next_of(sites: dict[int, Site], but: Collection[int] = ()) -> Site | None:
    """Return one of *sites*, which take turns, *but* none with these numbers."""
    for number, site in sites.items():
        if number not in but:
            sites[number] = sites.pop(number)  # to the end
            return site
    return None


class Spool:
    """Sitemaps and pages that wait. Reads raise ``sqlite3.Error`` while the file can't be used;
    what is written is kept in memory then."""

    def __init__(self, directory: str | None, seconds: float, spider: Spider | None) -> None:
        """*directory*: JOBDIR, or None. *seconds*: how long users wait for a failing file."""
        path = Path(directory, FILE_NAME) if directory else None
        self._journal = Journal(
            path,
            _SCHEMA,
            spider,
            f"seeding waits up to {seconds:g} seconds for it, then ends for this run",
            "seeding from sitemaps ends for this run. The next one with this JOBDIR sets the file aside "
            "and reads the sitemaps again",
            gauge="rep/down/sitemaps",
        )
        self._read = self._journal.read_latest
        self._seconds = seconds
        self.durable = directory is not None
        self.opened = False
        self.over = False
        """Whether seeding has ended for this run: the crawl is closing, or the file is damaged or
        has failed for too long."""
        self.ending = False
        """Whether the crawl is closing: nobody waits for the file any more."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there may be something new to schedule."""
        self.asked: dict[str, str] = {}
        """URLs of sitemaps that this process has requested and not read yet, with their hosts."""
        self.sites: dict[int, Site] = {}
        """Those whose pages wait for room in the scheduler."""
        self.unproven: dict[int, Site] = {}
        """Those whose pages wait for their origin's robots.txt."""
        self.waiting = 0  # how many pages wait

    async def look(self) -> bool:
        """Open the file if it isn't open, and return whether that worked; else write what couldn't
        be written so far. Called every second."""
        found = None
        if self.opened:
            await self._journal.flush()
        elif not self.over:
            found = await run_in_thread(self._journal.open, _recover)
        self._end_if_hopeless()
        if found is None:
            return False
        self.opened = True
        for site in found:
            self._of(site)[site.id] = site
            self.waiting += site.waiting
        return True

    def _end_if_hopeless(self) -> None:
        since = self._journal.failing_since
        hopeless = since is not None and time.monotonic() - since >= self._seconds
        self.over = self.over or self._journal.damaged or hopeless

    async def retry(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do *step* once the file can be used; ``sqlite3.Error`` if seeding ends first."""
        while True:
            try:
                return step(*args, **kwargs)
            except sqlite3.Error:
                self._end_if_hopeless()
                if self.over or self.ending:
                    raise
            await pause(RETRY_SECONDS)

    def close(self) -> None:
        """Close the file. With a JOBDIR its contents are for the next run."""
        self._journal.close()

    # Sitemaps, and what each origin has brought

    def add_sitemaps(
        self,
        origin: str,
        found: Mapping[str, str],
        chain: tuple[str, ...] = (),
        *,
        guessed: bool = False,
        most: int | None = None,
    ) -> tuple[list[str], list[str]]:
        """Add the sitemaps that *origin* has led to. Return the URLs that are new, and those that
        would be, but are beyond the limit. *found*: the origin that each is fetched from, by its
        URL. *most*: how many *origin* may bring in all."""
        query = f"SELECT url FROM sitemaps WHERE url IN ({', '.join('?' * len(found))})"  # noqa: S608
        known = {url for (url,) in self._read(query, *found)}
        unknown = [url for url in found if url not in known]
        files, urls = self.counts(origin)
        new = unknown if most is None else unknown[: max(0, most - files)]
        with self._journal.together():
            for url in new:
                number = self._journal.new_id("sitemaps")
                self.mark(SitemapRow(number, url, found[url], origin, chain, guessed), WAITING)
            if new:
                self._journal.put("origins", (origin, files + len(new), urls))
        return new, unknown[len(new) :]

    def next_sitemap(self, host: str) -> SitemapRow | None:
        """Return the next sitemap to fetch from *host*, and mark it as asked for."""
        sitemap = self._first("host = ? AND state = 0 ORDER BY id", host)
        if sitemap is not None:
            self.mark(sitemap, ASKED)
        return sitemap

    def sitemap(self, url: str) -> SitemapRow | None:
        """Return a sitemap; None if it is unknown or done."""
        return self._first(f"url = ? AND state != {DONE}", url)

    def mark(self, sitemap: SitemapRow, state: int) -> None:
        """Note that *sitemap* waits, was asked for, or is done, whatever came of it."""
        number, url, host, origin, chain, guessed = sitemap
        if state != ASKED:
            self.finished(url)
        row = number, url, host, origin, " ".join(chain), int(guessed), state
        self._journal.put("sitemaps", row)

    def finished(self, url: str) -> None:
        """Note that the request for a sitemap came to its end, whatever came of it."""
        self.asked.pop(url, None)
        self.wake()

    def _first(self, condition: str, value: str) -> SitemapRow | None:
        columns = ", ".join(SitemapRow._fields)
        query = f"SELECT {columns} FROM sitemaps WHERE {condition} LIMIT 1"  # noqa: S608 (ours)
        for number, url, host, origin, chain, guessed in self._read(query, value):
            return SitemapRow(number, url, host, origin, tuple(chain.split()), bool(guessed))
        return None

    def hosts(self, after: str) -> Iterator[str]:
        """Yield hosts with waiting sitemaps after *after*, one by one: there may be a million."""
        query = "SELECT min(host) FROM sitemaps WHERE state = 0 AND host > ? AND host <= ?"
        for low, high in ((after, "~"), ("", after)):
            while (host := self._read(query, low, high)[0][0]) is not None:
                low = host
                yield host

    def counts(self, origin: str) -> tuple[int, int]:
        found = self._read("SELECT files, urls FROM origins WHERE origin = ?", origin)
        return (found[0][0], found[0][1]) if found else (0, 0)

    # Pages

    def _of(self, site: Site) -> dict[int, Site]:
        return self.unproven if site.named_by else self.sites

    def site(self, origin: str, named_by: str = "", *, known: bool = False) -> int | None:
        """Return the number of a site; None if *named_by* has named too many others already, unless
        its robots.txt is *known*."""
        query = "SELECT id FROM sites WHERE named_by = ? AND origin = ?"
        if found := self._read(query, named_by, origin):
            return int(found[0][0])
        if named_by and not known:
            [[named]] = self._read("SELECT count(*) FROM sites WHERE named_by = ?", named_by)
            if named >= MAX_HOSTS:
                return None
        number = self._journal.new_id("sites")
        self._journal.put("sites", (number, origin, named_by, 0))
        return number

    def _with_pages(self, number: int) -> Site:
        if site := self.sites.get(number) or self.unproven.get(number):
            return site
        query = "SELECT id, origin, named_by, cursor, cursor FROM sites WHERE id = ?"
        return Site(*self._read(query, number)[0])

    def add_pages(self, origin: str, rows: list[Row]) -> None:
        """Add pages from sitemaps of *origin*."""
        files, urls = self.counts(origin)
        with self._journal.together():
            self._add(rows)
            if files:
                self._journal.put("origins", (origin, files, urls + len(rows)))

    def _add(self, rows: list[Row]) -> None:
        sites = [self._with_pages(number) for number in dict.fromkeys(row[0] for row in rows)]
        self._journal.put("pages", *((self._journal.new_id("pages"), *row) for row in rows))
        counts = Counter(row[0] for row in rows)
        for site in sites:
            self._of(site)[site.id] = site
            self._count(site, counts[site.id])
        self.wake()

    def _count(self, site: Site, pages: int) -> None:
        """Note that more *pages* of *site* wait, or fewer."""
        self.waiting += pages
        site.waiting += pages
        if site.waiting <= 0:
            self._of(site).pop(site.id, None)

    def first_of(self, site: Site, limit: int) -> list[Page]:
        """Return the next pages of a site."""
        pages = self._read(
            "SELECT pages.id, sitemap, pages.url, entry, sitemaps.url, chain "
            "FROM pages JOIN sitemaps ON sitemaps.id = sitemap "
            "WHERE site = ? AND pages.id > ? ORDER BY pages.id LIMIT ?",
            site.id,
            site.position,
            limit,
        )
        if not pages:  # somebody has tampered with the file
            self._count(site, -site.waiting)
        return [Page(*page) for page in pages]

    def take(self, site: Site, limit: int) -> Iterator[Page]:
        """Yield the next pages of a site. Each counts as in the scheduler when the next one is asked
        for; before that, it comes again."""
        pages = self.first_of(site, limit)
        if pages and pages[-1].id > site.sent:
            self._journal.put("sites", (site.id, site.origin, site.named_by, pages[-1].id))
        for page in pages:
            yield page
            site.position = page.id
            self._count(site, -1)

    def forget(self, pages: Iterable[int]) -> None:
        self._journal.delete("pages", *pages)

    def settle(self, site: Site, pages: list[Page], accepted: list[Page]) -> None:
        """Let *accepted* go to the scheduler, of these *pages* of *site*; the others are rejected."""
        near = self.site(site.origin) or 0
        with self._journal.together():
            self._add([(near, page.sitemap, page.url, page.entry) for page in accepted])
            self._journal.delete("pages", *(page.id for page in pages))
        self._count(site, -len(pages))


@dataclass(frozen=True, slots=True)
class SeedingContext:
    crawl: CrawlContext
    origins: Origins
    discovery: Discovery
    options: SpiderOptions
    spool: Spool
