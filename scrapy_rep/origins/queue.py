"""Who waits for an origin's robots.txt, and when something has to be done for them (docs/DESIGN.md,
"Queue" and "Wake-up"; REP.md section 4).

There is one :class:`Queue` for each origin with somebody in it. Requests from the scheduler stand in it at
one of three stages, and move by its methods alone:

- *waiting*: for a first answer, in memory;
- *held*: since there was none in time, or a failure; on disk, if there is a JOBDIR;
- *leaving*: an answer releases them, or they are given up. They go one by one, as download slots get free.

*Callers* (direct downloads, ``may_fetch()``, the verifier of sitemaps) wait in coroutines of their own.

:func:`steps` says what has to be done for an origin, and when. From this follows that nobody can be stuck:
each origin with somebody in its queue has a fetch that is queued, in flight or being told, a step with a
time, or a turn to leave.

Times are seconds of the crawl's running time: a paused crawl doesn't count. What counts against a
request is the queue's own clock, which also stands still while robots.txt waits in a queue of ours or of
the downloader's: that is nobody's fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from scrapy import Request
from twisted.internet.defer import Deferred

from scrapy_rep.origins.flight import Flight, Limits
from scrapy_rep.origins.policy import NO_REASON, Drop
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Expired, Status, Unknown, Unreachable
from scrapy_rep.protocol import Origin

LATE_SECONDS = 0.5
"""Seconds from when a fetch was needed, after which its answer is late: only a few of the requests that wait
for it count towards the limit of all that may wait."""
LATE_COUNT = 4
"""So many."""
VERY_LATE_SECONDS = 2.5
"""Seconds from when a fetch was needed, after which none of them counts."""
SLOW_SECONDS = 2.0
"""Seconds in flight after which a fetch no longer counts among those that may run at a time: it is probably
to a silent origin, and must not block the rest."""
ROUNDING = 0.001
"""Seconds: sums of times may differ in their last digits."""


class Held(NamedTuple):
    """A request at the gate. They are sorted as they leave: urgent ones first, then early ones."""

    urgency: int
    """Its negated priority."""
    number: int
    """Increases as requests come to the gate; negative in those of an earlier run."""
    since: float
    """When it came, in seconds of its queue's clock."""
    request: Request = None  # type: ignore[assignment]
    """None: on disk, not read yet."""
    row: int | None = None
    """Its row on disk."""
    counts: bool = False
    """As held; otherwise it only waits for a first answer."""


@dataclass(slots=True)
class Tally:
    """How many requests are at the gate, in all queues."""

    waiting: int = 0
    """Those that have never been held, also if they are about to leave."""
    held: int = 0
    """Those that have been held, also if they are about to leave."""
    counted: int = 0
    """Those that count towards the limit of requests that may wait for first answers."""


class Lateness(Enum):
    """How long the answer to a first fetch has been awaited."""

    NOT_LATE = "as usual"
    LATE = "longer than most take"
    VERY_LATE = "the origin is silent, probably"


