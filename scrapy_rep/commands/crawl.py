"""How ``scrapy robots`` fetches: through Scrapy's engine, in a crawl whose spider
yields no requests. The project's settings, proxies, handlers, delays, downloader
middlewares and robots.txt cache apply. What only crawls of pages need, such as
pipelines, is left out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

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
    ExitStatus,
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
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.queue import Flight
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

# After this many seconds of silence, a line says what the command waits for.
_SILENT_SECONDS = 5.0

# So many origins are asked for their robots.txt ahead of the origin whose answer is
# used next, so that a slow origin doesn't hold up all others. Flights
# (origins/flights.py) limits how many of these fetches run at a time.
_ORIGINS_AHEAD = 256

# Settings with other values than in the project's crawls. No page is crawled, so
# nothing is scheduled, resumed, seeded, stored, observed or closed early.
_OVERRIDDEN_SETTINGS: dict[str, Any] = {
    "ROBOTSTXT_OBEY": False,
    "JOBDIR": None,
    "SCHEDULER": "scrapy.core.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    "SPIDER_MIDDLEWARES": {},
    "ITEM_PIPELINES": {},
    "EXTENSIONS_BASE": {},
    "EXTENSIONS": {"scrapy.extensions.throttle.AutoThrottle": 0},
}


class UrlRequest(NamedTuple):
    """A URL that the command is asked about, and the request for it."""

    url: str
    """The URL as the user gave it."""
    request: Request
    origin: Origin


class CrawlTask(Task):
    """A task with a project's settings, which can fetch."""

    def __init__(
        self,
        command: ScrapyCommand,
        arguments: Sequence[str],
        options: Namespace,
    ) -> None:
        """Raises ``SettingsError`` for a wrong setting, ``WrongUsage`` for a wrong
        ``--agent``."""
        assert command.settings is not None  # Scrapy sets it
        self._command = command
        self.settings = command.settings
        """All settings of the project."""
        self.rep = RepSettings.from_settings(command.settings)
        """The settings that begin with ``REP_``, checked and converted."""
        super().__init__(arguments, options)

    @property
    def obey_global(self) -> bool:
        return self.rep.obey_global_group

    @property
    def max_delay(self) -> float | None:
        return self.rep.max_delay

    def agents(self, agents: Agents | None = None) -> list[Chain]:
        """Return the crawlers that the command asks about: those of
        :meth:`_agents_of_options`, if there are any. If not, a command that only reads
        a file, without ``--spider``, asks about any crawler that no group names; any
        other command asks about the crawler that the project's crawls go by.

        :param agents: how the crawl finds out its crawler's name; None for a command
            that only reads a file
        """
        named = self._agents_of_options()
        if named:
            return named
        if agents is None and self.options.spider is None:
            return super().agents()
        # use_spider() has put the settings of --spider into self.settings, so any
        # spider class will do.
        agents = agents or Agents(Crawler(Spider, self.settings), self.rep)
        return [agents.default]

    def _agents_of_options(self) -> list[Chain]:
        """Return the crawlers that ``--agent`` names. If it names none: any crawler
        that no group names for ``--agents-of-file`` and ``--agents-known``, which add
        crawlers of their own; without these options, an empty list."""
        options = self.options
        if not self.named_agents and (options.agents_of_file or options.agents_known):
            return super().agents()
        return self.named_agents

    def crawl(self, job: Job) -> None:
        """Run *job* in a crawl of its own. Raises what *job* raises, and
        ``CommandError`` if the crawl can't start or is stopped before *job* has
        ended."""
        process = self._command.crawler_process
        assert process is not None  # Scrapy sets it
        self.settings.setdict(_OVERRIDDEN_SETTINGS, "cmdline")
        crawler = process.create_crawler(RobotsSpider)
        # Errors that keep the crawl from starting. The job's own error is in
        # RobotsSpider.error.
        errors: list[BaseException | None] = []
        try:
            first_named = next(iter(self._agents_of_options()), None)
            # What crawl() returns is a Deferred or an asyncio Task, depending on the
            # reactor.
            running: Any = process.crawl(crawler, job=job, usual_agent=first_named)
            if isinstance(running, Deferred):
                running.addErrback(lambda failure: errors.append(failure.value))
            process.start()
            if not isinstance(running, Deferred) and not running.cancelled():
                errors.append(running.exception())
        except asyncio.InvalidStateError:
            pass  # the crawl's asyncio Task hasn't ended: Ctrl-C came early
        except Exception as error:  # noqa: BLE001 (the project's parts are made here)
            errors.append(error)
        for crawl_error in errors:
            if isinstance(crawl_error, Exception):
                message = text_of(crawl_error)
                raise CommandError(message, ExitStatus.UNREACHABLE) from crawl_error
        # There is no spider if the crawl was stopped before it began. Then the error
        # with which each RobotsSpider begins is raised.
        job_error = getattr(crawler.spider, "error", RobotsSpider.error)
        if job_error is not None:
            raise job_error

    def requests(self) -> list[UrlRequest]:
        """Return a request for each URL that is given. Complains about invalid URLs."""
        url_requests = []
        for question in self.questions():
            request = request_for(question.url)
            origin = origin_of(request)
            url_requests.append(UrlRequest(question.url, request, origin))
        return url_requests

    @contextmanager
    def storage(self) -> Iterator[Storage | None]:
        """Open the project's robots.txt cache (``REP_CACHE_STORAGE``), and close it
        afterwards. Yields None if the cache is in memory, where it ends with each
        crawl. Whatever the storage raises (no server, no permission, a file of a newer
        version) becomes ``CommandError``."""
        storage = make_storage(Crawler(Spider, self.settings), self.rep)
        try:
            # This is not isinstance(), since a project's subclass may keep its entries
            # somewhere.
            is_in_memory = type(storage) is MemoryStorage
            yield None if is_in_memory else storage
        except (Ending, WrongUsage):
            raise
        except Exception as error:  # noqa: BLE001 (whatever a storage raises)
            message = f"the cache can't be used: {text_of(error)}"
            raise CommandError(message, ExitStatus.UNREACHABLE) from None
        finally:
            storage.close()


