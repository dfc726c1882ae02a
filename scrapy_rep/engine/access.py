"""Scrapy's engine: how a crawl begins and ends, its download slots and its signals. The one place
that uses undocumented names of the engine, where documented ones don't do.
`tests/engine/test_scrapy_private.py` fails when one goes away.

Someone may be waiting for a crawl (``scrapy shell``, ``fetch``, ``view``, ``parse`` and ``check``). A
wrong setting ends it before anything is fetched, with one sentence in the log and no traceback.

It ends in steps. Scrapy sends no signal before it closes the scheduler, so this wraps
``close_spider_async``, which every way to close goes through.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from enum import IntEnum
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import Request, signals
from scrapy.core import downloader as scrapys
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spiders import CrawlSpider
from scrapy.utils import httpobj
from scrapy.utils import request as of_requests
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.python.failure import Failure

from scrapy_rep.engine.log import Isolation, get_logger
from scrapy_rep.engine.timers import pause

logger = get_logger(__name__)

META_KEY = "download_slot"

HOP_KEY = "_rep_hop"
"""In the meta of a request for a file of ours: what downloads it, see :meth:`EngineAccess.hand_over`."""

# The clock of Slot.lastseen; time.time in older Scrapy.
_clock = time.monotonic if hasattr(scrapys, "monotonic") else time.time

# What randomizes a slot's delay: a fraction; in older Scrapy a bool, which means 0.5.
_JITTER = "jitter" if hasattr(scrapys.Slot, "jitter") else "randomize_delay"

# What Scrapy keeps of each request that it has seen: nothing breaks if these go away.
_CACHES: list[Any] = [
    getattr(httpobj, "_urlparse_cache", {}),
    getattr(of_requests, "_fingerprint_cache", {}),
]

# Origins and agents of a slot whose delays are remembered, the longest. A delay of another counts once
# it is requested again.
_MAX_ORIGINS = 100

Chain = tuple[str, ...]
# Packages whose middlewares are known to make nothing else of a refusal.
_KNOWN = {"scrapy", "scrapy_rep"}

REASON = "rep_settings_error"
"""The crawl's ``finish_reason``."""

# Seconds between checks whether the engine runs.
_START_SECONDS = 0.01
# Someone waits there: nothing is held, no sitemaps are crawled. `scrapy robots` crawls nothing.
_COMMANDS = ("scrapy.commands.", "scrapy_rep.commands.")


def concurrency_of(crawler: Crawler) -> int:
    """Return ``CONCURRENT_REQUESTS``; Scrapy's default, 16, if it is 0: no limit."""
    return crawler.settings.getint("CONCURRENT_REQUESTS") or 16


def when_opened(crawler: Crawler, start: Callable[[], object]) -> None:
    """Call *start*, a method whose object lives as long as the crawl, when the spider opens; at once if it
    has: for a command's, while its crawl runs."""
    engine = None
    with suppress(RuntimeError):  # in newer Scrapy, if there is none so far
        engine = crawler.engine
    if engine is None:
        crawler.signals.connect(start, signals.spider_opened)
    else:
        start()


def in_shell(crawler: Crawler) -> bool:
    """Whether this is ``scrapy shell``, which makes middlewares before the spider. Ask only then."""
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether this is one of these commands, which put their own start() into the spider's class."""
    start = getattr(crawler.spidercls, "start", None)
    return in_shell(crawler) or getattr(start, "__module__", "").startswith(_COMMANDS)


