"""What sitemaps list and the crawl has not requested yet, in a SQLite file: under JOBDIR if there
is one, else in a temporary file that SQLite deletes by itself.

A page's row is below its site's cursor once it went to the scheduler, and stays until the page was
dealt with: what a stop or a kill leaves below the cursor is requested again. So nothing is lost,
and what comes twice after a kill are the few whose rows were not deleted yet.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict, deque
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.log import get_logger
from scrapy_rep.sitemaps import sitemaptable
from scrapy_rep.sitemaps.patience import Patience
from scrapy_rep.sitemaps.sitemaptable import SitemapTable
from scrapy_rep.sqlitefiles import open_or_set_aside, transaction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Spider

logger = get_logger(__name__)

FILE_NAME = "rep-sitemaps.sqlite"
"""Of the file under JOBDIR."""

# Who locks the file must not hold the event loop; only when it is opened it is waited for.
_OPEN_SECONDS, _LOCK_SECONDS = 0.5, 0.01

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sites (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL UNIQUE, cursor INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS pages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    site INTEGER NOT NULL,
    sitemap INTEGER NOT NULL,
    url TEXT NOT NULL,
    lastmod TEXT,
    alternate TEXT
);
CREATE INDEX IF NOT EXISTS pages_by_site ON pages (site);
CREATE TABLE IF NOT EXISTS unproven (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    site INTEGER NOT NULL,
    sitemap INTEGER NOT NULL,
    url TEXT NOT NULL,
    lastmod TEXT,
    alternate TEXT
);
CREATE INDEX IF NOT EXISTS unproven_by_site ON unproven (site);
"""

Row = tuple[int, int, str, "str | None", "str | None"]
"""Of a page: site, sitemap, url, lastmod, alternate URLs (JSON)."""


class Page(NamedTuple):
    """A page that is to be requested."""

    id: int
    url: str
    lastmod: str | None
    alternate: list[str]
    sitemap: str
    again: bool
    """Whether it went to the scheduler before, in a run that ended before it was dealt with."""


