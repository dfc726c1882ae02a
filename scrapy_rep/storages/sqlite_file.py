"""SQLite files. An unreadable one is set aside, never deleted. One under JOBDIR that is deleted while
open is restored."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy import Spider
    from typing_extensions import Self

logger = get_logger(__name__)

T = TypeVar("T")

# Seconds to wait for a lock. Nobody else should lock such a file, and nobody may block the event loop.
_LOCK_SECONDS, _THREAD_LOCK_SECONDS = 0.005, 1.0
# Pages copied at a time: the connection is used in between.
_PAGES = 100


def connect(path: Path | None, seconds: float = _THREAD_LOCK_SECONDS) -> sqlite3.Connection:
    """Open the file at *path*, for use in any thread.

    :param path: None: a private temporary file
    :param seconds: to wait for a lock
    """
    db = sqlite3.connect(path or "", timeout=seconds, isolation_level=None, check_same_thread=False)
    # Otherwise one row with invalid text fails every query that meets it.
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit everything done in the block, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")  # may fail, too
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


class SqliteFile:
    """A file that stays open. Any method may raise ``sqlite3.Error``."""

    def __init__(self, path: Path | None, schema: str, pragmas: str) -> None:
        """Open or create the file. This blocks.

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
            self._upgrade(self.db)
            _check(self.db, self._schema)
            self.db.executescript(self._schema)
            self.db.execute(f"PRAGMA busy_timeout = {1000 * _LOCK_SECONDS:.0f}")
            self._nodes = _nodes(self.path)
        except BaseException:
            self.db.close()
            raise

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """Bring a file of an earlier version up to date."""

    def another(self) -> closing[sqlite3.Connection]:
        """Open the file again, for a thread, which can wait longer for a lock."""
        return closing(connect(self.path))

    def is_gone(self) -> bool:
        """Whether the file was deleted or replaced."""
        return _nodes(self.path) != self._nodes

    def restored(self) -> Self:
        """Return a new file at the path, with this one's contents. This blocks.

        The copy may miss what is written meanwhile.
        """
        assert self.path is not None
        # Leftovers of this file, or one in its place, would spoil the new one.
        set_aside(self.path)
        with self.another() as db:
            self.db.backup(db, pages=_PAGES, sleep=0.001)
        new = copy(self)
        new._open()
        return new

    def close(self) -> None:
        """Close the file. A temporary one is gone then."""
        self.db.close()


def _check(db: sqlite3.Connection, schema: str) -> None:
    """:raises sqlite3.DatabaseError: if the file is damaged, or its tables don't match *schema*"""
    (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise sqlite3.DatabaseError(state.rpartition("\n")[2])
    ours, theirs = tables_of_schema(schema), tables_of(db)
    for table, columns in theirs.items():
        if ours.get(table) != columns:
            raise sqlite3.DatabaseError(f"its table {table} is not one of scrapy-rep's")


def tables_of(db: sqlite3.Connection) -> dict[str, list[Any] | None]:
    """Return the columns of each table in a file; None for views and triggers, which we have none of."""
    names = (
        "SELECT name, type FROM sqlite_master WHERE type != 'index' AND name NOT LIKE 'sqlite_%'"
    )
    columns = "SELECT * FROM pragma_table_info(?)"
    return {
        name: db.execute(columns, (name,)).fetchall() if kind == "table" else None
        for name, kind in db.execute(names).fetchall()
    }


def tables_of_schema(schema: str) -> dict[str, list[Any] | None]:
    """Return :func:`tables_of` a new file."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema)
        return tables_of(db)


def _nodes(path: Path | None) -> list[tuple[int, int] | None]:
    """Identify a file, and its write-ahead log. None: it doesn't exist."""
    found: list[tuple[int, int] | None] = []
    for name in (path, f"{path}-wal") if path else ():
        try:
            status = os.stat(name)
            found.append((status.st_dev, status.st_ino))
        except FileNotFoundError:
            found.append(None)
    return found


def open_or_set_aside(path: Path, opened: Callable[[Path], T], spider: Spider | None) -> T:
    """Return ``opened(path)``. A file that can't be read is set aside, with a warning, and a new one
    created.

    :raises sqlite3.Error, OSError: if that is impossible
    """
    try:
        return opened(path)
    except sqlite3.DatabaseError as error:
        # A read-only folder or a lock: setting the file aside wouldn't help.
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
    """Rename the SQLite file at *path*, or what is left of it. Return the new path.

    Windows renames nothing that a process has open. Then all stays as it is, to be tried again:
    the process that has it open will find it broken, and close it.

    :raises OSError: if it can't be renamed
    """
    stamp, number = f"{path.name}.unreadable-{int(time.time())}", 0
    aside = path.with_name(stamp)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{stamp}-{number}")
    # SQLite would take these for part of the next file of that name. The file itself goes last: once
    # its name is free, another process may create the next one.
    with ExitStack() as undo:
        for suffix in ("-wal", "-shm", "-journal", ""):
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                renamed = beside.rename(aside.with_name(aside.name + suffix))
                undo.callback(renamed.rename, beside)  # what belongs together stays together
        undo.pop_all()
    return aside
