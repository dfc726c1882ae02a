"""Download handlers of Scrapy's besides its usual one, and one for handlers of the tests' own."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

_HANDLERS = "scrapy.core.downloader.handlers."
# What they need; None for what Scrapy uses by default.
NEEDS = {
    None: None,
    f"{_HANDLERS}_httpx.HttpxDownloadHandler": "httpx",
    f"{_HANDLERS}_aiohttp.AiohttpDownloadHandler": "aiohttp",
}
OTHERS = [handler for handler in NEEDS if handler is not None]


def handler_settings(handler: str | None) -> dict[str, Any]:
    if handler is None:
        return {}
    if find_spec(handler.rpartition(".")[0]) is None:
        pytest.skip("this Scrapy doesn't have that handler")
    library = NEEDS[handler]
    assert library is not None
    pytest.importorskip(library)
    if is_reactor_installed() and not is_asyncio_reactor_installed():
        pytest.skip("needs asyncio")
    return {"DOWNLOAD_HANDLERS": {"http": handler}}


class WrappedHandler:
    """A download handler made of Scrapy's own."""

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        default = crawler.settings["DOWNLOAD_HANDLERS_BASE"]["http"]
        self._inner: Any = build_from_crawler(load_object(default), crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> WrappedHandler:
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        response: Response = await self._inner.download_request(request)
        return response

    async def close(self) -> None:
        await self._inner.close()
