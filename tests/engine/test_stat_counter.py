"""Counting without a call, and in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import signals as scrapy_signals

from scrapy_rep.engine import timers
from tests.helpers.crawling import ListSpider, StepSpider, crawl
from tests.helpers.held import a_while
from tests.helpers.servers import Sites


async def test_in_a_crawl(sites: Sites) -> None:
    """Who looks at the stats in the last moment finds all."""
    site = sites.add()
    seen: list[Any] = []

    def closed(spider: Any) -> None:
        seen.append(spider.crawler.stats.get_value("rep/cache/hit"))

    result = await crawl(
        ListSpider,
        # The first does not wait: it is held, and decided when it comes back.
        {"CONCURRENT_REQUESTS": 1, "REP_UNREACHABLE": "defer", "REP_DEFER_GRACE": 0},
        requests=[site.url(f"/{number}") for number in range(20)],
        signal_handlers={scrapy_signals.spider_closed: closed},
    )
    assert seen == [result.stats["rep/cache/hit"]] == [20]


async def test_the_stat_is_there_while_the_crawl_runs(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "_PERIOD_SECONDS", 0.01)
    site, seen = sites.add(), []

    class LookingSpider(StepSpider):
        async def parse(self, response: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            await a_while(0.05)
            seen.append(self.crawler.stats.get_value("rep/cache/hit"))
            return StepSpider.parse(self, response, **kwargs)

    await crawl(LookingSpider, {}, steps=[site.url(f"/{number}") for number in range(3)])
    assert seen == [1, 2, 3]
