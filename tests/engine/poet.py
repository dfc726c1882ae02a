"""A spider whose callback gets a page object, which downloads inline."""

from __future__ import annotations

from typing import Any

import attrs
from scrapy.http import Response
from web_poet import HttpClient, WebPage
from web_poet.exceptions import HttpError

from tests.helpers.crawling import ListSpider


@attrs.define
class Page(WebPage):
    http: HttpClient


class PoetSpider(ListSpider):
    name = "poet"

    def __init__(self, inline: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inline = inline

    async def parse(self, response: Response, page: Page) -> Any:  # type: ignore[override]
        self.responses.append(response)
        for url in self.inline:
            try:
                yield {url: (await page.http.get(url)).status}
            except HttpError:
                yield {url: None}
