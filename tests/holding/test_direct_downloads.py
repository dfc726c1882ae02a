"""Requests that do not come through the scheduler: media pipelines and inline downloads.

They obey as all others do. DESIGN.md: a request handed back to a direct download would go round
for ever; `crawl()` fails a test that does not end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from tests.helpers.behaviours import RULES, after, in_turn, redirect, silence
from tests.helpers.crawling import ONE_ATTEMPT, CrawlResult, ListSpider, crawl
from tests.helpers.held import DEFER, NEVER, Record, later
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.loop, pytest.mark.scrapy_api]


class InlineSpider(ListSpider):
    """Downloads `inline` within the callback of its page, one after another."""

    def __init__(self, inline: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inline = inline
        self.outcomes: dict[str, Any] = {}

    async def parse(self, response: Response, **kwargs: Any) -> None:
        self.responses.append(response)
        for url in self.inline:
            try:
                answer = await self.crawler.engine.download_async(Request(url))
                self.outcomes[url] = answer.status
            except IgnoreRequest as error:
                self.outcomes[url] = error


class FilesSpider(ListSpider):
    """One item, with files to download."""

    def __init__(self, files: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.files = files

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        yield {"file_urls": self.files, "files": []}


async def test_inline_downloads_obey(sites: Sites) -> None:
    known, new = sites.add(robots=RULES), sites.add(robots=after(0.1, RULES))
    missing, busy = sites.add(robots=404), sites.add(robots=503)
    inline = [site.url(path) for site in (known, new, missing) for path in ("/private", "/x")]
    result = await crawl(
        InlineSpider, requests=[known.url("/start")], inline=[*inline, busy.url("/x")]
    )
    outcomes = result.spider.outcomes
    for site in (known, new):
        assert isinstance(outcomes[site.url("/private")], RobotsDisallowed)
        assert outcomes[site.url("/x")] == 200
        assert site.count("/private") == 0
    assert outcomes[missing.url("/private")] == outcomes[missing.url("/x")] == 200
    assert isinstance(outcomes[busy.url("/x")], RobotsUnreachable)
    assert [one.count("/robots.txt") for one in (known, new, missing, busy)] == [1, 1, 1, 1]
    assert busy.count("/x") == 0
    result.assert_clean()


@pytest.mark.parametrize("choice", ["defer", "drop", "allow"])
async def test_inline_download_from_an_unreachable_origin(sites: Sites, choice: str) -> None:
    """It fails (or passes) at once whatever is set: nothing holds a direct download."""
    start, busy = sites.add(robots=RULES), sites.add(robots=503)
    result = await crawl(
        InlineSpider,
        {**ONE_ATTEMPT, "REP_UNREACHABLE": choice},
        requests=[start.url("/start")],
        inline=[busy.url("/a"), busy.url("/b")],
    )
    outcomes = list(result.spider.outcomes.values())
    if choice == "allow":
        assert outcomes == [200, 200]
    else:
        assert all(isinstance(outcome, RobotsUnreachable) for outcome in outcomes)
        assert busy.count("/a") == busy.count("/b") == 0
    assert busy.count("/robots.txt") == 1
    result.assert_clean()


async def test_inline_download_that_is_redirected(sites: Sites) -> None:
    other = sites.add(robots=RULES)
    site = sites.add(pages={"/a": redirect(other.url("/private")), "/b": redirect(other.url("/x"))})
    result = await crawl(
        InlineSpider, requests=[site.url("/start")], inline=[site.url("/a"), site.url("/b")]
    )
    assert isinstance(result.spider.outcomes[site.url("/a")], RobotsDisallowed)
    assert result.spider.outcomes[site.url("/b")] == 200
    assert other.count("/private") == 0
    result.assert_clean()


@pytest.mark.parametrize("choice", ["defer", "drop", "allow"])
async def test_files_pipeline_obeys(sites: Sites, tmp_path: Path, choice: str) -> None:
    page = sites.add(robots=RULES)
    files = sites.add(robots=after(0.1, RULES))
    busy = sites.add(robots=503)
    wanted = [page.url("/private"), page.url("/x"), files.url("/private"), files.url("/x")]
    result = await crawl(
        FilesSpider,
        {
            **ONE_ATTEMPT,
            "REP_UNREACHABLE": choice,
            "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
            "FILES_STORE": str(tmp_path),
        },
        requests=[page.url("/start")],
        files=[*wanted, busy.url("/x")],
    )
    [item] = result.spider.items
    got = {page.url("/x"), files.url("/x")} | ({busy.url("/x")} if choice == "allow" else set())
    assert {one["url"] for one in item["files"]} == got
    assert page.count("/private") == files.count("/private") == 0
    assert busy.count("/x") == (choice == "allow")
    assert [site.count("/robots.txt") for site in (page, files, busy)] == [1, 1, 1]
    assert result.stat("robotstxt/forbidden") == 2
    result.assert_clean()


async def crawl_files(
    tmp_path: Path, files: list[str], record: Record | None = None, **settings: Any
) -> CrawlResult:
    return await crawl(
        FilesSpider,
        {
            **DEFER,
            **settings,
            "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
            "FILES_STORE": str(tmp_path),
        },
        requests=["data:,start"],
        files=files,
        signal_handlers=record.handlers if record else None,
    )


def warnings(result: CrawlResult) -> list[str]:
    return [
        one.getMessage()
        for one in result.records
        if one.levelname == "WARNING" and one.name.startswith("scrapy_rep")
    ]


async def test_files_wait_until_robots_txt_is_asked_for_once_more(
    sites: Sites, tmp_path: Path
) -> None:
    site = sites.add(robots=in_turn(503, RULES))
    record = Record()
    urls = [site.url("/a"), site.url("/b"), site.url("/private")]
    result = await crawl_files(tmp_path, urls, record)
    [item] = result.spider.items
    assert [one["url"] for one in item["files"]] == urls[:2]
    assert site.count("/robots.txt") == 2
    assert result.stat("rep/unreachable/dropped") == 0
    assert result.stat("robotstxt/forbidden") == 1
    assert warnings(result) == []
    assert await record.concurrency() == [16, 16]
    result.assert_clean()


async def test_each_file_that_fails_is_a_warning(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=503)
    urls = [site.url("/a"), site.url("/b")]
    # Long enough for both to hear of the first failure before the second attempt is due.
    result = await crawl_files(tmp_path, urls, REP_RETRY_DELAY=0.6, REP_RETRY_MAX_DELAY=0.6)
    [item] = result.spider.items
    assert item["files"] == []
    assert sorted(warnings(result)) == [
        f"Not downloading {url}: robots.txt unreachable (asked 2 times): HTTP 503" for url in urls
    ]
    assert site.count("/robots.txt") == 2
    assert site.count("/a") == site.count("/b") == 0
    assert result.stat("rep/unreachable/dropped") == 2
    result.assert_clean()


@pytest.mark.parametrize(
    ("robots", "delay", "asked"),
    [(in_turn(503, silence()), 0.6, 2), (503, NEVER, 1)],
    ids=["silent", "too late"],
)
async def test_files_wait_no_longer_than_the_timeout(
    sites: Sites, tmp_path: Path, robots: Any, delay: float, asked: int
) -> None:
    site = sites.add(robots=robots)
    result = await crawl_files(
        tmp_path,
        [site.url("/a")],
        REP_DOWNLOAD_TIMEOUT=1.0,
        REP_RETRY_DELAY=delay,
        REP_RETRY_MAX_DELAY=NEVER,
    )
    [told] = warnings(result)
    assert told.startswith(f"Not downloading {site.url('/a')}: robots.txt unreachable")
    assert site.tried_once("/robots.txt") if asked == 1 else site.count("/robots.txt") == asked
    assert result.stats["elapsed_time_seconds"] < 30
    result.assert_clean()


async def test_a_stop_does_not_wait_for_files_that_wait(sites: Sites, tmp_path: Path) -> None:
    site = sites.add(robots=503)
    record = Record()
    record.on_resolved = lambda: later(0.2, record.close)
    result = await crawl_files(
        tmp_path,
        [site.url("/a")],
        record,
        REP_RETRY_DELAY=50,
        REP_RETRY_MAX_DELAY=50,
        REP_DOWNLOAD_TIMEOUT=90,
    )
    assert result.reason == "enough"
    assert result.stats["elapsed_time_seconds"] < 30
    assert warnings(result) == [
        f"Not downloading {site.url('/a')}: robots.txt unreachable: the crawl is ending"
    ]
