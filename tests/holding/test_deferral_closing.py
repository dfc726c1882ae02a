"""A crawl that is closed while requests are held, or wait for a first answer: soon, and with nothing
lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import (
    DEFER,
    NEVER,
    Gate,
    Record,
    as_soon_as,
    assert_clean,
    assert_no_errors,
    later,
    urls,
    when_open,
)
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.timing import SECONDS, SLOW, closing_took

pytestmark = pytest.mark.slow


class Pipeline:
    """Keeps items, and knows whether one came after its end."""

    events: list[str] = []

    def process_item(self, item: Any) -> Any:
        self.events.append(item["url"])
        return item

    def close_spider(self) -> None:
        self.events.append("closed")


class ItemSpider(ListSpider):
    """Each failure is an item; a page /close closes the spider."""

    def parse(self, response: Response, **kwargs: Any) -> None:
        super().parse(response, **kwargs)
        if response.url.endswith("/close"):
            raise CloseSpider("callback")

    def failed(self, failure: Any) -> Any:
        super().failed(failure)
        yield {"url": failure.request.url}


class Held:
    """Two sites with 20 requests each, of which one answers 503 (its next robots.txt request may be in
    flight), and the other is silent. When all are held, *act* is called."""

    def __init__(self, sites: Sites, act: Any) -> None:
        self.up = Gate(503, RULES)
        self.sites: list[Site] = [sites.add(robots=self.up), sites.add(robots=silence())]
        self.urls = [url for site in self.sites for url in urls(site, 20)]
        self.record = Record(on_deferred=self._look)
        self._act = act

    def _look(self, _: Spider, count: int) -> None:
        if count == 40:
            as_soon_as(lambda: self.record.resolved, lambda: later(0, self._act))


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.parametrize("reason", ["shutdown", "callback"])
async def test_without_jobdir_they_are_given_up(
    sites: Sites, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errbacks are called, with the reason, and what they yield reaches the pipelines."""
    monkeypatch.setattr(Pipeline, "events", [])
    page = Gate(404, "page")
    healthy = sites.add(robots=RULES, pages={"/close": when_open(page, "page")})

    def close() -> None:
        if reason == "shutdown":
            deferred_from_coro(held.record.engine.stop_async())
        else:
            page.open()

    held = Held(sites, close)
    result = await crawl(
        ItemSpider,
        {**SLOW, "ITEM_PIPELINES": {Pipeline: 1}},
        requests=[*held.urls, *([healthy.url("/close")] if reason == "callback" else [])],
        signal_handlers=held.record.handlers,
    )
    assert result.reason == reason
    assert closing_took(result) < SECONDS
    errors = [result.failures[url] for url in held.urls]
    assert [type(error) for error in errors] == [RobotsUnreachable] * 40
    assert all(error.attempts and "the crawl" in error.reason for error in errors)  # type: ignore[attr-defined]
    assert all("503" in error.reason for error in errors[:20])  # type: ignore[attr-defined]
    assert sorted(Pipeline.events[:-1]) == sorted(result.failures)
    assert Pipeline.events[-1] == "closed"
    assert result.stat("rep/given_up") == 40
    assert result.stats["rep/held"] == 0
    assert await held.record.concurrency() == [16, 16]
    assert_no_errors(result)


@pytest.mark.loop
async def test_with_jobdir_they_are_kept(sites: Sites, tmp_path: Path) -> None:
    """The next crawl with it fetches each of them once, in the order in which they were held."""
    settings = {**SLOW, "JOBDIR": str(tmp_path)}
    held = Held(sites, lambda: held.record.close())
    result = await crawl(held.urls, settings, signal_handlers=held.record.handlers)
    assert closing_took(result) < SECONDS
    assert result.failures == result.responses == {}
    assert result.stats["rep/held"] == 40
    assert await held.record.concurrency() == [16, 16]
    assert_no_errors(result)

    held.up.open()
    held.sites[1].set("/robots.txt", RULES)
    again = Record()
    result = await again.crawl([], **settings)
    assert all(site.count(f"/page{number}") == 1 for site in held.sites for number in range(20))
    for site in held.sites:
        first, then = (
            [url for url in some if url.startswith(site.url(""))]
            for some in (held.record.deferred, again.released)
        )
        assert first == then
    assert all(one.request.dont_filter for one in result.spider.responses)
    assert not any("_rep_held" in one.meta for one in result.spider.responses)
    assert result.stats["rep/held"] == 0
    assert len(lines(result, "Still holding 40 requests to 2 origins from an earlier run")) == 1
    assert (await crawl([], settings)).spider.responses == []
    assert_clean(result)


@pytest.mark.parametrize("jobdir", [False, True])
async def test_those_about_to_fail_are_not_lost_by_a_stop(
    sites: Sites, tmp_path: Path, jobdir: bool
) -> None:
    """They wait for a first answer, which says that the host is down, while a page takes the only slot
    until the crawl ends."""
    busy = Gate("x", "x")
    busy.before = when_open(busy, "x")
    page = Request(
        sites.add(pages={"/busy": busy}).url("/busy"), meta={"dont_obey_robotstxt": True}
    )
    down = sites.refused()
    wanted = [f"{down}/{number}" for number in range(5)]
    record = Record()

    def stop() -> None:
        record.close()
        busy.open()

    record.on_resolved = lambda: later(0.1, stop)
    settings = {**DEFER, "CONCURRENT_REQUESTS": 1, "REP_DEFER_DEAD_HOST_TRIES": 1}
    settings |= {"JOBDIR": str(tmp_path)} if jobdir else {}
    result = await record.crawl([*wanted, page], **settings)
    ends = set(result.failures)
    if jobdir:
        ends |= set((await crawl([], settings)).failures)
    assert ends == set(wanted)


