"""Holds without a crawl: requests to hold, and what comes out again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.hold import Held, Hold

INF = float("inf")


A, B = "http://a.example", "http://b.example"


class HoldSpider(Spider):
    name = "hold"

    def parse(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


def hold_spider(**settings: Any) -> HoldSpider:
    """One whose crawler tells requests apart, as in a crawl."""
    crawler = get_crawler(HoldSpider, settings)
    crawler.spider = spider = HoldSpider.from_crawler(crawler)
    crawler._apply_settings()
    return spider


SPIDER = hold_spider()


def held(number: int, since: float = 0.0, **kwargs: Any) -> Held:
    """The request's URL says its number."""
    return Held(number, since, Request(f"{A}/{number}", **kwargs))


def unserialisable(number: int, since: float = 0.0, **kwargs: Any) -> Held:
    return held(number, since, callback=lambda response: None, **kwargs)


def numbers(taken: list[Held]) -> list[int]:
    """In their order; each has the URL that it was held with."""
    assert [one.request.url for one in taken] == [f"{A}/{one.number}" for one in taken]
    return [one.number for one in taken]


def count(hold: Hold, origin: str = A) -> int:
    """How many requests are held."""
    return sum(len(heaps.get(origin, ())) for heaps in (hold._heaps, hold._ready))


def take(
    hold: Hold, many: int = 1000, upto: int = 10**9, before: float = INF, origin: str = A
) -> list[Held]:
    """As *many* of them as may be taken."""
    taken: list[Held] = []
    while len(taken) < many and (one := hold.take(origin, upto, before)) is not None:
        taken.append(one)
    return taken


def take_all(hold: Hold, origin: str = A) -> list[int]:
    return numbers(take(hold, origin=origin))


def opened(path: Path, spider: Spider = SPIDER) -> DiskHold:
    """The hold of a run, with what earlier ones left."""
    hold = DiskHold(str(path.parent), spider)
    assert hold.open()
    return hold


def run(path: Path) -> tuple[DiskHold, dict[str, int]]:
    """The next run."""
    hold = opened(path)
    return hold, {origin: count for origin, count, _ in hold.recover()}


def file_of(hold: DiskHold) -> sqlite3.Connection:
    """What *hold* reads and writes in the event loop."""
    assert hold._journal._db is not None
    return hold._journal._db


def ran(hold: DiskHold, seconds: float) -> None:
    """The crawl has been running for so long."""
    hold._journal.put("clock", (1, seconds))
