"""Guard: `Scheduler.dqs`, which `EngineAccess.crawl` sets aside for a moment. When this
fails with a new Scrapy, that method is the place to mend."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Request

from scrapy_rep.engine.access import EngineAccess
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.servers import Sites

pytestmark = pytest.mark.scrapy_api


class QueuingSpider(ListSpider):
    """Schedules one request in each way."""

    async def start(self):
        engine = EngineAccess(self.crawler)
        self.queues = engine.scheduler.dqs
        engine.crawl(self.recorded(self.requests[0]))
        assert engine.scheduler.dqs is self.queues
        yield self.recorded(self.requests[1])


async def test_one_request_goes_through_memory(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots="")
    result = await crawl(
        QueuingSpider,
        {"JOBDIR": str(tmp_path)},
        requests=[Request(site.url("/from-disk")), Request(site.url("/plain"))],
    )
    assert isinstance(result.spider, QueuingSpider)
    assert result.spider.queues is not None
    assert result.stat("scheduler/enqueued/memory") == result.stat("scheduler/enqueued/disk") == 1
    assert len(result.responses) == 2
    result.assert_clean()
