"""Whatever the project's own code, a handler of our signals or another part of ours does, each request ends,
and so does the crawl."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request, resolver
from scrapy.utils.datatypes import LocalCache
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import CancelledError

from scrapy_rep import may_fetch, signals
from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, after, answer, in_turn, silence
from tests.helpers.crawling import ListSpider
from tests.helpers.held import (
    NEVER,
    TOO_LONG,
    Bounded,
    InParts,
    a_while,
    later,
    origin_of,
    urls,
)
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.slow]
# Each of these showed a fault once.
SECONDS = 5.0
"""In which each of these crawls should end by far."""


class Cancelling:
    """A component of the project that awaits what a timeout cancels: of the first robots.txt request."""

    error: type[BaseException] = CancelledError
    left = 0

    async def process_request(self, request: Request) -> None:
        if request.url.endswith("/robots.txt") and Cancelling.left:
            Cancelling.left -= 1
            await a_while(0.05)
            raise Cancelling.error


@pytest.fixture(params=[asyncio.CancelledError, CancelledError, OSError])
def cancelling(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.setattr(Cancelling, "error", request.param)
    monkeypatch.setattr(Cancelling, "left", 1)
    return {"DOWNLOADER_MIDDLEWARES": {Cancelling: 450}}


async def test_a_fetch_that_the_projects_code_cancels_has_failed(
    sites: Sites, tmp_path: Path, cancelling: dict[str, Any]
) -> None:
    site, record = sites.add(robots=RULES), Bounded(SECONDS)
    wanted = urls(site, 3)
    result = await record.crawl(
        wanted,
        **cancelling,
        REP_HOLD_MAX_WAIT=1.0,
        _REP_HOLD_GRACE=0.2,
        JOBDIR=str(tmp_path),
    )
    assert result.reason == "finished"
    assert sorted([*result.responses, *result.failures]) == sorted(wanted)


class Asking(ListSpider):
    """Asks whether it may fetch `question`, in the callback of its page."""

    question = ""
    may: Any = None

    async def parse(self, response: Any, **kwargs: Any) -> None:
        asked = deferred_from_coro(may_fetch(self.crawler, self.question))
        asked.addBoth(lambda answer: setattr(self, "may", answer))
        for _ in range(40):
            if self.may is None:
                await a_while(0.1)


async def test_a_question_ends_when_the_projects_code_cancels_the_fetch(
    sites: Sites, cancelling: dict[str, Any]
) -> None:
    site, other, record = (
        sites.add(robots=RULES),
        sites.add(robots=RULES),
        Bounded(SECONDS),
    )

    class OnlyAsking(Asking):
        question = other.url("/page")

    def skip_first(request: Request) -> bool:
        return request.url == site.url("/robots.txt")

    class CancellingOther(Cancelling):
        async def process_request(self, request: Request) -> None:
            if not skip_first(request):
                await super().process_request(request)

    cancelling = {"DOWNLOADER_MIDDLEWARES": {CancellingOther: 450}}
    result = await record.crawl(OnlyAsking, **cancelling, requests=[site.url("/page")])
    assert result.reason == "finished"
    assert result.spider.may in (True, False)  # type: ignore[attr-defined]


@pytest.mark.parametrize("grace", [NEVER, 0.05])
@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "JOBDIR"])
async def test_the_verifier_abandons_no_fetch_that_requests_wait_for(
    sites: Sites, tmp_path: Path, grace: float, jobdir: bool
) -> None:
    """It has waited for REP_HOLD_MAX_WAIT for the robots.txt of the pages' host, they haven't."""
    robots = in_turn(answer("later", 503, [("Retry-After", "1")]), after(1.0, 404))
    target = sites.add(robots=robots)
    pages = f"<urlset><url><loc>{target.url('/listed')}</loc></url></urlset>"
    source = sites.add(pages={"/map.xml": answer(pages, type="application/xml")})
    source.set("/robots.txt", f"Sitemap: {source.url('/map.xml')}\n")
    record = Bounded(SECONDS)
    result = await record.crawl(
        InParts,
        parts=[
            source.url("/page"),
            lambda: target.robots_fetches == 2,
            0.2,
            target.url("/page"),
        ],
        **({"JOBDIR": str(tmp_path)} if jobdir else {}),
        REP_SITEMAPS=True,
        _REP_HOLD_GRACE=grace,
        REP_HOLD_MAX_WAIT=1.5,
        REP_RETRY_DELAY=1.0,
        REP_RETRY_MAX_DELAY=1.0,
    )
    assert result.reason == "finished"
    assert result.status(target.url("/page")) == 200
    assert target.robots_fetches == 2


async def downloads(crawler: Any, url: str) -> None:
    await crawler.engine.download_async(Request(url))


async def asks(crawler: Any, url: str) -> None:
    await a_while(0.3)  # until the next attempt is due
    await may_fetch(crawler, url)


async def never_returns(crawler: Any, url: str) -> None:
    await a_while(NEVER)


@pytest.mark.parametrize("handle", [downloads, asks, never_returns])
@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "JOBDIR"])
async def test_requests_end_whatever_a_handler_of_an_answer_waits_for(
    sites: Sites, tmp_path: Path, handle: Callable[..., Awaitable[None]], jobdir: bool
) -> None:
    """The origin itself, say, whose robots.txt can't be fetched."""
    site, record = sites.add(robots=503), Bounded(SECONDS)
    wanted = urls(site, 3)

    async def resolved(origin: Any, spider: Any) -> None:
        await handle(spider.crawler, f"{origin_of(site)}/favicon.ico")

    def on_failure(spider: Any) -> None:
        if len(spider.errors) == len(wanted):
            # The handler may keep the crawl open; but nobody waits any more.
            later(0.0, record.close)

    record.handlers[signals.robots_resolved] = resolved
    result = await record.crawl(
        wanted,
        on_failure=on_failure,
        **({"JOBDIR": str(tmp_path)} if jobdir else {}),
        REP_HOLD_MAX_WAIT=0.5,
        _REP_HOLD_GRACE=0.05,
    )
    assert result.reason != TOO_LONG
    assert set(result.failures) == set(wanted)


