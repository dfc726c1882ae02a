"""`scrapy_rep.may_fetch()`: the answer for what does not go through Scrapy, such as a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from scrapy.signals import response_received
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

from scrapy_rep import may_fetch
from tests.helpers.behaviours import RULES, after, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import NEVER, Record, later
from tests.helpers.servers import Sites


class AskingSpider(ListSpider):
    def __init__(self, questions: Iterable[str], **kwargs: Any) -> None:
        super().__init__(requests=["data:,start"], **kwargs)
        self.questions = questions
        self.answers: dict[str, Any] = {}

    async def parse(self, response: Any, **kwargs: Any) -> None:
        self.answers = {
            url: await may_fetch(self.crawler, url) for url in self.questions
        }


async def test_answers_are_those_of_robots_txt(sites: Sites) -> None:
    site, slow = sites.add(robots=RULES), sites.add(robots=after(0.2, RULES))
    missing, down = sites.add(robots=404), sites.add(robots=503)
    yes = [
        site.url("/a"),
        site.url("/robots.txt"),
        slow.url("/a"),
        missing.url("/private"),
    ]
    yes += ["data:,x", "blob:http://a.test/x", "about:blank"]
    no = [site.url("/private#x"), slow.url("/private"), down.url("/a"), down.url("/b")]
    no += ["no url", "http://", "http://a.test:99999/"]
    expected = {**dict.fromkeys(yes, True), **dict.fromkeys(no, False)}
    record, settings = Record(), {"REP_RETRY_DELAY": 60.0}
    handlers = record.handlers
    result = await crawl(
        AskingSpider, settings, questions=expected, signal_handlers=handlers
    )
    assert result.spider.answers == expected
    every = (site, slow, missing, down)
    assert [one.count("/robots.txt") for one in every] == [1, 1, 1, 1]
    assert all(one.pages_asked == [] for one in every)
    # It is a question: nothing was refused.
    assert (
        result.stat("robotstxt/forbidden")
        == result.stat("rep/unreachable/dropped")
        == 0
    )
    assert result.stat("rep/invalid_url") == 0
    assert await record.concurrency() == [16, 16]
    result.assert_clean()


async def test_settings_of_the_crawl_apply(sites: Sites) -> None:
    site = sites.add(robots=RULES + "User-agent: FooBot\nDisallow: /foo\n")
    urls = [site.url("/private"), sites.add(robots=503).url("/x")]
    settings: dict[str, Any]
    for settings, answers in (
        ({"REP_UNREACHABLE": "allow"}, [False, True]),
        ({"REP_UNREACHABLE": "hold"}, [False, False]),
        ({"REP_DRY_RUN": True}, [True, True]),
        ({"ROBOTSTXT_OBEY": False}, [True, True]),
        ({"REP_USER_AGENT": "FooBot"}, [True, False]),
    ):
        settings = {**settings, "REP_RETRY_MAX_DELAY": NEVER}
        result = await crawl(AskingSpider, settings, questions=urls)
        assert (settings, [*result.spider.answers.values()]) == (settings, answers)
        assert result.stat("rep/held") == 0
        result.assert_clean()


@pytest.mark.loop
async def test_questions_end_with_the_crawl(sites: Sites) -> None:
    url, record = sites.add(robots=silence()).url("/x"), Record()
    record.handlers[response_received] = lambda response: later(0.1, record.close)
    result = await record.crawl(
        AskingSpider, questions=[url], REP_DOWNLOAD_TIMEOUT=NEVER
    )
    assert result.spider.answers == {url: False}


async def test_questions_can_be_given_up(sites: Sites) -> None:
    if is_reactor_installed() and not is_asyncio_reactor_installed():
        pytest.skip("without asyncio there is no asyncio.wait_for()")
    site = sites.add(robots=after(0.3, RULES))

    class GivesUpAsking(AskingSpider):
        async def parse(self, response: Any, **kwargs: Any) -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(may_fetch(self.crawler, site.url("/x")), 0.1)
            await super().parse(response)

    result = await crawl(GivesUpAsking, questions=[site.url("/x")])
    assert result.spider.answers == {site.url("/x"): True}
    assert site.count("/robots.txt") == 1
    result.assert_clean()
