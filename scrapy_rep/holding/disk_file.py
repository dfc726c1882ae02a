"""The SQLite file of held requests, under JOBDIR."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.storages.sqlite_file import SqliteFile, transaction

if TYPE_CHECKING:
    from pathlib import Path

# State of a row: HELD; GIVEN_UP in this run, kept for the next. Earlier versions had a third state.
HELD, GIVEN_UP = 0, 2

_SCHEMA = """
CREATE TABLE IF NOT EXISTS held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL,
    state INTEGER NOT NULL,
    request BLOB NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    fingerprint INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY, ran REAL NOT NULL);
CREATE INDEX IF NOT EXISTS held_by_origin ON held (origin, state, number);
"""

# SQLite keeps anything in any column. Numbers are increased further, within its range.
_SOUND = """
SELECT id, origin, number, since, state, priority, fingerprint FROM held
WHERE id BETWEEN 0 AND 1 << 62 AND typeof(origin) = 'text' AND typeof(number) = 'integer'
AND number BETWEEN 0 AND 1 << 62 AND typeof(since) = 'real' AND since BETWEEN 0 AND 1e10
AND typeof(state) = 'integer' AND typeof(priority) = 'integer' AND typeof(fingerprint) = 'integer'
ORDER BY number
"""
_REST = """
SELECT (SELECT max(seq) FROM sqlite_sequence
        WHERE typeof(seq) = 'integer' AND seq BETWEEN 0 AND 1 << 62),
       (SELECT max(ran) FROM clock WHERE typeof(ran) = 'real' AND ran BETWEEN 0 AND 1e10),
       (SELECT count(*) FROM held)
"""


class Row(NamedTuple):
    """A request in the file."""

    id: int
    origin: str
    number: int
    since: float
    state: int
    request: bytes
    priority: int
    fingerprint: int
    """Of the request, cut to 63 bits: tells whether another one is the same."""


class Index(NamedTuple):
    """What an earlier run left, without the requests themselves."""

    rows: list[tuple[int, str, int, float, int, int, int]]
    """Ids, origins, numbers, times, states, priorities and fingerprints, by number."""
    last_row: int
    """The highest id ever used."""
    ran: float
    """Running time of earlier runs, in seconds."""
    unreadable: int
    """How many rows can't be read."""


class Changes(NamedTuple):
    """Changes to be written."""

    deleted: list[int]
    given_up: list[int]
    ran: float | None
    added: list[Row]


class HoldFile(SqliteFile):
    """Held requests in a file. All methods raise ``sqlite3.Error``."""

    def __init__(self, path: Path) -> None:
        """Open the file. Blocks."""
        # In WAL mode commits don't wait for the disk: they survive a kill of the process, though
        # not a power cut. checkpoint() does wait.
        pragmas = (
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;"
        )
        super().__init__(path, _SCHEMA, pragmas)

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """Add the columns that files of earlier versions lack: one, if a kill came in between."""
        columns = [row[1] for row in db.execute("PRAGMA table_info(held)")]
        if columns[:6] == ["id", "origin", "number", "since", "state", "request"]:
            for name in ("priority", "fingerprint")[len(columns) - 6 :]:
                db.execute(f"ALTER TABLE held ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0")

    def index(self) -> Index:
        """Take over what an earlier run left."""
        rows = self.db.execute(_SOUND).fetchall()
        last, ran, all_rows = self.db.execute(_REST).fetchone()
        # A killed run has taken at least until its last request was held.
        held = max((row[3] for row in rows), default=0.0)
        last = max([last or 0, *(row[0] for row in rows)])
        return Index(rows, last, max(held, ran or 0.0), all_rows - len(rows))

    def wait_anew(self, since: float) -> None:
        """Mark requests that were given up as held *since* then."""
        self.db.execute(
            "UPDATE held SET state = ?, since = ? WHERE state = ?", (HELD, since, GIVEN_UP)
        )

    def read(self, ids: list[int]) -> dict[int, bytes]:
        """Return the requests of these rows, without damaged ones."""
        try:
            marks = ",".join("?" * len(ids))
            query = f"SELECT id, request FROM held WHERE id IN ({marks})"  # noqa: S608 (question marks)
            return dict(self.db.execute(query, ids))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return self._read_one_by_one(ids)

    def _read_one_by_one(self, ids: list[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for number in ids:
            try:
                found.update(
                    self.db.execute("SELECT id, request FROM held WHERE id = ?", (number,))
                )
            except sqlite3.DatabaseError:
                continue
        return found

    def write(self, changes: Changes) -> None:
        """Write *changes*. Writing the same ones again changes nothing."""
        _write(self.db, changes)

    def write_in_thread(self, changes: Changes) -> None:
        """Write *changes*, waiting longer for a lock. The event loop can read meanwhile."""
        with self.another() as db:
            _write(db, changes)

    def checkpoint(self) -> None:
        """Move commits from the WAL to the file. Blocks; others may write meanwhile."""
        with self.another() as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _write(db: sqlite3.Connection, changes: Changes) -> None:
    if changes[:3] != ([], [], None):
        # In their own transaction: on a full disk they may fit though nothing can be added.
        with transaction(db):
            db.executemany("DELETE FROM held WHERE id = ?", [(row,) for row in changes.deleted])
            db.executemany(
                "UPDATE held SET state = ? WHERE id = ?",
                [(GIVEN_UP, row) for row in changes.given_up],
            )
            if changes.ran is not None:
                db.execute("INSERT OR REPLACE INTO clock (id, ran) VALUES (1, ?)", (changes.ran,))
    if changes.added:
        with transaction(db):
            # A request that is held again still has its row.
            db.executemany(
                "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changes.added
            )
