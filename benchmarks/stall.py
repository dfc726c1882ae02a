"""What sites whose robots.txt is silent do to a crawl.

    python benchmarks/stall.py [--quick] [--rounds N] [--pages N] [--timeout SECONDS] [--cap SECONDS]

A silent robots.txt is one whose server takes the connection and never answers. Some of 40 sites have such
a one; the pages of the others are waited for, with Scrapy's own robots.txt middleware and with this
package's, and with either of Scrapy's priority queues. A crawl is broken off after --cap: then not all
pages have come. RETRY_ENABLED is False, else Scrapy's own would ask for each robots.txt three times.
"""

from __future__ import annotations

import asyncio
import random
import time
from argparse import Namespace
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import scrapy
from processes import child, crawl, result_of
from scrapy.exceptions import CloseSpider
from sites import ROBOTS, Answer, serve, url_of
from tables import BUILT_IN, OURS, Report, settings_of

SITES = 40
SILENT = {0: 1.0, 1: 1.15, 8: 1.15, 16: 1.3}
"""So many sites are silent, and so long may a page take at most, to that without."""
QUEUES = ("ScrapyPriorityQueue", "DownloaderAwarePriorityQueue")
PAGE_SECONDS = 0.02
CONCURRENCY = 16
MOST_GAP = 1.0  # Seconds without a page


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
            for page in range(self.pages)
        ]
        random.Random(1).shuffle(urls)
        self.healthy = tuple(
            f"{url_of(number, self.port)}/" for number in range(self.silent, SITES)
        )
        self.wanted = self.pages * len(self.healthy)
        self.times = [time.perf_counter()]
        asyncio.get_running_loop().call_later(self.cap, self.tell)
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


def run(silent: int, chosen: Namespace, who: str, **more: Any) -> Any:
    settings = settings_of(
        who,
        CONCURRENT_REQUESTS=CONCURRENCY,
        # The same for both: Scrapy's own fetch has that of pages.
        DOWNLOAD_TIMEOUT=chosen.timeout,
        REP_DOWNLOAD_TIMEOUT=chosen.timeout,
        RETRY_ENABLED=False,
        **more,
    )
    with child(serve, partial(answers, silent)) as sites:
        port, _ = sites.recv()
        arguments = {"port": port, "silent": silent}
        arguments |= {"pages": chosen.pages, "cap": chosen.cap}
        return result_of(crawl, PagesSpider, settings, arguments)


def compare(report: Report, queue: str, chosen: Namespace) -> None:
    """Crawl with one of the priority queues and print a table."""
    report.row(queue, "silent", "pages", "last page, s", "to none", "longest gap, s")
    for who in (BUILT_IN, OURS):
        alone = 0.0
        for silent, most in SILENT.items():
            report.say(f"{queue}, {who}, {silent} silent sites")
            # Scrapy's own stalls as long as the timeout is: once tells it.
            times = 1 if who == BUILT_IN and silent else chosen.rounds
            more = {"SCHEDULER_PRIORITY_QUEUE": f"scrapy.pqueues.{queue}"}
            crawls = [run(silent, chosen, who, **more) for _ in range(times)]
            pages = median(one.pages for one in crawls)
            per_page = median(one.seconds / max(one.pages, 1) for one in crawls)
            alone = alone or per_page
            seconds = median(one.seconds for one in crawls)
            gap = max(one.gap for one in crawls)
            report.row(who, silent, pages, seconds, per_page / alone, gap)
            if who == OURS:
                what = f"{queue}, {silent} silent"
                report.at_most(f"{what}, time per page", per_page / alone, most)
                report.at_most(f"{what}, seconds without a page", gap, MOST_GAP)
    report.show()


def main() -> None:
    report = Report(__doc__)
    report.option("rounds", 3, 1)
    report.option("pages", 100, 20)
    report.option("timeout", 30, 3)
    report.option("cap", 120, 12)
    chosen = report.begin()
    for queue in QUEUES:
        compare(report, queue, chosen)
    report.end()


if __name__ == "__main__":
    main()
