"""The crawl of a world (`tests.fuzz.worlds`), in a process of its own: does what its plan says, and writes
down what happens. Times are those of `time.monotonic()`, which all processes share."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

import scrapy_rep
from scrapy_rep import RepMiddleware
from scrapy_rep import signals as rep_signals
from tests.helpers.events import EventRecorder, write
from tests.helpers.held import a_while
from tests.helpers.invariant import Invariant, watched


def record(kind: str, **about: Any) -> None:
    write(json.dumps({"t": time.monotonic(), "kind": kind, **about}))


class WorldRecorder(EventRecorder):
    kinds = {
        signals.request_scheduled: "scheduled",
        signals.request_dropped: "dropped",
        signals.request_reached_downloader: "reached",
        rep_signals.request_held: "held",
        rep_signals.request_released: "released",
        rep_signals.request_given_up: "given_up",
    }

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._invariants: list[Invariant] = []
        construct = watched(
            lambda text: record("stuck", detail=text), self._invariants.append
        )
        RepMiddleware.__init__ = construct  # type: ignore[method-assign]

    def opened(self) -> None:
        call_later(float(os.environ["CRAWL_LIMIT"]), self._too_long)
        if seconds := os.environ.get("CRAWL_CLOSES"):
            call_later(float(seconds), self._close)
        record("opened")

    def _close(self) -> None:
        engine: Any = self.crawler.engine
        if engine.spider is not None:
            deferred_from_coro(engine.close_spider_async(reason="enough"))

    def _too_long(self) -> None:
        record("hangs", detail=self._invariants[0].snapshot())
        os._exit(3)

    def seen(self, kind: str, request: Request) -> None:
        record(kind, url=request.url, priority=request.priority)

    def resolved(self, origin: Any, outcome: Any, **_: Any) -> None:
        record("resolved", url=f"{origin}/robots.txt", detail=outcome.value)

    def closed(self, reason: str) -> None:
        numbers = (int, float)
        stats = {
            name: value
            for name, value in self.stats.items()
            if isinstance(value, numbers)
        }
        record("closed", detail=reason, stats=stats)


class Canceller:
    """A component of the project that awaits what a timeout cancels, once."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Canceller:
        middleware = cls()
        middleware.left = os.environ.get("CRAWL_CANCELS", "")
        return middleware

    left = ""

    async def process_request(self, request: Request) -> None:
        if self.left and request.url == self.left:
            self.left = ""
            await a_while(0.05)
            raise asyncio.CancelledError


class Lag:
    """A component of the project that takes some time for each page."""

    async def process_request(self, request: Request) -> None:
        if not request.url.endswith("/robots.txt"):
            await a_while(float(os.environ["CRAWL_LAG"]))


class WorldSpider(Spider):
    name = "world"
    sitemap_rules = [("", "parse")]

    def __init__(self, plan: str, run: str, **kwargs: str) -> None:
        super().__init__(**kwargs)
        world = json.loads(Path(plan).read_text())
        self.roots: list[str] = world["roots"]
        self.acts: list[dict[str, Any]] = world["runs"][int(run)]["acts"]
        self.handler: str = world["handler"]
        self.known: set[Any] = set()
        self.beside = 0
        """How many direct downloads and questions are under way."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> WorldSpider:
        spider = super().from_crawler(crawler, *args, **kwargs)
        if spider.handler:
            crawler.signals.connect(spider.on_resolved, rep_signals.robots_resolved)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        began = time.monotonic()
        for act in self.acts:
            if (left := began + act["at"] - time.monotonic()) > 0:
                await a_while(left)
            url = self.roots[act["origin"]] + act["path"]
            if act["kind"] == "request":
                cb_kwargs = {"then": act["then"]}
                yield Request(
                    url,
                    self.parse,
                    errback=self.failed,
                    priority=act["priority"],
                    cb_kwargs=cb_kwargs,
                )
            elif act["kind"] == "pause":
                await self.pause(act["seconds"])
            else:
                self.beside += 1
                deferred_from_coro(self.aside(act["kind"], url))
        while self.beside:
            await a_while(0.05)

    async def pause(self, seconds: float) -> None:
        engine: Any = self.crawler.engine
        engine.pause()
        record("paused")
        await a_while(seconds)
        record("unpaused")
        engine.unpause()

    async def aside(self, kind: str, url: str) -> None:
        record(f"{kind} began", url=url)
        try:
            if kind == "may":
                outcome = str(await scrapy_rep.may_fetch(self.crawler, url))
            else:
                engine: Any = self.crawler.engine
                response = await engine.download_async(Request(url))
                outcome = str(response.status)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (of any kind)
            outcome = f"{type(error).__name__}: {error}"
        record(kind, url=url, detail=outcome)
        self.beside -= 1

    async def on_resolved(self, origin: Any, **_: Any) -> None:
        if self.handler == "slow":
            await a_while(0.3)
        elif (
            origin not in self.known
        ):  # each attempt would be followed by another one for its sake
            self.known.add(origin)
            await self.aside_of_handler(f"{origin}/a/handler")

    async def aside_of_handler(self, url: str) -> None:
        engine: Any = self.crawler.engine
        try:
            await engine.download_async(Request(url))
        except Exception as error:  # noqa: BLE001 (of any kind)
            self.logger.info("The handler's download failed: %s", error)

    def parse(self, response: Response, then: str = "") -> Iterator[Request]:
        record("page", url=response.url, detail=response.status)
        if then:
            origin, _, path = then.partition("/")
            yield Request(f"{self.roots[int(origin)]}/{path}", errback=self.failed)

    def failed(self, failure: Any) -> None:
        kind, text = type(failure.value).__name__, str(failure.value)
        record("failed", url=failure.request.url, detail=f"{kind}: {text}")
