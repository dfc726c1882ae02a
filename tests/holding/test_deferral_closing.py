"""A crawl that is closed while requests are held: soon, and with nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Spider
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, silence
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import (
    DEFER,
    NEVER,
    Gate,
    Record,
    assert_clean,
    assert_no_errors,
    later,
    urls,
    when_open,
)
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.timing import SECONDS, SLOW, closing_took

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api, pytest.mark.slow]


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


def close_by(way: str, record: Record, gate: Gate) -> dict[str, Any]:
    """Settings, and what is to be done when all requests are held and one site has failed."""
    done: list[str] = []

    def act() -> None:
        if way == "close_spider_async":
            record.close(way)
        elif way == "shutdown":
            deferred_from_coro(record.engine.stop_async())
        else:
            gate.open()

    def look(*_: Any) -> None:
        if len(record.deferred) >= 40 and record.resolved and not done:
            done.append(way)
            later(0, act)  # others have to hear of it first

    record.on_deferred = record.on_resolved = look
    if way == "closespider_timeout":
        # Until then all have to be held.
        return {"CLOSESPIDER_TIMEOUT": 2.0, "REP_DEFER_GRACE": 0.05}
    return {"CLOSESPIDER_PAGECOUNT": 1} if way == "closespider_pagecount" else {}


WAYS = [
    "close_spider_async",
    "shutdown",
    "callback",
    "closespider_timeout",
    "closespider_pagecount",
]


async def close_while_held(
    sites: Sites, way: str, settings: dict[str, Any]
) -> tuple[CrawlResult, Record, list[Site], Gate]:
    """A crawl that is closed when 40 requests are held: of a site that answers 503 (its next
    robots.txt request may be in flight), and of a silent one."""
    up = Gate(503, RULES)
    several = [sites.add(robots=up), sites.add(robots=Gate(silence(), RULES))]
    page, record = Gate(404, "page"), Record()
    # Answered when all are held; stays unanswered for ways that need no page.
    healthy = sites.add(robots=RULES, pages={"/close": when_open(page, "page")})
    more = close_by(way, record, page)
    wanted = [url for site in several for url in urls(site, 20)]
    result = await crawl(
        ItemSpider,
        {**SLOW, "ITEM_PIPELINES": {Pipeline: 1}, **settings, **more},
        # With a page count the 503 of robots.txt counts as a page, as with the built-in.
        requests=[*wanted, *([healthy.url("/close")] if way == "callback" else [])],
        signal_handlers=record.handlers,
    )
    return result, record, several, up


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    some: list[str] = []
    monkeypatch.setattr(Pipeline, "events", some)
    return some


@pytest.mark.parametrize("way", [way for way in WAYS if way != "closespider_pagecount"])
async def test_without_jobdir_they_are_given_up(sites: Sites, way: str, events: list[str]) -> None:
    """Errbacks are called, with the reason, and what they yield reaches the pipelines."""
    result, record, (busy, silent), _ = await close_while_held(sites, way, {})
    assert result.reason == way
    assert closing_took(result) < SECONDS
    assert set(result.failures) >= {*urls(busy, 20), *urls(silent, 20)}
    for url in [*urls(busy, 20), *urls(silent, 20)]:
        error = result.failures[url]
        assert isinstance(error, RobotsUnreachable)
        assert error.attempts > 0
        assert "503" in error.reason or url.startswith(silent.url(""))
        assert "the crawl" in error.reason
    assert sorted(events[:-1]) == sorted(result.failures)
    assert events[-1] == "closed"
    assert result.stat("rep/given_up") == 40
    assert result.stats["rep/held"] == 0
    assert await record.concurrency() == [16, 16]
    assert_no_errors(result)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "closespider_pagecount"])
async def test_with_jobdir_they_are_kept(sites: Sites, tmp_path: Path, way: str) -> None:
    """The next crawl with it fetches each of them once, in the order in which they were held."""
    settings = {"JOBDIR": str(tmp_path)}
    result, record, several, up = await close_while_held(sites, way, settings)
    wanted = {url for site in several for url in urls(site, 20)}
    assert result.reason == way
    assert closing_took(result) < SECONDS
    assert not wanted & (set(result.failures) | set(result.responses))
    assert result.stats["rep/held"] == 40
    assert await record.concurrency() == [16, 16]
    assert_no_errors(result)

    up.open()
    several[1].set("/robots.txt", RULES)
    again = Record()
    result = await crawl(
        ItemSpider, {**SLOW, **settings}, requests=[], signal_handlers=again.handlers
    )
    assert set(result.responses) >= wanted
    assert all(site.count(f"/page{number}") == 1 for site in several for number in range(20))
    for site in several:
        assert [url for url in again.released if url.startswith(site.url(""))] == [
            url for url in record.deferred if url.startswith(site.url(""))
        ]
    for response in result.spider.responses:
        assert response.request.dont_filter is True
        assert "_rep_held" not in response.meta
    assert result.stats["rep/held"] == 0
    assert len(lines(result, "Still holding 40 requests to 2 origins from an earlier run")) == 1

    result = await crawl(ItemSpider, {**SLOW, **settings}, requests=[])
    assert result.spider.responses == []
    assert_clean(result)


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


@pytest.mark.parametrize("jobdir", [False, True])
async def test_many_robots_txt_in_flight(sites: Sites, tmp_path: Path, jobdir: bool) -> None:
    """Silent ones, some of which have not even been asked for; requests wait for all of them, or are
    held."""
    several = [sites.add(robots=silence()) for _ in range(30)]
    wanted = [site.url(path) for path in ("/a", "/b") for site in several]
    record = Record(on_deferred=lambda _, count: record.close() if count == 60 else None)
    settings = {**SLOW, "CONCURRENT_REQUESTS": 8, "REP_DEFER_GRACE": 0.1}
    if jobdir:
        settings["JOBDIR"] = str(tmp_path)
    result = await crawl(wanted, settings, signal_handlers=record.handlers)
    assert result.reason == "enough"
    assert closing_took(result) < SECONDS
    assert set(result.failures) == (set() if jobdir else set(wanted))
    assert await record.concurrency() == [8, 8]
    assert_no_errors(result)
    if not jobdir:
        return
    for site in several:
        site.set("/robots.txt", RULES)
    result = await crawl([], settings)
    assert set(result.responses) == set(wanted)
    assert all(site.count("/a") == site.count("/b") == 1 for site in several)
    assert_clean(result)


@pytest.mark.parametrize("way", ["close_spider_async", "stop_async"])
@pytest.mark.parametrize("jobdir", [False, True])
async def test_closing_when_the_last_request_is_held_ends_the_crawl(
    sites: Sites, tmp_path: Path, jobdir: bool, way: str
) -> None:
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
    if jobdir:
        settings["JOBDIR"] = str(tmp_path)
    result = await crawl(first, settings, signal_handlers=record.handlers)
    assert set(result.failures) == (set() if jobdir else {first, second})
    assert [one for one in result.records if one.exc_info] == []
    assert_no_errors(result)
