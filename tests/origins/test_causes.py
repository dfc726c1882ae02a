"""`RobotsUnreachable.__cause__`: what the last attempt raised, for link checkers and the like."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.answer import ProjectError, RedirectRefused
from tests.helpers.behaviours import lying_length, redirect, reset, silence
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.held import DEFER
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites


class Refusing:
    """A project's filter: one site, and one page that another's robots.txt redirects to."""

    def process_request(self, request: Request, **_: Any) -> None:
        if request.url.endswith("/outside") or request.url.startswith("http://closed.test"):
            raise IgnoreRequest("not there")


# By Twisted, and by aiohttp, to which the connection failed.
TLS_ERRORS = (DownloadFailedError, DownloadConnectionRefusedError)


def failing(sites: Sites) -> dict[str, tuple[str, Any]]:
    """Root URLs of sites whose robots.txt can't be fetched, and what is raised."""
    plain = sites.add()
    closed = sites.add(name="closed.test")
    return {
        "DNS": ("http://nonexistent.invalid", CannotResolveHostError),
        "refused": (sites.refused(), DownloadConnectionRefusedError),
        "TLS": (plain.url("").replace("http:", "https:"), TLS_ERRORS),
        "timeout": (sites.add(robots=silence()).url(""), DownloadTimeoutError),
        "reset": (sites.add(robots=reset()).url(""), DownloadFailedError),
        "cut": (sites.add(robots=lying_length(b"x", 9)).url(""), ResponseDataLossError),
        "redirect": (sites.add(robots=redirect("/outside")).url(""), RedirectRefused),
        "filter": (closed.url(""), ProjectError),
        "HTTP 503": (sites.add(robots=503).url(""), None),
    }


SETTINGS = {
    "REP_DOWNLOAD_TIMEOUT": 0.5,
    "RETRY_ENABLED": False,
    "DOWNLOADER_MIDDLEWARES": {Refusing: 500},
}


class DirectSpider(ListSpider):
    """Downloads past the scheduler."""

    def __init__(self, urls: list[str], **kwargs: Any) -> None:
        super().__init__(requests=["data:,start"], **kwargs)
        self.urls = urls

    async def parse(self, response: Any, **kwargs: Any) -> None:
        assert self.crawler.engine is not None
        for url in self.urls:
            request = Request(url)
            try:
                await self.crawler.engine.download_async(request)
            except IgnoreRequest as error:
                self.errors.append((request, error))


DIRECT = {**DEFER, "REP_RETRY_DELAY": 60.0, "REP_RETRY_MAX_DELAY": 60.0}


@pytest.mark.download
@pytest.mark.scrapy_api
@pytest.mark.parametrize(
    "settings",
    [
        {"REP_UNREACHABLE": "drop"},
        {**DEFER, "REP_DEFER_MAX_WAIT": 2.0, "REP_DEFER_GRACE": 0.05},
        {**DEFER, "REP_DEFER_MAX_WAIT": 2.0, "REP_CACHE_MAX_ORIGINS": 1},
        DIRECT,
    ],
    ids=["dropped", "given up", "forgotten", "direct"],
)
async def test_errors_have_their_cause(sites: Sites, settings: dict[str, Any]) -> None:
    table = failing(sites)
    urls = {name: f"{root}/page" for name, (root, _) in table.items()}
    merged = {**SETTINGS, **settings}
    if settings is DIRECT:
        result = await crawl(DirectSpider, merged, urls=list(urls.values()))
    else:
        result = await crawl(list(urls.values()), merged)
    with every_row() as row:
        for name, (_, kind) in table.items():
            with row(name):
                assert_cause(result, urls[name], kind)


def assert_cause(result: CrawlResult, url: str, kind: Any) -> None:
    error = result.failure(url)
    assert isinstance(error, RobotsUnreachable)
    if kind is None:
        assert error.__cause__ is None
        assert error.reason.startswith("HTTP 503")
    else:
        assert isinstance(error.__cause__, kind)
        assert type(error.__cause__).__name__ in error.reason


async def test_a_url_without_an_origin_has_a_cause_too() -> None:
    result = await crawl(f"http://{'a' * 300}/")
    [error] = result.failures.values()
    assert isinstance(error, RobotsUnreachable)
    assert isinstance(error.__cause__, ValueError)
