"""How fast rules are parsed and matched, beside Protego, which Scrapy has.

    python benchmarks/matching.py [--quick] [--rounds N]

Both parsers work on the same files and URLs in the same process, in turns, and CPU time is what is
compared: the medians of the rounds. A turn is a fiftieth of the files: in turns of all files the same
two parsers compared as 4.2 in one round and as 6.1 in another.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple, TypeAlias

from files import MAX_BYTES, Site, site, sites
from protego import Protego
from tables import Report, median_ratio

from scrapy_rep.protocol import RobotsTxt

Job: TypeAlias = Callable[[], object]
LARGEST = 400_000  # bytes, before the cut, from which on a file is one of the largest
WARM = 3
"""How often the URLs of a file are asked in a row. Once would measure how much of a parser's data
the others have driven out of the CPU's caches since its last turn."""
AGAIN = 20
"""How often small files and the largest are read in a round: once would be too short to measure."""
PARTS = 50
"""Into so many parts the files are cut; with each of them every parser has a turn."""
# Kinds of wildcard rules that fit a long URL nearly, but not quite: what {n} is differs in each.
HOSTILE = (
    "Disallow: /*a*a*a*a*a*b{n}",
    "Disallow: /*a*a*a*a*a*{n}$",
    "Disallow: *a*a*a*a*a*aa{n}*a",
    "Disallow: /*aa*aa*aa*aa*{n}*ab*a",
)
ALL_CHARACTERS = "b0123456789"


class Parser(NamedTuple):
    """How one parser does it."""

    name: str
    parse: Callable[[bytes], Any]
    ask: Callable[[Any, str, str], object]
    """Gets what was parsed, a URL, and an agent. Called without a detour where that can be."""


OURS = Parser("scrapy-rep", RobotsTxt.parse, RobotsTxt.allowed)
PROTEGO = Parser(
    f"Protego {version('Protego')}",
    # As Scrapy does it.
    lambda body: Protego.parse(body.decode("utf-8", "ignore")),
    Protego.can_fetch,
)


def seconds_in_turns(jobs: Sequence[Sequence[Job]], rounds: int) -> list[list[float]]:
    """Return the CPU seconds that each one's parts take together, for each round.

    :param jobs: the parts of each, as many for all
    """
    times = [[0.0] * rounds for _ in jobs]
    for number in range(rounds):
        gc.collect()
        for part, turns in enumerate(zip(*jobs, strict=True)):
            order = range(len(jobs))
            # The first one in turn too: whoever comes second finds a warm machine.
            for at in order if (number + part) % 2 else reversed(order):
                # What the one before has left is not this one's. A full pass would take so much
                # longer than a turn that it is made once a round.
                gc.collect(1)
                began = time.process_time()
                turns[at]()
                times[at][number] += time.process_time() - began
    return times


def ready(parser: Parser, files: Sequence[Site]) -> Job:
    """Bytes in, and the first verdict out."""

    def job() -> None:
        for file in files:
            parser.ask(parser.parse(file.body), file.urls[0], file.agent)

    return job


def match(parser: Parser, files: Sequence[Site]) -> Job:
    """URL in, verdict out; each URL was asked before."""
    parsed = [(parser.parse(file.body), file) for file in files]

    def job() -> None:
        for robots, file in parsed:
            for url in file.urls:
                parser.ask(robots, url, file.agent)

    job()  # whatever is prepared on the first question is prepared now
    return job


def once(parser: Parser, files: Sequence[Site]) -> Job:
    """Each file is parsed once for its URLs."""

    def job() -> None:
        for file in files:
            robots = parser.parse(file.body)
            for url in file.urls:
                parser.ask(robots, url, file.agent)

    return job


def hostile(tail: str = "") -> list[Site]:
    """Files of wildcard rules, as large as a file may be, and a URL of 2 KB that ends with *tail*."""
    files = []
    for line in HOSTILE:
        rules = "\n".join(line.format(n=number) for number in range(20_000))
        body = f"User-agent: *\n{rules}"[:MAX_BYTES]
        url = "https://example.com/" + "a" * 2000 + tail
        files.append(site(body.encode(), "FooBot", [url]))
    return files


def compare(
    report: Report,
    what: str,
    goal: float,
    job: Callable[[Parser, Sequence[Site]], Job],
    files: Sequence[Site],
    rounds: int,
) -> None:
    """Add a row. We have to be *goal* times as fast as Protego."""
    asked = sum(len(file.urls) for file in files) if job is match else len(files)
    parts = [files[first::PARTS] for first in range(min(PARTS, len(files)))]
    jobs = [[job(one, part) for part in parts] for one in (OURS, PROTEGO)]
    ours, theirs = seconds_in_turns(jobs, rounds)
    ratio = median_ratio(theirs, ours)
    micros = [statistics.median(seconds) / asked * 1e6 for seconds in (ours, theirs)]
    report.row(what, *micros, ratio)
    report.at_least(what, ratio, goal)


def main() -> None:
    report = Report(__doc__)
    report.option("rounds", 7, 1)
    chosen = report.begin()
    what, files = sites()
    if chosen.quick:
        files = files[:100]
    by_size = sorted(files, key=lambda file: -file.size)
    largest = [file for file in by_size if file.size >= LARGEST] or by_size[:3]
    tiny = [one for one in files if one.size < 100] * AGAIN
    small = [one for one in files if 100 <= one.size < 300] * AGAIN
    warm = [one._replace(urls=one.urls * WARM) for one in files]
    rows = (
        ("parse, first verdict", 4, ready, files),
        ("  under 100 bytes", 1, ready, tiny),
        ("  100 to 300 bytes", 1.5, ready, small),
        ("match a URL", 5, match, warm),
        ("parse once, ask all URLs", 4, once, files),
        ("the largest files", 5, ready, largest * AGAIN),
        ("hostile, a long URL", 3, match, hostile()),
        ("  that lacks no character", 1, match, hostile(ALL_CHARACTERS)),
    )
    print(f"{len(files)} files, {what}\n")
    report.row("us of a file, or of a URL", OURS.name, PROTEGO.name, "ratio")
    for name, goal, job, some in rows:
        if some:  # a few made files may have none
            compare(report, name, goal, job, some, chosen.rounds)
    report.show()
    report.end()


if __name__ == "__main__":
    main()
