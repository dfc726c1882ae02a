"""What the cache of robots.txt takes and gives: memory, look-ups, fetches, the event loop.

    python benchmarks/cache.py [--quick] [--origins N] [--most N] [--corpus FILE]

Memory for each origin that is known, beside Scrapy's own parser objects; the growth of a process
that meets ever more of them; look-ups a second; how often several crawls at once ask for each
robots.txt; and for how long the event loop is held. Redis is measured where redis-server is.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cachecrawls import crawl_together, fill
from cachework import (
    MEMORY,
    REDIS,
    SQLITE,
    Place,
    builtin,
    files_of,
    growth,
    look_up,
    meet,
    ours,
    relay,
)
from crawls import child
from robotsfiles import described

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_MAX_ORIGINS = 10_000
PROCESSES = (1, 2, 4)
# All 100,000 of the built-in's would be gigabytes.
SAMPLE = 25_000

# The goals: memory with everything in it, to that of the built-in's parser objects, and in bytes
# for each of 100,000 origins; bytes for all origins beyond REP_CACHE_MAX_ORIGINS (each that was kept
# would take a thousand); fetches of each robots.txt; seconds of the event loop.
MOST_SHARE = 1 / 13
MOST_BYTES = 1500
MOST_GROWTH = 5e6
MOST_FETCHES = 1.0
MOST_BLOCK = 0.1
LEAST_NEAR, LEAST_FAR = 2000, 1000

# As many as a crawl with CONCURRENT_REQUESTS = 16 asks for at a time.
AT_ONCE = 64
FAR, FAR_SECONDS = "Redis, 5 ms away", 0.005


class Scale(NamedTuple):
    """How much is measured."""

    origins: int
    """For the memory of each."""
    sample: int
    """Of parser objects of Scrapy's: so many of them."""
    steps: list[int]
    filled: int
    looked_up: int
    sites: int


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    parser.add_argument(
        "--origins", metavar="N", type=int, default=100_000, help="for the memory"
    )
    parser.add_argument(
        "--most", metavar="N", type=int, default=1_000_000, help="of the growth"
    )
    parser.add_argument(
        "--corpus", metavar="FILE", help="real files; see README.md for its form"
    )
    options = parser.parse_args()
    scale = Scale(
        options.origins,
        min(options.origins, SAMPLE),
        steps(options.most),
        20_000,
        20_000,
        100,
    )
    if options.quick:
        scale = Scale(5000, 2000, [10_000, 20_000, 30_000], 2000, 6000, 20)
    print(
        f"Scrapy {version('scrapy')}, Protego {version('protego')}, Python "
        f"{platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n"
        f"{'Real' if options.corpus else 'Made'} robots.txt files: "
        f"{described(files_of(options.corpus))}\n"
    )
    with ExitStack() as stack:
        places = list(stack.enter_context(storages()))
        goals = [
            *memory(scale, options.corpus),
            *grow(scale, options.corpus, places),
            *layers(scale, options.corpus, places),
            *met(scale, places),
            *fleets(scale, places),
            *loop(scale, options.corpus, places),
        ]
    print("\nGoals")
    print(
        "  told by the full run: this one was small"
        if options.quick
        else "\n".join(goals)
    )


def steps(most: int) -> list[int]:
    return [
        step
        for step in (DEFAULT_MAX_ORIGINS, *range(100_000, most + 1, 100_000))
        if step <= most
    ]


@contextmanager
def storages() -> Iterator[list[str]]:
    """Say which storages there are, and run a Redis server for :func:`place`."""
    with tempfile.TemporaryDirectory() as folder:
        _Rooms.folder = Path(folder)
        program = shutil.which("redis-server")
        if program is None or find_spec("redis") is None:
            say("without Redis: it takes redis-server, and redis from PyPI")
            yield [SQLITE]
            return
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        line = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        process = subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            _Rooms.redis = f"redis://127.0.0.1:{port}"
            yield [SQLITE, REDIS]
        finally:
            process.terminate()
            process.wait()


