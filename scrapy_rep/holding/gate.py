"""The gate at the scheduler's exit: a request whose robots.txt isn't known yet stays
here, and the engine gets the next one (REP.md section 4; docs/DESIGN.md).

It stands in for two documented methods of the project's scheduler, whichever that is:
``next_request()`` and ``has_pending_requests()``. When the engine asks for a request:

1. ``Gate.next_request`` gets one from the scheduler and, in turns, from ``Releases``
   (hold.py), which has the requests that have stayed here and may leave now.
2. If the request is from the scheduler, and has to be checked before it is fetched (for
   a sitemap's sake: ``SitemapSeeding.check`` in seeding/seeding.py), it stays until the
   check is over.
3. If the rules of its origin are known and fresh, it goes on
   (``Gate._keep_if_unknown``).
4. Otherwise ``Policy`` (origins/policy.py) decides whether it stays or goes on. If it
   stays, ``Holding`` (holding.py) has robots.txt fetched, and lets it leave later. If
   there is no room for it, it goes back to the scheduler (handing_back.py), or goes on
   and fails.

What goes on goes to the middleware, which applies the rules
(``RepMiddleware.process_request``). A request leaves the gate once, returned by
``next_request()``, so nothing is scheduled again.
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

from scrapy_rep.engine.access import Stage, concurrency_of
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import SLICE_SECONDS
from scrapy_rep.holding.early import EarlyDrops
from scrapy_rep.holding.handing_back import HANDED_BACK, NO_PAST, Past
from scrapy_rep.holding.holding import Holding
from scrapy_rep.origins.agents import FOREIGN_SCHEME, SCHEME_LENGTH
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import STAY, Action
from scrapy_rep.origins.queue import Lateness
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Status
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin

logger = get_logger(__name__)

Check: TypeAlias = Callable[[Request], "Coroutine[Any, Any, None] | None"]
"""Returns something to await before anything is fetched for a request; None if there is
nothing."""

KnownAtGate: TypeAlias = "tuple[OriginState, Status]"
"""What was known of a request's origin when the request left the gate; it counts until
the request is sent. This is a plain tuple, since one is made for each request."""


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
        """*check* gets each request from the scheduler; None if this crawl checks
        none."""
        self._context = context
        self._engine = context.engine
        self._count = context.stats.inc_value
        self._early = early
        self._origins = origins
        self._by_prefix = origins.table.by_prefix
        self._holding = holding
        self._held = holding.held
        """The requests at the gate, also those that only wait (hold.py)."""
        self._releases = holding.releases
        """The requests at the gate that may leave, or are about to."""
        self._check = check
        self._known_at_gate: WeakKeyDictionary[Request, KnownAtGate | None] = (
            WeakKeyDictionary()
        )
        """What was known when each request left; None if nothing was, or if the
        middleware has dealt with the request since."""
        self._is_scheduler_exhausted = False
        """Whether the scheduler has only requests that the gate handed back to it,
        since there was no room to hold them here. The engine asks again at its next
        event, after some seconds at most."""
        self._enough_origins = concurrency_of(context.crawler)
        """While this many origins have requests that are about to leave, the gate takes
        the scheduler's requests one by one, so as not to get further ahead of the
        downloader."""
        self._is_schedulers_turn = False
        """Whether the scheduler is asked before ``Releases``."""
        self._idle_since: float | None = None
        """When the crawl began to do nothing but wait (``time.monotonic()``); None
        while it does more."""
        self._idle_after = context.settings.hold_idle
        """Seconds of nothing but waiting, after which ``spider_idle`` is sent."""
        self._next_scheduled: Callable[[], Request | None]
        """The scheduler's own ``next_request()``."""
        self._has_scheduled: Callable[[], bool]
        """The scheduler's own ``has_pending_requests()``."""
        self._is_bypassed = False
        """Whether our methods only call the scheduler's own: while the scheduler calls
        them itself, and at the crawl's end."""
        context.crawler.signals.connect(
            self._spider_opened, scrapy_signals.spider_opened
        )

    def _spider_opened(self) -> None:
        """Stand in for the scheduler's methods from now on."""
        engine = self._engine
        scheduler = engine.scheduler
        self._next_scheduled = scheduler.next_request
        self._has_scheduled = scheduler.has_pending_requests
        if engine.scheduler_is_foreign:
            # On spider_idle, such a scheduler gets more requests.
            self._idle_after = 0.0
        engine.before_closing(Stage.GATE, self._stand_aside)
        engine.start_waits_while(self.has_no_room)
        try:
            scheduler.next_request = self.next_request
            scheduler.has_pending_requests = self.look_for_pending_requests
        except AttributeError:  # the scheduler has __slots__
            # Its requests wait for robots.txt in the middleware, as direct downloads
            # do.
            logger.info(
                "%(scheduler)s doesn't let its methods be replaced: requests wait for robots.txt in the "
                "downloader, and none are held",
                {"scheduler": type(scheduler).__name__},
                extra=self._context.extra,
            )
        self._early.begin(scheduler)

    # What the middleware asks about a request

    def came_through(self, request: Request) -> bool:
        """Whether *request* came through here, unlike a media pipeline's direct
        downloads."""
        return request in self._known_at_gate

    def known_at_gate(self, request: Request) -> KnownAtGate | None:
        """Return what was known of the origin of *request* when it left the gate; None
        if nothing was, or if it didn't come through here. Since then, the origin may
        have been forgotten, or its robots.txt be unreachable again."""
        return self._known_at_gate.get(request)

    def note_arrival(self, request: Request) -> bool:
        """Forget what was known when *request* left, since the middleware has dealt
        with it. Return whether it came through here."""
        if request not in self._known_at_gate:
            return False
        self._known_at_gate[request] = None  # the key still says that it came through
        return True

    # What the engine asks for

    def next_request(self) -> Request | None:
        """Return the next request that may go on to the middleware; None if there is
        none now. The scheduler and ``Releases`` take turns, so that thousands of
        requests that leave don't delay an urgent one in the scheduler."""
        if self._is_bypassed:
            return self._next_scheduled()
        if self._holding.closing:
            return None

        # While both have requests, the scheduler and Releases take turns.
        has_leaving = bool(self._releases.turns or self._releases.ready)
        scheduler_had_turn = self._is_schedulers_turn or self._is_scheduler_exhausted
        self._is_schedulers_turn = has_leaving and not scheduler_had_turn
        # With that many origins about to leave, look at one of the scheduler's requests
        # only (see self._enough_origins).
        is_far_ahead = len(self._releases.turns) >= self._enough_origins
        only_one_try = is_far_ahead and self._is_schedulers_turn

        # Ask the one whose turn it is, and then the other one.
        request = None
        if has_leaving and not self._is_schedulers_turn:
            request = self._next_released()
        if request is None:
            self._is_scheduler_exhausted = False
            request = self._next_of_scheduler(only_one_try=only_one_try)
        if request is None and self._is_schedulers_turn:
            request = self._next_released()
        if request is None and only_one_try:
            # Nothing that was released can leave, since the download slots are full. So
            # look at more than one request of the scheduler.
            request = self._next_of_scheduler(only_one_try=False)
        if request is not None:
            self._idle_since = None  # the crawl does more than wait
        return request

    def _next_released(self) -> Request | None:
        """Return the next request that has stayed here and may leave now; None if there
        is none. Note what is known of its origin for the middleware, even if a fetch is
        due."""
        request = self._releases.next()
        if request is None:
            return None
        self._known_at_gate[request] = None  # nothing is known so far
        try:
            state_or_origin, _ = self._origins.find(request)
        except ValueError:
            return request  # it has no origin
        # The middleware judges by this if the origin is forgotten or unreachable by
        # then.
        if isinstance(state_or_origin, OriginState):
            state: OriginState | None = state_or_origin
        else:
            state = self._origins.cache.look_up(state_or_origin)
        if state is not None:
            self._known_at_gate[request] = state, state.counts_as
        return request

    def _next_of_scheduler(self, *, only_one_try: bool) -> Request | None:
        """Return a request from the scheduler that needn't wait. If the scheduler's
        request has to stay and another may leave at once, return that one; None if
        there is neither. The engine is woken when an answer comes, or is late, so it
        needn't ask again soon. *only_one_try*: look at one of the scheduler's requests
        only."""
        slice_end = time.perf_counter() + SLICE_SECONDS
        while self._held.may_wait and not self._is_scheduler_exhausted:
            # The scheduler may itself call the methods that we have replaced.
            self._is_bypassed = True
            try:
                request = self._next_scheduled()
            finally:
                self._is_bypassed = False
            if request is None:
                return None
            if self._check is not None and self._begin_check(self._check, request):
                stays = True
            else:
                stays = self._keep_if_unknown(request)
            if not stays:
                # The middleware asks whether a request came through here.
                self._known_at_gate.setdefault(request, None)
                return request
            if self._releases.ready:  # another may leave at once
                return self._next_released()
            if only_one_try:
                return None
            is_slice_over = time.perf_counter() >= slice_end
            if is_slice_over and not self._is_scheduler_exhausted:
                self._engine.wake()  # the engine asks again after other events
                return None
        return None

    def _ask_if_scheduled(self) -> bool:
        """Return whether the scheduler has requests. It may itself call the methods
        that we have replaced."""
        self._is_bypassed = True
        try:
            return self._has_scheduled()
        finally:
            self._is_bypassed = False

    def look_for_pending_requests(self) -> bool:
        """Stand in for the scheduler's ``has_pending_requests()``: return whether the
        crawl has work. To wait for answers counts as work for a minute (``hold_idle``
        in settings.py). Then the engine sends ``spider_idle``, since the spider may
        have other work; the requests that wait keep the crawl open
        (``Holding._spider_idle``)."""
        if self._is_bypassed:
            return self._has_scheduled()
        if self._has_work():
            self._idle_since = None
            return True
        if not self._held.has_requests:
            return False
        return self._count_idle_time()

    def _has_work(self) -> bool:
        """Whether requests are scheduled, may leave the gate, are being checked, or
        were dropped early just now (early.py)."""
        only_handed_back = self._is_scheduler_exhausted and self._held.has_requests
        if self._ask_if_scheduled() and not only_handed_back:
            return True
        releases = self._releases
        if releases.turns or releases.ready or releases.being_checked:
            return True
        return self._early.is_pending

    def _count_idle_time(self) -> bool:
        """Count the time in which requests only wait, and log what is held. Return
        whether this still counts as work; once it doesn't, the engine sends
        ``spider_idle``."""
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if self._held.tally.counted:
            # Some wait for a first answer that isn't very late, or are about to leave
            # without having been held.
            return True
        self._holding.tell(idle=True)
        return now - self._idle_since < self._idle_after

    async def _stand_aside(self) -> None:
        """Let the scheduler answer by itself from now on: when it closes, it may look
        at the requests that it still has."""
        self._is_bypassed = True

    def has_no_room(self) -> bool:
        """Whether the gate takes no more requests of the scheduler for now, and lets
        none leave."""
        if self._held.may_wait or self._releases.ready:
            return False
        return not self._releases.may_leave()

    # Where a request of the scheduler goes

    def _begin_check(self, check_of: Check, request: Request) -> bool:
        """Begin the check of *request*, if *check_of* returns one; the request stays
        until the check is over. Return whether there is one."""
        check = check_of(request)
        if check is None:
            return False
        self._releases.being_checked.add(request)
        deferred_from_coro(self._go_on_after(check, request))
        return True

    async def _go_on_after(
        self, check: Coroutine[Any, Any, None], request: Request
    ) -> None:
        """Await *check*. Then let *request* stay or go on, like a request that needs no
        check. If the check raised something, the middleware raises it."""
        being_checked = self._releases.being_checked
        is_kept = False
        verdict: Exception | None = None
        try:
            await check
            if request in being_checked:
                is_kept = self._keep_if_unknown(request)
        except asyncio.CancelledError as error:
            verdict = RuntimeError(f"the check was cancelled ({type(error).__name__})")
        except Exception as error:  # noqa: BLE001 (for the middleware to raise)
            verdict = error
        if request not in being_checked:
            return  # the spider closes: HandingBack.empty() has taken the request
        being_checked.remove(request)
        if not is_kept:
            self._releases.make_ready(request, verdict)

    def _keep_if_unknown(self, request: Request) -> bool:
        """Keep *request* here if its robots.txt isn't known, or other requests are to
        leave in its place. Return whether it is kept."""
        # The fast path, as in the middleware. Most requests are to known origins, found
        # by what their URL begins with.
        meta = request.meta
        url = request.url
        slash = url.find("/", SCHEME_LENGTH)
        prefix = url[: slash + 1]
        state = self._by_prefix.get(prefix)
        if (
            state is not None
            and state.rules is not None
            and self._context.clock() < state.status.until
            and HANDED_BACK not in meta
            and not self._releases.turns  # else others may have to leave in its place
        ):
            self._known_at_gate[request] = state, state.status
            return False

        # What needs no robots.txt goes on.
        past = NO_PAST
        if HANDED_BACK in meta:
            past = self._holding.handing_back.restore(request)
        if meta.get("dont_obey_robotstxt") or FOREIGN_SCHEME.match(url):
            return False
        try:
            state_or_origin, path = self._origins.find(request)
        except ValueError:
            return False  # it has no origin, as the middleware will say
        if path == ROBOTS_PATH:  # no rules apply to it
            return False

        # What needs an answer stays.
        if isinstance(state_or_origin, Origin):
            # Nothing that is known of this origin is usable: a fetch is due.
            return self._keep_unless_full(state_or_origin, None, request, past)
        state = state_or_origin
        if state.unreachable and not self._context.settings.dry_run:
            return self._keep_unless_full(state.origin, state, request, past)

        # The rules are known. The request goes on, unless another leaves in its place.
        if self._holding.stay_behind(state.origin, request, past.waited):
            return True
        self._known_at_gate[request] = state, state.status
        return False

    def _keep_unless_full(
        self, origin: Origin, state: OriginState | None, request: Request, past: Past
    ) -> bool:
        """Make *request* wait, or be held, for an answer of *origin*, as ``Policy``
        says. Return whether it stays or went back to the scheduler, so that the engine
        doesn't get it. *state*: what is known of *origin*; None: a fetch is due.
        *past*: what is known of *request* from before it was handed back to the
        scheduler."""
        holding = self._holding
        queue = self._held.queues.get(origin)
        is_very_late = queue is not None and queue.lateness is Lateness.VERY_LATE
        # While a fetch is due, requests wait even without room, unless the fetch is
        # very late.
        advice = STAY
        if state is not None or is_very_late:
            is_full = not self._held.room_for(queue)
            advice = self._origins.policy.at_the_gate(state, full=is_full)
        if advice.action is Action.LEAVE:
            if state is not None:
                # The middleware acts on this state, even if an attempt becomes due
                # before the request gets there.
                self._known_at_gate[request] = state, state.status
            return False

        disk = self._held.disk
        if (
            disk is not None
            and disk.earlier_counts
            and disk.recognise_copy(str(origin), request)
        ):
            # An earlier run held this request, and a copy of it came again. The copy is
            # dropped, since the one on disk is enough.
            self._count("rep/held/already")
            return True

        if advice.action is Action.STAY:
            holding.keep(origin, state, request, past.waited)
            return True

        # There is no room.
        if holding.handing_back.hand_back(request, past.waited):
            # If this request had been put behind all others before, the scheduler has
            # only requests that had been put there, too.
            self._is_scheduler_exhausted = past.came_last
            return True
        holding.log.warn_full(origin)
        self._releases.verdicts[request] = advice.why  # it fails in the middleware
        return False