@dataclass(eq=False, slots=True)
class Queue:
    """Those who wait for an origin's robots.txt, until none is left."""

    origin: Origin
    tally: Tally

    fetch: Flight | None = None
    """The fetch that is queued or in flight."""
    landing: list[Flight] = field(default_factory=list)
    """Fetches whose answer is known, and is being told to listeners."""
    lateness: Lateness = Lateness.NOT_LATE

    callers: list[Deferred[OriginState]] = field(default_factory=list)
    """Those that wait in coroutines of their own, for the answer to :attr:`fetch` or the next one."""
    waiting: list[Held] = field(default_factory=list)
    """As they came."""
    without_room: int = 0
    """How many of the first of these could not be held so far: too many are."""
    held: list[Held] = field(default_factory=list)
    """A heap."""
    leaving_held: list[Held] = field(default_factory=list)
    """A heap of those about to leave that have been held."""
    leaving_others: list[Held] = field(default_factory=list)
    """A heap of the others about to leave."""

    # Of those that leave.
    fails: bool = False
    """They fail; otherwise they are released."""
    why: Drop = NO_REASON
    """Why those that fail do."""
    released_at: float = 0.0
    """When the answer came that releases them, in seconds of this queue's clock."""
    good_until: float = 0.0
    """Until then, that answer releases them, even if it may not be kept so long."""
    has_turn: bool = False
    """The gate will let some leave."""
    on_their_way: list[Request] = field(default_factory=list)
    """Requests that have left, and may not have reached their download slot."""
    was_overtaken: bool = False
    """A later request has gone past those of this origin: one may leave though the slot is full."""

    # What the gate and the log remember until nobody is left.
    extra_attempt: int = 0
    """The number (``entry.attempts``) of the last attempt that was made because somebody's time was over."""
    is_answered: bool = False
    """An answer came for those in it, if only a failure."""
    unanswered: int = 0
    """How many of the held ones never had an answer."""
    released: int = 0
    given_up: int = 0
    longest: float = 0.0
    """Seconds for which one that left was held, in earlier runs too."""
    logged_as: str = ""
    """What the log says of the origin: that it is "slow", or "unreachable"."""

    _oldest: float = math.inf
    """No request that waits or is held came before this; see :meth:`find_oldest`."""
    _stopped_at: float | None = None
    _stopped_for: float = 0.0
    _clock_before: float = 0.0
    """What its clock showed when the fetch took off."""
    _reported: tuple[int, int, int] = (0, 0, 0)
    """What :attr:`tally` has of this queue."""

    # Its fetch

    def begin(self, fetch: Flight, now: float) -> None:
        """Wait for *fetch*, which stands in our queue so far: that time doesn't count."""
        self.fetch = fetch
        self.lateness = Lateness.NOT_LATE
        self.stop_clock(now)
        self.report()

    def take_off(self, now: float) -> None:
        """Note that the fetch leaves our queue."""
        assert self.fetch is not None
        self.fetch.took_off_at = now
        self._clock_before = self.clock(now)
        self.start_clock(now)

    def put_off(self, later: Flight, now: float) -> None:
        """Wait for *later*, which stands in our queue, in place of a fetch that was broken off: as if that had
        never been."""
        self.fetch = later
        self._stopped_at, self._stopped_for = now, now - self._clock_before

    def end_fetch(self, fetch: Flight, now: float) -> None:
        """Wait for *fetch* no more: it has ended."""
        if self.fetch is fetch:
            self.fetch = None
            self.lateness = Lateness.NOT_LATE
            self.start_clock(now)
            self.report()

    def remove_callers(self) -> list[Deferred[OriginState]]:
        """Remove and return the callers, who are going to be told."""
        callers = self.callers
        self.callers = []
        return callers

    # Time

    def clock(self, now: float) -> float:
        """Return *now* in seconds of this queue's clock."""
        stopped_for = self._stopped_for
        if self._stopped_at is not None:
            stopped_for += now - self._stopped_at
        return now - stopped_for

    def stop_clock(self, now: float) -> None:
        if self._stopped_at is None:
            self._stopped_at = now

    def start_clock(self, now: float) -> None:
        if self._stopped_at is not None:
            self._stopped_for += now - self._stopped_at
            self._stopped_at = None

    @property
    def clock_runs(self) -> bool:
        return self._stopped_at is None

    def when(self, clock_time: float, now: float) -> float:
        """Return the moment at which this queue's clock, if it goes on, shows *clock_time*."""
        return now + clock_time - self.clock(now)

    @property
    def oldest_bound(self) -> float:
        """A time of this queue's clock before which no request came that waits or is held."""
        return self._oldest

    def find_oldest(self) -> float:
        """Return when the first of those came that wait or are held; infinity if there is none."""
        times = [held.since for stage in (self.waiting, self.held) for held in stage]
        self._oldest = min(times, default=math.inf)
        return self._oldest

    # How many there are

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not (self.has_requests or self.callers)

    @property
    def has_requests(self) -> bool:
        """Whether requests from the scheduler are in it."""
        return bool(self.waiting or self.held or self.has_leaving)

    @property
    def has_leaving(self) -> bool:
        return bool(self.leaving_held or self.leaving_others)

    @property
    def count(self) -> int:
        """How many have been held, including those that are about to leave."""
        return len(self.held) + len(self.leaving_held)

    @property
    def unheld(self) -> int:
        """How many have never been held, including those that are about to leave."""
        return len(self.waiting) + len(self.leaving_others)

    def _counted(self) -> int:
        """Return how many count towards the limit of requests that may wait: one silent origin must
        not stop the others, nor may one whose answer is late."""
        asks_first = self.fetch is not None and not self.fetch.again
        if not asks_first or self.lateness is Lateness.NOT_LATE:
            return self.unheld
        if self.lateness is Lateness.LATE:
            return min(LATE_COUNT, self.unheld + self.count)
        return 0

    def report(self) -> None:
        """Bring :attr:`tally` up to date."""
        waiting, held, counted = self._reported
        self._reported = self.unheld, self.count, self._counted()
        self.tally.waiting += self._reported[0] - waiting
        self.tally.held += self._reported[1] - held
        self.tally.counted += self._reported[2] - counted

    def become_late(self, lateness: Lateness) -> None:
        """Note that the answer to the fetch is late."""
        self.lateness = lateness
        self.report()

    def forget_past(self) -> None:
        """Nobody from the scheduler is left: what was said of those that were counts no more."""
        self.fails = False
        self.was_overtaken = False
        self.is_answered = False
        self.extra_attempt = self.unanswered = self.released = self.given_up = 0
        self.longest = 0.0
        self.logged_as = ""

    # They come, move and leave

    def arrive(self, held: Held) -> None:
        """Let *held* wait."""
        self.waiting.append(held)
        self._oldest = min(self._oldest, held.since)
        self.report()

    def recover(self, requests: list[Held]) -> None:
        """Hold what an earlier run has held."""
        self.held += requests
        heapify(self.held)
        self.find_oldest()
        self.report()

    def hold(self, count: int, keep: Callable[[Held], Held]) -> list[Held]:
        """Hold the first *count* of those that wait, as *keep* returns them. Return them as they were."""
        moving = self.waiting[:count]
        self.waiting = self.waiting[count:]
        self.without_room = len(self.waiting)
        for held in moving:
            heappush(self.held, keep(held))
        self.report()
        return moving

    def dismiss_waiting(self) -> list[Held]:
        """Remove and return those that wait."""
        dismissed, self.waiting = self.waiting, []
        self.without_room = 0
        self.report()
        return dismissed

    def let_leave(self, why: Drop | None, now: float, before: float = math.inf) -> None:
        """Let those leave that came until *before*, a time of this queue's clock: to fail, if there is a
        reason *why*."""
        if self.fails != (why is not None):
            self.recall(now)
        self.fails = why is not None
        if why is not None:
            self.why = why
        else:
            self.released_at = self.clock(now)
        if (
            before == math.inf and not self.leaving_held
        ):  # ordering 100,000 again takes long
            self.leaving_held, self.held = self.held, []
        staying_held: list[Held] = []
        for held in self.held:
            if held.since <= before:
                heappush(self.leaving_held, held)
            else:
                staying_held.append(held)
        heapify(staying_held)
        staying_waiting: list[Held] = []
        for held in self.waiting:
            if held.since <= before:
                heappush(self.leaving_others, held)
            else:
                staying_waiting.append(held)
        self.held, self.waiting = staying_held, staying_waiting
        self.without_room = min(self.without_room, len(self.waiting))
        self.find_oldest()
        self.report()

    def join_leaving(self, request: Held) -> None:
        """Let *request* stand among those that are about to leave, by its priority and number."""
        heappush(self.leaving_others, request)
        self.report()

    def recall(self, now: float) -> None:
        """Keep those that were about to leave. The time of those that had been released begins anew:
        an answer had come for them, so what follows is another wait."""
        if not self.has_leaving:
            return
        since = None if self.fails else self.clock(now)
        for held in self.leaving_held:
            self.held.append(held if since is None else held._replace(since=since))
        for held in self.leaving_others:
            self.waiting.append(held if since is None else held._replace(since=since))
        self.leaving_held, self.leaving_others = [], []
        heapify(self.held)
        self.waiting.sort(key=attrgetter("number"))
        self.find_oldest()
        self.report()

    def take(self, is_taken: Callable[[Held], bool]) -> list[Held]:
        """Remove those that wait or are held for which *is_taken* is true. Return them as they would leave."""
        taken = [
            held
            for stage in (self.waiting, self.held)
            for held in stage
            if is_taken(held)
        ]
        if not taken:  # ordering 100,000 again takes long
            return []
        self.waiting = [held for held in self.waiting if not is_taken(held)]
        self.held = [held for held in self.held if not is_taken(held)]
        heapify(self.held)
        self.without_room = min(self.without_room, len(self.waiting))
        self.report()
        return sorted(taken)

    def first_leaving(self) -> Held | None:
        """Return the one that is next to leave."""
        heap = self._heap_of_first()
        return heap[0] if heap else None

    def replace_first(self, held: Held) -> None:
        """Put *held*, which was read from disk, in the place of the one that is next to leave."""
        self._heap_of_first()[0] = held

    def pop_first(self) -> Held:
        """Remove and return the one that is next to leave."""
        held = heappop(self._heap_of_first())
        self.report()
        return held

    def _heap_of_first(self) -> list[Held]:
        if not self.leaving_others:
            return self.leaving_held
        if not self.leaving_held:
            return self.leaving_others
        return min(self.leaving_held, self.leaving_others)


