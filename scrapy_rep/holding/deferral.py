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
import time
from collections.abc import Callable, Collection, Coroutine
from heapq import heappush, nlargest
from itertools import chain
from operator import attrgetter
from typing import Any

from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.job import job_dir
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.access import Stage
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.timers import Alarm, PeriodicTask
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.handing_back import HandingBack
from scrapy_rep.holding.hold import HeldOrigin, HeldOrigins, Releases
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Flight, ResolutionListener
from scrapy_rep.origins.origins import Drop, Origins
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.record import held_fields, kind_of
from scrapy_rep.reporting.recorder import Recorder
from scrapy_rep.text import counted, duration

logger = get_logger(__name__)

# Seconds from the start of a fetch after which its answer is late, or very late. Of the requests
# that wait for a late one, only a few count towards the limit; for a very late one, none.
_LATE_SECONDS, _SLOW_SECONDS, _LATE_COUNT = 0.5, 2.5, 4
# Seconds after its timeout that a fetch may take to fail, or an answer to be handled.
_LANDING_SECONDS = 1.0
# Seconds: sums of times may differ in their last digits.
_ROUNDING = 0.001
# The most held of a scheduler that isn't Scrapy's, without a JOBDIR: it may be shared.
_MOST_SHARED = 1000
# Held URLs whose verdict is looked at when a robots.txt changes.
_SOME = 20
# Seconds between log lines about held requests.
_TELL_SECONDS, _IDLE_SECONDS = 60.0, 10.0
# Kinds of lines about an origin, see Limiter.
_KINDS = {
    "slow": "origins that are slow to answer",
    "unreachable": "origins with an unreachable robots.txt",
    "given up": "origins whose requests were given up",
    "released": "origins whose requests were released",
}
_NAMED = 3  # origins that a line about all of them names


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
        self._patience = min(context.settings.download_timeout, self._max_wait)
        """Seconds that requests whose time is over wait for the answer of a fetch."""
        self.held = HeldOrigins(context, origins)
        self.releases = Releases(context, self.held, self.is_due, self.finished)
        self.handing_back = HandingBack(context, self.held)
        self.log = HoldLog(context, origins.table)
        self._told_idle_at = -math.inf
        self._retries = self._alarm(self._ask_again)
        self._deadlines = self._alarm(self._time_is_over)
        self._first_answers = self._alarm(self._first_answer_is_late)
        self._reports = Alarm(context.crawler, lambda _: self.tell())
        self._upkeep = PeriodicTask(self._look)
        self._disk: DiskHold | None = None  # None without a JOBDIR
        self.closing = False  # the spider closes: nothing leaves the gate any more
        recorder.waiting = self._some_urls
        connect = context.crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)

    def _alarm(self, act: Callable[[HeldOrigin], None]) -> Alarm:
        def on_due(key: str) -> None:
            if (held_origin := self.held.origins.get(key)) is not None:
                act(held_origin)

        return Alarm(self._context.crawler, on_due)

    @property
    def holding(self) -> bool:
        return bool(self.held.origins or self.releases.turns or self.releases.loose)

    def _some_urls(self, origin: str) -> list[str]:
        """Return the URLs of some requests of *origin* that are at the gate."""
        held_origin = self.held.origins.get(origin)
        if held_origin is None:
            return []
        some = held_origin.waiting[:_SOME] + held_origin.heap[:_SOME]
        return list({found.url: None for found in map(self.held.peek, some) if found is not None})

    def listing(self) -> list[dict[str, Any]]:
        """Return what is held of each origin, see :func:`held_fields`."""
        found = []
        for held_origin in self.held.origins.values():
            if held_origin.count:
                some = chain(held_origin.waiting, held_origin.heap, held_origin.ready)
                seconds = self.held.now() - min(held.since for held in some)
                known = self._table.get(held_origin.origin)
                entry = known.entry if known else None
                found.append(held_fields(held_origin.key, held_origin.count, seconds, entry))
        return found

    # Requests that stay

    def keep(
        self, origin: Origin, state: OriginState | None, request: Request, since: float | None
    ) -> None:
        """Keep *request*, here since *since* (None: now), until the next answer of *origin*, of which
        *state* says that it is unreachable; None: its robots.txt has to be fetched first."""
        held_origin = self.held.add_waiting(origin, request, since)
        if state is None:
            asked_before = self._table.get(origin) is not None
            self._context.stats.inc_value("rep/cache/refresh" if asked_before else "rep/cache/miss")
            self._wait_for_answer(held_origin, request)
            return
        # Others of its origin may wait for the same answer, of which the deferral hasn't heard so
        # far. They come first, and there may be no room for this one then.
        held_origin.answered = True
        self._hold_waiting(held_origin, state)
        if state.name not in self._retries:
            self._retry_later(state)
        left = self._max_wait if since is None else since + self._max_wait - self.held.now()
        if left < self._seconds_until_last_attempt(held_origin):
            self._give_up(held_origin)

    def _wait_for_answer(self, held_origin: HeldOrigin, request: Request | None) -> None:
        if not held_origin.ready:
            held_origin.answered = False
        flight = self._flights.to(held_origin.origin, request)
        if flight.result is not None:
            return  # without asyncio, the answer may be there at once
        seconds = flight.left_of(min(self._policy.grace, _LATE_SECONDS))
        self._first_answers.set(held_origin.key, seconds, sooner=True)

    def joins(self, name: str, request: Request, since: float | None) -> bool:
        """Whether *request*, which may be fetched, stays behind others of its origin that are about
        to leave: one of these leaves in its place. If some were held, it overtakes them."""
        held_origin = self.held.origins.get(name)
        if held_origin is None or not held_origin.ready or held_origin.fails:
            return False
        held_origin.overtaken = True
        if stays := not held_origin.count:
            self.held.add_waiting(held_origin.origin, request, since)
            heappush(held_origin.ready, held_origin.waiting.pop())
            self.releases.one_more(held_origin)
        return stays

    def _first_answer_is_late(self, held_origin: HeldOrigin) -> None:
        flight = self._flights.get(held_origin.origin)
        if flight is None or held_origin.ready:
            return
        age, grace = -flight.left_of(0), self._policy.grace
        state = self._cache.get(held_origin.origin) if age >= grace else None
        # The answer may be there, and a handler of ``robots_resolved`` take long.
        if self._settings.dry_run or (state is not None and not state.unreachable):
            self.releases.add(held_origin)
            return
        if age >= _LATE_SECONDS:
            held_origin.most = 0 if age >= _SLOW_SECONDS else _LATE_COUNT
        if age >= grace:
            self._settle(held_origin)
        if age >= max(grace, _SLOW_SECONDS):
            self.log.held(held_origin, "slow")
            self._drop_waiting(held_origin, Drop("too many of its requests are held"))
        self.held.changed(held_origin)
        for moment in (grace, _LATE_SECONDS, _SLOW_SECONDS):
            if moment > age:
                self._first_answers.set(held_origin.key, moment - age, sooner=True)
        self._context.engine.wake()

    def _settle(self, held_origin: HeldOrigin) -> None:
        """Hold requests that have only waited so far, if there is room."""
        for held in self.held.hold_waiting(held_origin):
            self._expect(held_origin.key, held.since)

    # What is known of an origin

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Let go what waited for this answer, or schedule the next attempt."""
        held_origin = self.held.origins.get(state.name)
        if held_origin is None:
            return
        held_origin.answered, held_origin.most = True, math.inf
        self.held.changed(held_origin)
        if not state.unreachable or self._settings.dry_run:
            self.releases.add(held_origin)
            return
        held_origin.recall()
        if held_origin.unanswered:  # they no longer wait for a first answer, but for a better one
            self._context.stats.inc_value("rep/deferred/unreachable", held_origin.unanswered)
            held_origin.unanswered = 0
        if not self._policy.is_worth_waiting(state):
            down = Drop.of(state)._replace(reason=f"{state.entry.error}; the host is down")
            self.releases.add(held_origin, down if self._policy.unreachable == "defer" else None)
            return
        self._hold_waiting(held_origin, state)
        if held_origin.count:
            self._retry_later(state)
            self._give_up(held_origin)
            self._context.engine.wake()
        else:
            self.releases.add(held_origin)  # there is nothing left: forget it

    def failed(self, origin: Origin, error: Exception) -> None:
        """Give up: after a misconfiguration or a bug, retrying can't help."""
        held_origin = self.held.origins.get(str(origin))
        if held_origin is not None and not isinstance(error, CancelledError):
            held_origin.answered, held_origin.most = True, math.inf
            self.held.changed(held_origin)
            self.releases.add(held_origin, Drop.after(error))

    def _hold_waiting(self, held_origin: HeldOrigin, state: OriginState) -> None:
        """Hold those that waited for an answer, as far as there is room."""
        self._settle(held_origin)
        if held_origin.count:
            self._table.pin(state.origin)
            self.log.held(held_origin, "unreachable")
        self._drop_waiting(held_origin, Drop.of(state))

    def _drop_waiting(self, held_origin: HeldOrigin, drop: Drop) -> None:
        """Drop those that still wait, since there is no room to hold them."""
        waiting, held_origin.waiting = held_origin.waiting, []
        self.held.changed(held_origin, unheld=-len(waiting))
        for held in waiting:
            if not self.handing_back.one(held.request, held.since):
                self.log.full(held_origin.origin)
                self.releases.let_out(held.request, drop._replace(for_room=True))

    def is_due(self, held_origin: HeldOrigin, request: Request) -> bool:
        """Whether robots.txt has to be fetched again before *request* leaves. Then it is."""
        if self._settings.dry_run or self._cache.get(held_origin.origin) is not None:
            return False
        held_origin.recall()
        held_origin.most = _LATE_COUNT  # they may be very many
        self._wait_for_answer(held_origin, request)
        return True

    def finished(self, held_origin: HeldOrigin) -> None:
        """All that may leave have left: set the next deadline, or forget the origin."""
        if held_origin.heap or held_origin.waiting:
            self._expect_oldest(held_origin)
        elif self.held.origins.get(held_origin.key) is held_origin:
            del self.held.origins[held_origin.key]
            for alarm in (self._retries, self._deadlines, self._first_answers):
                alarm.forget(held_origin.key)
            self._table.unpin(held_origin.origin)
            if held_origin.fails:  # nobody waits any more: don't keep the crawl open
                self._flights.abandon(held_origin.origin)
            if held_origin.given_up or held_origin.released:
                self.log.end(held_origin, kept=self.held.disk is not None)

    # Waiting

    def _retry_later(self, state: OriginState) -> None:
        self._retries.set(state.name, state.entry.next_attempt_at - self._context.clock())

    def _ask_again(self, held_origin: HeldOrigin) -> None:
        known = self._table.get(held_origin.origin)
        # After a proxy's failure, through the proxy of another request.
        number = known.entry.proxy_attempts if known else 0
        some = held_origin.heap or held_origin.waiting
        request = self.held.peek(some[number % len(some)]) if some else None
        self._flights.to(held_origin.origin, request, again=True)

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
        if not self._flights.get(origin) and self._seconds_until_last_attempt(held_origin) <= 0:
            held_origin.last_attempt = Drop.of(self._table.get(origin)).attempts + 1
            self._ask_again(held_origin)
        flight = self._flights.get(origin)
        if flight is not None:
            left = flight.left_of(self._patience + _LANDING_SECONDS)
            if left > 0 or flight.outcome is not None:
                self._deadlines.set(held_origin.key, max(left, _LANDING_SECONDS))
                return
        self._give_up(held_origin)

    def _seconds_until_last_attempt(self, held_origin: HeldOrigin) -> float:
        """Return for how many seconds no attempt will be made, unless it is the origin's next one."""
        known = self._table.get(held_origin.origin)
        if known is None or not known.unreachable:
            return 0.0
        at = self._policy.last_attempt_at(known.entry, held_origin.last_attempt)
        return max(0.0, at - self._context.clock())

    def _give_up(self, held_origin: HeldOrigin) -> None:
        """Give up those whose time is over before another attempt may be made."""
        now, oldest = self.held.now(), held_origin.oldest()
        within = self._seconds_until_last_attempt(held_origin)
        before = now - self._max_wait + max(within, _ROUNDING)
        if oldest is not None and oldest <= before:
            last = Drop.of(self._table.get(held_origin.origin))
            seconds = now - oldest
            reason = f"held for {seconds:.{int(seconds < 1)}f} s"
            if seconds < self._max_wait / 2:  # Retry-After
                end = f"before REP_DEFER_MAX_WAIT ({self._max_wait:g} s) ends"
                reason = f"no further attempt at robots.txt is due {end}"
            why = last._replace(reason=f"{last.reason}; {reason}")
            self.releases.add(held_origin, why, before)

    def tell(self, *, idle: bool = False) -> None:
        """Log what is held, every minute, and at once if the crawl has become *idle*."""
        now = time.monotonic()
        if not self.held.origins or (idle and now < self._told_idle_at + _TELL_SECONDS):
            return
        if idle:
            self._told_idle_at = now
        # An idle crawl gets here every few seconds, and has a line a minute of its own.
        self._reports.set("report", _TELL_SECONDS + idle * _IDLE_SECONDS)
        # If none is set, all are being asked, or about to leave. The last attempt is made at the end.
        given_up = self._deadlines.soonest
        attempt = min(self._retries.soonest, given_up)
        self.log.state(self.held.origins.values(), attempt, given_up, idle=idle)

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
            counts = self.held.origins or self.closing
            await self._disk.upkeep(self.held.now() if counts else None)
        elif not self.closing and await run_in_thread(self._disk.open):
            async for held_origin in self.held.recover(self._disk):
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
        self._flights.end()
        await self._upkeep.now()
        await self.handing_back.empty(self.releases.loose, self.releases.checked)

    async def _spider_closed(self) -> None:
        await self._upkeep.now(last=True)
        if self.held.disk is not None:
            await run_in_thread(self.held.disk.close)


