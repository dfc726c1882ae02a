"""Fetches for commands, through Scrapy's engine: a crawl that crawls nothing. The project's
settings, proxies, handlers, delays, downloader middlewares and robots.txt cache apply. What belongs
to crawls of pages is left out."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred

from scrapy_rep.commands.output import CommandError, Progress, Status, complain
from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.engine.lifecycle import Stage
from scrapy_rep.inspection.explanation import Facts, RobotsFile, noted
from scrapy_rep.origins.agents import Agents, origin_of, path_in
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.choices import Choices
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.faults import CONFIGURATION_ERRORS
from scrapy_rep.origins.fetcher import Fetcher, redirect_target
from scrapy_rep.origins.flights import CrawlEnding, Flight, Flights
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.client import open_storage
from scrapy_rep.text import text_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from scrapy_rep.origins.answer import Answer
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin
    from scrapy_rep.storages.base import Entry

# How many origins are asked at once.
_AHEAD = 256

# Seconds of silence before a line says what is waited for, where there is no progress line.
_SILENT = 10.0

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
    "REMOTE_CONTROL_ENABLED": False,
    "CLOSESPIDER_TIMEOUT": 0,
    "CLOSESPIDER_TIMEOUT_NO_ITEM": 0,
    "CLOSESPIDER_PAGECOUNT": 0,
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": 0,
    "CLOSESPIDER_ERRORCOUNT": 0,
}

Chain = tuple[str, ...]
"""The product tokens of a crawler, most specific first."""

Job = Callable[["Lookup"], Awaitable[None]]
T = TypeVar("T")
ResultT = TypeVar("ResultT")


class RobotsSpider(Spider):
    """Runs a job while the engine runs; yields no requests."""

    name = "scrapy-robots"
    error: Exception | None = CommandError("stopped before it was done", Status.UNREACHABLE)
    """What went wrong; None once the job has ended."""

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        super().update_settings(settings)
        settings.setdict(_OVERRIDES, priority="cmdline")

    def __init__(self, job: Job, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job

    async def start(self) -> AsyncIterator[Any]:
        """Run the job. If the spider is closed, stop it without waiting for answers."""
        try:
            lookup = Lookup(self.crawler)
            running: Deferred[None] = deferred_from_coro(self.job(lookup))

            async def stop() -> None:
                lookup.flights.end()
                running.cancel()

            EngineAccess(self.crawler).before_closing(Stage.COMMAND, stop)
            await maybe_deferred_to_future(running)
            self.error = None
        except (CancelledError, asyncio.CancelledError, CrawlEnding):
            pass  # by `stop`, or, if the crawl is stopped, by the engine
        except Exception as error:  # noqa: BLE001
            self.error = error  # Scrapy would only log it
        return
        yield


async def ahead(
    items: Iterable[T], fetch: Callable[[T], Awaitable[ResultT]], count: int
) -> AsyncGenerator[tuple[T, Deferred[ResultT]], None]:
    """Yield items in order, each with what is fetched for it. Up to *count* are fetched meanwhile."""
    coming = iter(items)
    running: deque[tuple[T, Deferred[ResultT]]] = deque()
    try:
        while True:
            for item in islice(coming, count - len(running)):
                running.append((item, deferred_from_coro(fetch(item))))
            if not running:
                return
            yield running.popleft()
    finally:
        for _, fetching in running:
            fetching.addErrback(lambda _: None)
            fetching.cancel()


async def follow(
    lookup: Lookup, request: Request, get: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Return the response that redirects of *request* lead to, or raise ``CommandError``. *get*
    fetches one URL, if its own robots.txt allows it."""
    visited: list[str] = []
    while request.url not in visited and len(visited) <= MAX_HOPS:
        visited.append(request.url)
        try:
            response = await get(request)
        except CommandError as error:
            way = f"redirects to {request.url}: " if len(visited) > 1 else ""
            raise CommandError(f"{way}{error}", error.status) from None
        if response.status not in REDIRECTS:
            return response
        target = redirect_target(request.url, response)
        if target is None:
            problem = f"HTTP {response.status} without a usable target"
            raise CommandError(problem, Status.UNREACHABLE)
        by, request = origin_of(request), Request(target)
        if why := await lookup.refuses(origin_of(request), by):
            raise CommandError(f"redirects to {target}: {why}", Status.UNREACHABLE)
    raise CommandError(f"redirects in a loop, or more than {MAX_HOPS} times", Status.UNREACHABLE)


