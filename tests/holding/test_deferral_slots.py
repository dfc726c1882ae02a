"""Who waits for a robots.txt, and the fetch itself, leave the download slots to the pages."""

from __future__ import annotations

import asyncio

import pytest
import scrapy
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.reactor import is_reactor_installed

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
from tests.helpers.log import lines
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
    """Eight for each of CONCURRENT_REQUESTS; the others stay in the scheduler. If answers come within the
    grace, nothing is said of it."""
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
    assert record.deferred == record.released == lines(result) == []
    assert "rep/held" not in result.stats
    assert_nothing_dropped(result, record)


async def test_a_released_request_is_next(sites: Sites) -> None:
    """Though pages of another site, which were asked for before, wait in the scheduler."""
    other = sites.add(pages={f"/page{number}": after(0.02, "x") for number in range(60)})
    held, record = sites.add(robots=in_turn(503, RULES)).url("/x"), Record()
    reached: list[str] = []
    record.handlers[scrapy_signals.request_reached_downloader] = lambda request: reached.append(
        request.url
    )
    result = await record.crawl([held, *urls(other, 60)], CONCURRENT_REQUESTS=1)
    assert record.released == [held]
    pages = [url for url in reached if not url.endswith("/robots.txt")]
    assert pages.index(held) < 50
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
    record.on_resolved = lambda: busy.open() if len(record.resolved) == 4 else None
    record.handlers[scrapy_signals.request_reached_downloader] = lambda request: left.append(
        request.url
    )
    first = Request(page, meta=meta, priority=9)
    await record.crawl([first, *requests], CONCURRENT_REQUESTS_PER_DOMAIN=1)
    assert [url for url in left if url in urls] == urls[::-1]
