"""Held requests on disk, under JOBDIR, from the moment they are held.

Scrapy's own disk queues write their index only on a clean shutdown, so a kill would lose requests
(docs/DESIGN.md). The order is in memory too, so that a failing disk doesn't stop the queues.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.holding.disk_file import GIVEN_UP, HELD, HoldFile, Row
from scrapy_rep.holding.disk_writer import MEANWHILE, HoldWriter
from scrapy_rep.holding.hold import Entry, Held, Hold
from scrapy_rep.holding.serialization import dumps, loads
from scrapy_rep.storages.sqlite_file import open_or_set_aside
from scrapy_rep.storages.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request, Spider

logger = get_logger(__name__)

# Failed reads in a row before unreadable requests are left to the next run: this one has to end.
_READS = 60


class DiskHold(Hold):
    """Held requests in a SQLite file; those that can't be serialised in memory.

    A row stays until its request has been dealt with: a kill loses none, and at worst one is fetched
    twice.
    """

    durable = True

    def __init__(self, path: Path, spider: Spider) -> None:
        """Open the file, and take over what an earlier run left. Blocks."""
        super().__init__()
        self._spider = spider
        self._recovered: dict[str, int] = {}
        self._older: set[int] = set()
        """Rows whose version in the file is outdated."""
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
            # Requests that were given up wait again.
            self.keep(origin, (number, index.ran if state == GIVEN_UP else since, row))
        self._recovered = {origin: len(queue) for origin, queue in self._queues.items()}
        with suppress(sqlite3.Error):  # it counts all the same
            file.wait_anew(index.ran)
        if index.unreadable:
            self._skip(index.unreadable, "damaged")
        last = max((row[2] for row in index.rows), default=0)
        return index.last_row, last, index.ran

    def recover(self) -> Iterator[tuple[str, int, float]]:
        """Yield each origin that an earlier run left, the number of its requests, and the earliest
        ``since``."""
        for origin, count in self._recovered.items():
            yield origin, count, self.oldest(origin) or 0.0
        self._recovered = {}

    def last(self) -> tuple[int, float]:
        """Return the highest number of an earlier run, and the running time of earlier runs."""
        return self._number, self._ran

    def leave(self, origin: str, why: object) -> None:
        """Leave the recovered requests of *origin* to the next run."""
        self._skip(len(self._queues.pop(origin, ())), why)

    def add(self, origin: str, held: Held) -> None:
        data = self._serialised(held)
        if data is None:
            super().add(origin, held)
            return
        # A request that is held again still has its row.
        row = held.row or self._new_row()
        self._writer.add(Row(row, origin, held.number, held.since, HELD, data))
        if held.row is not None and self._writer.unwritten(row):
            self._older.add(row)
        self.keep(origin, (held.number, held.since, row))

    def _new_row(self) -> int:
        self._last_row += 1
        return self._last_row

    def _serialised(self, held: Held) -> bytes | None:
        try:
            return dumps(held.request, held.dont_filter, self._spider)
        except Exception as error:  # noqa: BLE001 (from pickling a user's meta)
            if not self._warned:
                self._warned = True
                logger.warning(
                    "Can't write %(request)s to disk (%(error)s): it is held in memory, and lost "
                    "if the crawl is killed. Further requests like it are not reported.",
                    {"request": held.request, "error": error},
                    extra={"spider": self._spider},
                )
            return None

    def _read(self, entries: list[Entry]) -> list[Held]:
        rows = [
            entry[2]
            for entry in entries
            if not isinstance(entry, Held) and not self._writer.unwritten(entry[2])
        ]
        data: dict[int, bytes] = {}
        try:
            data = self._writer.file.read(rows)
            self._failed_reads = 0
        except sqlite3.Error as error:
            self._failed_reads += 1
            if self._failed_reads < _READS:
                raise
            self._why_unreadable = error
        return [held for entry in entries if (held := self._held(entry, data))]

    def _held(self, entry: Entry, data: dict[int, bytes]) -> Held | None:
        """Return the request of *entry*, None if it can't be read."""
        if isinstance(entry, Held):
            return entry
        number, since, row = entry
        unwritten = self._writer.unwritten(row)
        try:
            request = self._loaded(unwritten.request if unwritten else data.get(row))
        except Exception as error:  # noqa: BLE001 (the spider's callback may be gone, say)
            self._skip(1, error)
            return None
        if unwritten and row not in self._older:
            self._writer.delete([row])
            return Held(number, since, request.dont_filter, request)
        if unwritten:
            self._older.discard(row)
        return Held(number, since, request.dont_filter, request, row)

    def _loaded(self, data: bytes | None) -> Request:
        if data is None:
            raise ValueError(self._why_unreadable or "damaged")
        return loads(data, self._spider)

    def _request(self, entry: Entry) -> Request | None:
        if isinstance(entry, Held):
            return entry.request
        row = entry[2]
        unwritten = self._writer.unwritten(row)
        with suppress(Exception):  # take() will say so
            return self._loaded(
                unwritten.request if unwritten else self._writer.file.read([row]).get(row)
            )
        return None

    def _skip(self, count: int, why: object) -> None:
        self._unreadable += count
        self._why_unreadable = self._why_unreadable or why

    def tell_unreadable(self) -> None:
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
        mortal: list[Entry] = []
        for entry in self._queues.pop(origin, ()):
            if self._is_mortal(entry):
                mortal.append(entry)
            else:
                self.keep(origin, entry)
        for entry in mortal:
            held = self._held(entry, {})
            if held is not None:
                yield held

    def _is_mortal(self, entry: Entry) -> bool:
        if isinstance(entry, Held):
            return entry.row is None
        return self._writer.unwritten(entry[2]) is not None and entry[2] not in self._older

    def _entry(self, held: Held) -> Entry:
        return held if held.row is None else (held.number, held.since, held.row)

    def give_up(self, origin: str, some: list[Held]) -> None:
        for held in some:
            data = self._serialised(held) if held.row is None else None
            if data is not None:
                row = Row(self._new_row(), origin, held.number, held.since, GIVEN_UP, data)
                self._writer.add(row)
        self._writer.give_up([held.row for held in some if held.row is not None])

    def done(self, rows: list[int]) -> None:
        self._writer.delete(rows)

    async def upkeep(self, ran: float | None) -> None:
        if ran is not None:
            self._writer.tick(ran)
        await self._writer.look()
        await self._writer.again()

    def close(self) -> None:
        self.tell_unreadable()
        self._writer.close()


