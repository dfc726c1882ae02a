"""The gate at the scheduler's exit: a request whose robots.txt isn't known yet stays here, and the
engine gets the next one (REP.md section 4; docs/DESIGN.md).

It stands in for two documented methods of the project's scheduler, whichever that is:
``next_request()`` and ``has_pending_requests()``. A request leaves it once, returned by
``next_request()``: nothing is scheduled again.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep import signals
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Slices
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.handing_back import HANDED_BACK, tell_given_up
from scrapy_rep.holding.hold import Held, HeldOrigin, HeldOrigins, announce
from scrapy_rep.origins.agents import FOREIGN, SCHEME
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop, Hold, Leave, Wait
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin

if TYPE_CHECKING:
    from scrapy_rep.holding.deferral import Deferral

logger = get_logger(__name__)

# Requests that leave the scheduler in one step: Scrapy's own; others, which ask a server for each.
_STEP, _FOREIGN_STEP = 100, 16
# Seconds until a scheduler that has only requests without room is asked again, unless something
# else makes the engine ask it.
_REST_SECONDS = 1.0
# Origins looked at in one step for one whose download slot isn't full.
_LOOKS = 50
# Seconds until an unreadable file is tried again.
_RETRY_SECONDS = 1.0

Verdict: TypeAlias = "Drop | Exception"


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
        """Sees each request from the scheduler. May return a check to await before any fetch."""
        self._let_out: WeakSet[Request] = WeakSet()
        self._checks = 0
        self._nothing_else = False  # whether there is no room for all that the scheduler has
        self._rests = False  # whether the scheduler will be asked again after a rest
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
            message = (
                "%(scheduler)s doesn't let its methods be replaced: requests wait for robots.txt in the "
                "downloader, and none are held"
            )
            values = {"scheduler": type(scheduler).__name__}
            logger.info(message, values, extra=self._context.extra)

    def __contains__(self, request: Request) -> bool:
        """Whether *request* came through here, unlike a media pipeline's direct downloads."""
        return request in self._let_out

    def next_request(self) -> Request | None:
        """Return the next request that may go on to the middleware; None if there is none now."""
        if self._deferral.closing:
            return None
        request = self._releases.next() if self._releases else None
        if request is None:
            request = self._next_scheduled()
        if request is not None:
            self._let_out.add(request)
            self._idle_since = None
        return request

    def _next_scheduled(self) -> Request | None:
        self._nothing_else = False
        slices = Slices()
        for _ in range(self._step):
            # An answer wakes the engine, and so does the end of the wait for it.
            if not self._held.may_wait or self._nothing_else:
                return None
            request = self._next()
            if request is None:
                return None
            check = self.look(request) if self.look is not None else None
            if check is not None:
                self._checks += 1
                deferred_from_coro(self._stays_or_leaves(request, check))
            elif not self._is_kept(request):
                return request
            if slices.over and not self._nothing_else:
                break  # a server may have taken its time for some that went back
        self._context.engine.wake()
        return None

    def has_pending_requests(self) -> bool:
        """Whether the crawl isn't idle: requests are scheduled, may leave the gate, or wait for an
        answer. After ``REP_DEFER_IDLE`` seconds of only waiting it counts as idle: its spider may
        have other work."""
        scheduled = self._has_pending() and not (self._nothing_else and self._held)
        if scheduled or self._releases or self._checks:
            self._idle_since = None
            return True
        if not self._held:
            return False
        now = time.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if not self._held.awaits_first_answers:
            self._deferral.tell(idle=True)
            return now - self._idle_since < self._idle_after
        return True

    # Where a request goes

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
        """Keep *request* here if its robots.txt isn't known. Return whether it is kept."""
        # Fast path, as in the middleware: most requests are to known origins.
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
        return bool(self._releases) and self._deferral.joins(found.name, request, since)

    def _is_kept_for(
        self, origin: Origin, state: OriginState | None, request: Request, since: float | None
    ) -> bool:
        """Make *request* wait, or be held, for an answer of *origin*, unless it had better leave."""
        deferral, hold = self._deferral, self._held
        advice = self._origins.policy.at_the_gate(state, hold.room(origin))
        if isinstance(advice, Leave):
            return False
        if hold.disk is not None and hold.disk.is_held_already(str(origin), request):
            self._context.stats.inc_value("rep/held/already")
        elif isinstance(advice, Wait):
            deferral.wait(origin, request, since)
        elif isinstance(advice, Hold):
            assert state is not None
            deferral.hold(state, request, since)
        elif not deferral.handing_back.one(request, since):
            hold.log.full(origin)
            self._releases.verdicts[request] = advice
            return False
        elif deferral.handing_back.came_last(request):
            self._nothing_else = True
            if not self._rests:
                self._rests = True
                call_later(_REST_SECONDS, self._rested)
        return True

    def _rested(self) -> None:
        self._rests = False
        self._context.engine.wake()


