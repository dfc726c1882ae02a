"""What the tables of cases share: each row ends with what is right, and the reason for the row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from scrapy_rep.protocol import RobotsTxt

AGENT = "FooBot"
SITE = "https://example.com"


def check(table: Iterable[tuple[Any, ...]], ask: Callable[..., object]) -> None:
    """Ask about each row. Those with a wrong answer are named: the reason, what is right, the answer."""
    wrong = [
        (reason, right, found)
        for *arguments, right, reason in table
        if (found := ask(*arguments)) != right
    ]
    assert wrong == []


def verdict(
    body: str | bytes, target: str, agent: str | list[str] = AGENT, **options: bool
) -> tuple[bool, int]:
    """Whether *target* (a path, or as it stands) may be fetched; the deciding line, 0 for none."""
    if isinstance(body, str):
        body = body.encode()
    url = (
        SITE + target
        if target.startswith("/") and not target.startswith("//")
        else target
    )
    robots = RobotsTxt.parse(body)
    decision = robots.decide(url, agent, **options)
    assert robots.allowed(url, agent, **options) is decision.allowed
    return decision.allowed, decision.rule.line if decision.rule else 0


def rules(*lines: str) -> str:
    """A file with one group, for all; its first rule is on line 2."""
    return "\n".join(["User-agent: *", *lines, ""])
