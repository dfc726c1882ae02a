"""A crawl that is closed while requests are held, or wait: soon, and with nothing lost."""

from __future__ import annotations

import errno
import pickle
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.request import request_from_dict
from twisted.internet.defer import Deferred

from scrapy_rep import RepMiddleware
from scrapy_rep.engine.access import RunningClock
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.handing_back import HandingBack
from tests.helpers.behaviours import RULES, after, silence
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import (
    HOLD,
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
from tests.holding.closing import SLOW, assert_closed_soon

pytestmark = pytest.mark.slow


class KeepsItems:
    """Keeps items, and knows whether one came after its end."""

    events: list[str] = []

    def process_item(self, item: Any) -> Any:
        self.events.append(item["url"])
        return item

    def close_spider(self) -> None:
        self.events.append("closed")


class TwoSitesHeld:
    """Two sites with 20 requests each, of which one answers 503 (its next robots.txt request may be in
    flight), and the other is silent. When all are held, *stop* is called: the crawl ends soon."""

    def __init__(
        self, sites: Sites, stop: Callable[[Record], object] = Record.close
    ) -> None:
        self.up = Gate(503, RULES)
        self.sites: list[Site] = [
            sites.add(robots=self.up),
            sites.add(robots=silence()),
        ]
        self.urls = [url for site in self.sites for url in urls(site, 20)]
        self.record = Record(on_held=self._look)
        self._stop = stop

    def _look(self, _: Spider, count: int) -> None:
        if count == 40:
            stop = partial(later, 0, lambda: self._stop(self.record))
            as_soon_as(lambda: self.record.resolved, stop)

    async def crawl(self, **more: Any) -> CrawlResult:
        result = await self.record.crawl(self.urls, **{**SLOW, **more})
        assert_closed_soon(result)
        assert await self.record.concurrency() == [16, 16]
        return result


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_without_jobdir_they_are_given_up(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What their errbacks yield reaches the pipelines."""
    monkeypatch.setattr(KeepsItems, "events", [])
    held = TwoSitesHeld(
        sites, lambda record: deferred_from_coro(record.engine.stop_async())
    )
    result = await held.crawl(
        ITEM_PIPELINES={KeepsItems: 1},
        on_failure=lambda spider: [{"url": spider.errors[-1][0].url}],
    )
    assert result.reason == "shutdown"
    errors = [result.failures[url] for url in held.urls]
    assert all(isinstance(one, RobotsUnreachable) for one in errors)
    assert all(bool(one.attempts) is (one in errors[:20]) for one in errors)  # type: ignore[attr-defined]
    assert all("; the crawl ended" in str(error) for error in errors)
    assert all("503" in str(error) for error in errors[:20])
    assert (result.stat("rep/given_up"), result.stats["rep/held/now"]) == (40, 0)
    assert sorted(KeepsItems.events[:-1]) == sorted(held.urls)
    assert KeepsItems.events[-1] == "closed"


async def test_a_stop_during_a_check_loses_no_request(
    sites: Sites, shared: Any
) -> None:
    """Such as that of a sitemap's host, which takes as long as its name server."""
    site, record, over = sites.add(), Record(), Deferred[None]()

    async def check() -> None:
        later(0.1, record.close)
        await maybe_deferred_to_future(over)

    def started() -> None:
        middleware = record.engine.crawler.get_downloader_middleware(RepMiddleware)
        middleware._gate._check = lambda request: check()

    record.handlers[signals.engine_started] = started
    record.handlers[signals.spider_closed] = lambda: over.callback(None)
    result = await record.crawl([site.url("/page")], SCHEDULER=shared)
    assert (len(shared.queue), site.pages_asked) == (1, [])
    assert_no_errors(result)


@pytest.mark.parametrize("grace", [0.5, 0.05], ids=["wait", "held"])
async def test_those_that_only_waited_end_as_without_us(
    sites: Sites, grace: float
) -> None:
    """In the scheduler. Those that were held fail, and it is not said that there is no answer."""
    site = sites.add(robots=after(0.2, RULES))
    settings = {"CLOSESPIDER_PAGECOUNT": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    result = await crawl(urls(site, 20), {**settings, "_REP_HOLD_GRACE": grace})
    assert (len(result.failures) > 10) is (grace < 0.2)
    assert {str(one).partition(": ")[2] for one in result.failures.values()} <= {
        "about to leave; the crawl ended"
    }


@pytest.mark.loop
async def test_with_jobdir_they_are_kept(sites: Sites, tmp_path: Path) -> None:
    """The next crawl with it fetches each of them once, in the order in which they were held."""
    settings, held = {**SLOW, "JOBDIR": str(tmp_path)}, TwoSitesHeld(sites)
    result = await held.crawl(**settings)
    assert result.failures == result.responses == {}
    assert result.stats["rep/held/now"] == 40
    held.up.open()
    held.sites[1].set("/robots.txt", RULES)
    again = Record()
    result = await again.crawl([], **settings)
    for site in held.sites:
        assert sorted(map(site.url, site.pages_asked)) == sorted(urls(site, 20))
        first, then = (
            [url for url in some if url.startswith(site.url(""))]
            for some in (held.record.held, again.released)
        )
        assert first == then
    asked = [one.request for one in result.spider.responses]
    assert all(one.dont_filter and "_rep_held" not in one.meta for one in asked)
    assert (await crawl([], settings)).spider.responses == []


@pytest.mark.parametrize("jobdir", [False, True])
async def test_those_about_to_fail_are_not_lost_by_a_stop(
    sites: Sites, tmp_path: Path, jobdir: bool
) -> None:
    """Their host is down, while a page takes the only slot until the crawl ends."""
    busy = silent_until_open("x")
    page = Request(
        sites.add(pages={"/busy": busy}).url("/busy"),
        meta={"dont_obey_robotstxt": True},
    )
    down = sites.refused()
    wanted = [f"{down}/{number}" for number in range(5)]
    record = Record()

    def stop() -> None:
        record.close()
        busy.open()

    record.on_resolved = lambda: later(0.1, stop)
    settings = {**HOLD, "CONCURRENT_REQUESTS": 1, "_REP_HOLD_DEAD_HOST_TRIES": 1}
    settings |= {"JOBDIR": str(tmp_path)} if jobdir else {}
    result = await record.crawl([*wanted, page], **settings)
    ends = set(result.failures)
    if jobdir:
        ends |= set((await crawl([], settings)).failures)
    assert ends == set(wanted)


@pytest.mark.loop
@pytest.mark.parametrize("way", ["close_spider_async", "stop_async"])
async def test_closing_when_the_last_request_is_held_ends_the_crawl(
    sites: Sites, way: str
) -> None:
    """The engine is taking it from the scheduler: it closes when it has come back from that."""
    first, second = urls(sites.add(robots=503), 2)

    def held(spider: Spider, count: int) -> None:
        if count == 1:
            record.engine.crawl(spider.recorded(second))  # type: ignore[attr-defined]
        else:
            deferred_from_coro(getattr(record.engine, way)())

    record = Record(on_held=held)
    settings = {**HOLD, "REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}
    result = await record.crawl(first, **settings)
    assert set(result.failures) == {first, second}
    assert [one for one in result.records if one.exc_info] == []
    assert_no_errors(result)


@pytest.mark.loop
async def test_what_errbacks_download_at_the_end(sites: Sites) -> None:
    """One tries two other sites: a page comes if its robots.txt is known, else that is not waited for."""
    busy, other, known = sites.add(robots=503), sites.add(robots=silence()), sites.add()
    outcomes: list[Any] = []

    class DownloadsInErrback(ListSpider):
        async def failed(self, failure: Any) -> None:
            super().failed(failure)
            with pytest.raises(RobotsUnreachable):
                await self.crawler.engine.download_async(Request(other.url("/x")))
            page = await self.crawler.engine.download_async(Request(known.url("/x")))
            outcomes.append(page.status)

    record = Record()
    record.on_held = lambda spider, _: as_soon_as(
        lambda: spider.responses, record.close
    )  # type: ignore[attr-defined]
    times = {"REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER}
    wanted = [*urls(busy, 1), *urls(known, 1)]
    result = await record.crawl(
        DownloadsInErrback, requests=wanted, **{**SLOW, **times}
    )
    assert_closed_soon(result)
    assert outcomes == [200]
    assert await record.concurrency() == [16, 16]


class LambdaSpider(ListSpider):
    def recorded(self, request: str | Request) -> Request:
        return (
            super()
            .recorded(request)
            .replace(callback=lambda response: self.parse(response))
        )


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
    record = Record(on_held=lambda _, count: record.close() if count == held else None)
    settings = {**SLOW, "_REP_HOLD_GRACE": grace, "JOBDIR": str(tmp_path)}
    result = await record.crawl(LambdaSpider, requests=wanted, **settings)
    assert_closed_soon(result)
    assert len(lines(result, "to disk", level="WARNING")) == 1
    assert set(result.failures) == set(wanted)
    assert result.stats["rep/held/now"] == 0


class SharedScheduler(BaseScheduler):
    """A queue elsewhere, as those on a server are: requests go there as bytes."""

    queue: list[bytes]
    seen: set[bytes]
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


@pytest.fixture
def shared() -> type[SharedScheduler]:

    class OneQueueForAll(SharedScheduler):
        queue, seen, persist = [], set(), True

    return OneQueueForAll


class Once(ListSpider):
    dont_filter = False


@pytest.mark.scrapy_api
@pytest.mark.parametrize("says_so", [False, True])
async def test_the_next_crawl_has_handed_back_requests_as_the_user_made_them(
    sites: Sites, shared: Any, says_so: bool
) -> None:
    """The first ends while a site is down, and a silent one's first answer is awaited. In the next, all
    are held once more on arrival, for a while."""
    both = [sites.add(robots=503), sites.add(robots=silence())]
    wanted = [url for site in both for url in urls(site, 20)]

    def close(_: Spider, count: int) -> None:
        if count == 20:
            as_soon_as(
                lambda: len(shared.seen) == 40 and not shared.queue, record.close
            )

    if not says_so:
        del shared.persist
    record = Record(on_held=close)
    settings = {**SLOW, "SCHEDULER": shared}
    result = await record.crawl(Once, requests=wanted, **settings, _REP_HOLD_GRACE=30)
    assert_closed_soon(result)
    assert result.failures == result.responses == {}
    assert result.stats["rep/held/now"] == 0 and "rep/given_up" not in result.stats
    gate = Gate(503, RULES)
    for site in both:
        site.set("/robots.txt", gate)
    again = Record(on_held=lambda _, count: gate.open() if count == 40 else None)
    result = await again.crawl(Once, requests=wanted, **settings)
    assert set(result.responses) == set(wanted)
    assert all(
        sorted(map(site.url, site.pages_asked)) == sorted(urls(site, 20))
        for site in both
    )
    assert sorted(again.dropped) == sorted(wanted), (
        "the dupe filter lets none pass twice"
    )
    asked = [response.request for response in result.spider.responses]
    assert not any(one.dont_filter or "_rep_held" in one.meta for one in asked)
    assert_clean(result)


@pytest.mark.parametrize("answers", [True, False])
async def test_those_handed_back_wait_on(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, shared: Any, answers: bool
) -> None:
    """REP_HOLD_MAX_WAIT counts from when they were first held, while a crawl runs."""
    passed = {RunningClock: 0.0, HandingBack: 0.0}
    clock = SimpleNamespace(time=lambda: time.time() + passed[HandingBack])
    monkeypatch.setattr("scrapy_rep.holding.handing_back.time", clock)
    now = RunningClock.__call__
    monkeypatch.setattr(
        RunningClock, "__call__", lambda self: now(self) + passed[RunningClock]
    )
    site = sites.add(robots=503 if answers else silence())
    wanted = urls(site, 5)
    settings = {
        **SLOW,
        "SCHEDULER": shared,
        "_REP_HOLD_GRACE": 0.1,
        "REP_HOLD_MAX_WAIT": 90,
        "REP_DOWNLOAD_TIMEOUT": 0.5,  # how long the last attempt may take
    }

    def close() -> None:
        for clock in passed:
            passed[clock] += 60
        record.close()

    def held(_: Spider, count: int) -> None:
        if count == 5 and reason == "enough":  # the last run ends by itself, at once
            later(0.1, close)

    for reason in ("enough", "enough", "finished"):
        record = Record(on_held=held)
        requests = [] if passed[HandingBack] else wanted
        result = await record.crawl(Once, requests=requests, **settings)
        assert result.reason == reason
        assert result.stat("rep/held") == 5
        assert set(result.failures) == (set() if reason == "enough" else set(wanted))
        assert_no_errors(result)
        passed[RunningClock] = 0.0
        passed[HandingBack] += 86400  # until the next run


@pytest.mark.parametrize("broken", [False, True])
async def test_given_up_where_the_queue_does_not_outlive(
    sites: Sites, shared: Any, broken: bool
) -> None:
    """Or is gone: the crawl is closed all the same, and nothing is lost without a word."""
    site, shared.persist = sites.add(robots=503), broken

    def close(_: Spider, count: int) -> None:
        if count == 20:
            shared.broken = broken
            record.close()

    record = Record(on_held=close)
    result = await record.crawl(Once, requests=urls(site, 20), **SLOW, SCHEDULER=shared)
    assert result.reason == "enough"
    assert set(result.failures) == set(urls(site, 20))
    assert all(
        isinstance(error, RobotsUnreachable) for error in result.failures.values()
    )
    assert all(request.dont_filter is False for request, _ in result.spider.errors)
    assert shared.queue == []
    if not broken:
        assert_no_errors(result)


def no_space(request: Request) -> bool:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("full", [False, True])
async def test_scrapys_queue_keeps_them_if_our_file_can_not_be_opened(
    sites: Sites, tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its disk is full, they fail."""
    monkeypatch.setattr("scrapy_rep.storages.journal._THREAD_LOCK_SECONDS", 0.05)
    site = sites.add(robots=503)
    wanted, settings = urls(site, 5), {**SLOW, "JOBDIR": str(tmp_path)}

    def close(_: Spider, count: int) -> None:
        if count == 5:
            if full:
                record.engine._slot.scheduler.enqueue_request = no_space
            record.close()

    record = Record(on_held=close)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as file:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("BEGIN EXCLUSIVE")
        result = await record.crawl(wanted, **settings)
    assert result.reason == "enough"
    assert set(result.failures) == set(wanted if full else [])
    assert all(isinstance(one, RobotsUnreachable) for one in result.failures.values())
    assert result.stat("rep/given_up" if full else "rep/handed_back") == 5
    site.set("/robots.txt", RULES)
    result = await crawl([], settings)
    assert set(result.responses) == set([] if full else wanted)
