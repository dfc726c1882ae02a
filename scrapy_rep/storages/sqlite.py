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
from typing import Any, TypeAlias, TypeVar

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
    first_row,
    is_damaged,
    opened,
    set_aside,
)

T = TypeVar("T")

# A statement of SQL, and its parameters.
_Statement: TypeAlias = tuple[str, tuple[Any, ...]]

# SQLite's application_id, which marks the file as ours ("REPc").
_APPLICATION = 0x52455063
# The tables' version, SQLite's user_version. It is to be raised with any change of the
# tables. Then older versions of this package leave the file alone.
_VERSION = 1

# The table "leases" has rows of two other kinds as well: turns and values. Their column
# "origin" begins with one of the following words. A table of their own would be
# cleaner, but files of earlier versions don't have it, and would be set aside.

# A turn: the origin follows this word. The origin's next request may not be sent before
# the row's "until".
_TURN_PREFIX = "turn "
# A value (Storage.load_value()): its name follows this word. Its text is the row's
# "owner".
_VALUE_PREFIX = "value "
# The "until" of values, a time that never comes, since rows whose time has come are
# deleted.
_FAR_FUTURE = 1e18

# Seconds to wait for the lock of the file. (Other processes hold it for milliseconds.)
_LOCK_SECONDS = 5.0

# The header and the packed body of an entry are those of Entry in base.py. A lease says
# which process ("owner") may fetch the robots.txt of an origin, and until when. Bodies
# have a table of their own, since many origins share one, and an old one is kept for a
# while so that decisions based on it can be checked.
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

# How columns are read, since other programs that share the file may have written
# anything. A header that is too long is cut, which breaks it, and a body that is too
# long counts as none.
_HEADER = f"substr(header, 1, {MAX_ENTRY_HEADER + 1})"
_PACKED = f"CASE WHEN length(packed) > {MAX_PACKED} THEN NULL ELSE packed END"
_LOAD_ENTRY = (
    f"SELECT origin, {_HEADER}, {_PACKED} FROM entries LEFT JOIN bodies USING (sha256)"  # noqa: S608 (all ours)
)
_SAVE_ENTRY = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)"
# Parameters: SHA-256, time, packed body. If the body is there already, its use is
# noted, and it is overwritten, which mends a damaged one.
_SAVE_BODY = """
INSERT INTO bodies VALUES (?, ?, ?)
ON CONFLICT (sha256) DO UPDATE SET used_at = max(used_at, excluded.used_at), packed = excluded.packed
"""
# Parameters: origin, owner, until; now, and the latest time at which a lease can end.
# The owner gets the lease if nobody has it, if the owner has it already, if it is over,
# or if it ends impossibly late.
_TAKE_LEASE = """
INSERT INTO leases VALUES (?, ?, ?)
ON CONFLICT (origin) DO UPDATE SET owner = excluded.owner, until = excluded.until
WHERE owner = excluded.owner OR until <= ? OR until > ?
"""
# At most this many old rows are deleted at a time, since other processes wait for the
# lock meanwhile.
_EXPIRING = 1000
# These read and store the moment at which an origin's next request may be sent.
# Parameters: _TURN_PREFIX with the origin; to store it, also the moment.
_LOAD_MOMENT = "SELECT until FROM leases WHERE origin = ?"
_SAVE_MOMENT = "INSERT OR REPLACE INTO leases VALUES (?, '', ?)"
# These load and save a value that belongs to no origin. Parameters: _VALUE_PREFIX with
# its name; to save it, also the value, and _FAR_FUTURE.
_LOAD_VALUE = f"SELECT substr(owner, 1, {MAX_VALUE + 1}) FROM leases WHERE origin = ?"  # noqa: S608 (all ours)
_SAVE_VALUE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)"
_EXPIRE = f"""
DELETE FROM entries WHERE origin IN
(SELECT origin FROM entries WHERE updated_at < ? LIMIT {_EXPIRING})
"""  # noqa: S608 (all ours)
_EXPIRE_BODIES = f"""
DELETE FROM bodies WHERE sha256 IN (SELECT sha256 FROM bodies WHERE used_at < ? LIMIT {_EXPIRING})
"""  # noqa: S608 (all ours)


