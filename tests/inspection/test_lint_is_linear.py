"""A hostile robots.txt can be linted in linear time: many agents, rules, sitemaps, whole of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from string import ascii_lowercase

import pytest

from scrapy_rep.inspection.lint import lint
from scrapy_rep.preferences.lint import usage_findings
from tests.helpers.timing import TIMES, assert_linear

pytestmark = pytest.mark.slow
NAMES = ["".join(letters) for letters in product(ascii_lowercase, repeat=3)]
FILES: dict[str, Callable[[int], str]] = {
    "groups": lambda n: "".join(
        f"User-agent: {one}\nDisallow: /{one}\n" for one in NAMES[:n]
    ),
    "agents of one group": lambda n: (
        "".join(f"User-agent: {one}\n" for one in NAMES[:n])
        + "".join(f"Disallow: /{one}\n" for one in NAMES[:n])
    ),
    "one agent in many groups": lambda n: (
        "User-agent: *\n"
        + "".join(f"Disallow: /{one}/css/*x\n" for one in NAMES[: 2 * n])
        + "".join(f"User-agent: a\nDisallow: /{one}*.js\n" for one in NAMES[: 2 * n])
    ),
    "sitemaps and groups": lambda n: "".join(
        f"User-agent: {one}\nDisallow: /\nSitemap: http://a.example/{one}\n"
        for one in NAMES[:n]
    ),
    "sitemaps and wildcards": lambda n: (
        "User-agent: *\n"
        + "".join(
            f"Disallow: /*{one}*x\nSitemap: /{one}.xml\n" for one in NAMES[: 4 * n]
        )
    ),
    "a closed site and exceptions": lambda n: (
        "User-agent: *\nDisallow: /\nUser-agent: a\n"
        + "".join(f"Disallow: /*{one}*x\nAllow: /y{one}\n" for one in NAMES[: 4 * n])
    ),
    "agents joined by accident, and delays": lambda n: (
        "".join(f"User-agent: {one}\nCrawl-delay: {len(one)}\n\n" for one in NAMES[:n])
        + "".join(f"Disallow: /{one}\n" for one in NAMES[:n])
    ),
    "unknown fields and tags": lambda n: "".join(
        f"{one}: {one}\n{one} {one} {one}\n<{one}>\n" for one in NAMES[: 4 * n]
    ),
    "long rules": lambda n: "".join(
        f"Disallow: /{part * (8 * n)}\n"
        for part in (
            "(|",
            "(a",
            "[a-a-",
            ",/",
            ", ",
            "$*",
            "{1",
            "*",
            "#",
            "%20",
            ".*",
            "\\",
            ":",
        )
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_takes_linear_time(name: str) -> None:
    small, large = (FILES[name](count).encode() for count in (200, 200 * TIMES))
    assert_linear(
        lambda: lint(small, also=[usage_findings]),
        lambda: lint(large, also=[usage_findings]),
    )
