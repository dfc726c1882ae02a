"""How held requests come back: in slices, through the scheduler, as they were.

A released request carries a mark in its meta from here to :meth:`Releases.arrive`, where the
middleware sees it next. That is the scheduler's time, so nobody can copy it: by the time that a
callback or another middleware sees the meta, the mark is gone.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep import signals
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holds import DiskHold
from scrapy_rep.urls import origin_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.holds import Held, MemoryHold
    from scrapy_rep.protocol import Origin

logger = logging.getLogger(__name__)

MARK = "_rep_held"

# The event loop has its turn after so many requests or seconds, whichever comes first.
_SLICE = 50
_SLICE_SECONDS = 0.01
# When the disk does not answer.
_RETRY_SECONDS = 1.0

LineT = TypeVar("LineT")


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
        self._now = now
        self._on_sent = on_sent
        self._on_finished = on_finished
        self._jobs: deque[Job[LineT]] = deque()
        self._running = False
        self._arrived: WeakKeyDictionary[Request, dict[str, Any]] = WeakKeyDictionary()
        self._listening = False
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
            while self._jobs and time.perf_counter() - began < _SLICE_SECONDS:
                self._some(self._jobs[0])
        except Exception:
            # A disk that is full or gone, or another extension's handler: nothing is lost by
            # trying again.
            logger.exception(
                "Held requests can't be released now", extra={"spider": self._crawler.spider}
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
            self.hold.give_up([held.row for held in taken if held.row is not None])
        assert self._crawler.engine is not None
        for held in taken:
            self.mark(held, job.given_up)
            if not job.given_up:
                self._stats.inc_value("rep/released")
                self._crawler.signals.send_catch_log(
                    signals.request_released,
                    request=held.request,
                    origin=job.origin,
                    spider=self._crawler.spider,
                )
            self._crawler.engine.crawl(held.request)
        self._on_sent(job, len(taken))

    def mark(self, held: Held, given_up: tuple[str, int] | None = None) -> None:
        """Make *held* known to :meth:`arrive`, in this process or in another that shares the
        scheduler, and let it pass the dupe and the offsite filter, which it has passed before."""
        request = held.request
        request.meta[MARK] = {
            "dont_filter": held.dont_filter,
            "waited": self._now() - held.since,
            "row": held.row,
            "given_up": given_up,
        }
        request.dont_filter = True

    def arrive(self, request: Request) -> None:
        """Take a released request from the scheduler, as it was before it was held.

        :raises RobotsUnreachable: if it was given up
        """
        mark = request.meta.pop(MARK)
        request.dont_filter = mark["dont_filter"]
        if mark["given_up"]:
            self._stats.inc_value("rep/given_up")
            reason, attempts = mark["given_up"]
            raise RobotsUnreachable(origin_of(request), reason, attempts)
        self._arrived[request] = mark
        if mark["row"] is not None and not self._listening:
            self._listening = True
            self._crawler.signals.connect(self._left, scrapy_signals.request_left_downloader)

    def before(self, request: Request) -> tuple[float, int | None]:
        """Return for how many seconds *request* was held before, and its row on disk."""
        mark = self._arrived.pop(request, None)
        return (mark["waited"], mark["row"]) if mark else (0.0, None)

    def _left(self, request: Request, **_: Any) -> None:
        """A released request was downloaded: only now may its row go."""
        mark = self._arrived.pop(request, None)
        if mark is not None and mark["row"] is not None and isinstance(self.hold, DiskHold):
            self.hold.done([mark["row"]])
        if not self._arrived:
            self._listening = False
            self._crawler.signals.disconnect(self._left, scrapy_signals.request_left_downloader)
