"""Who waits for a robots.txt, and the fetch itself, leave the download slots to the pages."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scrapy
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.reactor import is_reactor_installed
from scrapy.utils.test import get_crawler
from twisted.internet.defer import CancelledError

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.protocol import Origin
from tests.helpers.behaviours import RULES, after, in_turn
from tests.helpers.held import (
    NEVER,
    Record,
    as_soon_as,
    later,
    silent_until_open,
    urls,
    when_open,
)
from tests.helpers.recorded import context_of
from tests.helpers.servers import Connection, Hit, Sites
from tests.holding.closing import assert_nothing_dropped

pytestmark = pytest.mark.slow

UNLIMITED = tuple(map(int, scrapy.__version__.split(".")[:2])) >= (2, 19)
"""Whether CONCURRENT_REQUESTS = 0 means no limit; before, nothing was downloaded."""

ROWS = [
    (1, 0),
    (1, NEVER),
    pytest.param(0, 0, marks=pytest.mark.skipif(not UNLIMITED, reason="no 0")),
]


async def test_an_answer_to_a_cancelled_fetch_frees_its_slot_only_once() -> None:
    """Scrapy goes on with a download that is no longer awaited."""
    crawler: Any = get_crawler()
    sent: list[Request] = []

    async def download(request: Request) -> Response:
        sent.append(request)
        raise CancelledError

    downloader = SimpleNamespace(total_concurrency=16)
    crawler.engine = SimpleNamespace(downloader=downloader, download_async=download, _slot=None)
    with pytest.raises(CancelledError):
        await Fetcher(context_of(crawler)).fetch(Origin.from_url("http://a.example"))
    response = Response(sent[0].url)
    told = scrapy_signals.response_downloaded
    crawler.signals.send_catch_log(told, request=sent[0], response=response, spider=None)
    assert downloader.total_concurrency == 16


@pytest.mark.loop
@pytest.mark.parametrize(("concurrency", "grace"), ROWS)
async def test_few_slots_and_no_grace(sites: Sites, concurrency: int, grace: float) -> None:
    several = [sites.add(robots=robots) for robots in (RULES, after(0.1, RULES))]
    several.append(sites.add(robots=in_turn(503, after(0.1, 503), RULES)))
    record = Record()
    result = await record.crawl(
        [url for site in several for url in urls(site, 4)],
        REP_RETRY_MAX_DELAY=0.1,
        CONCURRENT_REQUESTS=concurrency,
        REP_DEFER_GRACE=grace,
    )
    assert len(result.responses) == 12
    assert [site.count("/robots.txt") for site in several] == [1, 1, 3]
    assert await record.concurrency() == [concurrency, concurrency]
    assert_nothing_dropped(result, record)


@pytest.mark.scrapy_api
async def test_silent_sites_leave_the_slots_to_pages(sites: Sites) -> None:
    """The answers come only when all pages of a healthy site have been fetched."""
    robots = silent_until_open()
    silent, healthy = [sites.add(robots=robots) for _ in range(16)], sites.add(robots=RULES)
    wanted = urls(healthy, 30)

    record = Record()
    # The first is there so that the healthy one is asked too: 16 fetches are all that may run.
    others = [site.url(path) for path in ("/a", "/b", "/c") for site in silent]
    result = await record.crawl(
        [wanted[0], *others, *wanted[1:]],
        on_page=lambda _: robots.open() if len(healthy.pages_asked) == 30 else None,
        CONCURRENT_REQUESTS=4,
        REP_DEFER_GRACE=0.1,
        REP_DOWNLOAD_TIMEOUT=NEVER,
    )
    assert len(result.responses) == 16 * 3 + 30
    assert all(site.count("/robots.txt") == 1 for site in silent)
    assert await record.concurrency() == [4, 4]
    assert_nothing_dropped(result, record)


async def test_no_more_pages_at_a_time_than_slots(sites: Sites) -> None:
    """Also while fetches end: the slot that one had is gone before Scrapy looks for a page."""
    running = most = 0

    def change(request: Request, number: int) -> None:
        nonlocal running, most
        if request.callback is not NO_CALLBACK:  # else it is a robots.txt
            running += number
            most = max(most, running)

    several = [
        sites.add(robots=after(0.02, RULES), pages={"/x": after(0.03, "x")}) for _ in range(20)
    ]
    record = Record()
    record.handlers |= {
        scrapy_signals.request_reached_downloader: lambda request: change(request, 1),
        scrapy_signals.request_left_downloader: lambda request: change(request, -1),
    }
    result = await record.crawl([site.url("/x") for site in several], CONCURRENT_REQUESTS=2)
    assert most == 2
    assert len(result.responses) == 20
    assert_nothing_dropped(result, record)


@pytest.mark.loop
async def test_fetches_at_a_time_are_limited(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four for each of CONCURRENT_REQUESTS; without a reactor, half of it."""
    # More may fly when some are slow.
    monkeypatch.setattr("scrapy_rep.origins.flights._SLOW_SECONDS", NEVER)
    cap = 8 if is_reactor_installed() else 1
    running, most = 0, 0
    robots = silent_until_open()
    inner = when_open(robots, RULES)

    async def counted(hit: Hit, connection: Connection) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == cap:
            # Time for one too many.
            asyncio.get_running_loop().call_later(0.2, robots.open)
        await inner(hit, connection)
        running -= 1

    several = [sites.add(robots=counted) for _ in range(20)]
    record = Record()
    result = await record.crawl(
        [site.url("/x") for site in several], CONCURRENT_REQUESTS=2, REP_DEFER_GRACE=0.1
    )
    assert most == cap
    assert len(result.responses) == 20
    assert await record.concurrency() == [2, 2]
    assert_nothing_dropped(result, record)


