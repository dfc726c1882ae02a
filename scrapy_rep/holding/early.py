"""Requests that needn't be queued (REP.md section 14): what fresh rules forbid is dropped when it is
about to enter the scheduler.

It stands in for a documented method of the project's scheduler, ``enqueue_request()``, as the gate
does for two others. So all handlers of ``request_scheduled`` have run. A handler that raised would come
before some of them, and each exception would keep its request in a reference cycle.
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
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.reporting.recorder import Recorder

logger = get_logger(__name__)

# Errbacks that wait to be called, or whose output isn't handled yet. Without a limit, a page of a
# million links would fill the memory. Further requests go to the scheduler.
_MOST_ERRBACKS = 1000

Refusal: TypeAlias = Callable[[Request, OriginState, str], RobotsDisallowed | None]


class EarlyDrops:
    """Stands in for the scheduler where the engine gives it requests."""

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        recorder: Recorder,
        *,
        middleware: object,
        refusal: Refusal,
        may_seed: Callable[[Request, str], bool],
    ) -> None:
        """*middleware* judges requests that are not dropped here.

        :param refusal: returns what it would raise for a request to an origin whose state is fresh
        :param may_seed: whether a request, whose URL begins with a prefix, may tell sitemaps to it
        """
        self._context = context
        self._origins = origins
        self._by_prefix = origins.table.by_prefix
        self._is_usual = origins.agents.is_usual
        self._recorder = recorder
        self._middleware = middleware
        self._refusal = refusal
        self._may_seed = may_seed
        self._is_wanted = not (
            is_interactive(context.crawler) or context.settings.dry_run
        )
        self._scheduling: Scheduling | None = None  # None: nothing is dropped here
        self._enqueue: Callable[[Request], bool]
        self._counted = BoundedSet()
        self._waiting: deque[tuple[Request, RobotsDisallowed]] = deque()
        self._unsettled = 0
        """Errbacks whose output isn't handled yet."""
        self._closing = False
        self.is_pending = False
        """Whether requests were dropped in this turn of the event loop, or errbacks wait. A spider
        that schedules the next URL when it is idle gets another turn then."""

    def begin(self, scheduler: Any) -> None:
        """Drop requests from now on, unless they could come to another end."""
        if not self._is_wanted:
            return
        engine = self._context.engine
        obstacle = engine.obstacle_before(self._middleware) or self._retried()
        if not obstacle:
            self._enqueue = scheduler.enqueue_request
            try:
                scheduler.enqueue_request = self.enqueue_request
            except AttributeError:  # __slots__
                obstacle = (
                    f"{type(scheduler).__name__} doesn't let its methods be replaced"
                )
        if obstacle:
            message = "Requests that robots.txt forbids are queued until their turn comes: %(why)s"
            logger.info(message, {"why": obstacle}, extra=self._context.extra)
            return
        self._scheduling = engine.scheduling()
        engine.before_closing(Stage.HOLDING, self._before_closing)

    def _retried(self) -> str:
        """Return why Scrapy would try refused requests again; empty if it wouldn't."""
        settings = self._context.crawler.settings
        if settings.getbool("RETRY_ENABLED"):
            for name in settings.getlist("RETRY_EXCEPTIONS"):
                if issubclass(RobotsDisallowed, load_object(name)):
                    return f"RETRY_EXCEPTIONS has {name}, so refused requests are tried again"
        return ""

    def enqueue_request(self, request: Request) -> Any:
        """Drop *request* if fresh rules forbid it. Else return what the scheduler returns for it."""
        # Fast path, as in the middleware: most origins are unknown, or allow the request.
        url = request.url
        slash = url.find("/", SCHEME_LENGTH)
        prefix = url[: slash + 1]
        state = self._by_prefix.get(prefix)
        if state is None:
            return self._enqueue(request)
        path = url[slash:]
        if "#" in path:
            path = path[: path.index("#")]
        rules = state.rules
        if (
            rules is not None
            and rules.allows(comparable(path))
            and self._is_usual(request)
        ):
            return self._enqueue(request)
        if self._may_drop(request, state, prefix) and self._drop_refused(
            request, state, path
        ):
            return True
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

    def _drop_refused(self, request: Request, state: OriginState, path: str) -> bool:
        """Drop *request* if it is refused. Return whether it is."""
        try:
            error = self._refusal(request, state, path)
        except Exception:  # noqa: BLE001 (of a project's overrules(): it fails the request later)
            return False
        if error is None:
            return False
        has_errback = self._context.engine.has_errback(request)
        if has_errback and len(self._waiting) + self._unsettled >= _MOST_ERRBACKS:
            return False
        if not self.is_pending:
            self.is_pending = True
            call_later(0, self._end_turn)
        if not self.remember(request, state, path):
            return True  # the dupe filter would have dropped it
        state.used_at = self._context.clock()
        self._context.stats.inc_value("rep/cache/hit")
        self._recorder.dropped(request, error, state, direct=False)
        if has_errback:
            self._waiting.append((request, error))
        return True

    def remember(self, request: Request, state: OriginState, path: str) -> bool:
        """Remember that *request*, which came from the scheduler or was about to go there, is
        refused. Return whether it is the first to its path, and so counts: the dupe filter doesn't
        know all that went before."""
        if self._scheduling is None or request.dont_filter:
            return True
        if request.method == "GET" and not request.body:
            return self._counted.add((state.name, path))
        return self._counted.add((state.name, path, request.method, request.body))

    # Errbacks

    def _end_turn(self) -> None:
        if self._waiting:
            deferred_from_coro(self._call_errbacks())
        else:
            self._end_pending()

    def _end_pending(self) -> None:
        self.is_pending = False
        self._context.engine.wake()  # it may be idle now

    async def _call_errbacks(self) -> None:
        try:
            async for request, error in in_slices(self._taken()):
                output = self._context.engine.fail(request, error)
                if not output.called:
                    self._unsettled += 1
                    output.addBoth(self._settle)
        finally:
            self._end_pending()

    def _taken(self) -> Iterator[tuple[Request, RobotsDisallowed]]:
        while self._waiting:
            yield self._waiting.popleft()

    def _settle(self, _: object) -> None:
        self._unsettled -= 1

    async def _before_closing(self) -> None:
        """Call the errbacks that wait. What is scheduled from now on goes to the scheduler."""
        self._closing = True
        await self._call_errbacks()
