"""What links to forbidden pages cost a crawl.

    python benchmarks/forbidden.py [--quick] [--pages N] [--rounds N] [--cases NAME …]

One site, on each of whose pages are twenty links to others and some to URLs that its robots.txt
forbids, all different. A download handler answers from memory, after a number of the event loop's turns
that follows from the URL. A round is four crawls that take turns: with Scrapy's own middleware; with this
package's; with this package's, which doesn't drop requests before the scheduler (the long road); and
without robots.txt, with a scheduler that throws the forbidden ones away (the limit: no plugin that leaves
the spider alone can be cheaper). CPU time is counted from the first start request to the last page; so is
the longest time between two turns of the event loop. Memory is the most that the process took.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple
from zlib import crc32

import scrapy
from processes import peak_bytes, take_turns
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from tables import BUILT_IN, NONE, OURS, Report, median_ratio, settings_of

LONG, LIMIT = "long road", "limit"
CRAWLS = (BUILT_IN, OURS, LONG, LIMIT)
SITE = "http://shop.example"
ROBOTS = b"User-agent: *\nDisallow: /login\nDisallow: /search\nDisallow: /*?sort=\n"
FORBIDDEN = ("/login?next=/article-", "/search?q=article-", "/list?sort=price&page=")
ALLOWED = 20  # Links to pages that each page has
TURNS = 20  # An answer comes after fewer turns of the event loop than that
TICK_SECONDS = 0.002


class Case(NamedTuple):
    """A kind of crawl. The goals are CPU to Scrapy's own, of this package and of its long road, and to the
    limit."""

    forbidden: int
    """Links to forbidden URLs that each page has."""
    most: float | None = None
    most_long: float | None = None
    most_to_limit: float | None = None
    jobdir: bool = False
    spider: str = "plain"
    log_level: str = "DEBUG"
    """Scrapy's default makes a record of each refusal, with either middleware."""


CASES = {
    "0 %": Case(0, 1.0),
    "20 %": Case(5),
    "50 %": Case(20),
    "67 %": Case(40, 0.6, 0.95, 1.25),
    "67 %, INFO": Case(40, 0.6, 0.95, 1.25, log_level="INFO"),
    "80 %": Case(80, 0.5),
    "67 %, JOBDIR": Case(40, 0.5, jobdir=True),
    "67 %, errbacks": Case(40, 0.4, spider="errbacks"),
    "67 %, CrawlSpider": Case(40, 0.45, spider="CrawlSpider"),
}


class Crawl(NamedTuple):
    """What a crawl came to: seconds, requests, bytes."""

    cpu: float
    block: float
    queued: int
    memory: int


def page(number: int, pages: int, forbidden: int) -> bytes:
    chance = random.Random(number)
    links = [f"/article-{chance.randrange(pages)}.html" for _ in range(ALLOWED)]
    for link in range(forbidden):
        links.append(f"{FORBIDDEN[link % len(FORBIDDEN)]}{number}-{link}")
    # Whatever happens to the others, the crawl reaches all pages.
    links[0] = f"/article-{(number + 1) % pages}.html"
    chance.shuffle(links)
    return "".join(f'<p><a href="{link}">An article</a>' for link in links).encode()


class FromMemory(BaseDownloadHandler):
    """A download handler without a network."""

    forbidden = 0
    pages = 0

    async def download_request(self, request: scrapy.Request) -> TextResponse:
        for _ in range(crc32(request.url.encode()) % TURNS):
            await asyncio.sleep(0)
        if request.url.endswith("/robots.txt"):
            return TextResponse(request.url, body=ROBOTS, request=request)
        number = int(request.url.rpartition("-")[2].removesuffix(".html"))
        body = page(number, self.pages, self.forbidden)
        return HtmlResponse(request.url, body=body, request=request)