class StopAtStart:
    """Replaces the middleware and refuses everything until the crawl ends."""

    def __init__(self, crawler: Crawler, message: str) -> None:
        self._crawler = crawler
        self._message = message
        self._in_shell = in_shell(crawler)
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    def process_request(self, request: Request) -> None:
        # The shell doesn't show an IgnoreRequest.
        raise (ValueError if self._in_shell else IgnoreRequest)(self._message)

    def _engine_started(self, **_: Any) -> None:
        extra = {"spider": self._crawler.spider}
        logger.error(
            "%(message)s The crawl ends.", {"message": self._message}, extra=extra
        )
        if not self._in_shell:  # fetch() would wait for ever
            # Nothing leaves the scheduler meanwhile: with a JOBDIR, requests wait for the next run.
            self._crawler.engine.pause()
            deferred_from_coro(self._close())

    async def _close(self) -> None:
        engine = self._crawler.engine
        await pause()
        while engine.spider is not None and not engine.running:
            # Another handler of engine_started isn't done (Scrapy's remote control starts a server).
            # If the spider closed now, there would be no engine_stopped.
            await pause(_START_SECONDS)
        if engine.spider is not None:  # else something else closed it
            await engine.close_spider_async(reason=REASON)

    def _engine_stopped(self) -> None:
        # Without a spider, the crawl counts as failed to start: `bootstrap_failed`, exit status 1.
        # An exception does that too, but is logged with its traceback.
        self._crawler.spider = None


class Stage(IntEnum):
    """The order of the steps."""

    SEEDING = 1  # no more pages from sitemaps, which could still be held
    HOLDING = 2  # requests that wait or are held are saved, or their errbacks called
    GATE = 3  # the scheduler is left to itself


class Closing:
    """Stands in for an engine's ``close_spider_async``."""

    def __init__(self, engine: ExecutionEngine) -> None:
        self._engine = engine
        self._close = engine.close_spider_async
        self._lock = DeferredLock()
        self._wishes: list[dict[str, Any]] = []
        self.steps: list[tuple[Stage, Callable[[], Awaitable[None]]]] = []
        """Each is awaited once, in the order of their stages."""

    @classmethod
    def of(cls, engine: Any) -> Closing:
        """Return *engine*'s, which is put in place if there is none."""
        if not isinstance(engine.close_spider_async, cls):
            engine.close_spider_async = cls(engine)
        closing: Closing = engine.close_spider_async
        return closing

    async def __call__(self, **wish: Any) -> None:
        """Close the spider after all steps. Further calls wait (the engine, not yet closing, may
        find that it is idle); the first reason counts.

        Nothing happens before the loop's next turn. Closing breaks the engine in a signal handler
        for a request just taken from the scheduler, and, without asyncio, on Ctrl-C: Scrapy
        iterates over its set of crawlers, which must not shrink.
        """
        self._wishes.append(wish)
        self._engine.pause()  # it takes no more requests
        await pause()
        await maybe_deferred_to_future(self._lock.acquire())
        isolated = Isolation(self._engine.crawler)
        try:
            while self.steps:
                next_one = min(self.steps, key=lambda step: step[0])
                self.steps.remove(next_one)
                with isolated(
                    "work before closing"
                ):  # or the spider would stay open, paused
                    await next_one[1]()
        finally:
            self._lock.release()
        # Or its loop may go on reading start(), and schedule requests after the scheduler's end.
        self._engine._start = None
        self._engine.unpause()
        if self._engine.spider is not None:  # else another call closed it
            await self._close(**self._wishes[0])


class RunningClock:
    """Seconds for which the crawl has run since this was made, without the time in which it was paused
    (by ``engine.pause()``, from the telnet console say). Scrapy sends no signal when that happens."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._began_at = time.monotonic()
        self._paused_at: float | None = None
        self._paused_for = 0.0
        when_opened(crawler, self._watch)

    def __call__(self) -> float:
        now = time.monotonic() if self._paused_at is None else self._paused_at
        return now - self._began_at - self._paused_for

    def _watch(self) -> None:
        """Stand in for the engine's ``pause()`` and ``unpause()``."""
        engine = self._crawler.engine
        pause_engine, unpause_engine = engine.pause, engine.unpause

        def paused() -> None:
            pause_engine()
            if self._paused_at is None:
                self._paused_at = time.monotonic()

        def unpaused() -> None:
            unpause_engine()
            if self._paused_at is not None:
                self._paused_for += time.monotonic() - self._paused_at
                self._paused_at = None

        engine.pause, engine.unpause = paused, unpaused


Download = Callable[[Request], Awaitable[Response]]
"""Downloads a request: ``DownloadHandlers.download_request_async``, or what stands in for it."""