FILE_NAME = "rep-held.sqlite"


class Opening:
    """Opens the hold under JOBDIR as soon as that works."""

    def __init__(self, directory: str, spider: Spider) -> None:
        self._path = Path(directory, FILE_NAME)
        self._spider = spider
        self._trouble = Trouble(self._path, MEANWHILE, spider)
        self._looked = False

    def hold(self) -> DiskHold | None:
        """Return the hold; None if the file can't be used now. Blocks."""
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
    """Warn about Scrapy's own queue if the last run, whose hold was at *path*, did not close it. The
    queue stays in place: some of it can often be read."""
    # SQLite deletes the WAL file with its last connection, and a run closes the hold after the
    # scheduler.
    killed = Path(f"{path}-wal").exists()
    queue = path.parent / "requests.queue"
    if killed and any(one.name != "active.json" and one.is_file() for one in queue.rglob("*")):
        logger.warning(
            "The last run in %(directory)s was killed. Scrapy saves its queue only on a clean shutdown, "
            "so requests waiting in %(queue)s are lost, and the damaged queue may lose requests of this "
            "run too, with errors such as 'Task exception was never retrieved'. To start with an empty "
            "queue, stop this run and delete %(queue)s; to request lost pages again, also delete "
            "requests.seen. Requests held by scrapy-rep are not affected.",
            {"directory": path.parent, "queue": queue},
            extra={"spider": spider},
        )
