"""Real Scrapy crawls in this process, on the reactor of the test run, or none (see conftest.py)."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.crawler import AsyncCrawlerRunner, CrawlerRunner
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.reactor import is_asyncio_reactor_installed, is_reactor_installed

from scrapy_rep import RepMiddleware
from scrapy_rep.exceptions import RobotsDisallowed
from tests.helpers.servers import Site

AGENT = "testbot"
# Nothing here changes what robots.txt means; it makes crawls quick, quiet and local.
SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_rep.Addon": 300},
    "USER_AGENT": f"Mozilla/5.0 (compatible; {AGENT}/1.0; +https://example.com/bot)",
    # An origin that is unreachable by mistake shall fail its test at once, not be waited for.
    "REP_UNREACHABLE": "drop",
    "REP_DOWNLOAD_TIMEOUT": 10.0,
    "DOWNLOAD_TIMEOUT": 10.0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    # Scrapy starts as many tasks for each callback: by default, a third of a crawl's time here.
    "CONCURRENT_ITEMS": 4,
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "MEMUSAGE_ENABLED": False,
}
ONE_ATTEMPT: dict[str, Any] = {"REP_RETRY_DELAY": 60.0}
"""An unreachable origin isn't tried again within the test, however slow the machine is."""
CRAWL_TIMEOUT = 150.0
# The threads that the tests' own servers run in.
_SERVERS = ("sites", "ftp")


