"""What the parts of the package need to know about their crawl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.access import EngineAccess, RunningClock
from scrapy_rep.engine.pools import Pools
from scrapy_rep.settings import RepSettings


class CrawlContext:
    """The crawl's settings, stats and clocks, and access to Scrapy's engine: for all
    parts of the package."""

    def __init__(
        self, crawler: Crawler, settings: RepSettings, clock: Callable[[], float]
    ) -> None:
        """*clock*: seconds since the epoch."""
        assert crawler.stats is not None
        self.crawler = crawler
        self.settings = settings
        self.clock = clock
        self.engine = EngineAccess(crawler)
        self.stats = crawler.stats
        self.count = _counter(crawler.stats)
        """Adds 1 to the stat with this name: the ``inc_value()`` of the stats, for what
        is counted for each request."""
        # Enlarges download handlers' connection pools. Kept here, since signals have
        # only weak references.
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


def _counter(stats: StatsCollector) -> Callable[[str], None]:
    """Return ``stats.inc_value``. From Scrapy 2.14 on, a stats collector wraps each of
    its methods, to warn of an argument that is deprecated. What is returned here is the
    method without that, which takes a third less time."""
    if type(stats).__getattribute__ is not StatsCollector.__getattribute__:
        return stats.inc_value  # the project's own collector does something else
    method: Callable[[str], None] = object.__getattribute__(stats, "inc_value")
    return method
