"""REP.md section 4, "held": requests are held until an answer comes, across runs too."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import scrapy
from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.http.request import NO_CALLBACK

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.disk import FILE_NAME
from scrapy_rep.holding.hold import HeldRequests
from scrapy_rep.origins.queue import Held
from tests.helpers.behaviours import RULES, after, in_turn, silence
from tests.helpers.crawling import crawl
from tests.helpers.files import ask, change
from tests.helpers.held import (
    HOLD,
    NEVER,
    Gate,
    Record,
    as_soon_as,
    assert_clean,
    assert_no_errors,
    later,
    origin_of,
    silent_until_open,
    urls,
    when_open,
)
from tests.helpers.invariant import is_closing
from tests.helpers.log import at_line, lines
from tests.helpers.rows import every_row
from tests.helpers.servers import Connection, Hit, Sites
from tests.holding.closing import assert_nothing_dropped
from tests.holding.holds import held, opened

pytestmark = pytest.mark.slow


async def test_those_about_to_leave_are_on_disk_after_a_stop(
    sites: Sites, tmp_path: Path
) -> None:
    """Also the one that is next, and has no download slot so far."""
    busy, robots = silent_until_open("x"), silent_until_open()
    site = sites.add(
        robots=robots, pages={f"/page{number}": busy for number in range(10)}
    )
    record = Record()

    def all_wait() -> bool:
        return (
            record.engine.spider.crawler.stats.get_value("scheduler/dequeued", 0) == 10
        )

    def stop() -> None:
        middleware: Any = record.engine.spider.crawler.get_downloader_middleware(
            RepMiddleware
        )
        record.close()
        as_soon_as(lambda: is_closing(middleware), busy.open)

    def reached(request: Request) -> None:
        if request.url.endswith("/robots.txt"):
            as_soon_as(all_wait, robots.open)
        else:
            later(0.1, stop)

    record.handlers[scrapy_signals.request_reached_downloader] = reached
    settings = {**HOLD, "JOBDIR": str(tmp_path), "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    result = await record.crawl(urls(site, 10), **settings, _REP_HOLD_GRACE=NEVER)
    assert len(result.responses) == 1
    assert "rep/handed_back" not in result.stats
    assert ask(tmp_path / FILE_NAME, "SELECT count(*) FROM held") == 9
    result = await crawl([], settings)
    assert len(result.responses) == 9
    assert_clean(result)


async def test_waiting_goes_on_in_the_next_run(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts the seconds of all runs, not what lies between them."""
    passed = 0.0
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + passed,
        time=time.time,
        time_ns=time.time_ns,
    )
    monkeypatch.setattr("scrapy_rep.engine.access.time", clock)
    site = sites.add(robots=503)
    settings = {**HOLD, "JOBDIR": str(tmp_path), "REP_RETRY_MAX_DELAY": 0.1}
    record = Record()

    def wait_and_close() -> None:
        nonlocal passed
        passed += 60
        later(0.1, record.close)

    record.on_held = lambda _, count: later(0.1, wait_and_close) if count == 5 else None
    for limit, reason in ((1000, "enough"), (90, "enough"), (50, "finished")):
        result = await record.crawl(
            urls(site, 5) if limit == 1000 else [], **settings, REP_HOLD_MAX_WAIT=limit
        )
        assert result.reason == reason
        assert len(result.failures) == (5 if limit == 50 else 0)
        assert_no_errors(result)
        passed += 1000
        record = Record()
        record.on_resolved = lambda r=record: (
            r.close() if len(r.resolved) == 3 else None
        )


