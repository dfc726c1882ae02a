"""Keeps what sitemaps list and the crawl has not requested yet in a SQLite file: under
JOBDIR, or without one in a temporary file, which SQLite deletes itself.

Sitemaps that are done stay there, so that none is read twice in any run with the same
JOBDIR.

Each site (see :class:`Site`) has a cursor, the row of the last of its pages that went
to the scheduler. The row of a page is deleted once the crawl is done with the page.
Rows up to the cursor that are left when the file is opened were in progress when the
process ended, so the next run requests their pages again. Nothing is lost, and after a
kill a few pages come twice.
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
from scrapy_rep.storages.journal import Journal, first_row

P = ParamSpec("P")
T = TypeVar("T")

FILE_NAME = "rep-sitemaps.sqlite"  # under JOBDIR

RETRY_SECONDS = 1.0
"""How long to wait after the file, or the scheduler, has failed."""

# The states of sitemaps in the file.

WAITING = 0
"""State of a sitemap that is to be requested."""
ASKED = 1
"""State of a sitemap that was requested, and is neither read nor failed."""
DONE = 2
"""State of a sitemap that was read, or never will be: no run requests it again."""
FAILED = 3
"""State of a sitemap that couldn't be read (its host was down, say), and that the next
run requests again."""

# For what the columns hold, see SitemapRow, OriginCounts, Site and Page below. Queries
# for sitemaps that wait say "state = 0" as the index does: SQLite uses the index only
# then.
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

MAX_HOSTS = 100
"""How many other hosts one origin's sitemaps may name, so that they can't make us ask
any number of hosts."""


class NewPage(NamedTuple):
    """A page that is to be added to the file. (There it gets a row of its own.)"""

    site: int
    """The number of its :class:`Site`."""
    sitemap: int
    """The number of the sitemap that lists it."""
    url: str
    entry: str
    """What the sitemap says about the page, as JSON."""


class Page(NamedTuple):
    """A page that waits, as it was read from the file."""

    id: int
    """The page's row."""
    sitemap: int
    """The number of the sitemap that lists the page."""
    url: str
    entry: str
    """What the sitemap says about the page, as JSON."""
    sitemap_url: str
    chain: str
    """The indexes that led to the sitemap, as in :class:`SitemapRow`, but with a space
    between two URLs."""

    @property
    def lineage(self) -> tuple[str, ...]:
        """See :attr:`SitemapRow.lineage`."""
        return (*self.chain.split(), self.sitemap_url)

    @property
    def listing(self) -> dict[str, Any]:
        """What its sitemap says about the page, as users get it in
        ``request.meta["rep_sitemap"]``. The first two keys are always there."""
        entry = json.loads(self.entry)
        return {"lastmod": None, "alternate": [], **entry, "sitemap": self.sitemap_url}


class Found(IntEnum):
    """How a sitemap was found. Stored as a number."""

    LISTED = 0
    """A robots.txt, an index or the spider lists the sitemap."""
    GUESSED = 1
    """Nobody lists the sitemap. It would be at one of the usual paths (GUESSES in
    seeding/loader.py)."""
    LINKED = 2
    """A page links to the sitemap."""

    @classmethod
    def of(cls, number: object) -> Found:
        """Return what *number* means; LISTED if it means nothing, since other programs
        may have written it."""
        for member in cls:
            if member == number:
                return member
        return cls.LISTED


class SitemapRow(NamedTuple):
    """A sitemap, as the file has it."""

    id: int
    url: str
    host: str
    """The origin that the sitemap is fetched from."""
    origin: str
    """The origin whose robots.txt led to the sitemap."""
    chain: tuple[str, ...]
    """The URLs of the indexes that led to the sitemap. First comes the one that the
    robots.txt lists."""
    found: Found

    @property
    def lineage(self) -> tuple[str, ...]:
        """The URLs of its indexes and its own. Entries on another host count only if
        the robots.txt of that host lists one of these URLs."""
        return (*self.chain, self.url)


