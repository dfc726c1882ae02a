"""Requests that may leave the gate: origins in turns, urgent requests first, none into a download slot
that is full."""

from __future__ import annotations

import math
import sqlite3
import time
from collections import deque
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary, finalize

from scrapy.utils.asyncio import call_later

from scrapy_rep import signals
from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.held_origin import Job
from scrapy_rep.origins.policy import Drop

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_rep.holding.held_origin import HeldOrigin
    from scrapy_rep.holding.held_origins import HeldOrigins
    from scrapy_rep.holding.hold import Held
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# Origins that are looked at in one step, for one whose download slot isn't full.
_LOOKS = 50
# Seconds for which an answer releases requests, however short it may be kept.
_GOOD_SECONDS = 5.0
# Seconds until an unreadable file is tried again.
_RETRY_SECONDS = 1.0
# Rows deleted at a time.
_ROWS = 20


Verdict: TypeAlias = "Drop | Exception"


def tell_given_up(context: CrawlContext, request: Request, error: RobotsUnreachable) -> None:
    """Count and announce that *request*, which was held, will fail with *error*."""
    context.stats.inc_value("rep/given_up")
    context.crawler.signals.send_catch_log(
        signals.request_given_up,
        request=request,
        origin=error.origin,
        reason=error.reason,
        attempts=error.attempts,
        held_for=error.held_for,
        spider=context.spider,
    )


