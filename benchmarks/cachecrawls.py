"""The sites and the crawls that cache.py measures, each to be run in a process of its own.

The sites have addresses of their own, 127.31.0.1 and up: see crawls.py.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from cachework import Place, body_of, files_of, url_of
from crawls import child
from inside import SETTINGS, run_inside
from robotsfiles import made
from scrapy.crawler import CrawlerProcess

from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.flight import Flight
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from multiprocessing.connection import Connection

ANSWER_SECONDS = 0.03
PAGES = 3
TICK_SECONDS = 0.002
FLYING = 32


class Watch:
    """For how long the event loop kept somebody waiting at most, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.computing = 0.0
        """The same in CPU time of this thread: what else the machine does is not in it."""
        self.collecting = 0.0
        """The longest collection of garbage, in CPU time: part of every crawl."""
        self._began = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        task = asyncio.get_running_loop().create_task(self._tick())
        gc.callbacks.append(self._collect)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collect)
            task.cancel()

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.collecting = max(self.collecting, time.thread_time() - self._began)

    async def _tick(self) -> None:
        while True:
            began, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - began - TICK_SECONDS)
            self.computing = max(self.computing, time.thread_time() - computed)


# A storage that is filled from within a crawl


class Filled(NamedTuple):
    """What a fill came to."""

    rate: float
    """Origins a second."""
    block: float
    """The longest of the event loop, in seconds."""
    computing: float
    """The longest in CPU time."""
    collecting: float
    """The longest collection of garbage, in CPU time."""
    idle: float
    """The longest in a second in which nothing was done: that is the machine's."""


class Fetcher:
    """In the place of the one that asks sites."""

    def __init__(self, files: list[bytes]) -> None:
        self._files = files
        self._next = 0

    async def fetch(self, origin: Origin, *_: object) -> Answer:
        self._next += 1
        await asyncio.sleep(0.001)
        body = body_of(self._files, self._next)
        return Answer(Outcome.RULES, origin.robots_url, 0, 200, None, body)


def fill(corpus: str | None, place: Place, count: int, pipe: Connection) -> None:
    """Meet so many origins as a crawl does, some at a time. Sends :class:`Filled`."""
    run_inside(place.settings(), partial(_fill, files_of(corpus), count, pipe))


async def _fill(
    files: list[bytes], count: int, pipe: Connection, middleware: Any
) -> None:
    cache = middleware.origins.cache
    cache._fetcher = Fetcher(files)
    idle, busy = Watch(), Watch()
    with idle():
        await asyncio.sleep(1)
    origins = iter([Origin.from_url(url_of(number)) for number in range(count)])
    anybody = scrapy.Request("data:,")

    async def ask() -> None:
        for origin in origins:
            await cache.ask(Flight(origin, anybody))

    began = time.perf_counter()
    with busy():
        await asyncio.gather(*(ask() for _ in range(FLYING)))
    seconds = time.perf_counter() - began
    rate = count / seconds
    pipe.send(Filled(rate, busy.longest, busy.computing, busy.collecting, idle.longest))


# Several crawls of the same sites


class Fleet(NamedTuple):
    """What several crawls at once came to."""

    fetches: float
    """Of robots.txt, for each site."""
    pages: int
    block: float
    """The longest of an event loop, in seconds."""
    computing: float
    """The longest in CPU time."""


def crawl_together(place: Place, processes: int, sites: int) -> Fleet:
    """Have so many processes crawl the same sites at once."""
    with ExitStack() as stack:
        server = stack.enter_context(child(serve, sites))
        urls = server.recv()
        crawlers = [
            stack.enter_context(child(crawl, urls, place, number))
            for number in range(processes)
        ]
        for crawler in crawlers:
            crawler.recv()  # it is ready
        for crawler in crawlers:
            crawler.send("go")
        pages, blocks, computing = zip(
            *(crawler.recv() for crawler in crawlers), strict=True
        )
        server.send("count")
        return Fleet(server.recv() / sites, sum(pages), max(blocks), max(computing))


def serve(sites: int, pipe: Connection) -> None:
    """Serve so many sites. Sends their URLs; then, when it receives anything, how often their
    robots.txt were asked for."""
    asyncio.run(_serve(sites, pipe))


async def _serve(sites: int, pipe: Connection) -> None:
    asked: list[str] = []
    files = made(sites)
    places = []
    for number in range(sites):
        talk = partial(_talk, body_of(files, number), asked)
        host = f"127.31.{number // 250}.{number % 250 + 1}"
        server = await asyncio.start_server(talk, host, 0)
        places.append("http://{}:{}/".format(*server.sockets[0].getsockname()))
    pipe.send(places)
    await asyncio.to_thread(pipe.recv)
    pipe.send(len(asked))
    await asyncio.Event().wait()


async def _talk(
    robots: bytes,
    asked: list[str],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            kind, body = "text/html", b"<title>A page</title>" + b"<p>Its text." * 80
            if head.startswith(b"GET /robots.txt "):
                asked.append("")
                kind, body = "text/plain", robots
                await asyncio.sleep(ANSWER_SECONDS)
            start = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
            writer.write(start.encode() + b"\r\n\r\n" + body)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


class PagesSpider(scrapy.Spider):
    """Asks for some pages of each site, in an order of its own."""

    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        urls = [f"{site}page/{number}" for site in self.urls for number in range(PAGES)]
        random.Random(self.number).shuffle(urls)
        self.pages, self.watch = 0, Watch()
        self.pipe.send("ready")
        self.pipe.recv()
        with self.watch():
            for url in urls:
                yield scrapy.Request(url)
            # As long as the crawl goes on.
            while self.crawler.stats.get_value(
                "robotstxt/forbidden", 0
            ) + self.pages < len(urls):
                await asyncio.sleep(0.01)

    def parse(self, response: Any) -> None:
        self.pages += 1

    def closed(self, reason: str) -> None:
        self.pipe.send((self.pages, self.watch.longest, self.watch.computing))


def crawl(urls: list[str], place: Place, number: int, pipe: Connection) -> None:
    """Crawl in this process, when told to. Sends the number of pages, and the
    longest block."""
    process = CrawlerProcess({**SETTINGS, **place.settings()})
    process.crawl(PagesSpider, urls=urls, number=number, pipe=pipe)
    process.start()
