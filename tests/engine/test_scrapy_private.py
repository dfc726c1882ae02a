"""Guards: names of Scrapy's that its documentation does not promise. When a test here fails with a
new Scrapy, `scrapy_rep/engine/access.py` is the place to mend; its docstrings say what for."""

from __future__ import annotations

import ast
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.core import downloader as scrapys
from scrapy.core.downloader import Downloader
from scrapy.core.scheduler import Scheduler
from scrapy.core.scraper import Scraper
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import HtmlResponse, Response, XmlResponse
from scrapy.link import Link
from scrapy.linkextractors import LinkExtractor
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.httpobj import _urlparse_cache, urlparse_cached
from scrapy.utils.misc import load_object
from scrapy.utils.request import _fingerprint_cache, fingerprint

import scrapy_rep
from scrapy_rep import RepMiddleware
from scrapy_rep.engine.access import (
    _JITTER,
    HOP_KEY,
    EngineAccess,
    Listener,
    PacedSlot,
    Scheduling,
    Stage,
    _clock,
    _InProgress,
)
from scrapy_rep.engine.crawl_rules import CrawlRules
from scrapy_rep.engine.pools import ROOM
from tests.helpers.behaviours import after, redirect, silence
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.handlers import OTHERS, handler_settings
from tests.helpers.held import Record, a_while, assert_no_errors, later, urls
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites

pytestmark = pytest.mark.scrapy_api
PRIVATE = {
    "_slot",
    "inprogress",
    "_process_queue",
    "total_concurrency",
    "enqueue_scrape",
    "scraper",
    "downloader",
}
PRIVATE |= {"_errback", "_handle_failure", "_build_request"}


