"""The SQLite file of the spool: its tables, and what an earlier run left in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.seeding.sitemap_table import ASKED, SCHEMA, WAITING
from scrapy_rep.storages.sqlite_file import SqliteFile, transaction

if TYPE_CHECKING:
    from pathlib import Path

FILE_NAME = "rep-sitemaps.sqlite"  # under JOBDIR
_PAGES = """
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    site INTEGER NOT NULL,
    sitemap INTEGER NOT NULL,
    url TEXT NOT NULL,
    lastmod TEXT,
    alternate TEXT
"""
_SCHEMA = f"""
{SCHEMA}
CREATE TABLE IF NOT EXISTS sites (
    id INTEGER PRIMARY KEY, origin TEXT NOT NULL UNIQUE, cursor INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS pages ({_PAGES});
CREATE INDEX IF NOT EXISTS pages_by_site ON pages (site);
CREATE TABLE IF NOT EXISTS unproven ({_PAGES});
CREATE INDEX IF NOT EXISTS unproven_by_site ON unproven (site);
"""

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
        self.wrong = 0
        """How many unreadable rows were deleted."""
        with transaction(db):
            for table, wrong in _WRONG.items():
                query = f"DELETE FROM {table} WHERE {wrong}"  # noqa: S608 (both are ours)
                self.wrong += db.execute(query).rowcount
            # Ask again for what an earlier run has asked for and not read.
            db.execute("UPDATE sitemaps SET state = ? WHERE state = ?", (WAITING, ASKED))
        query = "SELECT site, count(*) FROM pages GROUP BY site"
        self.waiting: dict[int, int] = dict(db.execute(query))
        """How many pages of each site wait."""
        query = "SELECT DISTINCT site, cursor FROM sites, pages WHERE site = sites.id AND pages.id <= cursor"
        self.sent: dict[int, int] = dict(db.execute(query))
        """The cursors of sites with pages that went to the scheduler and are not done."""
        (self.unproven,) = db.execute("SELECT count(*) FROM unproven").fetchone()
        self.unproven_origins: list[tuple[str, str]] = db.execute(
            "SELECT sites.origin, min(sitemaps.origin) FROM unproven "
            "JOIN sites ON sites.id = site JOIN sitemaps ON sitemaps.id = sitemap GROUP BY site"
        ).fetchall()
        """Origins whose entries wait for proof, each with one that named it."""
