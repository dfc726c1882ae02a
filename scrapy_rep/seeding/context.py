"""What the parts of seeding share: made by `seeding.py`, passed to each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.seeding.spider_options import SpiderOptions
    from scrapy_rep.seeding.spool import Spool
    from scrapy_rep.settings import RepSettings


@dataclass(frozen=True, slots=True)
class SeedingContext:
    """The crawl that is seeded."""

    crawl: CrawlContext
    options: SpiderOptions
    spool: Spool

    @property
    def settings(self) -> RepSettings:
        """The crawl's settings."""
        return self.crawl.settings

    @property
    def stats(self) -> StatsCollector:
        """The crawl's stats."""
        return self.crawl.stats

    @property
    def engine(self) -> EngineAccess:
        """Access to the crawl's engine."""
        return self.crawl.engine