class Access(EngineAccess):
    """With the crawl that it reaches into: the tests look at that from outside."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.crawler = crawler


async def in_a_crawl(
    sites: Sites,
    look: Callable[[Any], object],
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> CrawlResult:

    def on_page(spider: Spider) -> None:
        look(Access(spider.crawler))

    return await crawl([sites.add().url("/x")], settings, on_page=on_page, **more)


async def test_what_is_reached_through_the_engine(sites: Sites) -> None:
    """The total concurrency, the scheduler, and whether the crawl is paused."""
    seen: list[Any] = []

    def look(engine: Access) -> None:
        downloader = engine.crawler.engine.downloader
        assert isinstance(downloader, Downloader)
        seen.append(downloader.total_concurrency)
        with engine.extra_slot():
            seen.append(downloader.total_concurrency)
        seen.extend(
            [downloader.total_concurrency, type(engine.scheduler), engine.paused]
        )
        engine.crawler.engine.pause()
        seen.append(engine.paused)
        later(0.1, engine.crawler.engine.unpause)

    assert_no_errors(await in_a_crawl(sites, look, {"CONCURRENT_REQUESTS": 5}))
    assert seen == [5, 6, 5, Scheduler, False, True]


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("handler", OTHERS)
async def test_pools_of_connections_are_enlarged(
    sites: Sites, handler: str, is_lazy: bool
) -> None:
    """Handlers that take the size of their pool from a setting are made anew before the first request, say
    nothing a second time, and all are closed after the crawl."""
    settings = {**handler_settings(handler), "CONCURRENT_REQUESTS": 5}
    kind = load_object(handler)
    if "_base_streaming" not in kind.__mro__[1].__module__:
        pytest.skip("its pool doesn't depend on settings in this Scrapy")
    made: list[Any] = []
    closed: list[Any] = []

    class WatchedHandler(kind):  # type: ignore[misc,valid-type]
        lazy = is_lazy

        async def download_request(self, request: Request) -> Response:
            made.append(self)
            response: Response = await super().download_request(request)
            return response

        async def close(self) -> None:
            closed.append(self)
            await super().close()

    def look(engine: Access) -> None:
        assert engine.crawler.engine.downloader.handlers._handlers["http"] is made[0]
        assert engine.crawler.settings.getint("CONCURRENT_REQUESTS") == 5
        assert made[0].crawler.settings.getint("CONCURRENT_REQUESTS") == 5

    settings["DOWNLOAD_HANDLERS"] = {"http": WatchedHandler}
    result = await in_a_crawl(sites, look, settings)
    assert_no_errors(result)
    assert len(result.responses) == 1
    assert {one._pool_size_total for one in made} == {5 + ROOM}
    assert sorted(one._pool_size_total for one in closed) == [5, 5 + ROOM]
    assert result.log.count("WatchedHandler is experimental") == 1


async def test_a_pool_without_a_limit_stays_so(sites: Sites) -> None:
    settings = {**handler_settings(OTHERS[-1]), "CONCURRENT_REQUESTS": 0}
    sizes: list[int] = []

    def look(engine: Access) -> None:
        handlers = engine.crawler.engine.downloader.handlers._handlers
        sizes.append(handlers["http"]._pool_size_total)

    assert_no_errors(await in_a_crawl(sites, look, settings))
    assert sizes == [0]


async def test_the_engine_knows_what_is_in_progress(sites: Sites) -> None:
    """By a set, from which it removes a request once its callback's output was handled; see also
    test_following.py."""
    sets: list[Any] = []
    requests: list[Request] = []

    def look(engine: Access) -> None:
        slot = engine.crawler.engine._slot
        sets.append(slot.inprogress)
        requests.extend(slot.inprogress)

    def opened(spider: Spider) -> None:
        following = EngineAccess(spider.crawler).following
        following.trail("_rep_test", id)
        assert type(spider.crawler.engine._slot.inprogress) is set  # type: ignore[union-attr]
        following.begin()

    await in_a_crawl(
        sites, look, signal_handlers={scrapy_signals.spider_opened: opened}
    )
    assert len(requests) == 1
    assert type(sets[0]) is _InProgress
    assert not sets[0]


async def test_one_request_goes_through_memory(sites: Sites, tmp_path: Path) -> None:
    """By `Scheduler.dqs`, which is set aside for a moment."""
    url = sites.add().url("/from-disk")

    def look(engine: Access) -> None:
        queues = engine.scheduler.dqs
        assert queues is not None
        if engine.crawler.stats.get_value("scheduler/enqueued") == 1:  # type: ignore[union-attr]
            engine.crawl(Request(url))
        assert engine.scheduler.dqs is queues

    result = await in_a_crawl(sites, look, {"JOBDIR": str(tmp_path)})
    assert (
        result.stat("scheduler/enqueued/memory")
        == result.stat("scheduler/enqueued/disk")
        == 1
    )
    assert len(result.responses) == 2
    assert_no_errors(result)


@pytest.mark.loop
async def test_a_request_is_handed_over_when_it_leaves_its_slots_queue(
    sites: Sites,
) -> None:
    """By `Downloader.handlers.download_request_async`. `request_reached_downloader` comes before the
    queue: if that changes, it can take the place of this."""
    site, delay = sites.add(), 0.3
    events: list[tuple[str, float]] = []

    class Ours:
        async def download(self, request: Request, handler: Any) -> Response:
            events.append(("sent", time.monotonic()))
            response: Response = await handler(request)
            return response

    def reached(request: Request) -> None:
        if isinstance(request.meta.get(HOP_KEY), Ours):
            events.append(("reached", time.monotonic()))

    def look(engine: Access) -> None:
        assert engine.hands_over
        assert Access(engine.crawler).hands_over  # once is enough
        engine.crawler.signals.connect(
            reached, scrapy_signals.request_reached_downloader, weak=False
        )
        for name in ("first", "second"):
            url = site.url(f"/{name}")
            deferred_from_coro(
                engine.crawler.engine.download_async(
                    Request(url, meta={HOP_KEY: Ours()})
                )
            )

    assert_no_errors(await in_a_crawl(sites, look, {"DOWNLOAD_DELAY": delay}))
    assert [name for name, _ in events] == ["reached", "reached", "sent", "sent"]
    assert events[-1][1] - events[0][1] > delay / 2
    assert [site.count(path) for path in ("/first", "/second")] == [1, 1]


def test_the_errback_of_a_crawl_spider() -> None:
    """`CrawlSpider._errback` does what the rule's errback does, of the rule in the request's meta."""

    class RulesSpider(CrawlSpider):
        name = "rules"
        rules = (Rule(errback="failed"), Rule())

        def failed(self, failure: Any) -> None: ...

    spider = RulesSpider()
    spider._follow_links = True
    with_one, without = (
        spider._build_request(number, Link("http://a.example/")) for number in (0, 1)
    )
    assert EngineAccess.has_errback(with_one)
    assert not EngineAccess.has_errback(without)
    assert EngineAccess.has_errback(without.replace(meta={}))  # nobody can tell
    assert EngineAccess.has_errback(without.replace(errback=spider.failed))
    assert not EngineAccess.has_errback(Request("http://a.example/"))


def test_what_a_rule_of_a_crawl_spider_makes_of_a_page() -> None:
    """`CrawlSpider._rules` has the spider's own methods for their names, and `_build_request` makes of
    a link what Scrapy itself makes of one that it finds in a page."""

    class RulesSpider(CrawlSpider):
        name = "rules"
        rules = (
            Rule(LinkExtractor(allow="/other")),
            Rule(
                LinkExtractor(allow="/page"),
                callback="found",
                errback="failed",
                cb_kwargs={"answer": 42},
                process_request="marked",
            ),
        )

        def found(self, response: Response, answer: int) -> dict[str, int]:
            return {"answer": answer}

        def failed(self, failure: Any) -> str:
            return "failed"

        def marked(self, request: Request, response: Response) -> Request:
            request.meta["found_in"] = response.url
            return request

    spider = RulesSpider()
    rule = spider._rules[1]
    assert (rule.callback, rule.errback) == (spider.found, spider.failed)
    assert rule.process_request == spider.marked

    url, where = "http://a.example/page", "http://a.example/sitemap.xml"
    rules = CrawlRules(spider)
    number = rules.index_for(url)
    assert number == 1
    ours = rules.request(number, url, where)
    page = HtmlResponse(where, body=b"<a href='/page'>x</a>", encoding="utf-8")
    [scrapys] = spider._requests_to_follow(page)
    assert ours is not None
    assert ours.to_dict(spider=spider) | {"meta": None} == scrapys.to_dict(
        spider=spider
    ) | {"meta": None}
    assert ours.meta == {"rule": 1, "link_text": "", "found_in": where}
    assert scrapys.meta == {**ours.meta, "link_text": "x"}
    assert ours.callback == spider._callback


async def test_the_middlewares_in_their_order(sites: Sites) -> None:
    """They are in `Downloader.middleware.methods`."""

    class Before:
        def process_request(self, request: Request) -> None: ...

    found: list[str] = []

    def look(engine: Access) -> None:
        ours = engine.crawler.get_downloader_middleware(RepMiddleware)
        found.append(engine.obstacle_before(ours))
        found.append(engine.obstacle_before(object()))

    await in_a_crawl(sites, look)
    await in_a_crawl(sites, look, {"DOWNLOADER_MIDDLEWARES": {Before: 99}})
    await in_a_crawl(sites, look, {"DOWNLOADER_MIDDLEWARES": {Before: 101}})
    nothing = ["", "RepMiddleware sees requests before object does"]
    before = "test_the_middlewares_in_their_order.<locals>.Before sees requests before"
    assert found[:2] == found[4:] == nothing
    assert found[2:4] == [f"{before} RepMiddleware does", f"{before} object does"]


async def test_which_request_the_engine_schedules(sites: Sites) -> None:
    """Start requests, those of callbacks, and redirected ones go through `ExecutionEngine.crawl`."""
    site = sites.add(pages={"/a": redirect("/b")})
    crawled: list[tuple[str, bool]] = []

    def scheduled(request: Request, spider: Spider) -> None:
        scheduling = spider.crawler.engine.crawl  # type: ignore[union-attr]
        assert isinstance(scheduling, Scheduling)
        crawled.append((request.url, scheduling.request is request))

    def on_page(spider: ListSpider) -> Any:
        return (
            Request(site.url("/c"), callback=id) if len(spider.responses) == 1 else None
        )

    handlers = {scrapy_signals.request_scheduled: scheduled}
    await crawl([site.url("/a")], signal_handlers=handlers, on_page=on_page)
    assert crawled == [(site.url(path), True) for path in ("/a", "/b", "/c")]


def test_a_downloader_of_the_projects_own_is_left_alone() -> None:
    """It may have neither a total concurrency nor slots nor handlers."""

    class Crawler:
        settings = Settings()

        class engine:
            downloader = object()

    access = EngineAccess(Crawler())  # type: ignore[arg-type]
    with access.extra_slot():
        assert not access.slots.is_full(Request("http://a.example/"), [])
    assert not access.hands_over
    assert access.obstacle_before(object()) == "the downloader isn't Scrapy's"


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
    "crawler": (
        lambda engine: deferred_from_coro(engine.crawler.stop_async()),
        {},
        "shutdown",
    ),
    "idle": (id, {}, "finished"),
    "pagecount": (id, {"CLOSESPIDER_PAGECOUNT": 1}, "closespider_pagecount"),
}


@pytest.mark.loop
async def test_all_ways_to_close_are_one(sites: Sites) -> None:
    """`before_closing` is called once, before the scheduler is closed."""
    events: list[str] = []

    class WatchedScheduler(Scheduler):
        def close(self, reason: str) -> Any:
            events.append("scheduler closed")
            return super().close(reason)

    async def before() -> None:
        events.append("before")

    def opened(spider: Spider) -> None:
        EngineAccess(spider.crawler).before_closing(Stage.SEEDING, before)

    with every_row() as row:
        for name, (act, settings, reason) in WAYS.items():
            with row(name):
                events.clear()
                result = await in_a_crawl(
                    sites,
                    lambda engine, act=act: act(engine.crawler.engine),
                    {**settings, "SCHEDULER": WatchedScheduler},
                    signal_handlers={scrapy_signals.spider_opened: opened},
                )
                assert result.reason == reason
                assert events == ["before", "scheduler closed"]


@pytest.mark.loop
async def test_the_first_reason_to_close_is_kept(sites: Sites) -> None:
    """Meanwhile the engine is paused: it doesn't find that there is nothing more to do."""
    events: list[str] = []

    async def before() -> None:
        events.append("before")
        await a_while(0.1)
        events.append("done")

    def on_page(spider: ListSpider) -> None:
        if len(spider.responses) == 1:
            engine = Access(spider.crawler)
            engine.before_closing(Stage.SEEDING, before)
            _stop(engine.crawler.engine)
            later(0.03, lambda: _async(engine.crawler.engine))

    site = sites.add(pages={"/slow": after(0.05, "page")})
    result = await crawl(
        [site.url("/x"), site.url("/slow")],
        on_page=on_page,
        signal_handlers={
            scrapy_signals.spider_idle: lambda: events.append("idle"),
            scrapy_signals.spider_closed: lambda reason: events.append(reason),
        },
    )
    assert events == ["before", "done", "shutdown"]
    assert result.reason == "shutdown"
    assert_no_errors(result)


