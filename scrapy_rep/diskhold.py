"""Held requests on disk, under JOBDIR.

From the moment that they are held: Scrapy's own disk queues write their index only when the crawl
is closed in order, so a kill would lose them (DESIGN.md).
"""

from __future__ import annotations

import pickle
import sqlite3
from typing import TYPE_CHECKING

from scrapy.utils.request import request_from_dict

from scrapy_rep.log import get_logger
from scrapy_rep.memoryhold import Held, MemoryHold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scrapy import Request, Spider

logger = get_logger(__name__)

# State of a row: HELD; RELEASED to the scheduler, until it is known what became of it; GIVEN_UP in
# this run, kept for the next.
HELD, RELEASED, GIVEN_UP = range(3)

# Nobody else has a reason to lock the file; whoever does shall not hold the event loop.
_LOCK_SECONDS = 0.5

_SCHEMA = """
CREATE TABLE IF NOT EXISTS held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    number INTEGER NOT NULL,
    since REAL NOT NULL,
    state INTEGER NOT NULL,
    request BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY, ran REAL NOT NULL);
CREATE INDEX IF NOT EXISTS held_by_origin ON held (origin, state, number);
"""


class DiskHold:
    """Held requests in a SQLite file; in memory those that can't be serialised.

    A row stays until its request has been dealt with, so that a kill at any moment loses none: at
    worst one is fetched twice.
    """

    def __init__(self, path: Path, spider: Spider) -> None:
        self._spider = spider
        self.memory = MemoryHold()
        """Those that are not on disk."""
        self._warned = False
        # Commits in WAL mode wait for no disk: they outlive a kill of the process, which is
        # what matters here, if not a power cut.
        self._db = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)
        self._db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;" + _SCHEMA)
        (state,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if state != "ok":
            self._db.close()
            raise sqlite3.DatabaseError(state)

    def recover(self, now: float) -> list[tuple[str, int, float]]:
        """Take over what an earlier run left. Return the origins, how many requests each has, and
        since when the one that was held first has been."""
        # Given up then: waited for anew. Released, but the run was killed: still to be fetched.
        self._db.execute("UPDATE held SET since = ? WHERE state = ?", (now, GIVEN_UP))
        self._db.execute("UPDATE held SET state = ?", (HELD,))
        return self._db.execute(
            "SELECT origin, count(*), min(since) FROM held GROUP BY origin"
        ).fetchall()

    def last(self) -> tuple[int, float]:
        """The highest number, and how long earlier runs took: no less than when the last request
        was held, if the last of them was killed."""
        number, since = self._db.execute("SELECT max(number), max(since) FROM held").fetchone()
        (ran,) = self._db.execute("SELECT max(ran) FROM clock").fetchone()
        return number or 0, max(since or 0.0, ran or 0.0)

    def add(self, origin: str, held: Held) -> None:
        """Keep *held*."""
        data = self._serialised(held)
        if data is None:
            self.memory.add(origin, held)
            return
        try:
            # One that came back, to be held once more, has its row still.
            self._db.execute(
                "INSERT OR REPLACE INTO held (id, origin, number, since, state, request) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (held.row, origin, held.number, held.since, HELD, data),
            )
        except sqlite3.Error as error:  # a full disk, say
            self._warn(held.request, error)
            self.memory.add(origin, held)

    def _serialised(self, held: Held) -> bytes | None:
        request = held.request
        try:
            fields = request.to_dict(spider=self._spider)
            fields["dont_filter"] = held.dont_filter
            return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001
            # Whatever a user's meta raises when it is pickled: as Scrapy's scheduler does, such
            # a request is kept in memory.
            self._warn(request, error)
            return None

    def _warn(self, request: Request, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "Can't write %(request)s to disk (%(error)s): it is held in memory, and lost if "
                "the crawl is killed. Others like it are not reported.",
                {"request": request, "error": error},
                extra={"spider": self._spider},
            )

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """As :meth:`MemoryHold.take`. What is taken counts as released."""
        while True:
            some, readable = self._take(origin, limit, upto, before)
            if readable or not some:
                return readable

    def _take(self, origin: str, limit: int, upto: int, before: float) -> tuple[bool, list[Held]]:
        """Take some out. Return whether there were any, and those that can be read."""
        rows = self._db.execute(
            "SELECT id, number, since, request FROM held WHERE origin = ? AND state = ? "
            "AND number <= ? AND since <= ? ORDER BY number LIMIT ?",
            (origin, HELD, upto, before, limit),
        ).fetchall()
        # Those in memory have their places between these.
        in_memory = self.memory.first(origin, limit, upto, before)
        numbers = sorted([row[1] for row in rows] + [held.number for held in in_memory])
        last = numbers[limit - 1] if len(numbers) > limit else upto
        rows = [row for row in rows if row[1] <= last]
        in_memory = [held for held in in_memory if held.number <= last]
        self._mark(RELEASED, [row[0] for row in rows])
        self.memory.remove(origin, in_memory)
        readable = sorted([*self._read(origin, rows), *in_memory], key=lambda held: held.number)
        return bool(rows), readable

    def _read(self, origin: str, rows: list[tuple[int, int, float, bytes]]) -> Iterator[Held]:
        for row, number, since, data in rows:
            try:
                request = request_from_dict(pickle.loads(data), spider=self._spider)
            except Exception as error:  # noqa: BLE001
                # The spider's code changed between two runs: its callback is gone, say.
                logger.error(
                    "Can't read a held request of %(origin)s from disk: %(error)s",
                    {"origin": origin, "error": error},
                    extra={"spider": self._spider},
                )
            else:
                yield Held(number, since, request.dont_filter, request, row)

    def count(self, origin: str) -> int:
        """As :meth:`MemoryHold.count`."""
        (rows,) = self._db.execute(
            "SELECT count(*) FROM held WHERE origin = ? AND state = ?", (origin, HELD)
        ).fetchone()
        return int(rows) + self.memory.count(origin)

    def oldest(self, origin: str) -> float | None:
        """As :meth:`MemoryHold.oldest`."""
        (since,) = self._db.execute(
            "SELECT min(since) FROM held WHERE origin = ? AND state = ?", (origin, HELD)
        ).fetchone()
        both = [one for one in (since, self.memory.oldest(origin)) if one is not None]
        return min(both, default=None)

    def put_back(self, origin: str, some: list[Held]) -> None:
        """As :meth:`MemoryHold.put_back`."""
        self._mark(HELD, [held.row for held in some if held.row is not None])
        self.memory.put_back(origin, [held for held in some if held.row is None])

    def give_up(self, rows: list[int]) -> None:
        """Keep these for the next run."""
        self._mark(GIVEN_UP, rows)

    def done(self, rows: list[int]) -> None:
        """Forget these."""
        self._many("DELETE FROM held WHERE id = ?", [(row,) for row in rows])

    def _mark(self, state: int, rows: list[int]) -> None:
        self._many("UPDATE held SET state = ? WHERE id = ?", [(state, row) for row in rows])

    def _many(self, statement: str, values: list[tuple[int, ...]]) -> None:
        if not values:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(statement, values)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def tick(self, now: float) -> None:
        """Write down for how long the crawl has been running."""
        self._db.execute("INSERT OR REPLACE INTO clock (id, ran) VALUES (1, ?)", (now,))

    def close(self) -> None:
        """Close the file. What is in it is for the next run."""
        self._db.close()
