"""What it costs to seed a crawl from sitemaps, beside Scrapy's SitemapSpider on the same files.

    python benchmarks/seeding.py [--quick] [--rounds N]

A site on this machine lists 1 or 20 sitemaps of 50,000 URLs each. Measured are the entries that
become requests in the scheduler each second, the peak memory of the process, and the longest time
for which the event loop had no turn.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import resource
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from crawls import child
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import CrawlerProcess
from scrapy.spiders import SitemapSpider
from scrapy.utils.asyncio import call_later

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection

FILE = 50_000
FULL, QUICK = (1, 20), (1, 2)
OURS, THEIRS, EMPTY = "scrapy-rep", "SitemapSpider", "empty crawl"
DRAINED, WAITING = "drained", "waiting"

CAP = 900.0  # seconds

MOST_MEMORY = 50.0  # MB more than an empty crawl
MOST_BLOCK = 0.05  # seconds

HEADING = """\
Scrapy {scrapy}, Python {python}, {cpus} CPUs, load {load}
Sitemaps of {file:,} entries; medians of {rounds} round(s), of blocks and memory the worst.

drained: the scheduler takes each page's request (dupe filter and queue), and it counts as handled
at once. entries/s is from the first request for a sitemap to the last of these.
waiting: the scheduler hands no page out, so that all of them wait: in it (SitemapSpider), or on
disk (scrapy-rep). memory is the peak when all sitemaps are read, more than an empty crawl's.
block: the longest time for which the event loop had no turn; in brackets the same in CPU time of
its thread, which a busy machine does not lengthen. The goal is about that.
"""


class Result(NamedTuple):
    seconds: float
    megabytes: float
    block: float
    cpu: float
    """The same as block, in CPU time of the event loop's thread."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, choices=range(1, 100), default=3
    )
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    print(
        HEADING.format(
            scrapy=version("scrapy"),
            python=platform.python_version(),
            cpus=os.cpu_count(),
            load=f"{os.getloadavg()[0]:.1f}",
            file=FILE,
            rounds=options.rounds,
        )
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        child(serve, folder, max(sizes)) as server,
    ):
        site = server.recv()
        found: dict[tuple[str, str, int], list[Result]] = {}
        for number in range(options.rounds):
            for size in sizes:
                for kind in (DRAINED, WAITING):
                    for who in (THEIRS, OURS):
                        say(
                            f"round {number + 1}: {who}, {size * FILE:,} entries, {kind}"
                        )
                        one = measure(site, who, kind, size)
                        found.setdefault((who, kind, size), []).append(one)
            say(f"round {number + 1}: {EMPTY}")
            found.setdefault((EMPTY, WAITING, 0), []).append(
                measure(site, EMPTY, WAITING, 0)
            )
    goals = show(sizes, found)
    print("\nGoals")
    print(
        "  told by the full run: this one was small"
        if options.quick
        else "\n".join(goals)
    )


def show(
    sizes: tuple[int, ...], found: dict[tuple[str, str, int], list[Result]]
) -> list[str]:
    empty = median(one.megabytes for one in found[EMPTY, WAITING, 0])
    print(f"peak memory of an empty crawl: {empty:.0f} MB\n")
    print(
        f"  {'entries':>10}  {'':14}{'':10}{'entries/s':>10}{'memory':>12}{'block':>10}"
    )
    goals = []
    for size in sizes:
        speeds = {}
        for kind in (DRAINED, WAITING):
            for who in (THEIRS, OURS):
                some = found[who, kind, size]
                speed = size * FILE / median(one.seconds for one in some)
                speeds[who, kind] = speed
                memory = max(one.megabytes for one in some) - empty
                block = max(one.block for one in some)
                cpu = max(one.cpu for one in some)
                rate = f"{speed:,.0f}" if kind == DRAINED else ""
                print(
                    f"  {size * FILE:>10,}  {who:14}{kind:10}{rate:>10}"
                    f"{memory:>+9.0f} MB{block * 1000:>7.0f} ms"
                    f"{f'({cpu * 1000:.0f} ms)':>10}"
                )
                if who == OURS:
                    what = f"{size * FILE:,} entries, {kind}"
                    if kind == WAITING:
                        goals.append(
                            verdict(
                                memory <= MOST_MEMORY,
                                f"{what}, memory beyond an empty crawl",
                                f"{memory:.0f} MB (at most {MOST_MEMORY:.0f} MB)",
                            )
                        )
                    goals.append(
                        verdict(
                            cpu <= MOST_BLOCK,
                            f"{what}, longest block in CPU time",
                            f"{cpu * 1000:.0f} ms (at most {MOST_BLOCK * 1000:.0f} ms)",
                        )
                    )
        ratio = speeds[OURS, DRAINED] / speeds[THEIRS, DRAINED]
        goals.append(
            verdict(
                ratio >= 1,
                f"{size * FILE:,} entries, speed",
                f"{ratio:.2f} times (at least 1)",
            )
        )
    return goals


def verdict(met: bool, what: str, found: str) -> str:
    return f"  {'met' if met else 'MISSED':8}{what}: {found}"


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