def use_spider(settings: Settings, name: str) -> None:
    """Apply the settings of a spider and the agent that its class names, or raise
    ``WrongUsage``."""
    try:
        spider = get_spider_loader(settings).load(name)
    except KeyError:
        raise WrongUsage(f"no such spider: {name!r}") from None
    spider.update_settings(settings)
    # In a crawl, attributes of the spider win over settings.
    setting_by_attribute = {
        SPIDER_ATTRIBUTE: "REP_USER_AGENT",
        "user_agent": "USER_AGENT",
    }
    for attribute, setting in setting_by_attribute.items():
        value = getattr(spider, attribute, None)
        if value is not None:
            settings.set(setting, value, "cmdline")


def request_for(url: str) -> Request:
    """Return a request for *url*, or raise ``CommandError``."""
    # This call only checks the URL. Its errors say more than those of Request().
    question_about(url)
    return Request(url)


@contextmanager
def waiting_for(url: str) -> Iterator[None]:
    """If the work within takes long, say on standard error that it waits for *url*."""
    timer = call_later(_SILENT_SECONDS, complain, f"waiting for {url}")
    try:
        yield
    finally:
        timer.cancel()


class _Complainer(logging.Handler):
    """Prints log records as the command prints its own errors."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


def set_up_logging(settings: Settings) -> None:
    """Print our own warnings to standard error if the log is off, as it is by
    default."""
    if not settings.getbool("LOG_ENABLED"):
        get_logger("scrapy_rep").addHandler(_Complainer(logging.WARNING))


class RobotsSpider(Spider):
    """Runs a job (commands/task.py) while the engine runs; yields no requests."""

    name = "scrapy-robots"
    error: Exception | None = CommandError(
        "stopped before it was done", ExitStatus.UNREACHABLE
    )
    """What CrawlTask.crawl() raises in the end. When the job has ended, this becomes
    None; when the job has failed, the job's error."""
    job: Job
    usual_agent: Chain | None = None
    """The first crawler that options name; None if they name none. CrawlTask.crawl()
    passes it and :attr:`job` as arguments of the spider, which Scrapy sets as
    attributes."""

    async def start(self) -> AsyncIterator[Any]:
        """Run the job until it ends, or until the spider is closed: by Ctrl-C, or by a
        middleware of the project."""
        try:
            running: Deferred[None] = deferred_from_coro(
                self._run(Lookup(self.crawler, self.usual_agent))
            )

            async def cancel_job() -> None:
                running.cancel()

            # EngineAccess calls cancel_job() before the engine closes the spider.
            EngineAccess(self.crawler).before_closing(Stage.SEEDING, cancel_job)
            await maybe_deferred_to_future(running)
            self.error = None
        except (CancelledError, asyncio.CancelledError):
            # The spider is closing: cancel_job() was called, or the engine cancelled
            # start(). RobotsSpider.error stays, which says so.
            pass
        except Exception as error:  # noqa: BLE001 (Scrapy would only log it)
            self.error = error
        return
        yield  # makes start() an asynchronous generator, as Scrapy expects

    async def _run(self, lookup: Lookup) -> None:
        """Run the job, then end the fetches that it leaves running."""
        try:
            await self.job(lookup)
        finally:
            # If they went on, the spider would wait for files that nobody needs any
            # more.
            lookup.origins.flights.end()


