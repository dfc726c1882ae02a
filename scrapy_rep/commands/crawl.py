"""What ``scrapy robots`` fetches, through Scrapy's engine, in a crawl that crawls nothing: the project's
settings, proxies, handlers, delays, downloader middlewares and robots.txt cache apply; what belongs to
crawls of pages is left out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http.request import NO_CALLBACK
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred

from scrapy_rep.commands.output import (
    CommandError,
    Ending,
    Status,
    WrongUsage,
    complain,
)
from scrapy_rep.commands.task import Chain, Job, Task, question_about
from scrapy_rep.engine.access import HOP_KEY, EngineAccess, Stage
from scrapy_rep.engine.log import get_logger
from scrapy_rep.inspection.explanation import Facts, RobotsFile, noted
from scrapy_rep.origins.agents import (
    SPIDER_ATTRIBUTE,
    Agents,
    origin_of,
    path_in,
)
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS, Answer
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.fetcher import Plain, is_elsewhere, redirect_target
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Stale, Unrestricted
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, Outcome
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import MemoryStorage
from scrapy_rep.storages.client import make_storage
from scrapy_rep.text import text_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Iterator, Sequence

    from scrapy.commands import ScrapyCommand
    from scrapy.http import Response
    from scrapy.settings import Settings

    from scrapy_rep.storages.base import Entry, Storage

# Seconds of silence before a line says what is waited for.
_SILENT = 5.0

# How many origins are asked at once.
_AHEAD = 256

# Nothing is crawled, so nothing is scheduled, resumed, seeded, stored, observed or closed early.
_OVERRIDES: dict[str, Any] = {
    "ROBOTSTXT_OBEY": False,
    "JOBDIR": None,
    "SCHEDULER": "scrapy.core.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    "SPIDER_MIDDLEWARES": {},
    "ITEM_PIPELINES": {},
    "EXTENSIONS_BASE": {},
    "EXTENSIONS": {"scrapy.extensions.throttle.AutoThrottle": 0},
}


class CrawlTask(Task):
    """A task with a project's settings, which can fetch."""

    def __init__(
        self, command: ScrapyCommand, arguments: Sequence[str], options: Namespace
    ) -> None:
        """Raises ``SettingsError`` for a wrong setting, ``WrongUsage`` for a wrong ``--agent``."""
        assert command.settings is not None  # Scrapy sets it
        self._command = command
        self.settings = command.settings
        self.rep = RepSettings.from_settings(command.settings)
        super().__init__(arguments, options)

    @property
    def obey_global(self) -> bool:
        return self.rep.obey_global_group

    @property
    def max_delay(self) -> float | None:
        return self.rep.max_delay

    def agents(self, agents: Agents | None = None) -> list[Chain]:
        """Return the crawlers that are named; if none is, the one that the project's crawls go by, or
        for a file without ``--spider``, any crawler that no group names."""
        options, named = self.options, self.named
        if not named and (options.agents_of_file or options.agents_known):
            named = super().agents()
        if agents is None and options.spider is None:
            return named or super().agents()
        agents = agents or Agents(Crawler(Spider, self.settings), self.rep)
        if named:
            agents.usual = named[0]  # it need not read USER_AGENT, nor warn of it
        return named or [agents.default]

    def crawl(self, job: Job) -> None:
        """Run *job* in a crawl of its own. Raises what *job* raises, and ``CommandError`` if the
        crawl can't start or is stopped before *job* has ended."""
        process = self._command.crawler_process
        assert process is not None
        self.settings.setdict(_OVERRIDES, "cmdline")
        crawler = process.create_crawler(RobotsSpider)
        errors: list[BaseException | None] = []
        try:
            # A Deferred or an asyncio Task, depending on the reactor.
            running: Any = process.crawl(crawler, job=job)
            if isinstance(running, Deferred):
                running.addErrback(lambda failure: errors.append(failure.value))
            process.start()
            if not isinstance(running, Deferred) and not running.cancelled():
                errors.append(running.exception())
        except asyncio.InvalidStateError:
            pass  # it hasn't ended: Ctrl-C came early
        except Exception as error:  # noqa: BLE001 (of the project's parts, which are made here)
            errors.append(error)
        for one in errors:
            if isinstance(one, Exception):
                raise CommandError(text_of(one), Status.UNREACHABLE) from one
        problem = getattr(
            crawler.spider, "error", RobotsSpider.error
        )  # there may be no spider
        if problem is not None:
            raise problem

    def requests(self) -> list[tuple[str, Request, Origin]]:
        """Return each URL as given, its request and origin. Complains about invalid ones."""
        return [(asked.url, *request_for(asked.url)) for asked in self.questions()]

    @contextmanager
    def storage(self) -> Iterator[Storage | None]:
        """Open the project's cache; None if nothing is left of it after a crawl. Whatever it raises
        (no server, no permission, a file of a newer version) becomes ``CommandError``."""
        storage = make_storage(Crawler(Spider, self.settings), self.rep)
        try:
            # A subclass may keep its entries.
            yield None if type(storage) is MemoryStorage else storage
        except (Ending, WrongUsage):
            raise
        except Exception as error:  # noqa: BLE001
            message = f"the cache can't be used: {text_of(error)}"
            raise CommandError(message, Status.UNREACHABLE) from None
        finally:
            storage.close()


