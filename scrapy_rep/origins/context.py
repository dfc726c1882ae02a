"""What the parts of the package need to know about their crawl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import MemoryStatsCollector, StatsCollector

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
        """Adds 1 to a stat, for what is counted for each request."""
        # Enlarges download handlers' connection pools. Kept here, since signals have
        # only weak references.
        self._pools = Pools(crawler)
        self.running = RunningClock(crawler)
        """Seconds for which the crawl has run, without pauses."""

    @property
    def spider(self) -> Spider | None:
        """The crawl's spider; None while the shell makes its engine."""
        return self.crawler.spider

    @property
    def extra(self) -> dict[str, Any]:
        """What each log line is given: ``extra=context.extra``."""
        return {"spider": self.crawler.spider}


class _SameStats(MemoryStatsCollector):
    """Another collector of the same stats. In Scrapy's own (2.19), each look-up of an
    attribute that isn't a method raises and catches an exception
    (``StatsCollector.__getattribute__``). This takes ten times as long as to count."""

    __getattribute__ = object.__getattribute__

    def __init__(self, stats: MemoryStatsCollector) -> None:
        """*stats* and this collector see the same attributes from now on."""
        self.__dict__ = stats.__dict__


def _counter(stats: StatsCollector) -> Callable[[str], None]:
    """Return what does the same as ``stats.inc_value``. A project's own collector is
    left alone, since it may do something else."""
    if type(stats) is not MemoryStatsCollector:
        return stats.inc_value
    return _SameStats(stats).inc_value
