"""One released request of each origin goes ahead of the scheduler: behind all hosts that wait there, it
would come when its rules are forgotten, and be held again."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.core.scheduler import Scheduler

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers.behaviours import RULES, after, in_turn
from tests.helpers.crawling import crawl
from tests.helpers.held import (
    DEFER,
    Gate,
    Record,
    as_soon_as,
    assert_clean,
    assert_nothing_dropped,
    silent_until_open,
    when_open,
)
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow


@pytest.mark.needs_reactor(
    reason="one robots.txt is fetched at a time, and those of new origins go first"
)
@pytest.mark.usefixtures("in_time")
async def test_a_released_request_is_next(sites: Sites) -> None:
    """Though 40 hosts wait, whose requests were made before."""
    held = sites.add(robots=in_turn(503, RULES)).url("/x")
    others = [sites.add(robots=404, pages={"/x": after(0.01, "x")}).url("/x") for _ in range(40)]
    reached: list[str] = []
    record = Record()

    def request_reached_downloader(request: Request) -> None:
        if request.url.endswith("/x"):
            reached.append(request.url)

    settings: dict[str, Any] = {
        **DEFER,
        "CONCURRENT_REQUESTS": 1,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy_rep.BroadPriorityQueue",
    }
    handlers = {
        **record.handlers,
        scrapy_signals.request_reached_downloader: request_reached_downloader,
    }
    result = await crawl([held, *others], settings, signal_handlers=handlers)
    assert sorted(reached) == sorted([held, *others])
    assert record.released == [held]
    assert reached.index(held) < 30
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_urgent_requests_of_any_origin_leave_first(sites: Sites) -> None:
    """They may all leave when their download slot, which a page has, is free again; the answers for the
    most urgent ones came last."""
    busy = Gate("x", "x")
    busy.before = when_open(busy, "x")
    urls = [sites.add(robots=after(0.05 * n, RULES)).url(f"/{n}") for n in range(4)]
    requests = [
        Request(url, priority=number, meta={"download_slot": "one"})
        for number, url in enumerate(urls)
    ]
    page = sites.add(pages={"/busy": busy}).url("/busy")
    meta = {"dont_obey_robotstxt": True, "download_slot": "one"}
    record, left = Record(), []

    def request_left_downloader(request: Request) -> None:
        if request.url in urls:
            left.append(urls.index(request.url))

    record.on_resolved = lambda: busy.open() if len(record.resolved) == 4 else None
    record.handlers[scrapy_signals.request_left_downloader] = request_left_downloader
    first = Request(page, meta=meta, priority=9)
    await record.crawl([first, *requests], CONCURRENT_REQUESTS_PER_DOMAIN=1)
    assert left == [3, 2, 1, 0]


class FullDisk(Scheduler):
    """Takes no requests any more when `full`."""

    full = False

    def enqueue_request(self, request: Request) -> bool:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().enqueue_request(request)


# Older Scrapy's disk queues leave files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("full", [False, True])
async def test_those_that_wait_to_go_ahead_are_not_lost_by_a_stop(
    sites: Sites, tmp_path: Path, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a JOBDIR whose file for held requests can't be opened: Scrapy's queue has to keep them. If
    its disk is full, they fail."""
    monkeypatch.setattr("scrapy_rep.storages.journal._THREAD_LOCK_SECONDS", 0.05)
    gates = [silent_until_open() for _ in range(5)]
    held = [sites.add(robots=gate).url("/x") for gate in gates]
    busy = Gate("x", "x")
    busy.before = when_open(busy, "x")  # takes the only slot until the crawl ends
    other = sites.add(pages={"/busy": busy, "/": after(0.05, "x")})
    urls = [*held, other.url("/busy"), *[other.url(f"/?{number}") for number in range(20)]]
    never_held = {"dont_obey_robotstxt": True}
    requests = [Request(url, meta=never_held if url not in held else None) for url in urls]
    record = Record()

    def all_are_there() -> bool:
        enqueued = record.engine.spider.crawler.stats.get_value("scheduler/enqueued")
        return set(held) <= set(record.deferred) and enqueued == len(urls)

    def open_all() -> None:
        for gate in gates:
            gate.open()

    def stop() -> None:
        if len(record.resolved) == 5:  # they may leave, but there is no slot
            record.engine._slot.scheduler.full = full
            record.close()
            busy.open()

    record.on_deferred = lambda _, count: (
        as_soon_as(all_are_there, open_all) if count == 5 else None
    )
    record.on_resolved = stop
    settings: dict[str, Any] = {
        **DEFER,
        "CONCURRENT_REQUESTS": 1,
        "JOBDIR": str(tmp_path),
        "SCHEDULER": FullDisk,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.ScrapyPriorityQueue",
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
        "REP_DEFER_GRACE": 0.01,
    }
    with closing(sqlite3.connect(tmp_path / "rep-held.sqlite")) as file:
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("BEGIN EXCLUSIVE")
        first = await record.crawl(requests, **settings)
    assert first.reason == "enough"
    assert len(record.released) < 5  # one may find a slot that a robots.txt has just left
    assert bool(first.failures) == full
    assert first.stat("rep/given_up") == len(first.failures)
    assert all(isinstance(one, RobotsUnreachable) for one in first.failures.values())
    second = await crawl([], settings)
    ends = [*first.responses, *first.failures, *second.responses]
    assert sorted(ends) == sorted(urls)
