"""What a crawl keeps in memory of each origin it has met.

    python benchmarks/origins.py [--origins N] [--quick] [--steps] [CRAWL ...]

Each crawl has a process of its own, and goes through Scrapy's real engine, whose download handler
answers from memory. It asks for one page of each origin, a few at a time, so that the scheduler stays
short. Of 100 origins, 4 answer 503 for robots.txt, 2 have a host that does not exist, 10 forbid the
page, 10 have no robots.txt, and 10 are so slow that their requests are held for a moment. What waits
for an unreachable robots.txt is given up after ten seconds.

Memory is that of the process after a pass of the garbage collector. Most caches have 10,000 origins and
are full by the time the counting begins.

Scrapy itself keeps a fingerprint of each request and, for a minute after its last request, a slot of each
host. Here it has no dupe filter, except in the crawl of that name, and slots go after a second.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from cache import place, storages
from cachework import MEMORY, REDIS, SQLITE, Place, body_of
from crawls import BUILT_IN, child, resident_bytes
from robotsfiles import made
from scrapy.core.downloader import Downloader
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CannotResolveHostError
from scrapy.http import HtmlResponse, TextResponse

from scrapy_rep.engine.access import EngineAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection

FROM = 30_000
"""Origins met before the counting begins; half of all in a shorter crawl."""
STEPS = 20
GOAL = 50
"""Bytes of memory for each origin from then on."""
MOST_HELD = 1000
"""Requests: on a busy machine a storage may take its time, and held requests are not what is measured."""
SLOW = 0.1
"""Seconds: twice as long as a request waits before it is held."""
PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
SITEMAP = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>{}</loc></url></urlset>"
NONE, FILTER = "none", "dupe filter"
CRAWLS: dict[str, dict[str, Any]] = {
    NONE: {},
    FILTER: {"DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"},
    BUILT_IN: {},
    MEMORY: {},
    SQLITE: {},
    REDIS: {},
    "crawl delays": {"REP_CRAWL_DELAY": True},
    "sitemaps": {"REP_SITEMAPS": True},
    "decisions": {"REP_DECISIONS": "decisions.jsonl", "REP_REPORT": "report.html"},
    "JOBDIR": {"JOBDIR": "job"},
    "usage": {"REP_USAGE": {"train-ai": "record"}, "REP_TDMREP": True},
}
"""Their settings beside the storage's. The first two have no robots.txt middleware."""


class Step(NamedTuple):
    """What a crawl has come to."""

    origins: int
    memory: int
    """Bytes of the process."""
    slots: int
    seconds: float
    """Of CPU."""


class Slots(Downloader):
    """Whose slots go a second after their last request."""

    _SLOT_GC_INTERVAL = 0.5

    def _slot_gc(self, age: float = 1) -> None:
        super()._slot_gc(age)


def site_of(url: str) -> int:
    return int(url.split(".")[1].rpartition("-")[2])


def url_of(number: int) -> str:
    return f"http://www.site-{number}.example/catalogue/article.html"


class FromMemory(BaseDownloadHandler):
    """A download handler without a network."""

    # Without the sitemaps that they list: nothing may leave this machine.
    files = [re.sub(rb"(?im)^sitemap:.*", b"", file) for file in made(2000)]

    async def download_request(self, request: scrapy.Request) -> TextResponse:
        url, number = request.url, site_of(request.url)
        kind = number % 100
        path = url.partition(".example")[2]
        if kind in (4, 5):
            raise CannotResolveHostError("no such host")
        if path == "/robots.txt":
            await asyncio.sleep(SLOW if 30 <= kind < 40 else 0)
            status = 503 if kind < 4 else 404 if 10 <= kind < 20 else 200
            return TextResponse(
                url, status, body=self.robots(number, kind), request=request
            )
        await asyncio.sleep(0)
        if path == "/sitemap.xml":
            body = SITEMAP.format(url_of(number).replace("article", "second")).encode()
            return TextResponse(url, body=body, request=request)
        if path.startswith("/.well-known/"):
            return TextResponse(url, 404, request=request)
        return HtmlResponse(url, body=PAGE, request=request)

    def robots(self, number: int, kind: int) -> bytes:
        own = f"\nSitemap: http://www.site-{number}.example/sitemap.xml\n"
        own += "User-agent: *\nCrawl-delay: 0.3\nContent-Signal: ai-train=no\n"
        own += "Disallow: /catalogue/\n" if 20 <= kind < 30 else ""
        return body_of(self.files, number) + own.encode()


