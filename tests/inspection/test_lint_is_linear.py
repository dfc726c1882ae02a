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
    "groups": lambda n: "".join(f"User-agent: {one}\nDisallow: /{one}\n" for one in NAMES[:n]),
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
        f"User-agent: {one}\nDisallow: /\nSitemap: http://a.example/{one}\n" for one in NAMES[:n]
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_takes_linear_time(name: str) -> None:
    small, large = (FILES[name](count).encode() for count in (200, 200 * TIMES))
    assert_linear(
        lambda: lint(small, also=[usage_findings]), lambda: lint(large, also=[usage_findings])
    )