class Downloads:
    """Stands in for ``download_request_async`` of the downloader's handlers, which is called when a
    request leaves the queue of its download slot. The signal ``request_reached_downloader`` is sent
    before it enters that queue, where it may wait for minutes; nothing documented tells of its end.
    """

    def __init__(self, download: Download) -> None:
        self._download = download

    def __call__(self, request: Request) -> Awaitable[Response]:
        hop = request.meta.get(HOP_KEY)
        if hop is None:
            return self._download(request)
        answer: Awaitable[Response] = hop.download(request, self._download)
        return answer


class Trail:
    """Follows requests that have a number each, such as a row in a file of ours, until the crawl is done
    with them: until their callback's or errback's output was handled, or nothing took them.

    The number is in a request's meta, so retries and redirects have it too, as does what Scrapy's queue
    on disk returns. It leaves the meta when a response is on its way to the callback, since callbacks
    copy the meta to requests for other pages.
    """

    def __init__(
        self,
        key: str,
        on_done: Callable[[int], None],
        *,
        is_kept: Callable[[], bool],
        in_memory: bool,
    ) -> None:
        """See :meth:`Following.trail`."""
        self.key = key
        self.is_kept = is_kept
        self.in_memory = in_memory
        self._on_done = on_done
        # A request may come from Scrapy's queue with the number of an earlier run.
        self._run = time.time_ns()
        self._carriers: dict[
            int, int
        ] = {}  # how many requests carry a number, by number
        self._in_progress: dict[
            Request, int
        ] = {}  # the numbers of those that the engine has taken

    @property
    def numbers(self) -> list[int]:
        """The numbers that the crawl isn't done with."""
        return list(self._carriers)

    def begin(self, request: Request, number: int) -> None:
        """Follow *request*, which the caller has at present: see :meth:`let_go`."""
        request.meta[self.key] = self._run, number
        self._carriers[number] = 1

    def number_of(self, request: Request) -> int | None:
        """Return the number of *request*; None if it has none, or the crawl is done with it."""
        value = request.meta.get(self.key)
        if value is None:  # of nearly all requests
            return None
        try:
            run, number = value
            is_followed = run == self._run and number in self._carriers
        except (TypeError, ValueError):  # a project has used the key
            return None
        return number if is_followed else None

    def let_go(self, number: int) -> None:
        """Note that one request less carries *number*."""
        carriers = self._carriers.get(number)
        if carriers is None:
            return
        if carriers > 1:
            self._carriers[number] = carriers - 1
            return
        del self._carriers[number]
        self._on_done(number)

    def forget(self, number: int) -> None:
        """Follow *number* no longer, without a word."""
        self._carriers.pop(number, None)

    # What happens to any request

    def scheduled(self, request: Request) -> None:
        number = self.number_of(request)
        if number is not None:
            self._carriers[number] += 1

    def taken(self, request: Request) -> None:
        number = self.number_of(request)
        if number is None:
            return
        if number in self._in_progress.values():
            # Somebody downloads a copy of it directly, which was not scheduled.
            self._carriers[number] += 1
        self._in_progress[request] = number

    def answered(self, request: Request) -> None:
        request.meta.pop(self.key, None)

    def ended(self, request: Request) -> None:
        number = self._in_progress.pop(request, None)
        if number is not None:
            self.let_go(number)

    def stored(self, request: Request) -> None:
        number = self.number_of(request)
        if number is not None:
            self.let_go(number)


class _InProgress(set[Request]):
    """Stands in for ``_slot.inprogress``, where a request is from the moment in which the engine takes it
    from the scheduler until the output of its callback or errback was handled. Nothing documented tells
    of that end: an ``IgnoreRequest`` in a ``process_response`` sends no signal."""

    def __init__(self, requests: set[Request], trails: list[Trail]) -> None:
        super().__init__(requests)
        self._trails = trails

    def add(self, request: Request) -> None:
        super().add(request)
        for trail in self._trails:
            if trail.key in request.meta:  # which few requests have
                trail.taken(request)

    def remove(self, request: Request) -> None:
        super().remove(request)
        for trail in self._trails:
            trail.ended(request)


