"""Releases held requests: in slices, unchanged, through the scheduler or ahead of it.

A released request carries a mark in its meta until the middleware sees it again and calls
:meth:`Releases.arrive`. Nobody else has it in between, so callbacks and other middlewares never
see the mark, nor copy it.
"""

from __future__ import annotations

import math
import sqlite3
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet, finalize

from scrapy.utils.asyncio import call_later

from scrapy_rep import signals
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import RobotsUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_rep.engine.scheduler_door import SchedulerDoor
    from scrapy_rep.holding.held_origin import HeldOrigin
    from scrapy_rep.holding.held_origins import HeldOrigins
    from scrapy_rep.holding.hold import Held
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

MARK = "_rep_held"

# Requests released in one step.
_SLICE = 50
# Seconds until a failed step is retried.
_RETRY_SECONDS = 1.0
# Requests from disk that the scheduler may have in memory, and seconds between checks.
_OUTSTANDING = 1000
_OUTSTANDING_SECONDS = 0.05
# Rows deleted at a time.
_ROWS = 20


def tell_given_up(context: CrawlContext, request: Request, error: RobotsUnreachable) -> None:
    """Count and announce that *request*, which was held, will fail with *error*."""
    context.stats.inc_value("rep/given_up")
    context.crawler.signals.send_catch_log(
        signals.request_given_up,
        request=request,
        origin=error.origin,
        reason=error.reason,
        attempts=error.attempts,
        spider=context.spider,
    )


@dataclass(slots=True)
class Job:
    """Held requests of one origin to be released or given up."""

    held_origin: HeldOrigin
    upto: int
    """The highest number to take: later requests wait for another answer."""
    before: float
    """The latest ``since`` to take."""
    given_up: tuple[str, int] | None
    """Why they are given up, and after how many attempts; None to release them."""