class Releases:
    """The origins with requests that may leave, and what becomes of these."""

    def __init__(
        self,
        context: CrawlContext,
        held: HeldOrigins,
        is_due: Callable[[HeldOrigin], bool],
        on_finished: Callable[[HeldOrigin], None],
    ) -> None:
        """:param is_due: whether an origin's robots.txt has to be fetched again first
        :param on_finished: called when no more of an origin's requests may leave
        """
        self._context = context
        self._held = held
        self._is_due = is_due
        self._on_finished = on_finished
        self._turns: dict[int, deque[HeldOrigin]] = {}
        """Origins by the priority of their most urgent request."""
        self._resting = 0
        """Origins whose requests can't be read at the moment."""
        self._told = self._ended = False
        self._loose: deque[Request] = deque()
        """Requests that needn't wait for anything, but couldn't leave at once."""
        self.verdicts: WeakKeyDictionary[Request, Verdict] = WeakKeyDictionary()
        """What was decided about requests that have left, or are about to."""
        self._rows: set[int] = set()
        self._gone: list[int] = []

    def __bool__(self) -> bool:
        """Whether any requests may leave, now or soon."""
        return bool(self._turns or self._loose or self._resting)

    def add(
        self,
        held_origin: HeldOrigin,
        given_up: tuple[str, int] | None = None,
        before: float = math.inf,
    ) -> None:
        """Let requests of an origin leave: all that it has, and that came *before* then.

        :param given_up: why, and after how many attempts, they are to fail; None to release them
        """
        if self._ended:
            return
        waits = not held_origin.jobs
        good_until = time.monotonic() + _GOOD_SECONDS
        held_origin.jobs.append(Job(self._held.number, before, given_up, good_until))
        if waits:
            self._queue(held_origin)
            self._context.engine.wake()

    def let_out(self, request: Request, verdict: Verdict | None = None) -> None:
        """Let *request* leave as soon as the engine asks; it fails if there is a *verdict*."""
        if verdict is not None:
            self.verdicts[request] = verdict
        self._loose.append(request)
        self._context.engine.wake()

    def take_loose(self) -> list[Request]:
        """Return those that were let out and haven't left: the spider closes."""
        loose = list(self._loose)
        self._loose.clear()
        return loose

    def condemn(self, request: Request, drop: Drop) -> None:
        """Have *request*, which leaves now, dropped."""
        self.verdicts[request] = drop

    def join(self, held_origin: HeldOrigin) -> None:
        """Its latest request is to leave with the others."""
        held_origin.jobs[-1] = held_origin.jobs[-1]._replace(upto=self._held.number)

    def end(self) -> None:
        """Let no more requests leave: the spider closes."""
        self._ended = True
        self._turns.clear()

    def next(self) -> Request | None:
        """Return the next request to leave, if there is one for which a download slot is free."""
        if self._loose:
            return self._loose.popleft()
        looks = _LOOKS
        moved = False
        for priority in sorted(self._turns, reverse=True):
            origins = self._turns[priority]
            for _ in range(min(looks, len(origins))):
                looks -= 1
                held_origin = origins.popleft()
                request = self._step(held_origin)
                if request is not None:
                    self._drop_empty(priority)
                    return request
                moved = moved or held_origin.head is None
            self._drop_empty(priority)
            if not looks:
                break
        if moved:
            self._context.engine.wake()  # there may be more behind them
        return None

    def _drop_empty(self, priority: int) -> None:
        if not self._turns.get(priority, True):
            del self._turns[priority]

    def _step(self, held_origin: HeldOrigin) -> Request | None:
        """Give the origin its turn. Return the request that leaves, if any."""
        if not held_origin.jobs:
            return None  # its robots.txt became unreachable meanwhile
        job = held_origin.jobs[0]
        try:
            held = self._head(held_origin, job)
        except sqlite3.Error as error:
            self._rest(held_origin, error)
            return None
        if held is None:
            self._next_job(held_origin)
        elif job.given_up or not self._is_due(held_origin):
            if job.given_up or not self._is_full(held_origin, held):
                held_origin.head = None
                self._leave(held_origin, held, job)
                self._go_on(held_origin)
                return held.request
            self._queue(held_origin)
        else:
            self.recall(held_origin)
        return None

    def _is_full(self, held_origin: HeldOrigin, held: Held) -> bool:
        return self._context.engine.slots.is_full(held.request, held_origin.leaving)

    def _head(self, held_origin: HeldOrigin, job: Job) -> Held | None:
        """Return the origin's next request for *job*."""
        head = held_origin.head
        if head is None or head.number > job.upto or head.since > job.before:
            self.recall(held_origin)
            key = str(held_origin.origin)
            held_origin.head = self._held.hold.take(key, job.upto, job.before)
        return held_origin.head

    def _go_on(self, held_origin: HeldOrigin) -> None:
        if self._held.hold.urgency(str(held_origin.origin)) is None:
            self._next_job(held_origin)
        else:
            self._queue(held_origin)

    def _next_job(self, held_origin: HeldOrigin) -> None:
        held_origin.jobs.popleft()
        if held_origin.jobs:
            self._queue(held_origin)
        else:
            self._on_finished(held_origin)

    def _queue(self, held_origin: HeldOrigin) -> None:
        """Let the origin have its turn after the others."""
        head = held_origin.head
        if head is None:
            priority = self._held.hold.urgency(str(held_origin.origin)) or 0
        else:
            priority = head.request.priority
        self._turns.setdefault(priority, deque()).append(held_origin)

    def recall(self, held_origin: HeldOrigin) -> None:
        """Return the request that would have been next to the hold."""
        head, held_origin.head = held_origin.head, None
        if head is not None:
            self._held.hold.put_back(str(held_origin.origin), head)

    def _rest(self, held_origin: HeldOrigin, error: Exception) -> None:
        """Try again later: the file can't be read."""
        if not self._told:
            self._told = True
            logger.error(
                "Can't release held requests, retrying: %(error)s",
                {"error": error},
                extra=self._context.extra,
            )
        self._resting += 1
        call_later(_RETRY_SECONDS, self._rested, held_origin)

    def _rested(self, held_origin: HeldOrigin) -> None:
        self._resting -= 1
        if held_origin.jobs and not self._ended:
            self._queue(held_origin)
            self._context.engine.wake()

    def _leave(self, held_origin: HeldOrigin, held: Held, job: Job) -> None:
        """Count, announce and remember what leaves."""
        self._told = False
        context, request, row = self._context, held.request, held.row
        was_held = self._held.left(held_origin, held)
        if job.given_up is not None and not was_held:
            if for_room := self._held.full_for(held_origin.origin):
                self._held.warn_full(held_origin.origin)
            cause = self._held.failure(held_origin.origin)
            self.verdicts[request] = Drop(*job.given_up, for_room=for_room, cause=cause)
            return
        if job.given_up is not None:
            held_origin.given_up += 1
            held_origin.why = job.given_up
            self._held.hold.give_up(str(held_origin.origin), held)
            # The origin may be forgotten before it arrives.
            cause = self._held.failure(held_origin.origin)
            error = RobotsUnreachable(held_origin.origin, *job.given_up, cause)
            error.held_for = self._held.now() - held.since
            self.verdicts[request] = error
            return
        held_origin.leaving.append(request)
        if row is not None:
            self._rows.add(row)
            # When the request is garbage, its callback has been called.
            finalize(request, self._gone.append, row).atexit = False
            if len(self._gone) >= _ROWS:
                self._forget(self._gone)
        if was_held:
            held_origin.released += 1
            context.stats.inc_value("rep/released")
            context.crawler.signals.send_catch_log(
                signals.request_released,
                request=request,
                origin=held_origin.origin,
                held_for=self._held.now() - held.since,
                spider=context.spider,
            )

    def verdict(self, request: Request) -> Drop | None:
        """Return what was decided at the gate about *request*, which the middleware has now.

        :raises RobotsUnreachable: if it was given up
        :raises Exception: if a check failed
        """
        if not self.verdicts or (verdict := self.verdicts.pop(request, None)) is None:
            return None
        if isinstance(verdict, Drop):
            return verdict
        if isinstance(verdict, RobotsUnreachable):
            tell_given_up(self._context, request, verdict)
        raise verdict from verdict.__cause__

    def close(self) -> None:
        """End a run: what has left is done, the rest is for the next run."""
        self._forget(list(self._rows))

    def _forget(self, rows: list[int]) -> None:
        done = [row for row in rows if row in self._rows]
        self._gone.clear()
        self._rows.difference_update(done)
        self._held.hold.done(done)
