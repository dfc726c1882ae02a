"""How held requests come back: in slices, through the scheduler, as they were.

A released request carries a mark in its meta from here to :meth:`Releases.arrive`, where the
middleware sees it next. That is the scheduler's time, so nobody can copy it: by the time that a
callback or another middleware sees the meta, the mark is gone.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize

from scrapy.utils.asyncio import call_later

from scrapy_rep import signals
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import SLICE_SECONDS
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.hold import DiskHold

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.holding.hold import Held, MemoryHold
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

MARK = "_rep_held"

# The event loop has its turn after so many requests or seconds, whichever comes first.
_SLICE = 50
# When the disk does not answer.
_RETRY_SECONDS = 1.0
# So many requests from disk are in the scheduler's memory at a time; then it is looked at so often
# (seconds) whether they are fewer.
_OUTSTANDING = 1000
_OUTSTANDING_SECONDS = 0.05
# So many rows are deleted at a time.
_ROWS = 20

LineT = TypeVar("LineT")


def tell_given_up(crawler: Crawler, request: Request, error: RobotsUnreachable) -> None:
    """Count and announce that *request*, which was held, is about to fail with *error*."""
    assert crawler.stats is not None
    crawler.stats.inc_value("rep/given_up")
    crawler.signals.send_catch_log(
        signals.request_given_up,
        request=request,
        origin=error.origin,
        reason=error.reason,
        attempts=error.attempts,
        spider=crawler.spider,
    )


@dataclass(slots=True)
class Job(Generic[LineT]):
    """Held requests of one origin that may go."""

    line: LineT
    origin: Origin
    upto: int
    """Only those held up to this number: whoever is held later waits for another answer."""
    before: float
    """Only those held since no later time."""
    given_up: tuple[str, int] | None
    """Why they are given up (and after how many attempts); None if they are released."""


class Releases(Generic[LineT]):
    """Hands held requests to the scheduler, and knows them when they arrive."""

    def __init__(
        self,
        crawler: Crawler,
        engine: EngineAccess,
        now: Callable[[], float],
        on_sent: Callable[[Job[LineT], int], None],
        on_finished: Callable[[Job[LineT]], None],
    ) -> None:
        """:param on_sent: called with a job and how many of its requests went just now
        :param on_finished: called when none of a job's requests is left
        """
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._engine = engine
        self._now = now
        self._on_sent = on_sent
        self._on_finished = on_finished
        self._jobs: deque[Job[LineT]] = deque()
        self._running = False
        self._told = False
        self._outstanding: WeakSet[Request] = WeakSet()
        self._before: WeakKeyDictionary[Request, tuple[float, int | None]] = WeakKeyDictionary()
        self._arrived: set[int] = set()
        self._gone: list[int] = []
        self.hold: MemoryHold | DiskHold

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job[LineT]) -> None:
        """Let the requests of *job* go, after those of earlier jobs."""
        self._jobs.append(job)
        if not self._running:
            self._running = True
            call_later(0, self._go_on)

    def clear(self) -> None:
        """Let nothing more go."""
        self._jobs.clear()

    def _go_on(self) -> None:
        began = time.perf_counter()
        pause = 0.0
        try:
            while self._jobs and time.perf_counter() - began < SLICE_SECONDS:
                if len(self._outstanding) >= _OUTSTANDING:
                    pause = _OUTSTANDING_SECONDS
                    break
                self._some(self._jobs[0])
            self._told = False
        except Exception as error:
            # A disk that can't be read, a scheduler whose server is gone, another extension's
            # handler: nothing is lost by trying again.
            if not self._told:
                self._told = True
                logger.error(
                    "Held requests can't be released now, it is tried again: %(error)s",
                    {"error": text_of(error)},
                    extra={"spider": self._crawler.spider},
                    exc_info=not isinstance(error, sqlite3.Error),
                )
            pause = _RETRY_SECONDS
        self._running = bool(self._jobs)
        if self._running:
            call_later(pause, self._go_on)

    def _some(self, job: Job[LineT]) -> None:
        taken = self.hold.take(str(job.origin), _SLICE, job.upto, job.before)
        if not taken:
            self._jobs.popleft()
            self._on_finished(job)
            return
        if job.given_up and isinstance(self.hold, DiskHold):
            self.hold.give_up(str(job.origin), taken)
        sent = 0
        try:
            for held in taken:
                if not job.given_up:
                    self._stats.inc_value("rep/released")
                    self._crawler.signals.send_catch_log(
                        signals.request_released,
                        request=held.request,
                        origin=job.origin,
                        spider=self._crawler.spider,
                    )
                self.mark(held, job.given_up)
                self._crawl(held)
                sent += 1
        finally:
            # A scheduler may raise, one whose server is gone: what it did not take is held on.
            self.hold.put_back(str(job.origin), taken[sent:])
            self._on_sent(job, sent)

    def _crawl(self, held: Held) -> None:
        assert self._crawler.engine is not None
        if held.row is None or self._engine.scheduler_outlives:
            self._crawler.engine.crawl(held.request)
            if held.row is not None and isinstance(self.hold, DiskHold):
                self.hold.done([held.row])  # it is the scheduler's from here on
        else:
            self._outstanding.add(held.request)
            self._engine.crawl_from_disk(held.request)

    def mark(self, held: Held, given_up: tuple[str, int] | None = None) -> None:
        """Make *held* known to :meth:`arrive`, in this process or in another that shares the
        scheduler, and let it pass the dupe and the offsite filter, which it has passed before."""
        request = held.request
        request.meta[MARK] = {
            "dont_filter": held.dont_filter,
            "waited": self._now() - held.since,
            # A row is this process's own: it means nothing to others who share the scheduler.
            "row": None if self._engine.scheduler_outlives else held.row,
            "given_up": given_up,
        }
        request.dont_filter = True

    def arrive(self, request: Request) -> None:
        """Take a released request from the scheduler, as it was before it was held.

        :raises RobotsUnreachable: if it was given up
        """
        mark = request.meta.pop(MARK)
        request.dont_filter = mark["dont_filter"]
        self._outstanding.discard(request)
        if mark["given_up"]:
            error = RobotsUnreachable(origin_of(request), *mark["given_up"])
            tell_given_up(self._crawler, request, error)
            raise error
        row = mark["row"]
        self._before[request] = mark["waited"], row
        if row is not None:
            self._arrived.add(row)
            # When nobody has the request any more, its callback has been called.
            finalize(request, self._gone.append, row).atexit = False
        if len(self._gone) >= _ROWS:
            self._forget(self._gone)

    def before(self, request: Request) -> tuple[float, int | None]:
        """Return for how many seconds *request* was held before, and its row on disk, which is
        the caller's to keep from now on."""
        waited, row = self._before.pop(request, (0.0, None))
        self._arrived.discard(row)
        return waited, row

    def close(self) -> None:
        """End an orderly run: what has arrived was dealt with, the rest is for the next run."""
        self._forget(list(self._arrived))

    def _forget(self, rows: list[int]) -> None:
        done = [row for row in rows if row in self._arrived]
        self._gone.clear()
        self._arrived.difference_update(done)
        if isinstance(self.hold, DiskHold):
            self.hold.done(done)