async def test_very_many_that_can_not_be_read_stop_nobody(
    sites: Sites, tmp_path: Path
) -> None:
    """One warning counts them. The event loop gets turns between them."""
    site, hold = sites.add(), opened(tmp_path / FILE_NAME)
    for number in range(120):
        hold.hold(
            f"http://{number}.test" if number < 60 else origin_of(site), held(number)
        )
    hold.hold(origin_of(site), Held(0, 120, 0.0, Request(site.url("/x"))))
    hold.close()
    change(tmp_path / FILE_NAME, "UPDATE held SET request = 5 WHERE id <= 120")
    first = patch.object(
        HeldRequests,
        "read_first",
        autospec=True,
        side_effect=HeldRequests.read_first,
    )
    with first as looks:
        result = await crawl([], {"JOBDIR": str(tmp_path), "REP_DRY_RUN": True})
    assert site.pages_asked == ["/x"]
    [line] = lines(result, "could not be read", level="WARNING")
    assert line.startswith("120 held requests ")
    assert result.stats["rep/held/now"] == 0
    assert looks.call_count > 120


async def test_no_robots_txt_is_asked_for_during_a_pause(
    sites: Sites, tmp_path: Path
) -> None:
    gate = Gate(503, RULES)
    busy, silent = sites.add(robots=gate), sites.add(robots=silence())
    counts: list[list[int]] = []

    def look() -> None:
        counts.append([site.robots_fetches for site in (busy, silent)])

    def pause(spider: Spider, count: int) -> None:
        if count == 30:
            record.engine.pause()
            # What was asked for before ends, or times out, during the pause.
            as_soon_as(lambda: not record.engine.downloader.active, paused)

    def paused() -> None:
        look()
        later(0.4, unpause)  # time for what must not happen during a pause

    def unpause() -> None:
        look()
        gate.open()
        silent.set("/robots.txt", RULES)
        record.engine.unpause()

    record = Record(on_held=pause)
    result = await record.crawl(
        [*urls(busy, 15), *urls(silent, 15)],
        REP_RETRY_MAX_DELAY=0.1,
        _REP_HOLD_GRACE=0.1,
        REP_DOWNLOAD_TIMEOUT=0.25,
        JOBDIR=str(tmp_path),
    )
    assert counts[0] == counts[1]
    assert len(result.responses) == 30
    assert record.dropped == []
    assert_clean(result)


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_an_outage_during_which_all_are_held(sites: Sites) -> None:
    """robots.txt is there once nothing is left to do but wait."""
    gate, told, things = Gate(503, RULES), [], [object(), lambda: None]
    site = sites.add(robots=gate)
    wanted = urls(site, 60)
    requests = [
        Request(url, meta={"a": things}, cb_kwargs={"a": things}) for url in wanted
    ]

    def look(spider: Any, count: int) -> None:
        if count == 60:
            told.extend(spider.crawler.get_downloader_middleware(RepMiddleware).held())

    record = Record(on_held=look)
    with at_line("scrapy_rep.holding", "Nothing left", gate.open) as logged:
        result = await record.crawl(requests)
    with every_row() as row:
        with row("what can't be copied is the same object"):
            for one in result.spider.responses:
                assert one.meta["a"] is one.cb_kwargs["a"] is things
        with row("all are held, and each is fetched once"):
            assert sorted(result.responses) == sorted(record.held) == sorted(wanted)
            assert len(site.pages_asked) == len(set(site.pages_asked)) == 60
            assert record.released == record.held
            assert record.origins == {origin_of(site)}
            assert_nothing_dropped(result, record)
        with row("what is held is counted"):
            assert result.stat("rep/held") == result.stat("rep/released") == 60
            assert (result.stats["rep/held/max"], result.stats["rep/held/now"]) == (
                60,
                0,
            )
            assert await record.concurrency() == [16, 16]
        with row("robots.txt is asked for once a tick of the origin's clock"):
            asked = site.count("/robots.txt")
            assert (
                asked
                == len(record.resolved)
                == result.stat("robotstxt/request_count")
                < 100
            )
            assert [one["attempts"] for one in record.resolved] == [*range(1, asked), 0]
        with row("the log says that the crawl waits"):
            assert len(logged) == 1
            assert re.fullmatch(
                r"Nothing left to do but wait: 60 requests held "
                rf"\(60 to {origin_of(site)}: HTTP 503\); next robots.txt attempt in 0 s, "
                r"giving up in 10 min \(REP_HOLD_MAX_WAIT\)",
                logged[0],
            )
        with row("a console sees what is held"):
            [one] = told
            assert (one["origin"], one["requests"]) == (origin_of(site), 60)
            assert one["error"] == "HTTP 503"
            assert one["attempts"] >= 1 and 0 <= one["held_seconds"] < 60
            assert one["next_attempt_at"].endswith("Z") and one[
                "unreachable_since"
            ].endswith("Z")


