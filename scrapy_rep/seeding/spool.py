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
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from scrapy import Spider
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.timers import pause
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.seeding.discovery import Discovery, SpiderOptions
from scrapy_rep.seeding.since import Since
from scrapy_rep.storages.journal import Journal

P = ParamSpec("P")
T = TypeVar("T")

FILE_NAME = "rep-sitemaps.sqlite"  # under JOBDIR

RETRY_SECONDS = 1.0
"""Until the next attempt where the file, or the scheduler, has failed."""

# States of a sitemap.
WAITING = 0  # to be requested
ASKED = 1  # it was requested
DONE = 2  # it was read, or will never be
FAILED = 3  # it may be read by the next run: its host was down, say

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sitemaps (
    id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE, host TEXT NOT NULL, origin TEXT NOT NULL,
    chain TEXT NOT NULL, found INTEGER NOT NULL, state INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS sitemaps_waiting ON sitemaps (origin, host, id) WHERE state = 0;
CREATE TABLE IF NOT EXISTS origins (
    origin TEXT PRIMARY KEY, files INTEGER NOT NULL, urls INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS sites (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL, named_by TEXT NOT NULL, proven INTEGER NOT NULL,
    cursor INTEGER NOT NULL, UNIQUE (named_by, origin, proven)
);
CREATE TABLE IF NOT EXISTS pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, site INTEGER NOT NULL, sitemap INTEGER NOT NULL,
    url TEXT NOT NULL, entry TEXT
);
CREATE INDEX IF NOT EXISTS pages_by_site ON pages (site);
CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, started_at REAL NOT NULL);
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


class Found(IntEnum):
    """How a sitemap was found. Stored as a number."""

    LISTED = 0
    """A robots.txt, an index or the spider lists it."""
    GUESSED = 1
    """Nobody does: it is at one of the usual places."""
    LINKED = 2
    """A page links to it."""

    @classmethod
    def of(cls, number: object) -> Found:
        """Return what *number*, which others may have written, means."""
        return next((found for found in cls if found == number), cls.LISTED)


class SitemapRow(NamedTuple):
    id: int
    url: str
    host: str  # the origin that it is fetched from
    origin: str  # the origin whose robots.txt led to it
    chain: tuple[str, ...]  # the indexes that led to it; the robots.txt lists the first
    found: Found

    @property
    def line(self) -> tuple[str, ...]:
        """The URLs of its indexes and its own: a host must list one for its entries to count."""
        return (*self.chain, self.url)


@dataclass(slots=True)
class Site:
    """The pages of one origin, named by the sitemaps of one origin, that wait."""

    id: int
    origin: str
    named_by: str
    """The origin whose sitemaps they are from: the same, or another one."""
    proven: bool
    """Whether they may be requested. Otherwise *origin* has yet to prove that it lists the sitemaps."""
    position: int  # the last row taken in this run
    sent: int  # the last row that went to the scheduler before, and may do so again
    waiting: int = 0
    asked_at: float | None = None
    """When *origin* was first asked for its proof, in seconds of the monotonic clock."""


def count_down(counts: Counter[T], key: T) -> None:
    """Count one less of *key*, which goes with the last one."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]


class Sources:
    """Sites with pages that wait, by the origins that name them. These take turns, so that one that
    names 50,000 others has one turn of them all."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, OrderedDict[int, Site]] = OrderedDict()
        self.sites = 0
        """How many sites there are."""
        self.waiting: Counter[str] = Counter()
        """How many pages wait, by the origin that names them."""

    def __len__(self) -> int:
        return len(self._sites)

    def add(self, site: Site) -> None:
        sites = self._sites.setdefault(site.named_by, OrderedDict())
        self.sites += site.id not in sites
        sites[site.id] = site

    def remove(self, site: Site) -> None:
        sites = self._sites.get(site.named_by, OrderedDict())
        if site.id in sites:
            del sites[site.id]
            self.sites -= 1
        if not sites:
            self._sites.pop(site.named_by, None)

    def next_source(self) -> str:
        """Return the origin whose turn it is."""
        source = next(iter(self._sites))
        self._sites.move_to_end(source)
        return source

    def sites_of(self, source: str) -> OrderedDict[int, Site]:
        """Return the sites that *source* names, the one whose turn it is first."""
        return self._sites[source]

    def count(self, site: Site, pages: int) -> None:
        """Note that more *pages* of *site* wait, or fewer."""
        site.waiting += pages
        self.waiting[site.named_by] += pages
        if self.waiting[site.named_by] <= 0:
            del self.waiting[site.named_by]


class _Recovered(NamedTuple):
    sites: list[Site]
    """Those with pages that wait."""
    started_at: float
    """When the first run with this file began."""
    has_done: bool
    """Whether there are sitemaps with which an earlier run is done."""