class Step(Enum):
    """What has to be done for those in a queue."""

    ASK = "fetch robots.txt again"
    APPLY = "do what the status says with those who wait"
    COUNT_LATE = "the answer is late: let few of those who wait count"
    HOLD = "hold those who have waited too long for a first answer"
    COUNT_VERY_LATE = "the answer is very late: let none count, and drop those for which there is no room"
    TIME_IS_OVER = "give up those whose time is over, or make a last attempt"
    FREE_PLACE = "the fetch is slow: another may have its place"


def steps(
    status: Status, queue: Queue, now: float, limits: Limits
) -> dict[Step, float]:
    """Return what has to be done for those in *queue*, and when. *status* is what is known of the origin.

    Pure. Steps whose time has come are due; the first of the others is the queue's wake-up. With nobody
    waiting, and no fetch, there is none: who is leaving has a turn.
    """
    fetch = queue.fetch
    if fetch is not None:
        due = _during_fetch(queue, fetch, now, limits)
    else:
        due = _between_fetches(status, queue, now, limits)
    if queue.landing:
        # The answer is known. A listener (a handler of `robots_resolved`) may take long, or never return.
        due[Step.APPLY] = (
            min(flight.answered_at for flight in queue.landing) + limits.grace
        )
    return due


def next_wakeup(
    status: Status, queue: Queue, now: float, limits: Limits
) -> float | None:
    """Return when the next step is due; None if there is none."""
    return min(steps(status, queue, now, limits).values(), default=None)


