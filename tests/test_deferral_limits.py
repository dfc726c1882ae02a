"""What bounds deferral: how long, how many, whose hosts are down for good, how many slots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import scrapy
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest

from scrapy_rep.exceptions import RobotsUnreachable
from tests.behaviours import after, answer, in_turn, silence
from tests.crawling import ListSpider, crawl
from tests.held import (
    DEFER,
    NEVER,
    RULES,
    Gate,
    Record,
    assert_clean,
    assert_nothing_dropped,
    lines,
    origin_of,
    silent_until_open,
    urls,
    when_open,
)
from tests.servers import Connection, Hit, Sites

UNLIMITED = tuple(map(int, scrapy.__version__.split(".")[:2])) >= (2, 19)


@pytest.mark.parametrize("jobdir", [False, True])
@pytest.mark.parametrize("robots", [answer("", 503), silence()], ids=["503", "silent"])
async def test_max_wait(sites: Sites, tmp_path: Any, robots: Any, jobdir: bool) -> None:
    """Whoever was held so long is given up; the silent fetch in flight is not waited for."""
    site, healthy = sites.add(robots=robots), sites.add(robots=RULES)
    wanted, record = urls(site, 20), Record()
    result = await crawl(
        [*wanted, *urls(healthy, 5)],
        {
            **DEFER,
            **({"JOBDIR": str(tmp_path)} if jobdir else {}),
            "REP_DEFER_GRACE": 0.1,
            "REP_DEFER_MAX_WAIT": 1.0,
            "REP_DOWNLOAD_TIMEOUT": NEVER,
        },
        signal_handlers=record.handlers,
    )
    assert set(result.failures) == set(wanted)
    for error in result.failures.values():
        assert isinstance(error, RobotsUnreachable)
        assert isinstance(error, IgnoreRequest)
        assert error.attempts > 0
        assert str(error.origin) == origin_of(site)
        assert "held for 1 s" in error.reason
        assert error.reason in str(error)
        assert error.decision is None
    assert len(result.responses) == 5
    assert result.stat("rep/given_up") == 20
    assert result.stats["rep/held"] == 0
    assert not set(record.released) & set(wanted)
    assert not any("page" in hit.path for hit in site.requests)
    ours = lines(result, f"equests of {origin_of(site)} ")
    assert len(ours) == 2
    assert "20 requests" in ours[1] and "given up" in ours[1]
    assert ("kept for the next run" in ours[1]) is jobdir
    assert record.concurrency == [16, 16]
    assert_clean(result)


async def test_max_requests(sites: Sites) -> None:
    """No more than that are held; further ones are dropped at once, with one warning."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    first, others = urls(site, 10), urls(site, 40, "/other")
    dropped = Dropped(lambda count: gate.open() if count == 40 else None)
    record = Record()
    result = await crawl(
        dropped.spider,
        {**DEFER, "REP_DEFER_MAX_REQUESTS": 10, "CONCURRENT_REQUESTS": 4},
        requests=[*first, *others],
        signal_handlers=record.handlers,
    )
    # More come while the gate is opened, but not while any is held: 50 in all.
    assert len(result.responses) + len(result.failures) == 50
    assert len(result.failures) == 40
    assert result.stat("rep/held/max") == 10
    assert all(isinstance(one, RobotsUnreachable) for one in result.failures.values())
    assert result.stat("rep/unreachable/dropped") == 40
    assert len(lines(result, "REP_DEFER_MAX_REQUESTS", level="WARNING")) == 1
    assert record.dropped == []
    assert_clean(result)


class Dropped:
    """A spider class that tells how many errbacks were called."""

    def __init__(self, on_failed: Any) -> None:
        class Spider(ListSpider):
            def failed(self, failure: Any) -> None:
                super().failed(failure)
                on_failed(len(self.errors))

        self.spider = Spider


async def test_max_requests_and_answers_to_come(sites: Sites) -> None:
    """Requests whose robots.txt is just being fetched are not dropped because others are held."""
    gate = Gate(503, RULES)
    down = sites.add(robots=gate)
    slow = [sites.add(robots=after(0.3, RULES)) for _ in range(10)]
    wanted = [url for site in slow for url in urls(site, 3)]
    fetched: list[str] = []

    def page(request: Request) -> None:
        if request.url in wanted:
            fetched.append(request.url)
        if len(fetched) == len(wanted):
            gate.open()

    record = Record()
    record.handlers[scrapy_signals.response_received] = page
    result = await crawl(
        [*urls(down, 5), *wanted],
        {**DEFER, "REP_DEFER_MAX_REQUESTS": 5, "REP_DEFER_GRACE": 0.05},
        signal_handlers=record.handlers,
    )
    assert set(result.responses) >= set(wanted)
    assert set(result.failures) <= set(urls(down, 5))
    assert result.stat("rep/held/max") == 5
    assert_clean(result)


@pytest.mark.parametrize("kind", ["refused", "unknown name"])
async def test_dead_hosts(sites: Sites, kind: str) -> None:
    """Down as a whole: given up after three failures, and later requests at once."""
    root = sites.refused() if kind == "refused" else "http://nowhere.example"
    wanted, later = [f"{root}/{number}" for number in range(10)], f"{root}/later"
    record = Record()

    class Spider(ListSpider):
        def failed(self, failure: Any) -> Any:
            super().failed(failure)
            if len(self.errors) == 10:
                yield self.recorded(later)

    result = await crawl(
        Spider,
        {**DEFER, "REP_RETRY_MAX_DELAY": NEVER},
        requests=wanted,
        signal_handlers=record.handlers,
    )
    assert set(result.failures) == {*wanted, later}
    assert [one["attempts"] for one in record.resolved] == [1, 2, 3]
    for error in result.failures.values():
        assert isinstance(error, RobotsUnreachable)
        assert error.attempts == 3
    assert "the host is down" in result.failures[wanted[0]].reason
    assert result.stat("rep/given_up") == result.stat("rep/deferred") == 10
    assert result.stat("rep/unreachable/dropped") == 1
    assert len(lines(result, "10 requests of", "given up", "the host is down")) == 1
    assert_clean(result)


