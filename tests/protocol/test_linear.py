"""Work is linear in the URL for each rule, and in the file, whatever a site writes
(REP.md section 8).

How that is measured, tests/helpers/timing.py says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scrapy_rep.protocol import RobotsTxt
from tests.helpers.timing import TIMES, assert_linear
from tests.protocol.tables import AGENT, SITE

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable

    Line = Callable[[int], str]

FILE_SIZE = 500 * 1024


def file_of(line: Line) -> bytes:
    """A file for all agents, filled up with lines, each for another number."""
    body = "User-agent: *\n"
    parts = [body]
    left = FILE_SIZE - len(body)
    number = 0
    while left > 0:
        parts.append(line(number) + "\n")
        left -= len(parts[-1])
        number += 1
    return "".join(parts[:-1]).encode("latin-1")


def like_bits(number: int, zero: str, one: str) -> str:
    """Fourteen parts with stars between them, other ones for each number."""
    return "*".join(one if number >> bit & 1 else zero for bit in range(14))


HOSTILE: list[tuple[Line, str]] = [
    (lambda n: f"Disallow: /*a*a*a*a*a*a*b{n}", "stars, and an end that is missing"),
    (lambda n: f"Disallow: /*a*a*a*a*a*a*{n}$", "stars, and an anchored end"),
    (lambda n: f"Disallow: /*{like_bits(n, 'a', 'aa')}*b", "only the last part is missing"),
    (lambda n: f"Disallow: /*{like_bits(n, 'aa', 'a')}*a*c$", "only the end is missing"),
    (lambda n: f"Disallow: /*{like_bits(n, 'a', 'aa')}*ab*a", "one in the middle is missing"),
    (lambda n: f"Allow: /*{like_bits(n, 'a', 'aa')}/index.html", "index pages"),
    (lambda n: f"Disallow: /*{'aa*' * 20}{n}", "pairs"),
    (lambda n: f"Disallow: /*{'a' * 200}{n}{'a' * 200}", "parts that differ in the middle"),
    (lambda n: f"Disallow: /{'a' * n}b", "prefixes, each one longer"),
    (lambda n: f"Disallow: /{'a' * n}$", "whole paths"),
    (lambda n: f"Disallow: /{'a' * n}*", "prefixes of prefixes"),
]


@pytest.mark.parametrize("line", [pytest.param(line, id=why) for line, why in HOSTILE])
def test_a_file_of_hostile_rules_is_matched_in_linear_time(line: Line) -> None:
    """500 KiB of such rules against 2 KB and 16 KB of the same letter."""
    robots = RobotsTxt.parse(file_of(line))
    urls = [f"{SITE}/{'a' * size}" for size in (2_000, 2_000 * TIMES)]
    robots.decide(urls[0], AGENT)  # prepares the rules
    assert_linear(*(lambda url=url: robots.decide(url, AGENT) for url in urls))


LONGEST = 16_000  # bytes of a rule; what is beyond 16,663 bytes of a line is cut
SINGLE = [
    ("/*" + "a" * 500 + "b", "a", "a part that fails at its end"),
    ("/*" + "a" * 250 + "b" + "a" * 250, "a", "a part that fails in the middle"),
    ("/*" + "ab" * 250 + "c", "ab", "a part that repeats"),
    ("/*" + "a" * LONGEST + "b", "a", "a part as long as a line"),
    ("/" + "*a" * (LONGEST // 2) + "*b", "a", "as many stars as a line holds"),
    ("/*a*b$", "ab", "an end that never comes"),
    ("/" + "a" * LONGEST, "a", "a prefix as long as a line"),
    ("/" + "*" * LONGEST + "b", "a", "nothing but stars"),
    ("/" + "*a" * 100 + "$*$" * 100, "a", "dollars between the stars"),
]


@pytest.mark.parametrize(("rule", "letters"), [pytest.param(*row, id=why) for *row, why in SINGLE])
def test_one_hostile_rule_is_matched_in_linear_time(rule: str, letters: str) -> None:
    """One rule against long URLs of the same letters."""
    robots = RobotsTxt.parse(f"User-agent: *\nDisallow: {rule}".encode())
    urls = [f"{SITE}/{letters * (size // len(letters))}c" for size in (25_000, 25_000 * TIMES)]
    assert_linear(*(lambda url=url: robots.decide(url, AGENT) for url in urls))


LINES: list[tuple[Line, str]] = [
    (lambda n: f"Disallow: /{n}", "rules"),
    (lambda n: f"User-agent: a{'b' * (n % 7)}\nDisallow: /{n}", "groups"),
    (lambda n: f"User-agent: {'a' * (n % 300)}b", "names"),
    (lambda n: f"Disallow {chr(12) * 16_000} {n} x", "form feeds in a line of words"),
    (lambda n: f"Disallow{' ' * 16_000}{n} x", "blanks in a line of words"),
    (lambda n: f"{' ' * 16_000}{n}", "blanks and no field"),
    (lambda n: f"Disallow: {'%' * 16_000}{n}", "what looks like escapes"),
    (lambda n: f"Disallow: /{'%aa' * 5_000}{n}", "escapes"),
    (lambda n: f"Disallow: /{chr(233) * 16_000}{n}", "bytes to escape"),
    (lambda n: f"Disallow: {'*' * 16_000}{n}", "stars"),
    (lambda n: f"Disallow: /{'a' * n}", "prefixes of prefixes"),
    (lambda n: f"Disallow: /{n:x}{'/a' * (n % 50)}$", "whole paths"),
    (lambda n: f"Sitemap: /{n}", "sitemaps"),
    (lambda n: f"{chr(0)}{n}", "NUL"),
    (lambda n: f"\r\r\n{n}\r", "line ends"),
    (lambda n: f"# {n}", "comments"),
    (str, "nonsense"),
]


@pytest.mark.parametrize("line", [pytest.param(line, id=why) for line, why in LINES])
def test_hostile_lines_are_parsed_in_linear_time(line: Line) -> None:
    """Parsing and preparing 62 KB and 500 KB of such lines."""
    whole = file_of(line)
    part = whole[: whole.rfind(b"\n", 0, len(whole) // TIMES) + 1]
    assert_linear(
        *(
            lambda body=body: RobotsTxt.parse(body).decide(f"{SITE}/a", AGENT)
            for body in (part, whole)
        )
    )
