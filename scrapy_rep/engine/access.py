"""Scrapy's engine: how a crawl begins and ends, its download slots and its signals.
Undocumented names of the engine are used in this module only, where documented ones
don't do. `tests/engine/test_scrapy_private.py` fails when one of these names goes away.

The beginning: with a wrong setting, the crawl ends before anything is fetched, with one
sentence in the log and no traceback (:class:`StopAtStart`). Somebody may be waiting for
the crawl, in ``scrapy shell``, ``fetch``, ``view``, ``parse`` and ``check``
(:func:`is_interactive`).

The end: Scrapy sends no signal before it closes the scheduler. :class:`Closing` stands
in for ``close_spider_async``, which every way to close goes through, and first does our
own last work.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from enum import IntEnum
from heapq import nlargest
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

from pydispatch import dispatcher  # type: ignore[import-untyped]
from scrapy import Request, signals
from scrapy.core import downloader as downloader_module
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spiders import CrawlSpider
from scrapy.utils import httpobj
from scrapy.utils import request as request_utils
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.python.failure import Failure

from scrapy_rep.engine.log import Isolation, get_logger
from scrapy_rep.engine.timers import pause

logger = get_logger(__name__)

SLOT_KEY = "download_slot"
"""The meta key under which Scrapy notes the download slot of a request."""

HOP_KEY = "_rep_hop"
"""The meta key of the object that downloads a request for a file that the package reads
itself (robots.txt, say), see :class:`Downloads`."""

# The clock by which Scrapy sets Slot.lastseen: time.time in older Scrapy,
# time.monotonic in newer.
_clock = time.time
if hasattr(downloader_module, "monotonic"):
    _clock = time.monotonic

# The attribute of a slot that randomizes its delay. In newer Scrapy it is a fraction.
# In older Scrapy it is a bool; True means the fraction 0.5.
_JITTER = "randomize_delay"
if hasattr(downloader_module.Slot, "jitter"):
    _JITTER = "jitter"
_JITTER_OF_TRUE = 0.5

# Where Scrapy keeps something of each request that it has seen. Nothing breaks if
# Scrapy has no such caches any more.
_CACHES: list[Any] = [
    getattr(httpobj, "_urlparse_cache", {}),
    getattr(request_utils, "_fingerprint_cache", {}),
]

# A download slot may serve several origins and agents. At most this many of their crawl
# delays are remembered, the longest ones. A delay that was forgotten counts again once
# its origin is requested again.
_MAX_DELAYS = 100

Chain = tuple[str, ...]
"""An agent: the names (product tokens) by which it looks for its rules in a robots.txt,
in this order."""

# Packages whose middlewares are known to let a refused request fail, and do nothing
# else with it.
_HARMLESS_PACKAGES = {"scrapy", "scrapy_rep"}

_FINISH_REASON = "rep_settings_error"
"""The crawl's ``finish_reason`` if a setting is wrong."""

# Seconds between checks whether the engine runs: short, since somebody waits for the
# crawl's end.
_START_CHECK_SECONDS = 0.01

# The commands in these modules have a crawl for which somebody waits: in such a crawl,
# nothing is held, and no sitemaps are read. (`scrapy robots` crawls nothing.)
_COMMAND_MODULES = ("scrapy.commands.", "scrapy_rep.commands.")


def concurrency_of(crawler: Crawler) -> int:
    """Return ``CONCURRENT_REQUESTS``; if the setting is 0 (no limit), Scrapy's default,
    16."""
    return crawler.settings.getint("CONCURRENT_REQUESTS") or 16


def when_opened(crawler: Crawler, start: Callable[[], object]) -> None:
    """Call *start* when the spider opens, or now if it has opened, as for a command
    that makes its parts while its crawl runs. *start* is a method, whose object must
    live as long as the crawl, since signals keep only weak references."""
    engine = None
    with suppress(RuntimeError):  # newer Scrapy raises it before there is an engine
        engine = crawler.engine
    if engine is None:
        crawler.signals.connect(start, signals.spider_opened)
    else:
        start()


def in_shell(crawler: Crawler) -> bool:
    """Whether this is the crawl of ``scrapy shell``, which makes its middlewares before
    its spider. So the answer is right only while the middlewares are made."""
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether this is the crawl of a command that somebody waits for: ``scrapy shell``,
    ``fetch``, ``view``, ``parse`` or ``check``. Each of these but the shell puts a
    ``start()`` of its own into the spider's class."""
    if in_shell(crawler):
        return True
    start = getattr(crawler.spidercls, "start", None)
    module_name = getattr(start, "__module__", "")
    return module_name.startswith(_COMMAND_MODULES)


