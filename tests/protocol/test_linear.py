"""Work is linear in the URL for each rule, and in the file, however hostile (REP.md section 8)."""

from __future__ import annotations

from itertools import count
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
    for number in count():
        if len(body) + len(one := line(number)) >= FILE_SIZE:
            return body.encode("latin-1")
        body += one + "\n"
    raise AssertionError


def like_bits(number: int, zero: str, one: str) -> str:
    """Fourteen parts with stars between them, other ones for each number."""
    return "*".join(one if number >> bit & 1 else zero for bit in range(14))


HOSTILE: list[tuple[Line, str]] = [
    (lambda n: f"Disallow: /*a*a*a*a*a*a*b{n}", "stars, and an end that is missing"),
    (lambda n: f"Disallow: /*a*a*a*a*a*a*{n}$", "stars, and an anchored end"),
    (
        lambda n: f"Disallow: /*{like_bits(n, 'a', 'aa')}*b",
        "only the last part is missing",
    ),
    (
        lambda n: f"Disallow: /*{like_bits(n, 'aa', 'a')}*a*c$",
        "only the end is missing",
    ),
    (lambda n: f"Allow: /*{like_bits(n, 'a', 'aa')}/index.html", "index pages"),
    (
        lambda n: f"Disallow: /*{'a' * 200}{n}{'a' * 200}",
        "parts that differ in the middle",
    ),
    (lambda n: f"Disallow: /{'a' * n}b", "prefixes, each one longer"),
    (lambda n: f"Disallow: /{'a' * n}$", "whole paths"),
    (lambda n: f"Disallow: /{'a' * n}*", "prefixes of prefixes"),
]


@pytest.mark.parametrize("line", [pytest.param(line, id=why) for line, why in HOSTILE])
def test_a_file_of_hostile_rules_is_matched_in_linear_time(line: Line) -> None:
    robots = RobotsTxt.parse(file_of(line))
    urls = [f"{SITE}/{'a' * size}" for size in (2_000, 2_000 * TIMES)]
    robots.decide(urls[0], AGENT)  # prepares the rules
    assert_linear(*(lambda url=url: robots.decide(url, AGENT) for url in urls))


LONGEST = 16_000  # bytes of a rule; what is beyond 16,663 bytes of a line is cut
SINGLE = [
    ("/*" + "a" * 500 + "b", "a", "a part that fails at its end"),
    ("/*" + "a" * LONGEST + "b", "a", "a part as long as a line"),
    ("/" + "*a" * (LONGEST // 2) + "*b", "a", "as many stars as a line holds"),
    ("/*a*b$", "ab", "an end that never comes"),
    ("/" + "a" * LONGEST, "a", "a prefix as long as a line"),
    ("/" + "*" * LONGEST + "b", "a", "nothing but stars"),
]


@pytest.mark.parametrize(
    ("rule", "letters"), [pytest.param(*row, id=why) for *row, why in SINGLE]
)
def test_one_hostile_rule_is_matched_in_linear_time(rule: str, letters: str) -> None:
    robots = RobotsTxt.parse(f"User-agent: *\nDisallow: {rule}".encode())
    urls = [
        f"{SITE}/{letters * (size // len(letters))}c"
        for size in (25_000, 25_000 * TIMES)
    ]
    assert_linear(*(lambda url=url: robots.decide(url, AGENT) for url in urls))


LINES: list[tuple[Line, str]] = [
    (lambda n: f"Disallow: /{n}", "rules"),
    (lambda n: f"User-agent: a{'b' * (n % 7)}\nDisallow: /{n}", "groups"),
    (lambda n: f"Disallow {chr(12) * 16_000} {n} x", "form feeds in a line of words"),
    (lambda n: f"Disallow{' ' * 16_000}{n} x", "blanks in a line of words"),
    (lambda n: f"Disallow: {'%' * 16_000}{n}", "what looks like escapes"),
    (lambda n: f"Disallow: /{'%aa' * 5_000}{n}", "escapes"),
    (lambda n: f"Disallow: /{chr(233) * 16_000}{n}", "bytes to escape"),
    (lambda n: f"Sitemap: /{n}", "sitemaps"),
    (lambda n: f"{chr(0)}{n}", "NUL"),
    (lambda n: f"\r\r\n{n}\r", "line ends"),
    (str, "nonsense"),
]


@pytest.mark.parametrize("line", [pytest.param(line, id=why) for line, why in LINES])
def test_hostile_lines_are_parsed_in_linear_time(line: Line) -> None:
    whole = file_of(line)
    part = whole[: whole.rfind(b"\n", 0, len(whole) // TIMES) + 1]
    url = f"{SITE}/a"
    assert_linear(
        lambda: RobotsTxt.parse(part).decide(url, AGENT),
        lambda: RobotsTxt.parse(whole).decide(url, AGENT),
    )
