"""Writes to the file of held requests: immediately if that works, else once a second in a thread until
it does. Callers never see an error, and never wait."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import get_logger
from scrapy_rep.holding.disk_file import GIVEN_UP, Changes
from scrapy_rep.storages.trouble import Trouble

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_rep.holding.disk_file import HoldFile, Row

logger = get_logger(__name__)

# Rows written in one transaction.
_AT_ONCE = 500
# Changes until a checkpoint.
_MANY = 200
MEANWHILE = (
    "retrying every second. Until it works, held requests stay in memory, and are lost if the crawl "
    "is killed"
)
# A disk is slow if this many writes in a row take this many seconds each.
_SLOW_TIMES, _SLOW_SECONDS = 3, 0.02


class HoldWriter:
    """Writes changes, and keeps those not yet written."""

    def __init__(self, file: HoldFile, spider: Spider) -> None:
        self.file = file
        self._spider = spider
        self._deleted: set[int] = set()
        self._given_up: set[int] = set()
        self._ran: float | None = None
        self._added: dict[int, Row] = {}
        self._trouble = Trouble(file.path, MEANWHILE, spider)
        """While it is on, all writes go through a thread."""
        self._slow = 0
        self._unmerged = 0
        """Changes since the last checkpoint."""

    def add(self, row: Row) -> None:
        """Write *row*, replacing the one with its id."""
        self._deleted.discard(row.id)
        self._added[row.id] = row
        self._now()

    def delete(self, rows: list[int]) -> None:
        """Delete *rows*."""
        for row in rows:
            self._added.pop(row, None)
        self._deleted.update(rows)
        self._now()

    def give_up(self, rows: list[int]) -> None:
        """Mark *rows* as kept for the next run."""
        for row in rows:
            if row in self._added:
                self._added[row] = self._added[row]._replace(state=GIVEN_UP)
        self._given_up.update(rows)
        self._now()

    def tick(self, ran: float) -> None:
        """Write the crawl's running time, in seconds."""
        self._ran = ran
        self._now()

    def unwritten(self, row: int) -> Row | None:
        """Return *row* if the file doesn't have it, or has an outdated version."""
        return self._added.get(row)

    # Writing

    @property
    def _left(self) -> bool:
        return bool(self._deleted or self._given_up or self._added or self._ran is not None)

    def _now(self) -> None:
        """Write immediately, unless writing fails at present."""
        while self._left and not self._trouble.on:
            changes = self._changes()
            began = time.perf_counter()
            try:
                self.file.write(changes)
            except sqlite3.Error as error:
                self._trouble.begins(error)
                return
            self._written(changes)
            slow = time.perf_counter() - began > _SLOW_SECONDS
            self._slow = self._slow + 1 if slow else 0
            if self._slow >= _SLOW_TIMES:
                self._trouble.begins(TimeoutError("writing takes long"))

    def _changes(self) -> Changes:
        return Changes(
            list(self._deleted)[:_AT_ONCE],
            list(self._given_up)[:_AT_ONCE],
            self._ran,
            list(self._added.values())[:_AT_ONCE],
        )

    def _written(self, changes: Changes) -> None:
        """Forget *changes*, except for rows that have changed since."""
        self._unmerged += len(changes.added) + len(changes.deleted) + len(changes.given_up)
        self._deleted.difference_update(changes.deleted)
        self._given_up.difference_update(changes.given_up)
        if self._ran == changes.ran:
            self._ran = None
        for added in changes.added:
            if self._added.get(added.id) is added:
                del self._added[added.id]

    async def again(self) -> None:
        """Retry writing."""
        if not self._trouble.on:
            return
        try:
            while self._left:
                began = time.perf_counter()
                changes = self._changes()
                await run_in_thread(self.file.write_in_thread, changes)
                self._written(changes)
                if time.perf_counter() - began <= _SLOW_SECONDS:
                    self._slow = 0
            if not self._slow:
                self._works()
        except (sqlite3.Error, OSError) as error:
            self._trouble.begins(error)

    async def look(self) -> None:
        """Restore the file if it was deleted; else, checkpoint it now and then."""
        failing = self._trouble.on
        try:
            if not await run_in_thread(self.file.is_gone):
                if self._unmerged >= _MANY and not failing:
                    with suppress(sqlite3.Error):  # nothing depends on it
                        await run_in_thread(self.file.checkpoint)
                        self._unmerged = 0
                return
            self._trouble.begins(FileNotFoundError("it was deleted"))
            new = await run_in_thread(self.file.restored)
            old, self.file = self.file, new
            await run_in_thread(old.close)
            if not failing and not self._left:
                self._works()
        except (sqlite3.Error, OSError) as error:
            self._trouble.begins(error)

    def _works(self) -> None:
        self._slow = 0
        self._trouble.ends()

    def close(self) -> None:
        """Close the file; warn of anything not written."""
        if self._left and self._trouble.on:
            logger.warning(
                "Could not finish writing %(path)s: the next run may fetch some of its requests "
                "again",
                {"path": self.file.path},
                extra={"spider": self._spider},
            )
        self.file.close()