class Spool:
    """Sitemaps and pages that wait. Raises ``sqlite3.Error`` if the disk does not take them."""

    def __init__(self, path: Path | None) -> None:
        """:param path: None: a temporary file"""
        self.durable = path is not None
        # Without the name of a file SQLite makes a temporary one, which nobody else sees.
        self._db = sqlite3.connect(path or "", timeout=_OPEN_SECONDS, isolation_level=None)
        # Nothing here waits for the disk: written is what the operating system has, which outlives
        # a kill of the process. (After a power cut Scrapy's own queues are no better.)
        mode = "WAL" if self.durable else "MEMORY"
        pragmas = f"PRAGMA journal_mode = {mode}; PRAGMA synchronous = OFF;"
        self._db.executescript(pragmas + sitemaptable.SCHEMA + _SCHEMA)
        self.sitemaps = SitemapTable(self._db)
        self._sites: dict[str, int] = {}
        self._waiting: dict[int, int] = {}
        self.waiting = 0
        """How many pages are still to be requested."""
        self._again: dict[int, deque[int]] = defaultdict(deque)
        self._cursors: dict[int, int] = {}
        self.unproven = 0
        """How many entries wait for the robots.txt of another host."""
        self.patience = Patience(None, 0.0)
        """For its users, who may set another one."""
        if self.durable:
            self._recover()
        self._db.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS:.0f}")

    def _recover(self) -> None:
        """Take over what an earlier run left."""
        self.sitemaps.recover()
        for site, count in self._db.execute("SELECT site, count(*) FROM pages GROUP BY site"):
            self._waiting[site] = count
            self.waiting += count
        for site, page in self._db.execute(
            "SELECT site, pages.id FROM sites JOIN pages ON site = sites.id "
            "WHERE pages.id <= cursor ORDER BY pages.id"
        ):
            self._again[site].append(page)
        (self.unproven,) = self._db.execute("SELECT count(*) FROM unproven").fetchone()

    # Pages

    def site(self, origin: str) -> int:
        """Return the number of a site."""
        number = self._sites.get(origin)
        if number is None:
            self._db.execute(
                "INSERT OR IGNORE INTO sites (origin, cursor) VALUES (?, 0)", (origin,)
            )
            (number,) = self._db.execute(
                "SELECT id FROM sites WHERE origin = ?", (origin,)
            ).fetchone()
            if len(self._sites) >= 10_000:
                self._sites.clear()
            self._sites[origin] = number
        return int(number)

    def origin_of(self, site: int) -> str:
        """Return whose number this is."""
        rows = self._db.execute("SELECT origin FROM sites WHERE id = ?", (site,)).fetchall()
        return str(rows[0][0]) if rows else ""

    def add_pages(self, origin: str, pages: list[Row], unproven: list[Row]) -> None:
        """Take the entries of a sitemap that *origin* has brought in."""
        if not (pages or unproven):
            return
        with transaction(self._db):
            self._insert("pages", pages)
            self._insert("unproven", unproven)
            self._db.execute(
                "UPDATE origins SET urls = urls + ? WHERE origin = ?",
                (len(pages) + len(unproven), origin),
            )
        self._count(pages)
        self.unproven += len(unproven)

    def _insert(self, table: str, rows: list[Row]) -> None:
        columns = "(site, sitemap, url, lastmod, alternate)"
        query = f"INSERT INTO {table} {columns} VALUES (?, ?, ?, ?, ?)"  # noqa: S608 (one of two)
        self._db.executemany(query, rows)

    def _count(self, rows: list[Row]) -> None:
        waiting = self._waiting
        for row in rows:
            waiting[row[0]] = waiting.get(row[0], 0) + 1
        self.waiting += len(rows)

    def next_site(self) -> int | None:
        """Return a site that has pages waiting: all have turns."""
        for site in self._waiting:
            self._waiting[site] = self._waiting.pop(site)  # to the end
            return site
        return None

    @property
    def sites(self) -> int:
        """How many sites have pages waiting."""
        return len(self._waiting)

    def take(self, site: int, limit: int) -> list[Page]:
        """Return the next pages of *site*. From now on they count as in the scheduler."""
        again = self._again.get(site)
        if again:
            numbers = list(islice(again, limit))
            pages = self._pages(
                f"pages.id IN ({','.join('?' * len(numbers))}) ORDER BY pages.id", numbers, True
            )
            for _ in numbers:  # not before they could be read
                again.popleft()
            if not again:
                del self._again[site]
            self._less(site, len(numbers))
            return pages
        pages = self._pages(
            "site = ? AND pages.id > ? ORDER BY pages.id LIMIT ?",
            [site, self._cursor(site), limit],
            False,
        )
        if pages:
            self._move(site, pages[-1].id)
            self._less(site, len(pages))
            if site not in self._waiting:
                del self._cursors[site]
        else:
            self._less(site, self._waiting[site])  # somebody has meddled with the file
        return pages

    def _pages(self, where: str, values: list[int], again: bool) -> list[Page]:
        rows = self._db.execute(
            "SELECT pages.id, pages.url, lastmod, alternate, sitemaps.url "  # noqa: S608 (ours)
            f"FROM pages JOIN sitemaps ON sitemaps.id = sitemap WHERE {where}",
            values,
        )
        return [
            Page(number, url, lastmod, json.loads(alternate) if alternate else [], sitemap, again)
            for number, url, lastmod, alternate, sitemap in rows
        ]

    def _less(self, site: int, count: int) -> None:
        self.waiting -= count
        self._waiting[site] -= count
        if self._waiting[site] <= 0:
            del self._waiting[site]

    def _cursor(self, site: int) -> int:
        if site not in self._cursors:
            (cursor,) = self._db.execute(
                "SELECT cursor FROM sites WHERE id = ?", (site,)
            ).fetchone()
            self._cursors[site] = cursor
        return self._cursors[site]

    def _move(self, site: int, cursor: int) -> None:
        self._db.execute("UPDATE sites SET cursor = ? WHERE id = ?", (cursor, site))
        self._cursors[site] = cursor

    def put_back(self, site: int, pages: list[Page]) -> None:
        """Take back the last ones of what was taken: the scheduler did not have them."""
        if not pages:
            return
        if pages[0].again:
            self._again[site].extendleft(page.id for page in reversed(pages))
        else:
            cursor = self._cursors[site] = pages[0].id - 1
            with suppress(sqlite3.Error):  # else the next run takes them for some that were taken
                self._move(site, cursor)
        self._waiting[site] = self._waiting.get(site, 0) + len(pages)
        self.waiting += len(pages)

    def forget(self, pages: Iterable[int]) -> None:
        """Be done with these pages."""
        with transaction(self._db):
            self._db.executemany("DELETE FROM pages WHERE id = ?", [(page,) for page in pages])

    # Entries that wait for proof

    def unproven_origins(self) -> list[tuple[str, str]]:
        """The origins whose entries wait, and for each one that has led to these."""
        return self._db.execute(
            "SELECT sites.origin, min(sitemaps.origin) FROM unproven "
            "JOIN sites ON sites.id = site JOIN sitemaps ON sitemaps.id = sitemap GROUP BY site"
        ).fetchall()

    def unproven_of(self, origin: str, limit: int) -> list[tuple[int, Row]]:
        """The first entries of *origin* that wait, with their numbers."""
        rows = self._db.execute(
            "SELECT id, site, sitemap, url, lastmod, alternate FROM unproven "
            "WHERE site = ? ORDER BY id LIMIT ?",
            (self.site(origin), limit),
        ).fetchall()
        return [(row[0], row[1:]) for row in rows]

    def settle(self, numbers: list[int], accepted: list[Row]) -> None:
        """Be done with waiting entries; those accepted become pages."""
        with transaction(self._db):
            self._insert("pages", accepted)
            self._db.executemany("DELETE FROM unproven WHERE id = ?", [(one,) for one in numbers])
        self._count(accepted)
        self.unproven -= len(numbers)

    def close(self) -> None:
        """Close the file. What is in it is for the next run, if it has a name."""
        self._db.close()


def open_spool(directory: str | None, spider: Spider) -> Spool:
    """Return a spool in the JOBDIR *directory*, or a temporary one where there is none."""
    if not directory:
        return Spool(None)
    path = Path(directory, FILE_NAME)
    try:
        return open_or_set_aside(path, Spool, spider)
    except (sqlite3.Error, OSError) as error:
        logger.warning(
            "%(path)s can't be used (%(error)s): what sitemaps list is kept in a temporary file, "
            "and lost when the crawl ends",
            {"path": path, "error": error},
            extra={"spider": spider},
        )
        return Spool(None)
