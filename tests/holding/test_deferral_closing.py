"""A crawl that is closed while requests are held, or wait for a first answer: soon, and with nothing lost. A
scheduler that outlives the process gets them back."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.request import request_from_dict

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, after, in_turn, silence
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
    silent_until_open,
    urls,
)
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.holding.closing import SECONDS, SLOW, closing_took

pytestmark = pytest.mark.slow


class Pipeline:
    """Keeps items, and knows whether one came after its end."""

    events: list[str] = []

    def process_item(self, item: Any) -> Any:
        self.events.append(item["url"])
        return item

    def close_spider(self) -> None:
        self.events.append("closed")


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
async def test_without_jobdir_they_are_given_up(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errbacks are called, with the reason, and what they yield reaches the pipelines."""
    monkeypatch.setattr(Pipeline, "events", [])
    held = Held(sites, lambda: deferred_from_coro(held.record.engine.stop_async()))
    result = await crawl(
        held.urls,
        {**SLOW, "ITEM_PIPELINES": {Pipeline: 1}},
        on_failure=lambda spider: [{"url": spider.errors[-1][0].url}],
        signal_handlers=held.record.handlers,
    )
    assert result.reason == "shutdown"
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
    busy = silent_until_open("x")
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


class SharedScheduler(BaseScheduler):
    """A queue elsewhere, as those on a server are: requests go there as bytes."""

    queue: list[bytes] = []
    seen: set[bytes] = set()
    broken = False

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.spider: Spider | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SharedScheduler:
        return cls(crawler)

    def open(self, spider: Spider) -> None:
        self.spider = spider

    def has_pending_requests(self) -> bool:
        return bool(self.queue)

    def enqueue_request(self, request: Request) -> bool:
        if self.broken:
            raise ConnectionError("the queue's server is gone")
        fingerprint = self.crawler.request_fingerprinter.fingerprint(request)
        if not request.dont_filter and fingerprint in self.seen:
            return False
        self.seen.add(fingerprint)
        self.queue.append(pickle.dumps(request.to_dict(spider=self.spider)))
        return True

    def next_request(self) -> Request | None:
        if not self.queue:
            return None
        data = pickle.loads(self.queue.pop(0))  # noqa: S301 (pickled above)
        return request_from_dict(data, spider=self.spider)


class Persistent(SharedScheduler):
    persist = True


class Forgetful(SharedScheduler):
    persist = False


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedScheduler, "queue", [])
    monkeypatch.setattr(SharedScheduler, "seen", set())
    monkeypatch.setattr(SharedScheduler, "broken", False)


class Once(ListSpider):
    """Its requests are filtered."""

    dont_filter = False


@pytest.mark.scrapy_api
@pytest.mark.parametrize("scheduler", [SharedScheduler, Persistent])
async def test_a_shared_queue_gets_held_requests_back_at_the_end(
    sites: Sites, scheduler: type
) -> None:
    """Also what waits for a first answer. The next crawl goes on with it, as the user made it."""
    busy, silent = sites.add(robots=503), sites.add(robots=silence())
    wanted = [*urls(busy, 20), *urls(silent, 20)]

    def close(_: Spider, count: int) -> None:
        if count == 20:
            as_soon_as(lambda: len(scheduler.seen) == 40 and not scheduler.queue, record.close)

    record = Record(on_deferred=close)
    result = await record.crawl(
        Once, requests=wanted, **SLOW, SCHEDULER=scheduler, REP_DEFER_GRACE=30
    )
    assert result.reason == "enough"
    assert closing_took(result) < SECONDS
    assert result.failures == result.responses == {}
    assert result.stats["rep/held"] == 0
    assert "rep/given_up" not in result.stats
    assert len(scheduler.queue) == 40
    assert_no_errors(result)

    # Held once more on arrival, for a while.
    gate = Gate(503, RULES)
    for site in (busy, silent):
        site.set("/robots.txt", gate)
    again = Record(on_deferred=lambda _, count: gate.open() if count == 40 else None)
    result = await again.crawl(Once, requests=wanted, **SLOW, SCHEDULER=scheduler)
    assert set(result.responses) == set(wanted)
    assert all(site.count(f"/page{n}") == 1 for site in (busy, silent) for n in range(20))
    assert sorted(again.dropped) == sorted(wanted)
    for response in result.spider.responses:
        assert response.request.dont_filter is False
        assert "_rep_held" not in response.meta
    assert_clean(result)


@pytest.mark.parametrize("answers", [True, False])
async def test_those_handed_back_wait_on(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """REP_DEFER_MAX_WAIT counts from when they were first held, whether they are held at once or wait
    for a first answer before."""
    passed = 0.0
    clock = SimpleNamespace(time=lambda: time.time() + passed)
    monkeypatch.setattr("scrapy_rep.holding.handing_back.time", clock)
    site = sites.add(robots=503 if answers else silence())
    wanted = urls(site, 5)
    settings = {
        **SLOW,
        "SCHEDULER": Persistent,
        "REP_DEFER_GRACE": 0.1,
        "REP_DEFER_MAX_WAIT": 90,
        "REP_DOWNLOAD_TIMEOUT": 0.5,  # how long the last attempt may take
    }

    def close(spider: Spider, count: int) -> None:
        if count == 5 and passed < 90:  # the last run ends by itself, at once
            later(0.1, record.close)

    for reason in ("enough", "enough", "finished"):
        record = Record(on_deferred=close)
        result = await record.crawl(Once, requests=[] if passed else wanted, **settings)
        assert result.reason == reason
        assert result.stat("rep/deferred") == 5
        assert set(result.failures) == (set() if reason == "enough" else set(wanted))
        assert_no_errors(result)
        passed += 60


async def test_what_finds_no_room_after_a_failure_goes_back(sites: Sites) -> None:
    """They waited for a first answer, which is none: others may fetch them, or there is room later."""
    site = sites.add(robots=in_turn(after(0.3, 503), RULES))
    wanted = urls(site, 10)
    settings = {**SLOW, "SCHEDULER": Persistent, "REP_DEFER_MAX_REQUESTS": 3, "REP_DEFER_GRACE": 30}
    record = Record()
    result = await record.crawl(Once, requests=wanted, **settings)
    assert set(result.responses) == set(wanted)
    assert result.stats["rep/held/max"] <= 3
    assert_clean(result)


@pytest.mark.parametrize("scheduler", [Forgetful, Persistent])
async def test_given_up_where_the_queue_does_not_outlive(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, scheduler: type
) -> None:
    """Or is gone: the crawl is closed all the same, and nothing is lost without a word."""
    site = sites.add(robots=503)

    def close(_: Spider, count: int) -> None:
        if count == 20:
            monkeypatch.setattr(SharedScheduler, "broken", scheduler is Persistent)
            record.close()

    record = Record(on_deferred=close)
    result = await record.crawl(Once, requests=urls(site, 20), **SLOW, SCHEDULER=scheduler)
    assert result.reason == "enough"
    assert set(result.failures) == set(urls(site, 20))
    assert all(isinstance(error, RobotsUnreachable) for error in result.failures.values())
    assert all(request.dont_filter is False for request, _ in result.spider.errors)
    assert scheduler.queue == []  # type: ignore[attr-defined]
    if scheduler is Forgetful:
        assert_no_errors(result)
