"""Holds by themselves, without a crawl."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_rep.engine.access import Following
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.hold import HeldRequests
from scrapy_rep.origins.queue import Held, Queue
from scrapy_rep.protocol import Origin

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
    request = Request(f"{A}/{number}", **kwargs)
    return Held(-request.priority, number, since, request)


def let_wait(table: HeldRequests, origin: Origin, number: int) -> Queue:
    """The queue of *origin*, in which a request with this *number* waits now."""
    queue = table.queues.setdefault(origin, Queue(origin, table.tally))
    queue.arrive(table.new_held(queue, held(number).request, None))
    return queue


def unserialisable(number: int, since: float = 0.0, **kwargs: Any) -> Held:
    return held(number, since, callback=lambda response: None, **kwargs)


def numbers(taken: list[Held]) -> list[int]:
    return [int(one.request.url.removeprefix(f"{A}/")) for one in taken]


def read_all(hold: DiskHold, heap: list[Held]) -> list[Held]:
    found = [one if one.request is not None else hold.read(one) for one in sorted(heap)]
    return [one for one in found if one is not None]


def opened(path: Path, spider: Spider = SPIDER) -> DiskHold:
    hold = DiskHold(str(path.parent), spider, Following(spider.crawler))
    assert hold.open()
    return hold


def run(path: Path) -> tuple[DiskHold, dict[str, list[Held]]]:
    hold = opened(path)
    return hold, hold.recovered


def file_of(hold: DiskHold) -> sqlite3.Connection:
    """What *hold* reads and writes in the event loop."""
    connection = hold.journal._db
    assert connection is not None
    return connection


def ran(hold: DiskHold, seconds: float) -> None:
    hold.journal.put("clock", (1, seconds))
