"""Robots.txt files through Scrapy's engine, for commands: a crawl that crawls nothing.

The project's settings, proxies, handlers, delays and downloader middlewares apply, and its
cache of robots.txt files is used. What belongs to crawls of pages is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.engine.closing import Stage
from scrapy_rep.inspection.explanation import Facts, RobotsFile
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.failures import CONFIGURATION_ERRORS
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flights import CrawlEnding, Flight, Flights
from scrapy_rep.origins.table import OriginTable
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.opening import open_storage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy.commands import ScrapyCommand
    from scrapy.http import Response
    from scrapy.settings import BaseSettings, Settings

    from scrapy_rep.origins.answer import Answer
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin

# This many origins are asked ahead of the one whose turn it is: a slow one must not hold up the
# others, whose answers are kept meanwhile.
_AHEAD = 256

# Nothing is crawled, so nothing is scheduled, resumed, seeded, stored or closed early.
_OVERRIDES: dict[str, Any] = {
    "ROBOTSTXT_OBEY": False,
    "JOBDIR": None,
    "SCHEDULER": "scrapy.core.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    "SPIDER_MIDDLEWARES": {},
    "ITEM_PIPELINES": {},
    "FEEDS": {},
    "TELNETCONSOLE_ENABLED": False,
    "CLOSESPIDER_TIMEOUT": 0,
    "CLOSESPIDER_TIMEOUT_NO_ITEM": 0,
    "CLOSESPIDER_PAGECOUNT": 0,
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": 0,
    "CLOSESPIDER_ERRORCOUNT": 0,
}


Job = Callable[["Lookup"], Awaitable[None]]


class RobotsSpider(Spider):
    """Runs a job while the engine is running, and requests nothing by itself."""

    name = "scrapy-robots"

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Scrapy calls this when it makes the crawler."""
        super().update_settings(settings)
        for name, value in _OVERRIDES.items():
            settings.set(name, value, priority="cmdline")

    def __init__(self, job: Job, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.error: Exception | None = None
        self.ended = False

    async def start(self) -> AsyncIterator[Any]:
        """Run the job; stop it when the spider is to be closed, without waiting for answers."""
        try:
            lookup = Lookup(self.crawler)
            running: Deferred[None] = deferred_from_coro(self.job(lookup))

            async def stop() -> None:
                lookup.end()
                running.cancel()

            EngineAccess(self.crawler).before_closing(Stage.COMMAND, stop)
            await maybe_deferred_to_future(running)
            self.ended = True
        except (CancelledError, asyncio.CancelledError, CrawlEnding):
            pass  # by `stop`, or by the engine
        except Exception as error:  # noqa: BLE001
            self.error = error  # Scrapy would log it, and most likely nobody would see that
        return
        yield


class CannotRun(Exception):
    """The engine could not be started, or was stopped before the job had ended."""


def run(command: ScrapyCommand, job: Job) -> None:
    """Run *job* in a crawl of its own.

    :raises CannotRun: says why in one line
    :raises Exception: what *job* raises
    """
    process = command.crawler_process
    assert process is not None
    crawler = process.create_crawler(RobotsSpider)
    try:
        # A Deferred or an asyncio Task, as the reactor has it.
        running: Any = process.crawl(crawler, job=job)
        if isinstance(running, Deferred):
            failures: list[Failure] = []
            running.addErrback(failures.append)
        process.start()
    except Exception as error:
        raise CannotRun(f"{type(error).__name__}: {error}") from error
    spider = crawler.spider
    if isinstance(spider, RobotsSpider) and spider.error is not None:
        raise spider.error
    if isinstance(running, Deferred):
        failed = failures[0].value if failures else None
    else:
        failed = None if running.cancelled() else running.exception()
    if failed is not None:
        raise CannotRun(f"{type(failed).__name__}: {failed}") from failed
    if not isinstance(spider, RobotsSpider) or not spider.ended:
        raise CannotRun("stopped before all was answered")


def usual_chain(agents: Agents) -> tuple[str, ...]:
    """Return the tokens that the project's crawls go by."""
    return agents.chain_of(Request("http://agent.invalid/"))


def chain_of_project(settings: Settings, ours: RepSettings) -> tuple[str, ...]:
    """Return the same without a crawl."""
    return usual_chain(Agents(Crawler(Spider, settings), ours))


class Lookup:
    """What the robots.txt of origins say, each asked for once."""

    def __init__(self, crawler: Crawler) -> None:
        """:param crawler: one whose engine is running

        :raises SettingsError: if there is no such storage as the settings name
        """
        self._crawler = crawler
        self.settings = RepSettings.from_settings(crawler.settings)
        self.agents = Agents(crawler, self.settings)
        context = CrawlContext(crawler, self.settings, EngineAccess(crawler), time.time)
        self.fetcher = Fetcher(crawler, self.settings, context.engine)
        table = OriginTable(self.settings.cache_max_origins, self.settings.cache_max_bytes)
        storage = open_storage(crawler, self.settings, time.time)
        self._cache = RobotsCache(self.settings, table, self.fetcher, time.time, storage)
        self.sources = context, table, self._cache
        """What these files come from, for those who ask them about more than their rules."""
        self._answers: dict[Origin, Answer] = {}
        self._flights = Flights(crawler, self._ask)
        self._asked: dict[Origin, Flight] = {}
        self._files: dict[Origin, RobotsFile] = {}

    def end(self) -> None:
        """Wait for no answer any more: callers that do get ``CrawlEnding``."""
        self._flights.end()

    async def each(self, origins: Iterable[Origin]) -> AsyncIterator[tuple[Origin, RobotsFile]]:
        """Yield the robots.txt of each origin, in order; those that come next are asked for
        meanwhile."""
        coming = iter(origins)
        asked: deque[tuple[Origin, Flight]] = deque()
        while True:
            while len(asked) < _AHEAD and (origin := next(coming, None)) is not None:
                asked.append((origin, self._flights.to(origin)))
            if not asked:
                return
            origin, flight = asked.popleft()
            yield origin, await self._landed(origin, flight)

    async def get(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*, and keep it for the next caller."""
        if origin not in self._files:
            if origin not in self._asked:
                self._asked[origin] = self._flights.to(origin)
            file = await self._landed(origin, self._asked[origin])
            # Of several who waited, the first has it.
            self._files.setdefault(origin, file)
        return self._files[origin]

    async def download(self, request: Request) -> Response:
        """Return the response to *request*, past Scrapy's scheduler."""
        assert self._crawler.engine is not None
        return await self._crawler.engine.download_async(request)

    async def _landed(self, origin: Origin, flight: Flight) -> RobotsFile:
        try:
            state = await flight.wait()
        except CONFIGURATION_ERRORS as error:
            facts = Facts(str(origin), origin.robots_url, error=f"{type(error).__name__}: {error}")
            return RobotsFile(Outcome.UNREACHABLE, facts=facts)
        return self._file(state, self._answers.pop(origin, None))

    async def _ask(self, flight: Flight) -> OriginState:
        state, answer = await self._cache.ask(flight.origin)
        if answer is not None:
            # An entry keeps nothing of an answer that does not count.
            self._answers[state.origin] = answer
        return state

    def _file(self, state: OriginState, answer: Answer | None) -> RobotsFile:
        """:param answer: None if what is known comes from the cache"""
        entry = state.entry
        failed = entry.unreachable_since is not None
        facts = Facts(
            origin=entry.origin,
            robots_url=state.origin.robots_url,
            status=answer.status if answer else entry.status,
            hops=answer.hops if answer else entry.hops,
            final_url=answer.url if answer else entry.url or None,
            fetched_at=entry.fetched_at,
            fresh_until=entry.fresh_until if entry.fetched_at is not None else None,
            from_cache=answer is None,
            stale=failed and entry.has_copy,
            error=entry.error if failed else None,
        )
        return RobotsFile(
            Outcome.UNREACHABLE if failed and not entry.has_copy else entry.outcome,
            entry.body,
            facts,
            unrestricted=state.standing is Standing.UNRESTRICTED,
            pass_unreachable=self.settings.unreachable == "allow",
        )
