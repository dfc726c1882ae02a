"""What every part of the package needs of the crawl it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.settings import RepSettings


@dataclass(frozen=True, slots=True)
class CrawlContext:
    """One crawl: made by the middleware, passed to each part."""

    crawler: Crawler
    settings: RepSettings
    engine: EngineAccess
    clock: Callable[[], float]
    """Seconds since the epoch."""

    @property
    def stats(self) -> StatsCollector:
        """The crawl's stats."""
        assert self.crawler.stats is not None
        return self.crawler.stats

    @property
    def spider(self) -> Spider | None:
        """The spider. None while the shell makes its engine."""
        return self.crawler.spider

    @property
    def extra(self) -> dict[str, Any]:
        """What each line of the log carries: ``extra=context.extra``."""
        return {"spider": self.crawler.spider}
