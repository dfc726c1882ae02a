"""What it costs to seed a crawl from sitemaps, beside Scrapy's SitemapSpider on the same files.

    python benchmarks/seeding.py [--quick] [--rounds N]

A site lists 1 or 20 sitemaps of 50,000 URLs each. Measured are the entries that become requests in the
scheduler each second, the peak memory beyond an empty crawl's, and the longest time for which the event
loop had no turn, in CPU time.

drained: the scheduler takes each page's request (dupe filter and queue), and it counts as handled at once.
waiting: the scheduler hands no page out, so that all of them wait: in it (SitemapSpider), or on disk
(scrapy-rep).
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

from processes import child, peak_bytes, result_of
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.spiders import SitemapSpider
from scrapy.utils.asyncio import call_later
from sites import Answer, serve, url_of
from tables import NONE, OURS, Report, settings_of

ENTRIES = 50_000
"""Of a sitemap."""
THEIRS, EMPTY = "SitemapSpider", "empty crawl"
DRAINED, WAITING = "drained", "waiting"
MOST_MEMORY = 50
"""MB beyond an empty crawl, where all pages wait."""
MOST_BLOCK = 50
"""Milliseconds."""


class Result(NamedTuple):
    """Seconds, and bytes."""

    seconds: float
    peak: int
    block: float


def answers(sitemaps: int, number: int, path: str, site: str) -> Answer:
    if path == "/robots.txt":
        lines = [f"Sitemap: {site}/{listed}.xml\n" for listed in range(sitemaps)]
        return Answer("".join(lines).encode(), "text/plain")
    if not path.endswith(".xml"):
        return Answer()
    section = path.strip("/").removesuffix(".xml")
    entries = [
        f"<url><loc>{site}/section-{section}/page-{entry}.html</loc>"
        "<lastmod>2026-05-01</lastmod><changefreq>daily</changefreq></url>"
        for entry in range(ENTRIES)
    ]
    begin = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    text = "\n".join([begin, *entries, "</urlset>"])
    return Answer(text.encode(), "application/xml")


class Watch:
    """Measures in the process of the crawl, and ends it."""

    pipe: Connection
    began = 0.0
    block = 0.0
    last = 0.0

    @classmethod
    def start(cls, request: Request) -> None:
        """From the first request for a sitemap on: Scrapy's own start is not of interest."""
        if request.url.endswith(".xml") and not cls.began:
            cls.began, cls.last = time.perf_counter(), time.thread_time()
            cls.tick()

    @classmethod
    def tick(cls) -> None:
        now = time.thread_time()
        cls.block, cls.last = max(cls.block, now - cls.last), now
        call_later(0.001, cls.tick)

    @classmethod
    def finish(cls) -> None:
        seconds = time.perf_counter() - cls.began
        cls.tick()
        cls.pipe.send(Result(seconds, peak_bytes(), cls.block))
        os._exit(0)  # Scrapy would want to close the spider in order


class Taking(Scheduler):
    """Takes the requests of pages as ever."""

    wanted = 0
    taken = 0

    def open(self, spider: Spider) -> Any:
        self.pages = self._mq()
        return super().open(spider)

    def enqueue_request(self, request: Request) -> bool:
        if "/page-" not in request.url:
            return super().enqueue_request(request)
        if self.df.request_seen(request):
            return False
        self.pages.push(request)
        self.take(request)
        self.stats.inc_value("scheduler/enqueued")
        return True

    def take(self, request: Request) -> None: ...


class Draining(Taking):
    """Lets each of them be over at once."""

    def take(self, request: Request) -> None:
        self.pages.pop()
        slot = self.crawler.engine._slot
        # As the engine does when it takes one, and when its callback has ended.
        slot.add_request(request)
        slot.remove_request(request)
        Taking.taken += 1
        if Taking.taken == Taking.wanted:
            Watch.finish()


class Waiting(Taking):
    """Hands none of them out."""

    def has_pending_requests(self) -> bool:
        return True  # the crawl goes on until it was measured


class Ours(Spider):
    name = "ours"

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"{self.site}/start")

    def parse(self, response: Any) -> None: ...


class Theirs(SitemapSpider):
    name = "theirs"

    def __init__(self, site: str, sitemaps: int, **kwargs: Any) -> None:
        self.sitemap_urls = [f"{site}/{number}.xml" for number in range(sitemaps)]
        super().__init__(**kwargs)

    def parse(self, response: Any) -> None: ...


def crawl(port: int, who: str, kind: str, sitemaps: int, pipe: Connection) -> None:
    """Crawl in this process. Sends a :class:`Result`."""
    Taking.wanted, Watch.pipe = sitemaps * ENTRIES, pipe
    settings = settings_of(
        NONE if who == THEIRS else OURS,
        REP_SITEMAPS=True,
        SCHEDULER=Draining if kind == DRAINED else Waiting,
        CONCURRENT_REQUESTS_PER_DOMAIN=16,
    )
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Theirs if who == THEIRS else Ours)
    crawler.signals.connect(Watch.start, signals.request_reached_downloader)

    def look() -> None:
        """End when all entries were taken in."""
        count = crawler.stats.get_value  # type: ignore[union-attr]
        if who == EMPTY:
            is_done = count("response_received_count", 0) >= 2
        else:
            stat = "scheduler/enqueued" if who == THEIRS else "rep/sitemaps/urls"
            is_done = count(stat, 0) >= Taking.wanted
        call_later(0.5 if is_done else 0.02, Watch.finish if is_done else look)

    if kind == WAITING:
        crawler.signals.connect(look, signals.spider_opened)
    process.crawl(crawler, site=url_of(0, port), sitemaps=sitemaps)
    process.start()


def measure(who: str, kind: str, sitemaps: int) -> Result:
    with child(serve, partial(answers, sitemaps)) as server:
        port, _ = server.recv()
        result: Result = result_of(crawl, port, who, kind, sitemaps)
        return result


def main() -> None:
    report = Report(__doc__)
    report.option("rounds", 3, 1)
    chosen = report.begin()
    empty = measure(EMPTY, WAITING, 0).peak
    report.row("entries", "", "", "entries a second", "memory, MB", "block, ms")
    for sitemaps in (1, 2 if chosen.quick else 20):
        entries = sitemaps * ENTRIES
        rates = {}
        for kind in (DRAINED, WAITING):
            for who in (THEIRS, OURS):
                report.say(f"{who}, {entries:,} entries, {kind}")
                crawls = [measure(who, kind, sitemaps) for _ in range(chosen.rounds)]
                rate = entries / median(one.seconds for one in crawls)
                memory = (max(one.peak for one in crawls) - empty) / 1e6
                block = max(one.block for one in crawls) * 1000
                rates[who, kind] = rate
                report.row(f"{entries:,}", who, kind, rate, memory, block)
                what = f"{entries:,} entries, {kind}"
                if who == OURS:
                    report.at_most(f"{what}, ms of a block", block, MOST_BLOCK)
                if who == OURS and kind == WAITING:
                    report.at_most(f"{what}, MB", memory, MOST_MEMORY)
        ratio = rates[OURS, DRAINED] / rates[THEIRS, DRAINED]
        report.at_least(f"{entries:,} entries, entries a second", ratio, 1)
    report.show()
    report.end()


if __name__ == "__main__":
    main()
