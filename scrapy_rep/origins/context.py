"""What the parts of the package need to know about their crawl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler

from scrapy_rep.engine.access import EngineAccess, RunningClock
from scrapy_rep.engine.pools import Pools
from scrapy_rep.settings import RepSettings


class CrawlContext:
    def __init__(
        self, crawler: Crawler, settings: RepSettings, clock: Callable[[], float]
    ) -> None:
        """*clock*: seconds since the epoch."""
        assert crawler.stats is not None
        self.crawler, self.settings, self.clock = crawler, settings, clock
        self.engine, self.stats = EngineAccess(crawler), crawler.stats
        self._pools = Pools(crawler)
        self.running = RunningClock(crawler)
        """Seconds for which the crawl has run, without pauses."""

    @property
    def spider(self) -> Spider | None:
        """None while the shell makes its engine."""
        return self.crawler.spider

    @property
    def extra(self) -> dict[str, Any]:
        """For each log line: ``extra=context.extra``."""
        return {"spider": self.crawler.spider}