async def follow(
    lookup: Lookup,
    request: Request,
    get: Callable[[Request], Awaitable[Response]],
    max_redirects: int = MAX_HOPS,
) -> Response:
    """Follow the redirects of *request*, and return the last response, or raise
    ``CommandError``.

    :param get: fetches one URL, if the robots.txt of its own origin allows it
    """
    visited: list[str] = []
    first_origin = origin_of(request)
    while request.url not in visited and len(visited) <= max_redirects:
        visited.append(request.url)
        origin = origin_of(request)
        # Lookup.download() hands the Plain (origins/fetcher.py) to the engine. It keeps
        # what only the first origin should get, such as credentials, from all others.
        request.meta[HOP_KEY] = Plain(is_elsewhere(origin, first_origin))
        try:
            response = await get(request)
        except CommandError as error:
            if len(visited) == 1:  # no redirect yet
                raise
            message = f"redirects to {request.url}: {error}"
            raise CommandError(message, error.status) from None
        if response.status not in REDIRECTS:
            return response
        # Follow the redirect, if the project may contact its target.
        target = redirect_target(request.url, response)
        if target is None:
            problem = f"HTTP {response.status} without a usable target"
            raise CommandError(problem, ExitStatus.UNREACHABLE)
        request = Request(target)
        problem = await lookup.why_refused(origin_of(request), origin)
        if problem:
            raise CommandError(
                f"redirects to {target}: {problem}", ExitStatus.UNREACHABLE
            )
    raise CommandError(
        f"redirects in a loop, or more than {max_redirects} times",
        ExitStatus.UNREACHABLE,
    )