@pytest.mark.loop
async def test_nothing_is_scheduled_once_the_scheduler_is_closed(sites: Sites) -> None:
    """Scrapy's loop goes on reading start() while it closes: what comes then is missing from the index
    of the disk queues, and damages them."""
    events: list[str] = []
    site = sites.add(robots=silence())

    class WatchedScheduler(Scheduler):
        def enqueue_request(self, request: Request) -> bool:
            events.append("enqueued")
            return super().enqueue_request(request)

        def close(self, reason: str) -> Any:
            events.append("closed")
            return super().close(reason)

    class ClosesLate:
        async def close_spider(self) -> None:
            await a_while(0.05)

    class EndlessSpider(ListSpider):
        async def start(self) -> AsyncIterator[Any]:
            _async(self.crawler.engine)
            while True:
                yield Request(site.url("/page"), dont_filter=True)
                await a_while(0)

    result = await crawl(
        EndlessSpider,
        {"SCHEDULER": WatchedScheduler, "ITEM_PIPELINES": {ClosesLate: 1}},
    )
    assert result.reason == "way"
    assert events[-1] == "closed"


async def test_nothing_is_begun_before_the_engine_knows_that_it_closes(
    sites: Sites,
) -> None:
    """CLOSESPIDER_PAGECOUNT would be exceeded: as Scrapy's own test of it says."""
    site = sites.add()

    def on_page(spider: ListSpider) -> None:
        if len(spider.responses) == 2:
            EngineAccess(spider.crawler).before_closing(
                Stage.SEEDING, lambda: a_while(0.1)
            )
            _async(spider.crawler.engine)

    result = await crawl(urls(site, 9), {"CONCURRENT_REQUESTS": 1}, on_page=on_page)
    assert result.reason == "way"
    assert len(site.pages_asked) <= 3  # one was under way