class Following:
    """Tells trails what happens to requests."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._trails: list[Trail] = []
        self._watchers: list[Callable[[Request], None]] = []

    def trail(
        self,
        key: str,
        on_done: Callable[[int], None],
        *,
        is_kept: Callable[[], bool] = lambda: False,
        in_memory: bool = False,
    ) -> Trail:
        """Return a new trail, before :meth:`begin` or while the spider is open.

        :param key: of meta
        :param on_done: gets a number once the crawl is done with all requests that carry it
        :param is_kept: says whether a file still has the requests after the crawl
        :param in_memory: they are few, and held in memory even where others are held on disk
        """
        trail = Trail(key, on_done, is_kept=is_kept, in_memory=in_memory)
        self._trails.append(trail)
        return trail

    def watch(self, watcher: Callable[[Request], None]) -> None:
        """Call *watcher* with each request that the scheduler has taken. To be called before
        :meth:`begin`."""
        self._watchers.append(watcher)

    def begin(self) -> None:
        """Begin, if there are trails: called when the spider opens, before others replace methods of the
        scheduler. So a request that those refuse was not scheduled."""
        engine = self._crawler.engine
        if not self._trails or isinstance(engine._slot.inprogress, _InProgress):
            return
        engine._slot.inprogress = _InProgress(engine._slot.inprogress, self._trails)
        self._crawler.signals.connect(
            self._response_received, signals.response_received
        )
        scheduler = engine._slot.scheduler
        enqueue = scheduler.enqueue_request

        def enqueue_request(request: Request) -> Any:
            answer = enqueue(request)
            if answer is not False:  # some return nothing
                for trail in self._trails:
                    if trail.key in request.meta:
                        trail.scheduled(request)
                for watcher in self._watchers:
                    watcher(request)
            return answer

        # With __slots__, it can't be replaced. Then the crawl is done with a number when the first of its
        # requests has ended.
        with suppress(AttributeError):
            scheduler.enqueue_request = enqueue_request

    def stored(self, request: Request) -> None:
        """Note that a file has *request* from now on, so no trail need follow it any longer."""
        for trail in self._trails:
            trail.stored(request)

    def is_kept(self, request: Request) -> bool:
        """Whether a file still has *request* after the crawl: nobody need hand it to the scheduler."""
        return any(
            trail.number_of(request) is not None and trail.is_kept()
            for trail in self._trails
        )

    def stays_in_memory(self, request: Request) -> bool:
        """Whether *request* is held in memory even where others are held on disk."""
        return any(
            trail.in_memory and trail.number_of(request) is not None and trail.is_kept()
            for trail in self._trails
        )

    def _response_received(self, request: Request) -> None:
        for trail in self._trails:
            trail.answered(request)


class Scheduling:
    """Stands in for an engine's ``crawl()``, to know which request it is about to schedule."""

    def __init__(self, engine: ExecutionEngine) -> None:
        self._crawl = engine.crawl
        self.request: Request | None = None
        engine.crawl = self  # type: ignore[method-assign]

    def __call__(self, request: Request) -> None:
        outer = self.request  # if a signal's handler schedules another request
        self.request = request
        try:
            self._crawl(request)
        finally:
            self.request = outer


