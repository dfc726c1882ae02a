"""Drops requests that fresh rules forbid before they enter the scheduler (REP.md
section 14).

:class:`EarlyDrops` stands in for a documented method of the project's scheduler,
``enqueue_request()``, as the gate (gate.py) does for two others. The engine calls this
method after all handlers of the signal ``request_scheduled``. A handler of ours would
come before some of the others; it would have to raise, and each exception would keep
its request in a reference cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from scrapy import Request
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import load_object

from scrapy_rep.engine.access import Scheduling, Stage, is_interactive
from scrapy_rep.engine.log import BoundedSet, get_logger
from scrapy_rep.engine.timers import in_slices
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.holding.handing_back import HANDED_BACK
from scrapy_rep.origins.agents import SCHEME_LENGTH
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Fresh
from scrapy_rep.protocol.matching import ALLOW, SHORTEST, comparable
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.reporting.recorder import Recorder

logger = get_logger(__name__)

# At most this many errbacks wait to be called, or have output that isn't handled yet.
# Without a limit, a page of a million links would fill the memory. Beyond it, requests
# go to the scheduler.
_MOST_ERRBACKS = 1000

RefusalFinder: TypeAlias = Callable[
    [Request, OriginState, str, int | None], RobotsDisallowed | None
]
"""Gets a request, the state of its origin (which is fresh), the path that rules match,
and the key of the rule that decides among the state's rules (None if these rules don't
decide about this request, or aren't known). Returns what the middleware would raise for
the request; None if the request passes, or if that can't be known without waiting."""


