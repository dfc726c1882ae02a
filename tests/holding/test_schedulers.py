"""Schedulers of other people's, which do what Scrapy documents, and what it doesn't forbid."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider, DontCloseSpider

from scrapy_rep.engine.access import EngineAccess
from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import Gate, assert_clean, urls
from tests.helpers.servers import Sites
from tests.holding.closing import SLOW
from tests.holding.schedulers import FourMethods

pytestmark = pytest.mark.slow


class Plain(FourMethods):
    crawler: Any

    @classmethod
    def from_crawler(cls, crawler: Any) -> Plain:
        scheduler = cls()
        scheduler.crawler = crawler
        return scheduler


class SaysNothing(Plain):
    """As that of scrapy-cluster."""

    def enqueue_request(self, request: Request) -> None:  # type: ignore[override]
        self._queue.append(request)


async def test_one_that_does_not_say_that_it_took_a_request_back(sites: Sites) -> None:
    """The request failed, and was in the queue all the same: in memory, it came at once and for ever."""
    wanted = urls(sites.add(robots=in_turn(503, 503, RULES)), 20)
    settings = {**SLOW, "SCHEDULER": SaysNothing, "REP_HOLD_MAX_REQUESTS": 3}
    result = await crawl(wanted, settings)
    assert (set(result.responses), result.failures) == (set(wanted), {})
    assert_clean(result)


class InFlight(Plain):
    """Has pending requests until it has seen the end of each object that it returned."""

    def open(self, spider: Spider) -> None:
        self.in_flight: set[Request] = set()
        self.crawler.signals.connect(self.left, signals.request_left_downloader)

    def left(self, request: Request) -> None:
        self.in_flight.discard(request)

    def has_pending_requests(self) -> bool:
        return bool(self._queue or self.in_flight)

    def next_request(self) -> Request | None:
        request = super().next_request()
        if request is not None:
            self.in_flight.add(request)
        return request


async def test_one_that_waits_for_the_objects_it_returned(sites: Sites) -> None:
    wanted = urls(sites.add(robots=in_turn(503, RULES)), 5)
    result = await crawl(wanted, {**SLOW, "SCHEDULER": InFlight})
    assert set(result.responses) == set(wanted)
    assert_clean(result)


class Batches(Scheduler):
    """As scrapy-frontera's: takes a batch from elsewhere when it has nothing left."""

    elsewhere: deque[Request]

    def open(self, spider: Spider) -> Any:
        self.elsewhere = deque()
        return super().open(spider)

    def enqueue_request(self, request: Request) -> bool:
        self.elsewhere.append(request)
        return True

    def next_request(self) -> Request | None:
        if not self.has_pending_requests() and self.elsewhere:
            super().enqueue_request(self.elsewhere.popleft())
        return super().next_request()


async def test_one_that_asks_itself_whether_it_is_empty(sites: Sites) -> None:
    """It got the gate's answer: there was no further batch while a request waited for robots.txt."""
    gate = Gate(503, RULES)
    down, site = sites.add(robots=gate), sites.add()

    def on_page(spider: ListSpider) -> None:
        if len(spider.responses) == 10:
            gate.open()

    def idle(spider: Spider) -> None:
        if EngineAccess(spider.crawler).scheduler.elsewhere:
            raise DontCloseSpider

    wanted = [*urls(down, 3), *urls(site, 10)]
    handlers: dict[Any, Callable[..., None]] = {signals.spider_idle: idle}
    settings = {**SLOW, "SCHEDULER": Batches}
    result = await crawl(wanted, settings, on_page=on_page, signal_handlers=handlers)
    assert set(result.responses) == set(wanted)
    assert {one.url for one in result.spider.responses[:10]} == set(urls(site, 10))
    assert_clean(result)


class Saves(Plain):
    """Saves what is left when it closes."""

    def open(self, spider: Spider) -> None:
        self.taken: list[str] = []
        self.saved: list[Request | None] = []

    def enqueue_request(self, request: Request) -> bool:
        self.taken.append(request.url)
        return super().enqueue_request(request)

    def close(self, reason: str) -> None:
        while self.has_pending_requests() and len(self.saved) < 1000:
            self.saved.append(self.next_request())


async def test_one_that_saves_what_is_left(sites: Sites) -> None:
    """It got None for each, and for ever."""
    schedulers: set[Any] = set()

    def on_page(spider: ListSpider) -> None:
        schedulers.add(EngineAccess(spider.crawler).scheduler)
        if len(spider.responses) == 5:
            raise CloseSpider("enough")

    wanted = urls(sites.add(robots=RULES), 60)
    result = await crawl(wanted, {**SLOW, "SCHEDULER": Saves}, on_page=on_page)
    [scheduler] = schedulers
    saved = [request.url for request in scheduler.saved]
    assert saved
    assert {*saved, *result.responses} == set(scheduler.taken)
    assert not set(saved) & set(result.responses)


async def test_a_mark_of_an_older_version(sites: Sites) -> None:
    """It doesn't say how long the request has waited. The request kept its place behind all others."""
    wanted = urls(sites.add(robots=in_turn(503, RULES)), 2)
    mark = {"dont_filter": False, "priority": 7, "since": time.time()}
    requests = [
        Request(
            url, meta={"_rep_held": dict(mark)}, dont_filter=True, priority=-(1 << 20)
        )
        for url in wanted
    ]
    result = await crawl(requests, {**SLOW, "SCHEDULER": Plain})
    got = {one.url: one.request for one in result.spider.responses}
    assert set(got) == set(wanted)
    assert {(one.dont_filter, one.priority) for one in got.values()} == {(False, 7)}
    assert_clean(result)


async def test_only_time_in_which_a_crawl_runs_counts(sites: Sites) -> None:
    """REP_HOLD_MAX_WAIT: what was handed back at the end of a crawl failed the next day at the first 503."""
    wanted = urls(sites.add(robots=in_turn(503, RULES)), 5)
    yesterday = {
        "dont_filter": True,
        "priority": 0,
        "since": time.time() - 86400,
        "waited": 1.0,
    }
    requests = [Request(url, meta={"_rep_held": dict(yesterday)}) for url in wanted]
    result = await crawl(
        requests, {**SLOW, "SCHEDULER": Plain, "REP_HOLD_MAX_WAIT": 40}
    )
    assert (set(result.responses), result.failures) == (set(wanted), {})
    assert_clean(result)