class Releases:
    """Hands held requests to the scheduler or its door, and recognises them when they return."""

    def __init__(
        self,
        context: CrawlContext,
        held: HeldOrigins,
        door: SchedulerDoor,
        on_finished: Callable[[HeldOrigin], None],
    ) -> None:
        """:param on_finished: called after the last request of a job"""
        self._context = context
        self._held = held
        self._door = door
        self._on_finished = on_finished
        self._jobs: deque[Job] = deque()
        self._running = self._ended = False
        self._failed: Job | None = None
        self._outstanding: WeakSet[Request] = WeakSet()
        self._causes: WeakKeyDictionary[Request, Exception] = WeakKeyDictionary()
        self._before: WeakKeyDictionary[Request, tuple[float, int | None]] = WeakKeyDictionary()
        self._arrived: set[int] = set()
        self._gone: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._jobs or self._door)

    def add(
        self,
        held_origin: HeldOrigin,
        given_up: tuple[str, int] | None = None,
        before: float = math.inf,
    ) -> None:
        """Release requests of an origin, or give them up: see :class:`Job`."""
        if self._ended:
            return
        self._jobs.append(Job(held_origin, self._held.number, before, given_up))
        if not self._running:
            self._running = True
            call_later(0, self._go_on)

    def end(self) -> None:
        """Release nothing more."""
        self._ended = True
        self._jobs.clear()

    def take_back(self) -> list[Request]:
        """Return the requests that were to go ahead, without those in a file of ours."""
        return [one for one in self._door.clear() if one.meta[MARK]["row"] is None]

    def _go_on(self) -> None:
        slices = Slices()
        pause = 0.0
        job: Job | None = None
        try:
            while self._jobs:
                if len(self._outstanding) >= _OUTSTANDING:
                    pause = _OUTSTANDING_SECONDS
                    break
                job = self._jobs[0]
                self._some(job)
                if job is self._failed:
                    self._failed = None
                if slices.over:
                    break
        except Exception as error:
            # An unreadable disk, a scheduler whose server is gone, another extension's handler.
            if self._failed is None:
                self._failed = job
                logger.error(
                    "Can't release held requests, retrying: %(error)s",
                    {"error": text_of(error)},
                    extra=self._context.extra,
                    exc_info=not isinstance(error, sqlite3.Error),
                )
            pause = _RETRY_SECONDS
            self._jobs.rotate(-1)  # other origins don't wait for a request that is always refused
        self._running = bool(self._jobs)
        if self._running:
            call_later(pause, self._go_on)

    def _some(self, job: Job) -> None:
        held_origin, hold = job.held_origin, self._held.hold
        key = str(held_origin.origin)
        taken = hold.take(key, _SLICE, job.upto, job.before)
        if not taken:
            self._jobs.popleft()
            self._on_finished(held_origin)
            return
        if job.given_up:
            hold.give_up(key, taken)
        # One of each origin goes ahead: if many hosts wait in the scheduler, its rules would be forgotten
        # by then. No more, or they would fill the downloader.
        began = held_origin.released or held_origin.given_up
        first = None if began else max(taken, key=lambda one: one.request.priority)
        sent = 0
        try:
            for one in taken:
                self._send(job, one, ahead=one is first)
                sent += 1
        finally:
            # What the scheduler did not take stays held.
            hold.put_back(key, taken[sent:])
            self._held.left(held_origin, sent)
            if job.given_up:
                held_origin.given_up += sent
                held_origin.why = job.given_up
            else:
                held_origin.released += sent

    def _send(self, job: Job, held: Held, *, ahead: bool) -> None:
        """Send *held* back to the downloader."""
        context, place = self._context, held.place
        if place is not None and place.waits:
            held = held._replace(request=place.request)
        request = held.request
        if not job.given_up:
            context.stats.inc_value("rep/released")
            context.crawler.signals.send_catch_log(
                signals.request_released,
                request=request,
                origin=job.held_origin.origin,
                spider=context.spider,
            )
        self.mark(held, job.given_up)
        if job.given_up and (cause := self._held.failure(job.held_origin.origin)):
            self._causes[request] = cause  # the origin may be forgotten before it arrives
        if place is not None and place.waits:
            place.call(go_on=True)
        elif ahead and self._door.go_ahead(request):
            if held.row is not None:
                self._outstanding.add(request)
        elif held.row is None or context.engine.scheduler_outlives:
            assert context.crawler.engine is not None
            context.crawler.engine.crawl(request)
            if held.row is not None:
                self._held.hold.done([held.row])  # the scheduler keeps it now
        else:
            self._outstanding.add(request)
            context.engine.crawl_from_disk(request)

    def mark(self, held: Held, given_up: tuple[str, int] | None = None) -> None:
        """Mark *held* for :meth:`arrive`, in this process or in one that shares the scheduler, and
        let it pass the dupe and offsite filters, as it did before."""
        request = held.request
        request.meta[MARK] = {
            "dont_filter": held.dont_filter,
            "waited": self._held.now() - held.since,
            # Other processes that share the scheduler don't have this row.
            "row": None if self._context.engine.scheduler_outlives else held.row,
            "given_up": given_up,
        }
        request.dont_filter = True

    def arrive(self, request: Request) -> None:
        """Restore a released request to what it was before it was held.

        :raises RobotsUnreachable: if it was given up
        """
        mark = request.meta.pop(MARK)
        request.dont_filter = mark["dont_filter"]
        self._outstanding.discard(request)
        if mark["given_up"]:
            origin = origin_of(request)
            cause = self._causes.pop(request, None)
            reason, attempts = mark["given_up"]
            error = RobotsUnreachable(origin, reason, attempts, cause)
            tell_given_up(self._context, request, error)
            raise error
        row = mark["row"]
        self._before[request] = mark["waited"], row
        if row is not None:
            self._arrived.add(row)
            # When the request is garbage, its callback has been called.
            finalize(request, self._gone.append, row).atexit = False
        if len(self._gone) >= _ROWS:
            self._forget(self._gone)

    def before(self, request: Request) -> tuple[float, int | None]:
        """Return for how many seconds *request* was held before, and its row on disk, now the
        caller's to delete."""
        waited, row = self._before.pop(request, (0.0, None))
        self._arrived.discard(row)
        return waited, row

    def close(self) -> None:
        """End a run: delete what has arrived, leave the rest for the next run."""
        self._forget(list(self._arrived))

    def _forget(self, rows: list[int]) -> None:
        done = [row for row in rows if row in self._arrived]
        self._gone.clear()
        self._arrived.difference_update(done)
        self._held.hold.done(done)