@pytest.mark.filterwarnings("ignore::scrapy.exceptions.ScrapyDeprecationWarning")
@pytest.mark.parametrize("key", ["address", "slot"])
async def test_a_limit_for_addresses_may_stand_in_for_that_for_domains(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """CONCURRENT_REQUESTS_PER_DOMAIN is ignored then, says Scrapy, whatever it is. The pages have a
    download slot of their own: by the address that robots.txt was found at, or by their meta."""
    monkeypatch.setattr(resolver, "dnscache", dnscache := LocalCache())
    monkeypatch.setattr("scrapy.core.downloader.dnscache", dnscache)
    site, record = (
        sites.add(robots=after(0.2, RULES), name="shop.example"),
        Bounded(SECONDS),
    )
    if key == "address":
        record.on_resolved = lambda: dnscache.__setitem__("shop.example", site.host)
    meta = {"download_slot": "mine"} if key == "slot" else {}
    result = await record.crawl(
        [Request(url, meta=meta) for url in urls(site, 3)],
        CONCURRENT_REQUESTS_PER_IP=8,
        CONCURRENT_REQUESTS_PER_DOMAIN=0,
        SCHEDULER_PRIORITY_QUEUE="scrapy.pqueues.ScrapyPriorityQueue",
    )
    assert result.reason == "finished"
    assert len(result.responses) == 3


async def test_any_number_of_answers_may_be_there_at_once(sites: Sites) -> None:
    """Those of REP_OVERRIDES, which queue behind silent origins until these count as slow."""
    silent = [sites.add(robots=silence()) for _ in range(64)]
    hosts = [f"127.3.0.{number + 1}" for number in range(64)]
    record, limit = Bounded(10.0), sys.getrecursionlimit()

    def on_failure(spider: Any) -> None:
        if len(spider.errors) == len(hosts):
            record.close()

    sys.setrecursionlimit(300)  # as with four times as many
    try:
        result = await record.crawl(
            [
                *(Request(site.url("/page"), priority=2) for site in silent),
                *(f"http://{host}:9/" for host in hosts),  # nobody listens there
            ],
            on_failure=on_failure,
            CONCURRENT_REQUESTS=16,
            REP_OVERRIDES=dict.fromkeys(hosts),
            REP_DOWNLOAD_TIMEOUT=NEVER,
            REP_HOLD_MAX_WAIT=NEVER,
            _REP_HOLD_GRACE=NEVER,
        )
    finally:
        sys.setrecursionlimit(limit)
    assert result.reason == "enough"
    assert "recursion" not in result.log
    assert not [
        error
        for error in result.failures.values()
        if isinstance(error, RobotsUnreachable)
    ]


class AtOnce(ListSpider):
    """Downloads pages of another site, all at once, in the callback of its page."""

    beside: list[str] = []
    ends: list[Any] = []

    async def parse(self, response: Any, **kwargs: Any) -> None:
        engine: Any = self.crawler.engine
        for url in self.beside:
            download = deferred_from_coro(engine.download_async(Request(url)))
            download.addBoth(self.ends.append)
        for _ in range(30):
            if len(self.ends) < len(self.beside):
                await a_while(0.1)


@pytest.mark.parametrize(
    "robots", [after(0.3, RULES), in_turn(503, RULES)], ids=["first", "next"]
)
async def test_all_who_wait_for_the_same_answer_are_told(
    sites: Sites, robots: Any
) -> None:
    """Direct downloads: of a first answer, and of the next attempt."""
    site, other, record = (
        sites.add(robots=RULES),
        sites.add(robots=robots),
        Bounded(SECONDS),
    )

    class Downloading(AtOnce):
        beside = urls(other, 6)
        ends: list[Any] = []

    await record.crawl(
        Downloading,
        requests=[site.url("/page")],
        REP_HOLD_MAX_WAIT=3.0,
        REP_RETRY_DELAY=0.3,
    )
    assert [end.status for end in Downloading.ends] == [200] * 6


class HangingMiddleware:
    """A component of the project that never lets a robots.txt request go on: on its way there, or back."""

    where = ""

    async def process_request(self, request: Request) -> None:
        if request.url.endswith("/robots.txt") and self.where == "there":
            await a_while(NEVER)

    async def process_response(self, request: Request, response: Any) -> Any:
        if request.url.endswith("/robots.txt") and self.where == "back":
            await a_while(NEVER)
        return response


@pytest.mark.parametrize("where", ["there", "back"])
async def test_a_middleware_that_never_returns_stops_only_those_who_wait_for_it(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """That is no queue: time goes on, and requests are given up."""
    monkeypatch.setattr(HangingMiddleware, "where", where)
    site, record = sites.add(robots=RULES), Bounded(SECONDS)
    result = await record.crawl(
        urls(site, 3),
        DOWNLOADER_MIDDLEWARES={HangingMiddleware: 450},
        REP_HOLD_MAX_WAIT=0.5,
        _REP_HOLD_GRACE=0.1,
        JOBDIR=str(tmp_path),
    )
    assert result.reason == "finished"
    assert set(result.failures) == set(urls(site, 3))
