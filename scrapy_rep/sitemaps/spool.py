"""What sitemaps list and the crawl has not requested yet, in a SQLite file: under JOBDIR if there
is one, else in a temporary file that SQLite deletes by itself.

A page's row is below its site's cursor once it went to the scheduler, and stays until the page was
dealt with: what a stop or a kill leaves below the cursor is requested again. So nothing is lost,
and what comes twice after a kill are the few whose rows were not deleted yet.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections import defaultdict, deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy import Spider

logger = logging.getLogger(__name__)

FILE_NAME = "rep-sitemaps.sqlite"
"""Of the file under JOBDIR."""

# State of a sitemap: WAITING to be requested; ASKED for; DONE, read or failed.
WAITING, ASKED, DONE = range(3)

_LOCK_SECONDS = 0.5

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sitemaps (
    id INTEGER PRIMARY KEY,
    url TEXT NOT NULL UNIQUE,
    host TEXT NOT NULL,
    origin TEXT NOT NULL,
    chain TEXT NOT NULL,
    guessed INTEGER NOT NULL,
    state INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS sitemaps_waiting ON sitemaps (host, id) WHERE state = 0;
CREATE TABLE IF NOT EXISTS origins (
    origin TEXT PRIMARY KEY, files INTEGER NOT NULL, urls INTEGER NOT NULL
);
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


class Sitemap(NamedTuple):
    """A sitemap that is to be read."""

    id: int
    url: str
    host: str
    """The origin that it is fetched from."""
    origin: str
    """The one whose robots.txt led to it."""
    chain: tuple[str, ...]
    """The indexes that led to it, the first is in the robots.txt."""
    guessed: bool


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
        self._db = sqlite3.connect(path or "", timeout=_LOCK_SECONDS, isolation_level=None)
        # Nothing here waits for the disk: written is what the operating system has, which outlives
        # a kill of the process. (After a power cut Scrapy's own queues are no better.)
        mode = "WAL" if self.durable else "OFF"
        self._db.executescript(f"PRAGMA journal_mode = {mode}; PRAGMA synchronous = OFF;" + _SCHEMA)
        self._sites: dict[str, int] = {}
        self._waiting: dict[int, int] = {}
        self.waiting = 0
        """How many pages are still to be requested."""
        self._again: dict[int, deque[int]] = defaultdict(deque)
        self._cursors: dict[int, int] = {}
        self.unproven = 0
        """How many entries wait for the robots.txt of another host."""
        if self.durable:
            self._recover()

    def _recover(self) -> None:
        """Take over what an earlier run left."""
        self._db.execute("UPDATE sitemaps SET state = ? WHERE state = ?", (WAITING, ASKED))
        for site, count in self._db.execute("SELECT site, count(*) FROM pages GROUP BY site"):
            self._waiting[site] = count
            self.waiting += count
        for site, page in self._db.execute(
            "SELECT site, pages.id FROM sites JOIN pages ON site = sites.id "
            "WHERE pages.id <= cursor ORDER BY pages.id"
        ):
            self._again[site].append(page)
        (self.unproven,) = self._db.execute("SELECT count(*) FROM unproven").fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # Sitemaps

    def add_sitemap(
        self, url: str, host: str, origin: str, chain: tuple[str, ...], *, guessed: bool = False
    ) -> bool:
        """Take a sitemap in. Return False if it was known."""
        with self._transaction() as db:
            added = db.execute(
                "INSERT OR IGNORE INTO sitemaps (url, host, origin, chain, guessed, state) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (url, host, origin, json.dumps(chain), guessed, WAITING),
            ).rowcount
            if added:
                db.execute(
                    "INSERT INTO origins VALUES (?, 1, 0) "
                    "ON CONFLICT DO UPDATE SET files = files + 1",
                    (origin,),
                )
        return bool(added)

    def next_sitemap(self, host: str) -> Sitemap | None:
        """Return the next sitemap to be fetched from *host*, which counts as asked for then."""
        row = self._db.execute(
            "SELECT id, url, host, origin, chain, guessed FROM sitemaps "
            "WHERE host = ? AND state = 0 ORDER BY id LIMIT 1",
            (host,),
        ).fetchone()
        if row is None:
            return None
        self._db.execute("UPDATE sitemaps SET state = ? WHERE id = ?", (ASKED, row[0]))
        return _sitemap(row)

    def sitemap(self, url: str) -> Sitemap | None:
        """Return a sitemap; None if it is not known, or done with."""
        row = self._db.execute(
            "SELECT id, url, host, origin, chain, guessed FROM sitemaps "
            "WHERE url = ? AND state != ?",
            (url, DONE),
        ).fetchone()
        return _sitemap(row) if row else None

    def done(self, sitemap: Sitemap) -> None:
        """Be done with *sitemap*, whatever came of it."""
        self._db.execute("UPDATE sitemaps SET state = ? WHERE id = ?", (DONE, sitemap.id))

    def hosts(self) -> list[str]:
        """The hosts that sitemaps are to be fetched from."""
        rows = self._db.execute("SELECT DISTINCT host FROM sitemaps WHERE state = 0")
        return [host for (host,) in rows]

    def counts(self, origin: str) -> tuple[int, int]:
        """How many sitemaps and how many URLs *origin* has brought so far."""
        row = self._db.execute(
            "SELECT files, urls FROM origins WHERE origin = ?", (origin,)
        ).fetchone()
        return row or (0, 0)

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

    def add_pages(self, origin: str, pages: list[Row], unproven: list[Row]) -> None:
        """Take the entries of a sitemap that *origin* has brought in."""
        if not (pages or unproven):
            return
        with self._transaction() as db:
            self._insert("pages", pages)
            self._insert("unproven", unproven)
            db.execute(
                "UPDATE origins SET urls = urls + ? WHERE origin = ?",
                (len(pages) + len(unproven), origin),
            )
        self._count(pages)
        self.unproven += len(unproven)

    def _insert(self, table: str, rows: list[Row]) -> None:
        self._db.executemany(
            f"INSERT INTO {table} (site, sitemap, url, lastmod, alternate) VALUES (?, ?, ?, ?, ?)",
            rows,
        )

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
            numbers = [again.popleft() for _ in range(min(limit, len(again)))]
            pages = self._pages(
                f"pages.id IN ({','.join('?' * len(numbers))}) ORDER BY pages.id", numbers, True
            )
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
            self._less(site, len(pages))
            self._move(site, pages[-1].id)
        else:
            self._less(site, self._waiting[site])  # somebody has meddled with the file
        return pages

    def _pages(self, where: str, values: list[int], again: bool) -> list[Page]:
        rows = self._db.execute(
            "SELECT pages.id, pages.url, lastmod, alternate, sitemaps.url "
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
        self._cursors[site] = cursor
        self._db.execute("UPDATE sites SET cursor = ? WHERE id = ?", (cursor, site))
        if site not in self._waiting:
            del self._cursors[site]

    def put_back(self, site: int, pages: list[Page]) -> None:
        """Take back the last ones of what was taken: the scheduler did not have them."""
        if not pages:
            return
        if pages[0].again:
            self._again[site].extendleft(page.id for page in reversed(pages))
        else:
            self._move(site, pages[0].id - 1)
        self._waiting[site] = self._waiting.get(site, 0) + len(pages)
        self.waiting += len(pages)

    def forget(self, pages: Iterable[int]) -> None:
        """Be done with these pages."""
        with self._transaction() as db:
            db.executemany("DELETE FROM pages WHERE id = ?", [(page,) for page in pages])

    # Entries that wait for proof

    def unproven_origins(self) -> list[str]:
        """The origins whose entries wait."""
        rows = self._db.execute(
            "SELECT origin FROM sites WHERE id IN (SELECT DISTINCT site FROM unproven)"
        )
        return [origin for (origin,) in rows]

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
        with self._transaction() as db:
            self._insert("pages", accepted)
            db.executemany("DELETE FROM unproven WHERE id = ?", [(one,) for one in numbers])
        self._count(accepted)
        self.unproven -= len(numbers)

    def chain_of(self, sitemap: int) -> tuple[str, ...]:
        """The URLs of which one has to be listed by a host, for its entries in *sitemap*."""
        url, chain = self._db.execute(
            "SELECT url, chain FROM sitemaps WHERE id = ?", (sitemap,)
        ).fetchone()
        return (*json.loads(chain), url)

    def close(self) -> None:
        """Close the file. What is in it is for the next run, if it has a name."""
        self._db.close()


def _sitemap(row: tuple[int, str, str, str, str, int]) -> Sitemap:
    number, url, host, origin, chain, guessed = row
    return Sitemap(number, url, host, origin, tuple(json.loads(chain)), bool(guessed))


def open_spool(directory: str | None, spider: Spider) -> Spool:
    """Return a spool in the JOBDIR *directory*, or a temporary one where there is none."""
    if not directory:
        return Spool(None)
    path = Path(directory, FILE_NAME)
    try:
        try:
            return Spool(path)
        except sqlite3.DatabaseError as error:
            if not path.exists() or isinstance(error, sqlite3.OperationalError):
                raise  # the folder is read-only, the file locked: setting it aside helps nothing
            aside = path.with_name(f"{path.name}.unreadable-{int(time.time())}")
            path.rename(aside)
            logger.warning(
                "%(path)s can't be read (%(error)s) and was set aside as %(aside)s",
                {"path": path, "error": error, "aside": aside.name},
                extra={"spider": spider},
            )
            return Spool(path)
    except (sqlite3.Error, OSError) as error:
        logger.warning(
            "%(path)s can't be used (%(error)s): what sitemaps list is kept in a temporary file, "
            "and lost when the crawl ends",
            {"path": path, "error": error},
            extra={"spider": spider},
        )
        return Spool(None)
