"""The sites and the crawls that stall.py measures, each to be run in a process of its own.

The sites have addresses of their own, 127.30.0.1 and up: the whole of 127.0.0.0/8 is this
machine on Linux and Windows, on macOS it is not.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import random
import sys
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from multiprocessing.connection import Connection

    from scrapy.http import Response

ORIGINS = 40
PAGE_SECONDS = 0.02
CONCURRENCY = 16
BUILT_IN, OURS = "built-in", "scrapy-rep"


class Scale(NamedTuple):
    """How much is measured."""

    pages: int
    """Of each site."""
    timeout: float
    """Of a robots.txt fetch, in seconds."""
    cap: float
    """Seconds after which a crawl is broken off."""
    held: int
    batch: int
    """So many requests to hold are made at a time; the first batch only warms up."""


def run(
    function: Callable[..., None], silent: int, scale: Scale, *arguments: Any
) -> Any:
    """Return what :func:`crawl` or :func:`hold` sends, of which each has sites of its own."""
    with child(serve, silent) as server:
        sites = server.recv()
        with child(function, sites, silent, scale, *arguments) as crawler:
            return crawler.recv()


@contextmanager
def child(function: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Run a function in a process of its own; gives the pipe that it sends to."""
    process, ours = started(function, *arguments)
    try:
        yield ours
    finally:
        # The built-in middleware would go on waiting for its robots.txt.
        process.terminate()
        process.join()


def started(
    function: Callable[..., None], *arguments: Any
) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """Call a function in a process of its own; return that, and the pipe that it sends to."""
    context = multiprocessing.get_context("spawn")  # crawls share no state
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


# The sites


def serve(silent: int, pipe: Connection) -> None:
    """Serve all sites, the first *silent* of them with a silent robots.txt. Sends their URLs."""
    asyncio.run(_serve(silent, pipe))


async def _serve(silent: int, pipe: Connection) -> None:
    places = []
    for number in range(ORIGINS):
        talk = partial(_talk, number < silent)
        server = await asyncio.start_server(talk, f"127.30.0.{number + 1}", 0)
        places.append("http://{}:{}/".format(*server.sockets[0].getsockname()))
    pipe.send(places)
    await asyncio.Event().wait()


async def _talk(
    silent: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"GET /robots.txt "):
                await asyncio.sleep(PAGE_SECONDS)
                kind, body = (
                    "text/html",
                    b"<title>A page</title>" + b"<p>Its text." * 80,
                )
            elif silent:
                await reader.read()  # until the crawler hangs up
                break
            else:
                kind, body = "text/plain", b"User-agent: *\nDisallow: /private\n"
            start = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
            writer.write(start.encode() + b"\r\n\r\n" + body)
            await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


# The crawls


class Crawl(NamedTuple):
    """What a crawl came to."""

    complete: bool
    """Whether all pages of the healthy sites arrived before the cap."""
    seconds: float
    """Until the last of them, or until the cap."""
    pages: int
    """How many arrived by then."""
    gap: float
    """The longest time without one, in seconds."""


class PagesSpider(scrapy.Spider):
    """Asks for all pages of all sites, and is done when it has those of the healthy ones."""

    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        sites = [*self.silent, *self.healthy]
        urls = [
            f"{site}page/{number}"
            for site in sites
            for number in range(self.scale.pages)
        ]
        random.Random(1).shuffle(urls)
        self.wanted = self.scale.pages * len(self.healthy)
        self.times = [time.perf_counter()]
        asyncio.get_running_loop().call_later(self.scale.cap, self.tell)
        for url in urls:
            yield scrapy.Request(url)

    def parse(self, response: Response) -> None:
        self.times.append(time.perf_counter())
        self.wanted -= response.url.startswith(self.healthy)
        if not self.wanted:
            self.tell()
            raise CloseSpider

    def tell(self) -> None:
        complete = not self.wanted
        pages = len(self.times) - 1
        if not complete:
            self.times.append(time.perf_counter())
        gap = max(later - earlier for earlier, later in pairwise(self.times))
        self.pipe.send(Crawl(complete, self.times[-1] - self.times[0], pages, gap))


def settings(middleware: str, scale: Scale, **more: Any) -> dict[str, Any]:
    return {
        "USER_AGENT": "BenchmarkBot/1.0",
        "ROBOTSTXT_OBEY": True,
        "ADDONS": {"scrapy_rep.Addon": 300} if middleware == OURS else {},
        "CONCURRENT_REQUESTS": CONCURRENCY,
        # The same for both: the built-in middleware's fetch has that of pages.
        "DOWNLOAD_TIMEOUT": scale.timeout,
        "REP_DOWNLOAD_TIMEOUT": scale.timeout,
        # In favour of the built-in middleware, whose fetch would be made three times.
        "RETRY_ENABLED": False,
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        **more,
    }


def crawl(
    sites: list[str],
    silent: int,
    scale: Scale,
    middleware: str,
    queue: str,
    pipe: Connection,
) -> None:
    """Crawl in this process. Sends a :class:`Crawl`."""
    priority_queue = f"scrapy.pqueues.{queue}"
    process = CrawlerProcess(
        settings(middleware, scale, SCHEDULER_PRIORITY_QUEUE=priority_queue)
    )
    groups = {"silent": tuple(sites[:silent]), "healthy": tuple(sites[silent:])}
    process.crawl(PagesSpider, **groups, scale=scale, pipe=pipe)
    process.start()


# Memory


class HoldingSpider(scrapy.Spider):
    """Has requests held, and looks at the memory of its process before and after."""

    name = "holding"

    async def start(self) -> AsyncIterator[Any]:
        before, batch = 0, self.scale.batch
        for first in range(0, batch + self.scale.held, batch):
            if first == batch:
                before = resident_bytes()
            for number in range(first, first + batch - 1):
                self.crawler.engine.crawl(self.request(number))
            yield self.request(first + batch - 1)
            # What waits in the scheduler is not what is measured.
            while self.crawler.stats.get_value("rep/held/now", 0) < first + batch:
                await asyncio.sleep(0.01)
        self.pipe.send((resident_bytes() - before) / self.scale.held)

    def request(self, number: int) -> scrapy.Request:
        """As the spider of a shop might make it."""
        site = self.sites[number % len(self.sites)]
        return scrapy.Request(
            f"{site}category/{number % 50}/product-{number:09}.html",
            callback=self.parse_product,
            errback=self.failed,
            meta={"category": number % 50, "page": number},
            cb_kwargs={"seller": f"seller-{number % 1000}"},
        )

    def parse_product(self, response: Response, seller: str) -> None: ...

    def failed(self, failure: Any) -> None: ...


def resident_bytes() -> int:
    """The memory that this process takes."""
    gc.collect()
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def hold(
    sites: list[str], silent: int, scale: Scale, directory: str | None, pipe: Connection
) -> None:
    """Hold requests in this process. Sends how many bytes each of them takes."""
    most = 2 * (
        scale.batch + scale.held
    )  # the last places are kept for further origins
    more = {
        "JOBDIR": directory,
        "REP_HOLD_MAX_REQUESTS": most,
        "REP_HOLD_MAX_WAIT": 3600,
    }
    process = CrawlerProcess(settings(OURS, scale, **more))
    process.crawl(HoldingSpider, sites=sites[:silent], scale=scale, pipe=pipe)
    process.start()
