"""Media pipelines and hosts whose robots.txt can't be had, or not yet: no stall, nothing held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import signals as scrapy_signals
from scrapy.http import Response

from tests.helpers.behaviours import RULES, after, answer
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import NEVER, Record, silent_until_open, urls
from tests.helpers.log import lines
from tests.helpers.recorded import counting, passed
from tests.helpers.servers import Sites

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

PIPELINE = {"scrapy.pipelines.files.FilesPipeline": 1}


class FilesSpider(ListSpider):
    """An item for each page, with a file of its own on another site."""

    def __init__(self, root: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root = root

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        name = response.url.rpartition("/")[2]
        yield {"file_urls": [f"{self.root}/file-{name}"], "files": []}


async def test_files_on_a_silent_host(sites: Sites, tmp_path: Path) -> None:
    """A hundred pages, each with a file there: all pages are fetched before it is known what came
    of its robots.txt."""
    robots = silent_until_open(503)
    silent, pages = sites.add(robots=robots), sites.add(robots=RULES)
    record = Record()

    def page() -> None:
        if sum(hit.path != "/robots.txt" for hit in list(pages.requests)) == 100:
            robots.open()

    record.handlers[scrapy_signals.response_received] = page
    result = await crawl(
        FilesSpider,
        counting(
            REP_DEFER_GRACE=0.1,
            REP_DOWNLOAD_TIMEOUT=60,
            # Too late for the files to wait until it is asked again.
            REP_RETRY_DELAY=NEVER,
            REP_RETRY_MAX_DELAY=NEVER,
            CONCURRENT_REQUESTS=4,
            ITEM_PIPELINES=PIPELINE,
            FILES_STORE=str(tmp_path),
        ),
        requests=urls(pages, 100),
        root=silent.url(""),
        signal_handlers=record.handlers,
    )
    assert len(result.responses) == 100
    assert [item["files"] for item in result.spider.items] == [[]] * 100
    assert silent.count("/robots.txt") == 1
    assert not any("file" in hit.path for hit in silent.requests)
    assert result.stat("rep/unreachable/dropped") == 100
    assert not any("file" in url for url in record.deferred)
    assert max(passed(result, "/file")) <= 2
    assert await record.concurrency() == [4, 4]
    assert len(lines(result, "/file-", level="WARNING")) == 100
    result.assert_clean()


ANSWERS = {"late": (after(0.5, RULES), 10), "503": (answer("", 503), 0), "refused": (None, 0)}


@pytest.mark.parametrize(("robots", "got"), ANSWERS.values(), ids=ANSWERS)
async def test_the_files_pipeline_gets_an_answer_for_every_file(
    sites: Sites,
    tmp_path: Path,
    robots: Any,
    got: int,
) -> None:
    """A host that answers after a while, and two that can't."""
    pages, record = sites.add(robots=RULES), Record()
    root = sites.add(robots=robots).url("") if robots else sites.refused()
    result = await crawl(
        FilesSpider,
        counting(
            REP_DEFER_GRACE=0.1,
            REP_RETRY_DELAY=NEVER,
            REP_RETRY_MAX_DELAY=NEVER,
            ITEM_PIPELINES=PIPELINE,
            FILES_STORE=str(tmp_path),
        ),
        requests=urls(pages, 10),
        root=root,
        signal_handlers=record.handlers,
    )
    assert len(result.spider.items) == len(result.responses) == 10
    assert sum(bool(item["files"]) for item in result.spider.items) == got
    assert result.stat("rep/unreachable/dropped") == 10 - got
    assert len({str(one["origin"]) for one in record.resolved}) == len(record.resolved) == 2
    assert not any("file" in url for url in record.deferred)
    assert max(passed(result, "/file")) <= 2
    result.assert_clean()
