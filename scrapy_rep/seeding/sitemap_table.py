"""The sitemaps of a crawl, in the file of the spool. Those done stay there, so that none is read twice,
in this run or in a later one with the same JOBDIR."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.storages.sqlite_file import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

# States of a sitemap: WAITING to be requested; ASKED for; DONE, read or failed.
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
"""How many other hosts one origin's sitemaps may make us ask for anything."""


class SitemapRow(NamedTuple):
    """A sitemap to be read."""

    id: int
    url: str
    host: str
    """The origin that it is fetched from."""
    origin: str
    """The origin whose robots.txt led to it."""
    chain: tuple[str, ...]
    """The indexes that led to it; the robots.txt lists the first."""
    guessed: bool


class SitemapTable:
    """Sitemaps, and what each origin has brought. Raises ``sqlite3.Error``."""

    def __init__(self, get_db: Callable[[], sqlite3.Connection]) -> None:
        self._get_db = get_db

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
        """Add a sitemap. Return whether it is new."""
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
        query = (
            f"SELECT id, url, host, origin, chain, guessed FROM sitemaps WHERE {condition} LIMIT 1"  # noqa: S608 (one of two)
        )
        for number, url, host, origin, chain, guessed in self._db.execute(query, (value,)):
            return SitemapRow(number, url, host, origin, tuple(texts(chain)), bool(guessed))
        return None

    def _set_state(self, sitemap: SitemapRow, state: int) -> None:
        self._db.execute("UPDATE sitemaps SET state = ? WHERE id = ?", (state, sitemap.id))

    def hosts(self, after: str) -> Iterator[str]:
        """Yield the hosts with waiting sitemaps, each once, beginning behind *after*. One look-up
        each: there may be a million."""
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
        query = "SELECT files, urls FROM origins WHERE origin = ?"
        return self._db.execute(query, (origin,)).fetchone() or (0, 0)

    def may_name(self, origin: str, host: str) -> bool:
        """Whether *origin*'s sitemaps may make us ask *host*. If so, it counts from now on."""
        count, known = self._db.execute(
            "SELECT count(*), total(host = ?) FROM named WHERE origin = ?", (host, origin)
        ).fetchone()
        if not known and count < MAX_HOSTS:
            self._db.execute("INSERT INTO named VALUES (?, ?)", (origin, host))
        return bool(known) or count < MAX_HOSTS

    def chain_of(self, sitemap: int) -> tuple[str, ...]:
        """The URLs of *sitemap* and its indexes: a host must list one for its entries to count."""
        query = "SELECT url, chain FROM sitemaps WHERE id = ?"
        url, chain = self._db.execute(query, (sitemap,)).fetchone()
        return (*texts(chain), url)


def texts(value: str | None) -> list[str]:
    """Return the strings of a JSON list; none if *value* is something else."""
    try:
        found = json.loads(value) if value else ()
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