class ListSpider(Spider):
    """*on_page* and *on_failure* get the spider; the callback returns what they return."""

    name = "list"
    dont_filter = True

    def __init__(
        self,
        requests: Iterable[str | Request] = (),
        on_page: Callable[[Any], Any] = lambda spider: None,
        on_failure: Callable[[Any], Any] = lambda spider: None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on_page, self.on_failure = on_page, on_failure
        self.requests = list(requests)
        self.responses: list[Response] = []
        self.errors: list[tuple[Request, BaseException]] = []
        self.items: list[Any] = []

    async def start(self) -> AsyncIterator[Any]:
        for request in self.requests:
            yield self.recorded(request)

    def recorded(self, request: str | Request) -> Request:
        """The request with this spider's callback and errback, past the dupe filter."""
        if isinstance(request, str):
            request = Request(request)
        return request.replace(
            callback=self.parse, errback=self.failed, dont_filter=self.dont_filter
        )

    def parse(self, response: Response, **kwargs: Any) -> Any:
        self.responses.append(response)
        return self.on_page(self)

    def failed(self, failure: Any) -> Any:
        self.errors.append((failure.request, failure.value))
        return self.on_failure(self)


class CrawlResult:
    def __init__(
        self, spider: ListSpider, reason: str, records: list[logging.LogRecord]
    ) -> None:
        self.spider, self.reason, self.records = spider, reason, records
        self.stats: dict[str, Any] = spider.crawler.stats.get_stats()

    @property
    def responses(self) -> dict[str, int]:
        return {response.url: response.status for response in self.spider.responses}

    @property
    def failures(self) -> dict[str, BaseException]:
        return {request.url: error for request, error in self.spider.errors}

    @property
    def log(self) -> str:
        return "\n".join(f"{one.levelname} {one.getMessage()}" for one in self.records)

    def status(self, url: str) -> int | None:
        return self.responses.get(Request(url).url)

    def failure(self, url: str) -> BaseException | None:
        return self.failures.get(Request(url).url)

    def disallowed(self, url: str) -> bool:
        return isinstance(self.failure(url), RobotsDisallowed)

    def stat(self, name: str) -> Any:
        return self.stats.get(name, 0)

    def assert_clean(self) -> None:
        """The crawl ended by itself, and nothing in the log is a traceback of our code."""
        assert self.reason == "finished"
        for record in self.records:
            message = record.getMessage()
            # Older Scrapy logs refused media requests with their tracebacks.
            if record.name.startswith("scrapy.pipelines."):
                continue
            assert "Traceback" not in message, message
            if record.exc_info and record.exc_info[1] is not None:
                text = "".join(traceback.format_exception(record.exc_info[1]))
                assert "scrapy_rep" not in text, f"{message}\n{text}"


def run_settings(settings: dict[str, Any] | None = None) -> dict[str, Any]:
    merged = {**SETTINGS, **(settings or {})}
    if not is_reactor_installed():
        merged["TWISTED_REACTOR_ENABLED"] = False
    elif not is_asyncio_reactor_installed():
        merged["TWISTED_REACTOR"] = None
    return merged


def new_runner(settings: dict[str, Any] | None = None) -> Any:
    on_asyncio = not is_reactor_installed() or is_asyncio_reactor_installed()
    return (AsyncCrawlerRunner if on_asyncio else CrawlerRunner)(run_settings(settings))


async def crawl(
    spider: type[ListSpider] | Iterable[str | Request] | str | Request,
    settings: dict[str, Any] | None = None,
    *,
    signal_handlers: dict[Any, Any] | None = None,
    **spider_kwargs: Any,
) -> CrawlResult:
    """Crawl by a spider class, or URLs and requests. `signal_handlers`: {signal: function}."""
    if isinstance(spider, str | Request):
        spider = [spider]
    if not isinstance(spider, type):
        spider_kwargs["requests"] = spider
        spider = ListSpider
    runner = new_runner(settings)
    crawler = runner.create_crawler(spider)
    closings: list[tuple[ListSpider, str]] = []
    ours = {
        signals.spider_closed: lambda spider, reason: closings.append((spider, reason)),
        signals.item_scraped: lambda spider, item: spider.items.append(item),
    }
    for signal, handler in [*ours.items(), *(signal_handlers or {}).items()]:
        crawler.signals.connect(handler, signal)
    with captured_log() as records:
        done = runner.crawl(crawler, **spider_kwargs)
        if isinstance(runner, AsyncCrawlerRunner):
            await asyncio.wait_for(done, CRAWL_TIMEOUT)
        else:
            from twisted.internet import reactor

            await maybe_deferred_to_future(done.addTimeout(CRAWL_TIMEOUT, reactor))
        # Errors that nobody handled are logged when their Deferreds are collected.
        gc.collect()
    assert closings, f"The crawl has not ended in {CRAWL_TIMEOUT:g} s."
    [(ended, reason)] = closings
    return CrawlResult(ended, reason, records)


@contextmanager
def captured_log() -> Iterator[list[logging.LogRecord]]:
    """Everything that is logged meanwhile, the tests' own servers apart."""
    handler = BufferingHandler(sys.maxsize)
    handler.addFilter(lambda record: record.threadName not in _SERVERS)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.buffer
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


def assert_ended_at_start(result: CrawlResult, site: Site, sentence: str) -> None:
    assert result.reason == result.stats["finish_reason"] == "rep_settings_error"
    assert site.requests == []
    assert result.responses == {}
    [error] = [
        record for record in result.records if record.levelname in ("ERROR", "CRITICAL")
    ]
    assert error.getMessage() == f"{sentence} The crawl ends."
    assert all(record.exc_info is None for record in result.records)
    assert "Traceback" not in result.log
    assert [
        name for name in result.stats if name.startswith(("rep/", "robotstxt/"))
    ] == []


Step = str | Request | float | Callable[[], object]


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        monkeypatch.setattr(RepMiddleware, "clock", staticmethod(self))
        return self


class StepSpider(ListSpider):
    """Does `steps` in their order, each after the one before has ended: a URL or request is
    requested, a number is seconds by which the clock moves, a function is called.

    `outcomes`: for each request "ok", or the name of the exception that its errback got.
    """

    def __init__(
        self, steps: list[Step], clock: Clock | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.steps = list(steps)
        self.clock = clock or Clock()
        self.outcomes: list[str] = []

    async def start(self) -> AsyncIterator[Any]:
        if request := self.following():
            yield request

    def following(self) -> Request | None:
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, (int, float)):
                self.clock.now += step
            elif isinstance(step, (str, Request)):
                return self.recorded(step).replace(cb_kwargs={"step": True})
            else:
                step()
        return None

    def parse(self, response: Any, step: bool = False, **kwargs: Any) -> Request | None:
        super().parse(response, **kwargs)
        if not step:  # a sitemap
            return None
        self.outcomes.append("ok")
        return self.following()

    def failed(self, failure: Any) -> Request | None:
        super().failed(failure)
        self.outcomes.append(type(failure.value).__name__)
        return self.following()


DAY = 86400
OK, NO, DOWN = "ok", "RobotsDisallowed", "RobotsUnreachable"
# Back-off: 75 to 100 s after the first failure, 150 to 200, 300 to 400, then 600 to 800.
SLOW = {"REP_RETRY_DELAY": 100, "REP_RETRY_MAX_DELAY": 800}