class EngineAccess:
    """The engine beyond its documented methods."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self.slots = DownloadSlots(crawler)
        self.following = Following(crawler)

    @contextmanager
    def extra_slot(self) -> Iterator[None]:
        """Add a download slot for what isn't a page: `download_async` and requests that wait in a
        middleware count against CONCURRENT_REQUESTS. 16 silent sites would stop a crawl of 16."""
        downloader = self._crawler.engine.downloader
        # 0: their number isn't limited. Nothing public raises it.
        if not getattr(downloader, "total_concurrency", 0):
            yield
            return
        downloader.total_concurrency += 1
        self.wake()  # else it would look at its next event, up to 5 s away
        try:
            yield
        finally:
            downloader.total_concurrency -= 1

    def hand_over(self) -> bool:
        """From now on, let what a request has in its meta under :data:`HOP_KEY` download it: call that
        object's ``download(request, handler)`` when the request leaves its slot's queue. Return False
        if that can't be: a project's own downloader may have no such handlers."""
        handlers = getattr(self._crawler.engine.downloader, "handlers", None)
        download = getattr(handlers, "download_request_async", None)
        if handlers is None or download is None:
            return False
        if not isinstance(download, Downloads):
            handlers.download_request_async = Downloads(download)
        return True

    def has_listeners(self, signal: object) -> bool:
        """Whether anything is connected to *signal*: sending takes longer than most handlers."""
        receivers = dispatcher.getAllReceivers(self._crawler.signals.sender, signal)
        return any(dispatcher.liveReceivers(receivers))

    def before_closing(self, stage: Stage, step: Callable[[], Awaitable[None]]) -> None:
        """Await *step* once before the spider closes, in the order of :class:`Stage`."""
        Closing.of(self._crawler.engine).steps.append((stage, step))

    def fail(self, request: Request, error: Exception) -> Deferred[None]:
        """Call *request*'s errback and handle its output, as the engine does, by
        ``Scraper.enqueue_scrape``, also while the spider closes. The Deferred fires when done."""
        failure: Any = Failure(error)  # type: ignore[no-untyped-call]
        failure.request = request
        try:
            # Scrapy spends 1 to 5 ms on an errback's output, even on none, and there may be 100,000.
            output = request.errback(failure) if request.errback is not None else None
        except Exception:  # noqa: BLE001
            output = Failure()  # type: ignore[no-untyped-call]
        if output is None or output is failure:
            return succeed(None)

        def hand_over(_: Failure) -> Any:
            # Scrapy has just put the copy there. A generator's body has not begun to run yet.
            failure.request = request
            return output

        scraped = copy(request)
        scraped.errback = hand_over
        done: Deferred[None] = self._crawler.engine.scraper.enqueue_scrape(
            failure, scraped
        )
        return done

    @staticmethod
    def has_errback(request: Request) -> bool:
        """Whether *request* has an errback that does something. CrawlSpider's own,
        ``CrawlSpider._errback``, does nothing if its rule has none."""
        errback: Any = request.errback
        if getattr(errback, "__func__", None) is not CrawlSpider._errback:
            return errback is not None
        spider = errback.__self__
        if type(spider)._handle_failure is not CrawlSpider._handle_failure:
            return True
        try:
            return spider._rules[request.meta["rule"]].errback is not None
        except (
            KeyError,
            IndexError,
            TypeError,
        ):  # somebody has changed the request's meta
            return True

    def obstacle_before(self, ours: object) -> str:
        """Return which downloader middleware might make of a request something else than *ours*
        refuses, and why; empty if there is none. Scrapy has no documented list of them: the
        downloader's manager of middlewares has, in ``methods``."""
        manager = getattr(self._crawler.engine.downloader, "middleware", None)
        methods = getattr(manager, "methods", None)
        if methods is None:
            return "the downloader isn't Scrapy's"
        for method in methods["process_request"]:
            owner = getattr(method, "__self__", None)
            if owner is ours:
                break
            if (
                getattr(method, "__func__", None)
                is not OffsiteMiddleware.process_request
            ):
                return f"{_name_of(method)} sees requests before {type(ours).__name__} does"
        else:
            return f"{type(ours).__name__} is not among the downloader middlewares"
        if not _is_known(method):
            return f"{type(ours).__name__} has a process_request() of its own"
        for method in methods["process_exception"]:
            if method is not None and not _is_known(method):
                return (
                    f"{_name_of(method)} has a process_exception(), which sees refusals"
                )
        return ""

    def scheduling(self) -> Scheduling:
        return Scheduling(self._crawler.engine)

    @staticmethod
    def drop_body(response: Response) -> None:
        """Free a body that won't be read again: the exception that ends a sitemap's request keeps
        its response alive for a while. ``Response._set_body`` is what the constructor calls."""
        response._set_body(b"")

    @staticmethod
    def drop_caches(request: Request) -> None:
        """Free what Scrapy keeps of a request that it has seen, nearly a kilobyte: the parsed URL and
        the fingerprint. It makes them anew when it needs them."""
        for cache in _CACHES:
            cache.pop(request, None)

    @property
    def paused(self) -> bool:
        return bool(self._crawler.engine.paused)

    @property
    def scheduler(self) -> Any:
        """Public since Scrapy 2.19."""
        engine = self._crawler.engine
        return (
            engine.scheduler if hasattr(engine, "scheduler") else engine._slot.scheduler
        )

    @property
    def scheduler_outlives(self) -> bool:
        """Whether requests in the scheduler outlive the process. Not asked of Scrapy's own: with
        JOBDIR they do, but then the hold is on disk."""
        return self.scheduler_is_foreign and bool(
            getattr(self.scheduler, "persist", True)
        )

    @property
    def scheduler_is_foreign(self) -> bool:
        """Whether the scheduler is neither Scrapy's own nor a subclass of it."""
        # Not isinstance(): to Scrapy's base class everything that looks like a scheduler is one.
        return Scheduler not in type(self.scheduler).__mro__

    def start_waits_while(self, is_full: Callable[[], bool]) -> None:
        """Make ``needs_backout()`` true also while *is_full* is, for a ``start()`` that reads on only
        if there is room (in Scrapy's documentation, "Delaying start request iteration"). With others,
        which the engine reads through ``_start``, the event loop would get no turn."""
        engine = self._crawler.engine
        backs_out = engine.needs_backout
        engine.needs_backout = lambda: (
            backs_out() or (getattr(engine._start, "ag_running", False) and is_full())
        )

    def wake(self) -> None:
        """Make the engine look for requests to download: by ``_slot.nextcall``, as ``crawl()``."""
        slot = self._crawler.engine._slot
        if slot is not None:  # None without a crawl
            slot.nextcall.schedule()

    def crawl(self, request: Request) -> None:
        """Crawl *request*, of which a file of ours has a copy, through the memory queue of Scrapy's
        own scheduler. After a kill, disk queues may be read again from the start or not at all, and
        new requests come out corrupted. ``Scheduler.dqs``, undocumented, is None without JOBDIR."""
        scheduler = self.scheduler
        queues = getattr(scheduler, "dqs", None)
        if queues is None:
            self._crawler.engine.crawl(request)
            return
        scheduler.dqs = None
        try:
            self._crawler.engine.crawl(request)
        finally:
            scheduler.dqs = queues


