"""What other people's spiders and extensions see of a crawl is what they see with Scrapy's own robots.txt
middleware, however long robots.txt takes. Each test compares the two, and changes no default of Scrapy."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.engine.access import EngineAccess
from tests.helpers.behaviours import RULES, after, in_turn, once
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import Gate, silent_until_open, urls
from tests.helpers.servers import Connection, Hit, Site, Sites
from tests.holding.schedulers import FourMethods, Slotted

pytestmark = pytest.mark.slow
PAGES = 20
OURS: dict[str, Any] = {
    "REP_UNREACHABLE": "hold",
    "REP_RETRY_DELAY": 0.1,
    "_REP_HOLD_IDLE": 60,
}
SCRAPYS: dict[str, Any] = {"ADDONS": {}, "ROBOTSTXT_OBEY": True}
# robots.txt that is there at once, that takes a while, and that is down at first. Scrapy's own
# middleware takes a failure for permission.
ROBOTS: dict[str, Callable[[], Any]] = {
    "quick": lambda: RULES,
    "slow": lambda: after(0.7, RULES),
    "down": lambda: in_turn(503, RULES),
}


async def both(
    site: Site,
    spider: type[ListSpider],
    jobs: list[dict[str, Any]] | None = None,
    **more: Any,
) -> list[CrawlResult]:
    results = []
    more = {"requests": urls(site, PAGES), **more}
    for settings, job in zip((OURS, SCRAPYS), jobs or [{}, {}]):
        results.append(await crawl(spider, {**settings, **job}, **more))
        site.requests.clear()
    return results


class WatchedSpider(ListSpider):
    dont_filter = False

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> WatchedSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.seen = Counter()
        spider.idles = []
        for signal in (
            signals.request_scheduled,
            signals.request_dropped,
            signals.request_reached_downloader,
            signals.request_left_downloader,
            signals.response_received,
        ):
            crawler.signals.connect(spider.see, signal)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def see(self, request: Request, signal: object) -> None:
        self.seen[signal] += not request.url.endswith("/robots.txt")

    def idle(self) -> None:
        self.idles.append(len(self.responses))


def of_scheduler(result: CrawlResult) -> dict[str, Any]:
    names = ("scheduler/", "dupefilter/", "offsite/", "request_depth", "item_")
    return {
        name: value for name, value in result.stats.items() if name.startswith(names)
    }


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("robots", "jobdir"),
    [
        ("down", False),
        ("quick", False),
        ("slow", False),
        ("slow", True),
        ("down", True),
    ],
)
async def test_signals_idleness_and_stats(
    sites: Sites, tmp_path: Path, robots: str, jobdir: bool
) -> None:
    """Also of duplicates, which the dupe filter sees once."""
    jobs = [
        {"JOBDIR": str(tmp_path / one)} if jobdir else {} for one in ("ours", "scrapys")
    ]
    site = sites.add(robots=ROBOTS[robots]())
    ours, scrapys = await both(
        site, WatchedSpider, jobs, requests=urls(site, PAGES) * 2
    )
    assert ours.spider.seen == scrapys.spider.seen
    assert ours.spider.seen[signals.request_dropped] == PAGES
    assert ours.spider.idles == scrapys.spider.idles == [PAGES]
    assert of_scheduler(ours) == of_scheduler(scrapys)
    ours.assert_clean()


class QuotaSpider(WatchedSpider):
    """Lets so many requests pass, as documented for ``request_scheduled``."""

    def see(self, request: Request, signal: object) -> None:
        super().see(request, signal)
        if self.seen[signals.request_scheduled] > PAGES:
            raise IgnoreRequest("over the quota")


@pytest.mark.parametrize("robots", ["slow", "down"])
async def test_a_quota_counts_each_once(sites: Sites, robots: str) -> None:
    for result in await both(sites.add(robots=ROBOTS[robots]()), QuotaSpider):
        assert len(result.responses) == PAGES


class KeepingSpider(ListSpider):
    sent: list[Request] = []

    def recorded(self, request: str | Request) -> Request:
        self.sent = [*self.sent, super().recorded(request)]
        return self.sent[-1]


@pytest.mark.parametrize("robots", ["slow", "down"])
async def test_callbacks_get_the_request_that_the_spider_made(
    sites: Sites, robots: str
) -> None:
    """Not one like it: extensions, too, keep what they know of a request by the request itself."""
    for result in await both(sites.add(robots=ROBOTS[robots]()), KeepingSpider):
        got = {id(one.request) for one in result.spider.responses}
        assert got == {id(one) for one in result.spider.sent}


class InTwoBatches(WatchedSpider):
    async def start(self) -> AsyncIterator[Any]:
        self.batches = deque([self.requests[:10], self.requests[10:]])
        for request in self.batches.popleft():
            yield self.recorded(request)

    def idle(self) -> None:
        super().idle()
        if self.batches:
            for request in self.batches.popleft():
                self.crawler.engine.crawl(self.recorded(request))
            raise DontCloseSpider


async def test_a_pump_sees_two_idles(sites: Sites) -> None:
    for result in await both(sites.add(robots=ROBOTS["slow"]()), InTwoBatches):
        assert result.spider.idles == [10, PAGES]


async def test_a_pump_goes_on_though_an_origin_stays_down(sites: Sites) -> None:
    """After _REP_HOLD_IDLE seconds without anything but waiting; the crawl stays open."""
    gate, healthy = Gate(503, RULES), sites.add(robots=RULES)
    down = sites.add(robots=gate)
    wanted = urls(healthy, 10)
    result = await crawl(
        InTwoBatches,
        {**OURS, "_REP_HOLD_IDLE": 0.2, "REP_RETRY_MAX_DELAY": 0.2},
        requests=[*urls(down, 10), *wanted],
        on_page=lambda spider: gate.open() if len(spider.responses) == 10 else None,
    )
    assert len(result.responses) == PAGES
    assert result.spider.idles[0] == 0
    assert result.spider.idles[-1] == PAGES


class LazySpider(WatchedSpider):
    async def start(self) -> AsyncIterator[Any]:
        scheduler = EngineAccess(self.crawler).scheduler
        for request in self.requests:
            yield self.recorded(request)
            if scheduler.has_pending_requests():
                self.empty: Deferred[None] = Deferred()
                self.crawler.signals.connect(self.wake, signals.scheduler_empty)
                await maybe_deferred_to_future(self.empty)

    def wake(self) -> None:
        self.crawler.signals.disconnect(self.wake, signals.scheduler_empty)
        self.empty.callback(None)


async def test_a_lazy_start(sites: Sites) -> None:
    """It isn't kept from going on by requests that wait for robots.txt."""
    for result in await both(sites.add(robots=ROBOTS["slow"]()), LazySpider):
        assert len(result.responses) == PAGES


