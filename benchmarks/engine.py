"""What the robots.txt middleware costs a crawl, through Scrapy's real engine.

    python benchmarks/engine.py [--links] [--least] [--rounds N] [--pages N]
    python benchmarks/engine.py [--links] --instructions

A download handler answers from memory, so nothing but Scrapy and the middleware takes time; after a
number of the event loop's turns that follows from the URL, so that the downloader is full and the
pages come one by one, as from a network. Each crawl has a process of its own. A round is three
crawls, with this package's middleware, with Scrapy's, and with none, that take turns (`turns.py`).
CPU time and pages a second are counted from the first start request to the last page, with every
robots.txt that is fetched meanwhile; the time of the others' turns is left out.

With --least three more crawls are measured: two with what no robots.txt middleware can do without
(`least.py`), one that downloads each robots.txt and does nothing else, and one that reads it and asks
its rules; and this package's with Scrapy's priority queue, which all others have, too. So that one
tells what robots.txt takes, and the difference to the first what the queue gives back.

All pages are asked for at the start. With --links each page names the next one, so that few
requests wait: Scrapy spends more on such a page, and has a smaller heap.

Where the machine's noise is larger than what is looked for, valgrind (if it is installed) counts
instructions, and what the CPU does not find in its caches: the same whatever else the machine does.
Python's garbage collector is off then, fetches of robots.txt are not counted, and a crawl takes
minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import scrapy
from corpus import sites
from crawls import BUILT_IN, OURS
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, TextResponse
from tables import Row, median_ratio, table
from turns import take_turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from multiprocessing.connection import Connection

NONE, FETCHING, LEAST = "none", "download only", "the least"
WITH_THEIRS = "scrapy-rep, Scrapy's queue"
ORIGINS = 200
PAGES = 20_000
"""The goals are for so many: in a shorter crawl each robots.txt counts for more."""
PAGE = b"<title>A page</title>" + b"<p>Its text." * 80
TOKEN = "BenchmarkBot"  # noqa: S105 (a product token)
SCRAPYS_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
GOALS = {NONE: (1.01, 0.97), BUILT_IN: (0.98, None)}
"""Of CPU at most, and of pages a second at least."""
MOST_OF_LEAST = 1.01
TURNS = 100
"""An answer comes after fewer turns of the event loop than that. If all came at once, pages would
move in step, in groups as large as the first hundred requests happen to make them, and the same page
would cost 1 to 3 % more or less by that: what is waiting at a time, and how often Python's garbage
collector comes by, depends on it."""


class Crawl(NamedTuple):
    """What a crawl came to."""

    pages: int
    cpu: float
    """Seconds, of the process."""
    collecting: float
    """How many of these Python's garbage collector took."""
    start: float
    end: float
    """Of ``time.perf_counter()``."""


def robots_files() -> tuple[str, list[bytes]]:
    """One robots.txt for each origin, evenly out of all by size: of those that allow the pages, so
    that each crawl downloads the same."""
    from scrapy_rep.protocol import RobotsTxt  # only crawls that use it should load it

    what, files = sites()
    page = page_url(0, 0)
    bodies = sorted(
        {
            file.body
            for file in files
            if RobotsTxt.parse(file.body).allowed(page, TOKEN)
        },
        key=len,
    )
    step = len(bodies) / ORIGINS
    return what, [bodies[int(number * step)] for number in range(ORIGINS)]


def page_url(origin: int, number: int) -> str:
    return (
        f"http://site{origin}.example/catalogue/{number % 50}/article-{number:06}.html"
    )


class FromMemory(BaseDownloadHandler):
    """A download handler without a network."""

    files: list[bytes] = []

    async def download_request(self, request: scrapy.Request) -> TextResponse:
        # As many for the same page in each of the crawls: chance would be counted with the rest.
        for _ in range(crc32(request.url.encode()) % TURNS):
            await asyncio.sleep(0)
        if request.url.endswith("/robots.txt"):
            number = int(request.url.split(".")[0].rpartition("site")[2])
            return TextResponse(request.url, body=self.files[number], request=request)
        return HtmlResponse(request.url, body=PAGE, request=request)


