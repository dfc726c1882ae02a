"""A held request passes the dupe filter once, as if it had never been held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from tests.helpers.behaviours import RULES
from tests.helpers.held import Gate, KeepingSpider, Record, assert_clean, urls
from tests.helpers.servers import Sites

pytestmark = pytest.mark.slow


class DuplicatesSpider(KeepingSpider):
    """Asks for each page once more when it has it."""

    def more(self, response: Response) -> list[Any]:
        if response.meta.get("again"):
            return []
        return [self.ask(response.url, {"again": True})]


async def test_the_dupe_filter_sees_it_once(sites: Sites, tmp_path: Path) -> None:
    """Duplicates are dropped, whether they come while the request is held or afterwards."""
    gate = Gate(503, RULES)
    site = sites.add(robots=gate)
    wanted = [Request(url) for url in urls(site, 10)]
    record = Record(on_deferred=lambda _, count: gate.open() if count == 12 else None)
    twice = [Request(site.url("/twice"), dont_filter=True, meta={"again": True})] * 2
    result = await record.crawl(
        DuplicatesSpider,
        requests=[*wanted, *wanted, *[one.copy() for one in twice]],
        JOBDIR=str(tmp_path),
    )
    assert len(result.spider.responses) == 12
    assert site.count("/twice") == 2
    assert all(site.count(f"/page{number}") == 1 for number in range(10))
    assert result.stat("dupefilter/filtered") == len(record.dropped) == 20
    assert result.stat("rep/deferred") == 12
    assert_clean(result)
