"""One fetch for the whole fleet: another process has the lease of an origin. It is this test."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from scrapy import signals as scrapy_signals

from scrapy_rep import RepMiddleware
from tests.helpers.behaviours import RULES, after, in_turn
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER, NEVER, Record, assert_clean, later, origin_of
from tests.helpers.redisserver import needs_server
from tests.helpers.servers import Sites
from tests.helpers.storing import in_a_file, on_a_server, open_, rules

pytestmark = pytest.mark.loop

# Seconds. Longer than these crawls take, and a lease that may well be.
LEASE = 60.0


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_server)])
def stored(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Settings: each of the storages that several processes share."""
    monkeypatch.chdir(tmp_path)
    if request.param == "redis":
        return on_a_server(request.getfixturevalue("redis_server").url, tmp_path.name)
    return in_a_file(tmp_path)


@pytest.mark.parametrize("grace", [0.05, 30.0], ids=["held", "in place"])
async def test_another_process_asks(sites: Sites, stored: dict[str, Any], grace: float) -> None:
    """Its answer is used as soon as it is there."""
    site, record, other = sites.add(robots=404), Record(), open_(stored)
    origin = origin_of(site)
    assert other.lease(origin, "other", LEASE)

    def answers() -> None:
        other.save(rules(origin, at=time.time()))
        other.release(origin, "other")

    urls = [site.url("/private"), site.url("/x")]
    handlers = record.handlers
    if grace < 1:
        record.on_deferred = lambda _, count: later(0.1, answers) if count == 2 else None
    else:
        handlers[scrapy_signals.spider_opened] = lambda: later(0.4, answers)
    result = await crawl(
        urls,
        {**stored, **DEFER, "REP_DEFER_GRACE": grace},
        signal_handlers=handlers,
    )
    assert_clean(result)
    other.close()
    assert result.responses == {urls[1]: 200}
    assert list(result.failures) == [urls[0]]
    assert site.count("/robots.txt") == 0
    assert sorted(record.released) == (sorted(urls) if grace < 1 else [])
    assert result.stat("rep/cache/recalled") == 1


async def test_the_other_process_is_dead(sites: Sites, stored: dict[str, Any]) -> None:
    """Nobody waits for longer than its lease lasts, though it had renewed it: else this crawl would
    never end."""
    site, other = sites.add(robots=RULES), open_(stored)
    assert other.lease(origin_of(site), "dead", 0.4)
    settings = {**stored, **DEFER, "REP_DOWNLOAD_TIMEOUT": NEVER}
    result = await crawl([site.url("/private"), site.url("/x")], settings)
    assert_clean(result)
    other.close()
    assert result.responses == {site.url("/x"): 200}
    assert site.count("/robots.txt") == 1


@pytest.mark.parametrize("dies", [False, True], ids=["answers", "dies"])
async def test_another_process_has_the_next_tick(
    sites: Sites, stored: dict[str, Any], dies: bool
) -> None:
    """An unreachable site is asked by one process a tick: the second waits for what the
    first hears, and asks itself if that is nothing."""
    site, other = sites.add(robots=503), open_(stored)
    origin = origin_of(site)
    record = Record()
    leased: list[bool] = []

    def answers() -> None:
        other.save(rules(origin, at=time.time()))
        other.release(origin, "other")

    def take_the_lease() -> None:
        if leased:
            return
        until = time.monotonic() + LEASE
        while not other.lease(origin, "other", 0.5 if dies else LEASE):
            assert time.monotonic() < until
            time.sleep(0.001)  # what was heard is being written down, in a thread
        leased.append(True)
        site.set("/robots.txt", RULES)
        if not dies:
            later(0.6, answers)

    record.on_resolved = take_the_lease
    urls = [site.url("/private"), site.url("/x")]
    result = await crawl(urls, {**stored, **DEFER}, signal_handlers=record.handlers)
    assert_clean(result)
    other.close()
    assert result.responses == {urls[1]: 200}
    assert list(result.failures) == [urls[0]]
    assert site.count("/robots.txt") == (2 if dies else 1)
    # Once: it waits, and does not look up the same again and again.
    assert result.stat("rep/cache/recalled") == (0 if dies else 1)


async def test_a_clock_that_is_set_back(
    sites: Sites, stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the crawl thinks that it is time to ask again, it isn't by what the storage has: that
    is no reason never to ask again."""
    site, record = sites.add(robots=in_turn(503, RULES)), Record()
    behind = 0.0
    monkeypatch.setattr(RepMiddleware, "clock", staticmethod(lambda: time.time() - behind))

    def set_back() -> None:
        nonlocal behind
        behind = 0.5

    record.on_resolved = lambda: later(0.05, set_back)
    settings = {**stored, **DEFER, "REP_RETRY_DELAY": 0.4, "REP_DEFER_MAX_WAIT": 10.0}
    result = await crawl(site.url("/x"), settings, signal_handlers=record.handlers)
    assert_clean(result)
    assert result.responses == {site.url("/x"): 200}
    assert site.count("/robots.txt") == 2


async def test_a_process_that_stops_leaves_no_lease(sites: Sites, stored: dict[str, Any]) -> None:
    """Ctrl-C in the middle of a fetch: the next process asks at once."""
    site, other, record = sites.add(robots=after(NEVER, RULES)), open_(stored), Record()
    record.on_deferred = lambda spider, count: record.close()
    result = await crawl(site.url("/x"), {**stored, **DEFER}, signal_handlers=record.handlers)
    assert result.reason == "enough"
    assert other.lease(origin_of(site), "me", NEVER)
    other.close()
