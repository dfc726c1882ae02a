"""What parts of the package are made of, without a crawl."""

from __future__ import annotations

import time

from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.settings import RepSettings


def context_of(crawler: Crawler | None = None) -> CrawlContext:
    """The context of *crawler*, or of one that has the default settings."""
    crawler = crawler or get_crawler()
    settings = RepSettings.from_settings(crawler.settings)
    return CrawlContext(crawler, settings, EngineAccess(crawler), time.time)
