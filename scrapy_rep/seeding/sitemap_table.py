"""The sitemaps of a crawl, in the file of the spool: those to be requested, and those done with, so
that none is read twice, in this run or in a later one with the same JOBDIR. Part of `spool.py`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.storages.sqlite_file import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

# State of a sitemap: WAITING to be requested; ASKED for; DONE, read or failed.
WAITING, ASKED, DONE = range(3)

SCHEMA = """
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
CREATE TABLE IF NOT EXISTS named (
    origin TEXT NOT NULL, host TEXT NOT NULL, PRIMARY KEY (origin, host)
) WITHOUT ROWID;
"""

MAX_HOSTS = 100
"""How many other hosts are asked for anything because of one origin's sitemaps."""


class SitemapRow(NamedTuple):
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


class SitemapTable:
    """Sitemaps, and what each origin has brought. Raises ``sqlite3.Error``."""

    def __init__(self, db: Callable[[], sqlite3.Connection]) -> None:
        """:param db: gives the file, or raises"""
        self._get_db = db

    @property
    def _db(self) -> sqlite3.Connection:
        return self._get_db()

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
        """Take a sitemap in. Return False if it was known."""
        with transaction(self._db):
            added = self._db.execute(
                "INSERT OR IGNORE INTO sitemaps (url, host, origin, chain, guessed, state) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (url, host, origin, json.dumps(chain), guessed, state),
            ).rowcount
            if added:
                self._db.execute(
                    "INSERT INTO origins VALUES (?, 1, 0) "
                    "ON CONFLICT DO UPDATE SET files = files + 1",
                    (origin,),
                )
        return bool(added)

    def next(self, host: str) -> SitemapRow | None:
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

    def put_back(self, sitemap: SitemapRow) -> None:
        """*sitemap* was not asked for after all."""
        self._db.execute("UPDATE sitemaps SET state = ? WHERE id = ?", (WAITING, sitemap.id))

    def get(self, url: str) -> SitemapRow | None:
        """Return a sitemap; None if it is not known, or done with."""
        row = self._db.execute(
            "SELECT id, url, host, origin, chain, guessed FROM sitemaps "
            "WHERE url = ? AND state != ?",
            (url, DONE),
        ).fetchone()
        return _sitemap(row) if row else None

    def done(self, sitemap: SitemapRow) -> None:
        """Be done with *sitemap*, whatever came of it."""
        self._db.execute("UPDATE sitemaps SET state = ? WHERE id = ?", (DONE, sitemap.id))

    def hosts(self, after: str) -> Iterator[str]:
        """The hosts that sitemaps are to be fetched from, each once: those behind *after*, then
        the others. One look-up each: there may be a million."""
        for low, high in ((after, "~"), ("", after)):
            while True:
                row = self._db.execute(
                    "SELECT host FROM sitemaps WHERE state = 0 AND host > ? AND host <= ? "
                    "ORDER BY host LIMIT 1",
                    (low, high),
                ).fetchone()
                if row is None:
                    break
                (low,) = row
                yield low

    def counts(self, origin: str) -> tuple[int, int]:
        """How many sitemaps and how many URLs *origin* has brought so far."""
        row = self._db.execute(
            "SELECT files, urls FROM origins WHERE origin = ?", (origin,)
        ).fetchone()
        return row or (0, 0)

    def may_name(self, origin: str, host: str) -> bool:
        """Whether *host* may be asked because of *origin*'s sitemaps: it counts from now on."""
        count, known = self._db.execute(
            "SELECT count(*), total(host = ?) FROM named WHERE origin = ?", (host, origin)
        ).fetchone()
        if not known and count < MAX_HOSTS:
            self._db.execute("INSERT INTO named VALUES (?, ?)", (origin, host))
        return bool(known) or count < MAX_HOSTS

    def chain_of(self, sitemap: int) -> tuple[str, ...]:
        """The URLs of which one has to be listed by a host, for its entries in *sitemap*."""
        url, chain = self._db.execute(
            "SELECT url, chain FROM sitemaps WHERE id = ?", (sitemap,)
        ).fetchone()
        return (*texts(chain), url)


def _sitemap(row: tuple[int, str, str, str, str, int]) -> SitemapRow:
    number, url, host, origin, chain, guessed = row
    return SitemapRow(number, url, host, origin, tuple(texts(chain)), bool(guessed))


def texts(value: str | None) -> list[str]:
    """Return what a JSON list holds; nothing, if it is none."""
    try:
        found = json.loads(value) if value else ()
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
