"""A crawl that fetches nothing: what is measured happens in its event loop."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.crawler import CrawlerProcess

from scrapy_rep import RepMiddleware

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SETTINGS: dict[str, Any] = {
    "USER_AGENT": "BenchmarkBot/1.0",
    "ADDONS": {"scrapy_rep.Addon": 300},
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REP_CACHE_MAX_ORIGINS": 1_000_000,
}


class InsideSpider(scrapy.Spider):
    name = "inside"

    async def start(self) -> AsyncIterator[Any]:
        found = self.crawler.engine.downloader.middleware.middlewares
        try:
            await self.measure(
                next(one for one in found if isinstance(one, RepMiddleware))
            )
        except Exception:  # noqa: BLE001
            traceback.print_exc()  # Scrapy would only log it
        return
        yield


def run_inside(
    settings: dict[str, Any], measure: Callable[[Any], Awaitable[None]]
) -> None:
    """Await *measure* in a crawl, with its middleware."""
    process = CrawlerProcess({**SETTINGS, **settings})
    process.crawl(InsideSpider, measure=measure)
    process.start()
