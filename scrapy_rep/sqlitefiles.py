"""SQLite files that can't be read are set aside: never deleted, never in the way."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from scrapy_rep.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scrapy import Spider

logger = get_logger(__name__)

T = TypeVar("T")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of what is done meanwhile, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")  # which may fail as well
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def open_or_set_aside(path: Path, opened: Callable[[Path], T], spider: Spider) -> T:
    """Return what *opened* makes of the file at *path*. One that can't be read is set aside, with
    a warning, and a new one begun.

    :raises sqlite3.Error, OSError: if there can be no file
    """
    try:
        return opened(path)
    except sqlite3.DatabaseError as error:
        if not path.exists() or isinstance(error, sqlite3.OperationalError):
            raise  # the folder is read-only, the file locked: setting it aside helps nothing
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
    for suffix in ("-wal", "-shm", ""):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside
