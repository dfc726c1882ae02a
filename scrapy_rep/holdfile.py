"""The SQLite file of held requests, under JOBDIR: what is in it and how it is read and written."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.sqlitefiles import set_aside, transaction

if TYPE_CHECKING:
    from pathlib import Path

# State of a row: HELD; GIVEN_UP in this run, kept for the next. Earlier versions had a third, for
# rows whose requests were released.
HELD, GIVEN_UP = 0, 2

# Nobody else has a reason to lock the file. Whoever does must not hold the event loop; a thread can
# wait longer.
_LOCK_SECONDS, _THREAD_LOCK_SECONDS = 0.005, 1.0
# A copy is made so many pages at a time: others use the connection in between.
_PAGES = 100

_SCHEMA = """
CREATE TABLE IF NOT EXISTS held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL,
    state INTEGER NOT NULL,
    request BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY, ran REAL NOT NULL);
CREATE INDEX IF NOT EXISTS held_by_origin ON held (origin, state, number);
"""

# SQLite keeps anything in any column. Numbers are counted on from, and stay in its range for long.
_SOUND = """
SELECT id, origin, number, since, state FROM held
WHERE id BETWEEN 0 AND 1 << 62 AND typeof(origin) = 'text' AND typeof(number) = 'integer'
AND number BETWEEN 0 AND 1 << 62 AND typeof(since) = 'real' AND since BETWEEN 0 AND 1e10
AND typeof(state) = 'integer'
ORDER BY number
"""
_REST = """
SELECT (SELECT max(seq) FROM sqlite_sequence
        WHERE typeof(seq) = 'integer' AND seq BETWEEN 0 AND 1 << 62),
       (SELECT max(ran) FROM clock WHERE typeof(ran) = 'real' AND ran BETWEEN 0 AND 1e10),
       (SELECT count(*) FROM held)
"""


class Row(NamedTuple):
    """A request as the file has it."""

    id: int
    origin: str
    number: int
    since: float
    state: int
    request: bytes


class Index(NamedTuple):
    """What an earlier run left, the requests themselves apart."""

    rows: list[tuple[int, str, int, float, int]]
    """Their ids, origins, numbers, times and states, by number."""
    last_row: int
    """The highest id there ever was."""
    ran: float
    """How long earlier runs took."""
    unreadable: int
    """How many rows can't be read."""


class Changes(NamedTuple):
    """What is to be written."""

    deleted: list[int]
    given_up: list[int]
    ran: float | None
    added: list[Row]


def connect(path: Path, lock_seconds: float) -> sqlite3.Connection:
    """Open the file at *path*, which may be used in any thread."""
    db = sqlite3.connect(path, timeout=lock_seconds, isolation_level=None, check_same_thread=False)
    # Else one row that is no text fails all queries that meet it.
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


class HoldFile:
    """Held requests in a file. All of it raises ``sqlite3.Error``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = connect(path, _LOCK_SECONDS)
        # Commits in WAL mode wait for no disk: they outlive a kill of the process, which is
        # what matters here, if not a power cut.
        try:
            self._db.execute(f"PRAGMA busy_timeout = {1000 * _THREAD_LOCK_SECONDS:.0f}")
            self._db.executescript(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + _SCHEMA
            )
            (state,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
            self._db.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS:.0f}")
            # It waits for the disk: see checkpoint().
            self._db.execute("PRAGMA wal_autocheckpoint = 0")
            self._node = _node(path)
        except BaseException:
            self._db.close()
            raise

    def index(self) -> Index:
        """Take over what an earlier run left."""
        rows = self._db.execute(_SOUND).fetchall()
        last, ran, all_rows = self._db.execute(_REST).fetchone()
        # No less than when the last request was held, if that run was killed.
        held = max((row[3] for row in rows), default=0.0)
        return Index(rows, last or 0, max(held, ran or 0.0), all_rows - len(rows))

    def wait_anew(self, since: float) -> None:
        """Have what was given up held since then."""
        self._db.execute(
            "UPDATE held SET state = ?, since = ? WHERE state = ?", (HELD, since, GIVEN_UP)
        )

    def read(self, ids: list[int]) -> dict[int, bytes]:
        """Return the requests of these rows. Those that are damaged are left out."""
        try:
            marks = ",".join("?" * len(ids))
            query = f"SELECT id, request FROM held WHERE id IN ({marks})"  # noqa: S608 (question marks)
            return dict(self._db.execute(query, ids))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return self._read_one_by_one(ids)

    def _read_one_by_one(self, ids: list[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for number in ids:
            try:
                found.update(
                    self._db.execute("SELECT id, request FROM held WHERE id = ?", (number,))
                )
            except sqlite3.DatabaseError:
                continue
        return found

    def write(self, changes: Changes) -> None:
        """Write *changes*. May be called again with the same ones."""
        _write(self._db, changes)

    def write_in_thread(self, changes: Changes) -> None:
        """As :meth:`write`, but waits longer for a lock. The event loop can read meanwhile."""
        with closing(connect(self.path, _THREAD_LOCK_SECONDS)) as db:
            _write(db, changes)

    def checkpoint(self) -> None:
        """Write what was committed to its place. It takes a while; others may write meanwhile."""
        with closing(connect(self.path, _THREAD_LOCK_SECONDS)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def is_gone(self) -> bool:
        """Whether the file at the path is not this one any more: somebody has deleted it."""
        return _node(self.path) != self._node

    def restore(self) -> HoldFile:
        """Return a new file at the path, with what is in this one. It takes a while.

        What is written to this one meanwhile may be missing there.
        """
        # What is beside this file, or has taken its place, would spoil the next one.
        set_aside(self.path)
        with closing(connect(self.path, _THREAD_LOCK_SECONDS)) as db:
            self._db.backup(db, pages=_PAGES, sleep=0.001)
        return HoldFile(self.path)

    def close(self) -> None:
        """Close the file. What is in it is for the next run."""
        self._db.close()


def _node(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name. None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _write(db: sqlite3.Connection, changes: Changes) -> None:
    if changes[:3] != ([], [], None):
        # For themselves: what they take may fit where nothing can be added.
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
            # One that came back, to be held once more, has its row still.
            db.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?, ?)", changes.added)
