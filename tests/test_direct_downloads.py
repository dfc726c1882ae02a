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
from tests.helpers.behaviours import RULES, after, redirect
from tests.helpers.crawling import ONE_ATTEMPT, ListSpider, crawl
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
