"""The SQLite file of the spool, and its table of sitemaps. Those done stay there, so that none is read
twice, in this run or in a later one with the same JOBDIR."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.storages.sqlite_file import SqliteFile, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILE_NAME = "rep-sitemaps.sqlite"  # under JOBDIR

# States of a sitemap: WAITING to be requested; ASKED for; DONE, read or failed.
WAITING, ASKED, DONE = range(3)

_PAGE = """
    id INTEGER PRIMARY KEY AUTOINCREMENT, site INTEGER NOT NULL, sitemap INTEGER NOT NULL,
    url TEXT NOT NULL, lastmod TEXT, alternate TEXT
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

# Rows that were tampered with, or damaged on disk.
_WRONG_PAGES = (
    "site NOT IN (SELECT id FROM sites) OR sitemap NOT IN (SELECT id FROM sitemaps) "
    "OR typeof(url) != 'text' OR typeof(lastmod) NOT IN ('text', 'null') "
    "OR typeof(alternate) NOT IN ('text', 'null')"
)
_WRONG = {
    "sites": "typeof(origin) != 'text' OR typeof(cursor) != 'integer'",
    "origins": "typeof(origin) != 'text' OR typeof(files) != 'integer' OR typeof(urls) != 'integer'",
    "sitemaps": "typeof(url) != 'text' OR typeof(host) != 'text' OR typeof(origin) != 'text' "
    "OR typeof(chain) != 'text' OR typeof(guessed) != 'integer' OR typeof(state) != 'integer'",
    "pages": _WRONG_PAGES,
    "unproven": _WRONG_PAGES,
}


class SitemapRow(NamedTuple):
    """A sitemap to be read."""

    id: int
    url: str
    host: str  # the origin that it is fetched from
    origin: str  # the origin whose robots.txt led to it
    chain: tuple[str, ...]  # the indexes that led to it; the robots.txt lists the first
    guessed: bool


class SitemapTable:
    """Sitemaps, and what each origin has brought. Raises ``sqlite3.Error``."""

    def __init__(self, db: Callable[[], sqlite3.Connection]) -> None:
        self._db = db

    def add(
        self,
        url: str,
        host: str,
        origin: str,
        chain: tuple[str, ...],
        *,
        guessed: bool = False,
        state: int = WAITING,
    ) -> bool:
        """Add a sitemap. Return whether it is new."""
        with transaction(db := self._db()):
            added = db.execute(
                "INSERT OR IGNORE INTO sitemaps (url, host, origin, chain, guessed, state) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (url, host, origin, json.dumps(chain), guessed, state),
            ).rowcount
            if added:
                query = "INSERT INTO origins VALUES (?, 1, 0) ON CONFLICT DO UPDATE SET files = files + 1"
                db.execute(query, (origin,))
        return bool(added)

    def next(self, host: str) -> SitemapRow | None:
        """Return the next sitemap to fetch from *host*, and mark it as asked for."""
        sitemap = self._first("host = ? AND state = 0 ORDER BY id", host)
        if sitemap is not None:
            self._set_state(sitemap, ASKED)
        return sitemap

    def put_back(self, sitemap: SitemapRow) -> None:
        """*sitemap* was not asked for after all."""
        self._set_state(sitemap, WAITING)

    def get(self, url: str) -> SitemapRow | None:
        """Return a sitemap; None if it is unknown or done."""
        return self._first(f"url = ? AND state != {DONE}", url)

    def done(self, sitemap: SitemapRow) -> None:
        """Be done with *sitemap*, whatever came of it."""
        self._set_state(sitemap, DONE)

    def _first(self, condition: str, value: str) -> SitemapRow | None:
        columns = ", ".join(SitemapRow._fields)
        query = f"SELECT {columns} FROM sitemaps WHERE {condition} LIMIT 1"  # noqa: S608 (ours)
        for number, url, host, origin, chain, guessed in self._db().execute(query, (value,)):
            return SitemapRow(number, url, host, origin, tuple(texts(chain)), bool(guessed))
        return None

    def _set_state(self, sitemap: SitemapRow, state: int) -> None:
        self._db().execute("UPDATE sitemaps SET state = ? WHERE id = ?", (state, sitemap.id))

    def hosts(self, after: str) -> Iterator[str]:
        """Yield the hosts with waiting sitemaps, each once, beginning behind *after*. One look-up
        each: there may be a million."""
        query = "SELECT min(host) FROM sitemaps WHERE state = 0 AND host > ? AND host <= ?"
        for low, high in ((after, "~"), ("", after)):
            while (host := self._db().execute(query, (low, high)).fetchone()[0]) is not None:
                low = host
                yield host

    def counts(self, origin: str) -> tuple[int, int]:
        """How many sitemaps and how many URLs *origin* has brought so far."""
        query = "SELECT files, urls FROM origins WHERE origin = ?"
        return self._db().execute(query, (origin,)).fetchone() or (0, 0)

    def may_name(self, origin: str, host: str) -> bool:
        """Whether *origin*'s sitemaps may make us ask *host*. If so, it counts from now on."""
        query = "SELECT 1 FROM named WHERE origin = ? AND host = ?"
        if self._db().execute(query, (origin, host)).fetchone():
            return True
        query = "SELECT count(*) FROM named WHERE origin = ?"
        [count] = self._db().execute(query, (origin,)).fetchone()
        if count < MAX_HOSTS:
            self._db().execute("INSERT INTO named VALUES (?, ?)", (origin, host))
        return bool(count < MAX_HOSTS)

    def chain_of(self, sitemap: int) -> tuple[str, ...]:
        """The URLs of *sitemap* and its indexes: a host must list one for its entries to count."""
        query = "SELECT url, chain FROM sitemaps WHERE id = ?"
        url, chain = self._db().execute(query, (sitemap,)).fetchone()
        return (*texts(chain), url)


