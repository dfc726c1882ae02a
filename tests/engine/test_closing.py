"""What is done before the spider closes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from scrapy import Request
from twisted.python.failure import Failure

from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import DEFER, Record
from tests.helpers.servers import Sites


class Product(Request):
    """A request with an argument of its own, which Request.replace() doesn't know."""

    def __init__(self, url: str, product: int, **options: Any) -> None:
        super().__init__(url, **options)
        self.product = product


class ProductSpider(ListSpider):
    async def start(self) -> AsyncIterator[Any]:
        yield Product(self.url, 1, errback=self.failed)

    def failed(self, failure: Failure) -> Iterator[dict[str, int]]:
        yield {"failed": failure.request.product}


@pytest.mark.scrapy_api
async def test_the_output_of_an_errback_is_scraped_whatever_its_request_is(sites: Sites) -> None:
    record = Record(on_deferred=lambda *_: record.close())
    url = sites.add(robots=503).url("/x")
    result = await crawl(ProductSpider, DEFER, signal_handlers=record.handlers, url=url)
    assert result.reason == "enough"
    assert result.stat("item_scraped_count") == 1
