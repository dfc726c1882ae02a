"""What sites whose robots.txt is silent do to a crawl, and what a held request costs.

    python benchmarks/stall.py [--quick] [--rounds N]

A silent robots.txt is one whose server takes the connection and never answers. Some of 40 local
sites have such a one; the pages of the others are waited for, with Scrapy's own robots.txt
middleware and with this package's, and with either of Scrapy's priority queues. Then requests of
silent sites are held, with and without JOBDIR, and the growth of the process is measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING

from crawls import (
    BUILT_IN,
    CONCURRENCY,
    ORIGINS,
    OURS,
    PAGE_SECONDS,
    Scale,
    crawl,
    hold,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crawls import Crawl

SILENT = (0, 1, 8, 16)
QUEUES = ("ScrapyPriorityQueue", "DownloaderAwarePriorityQueue")
FULL = Scale(pages=100, timeout=30.0, cap=120.0, held=100_000, batch=2_000)
QUICK = Scale(pages=20, timeout=3.0, cap=12.0, held=5_000, batch=500)

# The goals: time per page, to that without silent sites; seconds without a page; bytes of a held
# request, without JOBDIR and with it.
MOST_RATIO = {8: 1.15, 16: 1.3}
MOST_GAP = 1.0
MOST_BYTES = {False: 2048, True: 512}

HEADING = """\
Scrapy {scrapy}, Python {python}, {cpus} CPUs, load {load}
{origins} sites of {pages} pages, {page_ms:g} ms a page, CONCURRENT_REQUESTS = {concurrency};
a robots.txt fetch of either middleware times out after {timeout:g} s. RETRY_ENABLED = False:
else the built-in one would make it three times.
Medians of {rounds} round(s) and the longest gap of all; the built-in middleware with silent
sites: of one round, it stalls as long as the timeout is.

pages      how many had arrived when the last one of the healthy sites did
last page  when that was ("> {cap:g} s": it had not come by then)
to none    the time per page, to that of the same middleware without silent sites
"""
ROW = "  {:12}{:>6}{:>8}{:>12}{:>12}{:>9}{:>14}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, choices=range(1, 100), default=3
    )
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    print(
        HEADING.format(
            scrapy=version("scrapy"),
            python=platform.python_version(),
            cpus=os.cpu_count(),
            load=f"{os.getloadavg()[0]:.1f}"
            if hasattr(os, "getloadavg")
            else "unknown",
            origins=ORIGINS,
            pages=scale.pages,
            page_ms=PAGE_SECONDS * 1000,
            concurrency=CONCURRENCY,
            timeout=scale.timeout,
            cap=scale.cap,
            rounds=options.rounds,
        )
    )
    goals = [goal for queue in QUEUES for goal in compare(queue, scale, options.rounds)]
    goals += remember(scale, options.rounds)
    print("\nGoals")
    print(
        "  told by the full run: this one was small"
        if options.quick
        else "\n".join(goals)
    )


def compare(queue: str, scale: Scale, rounds: int) -> list[str]:
    """Crawl with one of the priority queues and print a table. Returns what came of the goals."""
    found: dict[tuple[str, int], list[Crawl]] = {}
    for number, silent, middleware in plan(rounds):
        say(f"{queue}, {middleware}, {silent} silent sites, round {number + 1}")
        one = run(crawl, silent, scale, middleware, queue)
        found.setdefault((middleware, silent), []).append(one)
    print(queue)
    print(
        ROW.format(
            "", "silent", "pages", "last page", "per page", "to none", "longest gap"
        )
    )
    goals = []
    for middleware in (BUILT_IN, OURS):
        for silent in SILENT:
            some = found[middleware, silent]
            complete = all(one.complete for one in some)
            ratio = per_page(some) / per_page(found[middleware, 0])
            print(
                ROW.format(
                    middleware,
                    silent,
                    f"{median(one.pages for one in some):g}",
                    f"{'' if complete else '> '}{median(one.seconds for one in some):.1f} s",
                    f"{per_page(some) * 1000:.2f} ms",
                    f"{ratio:.2f}",
                    f"{longest_gap(some):.2f} s",
                )
            )
            if middleware == OURS and silent in MOST_RATIO:
                most = MOST_RATIO[silent]
                what = f"{queue}, {silent} silent, time per page to none"
                goals.append(
                    verdict(complete and ratio <= most, what, f"{ratio:.2f}", f"{most}")
                )
    print()
    gap = max(longest_gap(found[OURS, silent]) for silent in SILENT)
    what = f"{queue}, longest gap"
    return [*goals, verdict(gap <= MOST_GAP, what, f"{gap:.2f} s", f"{MOST_GAP:g} s")]


def plan(rounds: int) -> Iterator[tuple[int, int, str]]:
    """In turns: what else the machine does meanwhile shall not be one middleware's fault."""
    for number in range(rounds):
        for silent in SILENT:
            for middleware in (BUILT_IN, OURS):
                if number == 0 or silent == 0 or middleware == OURS:
                    yield number, silent, middleware


def per_page(some: list[Crawl]) -> float:
    return median(one.seconds / max(one.pages, 1) for one in some)


def longest_gap(some: list[Crawl]) -> float:
    return max(one.gap for one in some)


def remember(scale: Scale, rounds: int) -> list[str]:
    """Hold requests and print what each takes. Returns what came of the goals."""
    print(f"Memory of each of {scale.held:,} held requests")
    if os.name == "nt":
        print("  can't be measured with Windows and the standard library")
        return []
    goals = []
    for on_disk, most in MOST_BYTES.items():
        where = f"{'with' if on_disk else 'without'} JOBDIR"
        some = []
        for number in range(rounds):
            say(f"{scale.held:,} held requests {where}, round {number + 1}")
            with tempfile.TemporaryDirectory() as folder:
                some.append(run(hold, max(SILENT), scale, folder if on_disk else None))
        size = median(some)
        print(f"  {where:16}{size:6,.0f} bytes")
        what = f"memory of a held request {where}"
        goals.append(
            verdict(size <= most, what, f"{size:,.0f} bytes", f"{most:,} bytes")
        )
    return goals


def verdict(met: bool, what: str, found: str, most: str) -> str:
    return f"  {'met' if met else 'MISSED':8}{what}: {found} (at most {most})"


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