def measure(site: str, who: str, kind: str, size: int) -> Result:
    with child(crawl, site, who, kind, size) as crawler:
        if not crawler.poll(CAP):
            sys.exit(
                f"{who}, {size * FILE:,} entries, {kind}: not done after {CAP:g} s"
            )
        return Result(*crawler.recv())


# The site


def serve(folder: str, count: int, pipe: Connection) -> None:
    asyncio.run(_serve(Path(folder), count, pipe))


async def _serve(folder: Path, count: int, pipe: Connection) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                if path.startswith("/robots.txt"):
                    listed = int(path.partition("?")[2] or robots[0])
                    body = "".join(
                        f"Sitemap: {site}/{n}.xml\n" for n in range(listed)
                    ).encode()
                elif path.startswith("/listed-"):
                    robots[0] = int(path.partition("-")[2])
                    body = b"ok"
                elif path.endswith(".xml"):
                    body = (folder / path[1:]).read_bytes()
                else:
                    body = b"a page"
                kind = "application/xml" if path.endswith(".xml") else "text/plain"
                start = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
                writer.write(start.encode() + b"\r\n\r\n" + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    robots = [0]
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    site = "http://{}:{}".format(*server.sockets[0].getsockname())
    for number in range(count):
        with (folder / f"{number}.xml").open("w") as file:
            file.write('<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n')
            for entry in range(FILE):
                file.write(
                    f"<url><loc>{site}/section-{number}/page-{entry}.html</loc>"
                    "<lastmod>2026-05-01</lastmod><changefreq>daily</changefreq></url>\n"
                )
            file.write("</urlset>\n")
    pipe.send(site)
    await asyncio.Event().wait()


# The crawls


class Watch:
    """Measures in the process of the crawl, and ends it."""

    total = 0
    reads = 0
    pipe: Connection
    began = 0.0
    block = 0.0
    last = 0.0
    cpu = 0.0
    last_cpu = 0.0

    @classmethod
    def start(cls, request: Request) -> None:
        """From the first request for a sitemap on: Scrapy's own start is not of interest."""
        if request.url.endswith(".xml") and not cls.began:
            cls.began = cls.last = time.perf_counter()
            cls.last_cpu = time.thread_time()
            cls.tick()

    @classmethod
    def tick(cls) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        cls.block = max(cls.block, now - cls.last)
        cls.cpu = max(cls.cpu, cpu - cls.last_cpu)
        cls.last, cls.last_cpu = now, cpu
        call_later(0.001, cls.tick)

    @classmethod
    def finish(cls) -> None:
        seconds = time.perf_counter() - cls.began
        cls.tick()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
        cls.pipe.send((seconds, peak / unit, cls.block, cls.cpu))
        os._exit(0)  # Scrapy would want to close the spider in order


class Draining(Scheduler):
    """Takes the requests of pages as ever, and lets each of them be over at once."""

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
        self.pages.pop()
        slot = self.crawler.engine._slot
        slot.add_request(
            request
        )  # as the engine does when it takes one, and when its callback has ended
        slot.remove_request(request)
        self.stats.inc_value("scheduler/enqueued")
        Draining.taken += 1
        if Draining.taken == Watch.total:
            Watch.finish()
        return True


class Waiting(Scheduler):
    """Keeps the requests of pages in a queue of their own, and hands none of them out."""

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
    custom_settings = {"REP_SITEMAPS": True, "ADDONS": {"scrapy_rep.Addon": 300}}

    async def start(self) -> AsyncIterator[Any]:
        yield Request(f"{self.site}/start")

    def parse(self, response: Any) -> None:
        pass


class Theirs(SitemapSpider):
    name = "theirs"
    custom_settings = {"ROBOTSTXT_OBEY": False}

    def __init__(self, site: str, size: int, **kwargs: Any) -> None:
        self.sitemap_urls = [f"{site}/{number}.xml" for number in range(size)]
        super().__init__(**kwargs)

    def parse(self, response: Any) -> None:
        pass


def crawl(site: str, who: str, kind: str, size: int, pipe: Connection) -> None:
    """Run one crawl and send what was measured."""
    import urllib.request

    urllib.request.urlopen(f"{site}/listed-{size}").read()  # noqa: S310 (on loopback)
    Watch.total, Watch.pipe = size * FILE, pipe
    settings: dict[str, Any] = {
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    }
    settings["SCHEDULER"] = Draining if kind == DRAINED else Waiting
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(Theirs if who == THEIRS else Ours)
    crawler.signals.connect(Watch.start, signals.request_reached_downloader)
    if kind == WAITING:
        crawler.signals.connect(
            lambda: look(crawler, who), signals.spider_opened, weak=False
        )
    gc.collect()
    arguments = {"size": size} if who == THEIRS else {}
    process.crawl(crawler, site=site, **arguments)
    process.start()


def look(crawler: Any, who: str) -> None:
    """Whether all entries were taken in."""
    stat = crawler.stats.get_value
    taken = (
        stat("scheduler/enqueued", 0) if who == THEIRS else stat("rep/sitemaps/urls", 0)
    )
    if who == EMPTY:
        if stat("response_received_count", 0) >= 2:
            call_later(0.5, Watch.finish)
            return
    elif taken >= Watch.total:
        call_later(0.5, Watch.finish)
        return
    call_later(0.02, look, crawler, who)


if __name__ == "__main__":
    main()
