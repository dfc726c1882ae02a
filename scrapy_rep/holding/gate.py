"""The gate at the scheduler's exit: a request whose robots.txt isn't known yet stays here, and the
engine gets the next one (REP.md section 4; docs/DESIGN.md).

It stands in for two documented methods of the project's scheduler, whichever that is:
``next_request()`` and ``has_pending_requests()``. A request leaves it once, returned by
``next_request()``: nothing is scheduled again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.urls import FOREIGN, SCHEME
from scrapy_rep.holding.handing_back import HANDED_BACK
from scrapy_rep.origins.policy import Hold, Leave, Wait
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scrapy import Request

    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState

logger = get_logger(__name__)

# Requests that leave the scheduler in one step: Scrapy's own, and others, which ask a server for each.
_STEP, _FOREIGN_STEP = 100, 16
# Seconds until a scheduler is asked again that took back a request.
_REST_SECONDS = 0.1


class Gate:
    """Stands in for the scheduler where the engine asks it for requests."""

    def __init__(self, context: CrawlContext, origins: Origins, deferral: Deferral) -> None:
        self._context = context
        self._origins = origins
        self._by_prefix = origins.table.by_prefix
        self._deferral = deferral
        self._held = deferral.held
        self._releases = deferral.releases
        self.look: Callable[[Request], Coroutine[Any, Any, None] | None] | None = None
        """Sees each request that leaves the scheduler. It may return a check, to be awaited before
        anything is fetched for the request."""
        self._let_out: WeakSet[Request] = WeakSet()
        self._checks = 0
        self._rests_until = 0.0
        self._idle_since: float | None = None
        self._idle_after = context.settings.defer_idle
        self._step = _STEP
        self._next: Callable[[], Request | None]
        self._has_pending: Callable[[], bool]
        context.crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def _spider_opened(self) -> None:
        engine = self._context.engine
        scheduler = engine.scheduler
        self._next, self._has_pending = scheduler.next_request, scheduler.has_pending_requests
        if engine.scheduler_is_foreign:
            self._step, self._idle_after = _FOREIGN_STEP, 0.0
        try:
            scheduler.next_request = self.next_request
            scheduler.has_pending_requests = self.has_pending_requests
        except AttributeError:  # __slots__: its requests wait in the middleware, as others do
            logger.info(
                "%(scheduler)s doesn't let its methods be replaced: requests wait for robots.txt in the "
                "downloader, and none are held",
                {"scheduler": type(scheduler).__name__},
                extra=self._context.extra,
            )

    def __contains__(self, request: Request) -> bool:
        """Whether *request* came through here. Others are direct downloads (of a media pipeline, say):
        nothing else tells the two apart."""
        return request in self._let_out

    def next_request(self) -> Request | None:
        """Return the next request that may go on to the middleware, None if there is none now."""
        request = None if self._deferral.closing else self._next_one()
        if request is not None:
            self._let_out.add(request)
            self._idle_since = None
        return request

    def _next_one(self) -> Request | None:
        if self._releases and (request := self._releases.next()) is not None:
            return request
        for _ in range(self._step):
            # An answer wakes the engine, and so does the end of the wait for it.
            if not self._held.may_wait or time.monotonic() < self._rests_until:
                return None
            request = self._next()
            if request is None:
                return None
            if not self._stays(request):
                return request
        self._context.engine.wake()
        return None

    def has_pending_requests(self) -> bool:
        """Whether the crawl isn't idle: requests are scheduled, may leave the gate, or wait for an
        answer. A crawl that has done nothing but wait for ``REP_DEFER_IDLE`` seconds counts as idle:
        its spider may have other work to fetch."""
        if self._has_pending() or self._releases or self._checks:
            self._idle_since = None
            return True
        if not self._held:
            return False
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if not self._held.awaits_first_answers:
            self._deferral.tell_idle()
            return now - self._idle_since < self._idle_after
        return True

    # Where a request goes

    def _stays(self, request: Request) -> bool:
        """Keep *request* here if its robots.txt isn't known. Return whether it is kept."""
        check = self.look(request) if self.look is not None else None
        if check is None:
            return self._is_kept(request)
        self._checks += 1
        deferred_from_coro(self._stays_or_leaves(request, check))
        return True

    async def _stays_or_leaves(self, request: Request, check: Coroutine[Any, Any, None]) -> None:
        try:
            await check
            if not self._is_kept(request):
                self._releases.let_out(request)
        except Exception as error:  # noqa: BLE001 (for the middleware to raise)
            self._releases.let_out(request, error)
        finally:
            self._checks -= 1

    def _is_kept(self, request: Request) -> bool:
        # Fast path, as in the middleware: most requests are to origins that are known.
        meta, url = request.meta, request.url
        state = self._by_prefix.get(url[: url.find("/", SCHEME) + 1])
        if (
            state is not None
            and state.rules is not None
            and self._context.clock() < state.usable_until
            and HANDED_BACK not in meta
            and not self._releases
        ):
            return False
        since = self._deferral.handing_back.restore(request) if HANDED_BACK in meta else None
        if meta.get("dont_obey_robotstxt") or FOREIGN.match(request.url):
            return False
        try:
            found, path = self._origins.find(request)
        except ValueError:
            return False  # it has no origin, as the middleware will say
        if path == ROBOTS_PATH:
            return False
        if isinstance(found, Origin):
            return self._is_kept_for(found, None, request, since)
        if found.unreachable and not self._context.settings.dry_run:
            return self._is_kept_for(found.origin, found, request, since)
        return bool(self._releases) and self._deferral.joins(found.name, request, since)

    def _is_kept_for(
        self, origin: Origin, state: OriginState | None, request: Request, since: float | None
    ) -> bool:
        """Have *request* wait, or be held, for an answer of *origin*, unless it had better leave."""
        advice = self._origins.policy.at_the_gate(state, self._held.room(origin))
        if isinstance(advice, Leave) or self._origins.http_cache.answers(request):
            return False
        if self._held.hold.is_held_already(str(origin), request):
            self._context.stats.inc_value("rep/held/already")
            return True
        if isinstance(advice, Wait):
            self._deferral.wait(origin, request, since)
        elif isinstance(advice, Hold):
            assert state is not None
            self._deferral.hold(state, request, since)
        elif self._deferral.handing_back.one(request, since):
            self._rests_until = time.monotonic() + _REST_SECONDS
            call_later(_REST_SECONDS, self._context.engine.wake)
        else:
            self._held.warn_full(origin)
            self._releases.condemn(request, advice)
            return False
        return True
