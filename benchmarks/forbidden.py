"""What links to forbidden pages cost a crawl.

    python benchmarks/forbidden.py [--quick] [--pages N] [--rounds N] [--cases NAME …]

One site, on each of whose pages are twenty links to others and some to URLs that its robots.txt
forbids, all different. A download handler answers from memory, after a number of the event loop's turns
that follows from the URL. Each crawl has a process of its own; a round is five crawls that take turns
(`turns.py`):

- with Scrapy's own middleware;
- with this package's;
- with this package's, which doesn't drop requests before the scheduler (the long road);
- without robots.txt, with a scheduler that throws the forbidden ones away (the limit: no plugin that
  leaves the spider alone can be cheaper);
- without robots.txt, by a spider that throws them away itself.

CPU time is counted from the first start request to the last page; so is the longest time between two
turns of the event loop, since other processes take wall time. Memory is the most that the process took.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import scrapy
from crawls import BUILT_IN, OURS
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule
from tables import median_ratio
from turns import take_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from multiprocessing.connection import Connection

LONG, LIMIT, SPIDER = "long road", "limit", "spider"
CRAWLS = (BUILT_IN, OURS, LONG, LIMIT, SPIDER)
SITE = "http://shop.example"
ROBOTS = b"User-agent: *\nDisallow: /login\nDisallow: /search\nDisallow: /*?sort=\nDisallow: /*&sort=\n"
FORBIDDEN = ("/login?next=/article-", "/search?q=article-", "/list?sort=price&page=")
# Links to pages that each page has.
ALLOWED = 20
# An answer comes after fewer turns of the event loop than that.
TURNS = 20
_TICK_SECONDS = 0.002


class Case(NamedTuple):
    """A kind of crawl."""

    forbidden: int
    """Links to forbidden URLs that each page has."""
    goals: dict[str, float] = {}
    """CPU of this package's crawls to Scrapy's, and of the first to the limit."""
    jobdir: bool = False
    spider: str = "plain"
    log_level: str = "DEBUG"
    """Scrapy's default makes a record of each refusal, with either middleware."""


CASES = {
    "0 %": Case(0, {OURS: 1.0}),
    "20 %": Case(5),
    "50 %": Case(20),
    "67 %": Case(40, {OURS: 0.6, LONG: 0.95, LIMIT: 1.25}),
    "67 %, INFO": Case(40, {OURS: 0.6, LONG: 0.95, LIMIT: 1.25}, log_level="INFO"),
    "80 %": Case(80, {OURS: 0.5}),
    "67 %, JOBDIR": Case(40, {OURS: 0.5}, jobdir=True),
    "67 %, errbacks": Case(40, {OURS: 0.4}, spider="errbacks"),
    "67 %, CrawlSpider": Case(40, {OURS: 0.45}, spider="CrawlSpider"),
}


class Crawl(NamedTuple):
    """What a crawl came to."""

    cpu: float
    """Seconds."""
    block: float
    """Seconds of CPU between two turns of the event loop, at most."""
    queued: int
    forbidden: int
    errbacks: int
    memory: float
    """MB."""


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

    case = CASES["67 %"]
    pages = 0

    async def download_request(self, request: scrapy.Request) -> TextResponse:
        for _ in range(crc32(request.url.encode()) % TURNS):
            await asyncio.sleep(0)
        if request.url.endswith("/robots.txt"):
            return TextResponse(request.url, body=ROBOTS, request=request)
        number = int(request.url.rpartition("-")[2].removesuffix(".html"))
        body = page(number, self.pages, self.case.forbidden)
        return HtmlResponse(request.url, body=body, request=request)


class Watch:
    """Measures a crawl, as an extension."""

    def __init__(self, crawler: Any) -> None:
        self._crawler = crawler
        self.errbacks = 0
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
            await asyncio.sleep(_TICK_SECONDS)
            now = time.process_time()
            self._block, last = max(self._block, now - last), now

    def _closed(self, spider: Any) -> None:
        cpu = time.process_time() - self._began
        self._ticking.cancel()
        get = self._crawler.stats.get_value
        spider.pipe.send(
            Crawl(
                cpu,
                self._block,
                get("scheduler/enqueued"),
                get("robotstxt/forbidden", 0),
                spider.errors,
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            )
        )


def is_forbidden(request: scrapy.Request) -> bool:
    return request.url.removeprefix(SITE).startswith(FORBIDDEN)


class Throwing(Scheduler):
    """Throws forbidden requests away."""

    def enqueue_request(self, request: scrapy.Request) -> bool:
        return is_forbidden(request) or super().enqueue_request(request)


