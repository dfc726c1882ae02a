"""A scheduler that isn't Scrapy's gets back what there is no room for, and nobody else waits for that."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import DontCloseSpider

from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import NEVER, Gate, assert_clean, urls
from tests.helpers.servers import Site, Sites
from tests.helpers.timing import SLOW

pytestmark = pytest.mark.slow


class ByPriority(BaseScheduler):
    """Somebody's own: the most urgent first, and of these the first."""

    def __init__(self) -> None:
        self.queue: list[tuple[int, int, Request]] = []
        self.number = 0

    @classmethod
    def from_crawler(cls, crawler: Any) -> ByPriority:
        return cls()

    def has_pending_requests(self) -> bool:
        return bool(self.queue)

    def enqueue_request(self, request: Request) -> bool:
        self.number += 1
        heapq.heappush(self.queue, (-request.priority, self.number, request))
        return True

    def next_request(self) -> Request | None:
        return heapq.heappop(self.queue)[2] if self.queue else None


class Forgetful(ByPriority):
    persist = False


async def crawl_with(scheduler: type, spider: type[ListSpider], **more: Any) -> CrawlResult:
    settings = {**SLOW, "SCHEDULER": scheduler, "REP_DEFER_MAX_REQUESTS": 3}
    return await crawl(spider, settings, **more)


@pytest.mark.parametrize("scheduler", [ByPriority, Forgetful])
async def test_nothing_is_dropped(sites: Sites, scheduler: type) -> None:
    """scrapy-redis forgets its queue at the end of a crawl, unless told otherwise. Until then it has it."""
    site = sites.add(robots=in_turn(503, 503, RULES))
    result = await crawl_with(scheduler, ListSpider, requests=urls(site, 20))
    assert set(result.responses) == set(urls(site, 20))
    assert "rep/unreachable/dropped" not in result.stats
    assert result.stat("rep/held/max") <= 3
    assert_clean(result)


class OpeningSpider(ListSpider):
    """Lets the site that is down answer once it has the pages of the other."""

    gate: Gate
    wanted: set[str]

    def parse(self, response: Any, **kwargs: Any) -> Any:
        super().parse(response, **kwargs)
        if self.wanted <= {response.url for response in self.responses}:
            self.gate.open()


def one_is_down(sites: Sites) -> tuple[Site, Site, dict[str, Any]]:
    gate = Gate(503, RULES)
    down, site = sites.add(robots=gate), sites.add()
    return down, site, {"gate": gate, "wanted": set(urls(site, 10))}


async def test_urgent_requests_to_a_site_that_is_down_hold_nobody_up(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_rep.holding.gate._REST_SECONDS", NEVER)
    down, site, more = one_is_down(sites)
    urgent = [Request(url, priority=100) for url in urls(down, 50)]
    wanted = [*urgent, *urls(site, 10)]
    result = await crawl_with(ByPriority, OpeningSpider, requests=wanted, **more)
    assert set(result.responses) == {*urls(down, 50), *urls(site, 10)}
    assert {one.request.priority for one in result.spider.responses} == {0, 100}
    assert_clean(result)


async def test_spiders_that_fetch_work_when_idle_get_it(sites: Sites) -> None:
    """As those of scrapy-redis, although the scheduler isn't empty."""
    down, site, more = one_is_down(sites)
    later = urls(site, 10)

    def idle(spider: Spider) -> None:
        if later:
            spider.crawler.engine.crawl(spider.recorded(later.pop()))
            raise DontCloseSpider

    handlers = {scrapy_signals.spider_idle: idle}
    result = await crawl_with(
        ByPriority, OpeningSpider, requests=urls(down, 10), signal_handlers=handlers, **more
    )
    assert set(result.responses) == {*urls(down, 10), *urls(site, 10)}
    assert_clean(result)


async def test_a_scheduler_with_nothing_else_is_asked_once_a_rest(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the engine looks meanwhile, as it does after each page."""
    rests: list[float] = []
    monkeypatch.setattr(
        "scrapy_rep.holding.gate.call_later", lambda seconds, _: rests.append(seconds)
    )
    down, site, more = one_is_down(sites)
    wanted = [*urls(down, 10), *urls(site, 10)]
    settings = {"CONCURRENT_REQUESTS": 1, "DOWNLOAD_DELAY": 0.05}
    result = await crawl(
        OpeningSpider,
        {**SLOW, **settings, "SCHEDULER": ByPriority, "REP_DEFER_MAX_REQUESTS": 3},
        requests=wanted,
        **more,
    )
    assert set(result.responses) == set(wanted)
    assert len(rests) == 1
