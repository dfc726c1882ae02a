"""What is done before the spider closes."""

from __future__ import annotations

import pytest
from scrapy import Spider
from scrapy import signals as scrapy_signals

from scrapy_rep.engine.closing import Closing, Stage
from tests.helpers.crawling import crawl
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api]


async def test_a_step_that_fails_keeps_neither_others_nor_the_spider(sites: Sites) -> None:
    done = []

    async def fail() -> None:
        raise ValueError("a bug")

    async def count() -> None:
        done.append(True)

    def spider_opened(spider: Spider) -> None:
        closing = Closing.of(spider.crawler.engine)
        closing.add(Stage.COMMAND, fail)
        closing.add(Stage.HOLDING, count)

    handlers = {scrapy_signals.spider_opened: spider_opened}
    result = await crawl([sites.add().url("/x")], signal_handlers=handlers)
    assert done == [True]
    assert result.reason == "finished"
    assert [one.getMessage()[:50] for one in result.records if one.levelname == "ERROR"] == [
        "Bug in scrapy-rep: the work before closing failed."
    ]
