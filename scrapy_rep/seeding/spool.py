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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from scrapy import Spider
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import pause
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.seeding.discovery import Discovery, SpiderOptions
from scrapy_rep.storages.journal import MAX_ID, Journal, tables_of, transaction
from scrapy_rep.text import counted

logger = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

FILE_NAME = "rep-sitemaps.sqlite"  # under JOBDIR

RETRY_SECONDS = 1.0
"""Until the next attempt where the file has failed."""

# States of a sitemap: WAITING to be requested; ASKED for; DONE, read or failed.
WAITING, ASKED, DONE = range(3)

_PAGE = """
    id INTEGER PRIMARY KEY AUTOINCREMENT, site INTEGER NOT NULL, sitemap INTEGER NOT NULL,
    url TEXT NOT NULL, entry TEXT
"""
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS sitemaps (
    id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE, host TEXT NOT NULL, origin TEXT NOT NULL,
    chain TEXT NOT NULL, guessed INTEGER NOT NULL, state INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS sitemaps_waiting ON sitemaps (host, id) WHERE state = 0;
CREATE TABLE IF NOT EXISTS origins (
    origin TEXT PRIMARY KEY, files INTEGER NOT NULL, urls INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS named (
    origin TEXT NOT NULL, host TEXT NOT NULL, PRIMARY KEY (origin, host)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sites (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL UNIQUE, cursor INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS pages ({_PAGE});
CREATE INDEX IF NOT EXISTS pages_by_site ON pages (site);
CREATE TABLE IF NOT EXISTS unproven ({_PAGE});
CREATE INDEX IF NOT EXISTS unproven_by_site ON unproven (site);
"""

# Other hosts that one origin's sitemaps may make us ask for anything.
MAX_HOSTS = 100

Row = tuple[int, int, str, "str | None"]
"""Of a page: site, sitemap, url, entry (JSON)."""


class Page(NamedTuple):
    id: int
    url: str
    entry: dict[str, Any]
    sitemap: str
    again: bool  # whether an earlier run handed it to the scheduler, and ended too soon


class SitemapRow(NamedTuple):
    id: int
    url: str
    host: str  # the origin that it is fetched from
    origin: str  # the origin whose robots.txt led to it
    chain: tuple[str, ...]  # the indexes that led to it; the robots.txt lists the first
    guessed: bool

    @property
    def line(self) -> tuple[str, ...]:
        """Its URL and those of its indexes: a host must list one for its entries to count."""
        return (*self.chain, self.url)


@dataclass(slots=True)
class _Site:
    waiting: int = 0
    sent: int = 0  # the last row that went to the scheduler before, and is taken again
    position: int | None = None  # the last row taken in this run


class Recovered(NamedTuple):
    wrong: int  # how many rows were deleted: they were tampered with, or damaged on disk
    sites: dict[int, _Site]
    unproven: int
    origins: list[tuple[str, str]]  # whose entries wait for proof, each with one that named it


def _wrong(name: str, kind: str, not_null: int) -> str:
    if name == "id":
        return f"id NOT BETWEEN 0 AND {MAX_ID}"
    if name in ("site", "sitemap"):  # rows of other tables, which come before this one
        return f"{name} NOT IN (SELECT id FROM {name}s)"  # noqa: S608 (all ours)
    kinds = [kind.lower()] if not_null else [kind.lower(), "null"]
    return f"typeof({name}) NOT IN ({str(kinds)[1:-1]})"


def _recover(db: sqlite3.Connection) -> Recovered:
    wrong = 0
    with transaction(db):
        for table, columns in tables_of(db).items():
            condition = " OR ".join(_wrong(*column[1:4]) for column in columns or ())
            query = f"DELETE FROM {table} WHERE {condition}"  # noqa: S608 (both are ours)
            wrong += db.execute(query).rowcount
        # Ask again for what an earlier run has asked for and not read.
        db.execute("UPDATE sitemaps SET state = ? WHERE state = ?", (WAITING, ASKED))
    sites = {
        site: _Site(waiting, sent or 0)
        for site, waiting, sent in db.execute(
            "SELECT site, count(*), max(CASE WHEN pages.id <= cursor THEN cursor END) "
            "FROM pages JOIN sites ON sites.id = site GROUP BY site"
        )
    }
    [unproven] = db.execute("SELECT count(*) FROM unproven").fetchone()
    origins = db.execute(
        "SELECT sites.origin, min(sitemaps.origin) FROM unproven "
        "JOIN sites ON sites.id = site JOIN sitemaps ON sitemaps.id = sitemap GROUP BY site"
    ).fetchall()
    return Recovered(wrong, sites, unproven, origins)


class SitemapTable:
    """Sitemaps, and what each origin has brought."""

    def __init__(self, journal: Journal, wake: Callable[[], None]) -> None:
        self._journal = journal
        self._read = journal.read_latest
        self._wake = wake
        self.asked: dict[str, str] = {}
        """URLs of sitemaps that this process has requested and not read yet, with their hosts."""

    def add(
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

    def next(self, host: str) -> SitemapRow | None:
        """Return the next sitemap to fetch from *host*, and mark it as asked for."""
        sitemap = self._first("host = ? AND state = 0 ORDER BY id", host)
        if sitemap is not None:
            self.mark(sitemap, ASKED)
        return sitemap

    def get(self, url: str) -> SitemapRow | None:
        """Return a sitemap; None if it is unknown or done."""
        return self._first(f"url = ? AND state != {DONE}", url)

    def mark(self, sitemap: SitemapRow, state: int) -> None:
        """Note that *sitemap* waits, was asked for, or is done, whatever came of it."""
        number, url, host, origin, chain, guessed = sitemap
        if state != ASKED:
            self.finished(url)
        row = number, url, host, origin, json.dumps(chain), int(guessed), state
        self._journal.put("sitemaps", row)

    def finished(self, url: str) -> None:
        """Note that the request for a sitemap came to its end, whatever came of it."""
        self.asked.pop(url, None)
        self._wake()

    def _first(self, condition: str, value: str | int) -> SitemapRow | None:
        columns = ", ".join(SitemapRow._fields)
        query = f"SELECT {columns} FROM sitemaps WHERE {condition} LIMIT 1"  # noqa: S608 (ours)
        for number, url, host, origin, chain, guessed in self._read(query, value):
            indexes = tuple(strings(_loaded(chain)))
            return SitemapRow(number, url, host, origin, indexes, bool(guessed))
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

    def may_name(self, origin: str, host: str) -> bool:
        """Whether *origin*'s sitemaps may make us ask *host*. If so, it counts from now on."""
        if self._read("SELECT 1 FROM named WHERE origin = ? AND host = ?", origin, host):
            return True
        [[count]] = self._read("SELECT count(*) FROM named WHERE origin = ?", origin)
        if count < MAX_HOSTS:
            self._journal.put("named", (origin, host))
        return bool(count < MAX_HOSTS)

    def of_row(self, number: int) -> SitemapRow:
        found = self._first("id = ?", number)
        assert found is not None
        return found


def strings(value: object) -> list[str]:
    """Return the strings in a list; none if *value* is something else."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def _loaded(text: str | None) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text) if text else None
    return None


def _entry(text: str | None) -> dict[str, Any]:
    """Return what a sitemap says about a page, from the row's JSON."""
    found = _loaded(text)
    entry = {"alternate": [], **found} if isinstance(found, dict) else {"alternate": []}
    entry["lastmod"] = entry.get("lastmod") or None
    return entry


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
            f"seeding waits up to {seconds:g} seconds for it",
            "seeding from sitemaps ends for this run. The next one with this JOBDIR sets the file aside "
            "and reads the sitemaps again",
        )
        self._read = self._journal.read_latest
        self._seconds = seconds
        self._spider = spider
        self.durable = directory is not None
        self.opened = False
        self.over = False
        """Whether seeding has ended for this run: the crawl is closing, or the file is damaged or
        has failed for too long."""
        self.ending = False
        """Whether the crawl is closing: nobody waits for the file any more."""
        self.wake: Callable[[], None] = lambda: None
        """Called when there may be something new to schedule."""
        self.sitemaps = SitemapTable(self._journal, lambda: self.wake())
        self.sites: dict[int, _Site] = {}
        """Those that have pages waiting."""
        self.waiting = 0  # how many pages wait
        self.unproven = 0  # how many entries wait for the robots.txt of another host

    async def look(self) -> Recovered | None:
        """Open the file if it isn't open, and return what it has then; else write what couldn't be
        written so far. Called every second."""
        found = None
        if self.opened:
            await self._journal.flush()
        elif not self.over:
            found = await run_in_thread(self._journal.open, _recover)
        self._end_if_hopeless()
        if found is not None:
            self.opened = True
            self.sites, self.unproven = found.sites, found.unproven
            self.waiting = sum(site.waiting for site in found.sites.values())
            if found.wrong:
                values = {"rows": counted(found.wrong, "row"), "path": self._journal.path}
                message = "Deleted %(rows)s from %(path)s: unreadable"
                logger.warning(message, values, extra={"spider": self._spider})
        return found

    def _end_if_hopeless(self) -> None:
        since = self._journal.failing_since
        if self._journal.damaged:
            self.over = True
        elif since is not None and time.monotonic() - since >= self._seconds and not self.over:
            self.over = True
            goes_on = "The next run with this JOBDIR goes on with it"
            then = goes_on if self.durable else "Its contents are lost"
            message = (
                "Seeding from sitemaps ends for this run: %(path)s has failed for %(seconds)g seconds. "
                f"{then}"
            )
            path = self._journal.path or "its temporary file"
            values = {"path": path, "seconds": self._seconds}
            logger.error(message, values, extra={"spider": self._spider})

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

    def site(self, origin: str) -> int:
        found = self._read("SELECT id FROM sites WHERE origin = ?", origin)
        if found:
            return int(found[0][0])
        number = self._journal.new_id("sites")
        self._journal.put("sites", (number, origin, 0))
        return number

    def origin_of(self, site: int) -> str:
        found = self._read("SELECT origin FROM sites WHERE id = ?", site)
        return str(found[0][0]) if found else ""

    def add_pages(self, origin: str, pages: list[Row], unproven: list[Row]) -> None:
        if not (pages or unproven):
            return
        files, urls = self.sitemaps.counts(origin)
        with self._journal.together():
            self._put("pages", pages)
            self._put("unproven", unproven)
            if files:
                row = origin, files, urls + len(pages) + len(unproven)
                self._journal.put("origins", row)
        self.unproven += len(unproven)

    def _put(self, table: str, rows: list[Row]) -> None:
        self._journal.put(table, *((self._journal.new_id(table), *row) for row in rows))
        for row in rows if table == "pages" else ():
            self.sites.setdefault(row[0], _Site()).waiting += 1
            self.waiting += 1
        self.wake()

    def next_site(self) -> int | None:
        """Return a site that has pages waiting; sites take turns."""
        for site in self.sites:
            self.sites[site] = self.sites.pop(site)  # to the end
            return site
        return None

    def take(self, number: int, limit: int) -> list[Page]:
        """Return the next pages of a site, which count as in the scheduler from now on."""
        site = self.sites[number]
        if site.position is None:
            found = self._read("SELECT cursor FROM sites WHERE id = ?", number)
            site.position = 0 if site.sent or not found else found[0][0]
        again = site.position < site.sent
        rows = self._read(
            "SELECT pages.id, pages.url, entry, sitemaps.url "
            "FROM pages JOIN sitemaps ON sitemaps.id = sitemap "
            "WHERE site = ? AND pages.id > ? AND pages.id <= ? ORDER BY pages.id LIMIT ?",
            number,
            site.position,
            site.sent if again else MAX_ID,
            limit,
        )
        if rows and not again:
            self._move(number, rows[-1][0])
        site.position = rows[-1][0] if rows else site.sent
        if not rows and again:
            return self.take(number, limit)
        count = len(rows) or site.waiting  # no rows: somebody has tampered with the file
        self.waiting -= count
        site.waiting -= count
        if site.waiting <= 0:
            del self.sites[number]
        return [Page(row, url, _entry(text), sitemap, again) for row, url, text, sitemap in rows]

    def _move(self, site: int, cursor: int) -> None:
        self._journal.put("sites", (site, self.origin_of(site), cursor))

    def put_back(self, number: int, pages: list[Page]) -> None:
        """Take back *pages*, the last of those taken: the scheduler failed on the first of them."""
        if not pages:
            return
        first, site = pages[0], self.sites.setdefault(number, _Site())
        site.position = first.id - 1
        # The first may have reached the dupe filter, which would drop it next time.
        site.sent = max(site.sent, pages[-1].id if first.again else first.id)
        if not first.again:
            with suppress(sqlite3.Error):  # else the next run takes them for sent
                self._move(number, first.id)
        site.waiting += len(pages)
        self.waiting += len(pages)

    def forget(self, pages: Iterable[int]) -> None:
        self._journal.delete("pages", *pages)

    def unproven_of(self, origin: str, limit: int) -> list[tuple[int, Row]]:
        rows = self._read(
            "SELECT id, site, sitemap, url, entry FROM unproven WHERE site = ? ORDER BY id LIMIT ?",
            self.site(origin),
            limit,
        )
        return [(row[0], row[1:]) for row in rows]

    def settle(self, numbers: list[int], accepted: list[Row]) -> None:
        with self._journal.together():
            self._put("pages", accepted)
            self._journal.delete("unproven", *numbers)
        self.unproven -= len(numbers)


@dataclass(frozen=True, slots=True)
class SeedingContext:
    crawl: CrawlContext
    discovery: Discovery
    options: SpiderOptions
    spool: Spool
