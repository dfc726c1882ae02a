"""Opens SQLite files. One that can't be read is set aside, never deleted."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy import Spider

logger = get_logger(__name__)

T = TypeVar("T")


class Foreign(sqlite3.DatabaseError):
    """The file is a SQLite database, but not the one that it should be."""


def connect(path: Path | None, seconds: float) -> sqlite3.Connection:
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


def is_damaged(error: Exception) -> bool:
    """Whether *error* says that the file itself is damaged, or isn't the one that it should be. Others
    mean a lock, a full disk, a read-only folder: setting the file aside wouldn't help."""
    return type(error) in (sqlite3.DatabaseError, Foreign)


def open_or_set_aside(
    path: Path, opened: Callable[[Path], T], spider: Spider | None = None, *, folder: bool = False
) -> T:
    """Return ``opened(path)``. A file that is damaged is set aside, with a warning, and a new one
    created.

    :param folder: set aside a folder in its place as well
    :raises sqlite3.Error, OSError: if that is impossible
    """
    try:
        return opened(path)
    except sqlite3.DatabaseError as error:
        if not (is_damaged(error) or (folder and path.is_dir())):
            raise
        set_aside_because(path, error, spider)
        return opened(path)


def set_aside_because(path: Path, error: Exception, spider: Spider | None = None) -> None:
    """Set aside the file at *path*, with a warning."""
    logger.warning(
        "%(path)s can't be read (%(error)s) and was set aside as %(aside)s",
        {"path": path, "error": error, "aside": set_aside(path).name},
        extra={"spider": spider},
    )


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
