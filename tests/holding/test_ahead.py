"""One released request of each origin goes ahead of the scheduler: behind all hosts that wait there, it
would come when its rules are forgotten, and be held again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy import signals as scrapy_signals

from tests.helpers.behaviours import RULES, after, in_turn
from tests.helpers.crawling import crawl
from tests.helpers.held import DEFER, Gate, Record, assert_clean, assert_nothing_dropped
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api]


@pytest.mark.parametrize("jobdir", [False, True])
async def test_a_released_request_is_next(sites: Sites, tmp_path: Path, jobdir: bool) -> None:
    """Though 60 hosts wait, whose requests were made before."""
    held = sites.add(robots=in_turn(503, RULES)).url("/x")
    others = [sites.add(robots=404, pages={"/x": after(0.02, "x")}).url("/x") for _ in range(60)]
    reached: list[str] = []
    record = Record()

    def request_reached_downloader(request: Request) -> None:
        if request.url.endswith("/x"):
            reached.append(request.url)

    settings: dict[str, Any] = {
        **DEFER,
        "CONCURRENT_REQUESTS": 1,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy_rep.BroadPriorityQueue",
        "JOBDIR": str(tmp_path) if jobdir else None,
    }
    handlers = {
        **record.handlers,
        scrapy_signals.request_reached_downloader: request_reached_downloader,
    }
    result = await crawl([held, *others], settings, signal_handlers=handlers)
    assert sorted(reached) == sorted([held, *others])
    assert record.released == [held]
    assert reached.index(held) < 40
    assert_nothing_dropped(result, record)
    assert_clean(result)


async def test_no_more_than_one_of_an_origin_goes_ahead(sites: Sites) -> None:
    """The others would fill the downloader."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    record = Record(on_deferred=lambda _, count: gate.open() if count == 12 else None)
    pages = [site.url(f"/{number}") for number in range(12)]
    result = await crawl(pages, DEFER, signal_handlers=record.handlers)
    assert sorted(result.responses) == sorted(pages)
    assert result.stat("scheduler/dequeued") == 12 + 11
    assert_nothing_dropped(result, record)
    assert_clean(result)
