"""With JOBDIR each listed page is fetched once after a stop, and at least once after `kill -9`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import signals
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.holding.disk import FILE_NAME as HELD
from scrapy_rep.origins.targets import Targets
from scrapy_rep.seeding.spool import FILE_NAME
from tests.helpers.behaviours import RULES, after, in_turn, redirect, reset, silence
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.files import ask
from tests.helpers.held import HOLD, Record, later
from tests.helpers.log import lines
from tests.helpers.process import Crawl, needs_reactorless
from tests.helpers.redisserver import (
    RedisServer,
    fleet_settings,
    needs_scrapy_redis,
    needs_server,
)
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, lists, urlset
from tests.holding.schedulers import FourMethods
from tests.seeding.listed import Listed

pytestmark = pytest.mark.slow


def left(folder: Path) -> int:
    return int(ask(folder / "job" / FILE_NAME, "SELECT count(*) FROM pages"))


@pytest.mark.process
@needs_reactorless
def test_after_stops_the_next_run_goes_on(sites: Sites, tmp_path: Path) -> None:
    """Nothing is lost or fetched twice. A run after the end finds all of it done."""
    listed, runs = Listed(sites), []
    for moment, reactor in (
        ("page 1", "asyncio"),
        ("page 30", "select"),
        ("page 20", "none"),
    ):
        runs.append(listed.start(tmp_path, f"SIGINT {moment}", reactor).join())
        assert runs[-1].reason == "shutdown"
    for _ in range(2):
        runs.append(listed.start(tmp_path).join())
        assert runs[-1].reason == "finished"
        assert left(tmp_path) == 0
        assert runs[-1].stats["rep/sitemaps/waiting"] == "0"
    listed.check(runs)
    assert [listed.site.count(path) for path in ("/index.xml", "/0.xml")] == [1, 1]


@pytest.mark.process
def test_a_kill_loses_no_page_that_is_held_in_memory(
    sites: Sites, tmp_path: Path
) -> None:
    """The hold's file can't be opened, so the sitemaps' has to keep them."""
    obstacle = tmp_path / "job" / HELD
    obstacle.mkdir(parents=True)
    site, other = lists(sites.add(), "/map.xml"), sites.add(robots=503)
    wanted = [other.url(f"/{number}") for number in range(10, 35)]
    site.set("/map.xml", urlset(wanted))
    settings = {
        "REP_SITEMAPS": True,
        "REP_SITEMAP_CROSS_HOST": "any",
        "JOBDIR": tmp_path / "job",
    }
    settings |= {"_REP_HOLD_GRACE": 0}  # held one by one
    starts = [site.url("/start")]
    Crawl(tmp_path, starts, settings, ends="SIGKILL refused 5", seeded="yes").join()
    assert left(tmp_path) == len(wanted)
    other.set("/robots.txt", RULES)
    obstacle.rmdir()
    assert Crawl(tmp_path, starts, settings, seeded="yes").join().reason == "finished"
    assert sorted(map(other.url, other.pages_asked)) == wanted


@pytest.mark.process
@pytest.mark.scrapy_api
def test_kills_and_stops_by_turns_lose_no_page(sites: Sites, tmp_path: Path) -> None:
    """Each run begins with pages held: robots.txt answers long after _REP_HOLD_GRACE."""
    listed = Listed(sites, robots_seconds=0.2)
    ends = [
        "SIGKILL downloaded 2",
        "SIGKILL reached 4",
        "SIGINT page 1",
        "SIGKILL left 90",
    ]
    runs = [listed.start(tmp_path, end).join() for end in [*ends, "SIGINT page 40", ""]]
    assert [run.reason for run in runs] == [
        None,
        None,
        "shutdown",
        None,
        "shutdown",
        "finished",
    ]
    listed.check(runs)
    assert left(tmp_path) == 0