class Lookup:
    """What robots.txt files say, each fetched once; and downloads that obey them."""

    def __init__(self, crawler: Crawler) -> None:
        """*crawler*'s engine must be running."""
        self._crawler = crawler
        self.settings = settings = RepSettings.from_settings(crawler.settings)
        self.agents = Agents(crawler, settings)
        context = CrawlContext(crawler, settings, EngineAccess(crawler), time.time)
        self._fetcher = Fetcher(context)
        self._fetcher.targets.begin()
        table = OriginTable(settings.cache_max_origins, settings.cache_max_bytes)
        storage = open_storage(crawler, settings)
        self._cache = RobotsCache(settings, table, self._fetcher, time.time, storage)
        self._cache.choices = Choices.of(settings)
        self.sources = context, table, self._cache
        """What these files come from, for those who need more than their rules."""
        self.flights = Flights(crawler, self._ask)
        """When these end, those who wait for an answer get ``CrawlEnding``."""
        self._files: dict[Origin, RobotsFile] = {}

    async def each(self, origins: Iterable[Origin]) -> AsyncIterator[tuple[Origin, RobotsFile]]:
        """Yield the robots.txt of each origin, in order. Says what is waited for."""
        progress, told = Progress(), list[str]()

        def tell(waiting: str) -> None:
            if not (progress.on or told):
                told.append(waiting)
                complain(waiting)

        async with aclosing(ahead(origins, self.get, _AHEAD)) as coming:
            async for origin, fetching in coming:
                waiting = f"waiting for {origin.robots_url}"
                timer = call_later(_SILENT, tell, waiting)
                if not fetching.called:
                    progress.tell(waiting)
                try:
                    robots = await maybe_deferred_to_future(fetching)
                finally:
                    timer.cancel()
                    progress.clear()
                del self._files[origin]
                yield origin, robots

    async def get(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*, and keep it for the next caller."""
        if origin not in self._files:
            with suppress(*CONFIGURATION_ERRORS):
                await self.flights.to(origin).wait()
        return self._files[origin]

    async def now(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin* as it is now, past the cache, since its owner may have
        just changed it; ``CommandError`` if it is unreachable. It is named like a file, and its
        body may be longer than what counts."""
        try:
            answer = await self._fetcher.fetch(origin)
        except CONFIGURATION_ERRORS as error:
            raise CommandError(text_of(error), Status.UNREACHABLE) from None
        if answer.outcome is Outcome.UNREACHABLE:
            why = noted(answer.reason, answer.note)
            raise CommandError(f"unreachable: {why}", Status.UNREACHABLE)
        url, status, hops = origin.robots_url, answer.status, answer.hops
        facts = Facts(str(origin), url, file=url, status=status, hops=hops)
        return RobotsFile(answer.outcome, answer.body, facts, note=answer.note)

    async def check(self, request: Request, chain: Chain) -> None:
        """Raise ``CommandError`` unless robots.txt allows *request*."""
        robots = await self.get(origin_of(request))
        path, obey_global = comparable(path_in(request)), self.settings.obey_global_group
        why = robots.explain(request.url, path, chain, obey_global=obey_global)
        if not why.allowed:
            if why.unreachable:
                raise CommandError(why.reason, Status.UNREACHABLE)
            raise CommandError(f"forbidden by {why.reason}", Status.FOUND)

    async def download(self, request: Request, **meta: Any) -> Response:
        """Return the response to *request*, or raise ``CommandError``. Asks neither the scheduler
        nor robots.txt, and leaves redirects to :func:`follow`."""
        assert self._crawler.engine is not None
        request = request.replace(callback=NO_CALLBACK, meta={"dont_redirect": True, **meta})
        try:
            response = await self._crawler.engine.download_async(request)
            self._fetcher.targets.check_answer(request, response)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a handler or a middleware raises)
            raise CommandError(text_of(error), Status.UNREACHABLE) from None
        return response

    async def refuses(self, target: Origin, by: Origin) -> str:
        """Return why not to request anything from *target*, which *by* named; "" for no reason."""
        refused = await self._fetcher.targets.refuses(target, by)
        return "not read: its host has a private address (see REP_PRIVATE_HOSTS)" if refused else ""

    async def _ask(self, flight: Flight) -> OriginState:
        origin = flight.origin
        try:
            state, answer = await self._cache.ask(flight)
        except CONFIGURATION_ERRORS as error:
            facts = Facts(str(origin), origin.robots_url, error=text_of(error))
            self._files[origin] = RobotsFile(Outcome.UNREACHABLE, facts=facts)
            raise
        self._files[origin] = self._file_of(origin, state, answer)
        return state

    def _file_of(self, origin: Origin, state: OriginState, answer: Answer | None) -> RobotsFile:
        entry, stale = state.entry, state.standing is Standing.STALE
        failed = entry.unreachable_since is not None
        latest: Answer | Entry = answer or entry  # the entry keeps only answers that count
        facts = Facts(
            origin=entry.origin,
            robots_url=origin.robots_url,
            status=latest.status,
            hops=latest.hops,
            final_url=latest.url or None,
            fetched_at=entry.fetched_at,
            fresh_until=entry.fresh_until if entry.fetched_at is not None else None,
            from_cache=answer is None,
            stale=stale,
            error=entry.error if failed else None,
            setting=state.by or None,
        )
        return RobotsFile(
            Outcome.UNREACHABLE if failed and not stale else entry.outcome,
            entry.body,
            facts,
            forbids=state.forbids,
            unrestricted=state.standing is Standing.UNRESTRICTED,
            pass_unreachable=self.settings.unreachable == "allow",
            note=answer.note if answer else "",
        )
