"""Crawl delays that processes with one storage keep together (REP.md section 12), in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from scrapy_rep.storages import SqliteStorage, Turn
from tests.helpers.behaviours import after, answer, in_turn, reset
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.files import ask
from tests.helpers.held import NEVER, urls
from tests.helpers.process import Crawl
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Site, Sites
from tests.helpers.storing import in_a_file

DELAY = 0.4
LATE = 0.1
"""Seconds by which an event loop may be late here, where others use the machine."""
EXACT = 0.01
UNTIL = "SELECT until FROM leases WHERE origin = 'turn %s'"
FREE = {"dont_obey_robotstxt": True}


class CountingStorage(SqliteStorage):
    """Counts what it is asked for, and what it gave, by the monotonic clock; may fail."""

    turns: list[list[Turn]] = []
    moments: list[float] = []
    error: Exception | None = None
    # Crawls ask in threads: what another one is given may not come between a turn and its moment.
    one_at_a_time = threading.Lock()

    def turn_many(self, turns: Sequence[Turn]) -> list[float]:
        self.turns.append([*turns])
        if self.error is not None:
            raise self.error
        with self.one_at_a_time:
            waits = super().turn_many(turns)
            for turn in turns:
                following = ask(self._path, UNTIL % turn.origin)
                self.moments.append(
                    following - turn.seconds - time.time() + time.monotonic()
                )
        return waits


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(CountingStorage, "turns", [])
    monkeypatch.setattr(CountingStorage, "moments", [])
    shared = {
        **in_a_file(tmp_path),
        "REP_CACHE_STORAGE": CountingStorage,
        "REP_CRAWL_DELAY": True,
    }
    return {**shared, "CONCURRENT_REQUESTS": 100, "_REP_HOLD_GRACE": NEVER}


def paced(sites: Sites, seconds: float = DELAY, **pages: Any) -> Site:
    return sites.add(robots=f"User-agent: *\nCrawl-delay: {seconds}\n", **pages)


def gaps(site: Site, but: Iterable[str] = (), begin: str = "/") -> list[float]:
    """Seconds between the requests whose paths *begin* so, *but* for some."""
    others = {"/robots.txt", *but}
    hits = [hit for hit in site.requests if hit.path.startswith(begin)]
    times = sorted(hit.time for hit in hits if hit.path not in others)
    return [late - early for early, late in pairwise(times)]


async def together(settings: dict[str, Any], *crawls: list[Any]) -> list[CrawlResult]:
    begun = [deferred_from_coro(crawl(requests, settings)) for requests in crawls]
    return [await maybe_deferred_to_future(one) for one in begun]


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_crawls_with_one_storage_take_turns(
    sites: Sites, settings: dict[str, Any]
) -> None:
    """With one call to the storage for each page; sites without a delay cost none."""
    site, quick = paced(sites), sites.add()
    pages = [site.url(f"/{number}") for number in range(9)]
    shares = [[*pages[start::3], *urls(quick, 3)] for start in range(3)]
    for result in await together(settings, *shares):
        result.assert_clean()
        assert len(result.responses) == 6
        assert result.stat("rep/crawl_delay/alone") == 0
    # Who sends may be late, if others use the machine, but not early.
    times = sorted(hit.time for hit in site.requests if hit.path != "/robots.txt")
    moments = sorted(CountingStorage.moments)
    assert len(times) == len(moments) == 9
    assert min(late - early for early, late in pairwise(moments)) >= DELAY - EXACT
    assert (
        min(late - moment for late, moment in zip(times, moments, strict=True))
        >= -EXACT
    )
    assert sum(gaps(site)) <= 8 * DELAY * 1.1 + 2 * LATE
    asked = [turn for call in CountingStorage.turns for turn in call]
    assert len(CountingStorage.turns) <= len(asked) == 9
    assert {turn.seconds for turn in asked} == {DELAY}


async def test_a_storage_that_fails_leaves_each_its_own_pace(
    sites: Sites, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CountingStorage, "error", OSError("gone"))
    site = paced(sites)
    results = await together(settings, urls(site, 3), urls(site, 3, "/other"))
    for result in results:
        assert len(result.responses) == 3
        assert result.stat("rep/crawl_delay/alone") == 3
        assert "can't be written: OSError: gone" in result.log
    assert len(CountingStorage.turns) == 2  # and not again for ten seconds
    assert sum(gaps(site)) < 5 * DELAY
    for path in ("/page", "/other"):
        assert min(gaps(site, begin=path)) >= DELAY - LATE


async def test_what_fails_or_takes_long_does_not_stop_a_slot(
    sites: Sites, settings: dict[str, Any]
) -> None:
    """A transfer that ends without a response; longer than the delay; requests that obey nothing."""
    site = paced(sites)
    site.pages |= {"/reset": reset(), "/slow": after(2 * DELAY, "slow")}
    some = [
        site.url("/reset"),
        site.url("/slow"),
        Request(site.url("/free"), meta=FREE),
        *urls(site, 2),
    ]
    own = {"RETRY_ENABLED": False}
    [result] = await together({**settings, **own}, some)
    assert set(result.failures) == {site.url("/reset")}
    assert set(result.responses) == {
        site.url("/slow"),
        site.url("/free"),
        *urls(site, 2),
    }
    # Twisted may repeat what was reset by itself, at once.
    assert min(gaps(site, but=["/reset"])) >= DELAY - LATE


async def test_a_delay_that_goes_away_slows_nothing_any_more(
    sites: Sites, settings: dict[str, Any]
) -> None:
    aged = [("Cache-Control", "max-age=0")]
    slow = answer(f"User-agent: *\nCrawl-delay: {DELAY}\n", headers=aged)
    site = sites.add(
        robots=in_turn(slow, answer("User-agent: *\nDisallow: /x\n", headers=aged))
    )

    async def more(spider: Any) -> None:
        for url in urls(site, 6, "/later"):
            spider.crawler.engine.crawl(spider.recorded(Request(url)))

    seen: list[str] = []

    def on_page(spider: Any) -> None:
        seen.append("page")
        if len(seen) == 2:
            deferred_from_coro(more(spider))

    own = {"REP_CACHE_MIN_TTL": 0.0}
    result = await crawl(urls(site, 2), {**settings, **own}, on_page=on_page)
    assert len(result.responses) == 8
    assert sum(gaps(site, begin="/later")) < 5 * DELAY


@pytest.mark.filterwarnings("ignore:.*RANDOMIZE_DOWNLOAD_DELAY")
async def test_a_longer_delay_of_the_projects_own_stays(
    sites: Sites, settings: dict[str, Any]
) -> None:
    site = paced(sites, 0.1)
    own = {"DOWNLOAD_DELAY": DELAY, "RANDOMIZE_DOWNLOAD_DELAY": False}
    [result] = await together({**settings, **own}, urls(site, 3))
    result.assert_clean()
    assert min(gaps(site)) >= DELAY - LATE


async def test_neither_a_dry_run_nor_other_settings_ask_for_turns(
    sites: Sites, settings: dict[str, Any]
) -> None:
    site = paced(sites)
    for own in ({"REP_DRY_RUN": True}, {"REP_CRAWL_DELAY": False}):
        await together({**settings, **own}, urls(site, 3))
    assert CountingStorage.turns == []


@needs_server
@pytest.mark.process
@pytest.mark.slow
def test_a_fleet_keeps_a_delay_though_one_is_killed(
    sites: Sites, tmp_path: Path
) -> None:
    """What it had reserved passes, and nothing else waits for it. Then Redis is restarted, empty."""
    site = paced(sites, 1)
    with RedisServer(tmp_path) as server:
        shared = {
            "REP_CACHE_STORAGE": "scrapy_rep.storages.RedisStorage",
            "REP_CRAWL_DELAY": True,
        }
        shared |= {"REP_CACHE_REDIS_URL": server.url}
        crawls = [
            Crawl(tmp_path / "runs", urls(site, 5, f"/{name}"), shared)
            for name in "abc"
        ]
        try:
            crawls[0].wait_until(lambda: len(site.pages_asked) >= 6, "the first pages")
            crawls[0].kill()
            left = [hit.time for hit in site.requests if hit.path != "/robots.txt"]
            crawls[1].wait_until(
                lambda: len(site.pages_asked) >= len(left) + 3, "pages of the others"
            )
            until = gaps(site)
            server.stop()
            server.start()
            for one in crawls[1:]:
                assert one.join().reason == "finished", one.log
                assert len(one.of("page")) == 5
        finally:
            for one in crawls:
                one.close()
    # Three processes, each of which may be late. Without turns, gaps are a third of a second.
    assert min(until) >= 1 - 3 * LATE
    assert sorted(until)[-2] <= 1 + 3 * LATE
    assert max(until) <= 2 + 3 * LATE
