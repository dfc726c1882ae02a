"""What the robots.txt middleware costs a crawl of few sites, through Scrapy's real engine.

    python benchmarks/engine.py [--quick] [--links] [--least] [--rounds N] [--pages N]

A download handler answers from memory, so nothing but Scrapy and the middleware takes time; after a number
of the event loop's turns that follows from the URL, so that the pages come one by one, as from a network. A
round is crawls with this package's middleware, with Scrapy's, and with none, that take turns; with --least
also with what no robots.txt middleware can do without, and with this package's and Scrapy's priority queue.
CPU time is counted from the first start request to the last page, with every robots.txt fetched meanwhile.
With --links each page names the next one, so that few requests wait.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Iterator
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

LEAST = "the least"
WITH_THEIRS = "scrapy-rep, Scrapy's queue"
SCRAPYS_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
ORIGINS = 200
PAGES = 20_000
"""The goals are for so many: in a shorter crawl each robots.txt counts for more."""
PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
AGENT = "BenchmarkBot"
MOST = {NONE: 1.01, BUILT_IN: 0.98, LEAST: 1.01}  # CPU to that of others
TURNS = 100
"""An answer comes after fewer turns of the event loop than that. If all came at once, pages would
move in step, in groups as large as the first hundred requests happen to make them, and the same page
would cost 1 to 3 % more or less by that."""
MARK = "robots"
SCHEME = len("http://")


class Least:
    """Downloads each robots.txt once, and asks its rules. Nothing gets old here, no status code means
    anything, all requests have the same agent, and nobody is told which line decided."""

    def __init__(self, crawler: Any) -> None:
        # Crawls without this package don't load it.
        from scrapy_rep.protocol import RobotsTxt
        from scrapy_rep.protocol.matching import comparable

        self._crawler = crawler
        self._known: dict[str, Any] = {}
        self._parse = RobotsTxt.parse
        self._comparable = comparable

    @classmethod
    def from_crawler(cls, crawler: Any) -> Least:
        return cls(crawler)

    def process_request(self, request: scrapy.Request) -> Any:
        if MARK in request.meta:
            return None
        url = request.url
        slash = url.index("/", SCHEME)
        site = url[:slash]
        if site not in self._known:
            return self._fetch(site)
        rules = self._known[site]
        if rules is not None and not rules.allows(self._comparable(url[slash:])):
            raise IgnoreRequest
        return None

    async def _fetch(self, site: str) -> None:
        self._known[site] = None  # who comes meanwhile passes
        url, meta = f"{site}/robots.txt", {MARK: True}
        request = scrapy.Request(url, callback=NO_CALLBACK, priority=1000, meta=meta)
        response = await self._crawler.engine.download_async(request)
        robots = self._parse(response.body)
        self._known[site] = robots.rules((AGENT.lower(),), True)[1]


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
        {WITH_THEIRS: OURS, LEAST: NONE}.get(who, who),
        DOWNLOAD_HANDLERS={"http": FromMemory},
        CONCURRENT_REQUESTS=16,
    )
    if who == WITH_THEIRS:
        settings["SCHEDULER_PRIORITY_QUEUE"] = SCRAPYS_QUEUE
    if who == LEAST:
        settings["DOWNLOADER_MIDDLEWARES"] = {Least: 100}
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
        crawls += [LEAST, WITH_THEIRS]
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
