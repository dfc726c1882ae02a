"""The one place that touches names of Scrapy's engine which its documentation doesn't promise.

Each is needed for something that no documented name gives; `tests/engine/test_scrapy_private.py` fails
when one of them goes away.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
    """What the rest of the package may do with the engine beyond its documented methods."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self.slots = DownloadSlots(crawler)
        """The downloader's slots."""

    @property
    def _engine(self) -> Any:
        return self._crawler.engine

    @contextmanager
    def extra_slot(self) -> Iterator[None]:
        """Add a download slot while something of ours takes one from the pages.

        Scrapy counts what `download_async` fetches, and a request that waits in a middleware,
        against CONCURRENT_REQUESTS: 16 silent robots.txt would stop a crawl of 16.
        ``Downloader.total_concurrency`` has no public way to be raised. 0 means no limit.
        """
        downloader = self._engine.downloader
        if not getattr(downloader, "total_concurrency", 0):
            yield
            return
        downloader.total_concurrency += 1
        try:
            yield
        finally:
            downloader.total_concurrency -= 1

    @property
    def http_cache(self) -> Any:
        """The middleware of Scrapy's HTTP cache, None if it is off. Its ``storage`` and ``policy``
        have documented methods; that they are attributes of it is not documented."""
        return self._crawler.get_downloader_middleware(HttpCacheMiddleware)

    def before_closing(self, stage: Stage, step: Callable[[], Awaitable[None]]) -> None:
        """Await *step*, once, when the spider is to be closed, see :class:`Stage` for the order."""
        Closing.of(self._engine).add(stage, step)

    def fail(self, request: Request, error: Exception) -> Deferred[None]:
        """Have *request*'s errback called and its output handled, though the engine takes no
        requests from the scheduler any more. ``Scraper.enqueue_scrape`` is what the engine
        itself hands failures to.

        :returns: fires when that is done
        """
        failure = Failure(error)  # type: ignore[no-untyped-call]
        failure.request = request  # type: ignore[attr-defined]
        try:
            # Scrapy spends 1.5 ms and CONCURRENT_ITEMS tasks on the output of an errback. Most
            # have none, and there may be 100,000 of them.
            output = request.errback(failure) if request.errback is not None else None
        except Exception:  # noqa: BLE001
            output = Failure()  # type: ignore[no-untyped-call]
        if output is None or output is failure:
            return succeed(None)
        # For what it has yielded, returned or raised: an errback that answers with just that.
        scraped = request.replace(errback=lambda _: output)
        done: Deferred[None] = self._engine.scraper.enqueue_scrape(failure, scraped)
        return done

    @staticmethod
    def drop_body(response: Response) -> None:
        """Free the memory of a body that will not be read any more.

        The exception that ends a sitemap's request keeps frames alive, and these the response,
        until garbage is collected. ``Response._set_body`` is what its constructor calls.
        """
        response._set_body(b"")

    @property
    def paused(self) -> bool:
        """Whether the user has paused the crawl."""
        return bool(self._engine.paused)

    @property
    def scheduler(self) -> Any:
        """The scheduler in use. Public since Scrapy 2.19."""
        engine = self._engine
        return engine.scheduler if hasattr(engine, "scheduler") else engine._slot.scheduler

    @property
    def scheduler_outlives(self) -> bool:
        """Whether the scheduler keeps its requests when the process ends: not Scrapy's own (with
        JOBDIR it does, but then the hold is on disk), and not one told not to persist."""
        return self.scheduler_is_foreign and bool(getattr(self.scheduler, "persist", True))

    @property
    def scheduler_is_foreign(self) -> bool:
        """Whether the scheduler is not Scrapy's own, or made from it."""
        # Not isinstance(): Scrapy's base class calls everything that looks like one a scheduler.
        return Scheduler not in type(self.scheduler).__mro__

    @property
    def scheduled(self) -> int:
        """How many requests the scheduler has, 0 if it can't tell."""
        try:
            return len(self.scheduler)
        except TypeError:
            return 0

    def crawl(self, request: Request) -> None:
        """Crawl *request*: with a foreign scheduler as usual, else as :meth:`crawl_from_disk`."""
        if self.scheduler_is_foreign:
            self._engine.crawl(request)
        else:
            self.crawl_from_disk(request)

    def crawl_from_disk(self, request: Request) -> None:
        """Crawl *request*, which a file of ours keeps a copy of, through the scheduler's queue in
        memory.

        Its queues on disk are not safe after a kill: one that was not closed in order may be read
        from its start again, or not at all, and newly pushed requests come out corrupted.
        ``Scheduler.dqs`` is None where there is no JOBDIR; nothing documented says so.
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