def use_spider(settings: Settings, name: str) -> None:
    """Apply the settings of a spider and the agent that its class names, or raise ``WrongUsage``."""
    try:
        spider = get_spider_loader(settings).load(name)
    except KeyError:
        raise WrongUsage(f"no such spider: {name!r}") from None
    spider.update_settings(settings)
    # Attributes win over settings.
    for attribute, setting in (
        (SPIDER_ATTRIBUTE, "REP_USER_AGENT"),
        ("user_agent", "USER_AGENT"),
    ):
        if (value := getattr(spider, attribute, None)) is not None:
            settings.set(setting, value, "cmdline")


def request_for(url: str) -> tuple[Request, Origin]:
    """Return a request for *url* and its origin, or raise ``CommandError``."""
    question_about(url)  # its errors say more than Scrapy's
    request = Request(url)
    return request, origin_of(request)


@contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """If the work within takes long, say on standard error that it waits for *what*."""
    timer = call_later(_SILENT, complain, f"waiting for {what}")
    try:
        yield
    finally:
        timer.cancel()


class _Complainer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def set_up_logging(settings: Settings) -> None:
    """Print our own warnings to standard error if the log is off, as it is by default."""
    if not settings.getbool("LOG_ENABLED"):
        get_logger("scrapy_rep").addHandler(_Complainer(logging.WARNING))


class RobotsSpider(Spider):
    """Runs a job while the engine runs; yields no requests."""

    name = "scrapy-robots"
    error: Exception | None = CommandError(
        "stopped before it was done", Status.UNREACHABLE
    )
    """What went wrong; None once the job has ended."""
    job: Job

    async def start(self) -> AsyncIterator[Any]:
        """Run the job, until the spider is closed: by Ctrl-C, or by a middleware of the project."""
        try:
            running: Deferred[None] = deferred_from_coro(
                self._run(Lookup(self.crawler))
            )

            async def stop() -> None:
                running.cancel()

            EngineAccess(self.crawler).before_closing(Stage.SEEDING, stop)
            await maybe_deferred_to_future(running)
            self.error = None
        except (CancelledError, asyncio.CancelledError):
            pass  # by `stop`, or, if the crawl is stopped, by the engine
        except Exception as error:  # noqa: BLE001
            self.error = error  # Scrapy would only log it
        return
        yield

    async def _run(self, lookup: Lookup) -> None:
        try:
            await self.job(lookup)
        finally:
            lookup.origins.flights.end()  # or the spider would wait for them, too


async def follow(
    lookup: Lookup,
    request: Request,
    get: Callable[[Request], Awaitable[Response]],
    most: int = MAX_HOPS,
) -> Response:
    """Return the response that redirects of *request* lead to, *most* of them, or raise
    ``CommandError``. *get* fetches one URL, if its own robots.txt allows it."""
    visited: list[str] = []
    asked = origin_of(request)
    while request.url not in visited and len(visited) <= most:
        visited.append(request.url)
        request.meta[HOP_KEY] = Plain(is_elsewhere(origin_of(request), asked))
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
    raise CommandError(
        f"redirects in a loop, or more than {most} times", Status.UNREACHABLE
    )