async def test_one_line_in_the_log_at_the_beginning_and_one_at_the_end(
    sites: Sites,
) -> None:
    silent = silent_until_open()
    several = [sites.add(robots=in_turn(503, 503, silent)) for _ in range(3)]
    several.append(sites.add(robots=silent))

    def look(*_: object) -> None:
        """Answer when all that is to be said is said: who is answered sooner gets no lines."""
        if len(begun) == len(several) and len(record.held) == 40:
            silent.open()

    record = Record(on_held=look)
    with at_line("scrapy_rep.holding", "Holding requests to", look) as begun:
        result = await record.crawl(
            [url for site in several for url in urls(site, 10)],
            _REP_HOLD_GRACE=0.2,  # a status comes sooner, on slow machines too
        )
    for site in several:
        ours = lines(result, f"equests to {origin_of(site)}")
        assert len(ours) == 2, ours
        why = " until its robots.txt can be fetched"
        if site is several[-1]:  # it has not failed
            why = ": its robots.txt has not answered yet"
        assert ours[0] == f"Holding requests to {origin_of(site)}{why}"
        assert ours[1].startswith(f"Released 10 requests to {origin_of(site)} after")
    assert not lines(result, level="WARNING")
    # Beside these there is the news of the first failure, once an origin that failed.
    idle = lines(result, "Nothing left to do but wait: ")
    assert len(lines(result)) - len(idle) == 4 * 2 + 3
    assert result.stat("rep/held/unreachable") == 30
    assert_clean(result)


@pytest.mark.parametrize(
    ("choice", "robots"), [("drop", 503), ("drop", RULES), ("allow", 503)]
)
async def test_other_policies_and_silence(
    sites: Sites, choice: str, robots: Any
) -> None:
    """They too are held beyond the grace, but only until it is known what came of the request."""
    site = sites.add(robots=after(0.3, robots))
    record = Record()
    result = await crawl(
        urls(site, 30),
        {"REP_UNREACHABLE": choice, "_REP_HOLD_GRACE": 0.1, "REP_RETRY_DELAY": NEVER,
         "REP_RETRY_MAX_DELAY": NEVER},
        signal_handlers=record.handlers,
    )  # fmt: skip
    if robots == RULES or choice == "allow":
        assert len(result.responses) == 30
    else:
        assert result.responses == {}
        assert len(result.failures) == 30
        assert all(
            isinstance(error, RobotsUnreachable) for error in result.failures.values()
        )
    assert site.count("/robots.txt") == 1
    assert record.released == record.held != []
    assert not record.dropped
    assert "rep/given_up" not in result.stats
    assert_clean(result)


# Who waits, and the fetches of robots.txt, leave the download slots to the pages
UNLIMITED = tuple(map(int, scrapy.__version__.split(".")[:2])) >= (2, 19)
"""Whether CONCURRENT_REQUESTS = 0 means no limit; before, nothing was downloaded."""
ROWS = [
    (1, 0),
    (1, NEVER),
    pytest.param(0, 0, marks=pytest.mark.skipif(not UNLIMITED, reason="no 0")),
]


