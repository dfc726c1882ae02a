"""Holds requests while their robots.txt can't be fetched (REP.md section 4; docs/DESIGN.md).

The life of a held request:

1. The gate (gate.py) passes it to the interceptor (intercept.py), which takes it out of the downloader.
2. The hold keeps it: in memory (hold.py) or, with a JOBDIR, on disk (disk.py).
3. It waits, at most ``REP_DEFER_MAX_WAIT`` seconds. This module decides when to ask its origin again.
4. An answer, or a timeout, releases it (release.py). It returns through the scheduler to the
   middleware, where the rules decide, or it fails.
5. If the spider stops first, it stays on disk. Without a JOBDIR, shutdown.py hands it to a scheduler
   that outlives the crawl, or calls its errback.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.job import job_dir
from twisted.internet.defer import CancelledError

from scrapy_rep import signals
from scrapy_rep.engine.closing import Stage
from scrapy_rep.engine.scheduler_door import SchedulerDoor
from scrapy_rep.engine.upkeep import Upkeep
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.engine.words import text_of
from scrapy_rep.holding.alarm import Alarm
from scrapy_rep.holding.disk import Opening
from scrapy_rep.holding.held_origin import HeldOrigin
from scrapy_rep.holding.held_origins import HeldOrigins
from scrapy_rep.holding.hold import Held, lean
from scrapy_rep.holding.in_place import InPlace
from scrapy_rep.holding.intercept import Interceptor
from scrapy_rep.holding.last_attempts import LastAttempts
from scrapy_rep.holding.release import Releases
from scrapy_rep.holding.shutdown import Shutdown
from scrapy_rep.origins.resolver import ResolutionListener

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scrapy import Request, Spider

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.origins.waiting_room import Place
    from scrapy_rep.protocol import Origin

# Seconds between log lines about held requests.
_TELL_SECONDS = 60.0

# Seconds until a look at what became of a fetch that was ended.
_EXPIRY_SECONDS = 1.0

# Seconds. Sums of times may differ in their last digits.
_ROUNDING = 0.001


class Deferral(ResolutionListener):
    """Holds requests and releases them, each origin on its own schedule."""

    part = "holding of requests"

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        crawler = context.crawler
        self._context = context
        self._policy = origins.policy
        self._cache = origins.cache
        self._table = origins.table
        self._flights = origins.flights
        self.door = door = SchedulerDoor(crawler, context.engine)
        self._in_place = InPlace(origins, door)
        self._max_wait = context.settings.defer_max_wait
        self.held = HeldOrigins(context, origins)
        self.releases = Releases(context, self.held, door, self._finished)
        self._shutdown = Shutdown(context, self.releases, self.held)
        self._retries = self._alarm(self._ask_again)
        self._last = LastAttempts(context.settings)
        self._deadlines = self._alarm(self._time_is_over)
        self._slow_answers = self._alarm(self._in_place.is_slow)
        self._reports = Alarm(time.monotonic, self._report, self._is_paused)
        self._upkeep = Upkeep(self._look)
        self._opening: Opening | None = None
        """None without a JOBDIR."""
        self.interceptor = Interceptor(crawler, self._intercepted)
        self._closing = False
        connect = crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)

    def _alarm(self, act: Callable[[HeldOrigin], None]) -> Alarm:
        def on_due(key: str) -> None:
            held_origin = self.held.get(key)
            if held_origin is not None:
                act(held_origin)

        return Alarm(time.monotonic, on_due, self._is_paused)

    def _is_paused(self) -> bool:
        return self._context.engine.paused

    @property
    def holding(self) -> bool:
        """Whether any requests are held, or on their way back."""
        return bool(self.held or self.releases)

    @property
    def durable(self) -> bool:
        """Whether requests held when the crawl ends continue in the next one."""
        return self.held.hold.durable or self._context.engine.scheduler_outlives

    # Holding

    def hold_in_place(self, place: Place) -> bool:
        """Hold the request in *place* as others are, but where it is, until its robots.txt turns out to
        be slow. Return whether it may stay. Not with a JOBDIR: what is held must be on disk."""
        origin = place.origin
        if self._opening is not None or self._closing or self.held.full_for(origin):
            return False
        if self._cache.get(origin) is not None or not self._in_place.may_hold(place):
            return False
        held = self.held.next(place.request, *self.releases.before(place.request))
        held = lean(held._replace(place=place))
        if held.request is place.request:
            return False  # it can't be copied, so it could be released twice
        self._add(origin, held, None).places.append(place)
        return True

    def _intercepted(self, request: Request) -> bool:
        """Hold *request*. Return False to let it go to the scheduler instead."""
        if self._in_place.was_sent_away(request):
            return True  # it is held already
        origin = origin_of(request)
        state = self._cache.get(origin)
        held = self.held.next(request, *self.releases.before(request))
        if self._closing:
            return self._shutdown.take(origin, held, self._add)
        if self.held.full_for(origin):
            self.releases.mark(held)
            return False  # back to the scheduler: in the middleware it can wait
        held_origin = self._add(origin, held, state)
        if state is None:
            # It is being fetched, or has just become due again.
            self._flights.to(origin, request, again=True)
        elif not self._policy.is_worth_waiting(state):
            self.releases.add(held_origin)  # an answer came meanwhile
        return True

    def _add(self, origin: Origin, held: Held, state: OriginState | None) -> HeldOrigin:
        key = str(origin)
        held_origin = self.held.add(origin, held)
        self._expect(key, held.since)
        if state is not None and state.unreachable:
            self._is_unreachable(held_origin)
            if self._policy.is_worth_waiting(state):
                if key not in self._retries:
                    self._retry_later(key, state)
                held_origin.tell_unreachable()
                left = held.since + self._max_wait - self.held.now()
                if left < self._last.hopeless(state.entry, self._context.clock()):
                    self._give_up_hopeless(held_origin, state)
        flight = self._flights.get(origin)
        if flight is not None:
            left = flight.left_of(self._policy.slow)
            self._slow_answers.set(key, time.monotonic() + left)
        self._context.stats.inc_value("rep/deferred")
        self._context.crawler.signals.send_catch_log(
            signals.request_deferred,
            request=held.place.request if held.place else held.request,
            origin=origin,
            spider=self._context.spider,
        )
        return held_origin

    # What is known of an origin

    async def resolved(self, resolution: Resolution) -> None:
        """Release what waited for this answer, or schedule the next attempt."""
        state = resolution.state
        held_origin = self.held.get(state.origin)
        if held_origin is None:
            return
        entry = state.entry
        if state.unreachable:
            self._is_unreachable(held_origin)
        if not state.unreachable or self._context.settings.unreachable != "defer":
            self.releases.add(held_origin)
        elif not self._policy.is_worth_waiting(state):
            why = f"{entry.error}; the host is down", entry.attempts
            self.releases.add(held_origin, why)
        else:
            self._in_place.send_away(held_origin)
            self._table.pin(state.origin)
            self._retry_later(str(state.origin), state)
            held_origin.tell_unreachable()
            self._give_up_hopeless(held_origin, state)

    def failed(self, origin: Origin, error: Exception) -> None:
        """Give up: after a misconfiguration or a bug, retrying can't help."""
        held_origin = self.held.get(origin)
        if held_origin is not None and not isinstance(error, CancelledError):
            self.releases.add(held_origin, (text_of(error), 0))

    def _is_unreachable(self, held_origin: HeldOrigin) -> None:
        """Count requests that no longer wait for a first answer but for a better one."""
        if held_origin.unanswered:
            self._context.stats.inc_value("rep/deferred/unreachable", held_origin.unanswered)
            held_origin.unanswered = 0

    # Waiting

    def _retry_later(self, key: str, state: OriginState) -> None:
        seconds = state.entry.next_attempt_at - self._context.clock()
        self._retries.set(key, time.monotonic() + seconds)

    def _ask_again(self, held_origin: HeldOrigin) -> None:
        known = self._table.get(held_origin.origin)
        # After a proxy's failure, by the way that another request goes.
        number = known.entry.proxy_attempts if known else 0
        like = self.held.hold.peek(str(held_origin.origin), number)
        self._flights.to(held_origin.origin, like, again=True)

    def _expect(self, key: str, since: float) -> None:
        """Set the deadline of requests held *since* then, and schedule the log's reports."""
        now = time.monotonic()
        self._deadlines.set_sooner(key, now + since + self._max_wait - self.held.now())
        self._reports.set_sooner("", now + _TELL_SECONDS)

    def _time_is_over(self, held_origin: HeldOrigin) -> None:
        """Make a last attempt if the one before was long ago; give requests up if it takes too long."""
        origin, key = held_origin.origin, str(held_origin.origin)
        oldest = self.held.hold.oldest(key)
        if oldest is not None and self.held.now() < oldest + self._max_wait - _ROUNDING:
            self._expect(key, oldest)
            return
        known = self._table.get(origin)
        entry = known.entry if known else None
        if origin not in self._flights and self._last.is_due(entry, self._context.clock()):
            self._last.made(key, entry)
            self._cache.ask_early(origin)
            self._ask_again(held_origin)
        flight = self._flights.get(origin)
        if flight is not None:
            left = flight.left_of(self._last.seconds)
            if left > 0 or self._flights.expire(origin):
                self._deadlines.set(key, time.monotonic() + max(left, _EXPIRY_SECONDS))
                return
        self._give_up_oldest(held_origin, self.held.why(held_origin, self._held_for))

    @property
    def _held_for(self) -> str:
        return f"held for {self._max_wait:g} s"

    def _give_up_oldest(
        self, held_origin: HeldOrigin, why: tuple[str, int], seconds: float = 0.0
    ) -> None:
        """:param seconds: give up those, too, whose time is over within so many seconds"""
        before = self.held.now() + seconds - self._max_wait + _ROUNDING
        oldest = self.held.hold.oldest(str(held_origin.origin))
        if oldest is not None and oldest <= before:
            self.releases.add(held_origin, why, before=before)

    def _give_up_hopeless(self, held_origin: HeldOrigin, state: OriginState) -> None:
        """After a failure, give up those for which no further attempt will come."""
        entry, late = state.entry, self._last.late
        why = f"{entry.error}; {self._held_for}", entry.attempts
        self._give_up_oldest(held_origin, why, late)
        seconds = self._last.hopeless(entry, self._context.clock())
        if seconds > late:
            reason = f"{entry.error}; no attempt would be made before it is {self._held_for}"
            self._give_up_oldest(held_origin, (reason, entry.attempts), seconds)

    def _report(self, _: str) -> None:
        if self.held:
            self.held.tell(*self._next())
            self._reports.set("", time.monotonic() + _TELL_SECONDS)

    def _next(self) -> tuple[float, float]:
        """Seconds until the next robots.txt attempt, and until requests are given up."""
        now, given_up = time.monotonic(), self._deadlines.soonest
        return min(self._retries.soonest, given_up) - now, given_up - now

    def _finished(self, held_origin: HeldOrigin) -> None:
        """A release has ended: set the next deadline, or forget the origin."""
        key = str(held_origin.origin)
        oldest = self.held.hold.oldest(key)
        if oldest is not None:
            self._expect(key, oldest)
        elif self.held.get(key) is held_origin:
            for alarm in (self._retries, self._deadlines, self._slow_answers):
                alarm.set(key, math.inf)
            self.held.end(held_origin)

    # The crawl's beginning and end

    def _spider_opened(self, spider: Spider) -> Coroutine[Any, Any, None] | None:
        self._context.engine.before_closing(Stage.HOLDING, self._before_closing)
        directory = job_dir(self._context.crawler.settings)
        if not directory:
            return None
        self._opening = Opening(directory, spider)
        return self._upkeep.begin()

    async def _look(self) -> None:
        """Maintain the hold on disk; open it if that hasn't worked so far."""
        if self.held.hold.durable or self._opening is None:
            # Record the running time: a killed run has used some of REP_DEFER_MAX_WAIT.
            counts = self.held or self._closing
            await self.held.hold.upkeep(self.held.now() if counts else None)
        elif not self._closing and not self.releases:
            hold = await run_in_thread(self._opening.hold)
            if hold is None:
                return
            if self._closing or self.releases:
                await run_in_thread(hold.close)  # try again in a second
                return
            async for held_origin, oldest in self.held.move_to(hold):
                key = str(held_origin.origin)
                self._expect(key, oldest)
                self._retries.set(key, time.monotonic())
                if self._context.settings.dry_run:
                    self.releases.add(held_origin)

    def _spider_idle(self) -> None:
        if self.held and not self.releases:
            self.held.tell_idle(*self._next())
        if self.held or self.releases or self._flights.landing:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        """Let nothing in flight or held delay the end, and lose nothing that is held."""
        self._closing = True
        self._in_place.end(self.held.all())
        for alarm in (self._retries, self._deadlines, self._slow_answers, self._reports):
            alarm.stop()
        self.releases.end()
        await self._shutdown.explain()
        self._flights.end()
        await self._upkeep.now()
        await self._shutdown.empty()

    async def _spider_closed(self) -> None:
        self.releases.close()
        await self._upkeep.end()
        await run_in_thread(self.held.hold.close)
