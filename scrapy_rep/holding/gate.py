"""The gate at the scheduler's exit: a request whose robots.txt isn't known yet stays here, and the
engine gets the next one (REP.md section 4; docs/DESIGN.md).

It stands in for two documented methods of the project's scheduler, whichever that is:
``next_request()`` and ``has_pending_requests()``. A request leaves it once, returned by
``next_request()``: nothing is scheduled again. ``Policy`` (origins/policy.py) decides what stays,
holding.py for how long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.access import Stage
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import SLICE_SECONDS
from scrapy_rep.holding.early import EarlyDrops
from scrapy_rep.holding.handing_back import HANDED_BACK, NO_PAST, Past
from scrapy_rep.holding.holding import Holding
from scrapy_rep.origins.agents import FOREIGN, SCHEME
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Action
from scrapy_rep.origins.queue import Lateness
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Status
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin

logger = get_logger(__name__)

Check: TypeAlias = Callable[[Request], "Coroutine[Any, Any, None] | None"]


Passport: TypeAlias = "tuple[OriginState, Status]"
"""What was known of a request's origin when the request left the gate. It counts until the request is sent."""


class Gate:
    """Stands in for the scheduler where the engine asks it for requests."""

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        holding: Holding,
        early: EarlyDrops,
        check: Check | None,
    ) -> None:
        """*check* sees each request from the scheduler. It may return something to await before any fetch."""
        self._context = context
        self._early = early
        self._origins = origins
        self._by_prefix = origins.table.by_prefix
        self._holding = holding
        self._held = holding.held
        self._releases = holding.releases
        self._check = check
        self._let_out: WeakKeyDictionary[Request, Passport | None] = WeakKeyDictionary()
        """Requests that have left. Until they get to the middleware, by what."""
        self._scheduler_is_useless = False
        """Whether it has only requests for which there is no room. The engine asks again at its next
        event, after some seconds at most."""
        self._schedulers_turn = False
        self._idle_since: float | None = None
        self._idle_after = context.settings.hold_idle
        self._next: Callable[[], Request | None]
        self._has_pending: Callable[[], bool]
        self._aside = False
        """Whether the scheduler's own methods count: it calls them itself, or the crawl has ended."""
        context.crawler.signals.connect(
            self._spider_opened, scrapy_signals.spider_opened
        )

    def _spider_opened(self) -> None:
        engine = self._context.engine
        scheduler = engine.scheduler
        self._next, self._has_pending = (
            scheduler.next_request,
            scheduler.has_pending_requests,
        )
        if engine.scheduler_is_foreign:
            self._idle_after = 0.0
        engine.before_closing(Stage.GATE, self._stand_aside)
        engine.start_waits_while(self.has_no_room)
        try:
            scheduler.next_request = self.next_request
            scheduler.has_pending_requests = self.has_pending_requests
        except (
            AttributeError
        ):  # __slots__: its requests wait in the middleware, as others do
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

    def passport_of(self, request: Request) -> Passport | None:
        """Return by what *request* came through here, if it did, and something was known of its origin.
        The origin may have been forgotten since, or its robots.txt be unreachable again."""
        return self._let_out.get(request)

    def arrived(self, request: Request) -> bool:
        """Note that *request* has been dealt with in the middleware. Return whether it came through
        here."""
        if request not in self._let_out:
            return False
        self._let_out[request] = None
        return True

    def next_request(self) -> Request | None:
        """Return the next request that may go on to the middleware; None if there is none now."""
        if self._aside:
            return self._next()
        if self._holding.closing:
            return None
        request = self._next_in_turn()
        if request is not None:
            self._idle_since = None
        return request

    def _next_in_turn(self) -> Request | None:
        """Take turns with the scheduler: thousands that leave must not delay an urgent request there."""
        has_leaving = bool(self._releases.has_turns or self._releases.loose)
        scheduler_waits = self._schedulers_turn or self._scheduler_is_useless
        self._schedulers_turn = has_leaving and not scheduler_waits
        request = None
        if has_leaving and not self._schedulers_turn:
            request = self._next_released()
        if request is None:
            self._scheduler_is_useless = False
            request = self._next_of_scheduler()
        if request is None and self._schedulers_turn:
            request = self._next_released()
        return request

    def _next_released(self) -> Request | None:
        request = self._releases.next()
        if request is not None:
            self._let_out[request] = self._passport_for(request)
        return request

    def _passport_for(self, request: Request) -> Passport | None:
        try:
            known, _ = self._origins.find(request)
        except ValueError:
            return None  # it has no origin
        state = (
            self._origins.cache.look_up(known) if isinstance(known, Origin) else known
        )
        return None if state is None else (state, state.status.counts_as)

    def _next_of_scheduler(self) -> Request | None:
        """Return a request of the scheduler that needn't wait, or one that leaves in place of one that
        stays. Nothing has to poll: an answer wakes the engine, and so does one that is late."""
        until = time.perf_counter() + SLICE_SECONDS
        while self._held.may_wait and not self._scheduler_is_useless:
            request = self._ask_scheduler()
            if request is None:
                return None
            if not (self._begin_check(request) or self._keep_if_unknown(request)):
                return request
            if self._releases.loose:
                return self._next_released()
            if time.perf_counter() >= until and not self._scheduler_is_useless:
                self._context.engine.wake()
                return None
        return None

    def _ask_scheduler(self) -> Request | None:
        self._aside = True
        try:
            return self._next()
        finally:
            self._aside = False

    def has_pending_requests(self) -> bool:
        """Whether requests are scheduled, may leave the gate, wait for an answer, or were dropped
        just now. After a minute of only waiting (``hold_idle``), not: the spider may have other work."""
        if self._aside:
            return self._has_pending()
        self._aside = True
        try:
            has_scheduled = self._has_pending()
        finally:
            self._aside = False
        has_held, releases = self._held.has_requests, self._releases
        if has_scheduled and not (self._scheduler_is_useless and has_held):
            self._idle_since = None
            return True
        has_leaving = releases.has_turns or releases.loose or releases.checked
        if has_leaving or self._early.is_pending:
            self._idle_since = None
            return True
        if not has_held:
            return False
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if self._held.tally.counted:
            return True
        self._holding.tell(idle=True)
        return now - self._idle_since < self._idle_after

    async def _stand_aside(self) -> None:
        """Leave the scheduler to itself: it may look at what it has left when it closes."""
        self._aside = True

    def has_no_room(self) -> bool:
        """Whether no request of the scheduler is taken, and none may leave."""
        return not (
            self._held.may_wait or self._releases.loose or self._releases.may_leave()
        )

    # Where a request goes

    def _begin_check(self, request: Request) -> bool:
        """Begin the check for which *request* stays, if there is one. Return whether there is."""
        check = self._check(request) if self._check is not None else None
        if check is None:
            return False
        self._releases.checked.add(request)
        deferred_from_coro(self._stays_or_leaves(request, check))
        return True

    async def _stays_or_leaves(
        self, request: Request, check: Coroutine[Any, Any, None]
    ) -> None:
        checked, kept = self._releases.checked, False
        verdict: Exception | None = None
        try:
            await check
            kept = request in checked and self._keep_if_unknown(request)
        except asyncio.CancelledError as error:
            verdict = RuntimeError(f"the check was cancelled ({type(error).__name__})")
        except Exception as error:  # noqa: BLE001 (for the middleware to raise)
            verdict = error
        if request in checked:  # otherwise the spider closes
            checked.remove(request)
            if not kept:
                self._releases.let_out(request, verdict)

    def _keep_if_unknown(self, request: Request) -> bool:
        """Keep *request* here if its robots.txt isn't known. Return whether it is kept."""
        # Fast path, as in the middleware: most requests are to known origins.
        meta, url = request.meta, request.url
        state = self._by_prefix.get(url[: url.find("/", SCHEME) + 1])
        if (
            state is not None
            and state.rules is not None
            and self._context.clock() < state.status.until
            and HANDED_BACK not in meta
            and not self._releases.has_turns
        ):
            self._let_out[request] = state, state.status
            return False
        past = NO_PAST
        if HANDED_BACK in meta:
            past = self._holding.handing_back.restore(request)
        kept = self._keep_or_let_out(request, past)
        if not kept:
            self._let_out.setdefault(request, None)
        return kept

    def _keep_or_let_out(self, request: Request, past: Past) -> bool:
        """Keep *request* if it has to wait. Return whether it is kept."""
        if request.meta.get("dont_obey_robotstxt") or FOREIGN.match(request.url):
            return False
        try:
            known, path = self._origins.find(request)
        except ValueError:
            return False  # it has no origin, as the middleware will say
        if path == ROBOTS_PATH:
            return False
        if isinstance(known, Origin):
            return self._keep_unless_full(known, None, request, past)
        if known.unreachable and not self._context.settings.dry_run:
            return self._keep_unless_full(known.origin, known, request, past)
        if self._holding.stay_behind(known.origin, request, past.waited):
            return True
        self._let_out[request] = known, known.status
        return False

    def _keep_unless_full(
        self, origin: Origin, state: OriginState | None, request: Request, past: Past
    ) -> bool:
        """Make *request* wait, or be held, for an answer of *origin*, unless it had better leave.
        Return whether it stays."""
        holding, hold = self._holding, self._held
        queue = hold.queues.get(origin)
        # Without room, requests wait for a first answer all the same, unless it takes very long.
        is_very_late = queue is not None and queue.lateness is Lateness.VERY_LATE
        may_be_full = state is not None or is_very_late
        is_full = may_be_full and not hold.room_for(queue)
        advice = self._origins.policy.at_the_gate(state, full=is_full)
        if advice.action is Action.LEAVE:
            if state is not None:
                self._let_out[request] = state, state.status
            return False
        if hold.disk is not None and hold.disk.recognise(str(origin), request):
            self._context.stats.inc_value("rep/held/already")
        elif advice.action is Action.STAY:
            holding.keep(origin, state, request, past.waited)
        elif holding.handing_back.hand_back(request, past.waited):
            self._scheduler_is_useless = past.came_last
        else:
            holding.log.full(origin)
            self._releases.verdicts[request] = advice.why
            return False
        return True
