"""For `scrapy runspider`: requests the URLs of a file, and writes down what becomes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response

from tests.helpers.process.recorder import record, record_page


class PagesSpider(Spider):
    name = "pages"

    def __init__(
        self, urls: str, linked: str = "", unserialisable: str = "", **kwargs: Any
    ) -> None:
        """:param urls: the file
        :param linked: if set, they come from a callback: Scrapy has other queues for start requests
        :param unserialisable: if set, no request can be written to disk
        """
        super().__init__(**kwargs)
        self.urls = Path(urls).read_text().split()
        self.linked = bool(linked)
        self.meta = {"lambda": lambda: None} if unserialisable else {}

    async def start(self) -> AsyncIterator[Any]:
        if self.linked:
            yield Request("data:,", self.parse_links)
            return
        for request in self.pages():
            yield request

    def pages(self) -> Iterator[Request]:
        for url in self.urls:
            yield Request(url, self.parse, errback=self.failed, meta=dict(self.meta))

    def parse_links(self, response: Response) -> Iterator[Request]:
        yield from self.pages()

    def parse(self, response: Response) -> None:
        record_page(response)

    def failed(self, failure: Any) -> None:
        record("failed", failure.request.url, f"{type(failure.value).__name__}: {failure.value}")
