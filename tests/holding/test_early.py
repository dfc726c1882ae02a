"""REP.md section 14: requests that fresh rules forbid are dropped before the scheduler, when that comes to
the same end; else they take the long road through it. Each trap of either has a test here."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import CloseSpider, DontCloseSpider, IgnoreRequest
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep import RepMiddleware, may_fetch
from scrapy_rep.engine.timers import SLICE_SECONDS
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.holding import early
from tests.helpers.behaviours import RULES, page, redirect
from tests.helpers.crawling import Clock, CrawlResult, ListSpider, StepSpider, crawl
from tests.helpers.held import (
    HOLD,
    NEVER,
    Record,
    a_while,
    origin_of,
    silent_until_open,
)
from tests.helpers.log import lines, summary
from tests.helpers.recorded import decisions
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, listing, urlset
from tests.holding.schedulers import FourMethods, Slotted

QUEUED = "Requests that robots.txt forbids are queued until their turn comes: "


class LinkSpider(ListSpider):
    """Yields *links* from the last start page: then the robots.txt of all sites is known."""

    dont_filter = False

    def __init__(
        self, links: list[str | Request], errbacks: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.links, self.errbacks = links, errbacks

    def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response, **kwargs)
        links = []
        if len(self.responses) >= len(self.requests):
            links, self.links = self.links, []
        for link in links:
            request = link if isinstance(link, Request) else Request(link)
            errback = self.failed if self.errbacks else request.errback
            yield request.replace(callback=self.parse, errback=errback)


async def follow(
    site: Site,
    links: list[str | Request],
    spider: type[ListSpider] = LinkSpider,
    **more: Any,
) -> CrawlResult:
    """Crawl the *site*'s page that has *links*. *more*: settings, in capitals, and arguments."""
    settings = {name: more.pop(name) for name in list(more) if name.isupper()}
    return await crawl(spider, settings, requests=[site.url("/")], links=links, **more)


def private(site: Site, count: int) -> list[str | Request]:
    return [site.url(f"/private/{number}") for number in range(count)]


def be_busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def queued(result: CrawlResult) -> int:
    """How many requests were in the scheduler, the start request apart."""
    return int(result.stat("scheduler/enqueued")) - 1


def forbidden(result: CrawlResult) -> int:
    return int(result.stat("robotstxt/forbidden"))


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_what_others_see(sites: Sites, tmp_path: Path) -> None:
    """Nothing but a shorter queue."""
    site, seen, file = (
        sites.add(robots=RULES),
        Counter[object](),
        tmp_path / "decisions.jsonl",
    )
    handlers = {
        signal: lambda request, signal: seen.update([signal])
        for signal in (signals.request_scheduled, signals.request_dropped)
    }
    links = [*private(site, 5), site.url("/x")]
    result = await follow(
        site, links, signal_handlers=handlers, REP_DECISIONS=str(file)
    )
    result.assert_clean()
    assert queued(result) == 1
    assert seen == {signals.request_scheduled: 7}
    assert [request.url for request, _ in result.spider.errors] == links[:5]
    for error in result.failures.values():
        assert (
            str(error)
            == "Forbidden by robots.txt (line 2: Disallow: /private, group *)"
        )
    assert forbidden(result) == 5
    assert len(lines(result, "Forbidden by robots.txt (line 2", level=None)) == 5
    assert lines(result, QUEUED) == []
    assert "Requests: 2 allowed, 5 forbidden" in summary(result)
    dropped = [line for line in decisions(file) if line["verdict"] == "disallowed"]
    assert [line["url"] for line in dropped] == links[:5]
    assert {line["line"] for line in dropped} == {2}
    assert site.pages_asked == ["/", "/x"]


