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
