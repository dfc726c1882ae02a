"""SQLite files. One that can't be read is set aside: never deleted, never in the way. One under JOBDIR
that is deleted while it is open is put back."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, contextmanager
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy import Spider
    from typing_extensions import Self

logger = get_logger(__name__)

T = TypeVar("T")

# Seconds to wait for a lock. Nothing else has a reason to lock such a file; if something does, it
# must not block the event loop.
_LOCK_SECONDS, _THREAD_LOCK_SECONDS = 0.005, 1.0
# Pages that are copied at a time: the connection is used in between.
_PAGES = 100


def connect(path: Path | None, seconds: float = _THREAD_LOCK_SECONDS) -> sqlite3.Connection:
    """Open the file at *path*, to be used in any thread.

    :param path: None: a temporary file, which nothing else sees
    :param seconds: to wait for a lock
    """
    db = sqlite3.connect(path or "", timeout=seconds, isolation_level=None, check_same_thread=False)
    # Else one row that is no text fails all queries that meet it.
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit all that is done meanwhile, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")  # which may fail as well
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


class SqliteFile:
    """A file that stays open. All of it raises ``sqlite3.Error``."""

    def __init__(self, path: Path | None, schema: str, pragmas: str) -> None:
        """Open the file, or begin it. It takes a while.

        :param path: None: a temporary file
        """
        self.path = path
        self._schema = schema
        self._pragmas = pragmas
        self._open()

    def _open(self) -> None:
        self.db = connect(self.path)
        try:
            self.db.executescript(self._pragmas)
            _check(self.db, self._schema)
            self.db.executescript(self._schema)
            self.db.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS:.0f}")
            self._nodes = _nodes(self.path)
        except BaseException:
            self.db.close()
            raise

    def another(self) -> closing[sqlite3.Connection]:
        """Open the file once more, for a thread: it can wait longer for a lock."""
        return closing(connect(self.path))

    def is_gone(self) -> bool:
        """Whether the file at the path is no longer this one: it was deleted."""
        return _nodes(self.path) != self._nodes

    def restored(self) -> Self:
        """Return a new file at the path, with what is in this one. It takes a while.

        What is written to this one meanwhile may be missing there.
        """
        assert self.path is not None
        # What is beside this file, or has taken its place, would spoil the next one.
        set_aside(self.path)
        with self.another() as db:
            self.db.backup(db, pages=_PAGES, sleep=0.001)
        new = copy(self)
        new._open()
        return new

    def close(self) -> None:
        """Close the file. What is in it is for the next run, if it has a name."""
        self.db.close()


def _check(db: sqlite3.Connection, schema: str) -> None:
    """:raises sqlite3.DatabaseError: if the file is damaged, or its tables are not those of *schema*"""
    (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise sqlite3.DatabaseError(state.rpartition("\n")[2])
    with closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(schema)
        for table in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ):
            columns = "SELECT * FROM pragma_table_info(?)"
            if db.execute(columns, table).fetchall() != ours.execute(columns, table).fetchall():
                raise sqlite3.DatabaseError(f"its table {table[0]} is not one of scrapy-rep's")


def _nodes(path: Path | None) -> list[tuple[int, int] | None]:
    """What tells a file, and what SQLite keeps beside it, from others of the same names. None:
    there is none."""
    found: list[tuple[int, int] | None] = []
    for name in (path, f"{path}-wal") if path else ():
        try:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino))
        except FileNotFoundError:
            found.append(None)
    return found


def open_or_set_aside(path: Path, opened: Callable[[Path], T], spider: Spider | None) -> T:
    """Return what *opened* makes of the file at *path*. One that can't be read is set aside, with
    a warning, and a new one begun.

    :raises sqlite3.Error, OSError: if there can be no file
    """
    try:
        return opened(path)
    except sqlite3.DatabaseError as error:
        # The folder is read-only, the file locked: setting it aside helps nothing.
        if isinstance(error, sqlite3.OperationalError) and not path.is_dir():
            raise
        aside = set_aside(path)
        logger.warning(
            "%(path)s can't be read (%(error)s) and was set aside as %(aside)s",
            {"path": path, "error": error, "aside": aside.name},
            extra={"spider": spider},
        )
        return opened(path)


def set_aside(path: Path) -> Path:
    """Rename the SQLite file at *path*, or what is left beside where it was. Return the new path.

    :raises OSError: if that is not allowed
    """
    stamp, number = f"{path.name}.unreadable-{int(time.time())}", 0
    aside = path.with_name(stamp)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{stamp}-{number}")
    # What SQLite keeps beside a file would be taken for a part of the next one of that name. It goes
    # first: as soon as the name is free, there may be a next one.
    for suffix in ("-wal", "-shm", "-journal", ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside
