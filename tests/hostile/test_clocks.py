"""Clocks that jump, and leases without an end. The 30 days of REP.md section 4 are attempts that were
made, spread over that time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scrapy_rep.protocol.freshness import unreachable_seconds
from tests.helpers.crawling import DAY, DOWN, OK, SLOW, Clock, Step, StepSpider, crawl
from tests.helpers.redisserver import RedisServer
from tests.helpers.servers import Sites
from tests.helpers.storing import A, in_a_file
from tests.reporting.report.records import data_of, ended, line, started

LIMIT = 30.0 * DAY


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock().install(monkeypatch)


# -- the 30 days -----------------------------------------------------------------------------


def after(*gaps: float, limit: float = LIMIT) -> float:
    """How long a row of failures counts, with these seconds between them."""
    counted = unreachable_seconds(0.0, 0, 0.0, limit)
    for attempts, gap in enumerate(gaps, 1):
        counted = unreachable_seconds(counted, attempts, gap, limit)
    return counted


@pytest.mark.parametrize(
    ("gaps", "over"),
    [
        ([], False),
        ([31 * DAY], False),
        ([56 * 365 * DAY], False),
        ([1e300] * 3, False),
        ([-1e300, 1e300, -1e300, 1e300], False),
        ([10.0 * DAY] * 4, True),
        ([7.0 * DAY] * 4, False),
        ([7.0 * DAY] * 5, True),
        ([600.0] * 4319, False),
        ([600.0] * 4320, True),
    ],
)
def test_attempts_count_and_not_time(gaps: list[float], over: bool) -> None:
    assert (after(*gaps) >= LIMIT) is over


def test_other_limits_than_30_days() -> None:
    assert after(limit=0.0) >= 0.0, "REP_UNREACHABLE_LIMIT = 0: at once, as ever"
    assert after(9.0, 9.0, 9.0, limit=20.0) < 20.0
    assert after(9.0, 9.0, 9.0, 9.0, limit=20.0) >= 20.0
    assert after(1e9, 1e9, 1e9, 1e9, limit=float("inf")) < float("inf")


def test_a_kept_figure_is_no_evidence_of_its_own() -> None:
    """As large as the attempts that came with it can account for."""
    assert unreachable_seconds(1e12, 2, 0.0, LIMIT) <= LIMIT / 4


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_clock_that_began_in_1970(
    sites: Sites, clock: Clock, tmp_path: Path, runs: int
) -> None:
    """And is set right after three seconds, or in the next run."""
    site = sites.add(robots=503)
    now, clock.now = clock.now, 3.0
    page = site.url("/x")
    steps: list[Step] = [page, lambda: setattr(clock, "now", now), page, 250, page]
    outcomes = []
    for some in [steps] if runs == 1 else [steps[:2], steps[2:]]:
        result = await crawl(StepSpider, {**SLOW, **in_a_file(tmp_path)}, steps=some, clock=clock)
        assert isinstance(result.spider, StepSpider)
        outcomes += result.spider.outcomes
    assert outcomes == [DOWN, DOWN, DOWN]
    assert site.robots_fetches == 3


async def test_weekly_crawls_get_there(sites: Sites, clock: Clock, tmp_path: Path) -> None:
    site, stored = sites.add(robots=503), in_a_file(tmp_path)
    outcomes = []
    for _ in range(6):
        result = await crawl(StepSpider, {**SLOW, **stored}, steps=[site.url("/x")], clock=clock)
        assert isinstance(result.spider, StepSpider)
        outcomes += result.spider.outcomes
        clock.now += 7 * DAY
    assert outcomes == [DOWN] * 5 + [OK]


# -- figures ---------------------------------------------------------------------------------


def test_the_time_line_goes_on() -> None:
    """A clock that is set back by hours: the points stay in order, as the chart wants them."""
    site = "http://a.example"
    held = [line("held", at, site, reason="HTTP 503") for at in (0, 1, -6 * 3600, -6 * 3600 + 5)]
    crawl_data = data_of(started(), *held, ended(2)).crawl
    assert [point.held for point in crawl_data.timeline] == [0, 1, 2, 3, 4, 4]
    times = [point.at for point in crawl_data.timeline[:-1]]
    assert times == sorted(times)
    assert all(0 <= point.x <= 100 for point in crawl_data.timeline)


# -- leases ----------------------------------------------------------------------------------


@pytest.mark.needs_redis
def test_a_lease_of_nobody(redis_server: RedisServer) -> None:
    """A restored dump has lost its end, or its owner's clock had: taken over at once, as nobody else's
    is."""
    import redis

    from scrapy_rep.storages import RedisStorage

    storage = RedisStorage(redis_server.url, "leased", 3600.0)
    client: Any = redis.Redis.from_url(redis_server.url)
    key = f"leased:lease:{A}"
    with client:
        for orphan in (
            lambda: client.rpush(key, "x"),
            lambda: client.set(key, "dead"),
            lambda: client.set(key, "dead", ex=10 * 365 * DAY),
        ):
            orphan()
            assert storage.lease(A, "one", 30)
            assert not storage.lease(A, "two", 30)
            assert not storage.lease(A, "two", 5), "its own may be shorter"
            storage.release(A, "one")
            assert client.get(key) is None, "given back"
    storage.close()