class OriginCounts(NamedTuple):
    """What sitemaps of one origin have brought in all runs."""

    files: int
    """To how many sitemaps the origin has led."""
    urls: int
    """How many pages from these sitemaps were added."""


class AddedSitemaps(NamedTuple):
    """What became of sitemaps that were to be added. Sitemaps that were known already
    are in neither list."""

    new: list[str]
    """URLs of sitemaps that were added."""
    beyond_limit: list[str]
    """URLs of sitemaps that were not added, since their origin may bring no more."""


@dataclass(slots=True)
class Site:
    """The waiting pages of one origin that one source names, which is the origin whose
    robots.txt led to their sitemaps. If two sources name pages of one origin, these
    are two sites."""

    id: int
    """The number by which the rows of its pages refer to the site."""
    origin: str
    """The origin of the pages."""
    named_by: str
    """The source: the same origin, or another one."""
    proven: bool
    """Whether the pages may be requested. Otherwise *origin* has yet to prove that it
    lists the sitemaps."""
    position: int
    """The row of the last page that was taken in this run. Pages after it wait."""
    sent: int
    """Pages with rows up to this number may have gone to the scheduler before, in an
    earlier run, say."""
    waiting: int = 0
    """How many pages of the site wait."""
    asked_at: float | None = None
    """When *origin* was first asked for its proof, in seconds of the monotonic
    clock."""


def count_down(counter: Counter[T], key: T) -> None:
    """Count one less of *key*. At 0, remove *key* from *counter*."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


class Sources:
    """Sites with pages that wait, by their source: the origin whose sitemaps name these
    pages. Sources take turns, and all sites that one source names share its turns, even
    if they are 50,000."""

    def __init__(self) -> None:
        # Sites by source, and then by number. The source whose turn is next comes
        # first, and so does the site.
        self._sites: OrderedDict[str, OrderedDict[int, Site]] = OrderedDict()
        self.sites = 0
        """How many sites there are, of all sources."""
        self.waiting: Counter[str] = Counter()
        """How many pages of each source wait."""

    def __len__(self) -> int:
        """How many sources there are."""
        return len(self._sites)

    def add(self, site: Site) -> None:
        """Add *site*, which may be there already, to those of its source."""
        sites = self._sites.setdefault(site.named_by, OrderedDict())
        if site.id not in sites:
            self.sites += 1
        sites[site.id] = site

    def remove(self, site: Site) -> None:
        """Remove *site*, if it is there; and its source, if that has no other site."""
        sites = self._sites.get(site.named_by)
        if sites is None or site.id not in sites:
            return
        del sites[site.id]
        self.sites -= 1
        if not sites:
            del self._sites[site.named_by]

    def next_source(self) -> str:
        """Return the source whose turn it is, and move it behind the others."""
        source = next(iter(self._sites))
        self._sites.move_to_end(source)
        return source

    def sites_of(self, source: str) -> OrderedDict[int, Site]:
        """Return the sites that *source* names, the one whose turn it is first."""
        return self._sites[source]

    def add_waiting(self, site: Site, pages: int) -> None:
        """Count this many *pages* of *site* more as waiting; less, if the number is
        negative."""
        site.waiting += pages
        self.waiting[site.named_by] += pages
        if self.waiting[site.named_by] <= 0:
            del self.waiting[site.named_by]


class _Recovered(NamedTuple):
    """What an earlier run has left."""

    sites: list[Site]
    """Sites with pages that wait."""
    started_at: float
    """When the first run with this file began."""
    has_done_sitemaps: bool
    """Whether an earlier run is done with some sitemaps, so that they aren't read
    again."""


def _recover(db: sqlite3.Connection) -> _Recovered:
    """Read what an earlier run has left in the file, and prepare the file for this
    run."""
    # Sitemaps that an earlier run has requested, and not read, are requested again.
    db.execute(
        "UPDATE sitemaps SET state = ? WHERE state IN (?, ?)", (WAITING, ASKED, FAILED)
    )
    # Sites with pages that wait, and how many.
    rows = db.execute(
        "SELECT site, origin, named_by, proven, cursor, count(*) "
        "FROM pages JOIN sites ON sites.id = site GROUP BY site"
    )
    sites = []
    for number, origin, named_by, is_proven, cursor, pages in rows:
        site = Site(
            number,
            origin,
            named_by,
            bool(is_proven),
            # The crawl was not done with pages up to the cursor whose rows are still
            # there, so they are taken again, from the first one on.
            position=0,
            sent=cursor,
            waiting=pages,
        )
        sites.append(site)
    done = first_row(db, "SELECT 1 FROM sitemaps WHERE state = ? LIMIT 1", (DONE,))
    has_done_sitemaps = done is not None
    return _Recovered(sites, _started_at(db), has_done_sitemaps)


def _started_at(db: sqlite3.Connection) -> float:
    """Return when the first run with this file began; now, if the file doesn't say."""
    now = time.time()
    # The first run writes the time. Later ones leave it as it is.
    db.execute("INSERT OR IGNORE INTO job VALUES (1, ?)", (now,))
    [started_at] = first_row(db, "SELECT started_at FROM job WHERE id = 1")
    # Other programs may have written anything, and a clock may have been set back.
    if isinstance(started_at, float) and 0 < started_at <= now:
        return started_at
    return now


