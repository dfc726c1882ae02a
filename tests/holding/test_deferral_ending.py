"""What happens while the crawl is ending already: it may neither be lost nor delay the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from scrapy_rep.exceptions import RobotsUnreachable
from tests.helpers import crawling
from tests.helpers.behaviours import silence
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import NEVER, Record, assert_no_errors, urls
from tests.helpers.log import lines
from tests.helpers.servers import Sites
from tests.helpers.timing import SECONDS, SLOW, closing_took

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crawl that does not end fails sooner than others."""
    monkeypatch.setattr(crawling, "CRAWL_TIMEOUT", 15.0)


class InlineErrbackSpider(ListSpider):
    """Tries another site where one could not be had, within the errback."""

    def __init__(self, inline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inline = inline
        self.outcomes: list[Any] = []

    async def failed(self, failure: Any) -> None:
        super().failed(failure)
        try:
            answered = await self.crawler.engine.download_async(Request(self.inline))
        except IgnoreRequest as error:
            self.outcomes.append(error)
        else:
            self.outcomes.append(answered.status)


@pytest.mark.loop
async def test_a_direct_download_to_a_new_origin(sites: Sites) -> None:
    """Its robots.txt is not waited for."""
    busy, other = sites.add(robots=503), sites.add(robots=silence())
    record = Record(on_deferred=lambda _, count: record.close() if count == 3 else None)
    result = await crawl(
        InlineErrbackSpider,
        {**SLOW, "REP_RETRY_DELAY": NEVER, "REP_RETRY_MAX_DELAY": NEVER},
        requests=urls(busy, 3),
        inline=other.url("/x"),
        signal_handlers=record.handlers,
    )
    assert closing_took(result) < SECONDS
    assert [type(one) for one in result.spider.outcomes] == [RobotsUnreachable] * 3
    assert await record.concurrency() == [16, 16]
    assert_no_errors(result)


class LambdaSpider(ListSpider):
    """Its requests can't be written to disk."""

    def recorded(self, request: str | Request) -> Request:
        return super().recorded(request).replace(callback=lambda response: self.parse(response))


# Older Scrapy's disk queues leave a file open for each request that they can't write.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("grace", [0, NEVER])
async def test_unserialisable_requests_are_given_up(
    sites: Sites, tmp_path: Path, grace: float
) -> None:
    """Also with JOBDIR, since they would be lost; also those that only waited."""
    silent, busy = sites.add(robots=silence()), sites.add(robots=503)
    wanted = [*urls(silent, 10), *urls(busy, 3)]
    # With a grace, those of the silent site only wait.
    held = 13 if grace == 0 else 3
    record = Record(on_deferred=lambda _, count: record.close() if count == held else None)
    result = await record.crawl(
        LambdaSpider,
        requests=wanted,
        **SLOW,
        REP_DEFER_GRACE=grace,
        JOBDIR=str(tmp_path),
        CONCURRENT_REQUESTS=16,
    )
    assert closing_took(result) < SECONDS
    assert len(lines(result, "to disk", level="WARNING")) == 1
    assert set(result.failures) == set(wanted)
    assert result.stats["rep/held"] == 0
    assert_no_errors(result)
