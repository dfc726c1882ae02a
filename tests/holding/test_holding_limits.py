"""What bounds holding: how long, how many, hosts down for good; and the moment of the failure."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals

from scrapy_rep import signals
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.protocol.availability import MAX_HOPS
from tests.helpers.behaviours import (
    RULES,
    after,
    answer,
    as_behaviour,
    in_turn,
    redirect,
    silence,
)
from tests.helpers.crawling import Clock, ListSpider, crawl
from tests.helpers.held import (
    HOLD,
    NEVER,
    Gate,
    Record,
    a_while,
    as_soon_as,
    assert_clean,
    assert_no_errors,
    origin_of,
    urls,
)
from tests.helpers.log import lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Connection, Hit, Sites
from tests.helpers.storing import in_a_file

pytestmark = pytest.mark.slow
TOO_MANY = "Too many requests are held (REP_HOLD_MAX_REQUESTS"


@pytest.mark.parametrize(
    ("robots", "grace", "jobdir"),
    [(503, NEVER, False), (silence(), 0.1, True)],
    ids=["503", "silent, with a JOBDIR"],
)
async def test_requests_held_longer_than_max_wait_are_given_up(
    sites: Sites, tmp_path: Path, robots: Any, grace: float, jobdir: bool
) -> None:
    """The silent fetch in flight is not waited for. With a JOBDIR, the next run has them again."""
    site, healthy = sites.add(robots=robots), sites.add(robots=RULES)
    wanted, record = urls(site, 20), Record()
    folder = {"JOBDIR": str(tmp_path)} if jobdir else {}
    result = await record.crawl(
        [*wanted, *urls(healthy, 5)],
        **folder,
        _REP_HOLD_GRACE=grace,
        REP_HOLD_MAX_WAIT=0.4,
        REP_DOWNLOAD_TIMEOUT=NEVER,
    )
    with every_row() as row:
        with row("all fail"):
            assert set(result.failures) == set(wanted)
            assert not set(record.released) & set(wanted)
            assert site.pages_asked == []
        with row("they hear why"):
            for error in result.failures.values():
                assert isinstance(error, RobotsUnreachable)
                assert (str(error.origin), error.decision) == (origin_of(site), None)
                assert error.attempts > 0
                found = re.search(r"; held for ([\d.]+) s$", error.reason)
                assert found is not None and 0.3 <= float(found[1]) < 60
                assert error.reason in str(error)
        with row("they are counted"):
            assert (result.stat("rep/given_up"), result.stats["rep/held/now"]) == (
                20,
                0,
            )
            # One line, unless the machine is so slow that some were held later than others.
            told = lines(result, "Gave up ", f" to {origin_of(site)}")
            assert len(told) <= 2 and sum(int(line.split()[2]) for line in told) == 20
            assert all(("kept for the next run" in line) is jobdir for line in told)
        with row("nobody else is harmed"):
            assert len(result.responses) == 5
            assert await record.concurrency() == [16, 16]
            assert_clean(result)
    site.set("/robots.txt", RULES)
    result = await crawl([], {**HOLD, **folder})
    assert set(result.responses) == set(wanted if jobdir else [])


async def test_requests_of_a_dead_host_are_given_up_after_three_failures(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the clock, which stands still, no attempt is due when the later one comes. (Those for requests
    # that are held are made in time all the same, by a timer.)
    Clock().install(monkeypatch)
    root = sites.refused()
    wanted, later = [f"{root}/{number}" for number in range(10)], f"{root}/later"
    record = Record()

    def on_failure(spider: Any) -> Any:
        return spider.recorded(later) if len(spider.errors) == 10 else None

    result = await record.crawl(
        wanted, REP_RETRY_MAX_DELAY=NEVER, on_failure=on_failure
    )
    assert set(result.failures) == {*wanted, later}
    assert [one["attempts"] for one in record.resolved] == [1, 2, 3]
    for error in result.failures.values():
        assert isinstance(error, RobotsUnreachable)
        assert error.attempts == 3
    assert "the host is down" in result.failures[wanted[0]].reason
    assert result.stat("rep/given_up") == result.stat("rep/held") == 10
    assert result.stat("rep/unreachable/dropped") == 1
    assert len(lines(result, "Gave up 10 requests to", "the host is down")) == 1
    assert_clean(result)


async def test_one_origin_leaves_room_for_others(sites: Sites) -> None:
    def settled(hit: Hit, connection: Connection) -> Awaitable[None]:
        assert record.spider is not None
        dropped = record.spider.crawler.stats.get_value("rep/unreachable/dropped", 0)
        up = len(record.held) + dropped == 42
        return as_behaviour(RULES if up else 503)(hit, connection)

    def on_failure(spider: Any) -> Any:
        return map(spider.recorded, wanted) if len(spider.errors) == 1 else None

    greedy, modest = sites.add(robots=settled), sites.add(robots=settled)
    wanted, record = urls(modest, 2), Record()
    result = await record.crawl(
        urls(greedy, 40),
        on_failure=on_failure,
        REP_HOLD_MAX_REQUESTS=22,
        CONCURRENT_REQUESTS=4,
    )
    assert set(result.responses) >= set(wanted)
    assert len(result.responses) == 22 and len(result.failures) == 20
    assert result.stat("rep/unreachable/dropped") == 20
    assert len(lines(result, TOO_MANY, level="WARNING")) == 1
    assert_clean(result)


async def test_a_silent_origin_with_its_share_keeps_no_slots(sites: Sites) -> None:
    silent, healthy = sites.add(robots=silence()), sites.add(robots=after(0.1, RULES))
    wanted, record = urls(healthy, 6), Record()

    def crawl_more(spider: Any, count: int) -> None:
        for url in wanted if count == 20 else ():
            record.engine.crawl(spider.recorded(Request(url, priority=-1)))

    def all_have_left_the_scheduler() -> bool:
        """Those that have not end without a word, as with Scrapy alone."""
        return bool(
            record.engine.spider.crawler.stats.get_value("scheduler/dequeued") == 66
        )

    def on_page(spider: Any) -> None:
        assert len(record.resolved) == 1  # the silent one is still asked
        if len(spider.responses) == 6:
            as_soon_as(all_have_left_the_scheduler, record.close)

    record.on_held = crawl_more
    result = await record.crawl(
        urls(silent, 60),
        on_page=on_page,
        REP_HOLD_MAX_REQUESTS=22,
        _REP_HOLD_GRACE=0.05,
        REP_HOLD_MAX_WAIT=NEVER,
        REP_DOWNLOAD_TIMEOUT=NEVER,
        CONCURRENT_REQUESTS=4,
        # The usual one prefers sites of which nothing is being downloaded.
        SCHEDULER_PRIORITY_QUEUE="scrapy.pqueues.ScrapyPriorityQueue",
    )
    assert set(result.responses) == set(wanted)
    assert result.reason == "enough"
    assert len(result.failures) == 60
    assert_no_errors(result)


@pytest.mark.parametrize("stored", [False, True])
async def test_the_last_attempt_is_made_when_the_time_is_over(
    sites: Sites, tmp_path: Any, stored: bool
) -> None:
    """Not when the origin's clock strikes, which is later; and then nobody waits any longer."""
    back, down = sites.add(robots=in_turn(503, RULES)), sites.add(robots=503)
    wanted = [*urls(back, 3), *urls(down, 3)]
    record = Record()
    result = await record.crawl(
        wanted,
        **(in_a_file(tmp_path) if stored else {}),
        REP_RETRY_DELAY=60,
        REP_RETRY_MAX_DELAY=60,
        REP_HOLD_MAX_WAIT=1.0,  # and so long the answer may take, on a slow machine too
    )
    assert set(result.responses) == set(urls(back, 3))
    assert set(result.failures) == set(urls(down, 3))
    assert (back.robots_fetches, down.robots_fetches) == (2, 2)
    for site in (back, down):
        first, second = (hit.time for hit in site.hits("/robots.txt"))
        assert second - first > 0.5
    assert {error.attempts for error in result.failures.values()} == {2}  # type: ignore[attr-defined]
    assert_clean(result)


