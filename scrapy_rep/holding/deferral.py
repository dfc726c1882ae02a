"""Makes requests wait for their origin's answer, and holds them while there is none, also when the
spider closes (Ctrl-C, say; REP.md section 4; docs/DESIGN.md). Settings and signals say *defer*; the
text says *hold*.

The life of a held request:

1. The gate (gate.py) takes it from the scheduler, and makes it wait here for its robots.txt.
2. After ``REP_DEFER_GRACE`` seconds, or a failure, it counts as held: in memory (hold.py) or, with a
   JOBDIR, on disk (disk.py).
3. It waits, at most ``REP_DEFER_MAX_WAIT`` seconds (``_time_is_over``). This module decides when to ask
   its origin again.
4. An answer, or a timeout, lets it leave the gate (gate.py), once. In the middleware the rules
   decide, or the request fails.
5. If the spider closes first, it stays on disk for the next run. Without a JOBDIR, or if it isn't in
   the file, handing_back.py hands it to a scheduler that outlives the crawl, or calls its errback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from heapq import heappush
from typing import Any

from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.job import job_dir
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.engine.lifecycle import Stage
from scrapy_rep.engine.timers import Alarm, PeriodicTask, Slices, pause
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.gate import Releases
from scrapy_rep.holding.handing_back import HandingBack
from scrapy_rep.holding.hold import HeldOrigin, HeldOrigins, entry_of, held_fields
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Resolution, ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop, LastAttempts
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.recorder import Recorder
from scrapy_rep.text import text_of

# Seconds from the start of the fetch after which a first answer takes long, or very long. Then only
# a few of the requests that wait for it keep others from coming, and in the end none.
_LATE_SECONDS, _SLOW_SECONDS = 0.5, 2.5
# Seconds until a look at what became of a fetch that was ended.
_EXPIRY_SECONDS = 1.0
# Seconds: sums of times may differ in their last digits.
_ROUNDING = 0.001
# The most held of a scheduler that isn't Scrapy's, without a JOBDIR: it may be shared.
_MOST_SHARED = 1000
# Held URLs whose verdict is looked at when a robots.txt changes.
_SOME = 20
# Seconds between log lines about held requests.
_TELL_SECONDS = 60.0


class Deferral(ResolutionListener):
    """Holds requests and releases them, each origin on its own schedule."""

    part = "holding of requests"

    def __init__(self, context: CrawlContext, origins: Origins, recorder: Recorder) -> None:
        self._context = context
        self._settings = context.settings
        self._policy = origins.policy
        self._cache = origins.cache
        self._table = origins.table
        self._flights = origins.flights
        self._max_wait = context.settings.defer_max_wait
        self._most_joined = concurrency_of(context.crawler)
        self.held = HeldOrigins(context, origins)
        self.releases = Releases(context, self.held, self)
        self.handing_back = HandingBack(context, self.held)
        self._last = LastAttempts(context.settings)
        self._retries = self._alarm(self._ask_again)
        self._deadlines = self._alarm(self._time_is_over)
        self._first_answers = self._alarm(self._first_answer_is_late)
        self._reports = Alarm(self._report, lambda: context.engine.paused)
        self._upkeep = PeriodicTask(self._look)
        self._disk: DiskHold | None = None  # None without a JOBDIR
        self.closing = False
        """Whether the spider closes: nothing leaves the gate any more."""
        recorder.waiting = self._some_urls
        connect = context.crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)

    def _alarm(self, act: Callable[[HeldOrigin], None]) -> Alarm:
        def on_due(key: str) -> None:
            if (held_origin := self.held.get(key)) is not None:
                act(held_origin)

        return Alarm(on_due, lambda: self._context.engine.paused)

    @property
    def holding(self) -> bool:
        return bool(self.held or self.releases)

    def _some_urls(self, origin: str) -> list[str]:
        """Return the URLs of some requests of *origin* that are at the gate."""
        held_origin = self.held.get(origin)
        if held_origin is None:
            return []
        found: list[Request | None] = [held.request for held in held_origin.waiting[:_SOME]]
        if held_origin.count:
            found += [self.held.peek(held_origin, number) for number in range(_SOME)]
        return list(dict.fromkeys(request.url for request in found if request is not None))

    def listing(self) -> list[dict[str, Any]]:
        """Return what is held of each origin, see :func:`held_fields`."""
        found = []
        for held_origin in self.held.all():
            since = held_origin.oldest(everything=True)
            if held_origin.count and since is not None:
                known = self._table.get(held_origin.origin)
                entry, seconds = known.entry if known else None, self.held.now() - since
                found.append(held_fields(held_origin.key, held_origin.count, seconds, entry))
        return found

    # Requests that stay

    def wait(self, origin: Origin, request: Request, since: float | None = None) -> None:
        """Keep *request* (since *since*, or now) until its unknown robots.txt has been fetched."""
        asked_before = self._table.get(origin) is not None
        self._context.stats.inc_value("rep/cache/refresh" if asked_before else "rep/cache/miss")
        held_origin = self.held.add_waiting(origin, request, since)
        if asked_before:
            self._table.pin(origin)
        if not held_origin.leaves:
            held_origin.answered = False
        self._wait_for_answer(held_origin, request)

    def _wait_for_answer(self, held_origin: HeldOrigin, request: Request | None) -> None:
        flight = self._flights.to(held_origin.origin, request)
        if flight.result is not None:
            return  # without asyncio, the answer may be there at once
        seconds = flight.left_of(min(self._policy.grace, _LATE_SECONDS))
        if seconds > 0:
            self._first_answers.set(held_origin.key, seconds, sooner=True)
        else:
            self._first_answer_is_late(held_origin)

    def hold(self, state: OriginState, request: Request, since: float | None = None) -> None:
        """Hold *request* until its unreachable origin answers again."""
        # Others of its origin may wait for the same answer, of which the deferral hasn't heard so
        # far. They come first, and there may be no room for this one then.
        held_origin = self.held.add_waiting(state.origin, request, since)
        held_origin.answered = True
        self._hold_waiting(held_origin, state)
        if state.name not in self._retries:
            self._retry_later(state)
        left = self._max_wait if since is None else since + self._max_wait - self.held.now()
        if left < self._last.hopeless(state.entry, self._context.clock()):
            self._give_up_hopeless(held_origin, state)

    def joins(self, name: str, request: Request, since: float | None) -> bool:
        """Whether *request*, which may be fetched, stays behind others of its origin that are about
        to leave. Behind very many it would wait long, so it goes on."""
        held_origin = self.held.get(name)
        if held_origin is None or not held_origin.ready or held_origin.count:
            return False
        if held_origin.unheld >= self._most_joined:
            return False
        self.held.add_waiting(held_origin.origin, request, since)
        heappush(held_origin.ready, entry_of(held_origin.waiting.pop()))
        return True

    def _first_answer_is_late(self, held_origin: HeldOrigin) -> None:
        flight = self._flights.get(held_origin.origin)
        if flight is None or held_origin.leaves:
            return
        if self._settings.dry_run:
            self.releases.add(held_origin)
            return
        age, grace, slow = -flight.left_of(0), self._policy.grace, self._policy.slow
        held_origin.late = age >= min(grace, _LATE_SECONDS)
        held_origin.slow = age >= min(slow, _SLOW_SECONDS)
        if age >= grace:
            self._settle(held_origin)
            state = self._cache.get(flight.origin) if flight.landing else None
            if state is not None and not state.unreachable:
                # The answer is there: only a handler of ``robots_resolved`` takes long.
                self.releases.add(held_origin)
                return
        if age >= slow:
            self.held.log.held(held_origin, "slow")
            if held_origin.waiting:  # no room
                self._expect(held_origin.key, self.held.now())
        self.held.changed(held_origin)
        later = [one for one in (grace, slow, _LATE_SECONDS, _SLOW_SECONDS) if one > age]
        if later:
            self._first_answers.set(held_origin.key, min(later) - age, sooner=True)
        self._context.engine.wake()

    def _settle(self, held_origin: HeldOrigin) -> None:
        """Hold requests that have only waited so far, if there is room."""
        for held in self.held.hold_waiting(held_origin):
            self._expect(held_origin.key, held.since)

    # What is known of an origin

    async def resolved(self, resolution: Resolution) -> None:
        """Let go what waited for this answer, or schedule the next attempt."""
        state = resolution.state
        held_origin = self.held.get(state.origin)
        if held_origin is None:
            return
        held_origin.answered, held_origin.late, held_origin.slow = True, False, False
        self.held.changed(held_origin)
        if not state.unreachable or self._settings.dry_run:
            self.releases.add(held_origin)
            return
        self._recall(held_origin)
        if not self._policy.is_worth_waiting(state):
            self._is_unreachable(held_origin)
            down = f"{state.entry.error}; the host is down", state.entry.attempts
            self.releases.add(held_origin, down if self._policy.unreachable == "defer" else None)
            return
        self._hold_waiting(held_origin, state)
        if held_origin.count:
            self._retry_later(state)
            self._give_up_hopeless(held_origin, state)
            self._context.engine.wake()
        else:
            self.releases.add(held_origin)  # there is nothing left: forget it

    def failed(self, origin: Origin, error: Exception) -> None:
        """Give up: after a misconfiguration or a bug, retrying can't help."""
        held_origin = self.held.get(origin)
        if held_origin is not None and not isinstance(error, CancelledError):
            held_origin.answered = True
            self.held.changed(held_origin)
            self.releases.add(held_origin, (text_of(error), 0))

    def _recall(self, held_origin: HeldOrigin) -> None:
        if held_origin.ready:
            held_origin.recall()
            self._expect_oldest(held_origin)

    def _hold_waiting(self, held_origin: HeldOrigin, state: OriginState) -> None:
        """Hold those that waited for an answer, and drop those for which there is no room."""
        self._settle(held_origin)
        self._is_unreachable(held_origin)
        if held_origin.count:
            self._table.pin(state.origin)
            self.held.log.held(held_origin, "unreachable")
        for held in self.held.take_waiting(held_origin):
            if not self.handing_back.one(held.request, held.since):
                self.held.log.full(held_origin.origin)
                self.releases.let_out(held.request, Drop.of(state)._replace(for_room=True))

    def _is_unreachable(self, held_origin: HeldOrigin) -> None:
        """Count requests that no longer wait for a first answer but for a better one."""
        if held_origin.unanswered:
            self._context.stats.inc_value("rep/deferred/unreachable", held_origin.unanswered)
            held_origin.unanswered = 0

    def is_due(self, held_origin: HeldOrigin) -> bool:
        """Whether robots.txt has to be fetched again before requests leave. Then it is."""
        if self._settings.dry_run or self._cache.get(held_origin.origin) is not None:
            return False
        self._recall(held_origin)
        self._wait_for_answer(held_origin, self.held.peek(held_origin))
        return True

    def finished(self, held_origin: HeldOrigin) -> None:
        """All that may leave have left: set the next deadline, or forget the origin."""
        if held_origin.heap or held_origin.waiting:
            self._expect_oldest(held_origin)
        elif self.held.get(held_origin.key) is held_origin:
            for alarm in (self._retries, self._deadlines, self._first_answers):
                alarm.forget(held_origin.key)
            self.held.end(held_origin)

    # Waiting

    def _retry_later(self, state: OriginState) -> None:
        self._retries.set(state.name, state.entry.next_attempt_at - self._context.clock())

    def _ask_again(self, held_origin: HeldOrigin) -> None:
        known = self._table.get(held_origin.origin)
        # After a proxy's failure, through the proxy of another request.
        number = known.entry.proxy_attempts if known else 0
        self._flights.to(held_origin.origin, self.held.peek(held_origin, number), again=True)

    def _expect(self, key: str, since: float) -> None:
        """Set the deadline of requests held since *since*, and schedule the log's reports."""
        self._deadlines.set(key, since + self._max_wait - self.held.now(), sooner=True)
        self._reports.set("report", _TELL_SECONDS, sooner=True)

    def _expect_oldest(self, held_origin: HeldOrigin) -> None:
        oldest = held_origin.oldest()
        if oldest is not None:
            self._expect(held_origin.key, oldest)

    def _time_is_over(self, held_origin: HeldOrigin) -> None:
        """Make a last attempt if the one before was long ago; give requests up if it takes too long."""
        origin, oldest = held_origin.origin, held_origin.oldest()
        if oldest is None:
            return  # all are about to leave
        if self.held.now() < oldest + self._max_wait - _ROUNDING:
            self._expect(held_origin.key, oldest)
            return
        known = self._table.get(origin)
        entry = known.entry if known else None
        if origin not in self._flights and self._last.is_due(entry, self._context.clock()):
            self._last.made(held_origin.key, entry)
            self._ask_again(held_origin)
        flight = self._flights.get(origin)
        if flight is not None:
            left = flight.left_of(self._last.seconds)
            if left > 0 or self._flights.expire(origin):
                self._deadlines.set(held_origin.key, max(left, _EXPIRY_SECONDS))
                return
        self._give_up(held_origin, self.held.why(held_origin))

    def _give_up(
        self,
        held_origin: HeldOrigin,
        why: tuple[str, int],
        within: float = 0.0,
        reason: str | None = None,
    ) -> None:
        """Give up those whose time is over *within* so many seconds. *why*: why there is no
        robots.txt, and the number of attempts. *reason*: why they are given up, if not for how long
        they were held."""
        now, oldest = self.held.now(), held_origin.oldest()
        before = now + within - self._max_wait + _ROUNDING
        if oldest is not None and oldest <= before:
            seconds = now - oldest
            reason = reason or f"held for {seconds:.{int(seconds < 1)}f} s"
            self.releases.add(held_origin, (f"{why[0]}; {reason}", why[1]), before)

    def _give_up_hopeless(self, held_origin: HeldOrigin, state: OriginState) -> None:
        """After a failure, give up those for which no further attempt will come."""
        why = str(state.entry.error), state.entry.attempts
        self._give_up(held_origin, why, self._last.late)
        seconds = self._last.hopeless(state.entry, self._context.clock())
        if seconds > self._last.late:
            end = f"before REP_DEFER_MAX_WAIT ({self._max_wait:g} s) ends"
            reason = f"no further attempt at robots.txt is due {end}"
            self._give_up(held_origin, why, seconds, reason)

    def _report(self, _: str) -> None:
        if self.held:
            self.tell()
            self._reports.set("report", _TELL_SECONDS)

    def tell(self, *, idle: bool = False) -> None:
        """Log what is held; or that the crawl can only wait, if that is news."""
        attempt, given_up = self._retries.soonest, self._deadlines.soonest
        if attempt < math.inf:  # else all are being asked
            attempt = min(attempt, given_up)  # then, a last one is made
        self.held.log.state(self.held.all(), attempt, given_up, idle=idle)

    # The crawl's beginning and end

    def _spider_opened(self, spider: Spider) -> Coroutine[Any, Any, None] | None:
        self._context.engine.before_closing(Stage.HOLDING, self._before_closing)
        directory = job_dir(self._context.crawler.settings)
        if directory:
            self._disk = DiskHold(directory, spider)
            return self._upkeep.begin()
        if self._context.engine.scheduler_is_foreign:
            # The scheduler can have the others back, and a kill should lose little.
            self.held.most = min(self.held.most, _MOST_SHARED)
        return None

    async def _look(self) -> None:
        """Maintain the hold on disk; open it if that hasn't worked so far."""
        if self._disk is None:
            return
        if self.held.disk is not None:
            # Record the running time: a killed run has used some of REP_DEFER_MAX_WAIT.
            counts = self.held or self.closing
            await self._disk.upkeep(self.held.now() if counts else None)
        elif not self.closing and not self.releases:
            if not await run_in_thread(self._disk.open):
                return
            if self.closing or self.releases:
                await run_in_thread(self._disk.close)  # try again in a second
                return
            async for held_origin in self.held.move_to(self._disk):
                self._expect_oldest(held_origin)
                self._retries.set(held_origin.key, 0.0)
                if self._settings.dry_run:
                    self.releases.add(held_origin)

    def _spider_idle(self) -> None:
        if self.holding or self._flights.landing:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        """Let nothing in flight or held delay the end, and lose nothing that is held."""
        self.closing = True
        for alarm in (self._retries, self._deadlines, self._first_answers, self._reports):
            alarm.stop()
        self.releases.end()
        slices = Slices()
        for held_origin in self.held.all():
            # While the fetches under way still count as attempts.
            error, attempts = self.held.why(held_origin)
            held_origin.why = f"{error}; the crawl ended", attempts
            held_origin.recall(everything=True)
            if slices.over:
                await pause()
        self._flights.end()
        await self._upkeep.now()
        await self.handing_back.empty(self.releases.take_loose())

    async def _spider_closed(self) -> None:
        if self.held.disk is not None:
            self.held.disk.forget_left()
        await self._upkeep.now(last=True)
        if self.held.disk is not None:
            await run_in_thread(self.held.disk.close)
