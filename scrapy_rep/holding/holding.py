"""Makes requests wait for their origin's answer, and holds them while there is none,
also when the spider closes (Ctrl-C, say; REP.md section 4; docs/DESIGN.md).

The life of a held request:

1. The gate (gate.py) takes it from the scheduler, and makes it wait here for its
   robots.txt (:meth:`Holding.keep`).
2. Half a second after the fetch was needed (``hold_grace`` in settings.py), or when it
   fails, the request counts as held: in memory (hold.py) or, with a JOBDIR, on disk
   (disk.py).
3. It waits, at most ``REP_HOLD_MAX_WAIT`` seconds. ``steps`` in origins/queue.py says
   what has to be done for its origin, and when; :meth:`Holding.act` does it. Only
   whether a last attempt is made is decided here (:meth:`Holding._ask_or_give_up`).
4. An answer, the third failure of a dead host (:meth:`Holding.answered`), or the end of
   its time, which comes early if no attempt is allowed before (:meth:`Holding._give_up`),
   lets it leave the gate, once (``Releases`` in hold.py). In the middleware the rules
   decide, or the request fails.
5. If the spider closes first, it stays on disk for the next run. Without a JOBDIR, or
   if it isn't in the file, handing_back.py hands it to a scheduler that outlives the
   crawl, or calls its errback.

A request stands in the :class:`Queue` (origins/queue.py) of its origin all the time, as
a ``Held``. If it is to fail, a ``Drop`` (origins/policy.py) says why. ``Flights.to``
(origins/flights.py) has a robots.txt fetched; ``Flights.set_alarm_or_forget`` sets the
origin's alarm anew, after whatever has changed its queue.
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

# At most this many requests are held if the scheduler isn't Scrapy's, and there is no
# JOBDIR. The rest stays in the scheduler, and other processes that share it can crawl
# that meanwhile.
_MOST_SHARED = 1000
# How many of an origin's URLs at the gate are compared when its robots.txt changes: a
# sample is enough to say in the log whether the change matters.
_SAMPLE = 20
# Seconds between log lines about what is held. One a minute doesn't drown others.
_TELL_SECONDS = 60.0
# In an idle crawl, the gate has such a line logged every minute. The alarm for such
# lines (Holding._reports) is then set for a minute and this many seconds, so that no
# line is logged twice.
_IDLE_SECONDS = 10.0
# Events, and what Limiter (engine/log.py) calls the origins whose number it logs.
_EVENTS = {
    "slow": "origins that are slow to answer",
    "unreachable": "origins with an unreachable robots.txt",
    "given up": "origins whose requests were given up",
    "released": "origins whose requests were released",
}
# How many origins a line about all of them names: those with the most held requests.
_NAMED_ORIGINS = 3


class Holding(WaitingRoom):
    """Holds requests and releases them, each origin on its own schedule."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._engine = context.engine
        self._count = context.stats.inc_value
        self._settings = context.settings
        self._policy = origins.policy
        self._cache = origins.cache
        self._table = origins.table
        self._flights = origins.flights
        self._limits = origins.flights.limits
        self._max_wait = context.settings.hold_max_wait
        self.held = HeldRequests(context, origins)
        """The requests at the gate, also those that only wait (hold.py)."""
        self.releases = Releases(
            context,
            self.held,
            self.refetch_if_stale,
            self.finished,
        )
        """The requests at the gate that may leave, or are about to."""
        self.handing_back = HandingBack(context, self.held)
        self.log = HoldLog(context, origins.table)
        self._told_idle_at = -math.inf
        """When :meth:`tell` last logged what is held because the crawl was idle."""
        self._reports = Alarm(context.crawler, self._tell_in_time)
        """Rings when what is held is to be logged."""
        self._upkeep = PeriodicTask(self._maintain_disk)
        self._disk: DiskHold | None = None
        """The file under JOBDIR; None without a JOBDIR. While it is open, it is
        ``held.disk`` too."""
        self.closing = False
        """Whether the spider closes. Then nothing leaves the gate any more."""
        origins.flights.serve(self)
        connect = context.crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)

    @property
    def is_holding(self) -> bool:
        """Whether requests wait, are held or are about to leave."""
        if self.held.has_requests:
            return True
        return bool(self.releases.turns or self.releases.ready)

    def some_urls(self, origin: Origin) -> list[str]:
        """Return the URLs of some requests to *origin* that are at the gate."""
        queue = self.held.queues.get(origin)
        if queue is None:
            return []
        urls: dict[str, None] = {}  # an ordered set
        sample = queue.waiting[:_SAMPLE] + queue.held[:_SAMPLE]
        for held in sample:
            request = self.held.peek(held)
            if request is not None:
                urls[request.url] = None
        return list(urls)

    def listing(self) -> list[dict[str, Any]]:
        """Return what is held of each origin, see ``held_fields`` in
        reporting/record.py."""
        rows = []
        for origin, queue in self.held.queues.items():
            if not queue.count:
                continue
            # For how long the first of them has been held.
            times = []
            for held in chain(queue.held, queue.leaving):
                if held.was_held:
                    times.append(held.since)
            seconds = queue.clock(self.held.now()) - min(times)
            state = self._table.get(origin)
            entry = None if state is None else state.entry
            fields = held_fields(
                str(origin),
                queue.count,
                max(0.0, seconds),
                entry,
            )
            rows.append(fields)
        return rows

    # Requests that stay

    def keep(
        self,
        origin: Origin,
        state: OriginState | None,
        request: Request,
        waited: float | None,
    ) -> None:
        """Keep *request* until *origin* answers.

        :param state: what is known of *origin*: that it is unreachable; None: its
            robots.txt has to be fetched first
        :param waited: the seconds for which *request* has waited here before; None: not
            at all
        """
        queue = self._flights.queue_of(origin)
        held = self.held.new_held(queue, request, waited)
        queue.arrive(held)

        if state is None:  # wait for a fetch
            is_new = self._table.get(origin) is None
            stat = "rep/cache/miss" if is_new else "rep/cache/refresh"
            self._count(stat)
            # Those that are about to leave, if any, have had an answer.
            if not queue.leaving:
                queue.is_answered = False
            if queue.fetch is None:
                self._flights.to(origin, request)
            else:
                self._flights.set_alarm_or_forget(queue)
            return

        # The answer may have come just now, while listeners are still being told. Then
        # other requests still wait for it. These are older than *request*, so they are
        # held first, and may take the last room.
        queue.is_answered = True
        self._hold_waiting(queue, state)
        # If the time of *request* ends before another attempt may be made, it is given
        # up at once.
        seconds_left = self._max_wait - (waited or 0.0)
        if seconds_left < self._seconds_until_last_attempt(queue):
            self._give_up(queue)
        self._flights.set_alarm_or_forget(queue)

    def stay_behind(
        self, origin: Origin, request: Request, waited: float | None
    ) -> bool:
        """Let *request*, which may be fetched, join the requests to *origin* that are
        about to leave, if there are any; the next of these leaves now. Return whether
        *request* stays. *waited*: see :meth:`keep`.

        If any request in the queue has been held, *request* doesn't join: it may leave
        at once, ahead of them, and one of them may then leave though the slot is full
        (``Queue.was_overtaken``). If it joined in place of a held one, there would be
        one more that counts towards the limit of those that wait
        (``HeldRequests.may_wait``), and soon the gate would stop."""
        queue = self.held.queues.get(origin)
        if queue is None or not queue.leaving or queue.fails:
            return False
        queue.was_overtaken = True  # one leaves now, whether *request* joins or not
        if queue.count:
            return False
        held = self.held.new_held(queue, request, waited)
        queue.join_leaving(held)
        self.releases.let_one_leave(queue)
        return True

    # Steps (origins/queue.py) that are due

    def act(self, queue: Queue, step: Step) -> None:
        """Do *step*, which is due for *queue*. ``Flights`` does the steps that are
        missing here."""
        match step:
            case Step.ASK:
                self._ask_again(queue)
                return
            case Step.TIME_IS_OVER:
                self._ask_or_give_up(queue)
                return
            case Step.COUNT_LATE:
                queue.become_late(Lateness.LATE)
                self._engine.wake()
                return
            case Step.COUNT_VERY_LATE:
                queue.become_late(Lateness.VERY_LATE)

        # Step.HOLD and Step.COUNT_VERY_LATE: those that wait have waited for a first
        # answer for too long, so they are held; in a dry run, they leave.
        if self._settings.dry_run:
            self.releases.let_leave(queue)
            return
        if self.held.hold_waiting(queue):
            self._reports.set("report", _TELL_SECONDS, sooner=True)
        if queue.lateness is Lateness.VERY_LATE:
            self.log.tell_held(queue, "slow")
            self._drop_waiting(queue, Drop("too many of its requests are held"))
        self._engine.wake()

    # Answers

    def answered(self, queue: Queue, state: OriginState) -> None:
        """Let those in *queue* leave that waited for this answer, or hold them until
        the next attempt. *state* is what is known of the origin now."""
        if not queue.has_requests:
            # Nobody waits for this answer. The engine may have waited for the fetch
            # only, so let it see whether the crawl is over.
            self._engine.wake()
            return
        queue.is_answered = True
        # The requests leave by what is known now, so the origin isn't forgotten before
        # all have left.
        self._table.pin(state.origin)
        if not state.unreachable or self._settings.dry_run:
            self.releases.let_leave(queue)
            return

        # The origin is unreachable.
        self.held.recall_leaving(queue)
        self._count_unanswered(queue)
        if self._policy.is_worth_waiting(state):
            self._hold_until_next_attempt(queue, state)
        elif self._policy.unreachable == "hold":
            reason = f"{state.entry.error}; the host is down"
            drop = Drop.of(state)._replace(reason=reason)
            self.releases.let_leave(queue, drop)
        else:
            # By REP_UNREACHABLE, the middleware drops these requests, or lets them pass.
            self.releases.let_leave(queue)

    def _count_unanswered(self, queue: Queue) -> None:
        """Count those in *queue* that were held for want of a first answer, since that
        has come now, and was a failure."""
        if queue.unanswered:
            self._count("rep/held/unreachable", queue.unanswered)
            queue.unanswered = 0

    def _hold_until_next_attempt(self, queue: Queue, state: OriginState) -> None:
        """Hold those in *queue* whose time isn't over before the next attempt; give up
        the others."""
        self._hold_waiting(queue, state)
        if queue.count:
            self._give_up(queue)
            self._engine.wake()
        else:  # none is held: there was no room
            self.releases.let_leave(queue)  # its turn will call finished()

    def failed(self, queue: Queue, error: Exception) -> None:
        """Give up those in *queue*, since retrying can't help after a misconfiguration
        or a bug (*error*)."""
        if queue.has_requests:
            queue.is_answered = True
            self.releases.let_leave(queue, Drop.after(error))

    def _hold_waiting(self, queue: Queue, state: OriginState) -> None:
        """Hold those that wait in *queue*, as far as there is room. Get rid of the
        others."""
        if self.held.hold_waiting(queue):
            self._reports.set("report", _TELL_SECONDS, sooner=True)
        if queue.count:
            self._table.pin(state.origin)
            self.log.tell_held(queue, "unreachable")
        self._drop_waiting(queue, Drop.of(state))

    def _drop_waiting(self, queue: Queue, drop: Drop) -> None:
        """Get rid of those that still wait in *queue*, since there is no room to hold
        them: hand them back to the scheduler or, if that doesn't take them, let them
        fail for the reason in *drop*."""
        now = queue.clock(self.held.now())
        drop_for_room = drop._replace(for_room=True)
        for held in queue.dismiss_waiting():
            waited = max(0.0, now - held.since)
            if self.handing_back.hand_back(held.request, waited):
                continue
            self.log.warn_full(queue.origin)
            self.releases.make_ready(held.request, drop_for_room)

    def refetch_if_stale(self, queue: Queue, request: Request) -> bool:
        """Fetch robots.txt again if the answer that was to release those in *queue* is
        too old by now, and keep them in the queue. Return whether the answer was too
        old. *request* is the next that would leave."""
        if self._settings.dry_run:  # whatever the answer, the requests leave
            return False
        if self._cache.get(queue.origin) is not None:
            return False
        self.held.recall_leaving(queue)
        queue.is_answered = False
        self._flights.to(queue.origin, request)
        self._flights.set_alarm_or_forget(queue)
        return True

    def finished(self, queue: Queue) -> None:
        """Note that all in *queue* that may leave have left. Forget what happened to
        them, unless others stay."""
        if queue.has_requests:  # others stay
            queue.note_departure()
            self._flights.set_alarm_or_forget(queue)
            return
        self._table.unpin(queue.origin)
        if queue.fails:
            # A fetch for which nobody waits must not keep the crawl open.
            self._flights.abandon(queue.origin)
        disk = self.held.disk
        if queue.given_up or queue.logged_as:
            self.log.tell_outcome(queue, kept=disk is not None)
        if disk is not None and queue.released:
            disk.forget_release(str(queue.origin))
        # If nothing else needs the queue, set_alarm_or_forget() forgets all of it.
        if queue.fetch or queue.being_told or queue.callers:
            queue.forget_past()
        self._flights.set_alarm_or_forget(queue)

    # Attempts, and the end of a request's time

    def _ask_again(self, queue: Queue) -> None:
        """Fetch robots.txt again: for a request in *queue*, through the request's proxy
        if it has one. After each failure of a proxy, another request is chosen, which
        may have another proxy."""
        state = self._table.get(queue.origin)
        proxy_failures = 0
        if state is not None:
            proxy_failures = state.entry.proxy_attempts
        request = None
        candidates = queue.held or queue.waiting
        if candidates:
            held = candidates[proxy_failures % len(candidates)]
            request = self.held.peek(held)
        self._flights.to(queue.origin, request, again=True)

    def _ask_or_give_up(self, queue: Queue) -> None:
        """Make a last attempt for the requests in *queue* whose time is over, if the
        attempt before was long enough ago, and no fetch is under way. Otherwise give
        these requests up."""
        now = queue.clock(self.held.now())
        oldest_allowed = now - self._max_wait + ROUNDING
        if queue.find_oldest() > oldest_allowed:
            # Nobody's time is over: the oldest request has left, which `oldest_bound`
            # didn't notice. So the step came too early.
            return
        is_allowed = self._seconds_until_last_attempt(queue) <= 0
        if queue.fetch is None and is_allowed:
            attempts_so_far = self._last_failure(queue).attempts
            queue.extra_attempt = attempts_so_far + 1
            self._ask_again(queue)
        else:
            self._give_up(queue)

    def _seconds_until_last_attempt(self, queue: Queue) -> float:
        """Return how many seconds must pass until an extra attempt (one made only
        because a request's time is over) is allowed; 0 if it is allowed now."""
        state = self._table.get(queue.origin)
        if state is None or not state.unreachable:
            return 0.0
        allowed_at = self._policy.extra_attempt_allowed_at(
            state.entry, queue.extra_attempt
        )
        return max(0.0, allowed_at - self._context.clock())

    def _give_up(self, queue: Queue) -> None:
        """Give up those in *queue* whose time is over now, or will be before another
        attempt is allowed."""
        now = queue.clock(self.held.now())
        oldest = queue.find_oldest()
        seconds_until_attempt = self._seconds_until_last_attempt(queue)
        # Those are given up whose time is over at this moment, or before.
        over_by = now + max(seconds_until_attempt, ROUNDING)
        came_before = over_by - self._max_wait
        if oldest > came_before:
            return  # nobody's time is
        last_failure = self._last_failure(queue)
        end = self._why_given_up(now - oldest)
        drop = last_failure._replace(reason=f"{last_failure.reason}; {end}")
        self.releases.let_leave(queue, drop, came_before)

    def _last_failure(self, queue: Queue) -> Drop:
        """Return why there is no robots.txt so far for those in *queue*, and how many
        attempts have failed."""
        return Drop.of(self._table.get(queue.origin))

    def _why_given_up(self, seconds: float) -> str:
        """Return why requests are given up. The oldest of them has waited for
        *seconds*."""
        if seconds < self._max_wait / 2:  # the site has sent a long Retry-After
            end = f"before REP_HOLD_MAX_WAIT ({self._max_wait:g} s) ends"
            return f"no further attempt at robots.txt is due {end}"
        decimals = 1 if seconds < 1 else 0
        return f"held for {seconds:.{decimals}f} s"

    # What the log says of all that is held

    def _tell_in_time(self, _: str) -> None:
        """Log what is held, since the alarm rings, as it does every minute."""
        self.tell()

    def tell(self, *, idle: bool = False) -> None:
        """Log what is held. *idle*: the crawl can only wait; then this is logged at
        once, but at most every minute."""
        now = time.monotonic()
        queues = []
        for queue in self.held.queues.values():
            if queue.has_requests:
                queues.append(queue)
        if not queues:
            return
        seconds = _TELL_SECONDS
        if idle:  # in an idle crawl, the gate calls this method every few seconds
            if now < self._told_idle_at + _TELL_SECONDS:
                return
            self._told_idle_at = now
            seconds += _IDLE_SECONDS
        self._reports.set("report", seconds)
        seconds_to_attempt, seconds_to_end = self._next_moments(queues)
        self.log.tell_all(queues, seconds_to_attempt, seconds_to_end, idle=idle)

    def _next_moments(self, queues: list[Queue]) -> tuple[float, float]:
        """Return the seconds until the next attempt at a robots.txt, and until the
        first requests are given up."""
        now = self.held.now()
        attempts = []
        ends = []
        for queue in queues:
            status, _ = self._cache.status_of(queue.origin)
            due = steps(status, queue, now, self._limits)
            if Step.ASK in due:
                attempts.append(due[Step.ASK] - now)
            if Step.TIME_IS_OVER in due:
                ends.append(due[Step.TIME_IS_OVER] - now)
        # If no queue has such a step, all origins are being asked, or all requests are
        # about to leave: 0 s.
        first_end = max(0.0, min(ends, default=0.0))
        # Before requests are given up, a last attempt is made.
        attempts.append(first_end)
        first_attempt = max(0.0, min(attempts))
        return first_attempt, first_end

    # The crawl's beginning and end

    def _spider_opened(self, spider: Spider) -> Coroutine[Any, Any, None] | None:
        """Open the file of held requests, with a JOBDIR, and follow requests from now
        on. Return what Scrapy is to await, if anything."""
        self._engine.before_closing(Stage.HOLDING, self._before_closing)
        engine = self._engine
        directory = job_dir(self._context.crawler.settings)
        if directory:
            self._disk = DiskHold(directory, spider, engine.following)
        # Following begins after DiskHold is made, which follows requests, and before
        # the gate and EarlyDrops (early.py) replace methods of the scheduler.
        engine.following.begin()
        if directory:
            return self._upkeep.begin()
        if engine.scheduler_is_foreign:
            # Such a scheduler can have the other requests back, so that a kill loses
            # little.
            self.held.hold_at_most(_MOST_SHARED)
        return None

    async def _maintain_disk(self) -> None:
        """Maintain the file of held requests, every second. Open the file if that
        hasn't worked so far."""
        if self._disk is None:
            return
        if self.held.disk is None:
            if not self.closing:
                await self._open_disk(self._disk)
            return
        ran = None
        tally = self.held.tally
        if tally.waiting or tally.held or self.closing:
            # Record how long this run has run. The next run counts this time against
            # REP_HOLD_MAX_WAIT, even if this run is killed.
            ran = self.held.now()
        await self._disk.upkeep(ran)

    async def _open_disk(self, disk: DiskHold) -> None:
        """Open the file of held requests, and take over those of an earlier run."""
        if not await run_in_thread(disk.open):
            return
        async for queue in self.held.recover(disk):
            self._reports.set("report", _TELL_SECONDS, sooner=True)
            if self._settings.dry_run:
                self.releases.let_leave(queue)
            self._flights.set_alarm_or_forget(queue)

    def _spider_idle(self) -> None:
        """Keep the spider open while requests are held, or listeners are being told of
        an answer."""
        if self.is_holding or self._flights.is_telling:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        """End all fetches, so that the crawl's end doesn't wait for them. Save what is
        held, or hand it back."""
        self.closing = True
        self._reports.stop()
        self.releases.end()
        self._flights.end()
        await self._upkeep.now()
        await self.handing_back.empty(self.releases.ready, self.releases.being_checked)

    async def _spider_closed(self) -> None:
        """Close the file of held requests."""
        await self._upkeep.now(last=True)
        if self.held.disk is not None:
            await run_in_thread(self.held.disk.close)


