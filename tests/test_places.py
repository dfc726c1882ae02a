"""Who waits in place for a robots.txt takes no slot, and goes on when one is free."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.core.downloader import Downloader
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.http.request import NO_CALLBACK

from scrapy_rep import places
from tests.behaviours import after, as_behaviour, hang_up, in_turn
from tests.crawling import CrawlResult, ListSpider, crawl
from tests.held import (
    DEFER,
    NEVER,
    RULES,
    Record,
    assert_clean,
    assert_no_errors,
    assert_nothing_dropped,
    later,
    silent_until_open,
)
from tests.servers import Connection, Hit, Site, Sites

# All that is waited for here answers, if things go as they should.
SETTINGS = {
    **DEFER,
    "REP_DEFER_GRACE": NEVER,
    "REP_DOWNLOAD_TIMEOUT": NEVER,
    "RETRY_ENABLED": False,
}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, nobody is held who need not be."""
    monkeypatch.setattr(places, "_IN_A_SLOT_SECONDS", NEVER)


class Counter:
    """How many pages are downloaded at a time, at the most."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.handlers = {
            scrapy_signals.request_reached_downloader: lambda request: self._change(request, 1),
            scrapy_signals.request_left_downloader: lambda request: self._change(request, -1),
        }

    def _change(self, request: Request, number: int) -> None:
        if request.callback is not NO_CALLBACK:  # else it is a robots.txt
            self.running += number
            self.most = max(self.most, self.running)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_as_many_pages_at_a_time_as_without(sites: Sites, concurrency: int) -> None:
    """Each page is of another site; all slots are used, and no more."""
    several = [
        sites.add(robots=after(0.02, RULES), pages={"/x": after(0.05, "x")}) for _ in range(40)
    ]
    record, pages = Record(), Counter()
    result = await crawl(
        [site.url("/x") for site in several],
        {**SETTINGS, "CONCURRENT_REQUESTS": concurrency},
        signal_handlers={**record.handlers, **pages.handlers},
    )
    assert len(result.responses) == 40
    assert pages.most == concurrency
    assert record.deferred == []
    assert await record.concurrency() == [concurrency, concurrency]
    assert_nothing_dropped(result, record)
    assert_clean(result)


# Without a reactor Scrapy's download handler opens no more connections than CONCURRENT_REQUESTS: a
# silent robots.txt has the one that the page would need.
more_connections = pytest.mark.needs_reactor


class OneSlot:
    """A crawl of one slot. While a page waits for the robots.txt of its site, a slow page of another
    site gets the slot, and then the robots.txt is there."""

    def __init__(self, sites: Sites, page: Any = "the page", answer: Any = RULES) -> None:
        self.page = silent_until_open(page)
        robots = silent_until_open(answer)

        async def slow(hit: Hit, connection: Connection) -> None:
            robots.open()
            await self.page(hit, connection)

        self.first = sites.add(robots=RULES, pages={"/slow": slow})
        self.second = sites.add(robots=robots)
        self.record = Record()
        self.record.on_resolved = self._resolved
        self.order: list[str] = []

    def in_line(self) -> None:
        """The request of the second site may go on, but for the slot."""
        self.page.open()

    def _resolved(self) -> None:
        if len(self.record.resolved) == 2:
            later(0.2, self.in_line)

    async def crawl(self, *others: str) -> CrawlResult:
        """One of the second site, the slow page, and then *others*; before, that its site be known,
        another."""
        wanted = [*others, self.first.url("/slow"), self.second.url("/x")]  # the last goes first

        def reached(request: Request, spider: ListSpider) -> None:
            while wanted and request.callback is not NO_CALLBACK:
                self.record.engine.crawl(spider.recorded(wanted.pop(0)))

        def answered(request: Request) -> None:
            if request.callback is not NO_CALLBACK:
                self.order.append(request.url)

        result = await crawl(
            [self.first.url("/known")],
            {
                **SETTINGS,
                "CONCURRENT_REQUESTS": 1,
                "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
            },
            signal_handlers={
                **self.record.handlers,
                scrapy_signals.request_reached_downloader: reached,
                scrapy_signals.response_received: answered,
            },
        )
        assert_no_errors(result)
        return result


@more_connections
async def test_who_is_in_line_goes_before_what_is_scheduled(sites: Sites) -> None:
    world = OneSlot(sites)
    last = world.first.url("/later")
    await world.crawl(last)
    assert world.order[1:] == [world.first.url("/slow"), world.second.url("/x"), last]


@more_connections
async def test_a_slot_that_becomes_free_without_a_page(sites: Sites) -> None:
    """The page fails, and there is no other whose answer would tell."""
    world = OneSlot(sites, hang_up())
    result = await world.crawl()
    assert list(result.responses) == [world.first.url("/known"), world.second.url("/x")]
    assert list(result.failures) == [world.first.url("/slow")]


@more_connections
@pytest.mark.parametrize(
    ("answer", "held"),
    [(f"{RULES}Disallow: /x\n", 0), (in_turn(503, RULES), 1)],
    ids=["forbidden", "unreachable"],
)
async def test_who_does_not_go_on_needs_no_slot(sites: Sites, answer: Any, held: int) -> None:
    """It is dropped or held, and only then is the page there that has the slot."""

    class Watching(OneSlot):
        def in_line(self) -> None:
            spider = self.record.spider
            if self.record.deferred or (isinstance(spider, ListSpider) and spider.errors):
                self.page.open()
            else:
                later(0.05, self.in_line)

    world = Watching(sites, answer=answer)
    result = await world.crawl()
    assert len(world.record.deferred) == held
    assert (world.second.url("/x") in result.responses) == bool(held)
    assert world.first.url("/slow") in result.responses


@more_connections
async def test_closing_with_somebody_in_line(sites: Sites) -> None:
    """He goes on at once: the page that has the slot may be a long one."""

    class Closing(OneSlot):
        def in_line(self) -> None:
            self.record.close()

    world = Closing(sites)
    inner = as_behaviour("x")

    async def asked(hit: Hit, connection: Connection) -> None:
        world.page.open()
        await inner(hit, connection)

    world.second.set("/x", asked)
    result = await world.crawl()
    assert result.reason == "enough"
    assert world.first.url("/slow") in result.responses
    assert world.second.url("/x") in result.responses


@more_connections
async def test_a_page_is_taken_at_once_instead_of_who_waits(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when something else happens: the other slot has a long page."""
    monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)
    page, robots = silent_until_open(), silent_until_open()

    async def last(hit: Hit, connection: Connection) -> None:
        robots.open()
        page.open()
        await as_behaviour("the last")(hit, connection)

    first = sites.add(robots=RULES, pages={"/long": page, "/last": last})
    wanted = [first.url("/last"), sites.add(robots=robots).url("/x")]  # the last goes first

    def opened(spider: ListSpider) -> None:
        engine: Any = spider.crawler.engine
        later(0.5, lambda: [engine.crawl(spider.recorded(url)) for url in wanted])

    result = await crawl(
        [first.url("/long")],
        {
            **SETTINGS,
            "CONCURRENT_REQUESTS": 2,
            "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        },
        signal_handlers={scrapy_signals.spider_opened: opened},
    )
    assert set(result.responses) == {first.url("/long"), *wanted}
    assert_clean(result)


class OwnDownloader(Downloader):
    """One with a limit of its own, which cannot be raised."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self.most = self.total_concurrency
        del self.total_concurrency

    def needs_backout(self) -> bool:
        return len(self.active) >= self.most


async def test_a_downloader_that_gives_no_slots(sites: Sites) -> None:
    """There, who waits has a slot already, and is not in line for one."""
    several: list[Site] = [sites.add(robots=after(0.1, RULES)) for _ in range(6)]
    record = Record()
    del record.handlers[scrapy_signals.spider_opened]  # it wants to know of the concurrency
    result = await crawl(
        [site.url("/x") for site in several],
        {**SETTINGS, "CONCURRENT_REQUESTS": 2, "DOWNLOADER": OwnDownloader},
        signal_handlers=record.handlers,
    )
    assert len(result.responses) == 6
    assert_clean(result)


async def test_who_takes_a_slot_is_held_soon(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent sites have all places: the others' requests wait a moment, not for the grace."""
    monkeypatch.setattr(places, "_IN_A_SLOT_SECONDS", 0.05)
    robots = silent_until_open()
    silent = [sites.add(robots=robots) for _ in range(6)]
    record = Record(on_deferred=lambda _, count: robots.open() if count == 4 else None)
    result = await crawl(
        [site.url("/x") for site in silent],
        {**SETTINGS, "CONCURRENT_REQUESTS": 2},
        signal_handlers=record.handlers,
    )
    assert record.deferred == [site.url("/x") for site in silent[2:]]
    assert len(result.responses) == 6
    assert_clean(result)


async def test_one_origin_does_not_take_all_places(sites: Sites) -> None:
    """Half as many as CONCURRENT_REQUESTS wait in all, beside the first of each origin."""
    robots = silent_until_open()
    first, second = sites.add(robots=robots), sites.add(robots=robots)
    record = Record(on_deferred=lambda _, count: robots.open() if count == 7 else None)
    result = await crawl(
        [
            *(first.url(f"/{number}") for number in range(8)),
            *(second.url(f"/{number}") for number in range(4)),
        ],
        {**SETTINGS, "CONCURRENT_REQUESTS": 8},
        signal_handlers=record.handlers,
    )
    expected = [first.url(f"/{number}") for number in range(4, 8)]
    expected += [second.url(f"/{number}") for number in range(1, 4)]
    assert sorted(record.deferred) == sorted(expected)
    assert len(result.responses) == 12
    assert_clean(result)
