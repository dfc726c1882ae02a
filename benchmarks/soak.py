"""A crawl that goes on and on, of sites that come and go.

    python benchmarks/soak.py [--quick] [--minutes N] [--origins N]

70 % of 3,000 sites flap: each of them answers 503 for robots.txt for half of the time, in turns of 5 to
45 seconds. Every robots.txt may be kept for 40 seconds alone (`Cache-Control: max-age=40`) and lists a
sitemap. The crawl has a JOBDIR and a report, asks for pages as fast as it can until the time is over,
and ends by itself. What it keeps must not grow, and everything must be given back.
The first 4 of 15 minutes fill the caches. Scrapy's dupe filter is off: it remembers every page.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator
from itertools import count
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

import scrapy
from processes import child, resident_bytes, result_of
from scrapy.crawler import CrawlerProcess
from sites import Answer, serve, url_of
from tables import OURS, Report, settings_of

FLAPPING = 70  # Per cent
FILLING = 4 / 15  # Of the time
MAX_AGE = 40  # Seconds
PAGES_LISTED = 10  # By each sitemap
MOST_HELD = 5_000  # No more pages are asked for meanwhile
SETTLING = 3.0  # Seconds from the end of the crawl, for connections to close
MOST_GROWTH = 3  # Per cent, of memory, from the end of the filling on
ROBOTS = b"User-agent: *\nDisallow: /private\n\nSitemap: /sitemap.xml\n"


class Sample(NamedTuple):
    """How a crawl stands: bytes of memory, open descriptors, tasks of the event loop."""

    memory: int
    descriptors: int
    tasks: int


def is_down(number: int, now: float) -> bool:
    """Whether a site's robots.txt answers 503."""
    turn = 5 + number * 7 % 41
    return number % 100 < FLAPPING and int(now / turn + number) % 2 == 1


def answers(number: int, path: str, site: str) -> Answer:
    answer = Answer(max_age=MAX_AGE, closes=True)
    if path == "/sitemap.xml":
        pages = [f"{site}/listed/{page}" for page in range(PAGES_LISTED)]
        return answer._replace(body="\n".join(pages).encode(), kind="text/plain")
    if path != "/robots.txt":
        return answer
    if is_down(number, time.time()):
        answer = answer._replace(status="503 Service Unavailable")
    return answer._replace(body=ROBOTS, kind="text/plain")


class SoakSpider(scrapy.Spider):
    """Asks for pages of all sites in turn, as long as there is time."""

    name = "soak"

    async def start(self) -> AsyncIterator[Any]:
        self.samples: list[Sample] = []
        began = time.monotonic()
        numbers = list(range(self.origins))
        for page in count():
            random.Random(page).shuffle(numbers)
            for number in numbers:
                while self.is_busy():
                    await asyncio.sleep(0.01)
                spent = time.monotonic() - began
                if spent > self.seconds:
                    return
                if spent > len(self.samples) * self.seconds / 100:
                    self.samples.append(sample())
                yield scrapy.Request(f"{url_of(number, self.port)}/{page}")

    def is_busy(self) -> bool:
        held = self.crawler.stats.get_value("rep/held/now", 0)
        return held > MOST_HELD or self.crawler.engine.needs_backout()

    def parse(self, response: Any) -> None: ...


def sample() -> Sample:
    tasks = asyncio.all_tasks(asyncio.get_event_loop_policy().get_event_loop())
    descriptors = os.listdir("/proc/self/fd")
    return Sample(resident_bytes(), len(descriptors), len(tasks))


def crawl(folder: str, arguments: dict[str, Any], pipe: Connection) -> None:
    """Crawl in this process, with its files in *folder*. Sends how it stood before, meanwhile and
    after, and its stats."""
    os.chdir(folder)
    settings = settings_of(
        OURS,
        DUPEFILTER_CLASS="scrapy.dupefilters.BaseDupeFilter",  # remembers nothing
        CONCURRENT_REQUESTS=32,
        CONCURRENT_ITEMS=10,
        JOBDIR="job",
        REP_REPORT="report.html",
        REP_SITEMAPS=True,
        REP_CACHE_MIN_TTL=0,
        REP_RETRY_DELAY=1,
        REP_RETRY_MAX_DELAY=10,
        REP_HOLD_MAX_WAIT=30,  # so that some are given up
    )
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(SoakSpider)
    running = process.crawl(crawler, **arguments)

    from twisted.internet import reactor  # there is one by now

    before: list[Sample] = []
    reactor.callWhenRunning(lambda: before.append(sample()))

    def end() -> None:
        spider: Any = crawler.spider
        assert crawler.stats is not None
        stats = crawler.stats.get_stats()
        pipe.send((before[0], spider.samples, sample(), stats))
        reactor.stop()

    running.addCallback(lambda _: reactor.callLater(SETTLING, end))
    process.start(stop_after_crawl=False)


def show(report: Report, soaked: Any) -> None:
    before, during, after, stats = soaked
    filled = [one.memory / 1e6 for one in during[int(len(during) * FILLING) :]]
    fifth = max(1, len(filled) // 5)
    first, last = median(filled[:fifth]), median(filled[-fifth:])
    descriptors = max(one.descriptors for one in during)
    tasks = max(one.tasks for one in during)
    report.row("", "before", "most, or at the end", "after")
    report.row("memory, filled, MB", first, last, "")
    report.row("descriptors", before.descriptors, descriptors, after.descriptors)
    report.row("tasks", before.tasks, tasks, after.tasks)
    report.show()
    held, left = stats.get("rep/held", 0), stats.get("rep/held/now", 0)
    released, given_up = stats.get("rep/released", 0), stats.get("rep/given_up", 0)
    print(f"{held} requests held, {released} released, {given_up} given up\n")
    report.at_most("per cent of memory more", 100 * (last / first - 1), MOST_GROWTH)
    more = after.descriptors - before.descriptors
    report.at_most("descriptors more", more, 0)
    report.at_most("tasks more", after.tasks - before.tasks, 0)
    report.at_least("requests held", held, 1)
    lost = abs(held - released - given_up) + left
    report.at_most("held, but neither released nor given up", lost, 0)


def main() -> None:
    report = Report(__doc__)
    report.option("minutes", 15.0, 1.0)
    report.option("origins", 3000, 3000)
    chosen = report.begin()
    with tempfile.TemporaryDirectory() as folder, child(serve, answers) as server:
        port, _ = server.recv()
        seconds = chosen.minutes * 60
        arguments = {"origins": chosen.origins, "port": port, "seconds": seconds}
        show(report, result_of(crawl, folder, arguments))
    report.end()


if __name__ == "__main__":
    main()
