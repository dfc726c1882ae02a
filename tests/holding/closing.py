"""How a crawl ends: how long that takes, and what must not be lost."""

from __future__ import annotations

from typing import Any

from tests.helpers.crawling import CrawlResult
from tests.helpers.held import HOLD, Record, assert_clean, assert_no_errors

# The requirement is "about 2 seconds, whatever is in flight"; what is in flight takes 30.
SECONDS = 6.0


SLOW: dict[str, Any] = {**HOLD, "REP_DOWNLOAD_TIMEOUT": 30.0, "DOWNLOAD_TIMEOUT": 30.0}


def closing_took(result: CrawlResult) -> float:
    at = {
        record.getMessage().split(" (")[0]: record.created
        for record in result.records
        if record.name == "scrapy.core.engine"
    }
    return at["Spider closed"] - at["Closing spider"]


def assert_closed_soon(result: CrawlResult) -> None:
    assert closing_took(result) < SECONDS
    assert_no_errors(result)


def assert_nothing_dropped(result: CrawlResult, record: Record) -> None:
    assert_clean(result)
    assert result.failures == {}
    assert record.dropped == []
    for stat in (
        "downloader/exception_count",
        "dupefilter/filtered",
        "offsite/filtered",
        "rep/given_up",
        "rep/unreachable/dropped",
        "rep/unreachable/allowed",
        "robotstxt/forbidden",
    ):
        assert stat not in result.stats, stat