class FrugalSpider(ListSpider):
    """Scrapy's documentation has this ``start()``, in "Delaying start request iteration"."""

    async def start(self) -> AsyncIterator[Any]:
        scheduler, self.most = EngineAccess(self.crawler).scheduler, 0
        for request in self.requests:
            if self.crawler.engine.needs_backout():
                await self.crawler.signals.wait_for(signals.scheduler_empty)
            yield self.recorded(request)
            self.most = max(self.most, len(scheduler))


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_a_frugal_start(sites: Sites) -> None:
    """It keeps the scheduler empty, though more requests come than may wait for robots.txt."""
    site = sites.add(robots=after(0.3, RULES))
    for result in await both(site, FrugalSpider, requests=urls(site, 300)):
        assert len(result.responses) == 300
        assert result.spider.most <= 1


@pytest.mark.loop
@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    ("scheduler", "robots"),
    [(FourMethods, "down"), (FourMethods, "slow"), (Slotted, "down")],
)
async def test_somebody_elses_scheduler(
    sites: Sites, scheduler: type, robots: str
) -> None:
    jobs = [{"SCHEDULER": scheduler}, {"SCHEDULER": scheduler}]
    ours, scrapys = await both(sites.add(robots=ROBOTS[robots]()), WatchedSpider, jobs)
    assert ours.spider.seen == scrapys.spider.seen
    assert len(ours.responses) == PAGES
    if scheduler is Slotted:
        assert "doesn't let its methods be replaced" in ours.log
    ours.assert_clean()


@pytest.mark.parametrize(
    ("robots", "count", "is_last"),
    [
        (after(0.2, RULES), 5, True),
        (after(0.2, RULES), 30, True),
        (in_turn(503, RULES), 5, False),
    ],
    ids=["few waited", "many waited", "held"],
)
async def test_one_that_comes_while_others_leave(
    sites: Sites, robots: Any, count: int, is_last: bool
) -> None:
    """It is behind those that only waited. Those that were held don't keep it waiting."""
    site = sites.add(robots=robots)

    def on_page(spider: ListSpider) -> Any:
        return (
            spider.recorded(site.url("/late")) if len(spider.responses) == 1 else None
        )

    await crawl(
        urls(site, count),
        {**OURS, "CONCURRENT_REQUESTS_PER_DOMAIN": 1},
        on_page=on_page,
    )
    assert (site.pages_asked[-1] == "/late") is is_last
    assert [*filter("/late".__ne__, site.pages_asked)] == [
        f"/page{n}" for n in range(count)
    ]


