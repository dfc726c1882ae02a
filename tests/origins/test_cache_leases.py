"""One fetch for the whole fleet: another process has the lease of an origin. It is this test."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from scrapy import signals as scrapy_signals
from scrapy.exceptions import NotSupported

from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.flights import Flight
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.client import Claim
from tests.helpers.behaviours import RULES, after
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER, NEVER, Record, assert_clean, later, origin_of
from tests.helpers.servers import Sites
from tests.helpers.storing import in_a_file, open_, rules

# Seconds. Longer than these crawls take, and a lease that may well be.
LEASE = 60.0


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Settings. That the storages lease alike is for tests/storages."""
    return in_a_file(tmp_path)


@pytest.mark.loop
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
        handlers[scrapy_signals.spider_opened] = lambda: later(0.2, answers)
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
        while not other.lease(origin, "other", 0.3 if dies else LEASE):
            assert time.monotonic() < until
            time.sleep(0.001)  # what was heard is being written down, in a thread
        leased.append(True)
        site.set("/robots.txt", RULES)
        if not dies:
            later(0.3, answers)

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


async def test_a_process_that_stops_leaves_no_lease(sites: Sites, stored: dict[str, Any]) -> None:
    """Ctrl-C in the middle of a fetch: the next process asks at once."""
    site, other, record = sites.add(robots=after(NEVER, RULES)), open_(stored), Record()
    record.on_deferred = lambda spider, count: record.close()
    result = await crawl(site.url("/x"), {**stored, **DEFER}, signal_handlers=record.handlers)
    assert result.reason == "enough"
    assert other.lease(origin_of(site), "me", NEVER)
    other.close()


async def test_a_fetch_that_the_project_prevents_gives_its_lease_back() -> None:
    given_back: list[str] = []

    class Nothing:
        """A storage without entries, and a fetcher whose project has no handler."""

        async def claim(self, origin: str, is_enough: Any) -> Claim:
            return Claim(None, granted=True)

        async def fetch(self, origin: Any, like: Any) -> None:
            raise NotSupported("no handler")

        def give_back(self, origin: str) -> None:
            given_back.append(origin)

    nothing: Any = Nothing()
    cache = RobotsCache(RepSettings(), OriginTable(9, 9), nothing, time.time, nothing)
    with pytest.raises(NotSupported):
        await cache.ask(Flight(Origin("http", "a.example", 80), None))
    assert given_back == ["http://a.example"]
