"""Requests that do not come through the scheduler wait while robots.txt is being fetched, and fail
when it can't be had: nothing holds them, nothing goes round in circles."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES, after, answer, in_turn, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import (
    NEVER,
    Gate,
    Record,
    a_while,
    assert_clean,
    urls,
)
from tests.helpers.recorded import counting, passed
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api, pytest.mark.slow]


class InlineSpider(ListSpider):
    """Downloads `inline` in the callback of each of its pages, one after another."""

    def __init__(self, inline: list[str], meta: dict[str, Any] | None = None, **kw: Any) -> None:
        super().__init__(**kw)
        self.inline, self.meta = inline, meta
        self.outcomes: list[Any] = []
        self.sent: list[Request] = []

    async def parse(self, response: Response, **kwargs: Any) -> None:
        self.responses.append(response)
        for url in self.inline:
            request = Request(url, meta=self.meta)
            self.sent.append(request)
            try:
                answered = await self.crawler.engine.download_async(request)
            except IgnoreRequest as error:
                self.outcomes.append(error)
            else:
                self.outcomes.append(answered.status)


async def test_waits_while_robots_txt_is_being_fetched(sites: Sites) -> None:
    """However long that takes; what comes of it is what counts."""
    slow = sites.add(robots=after(0.6, RULES))
    record, inline = Record(), [slow.url("/x"), slow.url("/private"), slow.url("/y")]
    result = await crawl(
        InlineSpider,
        counting(REP_DEFER_GRACE=0.1),
        requests=["data:,start"],
        inline=inline,
        signal_handlers=record.handlers,
    )
    first, forbidden, last = result.spider.outcomes
    assert first == last == 200
    assert isinstance(forbidden, RobotsDisallowed)
    assert slow.count("/robots.txt") == 1
    assert record.deferred == []
    assert all(1 <= count <= 2 for url in inline for count in passed(result, url))
    assert [request.dont_filter for request in result.spider.sent] == [False] * 3
    assert await record.concurrency() == [16, 16]
    assert_clean(result)


@pytest.mark.parametrize("robots", [answer("", 503), silence()], ids=["503", "silent"])
async def test_a_direct_download_fails_when_robots_txt_is_unreachable(
    sites: Sites, robots: Any
) -> None:
    """The first when that is known, the others at once: it is not asked for again."""
    down = sites.add(robots=robots)
    record, inline = Record(), urls(down, 4)
    result = await crawl(
        InlineSpider,
        counting(REP_DEFER_GRACE=0.1, REP_RETRY_DELAY=NEVER, REP_RETRY_MAX_DELAY=NEVER,
                 REP_DOWNLOAD_TIMEOUT=0.5),
        requests=["data:,start"],
        inline=inline,
        signal_handlers=record.handlers,
    )  # fmt: skip
    for error in result.spider.outcomes:
        assert isinstance(error, RobotsUnreachable)
        assert error.attempts == 1
    assert len(result.spider.outcomes) == 4
    assert result.stat("rep/unreachable/dropped") == 4
    assert down.count("/robots.txt") == 1
    assert record.deferred == []
    assert all(1 <= count <= 2 for url in inline for count in passed(result, url))
    assert [request.dont_filter for request in result.spider.sent] == [False] * 4
    assert await record.concurrency() == [16, 16]
    assert_clean(result)


async def test_fails_while_others_are_held(sites: Sites) -> None:
    """It is not held, but the scheduled requests of its origin are, before and after."""
    gate = Gate(503, RULES)
    down = sites.add(robots=gate)
    record = Record()

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
    outcomes = result.spider.outcomes
    assert [outcome for outcome in outcomes if outcome != 200] == [outcomes[0]]
    assert isinstance(outcomes[0], RobotsUnreachable)
    assert len(outcomes) == 6
    assert set(record.deferred) == set(record.released) == set(urls(down, 5))
    assert sum(passed(result, "/inline")) <= 7
    assert_clean(result)


async def test_one_at_a_time(sites: Sites) -> None:
    """With a single slot, which the waiting download would take from the robots.txt."""
    start, slow = sites.add(robots=RULES), sites.add(robots=after(0.3, RULES))
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


async def test_meta_of_a_held_page_in_a_direct_download(sites: Sites) -> None:
    """Copied meta, or the very same request once more."""
    held, other = sites.add(robots=in_turn(503, RULES)), sites.add(robots=503)

    class Spider(InlineSpider):
        async def parse(self, response: Response, **kwargs: Any) -> None:
            self.meta = response.meta
            await super().parse(response, **kwargs)
            again = await self.crawler.engine.download_async(response.request)
            self.outcomes.append(again.status)

    result = await crawl(
        Spider,
        counting(REP_RETRY_MAX_DELAY=NEVER),
        requests=[held.url("/page")],
        inline=[held.url("/x"), other.url("/x")],
    )
    same, unreachable, again = result.spider.outcomes
    assert same == again == 200
    assert isinstance(unreachable, RobotsUnreachable)
    assert passed(result, other.url("/x")) == [1]
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
