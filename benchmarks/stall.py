"""What sites whose robots.txt is silent do to a crawl, and what a held request costs.

    python benchmarks/stall.py [--quick] [--rounds N]

A silent robots.txt is one whose server takes the connection and never answers. Some of 40 local
sites have such a one; the pages of the others are awaited, with Scrapy's own robots.txt
middleware and with this package's, with either of Scrapy's priority queues. Then requests of
silent sites are held, with and without JOBDIR, and the growth of the process is measured.

The sites run in a process of their own, and so does each crawl. The sites have addresses of
their own, 127.30.0.1 and up, which Linux and Windows have by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.http import Response

ORIGINS = 40
SILENT = (0, 1, 8, 16)
PAGE_SECONDS = 0.02
CONCURRENCY = 16
QUEUES = ("ScrapyPriorityQueue", "DownloaderAwarePriorityQueue")
BUILT_IN, OURS = "built-in", "scrapy-rep"

GOAL_RATIO = {8: 1.15, 16: 1.3}
GOAL_GAP = 1.0
GOAL_BYTES = {False: 2048, True: 512}  # a held request, without and with JOBDIR


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    pages: int  # of each site
    timeout: float  # of a robots.txt fetch
    cap: float  # a crawl is broken off after so many seconds
    held: int
    warm: int  # so many are held before the memory is looked at for the first time


FULL = Scale(pages=100, timeout=30.0, cap=90.0, held=100_000, warm=2_000)
QUICK = Scale(pages=20, timeout=3.0, cap=10.0, held=5_000, warm=1_000)

spawning = multiprocessing.get_context("spawn")  # nothing of one crawl is left for the next


@contextmanager
def child(function: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Run a function in a process of its own; gives the pipe that it sends to."""
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        # The built-in middleware would go on waiting for its robots.txt.
        process.terminate()
        process.join()


# The sites


def serve(silent: int, pipe: Connection) -> None:
    """Serve all sites, the first `silent` of them with a silent robots.txt. Sends their URLs."""
    asyncio.run(_serve(silent, pipe))


async def _serve(silent: int, pipe: Connection) -> None:
    places = []
    for number in range(ORIGINS):
        handler = partial(_talk, number < silent)
        server = await asyncio.start_server(handler, f"127.30.0.{number + 1}", 0)
        places.append("http://{}:{}".format(*server.sockets[0].getsockname()))
    pipe.send(places)
    await asyncio.Event().wait()


async def _talk(silent: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"GET /robots.txt "):
                await asyncio.sleep(PAGE_SECONDS)
                kind, body = "text/html", b"<title>A page</title>" + b"<p>Its text." * 80
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

    complete: bool  # whether all pages of the healthy sites arrived before the cap
    seconds: float  # until the last of them, or until the cap
    pages: int  # that arrived by then
    gap: float  # the longest time without one

    @property
    def per_page(self) -> float:
        return self.seconds / max(self.pages, 1)


class PagesSpider(scrapy.Spider):
    """Asks for all pages of all sites, and is done when it has those of the healthy ones."""

    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        self.times = [time.perf_counter()]
        self.wanted = len(self.healthy) * self.scale.pages
        urls = [
            f"{site}/page/{number}"
            for site in self.silent + self.healthy
            for number in range(self.scale.pages)
        ]
        random.Random(1).shuffle(urls)
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
        if self.wanted:
            self.times.append(time.perf_counter())
        gap = max(after - before for before, after in pairwise(self.times))
        seconds = self.times[-1] - self.times[0]
        pages = len(self.times) - 1 - bool(self.wanted)
        self.pipe.send(Crawl(not self.wanted, seconds, pages, gap))


def settings(middleware: str, scale: Scale, **more: Any) -> dict[str, Any]:
    return {
        "USER_AGENT": "BenchmarkBot/1.0",
        "ROBOTSTXT_OBEY": True,
        "ADDONS": {"scrapy_rep.Addon": 300} if middleware == OURS else {},
        "CONCURRENT_REQUESTS": CONCURRENCY,
        # The same for both: the built-in middleware's fetch has that of the pages.
        "DOWNLOAD_TIMEOUT": scale.timeout,
        "REP_DOWNLOAD_TIMEOUT": scale.timeout,
        # Else the built-in middleware's fetch is made three times, and the stall is as much longer.
        "RETRY_ENABLED": False,
        "LOG_ENABLED": "LOG" in os.environ,
        "TELNETCONSOLE_ENABLED": False,
        **more,
    }


def crawl(
    middleware: str, queue: str, silent: int, sites: list[str], scale: Scale, pipe: Connection
) -> None:
    """Crawl in this process. Sends a Crawl."""
    priority_queue = f"scrapy.pqueues.{queue}"
    process = CrawlerProcess(settings(middleware, scale, SCHEDULER_PRIORITY_QUEUE=priority_queue))
    # With a slash: one site's address may be the beginning of another's.
    places = [f"{site}/" for site in sites]
    process.crawl(
        PagesSpider,
        silent=tuple(places[:silent]),
        healthy=tuple(places[silent:]),
        scale=scale,
        pipe=pipe,
    )
    process.start()


# Memory


class HoldingSpider(scrapy.Spider):
    """Has requests held, and looks at the memory of its process meanwhile."""

    name = "holding"

    async def start(self) -> AsyncIterator[Any]:
        before = 0
        for number in range(self.scale.warm + self.scale.held):
            if number == self.scale.warm:
                await self.held(number)
                before, began = resident_bytes(), time.perf_counter()
            elif number % 500 == 0:
                await self.held(number)  # what waits in the scheduler is not what is measured
            yield self.request(number)
        await self.held(self.scale.warm + self.scale.held)
        seconds = time.perf_counter() - began
        self.pipe.send(((resident_bytes() - before) / self.scale.held, seconds / self.scale.held))

    def request(self, number: int) -> scrapy.Request:
        site = self.sites[number % len(self.sites)]
        return scrapy.Request(
            f"{site}/category/{number % 50}/product-{number:09}.html",
            callback=self.parse_product,
            errback=self.failed,
            meta={"category": number % 50, "page": number},
            cb_kwargs={"seller": f"seller-{number % 1000}"},
        )

    async def held(self, count: int) -> None:
        while self.crawler.stats.get_value("rep/held", 0) < count:
            await asyncio.sleep(0.005)

    def parse_product(self, response: Response, seller: str) -> None:
        pass

    def failed(self, failure: Any) -> None:
        pass


def resident_bytes() -> int:
    """The memory that this process has."""
    gc.collect()
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def hold(directory: str | None, sites: list[str], scale: Scale, pipe: Connection) -> None:
    """Hold requests in this process. Sends bytes and seconds of each."""
    most = scale.warm + scale.held
    process = CrawlerProcess(settings(OURS, scale, JOBDIR=directory, REP_DEFER_MAX_REQUESTS=most))
    process.crawl(HoldingSpider, sites=sites, scale=scale, pipe=pipe)
    process.start()