class Spool:
    """Keeps sitemaps and pages that wait. While the file can't be used, methods that
    read raise ``sqlite3.Error``, and what others write is kept in memory."""

    def __init__(
        self, directory: str | None, seconds: float, spider: Spider | None
    ) -> None:
        """*directory*: JOBDIR, or None. *seconds*: how long seeding waits for a file
        that fails."""
        path = Path(directory, FILE_NAME) if directory else None
        # The journal (storages/journal.py) writes rows, in place of those with the same
        # first column. What can't be written is kept in memory meanwhile.
        self._journal = Journal(
            path,
            _SCHEMA,
            spider,
            f"seeding waits up to {seconds:g} seconds for it, then ends for this run",
            "seeding from sitemaps ends for this run. The next one with this JOBDIR sets the file aside "
            "and reads the sitemaps again",
            gauge="rep/down/sitemaps",
        )
        # This returns the rows for a query, or raises sqlite3.Error while the file
        # lacks what is only in memory.
        self._read = self._journal.read_latest
        # How long seeding waits for a file that fails.
        self._patience_seconds = seconds
        self.durable = directory is not None
        """Whether the file outlives the process."""
        self.opened = False
        """Whether the file has been opened and read."""
        self.seeding_over = False
        """Whether seeding has ended for this run, since the crawl has, or since the
        file is damaged or has failed for too long."""
        self.crawl_closing = False
        """Whether the crawl is closing: nothing more is requested, and nobody waits for
        the file. Under a JOBDIR, sitemaps that were requested are still read."""
        self._listeners: list[Callable[[], None]] = []
        self.proven = Sources()
        """Sites whose pages wait for room in the scheduler."""
        self.unproven = Sources()
        """Sites whose pages wait for their origin's robots.txt."""
        # All sites with pages that wait, proven or not, by number.
        self._sites: dict[int, Site] = {}
        self.waiting = 0
        """How many pages of all sites wait."""
        self.started_at: float | None = None
        """When the crawl began, in seconds since the epoch: with a JOBDIR, its first
        run. None until the file is open."""
        self.has_done_sitemaps = False
        """Whether an earlier run is done with some sitemaps, so that they aren't read
        again."""

    async def open_or_flush(self) -> bool:
        """Open the file if it isn't open; otherwise, write what couldn't be written so
        far. Return whether the file was opened. Called every second."""
        recovered = None
        if self.opened:
            await self._journal.flush()
        elif not self.seeding_over:
            recovered = await run_in_thread(self._journal.open, _recover)
        self._end_if_hopeless()
        if recovered is None:
            return False
        self.opened = True
        self.started_at = recovered.started_at
        self.has_done_sitemaps = recovered.has_done_sitemaps
        for site in recovered.sites:
            pages = site.waiting
            site.waiting = 0  # _add_waiting() counts the pages again
            self._add_waiting(site, pages)
        return True

    def end_seeding(self) -> None:
        """Note that seeding has ended for this run."""
        self.seeding_over = True

    def note_closing(self) -> None:
        """Note that the crawl is closing, so that nothing more is requested."""
        self.crawl_closing = True

    def call_when_woken(self, listener: Callable[[], None]) -> None:
        """From now on, have :meth:`wake` call *listener*."""
        self._listeners.append(listener)

    def wake(self) -> None:
        """Tell listeners that there may be something new to schedule, or room in the
        scheduler."""
        for listener in self._listeners:
            listener()

    def _end_if_hopeless(self) -> None:
        """End seeding for this run if the file is damaged, or has failed for too
        long."""
        if self._journal.damaged:
            self.seeding_over = True
        failing_since = self._journal.failing_since
        if failing_since is not None:
            seconds = time.monotonic() - failing_since
            if seconds >= self._patience_seconds:
                self.seeding_over = True

    async def retry(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *step*, again every second while it raises ``sqlite3.Error``, since the
        file can't be used. Return what *step* returns. If seeding ends first, raise the
        error."""
        while True:
            try:
                return step(*args, **kwargs)
            except sqlite3.Error:
                self._end_if_hopeless()
                if self.seeding_over or self.crawl_closing:
                    raise
            await pause(RETRY_SECONDS)

    def is_kept(self) -> bool:
        """Whether the next run gets the sitemaps and pages that wait, or were requested
        and are not finished."""
        return self.durable and not self.seeding_over

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
        hosts: Mapping[str, str],
        chain: tuple[str, ...] = (),
        *,
        how: Found = Found.LISTED,
        limit: int | None = None,
    ) -> AddedSitemaps:
        """Add the sitemaps that *origin* has led to, unless they are known.

        :param hosts: the origin that each is fetched from, by the sitemap's URL
        :param chain: the indexes that led to them, see :class:`SitemapRow`
        :param how: how they were found
        :param limit: how many *origin* may bring in all; None: any number
        """
        # Find out which are unknown, and how many of these may be added.
        placeholders = ", ".join("?" for _ in hosts)
        query = f"SELECT url FROM sitemaps WHERE url IN ({placeholders})"  # noqa: S608 (ours)
        known_urls = {url for (url,) in self._read(query, *hosts)}
        unknown = [url for url in hosts if url not in known_urls]
        counts = self.counts(origin)
        room = len(unknown)
        if limit is not None:
            room = max(0, limit - counts.files)
        new = unknown[:room]
        # The sitemaps and their number are written in one transaction, so that they
        # agree.
        with self._journal.in_one_transaction():
            for url in new:
                number = self._journal.new_id("sitemaps")
                sitemap = SitemapRow(number, url, hosts[url], origin, chain, how)
                self.mark(sitemap, WAITING)
            if new:
                files = counts.files + len(new)
                self._journal.put("origins", (origin, files, counts.urls))
        self.wake()
        return AddedSitemaps(new, beyond_limit=unknown[room:])

    def next_sitemap(self, origin: str, host: str) -> SitemapRow | None:
        """Return the next waiting sitemap to which *origin* has led and which is
        fetched from *host*, and mark the sitemap as asked for; None if there is
        none."""
        condition = "origin = ? AND host = ? AND state = 0 ORDER BY id"
        sitemap = self._first_sitemap(condition, origin, host)
        if sitemap is not None:
            self.mark(sitemap, ASKED)
        return sitemap

    def unfinished_sitemap(self, url: str) -> SitemapRow | None:
        """Return the sitemap at *url*; None if it is unknown, or this run is done with
        it."""
        # WAITING and ASKED are less than DONE, FAILED is more.
        return self._first_sitemap(f"url = ? AND state < {DONE}", url)

    def mark(self, sitemap: SitemapRow, state: int) -> None:
        """Write a sitemap, which may be new, with its *state*."""
        row = (
            sitemap.id,
            sitemap.url,
            sitemap.host,
            sitemap.origin,
            " ".join(sitemap.chain),
            int(sitemap.found),
            state,
        )
        self._journal.put("sitemaps", row)

    def _first_sitemap(self, condition: str, *values: object) -> SitemapRow | None:
        """Return the first sitemap for which an SQL *condition* holds, whose parameters
        are *values*."""
        columns = ", ".join(SitemapRow._fields)
        query = f"SELECT {columns} FROM sitemaps WHERE {condition} LIMIT 1"  # noqa: S608 (ours)
        rows = self._read(query, *values)
        if not rows:
            return None
        number, url, host, origin, chain, how = rows[0]
        indexes = tuple(chain.split())
        return SitemapRow(number, url, host, origin, indexes, Found.of(how))

    def is_waiting(self, url: str) -> bool:
        """Whether the sitemap at *url* waits to be requested."""
        query = "SELECT 1 FROM sitemaps WHERE url = ? AND state = ?"
        return bool(self._read(query, url, WAITING))

    def count_unread(self) -> int:
        """Return how many sitemaps wait to be requested, or were requested and are not
        done; 0 if the file can't be read."""
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
        """Return the first host after *after* with waiting sitemaps to which *origin*
        has led."""
        query = (
            "SELECT min(host) FROM sitemaps WHERE state = 0 AND origin = ? AND host > ?"
        )
        host: str | None = self._read(query, origin, after)[0][0]
        return host

    def counts(self, origin: str) -> OriginCounts:
        """Return what sitemaps of *origin* have brought so far."""
        rows = self._read("SELECT files, urls FROM origins WHERE origin = ?", origin)
        if not rows:
            return OriginCounts(0, 0)
        return OriginCounts(*rows[0])

    # Pages

    def site_number(
        self,
        origin: str,
        named_by: str,
        *,
        proven: bool = False,
        has_robots: bool = False,
    ) -> int | None:
        """Return the number of a site, which is added to the file if it is new. See
        :class:`Site` for the parameters.

        None if *named_by* has already named too many other origins that need a proof.
        An origin whose robots.txt is known (*has_robots*) is added all the same, since
        its proof needs no request.
        """
        query = "SELECT id FROM sites WHERE named_by = ? AND origin = ? AND proven = ?"
        known_numbers = self._read(query, named_by, origin, proven)
        if known_numbers:
            return int(known_numbers[0][0])
        if not proven and not has_robots:
            query = "SELECT count(*) FROM sites WHERE named_by = ? AND NOT proven"
            [[unproven_sites]] = self._read(query, named_by)
            if unproven_sites >= MAX_HOSTS:
                return None
        number = self._journal.new_id("sites")
        cursor = 0  # none of its pages has gone to the scheduler
        self._journal.put("sites", (number, origin, named_by, int(proven), cursor))
        return number

    def _site_by_number(self, number: int) -> Site:
        """Return a site, which is read from the file if none of its pages wait."""
        site = self._sites.get(number)
        if site is not None:
            return site
        # All of its pages up to the cursor were taken, and none comes after it.
        query = "SELECT origin, named_by, proven, cursor FROM sites WHERE id = ?"
        [[origin, named_by, is_proven, cursor]] = self._read(query, number)
        return Site(
            number,
            origin,
            named_by,
            bool(is_proven),
            position=cursor,
            sent=cursor,
        )

    def add_pages(self, origin: str, pages: list[NewPage]) -> None:
        """Add pages from sitemaps of *origin*."""
        counts = self.counts(origin)
        with self._journal.in_one_transaction():
            self._add_pages(pages)
            if counts.files:  # otherwise, the file has lost the origin's counts
                urls = counts.urls + len(pages)
                self._journal.put("origins", (origin, counts.files, urls))

    def _add_pages(self, pages: list[NewPage]) -> None:
        """Write *pages* into the file, and count them as waiting."""
        pages_by_site = Counter(page.site for page in pages)
        # The sites are read before any page is written. If reading fails, no page was
        # added.
        sites = [self._site_by_number(number) for number in pages_by_site]
        rows = [(self._journal.new_id("pages"), *page) for page in pages]
        self._journal.put("pages", *rows)
        # Count the pages as waiting.
        for site in sites:
            self._add_waiting(site, pages_by_site[site.id])
        self.wake()

    def _add_waiting(self, site: Site, pages: int) -> None:
        """Note that this many more *pages* of *site* wait. They may be its first
        ones."""
        self._sites[site.id] = site
        self._sources_of(site).add(site)
        self._count_waiting(site, pages)

    def _count_waiting(self, site: Site, pages: int) -> None:
        """Count this many *pages* of *site* more as waiting; less, if the number is
        negative. A site of which no page waits is forgotten."""
        self.waiting += pages
        sources = self._sources_of(site)
        sources.add_waiting(site, pages)
        if site.waiting <= 0:
            sources.remove(site)
            self._sites.pop(site.id, None)

    def _sources_of(self, site: Site) -> Sources:
        """Return the sources among which *site* is."""
        return self.proven if site.proven else self.unproven

    def next_pages(self, site: Site, limit: int) -> list[Page]:
        """Return the next pages of a site, without taking them, *limit* at most."""
        rows = self._read(
            "SELECT pages.id, sitemap, pages.url, entry, sitemaps.url, chain "
            "FROM pages JOIN sitemaps ON sitemaps.id = sitemap "
            "WHERE site = ? AND pages.id > ? ORDER BY pages.id LIMIT ?",
            site.id,
            site.position,
            limit,
        )
        if not rows:  # somebody has tampered with the file: no page of the site waits
            self._count_waiting(site, -site.waiting)
        return [Page(*row) for row in rows]

    def take_pages(self, site: Site, limit: int) -> Iterator[Page]:
        """Yield the next pages of a site, *limit* at most, and write the site's new
        cursor. A page counts as taken once the caller asks for the next one. If the
        caller raises an exception instead, the page will come again."""
        pages = self.next_pages(site, limit)
        if pages and pages[-1].id > site.sent:  # else the cursor is there already
            cursor = pages[-1].id
            row = (site.id, site.origin, site.named_by, int(site.proven), cursor)
            self._journal.put("sites", row)
        for page in pages:
            yield page
            # The caller has dealt with the page.
            site.position = page.id
            self._count_waiting(site, -1)

    def delete_pages(self, rows: Iterable[int]) -> None:
        """Delete these *rows* of pages, with which the crawl is done."""
        self._journal.delete("pages", *rows)

    def accept_or_reject(
        self, site: Site, pages: list[Page], accepted: list[Page]
    ) -> None:
        """Let the *accepted* ones of *pages*, all of *site*, go to the scheduler.
        Delete the others."""
        # Accepted pages move to the proven site of the same origin and source.
        # site_number() refuses no proven site, so "or 0" is only for mypy.
        proven_site = self.site_number(site.origin, site.named_by, proven=True) or 0
        new_pages = []
        for page in accepted:
            moved = NewPage(proven_site, page.sitemap, page.url, page.entry)
            new_pages.append(moved)
        rows = [page.id for page in pages]
        with self._journal.in_one_transaction():
            self._add_pages(new_pages)
            self._journal.delete("pages", *rows)
        self._count_waiting(site, -len(pages))


@dataclass(frozen=True, slots=True)
class SeedingContext:
    """What the parts of seeding need of each other."""

    crawl: CrawlContext
    origins: Origins
    discovery: Discovery
    options: SpiderOptions
    spool: Spool
    since: Since
