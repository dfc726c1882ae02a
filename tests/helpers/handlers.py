"""Download handlers of Scrapy's besides its usual one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
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