def _during_fetch(
    queue: Queue, fetch: Flight, now: float, limits: Limits
) -> dict[Step, float]:
    due: dict[Step, float] = {}
    if fetch.took_off_at is not None and not fetch.is_slow:
        due[Step.FREE_PLACE] = fetch.took_off_at + fetch.patience * SLOW_SECONDS
    stays = bool(queue.waiting or queue.held)
    if stays and queue.lateness is Lateness.NOT_LATE:
        due[Step.COUNT_LATE] = fetch.began_at + LATE_SECONDS
    if stays and queue.lateness is not Lateness.VERY_LATE:
        due[Step.COUNT_VERY_LATE] = fetch.began_at + max(
            limits.grace, VERY_LATE_SECONDS
        )
    if len(queue.waiting) > queue.without_room:
        due[Step.HOLD] = fetch.began_at + limits.grace
    if stays and queue.clock_runs:
        # A fetch that was sent may end before those are given up who wait for it.
        over = queue.when(queue.oldest_bound + limits.max_wait, now)
        due[Step.TIME_IS_OVER] = max(over, fetch.patient_until(limits))
    return due


def _between_fetches(
    status: Status, queue: Queue, now: float, limits: Limits
) -> dict[Step, float]:
    due: dict[Step, float] = {}
    stays = bool(queue.waiting or queue.held)
    if queue.landing or not (stays or queue.callers):
        return due  # the answer is being told, or nobody waits
    if isinstance(status, Unknown | Expired):
        due[Step.ASK] = now
    elif not isinstance(status, Unreachable):
        due[Step.APPLY] = now
    else:
        due[Step.ASK] = status.retry_at
        if queue.waiting:
            due[Step.APPLY] = now
        if stays:
            due[Step.TIME_IS_OVER] = queue.when(
                queue.oldest_bound + limits.max_wait, now
            )
    return due