class Collector:
    """How much CPU time Python's garbage collector takes, from now on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        gc.callbacks.append(self._called)

    def _called(self, phase: str, _: Any) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds += time.process_time() - self._began


class PagesSpider(scrapy.Spider):
    """Asks for as many pages of each origin, in turns."""

    name = "pages"
    count = 0

    async def start(self) -> AsyncIterator[Any]:
        self.collector = Collector()
        self.began = time.process_time(), time.perf_counter()
        for number in range(ORIGINS if self.links else self.pages):
            yield self.page(number)

    def page(self, number: int) -> scrapy.Request:
        callback = self.parse_link if self.links else self.parse
        return scrapy.Request(page_url(number % ORIGINS, number), callback=callback)

    def parse(self, response: Any) -> None:
        self.count += 1
        if self.count == self.pages:
            cpu, clock = self.began
            taken, end = time.process_time() - cpu, time.perf_counter()
            self.pipe.send(Crawl(self.count, taken, self.collector.seconds, clock, end))

    def parse_link(self, response: Any) -> Iterator[scrapy.Request]:
        self.parse(response)
        following = ORIGINS + self.count - 1
        if following < self.pages:
            yield self.page(following)


def crawl(
    middleware: str,
    pages: int,
    links: bool,
    files: list[bytes],
    pipe: Connection | Nobody,
) -> None:
    """Crawl in this process. Sends a :class:`Crawl`.

    :param files: the robots.txt of each origin
    """
    FromMemory.files = files
    middlewares: dict[Any, int] = {}
    if middleware in (FETCHING, LEAST):
        from least import Fetching, Least  # only crawls that use it should load it

        middlewares = {Fetching if middleware == FETCHING else Least: 100}
    process = CrawlerProcess(
        {
            "USER_AGENT": f"{TOKEN}/1.0",
            "ROBOTSTXT_OBEY": middleware in (OURS, WITH_THEIRS, BUILT_IN),
            "ADDONS": {"scrapy_rep.Addon": 300}
            if middleware in (OURS, WITH_THEIRS)
            else {},
            **(
                {"SCHEDULER_PRIORITY_QUEUE": SCRAPYS_QUEUE}
                if middleware == WITH_THEIRS
                else {}
            ),
            "DOWNLOADER_MIDDLEWARES": middlewares,
            "DOWNLOAD_HANDLERS": {"http": FromMemory},
            "CONCURRENT_REQUESTS": 16,
            "LOG_ENABLED": False,
            "TELNETCONSOLE_ENABLED": False,
        }
    )
    process.crawl(PagesSpider, pages=pages, links=links, pipe=pipe)
    process.start()


def measure(
    rounds: int, pages: int, links: bool, least: bool, files: list[bytes]
) -> str:
    crawls = [NONE, OURS, BUILT_IN, *[FETCHING, LEAST, WITH_THEIRS] * least]
    cpu: dict[str, list[float]] = {who: [] for who in crawls}
    working: dict[str, list[float]] = {who: [] for who in crawls}
    rate: dict[str, list[float]] = {who: [] for who in crawls}
    for _ in range(rounds):
        done = take_turns(crawl, [(who, pages, links, files) for who in crawls])
        for who, turns in zip(crawls, done, strict=True):
            one: Crawl = turns.sent
            cpu[who].append(one.cpu / one.pages)
            working[who].append((one.cpu - one.collecting) / one.pages)
            rate[who].append(one.pages / turns.seconds(one.start, one.end))
        random.shuffle(crawls)  # no side always runs first
    rows = []
    for who, peer in ((NONE, "no middleware"), (BUILT_IN, "built-in")):
        name = f"{peer}, Scrapy {version('scrapy')}"
        is_goal = not links and pages >= PAGES
        goals = GOALS[who] if is_goal else (None, None)
        for what, found in (("CPU", cpu), ("  garbage collector left out", working)):
            figures = [
                f"{statistics.median(found[one]) * 1e6:,.0f} us/page"
                for one in (OURS, who)
            ]
            goal = goals[0] if found is cpu else None
            ratio = median_ratio(found[OURS], found[who])
            rows.append(Row(what, name, *figures, ratio, goal, at_most=True))
        figures = [
            f"{statistics.median(rate[one]):,.0f} pages/s" for one in (OURS, who)
        ]
        ratio = median_ratio(rate[OURS], rate[who])
        rows.append(Row("pages a second", name, *figures, ratio, goals[1], exact=True))
    lines = [
        f"{ORIGINS} origins, {pages:,} requests; medians of {rounds} rounds",
        "",
        table(rows),
    ]
    if least:
        told = [
            f"{who} {median_ratio(cpu[who], cpu[NONE]):.3f} "
            f"({median_ratio(working[who], working[NONE]):.3f})"
            for who in (FETCHING, LEAST, OURS, WITH_THEIRS, BUILT_IN)
        ]
        lines += ["", "CPU (collector left out) to no middleware:", *told]
        ratios = [
            f"{who} {median_ratio(cpu[who], cpu[LEAST]):.3f}"
            for who in (OURS, WITH_THEIRS)
        ]
        lines += [f"CPU to the least (goal: {MOST_OF_LEAST}): {'; '.join(ratios)}"]
    return "\n".join(lines)


class Nobody:
    """Who is not interested in times."""

    def send(self, what: Crawl) -> None:
        """Do nothing."""


# A first-level cache as the machine has it, and a second of 512 KB.
VALGRIND = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--LL=524288,8,64"]
COUNTED = {
    "instructions": r"I +refs: +([0-9,]+)",
    "cache misses": r"LL misses: +([0-9,]+)",
}


def counts_of(middleware: str, pages: int, links: bool) -> list[int]:
    """What of :data:`COUNTED` a whole crawl takes, start and end included."""
    command = [*VALGRIND, "--cachegrind-out-file=/dev/null", sys.executable, __file__]
    command += ["--one", middleware, "--pages", str(pages), *["--links"] * links]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    found = [re.search(pattern, done.stderr) for pattern in COUNTED.values()]
    return [int(match[1].replace(",", "")) for match in found if match is not None]


def count_instructions(links: bool) -> str:
    """Of a page: of a longer crawl, less those of one that has met all origins."""
    if shutil.which("valgrind") is None:
        return "instructions: skipped, valgrind is not installed"
    few, many = 2 * ORIGINS, 6 * ORIGINS
    lines, bare = [], [0.0]
    for middleware in (NONE, OURS, BUILT_IN):
        shorter, longer = (counts_of(middleware, pages, links) for pages in (few, many))
        pairs = zip(shorter, longer, strict=True)
        page = [(after - before) / (many - few) for before, after in pairs]
        bare = page if middleware == NONE else bare
        figures = zip(COUNTED, page, bare, strict=True)
        lines += [
            f"{middleware:12} {one / none:.4f}  {one:12,.0f} {what} a page"
            for what, one, none in figures
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", metavar="N", type=int, choices=range(1, 100), default=7
    )
    parser.add_argument("--pages", metavar="N", type=int, default=PAGES)
    parser.add_argument(
        "--links", action="store_true", help="each page names the next one"
    )
    parser.add_argument(
        "--least", action="store_true", help="also what can't be done without"
    )
    parser.add_argument(
        "--instructions", action="store_true", help="count these, not seconds"
    )
    parser.add_argument("--one", choices=(NONE, OURS, BUILT_IN), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        gc.disable()
        crawl(options.one, options.pages, options.links, robots_files()[1], Nobody())
        return
    if options.instructions:
        print(count_instructions(options.links))
        return
    what, files = robots_files()
    print(f"A crawl through Scrapy's engine: {what}")
    print(measure(options.rounds, options.pages, options.links, options.least, files))


if __name__ == "__main__":
    main()
