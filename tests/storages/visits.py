"""Crawls with a storage that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scrapy_rep.storages import (
    client,
    sqlite,
)
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import NO, OK, CrawlResult, Step, StepSpider, crawl
from tests.helpers.held import assert_clean
from tests.helpers.log import lines, warnings
from tests.helpers.servers import Site, Sites

EARNED = "refused every start"
"""Words of the one warning that such a crawl earns: its only start request is a forbidden one."""


def make_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon, and a process that is locked out does not wait. A claim waits
    for a storage that failed, however slow the machine is."""
    monkeypatch.setattr(client, "_PATIENCE", 60.0)
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(sqlite, "_LOCK_SECONDS", 0.05)


def some(sites: Sites, count: int = 4) -> list[Site]:
    return [sites.add(robots=RULES) for _ in range(count)]


async def visit(
    some: list[Site],
    settings: dict[str, Any],
    *between: Callable[[], object],
    fetched: list[int] | None = None,
) -> CrawlResult:
    """A crawl of two pages of each site, with what happens after each of the first sites. All
    decisions are right, and each robots.txt was asked for once (or *fetched* times)."""
    steps: list[Step] = []
    happens = list(between)
    for site in some:
        steps += [site.url("/private"), site.url("/x")]
        if happens:
            steps.append(happens.pop(0))
    before = [site.count("/robots.txt") for site in some]
    result = await crawl(StepSpider, settings, steps=steps)
    assert_clean(result)
    assert isinstance(result.spider, StepSpider)
    assert result.spider.outcomes == [NO, OK] * len(some)
    counts = [site.count("/robots.txt") - then for site, then in zip(some, before, strict=True)]
    assert counts == (fetched or [1] * len(some))
    return result


def warning(result: CrawlResult) -> str:
    """The only one there is of the storage."""
    [found] = warnings(result, without=EARNED)
    return found


def assert_quiet(result: CrawlResult) -> None:
    assert warnings(result, without=EARNED) == []
    assert lines(result, "works again") == []


def nothing() -> None:
    pass
