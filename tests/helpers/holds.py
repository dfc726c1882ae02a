"""Holds without a crawl: requests to hold, and what comes out again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from scrapy import Request, Spider

from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.hold import Held, Hold

INF = float("inf")


A, B = "http://a.example", "http://b.example"


class HoldSpider(Spider):
    name = "hold"

    def parse(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


SPIDER = HoldSpider()


def held(number: int, since: float = 0.0, row: int | None = None, **kwargs: Any) -> Held:
    """The request's URL says its number; it looks as it does while held."""
    request = Request(f"{A}/{number}", dont_filter=True, **kwargs)
    return Held(number, since, False, request, row)


def unserialisable(number: int, since: float = 0.0) -> Held:
    return held(number, since, callback=lambda response: None)


def numbers(taken: list[Held]) -> list[int]:
    """In their order; each has the URL that it was held with."""
    assert [one.request.url for one in taken] == [f"{A}/{one.number}" for one in taken]
    return [one.number for one in taken]


def count(hold: Hold, origin: str = A) -> int:
    """How many requests are held."""
    return len(hold._queues.get(origin, ()))


def take_all(hold: Any, origin: str = A) -> list[int]:
    return numbers(hold.take(origin, 1000, 10**9, INF))


def in_slices(hold: DiskHold, limit: int) -> list[int]:
    """All of them, some at a time."""
    taken = []
    while some := hold.take(A, limit, 100, INF):
        assert len(some) <= limit
        taken += numbers(some)
    return taken


def run(path: Path) -> tuple[DiskHold, dict[str, int]]:
    """The next run."""
    hold = DiskHold(path, SPIDER)
    return hold, {origin: count for origin, count, _ in hold.recover()}


def file_of(hold: DiskHold) -> sqlite3.Connection:
    """What *hold* reads and writes in the event loop."""
    return hold._writer.file.db


def ran(hold: DiskHold, seconds: float) -> None:
    """The crawl has been running for so long."""
    hold._writer.tick(seconds)