def texts(value: str | None) -> list[str]:
    """Return the strings of a JSON list; none if *value* is something else."""
    try:
        found = json.loads(value) if value else ()
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def entry_of(lastmod: str | None, text: str | None) -> dict[str, Any]:
    """Return what a page's row says of its entry."""
    entry: dict[str, Any] = {"lastmod": lastmod, "alternate": texts(text)}
    with suppress(ValueError, RecursionError):
        found = json.loads(text) if text else None
        entry.update(found if isinstance(found, dict) else {})
    entry["lastmod"] = entry["lastmod"] or None
    return entry


class SpoolFile(SqliteFile):
    """A file of sitemaps and pages."""

    def __init__(self, path: Path | None) -> None:
        """Open the file, and see what an earlier run left. Takes a while."""
        # Don't wait for the disk: what the operating system has outlives a kill of the process.
        # (After a power cut Scrapy's own queues are no better.)
        mode = "WAL" if path else "MEMORY"
        super().__init__(path, _SCHEMA, f"PRAGMA journal_mode = {mode}; PRAGMA synchronous = OFF;")
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    def _recover(self) -> None:
        db = self.db
        self.wrong = 0  # how many unreadable rows were deleted
        with transaction(db):
            for table, wrong in _WRONG.items():
                query = f"DELETE FROM {table} WHERE {wrong}"  # noqa: S608 (both are ours)
                self.wrong += db.execute(query).rowcount
            # Ask again for what an earlier run has asked for and not read.
            db.execute("UPDATE sitemaps SET state = ? WHERE state = ?", (WAITING, ASKED))
        query = "SELECT site, count(*) FROM pages GROUP BY site"
        self.waiting: dict[int, int] = dict(db.execute(query))  # how many pages of each site wait
        query = "SELECT DISTINCT site, cursor FROM sites, pages WHERE site = sites.id AND pages.id <= cursor"
        self.sent: dict[int, int] = dict(db.execute(query))
        """The cursors of sites with pages that went to the scheduler and are not done."""
        (self.unproven,) = db.execute("SELECT count(*) FROM unproven").fetchone()
        self.unproven_origins: list[tuple[str, str]] = db.execute(
            "SELECT sites.origin, min(sitemaps.origin) FROM unproven "
            "JOIN sites ON sites.id = site JOIN sitemaps ON sitemaps.id = sitemap GROUP BY site"
        ).fetchall()
        """Origins whose entries wait for proof, each with one that named it."""
