"""What the parts of the package need to know about their crawl."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.log import Channel

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.settings import RepSettings


@dataclass(frozen=True, slots=True)
class CrawlContext:
    """One crawl. The middleware makes it."""

    crawler: Crawler
    settings: RepSettings
    engine: EngineAccess
    clock: Callable[[], float]
    """Seconds since the epoch."""
    channel: Channel = field(default_factory=Channel)
    """For records of what happened."""

    @property
    def stats(self) -> StatsCollector:
        """Of the crawler."""
        assert self.crawler.stats is not None
        return self.crawler.stats

    @property
    def spider(self) -> Spider | None:
        """None while the shell makes its engine."""
        return self.crawler.spider

    @property
    def extra(self) -> dict[str, Any]:
        """For each log line: ``extra=context.extra``."""
        return {"spider": self.crawler.spider}
