"""Held requests on disk, under JOBDIR, from the moment they are held.

Scrapy's own disk queues write their index only on a clean shutdown, so a kill would lose requests
(docs/DESIGN.md). Their order is in memory too, so that a failing disk doesn't stop the crawl: what
happens when it is full, say, is in storages/journal.py.
Requests are pickles, as in Scrapy's queues: who can write to a JOBDIR can run code anyway.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from scrapy_rep.engine.access import Following
from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.queue import Held
from scrapy_rep.storages.journal import Journal
from scrapy_rep.text import counted

logger = get_logger(__name__)

FILE_NAME = "rep-held.sqlite"

ROW_KEY = "_rep_held_row"
"""Meta key of requests that have left the gate: their row here, see
:class:`~scrapy_rep.engine.access.Trail`."""

# States of a row: HELD; GIVEN_UP in this run, kept for the next.
HELD, GIVEN_UP = 0, 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS held (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    origin TEXT NOT NULL,
    since REAL NOT NULL,
    state INTEGER NOT NULL,
    request BLOB NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    fingerprint INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY, ran REAL NOT NULL);
CREATE TABLE IF NOT EXISTS released (origin TEXT PRIMARY KEY, at REAL NOT NULL);
"""
# The column of the request.
_REQUEST = 4

# SQLite keeps anything in any column.
_SOUND = """
SELECT id, origin, since, state, priority, fingerprint FROM held
WHERE id BETWEEN 1 AND 1 << 62 AND typeof(origin) = 'text'
AND typeof(since) = 'real' AND since BETWEEN 0 AND 1e10
AND typeof(state) = 'integer' AND typeof(priority) = 'integer' AND typeof(fingerprint) = 'integer'
ORDER BY id
"""
_RELEASED = "SELECT origin, at FROM released WHERE typeof(at) = 'real' AND at BETWEEN 0 AND 1e10"
_REST = """
SELECT (SELECT max(ran) FROM clock WHERE typeof(ran) = 'real' AND ran BETWEEN 0 AND 1e10),
       (SELECT count(*) FROM held)
"""

# Rows deleted at a time.
_ROWS = 20
# A priority beyond that is written as this one: SQLite's integers end.
_MAX_PRIORITY = 1 << 62