class Releases:
    """The origins with requests that may leave, and what becomes of these."""

    def __init__(self, context: CrawlContext, held: HeldOrigins, deferral: Deferral) -> None:
        self._context = context
        self._held = held
        self._deferral = deferral
        self._turns: dict[int, deque[HeldOrigin]] = {}
        """Origins by the priority of their most urgent request."""
        self._resting = 0  # origins whose requests can't be read at the moment
        self._told = self._ended = self._moved = False
        self._loose: deque[Request] = deque()
        """Requests that needn't wait for anything, but couldn't leave at once."""
        self.verdicts: WeakKeyDictionary[Request, Verdict] = WeakKeyDictionary()
        """What was decided about requests that have left, or are about to."""

    def __bool__(self) -> bool:
        return bool(self._turns or self._loose or self._resting)

    def add(
        self,
        held_origin: HeldOrigin,
        given_up: tuple[str, int] | None = None,
        before: float = math.inf,
    ) -> None:
        """Let requests of an origin leave: all, or those that came *before* then. *given_up*: why,
        and after how many attempts, they are to fail; None to release them."""
        if self._ended:
            return
        held_origin.let_leave(given_up, before)
        if not held_origin.in_turn:
            self._queue(held_origin)
            self._context.engine.wake()

    def let_out(self, request: Request, verdict: Verdict | None = None) -> None:
        """Let *request* leave as soon as the engine asks; it fails if there is a *verdict*."""
        if verdict is not None:
            self.verdicts[request] = verdict
        self._loose.append(request)
        self._context.engine.wake()

    def end(self) -> None:
        """Let no more requests leave: the spider closes."""
        self._ended = True
        self._turns.clear()

    def take_loose(self) -> list[Request]:
        """Return those that were let out and haven't left, which they no longer will."""
        loose = list(self._loose)
        self._loose.clear()
        return loose

    def next(self) -> Request | None:
        """Return the next request to leave for which a download slot is free, if any."""
        if self._loose:
            return self._loose.popleft()
        looks, self._moved = _LOOKS, False
        for priority in sorted(self._turns, reverse=True):
            origins = self._turns[priority]
            for _ in range(min(looks, len(origins))):
                looks -= 1
                held_origin = origins.popleft()
                held_origin.in_turn = False
                request = self._leave(held_origin)
                if not origins:
                    self._turns.pop(priority, None)
                if request is not None:
                    return request
            if not looks:
                break
        if self._moved:
            self._context.engine.wake()  # there may be more behind them
        return None

    def _leave(self, held_origin: HeldOrigin) -> Request | None:
        """Give the origin its turn. Return the request that leaves, if any."""
        heap = held_origin.failing or held_origin.ready
        try:
            held = self._held.first(held_origin, heap)
        except sqlite3.Error as error:
            self._rest(held_origin, error)
            return None
        if held is None:
            self._moved = True
        else:
            if heap is held_origin.ready:
                is_old = time.monotonic() >= held_origin.good_until
                if is_old and self._deferral.is_due(held_origin):
                    return None
                if self._context.engine.slots.is_full(held.request, held_origin.leaving):
                    self._queue(held_origin)
                    return None
                held_origin.leaving.append(held.request)
            heappop(heap)
            self._told = False
            self._held.left(held_origin, held)
            if heap is held_origin.failing:
                self._give_up(held_origin, held)
            elif held.counts:
                self._release(held_origin, held)
        if not held_origin.leaves:
            self._deferral.finished(held_origin)
        elif not held_origin.in_turn:
            self._queue(held_origin)
        return held.request if held is not None else None

    def _queue(self, held_origin: HeldOrigin) -> None:
        """Let the origin have its turn after the others."""
        heap = held_origin.failing or held_origin.ready
        held_origin.in_turn = True
        self._turns.setdefault(-heap[0][0] if heap else 0, deque()).append(held_origin)

    def _rest(self, held_origin: HeldOrigin, error: sqlite3.Error) -> None:
        """Let an origin whose requests can't be read wait a little."""
        if not self._told:
            self._told = True
            message = "Can't release held requests, retrying: %(error)s"
            logger.error(message, {"error": error}, extra=self._context.extra)
        self._resting += 1
        call_later(_RETRY_SECONDS, self._rested, held_origin)

    def _rested(self, held_origin: HeldOrigin) -> None:
        self._resting -= 1
        if not (self._ended or held_origin.in_turn):
            self._queue(held_origin)
            self._context.engine.wake()

    def _release(self, held_origin: HeldOrigin, held: Held) -> None:
        held_origin.released += 1
        self._context.stats.inc_value("rep/released")
        seconds, kind = self._held.now() - held.since, signals.request_released
        announce(self._context, kind, held.request, held_origin.origin, held_for=seconds)

    def _give_up(self, held_origin: HeldOrigin, held: Held) -> None:
        origin, cause = held_origin.origin, self._held.failure(held_origin.origin)
        if not held.counts:
            if for_room := self._held.room_for(held_origin) <= 0:
                self._held.log.full(origin)
            drop = Drop(*held_origin.why, for_room=for_room, cause=cause)
            self.verdicts[held.request] = drop
            return
        held_origin.given_up += 1
        if self._held.disk is not None:
            self._held.disk.give_up(held_origin.key, held)
        # The origin may be forgotten before it arrives.
        error = RobotsUnreachable(origin, *held_origin.why, cause)
        error.held_for = self._held.now() - held.since
        self.verdicts[held.request] = error

    def verdict(self, request: Request) -> Drop | None:
        """Return what was decided at the gate about *request*, which the middleware has now;
        ``RobotsUnreachable`` if it was given up, and what a failed check raised."""
        if not self.verdicts or (verdict := self.verdicts.pop(request, None)) is None:
            return None
        if isinstance(verdict, Drop):
            return verdict
        if isinstance(verdict, RobotsUnreachable):
            tell_given_up(self._context, request, verdict)
        raise verdict from verdict.__cause__
