"""A scheduler that isn't Scrapy's gets back what there is no room for, and nobody else waits for that."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import DontCloseSpider

from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import Gate, assert_clean, later, urls
from tests.helpers.servers import Site, Sites
from tests.holding.closing import SLOW

pytestmark = pytest.mark.slow


class ByPriority(BaseScheduler):
    def __init__(self) -> None:
        self.queue: list[tuple[int, int, Request]] = []
        self.number = self.taken = 0

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
        self.taken += bool(self.queue)
        return heapq.heappop(self.queue)[2] if self.queue else None


async def crawl_with_room_for_3(
    wanted: list[Any],
    on_page: Any = lambda spider: None,
    most: int = 3,
    **handlers: Any,
) -> CrawlResult:
    settings = {**SLOW, "SCHEDULER": ByPriority, "REP_HOLD_MAX_REQUESTS": most}
    by_signal = {getattr(signals, name): handler for name, handler in handlers.items()}
    return await crawl(wanted, settings, on_page=on_page, signal_handlers=by_signal)


@pytest.mark.parametrize("persist", [True, False])
async def test_nothing_is_dropped(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, persist: bool
) -> None:
    """scrapy-redis forgets its queue at the end of a crawl, unless told otherwise. Until then it has it."""
    monkeypatch.setattr(ByPriority, "persist", persist, raising=False)
    site = sites.add(robots=in_turn(503, 503, RULES))
    result = await crawl_with_room_for_3(urls(site, 20))
    assert set(result.responses) == set(urls(site, 20))
    assert "rep/unreachable/dropped" not in result.stats
    assert result.stat("rep/held/max") <= 3
    assert_clean(result)


async def test_few_are_held_whatever_the_project_allows(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler may be shared, and a kill loses what is here."""
    monkeypatch.setattr("scrapy_rep.holding.holding._MOST_SHARED", 3)
    wanted = urls(sites.add(robots=in_turn(503, 503, RULES)), 20)
    result = await crawl_with_room_for_3(wanted, most=100_000)
    assert len(result.responses) == 20
    assert result.stat("rep/held/max") <= 3


def one_is_down(sites: Sites) -> tuple[Site, Site, Callable[[ListSpider], None]]:
    """The site that is down answers once the spider has the pages of the other."""
    gate = Gate(503, RULES)
    down, site = sites.add(robots=gate), sites.add()

    def on_page(spider: ListSpider) -> None:
        if set(urls(site, 10)) <= {response.url for response in spider.responses}:
            gate.open()

    return down, site, on_page


async def test_urgent_requests_to_a_site_that_is_down_hold_nobody_up(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    down, site, on_page = one_is_down(sites)
    urgent = [Request(url, priority=100) for url in urls(down, 50)]
    wanted = [*urgent, *urls(site, 10)]
    result = await crawl_with_room_for_3(wanted, on_page)
    assert set(result.responses) == {*urls(down, 50), *urls(site, 10)}
    assert {one.request.priority for one in result.spider.responses} == {0, 100}
    assert_clean(result)


async def test_spiders_that_fetch_work_when_idle_get_it(sites: Sites) -> None:
    """As those of scrapy-redis, although the scheduler isn't empty."""
    down, site, on_page = one_is_down(sites)
    left = urls(site, 10)

    def idle(spider: Spider) -> None:
        if left:
            spider.crawler.engine.crawl(spider.recorded(left.pop()))
            raise DontCloseSpider

    result = await crawl_with_room_for_3(urls(down, 10), on_page, spider_idle=idle)
    assert set(result.responses) == {*urls(down, 10), *urls(site, 10)}
    assert_clean(result)


async def test_what_another_process_handed_back_at_its_end_hides_nobody(
    sites: Sites,
) -> None:
    """It didn't come behind all others."""
    down, site, on_page = one_is_down(sites)
    mark = {"dont_filter": False, "priority": 5, "since": time.time(), "waited": 0.0}
    later_ones = [
        Request(url, priority=5, meta={"_rep_held": mark})
        for url in urls(down, 9, "/y")
    ]
    later_ones += [Request(url) for url in urls(site, 10)]
    pages: list[int] = []

    def idle(spider: Any) -> None:
        pages.append(len(spider.responses))
        if len(pages) == 1:
            for one in later_ones:
                spider.crawler.engine.crawl(spider.recorded(one))

    result = await crawl_with_room_for_3(urls(down, 3), on_page, spider_idle=idle)
    assert len(result.responses) == 22
    assert pages[1] >= 10
    assert_clean(result)


async def test_a_scheduler_with_nothing_else_is_left_alone(sites: Sites) -> None:
    """Each look of the engine costs one trip to it, and back. It looks after a page, and now and then."""
    down, site, on_page = one_is_down(sites)
    wanted, taken = [*urls(down, 10), *urls(site, 10)], []
    result = await crawl_with_room_for_3(
        wanted,
        on_page,
        spider_idle=lambda spider: taken.append(spider.crawler.engine.scheduler.taken),
    )
    assert set(result.responses) == set(wanted)
    assert taken[-1] < 150


async def test_the_event_loop_has_its_turn_between_those_that_go_back(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's server may be far: a slice of time is over after each."""
    monkeypatch.setattr("scrapy_rep.holding.gate.SLICE_SECONDS", 0.0)
    down, site, on_page = one_is_down(sites)
    taken = []

    def watch(spider: Spider) -> None:
        scheduler = spider.crawler.engine.scheduler
        step = scheduler.next_request

        def counted() -> Request | None:
            before, request = scheduler.taken, step()
            taken.append(scheduler.taken - before)
            return request

        scheduler.next_request = counted

    wanted = [*urls(down, 20), *urls(site, 10)]
    result = await crawl_with_room_for_3(
        wanted, on_page, spider_opened=lambda spider: later(0, lambda: watch(spider))
    )
    assert set(result.responses) == set(wanted)
    assert max(taken) == 1
    assert sum(taken) < 150, "it isn't asked again and again at once"


async def test_among_those_without_room_urgent_ones_have_no_precedence(
    sites: Sites,
) -> None:
    """One of them may be to a site that is up again."""
    gate = Gate(503, RULES)
    down, levels = sites.add(robots=gate), set()

    def idle(spider: Spider) -> None:
        for _, _, request in spider.crawler.engine.scheduler.queue:
            if "_rep_held" in request.meta:
                levels.add(request.priority)
                gate.open()

    wanted = [Request(url, priority=10) for url in urls(down, 20)]
    wanted += [Request(url, priority=-5) for url in urls(down, 20, "/other")]
    result = await crawl_with_room_for_3(wanted, spider_idle=idle)
    assert len(levels) == 1
    assert max(levels) < -1000
    assert len(result.responses) == len(wanted)
