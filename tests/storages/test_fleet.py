"""Crawls that share a storage: one fetch of each robots.txt, one clock (REP.md sections 2, 4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep import RepMiddleware
from scrapy_rep import signals as rep_signals
from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.behaviours import RULES, in_turn, silence
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import HOLD, Record, a_while, silent_until_open, urls
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Crawl
from tests.helpers.redisserver import fleet_settings, needs_scrapy_redis, needs_server
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import in_a_file

PATHS = ("/", "/private", "/public", "/private/x")


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if not hasattr(request, "param"):
        return in_a_file(tmp_path)
    shared = fleet_settings(request.getfixturevalue("redis_server"))
    return {**shared, "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage"}


class Fleet:
    def __init__(self, folder: Path, storage: Mapping[str, Any]) -> None:
        self._folder = folder
        self._storage = storage
        self.crawls: list[Crawl] = []

    def add(
        self,
        urls: list[str],
        *,
        reactor: str = "asyncio",
        ends: str = "",
        **settings: Any,
    ) -> Crawl:
        """:param GO: whether the crawl begins when :meth:`go` says it"""
        go = str(self._folder / "go") if settings.pop("GO", False) else ""
        settings = {"_REP_HOLD_GRACE": 0.5, **self._storage, **settings}
        folder = self._folder / "runs"
        self.crawls.append(
            Crawl(folder, urls, settings, reactor=reactor, ends=ends, go=go)
        )
        return self.crawls[-1]

    def go(self) -> None:
        """Let those begin that wait for it, when all are ready."""
        for one in self.crawls:
            one.wait_for("opened")
        (self._folder / "go").touch()

    def join(self) -> None:
        for one in self.crawls:
            assert one.join().reason == "finished", one.log
            one.assert_clean()


@pytest.fixture
def fleet(tmp_path: Path, storage: dict[str, Any]) -> Iterator[Fleet]:
    one = Fleet(tmp_path, storage)
    yield one
    for each in one.crawls:
        each.close()


@pytest.mark.process
def test_one_process_fetches_and_the_others_use_its_answer(
    sites: Sites, fleet: Fleet
) -> None:
    """They wait for it as they would for one of their own: in place for the grace, then held."""
    gate = silent_until_open(RULES)
    quick, slow, missing = (
        sites.add(robots=RULES),
        sites.add(robots=gate),
        sites.add(robots=404),
    )
    wanted = [site.url(path) for path in PATHS for site in (quick, slow, missing)]
    many: dict[str, Any] = {"CONCURRENT_REQUESTS": 64, "GO": True}
    patient = fleet.add(wanted, reactor="select", _REP_HOLD_GRACE=60, **many)
    hasty = fleet.add(wanted, **many)
    fleet.go()
    held = {slow.url(path) for path in PATHS}
    hasty.wait_until(lambda: held <= {*hasty.urls("held")}, "the slow ones to be held")
    patient.wait_for("page", 2 + 4)  # all but the slow ones
    gate.open()
    fleet.join()
    assert [site.robots_fetches for site in (quick, slow, missing)] == [1, 1, 1]
    for stat in ("robotstxt/request_count", "rep/cache/recalled"):
        assert sum(int(one.stats.get(stat, 0)) for one in fleet.crawls) == 3
    forbidden = {
        site.url(path) for site in (quick, slow) for path in PATHS if not allowed(path)
    }
    for one in fleet.crawls:
        assert sorted(one.urls("failed")) == sorted(forbidden)
        assert sorted(one.urls("page")) == sorted({*wanted} - forbidden)
        assert sorted(one.urls("released")) == sorted(one.urls("held"))
    assert patient.urls("held") == []


def allowed(path: str) -> bool:
    return "/private" not in path


@pytest.mark.process
async def test_a_process_that_is_killed_while_it_asks_delays_others_no_longer_than_its_timeout(
    sites: Sites, fleet: Fleet, storage: dict[str, Any]
) -> None:
    site = sites.add(robots=in_turn(silence(), RULES))
    killed = fleet.add([site.url("/")], REP_DOWNLOAD_TIMEOUT=2)
    killed.wait_until(lambda: site.robots_fetches == 1, "the first to ask")
    killed.kill()
    at = time.monotonic()
    assert_by_rules(
        await maybe_deferred_to_future(begun(site, storage, REP_DOWNLOAD_TIMEOUT=60)),
        site,
    )
    assert site.robots_fetches == 2, "one takes its place"
    assert site.hits("/robots.txt")[1].time - at < 2 + 22, "that of the other is 60"


@needs_scrapy_redis
@pytest.mark.process
@needs_server
@pytest.mark.parametrize("storage", ["scrapy-redis"], indirect=True)
def test_a_kill_in_the_middle_of_a_release_loses_nothing(
    sites: Sites, fleet: Fleet, tmp_path: Path
) -> None:
    """With one queue for all: what was released stays in the JOBDIR until it is dealt with."""
    site, job = sites.add(robots=503), {"JOBDIR": tmp_path / "job"}
    pages = urls(site, 10)
    # Who is killed may be asking at that moment.
    killed = fleet.add(pages, **job, ends="SIGKILL released 4", REP_DOWNLOAD_TIMEOUT=2)
    killed.wait_for("held", len(pages))
    site.set("/robots.txt", RULES)
    killed.join()
    assert killed.reason is None
    fleet.crawls.remove(killed)
    before = len(site.pages_asked)
    again = fleet.add([], **job)
    fleet.join()
    assert {site.url(path) for path in site.pages_asked} == set(pages)
    assert len(site.pages_asked) <= len(pages) + before
    assert {page.detail for page in again.of("page")} == {PAGE_AS_EVER}


def begun(
    site: Site, storage: dict[str, Any], record: Record | None = None, **settings: Any
) -> Deferred[CrawlResult]:
    settings = {**HOLD, "_REP_HOLD_GRACE": 0.01, **storage, **settings}
    handlers = record.handlers if record else {}
    return deferred_from_coro(
        crawl(map(site.url, PATHS), settings, signal_handlers=handlers)
    )


def assert_by_rules(result: CrawlResult, site: Site) -> None:
    result.assert_clean()
    assert set(result.responses) == {site.url(path) for path in PATHS if allowed(path)}
    assert set(result.failures) == {
        site.url(path) for path in PATHS if not allowed(path)
    }
    assert {type(error) for error in result.failures.values()} == {RobotsDisallowed}


async def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        await a_while(0.01)


@pytest.mark.loop
async def test_one_that_waits_for_another_can_be_stopped(
    sites: Sites, storage: dict[str, Any]
) -> None:
    """And leaves nothing behind that the others would have to wait for."""
    gate, stopped = silent_until_open(RULES), Record()
    site = sites.add(robots=gate)
    asks = begun(site, storage)
    await until(lambda: site.robots_fetches)
    waits = begun(site, storage, stopped)
    await until(lambda: len(stopped.held) == len(PATHS))
    stopped.close()
    assert (await maybe_deferred_to_future(waits)).reason == "enough"
    gate.open()
    assert_by_rules(await maybe_deferred_to_future(asks), site)
    assert_by_rules(await maybe_deferred_to_future(begun(site, storage)), site)
    assert site.robots_fetches == 1


async def test_a_clock_that_is_set_back_does_not_lose_the_next_attempt(
    sites: Sites, storage: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the alarm goes off the storage says "not yet"."""
    site = sites.add(robots=in_turn(503, RULES))
    ahead = [0.0]
    monkeypatch.setattr(
        RepMiddleware, "clock", staticmethod(lambda: time.time() + ahead[0])
    )

    def set_back(**_: Any) -> None:
        ahead[0] = -0.5

    settings = {**HOLD, "REP_RETRY_DELAY": 0.2, **storage}
    result = await crawl(
        site.url(), settings, signal_handlers={rep_signals.robots_resolved: set_back}
    )
    result.assert_clean()
    assert result.responses == {site.url(): 200}
    assert site.robots_fetches == 2