async def test_a_handler_that_refuses_a_request_comes_first(sites: Sites) -> None:
    """Scrapy's offsite filter does; and handlers that exempt a request may come last."""
    site, other = sites.add(robots=RULES), sites.add(robots=RULES)

    def exempt(request: Request) -> None:
        if request.url.endswith("/private/1"):
            request.meta["dont_obey_robotstxt"] = True

    class OneSpider(LinkSpider):
        allowed_domains = [origin_of(site).split("/")[2].split(":")[0]]

    # The robots.txt of both is known before there are links.
    start = [
        Request(other.url("/y"), meta={"allow_offsite": True}),
        Request(site.url("/")),
    ]
    result = await crawl(
        OneSpider,
        {"CONCURRENT_REQUESTS": 1},
        requests=start,
        links=[*private(other, 3), *private(site, 3)],
        signal_handlers={signals.request_scheduled: exempt},
    )
    assert site.pages_asked == ["/", "/private/1"]
    assert result.stat("offsite/filtered") == 3
    assert forbidden(result) == 2


# What makes of a request something else than a refusal: then it goes the long road.


class Exempting:
    """A project's middleware, before ours."""

    def process_request(self, request: Request) -> None:
        if request.url.endswith("/private/1"):
            request.meta["dont_obey_robotstxt"] = True


class Rewriting:
    def process_request(self, request: Request) -> Request | None:
        return (
            request.replace(url=request.url.replace("private", "public"))
            if ("/private/1" in request.url)
            else None
        )


class Answering:
    """Answers what is refused, from an archive, say."""

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Response | None:
        if isinstance(exception, IgnoreRequest):
            return TextResponse(request.url, body=b"from the archive", request=request)
        return None


class OwnWay(RepMiddleware):
    def process_request(self, request: Request) -> Any:
        if request.url.endswith("/private/1"):
            return None
        return super().process_request(request)


class Watching(RepMiddleware):
    """By super(), ours and Scrapy's are called as ever."""

    def process_exception(
        self, request: Request, exception: Exception
    ) -> Response | None:
        return Answering().process_exception(request, exception)


BEFORE = {"DOWNLOADER_MIDDLEWARES": {Exempting: 60}}
OBSTACLES: dict[str, tuple[dict[str, Any], str, int]] = {
    "exempting": (BEFORE, "Exempting sees requests before RepMiddleware does", 2),
    "rewriting": (
        {"DOWNLOADER_MIDDLEWARES": {Rewriting: 99}},
        "Rewriting sees requests before RepMiddleware does",
        2,
    ),
    "answering": (
        {"DOWNLOADER_MIDDLEWARES": {Answering: 900}},
        "Answering has a process_exception(), which sees refusals",
        3,
    ),
    "own way": (
        {"DOWNLOADER_MIDDLEWARES": {OwnWay: 100}},
        "OwnWay has a process_request() of its own",
        2,
    ),
    "subclass with an exception": (
        {"DOWNLOADER_MIDDLEWARES": {Watching: 100}},
        "Watching has a process_exception(), which sees refusals",
        3,
    ),
    "retried": (
        {"RETRY_EXCEPTIONS": ["scrapy.exceptions.IgnoreRequest"], "RETRY_TIMES": 1},
        "RETRY_EXCEPTIONS has scrapy.exceptions.IgnoreRequest, so refused requests are tried again",
        6,
    ),
    "slots": ({"SCHEDULER": Slotted}, "Slotted doesn't let its methods be replaced", 3),
}


@pytest.mark.scrapy_api
@pytest.mark.parametrize("name", OBSTACLES)
@pytest.mark.parametrize("sitemaps", [False, True])
async def test_an_obstacle_is_said_once_at_the_start(
    sites: Sites, name: str, sitemaps: bool
) -> None:
    """With sitemaps, the middleware's class is made anew."""
    settings, why, count = OBSTACLES[name]
    site = sites.add(robots=RULES)
    result = await follow(site, private(site, 3), REP_SITEMAPS=sitemaps, **settings)
    assert lines(result, QUEUED) == [QUEUED + why]
    assert forbidden(result) == count
    if name != "slots":  # it counts nothing
        assert queued(result) >= 3
    if name in ("exempting", "own way"):
        assert result.status(site.url("/private/1")) == 200
    elif name == "rewriting":
        assert "/public/1" in site.pages_asked
    elif "xception" in name or name == "answering":
        assert [one.body for one in result.spider.responses[1:]] == [
            b"from the archive"
        ] * 3