class StopAtStart:
    """Takes the place of :class:`~scrapy_rep.RepMiddleware` if a setting is wrong:
    refuses all requests, and ends the crawl."""

    def __init__(self, crawler: Crawler, message: str) -> None:
        self._crawler = crawler
        self._message = message
        self._in_shell = in_shell(crawler)
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    def process_request(self, request: Request) -> None:
        """Refuse *request*, with the message about the wrong setting."""
        if self._in_shell:  # the shell doesn't show an IgnoreRequest
            raise ValueError(self._message)
        raise IgnoreRequest(self._message)

    def _engine_started(self, **_: Any) -> None:
        """Log the message about the wrong setting, and begin to end the crawl."""
        logger.error(
            "%(message)s The crawl ends.",
            {"message": self._message},
            extra={"spider": self._crawler.spider},
        )
        if self._in_shell:
            return  # if the crawl ended, the shell's fetch() would wait for ever
        # While the engine is paused, nothing leaves the scheduler. With a JOBDIR,
        # requests stay there for the next run.
        self._crawler.engine.pause()
        deferred_from_coro(self._close())

    async def _close(self) -> None:
        """Close the spider, once the engine runs. If it were closed earlier, Scrapy
        would send no ``engine_stopped``."""
        engine = self._crawler.engine
        await pause()
        # The engine runs once all handlers of engine_started are done, of which one may
        # start a server.
        while engine.spider is not None and not engine.running:
            await pause(_START_CHECK_SECONDS)
        if engine.spider is not None:  # else something else closed it
            await engine.close_spider_async(reason=_FINISH_REASON)

    def _engine_stopped(self) -> None:
        """Make the crawl count as failed to start (`bootstrap_failed`, exit status 1):
        Scrapy counts one without a spider so. An exception at the start would have the
        same effect, but is logged with its traceback."""
        self._crawler.spider = None


class Stage(IntEnum):
    """What is done before the spider closes, in this order."""

    SEEDING = 1
    """No more pages from sitemaps are requested. This comes first, since such pages
    could still be held."""
    HOLDING = 2
    """Requests that wait or are held are saved, or their errbacks called."""
    GATE = 3
    """The gate (holding/gate.py) gives the scheduler its own methods back."""


Action: TypeAlias = Callable[[], Awaitable[None]]
"""Something to do, which is awaited."""


class _ClosingStep(NamedTuple):
    """Something to do before the spider closes, and when."""

    stage: Stage
    action: Action


class Closing:
    """Stands in for an engine's ``close_spider_async``: awaits our own steps before the
    spider closes."""

    def __init__(self, engine: ExecutionEngine) -> None:
        self._engine = engine
        self._close = engine.close_spider_async
        """The engine's own method."""
        self._lock = DeferredLock()
        """Held while the steps are done."""
        self._calls: list[dict[str, Any]] = []
        """The arguments (``reason``) of each call to close the spider."""
        self._steps: list[_ClosingStep] = []
        """What is left to do before the spider closes."""

    @classmethod
    def of(cls, engine: Any) -> Closing:
        """Return what stands in for the ``close_spider_async`` of *engine*. Put it
        there if nothing does so far."""
        if not isinstance(engine.close_spider_async, cls):
            engine.close_spider_async = cls(engine)
        closing: Closing = engine.close_spider_async
        return closing

    def add_step(self, stage: Stage, action: Action) -> None:
        """Await *action* once before the spider closes, after the actions of earlier
        stages."""
        self._steps.append(_ClosingStep(stage, action))

    async def __call__(self, **arguments: Any) -> None:
        """Close the spider after all steps. Further calls wait for the same end (the
        engine may find that it is idle meanwhile); the reason that the first call gives
        counts.

        Nothing happens before the event loop's next turn. To close at once would break
        the engine if a signal's handler did it for a request just taken from the
        scheduler. On Ctrl-C without asyncio, Scrapy iterates over its set of crawlers,
        which must not shrink meanwhile.
        """
        self._calls.append(arguments)
        self._engine.pause()  # the engine takes no more requests
        await pause()

        # Do the steps, one call at a time.
        await maybe_deferred_to_future(self._lock.acquire())
        isolated = Isolation(self._engine.crawler)
        try:
            while self._steps:
                step = min(self._steps, key=attrgetter("stage"))
                self._steps.remove(step)
                # An exception must not keep the spider open and paused, so it is only
                # logged.
                with isolated("work before closing"):
                    await step.action()
        finally:
            self._lock.release()

        # Close the spider. If the engine still had _start, it might go on reading
        # start(), and give requests to a closed scheduler.
        self._engine._start = None
        self._engine.unpause()
        if self._engine.spider is not None:  # else another call closed it
            await self._close(**self._calls[0])


