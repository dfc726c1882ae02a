"""What sites whose robots.txt is silent do to a crawl, and what a held request costs.

    python benchmarks/stall.py [--quick] [--rounds N]

A silent robots.txt is one whose server takes the connection and never answers. Some of 40 sites have such
a one; the pages of the others are waited for, with Scrapy's own robots.txt middleware and with this
package's, and with either of Scrapy's priority queues. A crawl is broken off after a while: then not all
pages have come. RETRY_ENABLED is False, else Scrapy's own would ask for each robots.txt three times.
Then requests of silent sites are held, with and without JOBDIR, and the growth of the process is measured.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from processes import child, resident_bytes, result_of
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider
from sites import ROBOTS, Answer, serve, url_of
from tables import (
    BUILT_IN,
    OURS,
    Goals,
    parser,
    print_heading,
    print_table,
    say,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection

SITES = 40
SILENT = (0, 1, 8, 16)
QUEUES = ("ScrapyPriorityQueue", "DownloaderAwarePriorityQueue")
PAGE_SECONDS = 0.02
CONCURRENCY = 16
MOST_RATIO = {8: 1.15, 16: 1.3}
"""Time per page, to that without silent sites."""
MOST_GAP = 1.0
"""Seconds without a page."""
MOST_BYTES = {"without JOBDIR": 2048, "with JOBDIR": 512}
"""Of a held request."""


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


FULL = Scale(pages=100, timeout=30.0, cap=120.0, held=100_000, batch=2_000)
QUICK = Scale(pages=20, timeout=3.0, cap=12.0, held=5_000, batch=500)


class Crawl(NamedTuple):
    """How many pages had come when the last of the healthy sites' did, or when the crawl was broken off;
    and when that was, and the longest time without a page (seconds)."""

    pages: int
    seconds: float
    gap: float


def answers(silent: int, number: int, path: str, site: str) -> Answer | None:
    if path != "/robots.txt":
        return Answer(seconds=PAGE_SECONDS)
    return None if number < silent else Answer(ROBOTS, "text/plain")


class PagesSpider(scrapy.Spider):
    """Asks for all pages of all sites, and is done when it has those of the healthy ones."""

    name = "pages"

    async def start(self) -> AsyncIterator[Any]:
        urls = [
            f"{url_of(number, self.port)}/page/{page}"
            for number in range(SITES)
            for page in range(self.scale.pages)
        ]
        random.Random(1).shuffle(urls)
        self.healthy = tuple(
            f"{url_of(number, self.port)}/" for number in range(self.silent, SITES)
        )
        self.wanted = self.scale.pages * len(self.healthy)
        self.times = [time.perf_counter()]
        asyncio.get_running_loop().call_later(self.scale.cap, self.tell)
        for url in urls:
            yield scrapy.Request(url)

    def parse(self, response: Any) -> None:
        self.times.append(time.perf_counter())
        self.wanted -= response.url.startswith(self.healthy)
        if not self.wanted:
            self.tell()
            raise CloseSpider

    def tell(self) -> None:
        pages = len(self.times) - 1
        if self.wanted:
            self.times.append(time.perf_counter())
        gap = max(later - earlier for earlier, later in pairwise(self.times))
        self.pipe.send(Crawl(pages, self.times[-1] - self.times[0], gap))


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
        site = url_of(number % self.silent, self.port)
        return scrapy.Request(
            f"{site}/category/{number % 50}/product-{number:09}.html",
            callback=self.parse_product,
            errback=self.failed,
            meta={"category": number % 50, "page": number},
            cb_kwargs={"seller": f"seller-{number % 1000}"},
        )

    def parse_product(self, response: Any, seller: str) -> None: ...

    def failed(self, failure: Any) -> None: ...


def crawl(
    spider: type[scrapy.Spider],
    port: int,
    silent: int,
    scale: Scale,
    settings: dict[str, Any],
    pipe: Connection,
) -> None:
    """Crawl in this process. Sends what *spider* measures."""
    process = CrawlerProcess(settings)
    process.crawl(spider, port=port, silent=silent, scale=scale, pipe=pipe)
    process.start()


def run(
    spider: type[scrapy.Spider], silent: int, scale: Scale, who: str, **more: Any
) -> Any:
    settings = settings_of(
        who,
        CONCURRENT_REQUESTS=CONCURRENCY,
        # The same for both: Scrapy's own fetch has that of pages.
        DOWNLOAD_TIMEOUT=scale.timeout,
        REP_DOWNLOAD_TIMEOUT=scale.timeout,
        RETRY_ENABLED=False,
        **more,
    )
    with child(serve, partial(answers, silent)) as sites:
        port, _ = sites.recv()
        return result_of(crawl, spider, port, silent, scale, settings)


def compare(queue: str, scale: Scale, rounds: int, goals: Goals) -> None:
    """Crawl with one of the priority queues and print a table."""
    table = [(queue, "silent", "pages", "last page", "to none", "longest gap")]
    for who in (BUILT_IN, OURS):
        alone = 0.0
        for silent in SILENT:
            say(f"{queue}, {who}, {silent} silent sites")
            # Scrapy's own stalls as long as the timeout is: once tells it.
            times = 1 if who == BUILT_IN and silent else rounds
            settings = {"SCHEDULER_PRIORITY_QUEUE": f"scrapy.pqueues.{queue}"}
            crawls = [
                run(PagesSpider, silent, scale, who, **settings) for _ in range(times)
            ]
            per_page = median(one.seconds / max(one.pages, 1) for one in crawls)
            alone = alone or per_page
            gap = max(one.gap for one in crawls)
            table.append(
                (
                    who,
                    str(silent),
                    f"{median(one.pages for one in crawls):g}",
                    f"{median(one.seconds for one in crawls):.1f} s",
                    f"{per_page / alone:.2f}",
                    f"{gap:.2f} s",
                )
            )
            if who == OURS:
                goals.at_most(f"{queue}, {silent} silent, gap", gap, MOST_GAP, " s")
            if who == OURS and silent in MOST_RATIO:
                what = f"{queue}, {silent} silent, time per page"
                goals.at_most(what, per_page / alone, MOST_RATIO[silent])
    print_table(table)


def hold(scale: Scale, goals: Goals) -> None:
    """Hold requests and print what each takes."""
    for where, most in MOST_BYTES.items():
        say(f"{scale.held:,} held requests {where}")
        with tempfile.TemporaryDirectory() as folder:
            size = run(
                HoldingSpider,
                max(SILENT),
                scale,
                OURS,
                JOBDIR=folder if where == "with JOBDIR" else None,
                # The last places are kept for further origins.
                REP_HOLD_MAX_REQUESTS=2 * (scale.batch + scale.held),
                REP_HOLD_MAX_WAIT=3600,
            )
        print(f"  a held request {where} takes {size:,.0f} bytes")
        goals.at_most(f"a held request {where}", size, most, " bytes")
    print()


def main() -> None:
    chosen = parser(__doc__, rounds=3).parse_args()
    scale = QUICK if chosen.quick else FULL
    rounds = 1 if chosen.quick else chosen.rounds
    print_heading(
        f"{SITES} sites of {scale.pages} pages, {PAGE_SECONDS * 1000:g} ms a page, "
        f"CONCURRENT_REQUESTS = {CONCURRENCY}, broken off after {scale.cap:g} s, {rounds} rounds"
    )
    goals = Goals()
    for queue in QUEUES:
        compare(queue, scale, rounds, goals)
    hold(scale, goals)
    goals.print(quick=chosen.quick)


if __name__ == "__main__":
    main()
