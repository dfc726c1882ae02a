"""The one place that uses undocumented names of Scrapy's engine, where documented ones don't do.
`tests/engine/test_scrapy_private.py` fails when one goes away."""

from __future__ import annotations

from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from pydispatch.dispatcher import (  # type: ignore[import-untyped]
    getAllReceivers,
    liveReceivers,
)
from scrapy.core.scheduler import Scheduler
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from twisted.internet.defer import succeed
from twisted.python.failure import Failure

from scrapy_rep.engine.closing import Closing, Stage
from scrapy_rep.engine.slots import DownloadSlots

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred


class EngineAccess:
    """The engine beyond its documented methods."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.slots = DownloadSlots(crawler)

    @property
    def _engine(self) -> Any:
        return self._crawler.engine

    @contextmanager
    def extra_slot(self) -> Iterator[None]:
        """Add a download slot for something that isn't a page.

        `download_async` and requests that wait in a middleware count against CONCURRENT_REQUESTS:
        16 silent robots.txt would stop a crawl of 16.
        """
        slots = self.add_slot()
        try:
            yield
        finally:
            self.remove_slot(slots)

    def add_slot(self) -> int:
        """Add a download slot and return 1; return 0 if their number isn't limited. Nothing public
        raises ``Downloader.total_concurrency``; 0 means no limit."""
        downloader = self._engine.downloader
        if not getattr(downloader, "total_concurrency", 0):
            return 0
        downloader.total_concurrency += 1
        self.wake()  # else it would look at its next event, which may be 5 s away
        return 1

    def remove_slot(self, slots: int) -> None:
        """Remove as many *slots* as :meth:`add_slot` returned."""
        if slots:
            self._engine.downloader.total_concurrency -= slots

    def has_listeners(self, signal: object) -> bool:
        """Whether anything is connected to *signal*: sending one takes longer than most handlers."""
        signals = self._crawler.signals
        return any(liveReceivers(getAllReceivers(signals.sender, signal)))

    @property
    def http_cache(self) -> Any:
        """Scrapy's HttpCacheMiddleware, None if it is off. Its attributes ``storage`` and ``policy``
        are undocumented, their methods are not."""
        return self._crawler.get_downloader_middleware(HttpCacheMiddleware)

    def before_closing(self, stage: Stage, step: Callable[[], Awaitable[None]]) -> None:
        """Await *step* once before the spider closes, in the order of :class:`Stage`."""
        Closing.of(self._engine).add(stage, step)

    def fail(self, request: Request, error: Exception) -> Deferred[None]:
        """Call *request*'s errback and handle its output, even if the engine takes no more requests
        from the scheduler. The engine itself passes failures to ``Scraper.enqueue_scrape``.

        :returns: fires when done
        """
        failure = Failure(error)  # type: ignore[no-untyped-call]
        failure.request = request  # type: ignore[attr-defined]
        try:
            # Scrapy spends 1.5 ms on an errback's output, even if there is none, and there may be
            # 100,000 errbacks.
            output = request.errback(failure) if request.errback is not None else None
        except Exception:  # noqa: BLE001
            output = Failure()  # type: ignore[no-untyped-call]
        if output is None or output is failure:
            return succeed(None)
        # An errback that returns the output we have.
        scraped = copy(request)
        scraped.errback = lambda _: output
        done: Deferred[None] = self._engine.scraper.enqueue_scrape(failure, scraped)
        return done

    @staticmethod
    def drop_body(response: Response) -> None:
        """Free a body that won't be read again: the exception that ends a sitemap's request keeps its
        response alive until garbage collection. ``Response._set_body`` is what the constructor calls.
        """
        response._set_body(b"")

    @property
    def paused(self) -> bool:
        """Whether the user has paused the crawl."""
        return bool(self._engine.paused)

    @property
    def scheduler(self) -> Any:
        """Public since Scrapy 2.19."""
        engine = self._engine
        return engine.scheduler if hasattr(engine, "scheduler") else engine._slot.scheduler

    @property
    def scheduler_outlives(self) -> bool:
        """Whether requests in the scheduler outlive the process. Not for Scrapy's own: with JOBDIR they
        do, but then the hold is on disk."""
        return self.scheduler_is_foreign and bool(getattr(self.scheduler, "persist", True))

    @property
    def scheduler_is_foreign(self) -> bool:
        """Whether the scheduler is neither Scrapy's own nor a subclass of it."""
        # Not isinstance(): to Scrapy's base class everything that looks like a scheduler is one.
        return Scheduler not in type(self.scheduler).__mro__

    @property
    def scheduled(self) -> int:
        """How many requests the scheduler has; 0 if it can't tell."""
        try:
            return len(self.scheduler)
        except TypeError:
            return 0

    def wake(self) -> None:
        """Have the engine look for requests to download. Its ``crawl()`` does that with
        ``_slot.nextcall``."""
        slot = self._engine._slot
        if slot is not None:  # None without a crawl
            slot.nextcall.schedule()

    def crawl(self, request: Request) -> None:
        """Crawl *request*, of which a file of ours has a copy, through the memory queue of Scrapy's own
        scheduler.

        After a kill, a disk queue may be read from its start again or not at all, and new requests
        come out corrupted. ``Scheduler.dqs`` is None without JOBDIR, which is undocumented.
        """
        scheduler = self.scheduler
        queues = getattr(scheduler, "dqs", None)
        if queues is None:
            self._engine.crawl(request)
            return
        scheduler.dqs = None
        try:
            self._engine.crawl(request)
        finally:
            scheduler.dqs = queues
