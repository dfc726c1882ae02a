"""For `scrapy runspider`: requests the URLs of a file, and one link of each page."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urljoin

from scrapy import Request
from scrapy.http import Response

from tests.helpers.process.pages_spider import PagesSpider as _PagesSpider
from tests.helpers.process.recorder import record_page


class LinksSpider(_PagesSpider):
    name = "links"

    def parse(self, response: Response) -> Iterator[Request]:  # type: ignore[override]
        record_page(response)
        if not response.url.endswith("/next"):
            yield Request(urljoin(response.url, "/next"), self.parse, dont_filter=True)
