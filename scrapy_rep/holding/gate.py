"""The gate at the scheduler's exit: a request whose robots.txt isn't known yet stays here, and the
engine gets the next one (REP.md section 4; docs/DESIGN.md).

It stands in for two documented methods of the project's scheduler, whichever that is:
``next_request()`` and ``has_pending_requests()``. A request leaves it once, returned by
``next_request()``: nothing is scheduled again. ``Policy`` (origins/origins.py) decides what stays,
deferral.py for how long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.access import Stage
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import SLICE_SECONDS
from scrapy_rep.holding.deferral import Deferral
from scrapy_rep.holding.early import EarlyDrops
from scrapy_rep.holding.handing_back import HANDED_BACK
from scrapy_rep.origins.agents import FOREIGN, SCHEME
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Advice, Drop, Origins
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin

logger = get_logger(__name__)


class Gate:
    """Stands in for the scheduler where the engine asks it for requests."""

    def __init__(
        self, context: CrawlContext, origins: Origins, deferral: Deferral, early: EarlyDrops
    ) -> None:
        self._context = context
        self._early = early
        self._origins = origins
        self._by_prefix = origins.table.by_prefix
        self._deferral = deferral
        self._held = deferral.held
        self._releases = deferral.releases
        self.look: Callable[[Request], Coroutine[Any, Any, None] | None] | None = None
        """Sees each request from the scheduler. May return a check to await before any fetch."""
        self._let_out: WeakSet[Request] = WeakSet()
        # Whether the scheduler has only requests for which there is no room. The engine asks again at
        # its next event, after some seconds at most.
        self._nothing_else = False
        self._schedulers_turn = False
        self._idle_since: float | None = None
        self._idle_after = context.settings.defer_idle
        self._next: Callable[[], Request | None]
        self._has_pending: Callable[[], bool]
        # Whether the scheduler's own methods count: it calls them itself, or the crawl has ended.
        self._aside = False
        context.crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def _spider_opened(self) -> None:
        engine = self._context.engine
        scheduler = engine.scheduler
        self._next, self._has_pending = scheduler.next_request, scheduler.has_pending_requests
        if engine.scheduler_is_foreign:
            self._idle_after = 0.0
        engine.before_closing(Stage.GATE, self._stand_aside)
        engine.start_waits_while(self.is_full)
        try:
            scheduler.next_request = self.next_request
            scheduler.has_pending_requests = self.has_pending_requests
        except AttributeError:  # __slots__: its requests wait in the middleware, as others do
            message = (
                "%(scheduler)s doesn't let its methods be replaced: requests wait for robots.txt in the "
                "downloader, and none are held"
            )
            values = {"scheduler": type(scheduler).__name__}
            logger.info(message, values, extra=self._context.extra)
        self._early.begin(scheduler)

    def __contains__(self, request: Request) -> bool:
        """Whether *request* came through here, unlike a media pipeline's direct downloads."""
        return request in self._let_out

    def next_request(self) -> Request | None:
        """Return the next request that may go on to the middleware; None if there is none now."""
        if self._aside or self._deferral.closing:
            return self._next() if self._aside else None
        releases, until = self._releases, time.perf_counter() + SLICE_SECONDS
        own = bool(releases.turns or releases.loose)
        # Take turns with the scheduler: thousands that leave must not delay an urgent request there.
        self._schedulers_turn = own and not (self._schedulers_turn or self._nothing_else)
        request = releases.next() if own and not self._schedulers_turn else None
        self._nothing_else = self._nothing_else and request is not None
        # Nothing has to poll: an answer wakes the engine, and so does one that is late.
        while request is None and self._held.may_wait and not self._nothing_else:
            self._aside = True
            try:
                request = self._next()
            finally:
                self._aside = False
            if request is None:
                break
            if (self.look is not None and self._is_checked(request)) or self._is_kept(request):
                request = releases.loose.popleft() if releases.loose else None
            if request is None and time.perf_counter() >= until and not self._nothing_else:
                self._context.engine.wake()
                break
        if request is None and self._schedulers_turn:
            request = releases.next()
        if request is not None:
            self._let_out.add(request)
            self._idle_since = None
        return request

    def has_pending_requests(self) -> bool:
        """Whether requests are scheduled, may leave the gate, wait for an answer, or were dropped
        just now. After
        ``REP_DEFER_IDLE`` seconds of only waiting, not: the spider may have other work."""
        if self._aside:
            return self._has_pending()
        self._aside = True
        try:
            scheduled = self._has_pending() and not (self._nothing_else and self._held.origins)
        finally:
            self._aside = False
        releases = self._releases
        leaving = releases.turns or releases.loose or releases.checked
        if scheduled or leaving or self._early.is_pending:
            self._idle_since = None
            return True
        if not self._held.origins:
            return False
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if not self._held.awaiting:
            self._deferral.tell(idle=True)
            return now - self._idle_since < self._idle_after
        return True

    async def _stand_aside(self) -> None:
        """Leave the scheduler to itself: it may look at what it has left when it closes."""
        self._aside = True

    def is_full(self) -> bool:
        """Whether it takes none, and none may leave. One that may is moved into ``loose``."""
        held, releases = self._held, self._releases
        if not (held.may_wait or releases.loose) and (request := releases.next()) is not None:
            releases.loose.append(request)
        return not (held.may_wait or releases.loose)

    # Where a request goes

    def _is_checked(self, request: Request) -> bool:
        """Whether *request* stays for a check, which begins now."""
        check = self.look(request) if self.look is not None else None
        if check is not None:
            self._releases.checked.add(request)
            deferred_from_coro(self._stays_or_leaves(request, check))
        return check is not None

    async def _stays_or_leaves(self, request: Request, check: Coroutine[Any, Any, None]) -> None:
        checked, kept, verdict = self._releases.checked, False, None
        try:
            await check
            kept = request in checked and self._is_kept(request)
        except Exception as error:  # noqa: BLE001 (for the middleware to raise)
            verdict = error
        if request in checked:  # otherwise the spider closes
            checked.remove(request)
            if not kept:
                self._releases.let_out(request, verdict)

    def _is_kept(self, request: Request) -> bool:
        """Keep *request* here if its robots.txt isn't known. Return whether it is kept."""
        # Fast path, as in the middleware: most requests are to known origins.
        meta, url = request.meta, request.url
        state = self._by_prefix.get(url[: url.find("/", SCHEME) + 1])
        if (
            state is not None
            and state.rules is not None
            and self._context.clock() < state.usable_until
            and HANDED_BACK not in meta
            and not self._releases.turns
        ):
            return False
        since = self._deferral.handing_back.restore(request) if HANDED_BACK in meta else None
        if meta.get("dont_obey_robotstxt") or FOREIGN.match(url):
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
        return self._deferral.joins(found.name, request, since)

    def _is_kept_for(
        self, origin: Origin, state: OriginState | None, request: Request, since: float | None
    ) -> bool:
        """Make *request* wait, or be held, for an answer of *origin*, unless it had better leave."""
        deferral, hold = self._deferral, self._held
        held_origin = hold.origins.get(str(origin))
        # Without room, requests wait for a first answer all the same, unless it takes very long.
        may_be_full = state is not None or (held_origin is not None and not held_origin.most)
        full = may_be_full and not hold.room_for(held_origin)
        advice = self._origins.policy.at_the_gate(state, full=full)
        if advice is Advice.LEAVE:
            return False
        if hold.disk is not None and hold.disk.is_held_already(str(origin), request):
            self._context.stats.inc_value("rep/held/already")
        elif not isinstance(advice, Drop):
            deferral.keep(origin, state, request, since)
        elif deferral.handing_back.one(request, since):
            self._nothing_else = since is not None and deferral.handing_back.came_last
        else:
            deferral.log.full(origin)
            self._releases.verdicts[request] = advice
            return False
        return True
