"""What `python3 example_project/run.py fleet` runs: a Redis server, and three processes that crawl
with its queue. Needs Python only; the crawlers run in the Python that run.py has prepared.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
CRAWLERS = (1, 2, 3)
WIDTHS = {
    "site": 9,
    "robots.txt": 10,
    **{f"crawler {n}": 17 for n in CRAWLERS},
    "dropped": 40,
}
LEGEND = """\
robots.txt: how often all crawlers together fetched it. "slow" takes a second to answer; "recovers"
answers 503 three times first, and all crawlers share the time of the next attempt.
dropped: (crawler) and the line that decided."""


class Result(NamedTuple):
    """What one crawler did with one page."""

    crawler: int
    site: str
    page: str
    dropped: str  # why; empty: it was fetched


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def redis_program() -> str:
    """The Redis server's, where it is installed."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit(
            "The fleet needs redis-server, which is not installed. On Debian and Ubuntu: "
            "sudo apt install redis-server; on macOS: brew install redis."
        )
    return program


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis server that forgets everything at the end; gives its URL."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [
        redis_program(),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
    ]
    log = folder / "redis.log"
    with log.open("wb") as out:
        # A session of its own: Ctrl-C is for the crawlers, which need the server to end well.
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, start_new_session=True
        )
    try:
        until = time.monotonic() + 10
        while not answers(port):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(
                    "redis-server does not start; it says:\n" + log.read_text("utf-8")
                )
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def crawl(python: str, options: list[str]) -> tuple[list[Result], list[str]]:
    """Run the crawlers to their end. Returns what became of the pages, and what failed.

    :param python: the program that has Scrapy, scrapy-rep and scrapy-redis
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        with redis_server(folder) as url:
            processes = {n: start(python, n, url, folder, options) for n in CRAWLERS}
            failures = wait(processes)
        return [
            one for n in CRAWLERS for one in results(n, folder / f"{n}.jsonl")
        ], failures


def log_of(number: int) -> Path:
    return HERE / f"fleet-{number}.log"


def start(
    python: str, number: int, url: str, folder: Path, options: list[str]
) -> subprocess.Popen[bytes]:
    """Start one crawler."""
    command = [
        python,
        "-m",
        "scrapy",
        "crawl",
        "fleet",
        "-O",
        str(folder / f"{number}.jsonl"),
    ]
    # What it holds is there, on disk, should it be killed: each has a JOBDIR of its own.
    command += [
        "-s",
        f"REDIS_URL={url}",
        "-s",
        f"JOBDIR={folder / f'job-{number}'}",
        *options,
    ]
    with log_of(number).open("wb") as log:
        return subprocess.Popen(command, cwd=HERE, stderr=log)


def wait(processes: dict[int, subprocess.Popen[bytes]]) -> list[str]:
    """Wait for the crawlers. Returns what failed, a line each."""
    try:
        for process in processes.values():
            process.wait()
    except KeyboardInterrupt:
        # The terminal told them as well.
        say("\nStopping after the requests in flight; Ctrl-C again stops at once.")
        for process in processes.values():
            process.wait()
        raise
    finally:
        for process in processes.values():
            process.kill()
    failures = []
    for number, process in processes.items():
        if process.returncode:
            failures.append(
                f"Crawler {number} ended with exit status {process.returncode}\n"
            )
        lines = log_of(number).read_text("utf-8", "replace").splitlines(keepends=True)
        failures += [
            line for line in lines if re.search(r"\] (ERROR|CRITICAL): ", line)
        ]
    return failures


def results(crawler: int, feed: Path) -> Iterator[Result]:
    """What a crawler has written down."""
    for line in feed.read_text("utf-8").splitlines() if feed.exists() else []:
        yield Result(crawler, **json.loads(line))


def show(found: list[Result], asked: dict[str, int]) -> None:
    """Print a table.

    :param asked: how often each site's robots.txt was asked for
    """
    print_line(WIDTHS)
    print_line("-" * width for width in WIDTHS.values())
    for site, count in asked.items():
        here = sorted(one for one in found if one.site == site)
        if not here:
            continue
        columns = [[site], [f"{count} time{'s' * (count > 1)}"]]
        for number in CRAWLERS:
            pages = [
                one.page for one in here if one.crawler == number and not one.dropped
            ]
            columns.append(cell(" ".join(pages), WIDTHS[f"crawler {number}"]))
        dropped = [
            f"{one.page} ({one.crawler}) {reason(one)}" for one in here if one.dropped
        ]
        columns.append(
            [line for text in dropped for line in cell(text, WIDTHS["dropped"])]
        )
        for line in zip_longest(*(column or ["-"] for column in columns), fillvalue=""):
            print_line(line)
    print(LEGEND)


def reason(one: Result) -> str:
    line = re.search(r"\((line \d+: .+), group .*\)$", one.dropped)
    return line[1] if line else one.dropped


def cell(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def print_line(cells: Iterable[str]) -> None:
    line = "  ".join(
        f"{cell:{width}}" for cell, width in zip(cells, WIDTHS.values(), strict=True)
    )
    print(line.rstrip())
