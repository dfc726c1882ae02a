"""What the parts of the package need to know about their crawl."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.settings import RepSettings


@dataclass(frozen=True, slots=True)
class CrawlContext:
    crawler: Crawler
    settings: RepSettings
    engine: EngineAccess
    clock: Callable[[], float]
    """Seconds since the epoch."""

    stats: StatsCollector = field(init=False)
    """The crawler's."""

    def __post_init__(self) -> None:
        assert self.crawler.stats is not None
        object.__setattr__(self, "stats", self.crawler.stats)

    @property
    def spider(self) -> Spider | None:
        """None while the shell makes its engine."""
        return self.crawler.spider

    @property
    def extra(self) -> dict[str, Any]:
        """For each log line: ``extra=context.extra``."""
        return {"spider": self.crawler.spider}
