"""Spiders and pages for the tests of page-level rules."""

from __future__ import annotations

from typing import Any

from scrapy.http import HtmlResponse, Response

from scrapy_rep import page_rules
from tests.helpers.behaviours import Behaviour, answer
from tests.helpers.crawling import ListSpider

NOINDEX = '<meta name="robots" content="noindex">'
NOFOLLOW = '<meta name="robots" content="nofollow">'


def page(html: str, *tags: str, type: str = "text/html") -> Behaviour:
    """A page with X-Robots-Tag headers."""
    return answer(html, headers=[("X-Robots-Tag", tag) for tag in tags], type=type)


class LinkSpider(ListSpider):
    """Follows all links of the pages that it starts from, and yields an item for every page."""

    dont_filter = False

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        yield {"url": response.url, "noindex": page_rules(response).noindex}
        if isinstance(response, HtmlResponse):
            for href in response.css("a::attr(href)").getall():
                yield response.follow(href, errback=self.failed)


class AsyncLinkSpider(LinkSpider):
    """The same with an asynchronous callback."""

    async def parse(self, response: Response, **kwargs: Any) -> Any:  # type: ignore[override]
        for one in super().parse(response):
            yield one
