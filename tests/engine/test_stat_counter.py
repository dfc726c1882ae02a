"""Counting without a call, and in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals

from scrapy_rep.engine import timers
from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.engine.lifecycle import Stage
from tests.helpers.crawling import StepSpider, crawl
from tests.helpers.held import a_while
from tests.helpers.servers import Sites


async def test_the_stat_is_there_while_the_crawl_runs_and_at_its_end(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks at the stats in the last moment finds all, of what came while it closed too."""
    site, seen = sites.add(), []

    def look(crawler: Any) -> None:
        seen.append(crawler.stats.get_value("rep/cache/hit"))

    def idle(spider: Any) -> None:
        async def late() -> None:
            await spider.crawler.engine.download_async(Request(site.url("/late")))

        EngineAccess(spider.crawler).before_closing(Stage.COUNTING, late)

    class LookingSpider(StepSpider):
        async def parse(self, response: Any, **kwargs: Any) -> Any:  # type: ignore[override]
            await a_while(0.05)
            look(self.crawler)
            if len(seen) == 3:
                monkeypatch.setattr(timers, "_PERIOD_SECONDS", 1000.0)
            return StepSpider.parse(self, response, **kwargs)

    monkeypatch.setattr(timers, "_PERIOD_SECONDS", 0.01)
    result = await crawl(
        LookingSpider,
        {},
        steps=[site.url(f"/{number}") for number in range(20)],
        signal_handlers={
            scrapy_signals.spider_idle: idle,
            scrapy_signals.spider_closed: lambda spider: look(spider.crawler),
        },
    )
    assert seen[:3] == [1, 2, 3]
    assert seen[-1] == 20
    assert result.stat("rep/cache/hit") == 21