class DiskHold:
    """Held requests in a SQLite file. A row stays until its request has been dealt with: a kill
    loses none, and at worst one is fetched twice."""

    def __init__(self, directory: str, spider: Spider, following: Following) -> None:
        self._spider = spider
        self._following = following
        self._trail = following.trail(ROW_KEY, self._done)
        """Of requests that have left the gate, with their rows."""
        self._path = Path(directory, FILE_NAME)
        self._looked = False  # whether an earlier run was killed
        self.journal = Journal(
            self._path,
            SCHEMA,
            spider,
            "retrying every second. Until it works, held requests stay in memory, and are lost if the "
            "crawl is killed",
            "what is held from now on stays in memory, and is lost if the crawl is killed",
            gauge="rep/down/held",
        )
        # By origin, what an earlier run held, and the fingerprints of these requests.
        self.recovered: dict[str, list[Held]] = {}
        self._earlier: dict[str, Counter[int]] = {}
        self.ran = 0.0  # seconds for which earlier runs have run
        self._warned = False
        self._unreadable = 0
        self._why_unreadable: object = None
        self._finished: list[
            int
        ] = []  # rows to be deleted: the crawl is done with their requests

    def open(self) -> bool:
        """Open the file, and take over an earlier run's requests. Return whether it works. Blocks."""
        # SQLite's last connection deletes the WAL; a run closes this file after Scrapy's queue.
        killed = not self._looked and self._path.with_name(f"{FILE_NAME}-wal").exists()
        self._looked = True
        queue = self._path.with_name("requests.queue")
        if killed and any({*files} - {"active.json"} for *_, files in os.walk(queue)):
            message = (
                "The last run in %(directory)s was killed. Scrapy saves its queue only when it is closed "
                "in order: requests that waited in %(queue)s are lost, and it may lose more, with errors "
                "such as 'Task exception was never retrieved'. To start with an empty queue, stop this "
                "run and delete it; to request lost pages again, delete requests.seen, too. What "
                "scrapy-rep holds isn't affected."
            )
            values = {"directory": self._path.parent, "queue": queue}
            logger.warning(message, values, extra={"spider": self._spider})
        return self.journal.open(self._recover) is not None

    def _recover(self, db: sqlite3.Connection) -> bool:
        """Take over what an earlier run left, without the requests themselves."""
        self.recovered, self._earlier = {}, {}
        rows = db.execute(_SOUND).fetchall()
        ran, all_rows = db.execute(_REST).fetchone()
        released: dict[object, float] = dict(db.execute(_RELEASED).fetchall())
        # A killed run has taken at least until its last request was held.
        self.ran = max(ran or 0.0, *(row[2] for row in rows), 0.0)
        for number, (row, origin, since, state, priority, fingerprint) in enumerate(
            rows, -len(rows)
        ):
            # The time of requests that had been released begins anew. Those that were given up wait anew.
            since = max(since, min(released.get(origin, 0.0), self.ran)) - self.ran
            if state == GIVEN_UP:
                since = 0.0
            held = Held(-priority, number, since, row=row, counts=True)
            self.recovered.setdefault(origin, []).append(held)
            if fingerprint:
                self._earlier.setdefault(origin, Counter())[fingerprint] += 1
        if all_rows > len(rows):
            self.skip(all_rows - len(rows), "damaged")
        return True

    # Requests come and go

    def hold(self, origin: str, held: Held, state: int = HELD) -> Held:
        """Write *held*. Return what stays in memory: all of it if it can't be serialised, or another file
        has it."""
        if self._following.stays_in_memory(held.request):
            return held
        try:
            data = dumps(held.request, self._spider)
        except Exception as error:  # noqa: BLE001 (from pickling a user's meta)
            if not self._warned:
                self._warned = True
                logger.warning(
                    "Can't write %(request)s to disk (%(error)s): it is held in memory, and lost if the "
                    "crawl is killed. Further requests like it are not reported.",
                    {"request": held.request, "error": error},
                    extra={"spider": self._spider},
                )
            return held
        row = held.row or self.journal.new_id("held")
        since = max(0.0, self.ran + held.since)
        priority = max(-_MAX_PRIORITY, min(held.request.priority, _MAX_PRIORITY))
        fingerprint = self._fingerprint(held.request)
        self.journal.put(
            "held", (row, origin, since, state, data, priority, fingerprint)
        )
        self._following.stored(held.request)
        return Held(*held[:3], row=row, counts=True)

    def release(self, origin: str, now: float) -> None:
        """Note that an answer has come for those of *origin*, at *now* in seconds since this run began:
        if it is down again before they have left, their time begins anew."""
        self.journal.put("released", (origin, max(0.0, self.ran + now)))

    def forget_release(self, origin: str) -> None:
        """Note that all of *origin* have left."""
        self.journal.delete("released", origin)

    def has(self, row: int) -> bool:
        """Whether the file has *row*: it can't always be written."""
        return self.journal.unwritten("held", row) is None

    def read(self, held: Held) -> Held | None:
        """Return *held* with its request; None if it can't be read: then the next run tries."""
        try:
            return held._replace(request=self.load(held))
        except Exception as error:  # noqa: BLE001 (the spider's callback may be gone, say)
            self.skip(1, error)
            return None

    def load(self, held: Held) -> Request:
        """Return the request of *held*. Raises if it is unreadable."""
        unwritten = self.journal.unwritten("held", held.row)
        query = "SELECT request FROM held WHERE id = ?"
        found = (
            [unwritten[_REQUEST:]] if unwritten else self.journal.read(query, held.row)
        )
        if not found:
            raise ValueError("damaged")
        return loads(found[0][0], self._spider)

    def left(self, origin: str, held: Held, *, given_up: bool) -> None:
        """Note that *held* has left the gate. Its row is deleted once the crawl is done with the request.
        If it was *given_up*, the next run has it again."""
        if held.number < 0:
            self.recognise(origin, held.request)  # a retry of it isn't
        if given_up:
            self.hold(origin, held, GIVEN_UP)
        elif held.row is not None:
            self._trail.begin(held.request, held.row)

    def _done(self, row: int) -> None:
        self._finished.append(row)
        if len(self._finished) >= _ROWS:
            self._forget()

    def _forget(self) -> None:
        finished, self._finished = self._finished, []
        self.journal.delete("held", *finished)

    def recognise(self, origin: str, request: Request) -> bool:
        """Recognise *request* as one that an earlier run held, and that the spider or Scrapy's queue has
        yielded again: each held one once. Return whether it is one."""
        earlier = self._earlier.get(origin)
        if earlier is None or not earlier[fingerprint := self._fingerprint(request)]:
            return False
        earlier[fingerprint] -= 1
        self._following.stored(request)
        return True

    def _fingerprint(self, request: Request) -> int:
        """Return what tells *request* from others; 0 if nothing does."""
        try:
            fingerprinter: Any = self._spider.crawler.request_fingerprinter
            # A project's own fingerprint need not be a hash: any URLs may share its first bytes.
            short = blake2b(fingerprinter.fingerprint(request), digest_size=8).digest()
        except Exception:  # noqa: BLE001 (of a project's class)
            return 0
        return int.from_bytes(short, "big") >> 1 or 1

    # The file

    def skip(self, count: int, why: object) -> None:
        self._unreadable += count
        self._why_unreadable = self._why_unreadable or why

    async def upkeep(self, ran: float | None) -> None:
        """Maintain the file, every second. *ran*: seconds that this run has run, if to be recorded."""
        if ran is not None:
            self.journal.put("clock", (1, self.ran + ran))
        self._forget()
        await self.journal.flush()

    def close(self) -> None:
        """Close the file: what has left is done, the rest is for the next run. Blocks."""
        self._finished += self._trail.numbers
        self._forget()
        if self._unreadable:
            count = counted(self._unreadable, "held request")
            values = {
                "count": count,
                "path": self.journal.path,
                "error": self._why_unreadable,
            }
            message = "%(count)s could not be read from %(path)s (%(error)s); left there for the next run"
            logger.warning(message, values, extra={"spider": self._spider})
        self.journal.close()


def dumps(request: Request, spider: Spider) -> bytes:
    """Return *request* as bytes. Raises whatever pickling a user's meta raises."""
    return pickle.dumps(request.to_dict(spider=spider), pickle.HIGHEST_PROTOCOL)


def loads(data: bytes, spider: Spider) -> Request:
    """Return the request in *data*. Raises if it is unreadable, or the spider lacks its callback."""
    return request_from_dict(pickle.loads(data), spider=spider)  # noqa: S301 (see above)
