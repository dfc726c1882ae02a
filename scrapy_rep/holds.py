"""Where held requests are: in memory, or on disk under JOBDIR."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_rep.diskhold import DiskHold
from scrapy_rep.holdwriter import MEANWHILE
from scrapy_rep.memoryhold import Held, MemoryHold
from scrapy_rep.sqlitefiles import open_or_set_aside
from scrapy_rep.trouble import Trouble

if TYPE_CHECKING:
    from scrapy import Spider

__all__ = ["DiskHold", "Held", "MemoryHold", "Opening"]

FILE_NAME = "rep-held.sqlite"
"""Of the file under JOBDIR."""


class Opening:
    """Opens the hold under JOBDIR, as soon as that works."""

    def __init__(self, directory: str, spider: Spider) -> None:
        self._path = Path(directory, FILE_NAME)
        self._spider = spider
        self._trouble = Trouble(self._path, MEANWHILE, spider)

    def hold(self) -> DiskHold | None:
        """Return the hold; None if the file can't be used now. It takes a while."""
        try:
            hold = open_or_set_aside(
                self._path, lambda path: DiskHold(path, self._spider), self._spider
            )
        except (sqlite3.Error, OSError) as error:
            self._trouble.begins(error)
            return None
        self._trouble.ends()
        return hold
