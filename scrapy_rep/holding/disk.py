"""Held requests on disk, under JOBDIR.

From the moment that they are held: Scrapy's own disk queues write their index only when the crawl
is closed in order, so a kill would lose them (docs/DESIGN.md). Who stands where in which line is in
memory, so that a disk that fails does not stop the lines.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.holding.disk_file import GIVEN_UP, HELD, HoldFile, Row
from scrapy_rep.holding.disk_writer import HoldWriter
from scrapy_rep.holding.memory import Held, Kept, Queues, lean
from scrapy_rep.holding.serialization import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy import Request, Spider

logger = get_logger(__name__)

# What can't be read so many times in a row is left to the next run: this one has to end.
_READS = 60


class DiskHold:
    """Held requests in a SQLite file; in memory those that can't be serialised.

    A row stays until its request has been dealt with, so that a kill at any moment loses none: at
    worst one is fetched twice.
    """

    def __init__(self, path: Path, spider: Spider) -> None:
        """Open the file, and take over what an earlier run left. It takes a while."""
        self._spider = spider
        self._queues: Queues[Held | Kept] = Queues()
        self._counts: dict[str, int] = {}
        self._older: set[int] = set()
        """Rows that are in the file already, but not as they are to be."""
        self._warned = False
        self._failed_reads = 0
        self._unreadable = 0
        self._why_unreadable: object = None
        file = HoldFile(path)
        try:
            self._last_row, self._number, self._ran = self._load(file)
        except BaseException:
            file.close()
            raise
        self._writer = HoldWriter(file, spider)

    def _load(self, file: HoldFile) -> tuple[int, int, float]:
        index = file.index()
        for row, origin, number, since, state in index.rows:
            # Given up then: waited for anew.
            since = index.ran if state == GIVEN_UP else since
            self._queues.append(origin, (number, since, row))
            self._counts[origin] = self._counts.get(origin, 0) + 1
        with suppress(sqlite3.Error):  # it counts, in any case
            file.wait_anew(index.ran)
        if index.unreadable:
            self._skip(index.unreadable, "damaged")
        last = max((row[2] for row in index.rows), default=0)
        return index.last_row, last, index.ran

    def recover(self) -> Iterator[tuple[str, int, float]]:
        """What an earlier run left: the origins, how many requests each has, and since when the
        one that was held first has been."""
        counts, self._counts = self._counts, {}
        for origin, count in counts.items():
            yield origin, count, self._queues.oldest(origin) or 0.0

    def last(self) -> tuple[int, float]:
        """The highest number that an earlier run gave, and how long earlier runs took."""
        return self._number, self._ran

    def leave(self, origin: str, why: object) -> None:
        """Leave what was recovered of *origin* to the next run."""
        self._skip(len(self._queues.pop(origin)), why)

    def add(self, origin: str, held: Held) -> None:
        """Keep *held*."""
        data = self._serialised(held)
        if data is None:
            self.keep(origin, lean(held))
            return
        # One that came back, to be held once more, has its row still.
        row = held.row or self._new_row()
        self._writer.add(Row(row, origin, held.number, held.since, HELD, data))
        if held.row is not None and self._writer.unwritten(row):
            self._older.add(row)
        self._queues.append(origin, (held.number, held.since, row))

    def keep(self, origin: str, held: Held) -> None:
        """Keep *held* in memory: it is lost if the crawl is killed."""
        self._queues.append(origin, held)

    def _new_row(self) -> int:
        self._last_row += 1
        return self._last_row

    def _serialised(self, held: Held) -> bytes | None:
        try:
            return dumps(held.request, held.dont_filter, self._spider)
        except Exception as error:  # noqa: BLE001
            # Whatever a user's meta raises when it is pickled: as Scrapy's scheduler does, such
            # a request is kept in memory.
            if not self._warned:
                self._warned = True
                logger.warning(
                    "Can't write %(request)s to disk (%(error)s): it is held in memory, and lost "
                    "if the crawl is killed. Others like it are not reported.",
                    {"request": held.request, "error": error},
                    extra={"spider": self._spider},
                )
            return None

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """As :meth:`MemoryHold.take`.

        :raises sqlite3.Error: if the file can't be read now
        """
        while entries := self._queues.first(origin, limit, upto, before):
            data = self._data(entries)
            self._queues.remove(origin, entries)
            taken = [held for entry in entries if (held := self._held(entry, data))]
            if taken:
                return taken
        return []

    def peek(self, origin: str) -> Request | None:
        """As :meth:`MemoryHold.peek`."""
        for entry in self._queues.first(origin, 1, sys.maxsize, math.inf):
            if isinstance(entry, Held):
                return entry.request
            unwritten = self._writer.unwritten(entry[2])
            with suppress(Exception):  # whoever wants it for good will see, and say so
                if unwritten:
                    return self._request(unwritten.request)
                return self._request(self._writer.file.read([entry[2]]).get(entry[2]))
        return None

    def _data(self, entries: list[Held | Kept]) -> dict[int, bytes]:
        """The rows of *entries* as the file has them."""
        rows = [
            entry[2]
            for entry in entries
            if not isinstance(entry, Held) and not self._writer.unwritten(entry[2])
        ]
        try:
            data = self._writer.file.read(rows)
        except sqlite3.Error as error:
            self._failed_reads += 1
            if self._failed_reads < _READS:
                raise
            self._why_unreadable = error
            return {}
        self._failed_reads = 0
        return data

    def _held(self, entry: Held | Kept, data: dict[int, bytes]) -> Held | None:
        """The request that *entry* stands for, None if it can't be read."""
        if isinstance(entry, Held):
            return entry
        number, since, row = entry
        unwritten = self._writer.unwritten(row)
        try:
            request = self._request(unwritten.request if unwritten else data.get(row))
        except Exception as error:  # noqa: BLE001
            # The spider's code changed between two runs: its callback is gone, say.
            self._skip(1, error)
            return None
        if unwritten and not self._is_older(row):
            self._writer.delete([row])
            return Held(number, since, request.dont_filter, request)
        return Held(number, since, request.dont_filter, request, row)

    def _request(self, data: bytes | None) -> Request:
        if data is None:
            raise ValueError(self._why_unreadable or "damaged")
        return loads(data, self._spider)

    def _is_older(self, row: int) -> bool:
        known = row in self._older
        self._older.discard(row)
        return known

    def _skip(self, count: int, why: object) -> None:
        self._unreadable += count
        self._why_unreadable = self._why_unreadable or why

    def tell_unreadable(self) -> None:
        """Warn of what could not be read, if there was anything since the last time."""
        if self._unreadable:
            logger.warning(
                "%(count)s can't be read from %(path)s (%(error)s) and stay there",
                {
                    "count": counted(self._unreadable, "held request"),
                    "path": self._writer.file.path,
                    "error": self._why_unreadable,
                },
                extra={"spider": self._spider},
            )
        self._unreadable, self._why_unreadable = 0, None

    def take_mortal(self, origin: str) -> Iterator[Held]:
        """As :meth:`MemoryHold.take_mortal`."""
        mortal: list[Held | Kept] = []
        rest: deque[Held | Kept] = deque()
        for entry in self._queues.pop(origin):
            (mortal if self._is_mortal(entry) else rest).append(entry)
        self._queues.put_back(origin, list(rest))
        for entry in mortal:
            held = self._held(entry, {})
            if held is not None:
                yield held

    def _is_mortal(self, entry: Held | Kept) -> bool:
        if isinstance(entry, Held):
            return entry.row is None
        row = entry[2]
        return self._writer.unwritten(row) is not None and row not in self._older

    def count(self, origin: str) -> int:
        """As :meth:`MemoryHold.count`."""
        return self._queues.count(origin)

    def oldest(self, origin: str) -> float | None:
        """As :meth:`MemoryHold.oldest`."""
        return self._queues.oldest(origin)

    def put_back(self, origin: str, some: list[Held]) -> None:
        """As :meth:`MemoryHold.put_back`."""
        self._queues.put_back(
            origin,
            [held if held.row is None else (held.number, held.since, held.row) for held in some],
        )

    def give_up(self, origin: str, some: list[Held]) -> None:
        """Keep these for the next run."""
        for held in some:
            data = self._serialised(held) if held.row is None else None
            if data is not None:
                row = Row(self._new_row(), origin, held.number, held.since, GIVEN_UP, data)
                self._writer.add(row)
        self._writer.give_up([held.row for held in some if held.row is not None])

    def done(self, rows: list[int]) -> None:
        """Forget these."""
        self._writer.delete(rows)

    async def upkeep(self, ran: float | None) -> None:
        """Do what is to be done now and then.

        :param ran: for how long the crawl has been running, if that is to be written down
        """
        if ran is not None:
            self._writer.tick(ran)
        await self._writer.look()
        await self._writer.again()

    def close(self) -> None:
        """Close the file. What is in it is for the next run."""
        self.tell_unreadable()
        self._writer.close()
