"""Keeps held requests on disk, under JOBDIR, from the moment they are held.

Scrapy's own disk queues write their index only on a clean shutdown, so a kill would
lose requests (docs/DESIGN.md). The order of held requests is also in memory, in the
queues of origins/queue.py, so that a failing disk doesn't stop the crawl.
storages/journal.py says what happens when the disk is full, for example.

Requests are pickles, as in Scrapy's queues. Reading a pickle may run code, but whoever
can write to a JOBDIR can run code anyway.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from scrapy import Request, Spider
from scrapy.utils.request import request_from_dict

from scrapy_rep.engine.access import Following
from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.queue import Held
from scrapy_rep.storages.journal import Journal, first_row
from scrapy_rep.text import counted

logger = get_logger(__name__)

FILE_NAME = "rep-held.sqlite"

ROW_KEY = "_rep_held_row"
"""Meta key of requests that have left the gate (gate.py): the number of their row in
the table ``held``. A ``Trail`` (engine/access.py) follows them by this number."""

HELD = 0
"""The state of a row while its request is held."""
GIVEN_UP = 1
"""The state of a row whose request was given up in this run, and is kept for the
next."""

# The table held has the requests; clock has the seconds for which all runs together
# have run; released says when the requests of each origin were released last. In the
# columns "since" and "at", a moment is the number of seconds for which all runs
# together had run by then.
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
# The index of the column "request" in a row of the table held.
_REQUEST_COLUMN = 4

# Selects the rows whose values are sound, without the requests. SQLite lets any column
# have any value. Rows that aren't sound stay in the file, unread. 1e10 s are 300 years.
_SOUND_ROWS = """
SELECT id, origin, since, state, priority, fingerprint FROM held
WHERE id BETWEEN 1 AND 1 << 62 AND typeof(origin) = 'text'
AND typeof(since) = 'real' AND since BETWEEN 0 AND 1e10
AND typeof(state) = 'integer' AND typeof(priority) = 'integer'
AND typeof(fingerprint) = 'integer'
ORDER BY id
"""
_RELEASES = """
SELECT origin, at FROM released WHERE typeof(at) = 'real' AND at BETWEEN 0 AND 1e10
"""
# Selects the time for which earlier runs have run, and the number of all rows, sound or
# not.
_TIME_AND_COUNT = """
SELECT (
    SELECT max(ran) FROM clock WHERE typeof(ran) = 'real' AND ran BETWEEN 0 AND 1e10
), (
    SELECT count(*) FROM held
)
"""

# Rows are deleted this many at a time, since one statement for each row would take
# longer.
_DELETED_AT_A_TIME = 20
# SQLite's integers have 64 bits. A priority that might not fit is written as this one,
# or as its negative.
_MAX_PRIORITY = 1 << 62


class DiskHold:
    """Held requests in a SQLite file. A row stays until its request has been dealt
    with: a kill loses no request; at worst, some are fetched twice."""

    def __init__(self, directory: str, spider: Spider, following: Following) -> None:
        self._spider = spider
        self._following = following
        self._trail = following.trail(ROW_KEY, self._delete_soon)
        """Follows requests that have left the gate, until the crawl is done with
        them."""
        self._path = Path(directory, FILE_NAME)
        self._has_opened = False
        """Whether this run has tried to open the file."""
        self.journal = Journal(
            self._path,
            SCHEMA,
            spider,
            "retrying every second. Until it works, held requests stay in memory, and are lost if the "
            "crawl is killed",
            "what is held from now on stays in memory, and is lost if the crawl is killed",
            gauge="rep/down/held",  # the stat that is 1 while the file can't be used
        )
        self.recovered: dict[str, list[Held]] = {}
        """What an earlier run held, by origin."""
        self.earlier_counts: dict[str, Counter[int]] = {}
        """How many requests with each fingerprint an earlier run held, by origin. While
        no origin has any, :meth:`recognise_copy` needn't be called."""
        self.ran_before = 0.0
        """Seconds for which earlier runs have run."""
        self._has_warned = False
        """Whether a request that can't be written to disk has been reported."""
        self._unreadable = 0
        """How many rows could not be read."""
        self._why_unreadable: object = None
        """Why the first of these rows could not be read."""
        self._finished: list[int] = []
        """Rows to be deleted: the crawl is done with their requests."""

    def open(self) -> bool:
        """Open the file, and take over an earlier run's requests. Return whether that
        worked. Blocks."""
        if not self._has_opened:
            self._has_opened = True
            self._warn_if_killed()
        return self.journal.open(self._recover) is not None

    def _warn_if_killed(self) -> None:
        """Warn if the earlier run was killed, and requests in Scrapy's queue on disk
        are lost."""
        # SQLite deletes the file "-wal" when its last connection is closed. A run that
        # isn't killed closes that after Scrapy has saved its queue.
        if not self._path.with_name(f"{FILE_NAME}-wal").exists():
            return
        queue = self._path.with_name("requests.queue")
        if not _has_requests(queue):
            return
        logger.warning(
            "The last run in %(directory)s was killed. Scrapy saves its queue only when it is closed "
            "in order: requests that waited in %(queue)s are lost, and it may lose more, with errors "
            "such as 'Task exception was never retrieved'. To start with an empty queue, stop this "
            "run and delete it; to request lost pages again, delete requests.seen, too. What "
            "scrapy-rep holds isn't affected.",
            {"directory": self._path.parent, "queue": queue},
            extra={"spider": self._spider},
        )

    def _recover(self, db: sqlite3.Connection) -> bool:
        """Take over what an earlier run left, without the requests themselves. Return
        True, for ``Journal.open``: the file works."""
        self.recovered = {}
        self.earlier_counts = {}
        rows = [_Row(*columns) for columns in db.execute(_SOUND_ROWS)]
        ran, row_count = first_row(db, _TIME_AND_COUNT)
        released_at: dict[str, float] = dict(db.execute(_RELEASES).fetchall())

        # A killed run has run at least until its last request was held, whatever its
        # clock in the file says.
        last_held = max((row.since for row in rows), default=0.0)
        self.ran_before = max(ran or 0.0, last_held, 0.0)

        # The numbers of these requests (Held.number) run up to -1, since they came
        # before all requests of this run.
        for number, row in enumerate(rows, -len(rows)):
            since = self._waits_since(row, released_at.get(row.origin, 0.0))
            held = Held(-row.priority, number, since, row=row.id, was_held=True)
            self.recovered.setdefault(row.origin, []).append(held)
            if row.fingerprint:
                counts = self.earlier_counts.setdefault(row.origin, Counter())
                counts[row.fingerprint] += 1

        if row_count > len(rows):  # some rows aren't sound
            self.skip(row_count - len(rows), "damaged")
        return True

    def _waits_since(self, row: _Row, released_at: float) -> float:
        """Return when the request of *row* began to wait, in seconds from the start of
        this run (so 0 or negative). *released_at*: when the requests of the row's
        origin were released last, in seconds of all runs; 0: never."""
        if row.state == GIVEN_UP:
            return 0.0  # a request that was given up gets its whole time once more
        # If the request was released, but has not left, its time began anew at the
        # release.
        began_at = max(row.since, min(released_at, self.ran_before))
        return began_at - self.ran_before

    # Requests come and go

    def hold(self, origin: str, held: Held, state: int = HELD) -> Held:
        """Write *held*, a request to *origin*, to the file, with *state* (:data:`HELD`
        or :data:`GIVEN_UP`). Return what stays in memory: its place in the order only,
        or all of *held* if the request can't be serialised or another file has it."""
        held = held._replace(was_held=True)

        # Another file of ours may have the request (Following in engine/access.py).
        is_followed = not self._following.keys.isdisjoint(held.request.meta)
        if is_followed and self._following.stays_in_memory(held.request):
            return held

        try:
            values = held.request.to_dict(spider=self._spider)
            data = pickle.dumps(values, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 (from pickling a user's meta)
            self._warn_once(held.request, error)
            return held

        # A request that is on disk already keeps its row.
        row = held.row or self.journal.new_id("held")
        since = max(0.0, self.ran_before + held.since)
        priority = max(-_MAX_PRIORITY, min(held.request.priority, _MAX_PRIORITY))
        fingerprint = self._fingerprint(held.request)
        self.journal.put(
            "held",
            (row, origin, since, state, data, priority, fingerprint),
        )
        if is_followed:
            self._following.note_stored(held.request)
        return Held(held.urgency, held.number, held.since, row=row, was_held=True)

    def _warn_once(self, request: Request, error: Exception) -> None:
        """Warn that *request* can't be written to disk, the first time that this
        happens."""
        if self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "Can't write %(request)s to disk (%(error)s): it is held in memory, and lost if the "
            "crawl is killed. Further requests like it are not reported.",
            {"request": request, "error": error},
            extra={"spider": self._spider},
        )

    def note_release(self, origin: str, now: float) -> None:
        """Note that the requests to *origin* are released at *now*, in seconds since
        this run began. If the origin becomes unreachable again before these requests
        have left, their waiting time counts from *now*."""
        released_at = max(0.0, self.ran_before + now)
        self.journal.put("released", (origin, released_at))

    def forget_release(self, origin: str) -> None:
        """Note that all requests to *origin* have left. None is left whose waiting time
        would count from the release (see :meth:`note_release`)."""
        self.journal.delete("released", origin)

    def has(self, row: int) -> bool:
        """Whether *row* is in the file by now. While the file can't be used, rows wait
        in memory to be written."""
        return self.journal.unwritten("held", row) is None

    def read(self, held: Held) -> Held | None:
        """Return *held* with its request; None if the request can't be read. Then its
        row stays, and the next run will try again."""
        try:
            return held._replace(request=self.load(held))
        except Exception as error:  # noqa: BLE001 (the spider's callback may be gone, say)
            self.skip(1, error)
            return None

    def load(self, held: Held) -> Request:
        """Return the request of *held*. Raises an exception if the request is
        unreadable, or if the spider lacks its callback."""
        unwritten = None
        if self.journal.failing_since is not None:  # otherwise, the file has all rows
            unwritten = self.journal.unwritten("held", held.row)
        if unwritten is not None:
            data = unwritten[_REQUEST_COLUMN]
        else:
            rows = self.journal.read("SELECT request FROM held WHERE id = ?", held.row)
            if not rows:
                raise ValueError("damaged")
            [data] = rows[0]  # the only column
        values = pickle.loads(data)  # noqa: S301 (see the top of this module)
        return request_from_dict(values, spider=self._spider)

    def note_left(self, origin: str, held: Held, *, given_up: bool) -> None:
        """Note that *held*, a request to *origin*, has left the gate. Its row is
        deleted once the crawl is done with the request. If it was *given_up*, the next
        run has it again."""
        is_of_earlier_run = held.number < 0
        if is_of_earlier_run:
            # Use up its fingerprint. The next request like this one is a retry by
            # Scrapy, which would be dropped as a copy of the one on disk if that could
            # still be recognised.
            self.recognise_copy(origin, held.request)
        if given_up:
            self.hold(origin, held, GIVEN_UP)
        elif held.row is not None:
            self._trail.begin(held.request, held.row)

    def _delete_soon(self, row: int) -> None:
        """Delete *row* now, or soon together with others: the crawl is done with its
        request."""
        self._finished.append(row)
        if len(self._finished) >= _DELETED_AT_A_TIME:
            self._delete_finished()

    def _delete_finished(self) -> None:
        finished = self._finished
        self._finished = []
        self.journal.delete("held", *finished)

    def recognise_copy(self, origin: str, request: Request) -> bool:
        """Return whether *request*, to *origin*, is a copy of one that an earlier run
        held: the spider or Scrapy's queue has yielded the request again. For each
        request that was held, one copy is recognised."""
        counts = self.earlier_counts.get(origin)
        if counts is None:
            return False
        fingerprint = self._fingerprint(request)
        if not counts[fingerprint]:
            return False
        counts[fingerprint] -= 1
        # Our file has this request, so nobody need follow the copy that came again.
        self._following.note_stored(request)
        return True

    def _fingerprint(self, request: Request) -> int:
        """Return a number of 63 bits that tells *request* from others; 0 if its
        fingerprint can't be computed."""
        try:
            fingerprinter: Any = self._spider.crawler.request_fingerprinter
            fingerprint = fingerprinter.fingerprint(request)
            # A project's own fingerprint need not be a hash. Any URLs may share its
            # first bytes.
            digest = blake2b(fingerprint, digest_size=8).digest()
        except Exception:  # noqa: BLE001 (of a project's class)
            return 0
        # SQLite's integers are signed, so there are 63 bits. 0 would mean that the
        # request has no fingerprint.
        return int.from_bytes(digest, "big") >> 1 or 1

    # The file

    def skip(self, count: int, why: object) -> None:
        """Note that *count* rows can't be read, and *why*. These rows stay in the
        file."""
        self._unreadable += count
        self._why_unreadable = self._why_unreadable or why

    async def upkeep(self, ran: float | None) -> None:
        """Maintain the file, every second. *ran*: the seconds for which this run has
        run; None if they needn't be recorded."""
        if ran is not None:
            the_only_row = 1
            self.journal.put("clock", (the_only_row, self.ran_before + ran))
        if self._finished:
            self._delete_finished()
        if self.journal.has_logged_failure:  # else flush() has nothing to do
            await self.journal.flush()

    def close(self) -> None:
        """Close the file. Rows of requests that have left the gate are deleted, since
        the crawl is over; the other rows are for the next run. Blocks."""
        self._finished += self._trail.numbers
        self._delete_finished()
        if self._unreadable:
            logger.warning(
                "%(count)s could not be read from %(path)s (%(error)s); left there for the next run",
                {
                    "count": counted(self._unreadable, "held request"),
                    "path": self.journal.path,
                    "error": self._why_unreadable,
                },
                extra={"spider": self._spider},
            )
        self.journal.close()


class _Row(NamedTuple):
    """A row of the table ``held``, without the request."""

    id: int
    origin: str
    since: float
    state: int
    priority: int
    fingerprint: int


def _has_requests(queue: Path) -> bool:
    """Whether the folder *queue*, Scrapy's queue on disk, has more than an index."""
    for _, _, names in os.walk(queue):
        if set(names) - {"active.json"}:
            return True
    return False
