"""REP.md section 2: when the time of a robots.txt begins and ends, and which bytes are whose."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import Any
from weakref import ref

import pytest
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import default_settings
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from scrapy.utils.test import get_crawler
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore

from scrapy_rep import RepMiddleware
from scrapy_rep.engine.pools import has_small_pool
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.fetcher import Allowance, Fetcher
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from tests.helpers.behaviours import RULES, answer, in_turn, redirect, silence
from tests.helpers.crawling import ONE_ATTEMPT, ListSpider, crawl
from tests.helpers.handlers import WrappedHandler
from tests.helpers.held import Record, a_while
from tests.helpers.rows import every_row
from tests.helpers.servers import Connection, Hit, Sites

pytestmark = [pytest.mark.loop, pytest.mark.download]

LIMIT = 512_000
EARLY = b"User-agent: *\nDisallow: /early\n"
LATE = b"Disallow: /late\n"
# Between two requests to one host, give or take half of it.
DELAY = 0.4


def comments(length: int) -> bytes:
    """Exactly so many bytes, a multiple of 100."""
    assert length % 100 == 0
    return (b"#" + b"." * 98 + b"\n") * (length // 100)


class FetchSpider(ListSpider):
    """Asks for the robots.txt of `origin` when it has its first page, and requests what `pages` are."""

    def __init__(
        self, origin: str, pages: list[str], allowance: Allowance, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.origin, self.pages, self.allowance = origin, pages, allowance
        self.queued: list[tuple[bool, float]] = []
        """Whether the fetch began to stand in a queue, or left it, and when."""
        self.answer: Answer | None = None
        self.began = 0.0

    async def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        if self.answer is not None or self.began:
            return
        self.began = time.monotonic()
        engine = self.crawler.engine
        assert engine is not None
        for url in self.pages:
            engine.crawl(self.recorded(url))
        await a_while(0.1)  # they are in the slot's queue
        middleware = self.crawler.get_downloader_middleware(RepMiddleware)
        fetcher: Fetcher = middleware.origins.fetcher  # type: ignore[union-attr]
        self.answer = await fetcher.fetch(
            Origin.from_url(self.origin),
            Request(self.origin),
            self.allowance,
            self.note_queue,
        )

    def note_queue(self, is_queued: bool) -> None:
        self.queued.append((is_queued, time.monotonic()))


@pytest.mark.scrapy_api
async def test_time_in_the_queue_of_a_download_slot_costs_nothing(sites: Sites) -> None:
    """Two origins of one host share a slot. The second one's robots.txt, and where that leads, wait
    there behind pages of the first."""
    first = sites.add()
    second = sites.add(redirect("/rules.txt"), {"/rules.txt": RULES}, host=first.host)
    pages = [first.url(f"/{number}") for number in range(3)]
    allowance = Allowance(each=0.3, in_all=0.35)
    result = await crawl(
        FetchSpider,
        {"DOWNLOAD_DELAY": DELAY},
        requests=[first.url("/")],
        origin=second.url("/"),
        pages=pages,
        allowance=allowance,
    )
    spider: Any = result.spider
    assert spider.answer.error is None
    assert (spider.answer.outcome, spider.answer.hops) == (Outcome.RULES, 1)
    assert [is_queued for is_queued, _ in spider.queued] == [True, False, True, False]
    left_at = spider.queued[1][1]
    assert left_at - spider.began > 2 * DELAY / 2
    assert 0 < allowance.in_all < 0.35
    assert [hit.path for hit in second.requests] == ["/robots.txt", "/rules.txt"]
    result.assert_clean()


class Timeless(WrappedHandler):
    """Counts its timeout anew with each read, as httpx does: so it never comes."""

    async def download_request(self, request: Request) -> Response:
        request.meta["download_timeout"] = 3600.0
        return await super().download_request(request)


class Deaf(WrappedHandler):
    """Can't be stopped: curl in a thread, say."""

    async def download_request(self, request: Request) -> Response:
        if request.url.endswith("/robots.txt"):
            await maybe_deferred_to_future(Deferred(lambda _: None))
        return await super().download_request(request)