class RunningClock:
    """Tells for how many seconds the crawl has run since this clock was made. Time in
    which the crawl was paused (by ``engine.pause()``, from the telnet console say)
    doesn't count. Scrapy sends no signal when a crawl is paused."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._began_at = time.monotonic()
        self._paused_at: float | None = None
        """When the crawl was paused; None if it runs."""
        self._paused_for = 0.0
        """Seconds for which it was paused before that."""
        when_opened(crawler, self._watch)

    def __call__(self) -> float:
        """Return the seconds for which the crawl has run."""
        until = self._paused_at
        if until is None:
            until = time.monotonic()
        return until - self._began_at - self._paused_for

    def _watch(self) -> None:
        """Replace the engine's ``pause()`` and ``unpause()``, to note when they are
        called."""
        engine = self._crawler.engine
        pause_engine = engine.pause
        unpause_engine = engine.unpause

        def paused() -> None:
            pause_engine()
            if self._paused_at is None:  # otherwise it is paused already
                self._paused_at = time.monotonic()

        def unpaused() -> None:
            unpause_engine()
            if self._paused_at is not None:
                self._paused_for += time.monotonic() - self._paused_at
                self._paused_at = None

        engine.pause = paused
        engine.unpause = unpaused


Download = Callable[[Request], Awaitable[Response]]
"""Downloads a request: ``DownloadHandlers.download_request_async``, or what stands in
for it."""


class Downloads:
    """Stands in for ``download_request_async`` of the downloader's handlers, which is
    called when a request leaves the queue of its download slot. A request may wait in
    that queue for minutes, and nothing documented tells when it leaves: the signal
    ``request_reached_downloader`` is sent before.
    """

    def __init__(self, download: Download) -> None:
        self._download = download

    def __call__(self, request: Request) -> Awaitable[Response]:
        """Download *request*: by the object that its meta has under :data:`HOP_KEY`, if
        there is one."""
        hop = request.meta.get(HOP_KEY)
        if hop is None:
            return self._download(request)
        response: Awaitable[Response] = hop.download(request, self._download)
        return response


class Trail:
    """Follows requests that have a number each, such as that of a row in a file of
    ours, until the crawl is done with them: until their callback's or errback's output
    was handled, or no part of the crawl took them.

    The number is in a request's meta, so retries and redirects carry it too, as does
    what Scrapy's queue on disk returns. It is removed from the meta when a response is
    on its way to the callback, since callbacks copy the meta to requests for other
    pages.
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
        self._run = time.time_ns()
        """A number that tells this run from others: Scrapy's queue on disk may return a
        request that carries a number of an earlier run."""
        self._carriers: dict[int, int] = {}
        """By number: how many requests carry it. The crawl is done with numbers that
        aren't here."""
        self.in_progress: dict[Request, int] = {}
        """The numbers of the requests that the engine has taken from the scheduler."""

    @property
    def numbers(self) -> list[int]:
        """The numbers that the crawl isn't done with."""
        return list(self._carriers)

    def begin(self, request: Request, number: int) -> None:
        """Follow *request* under *number*. It carries the number from now on, so the
        caller calls :meth:`let_go` if the request goes no further."""
        request.meta[self.key] = self._run, number
        self._carriers[number] = 1

    def number_of(self, request: Request) -> int | None:
        """Return the number of *request*; None if it has none, or the crawl is done
        with it."""
        value = request.meta.get(self.key)
        if value is None:  # as for nearly all requests
            return None
        try:
            run, number = value
            is_followed = run == self._run and number in self._carriers
        except (TypeError, ValueError):  # a project has used the key
            return None
        if is_followed:
            return int(number)
        return None

    def let_go(self, number: int) -> None:
        """Note that one request fewer carries *number*. After the last one, the crawl
        is done with it."""
        carriers = self._carriers.get(number)
        if carriers is None:
            return
        if carriers > 1:
            self._carriers[number] = carriers - 1
            return
        del self._carriers[number]
        self._on_done(number)

    def forget(self, number: int) -> None:
        """Follow *number* no longer. ``on_done`` is not called for it."""
        self._carriers.pop(number, None)

    # Following and _InProgress call the methods below, with any request

    def note_scheduled(self, request: Request) -> None:
        """Note that the scheduler has taken *request*, so one request more carries its
        number."""
        number = self.number_of(request)
        if number is not None:
            self._carriers[number] += 1

    def note_taken(self, request: Request) -> None:
        """Note that the engine has taken *request* from the scheduler."""
        number = self.number_of(request)
        if number is None:
            return
        if number in self.in_progress.values():
            # *request* is a copy that somebody downloads directly. It was not
            # scheduled, so note_scheduled() hasn't counted it.
            self._carriers[number] += 1
        self.in_progress[request] = number

    def note_ended(self, request: Request) -> None:
        """Note that the output of the callback or errback of *request* was handled, so
        one request fewer carries its number."""
        number = self.in_progress.pop(request, None)
        if number is not None:
            self.let_go(number)

    def note_stored(self, request: Request) -> None:
        """Note that *request* has been written to our own file of held requests
        (holding/disk.py), so one request fewer carries its number."""
        number = self.number_of(request)
        if number is not None:
            self.let_go(number)


class _InProgress(set[Request]):
    """Stands in for the engine's set ``_slot.inprogress``, and tells trails of what is
    added and removed. A request is in the set from when the engine takes it from the
    scheduler until the output of its callback or errback was handled. Nothing
    documented tells of that end: an ``IgnoreRequest`` in a ``process_response`` sends
    no signal."""

    def __init__(self, requests: set[Request], trails: list[Trail]) -> None:
        super().__init__(requests)
        self._trails = trails

    def add(self, request: Request) -> None:
        super().add(request)
        for trail in self._trails:
            if trail.key in request.meta:  # few requests have the key
                trail.note_taken(request)

    def remove(self, request: Request) -> None:
        super().remove(request)
        for trail in self._trails:
            if request in trail.in_progress:  # few requests are
                trail.note_ended(request)


