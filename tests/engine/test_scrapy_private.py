"""Guards: names of Scrapy's that its documentation does not promise. When a test here fails with a
new Scrapy, `scrapy_rep/engine/access.py` (or `lifecycle.py`) is the place to mend; its docstrings say what for."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.core import downloader as scrapys
from scrapy.core.downloader import Downloader
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response, XmlResponse
from scrapy.settings import Settings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

import scrapy_rep
from scrapy_rep.engine.access import _JITTER, META_KEY, EngineAccess, _clock
from scrapy_rep.engine.lifecycle import Stage
from tests.helpers.behaviours import after
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import a_while, later, urls
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

pytestmark = pytest.mark.scrapy_api

# What `EngineAccess` reaches through.
PRIVATE = {"_slot", "total_concurrency", "enqueue_scrape", "scraper", "downloader"}


async def in_a_crawl(
    sites: Sites, look: Callable[[EngineAccess], object], settings: dict[str, Any] | None = None
) -> CrawlResult:
    """A crawl of a page, in whose callback *look* is called."""

    class Looking(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            look(EngineAccess(self.crawler))

    result = await crawl(Looking, settings, requests=[sites.add().url("/x")])
    assert not [one for one in result.records if one.levelname == "ERROR"]
    return result


async def test_what_is_reached_through_the_engine(sites: Sites) -> None:
    """The total concurrency, the scheduler, and whether the crawl is paused."""
    seen: list[Any] = []

    def look(engine: EngineAccess) -> None:
        downloader = engine._crawler.engine.downloader
        assert isinstance(downloader, Downloader)
        seen.append(downloader.total_concurrency)
        with engine.extra_slot():
            seen.append(downloader.total_concurrency)
        seen.extend([downloader.total_concurrency, type(engine.scheduler), engine.paused])
        engine._crawler.engine.pause()
        seen.append(engine.paused)
        later(0.1, engine._crawler.engine.unpause)

    await in_a_crawl(sites, look, {"CONCURRENT_REQUESTS": 5})
    assert seen == [5, 6, 5, Scheduler, False, True]


async def test_total_concurrency_is_what_limits(sites: Sites) -> None:
    """Raised in the middle of a crawl, at once more pages are fetched at a time."""
    site = sites.add(pages={f"/page{number}": after(0.1, "page") for number in range(8)})
    active: list[int] = []

    class Raising(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            self.crawler.engine.downloader.total_concurrency = 6  # type: ignore[union-attr]

    def reached(request: Request, spider: Spider) -> None:
        active.append(len(spider.crawler.engine.downloader.active))  # type: ignore[union-attr]

    await crawl(
        Raising,
        {"CONCURRENT_REQUESTS": 2},
        requests=[site.url("/first"), *urls(site, 8)],
        signal_handlers={scrapy_signals.request_reached_downloader: reached},
    )
    assert max(active) == 6


def test_a_downloader_of_the_projects_own_is_left_alone() -> None:
    """It may have neither a total concurrency nor slots."""

    class Crawler:
        settings = Settings()

        class engine:
            downloader = object()

    access = EngineAccess(Crawler())  # type: ignore[arg-type]
    with access.extra_slot():
        assert not access.slots.is_full(Request("http://a.example/"), [])


# The ways to close a spider, all of which have to pass `close_spider_async`


def _callback(engine: Any) -> None:
    raise CloseSpider("way")


def _async(engine: Any) -> None:
    deferred_from_coro(engine.close_spider_async(reason="way"))


def _stop(engine: Any) -> None:
    deferred_from_coro(engine.stop_async())


WAYS: dict[str, tuple[Callable[[Any], object], dict[str, Any], str]] = {
    "callback": (_callback, {}, "way"),
    "close_spider_async": (_async, {}, "way"),
    "stop_async": (_stop, {}, "shutdown"),
    "crawler": (lambda engine: deferred_from_coro(engine.crawler.stop_async()), {}, "shutdown"),
    "idle": (id, {}, "finished"),
    "pagecount": (id, {"CLOSESPIDER_PAGECOUNT": 1}, "closespider_pagecount"),
}


@pytest.mark.loop
async def test_all_ways_to_close_are_one(sites: Sites) -> None:
    """`before_closing` is called once, before the scheduler is closed."""
    with every_row() as row:
        for name, way in WAYS.items():
            with row(name):
                await closed_once(sites, *way)


async def closed_once(
    sites: Sites, act: Callable[[Any], object], settings: dict[str, Any], reason: str
) -> None:
    events: list[str] = []

    class WatchedScheduler(Scheduler):
        def close(self, reason: str) -> Any:
            events.append("scheduler closed")
            return super().close(reason)

    async def before() -> None:
        events.append("before")

    def opened(spider: Spider) -> None:
        EngineAccess(spider.crawler).before_closing(Stage.COMMAND, before)

    class Closing(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            act(self.crawler.engine)

    result = await crawl(
        Closing,
        {**settings, "SCHEDULER": WatchedScheduler},
        requests=[sites.add().url("/x")],
        signal_handlers={scrapy_signals.spider_opened: opened},
    )
    assert result.reason == reason
    assert events == ["before", "scheduler closed"]


@pytest.mark.loop
async def test_the_first_reason_to_close_is_kept(sites: Sites) -> None:
    """Before the engine knows that it is closing, others may want to close the spider too. It is
    paused, so it doesn't find meanwhile that there is nothing more to do."""
    events: list[str] = []

    async def before() -> None:
        events.append("before")
        await a_while(0.1)
        events.append("done")

    class Closing(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            if response.url.endswith("/x"):
                EngineAccess(self.crawler).before_closing(Stage.COMMAND, before)
                _stop(self.crawler.engine)
                later(0.03, lambda: _async(self.crawler.engine))

    result = await crawl(
        Closing,
        requests=[
            sites.add(pages={"/slow": after(0.05, "page")}).url(path) for path in ("/x", "/slow")
        ],
        signal_handlers={
            scrapy_signals.spider_idle: lambda: events.append("idle"),
            scrapy_signals.spider_closed: lambda reason: events.append(reason),
        },
    )
    assert events == ["before", "done", "shutdown"]
    assert result.reason == "shutdown"
    assert not [one for one in result.records if one.levelname == "ERROR"]


async def test_nothing_is_begun_before_the_engine_knows_that_it_closes(sites: Sites) -> None:
    """CLOSESPIDER_PAGECOUNT would be exceeded: as Scrapy's own test of it says."""
    site = sites.add()

    class Closing(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            if response.url.endswith("/page1"):
                EngineAccess(self.crawler).before_closing(Stage.COMMAND, lambda: a_while(0.1))
                _async(self.crawler.engine)

    settings = {"CONCURRENT_REQUESTS": 1}
    result = await crawl(Closing, settings, requests=urls(site, 9))
    assert result.reason == "way"
    assert len(site.pages_asked) <= 3  # one was under way


async def test_steps_before_closing_have_an_order(sites: Sites) -> None:
    """Whatever the order in which they were added, and by which `EngineAccess`; none is left out
    that is added while others are being taken, or comes after one that fails."""
    events: list[str] = []

    def step(name: str) -> Callable[[], Any]:
        async def take() -> None:
            await a_while(0.01)
            events.append(name)

        return take

    async def fail() -> None:
        raise ValueError("a bug")

    class Closing(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            engine = EngineAccess(self.crawler)

            async def seeding() -> None:
                events.append("SEEDING")
                engine.before_closing(Stage.HOLDING, step("late"))

            engine.before_closing(Stage.COMMAND, fail)
            for stage in (Stage.HOLDING, Stage.COMMAND):
                EngineAccess(self.crawler).before_closing(stage, step(stage.name))
            engine.before_closing(Stage.SEEDING, seeding)
            _async(self.crawler.engine)

    result = await crawl(Closing, requests=[sites.add().url("/x")])
    assert result.reason == "way"
    assert events == ["COMMAND", "SEEDING", "HOLDING", "late"]
    [error] = [one.getMessage() for one in result.records if one.levelname == "ERROR"]
    assert error.startswith("Bug in scrapy-rep: the work before closing failed.")


# Failing a request


@pytest.mark.parametrize("closing", [False, True])
async def test_failing_a_request(sites: Sites, closing: bool) -> None:
    """Its errback is called, and what that yields is handled, also while the crawl is closed."""

    class Failing(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            engine = EngineAccess(self.crawler)
            error, request = IgnoreRequest("why"), self.recorded("http://other.example/")

            async def before() -> None:
                await maybe_deferred_to_future(engine.fail(request, error))

            if closing:
                engine.before_closing(Stage.COMMAND, before)
                _async(engine._crawler.engine)
            else:
                engine.fail(request, error)

        def failed(self, failure: Any) -> Any:
            super().failed(failure)
            yield {"message": str(failure.value)}

    result = await crawl(Failing, requests=[sites.add().url("/x")])
    assert list(result.failures) == ["http://other.example/"]
    assert result.spider.items == [{"message": "why"}]
    assert result.reason == ("way" if closing else "finished")


# The rest


async def test_storage_and_policy_of_the_http_cache(sites: Sites, tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(engine: EngineAccess) -> None:
        seen.append(engine.http_cache and vars(engine.http_cache).keys() >= {"storage", "policy"})

    await in_a_crawl(sites, look)
    settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path)}
    await in_a_crawl(sites, look, settings)
    assert seen == [None, True]


async def test_slots_can_be_slowed_down(sites: Sites) -> None:
    """By the attributes that AutoThrottle changes, some more, and Slot's constructor."""
    seen: list[Any] = []

    def look(engine: EngineAccess) -> None:
        slots, [(key, slot)] = engine.slots, engine._crawler.engine.downloader.slots.items()
        assert type(slot) is scrapys.Slot
        assert 0 <= _clock() - slot.lastseen < 60
        own = slot.concurrency, slot.delay, getattr(slot, _JITTER)
        assert slots.key_of(f"http://{key}/other") == key
        assert not slots.slow(key, "b", 0.0)
        assert slots.slow(key, "a", 0.01)
        assert not slots.slow("no such slot", "a", 5.0)
        seen.extend([slot.concurrency, slot.download_delay()])
        [(_, beside)] = slots.beside(f"http://{key}/", "bot").items()
        new = engine._crawler.engine.downloader.slots[beside]
        assert (new.concurrency, new.delay, getattr(new, _JITTER)) == own
        slots.slow(key, "a", 0.0)
        assert (slot.concurrency, slot.delay, getattr(slot, _JITTER)) == own

    await in_a_crawl(sites, look)
    assert seen == [1, 0.01]


async def test_full_slots_are_told_apart(sites: Sites) -> None:
    """By ``Slot.active`` and ``Slot.concurrency``: a request to a full one would queue, and be one of
    CONCURRENT_REQUESTS all the while."""
    seen: dict[str, list[bool]] = {}

    class Looking(ListSpider):
        def parse(self, response: Any, **kwargs: Any) -> Any:
            super().parse(response, **kwargs)
            slots = EngineAccess(self.crawler).slots
            asked = Request(two.url("/x"))
            beside = asked.replace(meta={META_KEY: "beside"})
            other = Request("http://other.example/")
            seen[response.url] = [slots.is_full(one, []) for one in (asked, beside, other)]

    two = sites.add(pages={f"/page{number}": after(0.15, "page") for number in range(2)})
    one = sites.add(pages={"/quick": after(0.05, "page")})
    await crawl(
        Looking,
        {"CONCURRENT_REQUESTS_PER_DOMAIN": 2},
        requests=[*urls(two, 2), one.url("/quick")],
    )
    assert seen[one.url("/quick")] == [True, False, False]
    assert seen[[url for url in seen if url != one.url("/quick")][-1]] == [False] * 3


async def test_slots_that_are_gone_are_forgotten(sites: Sites) -> None:
    """Scrapy removes a slot a minute after its last request."""

    def look(engine: EngineAccess) -> None:
        slots, scrapys_own = engine.slots, engine._crawler.engine.downloader.slots
        for number in range(300):
            scrapys_own[f"host{number}"] = scrapys.Slot(8, 0.0, 0)
            slots.slow(f"host{number}", "origin", 5.0)
            if number % 10:
                del scrapys_own[f"host{number}"]
        assert len(slots._slowed) < 100
        shared = scrapys_own["shared"] = scrapys.Slot(8, 0.0, 0)
        for number in range(5000):
            slots.slow("shared", f"origin{number}", 1000.0 - number % 1000)
        assert shared.delay == 1000.0
        assert len(slots._slowed["shared"].wanted) <= 1000

    await in_a_crawl(sites, look)


def test_no_other_module_reaches_into_the_engine() -> None:
    for path in sorted(Path(scrapy_rep.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "engine" or not any(f".{name}" in text for name in PRIVATE):
            continue
        used = {one.attr for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Attribute)}
        assert not used & PRIVATE, path


def test_bodies_can_be_dropped() -> None:
    """Sitemaps are read and then kept by an exception: their bodies are not."""
    for kind in (Response, XmlResponse):
        response = kind("http://a.test/", body=b"<urlset/>" * 1000)
        EngineAccess.drop_body(response)
        assert response.body == b""