def _name_of(method: Any) -> str:
    """Return the name of a middleware by one of its methods."""
    return type(getattr(method, "__self__", method)).__qualname__


def _is_known(method: Any) -> bool:
    """Whether a middleware's *method* is Scrapy's or ours, with all that it may call by super()."""
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    classes = [kind for kind in type(owner).__mro__ if name in vars(kind)]
    packages = {str(kind.__module__).partition(".")[0] for kind in classes}
    is_replaced = name in getattr(owner, "__dict__", {})
    return bool(packages) and packages <= _KNOWN and not is_replaced


class Listener:
    """Calls handlers while it listens."""

    def __init__(
        self, crawler: Crawler, handlers: dict[object, Callable[..., Any]]
    ) -> None:
        """*handlers*: by signal; signals keep only weak references."""
        self._signals = crawler.signals
        self._handlers = handlers
        self._wanted = self._connected = False

    def listen(self, wanted: bool) -> None:
        """Begin at once, or stop on the loop's next turn: others would miss a signal being sent."""
        self._wanted = wanted
        if wanted:
            self._update()
        elif self._connected:
            call_later(0, self._update)

    def _update(self) -> None:
        if self._connected != self._wanted:
            self._connected = self._wanted
            change = self._signals.connect if self._wanted else self._signals.disconnect
            for signal, handler in self._handlers.items():
                change(handler, signal)


class _Slowed(NamedTuple):
    slot: Any
    own: tuple[int, float, Any]  # the project's concurrency, delay (seconds) and jitter
    delay: float  # the longest of these
    wanted: dict[tuple[str, Chain], float]  # seconds by origin and agent


class _Never:
    """In place of a slot's timer, which isn't going to call."""

    def cancel(self) -> None:
        pass