class Lookup(ResolutionListener):
    """What robots.txt files say, each fetched once; and downloads that obey them."""

    part = "look-up"

    def __init__(self, crawler: Crawler) -> None:
        """*crawler*'s engine must be running."""
        self.settings = settings = RepSettings.from_settings(crawler.settings)
        self.context = CrawlContext(crawler, settings, time.time)
        self.origins = Origins(self.context)
        self.origins.notify(self)
        self._files: dict[Origin, RobotsFile] = {}

    async def each(
        self, origins: Sequence[Origin]
    ) -> AsyncIterator[tuple[Origin, RobotsFile]]:
        """Yield the robots.txt of each origin, in order. Others are fetched meanwhile."""
        flights = self.origins.flights
        for one in origins[:_AHEAD]:
            flights.to(one)
        for origin, following in zip_longest(origins, origins[_AHEAD:]):
            robots = await self.get(origin)
            del self._files[origin]
            if following is not None:
                flights.to(following)
            yield origin, robots

    async def get(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*, and keep it for the next caller."""
        if origin not in self._files:
            with waiting_for(origin.robots_url), suppress(*CONFIGURATION_ERRORS):
                await self.origins.flights.to(origin).wait()
        return self._files[origin]

    async def now(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin* as it is now, past the cache, since its owner may have
        just changed it; ``CommandError`` if it is unreachable. It is named like a file, and its
        body may be longer than what counts."""
        try:
            with waiting_for(origin.robots_url):
                answer = await self.origins.fetcher.fetch(
                    origin, Request(origin.robots_url)
                )
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
        why = robots.explain(
            request.url,
            comparable(path_in(request)),
            chain,
            obey_global=self.settings.obey_global_group,
            max_delay=self.settings.max_delay,
        )
        if not why.allowed:
            if why.unreachable:
                raise CommandError(why.reason, Status.UNREACHABLE)
            raise CommandError(f"forbidden by {why.reason}", Status.FOUND)

    async def download(self, request: Request, **meta: Any) -> Response:
        """Return the response to *request*, or raise ``CommandError``. Asks neither the scheduler
        nor robots.txt, and leaves redirects to :func:`follow`."""
        engine = self.context.crawler.engine
        assert engine is not None
        meta = {
            "dont_redirect": True,
            HOP_KEY: request.meta.get(HOP_KEY, Plain()),
            **meta,
        }
        request = request.replace(callback=NO_CALLBACK, meta=meta)
        self.context.engine.hand_over()
        try:
            with waiting_for(request.url):
                response = await engine.download_async(request)
            self.origins.targets.check_answer(request, response)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a handler or a middleware raises)
            raise CommandError(text_of(error), Status.UNREACHABLE) from None
        return response

    async def refuses(self, target: Origin, by: Origin) -> str:
        """Return why not to request anything from *target*, which *by* named; "" for no reason."""
        refused = await self.origins.targets.refuses(target, by)
        return (
            "not read: its host has a private address (see REP_PRIVATE_HOSTS)"
            if refused
            else ""
        )

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        answer = flight.answer
        entry, stale = state.entry, isinstance(state.status, Stale)
        failed = entry.unreachable_since is not None
        latest: Answer | Entry = (
            answer or entry
        )  # the entry keeps only answers that count
        notes = [
            answer.note if answer is not None else "",
            "" if failed else entry.note,
        ]
        facts = Facts(
            origin=entry.origin,
            robots_url=state.origin.robots_url,
            status=latest.status,
            hops=latest.hops,
            final_url=latest.url or None,
            fetched_at=entry.fetched_at,
            fresh_until=entry.fresh_until if entry.fetched_at is not None else None,
            from_cache=answer is None,
            stale=stale,
            error=entry.error if failed else None,
            setting=state.status.setting or None,
        )
        self._files[state.origin] = RobotsFile(
            Outcome.UNREACHABLE if failed and not stale else entry.outcome,
            entry.body,
            facts,
            forbids=state.forbids_all,
            unrestricted=isinstance(state.status, Unrestricted),
            pass_unreachable=self.settings.unreachable == "allow",
            note="; ".join(filter(None, notes)),
        )

    def failed(self, origin: Origin, error: Exception) -> None:
        facts = Facts(str(origin), origin.robots_url, error=text_of(error))
        self._files[origin] = RobotsFile(Outcome.UNREACHABLE, facts=facts)
