"""Origins that are silent, or busy, however many of their requests wait, don't stop the others."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import scrapy
from scrapy import Request

from tests.helpers.behaviours import RULES, after, silence
from tests.helpers.handlers import NEEDS, handler_settings
from tests.helpers.held import NEVER, Bounded, InParts, urls
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.slow, pytest.mark.download]


@pytest.mark.parametrize(
    ("robots", "later"),
    [
        pytest.param(silence(), {}, id="silent"),
        pytest.param(503, {"REP_HOLD_MAX_REQUESTS": 20}, id="lower limit"),
    ],
)
async def test_what_an_earlier_run_held_stops_nobody(
    sites: Sites, tmp_path: Path, robots: Any, later: dict[str, Any]
) -> None:
    """More than wait for first answers at a time, which is eight for each of CONCURRENT_REQUESTS; and
    more than may be held now."""
    down, healthy, record = (
        sites.add(robots=robots),
        sites.add(robots=RULES),
        Bounded(20.0),
    )
    settings = {
        "JOBDIR": str(tmp_path),
        "CONCURRENT_REQUESTS": 2,
        "_REP_HOLD_GRACE": 0.05,
        "REP_HOLD_MAX_WAIT": NEVER,
        "REP_DOWNLOAD_TIMEOUT": NEVER,
    }
    record.on_held = lambda _, count: record.close() if count == 60 else None
    await record.crawl(urls(down, 60), **settings)
    wanted, record = urls(healthy, 5), Bounded(4.0)
    result = await record.crawl(
        wanted,
        **{**settings, **later},
        on_page=lambda spider: record.close() if len(spider.responses) == 5 else None,
    )
    assert set(result.responses) == set(wanted)


@pytest.mark.alone
async def test_while_a_silent_origin_is_asked_again_the_others_go_on(
    sites: Sites,
) -> None:
    """Though many of its requests are held, and new ones come. (A request in seven of these would do.)"""
    silent, healthy, record = (
        sites.add(robots=silence()),
        sites.add(robots=RULES),
        Bounded(30.0),
    )
    begins: list[Any] = []
    for number in range(120):
        begins += [silent.url(f"/new{number}"), healthy.url(f"/page{number}"), 0.05]
    await record.crawl(
        InParts,
        parts=[
            healthy.url("/first"),
            *urls(silent, 40),
            *begins,
            lambda: record.close() or True,
        ],
        CONCURRENT_REQUESTS=2,
        _REP_HOLD_GRACE=0.05,
        REP_HOLD_MAX_WAIT=NEVER,
        REP_DOWNLOAD_TIMEOUT=0.8,
        REP_RETRY_DELAY=0.1,
        REP_RETRY_MAX_DELAY=0.1,
    )
    attempts = [hit.time for hit in silent.hits("/robots.txt")][1:]
    pages = [hit.time for hit in healthy.requests if hit.path.startswith("/page")]
    assert len(attempts) >= 4
    gaps = []
    for at in attempts:
        gaps.append(
            max(
                (b - a for a, b in pairwise(pages) if a - 0.1 < at < b + 0.5),
                default=0.0,
            )
        )
    assert median(gaps) < 0.25, gaps


async def test_any_number_of_full_download_slots_hides_no_free_one(
    sites: Sites,
) -> None:
    busy = [
        sites.add(
            after(0.5, 404),
            {f"/page{number}": after(1.5, "slow") for number in range(3)},
        )
        for _ in range(60)
    ]
    free, record = sites.add(robots=after(0.5, 404)), Bounded(30.0)
    urgent = [Request(url, priority=1) for site in busy for url in urls(site, 3)]

    def on_page(spider: Any) -> None:
        if free.pages_asked:
            record.close()

    await record.crawl(
        [*urgent, free.url("/page")],
        on_page=on_page,
        CONCURRENT_REQUESTS=300,
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
    )
    first = min(site.hits("/page0")[0].time for site in busy if site.count("/page0"))
    [page] = free.hits("/page")
    assert page.time - first < 1.0


@pytest.mark.parametrize("handler", NEEDS)
async def test_silent_origins_leave_pages_their_connections(
    sites: Sites, handler: str | None
) -> None:
    """Though a handler's pool has as many as CONCURRENT_REQUESTS, and the silent ones come first."""
    settings = handler_settings(handler)
    if handler is not None and scrapy.version_info[:2] < (2, 16):
        pytest.skip("its pool can't be enlarged in this Scrapy")
    silent = [sites.add(robots=silence()) for _ in range(12)]
    healthy, record = sites.add(robots=RULES), Bounded(10.0)
    wanted = urls(healthy, 30)
    result = await record.crawl(
        [*(site.url("/page") for site in silent), *wanted],
        on_page=lambda spider: record.close() if len(spider.responses) == 30 else None,
        CONCURRENT_REQUESTS=4,
        REP_HOLD_MAX_WAIT=NEVER,
        REP_DOWNLOAD_TIMEOUT=NEVER,
        **settings,
    )
    assert set(result.responses) == set(wanted)
    assert all(site.robots_fetches == 1 for site in silent)
    assert await record.concurrency() == [4, 4]
