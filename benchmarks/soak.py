"""A crawl that goes on and on, of sites that come and go.

    python benchmarks/soak.py [--minutes N] [--origins N] [--steps]

70 % of 3,000 sites flap: each of them answers 503 for robots.txt for half of the time, in turns of 5 to
45 seconds. Every robots.txt may be kept for 40 seconds alone (`Cache-Control: max-age=40`) and lists a
sitemap. The crawl has a JOBDIR and a report, asks for pages as fast as it can until the time is over,
and ends by itself. What it keeps must not grow, and everything must be given back.

The first 4 of 15 minutes, or as much of a shorter run, fill the caches. Scrapy's dupe filter is off,
since it remembers every page. The sites are those of `broadcrawls.py`, which takes Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import tempfile
import time
from importlib.metadata import version
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from crawls import child, resident_bytes
from scrapy.crawler import CrawlerProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection

ORIGINS = 3_000
FLAPPING = 70
"""Per cent."""
MINUTES = 15.0
FILLING = 4 / 15
"""Of the time."""
MAX_AGE = 40
"""Seconds."""
PAGES_LISTED = 10
"""By each sitemap."""
MOST_HELD = 5_000
"""No more pages are asked for meanwhile."""
SETTLING = 3.0
"""Seconds from the end of the crawl, for connections to close."""

MOST_GROWTH = 0.03
"""Of memory, from the end of the filling on."""
MOST_DESCRIPTORS, MOST_TASKS = 0, 0
"""More than before the crawl."""

PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
ROBOTS = b"User-agent: *\nDisallow: /private\n\nSitemap: /sitemap.xml\n"


class Sample(NamedTuple):
    """How a crawl stands."""

    seconds: float
    memory: int
    """Bytes."""
    descriptors: int
    tasks: int
    held: int


class Soaked(NamedTuple):
    """What a crawl came to."""

    before: Sample
    during: list[Sample]
    after: Sample
    stats: dict[str, Any]


# The sites


def address_of(number: int) -> str:
    return f"127.40.{number // 250}.{number % 250 + 1}"


def number_of(address: str) -> int:
    _, _, third, fourth = map(int, address.split("."))
    return third * 250 + fourth - 1


def is_down(number: int, now: float) -> bool:
    """Whether a site's robots.txt answers 503."""
    if number % 100 >= FLAPPING:
        return False
    turn = 5 + number * 7 % 41
    return int(now / turn + number) % 2 == 1