class HoldLog:
    """What the log says of held requests."""

    def __init__(self, context: CrawlContext, table: OriginTable) -> None:
        self._context = context
        self._table = table
        self._limiters = {}
        for event, origins in _EVENTS.items():
            self._limiters[event] = Limiter(logger, origins)
        self._told_full = False

    def tell_held(self, queue: Queue, why: str) -> None:
        """Log that requests in *queue* are held, and *why*: its robots.txt is "slow" or
        "unreachable". Each reason is logged once; "slow" not after "unreachable"."""
        if queue.logged_as not in (why, "unreachable"):
            queue.logged_as = why
            message = (
                "Holding requests to %(origin)s: its robots.txt has not answered yet"
            )
            if why == "unreachable":
                message = (
                    "Holding requests to %(origin)s until its robots.txt can be fetched"
                )
            self._tell(why, queue, message)

    def tell_outcome(self, queue: Queue, *, kept: bool) -> None:
        """Log what became of the requests that were in *queue*. *kept*: those given up
        are on disk for the next run."""
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
            self._tell(
                "released",
                queue,
                "Released %(requests)s to %(origin)s after %(seconds).1f s",
                requests=counted(queue.released, "request"),
            )

    def _tell(self, event: str, queue: Queue, message: str, **values: object) -> None:
        """Log *message* about an *event* of ``_EVENTS``, at INFO level only for the
        first origins."""
        values["origin"] = queue.origin
        values["seconds"] = queue.longest
        self._limiters[event].log(message, values, self._context.spider)

    def warn_full(self, origin: Origin) -> None:
        """Warn once that requests are dropped because too many are held."""
        if not self._told_full:
            self._told_full = True
            logger.warning(
                "Too many requests are held (REP_HOLD_MAX_REQUESTS; one origin may have about 91 %% of "
                "them): dropping further ones, such as to %(origin)s. This is reported once.",
                {"origin": origin},
                extra=self._context.extra,
            )

    def tell_all(
        self,
        queues: Collection[Queue],
        seconds_to_attempt: float,
        seconds_to_end: float,
        *,
        idle: bool,
    ) -> None:
        """Log how many requests are held in *queues*, and why; when the next attempt at
        a robots.txt is made, and when the first requests are given up. *idle*: the
        crawl can only wait."""
        total = sum(queue.count for queue in queues)
        named = nlargest(_NAMED_ORIGINS, queues, key=attrgetter("count"))
        # Name the origins that have most of them, and count the others together.
        unnamed_count = total
        parts = []
        for queue in named:
            unnamed_count -= queue.count
            why = self._why(queue.origin)
            parts.append(f"{queue.count:,} to {queue.origin}: {why}")
        unnamed_origin_count = len(queues) - len(named)
        if unnamed_origin_count:
            origins = counted(unnamed_origin_count, "other origin")
            parts.append(f"{unnamed_count:,} to {origins}")

        values = {
            "begin": "Nothing left to do but wait: " if idle else "",
            "requests": counted(total, "request"),
            "which": "; ".join(parts),
            "next": duration(seconds_to_attempt),
            "given_up": duration(seconds_to_end),
        }
        logger.info(
            "%(begin)s%(requests)s held (%(which)s); next robots.txt attempt in %(next)s, giving "
            "up in %(given_up)s (REP_HOLD_MAX_WAIT)",
            values,
            extra=self._context.extra,
        )

    def _why(self, origin: Origin) -> str:
        """Return in a few words why requests to *origin* are held."""
        state = self._table.get(origin)
        if state is not None and state.entry.error is None:
            return "answered, about to leave"
        return kind_of(Drop.of(state).reason)
