"""Where held requests are: in memory, or on disk under JOBDIR."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_rep.diskhold import DiskHold
from scrapy_rep.log import get_logger
from scrapy_rep.memoryhold import Held, MemoryHold
from scrapy_rep.sqlitefiles import open_or_set_aside

if TYPE_CHECKING:
    from scrapy import Spider

__all__ = ["DiskHold", "Held", "MemoryHold", "open_hold"]

logger = get_logger(__name__)

FILE_NAME = "rep-held.sqlite"
"""Of the file under JOBDIR."""


def open_hold(directory: str | None, spider: Spider) -> MemoryHold | DiskHold:
    """Return a hold on disk in the JOBDIR *directory*, or one in memory where there is none."""
    if not directory:
        return MemoryHold()
    path = Path(directory, FILE_NAME)
    _warn_of_kill(path, spider)
    try:
        return open_or_set_aside(path, lambda path: DiskHold(path, spider), spider)
    except (sqlite3.Error, OSError) as error:
        logger.warning(
            "%(path)s can't be used (%(error)s): requests are held in memory, and lost if the "
            "crawl is killed",
            {"path": path, "error": error},
            extra={"spider": spider},
        )
        return MemoryHold()


def _warn_of_kill(path: Path, spider: Spider) -> None:
    """Tell what becomes of Scrapy's own queue if the last run, whose hold was at *path*, did not
    close it. Nothing is moved out of its way: some of what is in it can often be read."""
    # SQLite deletes this one when the last connection is closed, and a run closes the hold after
    # the scheduler.
    killed = Path(f"{path}-wal").exists()
    queue = path.parent / "requests.queue"
    if killed and any(one.name != "active.json" and one.is_file() for one in queue.rglob("*")):
        logger.warning(
            "The last run in %(directory)s was killed. Scrapy writes its queue on disk when a crawl is "
            "closed in order, so requests that were waiting in %(queue)s are lost, and those of this "
            "run may be lost in it too, with errors such as 'Task exception was never retrieved'. To "
            "go on without, stop this run and delete %(queue)s; to have lost pages requested again, "
            "delete requests.seen as well. Requests held by scrapy-rep are not affected.",
            {"directory": path.parent, "queue": queue},
            extra={"spider": spider},
        )