class Following:
    """Makes trails (:class:`Trail`), and tells them what happens to the crawl's
    requests."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._trails: list[Trail] = []
        self.keys: set[str] = set()
        """The meta keys of the trails. A request with none of them isn't followed."""
        self._watchers: list[Callable[[Request], None]] = []
        """Called with each request that the scheduler has taken."""

    def trail(
        self,
        key: str,
        on_done: Callable[[int], None],
        *,
        is_kept: Callable[[], bool] = lambda: False,
        in_memory: bool = False,
    ) -> Trail:
        """Return a new trail, before :meth:`begin` or while the spider is open.

        :param key: the meta key under which requests carry their number
        :param on_done: gets a number once the crawl is done with all requests that
            carry it
        :param is_kept: says whether a file still has the requests after the crawl
        :param in_memory: whether the requests are held in memory, being few, even where
            others are held on disk
        """
        trail = Trail(
            key,
            on_done,
            is_kept=is_kept,
            in_memory=in_memory,
        )
        self._trails.append(trail)
        self.keys.add(key)
        return trail

    def watch(self, watcher: Callable[[Request], None]) -> None:
        """Call *watcher* with each request that the scheduler has taken. To be called
        before :meth:`begin`."""
        self._watchers.append(watcher)

    def begin(self) -> None:
        """Begin to follow requests, if there are trails. To be called when the spider
        opens, before anybody else replaces ``enqueue_request`` of the scheduler: a
        request that such a replacement refuses then doesn't get here, and doesn't count
        as scheduled."""
        slot = self._crawler.engine._slot
        if not self._trails or isinstance(slot.inprogress, _InProgress):
            return  # there is nothing to follow, or this was called before
        slot.inprogress = _InProgress(slot.inprogress, self._trails)
        self._crawler.signals.connect(
            self._response_received, signals.response_received
        )
        enqueue = slot.scheduler.enqueue_request

        def enqueue_request(request: Request) -> Any:
            result = enqueue(request)
            if result is False:  # refused; some schedulers return nothing
                return result
            for trail in self._trails:
                if trail.key in request.meta:
                    trail.note_scheduled(request)
            for watcher in self._watchers:
                watcher(request)
            return result

        # A scheduler with __slots__ lets no method be replaced. Then the crawl counts
        # as done with a number once the first request that carries it has ended.
        with suppress(AttributeError):
            slot.scheduler.enqueue_request = enqueue_request

    def note_stored(self, request: Request) -> None:
        """Note that *request* has been written to our own file of held requests
        (holding/disk.py), so no trail need follow it any longer."""
        for trail in self._trails:
            if trail.key in request.meta:
                trail.note_stored(request)

    def is_kept(self, request: Request) -> bool:
        """Whether a file will still have *request* after the crawl, so that nobody need
        hand it to the scheduler."""
        for trail in self._trails:
            is_followed = trail.number_of(request) is not None
            if is_followed and trail.is_kept():
                return True
        return False

    def stays_in_memory(self, request: Request) -> bool:
        """Whether *request* is held in memory even where others are held on disk."""
        for trail in self._trails:
            if not trail.in_memory or trail.number_of(request) is None:
                continue
            if trail.is_kept():
                return True
        return False

    def _response_received(self, request: Request) -> None:
        """Remove the numbers from the meta of *request*: its callback gets a response
        now, and may copy the meta."""
        for trail in self._trails:
            request.meta.pop(trail.key, None)


class Scheduling:
    """Stands in for an engine's ``crawl()``, to know which request it is about to
    schedule."""

    def __init__(self, engine: ExecutionEngine) -> None:
        self._crawl = engine.crawl
        self.request: Request | None = None
        """While ``crawl()`` runs, the request with which it was called."""
        engine.crawl = self  # type: ignore[method-assign]

    def __call__(self, request: Request) -> None:
        """Schedule *request*, as the engine does."""
        # During this call, a signal's handler may schedule another request.
        outer = self.request
        self.request = request
        try:
            self._crawl(request)
        finally:
            self.request = outer


