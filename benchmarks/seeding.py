"""What it costs to seed a crawl from sitemaps, beside Scrapy's SitemapSpider on the same files.

    python benchmarks/seeding.py [--quick] [--rounds N]

A site lists 1 or 20 sitemaps of 50,000 URLs each. The scheduler hands no page out, so that all of them
wait: in it (SitemapSpider), or on disk (scrapy-rep). Measured are the entries that are taken in each
second, by how much the peak memory grows, and the longest time for which the event loop had no turn, in
CPU time.
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

ENTRIES = 50_000  # Of a sitemap
THEIRS = "SitemapSpider"
MOST_MEMORY = 50  # MB
MOST_BLOCK = 50  # Milliseconds


class Result(NamedTuple):
    """Seconds, and bytes."""

    seconds: float
    memory: int
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

    began = 0.0
    memory = 0
    block = 0.0
    last = 0.0

    @classmethod
    def start(cls, request: Request) -> None:
        """From the first request for a sitemap on: Scrapy's own start is not of interest."""
        if request.url.endswith(".xml") and not cls.began:
            cls.began, cls.last = time.perf_counter(), time.thread_time()
            cls.memory = peak_bytes()
            cls.tick()

    @classmethod
    def tick(cls) -> None:
        now = time.thread_time()
        cls.block, cls.last = max(cls.block, now - cls.last), now
        call_later(0.001, cls.tick)

    @classmethod
    def finish(cls, pipe: Connection) -> None:
        seconds = time.perf_counter() - cls.began
        cls.tick()
        pipe.send(Result(seconds, peak_bytes() - cls.memory, cls.block))
        os._exit(0)  # Scrapy would want to close the spider in order


class Waiting(Scheduler):
    """Takes the requests of pages as ever, and hands none of them out."""

    def open(self, spider: Spider) -> Any:
        self.pages = self._mq()
        return super().open(spider)

    def enqueue_request(self, request: Request) -> bool:
        if "/page-" not in request.url:
            return super().enqueue_request(request)
        if self.df.request_seen(request):
            return False
        self.pages.push(request)
        self.stats.inc_value("scheduler/enqueued")
        return True

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


def crawl(port: int, who: str, sitemaps: int, pipe: Connection) -> None:
    """Crawl in this process. Sends a :class:`Result`."""
    settings = settings_of(
        NONE if who == THEIRS else OURS,
        REP_SITEMAPS=True,
        SCHEDULER=Waiting,
        CONCURRENT_REQUESTS_PER_DOMAIN=16,
    )
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Theirs if who == THEIRS else Ours)
    crawler.signals.connect(Watch.start, signals.request_reached_downloader)
    stat = "scheduler/enqueued" if who == THEIRS else "rep/sitemaps/urls"

    def look() -> None:
        """End when all entries were taken in."""
        assert crawler.stats is not None
        if crawler.stats.get_value(stat, 0) >= sitemaps * ENTRIES:
            Watch.finish(pipe)
        call_later(0.02, look)

    crawler.signals.connect(look, signals.spider_opened)
    process.crawl(crawler, site=url_of(0, port), sitemaps=sitemaps)
    process.start()


def measure(who: str, sitemaps: int) -> Result:
    with child(serve, partial(answers, sitemaps)) as server:
        port, _ = server.recv()
        result: Result = result_of(crawl, port, who, sitemaps)
        return result


def main() -> None:
    report = Report(__doc__)
    report.option("rounds", 3, 1)
    chosen = report.begin()
    report.row("entries", "", "entries a second", "memory, MB", "block, ms")
    for sitemaps in (1, 2 if chosen.quick else 20):
        entries = sitemaps * ENTRIES
        for who in (THEIRS, OURS):
            report.say(f"{who}, {entries:,} entries")
            crawls = [measure(who, sitemaps) for _ in range(chosen.rounds)]
            rate = entries / median(one.seconds for one in crawls)
            memory = max(one.memory for one in crawls) / 1e6
            block = max(one.block for one in crawls) * 1000
            report.row(f"{entries:,}", who, rate, memory, block)
            if who == OURS:
                report.at_most(f"{entries:,} entries, ms of a block", block, MOST_BLOCK)
                report.at_most(f"{entries:,} entries, MB", memory, MOST_MEMORY)
    report.show()
    report.end()


if __name__ == "__main__":
    main()
