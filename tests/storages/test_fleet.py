"""Several crawls in processes of their own that share a storage: each robots.txt is fetched once
for all of them, and the clock of an unreachable site is one (REP.md sections 2 and 4).

Real processes on a real clock: what one of them waits for here is what another does, in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scrapy_rep import RepMiddleware
from scrapy_rep import signals as rep_signals
from tests.helpers.behaviours import RULES, after, in_turn, silence
from tests.helpers.crawling import crawl
from tests.helpers.held import silent_until_open
from tests.helpers.process.fleet import Fleet, decided, wait_until
from tests.helpers.redisserver import needs_server
from tests.helpers.servers import Site, Sites

pytestmark = pytest.mark.process

PROCESSES = 3
PATHS = ("/", "/private", "/public", "/private/x")

SQLITE = "scrapy_rep.storages.SqliteStorage"
REDIS = "scrapy_rep.storages.RedisStorage"


@pytest.fixture(
    params=[
        pytest.param("sqlite", id="SQLite"),
        pytest.param("redis", id="Redis", marks=needs_server),
    ]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of a storage that processes can share, empty."""
    if request.param == "sqlite":
        return {"REP_CACHE_STORAGE": SQLITE, "REP_CACHE_PATH": tmp_path / "robots.sqlite"}
    return {
        "REP_CACHE_STORAGE": REDIS,
        "REP_CACHE_REDIS_URL": request.getfixturevalue("redis_server").url,
        "REP_CACHE_REDIS_PREFIX": tmp_path.name,
    }


@pytest.fixture
def fleet(tmp_path: Path, storage: dict[str, Any]) -> Iterator[Fleet]:
    one = Fleet(tmp_path, storage)
    yield one
    one.close()


def by_rules(*sites: Site) -> dict[str, list[str]]:
    """What has to become of `PATHS`."""
    both: dict[str, list[str]] = {"page": [], "failed": []}
    for site in sites:
        for path in PATHS:
            both["failed" if "/private" in path else "page"].append(site.url(path))
    return {kind: sorted(urls) for kind, urls in both.items()}


def test_one_fetches_and_the_others_use_its_answer(sites: Sites, fleet: Fleet) -> None:
    """They wait for it as they would for one of their own: in place for the grace, then held. How
    soon they have it, and so what is held for a short grace, is a matter of the machine's speed."""
    gate = silent_until_open(RULES)
    quick, slow = sites.add(robots=RULES), sites.add(robots=gate)
    soon, missing = sites.add(robots=after(0.2, RULES)), sites.add(robots=404)
    with_rules = (quick, soon, slow)
    urls = [site.url(path) for path in PATHS for site in (*with_rules, missing)]
    many: dict[str, Any] = {"CONCURRENT_REQUESTS": 64}
    for reactor in ("asyncio", "select"):
        fleet.add(urls, go="go", reactor=reactor, REP_DEFER_GRACE=60, **many)
    patient, hasty = [*fleet.crawls], fleet.add(urls, go="go", **many)
    fleet.go()
    held = {slow.url(path) for path in PATHS}
    hasty.wait_until(lambda: held <= {*hasty.urls("deferred")}, "the slow ones to be held")
    for one in patient:
        one.wait_for("page", 2 + 2 + 4)  # all but the slow ones
    gate.open()
    fleet.join()

    assert [site.robots_fetches for site in (*with_rules, missing)] == [1, 1, 1, 1]
    assert fleet.sum("robotstxt/request_count") == 4
    assert fleet.sum("rep/cache/recalled") == 4 * (len(fleet.crawls) - 1)
    for one in fleet.crawls:
        assert decided(one, *with_rules) == by_rules(*with_rules)
        assert sorted(decided(one, missing)["page"]) == sorted(map(missing.url, PATHS))
        assert sorted(one.urls("released")) == sorted(one.urls("deferred"))
    assert [one.urls("deferred") for one in patient] == [[], []]
    assert held <= {*hasty.urls("deferred")}


def test_a_process_that_is_killed_while_it_asks_delays_the_others_no_longer_than_a_timeout(
    sites: Sites, fleet: Fleet
) -> None:
    timeout = 3.0
    site = sites.add(robots=in_turn(silence(), RULES))
    urls = list(map(site.url, PATHS))
    killed = fleet.add(urls, go="first", REP_DOWNLOAD_TIMEOUT=timeout)
    others = [fleet.add(urls, go="others") for _ in range(2)]
    fleet.go("first")
    wait_until(lambda: site.robots_fetches == 1, "the first to ask")
    killed.kill()
    at = time.monotonic()
    fleet.crawls.remove(killed)
    fleet.go("others")
    fleet.join()
    assert site.robots_fetches == 2, "one takes its place"
    assert site.hits("/robots.txt")[1].time - at < timeout + 22, "that of the others is 30"
    for one in others:
        assert decided(one, site) == by_rules(site)


