"""When the crawl is done with a request: told, whatever its end is, and never by the garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.http import Response

from scrapy_rep.engine.access import EngineAccess, Trail
from scrapy_rep.signals import request_held
from tests.helpers.behaviours import RULES, redirect, silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.files import ask
from tests.helpers.held import HOLD, a_while, assert_no_errors, silent_until_open, urls
from tests.helpers.rows import every_row
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, urlset

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api]
KEY = "_rep_test"


class Followed:
    """A crawl of one URL, followed as number 1; and what happened, in order."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.events: list[str] = []
        self.trail: Trail | None = None
        self.metas: list[dict[str, Any]] = []

    def opened(self, spider: Spider) -> None:
        following = EngineAccess(spider.crawler).following
        self.trail = following.trail(
            KEY, lambda number: self.events.append(f"done {number}")
        )
        following.begin()

    def note(self, event: str) -> None:
        self.events.append(event)

    async def crawl(
        self,
        path: str,
        *,
        handlers: dict[Any, Any] | None = None,
        middleware: type | None = None,
        spider: dict[str, Any] | None = None,
        **settings: Any,
    ) -> list[str]:
        followed, url = self, self.site.url(path)

        async def parse(spider: Any, response: Response) -> Any:
            followed.metas.append(dict(response.meta))
            followed.note("callback")
            await a_while(0.02)
            followed.note("callback ends")
            if "child" not in response.url:
                yield Request(followed.site.url("/child"), meta=dict(response.meta))

        async def start(spider: Any) -> AsyncIterator[Any]:
            request = Request(url, errback=getattr(spider, "failed_page", None))
            assert followed.trail is not None
            followed.trail.begin(request, 1)
            spider.crawler.engine.crawl(request)
            followed.trail.let_go(1)
            followed.note("sent")
            return
            yield

        kind = type(
            "One", (ListSpider,), {"parse": parse, "start": start, **(spider or {})}
        )
        if middleware is not None:
            settings["DOWNLOADER_MIDDLEWARES"] = {middleware: 600}
        listening = {signals.spider_opened: self.opened, **(handlers or {})}
        await crawl(kind, settings, signal_handlers=listening)
        return self.events


class Raises:
    """A middleware of the project's that gives up an answer: nobody is told."""

    def process_response(self, request: Request, response: Response) -> Response:
        if "child" in request.url:
            return response
        raise IgnoreRequest("not wanted")


class Breaks(Raises):
    def process_response(self, request: Request, response: Response) -> Response:
        raise ValueError("a bug")


class RefusesRequests:
    def process_request(self, request: Request) -> None:
        raise IgnoreRequest("not wanted")


class AsksForEachAgain:
    def process_response(self, request: Request, response: Response) -> Any:
        if "child" in request.url or request.meta.get("again"):
            return response
        again = request.replace(dont_filter=True)
        again.meta["again"] = True
        return again


def refuse(request: Request) -> None:
    raise IgnoreRequest("offsite")


def refuse_target(request: Request) -> None:
    if "target" in request.url:
        raise IgnoreRequest("offsite")


async def errback(self: Any, failure: Any) -> None:
    await a_while(0.02)


CALLED = ["sent", "callback", "callback ends", "done 1", "callback", "callback ends"]
ENDS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a page": ({}, CALLED),
    "refused by a handler of request_scheduled": (
        {"handlers": {signals.request_scheduled: refuse}},
        ["done 1", "sent"],
    ),
    "a project's middleware drops the answer": (
        {"middleware": Raises},
        ["sent", "done 1"],
    ),
    "a project's middleware breaks": ({"middleware": Breaks}, ["sent", "done 1"]),
    "a project's middleware drops the request": (
        {"middleware": RefusesRequests},
        ["sent", "done 1"],
    ),
    "another request in its place": ({"middleware": AsksForEachAgain}, CALLED),
    "a redirect": ({"path": "/moved"}, CALLED),
    "a redirect that is refused": (
        {"path": "/moved", "handlers": {signals.request_scheduled: refuse_target}},
        ["sent", "done 1"],
    ),
    "a redirect loop": ({"path": "/loop", "REDIRECT_MAX_TIMES": 2}, ["sent", "done 1"]),
    "retries": ({"path": "/down", "RETRY_TIMES": 2}, ["sent", "done 1"]),
    "forbidden": ({"path": "/private"}, ["sent", "done 1"]),
    "no answer, and an errback": (
        {
            "path": "/silent",
            "DOWNLOAD_TIMEOUT": 0.2,
            "spider": {"failed_page": errback},
        },
        ["sent", "done 1"],
    ),
}


async def test_every_end_of_a_request_is_told(sites: Sites) -> None:
    """Once, after its last callback or errback: also if it was redirected or retried meanwhile."""
    with every_row() as row:
        for name, (how, expected) in ENDS.items():
            with row(name):
                pages = {
                    "/moved": redirect("/target"),
                    "/loop": redirect("/loop"),
                    "/down": 503,
                }
                site = sites.add(robots=RULES, pages={**pages, "/silent": silence()})
                followed = Followed(site)
                settings = {"path": "/page", "RETRY_TIMES": 0, **how}
                assert await followed.crawl(**settings) == expected
                assert all(KEY not in meta for meta in followed.metas)
                assert followed.trail is not None
                assert followed.trail.numbers == []
                assert followed.trail.in_progress == {}


