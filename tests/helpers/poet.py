"""A spider of scrapy-poet: its page object asks for more pages by itself.

No annotations as text here: scrapy-poet reads those of callbacks.
"""

from typing import Any

import attrs
from scrapy.http import Response
from web_poet import HttpClient, WebPage
from web_poet.exceptions import HttpError

from tests.helpers.crawling import ListSpider


@attrs.define
class Page(WebPage):
    """Downloads inline, through web-poet's client."""

    http: HttpClient

    async def statuses(self, urls: list[str]) -> list[int | None]:
        """Of each URL; None where the request failed."""
        found: list[int | None] = []
        for url in urls:
            try:
                found.append((await self.http.get(url)).status)
            except HttpError:
                found.append(None)
        return found


class PoetSpider(ListSpider):
    """Its callback gets a page object."""

    name = "poet"

    def __init__(self, inline: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inline = inline

    async def parse(self, response: Response, page: Page) -> Any:  # type: ignore[override]
        self.responses.append(response)
        yield {"url": response.url, "inline": await page.statuses(self.inline)}
