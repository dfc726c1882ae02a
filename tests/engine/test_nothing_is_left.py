"""After many crawls in one process with every feature enabled, nothing a crawl created is left."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from scrapy import signals
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed
from twisted.internet.defer import Deferred

from scrapy_rep import signals as rep_signals
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.targets import _update_resolvers
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import AGENT, ListSpider, new_runner
from tests.helpers.held import HOLD, Gate, a_while, later
from tests.helpers.names import resolvers
from tests.helpers.recorded import decisions
from tests.helpers.redisserver import RedisServer, needs_server
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import urlset

pytestmark = [pytest.mark.loop, pytest.mark.slow]
CRAWLS = 8
STOPPED, WRONG, REFUSED = 3, 6, 7
"""One is stopped while it holds requests, one has a wrong setting, in one a middleware raises."""
STORAGES = ("Memory", "Sqlite", "Redis")
ROBOTS = f"""User-agent: {AGENT}
Disallow: /private
Crawl-delay: 0.01
Content-Usage: /no/ train-ai=n
"""


class Refuses:
    def __init__(self) -> None:
        raise ValueError("no")


class CrawledPlaces(NamedTuple):
    """What is crawled, and where the crawls keep what they keep."""

    site: Site
    held: list[Site]
    """One for each crawl: its robots.txt fails until a request is held."""
    folder: Path
    redis: str

    def settings(self, number: int) -> dict[str, Any]:
        crawl = self.folder / str(number)
        # The next one goes on with what a stopped one has left.
        job = STOPPED if number == STOPPED + 1 else number
        return {
            **HOLD,
            "REP_CRAWL_DELAY": True,
            "REP_SITEMAPS": "start",
            "REP_USAGE": {"train-ai": "drop-items"},
            "REP_CACHE_STORAGE": f"scrapy_rep.storages.{STORAGES[number % 3]}Storage",
            "REP_CACHE_PATH": str(self.folder / "cache.sqlite"),
            "REP_CACHE_REDIS_URL": self.redis,
            "REP_DECISIONS": f"{crawl}.jsonl",
            "REP_REPORT": f"{crawl}.html",
            "JOBDIR": str(self.folder / f"job-{job}")
            if number % 2 or job != number
            else None,
            **({"REP_CRAWL_DELAY": "slowly"} if number == WRONG else {}),
            **({"DOWNLOADER_MIDDLEWARES": {Refuses: 990}} if number == REFUSED else {}),
        }

    def urls(self, number: int) -> list[str]:
        paths = ("/page", "/private", "/no/1")
        return [*map(self.site.url, paths), self.held[number].url("/held")]


@pytest.fixture
def town(sites: Sites, tmp_path: Path, redis_server: RedisServer) -> CrawledPlaces:
    site = sites.add()
    site.set("/sitemap.xml", urlset([site.url("/listed")]))
    site.set("/robots.txt", f"{ROBOTS}\nSitemap: {site.url('/sitemap.xml')}\n")
    held = [sites.add(robots=Gate(503, RULES)) for _ in range(CRAWLS)]
    return CrawledPlaces(site, held, tmp_path, redis_server.url)


async def crawled(town: CrawledPlaces, number: int) -> SimpleNamespace:
    runner = new_runner(town.settings(number))
    crawler = runner.create_crawler(ListSpider)
    gate = town.held[number].pages["/robots.txt"]
    assert isinstance(gate, Gate)
    items: list[str] = []
    spiders: list[Any] = []

    def held() -> None:
        if number == STOPPED:
            close = crawler.engine.close_spider_async
            later(0, lambda: deferred_from_coro(close(reason="shutdown")))
        else:
            gate.open()

    handlers = {
        signals.spider_opened: lambda spider: spiders.append(spider),
        rep_signals.request_held: held,
        signals.item_scraped: lambda item: items.append(item["url"]),
    }
    for signal, handler in handlers.items():
        crawler.signals.connect(handler, signal)
    error = ""
    try:
        done = runner.crawl(
            crawler,
            requests=town.urls(number),
            on_page=lambda spider: {"url": spider.responses[-1].url},
        )
        await (maybe_deferred_to_future(done) if isinstance(done, Deferred) else done)
    except ValueError as raised:
        error = str(raised)
    gate.open()
    [spider] = spiders or [None]
    return SimpleNamespace(
        crawler=weakref.ref(crawler),
        spider=weakref.ref(spider) if spider else None,
        stats=crawler.stats.get_stats() if crawler.stats else {},
        pages={response.url for response in spider.responses} if spider else set(),
        items=set(items),
        failures={one.url: type(raised) for one, raised in spider.errors}
        if spider
        else {},
        error=error,
    )


def assert_all_features_worked(
    town: CrawledPlaces, number: int, found: SimpleNamespace
) -> None:
    stats = found.stats
    assert stats["finish_reason"] == "finished"
    pages = {
        town.site.url("/page"),
        town.site.url("/no/1"),
        town.held[number].url("/held"),
    }
    if number == STOPPED + 1:  # the listed one may have been fetched before the stop
        pages.add(town.held[STOPPED].url("/held"))
    else:
        assert stats["rep/sitemaps/emitted"] == 1
        pages.add(town.site.url("/listed"))
    assert found.pages >= pages
    assert found.failures == {town.site.url("/private"): RobotsDisallowed}
    assert found.items == found.pages - {town.site.url("/no/1")}
    assert stats["rep/crawl_delay/origins"] == 1
    assert (
        stats["rep/held"] >= 1
    )  # the other pages too, where a first answer takes its time
    # From the second crawl on, those that share a storage have the robots.txt from there.
    assert ("rep/cache/recalled" in stats) == (number % 3 > 0 and number >= 3)
    told = {
        (one["verdict"], one["url"])
        for one in decisions(town.folder / f"{number}.jsonl")
    }
    assert ("disallowed", town.site.url("/private")) in told
    assert ("usage_item", town.site.url("/no/1")) in told
    report = (town.folder / f"{number}.html").read_text()
    assert "</html>" in report and town.held[number].name in report


# Scrapy leaves the handlers of a crawl open whose middlewares can't be made.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function ClientSession:pytest.PytestUnraisableExceptionWarning"
)
@needs_server
async def test_several_crawls_leave_nothing_behind(
    town: CrawledPlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps records, which have spiders.
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    gc.collect()
    _update_resolvers()  # takes away what earlier tests have left
    gc.freeze()  # collections look at what comes from now on
    before, resolving = busy(), resolvers()
    crawls = [await crawled(town, 0)]
    await nothing_is_under_way_but(before)
    after_first = hooks()
    for number in range(1, CRAWLS):
        crawls.append(await crawled(town, number))
        gc.collect()  # else it may warn, in a later crawl, of what Scrapy leaves open, and pytest keep that
    assert hooks() == after_first
    assert resolvers() == resolving
    monkeypatch.undo()
    for number, one in enumerate(crawls):
        if number not in (STOPPED, WRONG, REFUSED):
            assert_all_features_worked(town, number, one)
    assert crawls[STOPPED].stats["finish_reason"] == "shutdown"
    assert town.held[STOPPED].count("/held") == 1  # by the next crawl
    assert crawls[WRONG].stats["finish_reason"] == "rep_settings_error"
    assert crawls[REFUSED].error == "no"
    await nothing_is_under_way_but(before)
    gc.collect()
    assert [number for number, one in enumerate(crawls) if one.crawler()] == []
    assert [
        number for number, one in enumerate(crawls) if one.spider and one.spider()
    ] == []


def hooks() -> dict[str, tuple[int, int]]:
    loggers = {"": logging.getLogger(), **logging.root.manager.loggerDict}
    return {
        name: (len(one.handlers), len(one.filters))
        for name, one in loggers.items()
        if isinstance(one, logging.Logger) and (one.handlers or one.filters)
    }


def busy() -> tuple[list[Any], int]:
    """Timers, tasks and threads (not those of pools), and how many files and sockets are open."""
    found: list[Any] = [
        one
        for one in threading.enumerate()
        if not one.name.startswith(("PoolThread-twisted", "asyncio_"))
    ]
    if is_reactor_installed():
        from twisted.internet import reactor

        found += reactor.getDelayedCalls()
    else:
        loop: Any = asyncio.get_running_loop()
        found += [one for one in loop._scheduled if not one.cancelled()]
    if not is_reactor_installed() or is_asyncio_reactor_installed():
        found += asyncio.all_tasks()
    folder = Path("/proc/self/fd")
    return found, len(os.listdir(folder)) if folder.exists() else 0


async def nothing_is_under_way_but(before: tuple[list[Any], int]) -> None:
    """Wait for that: servers close their side of a connection in a moment."""
    until = time.monotonic() + 5
    while True:
        await a_while(
            0.01
        )  # without asyncio, a crawl may end in the middle of what ends it
        found, opened = busy()
        new = [one for one in found if one not in before[0]]
        if (not new and opened <= before[1]) or time.monotonic() > until:
            break
    assert new == []
    assert opened <= before[1]
