"""For `scrapy runspider`: a spider that sitemaps seed. Writes down what becomes of its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response

from tests.helpers.process.recorder import record, record_page


class SeededSpider(Spider):
    name = "seeded"
    sitemap_rules = [("/start$", "parse"), ("", "parse_page")]

    def __init__(self, urls: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.urls = Path(urls).read_text().split()

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            yield Request(url)

    def parse(self, response: Response) -> None:
        record("start", response.url)

    def parse_page(self, response: Response) -> None:
        record_page(response)
