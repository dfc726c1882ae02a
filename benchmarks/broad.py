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
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import scrapy
from processes import child, crawl, peak_bytes, take_turns
from scrapy.exceptions import CloseSpider
from sites import ROBOTS, Answer, serve, url_of
from storages import MEMORY, REDIS, SQLITE, storages
from tables import BUILT_IN, NONE, OURS, Report, settings_of

LEAST_PAGES = {MEMORY: 1.15, SQLITE: 1.1, REDIS: 1.05}
"""Pages a second, to Scrapy's own middleware."""
MOST_CPU = 0.95
SLOW_SECONDS = 0.7
LEAST_SLOW_PAGES = 1.3
MOST_SLOW_CPU = 1.0
MOST_GROWTH = 4.5  # CPU of four times as many hosts
CONCURRENCY = 64
MIXED = (0.005, 0.05, 1.0)
TIMEOUT = 10.0
SCRAPYS_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    BUILT_IN: (BUILT_IN, {}),
    OURS: (OURS, {}),
    # As docs/running.md has it.
    f"{OURS}, CONCURRENT_ITEMS = 10": (OURS, {"CONCURRENT_ITEMS": 10}),
    f"{OURS}, Scrapy's queue": (OURS, {"SCHEDULER_PRIORITY_QUEUE": SCRAPYS_QUEUE}),
}
HEADINGS = ("pages", "s", "a second", "us of CPU each", "peak, MB", "robots.txt")


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
            pipes.append(
                stack.enter_context(
                    child(crawl, BroadSpider, crawl_settings, arguments)
                )
            )
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


def add(
    report: Report, web: Web, name: str, who: str, processes: int = 1, **more: Any
) -> Crawl:
    """Crawl, and add a row."""
    report.say(name)
    one = measure(web, settings(who, **more), processes)
    micros = one.cpu_of_a_page * 1e6
    cells = (one.pages, one.seconds, one.rate, micros, one.peak / 1e6, one.fetches)
    report.row(name, *cells)
    return one


def mixed(report: Report, hosts: int) -> None:
    """Crawl hosts of all kinds."""
    web = Web(hosts)
    report.row(f"{hosts:,} hosts", *HEADINGS)
    add(report, web, NONE, NONE)
    theirs = add(report, web, BUILT_IN, BUILT_IN)
    with storages() as kinds:
        for kind, empty in kinds.items():
            ours = add(report, web, f"{OURS}, {kind}", OURS, **empty())
            ratio = ours.rate / theirs.rate
            report.at_least(f"{kind}, pages a second", ratio, LEAST_PAGES[kind])
            ratio = ours.cpu_of_a_page / theirs.cpu_of_a_page
            report.at_most(f"{kind}, CPU of a page", ratio, MOST_CPU)
        del kinds[MEMORY]  # which each process has for itself
        for processes in (2, 4):
            for kind, empty in kinds.items():
                name = f"{OURS}, {kind}, {processes} processes"
                fleet = add(report, web, name, OURS, processes, **empty())
                report.at_most(f"{name}, fetches of a file", fleet.fetches, 1.0)
    report.show()


def slow(report: Report, most: int) -> None:
    """Crawl hosts that take their time."""
    crawls: dict[tuple[str, int], Crawl] = {}
    for hosts in (most // 4, most):
        report.row(f"{hosts:,} hosts, {SLOW_SECONDS} s", *HEADINGS)
        for name, (who, more) in KINDS.items():
            web = Web(hosts, slow=True)
            crawls[name, hosts] = add(report, web, name, who, **more)
        report.show()
    theirs = crawls[BUILT_IN, most]
    for name in list(KINDS)[1:]:
        ours, fewer = crawls[name, most], crawls[name, most // 4]
        ratio = ours.rate / theirs.rate
        report.at_least(f"{name}, pages a second", ratio, LEAST_SLOW_PAGES)
        ratio = ours.cpu_of_a_page / theirs.cpu_of_a_page
        report.at_most(f"{name}, CPU of a page", ratio, MOST_SLOW_CPU)
        report.at_most(f"{name}, CPU of 4 times", ours.cpu / fewer.cpu, MOST_GROWTH)


def in_turns(report: Report, hosts: int, rounds: int) -> None:
    """Print the CPU of crawls to that with Scrapy's own middleware, of each round."""
    web = Web(hosts, slow=True)
    report.row(f"CPU, {hosts:,} hosts", *KINDS)
    for number in range(rounds):
        with ExitStack() as stack:
            calls = []
            for who, more in KINDS.values():
                server = stack.enter_context(child(serve, web.answer))
                urls, living = web.urls(*server.recv())
                arguments = {"urls": urls, "wanted": living, "number": number}
                crawl_settings = settings(who, CONCURRENT_REQUESTS=100, **more)
                calls.append(
                    (BroadSpider, crawl_settings, {**arguments, "waits": False})
                )
            cpu = [one.cpu for one in take_turns(crawl, calls)]
        report.row(f"round {number + 1}", *(seconds / cpu[0] for seconds in cpu))
    report.show()


def main() -> None:
    report = Report(__doc__)
    report.option("hosts", 3000, 200)
    report.option("slow", 8000, 400)
    report.option("turns", 0)
    chosen = report.begin()
    if chosen.turns:
        in_turns(report, chosen.slow, chosen.turns)
        return
    mixed(report, chosen.hosts)
    slow(report, chosen.slow)
    report.end()


if __name__ == "__main__":
    main()