class PacedSlot:
    """A download slot that sends a request only when it is told to. While ``Slot.latercall`` is set,
    Scrapy's ``Downloader._process_queue`` sends nothing from a slot."""

    def __init__(self, downloader: Any, slot: Any) -> None:
        self._downloader = downloader
        self._slot = slot
        self._sent: Request | None = None  # and hasn't come back yet
        self._is_due = False  # somebody is finding out when the next one may be sent
        self._stop()

    def _stop(self, timer: Any = None) -> None:
        """Let nothing be sent before *timer* calls."""
        if self._slot.latercall:
            self._slot.latercall.cancel()
        self._slot.latercall = timer or _Never()

    def is_of(self, slot: Any) -> bool:
        return self._slot is slot

    def take_next(self) -> Request | None:
        """Return the request to send next, for which :meth:`send_in` is to be called; None if none
        waits, if one is being transferred, or if somebody has this one already."""
        slot = self._slot
        if (
            self._is_due
            or self._sent is not None
            or slot.transferring
            or not slot.queue
        ):
            return None
        self._is_due = True
        request: Request = slot.queue[0][0]
        return request

    @property
    def own_seconds(self) -> float:
        """The seconds for which Scrapy would wait, from when the last response ended."""
        slot = self._slot
        return max(0.0, float(slot.lastseen + slot.download_delay() - _clock()))

    def send_in(self, seconds: float) -> None:
        """Send the next request in some *seconds*."""
        self._stop(call_later(max(0.0, seconds), self._send))

    def _send(self) -> None:
        slot = self._slot
        request = slot.queue[0][0] if slot.queue else None
        # Long ago: the slot's own delay is over.
        slot.latercall, slot.lastseen = None, _clock() - 2 * slot.delay - 1
        self._downloader._process_queue(slot)
        self._is_due = False
        if request is not None and not (slot.queue and slot.queue[0][0] is request):
            self._sent = request
        self._stop()

    def came_back(self, request: Request) -> None:
        """Note that the transfer of *request* has ended, with a response or without."""
        if request is self._sent:
            self._sent = None

    def release(self) -> None:
        """Leave the slot to Scrapy again."""
        self._slot.latercall = None
        self._downloader._process_queue(self._slot)


