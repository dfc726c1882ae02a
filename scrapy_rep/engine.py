"""The one place that touches names of Scrapy's engine which its documentation doesn't promise.

Each is needed for something that no documented name gives; `tests/test_scrapy_private.py` fails
when one of them goes away.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from twisted.python.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler


class EngineAccess:
    """What the rest of the package may do with the engine beyond its documented methods."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @property
    def _engine(self) -> Any:
        return self._crawler.engine

    @property
    def running(self) -> bool:
        """Whether there is a spider to crawl for."""
        return self._engine is not None and self._engine.spider is not None

    @contextmanager
    def extra_slot(self) -> Iterator[None]:
        """Give the pages one more slot while something of ours takes one of theirs.

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

    def before_closing(self, callback: Callable[[], None]) -> None:
        """Call *callback* when the spider begins to close: no signal tells before the scheduler
        is closed. All ways to close a spider go through ``close_spider_async``."""
        engine = self._engine
        close = engine.close_spider_async

        async def close_spider_async(**kwargs: Any) -> None:
            callback()
            await close(**kwargs)

        engine.close_spider_async = close_spider_async

    def fail(self, request: Request, error: Exception) -> None:
        """Have *request*'s errback called and its output handled, though the engine takes no
        requests from the scheduler any more. ``Scraper.enqueue_scrape`` is what the engine
        itself hands failures to."""
        failure = Failure(error)  # type: ignore[no-untyped-call]
        self._engine.scraper.enqueue_scrape(failure, request)

    @property
    def paused(self) -> bool:
        """Whether the user has paused the crawl."""
        return bool(self._engine.paused)

    @property
    def scheduler(self) -> Any:
        """The scheduler in use. Public since Scrapy 2.19."""
        engine = self._engine
        return engine.scheduler if hasattr(engine, "scheduler") else engine._slot.scheduler
