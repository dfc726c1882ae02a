"""How fast rules are parsed and matched, beside other parsers in Python.

    python benchmarks/matching.py [--corpus FILE] [--rounds N]

All parsers work on the same files and URLs in the same process, in turns, and CPU time is what is
compared: the medians of the rounds. A turn is a fiftieth of the files: in turns of all files the same
two parsers compared as 4.2 in one round and as 6.1 in another.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.robotparser import RobotFileParser

from corpus import MAX_BYTES, Site, site, sites
from tables import Row, median_ratio, table

from scrapy_rep.protocol import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Job = Callable[[], object]

LARGEST = 400_000
"""From this size on (bytes, before the cut) a file is one of the largest."""
WARM = 3
"""How often the URLs of a file are asked in a row. Once would measure how much of a parser's data
the others have driven out of the CPU's caches since its last turn."""
AGAIN = 20
"""How often these, and small ones, are read in a round: once would be too short to measure."""
SMALL = (
    ("  of under 100 bytes", 0, 100, 1.0),
    ("  of 100 to 300 bytes", 100, 300, 1.5),
)
"""Groups of small files: sizes in bytes, and the goal."""
PARTS = 50
"""Into so many parts the files are cut; with each of them every parser has a turn."""
MAX_HELD = 0.015
"""Seconds that the event loop may be held by the largest file."""


class Parser(NamedTuple):
    """How one parser does it."""

    name: str
    parse: Callable[[bytes], Any]
    ask: Callable[[Any, str, str], object]
    """Gets what was parsed, a URL, and an agent. Called without a detour where that can be."""


def parsers() -> Iterator[Parser]:
    """The parsers that are installed, ours first. Names those that are not."""
    yield Parser("scrapy-rep", RobotsTxt.parse, RobotsTxt.allowed)
    for package, module in (("Protego", "protego"), ("robotspy", "robots")):
        try:
            found = import_module(module)
        except ImportError:
            print(f"{package}: skipped, it is not installed")
            continue
        name = f"{package} {version(package)}"
        if package == "Protego":
            yield Parser(
                name,
                lambda body, parse=found.Protego.parse: parse(text_of(body)),
                found.Protego.can_fetch,
            )
        else:
            yield Parser(
                name,
                lambda body, parse=found.RobotsParser.from_string: parse(text_of(body)),
                lambda robots, url, agent: robots.can_fetch(agent, url),
            )
    yield Parser(
        "urllib.robotparser",
        _stdlib,
        lambda robots, url, agent: robots.can_fetch(agent, url),
    )


def text_of(body: bytes) -> str:
    return body.decode("utf-8", "ignore")  # as Scrapy does for its parsers


def _stdlib(body: bytes) -> RobotFileParser:
    parser = RobotFileParser()
    parser.parse(text_of(body).splitlines())
    parser.modified()
    return parser


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
                started = time.process_time()
                turns[at]()
                times[at][number] += time.process_time() - started
    return times


def ready(parser: Parser, files: Sequence[Site]) -> Job:
    def job() -> None:
        for file in files:
            parser.ask(parser.parse(file.body), file.urls[0], file.agent)

    return job


def parse(parser: Parser, files: Sequence[Site]) -> Job:
    def job() -> None:
        for file in files:
            parser.parse(file.body)

    return job


def match(parser: Parser, files: Sequence[Site]) -> Job:
    parsed = [(parser.parse(file.body), file) for file in files]

    def job() -> None:
        for robots, file in parsed:
            for url in file.urls:
                parser.ask(robots, url, file.agent)

    job()  # whatever is prepared on the first question is prepared now
    return job


def once(parser: Parser, files: Sequence[Site]) -> Job:
    def job() -> None:
        for file in files:
            robots = parser.parse(file.body)
            for url in file.urls:
                parser.ask(robots, url, file.agent)

    return job


# Kinds of wildcard rules that fit a long URL nearly, but not quite: what {n} is differs in each.
HOSTILE = (
    "Disallow: /*a*a*a*a*a*b{n}",
    "Disallow: /*a*a*a*a*a*{n}$",
    "Disallow: *a*a*a*a*a*aa{n}*a",
    "Disallow: /*aa*aa*aa*aa*{n}*ab*a",
)
FULL = "b0123456789"