class EngineAccess:
    """What the package needs of a crawl's engine beyond its documented methods."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler  # it gets its engine later
        self.slots = DownloadSlots(crawler)
        self.following = Following(crawler)
        self.hands_over = False
        """Whether a request is downloaded by what its meta has under :data:`HOP_KEY`,
        see :meth:`_hand_over`."""
        when_opened(crawler, self._hand_over)

    @contextmanager
    def extra_slot(self) -> Iterator[None]:
        """In this context, let the downloader have one request more, for what isn't a
        page: requests of `download_async`, and those that wait in a middleware, count
        against CONCURRENT_REQUESTS. Otherwise, 16 silent sites would stop a crawl of 16
        requests at a time."""
        downloader = self._crawler.engine.downloader
        # `total_concurrency` is CONCURRENT_REQUESTS (0: no limit) under a name that
        # isn't documented. Nothing public raises it.
        if not getattr(downloader, "total_concurrency", 0):
            yield
            return
        downloader.total_concurrency += 1
        self.wake()  # otherwise the engine would notice only up to 5 s later
        try:
            yield
        finally:
            downloader.total_concurrency -= 1

    def _hand_over(self) -> None:
        """From now on, let the object that a request has in its meta under
        :data:`HOP_KEY` download the request: call its ``download(request, handler)``
        when the request leaves its slot's queue. This isn't possible with a project's
        own downloader that has no handlers like Scrapy's."""
        handlers = getattr(self._crawler.engine.downloader, "handlers", None)
        download = getattr(handlers, "download_request_async", None)
        if handlers is None or download is None:
            return
        self.hands_over = True
        if not isinstance(download, Downloads):
            handlers.download_request_async = Downloads(download)

    def has_listeners(self, signal: object) -> bool:
        """Whether anything is connected to *signal*. If not, callers needn't send it,
        which takes a while."""
        sender = self._crawler.signals.sender
        receivers = dispatcher.getAllReceivers(sender, signal)
        return any(dispatcher.liveReceivers(receivers))

    def before_closing(self, stage: Stage, step: Action) -> None:
        """Await *step* once before the spider closes, in the order of
        :class:`Stage`."""
        closing = Closing.of(self._crawler.engine)
        closing.add_step(stage, step)

    def fail(self, request: Request, error: Exception) -> Deferred[None]:
        """Call the errback of *request* with *error*, and have the errback's output
        handled as the engine does, by ``Scraper.enqueue_scrape``, also while the spider
        closes. The Deferred fires when the output has been handled."""
        failure: Any = Failure(error)  # type: ignore[no-untyped-call]
        failure.request = request
        output = None
        # We call the errback ourselves, since Scrapy spends 1 to 5 ms on each, even if
        # it returns nothing, and there may be 100,000.
        if request.errback is not None:
            try:
                output = request.errback(failure)
            except Exception:  # noqa: BLE001 (whatever a project's errback raises)
                output = Failure()  # type: ignore[no-untyped-call]
        if output is None or output is failure:  # there is nothing to handle
            return succeed(None)

        # Scrapy calls the errback of a copy, which returns that output.
        def return_output(_: Failure) -> Any:
            # Scrapy has set failure.request to the copy just now. If the project's
            # errback is a generator, its body has not begun to run yet, and should see
            # the request itself.
            failure.request = request
            return output

        copied = copy(request)
        copied.errback = return_output
        scraper = self._crawler.engine.scraper
        done: Deferred[None] = scraper.enqueue_scrape(failure, copied)
        return done

    def is_in_progress(self, request: Request) -> bool:
        """Whether the engine has taken *request* from the scheduler, and isn't done
        with it."""
        slot = self._crawler.engine._slot
        return slot is not None and request in slot.inprogress

    @staticmethod
    def has_errback(request: Request) -> bool:
        """Whether *request* has an errback that does something. A CrawlSpider gives
        each of its requests the errback ``CrawlSpider._errback``, which does nothing
        unless the rule has an errback."""
        errback: Any = request.errback
        if errback is None:
            return False
        if getattr(errback, "__func__", None) is not CrawlSpider._errback:
            return True
        spider = errback.__self__
        if type(spider)._handle_failure is not CrawlSpider._handle_failure:
            return True  # _errback() calls a method that the project has replaced
        try:
            rule = spider._rules[request.meta["rule"]]
        except (KeyError, IndexError, TypeError):  # somebody has changed the meta
            return True
        return rule.errback is not None

    def obstacle_before(self, ours: object) -> str:
        """Return a sentence for the log about what might keep a request from failing
        although *ours*, a downloader middleware, refuses it; empty if nothing might.

        Scrapy has no documented list of downloader middlewares. Their methods are in
        ``methods`` of the downloader's ``middleware``."""
        manager = getattr(self._crawler.engine.downloader, "middleware", None)
        methods = getattr(manager, "methods", None)
        if methods is None:
            return "the downloader isn't Scrapy's"

        # Another middleware may see a request first, and do something with it.
        our_name = type(ours).__name__
        our_method = None
        for method in methods["process_request"]:
            if getattr(method, "__self__", None) is ours:
                our_method = method
                break
            function = getattr(method, "__func__", None)
            if function is not OffsiteMiddleware.process_request:
                return f"{_name_of(method)} sees requests before {our_name} does"
        if our_method is None:
            return f"{our_name} is not among the downloader middlewares"
        if not _is_harmless(our_method):
            return f"{our_name} has a process_request() of its own"

        # Another middleware may see the refusal, and make something else of it.
        for method in methods["process_exception"]:
            if method is not None and not _is_harmless(method):
                name = _name_of(method)
                return f"{name} has a process_exception(), which sees refusals"
        return ""

    def scheduling(self) -> Scheduling:
        """Note from now on which request the engine is about to schedule."""
        return Scheduling(self._crawler.engine)

    @staticmethod
    def drop_body(response: Response) -> None:
        """Free the body of *response*, which won't be read again. The exception that
        ends a sitemap's request would keep it in memory for a while.
        ``Response._set_body`` is what the constructor calls."""
        response._set_body(b"")

    @staticmethod
    def drop_caches(request: Request) -> None:
        """Free the parsed URL and the fingerprint of *request*, nearly a kilobyte,
        which Scrapy keeps. It makes them anew when it needs them."""
        for cache in _CACHES:
            cache.pop(request, None)

    @property
    def paused(self) -> bool:
        """Whether the engine is paused."""
        return bool(self._crawler.engine.paused)

    @property
    def scheduler(self) -> Any:
        """The project's scheduler."""
        engine = self._crawler.engine
        if hasattr(engine, "scheduler"):  # public since Scrapy 2.19
            return engine.scheduler
        return engine._slot.scheduler

    @property
    def scheduler_outlives(self) -> bool:
        """Whether the scheduler is not Scrapy's, and its requests outlive the process.
        (Those of Scrapy's scheduler outlive it with a JOBDIR. With that, requests are
        held on disk anyway.)"""
        if not self.scheduler_is_foreign:
            return False
        return bool(getattr(self.scheduler, "persist", True))

    @property
    def scheduler_is_foreign(self) -> bool:
        """Whether the scheduler is neither Scrapy's own nor a subclass of it."""
        # isinstance() would count everything that looks like a scheduler as one of
        # Scrapy's.
        return Scheduler not in type(self.scheduler).__mro__

    def start_waits_while(self, is_full: Callable[[], bool]) -> None:
        """Let the engine's ``needs_backout()`` return True while *is_full* does, too,
        if the spider's ``start()`` calls it, to wait until there is room for its next
        request (in Scrapy's documentation, "Delaying start request iteration"). If the
        engine itself were told to back out, the event loop would get no turn."""
        engine = self._crawler.engine
        needs_backout = engine.needs_backout

        def needs_backout_or_is_full() -> bool:
            if needs_backout():
                return True
            # The engine keeps start()'s generator in _start, which runs while start()
            # asks.
            start_asks = getattr(engine._start, "ag_running", False)
            return start_asks and is_full()

        engine.needs_backout = needs_backout_or_is_full

    def wake(self) -> None:
        """Make the engine look for requests to download. (``crawl()`` does so by
        ``_slot.nextcall``, too.)"""
        slot = self._crawler.engine._slot
        if slot is not None:  # None without a crawl
            slot.nextcall.schedule()

    def crawl(self, request: Request) -> None:
        """Crawl *request*, of which a file of ours has a copy. Scrapy's own scheduler
        is made to keep it in memory, even with a JOBDIR: after a kill, the scheduler's
        queues on disk may be read again from the start or not at all, and new requests
        come out corrupted. So its undocumented attribute ``dqs``, which is None without
        a JOBDIR, is None meanwhile."""
        scheduler = self.scheduler
        disk_queues = getattr(scheduler, "dqs", None)
        if disk_queues is None:
            self._crawler.engine.crawl(request)
            return
        scheduler.dqs = None
        try:
            self._crawler.engine.crawl(request)
        finally:
            scheduler.dqs = disk_queues


