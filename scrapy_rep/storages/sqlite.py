"""Entries in a SQLite file, shared by processes on one machine."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from os.path import samestat
from pathlib import Path
from typing import Any, TypeVar

from scrapy.crawler import Crawler
from scrapy.utils.project import data_path

from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import (
    MAX_BATCH,
    MAX_ENTRY_HEADER,
    MAX_PACKED,
    MAX_VALUE,
    BatchStorage,
    Entry,
    Turn,
    UnreadableEntry,
    entry_or_error,
    unsqueeze,
)
from scrapy_rep.storages.journal import (
    create_tables,
    is_damaged,
    opened,
    set_aside,
)

T = TypeVar("T")

# Marks the file as ours ("REPc").
_APPLICATION = 0x52455063
# Of the tables. Raise it with any change: older versions of this package leave the file alone then.
_VERSION = 1

# Before the origin of a row in the table of leases: until then, no request of the origin may be sent.
_TURN = "turn "

# Before the name of a value in the same table, whose rows have it as their owner: files of earlier versions
# have no table for values, and with another one they would be set aside.
_VALUE = "value "
# A time that never comes: the row isn't deleted.
_NEVER = 1e18

# Other processes hold the lock for milliseconds.
_LOCK_SECONDS = 5.0

# Bodies have a table of their own: many origins share one, and an old one is kept for a while so
# that decisions based on it can be checked.
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS entries (
    origin TEXT PRIMARY KEY,
    header TEXT NOT NULL,
    sha256 TEXT,
    updated_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies (
    sha256 TEXT PRIMARY KEY,
    used_at REAL NOT NULL,
    packed BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS leases (
    origin TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    until REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_age ON entries (updated_at);
CREATE INDEX IF NOT EXISTS bodies_by_age ON bodies (used_at);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""

# Others who share the file may have written anything: what is too long is cut, and counts as broken.
_HEADER = f"substr(header, 1, {MAX_ENTRY_HEADER + 1})"
_PACKED = f"CASE WHEN length(packed) > {MAX_PACKED} THEN NULL ELSE packed END"
_SELECT = (
    f"SELECT origin, {_HEADER}, {_PACKED} FROM entries LEFT JOIN bodies USING (sha256)"  # noqa: S608 (all ours)
)
_SAVE = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)"
_SAVE_BODY = """
INSERT INTO bodies VALUES (?, ?, ?)
ON CONFLICT (sha256) DO UPDATE SET used_at = max(used_at, excluded.used_at), packed = excluded.packed
"""
_LEASE = """
INSERT INTO leases VALUES (?, ?, ?)
ON CONFLICT (origin) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE owner = excluded.owner OR until <= ? OR until > ?
"""
# Some at a time: others wait for the lock.
_EXPIRING = 1000
_LOAD_VALUE = f"SELECT substr(owner, 1, {MAX_VALUE + 1}) FROM leases WHERE origin = ?"  # noqa: S608 (all ours)
_EXPIRE = f"""
DELETE FROM entries WHERE origin IN
(SELECT origin FROM entries WHERE updated_at < ? LIMIT {_EXPIRING})
"""  # noqa: S608 (all ours)
_EXPIRE_BODIES = f"""
DELETE FROM bodies WHERE sha256 IN (SELECT sha256 FROM bodies WHERE used_at < ? LIMIT {_EXPIRING})
"""  # noqa: S608 (all ours)


class SqliteStorage(BatchStorage):
    """Entries in a file. If that is broken, or not ours, it is set aside and a new one created."""

    def __init__(self, path: Path, expiry: float = math.inf) -> None:
        """:param expiry: how many seconds older than one being saved an entry may be: else it is deleted"""
        self._path = path
        self._expiry = expiry
        self._db: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SqliteStorage:
        """At ``REP_CACHE_PATH``; if that is relative, in the data directory of the project."""
        settings = RepSettings.from_settings(crawler.settings)
        return cls(
            Path(data_path(settings.cache_path)).absolute(), settings.cache_expiry
        )

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        query = f"{_SELECT} WHERE origin IN ({','.join('?' * len(origins))})"

        def load(db: sqlite3.Connection) -> dict[str, Entry | UnreadableEntry]:
            found, room = {}, MAX_BATCH
            for origin, header, packed in db.execute(query, origins):
                room -= len(packed) if isinstance(packed, bytes | str) else 0
                if room < 0:
                    break
                found[origin] = entry_or_error(header, packed)
            return found

        return self._do(load)

    def save_many(self, entries: Sequence[Entry]) -> None:
        rows = [
            (one.origin, one.header(), one.sha256, one.updated_at) for one in entries
        ]
        bodies = [
            (one.sha256, one.updated_at, one.packed) for one in entries if one.sha256
        ]

        def save(db: sqlite3.Connection) -> None:
            before = (
                max((one.updated_at for one in entries), default=0.0) - self._expiry
            )
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_SAVE_BODY, bodies)
                db.executemany(_SAVE, rows)
                # Bodies expire after all entries that use them: saving one updates used_at.
                if db.execute(_EXPIRE, (before,)).rowcount < _EXPIRING:
                    db.execute(_EXPIRE_BODIES, (before,))
                    db.execute("DELETE FROM leases WHERE until < ?", (time.time(),))

        self._do(save)

    def drop(self, origin: str) -> bool:
        _, dropped = self._write(
            ("DELETE FROM leases WHERE origin = ?", (origin,)),
            ("DELETE FROM entries WHERE origin = ?", (origin,)),
        )
        return dropped > 0

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        for _, header, packed in self._do(lambda db: db.execute(_SELECT)):
            yield entry_or_error(header, packed)

    def body(self, sha256: str) -> bytes | None:
        query = f"SELECT {_PACKED} FROM bodies WHERE sha256 = ?"  # noqa: S608 (all ours)
        row = self._do(lambda db: db.execute(query, (sha256,)).fetchone())
        return None if row is None or row[0] is None else unsqueeze(row[0])

    def lease_many(
        self, origins: Sequence[str], owner: str, seconds: float
    ) -> set[str]:
        now = time.time()
        # A lease that ends later than any can: the clock was set back.
        values = (owner, now + seconds, now, now + 10 * seconds)
        changed = self._write(*((_LEASE, (origin, *values)) for origin in origins))
        return {origin for origin, one in zip(origins, changed, strict=True) if one}

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        delete = "DELETE FROM leases WHERE origin = ? AND owner = ?"
        self._write(*((delete, (origin, owner)) for origin in origins))

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        def reserve(db: sqlite3.Connection) -> list[float]:
            waits = []
            with db:
                db.execute("BEGIN IMMEDIATE")
                now = time.time()  # after the wait for the lock
                for turn in turns:
                    key = f"{_TURN}{turn.origin}"
                    row = db.execute(
                        "SELECT until FROM leases WHERE origin = ?", (key,)
                    ).fetchone()
                    moment = turn.moment(now, row and row[0])
                    next_moment = moment + turn.seconds
                    db.execute(
                        "INSERT OR REPLACE INTO leases VALUES (?, '', ?)",
                        (key, next_moment),
                    )
                    waits.append(moment - now)
            return waits

        return self._do(reserve)

    def load_value(self, name: str) -> str | None:
        row = self._do(lambda db: db.execute(_LOAD_VALUE, (_VALUE + name,)).fetchone())
        return None if row is None else str(row[0])

    def save_value(self, name: str, value: str) -> None:
        row = _VALUE + name, value, _NEVER
        self._write(("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", row))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _write(self, *statements: tuple[str, tuple[Any, ...]]) -> list[int]:
        """Run *statements* in one transaction. Return how many rows each changed."""

        def write(db: sqlite3.Connection) -> list[int]:
            with db:
                db.execute("BEGIN IMMEDIATE")
                return [db.execute(*statement).rowcount for statement in statements]

        return self._do(write)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run *action* on the file; if that is broken, on a new one."""
        if (
            not self._is_still_there()
        ):  # deleted, say: writing to it would raise no error
            self.close()
        try:
            if self._db is None:
                self._db = self._open()
            return action(self._db)
        except sqlite3.DatabaseError as error:
            self.close()
            if not is_damaged(error):
                raise type(error)(f"{self._path}: {error}") from None
            self._db = self._open(error)
        return action(self._db)

    def _open(self, damage: sqlite3.DatabaseError | None = None) -> sqlite3.Connection:
        """*damage*: what was wrong with the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # One process at a time: no file may be renamed while another process opens it, and only one
        # may set it aside.
        name = f"{self._path}.lock"
        with closing(
            sqlite3.connect(name, timeout=_LOCK_SECONDS, isolation_level=None)
        ) as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.DatabaseError as error:
                # Whatever it is (a foreign file of that name, say), the cache itself isn't broken.
                raise sqlite3.OperationalError(f"{name}: {error}") from None
            if damage is not None and self._is_still_there():
                set_aside(self._path, damage)
            # Calls come from different threads, but one at a time.
            return opened(self._path, _LOCK_SECONDS, self._set_up)[0]

    def _is_still_there(self) -> bool:
        try:
            return self._opened is not None and samestat(
                self._path.stat(), self._opened
            )
        except OSError:
            return False

    def _set_up(self, db: sqlite3.Connection) -> None:
        self._opened = self._path.stat()
        # A power cut may lose new entries: they are fetched again.
        db.execute("PRAGMA synchronous = NORMAL")
        [mark] = db.execute("PRAGMA application_id").fetchone()
        [version] = db.execute("PRAGMA user_version").fetchone()
        if mark == _APPLICATION and version > _VERSION:
            raise sqlite3.NotSupportedError(
                "it was made by a newer version of scrapy-rep"
            )
        create_tables(db, _SCHEMA)
