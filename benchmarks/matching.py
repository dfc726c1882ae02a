"""How fast rules are parsed and matched, beside Protego, which Scrapy has.

    python benchmarks/matching.py [--quick] [--corpus FILE] [--rounds N]

Both parsers work on the same files and URLs in the same process, in turns, and CPU time is what is
compared: the medians of the rounds. A turn is a fiftieth of the files: in turns of all files the same
two parsers compared as 4.2 in one round and as 6.1 in another.
"""

from __future__ import annotations

import gc
import statistics
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from files import MAX_BYTES, Site, site, sites
from protego import Protego
from tables import Goals, median_ratio, parser, print_heading, print_table

from scrapy_rep.protocol import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Job = Callable[[], object]

LARGEST = 400_000
"""From this size on (bytes, before the cut) a file is one of the largest."""
WARM = 3
"""How often the URLs of a file are asked in a row. Once would measure how much of a parser's data
the others have driven out of the CPU's caches since its last turn."""
AGAIN = 20
"""How often small files and the largest are read in a round: once would be too short to measure."""
PARTS = 50
"""Into so many parts the files are cut; with each of them every parser has a turn."""
MOST_HELD = 15
"""Milliseconds for which the largest file may hold the event loop."""
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


def hostile(share: float = 1.0, tail: str = "") -> list[Site]:
    """Files of wildcard rules, as large as a file may be or that *share* of it, and a URL of 2 KB that
    ends with *tail*."""
    files = []
    for line in HOSTILE:
        rules = "\n".join(line.format(n=number) for number in range(20_000))
        body = f"User-agent: *\n{rules}"[: int(MAX_BYTES * share)]
        url = "https://example.com/" + "a" * 2000 + tail
        files.append(site(body.encode(), "FooBot", [url]))
    return files


def held(files: Sequence[Site]) -> float:
    """The longest that one file holds the event loop: read, prepared, and asked once; seconds.
    The least of three tries each: what else the machine does is not the file's fault."""

    def seconds(file: Site) -> float:
        began = time.perf_counter()
        RobotsTxt.parse(file.body).allowed(file.urls[0], file.agent)
        return time.perf_counter() - began

    return max(min(seconds(file) for _ in range(3)) for file in files)


class Comparison:
    """The table of all jobs."""

    def __init__(self, goals: Goals, rounds: int) -> None:
        self.rows = [("", OURS.name, PROTEGO.name, "ratio")]
        self._goals = goals
        self._rounds = rounds

    def add(
        self,
        what: str,
        goal: float,
        job: Callable[[Parser, Sequence[Site]], Job],
        files: Sequence[Site],
        count: int,
    ) -> None:
        """Add a row. We have to be *goal* times as fast as Protego.

        :param count: how many files or URLs that are
        """
        parts = [files[first::PARTS] for first in range(min(PARTS, len(files)))]
        jobs = [[job(one, part) for part in parts] for one in (OURS, PROTEGO)]
        ours, theirs = seconds_in_turns(jobs, self._rounds)
        ratio = median_ratio(theirs, ours)
        cells = [
            f"{statistics.median(seconds) / count * 1e6:,.2f} us"
            for seconds in (ours, theirs)
        ]
        self.rows.append((what, *cells, f"{ratio:.1f}"))
        self._goals.at_least(what, ratio, goal)


def main() -> None:
    options = parser(__doc__, rounds=7)
    options.add_argument("--corpus", metavar="FILE", help="real files (.jsonl.gz)")
    chosen = options.parse_args()
    what, files = sites(chosen.corpus)
    rounds = chosen.rounds
    if chosen.quick:
        rounds, files = 1, files[:100]
    urls = sum(len(file.urls) for file in files)
    by_size = sorted(files, key=lambda file: -file.size)
    largest = [file for file in by_size if file.size >= LARGEST] or by_size[:3]
    warm = [file._replace(urls=file.urls * WARM) for file in files]
    tiny = [file for file in files if file.size < 100] * AGAIN
    small = [file for file in files if 100 <= file.size < 300] * AGAIN
    print_heading(f"{len(files)} files, {what}; {urls:,} URLs; {rounds} rounds")
    goals = Goals()
    table = Comparison(goals, rounds)
    table.add("parse, first verdict", 4, ready, files, len(files))
    if tiny and small:  # a few made files may have none
        table.add("  under 100 bytes", 1, ready, tiny, len(tiny))
        table.add("  100 to 300 bytes", 1.5, ready, small, len(small))
    table.add("match a URL", 5, match, warm, urls * WARM)
    table.add("parse once, all URLs", 4, once, files, urls)
    again = largest * AGAIN
    table.add("the largest files", 5, ready, again, len(again))
    kinds = len(HOSTILE)
    table.add("hostile, a long URL", 3, match, hostile(), kinds)
    lacking = hostile(tail=ALL_CHARACTERS)
    table.add("  that lacks no character", 1, match, lacking, kinds)
    print_table(table.rows)
    halves = [[match(OURS, hostile(share))] for share in (0.5, 1.0)]
    half, whole = map(statistics.median, seconds_in_turns(halves, rounds))
    goals.at_most("hostile rules, twice as many", whole / half, 2.5, " times as long")
    goals.at_most("the event loop is held", held(largest) * 1000, MOST_HELD, " ms")
    goals.print(quick=chosen.quick)


if __name__ == "__main__":
    main()