class Site(asyncio.Protocol):
    """One connection to a site, for one answer."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        address, port = transport.get_extra_info("sockname")
        self._number, self._root = number_of(address), f"http://{address}:{port}"

    def data_received(self, data: bytes) -> None:
        path = data.split(b" ", 2)[1]
        status, kind, body = b"200 OK", b"text/html", PAGE
        if path == b"/robots.txt":
            kind, body = b"text/plain", ROBOTS
            if is_down(self._number, time.time()):
                status = b"503 Service Unavailable"
        elif path == b"/sitemap.xml":
            kind, body = b"text/plain", self._sitemap()
        self._transport.write(
            b"HTTP/1.1 %s\r\nConnection: close\r\nCache-Control: max-age=%d\r\n"
            b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
            % (status, MAX_AGE, kind, len(body), body)
        )
        self._transport.close()

    def _sitemap(self) -> bytes:
        return "\n".join(
            f"{self._root}/listed/{page}" for page in range(PAGES_LISTED)
        ).encode()


def serve(pipe: Connection) -> None:
    """Serve the sites. Sends their port."""
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    everywhere = socket.create_server(("0.0.0.0", 0), backlog=4096)  # noqa: S104 (loopback, below)
    everywhere.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    await asyncio.get_running_loop().create_server(Site, sock=everywhere, backlog=4096)
    pipe.send(everywhere.getsockname()[1])
    await asyncio.Event().wait()


# The crawl


class SoakSpider(scrapy.Spider):
    """Asks for pages of all sites in turn, as long as there is time."""

    name = "soak"
    custom_settings = {
        "ADDONS": {"scrapy_rep.Addon": 300},
        "USER_AGENT": "BenchmarkBot/1.0",
        "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter",  # remembers nothing
        "CONCURRENT_REQUESTS": 32,
        "CONCURRENT_ITEMS": 10,
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "JOBDIR": "job",
        "REP_REPORT": "report.html",
        "REP_SITEMAPS": True,
        "REP_CACHE_MIN_TTL": 0,
        "REP_RETRY_DELAY": 1,
        "REP_RETRY_MAX_DELAY": 10,
        "REP_HOLD_MAX_WAIT": 30,  # so that some are given up
    }

    async def start(self) -> AsyncIterator[Any]:
        self.samples: list[Sample] = []
        began = time.monotonic()
        numbers = list(range(self.origins))
        for page in count():
            random.Random(page).shuffle(numbers)
            for number in numbers:
                while self.busy():
                    await asyncio.sleep(0.01)
                spent = time.monotonic() - began
                if spent > self.seconds:
                    return
                if spent > len(self.samples) * self.seconds / 100:
                    self.samples.append(self.look(spent))
                yield scrapy.Request(f"http://{address_of(number)}:{self.port}/{page}")

    def busy(self) -> bool:
        return self.crawler.engine.needs_backout() or self.held() > MOST_HELD

    def held(self) -> int:
        return int(self.crawler.stats.get_value("rep/held/now", 0))

    def look(self, seconds: float) -> Sample:
        return sample(seconds, self.held())

    def parse(self, response: Any) -> None: ...


def sample(seconds: float = 0.0, held: int = 0) -> Sample:
    tasks = len(asyncio.all_tasks(asyncio.get_event_loop_policy().get_event_loop()))
    return Sample(
        seconds, resident_bytes(), len(os.listdir("/proc/self/fd")), tasks, held
    )


def crawl(folder: str, task: dict[str, Any], pipe: Connection) -> None:
    """Crawl in this process. Sends a :class:`Soaked`.

    :param folder: for the crawl's files
    """
    os.chdir(folder)
    process = CrawlerProcess()
    crawler = process.create_crawler(SoakSpider)
    running = process.crawl(crawler, **task)

    from twisted.internet import reactor  # there is one by now

    before: list[Sample] = []
    reactor.callWhenRunning(lambda: before.append(sample()))

    def end() -> None:
        spider, stats = crawler.spider, crawler.stats
        assert spider is not None
        assert stats is not None
        pipe.send(Soaked(before[0], spider.samples, sample(), stats.get_stats()))
        reactor.stop()

    running.addCallback(lambda _: reactor.callLater(SETTLING, end))
    process.start(stop_after_crawl=False)


# What came of it


def checks(soaked: Soaked) -> list[tuple[str, str, bool]]:
    """Return what was measured, its figure, and whether it is good."""
    before, during, after, stats = soaked
    filled = [one.memory for one in during[int(len(during) * FILLING) :]]
    fifth = max(1, len(filled) // 5)
    first, last = median(filled[:fifth]), median(filled[-fifth:])
    held, left = stats.get("rep/held", 0), stats.get("rep/held/now", 0)
    released, given_up = stats.get("rep/released", 0), stats.get("rep/given_up", 0)
    return [
        (
            "memory, from the filling on",
            f"{first / 1e6:.1f} to {last / 1e6:.1f} MB ({last / first - 1:+.1%})",
            last / first - 1 <= MOST_GROWTH,
        ),
        (
            "descriptors: before, most, after",
            f"{before.descriptors}, {max(one.descriptors for one in during)}, {after.descriptors}",
            after.descriptors - before.descriptors <= MOST_DESCRIPTORS,
        ),
        (
            "tasks: before, most, after",
            f"{before.tasks}, {max(one.tasks for one in during)}, {after.tasks}",
            after.tasks - before.tasks <= MOST_TASKS,
        ),
        (
            "held = released + given up",
            f"{held:,} = {released:,} + {given_up:,}, {left:,} left",
            held > 0 and held == released + given_up and left == 0,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", metavar="N", type=float, default=MINUTES)
    parser.add_argument("--origins", metavar="N", type=int, default=ORIGINS)
    parser.add_argument(
        "--quick", action="store_true", help="a minute: only to see it work"
    )
    parser.add_argument(
        "--steps", action="store_true", help="print what each was measured to be"
    )
    options = parser.parse_args()
    minutes = 1.0 if options.quick else options.minutes
    print(
        f"Scrapy {version('scrapy')}: {options.origins:,} origins, {minutes:g} minutes\n"
    )
    with tempfile.TemporaryDirectory() as folder, child(serve) as server:
        task = {
            "origins": options.origins,
            "port": server.recv(),
            "seconds": minutes * 60,
        }
        with child(crawl, folder, task) as pipe:
            soaked = pipe.recv()
    for step in soaked.during if options.steps else ():
        print("   ", *step)
    stats = soaked.stats
    print(
        f"{stats.get('response_received_count', 0):,} answers, of which robots.txt: ",
        end="",
    )
    print(
        f"{stats.get('robotstxt/response_count', 0):,}; finished: {stats.get('finish_reason')}"
    )
    for what, figure, good in checks(soaked):
        print(f"{what:34}{figure:44}{'met' if good else 'MISSED'}")


if __name__ == "__main__":
    main()