class DownloadSlots:
    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._paced: dict[str, PacedSlot] = {}  # by key; some are gone, see paced()
        self.slowed: dict[str, _Slowed] = {}  # by key; some are gone, see _known()
        # As Scrapy's downloader chooses: the setting for domains may be 0 beside the one for addresses.
        per_address = crawler.settings.getint("CONCURRENT_REQUESTS_PER_IP")
        self._usual = per_address or crawler.settings.getint(
            "CONCURRENT_REQUESTS_PER_DOMAIN"
        )

    def key_of(self, url: str) -> str:
        key: str = self._crawler.engine.downloader.get_slot_key(Request(url))
        return key

    def not_there_yet(
        self, request: Request, on_their_way: list[Request]
    ) -> list[Request]:
        """Return those of *on_their_way*, which the engine took, that have not got to the slot of
        *request* so far."""
        slot = self._slot_of(request)
        active = slot.active if slot is not None else ()
        downloading = self._crawler.engine.downloader.active if on_their_way else ()
        return [
            other
            for other in on_their_way
            if other in downloading and other not in active
        ]

    def is_full(self, request: Request, on_their_way: list[Request]) -> bool:
        """Whether the slot of *request* has as many requests as it may have at a time. *on_their_way*:
        others for that slot, which may not have got there so far; they count, too. A slowed slot may have
        as many as others."""
        if getattr(self._crawler.engine.downloader, "slots", None) is None:
            return False  # a project's own downloader may have none
        slot = self._slot_of(request)
        most: int = self._usual if slot is None else max(slot.concurrency, self._usual)
        if most <= 0:
            return False  # Scrapy's downloader makes of it what it makes of any request
        active = len(slot.active) if slot is not None else 0
        return active + len(on_their_way) >= most

    def _slot_of(self, request: Request) -> Any:
        """Return the slot of *request*; None if there is none so far."""
        downloader = self._crawler.engine.downloader
        slots = getattr(downloader, "slots", None)
        return None if slots is None else slots.get(downloader.get_slot_key(request))

    def agents_of(self, key: str, origin: str) -> list[Chain]:
        """Return the agents whose delays the slot *key* keeps for *origin*."""
        slowed = self._known(key)
        return (
            [agent for name, agent in slowed.wanted if name == origin] if slowed else []
        )

    def slow(self, key: str, origin: str, agent: Chain, seconds: float) -> bool:
        """Make the slot *key* send one request at a time, and wait *seconds* after each (0: none), or
        longer for another origin or agent. Return whether *seconds* exceed the project's own delay."""
        slots = self._crawler.engine.downloader.slots
        slot = slots.get(key)
        if slot is None:
            return False
        own = slot.concurrency, slot.delay, getattr(slot, _JITTER)
        _, own, _, wanted = self._known(key) or _Slowed(slot, own, 0.0, {})
        about = origin, agent
        if seconds != wanted.get(about, 0.0):
            if not self.slowed:
                self._crawler.signals.connect(
                    self._downloaded, signals.response_downloaded
                )
            elif len(self.slowed) > 2 * len(slots):
                # Scrapy removes slots a minute after their last request.
                self.slowed = {
                    key: one for key, one in self.slowed.items() if self._known(key)
                }
            wanted[about] = seconds
            longest = nlargest(_MAX_ORIGINS, wanted.items(), key=itemgetter(1))
            self.slowed[key] = _Slowed(slot, own, longest[0][1], dict(longest))
            slot.concurrency, slot.delay, jitter = own
            setattr(slot, _JITTER, jitter)
            _enforce(slot, longest[0][1])
        return seconds > own[1]

    def _known(self, key: str) -> _Slowed | None:
        """Return what is known of the slot *key*, if Scrapy hasn't removed it since."""
        slowed = self.slowed.get(key)
        slot = self._crawler.engine.downloader.slots.get(key)
        return slowed if slowed is not None and slowed.slot is slot else None

    def paced(self, key: str, *, take: bool = False) -> PacedSlot | None:
        """Return the slot *key* if it is paced; with *take*, pace it if it is slowed."""
        downloader = self._crawler.engine.downloader
        slot = downloader.slots.get(key)
        paced = self._paced.get(key)
        if paced is not None and paced.is_of(slot):
            return paced
        slowed = self._known(key)
        if not take or slowed is None or not slowed.delay:
            return None
        if len(self._paced) > 2 * len(downloader.slots):
            current = downloader.slots
            self._paced = {
                name: one
                for name, one in self._paced.items()
                if one.is_of(current.get(name))
            }
        paced = self._paced[key] = PacedSlot(downloader, slot)
        return paced

    def unpace(self, key: str) -> bool:
        """Leave the slot *key* to Scrapy again if nothing slows it any more. Return whether it is."""
        slowed, paced = self._known(key), self._paced.get(key)
        if paced is None or (slowed is not None and slowed.delay):
            return False
        del self._paced[key]
        paced.release()
        return True

    def beside(self, url: str, name: str, *, if_slowed: bool = False) -> dict[str, str]:
        """Return meta that gives a request its own slot beside that of *url*, with the project's
        settings. With *if_slowed*, return an empty dict unless the other slot is slowed."""
        key, slots = self.key_of(url), self._crawler.engine.downloader.slots
        slowed = self._known(key)
        if if_slowed and slowed is None:
            return {}
        own = f"{key} ({name})"
        if slowed is not None and own not in slots:
            slots[own] = scrapys.Slot(*slowed.own)
        return {META_KEY: own}

    def _downloaded(self, request: Request) -> None:
        """Count the delay from the end of a response: connecting must not shorten it."""
        slowed = self.slowed.get(request.meta.get(META_KEY, ""))
        if slowed is not None and slowed.delay:
            slowed.slot.lastseen = _clock()
            _enforce(slowed.slot, slowed.delay)


def _enforce(slot: Any, seconds: float) -> None:
    """Raise the slot's delay if needed. AutoThrottle may have lowered it."""
    if seconds:
        jitter, slot.concurrency = getattr(slot, _JITTER), 1
        if slot.delay * (1 - (0.5 if jitter is True else jitter)) < seconds:
            slot.delay = max(slot.delay, seconds)
            setattr(slot, _JITTER, type(jitter)(0))
