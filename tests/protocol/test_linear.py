"""Work is linear in the URL for each rule, and in the file, whatever a site writes
(REP.md section 8).

Compared is growth, never seconds: twice the size may take about twice the time, where quadratic
work would take four times. The least of several rounds counts, since whatever else the machine
does can only add, and a suspicious ratio is measured once more.
"""

from __future__ import annotations

import itertools
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.protocol.tables import AGENT, SITE, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE_SIZE = 500 * 1024
MAX_GROWTH = 3.0
ROUNDS = 5
LEAST = 0.002
"""Seconds that a measurement takes at least, to be above the clock's noise."""


def seconds(work: Callable[[], object]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def growth(small: Callable[[], object], large: Callable[[], object]) -> float:
    """How many times the work of *small* the work of *large* takes."""
    repeat = max(1, int(LEAST / max(seconds(small), 1e-6)))
    smalls, larges = [], []
    for _ in range(ROUNDS):
        smalls.append(seconds(lambda: [small() for _ in range(repeat)]))
        larges.append(seconds(lambda: [large() for _ in range(repeat)]))
    return min(larges) / min(smalls)


def assert_linear(small: Callable[[], object], large: Callable[[], object]) -> None:
    ratio = min(itertools.takewhile(lambda r: r, _attempts(small, large)))
    assert ratio < MAX_GROWTH, f"twice the size takes {ratio:.1f} times as long"


def _attempts(small: Callable[[], object], large: Callable[[], object]) -> Iterator[float]:
    for _ in range(3):
        ratio = growth(small, large)
        yield ratio
        if ratio < MAX_GROWTH:
            return


def file_of(lines: Iterator[str], size: int = FILE_SIZE) -> bytes:
    """A file for all agents, filled up with *lines*, each of them different."""
    parts = ["User-agent: *"]
    left = size - len(parts[0]) - 1
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            break
        parts.append(line)
    assert len(set(parts)) == len(parts)
    return ("\n".join(parts) + "\n").encode()


NUMBERS = range(10**6)
HOSTILE = [
    ((f"Disallow: /*a*a*a*a*a*a*b{n}" for n in NUMBERS), "stars, and an end that is missing"),
    ((f"Disallow: /*a*a*a*a*a*a*{n}$" for n in NUMBERS), "stars, and an anchored end"),
    ((f"Disallow: *a*a*a*a*a*a*aa{n}*a" for n in NUMBERS), "stars on both sides"),
    ((f"Allow: /*a*a*a*a*b{n}/index.html" for n in NUMBERS), "index pages"),
    ((f"Disallow: /{'*a' * (n % 50 + 1)}*{n}" for n in NUMBERS), "more stars in each line"),
    ((f"Disallow: /*{'aa*' * 20}{n}" for n in NUMBERS), "pairs"),
    ((f"Disallow: /*{'a' * (n % 500)}{n}" for n in NUMBERS), "long parts"),
    ((f"Disallow: /*{'a' * 200}{n}{'a' * 200}" for n in NUMBERS), "parts that differ in the middle"),
    ((f"Disallow: /{'a' * n}b" for n in NUMBERS), "prefixes, each one longer"),
    ((f"Disallow: /{'a' * (n % 1500)}{n}" for n in NUMBERS), "prefixes that end differently"),
    ((f"Disallow: /{'a' * n}$" for n in NUMBERS), "whole paths"),
    ((f"Disallow: /{'a' * n}*" for n in NUMBERS), "prefixes of prefixes"),
]


@pytest.mark.parametrize("lines", rows("8", HOSTILE))
def test_hostile_file(lines: Iterator[str]) -> None:
    """500 KiB of such rules against 2 KB and 4 KB of the same letter."""
    robots = RobotsTxt.parse(file_of(lines))
    urls = [f"{SITE}/{'a' * size}" for size in (2_000, 4_000)]
    robots.decide(urls[0], AGENT)  # prepares the rules
    assert_linear(*(lambda url=url: robots.decide(url, AGENT) for url in urls))


LONGEST = 16_000  # bytes of a rule; what is beyond 16,663 bytes of a line is cut
SINGLE = [
    ("/*" + "a" * 500 + "b", "a", "a part that fails at its end"),
    ("/*b" + "a" * 500, "a", "a part that fails at its start"),
    ("/*" + "a" * 250 + "b" + "a" * 250, "a", "a part that fails in the middle"),
    ("/*" + "ab" * 250 + "c", "ab", "a part that repeats"),
    ("/*" + "a" * LONGEST + "b", "a", "a part as long as a line"),
    ("/" + "*a" * (LONGEST // 2) + "*b", "a", "as many stars as a line holds"),
    ("/" + "*ab" * (LONGEST // 3) + "*c$", "ab", "as many pairs"),
    ("/*a*b$", "ab", "an end that never comes"),
    ("/" + "*aa" * 100 + "$", "a", "an end that always comes"),
    ("/" + "a" * LONGEST, "a", "a prefix as long as a line"),
    ("/" + "*" * LONGEST + "b", "a", "nothing but stars"),
    ("/" + "*a" * 100 + "$*$" * 100, "a", "dollars between the stars"),
]


@pytest.mark.parametrize(("rule", "letters"), rows("8", SINGLE))
def test_hostile_rule(rule: str, letters: str) -> None:
    """One rule against long URLs of the same letters."""
    robots = RobotsTxt.parse(f"User-agent: *\nDisallow: {rule}".encode())
    urls = [f"{SITE}/{letters * (size // len(letters))}c" for size in (50_000, 100_000)]
    assert_linear(*(lambda url=url: robots.decide(url, AGENT) for url in urls))


LINES = [
    ((f"Disallow: /{n}" for n in NUMBERS), "rules"),
    ((f"User-agent: a{'b' * (n % 7)}\nDisallow: /{n}" for n in NUMBERS), "groups"),
    ((f"User-agent: {'a' * (n % 300)}b" for n in itertools.cycle(NUMBERS)), "names"),
    ((f"Disallow {chr(12) * 16_000} {n} x" for n in NUMBERS), "form feeds in a line of words"),
    ((f"Disallow{' ' * 16_000}{n} x" for n in NUMBERS), "blanks in a line of words"),
    ((f"{' ' * 16_000}{n}" for n in NUMBERS), "blanks and no field"),
    ((f"Disallow: {'%' * 16_000}{n}" for n in NUMBERS), "what looks like escapes"),
    ((f"Disallow: /{'%aa' * 5_000}{n}" for n in NUMBERS), "escapes"),
    ((f"Disallow: /{chr(233) * 8_000}{n}" for n in NUMBERS), "raw letters"),
    ((f"Disallow: {'*' * 16_000}{n}" for n in NUMBERS), "stars"),
    ((f"Disallow: /{'a' * n}" for n in NUMBERS), "prefixes of prefixes"),
    ((f"Disallow: /{n:x}{'/a' * (n % 50)}$" for n in NUMBERS), "whole paths"),
    ((f"Sitemap: /{n}" for n in NUMBERS), "sitemaps"),
    ((f"{chr(0)}{n}" for n in NUMBERS), "NUL"),
    ((f"\r\r\n{n}\r" for n in NUMBERS), "line ends"),
    ((f"# {n}" for n in NUMBERS), "comments"),
    ((f"{n}" for n in NUMBERS), "nonsense"),
]


@pytest.mark.parametrize("lines", rows("6", LINES))
def test_hostile_parsing(lines: Iterator[str]) -> None:
    """Parsing and preparing 250 KB and 500 KB of such lines."""
    everything = file_of(lines) if lines is not LINES[2][0] else names(lines)
    half = everything[: everything.rfind(b"\n", 0, len(everything) // 2) + 1]
    assert_linear(
        *(
            lambda body=body: RobotsTxt.parse(body).decide(f"{SITE}/a", AGENT)
            for body in (half, everything)
        )
    )


def names(lines: Iterator[str]) -> bytes:
    return ("\n".join(itertools.islice(lines, FILE_SIZE // 170))).encode()