class ChangesNothing:
    def process_request(self, request: Request) -> None:
        pass

    def process_response(self, request: Request, response: Response) -> Response:
        return response


class Tolerant(RepMiddleware):
    """The documented way to let more pass."""

    seen: list[Request] = []

    def overrules(self, request: Request, decision: Any) -> bool:
        self.seen.append(request)
        if request.url.endswith("/private/2"):
            raise ValueError("a bug")
        return request.url.endswith("/private/1")


@pytest.mark.parametrize(
    "settings", [{}, {"DOWNLOADER_MIDDLEWARES": {ChangesNothing: 101}}]
)
async def test_other_middlewares_are_no_obstacle(
    sites: Sites, settings: dict[str, Any]
) -> None:
    site = sites.add(robots=RULES)
    result = await follow(site, private(site, 3), **settings)
    assert (queued(result), forbidden(result)) == (0, 3)
    assert lines(result, QUEUED) == []


async def test_overrules_is_asked_about_the_spiders_own_request(sites: Sites) -> None:
    """One that it raises for fails at its turn, as ever."""
    site = sites.add(robots=RULES)
    result = await follow(
        site, private(site, 4), DOWNLOADER_MIDDLEWARES={Tolerant: 100}
    )
    assert result.status(site.url("/private/1")) == 200
    assert isinstance(result.failure(site.url("/private/2")), ValueError)
    assert (queued(result), forbidden(result)) == (2, 2)