class _Rooms:
    folder: Path
    redis = ""
    number = 0


def place(kind: str) -> Place:
    """An empty storage."""
    _Rooms.number += 1
    if kind == REDIS:
        import redis

        with redis.Redis.from_url(_Rooms.redis) as client:
            client.flushall()
    return Place(kind, str(_Rooms.folder / f"{_Rooms.number}.sqlite"), _Rooms.redis)


# The tables


def memory(scale: Scale, corpus: str | None) -> list[str]:
    """What each origin takes when all are in memory. Returns what came of the goals."""
    say(f"parser objects of {scale.sample:,} origins")
    with child(builtin, corpus, scale.sample) as pipe:
        theirs = pipe.recv()
    say(f"{scale.origins:,} origins in memory")
    with child(ours, corpus, scale.origins, scale.origins) as pipe:
        own = pipe.recv()
    print(f"Memory of each of {scale.origins:,} known origins, all in memory")
    print(f"  {'built-in (Protego)':22}{theirs:9,.0f} bytes   (of {scale.sample:,})")
    print(f"  {'scrapy-rep':22}{own:9,.0f} bytes   1 to {theirs / own:.1f}")
    print(f"  REP_CACHE_MAX_ORIGINS = {scale.origins}\n")
    return [
        verdict(
            own <= theirs * MOST_SHARE,
            "memory, to the built-in's",
            f"1 to {theirs / own:.1f}",
            "1 to 13",
        ),
        verdict(
            own <= MOST_BYTES,
            "memory of an origin",
            f"{own:,.0f} bytes",
            f"{MOST_BYTES:,} bytes",
        ),
    ]