class EarlyDrops:
    """Stands in for the scheduler where the engine gives it requests."""

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        recorder: Recorder,
        *,
        middleware: object,
        refusal: RefusalFinder,
        may_seed: Callable[[Request, str], bool],
    ) -> None:
        """Requests that are not dropped here go through the queue to *middleware*.

        :param refusal: returns what *middleware* would raise
        :param may_seed: gets a request and the beginning of its URL, up to the path;
            returns whether the request may tell *middleware* of sitemaps
        """
        self._context = context
        self._engine = context.engine
        self._count = context.count
        self._origins = origins
        self._by_prefix = origins.table.by_prefix
        self._has_usual_agent = origins.agents.is_usual
        self._recorder = recorder
        self._middleware = middleware
        self._refusal = refusal
        self._may_seed = may_seed
        self._is_wanted = not (
            is_interactive(context.crawler) or context.settings.dry_run
        )
        """Whether this crawl drops requests early at all."""
        self._scheduling: Scheduling | None = None
        """Knows which request the engine is about to schedule; None: nothing is dropped
        here."""
        self._enqueue: Callable[[Request], bool]
        """The scheduler's own ``enqueue_request()``."""
        self._refused_paths = BoundedSet()
        """Paths, each with its origin, of which a refused request has been counted; see
        :meth:`remember`."""
        self._waiting: deque[tuple[Request, RobotsDisallowed]] = deque()
        """Requests whose errbacks are to be called, each with the error for it."""
        self._unsettled_count = 0
        """How many errbacks have been called whose output isn't handled yet."""
        self._closing = False
        self.is_pending = False
        """Whether requests were dropped in this turn of the event loop, or errbacks
        wait. The gate counts that as work. Otherwise, a spider that schedules one URL
        whenever it is idle would get no further ``spider_idle`` once such a URL was
        dropped."""

    def begin(self, scheduler: Any) -> None:
        """Drop requests from now on, unless there is an *obstacle*: something that
        could keep a request from failing although the middleware refuses it."""
        if not self._is_wanted:
            return
        engine = self._engine
        obstacle = engine.obstacle_before(self._middleware) or self._obstacle_after()
        if not obstacle:
            obstacle = self._replace_method(scheduler)
        if obstacle:
            logger.info(
                "Requests that robots.txt forbids are queued until their turn comes: %(why)s",
                {"why": obstacle},
                extra=self._context.extra,
            )
            return
        self._scheduling = engine.scheduling()
        engine.before_closing(Stage.HOLDING, self._before_closing)

    def _obstacle_after(self) -> str:
        """Return why Scrapy would try refused requests again; empty if it wouldn't."""
        settings = self._context.crawler.settings
        if not settings.getbool("RETRY_ENABLED"):
            return ""
        for name in settings.getlist("RETRY_EXCEPTIONS"):
            if issubclass(RobotsDisallowed, load_object(name)):
                return (
                    f"RETRY_EXCEPTIONS has {name}, so refused requests are tried again"
                )
        return ""

    def _replace_method(self, scheduler: Any) -> str:
        """Stand in for the ``enqueue_request()`` of *scheduler*. Return why that can't
        be; empty if it can."""
        self._enqueue = scheduler.enqueue_request
        try:
            scheduler.enqueue_request = self.enqueue_request
        except AttributeError:  # it has __slots__
            return f"{type(scheduler).__name__} doesn't let its methods be replaced"
        return ""

    def enqueue_request(self, request: Request) -> Any:
        """Drop *request* if fresh rules forbid it. Else return what the scheduler
        returns for it."""
        # Fast path, as in the middleware. Most origins are unknown, or allow the
        # request.
        url = request.url
        slash = url.find("/", SCHEME_LENGTH)
        prefix = url[: slash + 1]
        state = self._by_prefix.get(prefix)
        if state is None:
            return self._enqueue(request)
        path = url[slash:]
        if "#" in path:
            path = path[: path.index("#")]
        key = None
        if state.rules is not None and self._has_usual_agent(request):
            compared = path
            if "%" in path or not path.isascii():
                compared = comparable(path)
            key = state.rules.find(compared)
            # This does what allows(key) does, without the call, as in the middleware.
            if key < SHORTEST or key & ALLOW > 0 or path == ROBOTS_PATH:
                return self._enqueue(request)
        may_drop = self._may_drop(request, state, prefix)
        if may_drop and self._drop_if_refused(request, state, path, key):
            return True  # as if the scheduler had taken it
        return self._enqueue(request)

    def _may_drop(self, request: Request, state: OriginState, prefix: str) -> bool:
        """Whether *request* may be dropped here, if rules forbid it."""
        assert self._scheduling is not None
        meta = request.meta
        return (
            request is self._scheduling.request  # not enqueued by the scheduler itself
            and not self._closing
            and isinstance(state.status, Fresh)
            and self._context.clock() < state.status.until
            and not meta.get("dont_obey_robotstxt")
            and HANDED_BACK not in meta
            and not self._may_seed(request, prefix)
        )

    def _drop_if_refused(
        self, request: Request, state: OriginState, path: str, key: int | None
    ) -> bool:
        """Drop *request* if the rules refuse it, and if there is room for its errback.
        Return whether it was dropped. *key*: as ``RefusalFinder`` takes it."""
        try:
            error = self._refusal(request, state, path, key)
        except Exception:  # noqa: BLE001 (of a project's overrules())
            return False  # it fails the request later, in the middleware
        if error is None:
            return False
        has_errback = self._engine.has_errback(request)
        errback_count = len(self._waiting) + self._unsettled_count
        if has_errback and errback_count >= _MOST_ERRBACKS:
            return False
        if not self.is_pending:
            self.is_pending = True
            call_later(0, self._end_turn)
        is_first = self.remember(request, state, path)
        if not is_first:
            # This is as if the dupe filter had dropped it: nobody is told, and no
            # errback is called.
            return True
        state.used_at = self._context.clock()
        self._count("rep/cache/hit")
        self._recorder.dropped(request, error, state, direct=False)
        if has_errback:
            self._waiting.append((request, error))
        return True

    def remember(self, request: Request, state: OriginState, path: str) -> bool:
        """Remember that *request*, which came from the scheduler or was about to go
        there, is refused. Return whether it counts, as the first to its path. The dupe
        filter can't tell. Requests that were dropped here never got to it."""
        if self._scheduling is None or request.dont_filter:
            return True
        item: tuple[object, ...] = (state.name, path)
        if request.method != "GET" or request.body:
            item = (state.name, path, request.method, request.body)
        is_new = self._refused_paths.add(item)
        return is_new

    # Errbacks

    def _end_turn(self) -> None:
        """Begin to call the errbacks of requests that were dropped in this turn of the
        event loop."""
        if self._waiting:
            deferred_from_coro(self._call_errbacks())
        else:
            self._end_pending()

    def _end_pending(self) -> None:
        """Note that nothing is pending any more, and let the engine look whether the
        crawl is idle now."""
        self.is_pending = False
        self._engine.wake()

    async def _call_errbacks(self) -> None:
        """Call the errbacks that wait, and those that come meanwhile."""
        try:
            async for request, error in in_slices(self._take_waiting()):
                output = self._engine.fail(request, error)
                if not output.called:
                    self._unsettled_count += 1
                    output.addBoth(self._note_settled)
        finally:
            self._end_pending()

    def _take_waiting(self) -> Iterator[tuple[Request, RobotsDisallowed]]:
        while self._waiting:
            yield self._waiting.popleft()

    def _note_settled(self, _: object) -> None:
        """Note that the output of an errback has been handled."""
        self._unsettled_count -= 1

    async def _before_closing(self) -> None:
        """Call the errbacks that wait. What is scheduled from now on goes to the
        scheduler."""
        self._closing = True
        await self._call_errbacks()
