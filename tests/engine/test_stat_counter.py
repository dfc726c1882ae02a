"""A stat that is told once a second, and exactly in the end."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import signals as scrapy_signals

from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.servers import Sites
from tests.helpers.stat_counted import World

pytestmark = pytest.mark.scrapy_api


def test_the_first_is_told_at_once_and_then_one_second_together() -> None:
    assert World().after(0, 0.1, 0.9, 1.0, 1.1, 1.9, 2.5) == [1, 1, 1, 4, 4, 4, 7]


async def test_all_are_told_before_the_end_and_each_one_from_then_on() -> None:
    world = World()
    assert world.after(0, 0.1, 0.2) == [1, 1, 1]
    [before_closing] = world.callbacks
    await before_closing()
    assert world.crawler.stats.get_value("hits") == 3
    assert world.after(0.3, 0.3, 0.4, -5) == [4, 5, 6, 7]


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