def grow(scale: Scale, corpus: str | None, kinds: list[str]) -> list[str]:
    """How a process grows that meets ever more origins. Returns what came of the goals."""
    most = DEFAULT_MAX_ORIGINS
    print(f"Growth of a process, in MB, with REP_CACHE_MAX_ORIGINS = {most:,}")
    print(
        f"  {'origins':>10}"
        + "".join(f"{kind:>10}" for kind in kinds)
        + f"{'(Redis itself)':>18}"
    )
    found: dict[str, list[int]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        # Side by side: it is not time that is measured.
        pipes = {
            kind: stack.enter_context(
                child(growth, corpus, scale.steps, place(kind), most)
            )
            for kind in kinds
        }
        for step in scale.steps:
            say(f"{step:,} origins")
            server = ""
            for kind, pipe in pipes.items():
                size, of_server = pipe.recv()
                found[kind].append(size)
                server = f"{of_server / 1e6:18.1f}" if of_server else server
            cells = "".join(f"{found[kind][-1] / 1e6:10.1f}" for kind in kinds)
            print(f"  {step:>10,}{cells}{server}", flush=True)
    print()
    return [
        verdict(
            sizes[-1] - sizes[0] <= MOST_GROWTH,
            f"{kind}, growth from {scale.steps[0]:,} to {scale.steps[-1]:,} origins",
            f"{(sizes[-1] - sizes[0]) / 1e6:.1f} MB",
            f"{MOST_GROWTH / 1e6:.0f} MB",
        )
        for kind, sizes in found.items()
    ]


def layers(scale: Scale, corpus: str | None, kinds: list[str]) -> list[str]:
    """Look-ups a second. There is no goal for them."""
    print("Look-ups a second")
    for kind in kinds:
        say(f"look-ups, {kind}")
        with child(look_up, corpus, place(kind), scale.looked_up) as pipe:
            rates = pipe.recv()
        if kind == kinds[0]:
            print(f"  {'parsed':34}{rates.parsed:12,.0f}")
            print(f"  {'compressed, in memory':34}{rates.packed:12,.0f}")
        print(f"  {kind + ' alone':34}{rates.storage:12,.0f}")
        print(
            f"  {kind + ' from a crawl, thread and all':34}{rates.crawl:12,.0f}",
            flush=True,
        )
    print()
    return []


def met(scale: Scale, kinds: list[str]) -> list[str]:
    """How many new origins a second can be looked up, leased and saved. Returns what came of the
    goals."""
    print(f"New origins a second: looked up, leased and saved, {AT_ONCE} at a time")
    goals = []
    for kind in [*kinds, *[FAR for kind in kinds if kind == REDIS]]:
        say(f"new origins, {kind}")
        with ExitStack() as stack:
            where = place(REDIS if kind == FAR else kind)
            if kind == FAR:
                port = stack.enter_context(child(relay, where.url, FAR_SECONDS)).recv()
                where = where._replace(url=f"redis://127.0.0.1:{port}")
            rate = stack.enter_context(child(meet, where, scale.filled, AT_ONCE)).recv()
        print(f"  {kind:34}{rate:12,.0f}", flush=True)
        least = LEAST_FAR if kind == FAR else LEAST_NEAR
        goals.append(
            f"  {'met' if rate >= least else 'MISSED':8}{kind}, new origins a second: {rate:,.0f} "
            f"(at least {least:,})"
        )
    print()
    return goals


def fleets(scale: Scale, kinds: list[str]) -> list[str]:
    """How often robots.txt is fetched. Returns what came of the goals."""
    print(
        f"Several crawls of the same {scale.sites} sites at once: fetches of each robots.txt"
    )
    print(f"  {'processes':>10}" + "".join(f"{kind:>10}" for kind in (MEMORY, *kinds)))
    worst = dict.fromkeys(kinds, 0.0)
    for processes in PROCESSES:
        cells = ""
        for kind in (MEMORY, *kinds):
            say(f"{processes} crawls, {kind}")
            fleet = crawl_together(place(kind), processes, scale.sites)
            cells += f"{fleet.fetches:10.2f}"
            if kind in worst:
                worst[kind] = max(worst[kind], fleet.fetches)
        print(f"  {processes:>10}{cells}", flush=True)
    print()
    return [
        verdict(
            found <= MOST_FETCHES,
            f"{kind}, fetches of each robots.txt",
            f"{found:.2f}",
            "1.00",
        )
        for kind, found in worst.items()
    ]


def loop(scale: Scale, corpus: str | None, kinds: list[str]) -> list[str]:
    """For how long the event loop is held. Returns what came of the goals."""
    print(
        f"The longest block of the event loop, while {scale.filled:,} origins are met, and in a "
        "crawl;\nin brackets: in CPU time. idle: of a loop with nothing to do. collector: Python's "
        "own, CPU time"
    )
    columns = ("idle", "meeting", "crawl", "collector")
    print(
        f"  {'':8}{columns[0]:>9}{columns[1]:>21}{columns[2]:>21}{columns[3]:>11}{'origins/s':>11}"
    )
    goals = []
    for kind in (MEMORY, *kinds):
        say(f"event loop, {kind}")
        with child(fill, corpus, place(kind), scale.filled) as pipe:
            filled = pipe.recv()
        fleet = crawl_together(place(kind), 1, scale.sites)
        cells = f"{filled.idle * 1000:6.0f} ms"
        for one in (filled, fleet):
            cells += f"{one.block * 1000:9.0f} ms ({one.computing * 1000:3.0f} ms)"
        cells += f"{filled.collecting * 1000:8.0f} ms{filled.rate:11,.0f}"
        print(f"  {kind:8}{cells}", flush=True)
        block = max(filled.block, fleet.block)
        what = f"{kind}, longest block of the event loop"
        goals.append(
            verdict(
                block <= MOST_BLOCK,
                what,
                f"{block * 1000:.0f} ms",
                f"{MOST_BLOCK * 1000:.0f} ms",
            )
        )
    return goals


def verdict(met: bool, what: str, found: str, most: str) -> str:
    return f"  {'met' if met else 'MISSED':8}{what}: {found} (at most {most})"


def say(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