def hostile(share: float = 1.0, tail: str = "") -> list[Site]:
    """Files of wildcard rules, as large as a file may be or that share of it, and a URL of 2 KB.

    :param tail: of the URL
    """
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
        started = time.perf_counter()
        RobotsTxt.parse(file.body).allowed(file.urls[0], file.agent)
        return time.perf_counter() - started

    return max(min(seconds(file) for _ in range(3)) for file in files)


def measure(files: list[Site], rounds: int) -> str:
    everyone = list(parsers())
    urls = sum(len(file.urls) for file in files)
    largest = sorted(files, key=lambda file: -file.size)
    largest = [file for file in largest if file.size >= LARGEST] or largest[:3]
    again = largest * AGAIN
    warm = [file._replace(urls=file.urls * WARM) for file in files]
    rows = []

    def add(
        what: str, goal: float | None, job: Callable[[Parser, Sequence[Site]], Job],
        files: Sequence[Site], count: int, unit: str, who: Sequence[Parser] = everyone,
    ) -> None:  # fmt: skip
        parts = [files[first::PARTS] for first in range(min(PARTS, len(files)))]
        ours, *others = seconds_in_turns(
            [[job(one, part) for part in parts] for one in who], rounds
        )
        for parser, theirs in zip(who[1:], others, strict=True):
            is_goal = parser.name.startswith("Protego")
            middle = map(statistics.median, (ours, theirs))
            figures = [f"{seconds / count * 1e6:,.2f} us/{unit}" for seconds in middle]
            ratio = median_ratio(theirs, ours)
            rows.append(
                Row(what, parser.name, *figures, ratio, goal if is_goal else None)
            )

    add("parse, ready for an agent", 4, ready, files, len(files), "file")
    for what, least, most, goal in SMALL:
        group = [file for file in files if least <= file.size < most] * AGAIN
        if group:  # made-up files may have none
            add(what, goal, ready, group, len(group), "file")
    add("match", 5, match, warm, urls * WARM, "URL")
    add("parse once, all URLs", 4, once, files, urls, "URL")
    add(f"the {len(largest)} largest files", 5, ready, again, len(again), "file")
    # The others don't know wildcards, or take minutes.
    protego = [
        parser
        for parser in everyone
        if parser.name.startswith(("scrapy-rep", "Protego"))
    ]
    kinds = len(HOSTILE)
    add("hostile files, a long URL", 3, match, hostile(), kinds, "URL", protego)
    add(
        "  that lacks no character",
        None,
        match,
        hostile(tail=FULL),
        kinds,
        "URL",
        protego,
    )
    growth = seconds_in_turns(
        [[match(everyone[0], hostile(share))] for share in (0.5, 1.0)], rounds
    )
    half, whole = map(statistics.median, growth)
    size = sum(len(file.body) for file in files)
    longest = held(largest) * 1000
    return f"""\
{len(files)} files ({size:,} bytes), {urls:,} URLs; CPU time, medians of {rounds} rounds in turns

{table(rows)}

Twice the hostile rules take {whole / half:.2f} times as long (2 is linear).
The largest file holds the event loop for {longest:.1f} ms (goal: {MAX_HELD * 1000:.0f} ms at most).

{MEANING}"""


MEANING = """\
parse, ready for an agent  bytes in, and the first verdict out: all that is prepared on the first
                           question is within it
match                      URL in, verdict out; each URL was asked before, and is asked again
parse once, all URLs       both, for each file with its URLs (16 on average)"""


def positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--corpus", metavar="FILE", help="robots.txt files with URLs (.jsonl.gz)"
    )
    parser.add_argument("--rounds", metavar="N", type=positive, default=7)
    options = parser.parse_args()
    what, files = sites(options.corpus)
    print(f"Parsing and matching: {what}")
    print(measure(files, options.rounds))


if __name__ == "__main__":
    main()