class OriginsSpider(scrapy.Spider):
    """Asks for a page of each origin, whenever the engine has room."""

    name = "origins"

    async def start(self) -> AsyncIterator[Any]:
        self.steps: list[Step] = []
        self.scheduler = EngineAccess(self.crawler).scheduler
        every = self.count // STEPS
        for number in range(self.count):
            if number % every == 0:
                await self.look(number)
            while self.busy():
                await asyncio.sleep(0.001)
            yield scrapy.Request(url_of(number))
        await self.look(self.count)

    def busy(self) -> bool:
        held = self.crawler.stats.get_value("rep/held/now", 0)
        return (
            self.crawler.engine.needs_backout()
            or len(self.scheduler) > 0
            or held > MOST_HELD
        )

    async def look(self, origins: int) -> None:
        slots = len(self.crawler.engine.downloader.slots)
        self.steps.append(Step(origins, resident_bytes(), slots, time.process_time()))

    def parse(self, response: Any) -> None: ...

    def closed(self, reason: str) -> None:
        self.pipe.send(self.steps)


def crawl(name: str, count: int, place: Place, folder: str, pipe: Connection) -> None:
    """Crawl in this process. Sends its steps.

    :param folder: for the crawl's files
    """
    os.chdir(folder)
    process = CrawlerProcess(
        {
            "USER_AGENT": "BenchmarkBot/1.0",
            "ROBOTSTXT_OBEY": name not in (NONE, FILTER),
            "ADDONS": {}
            if name in (NONE, FILTER, BUILT_IN)
            else {"scrapy_rep.Addon": 300},
            "DOWNLOADER": Slots,
            "DOWNLOAD_HANDLERS": dict.fromkeys(("http", "https", "ftp"), FromMemory),
            "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter",  # remembers nothing
            "CONCURRENT_REQUESTS": 16,
            "RETRY_ENABLED": False,
            "LOG_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
            "_REP_HOLD_GRACE": SLOW / 2,
            "REP_HOLD_MAX_WAIT": 10,
            "REP_RETRY_DELAY": 0.3,
            **place.settings(),
            **CRAWLS[name],
        }
    )
    process.crawl(OriginsSpider, count=count, pipe=pipe)
    process.start()


def told(name: str, steps: list[Step]) -> list[str]:
    """Return the cells of a row."""
    start, end = steps[0], steps[-1]
    first = next(step for step in steps if step.origins >= min(FROM, end.origins // 2))
    origins = end.origins - first.origins
    each = (end.memory - first.memory) / origins
    until = first.memory - start.memory
    cells = [
        name,
        f"{until / 1e6:.1f} MB",
        f"{each:,.0f}",
        f"{max(step.slots for step in steps):,}",
        f"{(end.seconds - start.seconds) / end.origins * 1e3:.1f} ms",
    ]
    if end.origins > FROM and name not in (NONE, FILTER, BUILT_IN):
        cells.append("met" if each <= GOAL else "MISSED")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ", ".join(map(repr, CRAWLS))
    parser.add_argument(
        "crawls", metavar="CRAWL", nargs="*", help=f"{names}; the first five"
    )
    parser.add_argument("--origins", metavar="N", type=int, default=120_000)
    parser.add_argument(
        "--quick", action="store_true", help="only to see whether it works"
    )
    parser.add_argument(
        "--steps", action="store_true", help="print what each was measured to be"
    )
    options = parser.parse_args()
    if unknown := set(options.crawls) - set(CRAWLS):
        parser.error(f"no such crawl: {', '.join(unknown)}")
    count = 1000 if options.quick else options.origins
    begin = min(FROM, count // 2)
    print(f"{count:,} origins: how memory grows, in all, and then by bytes an origin\n")
    row = "{:13} {:>10} {:>16} {:>7} {:>9}  {}".format
    print(row("crawl", f"to {begin:,}", "bytes from there", "slots", "CPU", ""))
    with storages() as kinds:
        for name in options.crawls or list(CRAWLS)[:5]:
            if name == REDIS and name not in kinds:
                continue
            where = place(name) if name in kinds else Place(MEMORY)
            with (
                tempfile.TemporaryDirectory() as folder,
                child(crawl, name, count, where, folder) as pipe,
            ):
                steps = pipe.recv()
            print(row(*told(name, steps), "").rstrip(), flush=True)
            for step in steps if options.steps else ():
                print("   ", *step, flush=True)


if __name__ == "__main__":
    main()