class Lookup(ResolutionListener):
    """Looks up what robots.txt files say, and fetches each file once. Also downloads
    what the files allow: call :meth:`check_allowed` before :meth:`download`.

    As a ``ResolutionListener`` (origins/flights.py), it is told what each fetch comes
    to: by :meth:`resolved`, or by :meth:`failed` if there can be no answer.
    """

    part = "look-up"
    """Names this listener in log lines about its errors."""

    def __init__(self, crawler: Crawler, usual_agent: Chain | None = None) -> None:
        """The engine of *crawler* must be running. *usual_agent*: the product tokens
        for which robots.txt is fetched; None for those that the project's crawls go
        by."""
        self.settings = settings = RepSettings.from_settings(crawler.settings)
        self.context = CrawlContext(crawler, settings, time.time)
        self.origins = Origins(self.context, usual_agent)
        self.origins.flights.notify(self)  # which calls resolved() or failed()
        self._files: dict[Origin, RobotsFile] = {}
        """The files fetched so far. One that failed has the outcome ``UNREACHABLE``."""

    async def robots_of_each(
        self,
        origins: Sequence[Origin],
    ) -> AsyncIterator[tuple[Origin, RobotsFile]]:
        """Yield the robots.txt of each origin, in order. Those of the next origins are
        fetched meanwhile."""
        flights = self.origins.flights
        for origin in origins[:_ORIGINS_AHEAD]:
            flights.to(origin)  # begins to fetch its robots.txt
        for origin, origin_ahead in zip_longest(origins, origins[_ORIGINS_AHEAD:]):
            robots = await self.robots_of(origin)
            del self._files[origin]  # there may be too many files to keep them all
            if origin_ahead is not None:
                flights.to(origin_ahead)
            yield origin, robots

    async def robots_of(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin*, and keep it for the next caller."""
        if origin not in self._files:
            with waiting_for(origin.robots_url), suppress(*CONFIGURATION_ERRORS):
                await self.origins.flights.to(origin).wait()
        return self._files[origin]

    async def fetch_now(self, origin: Origin) -> RobotsFile:
        """Return the robots.txt of *origin* as it is now: without the cache, since its
        owner may just have changed it. ``CommandError`` if it is unreachable. As with a
        local file, ``facts.file`` names the robots.txt, and the body may be longer than
        the 512,000 bytes that count."""
        request = Request(origin.robots_url)
        try:
            with waiting_for(origin.robots_url):
                answer = await self.origins.fetcher.fetch(origin, request)
        except CONFIGURATION_ERRORS as error:
            raise CommandError(text_of(error), ExitStatus.UNREACHABLE) from None
        if answer.outcome is Outcome.UNREACHABLE:
            why = noted(answer.reason, answer.note)
            raise CommandError(f"unreachable: {why}", ExitStatus.UNREACHABLE)
        facts = Facts(
            origin=str(origin),
            robots_url=origin.robots_url,
            file=origin.robots_url,
            status=answer.status,
            hops=answer.hops,
        )
        return RobotsFile(answer.outcome, answer.body, facts, note=answer.note)

    async def check_allowed(self, request: Request, chain: Chain) -> None:
        """Raise ``CommandError`` unless robots.txt allows *request*."""
        robots = await self.robots_of(origin_of(request))
        explanation = robots.explain(
            request.url,
            comparable(path_in(request)),
            chain,
            obey_global=self.settings.obey_global_group,
            max_delay=self.settings.max_delay,
        )
        if explanation.allowed:
            return
        if explanation.unreachable:
            raise CommandError(explanation.reason, ExitStatus.UNREACHABLE)
        raise CommandError(f"forbidden by {explanation.reason}", ExitStatus.FOUND)

    async def download(self, request: Request, **meta: Any) -> Response:
        """Return the response to *request*, or raise ``CommandError``. Asks neither the
        scheduler nor robots.txt (see :meth:`check_allowed`), and leaves redirects to
        :func:`follow`. *meta* is that of the request, besides what is set here."""
        engine = self.context.crawler.engine
        assert engine is not None  # it runs while there is a Lookup
        # The object under HOP_KEY downloads the request (Downloads in
        # engine/access.py). Plain removes the headers that the project's middlewares
        # add for pages.
        hop = request.meta.get(HOP_KEY, Plain())
        meta = {"dont_redirect": True, HOP_KEY: hop, **meta}
        request = request.replace(callback=NO_CALLBACK, meta=meta)
        try:
            with waiting_for(request.url):
                response = await engine.download_async(request)
            # Raises an error if the handler was led to a private address, see
            # REP_PRIVATE_HOSTS.
            self.origins.targets.check_answer(request, response)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (whatever a handler or a middleware raises)
            raise CommandError(text_of(error), ExitStatus.UNREACHABLE) from None
        return response

    async def why_refused(self, target: Origin, source: Origin) -> str:
        """Return why nothing must be requested from *target*, which a redirect or a
        sitemap of *source* points to; "" if requests are allowed."""
        if await self.origins.targets.refuses(target, source):
            return "not read: its host has a private address (see REP_PRIVATE_HOSTS)"
        return ""

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Keep what is known of an origin, now that a fetch has ended or the cache had
        an answer."""
        answer = flight.answer  # None if the cache had one, so that nothing was fetched
        entry = state.entry
        is_stale = isinstance(state.status, Stale)
        is_failing = entry.unreachable_since is not None
        # The entry has the last answer that counts. The latest answer may be one that
        # doesn't, such as a status 500.
        latest: Answer | Entry = entry if answer is None else answer
        # What is strange about the latest answer, and about the one that counts.
        notes = []
        if answer is not None and answer.note:
            notes.append(answer.note)
        if not is_failing and entry.note:
            notes.append(entry.note)
        facts = Facts(
            origin=entry.origin,
            robots_url=state.origin.robots_url,
            status=latest.status,
            hops=latest.hops,
            final_url=latest.url or None,
            fetched_at=entry.fetched_at,
            fresh_until=None if entry.fetched_at is None else entry.fresh_until,
            from_cache=answer is None,
            stale=is_stale,
            error=entry.error if is_failing else None,
            setting=state.status.setting or None,
        )
        # While the origin fails, an older copy that is still in use decides; without
        # such a copy, nothing decides.
        outcome = entry.outcome
        if is_failing and not is_stale:
            outcome = Outcome.UNREACHABLE
        self._files[state.origin] = RobotsFile(
            outcome,
            entry.body,
            facts,
            forbids=state.forbids_all,
            unrestricted=isinstance(state.status, Unrestricted),
            pass_unreachable=self.settings.unreachable == "allow",
            note="; ".join(notes),
        )

    def failed(self, origin: Origin, error: Exception) -> None:
        """Note that there will be no answer from *origin*, mostly because the project's
        configuration can't fetch from it."""
        facts = Facts(str(origin), origin.robots_url, error=text_of(error))
        self._files[origin] = RobotsFile(Outcome.UNREACHABLE, facts=facts)
