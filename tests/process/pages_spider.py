"""For `scrapy runspider`: requests the URLs of a file, and writes down what becomes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response

from tests.process.recorder import record


class PagesSpider(Spider):
    name = "pages"

    def __init__(self, urls: str, unserialisable: str = "", **kwargs: Any) -> None:
        """:param urls: the file
        :param unserialisable: if set, no request can be written to disk
        """
        super().__init__(**kwargs)
        self.urls = Path(urls).read_text().split()
        self.meta = {"lambda": lambda: None} if unserialisable else {}

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            yield Request(url, self.parse, errback=self.failed, meta=dict(self.meta))

    def parse(self, response: Response) -> None:
        record("page", response.url)

    def failed(self, failure: Any) -> None:
        record("failed", failure.request.url, f"{type(failure.value).__name__}: {failure.value}")
