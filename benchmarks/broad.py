"""A broad crawl: thousands of hosts, each with a page or a few.

    python benchmarks/broad.py [--quick] [--hosts N] [--slow N]
    python benchmarks/broad.py --turns ROUNDS [--slow N]

Beside Scrapy's own middleware, and none: a crawl of hosts that answer after 5 ms, 50 ms or 1 s, some
of which are silent or dead, with each storage and with several processes; and crawls of hosts whose
robots.txt takes 0.7 s, four times as many the second time. With --turns only the CPU of the latter, of
crawls that take turns on one CPU: rounds differ by 1 %, not by 20.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import scrapy
from processes import child, peak_bytes, take_turns
from scrapy.crawler import CrawlerProcess
from scrapy.exceptions import CloseSpider
from sites import ROBOTS, Answer, serve, url_of
from storages import MEMORY, REDIS, SQLITE, Storages, storages
from tables import (
    BUILT_IN,
    NONE,
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

LEAST_PAGES = {MEMORY: 1.15, SQLITE: 1.1, REDIS: 1.05}
"""Pages a second, to Scrapy's own middleware."""
MOST_CPU = 0.95
SLOW_SECONDS = 0.7
LEAST_SLOW_PAGES = 1.3
MOST_SLOW_CPU = 1.0
MOST_GROWTH = 4.5
"""CPU of four times as many hosts."""
CONCURRENCY = 64
MIXED = (0.005, 0.05, 1.0)
TIMEOUT = 10.0
SCRAPYS_QUEUE = {
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue"
}
FEWER_ITEMS = {"CONCURRENT_ITEMS": 10}
"""As docs/running.md has it."""
HEADINGS = ("pages", "took", "a second", "CPU each", "peak", "robots.txt")


class Web(NamedTuple):
    """The sites of a crawl. If none is *slow*, sites and their pages take 5 ms, 50 ms or 1 s, a twentieth
    of the sites is silent, a twentieth dead, and sites have one to three pages."""

    hosts: int
    slow: bool = False
    """Whether each robots.txt takes SLOW_SECONDS, and each page, the only one of its site, no time."""

    def answer(self, number: int, path: str, site: str) -> Answer | None:
        is_robots = path == "/robots.txt"
        if self.slow:
            seconds = SLOW_SECONDS * is_robots
        elif number % 20 == 0:
            return None
        else:
            seconds = MIXED[number % len(MIXED)]
        if is_robots:
            return Answer(ROBOTS, "text/plain", seconds)
        return Answer(seconds=seconds, closes=True)

    def is_alive(self, number: int) -> bool:
        """Whether it has pages that arrive."""
        return self.slow or number % 20 not in (0, 1)

    def urls(self, port: int, dead: int) -> tuple[list[str], int]:
        """Return all pages, and how many of them arrive. *dead*: a port that nobody listens on."""
        urls, living = [], 0
        for number in range(self.hosts):
            is_dead = not self.slow and number % 20 == 1
            pages = 1 if self.slow else 1 + number // 7 % 3
            site = url_of(number, dead if is_dead else port)
            urls += [f"{site}/page/{page}" for page in range(pages)]
            if self.is_alive(number):
                living += pages
        return urls, living


class Crawl(NamedTuple):
    """What a crawl came to, or several at once."""

    pages: int
    seconds: float
    cpu: float
    peak: float
    fetches: float = 0.0
    """Of robots.txt, for each living site."""

    @property
    def rate(self) -> float:
        return self.pages / self.seconds

    @property
    def cpu_of_a_page(self) -> float:
        return self.cpu / max(self.pages, 1)


class BroadSpider(scrapy.Spider):
    """Asks for all pages, and is done when it has those of the living sites."""

    name = "broad"

    async def start(self) -> AsyncIterator[Any]:
        random.Random(self.number).shuffle(self.urls)
        self.arrived = 0
        if self.waits:
            self.pipe.send("ready")
            self.pipe.recv()
        self.began, self.cpu = time.perf_counter(), time.process_time()
        for url in self.urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.failed)

    def parse(self, response: Any) -> None:
        self.arrived += 1
        if self.arrived == self.wanted:
            seconds = time.perf_counter() - self.began
            cpu = time.process_time() - self.cpu
            self.pipe.send(Crawl(self.arrived, seconds, cpu, peak_bytes()))
            raise CloseSpider

    def failed(self, failure: Any) -> None: ...


def crawl(
    settings: dict[str, Any], arguments: dict[str, Any], pipe: Connection
) -> None:
    """Crawl in this process. Sends a :class:`Crawl`."""
    process = CrawlerProcess(settings)
    process.crawl(BroadSpider, pipe=pipe, **arguments)
    process.start()


def settings(who: str, **more: Any) -> dict[str, Any]:
    return settings_of(
        who,
        DOWNLOAD_TIMEOUT=TIMEOUT,
        REP_DOWNLOAD_TIMEOUT=TIMEOUT,
        # In favour of Scrapy's own, whose fetch would be made three times.
        RETRY_ENABLED=False,
        **{"CONCURRENT_REQUESTS": CONCURRENCY, **more},
    )