def _name_of(method: Any) -> str:
    """Return the name of a middleware by one of its methods."""
    return type(getattr(method, "__self__", method)).__qualname__


def _is_harmless(method: Any) -> bool:
    """Whether a middleware's *method* is Scrapy's or ours, with all that it may call by
    super()."""
    middleware = getattr(method, "__self__", None)
    name = getattr(method, "__name__", "")
    if name in getattr(middleware, "__dict__", {}):
        return False  # somebody has replaced the method in this object
    owners = [base for base in type(middleware).__mro__ if name in vars(base)]
    packages = {str(owner.__module__).partition(".")[0] for owner in owners}
    return bool(packages) and packages <= _HARMLESS_PACKAGES


class Listener:
    """Connects handlers to signals while they are wanted: a signal without handlers
    costs nothing."""

    def __init__(
        self, crawler: Crawler, handlers: dict[object, Callable[..., Any]]
    ) -> None:
        """*handlers*: by signal. Signals keep only weak references to handlers."""
        self._signals = crawler.signals
        self._handlers = handlers
        self._is_wanted = False
        self._is_connected = False

    def listen(self, wanted: bool) -> None:
        """Connect the handlers now if they are *wanted*. Otherwise disconnect them on
        the loop's next turn: if that happened while a signal is being sent, handlers of
        other people would miss the signal."""
        self._is_wanted = wanted
        if not self._is_connected and wanted:
            self._is_connected = True
            for signal, handler in self._handlers.items():
                self._signals.connect(handler, signal)
        elif self._is_connected and not wanted:
            call_later(0, self._disconnect)

    def _disconnect(self) -> None:
        """Disconnect the handlers, unless they are wanted again."""
        if self._is_wanted or not self._is_connected:
            return
        self._is_connected = False
        for signal, handler in self._handlers.items():
            self._signals.disconnect(handler, signal)


class _SlotSettings(NamedTuple):
    """What the project has set for a download slot."""

    concurrency: int
    delay: float
    """Seconds."""
    jitter: Any
    """The slot's attribute :data:`_JITTER`."""


class _Slowed(NamedTuple):
    """A download slot that has, or had, a crawl delay."""

    slot: Any
    own: _SlotSettings
    """The project's settings, which count again once there is no crawl delay."""
    delay: float
    """The longest of the delays in :attr:`wanted`, in seconds. 0: the slot keeps none
    any more, and the project's settings count."""
    wanted: dict[tuple[str, Chain], float]
    """The crawl delays in seconds, by origin and agent: several of these may share the
    slot."""


class _NoTimer:
    """Takes the place of a slot's timer (``Slot.latercall``), but will never call."""

    def cancel(self) -> None:
        pass


