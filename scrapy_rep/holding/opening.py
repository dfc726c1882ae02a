"""Opens the hold under JOBDIR, and tries again until that works."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.disk_writer import MEANWHILE
from scrapy_rep.storages.sqlite_file import open_or_set_aside
from scrapy_rep.storages.trouble import Trouble

if TYPE_CHECKING:
    from scrapy import Spider

logger = get_logger(__name__)

FILE_NAME = "rep-held.sqlite"
"""Of the file under JOBDIR."""


class Opening:
    """Opens the hold under JOBDIR, as soon as that works."""

    def __init__(self, directory: str, spider: Spider) -> None:
        self._path = Path(directory, FILE_NAME)
        self._spider = spider
        self._trouble = Trouble(self._path, MEANWHILE, spider)
        self._looked = False

    def hold(self) -> DiskHold | None:
        """Return the hold; None if the file can't be used now. It takes a while."""
        if not self._looked:
            self._looked = True
            _warn_of_kill(self._path, self._spider)
        try:
            hold = open_or_set_aside(
                self._path, lambda path: DiskHold(path, self._spider), self._spider
            )
        except (sqlite3.Error, OSError) as error:
            self._trouble.begins(error)
            return None
        self._trouble.ends()
        return hold


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