async def test_a_filtered_request_ends_as_it_is_sent(sites: Sites) -> None:
    class DropsAll:
        @classmethod
        def from_crawler(cls, crawler: Any) -> DropsAll:
            return cls()

        def request_seen(self, request: Request) -> bool:
            return True

        def open(self) -> None: ...
        def close(self, reason: str) -> None: ...
        def log(self, request: Request, spider: Spider) -> None: ...

    followed = Followed(sites.add())
    assert await followed.crawl("/page", DUPEFILTER_CLASS=DropsAll) == [
        "done 1",
        "sent",
    ]


async def test_a_copy_that_is_downloaded_directly_does_not_end_it(sites: Sites) -> None:
    """A middleware that fetches something by the way, with the request's meta."""

    class ByTheWay:
        def __init__(self, crawler: Any) -> None:
            self.crawler = crawler

        @classmethod
        def from_crawler(cls, crawler: Any) -> ByTheWay:
            return cls(crawler)

        async def process_request(self, request: Request) -> None:
            if request.url.endswith("/page"):
                await self.crawler.engine.download_async(
                    request.replace(url=site.url("/token"))
                )

    site = sites.add()
    assert await Followed(site).crawl("/page", middleware=ByTheWay) == CALLED
    assert site.count("/token") == 1


async def test_numbers_of_another_run_mean_nothing() -> None:
    done: list[int] = []
    mine, earlier = (
        Trail(KEY, done.append, is_kept=lambda: False, in_memory=False)
        for _ in range(2)
    )
    earlier._run -= 1
    request = Request("http://a.example/")
    earlier.begin(request, 1)
    mine.begin(Request("http://a.example/other"), 1)
    assert mine.number_of(request) is None
    for step in (
        mine.note_scheduled,
        mine.note_taken,
        mine.note_ended,
        mine.note_stored,
    ):
        step(request)
    assert done == []
    for strange in (None, 1, "text", [], [1, 2, 3], {}):
        assert mine.number_of(request.replace(meta={KEY: strange})) is None


@contextmanager
def no_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def collections_elsewhere() -> Iterator[None]:
    over = threading.Event()

    def collect() -> None:
        while not over.wait(0.002):
            gc.collect(0)
            gc.collect(1)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("collector", [no_collector, collections_elsewhere])
async def test_pages_that_another_extension_refuses(
    sites: Sites, collector: Callable[[], Any]
) -> None:
    """An exception in a handler of request_scheduled leaves its request in a reference cycle. More
    pages than may be in the scheduler at a time."""
    site, near = sites.add(), sites.add()
    robots = f"Sitemap: {site.url('/map.xml')}\n"
    site.set("/robots.txt", robots)
    near.set("/robots.txt", robots)
    wanted = [site.url(f"/{number}") for number in range(5)]
    urls = [near.url(f"/far/{number}") for number in range(3000)]
    site.set("/map.xml", urlset([*urls, *wanted]))

    class Offsite(SeededSpider):
        allowed_domains = [site.host]

    settings = {"REP_SITEMAPS": True, "REP_SITEMAP_CROSS_HOST": "any"}
    with collector():
        result = await crawl(Offsite, settings, requests=[site.url("/start")])
    assert_no_errors(result)
    assert {*result.responses} == {site.url("/start"), *wanted}
    assert result.stat("offsite/filtered") == len(urls)


async def test_rows_of_held_requests_go_without_the_collector(
    sites: Sites, tmp_path: Any
) -> None:
    """Once the callback has ended, and not before."""
    robots = silent_until_open()
    site = sites.add(robots=robots)
    rows: list[int] = []
    count: list[int] = []

    class SlowItemSpider(ListSpider):
        async def parse(self, response: Response, **_: Any) -> Any:
            self.responses.append(response)
            await a_while(0.05)
            query = "SELECT count(*) FROM held"
            rows.append(int(ask(tmp_path / "rep-held.sqlite", query)))
            yield {}

    class DropsItems:
        def process_item(self, item: Any) -> Any:
            raise DropItem("not wanted")

    def held(request: Request) -> None:
        count.append(1)
        robots.opened = len(count) == 45

    settings = {**HOLD, "JOBDIR": str(tmp_path), "_REP_HOLD_GRACE": 0.05}
    settings |= {"CONCURRENT_REQUESTS_PER_DOMAIN": 1, "ITEM_PIPELINES": {DropsItems: 1}}
    with no_collector():
        result = await crawl(
            SlowItemSpider,
            settings,
            requests=urls(site, 45),
            signal_handlers={request_held: held},
        )
    assert len(result.responses) == 45
    assert rows[0] == 45
    assert rows[-1] <= 25  # they go in twenties, or after a second
    assert int(ask(tmp_path / "rep-held.sqlite", "SELECT count(*) FROM held")) == 0