class Watch:
    """Measures a crawl, as an extension."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        crawler.signals.connect(self._opened, scrapy.signals.spider_opened)
        crawler.signals.connect(self._closed, scrapy.signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Watch:
        return cls(crawler)

    def _opened(self) -> None:
        self._began = time.process_time()
        self._ticking = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        self._block, last = 0.0, time.process_time()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.process_time()
            self._block, last = max(self._block, now - last), now

    def _closed(self, spider: Any) -> None:
        cpu = time.process_time() - self._began
        self._ticking.cancel()
        queued = self._crawler.stats.get_value("scheduler/enqueued")
        spider.pipe.send(Crawl(cpu, self._block, queued, peak_bytes()))


class Throwing(Scheduler):
    """Throws forbidden requests away."""

    def enqueue_request(self, request: scrapy.Request) -> bool:
        if request.url.removeprefix(SITE).startswith(FORBIDDEN):
            return True
        return super().enqueue_request(request)


class PlainSpider(scrapy.Spider):
    name = "plain"

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{SITE}/article-0.html")

    def parse(self, response: Any) -> Iterator[scrapy.Request]:
        errback = self.failed if self.errbacks else None
        yield from response.follow_all(css="a", errback=errback)

    def failed(self, failure: Any) -> None: ...


class RulesSpider(CrawlSpider):
    name = "rules"
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{SITE}/article-0.html")

    def parse_page(self, response: Any) -> None: ...


def crawl(who: str, case: Case, pages: int, pipe: Connection) -> None:
    """Crawl in this process. Sends a :class:`Crawl`."""
    FromMemory.forbidden, FromMemory.pages = case.forbidden, pages
    if who == LONG:
        from scrapy_rep.holding.early import EarlyDrops

        EarlyDrops.begin = lambda self, scheduler: None  # type: ignore[method-assign]
    settings = settings_of(
        {LONG: OURS, LIMIT: NONE}.get(who, who),
        DOWNLOAD_HANDLERS={"http": FromMemory},
        EXTENSIONS={Watch: 100},
        LOG_LEVEL=case.log_level,
    )
    if who == LIMIT:
        settings["SCHEDULER"] = Throwing
    with tempfile.TemporaryDirectory() as folder:
        settings["JOBDIR"] = folder if case.jobdir else None
        process = CrawlerProcess(settings)
        spider = RulesSpider if case.spider == "CrawlSpider" else PlainSpider
        process.crawl(spider, pipe=pipe, errbacks=case.spider == "errbacks")
        process.start()


def measure(case: Case, pages: int, rounds: int) -> dict[str, list[Crawl]]:
    results: dict[str, list[Crawl]] = {who: [] for who in CRAWLS}
    for _ in range(rounds):
        order = random.sample(CRAWLS, len(CRAWLS))  # no side always runs first
        done = take_turns(crawl, [(who, case, pages) for who in order])
        for who, turns in zip(order, done, strict=True):
            results[who].append(turns)
    return results


def show(
    report: Report, name: str, case: Case, results: dict[str, list[Crawl]]
) -> None:
    cpu = {who: [one.cpu for one in crawls] for who, crawls in results.items()}
    report.row(name, "CPU, s", "to Scrapy's", "queued", "memory, MB", "block, ms")
    for who, crawls in results.items():
        seconds = statistics.median(cpu[who])
        ratio = median_ratio(cpu[who], cpu[BUILT_IN])
        memory = max(one.memory for one in crawls) / 1e6
        block = max(one.block for one in crawls) * 1000
        report.row(who, seconds, ratio, crawls[0].queued, memory, block)
    report.show()
    for what, most, who, other in (
        (name, case.most, OURS, BUILT_IN),
        (f"{name}, the long road", case.most_long, LONG, BUILT_IN),
        (f"{name}, to the limit", case.most_to_limit, OURS, LIMIT),
    ):
        if most is not None:
            report.at_most(what, median_ratio(cpu[who], cpu[other]), most)


def main() -> None:
    report = Report(__doc__)
    report.option("rounds", 5, 1)
    report.option("pages", 500, 30)
    report.option("cases", list(CASES), nargs="+", choices=CASES)
    chosen = report.begin()
    for name in chosen.cases:
        case = CASES[name]
        show(report, name, case, measure(case, chosen.pages, chosen.rounds))
    report.end()


if __name__ == "__main__":
    main()
