"""Refused requests that went through the queue are freed without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from scrapy import Request, Spider, signals
from twisted.python.failure import Failure

from scrapy_rep import RepMiddleware
from scrapy_rep.engine.failures import PastFailures
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.holding.early import EarlyDrops
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.servers import Sites

COUNT = 200


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All requests go through the queue, and the garbage collector is off."""
    monkeypatch.setattr(EarlyDrops, "begin", lambda self, scheduler: None)
    gc.disable()
    yield
    gc.enable()


class RefusedSpider(ListSpider):
    """Yields forbidden links from its start page."""

    has_errback = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.failures: list[Failure] = []

    def parse(self, response: Any, **kwargs: Any) -> Any:
        errback = self.keep if self.has_errback else None
        for number in range(COUNT):
            yield response.follow(f"/private/{number}", errback=errback)

    def keep(self, failure: Failure) -> None:
        self.failures.append(failure)


class RefusedErrbackSpider(RefusedSpider):
    has_errback = True


async def refused(
    sites: Sites,
    spider: type[RefusedSpider],
    settings: dict[str, Any] | None = None,
) -> tuple[CrawlResult, int]:
    """Crawl with *spider*. Return the result, and how many requests were alive when the crawl ended."""
    site, alive = sites.add(robots=RULES), []
    requests: list[ref[Request]] = []

    def seen(request: Request, spider: Spider) -> None:
        requests.append(ref(request))

    def closed(spider: Spider) -> None:
        alive.append(sum(request() is not None for request in requests))

    result = await crawl(
        spider,
        settings,
        requests=[site.url("/")],
        signal_handlers={
            signals.request_scheduled: seen,
            signals.spider_closed: closed,
        },
    )
    assert result.stat("robotstxt/forbidden") == COUNT
    assert result.stat("scheduler/enqueued") == COUNT + 1
    return result, alive[0]


async def test_refused_requests_are_freed(sites: Sites) -> None:
    _, alive = await refused(sites, RefusedSpider)
    assert alive < COUNT / 4


async def test_without_it_they_stay(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrapy's frames and the exception refer to each other."""
    monkeypatch.setattr(PastFailures, "add", lambda self, request, error: None)
    _, alive = await refused(sites, RefusedSpider)
    assert alive >= COUNT


def test_code_without_a_module_is_the_projects() -> None:
    engine: Any = SimpleNamespace(
        is_in_progress=lambda request: False, has_errback=lambda request: False
    )
    namespace: dict[str, Any] = {"__name__": None}
    exec("def fail():\n    raise ValueError", namespace)  # noqa: S102
    past = PastFailures(engine)
    with pytest.raises(ValueError) as raised:
        namespace["fail"]()
    past.add(Request("http://a.example/1"), raised.value)
    past.add(Request("http://a.example/2"), ValueError())
    assert raised.value.__traceback__ is not None


async def test_an_errback_may_keep_the_traceback(sites: Sites) -> None:
    result, _ = await refused(sites, RefusedErrbackSpider)
    failures = result.spider.failures
    assert len(failures) == COUNT
    for failure in failures:
        trace = failure.value.__traceback__
        assert trace is not None and trace.tb_frame.f_locals


class Catching(RepMiddleware):
    """A project's, which keeps what requests fail with."""

    caught: list[tuple[Exception, int]] = []

    async def process_request(self, request: Request) -> None:  # type: ignore[override]
        mine = len(self.caught)
        try:
            outcome = super().process_request(request)
            if outcome is not None:
                await outcome
        except RobotsDisallowed as error:
            self.caught.append((error, mine))
            raise


async def test_a_projects_own_code_keeps_traceback_and_variables(sites: Sites) -> None:
    Catching.caught.clear()
    settings = {"DOWNLOADER_MIDDLEWARES": {Catching: 100}}
    await refused(sites, RefusedSpider, settings)
    assert len(Catching.caught) == COUNT
    for error, mine in Catching.caught:
        frames = dict.fromkeys(frame for frame, _ in walk_tb(error.__traceback__))
        [own] = [frame for frame in frames if frame.f_globals["__name__"] == __name__]
        assert own.f_locals["mine"] == mine
        assert len(frames) > 1