async def test_steps_before_closing_have_an_order(sites: Sites) -> None:
    """However they were added. None is left out that comes late, or after one that fails."""
    events: list[str] = []

    def step(name: str) -> Callable[[], Any]:
        async def take() -> None:
            await a_while(0.01)
            events.append(name)

        return take

    async def fail() -> None:
        raise ValueError("a bug")

    def look(engine: Access) -> None:
        async def seeding() -> None:
            events.append("SEEDING")
            engine.before_closing(Stage.HOLDING, step("late"))

        engine.before_closing(Stage.SEEDING, fail)
        for stage in (Stage.GATE, Stage.HOLDING):
            EngineAccess(engine.crawler).before_closing(stage, step(stage.name))
        engine.before_closing(Stage.SEEDING, seeding)
        _async(engine.crawler.engine)

    result = await in_a_crawl(sites, look)
    assert result.reason == "way"
    assert events == ["SEEDING", "HOLDING", "late", "GATE"]
    [error] = [one.getMessage() for one in result.records if one.levelname == "ERROR"]
    assert error.startswith("Bug in scrapy-rep: the work before closing failed.")


class Product(Request):
    """A request with an argument of its own, which Request.replace() doesn't know."""

    def __init__(self, url: str, product: int, **options: Any) -> None:
        super().__init__(url, **options)
        self.product = product