@pytest.mark.process
@pytest.mark.parametrize("how", ["retry", "redirect"])
def test_a_kill_loses_no_page_on_a_second_way(
    sites: Sites, tmp_path: Path, how: str
) -> None:
    """One that is to be retried, or redirected, has another request; the first one has ended."""
    site, count = lists(sites.add(), "/map.xml"), 60
    wanted = [site.url(f"/{number}") for number in range(10, 10 + count)]
    site.set("/map.xml", urlset(wanted))
    for number in range(10, 10 + count):
        first = redirect(f"/target/{number}") if how == "redirect" else 503
        site.set(f"/{number}", first)
        site.set(f"/target/{number}", silence())
    settings = {"REP_SITEMAPS": True, "JOBDIR": tmp_path / "job"}
    settings |= {"RETRY_PRIORITY_ADJUST": -5, "REDIRECT_PRIORITY_ADJUST": -5}
    starts = [site.url("/start")]
    # The start page, the sitemap, all pages once, and most of them on their second way.
    ends = f"SIGKILL reached {2 + count + 5}"
    first_run = Crawl(tmp_path, starts, settings, ends=ends, seeded="yes").join()
    assert first_run.reason is None
    assert left(tmp_path) == count
    for number in range(10, 10 + count):
        site.set(f"/{number}", "page")
    assert Crawl(tmp_path, starts, settings, seeded="yes").join().reason == "finished"
    assert left(tmp_path) == 0
    assert {*wanted} <= set(map(site.url, site.pages_asked))


@pytest.mark.parametrize("where", ["held", "at the gate", "handed back"])
async def test_pages_that_wait_for_their_robots_txt_at_a_stop(
    sites: Sites, tmp_path: Path, where: str
) -> None:
    """The hold has them, or Scrapy's own queue, so the spool has them no longer; or the spool has them
    alone. Each is requested once."""
    held, obstacle = where == "held", tmp_path / "job" / HELD
    if where == "handed back":
        obstacle.mkdir(parents=True)  # so the hold can't be opened
    site, other = (
        lists(sites.add(), "/map.xml"),
        sites.add(robots=503 if held else silence()),
    )
    wanted = [other.url(f"/{number}") for number in range(5)]
    site.set("/map.xml", urlset(wanted))
    record = Record(
        on_held=lambda spider, count: count == len(wanted) and record.close()
    )
    if not held:
        # Time for the last one to reach the gate, where no event tells of it.
        record.handlers[signals.request_scheduled] = lambda request: (
            request.url == wanted[-1] and later(0.2, record.close)
        )
    settings = {**HOLD, "REP_SITEMAPS": True, "REP_SITEMAP_CROSS_HOST": "any"}
    settings |= {"_REP_HOLD_GRACE": 0 if held else 60, "JOBDIR": str(tmp_path / "job")}
    starts = [site.url("/start")]
    first = await crawl(
        SeededSpider, settings, requests=starts, signal_handlers=record.handlers
    )
    assert first.stat("rep/sitemaps/emitted") == len(wanted)
    assert left(tmp_path) == (len(wanted) if where == "handed back" else 0)
    other.set("/robots.txt", RULES)
    if where == "handed back":
        obstacle.rmdir()
    await crawl(SeededSpider, settings, requests=[])
    assert sorted(map(other.url, other.pages_asked)) == wanted