class PlainSpider(scrapy.Spider):
    name = "plain"
    errors = 0

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{SITE}/article-0.html")

    def parse(self, response: Any) -> Iterator[scrapy.Request]:
        errback = self.failed if self.errbacks else None
        for request in response.follow_all(css="a", errback=errback):
            if not (self.throws_away and is_forbidden(request)):
                yield request

    def failed(self, failure: Any) -> None:
        self.errors += 1


class RulesSpider(CrawlSpider):
    name = "rules"
    errors = 0
    rules = (
        Rule(
            LinkExtractor(), callback="parse_page", follow=True, process_request="keep"
        ),
    )

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request(f"{SITE}/article-0.html")

    def parse_page(self, response: Any) -> None:
        pass

    def keep(self, request: scrapy.Request, response: Any) -> scrapy.Request | None:
        return None if self.throws_away and is_forbidden(request) else request


def crawl(who: str, case: Case, pages: int, pipe: Connection) -> None:
    """Crawl in this process. Sends a :class:`Crawl`."""
    FromMemory.case, FromMemory.pages = case, pages
    is_ours = who in (OURS, LONG)
    if who == LONG:
        from scrapy_rep.holding.early import EarlyDrops

        EarlyDrops.begin = lambda self, scheduler: None  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "USER_AGENT": "BenchmarkBot/1.0",
            "ROBOTSTXT_OBEY": who not in (LIMIT, SPIDER),
            "ADDONS": {"scrapy_rep.Addon": 300} if is_ours else {},
            "DOWNLOAD_HANDLERS": {"http": FromMemory},
            "EXTENSIONS": {Watch: 100},
            "LOG_ENABLED": False,
            "LOG_LEVEL": case.log_level,
            "TELNETCONSOLE_ENABLED": False,
            **({"SCHEDULER": Throwing} if who == LIMIT else {}),
            "JOBDIR": folder if case.jobdir else None,
        }
        process = CrawlerProcess(settings)
        process.crawl(
            RulesSpider if case.spider == "CrawlSpider" else PlainSpider,
            pipe=pipe,
            errbacks=case.spider == "errbacks",
            throws_away=who == SPIDER,
        )
        process.start()


def measure(case: Case, pages: int, rounds: int) -> dict[str, list[Crawl]]:
    results: dict[str, list[Crawl]] = {who: [] for who in CRAWLS}
    order = list(CRAWLS)
    for _ in range(rounds):
        done = take_turns(crawl, [(who, case, pages) for who in order])
        for who, turns in zip(order, done, strict=True):
            results[who].append(turns.sent)
        random.shuffle(order)  # no side always runs first
    return results


def report(name: str, case: Case, results: dict[str, list[Crawl]]) -> str:
    cpu = {who: [one.cpu for one in some] for who, some in results.items()}
    lines = [name]
    for who in CRAWLS:
        some = results[who]
        ratios = sorted(
            one / other for one, other in zip(cpu[who], cpu[BUILT_IN], strict=True)
        )
        goal = (
            f" (goal {case.goals[who]:g})" if who in case.goals and who != LIMIT else ""
        )
        queued, forbidden, errbacks = (
            some[0].queued,
            some[0].forbidden,
            some[0].errbacks,
        )
        lines.append(
            f"  {who:10}  {statistics.median(cpu[who]):6.2f} s"
            f"  {median_ratio(cpu[who], cpu[BUILT_IN]):.2f}"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f}){goal}"
            f"  queued {queued:,}, forbidden {forbidden:,}, errbacks {errbacks:,}"
            f"  {statistics.median(one.memory for one in some):.0f} MB"
            f"  block {statistics.median(one.block for one in some) * 1000:.0f} ms"
        )
    goal = f" (goal {case.goals[LIMIT]:g})" if LIMIT in case.goals else ""
    lines.append(
        f"  {OURS} to the limit: {median_ratio(cpu[OURS], cpu[LIMIT]):.2f}{goal}"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", metavar="N", type=int, choices=range(1, 100), default=5
    )
    parser.add_argument("--pages", metavar="N", type=int, default=500)
    parser.add_argument(
        "--cases", metavar="NAME", nargs="+", choices=CASES, default=list(CASES)
    )
    parser.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.pages = 1, 30
    print(
        f"{options.pages:,} pages of one site, Scrapy {scrapy.__version__}", flush=True
    )
    for name in options.cases:
        results = measure(CASES[name], options.pages, options.rounds)
        print(report(name, CASES[name], results), flush=True)


if __name__ == "__main__":
    sys.exit(main())