@pytest.mark.loop
@pytest.mark.parametrize(("concurrency", "grace"), ROWS)
async def test_few_slots_and_no_grace(
    sites: Sites, concurrency: int, grace: float
) -> None:
    several = [sites.add(robots=robots) for robots in (RULES, after(0.1, RULES))]
    several.append(sites.add(robots=in_turn(503, after(0.1, 503), RULES)))
    record = Record()
    result = await record.crawl(
        [url for site in several for url in urls(site, 4)],
        REP_RETRY_MAX_DELAY=0.1,
        CONCURRENT_REQUESTS=concurrency,
        _REP_HOLD_GRACE=grace,
    )
    assert len(result.responses) == 12
    assert [site.count("/robots.txt") for site in several] == [1, 1, 3]
    assert await record.concurrency() == [concurrency, concurrency]
    assert_nothing_dropped(result, record)


@pytest.mark.scrapy_api
async def test_silent_sites_leave_the_slots_to_pages(sites: Sites) -> None:
    """The answers come only when all pages of a healthy site have been fetched."""
    robots = silent_until_open()
    silent, healthy = (
        [sites.add(robots=robots) for _ in range(16)],
        sites.add(robots=RULES),
    )
    wanted = urls(healthy, 30)
    record = Record()
    # The first is there so that the healthy one is asked too: 16 fetches are all that may run.
    others = [site.url(path) for path in ("/a", "/b", "/c") for site in silent]
    result = await record.crawl(
        [wanted[0], *others, *wanted[1:]],
        on_page=lambda _: robots.open() if len(healthy.pages_asked) == 30 else None,
        CONCURRENT_REQUESTS=4,
        _REP_HOLD_GRACE=0.1,
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
        sites.add(robots=after(0.02, RULES), pages={"/x": after(0.03, "x")})
        for _ in range(20)
    ]
    record = Record()
    record.handlers |= {
        scrapy_signals.request_reached_downloader: lambda request: change(request, 1),
        scrapy_signals.request_left_downloader: lambda request: change(request, -1),
    }
    result = await record.crawl(
        [site.url("/x") for site in several], CONCURRENT_REQUESTS=2
    )
    assert most == 2
    assert len(result.responses) == 20
    assert_nothing_dropped(result, record)


@pytest.mark.loop
async def test_fetches_at_a_time_are_limited(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A multiple of CONCURRENT_REQUESTS, also where the handler had a pool of that size."""
    monkeypatch.setattr("scrapy_rep.origins.flights._FETCHES_PER_SLOT", 4)
    cap = 8
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
        [site.url("/x") for site in several], CONCURRENT_REQUESTS=2, _REP_HOLD_GRACE=0.1
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
        return int(
            record.engine.spider.crawler.stats.get_value("scheduler/dequeued", 0)
        )

    def look() -> None:
        taken.append(dequeued())
        robots.open()

    record.handlers[scrapy_signals.spider_opened] = lambda spider: (
        record._opened(spider),
        as_soon_as(lambda: dequeued() >= 8, lambda: later(0.1, look)),
    )
    result = await record.crawl(wanted, CONCURRENT_REQUESTS=1, _REP_HOLD_GRACE=NEVER)
    assert taken == [8]
    assert len(result.responses) == 12
    assert record.held == record.released == lines(result) == []
    assert "rep/held/now" not in result.stats
    assert_nothing_dropped(result, record)


async def test_a_released_request_is_next(sites: Sites) -> None:
    """Though pages of another site, which were asked for before, wait in the scheduler."""
    other = sites.add(
        pages={f"/page{number}": after(0.02, "x") for number in range(60)}
    )
    held, record = sites.add(robots=in_turn(503, RULES)).url("/x"), Record()
    reached: list[str] = []
    record.handlers[scrapy_signals.request_reached_downloader] = lambda request: (
        reached.append(request.url)
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
    record.handlers[scrapy_signals.request_reached_downloader] = lambda request: (
        left.append(request.url)
    )
    first = Request(page, meta=meta, priority=9)
    await record.crawl([first, *requests], CONCURRENT_REQUESTS_PER_DOMAIN=1)
    assert [url for url in left if url in urls] == urls[::-1]