async def test_a_stop_during_its_check_doubles_no_sitemap(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes as long as the name server of the sitemap's host."""
    site, record, over = lists(sites.add(), "/map.xml"), Record(), Deferred[None]()
    site.set("/map.xml", urlset([site.url("/1")]))

    async def refuses(self: Targets, *_: Any) -> bool:
        later(0.1, record.close)
        await maybe_deferred_to_future(over)
        return False

    record.handlers[signals.spider_closed] = lambda: over.callback(None)
    settings = {"REP_SITEMAPS": True, "JOBDIR": str(tmp_path)}
    with monkeypatch.context() as patch:
        patch.setattr(Targets, "refuses", refuses)
        await record.crawl(SeededSpider, requests=[site.url("/start")], **settings)
    assert site.count("/map.xml") == 0
    await crawl(SeededSpider, settings, requests=[])
    assert (site.count("/map.xml"), site.count("/1")) == (1, 1)


async def run(site: Site, tmp_path: Path, **settings: Any) -> CrawlResult:
    starts = [site.url("/start")]
    settings = {"REP_SITEMAPS": True, "JOBDIR": str(tmp_path / "job"), **settings}
    return await crawl(SeededSpider, settings, requests=starts)


async def test_a_sitemap_whose_host_was_down_is_read_by_the_next_run(
    sites: Sites, tmp_path: Path
) -> None:
    """It was given up. Nothing is left of it afterwards."""
    site, maps = sites.add(), sites.add(robots=503)
    wanted = [site.url(f"/{number}") for number in range(5)]
    site.set("/robots.txt", f"Sitemap: {maps.url('/map.xml')}\n")
    maps.set("/map.xml", urlset(wanted))
    first = await run(site, tmp_path, **HOLD, REP_HOLD_MAX_WAIT=0.3, _REP_HOLD_GRACE=0)
    assert first.stat("rep/given_up") == 1
    assert first.stat("rep/sitemaps/failed") == 1
    maps.set("/robots.txt", RULES)
    second = await run(site, tmp_path)
    assert sorted(map(site.url, site.pages_asked)) == sorted(
        [*wanted, site.url("/start")]
    )
    assert second.stat("rep/sitemaps/fetched") == 1
    await run(site, tmp_path)
    assert maps.count("/map.xml") == 1


# What a sitemap's host does, and how often it is asked in three runs, until it answers.
FAILS: dict[str, tuple[Any, int]] = {
    "503": (503, 2),
    "429": (429, 2),
    "reset": (reset(), 2),
    "a redirect loop": (redirect("/map.xml"), 2),
    "404": (404, 1),
    "no sitemap": ("<html>", 1),
}


async def test_what_fails_for_a_while_is_asked_for_by_the_next_run(
    sites: Sites, tmp_path: Path
) -> None:
    """What is missing, or none, is not."""
    table = {name: lists(sites.add(), "/map.xml") for name in FAILS}
    for name, site in table.items():
        site.set("/map.xml", FAILS[name][0])
    settings = {
        "REP_SITEMAPS": True,
        "JOBDIR": str(tmp_path / "job"),
        "RETRY_ENABLED": False,
    }
    settings["REDIRECT_MAX_TIMES"] = 0
    starts = [site.url("/start") for site in table.values()]
    await crawl(SeededSpider, settings, requests=starts)
    for site in table.values():
        site.set("/map.xml", urlset([site.url("/page")]))
    for _ in range(2):
        await crawl(SeededSpider, settings, requests=[])
    with every_row() as row:
        for name, site in table.items():
            with row(name):
                times = FAILS[name][1]
                assert site.count("/map.xml") == times
                assert site.count("/page") == times - 1


async def test_a_sitemap_that_is_held_at_a_stop_is_requested_once(
    sites: Sites, tmp_path: Path
) -> None:
    site, maps = sites.add(), sites.add(robots=503)
    site.set("/robots.txt", f"Sitemap: {maps.url('/map.xml')}\n")
    maps.set("/map.xml", urlset([site.url("/page")]))
    held = maps.url("/map.xml")
    record = Record(
        on_held=lambda *_: record.held[-1] == held and later(0.1, record.close)
    )
    settings = {**HOLD, "REP_SITEMAPS": True, "JOBDIR": str(tmp_path / "job")}
    settings |= {"_REP_HOLD_GRACE": 0}
    starts = [site.url("/start")]
    first = await crawl(
        SeededSpider, settings, requests=starts, signal_handlers=record.handlers
    )
    assert first.reason == "enough"
    assert ask(tmp_path / "job" / HELD, "SELECT count(*) FROM held") == 0
    maps.set("/robots.txt", RULES)
    await run(site, tmp_path)
    assert (maps.count("/map.xml"), site.count("/page")) == (1, 1)


@pytest.mark.loop
@pytest.mark.parametrize("answers", ["at once", "at the second time"])
async def test_a_sitemap_on_its_way_at_a_stop_is_read(
    sites: Sites, tmp_path: Path, answers: str
) -> None:
    """Scrapy waits for it, so the next run need not ask for it again. One that has to be retried, which
    Scrapy's queue keeps, is requested once by the next run."""
    site, record = lists(sites.add(), "/map.xml"), Record()
    wanted = [site.url(f"/{number}") for number in range(5)]
    good = after(0.3, urlset(wanted))
    is_late = answers != "at once"
    site.set("/map.xml", in_turn(after(0.3, 503), good) if is_late else good)
    record.handlers[signals.request_reached_downloader] = lambda request: (
        request.url == site.url("/map.xml") and later(0.1, record.close)
    )
    settings = {"REP_SITEMAPS": True, "JOBDIR": str(tmp_path / "job")}
    starts = [site.url("/start")]
    first = await crawl(
        SeededSpider, settings, requests=starts, signal_handlers=record.handlers
    )
    assert first.reason == "enough"
    assert site.count("/map.xml") == 1
    assert left(tmp_path) == (0 if is_late else 5)
    second = await run(site, tmp_path)
    assert site.count("/map.xml") == 1 + is_late
    assert [site.count(f"/{number}") for number in range(5)] == [1] * 5
    assert lines(second, level="WARNING") == []


async def test_pages_given_up_in_memory_are_for_the_next_run(
    sites: Sites, tmp_path: Path
) -> None:
    """As are those that the hold has on disk: its file can't be opened here, so the sitemaps' keeps them."""
    (tmp_path / "job" / HELD).mkdir(parents=True)
    site, other = lists(sites.add(), "/map.xml"), sites.add(robots=503)
    site.set("/map.xml", urlset([other.url(f"/{number}") for number in range(5)]))
    settings = {**HOLD, "REP_SITEMAPS": True, "REP_SITEMAP_CROSS_HOST": "any"}
    settings |= {"REP_HOLD_MAX_WAIT": 0.2, "JOBDIR": str(tmp_path / "job")}
    result = await crawl(SeededSpider, settings, requests=[site.url("/start")])
    assert result.stat("rep/given_up") == left(tmp_path) == 5


async def test_pages_that_another_scheduler_keeps_have_no_rows(
    sites: Sites, tmp_path: Path
) -> None:
    """After a kill, the next run would hand them to it once more."""
    site, rows = lists(sites.add(), "/map.xml"), []
    wanted = [site.url(f"/{number}") for number in range(5)]
    site.set("/map.xml", urlset(wanted))

    def received(response: Response) -> None:
        if response.url in wanted:
            rows.append(left(tmp_path))

    settings = {
        "REP_SITEMAPS": True,
        "JOBDIR": str(tmp_path / "job"),
        "SCHEDULER": FourMethods,
    }
    handlers = {signals.response_received: received}
    starts = [site.url("/start")]
    await crawl(SeededSpider, settings, requests=starts, signal_handlers=handlers)
    assert rows == [0] * len(wanted)


async def test_without_jobdir_nothing_is_left(sites: Sites) -> None:
    listed = Listed(sites, 0)
    settings = {**Listed.SETTINGS, "CLOSESPIDER_PAGECOUNT": 20}
    result = await crawl(SeededSpider, settings, requests=[listed.site.url("/start")])
    assert result.reason == "closespider_pagecount"
    assert len(lines(result, "not requested", "the crawl is closing")) == 1


@pytest.fixture
def start(redis_server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    crawls: list[Crawl] = []
    settings = {**Listed.SETTINGS, **fleet_settings(redis_server)}

    def one(listed: Listed, ends: str = "") -> Crawl:
        urls = [listed.site.url("/start")]
        crawls.append(Crawl(tmp_path / "runs", urls, settings, ends=ends, seeded="yes"))
        return crawls[-1]

    yield one
    for started in crawls:
        started.close()


@pytest.mark.process
@needs_scrapy_redis
@needs_server
@pytest.mark.parametrize("ends", ["SIGINT page 30", ""], ids=["goes on", "shares"])
def test_another_process_of_a_fleet(
    sites: Sites, start: Callable[..., Crawl], ends: str
) -> None:
    """It takes over what waits on disk; or the shared dupe filter gives each page to one."""
    listed = Listed(sites)
    first = start(listed, ends)
    if ends:
        first.join()
    runs = [first, start(listed).join()]
    assert [run.join().reason for run in runs] == [
        "shutdown" if ends else "finished",
        "finished",
    ]
    listed.check(runs)
    assert listed.site.count("/index.xml") == 1