async def test_requests_that_wait_for_first_answers_are_limited(sites: Sites) -> None:
    """Eight for each of CONCURRENT_REQUESTS; the others stay in the scheduler."""
    robots = silent_until_open()
    wanted = [sites.add(robots=robots).url("/x") for _ in range(12)]
    record, taken = Record(), []

    def dequeued() -> int:
        return int(record.engine.spider.crawler.stats.get_value("scheduler/dequeued", 0))

    def look() -> None:
        taken.append(dequeued())
        robots.open()

    record.handlers[scrapy_signals.spider_opened] = lambda spider: (
        record._opened(spider),
        as_soon_as(lambda: dequeued() >= 8, lambda: later(0.1, look)),
    )
    result = await record.crawl(wanted, CONCURRENT_REQUESTS=1, REP_DEFER_GRACE=NEVER)
    assert taken == [8]
    assert len(result.responses) == 12


async def test_a_released_request_is_next(sites: Sites) -> None:
    """Though pages of another site, which were asked for before, wait in the scheduler."""
    other = sites.add(pages={f"/page{number}": after(0.02, "x") for number in range(60)})
    held, record = sites.add(robots=in_turn(503, RULES)).url("/x"), Record()
    reached: list[str] = []

    def request_reached_downloader(request: Request) -> None:
        if not request.url.endswith("/robots.txt"):
            reached.append(request.url)

    record.handlers[scrapy_signals.request_reached_downloader] = request_reached_downloader
    result = await record.crawl([held, *urls(other, 60)], CONCURRENT_REQUESTS=1)
    assert record.released == [held]
    assert reached.index(held) < 50
    assert_nothing_dropped(result, record)


async def test_urgent_requests_of_any_origin_leave_first(sites: Sites) -> None:
    """When the download slot is free again; the answers for the most urgent ones came last."""
    busy = silent_until_open("x")
    urls = [sites.add(robots=after(0.05 * n, RULES)).url(f"/{n}") for n in range(4)]
    requests = [
        Request(url, priority=number, meta={"download_slot": "one"})
        for number, url in enumerate(urls)
    ]
    page = sites.add(pages={"/busy": busy}).url("/busy")
    meta = {"dont_obey_robotstxt": True, "download_slot": "one"}
    record, left = Record(), []

    def request_reached_downloader(request: Request) -> None:
        if request.url in urls:
            left.append(urls.index(request.url))

    record.on_resolved = lambda: busy.open() if len(record.resolved) == 4 else None
    record.handlers[scrapy_signals.request_reached_downloader] = request_reached_downloader
    first = Request(page, meta=meta, priority=9)
    await record.crawl([first, *requests], CONCURRENT_REQUESTS_PER_DOMAIN=1)
    assert left == [3, 2, 1, 0]


def no_space(request: Request) -> bool:
    raise OSError(errno.ENOSPC, "No space left on device")


# Older Scrapy's disk queues leave files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("full", [False, True])
async def test_those_that_wait_to_go_ahead_are_not_lost_by_a_stop(
    sites: Sites, tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our file can't be opened: Scrapy's queue has to keep them. If its disk is full, they fail."""
    monkeypatch.setattr("scrapy_rep.storages.journal._THREAD_LOCK_SECONDS", 0.05)
    gate = silent_until_open()
    held = [sites.add(robots=gate).url("/x") for _ in range(5)]
    busy = silent_until_open("x")  # takes the only slot until the crawl ends
    other = sites.add(pages={"/busy": busy, "/": after(0.05, "x")})
    urls = [*held, other.url("/busy"), *[other.url(f"/?{number}") for number in range(20)]]
    never_held = {"dont_obey_robotstxt": True}
    requests = [Request(url, meta=never_held if url not in held else None) for url in urls]
    record = Record()

    def all_are_there() -> bool:
        enqueued = record.engine.spider.crawler.stats.get_value("scheduler/enqueued")
        return set(held) <= set(record.deferred) and enqueued == len(urls)

    def stop() -> None:
        if len(record.resolved) == 5:  # they may leave, but there is no slot
            if full:
                record.engine._slot.scheduler.enqueue_request = no_space
            record.close()
            busy.open()

    record.on_deferred = lambda _, count: (
        as_soon_as(all_are_there, gate.open) if count == 5 else None
    )
    record.on_resolved = stop
    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": 1,
        "JOBDIR": str(tmp_path),
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
        "REP_DEFER_GRACE": 0.01,
    }
    with closing(sqlite3.connect(tmp_path / "rep-held.sqlite")) as file:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("BEGIN EXCLUSIVE")
        first = await record.crawl(requests, **settings)
    assert first.reason == "enough"
    assert len(record.released) < 5  # one may find a slot that a robots.txt has just left
    assert bool(first.failures) == full
    assert first.stat("rep/given_up") == len(first.failures)
    assert all(isinstance(one, RobotsUnreachable) for one in first.failures.values())
    second = await record.crawl([], **settings)
    ends = [*first.responses, *first.failures, *second.responses]
    assert sorted(ends) == sorted(urls)
