"""Makes requests wait for their origin's answer, and holds them while there is none, also when the
spider closes (Ctrl-C, say; REP.md section 4; docs/DESIGN.md).

The life of a held request:

1. The gate (gate.py) takes it from the scheduler, and makes it wait here for its robots.txt.
2. After half a second (``hold_grace``), or a failure, it counts as held: in memory (hold.py) or, with a
   JOBDIR, on disk (disk.py).
3. It waits, at most ``REP_HOLD_MAX_WAIT`` seconds (``_time_is_over``). ``steps`` in origins/queue.py says
   when its origin is asked again; only whether a last attempt is made is decided here.
4. An answer, or a timeout, lets it leave the gate (gate.py), once. In the middleware the rules
   decide, or the request fails.
5. If the spider closes first, it stays on disk for the next run. Without a JOBDIR, or if it isn't in
   the file, handing_back.py hands it to a scheduler that outlives the crawl, or calls its errback.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Coroutine
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from typing import Any

from scrapy import Request, Spider
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.job import job_dir

from scrapy_rep.engine.access import Stage
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.timers import Alarm, PeriodicTask
from scrapy_rep.holding.disk import DiskHold
from scrapy_rep.holding.handing_back import HandingBack
from scrapy_rep.holding.hold import HeldRequests, Releases
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import WaitingRoom
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop
from scrapy_rep.origins.queue import ROUNDING, Lateness, Queue, Step, steps
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.record import held_fields, kind_of
from scrapy_rep.text import counted, duration

logger = get_logger(__name__)

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


class Holding(WaitingRoom):
    """Holds requests and releases them, each origin on its own schedule."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._settings = context.settings
        self._policy = origins.policy
        self._cache = origins.cache
        self._table = origins.table
        self._flights = origins.flights
        self._limits = origins.flights.limits
        self._max_wait = context.settings.hold_max_wait
        self.held = HeldRequests(context, origins)
        self.releases = Releases(
            context, self.held, self.refetch_if_stale, self.finished
        )
        self.handing_back = HandingBack(context, self.held)
        self.log = HoldLog(context, origins.table)
        self._told_idle_at = -math.inf
        self._reports = Alarm(context.crawler, lambda _: self.tell())
        self._upkeep = PeriodicTask(self._look)
        self._disk: DiskHold | None = None
        """None without a JOBDIR."""
        self.closing = False
        """The spider closes: nothing leaves the gate any more."""
        origins.flights.serve(self)
        connect = context.crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)

    @property
    def is_holding(self) -> bool:
        return bool(
            self.held.has_requests or self.releases.has_turns or self.releases.loose
        )

    def some_urls(self, origin: Origin) -> list[str]:
        """Return the URLs of some requests to *origin* that are at the gate."""
        queue = self.held.queues.get(origin)
        if queue is None:
            return []
        urls: dict[str, None] = {}
        for held in queue.waiting[:_SOME] + queue.held[:_SOME]:
            request = self.held.peek(held)
            if request is not None:
                urls[request.url] = None
        return list(urls)

    def listing(self) -> list[dict[str, Any]]:
        """Return what is held of each origin, see :func:`held_fields`."""
        rows = []
        for origin, queue in self.held.queues.items():
            if queue.count:
                requests = chain(queue.held, queue.leaving_held)
                seconds = max(
                    0.0,
                    queue.clock(self.held.now()) - min(held.since for held in requests),
                )
                known = self._table.get(origin)
                entry = known.entry if known else None
                rows.append(held_fields(str(origin), queue.count, seconds, entry))
        return rows

    # Requests that stay

    def keep(
        self,
        origin: Origin,
        state: OriginState | None,
        request: Request,
        waited: float | None,
    ) -> None:
        """Keep *request*, which has waited for some seconds before (None: not at all), until the next
        answer of *origin*, of which *state* says that it is unreachable; None: its robots.txt has to be
        fetched first."""
        queue = self.held.add_waiting(origin, request, waited)
        if state is None:
            asked_before = self._table.get(origin) is not None
            self._context.stats.inc_value(
                "rep/cache/refresh" if asked_before else "rep/cache/miss"
            )
            self._wait_for_answer(queue, request)
            return
        # The answer may have come while listeners are still being told. Requests that wait for it are
        # older than this one: they are held first, and there may be no room for this one then.
        queue.is_answered = True
        self._hold_waiting(queue, state)
        left = self._max_wait - (waited or 0.0)
        if left < self._seconds_until_last_attempt(queue):
            self._give_up(queue)
        self._flights.settle(queue)

    def _wait_for_answer(self, queue: Queue, request: Request) -> None:
        if not queue.has_leaving:
            queue.is_answered = False
        if queue.fetch is None:
            self._flights.to(queue.origin, request)
        else:
            self._flights.settle(queue)

    def stay_behind(
        self, origin: Origin, request: Request, waited: float | None
    ) -> bool:
        """Let *request*, which may be fetched, stay behind others of its origin that are about to
        leave, if there are any: one of these leaves in its place. Return whether it stays. If some were
        held, it overtakes them."""
        queue = self.held.queues.get(origin)
        if queue is None or not queue.has_leaving or queue.fails:
            return False
        queue.was_overtaken = True
        if queue.count:
            return False
        queue.join_leaving(self.held.numbered(queue, request, waited))
        self.releases.let_one_leave(queue)
        return True

    # What is due

    def act(self, queue: Queue, step: Step) -> None:
        """Do a *step* that is due for *queue*."""
        match step:
            case Step.ASK:
                self._ask_again(queue)
            case Step.COUNT_LATE:
                queue.become_late(Lateness.LATE)
                self._context.engine.wake()
            case Step.HOLD:
                self._first_answer_is_late(queue)
            case Step.COUNT_VERY_LATE:
                queue.become_late(Lateness.VERY_LATE)
                self._first_answer_is_late(queue)
            case Step.TIME_IS_OVER:
                self._time_is_over(queue)

    def _first_answer_is_late(self, queue: Queue) -> None:
        """Hold those that wait for a first answer; let them go if this is a dry run."""
        if self._settings.dry_run:
            self.releases.add(queue)
            return
        self._settle(queue)
        if queue.lateness is Lateness.VERY_LATE:
            self.log.held(queue, "slow")
            self._drop_waiting(queue, Drop("too many of its requests are held"))
        self._context.engine.wake()

    def _settle(self, queue: Queue) -> None:
        """Hold requests that have only waited so far, if there is room."""
        if self.held.hold_waiting(queue):
            self._reports.set("report", _TELL_SECONDS, sooner=True)

    # What is known of an origin

    def answered(self, queue: Queue, state: OriginState) -> None:
        """Let go what waited for this answer, or hold it until the next attempt."""
        if not queue.has_requests:
            self._context.engine.wake()  # listeners have been told: the crawl may be over
            return
        queue.is_answered = True
        self._table.pin(
            state.origin
        )  # until all have left: they leave by what is known now
        if not state.unreachable or self._settings.dry_run:
            self.releases.add(queue)
            return
        self.held.recall(queue)
        if (
            queue.unanswered
        ):  # they no longer wait for a first answer, but for a better one
            self._context.stats.inc_value("rep/held/unreachable", queue.unanswered)
            queue.unanswered = 0
        if not self._policy.is_worth_waiting(state):
            down = Drop.of(state)._replace(
                reason=f"{state.entry.error}; the host is down"
            )
            self.releases.add(
                queue, down if self._policy.unreachable == "hold" else None
            )
            return
        self._hold_waiting(queue, state)
        if queue.count:
            self._give_up(queue)
            self._context.engine.wake()
        else:
            self.releases.add(queue)  # there is nothing left: forget it

    def failed(self, queue: Queue, error: Exception) -> None:
        """Give up: after a misconfiguration or a bug, retrying can't help."""
        if queue.has_requests:
            queue.is_answered = True
            self.releases.add(queue, Drop.after(error))

    def _hold_waiting(self, queue: Queue, state: OriginState) -> None:
        """Hold those that waited for an answer, as far as there is room."""
        self._settle(queue)
        if queue.count:
            self._table.pin(state.origin)
            self.log.held(queue, "unreachable")
        self._drop_waiting(queue, Drop.of(state))

    def _drop_waiting(self, queue: Queue, drop: Drop) -> None:
        """Drop those that still wait, since there is no room to hold them."""
        now = self.held.now()
        for held in queue.dismiss_waiting():
            if not self.handing_back.hand_back(
                held.request, max(0.0, queue.clock(now) - held.since)
            ):
                self.log.full(queue.origin)
                self.releases.let_out(held.request, drop._replace(for_room=True))

    def refetch_if_stale(self, queue: Queue, request: Request) -> bool:
        """Fetch robots.txt again if the answer that releases these requests is too old by now, and keep
        them. Return whether it was."""
        if self._settings.dry_run or self._cache.get(queue.origin) is not None:
            return False
        self.held.recall(queue)
        self._wait_for_answer(queue, request)
        return True

    def finished(self, queue: Queue) -> None:
        """All that may leave have left: forget the origin, unless others stay."""
        if queue.has_requests:
            self._flights.settle(queue)
            return
        self._table.unpin(queue.origin)
        if queue.fails:  # nobody waits any more: don't keep the crawl open
            self._flights.abandon(queue.origin)
        if queue.given_up or queue.released:
            self.log.end(queue, kept=self.held.disk is not None)
        self.held.forget(queue)
        queue.forget_past()
        self._flights.settle(queue)

    # Waiting

    def _ask_again(self, queue: Queue) -> None:
        """Fetch robots.txt again, after a proxy's failure through the proxy of another request."""
        known = self._table.get(queue.origin)
        number = known.entry.proxy_attempts if known else 0
        requests = queue.held or queue.waiting
        request = self.held.peek(requests[number % len(requests)]) if requests else None
        self._flights.to(queue.origin, request, again=True)

    def _time_is_over(self, queue: Queue) -> None:
        """Make a last attempt if the one before was long ago; give requests up if it takes too long."""
        over = queue.clock(self.held.now()) - self._max_wait + ROUNDING
        if queue.find_oldest() > over:
            return  # those whose time it was are about to leave
        if queue.fetch is None and self._seconds_until_last_attempt(queue) <= 0:
            queue.extra_attempt = Drop.of(self._table.get(queue.origin)).attempts + 1
            self._ask_again(queue)
        else:
            self._give_up(queue)

    def _seconds_until_last_attempt(self, queue: Queue) -> float:
        """Return how many seconds must pass until an extra attempt (one made only because a request's
        time is over) is allowed; 0 if it is allowed now."""
        known = self._table.get(queue.origin)
        if known is None or not known.unreachable:
            return 0.0
        at = self._policy.last_attempt_at(known.entry, queue.extra_attempt)
        return max(0.0, at - self._context.clock())

    def _give_up(self, queue: Queue) -> None:
        """Give up those whose time is over before another attempt may be made."""
        now, oldest = queue.clock(self.held.now()), queue.find_oldest()
        seconds_until_attempt = self._seconds_until_last_attempt(queue)
        before = now - self._max_wait + max(seconds_until_attempt, ROUNDING)
        if oldest > before:
            return
        last = Drop.of(self._table.get(queue.origin))
        seconds = now - oldest
        decimals = 1 if seconds < 1 else 0
        reason = f"held for {seconds:.{decimals}f} s"
        if seconds < self._max_wait / 2:  # Retry-After
            end = f"before REP_HOLD_MAX_WAIT ({self._max_wait:g} s) ends"
            reason = f"no further attempt at robots.txt is due {end}"
        why = last._replace(reason=f"{last.reason}; {reason}")
        self.releases.add(queue, why, before)

    def tell(self, *, idle: bool = False) -> None:
        """Log what is held, every minute, and at once if the crawl has become *idle*."""
        now = time.monotonic()
        held = [queue for queue in self.held.queues.values() if queue.has_requests]
        if not held or (idle and now < self._told_idle_at + _TELL_SECONDS):
            return
        seconds = _TELL_SECONDS
        if idle:
            self._told_idle_at = now
            # An idle crawl gets here every few seconds, and has a line a minute of its own.
            seconds += _IDLE_SECONDS
        self._reports.set("report", seconds)
        attempt, given_up = self._next_moments(held)
        self.log.state(held, attempt, given_up, idle=idle)

    def _next_moments(self, queues: list[Queue]) -> tuple[float, float]:
        """Return the seconds until the next attempt at a robots.txt, and until the first requests are
        given up."""
        now = self.held.now()
        attempts, ends = [], []
        for queue in queues:
            status, _ = self._cache.status_of(queue.origin)
            due = steps(status, queue, now, self._limits)
            if Step.ASK in due:
                attempts.append(due[Step.ASK] - now)
            if Step.TIME_IS_OVER in due:
                ends.append(due[Step.TIME_IS_OVER] - now)
        # If none is due, all are being asked, or about to leave. The last attempt is made at the end.
        given_up = max(0.0, min(ends, default=0.0))
        return max(0.0, min([*attempts, given_up])), given_up

    # The crawl's beginning and end

    def _spider_opened(self, spider: Spider) -> Coroutine[Any, Any, None] | None:
        self._context.engine.before_closing(Stage.HOLDING, self._before_closing)
        directory = job_dir(self._context.crawler.settings)
        if directory:
            self._disk = DiskHold(directory, spider, self._context.engine.following)
        self._context.engine.following.begin()  # now: the gate, too, replaces methods of the scheduler
        if directory:
            return self._upkeep.begin()
        if self._context.engine.scheduler_is_foreign:
            # The scheduler can have the others back, and a kill should lose little.
            self.held.hold_at_most(_MOST_SHARED)
        return None

    async def _look(self) -> None:
        """Maintain the hold on disk; open it if that hasn't worked so far."""
        if self._disk is None:
            return
        if self.held.disk is not None:
            # Record the running time: a killed run has used some of REP_HOLD_MAX_WAIT.
            counts = self.held.has_requests or self.closing
            await self._disk.upkeep(self.held.now() if counts else None)
        elif not self.closing and await run_in_thread(self._disk.open):
            async for queue in self.held.recover(self._disk):
                self._reports.set("report", _TELL_SECONDS, sooner=True)
                if self._settings.dry_run:
                    self.releases.add(queue)
                self._flights.settle(queue)

    def _spider_idle(self) -> None:
        if self.is_holding or self._flights.is_telling:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        """Let nothing in flight or held delay the end, and lose nothing that is held."""
        self.closing = True
        self._reports.stop()
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

    def held(self, queue: Queue, why: str) -> None:
        """Log once that robots.txt is "slow" and requests held, once that it is "unreachable"."""
        if queue.logged_as not in (why, "unreachable"):
            queue.logged_as = why
            what = ": its robots.txt has not answered yet"
            if why == "unreachable":
                what = " until its robots.txt can be fetched"
            self._tell(why, queue, f"Holding requests to %(origin)s{what}")

    def end(self, queue: Queue, *, kept: bool) -> None:
        """Log what became of the requests. *kept*: those given up are on disk for the next run."""
        if queue.given_up:
            self._tell(
                "given up",
                queue,
                "Gave up %(requests)s to %(origin)s: %(reason)s (%(times)s at robots.txt)%(kept)s",
                requests=counted(queue.given_up, "request"),
                reason=queue.why.reason,
                times=counted(queue.why.attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if queue.released and queue.logged_as:
            message = "Released %(requests)s to %(origin)s after %(seconds).1f s"
            self._tell(
                "released", queue, message, requests=counted(queue.released, "request")
            )

    def _tell(self, kind: str, queue: Queue, message: str, **values: object) -> None:
        values |= {"origin": queue.origin, "seconds": queue.longest}
        self._limiters[kind].log(message, values, self._context.spider)

    def full(self, origin: Origin) -> None:
        """Warn once that requests are dropped because too many are held."""
        if not self._told_full:
            self._told_full = True
            message = (
                "Too many requests are held (REP_HOLD_MAX_REQUESTS; one origin may have about 91 %% of "
                "them): dropping further ones, such as to %(origin)s. This is reported once."
            )
            logger.warning(message, {"origin": origin}, extra=self._context.extra)

    def state(
        self, queues: Collection[Queue], attempt: float, given_up: float, *, idle: bool
    ) -> None:
        """Log what is held in *queues*, and why; seconds until the next *attempt* at a robots.txt,
        and until the first requests are *given_up*. *idle*: the crawl can only wait."""
        total = sum(queue.count for queue in queues)
        most = nlargest(_NAMED, queues, key=attrgetter("count"))
        parts = [
            f"{queue.count:,} to {queue.origin}: {self._why(queue.origin)}"
            for queue in most
        ]
        if others := len(queues) - len(most):
            rest = total - sum(queue.count for queue in most)
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
            "up in %(given_up)s (REP_HOLD_MAX_WAIT)",
            values,
            extra=self._context.extra,
        )

    def _why(self, origin: Origin) -> str:
        known = self._table.get(origin)
        if known is not None and known.entry.error is None:
            return "answered, about to leave"
        return kind_of(Drop.of(known).reason)
