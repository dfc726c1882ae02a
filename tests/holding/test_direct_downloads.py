"""Requests that don't come through the scheduler (media pipelines, say) obey and wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import signals as scrapy_signals

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES, after, in_turn, redirect, silence
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import (
    NEVER,
    InlineSpider,
    Record,
    later,
    silent_until_open,
    urls,
)
from tests.helpers.log import lines
from tests.helpers.servers import Sites


async def crawl_files(
    tmp_path: Path,
    files: list[str],
    pages: list[str] | None = None,
    record: Record | None = None,
    **settings: Any,
) -> CrawlResult:

    def item(spider: Any) -> list[dict[str, Any]]:
        number = spider.responses[-1].url.rpartition("/page")[2]
        return [{"file_urls": [url.replace("#", number) for url in files], "files": []}]

    pipeline = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": str(tmp_path),
    }
    record = record or Record()
    return await record.crawl(
        pages or ["data:,start"], on_page=item, **settings, **pipeline
    )


def warnings(result: CrawlResult) -> list[str]:
    return lines(result, "Not downloading", level="WARNING")


@pytest.mark.loop
@pytest.mark.scrapy_api
async def test_inline_downloads_obey(sites: Sites) -> None:
    known, new = sites.add(robots=RULES), sites.add(robots=after(0.1, RULES))
    missing, busy = sites.add(robots=404), sites.add(robots=503)
    moved = known.url("/moved")
    known.set("/moved", redirect(new.url("/private/moved")))
    inline = [
        site.url(path) for site in (known, new, missing) for path in ("/private", "/x")
    ]
    inline += [busy.url("/x"), moved]
    result = await crawl(InlineSpider, requests=[known.url("/start")], inline=inline)
    outcomes = dict(zip(inline, result.spider.outcomes, strict=True))
    for site in (known, new):
        assert isinstance(outcomes[site.url("/private")], RobotsDisallowed)
        assert outcomes[site.url("/x")] == 200
        assert site.count("/private") == 0
    assert outcomes[missing.url("/private")] == outcomes[missing.url("/x")] == 200
    assert isinstance(outcomes[busy.url("/x")], RobotsUnreachable)
    assert isinstance(outcomes[moved], RobotsDisallowed)
    assert [one.count("/robots.txt") for one in (known, new, missing, busy)] == [
        1,
        1,
        1,
        1,
    ]
    assert busy.count("/x") == new.count("/private/moved") == 0
    result.assert_clean()


async def test_files_that_wait_leave_the_slots_to_pages(
    sites: Sites, tmp_path: Path
) -> None:
    """All pages are fetched before it is known what came of the files' robots.txt."""
    robots, pages, record = silent_until_open(503), sites.add(robots=RULES), Record()
    silent = [sites.add(robots=robots), sites.add(robots=in_turn(503, robots))]
    record.handlers[scrapy_signals.response_received] = lambda: (
        robots.open() if len(pages.pages_asked) == 30 else None
    )
    files = [site.url("/file-#") for site in silent]
    settings = {
        "CONCURRENT_REQUESTS": 4,
        "REP_RETRY_MAX_DELAY": 0.1,
        "REP_DOWNLOAD_TIMEOUT": 60,
    }
    result = await crawl_files(tmp_path, files, urls(pages, 30), record, **settings)
    assert len(result.responses) == 30
    assert [item["files"] for item in result.spider.items] == [[]] * 30
    assert [site.pages_asked for site in silent] == [[], []]
    assert result.stat("rep/unreachable/dropped") == len(warnings(result)) == 60
    assert await record.concurrency() == [4, 4]
    result.assert_clean()


@pytest.mark.scrapy_api
async def test_files_wait_until_robots_txt_is_asked_for_once_more(
    sites: Sites, tmp_path: Path
) -> None:
    """Each that fails then is a warning."""
    back, down, record = (
        sites.add(robots=in_turn(503, RULES)),
        sites.add(robots=503),
        Record(),
    )
    wanted = [site.url(path) for site in (back, down) for path in ("/a", "/b")]
    # Long enough for all to hear of the first failure before the second attempt is due.
    times = {"REP_RETRY_DELAY": 0.4, "REP_RETRY_MAX_DELAY": 0.4}
    result = await crawl_files(
        tmp_path, [back.url("/private"), *wanted], record=record, **times
    )
    [item] = result.spider.items
    assert [one["url"] for one in item["files"]] == wanted[:2]
    assert sorted(warnings(result)) == [
        f"Not downloading {url}: robots.txt unreachable (asked 2 times): HTTP 503"
        for url in wanted[2:]
    ]
    assert [site.count("/robots.txt") for site in (back, down)] == [2, 2]
    assert down.pages_asked == record.held == []
    assert result.stat("rep/unreachable/dropped") == 2
    assert result.stat("robotstxt/forbidden") == 1
    assert [
        result.stat(f"rep/cache/{name}") for name in ("miss", "refresh", "hit")
    ] == [5, 0, 0]
    assert await record.concurrency() == [16, 16]
    result.assert_clean()


@pytest.mark.parametrize(
    ("robots", "delay", "asked"),
    [(in_turn(503, silence()), 0.2, 2), (503, NEVER, 1)],
    ids=["silent", "too late"],
)
async def test_files_wait_no_longer_than_the_timeout(
    sites: Sites, tmp_path: Path, robots: Any, delay: float, asked: int
) -> None:
    site = sites.add(robots=robots)
    times = {
        "REP_DOWNLOAD_TIMEOUT": 0.5,
        "REP_RETRY_DELAY": delay,
        "REP_RETRY_MAX_DELAY": NEVER,
    }
    result = await crawl_files(tmp_path, [site.url("/a")], **times)
    [told] = warnings(result)
    assert told.startswith(f"Not downloading {site.url('/a')}: robots.txt unreachable")
    assert (
        site.tried_once("/robots.txt")
        if asked == 1
        else site.count("/robots.txt") == asked
    )
    result.assert_clean()


async def test_a_stop_does_not_wait_for_files_that_wait(
    sites: Sites, tmp_path: Path
) -> None:
    site, record = sites.add(robots=503), Record()
    record.on_resolved = lambda: later(0.1, record.close)
    times = {
        "REP_RETRY_DELAY": 50,
        "REP_RETRY_MAX_DELAY": 50,
        "REP_DOWNLOAD_TIMEOUT": 90,
    }
    result = await crawl_files(tmp_path, [site.url("/a")], record=record, **times)
    assert result.reason == "enough"
    assert result.stats["elapsed_time_seconds"] < 30
    [warning] = warnings(result)
    assert (
        warning == f"Not downloading {site.url('/a')}: robots.txt unreachable: HTTP 503"
    )
