"""Requests whose robots.txt can't be had are held, and come back when an answer does
(REP.md section 4; docs/DESIGN.md, "Why it is cut so").

`holding/intercept.py` takes them out of the downloader, `holding/hold.py` keeps them, `holding/alarm.py` tells when an origin
is to be asked again, `holding/release.py` hands them back to the scheduler. Here these meet.
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
from scrapy_rep.engine.upkeep import Upkeep
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.alarm import Alarm
from scrapy_rep.holding.hold import DiskHold, Held, MemoryHold, Opening
from scrapy_rep.holding.intercept import Catcher
from scrapy_rep.holding.queue import Line
from scrapy_rep.holding.queues import LineTable
from scrapy_rep.holding.release import Job, Releases
from scrapy_rep.holding.shutdown import Ending
from scrapy_rep.origins.policy import Room
from scrapy_rep.origins.resolver import ResolutionListener

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Request, Spider

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.origins.table import Known
    from scrapy_rep.protocol import Origin


# An answer that takes this many times REP_DEFER_GRACE is worth a word in the log.
_SLOW = 5
# The alarm's key, and seconds, for the line of the log that tells what is held.
_TELL, _TELL_SECONDS = "", 60.0


class Deferral(ResolutionListener):
    """Holds requests and lets them go, each origin on its own clock."""

    part = "holding of requests"

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._crawler = crawler = context.crawler
        self._stats = context.stats
        self._settings = settings = context.settings
        self._engine = engine = context.engine
        self._policy = origins.policy
        self._cache = origins.cache
        self._known = origins.table
        self._flights = origins.flights
        self._clock = context.clock
        self._hold: MemoryHold | DiskHold = MemoryHold()
        self._releases: Releases[Line] = Releases(
            crawler, engine, self._now, self._sent, self._finished
        )
        self._releases.hold = self._hold
        self._lines = LineTable(
            crawler, self._now, settings.defer_max_requests, settings.defer_max_wait
        )
        self._ending = Ending(crawler, engine, self._releases, self._lines)
        self._alarm = Alarm(self._now, self._due, lambda: engine.paused)
        self._upkeep = Upkeep(self._look)
        self._opening: Opening | None = None
        self._number = 0
        self._tells = False
        self.catcher = Catcher(crawler, self._caught)
        """Whom the middleware hands requests over to."""
        self._started = time.monotonic()
        self.closing = False
        connect = crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)

    def _now(self) -> float:
        """Seconds that the crawl has been running, earlier runs with its JOBDIR included."""
        return time.monotonic() - self._started

    # What the middleware asks

    @property
    def full(self) -> bool:
        """Whether no more may be held."""
        return self._lines.full

    def full_for(self, origin: Origin | str) -> bool:
        """Whether no more requests of *origin* may be held."""
        return self._lines.full_for(origin)

    def room(self, origin: Origin) -> Room:
        """Return how many more requests of *origin* may be held."""
        if not self.full_for(origin):
            return Room.FREE
        return Room.GREEDY if self._lines.is_greedy(origin) else Room.FULL

    @property
    def holding(self) -> bool:
        """Whether any requests are held, or on their way back."""
        return bool(self._lines or self._releases)

    @property
    def outlives(self) -> bool:
        """Whether what is held when the crawl ends goes on in the next."""
        return isinstance(self._hold, DiskHold) or self._engine.scheduler_outlives

    def arrive(self, request: Request) -> None:
        """Take a released request back, see :meth:`Releases.arrive`."""
        self._releases.arrive(request)

    def warn_full(self, origin: Origin | str) -> None:
        """Tell the user that requests of *origin* are dropped because too many are held."""
        self._lines.warn_full(origin)

    # Holding

    def _caught(self, request: Request) -> bool:
        """Hold *request*; False: it goes to the scheduler instead."""
        origin = origin_of(request)
        known = self._cache.get(origin)
        self._number += 1
        waited, row = self._releases.before(request)
        held = Held(self._number, self._now() - waited, request.dont_filter, request, row)
        if self.closing:
            return self._caught_at_the_end(origin, held)
        if self.full_for(origin):
            self._releases.mark(held)
            return False  # back to the scheduler: in the middleware it can wait
        line = self._add(origin, held, known)
        if known is None:
            # It is in the air, or has come to be asked for again this moment.
            self._flights.to(origin, request, again=True)
        elif not self.worth_waiting(known):
            self._let_go(line)  # the answer came meanwhile, whatever it is
        return True

    def worth_waiting(self, known: Known) -> bool:
        """Whether what is known of an origin may change soon, and the user wants to wait for it."""
        return self._policy.is_worth_waiting(known)

    def _caught_at_the_end(self, origin: Origin, held: Held) -> bool:
        if isinstance(self._hold, DiskHold):
            line = self._add(origin, held, None)
            line.why = self._why(line, "the crawl ended")
            for _ in self._ending.emptied(self._hold, [line]):
                pass  # it can't be written to disk
        elif self._engine.scheduler_outlives:
            self._releases.mark(held)
            return False
        else:
            self._ending.fail(held, RobotsUnreachable(origin, "the crawl is ending"))
        return True

    def _add(self, origin: Origin, held: Held, known: Known | None) -> Line:
        line = self._lines.of(origin)
        self._known.pin(origin)
        self._hold.add(str(origin), held)
        self._lines.join(line, 1, held.since)
        line.unanswered += 1
        if known is not None and known.unreachable:
            self._is_unreachable(line)
            if self.worth_waiting(known):
                self._wait_for(line, known)
        flight = self._flights.get(origin)
        if flight is not None and not line.announced:
            line.slow_at = self._now() + flight.left_of(_SLOW * self._settings.defer_grace)
        self._set_alarm(line)
        self._stats.inc_value("rep/deferred")
        self._crawler.signals.send_catch_log(
            signals.request_deferred,
            request=held.request,
            origin=origin,
            spider=self._crawler.spider,
        )
        return line

    # The origins' clocks

    async def resolved(self, resolution: Resolution) -> None:
        """A robots.txt was asked for: let go of those who waited for it, or ask again later."""
        known = resolution.known
        line = self._lines.get(known.origin)
        if line is None:
            return
        entry = known.entry
        if known.unreachable:
            self._is_unreachable(line)
        if not known.unreachable or self._settings.unreachable != "defer":
            self._let_go(line)  # to be decided like any other
        elif not self.worth_waiting(known):
            self._let_go(line, (f"{entry.error}; the host is down", entry.attempts))
        else:
            self._known.pin(known.origin)
            self._wait_for(line, known)
            self._set_alarm(line)

    def failed(self, origin: Origin, error: Exception) -> None:
        """A robots.txt can't be asked for: misconfiguration, or a bug; retrying can't help."""
        line = self._lines.get(origin)
        if line is not None and not isinstance(error, CancelledError):
            self._let_go(line, (text_of(error), 0))

    def _is_unreachable(self, line: Line) -> None:
        """The requests of *line* wait for more than a first answer."""
        if line.unanswered:
            self._stats.inc_value("rep/deferred/unreachable", line.unanswered)
            line.unanswered = 0

    def _wait_for(self, line: Line, known: Known) -> None:
        # Else the same but for rounding. With a storage it may not have been asked for after all.
        if line.attempt_at != known.entry.next_attempt_at or line.retry_at == math.inf:
            line.attempt_at = known.entry.next_attempt_at
            line.retry_at = self._now() + line.attempt_at - self._clock()
        line.announce()

    def _set_alarm(self, line: Line) -> None:
        if not self._tells:
            self._tells = True
            self._alarm.set(_TELL, self._now() + _TELL_SECONDS)
        self._alarm.set(str(line.origin), line.due_at)

    def _due(self, key: str) -> None:
        if key == _TELL:
            self._tells = bool(self._lines)
            if self._tells:
                self._lines.tell()
                self._alarm.set(_TELL, self._now() + _TELL_SECONDS)
            return
        line = self._lines.get(key)
        if line is None:
            return
        now = self._now()
        if line.deadline <= now:
            line.deadline = math.inf
            limit = self._settings.defer_max_wait
            self._let_go(line, self._why(line, f"held for {limit:g} s"), before=now - limit)
        if line.slow_at <= now:
            line.slow_at = math.inf
            line.announce_slow()
        if line.retry_at <= now:
            line.retry_at = math.inf
            self._flights.to(line.origin, self._hold.peek(str(line.origin)), again=True)
        self._set_alarm(line)

    def _why(self, line: Line, what: str) -> tuple[str, int]:
        """Why the requests of *line* are given up, and how often its robots.txt was asked for."""
        known = self._known.get(line.origin)
        error = known.entry.error if known else None
        attempts = (known.entry.attempts if known else 0) + (line.origin in self._flights)
        return f"{error or 'no answer yet'}; {what}", attempts

    # Letting go

    def _let_go(
        self, line: Line, given_up: tuple[str, int] | None = None, before: float = math.inf
    ) -> None:
        self._releases.add(Job(line, line.origin, self._number, before, given_up))

    def _sent(self, job: Job[Line], count: int) -> None:
        line = job.line
        self._lines.leave(line, count)
        if job.given_up:
            line.given_up += count
            line.why = job.given_up
        else:
            line.released += count

    def _finished(self, job: Job[Line]) -> None:
        line, key = job.line, str(job.origin)
        oldest = self._hold.oldest(key)
        if oldest is not None:
            line.deadline = oldest + self._settings.defer_max_wait
            self._set_alarm(line)
        elif self._lines.remove(line):
            line.log_end(self._now(), kept=isinstance(self._hold, DiskHold))
            self._known.unpin(line.origin)
            # Nobody is left who wants to know: the crawl need not wait for the answer.
            self._flights.abandon(line.origin)
            if not self._lines and isinstance(self._hold, DiskHold):
                self._hold.tell_unreadable()

    # The crawl's beginning and end

    def _spider_opened(self, spider: Spider) -> Coroutine[Any, Any, None] | None:
        self._engine.before_closing(self._before_closing)
        directory = job_dir(self._crawler.settings)
        if not directory:
            return None
        self._opening = Opening(directory, spider)
        return self._upkeep.begin()

    async def _look(self) -> None:
        """Look after the hold on disk. The running time is written down, since a run that is
        killed has taken time too."""
        if isinstance(self._hold, DiskHold):
            await self._hold.upkeep(self._now() if self._lines or self.closing else None)
        elif self._opening is not None and not self.closing and not self._releases:
            hold = await run_in_thread(self._opening.hold)
            if hold is None:
                return
            if self.closing or self._releases:
                await run_in_thread(hold.close)  # again in a second
            else:
                await self._use(hold)

    async def _use(self, hold: DiskHold) -> None:
        """Hold requests there from now on. Those of an earlier run come before those held already,
        which stay in memory."""
        early, self._hold = self._hold, hold
        self._releases.hold = hold
        number, ran = hold.last()
        self._number += number
        self._started -= ran
        for line in self._lines.all():
            line.later(ran)
            for held in early.take_mortal(str(line.origin)):
                moved = held._replace(number=held.number + number, since=held.since + ran)
                hold.keep(str(line.origin), moved)
        await self._lines.recover(hold, self._recovered)

    def _recovered(self, line: Line) -> None:
        self._set_alarm(line)
        if self._settings.dry_run:
            self._let_go(line)

    def _spider_idle(self) -> None:
        if self._lines and not self._releases:
            self._lines.tell_idle()
        if self._lines or self._releases or self._flights.landing:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        """Nothing in flight or held may delay the end; nothing held may be lost by it."""
        self.closing = True
        self._alarm.stop()
        self._releases.clear()
        # As long as their flights count.
        await self._ending.explain(self._lines, lambda one: self._why(one, "the crawl ended"))
        self._flights.end()
        self._releases.clear()
        await self._upkeep.now()
        await self._ending.empty(self._hold, self._lines.all())

    async def _spider_closed(self) -> None:
        self._releases.close()
        await self._upkeep.end()
        await run_in_thread(self._hold.close)