async def test_closing_by_page_count_is_quick_despite_silent_hosts(sites: Sites) -> None:
    """What is closed by an answer to robots.txt itself: this one counts as a page, as ever."""
    silent, healthy = sites.add(robots=silence()), sites.add(robots=RULES)
    result = await crawl(
        [*urls(silent, 10), healthy.url("/x")],
        {**SLOW, "REP_DEFER_GRACE": 0.1, "CLOSESPIDER_PAGECOUNT": 2},
    )
    assert result.reason == "closespider_pagecount"
    assert closing_took(result) < SECONDS
    assert set(result.failures) >= set(urls(silent, 8))
    assert_no_errors(result)


async def test_many_robots_txt_in_flight(sites: Sites, tmp_path: Path) -> None:
    """Silent ones, some of which have not even been asked for."""
    several = [sites.add(robots=silence()) for _ in range(30)]
    wanted = [site.url(path) for path in ("/a", "/b") for site in several]
    record = Record(on_deferred=lambda _, count: record.close() if count == 60 else None)
    settings = {**SLOW, "CONCURRENT_REQUESTS": 8, "REP_DEFER_GRACE": 0.1, "JOBDIR": str(tmp_path)}
    result = await record.crawl(wanted, **settings)
    assert result.reason == "enough"
    assert closing_took(result) < SECONDS
    assert result.failures == {}
    assert await record.concurrency() == [8, 8]
    assert_no_errors(result)
    for site in several:
        site.set("/robots.txt", RULES)
    result = await crawl([], settings)
    assert set(result.responses) == set(wanted)
    assert all(site.count("/a") == site.count("/b") == 1 for site in several)


@pytest.mark.loop
@pytest.mark.parametrize("way", ["close_spider_async", "stop_async"])
async def test_closing_when_the_last_request_is_held_ends_the_crawl(sites: Sites, way: str) -> None:
    """It is held in the moment in which the engine takes it from the scheduler, and is the last
    that the engine has: it closes only when it has come back from that."""
    first, second = urls(sites.add(robots=503), 2)

    def deferred(spider: Spider, count: int) -> None:
        if count == 1:
            record.engine.crawl(spider.recorded(second))  # type: ignore[attr-defined]
        else:
            deferred_from_coro(getattr(record.engine, way)())

    record = Record(on_deferred=deferred)
    settings = {**DEFER, "REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}
    result = await record.crawl(first, **settings)
    assert set(result.failures) == {first, second}
    assert [one for one in result.records if one.exc_info] == []
    assert_no_errors(result)


@pytest.mark.loop
async def test_a_direct_download_to_a_new_origin_does_not_delay_the_end(sites: Sites) -> None:
    """An errback tries another site, whose robots.txt is not waited for."""
    busy, other = sites.add(robots=503), sites.add(robots=silence())
    record, outcomes = Record(on_deferred=lambda *_: record.close()), []

    class Spider(ListSpider):
        async def failed(self, failure: Any) -> None:
            super().failed(failure)
            with pytest.raises(RobotsUnreachable) as caught:
                await self.crawler.engine.download_async(Request(other.url("/x")))
            outcomes.append(caught.value)

    times = {"REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}
    result = await record.crawl(Spider, requests=urls(busy, 1), **{**SLOW, **times})
    assert closing_took(result) < SECONDS
    assert len(outcomes) == 1
    assert await record.concurrency() == [16, 16]
    assert_no_errors(result)


class LambdaSpider(ListSpider):
    """Its requests can't be written to disk."""

    def recorded(self, request: str | Request) -> Request:
        return super().recorded(request).replace(callback=lambda response: self.parse(response))


# Older Scrapy's disk queues leave a file open for each request that they can't write.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("grace", [0, NEVER])
async def test_unserialisable_requests_are_given_up(
    sites: Sites, tmp_path: Path, grace: float
) -> None:
    """Also with JOBDIR, since they would be lost; also those that only waited."""
    silent, busy = sites.add(robots=silence()), sites.add(robots=503)
    wanted = [*urls(silent, 10), *urls(busy, 3)]
    # With a grace, those of the silent site only wait.
    held = 13 if grace == 0 else 3
    record = Record(on_deferred=lambda _, count: record.close() if count == held else None)
    result = await record.crawl(
        LambdaSpider,
        requests=wanted,
        **SLOW,
        REP_DEFER_GRACE=grace,
        JOBDIR=str(tmp_path),
        CONCURRENT_REQUESTS=16,
    )
    assert closing_took(result) < SECONDS
    assert len(lines(result, "to disk", level="WARNING")) == 1
    assert set(result.failures) == set(wanted)
    assert result.stats["rep/held"] == 0
    assert_no_errors(result)
