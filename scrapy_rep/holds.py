"""Where held requests are: in memory, or on disk under JOBDIR.

On disk from the moment they are held: Scrapy's own disk queues write their index only when the
crawl is closed in order, so a kill would lose them (DESIGN.md).
"""

from __future__ import annotations

import logging
import pickle
import sqlite3
import time
from collections import deque
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scrapy.utils.request import request_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request, Spider

logger = logging.getLogger(__name__)


FILE_NAME = "rep-held.sqlite"
"""Of the file under JOBDIR."""


class Held(NamedTuple):
    """A held request."""

    number: int
    """Counts upwards in the order of holding."""
    since: float
    """When it was first held, in seconds on the clock of the crawl's running time."""
    dont_filter: bool
    """As the user set it."""
    request: Request
    row: int | None = None
    """Where it is on disk, if it is."""


def open_hold(directory: str | None, spider: Spider) -> MemoryHold | DiskHold:
    """Return a hold on disk in the JOBDIR *directory*, or one in memory where there is none."""
    if not directory:
        return MemoryHold()
    path = Path(directory, FILE_NAME)
    try:
        try:
            return DiskHold(path, spider)
        except sqlite3.DatabaseError as error:
            if not path.exists() or isinstance(error, sqlite3.OperationalError):
                raise  # the folder is read-only, the file locked: setting it aside helps nothing
            aside = path.with_name(f"{path.name}.unreadable-{int(time.time())}")
            path.rename(aside)
            logger.warning(
                "%(path)s can't be read (%(error)s) and was set aside as %(aside)s",
                {"path": path, "error": error, "aside": aside.name},
                extra={"spider": spider},
            )
            return DiskHold(path, spider)
    except (sqlite3.Error, OSError) as error:
        logger.warning(
            "%(path)s can't be used (%(error)s): requests are held in memory, and lost if the "
            "crawl is killed",
            {"path": path, "error": error},
            extra={"spider": spider},
        )
        return MemoryHold()


class MemoryHold:
    """Held requests in memory, by origin, first in first out."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Held]] = {}

    def add(self, origin: str, held: Held) -> None:
        """Keep *held*."""
        # Scrapy remembers a kilobyte of each request object that it has seen (its parsed URL, its
        # fingerprint) for as long as that lives: a copy has the same contents without that.
        try:
            held = held._replace(request=copy(held.request))
        except Exception as error:  # noqa: BLE001
            # A class of the user's that can't be copied: held as it is.
            logger.debug(
                "%(request)s can't be copied: %(error)s", {"request": held.request, "error": error}
            )
        self._queues.setdefault(origin, deque()).append(held)

    def first(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Return the first requests of *origin*.

        :param limit: how many at most
        :param upto: only those with no higher number
        :param before: only those held since no later time
        """
        found: list[Held] = []
        for held in self._queues.get(origin, ()):
            if len(found) >= limit or held.number > upto:
                break
            # One that was held before may have waited longer than those in front of it.
            if held.since <= before:
                found.append(held)
        return found

    def remove(self, origin: str, some: list[Held]) -> None:
        """Take *some* of those that :meth:`first` returned out."""
        queue = self._queues.get(origin)
        if queue is None:
            return
        gone = {held.number for held in some}
        while queue and queue[0].number in gone:
            gone.discard(queue.popleft().number)
        if gone:
            queue = deque(held for held in queue if held.number not in gone)
            self._queues[origin] = queue
        if not queue:
            del self._queues[origin]

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Take out the first requests of *origin*, see :meth:`first`."""
        taken = self.first(origin, limit, upto, before)
        self.remove(origin, taken)
        return taken

    def count(self, origin: str) -> int:
        """How many requests of *origin* are held."""
        return len(self._queues.get(origin, ()))

    def oldest(self, origin: str) -> float | None:
        """Since when the request of *origin* that was held first has been held."""
        return min((held.since for held in self._queues.get(origin, ())), default=None)

    def close(self) -> None:
        """Forget everything."""
        self._queues.clear()


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
