"""What the robots.txt middleware costs a crawl of few sites, through Scrapy's real engine.

    python benchmarks/engine.py [--quick] [--links] [--least] [--rounds N] [--pages N]

A download handler answers from memory, so nothing but Scrapy and the middleware takes time; after a
number of the event loop's turns that follows from the URL, so that the downloader is full and the
pages come one by one, as from a network. Each crawl has a process of its own. A round is three
crawls, with this package's middleware, with Scrapy's, and with none, that take turns. CPU time is
counted from the first start request to the last page, with every robots.txt fetched meanwhile.

With --least three more crawls are measured: two with what no robots.txt middleware can do without, one
that downloads each robots.txt and does nothing else, and one that reads it and asks its rules; and this
package's with Scrapy's priority queue, which all others have, too.

All pages are asked for at the start. With --links each page names the next one, so that few
requests wait: Scrapy spends more on such a page, and has a smaller heap.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

import scrapy
from files import sites
from processes import take_turns
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, TextResponse
from scrapy.http.request import NO_CALLBACK
from tables import BUILT_IN, NONE, OURS, Report, median_ratio, settings_of

DOWNLOADS, LEAST = "downloads only", "the least"
WITH_THEIRS = "scrapy-rep, Scrapy's queue"
SCRAPYS_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
ORIGINS = 200
PAGES = 20_000
"""The goals are for so many: in a shorter crawl each robots.txt counts for more."""
PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
AGENT = "BenchmarkBot"
MOST = {NONE: 1.01, BUILT_IN: 0.98, LEAST: 1.01}
"""CPU to that of others."""
TURNS = 100
"""An answer comes after fewer turns of the event loop than that. If all came at once, pages would
move in step, in groups as large as the first hundred requests happen to make them, and the same page
would cost 1 to 3 % more or less by that."""
MARK = "robots"
SCHEME = len("http://")


class Downloads:
    """A middleware that downloads each robots.txt once, and does nothing with it."""

    def __init__(self, crawler: Any) -> None:
        self.crawler = crawler
        self.known: dict[str, Any] = {}

    @classmethod
    def from_crawler(cls, crawler: Any) -> Downloads:
        return cls(crawler)

    def process_request(
        self, request: scrapy.Request
    ) -> Coroutine[Any, Any, None] | None:
        site = request.url[: request.url.index("/", SCHEME)]
        if site in self.known or MARK in request.meta:
            return None
        return self._fetch(site)

    async def _fetch(self, site: str) -> None:
        self.known[site] = None  # who comes meanwhile passes
        request = scrapy.Request(
            f"{site}/robots.txt",
            callback=NO_CALLBACK,
            priority=1000,
            meta={MARK: True},
        )
        response = await self.crawler.engine.download_async(request)
        self.known[site] = self._read(response.body)

    def _read(self, body: bytes) -> Any:
        return body


class Least(Downloads):
    """Reads it and asks its rules as well. Nothing gets old here, no status code means anything,
    all requests have the same agent, and nobody is told which line decided."""

    def __init__(self, crawler: Any) -> None:
        super().__init__(crawler)
        # Crawls without this package don't load it.
        from scrapy_rep.protocol.matching import comparable

        self._comparable = comparable

    def process_request(
        self, request: scrapy.Request
    ) -> Coroutine[Any, Any, None] | None:
        url = request.url
        slash = url.index("/", SCHEME)
        rules = self.known.get(url[:slash])
        if rules is None:
            return super().process_request(request)
        path = self._comparable(url[slash:])
        if MARK not in request.meta and not rules.allows(path):
            raise IgnoreRequest
        return None

    def _read(self, body: bytes) -> Any:
        from scrapy_rep.protocol import RobotsTxt

        return RobotsTxt.parse(body).rules((AGENT.lower(),), True)[1]


def robots_files() -> list[bytes]:
    """One robots.txt for each origin, evenly out of all by size: of those that allow the pages, so
    that each crawl downloads the same."""
    from scrapy_rep.protocol import RobotsTxt

    bodies = {site.body for site in sites()[1]}
    page = page_url(0, 0)
    allowing = [body for body in bodies if RobotsTxt.parse(body).allowed(page, AGENT)]
    allowing.sort(key=lambda body: (len(body), body))
    step = len(allowing) / ORIGINS
    return [allowing[int(number * step)] for number in range(ORIGINS)]


def page_url(origin: int, number: int) -> str:
    category = number % 50
    return f"http://site{origin}.example/catalogue/{category}/article-{number:06}.html"


class FromMemory(BaseDownloadHandler):
    """A download handler without a network."""

    files: list[bytes] = []

    async def download_request(self, request: scrapy.Request) -> TextResponse:
        # As many for the same page in each of the crawls: chance would be counted with the rest.
        for _ in range(crc32(request.url.encode()) % TURNS):
            await asyncio.sleep(0)
        if request.url.endswith("/robots.txt"):
            number = int(request.url.split(".")[0].rpartition("site")[2])
            return TextResponse(request.url, body=self.files[number], request=request)
        return HtmlResponse(request.url, body=PAGE, request=request)


class PagesSpider(scrapy.Spider):
    """Asks for as many pages of each origin, in turns."""

    name = "pages"
    count = 0

    async def start(self) -> AsyncIterator[Any]:
        self.began = time.process_time()
        for number in range(ORIGINS if self.links else self.pages):
            yield self.page(number)

    def page(self, number: int) -> scrapy.Request:
        callback = self.parse_link if self.links else self.parse
        return scrapy.Request(page_url(number % ORIGINS, number), callback=callback)

    def parse(self, response: Any) -> None:
        self.count += 1
        if self.count == self.pages:
            self.pipe.send(time.process_time() - self.began)

    def parse_link(self, response: Any) -> Iterator[scrapy.Request]:
        self.parse(response)
        following = ORIGINS + self.count - 1
        if following < self.pages:
            yield self.page(following)


def crawl(
    who: str, pages: int, links: bool, files: list[bytes], pipe: Connection
) -> None:
    """Crawl in this process. Sends the seconds of CPU.

    :param files: the robots.txt of each origin
    """
    FromMemory.files = files
    settings = settings_of(
        {WITH_THEIRS: OURS, DOWNLOADS: NONE, LEAST: NONE}.get(who, who),
        DOWNLOAD_HANDLERS={"http": FromMemory},
        CONCURRENT_REQUESTS=16,
    )
    if who == WITH_THEIRS:
        settings["SCHEDULER_PRIORITY_QUEUE"] = SCRAPYS_QUEUE
    if who in (DOWNLOADS, LEAST):
        middleware = Downloads if who == DOWNLOADS else Least
        settings["DOWNLOADER_MIDDLEWARES"] = {middleware: 100}
    process = CrawlerProcess(settings)
    process.crawl(PagesSpider, pages=pages, links=links, pipe=pipe)
    process.start()


def main() -> None:
    report = Report(__doc__)
    report.option("rounds", 7, 1)
    report.option("pages", PAGES, 1000)
    report.option("links", False, action="store_true")
    report.option("least", False, action="store_true")
    chosen = report.begin()
    crawls = [NONE, OURS, BUILT_IN]
    if chosen.least:
        crawls += [DOWNLOADS, LEAST, WITH_THEIRS]
    files = robots_files()
    cpu: dict[str, list[float]] = {who: [] for who in crawls}
    for _ in range(chosen.rounds):
        order = random.sample(crawls, len(crawls))  # no side always runs first
        task = (chosen.pages, chosen.links, files)
        done = take_turns(crawl, [(who, *task) for who in order])
        for who, turns in zip(order, done, strict=True):
            cpu[who].append(turns)
    report.row("CPU", "us of a page", f"to {NONE}", f"to {BUILT_IN}")
    for who in crawls:
        ratios = [median_ratio(cpu[who], cpu[other]) for other in (NONE, BUILT_IN)]
        report.row(who, statistics.median(cpu[who]) / chosen.pages * 1e6, *ratios)
    report.show()
    for other in (BUILT_IN, NONE, LEAST):
        if other in cpu:
            ratio = median_ratio(cpu[OURS], cpu[other])
            report.at_most(f"CPU to {other}", ratio, MOST[other])
    report.end()


if __name__ == "__main__":
    main()