FEWER: dict[str, Any] = {"CONCURRENT_REQUESTS": 8, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
"""Fewer downloads of a site than there may be in all, as by Scrapy's default."""


@pytest.mark.usefixtures("in_time")
async def test_pages_come_in_order(sites: Sites) -> None:
    """Those that waited, and those for which there was no room at the gate, behind them."""
    site = sites.add()
    pages = urls(site, 200)
    scheduled, reached = list[str](), list[str]()
    handlers = {
        signals.request_scheduled: lambda request: scheduled.append(request.url),
        signals.request_reached_downloader: lambda request: reached.append(request.url),
    }
    site.set("/robots.txt", once(lambda: len(scheduled) == len(pages), RULES))
    for settings in (OURS, SCRAPYS):
        scheduled.clear()
        reached.clear()
        await crawl(pages, {**settings, **FEWER}, signal_handlers=handlers)
        order = [pages.index(url) for url in reached if url in pages]
        assert order == [*range(len(pages))]


async def test_those_that_were_held_are_not_last(sites: Sites) -> None:
    """Though the site's other pages keep its download slot full."""
    site = sites.add(robots=in_turn(503, RULES))

    def on_page(spider: ListSpider) -> Any:
        return (
            map(spider.recorded, urls(site, 200, "/more"))
            if not spider.responses[1:]
            else None
        )

    result = await crawl(held := urls(site, 40), {**OURS, **FEWER}, on_page=on_page)
    assert len(result.responses) == 240
    assert max([*result.responses].index(one) for one in held) < 160


async def test_an_urgent_request_while_others_leave(sites: Sites) -> None:
    """Those of another site, however many were held, don't keep it in the scheduler."""
    down, healthy = sites.add(robots=in_turn(503, RULES)), sites.add(robots=RULES)

    def on_page(spider: ListSpider) -> Any:
        first = spider.responses[-1].url == down.url("/page0")
        return (
            spider.recorded(Request(healthy.url("/urgent"), priority=9))
            if first
            else None
        )

    wanted = [healthy.url("/known"), *urls(down, 40)]
    result = await crawl(wanted, {**OURS, "CONCURRENT_REQUESTS": 1}, on_page=on_page)
    assert [*result.responses].index(healthy.url("/urgent")) < 6


async def test_one_origin_does_not_fill_the_downloader(sites: Sites) -> None:
    answers = silent_until_open("x")
    pages = {f"/page{n}": answers for n in range(1, 40)}
    busy = sites.add(robots=in_turn(503, RULES), pages={"/page0": "x", **pages})
    other = sites.add(robots=RULES)
    wanted = urls(other, 5)

    def on_page(spider: ListSpider) -> Any:
        if {one.url for one in spider.responses} >= set(wanted):
            answers.open()
        first = spider.responses[-1].url == busy.url("/page0")
        return map(spider.recorded, wanted) if first else None

    settings = {**OURS, "CONCURRENT_REQUESTS_PER_DOMAIN": 4}
    result = await crawl(urls(busy, 40), settings, on_page=on_page)
    assert len(result.responses) == 45
    assert "retry/count" not in result.stats  # no slot had to be freed by a timeout


async def test_held_of_several_sites_leave_in_turns(sites: Sites) -> None:
    """Also while the scheduler has many of one of them."""
    answers = silent_until_open(RULES)

    async def second(hit: Hit, connection: Connection) -> None:
        if one.robots_fetches == other.robots_fetches == 2:
            answers.open()  # both at once
        await answers(hit, connection)

    one, other = (sites.add(robots=in_turn(503, second)) for _ in range(2))

    def on_page(spider: ListSpider) -> Any:
        return (
            map(spider.recorded, urls(one, 200, "/more"))
            if not spider.responses[1:]
            else None
        )

    wanted = [*urls(one, 100), *(few := urls(other, 20))]
    result = await crawl(wanted, {**OURS, **FEWER}, on_page=on_page)
    assert len(result.responses) == 320
    assert max([*result.responses].index(page) for page in few) < 120