class HoldLog:
    """What the log says of held requests."""

    def __init__(self, context: CrawlContext, table: OriginTable) -> None:
        self._context = context
        self._table = table
        self._limiters = {kind: Limiter(logger, what) for kind, what in _KINDS.items()}
        self._told_full = False

    def held(self, one: HeldOrigin, why: str) -> None:
        """Log once that robots.txt is "slow" and requests held, once that it is "unreachable"."""
        if one.told not in (why, "unreachable"):
            one.told = why
            what = ": its robots.txt has not answered yet"
            if why == "unreachable":
                what = " until its robots.txt can be fetched"
            self._tell(why, one, f"Holding requests to %(origin)s{what}")

    def end(self, one: HeldOrigin, *, kept: bool) -> None:
        """Log what became of the requests. *kept*: those given up are on disk for the next run."""
        if one.given_up:
            self._tell(
                "given up",
                one,
                "Gave up %(requests)s to %(origin)s: %(reason)s (%(times)s at robots.txt)%(kept)s",
                requests=counted(one.given_up, "request"),
                reason=one.why.reason,
                times=counted(one.why.attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if one.released and one.told:
            message = "Released %(requests)s to %(origin)s after %(seconds).1f s"
            self._tell("released", one, message, requests=counted(one.released, "request"))

    def _tell(self, kind: str, one: HeldOrigin, message: str, **values: object) -> None:
        values |= {"origin": one.origin, "seconds": one.longest}
        self._limiters[kind].log(message, values, self._context.spider)

    def full(self, origin: Origin) -> None:
        """Warn once that requests are dropped because too many are held."""
        if not self._told_full:
            self._told_full = True
            message = (
                "Too many requests are held (REP_DEFER_MAX_REQUESTS; one origin may have about 91 %% of "
                "them): dropping further ones, such as to %(origin)s. This is reported once."
            )
            logger.warning(message, {"origin": origin}, extra=self._context.extra)

    def state(
        self, origins: Collection[HeldOrigin], attempt: float, given_up: float, *, idle: bool
    ) -> None:
        """Log what is held of *origins*, and why; seconds until the next *attempt* at a robots.txt,
        and until the first requests are *given_up*. *idle*: the crawl can only wait."""
        total = sum(one.count for one in origins)
        most = nlargest(_NAMED, origins, key=attrgetter("count"))
        parts = [f"{one.count:,} to {one.origin}: {self._why(one.origin)}" for one in most]
        if others := len(origins) - len(most):
            rest = total - sum(one.count for one in most)
            parts.append(f"{rest:,} to {counted(others, 'other origin')}")
        values = {
            "begin": "Nothing left to do but wait: " if idle else "",
            "requests": counted(total, "request"),
            "which": "; ".join(parts),
            "next": duration(attempt),
            "given_up": duration(given_up),
        }
        logger.info(
            "%(begin)s%(requests)s held (%(which)s); next robots.txt attempt in %(next)s, giving "
            "up in %(given_up)s (REP_DEFER_MAX_WAIT)",
            values,
            extra=self._context.extra,
        )

    def _why(self, origin: Origin) -> str:
        known = self._table.get(origin)
        if known is not None and known.entry.error is None:
            return "answered, about to leave"
        return kind_of(Drop.of(known).reason)
