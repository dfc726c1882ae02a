"""Schedulers other than Scrapy's own: one that outlives the process gets held requests back. And Scrapy's own
`Scheduler.dqs`, which `EngineAccess.crawl` sets aside for a moment."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.utils.request import request_from_dict

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, after, in_turn, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import Gate, Record, as_soon_as, assert_clean, assert_no_errors, later, urls
from tests.helpers.servers import Sites
from tests.helpers.timing import SECONDS, SLOW, closing_took

pytestmark = pytest.mark.slow


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


async def test_given_up_where_it_does_not_outlive(sites: Sites) -> None:
    site = sites.add(robots=503)
    record = Record(on_deferred=lambda _, count: record.close() if count == 20 else None)
    result = await record.crawl(Once, requests=urls(site, 20), **SLOW, SCHEDULER=Forgetful)
    assert set(result.failures) == set(urls(site, 20))
    assert all(isinstance(error, RobotsUnreachable) for error in result.failures.values())
    assert all(request.dont_filter is False for request, _ in result.spider.errors)
    assert Forgetful.queue == []
    assert_no_errors(result)


async def test_a_queue_that_is_gone(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handing requests back fails: the crawl is closed all the same, and nothing is lost without
    a word."""
    site = sites.add(robots=503)

    def close(_: Spider, count: int) -> None:
        if count == 5:
            monkeypatch.setattr(SharedScheduler, "broken", True)
            record.close()

    record = Record(on_deferred=close)
    result = await record.crawl(Once, requests=urls(site, 5), **SLOW, SCHEDULER=Persistent)
    assert result.reason == "enough"
    assert set(result.failures) == set(urls(site, 5))


class QueuingSpider(ListSpider):
    """Schedules one request in each way."""

    async def start(self):
        engine = EngineAccess(self.crawler)
        self.queues = engine.scheduler.dqs
        engine.crawl(self.recorded(self.requests[0]))
        assert engine.scheduler.dqs is self.queues
        yield self.recorded(self.requests[1])


@pytest.mark.scrapy_api
async def test_one_request_goes_through_memory(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots="")
    result = await crawl(
        QueuingSpider,
        {"JOBDIR": str(tmp_path)},
        requests=[Request(site.url("/from-disk")), Request(site.url("/plain"))],
    )
    assert isinstance(result.spider, QueuingSpider)
    assert result.spider.queues is not None
    assert result.stat("scheduler/enqueued/memory") == result.stat("scheduler/enqueued/disk") == 1
    assert len(result.responses) == 2
    result.assert_clean()