async def test_dead_host_tries(sites: Sites) -> None:
    record = Record()
    result = await crawl(
        f"{sites.refused()}/x",
        {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 1, "REP_RETRY_DELAY": NEVER,
         "REP_RETRY_MAX_DELAY": NEVER},
        signal_handlers=record.handlers,
    )  # fmt: skip
    assert [error.attempts for error in result.failures.values()] == [1]
    assert_clean(result)


async def test_a_busy_host_is_not_a_dead_one(sites: Sites) -> None:
    site = sites.add(robots=in_turn(503, 503, 503, 503, 503, RULES))
    result = await crawl(urls(site, 3), {**DEFER, "REP_DEFER_DEAD_HOST_TRIES": 2})
    assert len(result.responses) == 3
    assert_clean(result)


CONCURRENCY = [1, 2, pytest.param(0, marks=pytest.mark.skipif(not UNLIMITED, reason="no 0"))]


@pytest.mark.parametrize("grace", [0, 0.5, NEVER])
@pytest.mark.parametrize("concurrency", CONCURRENCY)
async def test_few_slots_and_no_grace(sites: Sites, concurrency: int, grace: float) -> None:
    several = [sites.add(robots=robots) for robots in (RULES, after(0.1, RULES))]
    several.append(sites.add(robots=in_turn(503, after(0.1, 503), RULES)))
    record = Record()
    result = await crawl(
        [url for site in several for url in urls(site, 4)],
        {**DEFER, "CONCURRENT_REQUESTS": concurrency, "REP_DEFER_GRACE": grace},
        signal_handlers=record.handlers,
    )
    assert len(result.responses) == 12
    assert [site.count("/robots.txt") for site in several] == [1, 1, 3]
    assert record.concurrency == [concurrency, concurrency]
    assert_nothing_dropped(result, record)
    assert_clean(result)


@pytest.mark.parametrize("grace", [0.1, NEVER])
async def test_silent_sites_leave_the_slots_to_pages(sites: Sites, grace: float) -> None:
    """16 robots.txt are awaited by many requests, however long these may wait in place; only when
    all pages of a healthy site have been fetched do the answers come."""
    robots = silent_until_open()
    silent, healthy = [sites.add(robots=robots) for _ in range(16)], sites.add(robots=RULES)
    wanted = urls(healthy, 30)

    def page() -> None:
        if sum(hit.path != "/robots.txt" for hit in list(healthy.requests)) == 30:
            robots.open()

    record = Record()
    record.handlers[scrapy_signals.response_received] = page
    result = await crawl(
        [*(site.url(path) for path in ("/a", "/b", "/c") for site in silent), *wanted],
        {
            **DEFER,
            "CONCURRENT_REQUESTS": 4,
            "REP_DEFER_GRACE": grace,
            "REP_DOWNLOAD_TIMEOUT": NEVER,
        },
        signal_handlers=record.handlers,
    )
    assert len(result.responses) == 16 * 3 + 30
    assert all(site.count("/robots.txt") == 1 for site in silent)
    assert record.concurrency == [4, 4]
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_so_many_fetches_at_a_time(sites: Sites) -> None:
    """Four for each of CONCURRENT_REQUESTS; the others take their turns."""
    running, most = 0, 0
    robots = silent_until_open()
    inner = when_open(robots, RULES)

    async def counted(hit: Hit, connection: Connection) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 8:
            # Time for one too many.
            asyncio.get_running_loop().call_later(0.3, robots.open)
        await inner(hit, connection)
        running -= 1

    several = [sites.add(robots=counted) for _ in range(20)]
    record = Record()
    result = await crawl(
        [site.url("/x") for site in several],
        {**DEFER, "CONCURRENT_REQUESTS": 2, "REP_DEFER_GRACE": 0.1},
        signal_handlers=record.handlers,
    )
    assert most == 8
    assert len(result.responses) == 20
    assert record.concurrency == [2, 2]
    assert_nothing_dropped(result, record)
    assert_clean(result)


class LateSpider(ListSpider):
    """Asks for the last of its requests when all others have failed."""

    async def start(self) -> AsyncIterator[Any]:
        *first, self.last = self.requests
        for request in first:
            yield self.recorded(request)

    def failed(self, failure: Any) -> Any:
        super().failed(failure)
        if len(self.errors) == len(self.requests) - 1:
            yield self.recorded(self.last)


async def test_held_anew_after_the_first_were_given_up(sites: Sites) -> None:
    """The origin's clock goes on where it was."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    record = Record(on_deferred=lambda _, count: gate.open() if count == 6 else None)
    result = await crawl(
        LateSpider,
        {**DEFER, "REP_DEFER_MAX_WAIT": 0.7, "REP_RETRY_MAX_DELAY": 0.2},
        requests=urls(site, 6),
        signal_handlers=record.handlers,
    )
    assert list(result.responses) == [site.url("/page5")]
    assert len(result.failures) == 5
    assert len(lines(result, f"equests of {origin_of(site)} ")) == 4
    assert_clean(result)
