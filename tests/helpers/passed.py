"""How often each request passes by: what goes round in circles shows here."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler

from tests.helpers.crawling import CrawlResult
from tests.helpers.held import DEFER

STAT = "passed "


class Passed:
    """A downloader middleware before ours, which counts."""

    def __init__(self, crawler: Crawler) -> None:
        self.stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Passed:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        assert self.stats is not None
        self.stats.inc_value(STAT + request.url)


def counting(**more: Any) -> dict[str, Any]:
    """Settings that defer and have the requests counted."""
    return {**DEFER, "DOWNLOADER_MIDDLEWARES": {Passed: 60}, **more}


def passed(result: CrawlResult, word: str) -> list[int]:
    """The counts of all requests with that word in the URL."""
    return [count for stat, count in result.stats.items() if stat.startswith(STAT) and word in stat]
