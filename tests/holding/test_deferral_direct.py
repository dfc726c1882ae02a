"""Requests that do not come through the scheduler wait while robots.txt is being fetched, and fail
when it can't be had, whatever is held of the same origin: nothing goes round in circles."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, after, silence
from tests.helpers.crawling import crawl
from tests.helpers.held import NEVER, Gate, InlineSpider, Record, a_while, assert_clean, urls
from tests.helpers.recorded import counting, passed
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("robots", [503, silence()], ids=["503", "silent"])
async def test_a_direct_download_fails_when_robots_txt_is_unreachable(
    sites: Sites, robots: Any
) -> None:
    """The first when that is known, the others at once: it is not asked for again."""
    down, record = sites.add(robots=robots), Record()
    times = {"REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER, "REP_DOWNLOAD_TIMEOUT": 0.3}
    result = await crawl(
        InlineSpider,
        counting(REP_DEFER_GRACE=0.1, **times),
        requests=["data:,start"],
        inline=urls(down, 4),
        signal_handlers=record.handlers,
    )
    outcomes = result.spider.outcomes
    assert [type(error) for error in outcomes] == [RobotsUnreachable] * 4
    assert {error.attempts for error in outcomes} == {1}
    assert result.stat("rep/unreachable/dropped") == 4
    assert down.count("/robots.txt") == 1
    assert record.deferred == []
    assert await record.concurrency() == [16, 16]
    assert_clean(result)


async def test_fails_while_others_are_held(sites: Sites) -> None:
    """It is not held, but the scheduled requests of its origin are, before and after."""
    gate = Gate(503, RULES)
    down, record = sites.add(robots=gate), Record()

    class Spider(InlineSpider):
        async def parse(self, response: Response, **kwargs: Any) -> None:
            await super().parse(response, **kwargs)
            while len(record.deferred) < 5:
                await a_while(0.01)
            gate.open()

    result = await crawl(
        Spider,
        counting(),
        requests=[*urls(down, 5), "data:,start"],
        inline=[down.url("/inline")],
        signal_handlers=record.handlers,
    )
    # Its own pages download inline too, when they come: robots.txt is known then.
    unreachable, *others = result.spider.outcomes
    assert isinstance(unreachable, RobotsUnreachable)
    assert others == [200] * 5
    assert set(record.deferred) == set(record.released) == set(urls(down, 5))
    assert sum(passed(result, "/inline")) <= 7
    assert_clean(result)


@pytest.mark.loop
async def test_one_at_a_time(sites: Sites) -> None:
    """With a single slot, which the waiting download would take from the robots.txt."""
    start, slow = sites.add(robots=RULES), sites.add(robots=after(0.2, RULES))
    record = Record()
    result = await crawl(
        InlineSpider,
        counting(CONCURRENT_REQUESTS=1, REP_DEFER_GRACE=0.1),
        requests=urls(start, 3),
        inline=[slow.url("/x")],
        signal_handlers=record.handlers,
    )
    assert result.spider.outcomes == [200, 200, 200]
    assert await record.concurrency() == [1, 1]
    assert_clean(result)


class TokenMiddleware:
    """Downloads a token before each page, as those that log in do."""

    token = ""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> TokenMiddleware:
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        if request.url != self.token and not request.url.endswith("/robots.txt"):
            assert self.crawler.engine is not None
            await self.crawler.engine.download_async(Request(self.token))


async def test_those_that_pages_in_the_slots_wait_for_need_no_slot(sites: Sites) -> None:
    """A page takes the only slot while a middleware below waits for a download of its own."""
    site, tokens = sites.add(robots=RULES), sites.add(robots=after(0.1, RULES))
    TokenMiddleware.token = tokens.url("/token")
    settings = {"CONCURRENT_REQUESTS": 1, "DOWNLOADER_MIDDLEWARES": {TokenMiddleware: 543}}
    pages = [site.url(f"/{number}") for number in range(3)]
    result = await crawl(pages, settings)
    assert sorted(result.responses) == sorted(pages)
    assert_clean(result)