@pytest.mark.parametrize("closing", [False, True])
async def test_failing_a_request(sites: Sites, closing: bool) -> None:
    """Its errback is called, and what that yields is handled, also while the crawl is closed."""

    async def fail(engine: Access) -> None:
        request = Product(
            "http://other.example/", 1, errback=engine.crawler.spider.failed
        )  # type: ignore[union-attr]
        await maybe_deferred_to_future(engine.fail(request, IgnoreRequest("why")))

    def look(engine: Access) -> None:
        if closing:
            engine.before_closing(Stage.SEEDING, lambda: fail(engine))
            _async(engine.crawler.engine)
        else:
            deferred_from_coro(fail(engine))

    def on_failure(spider: ListSpider) -> Any:
        request, error = spider.errors[-1]
        yield {"message": str(error), "product": request.product}  # type: ignore[attr-defined]

    result = await in_a_crawl(sites, look, on_failure=on_failure)
    assert list(result.failures) == ["http://other.example/"]
    assert result.spider.items == [{"message": "why", "product": 1}]
    assert result.reason == ("way" if closing else "finished")


async def test_an_errback_without_output_takes_no_turn_of_scrapys(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrapy spends milliseconds on the output of each. A crawl that holds many closes soon."""
    scraped: list[Request] = []
    enqueue = Scraper.enqueue_scrape

    def counted(self: Scraper, result: Any, request: Request) -> Any:
        scraped.append(request)
        return enqueue(self, result, request)

    monkeypatch.setattr(Scraper, "enqueue_scrape", counted)
    record = Record(on_held=lambda _, count: count == 1500 and record.close())
    result = await record.crawl(urls(sites.add(robots=503), 1500))
    assert (len(result.failures), scraped) == (1500, [])
    assert_no_errors(result)


async def test_slots_can_be_slowed_down(sites: Sites) -> None:
    """By the attributes that AutoThrottle changes, some more, and Slot's constructor."""
    seen: list[Any] = []

    def look(engine: Access) -> None:
        slots, [(key, slot)] = (
            engine.slots,
            engine.crawler.engine.downloader.slots.items(),
        )
        assert type(slot) is scrapys.Slot
        assert 0 <= _clock() - slot.lastseen < 60
        own = slot.concurrency, slot.delay, getattr(slot, _JITTER)
        assert slots.key_of(f"http://{key}/other") == key
        assert not slots.slow(key, "b", (), 0.0)
        assert slots.slow(key, "a", ("foo",), 0.01)
        assert not slots.slow("no such slot", "a", (), 5.0)
        slots.slow(key, "b", (), 0.005)
        assert (slots.agents_of(key, "a"), slots.agents_of("no such slot", "a")) == (
            [("foo",)],
            [],
        )
        seen.extend([slot.concurrency, slot.download_delay()])
        [(_, beside)] = slots.beside(f"http://{key}/", "bot").items()
        new = engine.crawler.engine.downloader.slots[beside]
        assert (new.concurrency, new.delay, getattr(new, _JITTER)) == own
        slots.slow(key, "a", ("foo",), 0.0)
        seen.append(slot.download_delay())  # what others want counts on
        slots.slow(key, "b", (), 0.0)
        assert (slot.concurrency, slot.delay, getattr(slot, _JITTER)) == own

    assert_no_errors(await in_a_crawl(sites, look))
    assert seen == [1, 0.01, 0.005]


async def test_a_paced_slot_sends_only_what_it_is_told_to(sites: Sites) -> None:
    """While ``Slot.latercall`` is set, ``Downloader._process_queue`` sends nothing."""
    seen: list[Any] = []

    class Downloader:
        """As much of Scrapy's as this needs, and its own way to send."""

        def __init__(self, slot: Any) -> None:
            self.slot = slot

        _process_queue = scrapys.Downloader._process_queue

        async def _wait_for_download(self, slot: Any, request: Any, _: Any) -> None:
            slot.transferring.add(request)
            seen.append(request)

        def _latercall(self, slot: Any) -> None:
            seen.append("by itself")

    slot = scrapys.Slot(1, 0.01, 0)
    downloader = Downloader(slot)
    paced = PacedSlot(downloader, slot)
    assert paced.is_of(slot)
    assert paced.take_next() is None
    requests = [Request("http://a.test/1"), Request("http://a.test/2")]
    slot.queue.extend((request, None) for request in requests)
    downloader._process_queue(slot)
    await a_while(0.03)
    assert seen == []
    assert paced.take_next() is requests[0]
    assert paced.take_next() is None  # somebody has it
    paced.send_in(0.01)
    await a_while(0.05)
    assert (seen, len(slot.queue)) == (requests[:1], 1)
    assert 0 <= _clock() - slot.lastseen < 60
    assert paced.take_next() is None  # it isn't back
    slot.transferring.clear()
    downloader._process_queue(slot)
    await a_while(0.03)
    assert paced.take_next() is None
    paced.note_return(requests[0])
    assert paced.take_next() is requests[1]
    assert paced.own_seconds == 0.0
    paced.release()
    await a_while(0.03)
    assert seen[:2] == requests
    slot.close()


async def test_slots_that_are_gone_are_forgotten(sites: Sites) -> None:
    """Scrapy removes a slot a minute after its last request."""

    def look(engine: Access) -> None:
        slots, scrapys_own = engine.slots, engine.crawler.engine.downloader.slots
        for number in range(300):
            scrapys_own[f"host{number}"] = scrapys.Slot(8, 0.0, 0)
            slots.slow(f"host{number}", "origin", (), 5.0)
            if number % 10:
                del scrapys_own[f"host{number}"]
        assert len(slots.slowed) < 150
        shared = scrapys_own["shared"] = scrapys.Slot(8, 0.0, 0)
        for number in range(5000):
            slots.slow("shared", f"origin{number}", (), 1000.0 - number % 1000)
        assert shared.delay == 1000.0
        assert len(slots.slowed["shared"].wanted) == 100

    await in_a_crawl(sites, look)


def test_no_other_module_reaches_into_the_engine() -> None:
    for path in sorted(Path(scrapy_rep.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "engine" or not any(
            f".{name}" in text for name in PRIVATE
        ):
            continue
        used = {
            one.attr
            for one in ast.walk(ast.parse(text))
            if isinstance(one, ast.Attribute)
        }
        assert not used & PRIVATE, path


def test_bodies_can_be_dropped() -> None:
    """Sitemaps are read and then kept by an exception: their bodies are not."""
    for kind in (Response, XmlResponse):
        response = kind("http://a.test/", body=b"<urlset/>" * 1000)
        EngineAccess.drop_body(response)
        assert response.body == b""


def test_what_scrapy_keeps_of_a_request_can_be_dropped() -> None:
    request = Request("http://a.test/")
    urlparse_cached(request)
    fingerprint(request)
    assert request in _urlparse_cache and request in _fingerprint_cache
    EngineAccess.drop_caches(request)
    assert request not in _urlparse_cache and request not in _fingerprint_cache


@pytest.mark.loop
async def test_a_listener_hears_only_while_it_is_wanted() -> None:
    """And it takes no other handler along that is called after it."""
    signal, other = object(), object()
    signals = SignalManager()
    heard: list[int] = []
    seen: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        if number == 2:
            listener.listen(False)

    def see(number: int) -> None:
        seen.append(number)

    def send(*numbers: int) -> None:
        for number in numbers:
            signals.send_catch_log(signal, number=number)

    crawler: Any = SimpleNamespace(signals=signals)
    listener = Listener(crawler, {signal: hear, other: hear})
    listener.listen(False)  # of no effect
    send(0)
    for _ in range(2):
        listener.listen(True)
    signals.connect(see, signal)
    signals.send_catch_log(other, number=1)
    send(2)
    await a_while(0)
    send(3)
    listener.listen(True)
    listener.listen(False)
    listener.listen(True)  # before it has left
    await a_while(0)
    send(4)
    for _ in range(2):
        listener.listen(False)
    await a_while(0)
    send(5)
    listener.listen(True)
    send(6)
    assert (heard, seen) == ([1, 2, 4, 6], [2, 3, 4, 5, 6])