async def test_those_that_have_not_left_when_it_is_down_again_are_held_on(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that must not be kept counts for a while, in which one leaves: there is one slot."""
    passed, record = 0.0, Record()
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + passed,
        time=time.time,
        time_ns=time.time_ns,
    )
    monkeypatch.setattr("scrapy_rep.engine.access.time", clock)
    site = sites.add(robots=in_turn(503, 404, 503))

    def reached(request: Request) -> None:
        nonlocal passed
        passed += 10 * request.url.endswith("/page0")

    record.handlers[scrapy_signals.request_reached_downloader] = reached
    result = await record.crawl(
        urls(site, 4),
        REP_CACHE_TTL=0,
        REP_CACHE_MIN_TTL=0,
        REP_HOLD_MAX_WAIT=2.0,
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
    )
    assert list(result.responses) == [site.url("/page0")] == record.released
    assert set(result.failures) == set(urls(site, 4)[1:])
    assert result.stats["rep/held/now"] == 0
    assert_clean(result)


async def test_no_attempt_is_made_before_retry_after(sites: Sites) -> None:
    site = sites.add(robots=in_turn(answer("", 503, [("Retry-After", "50")]), RULES))
    result = await crawl(
        urls(site, 3), {**HOLD, "REP_RETRY_MAX_DELAY": 60, "REP_HOLD_MAX_WAIT": 30}
    )
    assert len(result.failures) == 3
    assert site.robots_fetches == 1
    assert {error.reason for error in result.failures.values()} == {  # type: ignore[attr-defined]
        "HTTP 503; no further attempt at robots.txt is due before REP_HOLD_MAX_WAIT (30 s) ends"
    }
    assert_clean(result)


async def test_requests_that_keep_coming_do_not_hurry_the_clock(sites: Sites) -> None:
    """Each has a time of its own that is over."""
    site = sites.add(robots=503)

    class Slowly(ListSpider):
        async def start(self) -> AsyncIterator[Any]:
            async for request in super().start():
                yield request
                await a_while(0.01)

    result = await crawl(
        Slowly,
        {
            **HOLD,
            "REP_RETRY_DELAY": 60,
            "REP_RETRY_MAX_DELAY": 60,
            "REP_HOLD_MAX_WAIT": 1.0,
        },
        requests=urls(site, 40),
    )
    assert len(result.failures) == 40
    assert site.robots_fetches in (2, 3)  # 3 on a slow machine


@pytest.mark.parametrize(
    ("robots", "unreachable", "grace", "wait"),
    [(after(0.1, RULES), "drop", 10, 0.05), (silence(), "allow", 0.1, 0)],
    ids=["slow", "silent"],
)
async def test_a_fetch_has_the_grace_though_nothing_is_held(
    sites: Sites, robots: Any, unreachable: str, grace: float, wait: float
) -> None:
    site = sites.add(robots=robots)
    waits = {"_REP_HOLD_GRACE": grace, "REP_HOLD_MAX_WAIT": wait}
    settings = {"REP_UNREACHABLE": unreachable, **waits}
    result = await crawl([site.url("/x")], settings)
    assert result.status(site.url("/x")) == 200


@pytest.mark.parametrize("redirects", [0, MAX_HOPS])
async def test_a_silent_site_whose_requests_are_given_up_counts_as_unreachable(
    sites: Sites, tmp_path: Any, redirects: int
) -> None:
    """Else each run would wait for it again: REP_DOWNLOAD_TIMEOUT is never reached."""
    site = sites.add()
    hops = ["/robots.txt", *(f"/{number}" for number in range(redirects))]
    for hop, target in pairwise(hops):
        site.set(hop, after(0.25, redirect(target)))
    site.set(hops[-1], silence())
    settings = {
        **HOLD,
        "_REP_HOLD_GRACE": 0.05,
        "REP_HOLD_MAX_WAIT": 0.8,
        "REP_DOWNLOAD_TIMEOUT": NEVER,
        "REP_RETRY_DELAY": 60,
        "REP_RETRY_MAX_DELAY": 60,
        **in_a_file(tmp_path),
    }
    record = Record()
    result = await record.crawl(urls(site, 3), **settings)
    assert len(result.failures) == 3
    [resolved] = record.resolved
    assert re.search("longer than 0|in time", str(resolved["error"]))
    assert {error.attempts for error in result.failures.values()} == {1}  # type: ignore[attr-defined]
    assert await record.concurrency() == [16, 16]
    assert_clean(result)
    # The next run knows. It doesn't ask again, but for a last attempt.
    record = Record()
    result = await record.crawl(urls(site, 3), **settings)
    assert len(result.failures) == 3
    assert site.robots_fetches == 2
    assert record.resolved[0]["attempts"] == 2


@pytest.mark.loop
@pytest.mark.parametrize("room", [1000, 5])
async def test_requests_that_come_while_a_failure_is_announced(
    sites: Sites, tmp_path: Path, room: int
) -> None:
    """All are held, each counts once; those that have waited come first if there is little room."""
    gate = Gate(503 if room > 5 else after(0.2, 503), RULES)
    site, record = sites.add(robots=gate), Record()
    wanted, more = urls(site, 5), urls(site, 3, "/more")

    async def resolved(**told: Any) -> None:
        record.resolved.append(told)
        if len(record.resolved) == 1:
            for url in more:
                record.engine.crawl(record.spider.recorded(url))  # type: ignore[union-attr]
            await a_while(0.1)
            gate.open()

    record.handlers[signals.robots_resolved] = resolved
    settings = {"JOBDIR": str(tmp_path)} if room > 5 else {"_REP_HOLD_GRACE": NEVER}
    result = await record.crawl(wanted, **settings, REP_HOLD_MAX_REQUESTS=room)
    held, dropped = ([*wanted, *more], []) if room > 5 else (wanted, more)
    assert set(result.responses) == set(held)
    assert set(result.failures) == set(dropped)
    assert sorted(record.held) == sorted(record.released) == sorted(held)
    assert result.stat("rep/held") == result.stat("rep/released") == len(held)
    assert (result.stats["rep/held/now"], result.stats["rep/held/max"]) == (
        0,
        len(held),
    )
    assert result.stat("rep/unreachable/dropped") == len(dropped)
    assert_clean(result)


async def test_room_for_some_of_those_that_wait(sites: Sites) -> None:
    """The others fail at once, but for those whose answer is still to come. An origin of which none is held
    keeps nobody waiting."""
    gate = Gate(503, RULES)
    site, late = sites.add(robots=gate), sites.add(robots=after(0.3, 503))
    slow = [sites.add(robots=after(0.3, RULES)) for _ in range(10)]
    first, others, last = urls(site, 5), urls(site, 15, "/other"), urls(late, 2)
    answered = [url for site in slow for url in urls(site, 3)]
    settings = {**HOLD, "REP_HOLD_MAX_REQUESTS": 5}
    result = await crawl(
        [*first, *others, *last, *answered],
        settings,
        on_failure=lambda spider: gate.open() if len(spider.errors) == 17 else None,
    )
    assert set(result.responses) == {*first, *answered}
    assert set(result.failures) == {*others, *last}
    assert result.stat("rep/held") == result.stat("rep/released") == 5
    assert result.stat("rep/held/max") == 5
    assert result.stat("rep/unreachable/dropped") == 17
    assert all(isinstance(one, RobotsUnreachable) for one in result.failures.values())
    assert "rep/given_up" not in result.stats
    assert len(lines(result, TOO_MANY, level="WARNING")) == 1
    assert late.count("/robots.txt") == 1
    assert_clean(result)