def test_a_process_that_is_stopped_while_it_asks_delays_nobody(sites: Sites, fleet: Fleet) -> None:
    site = sites.add(robots=in_turn(silence(), RULES))
    urls = list(map(site.url, PATHS))
    stopped, other = fleet.add(urls, go="first"), fleet.add(urls, go="other")
    fleet.go("first")
    wait_until(lambda: site.robots_fetches == 1, "the first to ask")
    fleet.go("other")
    other.wait_for("deferred", len(PATHS))
    stopped.interrupt()
    at = time.monotonic()
    assert stopped.join().reason == "shutdown"
    other.join()
    assert site.robots_fetches == 2
    assert site.hits("/robots.txt")[1].time - at < 15, "REP_DOWNLOAD_TIMEOUT is 30"
    assert decided(other, site) == by_rules(site)


def test_one_that_waits_for_another_can_be_stopped(sites: Sites, fleet: Fleet) -> None:
    """And leaves nothing behind that the others would have to wait for."""
    gate = silent_until_open(RULES)
    site = sites.add(robots=gate)
    urls = list(map(site.url, PATHS))
    asks, stopped = fleet.add(urls, go="first"), fleet.add(urls, go="other")
    fleet.go("first")
    wait_until(lambda: site.robots_fetches == 1, "the first to ask")
    fleet.go("other")
    stopped.wait_for("deferred", len(PATHS))
    stopped.interrupt()
    assert stopped.join().reason == "shutdown"
    assert site.robots_fetches == 1
    gate.open()
    asks.join()
    late = fleet.add(urls).join()
    assert site.robots_fetches == 1
    for one in (asks, late):
        assert one.reason == "finished"
        assert decided(one, site) == by_rules(site)


def test_one_process_a_tick_asks_an_unreachable_site(sites: Sites, fleet: Fleet) -> None:
    """The clock is the site's: the number of processes makes no difference."""
    delay, ticks = 0.8, 3
    seconds = {sites.add(): 0.0, sites.add(): 0.3}  # until it says that it is down
    for site, needed in seconds.items():
        site.set("/robots.txt", after(needed, 503))
    clock = {"REP_RETRY_DELAY": delay, "REP_RETRY_MAX_DELAY": delay}
    urls = [site.url(path) for site in seconds for path in PATHS]
    for _ in range(PROCESSES):
        fleet.add(urls, go="go", **clock)
    fleet.go()
    for one in fleet.crawls:
        one.wait_for("deferred", len(urls))
    wait_until(lambda: min(site.robots_fetches for site in seconds) >= ticks, f"{ticks} attempts")
    for site in seconds:
        site.set("/robots.txt", RULES)
    fleet.join()

    for site, needed in seconds.items():
        times = [hit.time for hit in site.hits("/robots.txt")]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        # Up to a quarter less by jitter.
        assert min(pauses) > needed + 0.75 * delay - 0.15, pauses
        # Whose turn it is may need a moment to notice. That of a lease would be 30 seconds.
        assert sum(pauses) < len(pauses) * (needed + delay + 10), pauses
    assert fleet.sum("robotstxt/request_count") == sum(site.robots_fetches for site in seconds)
    for one in fleet.crawls:
        assert decided(one, *seconds) == by_rules(*seconds)
        assert sorted(one.urls("released")) == sorted(urls)


def test_one_that_comes_later_goes_by_the_same_clock(sites: Sites, fleet: Fleet) -> None:
    site, delay = sites.add(robots=503), 2
    clock = {"REP_RETRY_DELAY": delay, "REP_RETRY_MAX_DELAY": delay}
    urls = list(map(site.url, PATHS))
    first, second = fleet.add(urls, go="first", **clock), fleet.add(urls, go="second", **clock)
    fleet.go("first")
    first.wait_for("refused")
    fleet.go("second")
    second.wait_for("deferred", len(PATHS))
    site.set("/robots.txt", RULES)
    fleet.join()
    times = [hit.time for hit in site.hits("/robots.txt")]
    # Nobody asked when the second came, or both when it was time.
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.75 * delay - 0.15, times
    for one in fleet.crawls:
        assert decided(one, site) == by_rules(site)


async def test_a_clock_that_is_set_back_does_not_lose_the_next_attempt(
    sites: Sites, storage: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the alarm goes off the storage says "not yet"."""
    site = sites.add(robots=in_turn(503, RULES))
    ahead = [0.0]
    monkeypatch.setattr(RepMiddleware, "clock", staticmethod(lambda: time.time() + ahead[0]))

    def set_back(**_: Any) -> None:
        ahead[0] = -1.0

    settings = {"REP_UNREACHABLE": "defer", "REP_RETRY_DELAY": 0.2, **storage}
    result = await crawl(
        site.url(), settings, signal_handlers={rep_signals.robots_resolved: set_back}
    )
    result.assert_clean()
    assert result.responses == {site.url(): 200}
    assert site.robots_fetches == 2
