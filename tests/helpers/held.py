"""What the tests of holding share: settings, a robots.txt that answers on demand, a record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep import signals
from tests.helpers.behaviours import RULES, Behaviour, as_behaviour, once
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.servers import Connection, Hit, Site

HOLD: dict[str, Any] = {
    "REP_UNREACHABLE": "hold",
    "REP_RETRY_DELAY": 0.1,
    "REP_RETRY_MAX_DELAY": 0.4,
}
NEVER = 1000.0
"""Seconds: longer than a crawl of the tests may take. Who waits for it fails."""


class Gate:
    opened = False

    def __init__(self, before: Any, after: Any) -> None:
        self.before, self.after = as_behaviour(before), as_behaviour(after)

    def open(self) -> None:
        self.opened = True

    async def __call__(self, hit: Hit, connection: Connection) -> None:
        await (self.after if self.opened else self.before)(hit, connection)


def when_open(gate: Gate, then: Any) -> Behaviour:
    return once(lambda: gate.opened, then)


def silent_until_open(then: Any = RULES) -> Gate:
    """A robots.txt that does not answer until it is opened; then those who wait get it too."""
    gate = Gate(404, then)
    gate.before = when_open(gate, then)
    return gate


class Record:
    def __init__(
        self, *, on_held: Callable[[Spider, int], object] | None = None
    ) -> None:
        """:param on_held: called each time with the spider and how many were held so far"""
        self.held: list[str] = []
        self.released: list[str] = []
        self.dropped: list[str] = []
        self.resolved: list[dict[str, Any]] = []
        self.origins: set[str] = set()
        self.spider: Spider | None = None
        self._concurrency: list[int] = []
        self.on_held = on_held
        self.on_resolved: Callable[[], object] | None = None
        self.handlers = {
            scrapy_signals.spider_opened: self._opened,
            scrapy_signals.request_dropped: lambda request: self.dropped.append(
                request.url
            ),
            signals.request_held: self._hold,
            signals.request_released: self._release,
            signals.robots_resolved: self._resolve,
        }

    async def crawl(self, spider: Any, **more: Any) -> CrawlResult:
        """*more*: settings, in capitals, and arguments of the spider."""
        settings = {name: more.pop(name) for name in list(more) if name.isupper()}
        return await crawl(
            spider, {**HOLD, **settings}, signal_handlers=self.handlers, **more
        )

    def close(self, reason: str = "enough") -> None:
        deferred_from_coro(self.engine.close_spider_async(reason=reason))

    async def concurrency(self) -> list[int]:
        """Of the downloader, when the spider opened and now, after the crawl."""
        # Without asyncio a crawl may end in the middle of what ends it.
        await a_while(0)
        return [*self._concurrency, self.engine.downloader.total_concurrency]

    @property
    def engine(self) -> Any:
        assert self.spider is not None
        return self.spider.crawler.engine

    def _opened(self, spider: Spider) -> None:
        self.spider = spider
        self._concurrency.append(self.engine.downloader.total_concurrency)

    def _hold(self, request: Request, origin: Any, spider: Spider) -> None:
        self.held.append(request.url)
        self.origins.add(str(origin))
        if self.on_held is not None:
            self.on_held(spider, len(self.held))

    def _release(self, request: Request, origin: Any) -> None:
        self.released.append(request.url)
        self.origins.add(str(origin))

    def _resolve(self, **kwargs: Any) -> None:
        self.resolved.append(kwargs)
        if self.on_resolved is not None:
            self.on_resolved()


async def a_while(seconds: float) -> None:
    done: Deferred[None] = Deferred()
    call_later(seconds, done.callback, None)
    await maybe_deferred_to_future(done)


def later(seconds: float, function: Callable[[], object]) -> None:
    call_later(seconds, function)


def as_soon_as(happened: Callable[[], object], then: Callable[[], object]) -> None:
    """Call *then* when *happened* returns what is true, however long that takes."""
    then() if happened() else later(0.05, lambda: as_soon_as(happened, then))


def urls(site: Site, count: int, prefix: str = "/page") -> list[str]:
    return [site.url(f"{prefix}{number}") for number in range(count)]


def origin_of(site: Site) -> str:
    return site.url("").rstrip("/")


def assert_no_errors(result: CrawlResult) -> None:
    errors = [
        one.getMessage()
        for one in result.records
        if one.levelname in ("ERROR", "CRITICAL")
    ]
    assert errors == [], errors


def assert_clean(result: CrawlResult) -> None:
    """And it ended by itself."""
    result.assert_clean()
    assert_no_errors(result)


class InlineSpider(ListSpider):
    """Downloads `inline` in the callback of each of its pages, one after another."""

    def __init__(
        self, inline: list[str], meta: dict[str, Any] | None = None, **kw: Any
    ) -> None:
        super().__init__(**kw)
        self.inline, self.meta = inline, meta
        self.outcomes: list[Any] = []

    async def parse(self, response: Response, **kwargs: Any) -> None:
        self.responses.append(response)
        for url in self.inline:
            try:
                answered = await self.crawler.engine.download_async(
                    Request(url, meta=self.meta)
                )
            except IgnoreRequest as error:
                self.outcomes.append(error)
            else:
                self.outcomes.append(answered.status)


class Bounded(Record):
    """Closes a crawl that would hang after some *seconds*: its reason is `TOO_LONG` then."""

    def __init__(self, seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._seconds = seconds

    def _opened(self, spider: Spider) -> None:
        super()._opened(spider)
        later(self._seconds, self._end)

    def _end(self) -> None:
        if self.engine.spider is not None:
            self.close(TOO_LONG)


TOO_LONG = "took too long"


class InParts(ListSpider):
    """*parts* are requests, numbers of seconds to wait, and functions that return what is true once it may
    go on."""

    def __init__(self, parts: list[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.parts = parts

    async def start(self) -> AsyncIterator[Any]:
        for part in self.parts:
            if isinstance(part, str | Request):
                yield self.recorded(part)
            elif isinstance(part, int | float):
                await a_while(part)
            else:
                while not part():
                    await a_while(0.01)