def measure(web: Web, crawl_settings: dict[str, Any], processes: int) -> Crawl:
    """Have so many processes crawl the sites at once, each all of them."""
    with ExitStack() as stack:
        server = stack.enter_context(child(serve, web.answer))
        urls, living = web.urls(*server.recv())
        pipes = []
        for number in range(processes):
            arguments = {
                "urls": urls,
                "wanted": living,
                "number": number,
                "waits": True,
            }
            pipes.append(stack.enter_context(child(crawl, crawl_settings, arguments)))
        for pipe in pipes:
            pipe.recv()
        for pipe in pipes:
            pipe.send("go")
        done: list[Crawl] = [pipe.recv() for pipe in pipes]
        server.send("count")
        return Crawl(
            sum(one.pages for one in done),
            max(one.seconds for one in done),
            sum(one.cpu for one in done),
            max(one.peak for one in done),
            server.recv() / sum(map(web.is_alive, range(web.hosts))),
        )


class Table:
    """Crawls, and makes a row of each."""

    def __init__(self, web: Web, text: str) -> None:
        self._web = web
        self.rows: list[tuple[str, ...]] = [(text, *HEADINGS)]

    def add(self, name: str, who: str, processes: int = 1, **more: Any) -> Crawl:
        say(name)
        one = measure(self._web, settings(who, **more), processes)
        cells = (
            f"{one.pages:,}",
            f"{one.seconds:.1f} s",
            f"{one.rate:.0f}",
            f"{one.cpu_of_a_page * 1000:.2f} ms",
            f"{one.peak / 1e6:.0f} MB",
            f"{one.fetches:.2f}",
        )
        self.rows.append((name, *cells))
        return one


def mixed(hosts: int, kinds: Storages, goals: Goals) -> None:
    """Crawl hosts of all kinds."""
    table = Table(Web(hosts), f"{hosts:,} hosts")
    table.add(NONE, NONE)
    theirs = table.add(BUILT_IN, BUILT_IN)
    for kind in kinds.kinds:
        with kinds.empty(kind) as where:
            ours = table.add(f"{OURS}, {kind}", OURS, **where)
        what = f"{kind}, pages a second"
        goals.at_least(what, ours.rate / theirs.rate, LEAST_PAGES[kind])
        if kind == MEMORY:
            ratio = ours.cpu_of_a_page / theirs.cpu_of_a_page
            goals.at_most("CPU of a page", ratio, MOST_CPU)
    for processes in (2, 4):
        for kind in kinds.kinds[1:]:  # not memory, which each process has for itself
            name = f"{OURS}, {kind}, {processes} processes"
            with kinds.empty(kind) as where:
                fleet = table.add(name, OURS, processes, **where)
            goals.at_most(f"{name}, fetches of a robots.txt", fleet.fetches, 1.0)
    print_table(table.rows)


def slow(most: int, goals: Goals) -> None:
    """Crawl hosts that take their time."""
    crawls: dict[tuple[str, int], Crawl] = {}
    kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (BUILT_IN, BUILT_IN, {}),
        (OURS, OURS, {}),
        (f"{OURS}, CONCURRENT_ITEMS = 10", OURS, FEWER_ITEMS),
        (f"{OURS}, Scrapy's queue", OURS, SCRAPYS_QUEUE),
    )
    for hosts in (most // 4, most):
        table = Table(Web(hosts, slow=True), f"{hosts:,} hosts, {SLOW_SECONDS} s")
        for name, who, more in kinds:
            crawls[name, hosts] = table.add(name, who, **more)
        print_table(table.rows)
    theirs = crawls[BUILT_IN, most]
    for name, *_ in kinds[1:]:
        ours, fewer = crawls[name, most], crawls[name, most // 4]
        ratio = ours.rate / theirs.rate
        goals.at_least(f"{name}, pages a second", ratio, LEAST_SLOW_PAGES)
        ratio = ours.cpu_of_a_page / theirs.cpu_of_a_page
        goals.at_most(f"{name}, CPU of a page", ratio, MOST_SLOW_CPU)
        goals.at_most(f"{name}, CPU of 4 times", ours.cpu / fewer.cpu, MOST_GROWTH)


def in_turns(hosts: int, rounds: int) -> None:
    """Print the CPU of crawls to that with Scrapy's own middleware, of each round."""
    web = Web(hosts, slow=True)
    kinds: dict[str, dict[str, Any]] = {
        BUILT_IN: settings(BUILT_IN, CONCURRENT_REQUESTS=100),
        OURS: settings(OURS, CONCURRENT_REQUESTS=100),
        "Scrapy's queue": settings(OURS, CONCURRENT_REQUESTS=100, **SCRAPYS_QUEUE),
    }
    print_table([(f"CPU to Scrapy's own, {hosts:,} hosts", *kinds)])
    for number in range(rounds):
        with ExitStack() as stack:
            calls = []
            for crawl_settings in kinds.values():
                server = stack.enter_context(child(serve, web.answer))
                urls, living = web.urls(*server.recv())
                arguments = {"urls": urls, "wanted": living, "number": number}
                calls.append((crawl_settings, {**arguments, "waits": False}))
            cpu = [turns.sent.cpu for turns in take_turns(crawl, calls)]
        print("  ", *(f"{seconds / cpu[0]:.3f}" for seconds in cpu), flush=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--hosts", metavar="N", type=int, default=3000)
    options.add_argument("--slow", metavar="N", type=int, default=8000)
    options.add_argument("--turns", metavar="ROUNDS", type=int, help="only CPU")
    chosen = options.parse_args()
    if chosen.quick:
        chosen.hosts, chosen.slow = 200, 400
    print_heading(f"CONCURRENT_REQUESTS = {CONCURRENCY}")
    if chosen.turns:
        in_turns(chosen.slow, chosen.turns)
        return
    goals = Goals()
    with storages() as kinds:
        mixed(chosen.hosts, kinds, goals)
    slow(chosen.slow, goals)
    goals.print(quick=chosen.quick)


if __name__ == "__main__":
    main()