async def test_a_dry_run_drops_nothing(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    result = await follow(site, private(site, 3), REP_DRY_RUN=True)
    assert len(result.responses) == queued(result) + 1 == 4
    assert forbidden(result) == 3
    assert lines(result, QUEUED) == []


# What is not known, or not fresh


async def test_only_fresh_rules_drop(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old rules are fetched again first: they may allow the page now."""
    clock = Clock().install(monkeypatch)
    site = sites.add(robots=RULES)
    steps: list[Any] = [site.url("/"), site.url("/private/1")]
    steps += [lambda: site.set("/robots.txt", 404), 86401, site.url("/private/1")]
    result = await crawl(StepSpider, steps=steps, clock=clock)
    assert result.spider.outcomes == ["ok", "RobotsDisallowed", "ok"]
    assert queued(result) == 1


async def test_what_applies_to_a_requests_own_agent(sites: Sites) -> None:
    rules = "User-agent: foobot\nDisallow: /foo\n\nUser-agent: *\nDisallow: /all\n"
    site = sites.add(robots=rules)
    links: list[str | Request] = [
        Request(site.url("/foo/1"), meta={"rep_user_agent": "foobot"}),
        Request(site.url("/foo/2"), headers={"User-Agent": "foobot/1.0"}),
        Request(site.url("/all/3"), meta={"rep_user_agent": "foobot"}),
        Request(site.url("/all/4"), headers={"User-Agent": "foobot/1.0"}),
        Request(site.url("/all/5"), meta={"dont_obey_robotstxt": True}),
        *(site.url("/foo/6"), site.url("/all/7")),
    ]
    result = await follow(site, links)
    assert {request.url[-1] for request, _ in result.spider.errors} == {"1", "2", "7"}
    assert queued(result) == 4


async def test_an_address_that_redirects_to_a_forbidden_one(sites: Sites) -> None:
    site = sites.add(
        robots=RULES, pages={"/a": redirect("/private/1"), "/b": redirect("/private/1")}
    )
    result = await follow(site, [site.url("/a"), site.url("/b")])
    assert queued(result) == 2
    assert forbidden(result) == len(result.spider.errors) == 1


async def test_every_start_request_is_forbidden(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    settings = {"CONCURRENT_REQUESTS": 1}
    result = await crawl(
        [site.url(f"/private/{number}") for number in range(40)], settings
    )
    assert forbidden(result) == 40
    assert lines(result, "refused every start request (40)", level="WARNING")


# Counted once


async def test_a_path_counts_once_whatever_its_fragment(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    same = ["/private/1", "/private/1#a", "/private/1#b", "/private/1"]
    posts = [
        Request(site.url("/private/1"), method="POST", body=body)
        for body in ("a", "b", "a")
    ]
    result = await follow(site, [*map(site.url, same), *posts])
    assert queued(result) == 0
    assert (
        forbidden(result) == len(result.spider.errors) == 3
    )  # as the dupe filter has it


async def test_each_request_past_the_dupe_filter_counts(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    links = [Request(site.url("/private/1"), dont_filter=True) for _ in range(3)]
    result = await follow(
        site, [*links, site.url("/private/1"), site.url("/private/1")]
    )
    assert queued(result) == 0
    assert forbidden(result) == len(result.spider.errors) == 4


async def test_a_path_counts_once_on_both_roads(sites: Sites) -> None:
    """Its first request waits for a first answer, and leaves after the second was dropped."""
    robots = silent_until_open()
    site, other = sites.add(), sites.add(robots=robots)
    wanted = other.url("/private/1")

    class TwiceSpider(LinkSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            if response.url == site.url("/"):
                robots.open()
            elif response.url == other.url("/y"):
                yield Request(f"{wanted}#again", self.parse, errback=self.failed)
            yield from super().parse(response, **kwargs)

    result = await follow(site, [wanted, other.url("/y")], TwiceSpider)
    result.assert_clean()
    assert forbidden(result) == 1
    assert len(result.spider.errors) == 1


# Until the loop's next turn


class PumpSpider(LinkSpider):
    """Schedules the next URL whenever it is idle, without DontCloseSpider."""

    @classmethod
    def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self) -> None:
        if self.pump:
            request = Request(self.pump.pop(0), self.parse, errback=self.failed)
            self.crawler.engine.crawl(
                request if self.errbacks else request.replace(errback=None)
            )


@pytest.mark.loop
@pytest.mark.parametrize("errbacks", [True, False])
async def test_a_spider_that_goes_on_when_it_is_idle(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, errbacks: bool
) -> None:
    monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)
    site = sites.add(robots=RULES)
    urls = [
        site.url(path)
        for path in ("/private/1", "/private/2", "/x", "/private/3", "/y")
    ]
    result = await follow(site, [], PumpSpider, pump=urls, errbacks=errbacks)
    assert site.pages_asked == ["/", "/x", "/y"]
    assert forbidden(result) == 3


@pytest.mark.loop
async def test_a_spider_that_goes_on_after_slow_errbacks(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine looks whether it is idle while some wait, and again after the last one."""
    monkeypatch.setattr(ExecutionEngine, "_SLOT_HEARTBEAT_INTERVAL", NEVER)
    site = sites.add(robots=RULES)

    class SlowPumpSpider(PumpSpider):
        def idle(self) -> None:
            for _ in range(3):
                super().idle()

        def failed(self, failure: Any) -> None:
            super().failed(failure)
            be_busy(2 * SLICE_SECONDS)

    urls = [site.url(f"/private/{number}") for number in range(6)]
    result = await follow(site, [], SlowPumpSpider, pump=[*urls, site.url("/x")])
    assert site.pages_asked == ["/", "/x"]
    assert forbidden(result) == 6


class ErrbackSpider(LinkSpider):
    """Its errbacks do all that errbacks can."""

    closing = False

    def parse(self, response: Response, **kwargs: Any) -> Any:
        requests = list(super().parse(response, **kwargs))
        for request in requests:
            kind = request.url.rpartition("/")[2]
            errback = getattr(self, f"on_{kind}", self.failed)
            request = request.replace(errback=errback, cb_kwargs={"number": kind})
            self.requested[request.url] = request
            yield request

    requested: dict[str, Request] = {}

    def on_items(self, failure: Any) -> Iterator[Any]:
        self.failed(failure)
        yield {"number": failure.request.cb_kwargs["number"]}
        yield {"same": failure.request is self.requested[failure.request.url]}

    async def on_later(self, failure: Any) -> AsyncIterator[Any]:
        self.failed(failure)
        yield {"same": failure.request is self.requested[failure.request.url]}

    async def on_coroutine(self, failure: Any) -> list[Any]:
        self.failed(failure)
        return [{"same": failure.request is self.requested[failure.request.url]}]

    def on_again(self, failure: Any) -> Iterator[Any]:
        self.failed(failure)
        again = failure.request.replace(dont_filter=True)
        if len(self.errors) < 20:
            yield again

    def on_elsewhere(self, failure: Any) -> Request:
        self.failed(failure)
        return Request(failure.request.url.replace("/private", ""), self.parse)

    def on_bug(self, failure: Any) -> None:
        self.failed(failure)
        raise ZeroDivisionError("a bug of the spider's")

    def on_same(self, failure: Any) -> None:
        self.failed(failure)
        raise failure.value

    def on_failure_itself(self, failure: Any) -> Any:
        self.failed(failure)
        return failure


KINDS = (
    "items",
    "later",
    "coroutine",
    "again",
    "elsewhere",
    "bug",
    "same",
    "failure_itself",
)


@pytest.mark.loop
@pytest.mark.parametrize("jobdir", [False, True])
async def test_errbacks_are_as_ever(sites: Sites, tmp_path: Path, jobdir: bool) -> None:
    """As with Scrapy's own middleware, up to what their exceptions say."""
    site, results = sites.add(robots=RULES), []
    for name, settings in {
        "ours": {},
        "theirs": {"ADDONS": {}, "ROBOTSTXT_OBEY": True},
    }.items():
        more = {"JOBDIR": str(tmp_path / name)} if jobdir else {}
        links = [site.url(f"/private/{kind}") for kind in KINDS]
        results.append(await follow(site, [*links], ErrbackSpider, **settings, **more))
    ours, theirs = results
    assert queued(ours) == 1 < queued(theirs)
    seen = [
        (
            Counter(request.url for request, _ in result.spider.errors),
            sorted(str(item) for item in result.spider.items if "same" not in item),
            sorted(result.responses),
            {
                name: value
                for name, value in result.stats.items()
                if "spider_exc" in name
            },
            forbidden(result),
        )
        for result in results
    ]
    assert seen[0] == seen[1]
    # On disk, it becomes another one.
    for result, is_same in ((ours, True), (theirs, not jobdir)):
        assert [item["same"] for item in result.spider.items if "same" in item] == [
            is_same
        ] * 3
    errors = [
        [one for one in result.records if one.levelname == "ERROR"]
        for result in results
    ]
    assert [[one.name for one in some] for some in errors] == [
        ["scrapy.core.scraper"]
    ] * 2


async def test_an_errback_closes_the_spider(sites: Sites) -> None:
    site = sites.add(robots=RULES)

    def close(spider: Any) -> None:
        raise CloseSpider("seen enough")

    result = await follow(site, private(site, 1), on_failure=close)
    assert result.reason == "seen enough"


async def test_an_errback_is_called_on_the_next_turn(sites: Sites) -> None:
    site, seen = sites.add(robots=RULES), []

    class DirectSpider(LinkSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            for number in range(3):
                request = Request(site.url(f"/private/{number}"), errback=self.failed)
                self.crawler.engine.crawl(request)
                seen.append(len(self.errors))

    result = await follow(site, [], DirectSpider)
    assert seen == [0, 0, 0]
    assert len(result.spider.errors) == 3


class AtOnceSpider(LinkSpider):
    """Has its links scheduled in one turn of the event loop, so many at a time."""

    async def parse(self, response: Response, **kwargs: Any) -> None:
        for request in list(super().parse(response, **kwargs)):
            if self.at_a_time and len(self.sent) % self.at_a_time == 0:
                await a_while(0.05)
            self.sent = [*self.sent, request.url]
            self.crawler.engine.crawl(request)
        self.is_done.callback(None)

    at_a_time = 0
    sent: list[str] = []


def few_errbacks(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(early, "_MOST_ERRBACKS", most)


@pytest.mark.loop
async def test_few_errbacks_wait(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond, requests take the long road."""
    few_errbacks(monkeypatch, 10)
    site = sites.add(robots=RULES)
    result = await follow(site, private(site, 50), AtOnceSpider, is_done=Deferred())
    result.assert_clean()
    assert queued(result) == 40
    assert forbidden(result) == len(result.spider.errors) == 50


class SlowPipeline:
    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Any) -> SlowPipeline:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        await maybe_deferred_to_future(self.crawler.spider.is_done)
        return item


@pytest.mark.loop
async def test_little_output_of_errbacks_waits(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline takes its time. Meanwhile, further requests take the long road."""
    few_errbacks(monkeypatch, 10)
    site = sites.add(robots=RULES)
    more = {
        "on_failure": lambda spider: {"an": "item"},
        "at_a_time": 5,
        "is_done": Deferred(),
    }
    settings: dict[str, Any] = {"ITEM_PIPELINES": {SlowPipeline: 100}}
    result = await follow(site, private(site, 50), AtOnceSpider, **settings, **more)
    result.assert_clean()
    assert queued(result) == 40
    assert (
        forbidden(result) == len(result.spider.errors) == len(result.spider.items) == 50
    )


@pytest.mark.alone
async def test_errbacks_hold_no_loop(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    gaps, last = [], [0.0]

    class TickingSpider(LinkSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            for request in super().parse(response, **kwargs):
                self.crawler.engine.crawl(request)
            last[0] = time.perf_counter()
            self.tick()
            return ()

        def tick(self) -> None:
            now = time.perf_counter()
            gaps.append(now - last[0])
            last[0] = now
            if len(self.errors) < 500:
                call_later(0, self.tick)

        def failed(self, failure: Any) -> None:
            self.errors.append((failure.request, failure.value))
            be_busy(0.002)

    result = await follow(site, private(site, 500), TickingSpider)
    assert len(result.spider.errors) == 500
    assert max(gaps[1:]) < 0.1  # a second, if they were all called at once


async def test_errbacks_that_wait_are_called_before_the_spider_closes(
    sites: Sites,
) -> None:
    site = sites.add(robots=RULES)
    record = Record()

    class LeavingSpider(LinkSpider):
        def parse(self, response: Response, **kwargs: Any) -> Any:
            for request in super().parse(response, **kwargs):
                self.crawler.engine.crawl(request)
            record.close()
            return ()

        def failed(self, failure: Any) -> None:
            super().failed(failure)
            be_busy(2 * SLICE_SECONDS)  # so each has a turn of its own

    result = await record.crawl(
        LeavingSpider, requests=[site.url("/")], links=private(site, 30)
    )
    assert result.reason == "enough"
    assert len(result.spider.errors) == 30


async def test_what_is_scheduled_while_the_spider_closes_waits_for_the_next_run(
    sites: Sites, tmp_path: Path
) -> None:
    site, record = sites.add(robots=RULES), Record()

    class LeavingSpider(LinkSpider):
        async def parse(self, response: Response, **kwargs: Any) -> Any:
            self.responses.append(response)
            record.close()
            middleware: Any = self.crawler.get_downloader_middleware(RepMiddleware)
            while not middleware._early._closing:
                await a_while(0.01)
            yield Request(site.url("/private/1"), self.parse, errback=self.failed)

    more = {"requests": [site.url("/")], "links": [], "JOBDIR": str(tmp_path)}
    result = await record.crawl(LeavingSpider, **more)
    assert (queued(result), forbidden(result)) == (1, 0)
    result = await crawl(LinkSpider, {"JOBDIR": str(tmp_path)}, links=[])
    assert forbidden(result) == 1


# CrawlSpider


class FollowingSpider(CrawlSpider):
    name = "following"
    rules = [Rule(LinkExtractor(), callback="parse_page")]

    def __init__(self, start: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [start]
        self.errors: list[Any] = []
        self.items: list[Any] = []
        self.pages: list[str] = []

    def parse_page(self, response: Response) -> None:
        self.pages.append(response.url)

    def failed(self, failure: Any) -> None:
        self.errors.append(failure.value)


class WithErrback(FollowingSpider):
    rules = [Rule(LinkExtractor(), callback="parse_page", errback="failed")]


class HandlesFailures(FollowingSpider):
    def _handle_failure(self, failure: Any, errback: Any) -> Any:
        self.failed(failure)
        return super()._handle_failure(failure, errback)


@pytest.mark.scrapy_api
@pytest.mark.parametrize("kind", [FollowingSpider, WithErrback, HandlesFailures])
async def test_a_crawl_spider(
    sites: Sites, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its requests has an errback, which does nothing if the rule has none: as many as
    there are may be dropped at once."""
    few_errbacks(monkeypatch, 5)
    links = "".join(f'<a href="/private/{number}">x</a>' for number in range(20))
    site = sites.add(robots=RULES, pages={"/": page(f'{links}<a href="/x">x</a>')})
    result = await crawl(kind, start=site.url("/"))
    assert result.spider.pages == [site.url("/x")]
    assert forbidden(result) == 20
    if kind is FollowingSpider:
        assert queued(result) == 1
        assert result.spider.errors == []
    else:
        assert queued(result) < 20
        assert [type(one) for one in result.spider.errors] == [RobotsDisallowed] * 20


# Sitemaps


@pytest.mark.parametrize(
    ("mode", "seeds"),
    [(True, True), ("start", True), (["{}/map.xml"], False), (False, False)],
)
async def test_an_origin_that_has_not_seeded_yet(
    sites: Sites, mode: Any, seeds: bool
) -> None:
    """It is known through may_fetch() alone, and its first page is forbidden."""
    site, other = sites.add(robots=listing("/map.xml", rules=RULES)), sites.add()
    site.set("/map.xml", urlset([site.url("/listed")]))
    if isinstance(mode, list):
        mode = [other.url("/map.xml")]

    class KnowingSpider(LinkSpider):
        async def start(self) -> AsyncIterator[Any]:
            assert not await may_fetch(self.crawler, site.url("/private"))
            for _ in range(2):
                yield Request(site.url("/private/1"), self.parse, errback=self.failed)

    settings: dict[str, Any] = {"REP_SITEMAPS": mode}
    if isinstance(mode, list):
        settings, KnowingSpider.rep_sitemaps = {}, mode  # type: ignore[attr-defined]
    result = await crawl(KnowingSpider, settings, requests=[], links=[])
    assert forbidden(result) == 1
    assert site.count("/listed") == seeds


async def test_nothing_waits_for_the_collector(sites: Sites) -> None:
    """A dropped request is freed at once, and a page of a sitemap is done with it."""
    site, refs = sites.add(), []
    pages = [site.url(f"/private/{number}") for number in range(5000)]
    site.set("/robots.txt", listing("/map.xml", rules=RULES))
    site.set("/map.xml", urlset([*pages, site.url("/listed")]))

    class FreeSpider(SeededSpider):
        @classmethod
        def from_crawler(cls, crawler: Any, *args: Any, **kwargs: Any) -> Any:
            crawler.signals.connect(cls.see, signals.request_scheduled)
            return super().from_crawler(crawler, *args, **kwargs)

        @staticmethod
        def see(request: Request) -> None:
            refs.append(ref(request))

    alive: list[int] = []

    def closed(spider: Spider) -> None:
        alive.append(sum(one() is not None for one in refs))

    gc.disable()
    try:
        result = await crawl(
            FreeSpider,
            {"REP_SITEMAPS": True},
            requests=[site.url("/start")],
            signal_handlers={signals.spider_closed: closed},
        )
    finally:
        gc.enable()
    assert site.count("/listed") == 1
    assert forbidden(result) == 5000
    assert result.stat("scheduler/enqueued") < 10
    assert alive[0] < 100
    assert result.stat("rep/sitemaps/waiting") == 0


async def test_a_forbidden_sitemap_is_noted(sites: Sites) -> None:
    """The middleware sees its refusal in process_exception()."""
    site = sites.add(
        robots=listing(*(f"/private/{n}.xml" for n in range(20)), rules=RULES)
    )
    result = await crawl(
        SeededSpider,
        {"REP_SITEMAPS": True},
        requests=[site.url("/start"), site.url("/private")],
    )
    result.assert_clean()
    assert result.stat("rep/sitemaps/failed") == 20
    assert (
        len(lines(result, " was not read: Forbidden by robots.txt", level=None)) == 20
    )
    assert result.stat("rep/sitemaps/waiting") == 0


# Schedulers


async def test_what_the_scheduler_gives_itself_goes_in(sites: Sites) -> None:
    site = sites.add(robots=RULES)
    taken: list[str] = []

    class OwnWork(Scheduler):
        given = False

        def enqueue_request(self, request: Request) -> bool:
            taken.append(request.url)
            return super().enqueue_request(request)

        def next_request(self) -> Request | None:
            request = super().next_request()
            if (
                request is None
                and len(taken) == 1
                and not OwnWork.given
                and site.pages_asked
            ):
                OwnWork.given = True
                self.enqueue_request(Request(site.url("/private/own")))
                request = super().next_request()
            return request

        def has_pending_requests(self) -> bool:
            return super().has_pending_requests() or not OwnWork.given

    result = await follow(site, [], SCHEDULER=OwnWork)
    assert taken == [site.url("/"), site.url("/private/own")]
    assert forbidden(result) == 1


async def test_what_is_handed_back_goes_in(sites: Sites) -> None:
    """By a scheduler that isn't Scrapy's, if there is no room for it at the gate."""
    site = sites.add(robots=RULES)
    request = Request(site.url("/private/1"), meta={"_rep_held": {"dont_filter": True}})
    result = await follow(site, [request])
    assert (queued(result), forbidden(result)) == (1, 1)


@pytest.mark.scrapy_api
@pytest.mark.parametrize("jobdir", [False, True])
async def test_a_scheduler_with_four_methods(
    sites: Sites, tmp_path: Path, jobdir: bool
) -> None:
    site = sites.add(robots=RULES)
    more: dict[str, Any] = (
        {"JOBDIR": str(tmp_path)} if jobdir else {"SCHEDULER": FourMethods}
    )
    result = await follow(site, [*private(site, 5), site.url("/x")], **more)
    result.assert_clean()
    assert forbidden(result) == len(result.spider.errors) == 5
    assert site.pages_asked == ["/", "/x"]


async def test_a_pump_that_keeps_the_spider_open_sees_what_it_saw(sites: Sites) -> None:
    site, idles = sites.add(robots=RULES), []

    def idle(spider: Any) -> None:
        idles.append(len(spider.errors))
        if len(idles) == 1:
            spider.crawler.engine.crawl(
                Request(site.url("/private/1"), errback=spider.failed)
            )
            raise DontCloseSpider

    handlers: dict[Any, Callable[..., Any]] = {signals.spider_idle: idle}
    await follow(site, [], signal_handlers=handlers)
    assert idles == [0, 1]


async def test_requests_that_are_held_stay_held(sites: Sites) -> None:
    """Nothing is known of their rules."""
    site, down = sites.add(robots=RULES), sites.add(robots=503)
    settings = {**HOLD, "REP_HOLD_MAX_WAIT": 0.3}
    links: list[str | Request] = [down.url("/private/1"), *private(site, 2)]
    result = await follow(site, links, **settings)
    assert (queued(result), forbidden(result)) == (1, 2)
    assert result.stat("rep/given_up") == 1
