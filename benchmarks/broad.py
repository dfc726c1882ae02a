"""A broad crawl: thousands of hosts, each with a page or a few.

    python benchmarks/broad.py [--quick] [--hosts N] [--slow N] [--processes N]
    python benchmarks/broad.py --turns ROUNDS [--slow N]

Beside Scrapy's own middleware, and none: a crawl of hosts that answer after 5 ms, 50 ms or 1 s, some
of which are silent or dead, with each storage and with several processes; and crawls of hosts whose
robots.txt takes 0.7 s, four times as many each time. With --turns only the CPU of the latter, of
crawls that take turns of 10 ms on one CPU (`turns.py`): rounds differ by 1 %, not by 20. Needs Linux. Redis is measured where redis-server
is.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from broadcrawls import NONE, Crawl, Web, crawl_at_once, crawls, serve
from cache import FAR, FAR_SECONDS, place, storages
from cachework import MEMORY, REDIS, Place, relay
from crawls import BUILT_IN, OURS, child
from turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

# The goals: pages a second of each storage, and CPU, to Scrapy's own middleware.
LEAST_PAGES = {MEMORY: 1.15, "SQLite": 1.1, REDIS: 1.05, FAR: 1.0}
MOST_CPU = 0.95
# With answers of 0.7 s: the same, and CPU of four times as many hosts.
SLOW_SECONDS = 0.7
LEAST_SLOW_PAGES, MOST_SLOW_CPU, MOST_GROWTH = 1.3, 1.0, 4.5
MOST_FETCHES = 1.0

CONCURRENCY = 64
SCRAPYS_QUEUE = {
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue"
}
WITH_THEIRS = "scrapy-rep, Scrapy's queue"
FEWER_ITEMS = {"CONCURRENT_ITEMS": 10}
"""As docs/running.md has it."""
CAP = 3600.0

ROW = "  {:44}{:>13}{:>9}{:>10}{:>10}{:>9}{:>12}"


class Scale(NamedTuple):
    """How much is measured."""

    hosts: int
    slow: int
    processes: tuple[int, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    parser.add_argument("--hosts", metavar="N", type=int, default=3000)
    parser.add_argument(
        "--slow", metavar="N", type=int, default=8000, help="with slow robots.txt"
    )
    parser.add_argument(
        "--processes", metavar="N", type=int, default=4, help="at most so many"
    )
    parser.add_argument(
        "--turns", metavar="ROUNDS", type=int, help="only CPU, compared closely"
    )
    options = parser.parse_args()
    if options.turns:
        print(in_turns(options.slow, options.turns))
        return
    processes = tuple(number for number in (1, 2, 4) if number <= options.processes)
    scale = Scale(options.hosts, options.slow, processes)
    if options.quick:
        scale = Scale(200, 400, (1, 2))
    print(
        f"Scrapy {version('scrapy')}, Protego {version('protego')}, Python "
        f"{platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n"
        f"CONCURRENT_REQUESTS = {CONCURRENCY}\n"
    )
    with storages() as kinds:
        goals = [*mixed(scale, list(kinds)), *slow(scale)]
    print("\nGoals")
    print(
        "  told by the full run: this one was small"
        if options.quick
        else "\n".join(goals)
    )


def measured(
    name: str,
    web: Web,
    middleware: str,
    where: Place | None = None,
    more: dict[str, Any] | None = None,
    processes: int = 1,
) -> Crawl:
    """Crawl, and print a row of the table."""
    say(name)
    settings = {"CONCURRENT_REQUESTS": CONCURRENCY, **(more or {})}
    one = crawls(web, middleware, where or Place(MEMORY), processes, CAP, settings)
    arrived = f"{one.pages:,}" + (
        "" if one.pages == one.wanted else f" of {one.wanted:,}"
    )
    rate, cpu = one.pages / one.seconds, one.cpu / one.pages * 1000
    peak, fetches = f"{one.peak / 1e6:.0f} MB", f"{one.fetches:.2f}"
    seconds = f"{one.seconds:.1f} s"
    print(
        ROW.format(
            name, arrived, seconds, f"{rate:.0f}", f"{cpu:.2f} ms", peak, fetches
        ),
        flush=True,
    )
    return one


def heading(text: str) -> None:
    print(text)
    print(ROW.format("", "pages", "took", "a second", "CPU each", "peak", "robots.txt"))


def mixed(scale: Scale, kinds: list[str]) -> Iterator[str]:
    """Crawl hosts of all kinds. Yields what came of the goals."""
    web = Web(scale.hosts)
    heading(
        f"{scale.hosts:,} hosts with one to three pages: a third answers after 5 ms, 50 ms, 1 s;\n"
        "a twentieth is silent, a twentieth dead"
    )
    measured("no middleware", web, NONE)
    theirs = measured("Scrapy's own", web, BUILT_IN)
    everywhere = [MEMORY, *kinds, *[FAR for kind in kinds if kind == REDIS]]
    for kind in everywhere:
        with storage(kind) as where:
            ours = measured(f"scrapy-rep, {kind}", web, OURS, where)
        ratio = (ours.pages / ours.seconds) / (theirs.pages / theirs.seconds)
        yield at_least(f"{kind}, pages a second", ratio, LEAST_PAGES[kind])
        if kind == MEMORY:
            yield at_most("CPU of a page", per_page(ours) / per_page(theirs), MOST_CPU)
    for processes in scale.processes[1:]:
        for kind in everywhere:
            name = f"scrapy-rep, {kind}, {processes} processes"
            with storage(kind) as where:
                fleet = measured(name, web, OURS, where, processes=processes)
            if kind != MEMORY:  # which each process has for itself
                yield at_most(
                    f"{name}, fetches of robots.txt", fleet.fetches, MOST_FETCHES
                )
    print()


@contextmanager
def storage(kind: str) -> Iterator[Place]:
    """Give an empty storage of that kind."""
    where = place(REDIS if kind == FAR else kind)
    if kind != FAR:
        yield where
        return
    with child(relay, where.url, FAR_SECONDS) as pipe:
        yield where._replace(url=f"redis://127.0.0.1:{pipe.recv()}")


def slow(scale: Scale) -> Iterator[str]:
    """Crawl hosts that take their time. Yields what came of the goals."""
    heading(f"Hosts with a page each, whose robots.txt takes {SLOW_SECONDS} s")
    found: dict[tuple[str, int], Crawl] = {}
    for hosts in (scale.slow // 4, scale.slow):
        web = Web(hosts, SLOW_SECONDS)
        for name, middleware, more in (
            ("Scrapy's own", BUILT_IN, {}),
            ("scrapy-rep", OURS, {}),
            ("scrapy-rep, CONCURRENT_ITEMS = 10", OURS, FEWER_ITEMS),
            (WITH_THEIRS, OURS, SCRAPYS_QUEUE),
        ):
            found[name, hosts] = measured(name, web, middleware, more=more)
    theirs = found["Scrapy's own", scale.slow]
    for name in ("scrapy-rep", "scrapy-rep, CONCURRENT_ITEMS = 10", WITH_THEIRS):
        ours, fewer = found[name, scale.slow], found[name, scale.slow // 4]
        yield at_least(
            f"{name}, pages a second", theirs.seconds / ours.seconds, LEAST_SLOW_PAGES
        )
        yield at_most(
            f"{name}, CPU of a page", per_page(ours) / per_page(theirs), MOST_SLOW_CPU
        )
        yield at_most(
            f"{name}, CPU of four times as many hosts",
            ours.cpu / fewer.cpu,
            MOST_GROWTH,
        )


def in_turns(hosts: int, rounds: int) -> str:
    """Return the CPU of crawls to that with Scrapy's own middleware, of each round."""
    web, ratios = Web(hosts, SLOW_SECONDS), dict[str, list[str]]()
    kinds = (
        ("Scrapy's own", BUILT_IN, {}),
        ("scrapy-rep", OURS, {}),
        (WITH_THEIRS, OURS, SCRAPYS_QUEUE),
    )
    for number in range(rounds):
        with ExitStack() as stack:
            calls = []
            for _, middleware, more in kinds:
                urls = web.pages(*stack.enter_context(child(serve, web)).recv())
                task = {"urls": urls, "wanted": len(urls), "cap": CAP, "number": number}
                settings = {"CONCURRENT_REQUESTS": 100, **more}
                calls.append((middleware, Place(MEMORY), settings, task))
            cpu = [turns.sent[2] for turns in take_turns(crawl_at_once, calls)]
        for (name, *_), seconds in zip(kinds, cpu, strict=True):
            ratios.setdefault(name, []).append(f"{seconds / cpu[0]:.3f}")
        say(
            f"round {number + 1}: {', '.join(f'{1000 * one / hosts:.2f} ms' for one in cpu)} a page"
        )
    lines = [f"{name:28}{' '.join(found)}" for name, found in ratios.items()]
    return "\n".join([f"{hosts:,} hosts, CPU to Scrapy's own, of each round", *lines])


def per_page(one: Crawl) -> float:
    return one.cpu / max(one.pages, 1)


def at_least(what: str, ratio: float, goal: float) -> str:
    return f"  {'met' if ratio >= goal else 'MISSED':8}{what}: {ratio:.2f} (at least {goal})"


def at_most(what: str, ratio: float, goal: float) -> str:
    return f"  {'met' if ratio <= goal else 'MISSED':8}{what}: {ratio:.2f} (at most {goal})"


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