class PacedSlot:
    """A download slot that sends a request only when it is told to. While
    ``Slot.latercall`` is set, Scrapy's ``Downloader._process_queue`` sends nothing from
    a slot."""

    def __init__(self, downloader: Any, slot: Any) -> None:
        self._downloader = downloader
        self._slot = slot
        self._sent: Request | None = None
        """The request that was sent and hasn't come back yet."""
        self._is_next_taken = False
        """Whether somebody has taken the next request (:meth:`take_next`), to find out
        when it may be sent."""
        self._stop()

    def _stop(self) -> None:
        """Let nothing be sent before :meth:`send_in` is called."""
        self._stop_until(_NoTimer())

    def _stop_until(self, timer: Any) -> None:
        """Let nothing be sent before *timer* calls, which takes the place of the timer
        that was set."""
        if self._slot.latercall:
            self._slot.latercall.cancel()
        self._slot.latercall = timer

    def is_of(self, slot: Any) -> bool:
        """Whether this paces *slot*. Scrapy may have removed a slot, and made another
        with its key."""
        return self._slot is slot

    def take_next(self) -> Request | None:
        """Return the request to send next, for which :meth:`send_in` is to be called;
        None if none waits, if one is being transferred, or if somebody has taken it
        already."""
        if self._is_next_taken or self._sent is not None:
            return None
        if self._slot.transferring or not self._slot.queue:
            return None
        self._is_next_taken = True
        return self._first_in_queue()

    def _first_in_queue(self) -> Request | None:
        """Return the first request in the slot's queue, which has pairs of a request
        and a Deferred; None if the queue is empty."""
        if not self._slot.queue:
            return None
        request: Request = self._slot.queue[0][0]
        return request

    @property
    def own_seconds(self) -> float:
        """The seconds that Scrapy itself would still wait before it sends the next
        request."""
        slot = self._slot
        over_at = slot.lastseen + slot.download_delay()
        return max(0.0, float(over_at - _clock()))

    def send_in(self, seconds: float) -> None:
        """Send the next request, which was taken, after some *seconds*."""
        timer = call_later(max(0.0, seconds), self._send)
        self._stop_until(timer)

    def _send(self) -> None:
        """Let Scrapy send the next request, and nothing after it."""
        slot = self._slot
        request = self._first_in_queue()
        slot.latercall = None
        # Make it look as if the last response ended so long ago that Scrapy's own delay
        # is over, whatever its jitter.
        long_ago = 2 * slot.delay + 1
        slot.lastseen = _clock() - long_ago
        self._downloader._process_queue(slot)
        self._is_next_taken = False
        is_sent = self._first_in_queue() is not request
        if request is not None and is_sent:
            self._sent = request
        self._stop()

    def note_return(self, request: Request) -> None:
        """Note that the transfer of *request* has ended, with a response or without."""
        if request is self._sent:
            self._sent = None

    def release(self) -> None:
        """Leave the slot to Scrapy again."""
        self._slot.latercall = None
        self._downloader._process_queue(self._slot)