class SqliteStorage(BatchStorage):
    """Entries in a file. One that is broken, or not ours, is set aside, and a new one
    created."""

    # What the public methods do is said in Storage (base.py).

    def __init__(self, path: Path, expiry: float = math.inf) -> None:
        """When an entry is saved, entries that are *expiry* seconds older are
        deleted."""
        self._path = path
        self._expiry = expiry
        self._db: sqlite3.Connection | None = None
        """The connection; open from the first call on."""
        self._opened_file: os.stat_result | None = None
        """The file that the connection is to, as the system knows it. Another file may
        come to be at the same path."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SqliteStorage:
        """Use the file at ``REP_CACHE_PATH``; if that is relative, in the data
        directory of the project."""
        settings = RepSettings.from_settings(crawler.settings)
        path = Path(data_path(settings.cache_path)).absolute()
        return cls(path, settings.cache_expiry)

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        marks = ",".join("?" for _ in origins)
        query = f"{_LOAD_ENTRY} WHERE origin IN ({marks})"

        def load(db: sqlite3.Connection) -> dict[str, Entry | UnreadableEntry]:
            entries = {}
            room = MAX_BATCH  # how many bytes further bodies may have
            for origin, header, packed in db.execute(query, origins):
                if isinstance(packed, bytes | str):
                    room -= len(packed)
                if room < 0:  # the other entries count as missing
                    break
                entries[origin] = entry_or_error(header, packed)
            return entries

        return self._run_on_file(load)

    def save_many(self, entries: Sequence[Entry]) -> None:
        rows = []
        bodies = []
        latest = 0.0
        for entry in entries:
            header = entry.header()
            rows.append((entry.origin, header, entry.sha256, entry.updated_at))
            if entry.sha256:
                bodies.append((entry.sha256, entry.updated_at, entry.packed))
            latest = max(latest, entry.updated_at)
        expired_before = latest - self._expiry  # older entries are deleted

        def save(db: sqlite3.Connection) -> None:
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_SAVE_BODY, bodies)
                db.executemany(_SAVE_ENTRY, rows)
                expired = db.execute(_EXPIRE, (expired_before,)).rowcount
                # If fewer entries than the limit were deleted, no old entry is left,
                # and old bodies may go. They expire after all entries that use them,
                # since saving an entry updates its body's used_at.
                if expired < _EXPIRING:
                    db.execute(_EXPIRE_BODIES, (expired_before,))
                    db.execute("DELETE FROM leases WHERE until < ?", (time.time(),))

        self._run_on_file(save)

    def drop(self, origin: str) -> bool:
        _, dropped = self._run_in_transaction(
            [
                ("DELETE FROM leases WHERE origin = ?", (origin,)),
                ("DELETE FROM entries WHERE origin = ?", (origin,)),
            ]
        )
        return dropped > 0

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        rows = self._run_on_file(lambda db: db.execute(_LOAD_ENTRY))
        for _, header, packed in rows:
            yield entry_or_error(header, packed)

    def body(self, sha256: str) -> bytes | None:
        query = f"SELECT {_PACKED} FROM bodies WHERE sha256 = ?"  # noqa: S608 (all ours)

        def load(db: sqlite3.Connection) -> Any:
            return first_row(db, query, (sha256,))

        row = self._run_on_file(load)
        if row is None:
            return None
        [packed] = row
        return None if packed is None else unsqueeze(packed)

    def lease_many(
        self,
        origins: Sequence[str],
        owner: str,
        seconds: float,
    ) -> set[str]:
        now = time.time()
        # No lease is ten times as long as a new one. So a lease that ends even later
        # was taken before the clock was set back.
        latest = now + 10 * seconds
        statements = []
        for origin in origins:
            parameters = (origin, owner, now + seconds, now, latest)
            statements.append((_TAKE_LEASE, parameters))
        leased = set()
        changes = self._run_in_transaction(statements)
        for origin, changed in zip(origins, changes, strict=True):
            if changed:
                leased.add(origin)
        return leased

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        delete = "DELETE FROM leases WHERE origin = ? AND owner = ?"
        self._run_in_transaction([(delete, (origin, owner)) for origin in origins])

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        def reserve(db: sqlite3.Connection) -> list[float]:
            """Return how many seconds each turn has to wait."""
            waits = []
            with db:
                db.execute("BEGIN IMMEDIATE")
                now = time.time()  # after the wait for the lock
                for turn in turns:
                    key = _TURN_PREFIX + turn.origin
                    row = first_row(db, _LOAD_MOMENT, (key,))
                    next_moment = None if row is None else row[0]
                    moment = turn.moment(now, next_moment)
                    db.execute(_SAVE_MOMENT, (key, moment + turn.seconds))
                    waits.append(moment - now)
            return waits

        return self._run_on_file(reserve)

    def load_value(self, name: str) -> str | None:
        key = _VALUE_PREFIX + name

        def load(db: sqlite3.Connection) -> Any:
            return first_row(db, _LOAD_VALUE, (key,))

        row = self._run_on_file(load)
        if row is None:
            return None
        [value] = row
        return str(value)

    def save_value(self, name: str, value: str) -> None:
        parameters = (_VALUE_PREFIX + name, value, _FAR_FUTURE)
        self._run_in_transaction([(_SAVE_VALUE, parameters)])

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _run_in_transaction(self, statements: Sequence[_Statement]) -> list[int]:
        """Run *statements* in one transaction. Return how many rows each changed."""

        def write(db: sqlite3.Connection) -> list[int]:
            with db:
                db.execute("BEGIN IMMEDIATE")
                changed = []
                for statement, parameters in statements:
                    changed.append(db.execute(statement, parameters).rowcount)
                return changed

        return self._run_on_file(write)

    def _run_on_file(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Return what *action* returns for the connection to the file. If the file is
        damaged, set it aside, and call *action* for a new one."""
        # If the file was deleted, say, writing to it would raise no error. So it is
        # opened again.
        if not self._is_still_there():
            self.close()
        try:
            if self._db is None:
                self._db = self._open()
            return action(self._db)
        except sqlite3.DatabaseError as error:
            self.close()
            if not is_damaged(error):
                raise type(error)(f"{self._path}: {error}") from None
            self._db = self._open(damage=error)
        return action(self._db)

    def _open(self, damage: sqlite3.DatabaseError | None = None) -> sqlite3.Connection:
        """Open the file, and create it if there is none. *damage*: what is wrong with
        the present file, which is set aside."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Only one process opens the file at a time, since no file may be renamed while
        # another process opens it, and only one process may set it aside. So each
        # process takes the lock of another file.
        name = f"{self._path}.lock"
        lock_file = sqlite3.connect(name, timeout=_LOCK_SECONDS, isolation_level=None)
        with closing(lock_file) as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.DatabaseError as error:
                # Whatever the error is (there is a foreign file of that name, say), the
                # cache itself isn't damaged. So another class of error is raised.
                raise sqlite3.OperationalError(f"{name}: {error}") from None
            # If the damaged file is no longer there, another process has set it aside,
            # and maybe made a new one.
            if damage is not None and self._is_still_there():
                set_aside(self._path, damage)
            # Calls come from different threads, but one at a time.
            db, _ = opened(self._path, _LOCK_SECONDS, self._set_up)
            return db

    def _is_still_there(self) -> bool:
        """Whether the file at the path is the one that was opened last."""
        if self._opened_file is None:
            return False
        try:
            return samestat(self._path.stat(), self._opened_file)
        except OSError:
            return False

    def _set_up(self, db: sqlite3.Connection) -> None:
        """Check and prepare the file that was just opened, a new one maybe."""
        self._opened_file = self._path.stat()
        # A power cut may lose new entries, which are then fetched again.
        db.execute("PRAGMA synchronous = NORMAL")
        [mark] = first_row(db, "PRAGMA application_id")
        [version] = first_row(db, "PRAGMA user_version")
        if mark == _APPLICATION and version > _VERSION:
            raise sqlite3.NotSupportedError(
                "it was made by a newer version of scrapy-rep"
            )
        create_tables(db, _SCHEMA)
