"""The least that a robots.txt middleware can do: what no crawl that asks for robots.txt can have
for less, with this package's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK

from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.matching import comparable

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy.crawler import Crawler

    from scrapy_rep.protocol.matching import Rules

MARK = "robots"
SCHEME = len("http://")


class Fetching:
    """Downloads each robots.txt once, and does nothing with it."""

    agent = ("benchmarkbot",)

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.known: dict[str, Any] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Fetching:
        return cls(crawler)

    def process_request(
        self, request: scrapy.Request
    ) -> Coroutine[Any, Any, None] | None:
        url = request.url
        site = url[: url.index("/", SCHEME)]
        if site in self.known or MARK in request.meta:
            return None
        return self.fetch(site)

    async def fetch(self, site: str) -> None:
        self.known[site] = None  # who comes meanwhile passes
        url = f"{site}/robots.txt"
        request = scrapy.Request(
            url, callback=NO_CALLBACK, priority=1000, meta={MARK: True}
        )
        assert self.crawler.engine is not None
        response = await self.crawler.engine.download_async(request)
        self.known[site] = self.read(response.body)

    def read(self, body: bytes) -> Any:
        return body


class Least(Fetching):
    """Reads it and asks its rules as well. Nothing gets old here, no status code means anything,
    all requests have the same agent, and nobody is told which line decided."""

    def process_request(
        self, request: scrapy.Request
    ) -> Coroutine[Any, Any, None] | None:
        url = request.url
        slash = url.index("/", SCHEME)
        rules: Rules | None = self.known.get(url[:slash])
        if rules is None:
            return super().process_request(request)
        if MARK not in request.meta and not rules.allows(comparable(url[slash:])):
            raise IgnoreRequest
        return None

    def read(self, body: bytes) -> Rules:
        robots = RobotsTxt.parse(body)
        return robots.rules(self.agent, True)[1]