@pytest.mark.parametrize("handler", [Timeless, Deaf])
async def test_the_time_limit_is_ours(sites: Sites, handler: type) -> None:
    """An attempt is made, and fails; what waits is dropped."""
    drips = sites.add(
        silence(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-agent:")
    )
    began = time.monotonic()
    settings = {
        **ONE_ATTEMPT,
        "REP_DOWNLOAD_TIMEOUT": 0.3,
        "DOWNLOAD_HANDLERS": {"http": handler},
    }
    record = Record()
    result = await record.crawl([drips.url("/x")], **settings, REP_UNREACHABLE="drop")
    error = result.failure(drips.url("/x"))
    assert isinstance(error, RobotsUnreachable)
    assert str(error.__cause__) == "took longer than 0.3 seconds"
    assert error.attempts == 1
    assert time.monotonic() - began < 10
    assert await record.concurrency() == [16, 16]
    result.assert_clean()


class Cancels(WrappedHandler):
    """Awaits what a timeout of its own cancels, say."""

    error: BaseException

    async def download_request(self, request: Request) -> Response:
        if request.url.endswith("/robots.txt"):
            raise self.error
        return await super().download_request(request)


@pytest.mark.parametrize("error", [CancelledError(), asyncio.CancelledError()])
async def test_a_handler_that_cancels_has_failed(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Scrapy itself waits for ever after asyncio's."""
    monkeypatch.setattr(Cancels, "error", error, raising=False)
    site = sites.add(RULES)
    result = await crawl(
        [site.url("/x")], {**ONE_ATTEMPT, "DOWNLOAD_HANDLERS": {"http": Cancels}}
    )
    failed = result.failure(site.url("/x"))
    assert isinstance(failed, RobotsUnreachable)
    assert "the download handler cancelled the download" in failed.reason
    result.assert_clean()


async def test_a_fetch_that_is_given_up_frees_its_connection(sites: Sites) -> None:
    """When the crawl closes, say, not when the site has been silent for long enough."""
    record, left = Record(), []

    async def behave(hit: Hit, connection: Connection) -> None:
        with suppress(ConnectionError):
            await connection.gone()
        left.append(hit.path)

    site = sites.add(behave)
    record.on_held = lambda _, held: record.close()
    result = await record.crawl(
        [site.url("/x")], REP_DOWNLOAD_TIMEOUT=50.0, _REP_HOLD_GRACE=0.1
    )
    assert result.reason == "enough"
    for _ in range(300):
        if left:
            break
        await a_while(0.01)
    assert left == ["/robots.txt"]


class AsksAgain:
    """Ban detection: a page of 403 is asked for again, through another proxy."""

    def process_response(
        self, request: Request, response: Response
    ) -> Request | Response:
        return request.copy() if response.status == 403 else response


@pytest.mark.scrapy_api
async def test_each_try_has_its_own_bytes(sites: Sites) -> None:
    """Three of them are more than a robots.txt may have."""
    ban = answer(b"<html>" + b"x" * 300_000, 403)
    rules = EARLY + comments(90_000) + LATE
    site = sites.add(in_turn(ban, ban, rules))
    result = await crawl(
        [site.url("/late"), site.url("/early")],
        {"DOWNLOADER_MIDDLEWARES": {AsksAgain: 10}},
    )
    assert site.count("/robots.txt") == 3
    assert {type(error) for error in result.failures.values()} == {RobotsDisallowed}
    assert len(result.failures) == 2
    result.assert_clean()


class Whole(WrappedHandler):
    """Sends no `bytes_received`, and reads everything."""

    body = b""

    async def download_request(self, request: Request) -> Response:
        if request.url.endswith("/robots.txt"):
            return Response(request.url, body=self.body)
        return await super().download_request(request)


async def test_what_a_handler_reads_beyond_the_limit_is_not_kept(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Whole, "body", EARLY + comments(LIMIT) + LATE + comments(5_000_000)
    )
    site = sites.add()
    lengths = []

    class Looks:
        def process_response(self, request: Request, response: Response) -> Response:
            lengths.append(len(response.body))
            return response

    settings = {
        "DOWNLOAD_HANDLERS": {"http": Whole},
        "DOWNLOADER_MIDDLEWARES": {Looks: 999},
    }
    result = await crawl([site.url("/late"), site.url("/early")], settings)
    assert result.disallowed(site.url("/early"))
    assert result.status(site.url("/late")) == 200
    assert lengths[0] == LIMIT + 1
    result.assert_clean()


class Pool(WrappedHandler):
    """Opens no more than CONCURRENT_REQUESTS connections, as httpx and aiohttp do."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._free = DeferredSemaphore(crawler.settings.getint("CONCURRENT_REQUESTS"))

    async def download_request(self, request: Request) -> Response:
        await maybe_deferred_to_future(self._free.acquire())
        try:
            return await super().download_request(request)
        finally:
            self._free.release()


async def test_half_of_a_pool_is_for_pages(sites: Sites) -> None:
    """Silent sites take no more than the other half of it."""
    site = sites.add(pages={f"/{number}": "page" for number in range(20)})
    silent = [sites.add(silence()).url("/x") for _ in range(6)]
    pages = [site.url(f"/{number}") for number in range(20)]
    record = Record()

    def on_page(spider: ListSpider) -> None:
        if len(spider.responses) == len(pages):
            record.close()

    result = await record.crawl(
        [pages[0], *silent, *pages[1:]],
        on_page=on_page,
        DOWNLOAD_HANDLERS={"http": Pool},
        CONCURRENT_REQUESTS=4,
        REP_DOWNLOAD_TIMEOUT=50.0,
    )
    assert result.reason == "enough"
    assert await record.concurrency() == [4, 4]


async def test_silent_sites_give_their_connections_back_in_turns(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked again, and have the whole time limit when nobody else needs a place. What was broken
    off is no attempt."""
    monkeypatch.setattr("scrapy_rep.origins.queue.SLOW_SECONDS", 0.2)
    silent = [sites.add(silence()) for _ in range(4)]
    healthy = sites.add(RULES)
    result = await crawl(
        [*(site.url("/x") for site in silent), healthy.url("/page")],
        {
            **ONE_ATTEMPT,
            "DOWNLOAD_HANDLERS": {"http": Pool},
            "CONCURRENT_REQUESTS": 4,
            "REP_DOWNLOAD_TIMEOUT": 2.0,
        },
    )
    result.assert_clean()
    assert result.status(healthy.url("/page")) == 200
    first = healthy.hits("/robots.txt")[0].time
    asked = [hit.time for site in silent for hit in site.hits("/robots.txt")]
    again = [hit.time for site in silent for hit in site.hits("/robots.txt")[1:]]
    assert min(asked) + 0.3 < first < min(again)
    assert sorted(site.robots_fetches for site in silent) == [
        1,
        2,
        2,
        2,
    ]  # three places were needed
    assert all(
        isinstance(result.failure(site.url("/x")), RobotsUnreachable) for site in silent
    )
    assert result.stat("robotstxt/request_count") == 5


async def test_what_gives_way_in_a_download_slot_is_not_sent_when_its_turn_comes(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind pages of another origin of its host."""
    monkeypatch.setattr("scrapy_rep.origins.queue.SLOW_SECONDS", 0.1)
    busy = sites.add(RULES)
    beside, other = sites.add(RULES, host=busy.host), sites.add(RULES)
    pages = [busy.url(f"/{number}") for number in range(2)]
    result = await crawl(
        [*pages, beside.url("/page"), other.url("/page")],
        {
            "DOWNLOAD_HANDLERS": {"http": Pool},
            "CONCURRENT_REQUESTS": 3,
            "DOWNLOAD_DELAY": 2 * DELAY,
            "REP_UNREACHABLE": "hold",
        },
    )
    result.assert_clean()
    assert [
        record.getMessage() for record in result.records if record.levelname == "ERROR"
    ] == []
    assert len(result.responses) == 4
    assert [site.robots_fetches for site in (busy, beside, other)] == [1, 1, 1]
    [first], [last] = other.hits("/robots.txt"), beside.hits("/robots.txt")
    assert first.time < last.time
    assert result.stat("downloader/request_count") > 7  # it gave way


def test_which_handlers_have_a_pool_that_stays_small() -> None:
    usual = default_settings.DOWNLOAD_HANDLERS_BASE["http"]

    class HandlerWithPool(load_object(usual)):  # type: ignore[misc]
        """As scrapy-playwright's."""

    scrapys = "scrapy.core.downloader.handlers"
    table: dict[Any, bool] = {
        usual: False,
        HandlerWithPool: False,
        f"{scrapys}.http11.HTTP11DownloadHandler": False,
        f"{scrapys}.http2.H2DownloadHandler": False,
        Pool: True,
    }
    if find_spec(f"{scrapys}._base_streaming"):
        enlarged = load_object(f"{scrapys}._httpx.HttpxDownloadHandler")

        class Made(enlarged):  # type: ignore[misc,valid-type]
            """Nobody knows what making two of it does."""

            def __init__(self, crawler: Crawler) -> None:
                super().__init__(crawler)

        class MadeElsewhere(enlarged):  # type: ignore[misc,valid-type]
            @classmethod
            def from_crawler(cls, crawler: Crawler) -> Any:
                return cls(crawler)

        class MadeLate(enlarged):  # type: ignore[misc,valid-type]
            """Scrapy makes it at the first request."""

            lazy = True

        class Headers(enlarged):  # type: ignore[misc,valid-type]
            """Overrides something else."""

        table |= {
            enlarged: False,
            Headers: False,
            Made: True,
            MadeElsewhere: True,
            MadeLate: False,
        }
    with every_row() as row:
        for handler, expected in table.items():
            with row(handler):
                handlers = {
                    "http": handler,
                    "https": f"{scrapys}.http11.HTTP11DownloadHandler",
                }
                crawler = get_crawler(settings_dict={"DOWNLOAD_HANDLERS": handlers})
                assert has_small_pool(crawler) == expected


async def test_a_fetch_is_freed_without_the_garbage_collector(sites: Sites) -> None:
    """Its request has what downloads it in its meta, which must not lead back to the request."""
    requests: list[ref[Request]] = []
    alive: list[int] = []

    def reached(request: Request) -> None:
        if request.url.endswith("/robots.txt"):
            requests.append(ref(request))

    def closed() -> None:
        alive.append(sum(request() is not None for request in requests))

    logging.disable()  # pytest keeps log records, and these keep requests
    gc.disable()
    try:
        await crawl(
            ListSpider,
            requests=[sites.add(robots=RULES).url("/page") for _ in range(20)],
            signal_handlers={
                signals.request_reached_downloader: reached,
                signals.spider_closed: closed,
            },
        )
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
    assert len(requests) == 20
    assert alive[0] < 10