def _recover(db: sqlite3.Connection) -> _Recovered:
    # Ask again for what an earlier run has asked for and not read, or in vain.
    db.execute(
        "UPDATE sitemaps SET state = ? WHERE state IN (?, ?)", (WAITING, ASKED, FAILED)
    )
    sites = db.execute(
        "SELECT site, origin, named_by, proven, 0, cursor, count(*) "
        "FROM pages JOIN sites ON sites.id = site GROUP BY site"
    )
    waiting_sites = [
        Site(number, origin, named_by, bool(proven), position, sent, waiting)
        for number, origin, named_by, proven, position, sent, waiting in sites
    ]
    now = time.time()
    db.execute("INSERT OR IGNORE INTO job VALUES (1, ?)", (now,))
    [started_at] = db.execute("SELECT started_at FROM job WHERE id = 1").fetchone()
    # Others may have written anything, and a clock may have been set back.
    is_sound = isinstance(started_at, float) and 0 < started_at <= now
    done = db.execute(
        "SELECT 1 FROM sitemaps WHERE state = ? LIMIT 1", (DONE,)
    ).fetchone()
    return _Recovered(waiting_sites, started_at if is_sound else now, done is not None)


class Spool:
    """Sitemaps and pages that wait. Reads raise ``sqlite3.Error`` while the file can't be used;
    what is written is kept in memory then."""

    def __init__(
        self, directory: str | None, seconds: float, spider: Spider | None
    ) -> None:
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
        """Whether seeding has ended for this run: the crawl has, or the file is damaged or has failed for
        too long."""
        self.ending = False
        """Whether the crawl is closing: nothing more is requested, and nobody waits for the file. Under a
        JOBDIR, sitemaps that are on their way are still read."""
        self._listeners: list[Callable[[], None]] = []
        self.proven = Sources()
        """Those whose pages wait for room in the scheduler."""
        self.unproven = Sources()
        """Those whose pages wait for their origin's robots.txt."""
        self._sites: dict[int, Site] = {}  # all of these, by number
        self.waiting = 0  # how many pages wait
        self.started_at: float | None = None
        """When the crawl began, in seconds since the epoch: with a JOBDIR, its first run. None until the
        file is open."""
        self.had_done = False
        """Whether an earlier run is done with some sitemaps: they aren't read again."""

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
        self.started_at, self.had_done = found.started_at, found.has_done
        for site in found.sites:
            pages, site.waiting = site.waiting, 0
            self._wait(site, pages)
        return True

    def end(self) -> None:
        """Seeding has ended for this run."""
        self.over = True

    def begin_ending(self) -> None:
        """The crawl is closing: request nothing more."""
        self.ending = True

    def notify(self, listener: Callable[[], None]) -> None:
        """From now on, call *listener* when there may be something new to schedule."""
        self._listeners.append(listener)

    def wake(self) -> None:
        """There may be something new to schedule."""
        for listener in self._listeners:
            listener()

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

    def is_kept(self) -> bool:
        """Whether the next run gets what waits, and what was requested and isn't done."""
        return self.durable and not self.over

    def waiting_of(self, origin: str) -> int:
        """Return how many pages wait that sitemaps of *origin* name."""
        return self.proven.waiting[origin] + self.unproven.waiting[origin]

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
        how: Found = Found.LISTED,
        most: int | None = None,
    ) -> tuple[list[str], list[str]]:
        """Add the sitemaps that *origin* has led to. Return the URLs that are new, and those that
        would be, but are beyond the limit. *found*: the origin that each is fetched from, by its
        URL. *how* they were found. *most*: how many *origin* may bring in all."""
        query = f"SELECT url FROM sitemaps WHERE url IN ({', '.join('?' * len(found))})"  # noqa: S608
        known = {url for (url,) in self._read(query, *found)}
        unknown = [url for url in found if url not in known]
        files, urls = self.counts(origin)
        new = unknown if most is None else unknown[: max(0, most - files)]
        with self._journal.together():
            for url in new:
                number = self._journal.new_id("sitemaps")
                self.mark(
                    SitemapRow(number, url, found[url], origin, chain, how), WAITING
                )
            if new:
                self._journal.put("origins", (origin, files + len(new), urls))
        self.wake()
        return new, unknown[len(new) :]

    def next_sitemap(self, origin: str, host: str) -> SitemapRow | None:
        """Return the next sitemap to fetch from *host* of those to which *origin* has led, and mark it
        as asked for."""
        sitemap = self._first(
            "origin = ? AND host = ? AND state = 0 ORDER BY id", origin, host
        )
        if sitemap is not None:
            self.mark(sitemap, ASKED)
        return sitemap

    def sitemap(self, url: str) -> SitemapRow | None:
        """Return a sitemap; None if it is unknown, or over for this run."""
        return self._first(f"url = ? AND state < {DONE}", url)

    def mark(self, sitemap: SitemapRow, state: int) -> None:
        number, url, host, origin, chain, found = sitemap
        row = number, url, host, origin, " ".join(chain), int(found), state
        self._journal.put("sitemaps", row)

    def _first(self, condition: str, *values: object) -> SitemapRow | None:
        columns = ", ".join(SitemapRow._fields)
        query = f"SELECT {columns} FROM sitemaps WHERE {condition} LIMIT 1"  # noqa: S608 (ours)
        for number, url, host, origin, chain, found in self._read(query, *values):
            return SitemapRow(
                number, url, host, origin, tuple(chain.split()), Found.of(found)
            )
        return None

    def is_waiting(self, url: str) -> bool:
        """Whether a sitemap waits to be requested."""
        return bool(
            self._read(
                "SELECT 1 FROM sitemaps WHERE url = ? AND state = ?", url, WAITING
            )
        )

    def unread(self) -> int:
        """Return how many sitemaps wait to be requested, or are on their way; 0 if that can't be read."""
        with suppress(sqlite3.Error):
            query = "SELECT count(*) FROM sitemaps WHERE state IN (?, ?)"
            return int(self._read(query, WAITING, ASKED)[0][0])
        return 0

    def next_origin(self, after: str) -> str | None:
        """Return the first origin after *after* that has led to sitemaps that wait."""
        query = "SELECT min(origin) FROM sitemaps WHERE state = 0 AND origin > ?"
        origin: str | None = self._read(query, after)[0][0]
        return origin

    def next_host(self, origin: str, after: str) -> str | None:
        """Return the first host after *after* with sitemaps that wait to which *origin* has led."""
        query = (
            "SELECT min(host) FROM sitemaps WHERE state = 0 AND origin = ? AND host > ?"
        )
        host: str | None = self._read(query, origin, after)[0][0]
        return host

    def counts(self, origin: str) -> tuple[int, int]:
        found = self._read("SELECT files, urls FROM origins WHERE origin = ?", origin)
        return (found[0][0], found[0][1]) if found else (0, 0)

    # Pages

    def site(
        self, origin: str, named_by: str, *, proven: bool = False, known: bool = False
    ) -> int | None:
        """Return the number of a site; None if *named_by* has named too many others already that need
        a proof, unless its robots.txt is *known*."""
        query = "SELECT id FROM sites WHERE named_by = ? AND origin = ? AND proven = ?"
        if found := self._read(query, named_by, origin, proven):
            return int(found[0][0])
        if not proven and not known:
            query = "SELECT count(*) FROM sites WHERE named_by = ? AND NOT proven"
            [[named]] = self._read(query, named_by)
            if named >= MAX_HOSTS:
                return None
        number = self._journal.new_id("sites")
        self._journal.put("sites", (number, origin, named_by, int(proven), 0))
        return number

    def _with_pages(self, number: int) -> Site:
        if site := self._sites.get(number):
            return site
        query = "SELECT id, origin, named_by, proven, cursor, cursor FROM sites WHERE id = ?"
        [[number, origin, named_by, proven, position, sent]] = self._read(query, number)
        return Site(number, origin, named_by, bool(proven), position, sent)

    def add_pages(self, origin: str, rows: list[Row]) -> None:
        """Add pages from sitemaps of *origin*."""
        files, urls = self.counts(origin)
        with self._journal.together():
            self._add(rows)
            if files:
                self._journal.put("origins", (origin, files, urls + len(rows)))

    def _add(self, rows: list[Row]) -> None:
        sites = [
            self._with_pages(number) for number in dict.fromkeys(row[0] for row in rows)
        ]
        self._journal.put(
            "pages", *((self._journal.new_id("pages"), *row) for row in rows)
        )
        counts = Counter(row[0] for row in rows)
        for site in sites:
            self._wait(site, counts[site.id])
        self.wake()

    def _wait(self, site: Site, pages: int) -> None:
        """Note that more *pages* of *site* wait."""
        self._sites[site.id] = site
        self._of(site).add(site)
        self._count(site, pages)

    def _count(self, site: Site, pages: int) -> None:
        """Note that more *pages* of *site* wait, or fewer."""
        self.waiting += pages
        self._of(site).count(site, pages)
        if site.waiting <= 0:
            self._of(site).remove(site)
            self._sites.pop(site.id, None)

    def _of(self, site: Site) -> Sources:
        return self.proven if site.proven else self.unproven

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
            row = site.id, site.origin, site.named_by, int(site.proven), pages[-1].id
            self._journal.put("sites", row)
        for page in pages:
            yield page
            site.position = page.id
            self._count(site, -1)

    def forget(self, pages: Iterable[int]) -> None:
        self._journal.delete("pages", *pages)

    def settle(self, site: Site, pages: list[Page], accepted: list[Page]) -> None:
        """Let *accepted* go to the scheduler, of these *pages* of *site*; the others are rejected."""
        near = self.site(site.origin, site.named_by, proven=True) or 0
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
    since: Since