class DownloadSlots:
    """The downloader's slots, each for one host or address: whether they have room, and
    their crawl delays."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._paced: dict[str, PacedSlot] = {}
        """The paced slots by key. Scrapy may have removed some of them
        (:meth:`paced` looks)."""
        self.slowed: dict[str, _Slowed] = {}
        """The slowed slots by key. Scrapy may have removed some of them
        (:meth:`_current` looks)."""
        # Scrapy's downloader chooses between these two settings in the same way.
        setting = "CONCURRENT_REQUESTS_PER_DOMAIN"
        if crawler.settings.getint("CONCURRENT_REQUESTS_PER_IP"):
            setting = "CONCURRENT_REQUESTS_PER_IP"
        self._usual_concurrency = crawler.settings.getint(setting)

    @property
    def _downloader(self) -> Any:
        """Scrapy's downloader, or a project's own."""
        return self._crawler.engine.downloader

    @property
    def _slots(self) -> Any:
        """The downloader's slots by key; None if it is a project's own that has
        none."""
        return getattr(self._downloader, "slots", None)

    def key_of(self, url: str) -> str:
        """Return the key of the slot for *url*."""
        key: str = self._downloader.get_slot_key(Request(url))
        return key

    def not_there_yet(
        self, request: Request, on_their_way: list[Request]
    ) -> list[Request]:
        """Return those of *on_their_way*, requests that the engine has taken for the
        slot of *request*, which are under way but have not got to the slot so far."""
        slots = self._slots
        slot = None
        if slots is not None:
            key = self._downloader.get_slot_key(request)
            slot = slots.get(key)
        in_slot = slot.active if slot is not None else ()
        # What the downloader has, and no slot so far, is on its way through the
        # middlewares.
        downloading = self._downloader.active
        not_there = []
        for other in on_their_way:
            if other in downloading and other not in in_slot:
                not_there.append(other)
        return not_there

    def is_full(self, request: Request, on_their_way: list[Request]) -> bool:
        """Whether the slot of *request* has as many requests as it may have at a time.
        *on_their_way*: other requests for that slot, which may not have got there so
        far; they count, too. A slot that a crawl delay slows may have as many as
        others, although it sends one at a time."""
        # This runs for each request that has waited, so it uses no properties.
        downloader = self._crawler.engine.downloader
        slots = getattr(downloader, "slots", None)
        if slots is None:
            return False
        slot = slots.get(downloader.get_slot_key(request))
        most = self._usual_concurrency
        active_count = 0
        if slot is not None:
            most = max(slot.concurrency, most)
            active_count = len(slot.active)
        if most <= 0:
            return False  # the setting is wrong: what comes of that is Scrapy's affair
        return active_count + len(on_their_way) >= most

    def agents_of(self, key: str, origin: str) -> list[Chain]:
        """Return the agents whose crawl delays for *origin* the slot *key* keeps."""
        slowed = self._current(key)
        if slowed is None:
            return []
        return [agent for name, agent in slowed.wanted if name == origin]

    def slow(self, key: str, origin: str, agent: Chain, seconds: float) -> bool:
        """Note that *origin* asks *agent* for a crawl delay of *seconds* (0: none any
        more), and make the slot *key* keep the longest that is noted for it: send one
        request at a time, and wait after each. Return whether *seconds* exceed the
        project's own delay."""
        slot = self._slots.get(key)
        if slot is None:
            return False
        slowed = self._current(key)
        if slowed is None:  # the slot has what the project has set
            own = _SlotSettings(
                slot.concurrency,
                slot.delay,
                getattr(slot, _JITTER),
            )
            slowed = _Slowed(slot, own, 0.0, {})
        delays = slowed.wanted
        if seconds != delays.get((origin, agent), 0.0):
            delays[origin, agent] = seconds
            longest = nlargest(_MAX_DELAYS, delays.items(), key=itemgetter(1))
            _, longest_delay = longest[0]  # it has at least the delay just noted
            self._remember(
                key,
                _Slowed(
                    slot,
                    slowed.own,
                    longest_delay,
                    dict(longest),
                ),
            )
            _apply(slot, slowed.own)
            _enforce(slot, longest_delay)
        return seconds > slowed.own.delay

    def _remember(self, key: str, slowed: _Slowed) -> None:
        """Remember how the slot *key* is slowed. Forget the slots that Scrapy has
        removed, if they are many."""
        if not self.slowed:
            self._crawler.signals.connect(self._downloaded, signals.response_downloaded)
        elif len(self.slowed) > 2 * len(self._slots):
            # Scrapy removes slots a minute after their last request.
            for other in list(self.slowed):
                if self._current(other) is None:
                    del self.slowed[other]
        self.slowed[key] = slowed

    def _current(self, key: str) -> _Slowed | None:
        """Return how the slot *key* is slowed; None if it isn't, or if Scrapy has
        removed that slot."""
        slowed = self.slowed.get(key)
        slot = self._slots.get(key)
        if slowed is not None and slowed.slot is slot:
            return slowed
        return None

    def _has_delay(self, key: str) -> bool:
        """Whether the slot *key* keeps a crawl delay now."""
        slowed = self._current(key)
        return slowed is not None and slowed.delay > 0

    def paced(self, key: str, *, take: bool = False) -> PacedSlot | None:
        """Return the slot *key* if it is paced; otherwise None. With *take*, pace the
        slot first if a crawl delay slows it."""
        slot = self._slots.get(key)
        paced = self._paced.get(key)
        if paced is not None and paced.is_of(slot):
            return paced
        if not (take and self._has_delay(key)):
            return None
        if len(self._paced) > 2 * len(self._slots):
            self._forget_removed()
        paced = PacedSlot(self._downloader, slot)
        self._paced[key] = paced
        return paced

    def _forget_removed(self) -> None:
        """Forget the paced slots that Scrapy has removed."""
        slots = self._slots
        for key, paced in list(self._paced.items()):
            if not paced.is_of(slots.get(key)):
                del self._paced[key]

    def unpace(self, key: str) -> bool:
        """Leave the slot *key* to Scrapy again if it is paced and nothing slows it any
        more. Return whether it was left to Scrapy."""
        paced = self._paced.get(key)
        if paced is None or self._has_delay(key):
            return False
        del self._paced[key]
        paced.release()
        return True

    def beside(self, url: str, name: str, *, if_slowed: bool = False) -> dict[str, str]:
        """Return meta that gives a request its own slot beside that of *url*, with the
        project's settings. *name* tells it from other such slots. With *if_slowed*,
        return an empty dict unless the slot of *url* is slowed."""
        key = self.key_of(url)
        slowed = self._current(key)
        if if_slowed and slowed is None:
            return {}
        own_key = f"{key} ({name})"
        slots = self._slots
        if slowed is not None and own_key not in slots:
            # If Scrapy made this slot, it would not have the settings that the project
            # has made for the slot of *url*.
            slots[own_key] = downloader_module.Slot(
                slowed.own.concurrency,
                slowed.own.delay,
                slowed.own.jitter,
            )
        return {SLOT_KEY: own_key}

    def _downloaded(self, request: Request) -> None:
        """Let the crawl delay count from the end of the response to *request*. Scrapy
        lets it count from the beginning of the request, but the time that connecting
        takes must not shorten the delay."""
        key = request.meta.get(SLOT_KEY, "")
        slowed = self.slowed.get(key)
        if slowed is not None and slowed.delay:
            slowed.slot.lastseen = _clock()
            _enforce(slowed.slot, slowed.delay)


def _apply(slot: Any, settings: _SlotSettings) -> None:
    """Give *slot* back what the project has set for it."""
    slot.concurrency = settings.concurrency
    slot.delay = settings.delay
    setattr(slot, _JITTER, settings.jitter)


def _enforce(slot: Any, seconds: float) -> None:
    """Make *slot* send one request at a time, at least *seconds* after the one before;
    leave it as it is if *seconds* is 0. Something else, such as AutoThrottle, may have
    lowered its delay."""
    if not seconds:
        return
    slot.concurrency = 1
    jitter = getattr(slot, _JITTER)
    jitter_share = _JITTER_OF_TRUE if jitter is True else jitter
    shortest_delay = slot.delay * (1 - jitter_share)  # jitter may shorten the delay
    if shortest_delay < seconds:
        slot.delay = max(slot.delay, seconds)
        no_jitter = type(jitter)(0)  # 0.0, or False with older Scrapy
        setattr(slot, _JITTER, no_jitter)
