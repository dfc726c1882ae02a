"""Schedulers of other people's, which do what Scrapy documents, and what it doesn't forbid."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler, Scheduler
from scrapy.exceptions import CloseSpider, DontCloseSpider

from scrapy_rep.engine.access import EngineAccess
from tests.helpers.behaviours import RULES, in_turn
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import Gate, assert_clean, urls
from tests.helpers.servers import Sites
from tests.holding.closing import SLOW

pytestmark = pytest.mark.slow


class Plain(BaseScheduler):
    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler
        self.queue: deque[Request] = deque()

    @classmethod
    def from_crawler(cls, crawler: Any) -> Plain:
        return cls(crawler)

    def has_pending_requests(self) -> bool:
        return bool(self.queue)

    def enqueue_request(self, request: Request) -> bool:
        self.queue.append(request)
        return True

    def next_request(self) -> Request | None:
        return self.queue.popleft() if self.queue else None


class SaysNothing(Plain):
    """As that of scrapy-cluster."""

    def enqueue_request(self, request: Request) -> None:  # type: ignore[override]
        self.queue.append(request)


async def test_one_that_does_not_say_that_it_took_a_request_back(sites: Sites) -> None:
    """The request failed, and was in the queue all the same: in memory, it came at once and for ever."""
    wanted = urls(sites.add(robots=in_turn(503, 503, RULES)), 20)
    settings = {**SLOW, "SCHEDULER": SaysNothing, "REP_DEFER_MAX_REQUESTS": 3}
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
        return bool(self.queue or self.in_flight)

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


