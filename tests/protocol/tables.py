"""What the tables of cases share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from scrapy_rep.protocol import RobotsTxt

if TYPE_CHECKING:
    from collections.abc import Iterable

AGENT = "FooBot"
SITE = "https://example.com"

rfc9309 = pytest.mark.rfc9309
google_only = pytest.mark.google_only


def rows(section: str, table: Iterable[tuple[Any, ...]], *marks: pytest.MarkDecorator) -> list[Any]:
    """Make a table into parameters of a test. The last column is the reason for the row: it and
    the *section* of REP.md become the row's id."""
    return [pytest.param(*row[:-1], id=f"{section}: {row[-1]}", marks=marks) for row in table]


def verdict(
    body: str | bytes, target: str, agent: str | list[str] = AGENT, **options: bool
) -> tuple[bool, int]:
    """Whether *agent* may fetch *target* (a path of the site, or anything else as it stands),
    and the number of the line that decided, 0 for none."""
    if isinstance(body, str):
        body = body.encode()
    url = SITE + target if target.startswith("/") and not target.startswith("//") else target
    robots = RobotsTxt.parse(body)
    decision = robots.decide(url, agent, **options)
    assert robots.allowed(url, agent, **options) is decision.allowed
    return decision.allowed, decision.rule.line if decision.rule else 0


def rules(*lines: str) -> str:
    """A file with one group, for all; its first rule is on line 2."""
    return "\n".join(["User-agent: *", *lines, ""])
