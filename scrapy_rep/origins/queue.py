"""Who waits for an origin's robots.txt, and when something has to be done for them
(docs/DESIGN.md, "Queue" and "Wake-up"; REP.md section 4).

There is one :class:`Queue` for each origin with somebody in it. Requests from the
scheduler stand in it at one of three stages, and move by its methods alone:

- *waiting*: for a first answer, in memory;
- *held*: since there was none in time, or a failure; on disk, if there is a JOBDIR;
- *leaving*: an answer releases them, or they are given up. They go one by one, as
  download slots become free.

*Callers* (direct downloads, ``may_fetch()``, the verifier of sitemaps) wait in
coroutines of their own.

:func:`steps` says what has to be done for an origin, and when. So nobody can be stuck:
each origin with somebody in its queue has a fetch that is queued, in flight or being
told (flight.py), a step with a time, or a turn to leave (:attr:`Queue.has_turn`).

Times are seconds of the crawl's running time, in which pauses of the crawl don't count.
How long a request has waited is measured by its queue's own clock. That clock also
stands still while robots.txt waits in a queue of ours or of the downloader's, which is
nobody's fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import chain, filterfalse
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
"""Seconds from when a fetch was needed, after which its answer is late. Then only a few
of the requests that wait for it count towards the limit of all that may wait, since one
slow origin must not stop the others."""

LATE_COUNT = 4
"""How many of an origin's requests count towards that limit while its answer is
late."""

VERY_LATE_SECONDS = 2.5
"""Seconds from when a fetch was needed, after which none of the requests that wait for
it counts."""

SLOW_SECONDS = 2.0
"""Seconds in flight after which a fetch no longer counts among those that may run at a
time: it is probably to a silent origin, and must not block the rest."""

ROUNDING = 0.001
"""Seconds by which a step may be done early: sums of times may differ in their last
digits."""


class Held(NamedTuple):
    """A request at the gate (holding/gate.py). Requests are sorted by the first two
    fields, and leave in this order: urgent ones first, then early ones."""

    urgency: int
    """Its negated priority."""
    number: int
    """Increases as requests come to the gate. Those of an earlier run have negative
    numbers."""
    since: float
    """When it came, in seconds of its queue's clock."""
    request: Request = None  # type: ignore[assignment]
    """None: it is on disk, and hasn't been read so far."""
    row: int | None = None
    """Its row on disk (holding/disk.py); None: it is in memory only."""
    was_held: bool = False
    """It has been held; otherwise it has only waited for a first answer."""


@dataclass(slots=True)
class Tally:
    """How many requests are at the gate, in all queues. Those that are about to leave
    are among them."""

    waiting: int = 0
    """Those that have never been held."""
    held: int = 0
    """Those that have been held."""
    counted: int = 0
    """Those that count towards the limit of requests that may wait for first
    answers."""


class _Counts(NamedTuple):
    """What one queue adds to the fields of a :class:`Tally`."""

    waiting: int = 0
    held: int = 0
    counted: int = 0


_NO_COUNTS = _Counts()


class Lateness(Enum):
    """How long the answer to a fetch has been awaited. While a first answer is late,
    fewer of those who wait count (:meth:`Queue._counted`), so that the gate goes on.
    Once it is very late, requests for which there is no room are turned away: those
    that wait (``Holding._hold_late``) and those that come (``Gate._is_full``)."""

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
    being_told: list[Flight] = field(default_factory=list)
    """Fetches whose answer is known, and is being told to listeners."""
    lateness: Lateness = Lateness.NOT_LATE
    """How long the answer to :attr:`fetch` has been awaited."""

    # Who is in it
    callers: list[Deferred[OriginState]] = field(default_factory=list)
    """Those that wait in coroutines of their own, for the answer to :attr:`fetch` or to
    the next one."""
    waiting: list[Held] = field(default_factory=list)
    """Requests that wait, in the order in which they came."""
    without_room: int = 0
    """How many of :attr:`waiting`, from its beginning, should have been held, but too
    many are held already."""
    held: list[Held] = field(default_factory=list)
    """A heap of requests that are held."""
    leaving_held: list[Held] = field(default_factory=list)
    """A heap of requests that have been held and are about to leave."""
    leaving_others: list[Held] = field(default_factory=list)
    """A heap of requests that have only waited and are about to leave."""

    # About those that leave
    fails: bool = False
    """Whether they fail; otherwise they are released."""
    why: Drop = NO_REASON
    """Why they fail, if they do."""
    released_at: float = 0.0
    """When the answer came that releases them, in seconds of this queue's clock."""
    good_until: float = 0.0
    """Until when, in the crawl's running time, that answer releases them, even if the
    answer may not be kept so long."""
    has_turn: bool = False
    """Whether the gate is going to let some leave."""
    on_their_way: list[Request] = field(default_factory=list)
    """Requests that have left, and may not have reached their download slot."""
    was_overtaken: bool = False
    """A request that came later has gone past those of this origin: for fairness, one
    of these may leave even though the slot is full."""

    # What the gate and the log remember until nobody is left
    extra_attempt: int = 0
    """The number (``entry.attempts``) of the last attempt that was made only because
    the time of held requests was over (policy.py)."""
    is_answered: bool = False
    """Whether an answer, or at least a failure, has come since there was somebody in
    it."""
    unanswered: int = 0
    """How many of the held requests never had an answer."""
    released: int = 0
    """How many requests were released."""
    given_up: int = 0
    """How many requests were given up."""
    longest: float = 0.0
    """The longest time in seconds for which a request that left was held, earlier runs
    included."""
    logged_as: str = ""
    """What the log says of the origin: that it is "slow", or "unreachable"."""

    _oldest: float = math.inf
    """A lower bound: no request that waits or is held came before this. To keep it
    exact would cost each request that leaves a search; :meth:`find_oldest` makes it
    exact."""
    _stopped_at: float | None = None
    """When its clock was stopped; None while the clock runs."""
    _stopped_for: float = 0.0
    """Seconds for which its clock stood still earlier."""
    _clock_before: float = 0.0
    """What its clock showed when the fetch took off."""
    _reported: _Counts = _NO_COUNTS
    """What :attr:`tally` has of this queue."""

    # Its fetch

    def begin(self, fetch: Flight, now: float) -> None:
        """Wait for *fetch*, which stands in our queue (flights.py) so far: that time
        doesn't count."""
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
        """Wait for *later*, which stands in our queue, in place of a fetch that was
        broken off. The clock goes back to what it showed before that fetch took off."""
        self.fetch = later
        self._stopped_at = now
        self._stopped_for = now - self._clock_before

    def end_fetch(self, fetch: Flight, now: float) -> None:
        """Wait for *fetch* no more: it has ended. Another one may have taken its place
        before."""
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
        """From now on, let no time count; do nothing if the clock stands still
        already."""
        if self._stopped_at is None:
            self._stopped_at = now

    def start_clock(self, now: float) -> None:
        """From now on, let time count again."""
        if self._stopped_at is not None:
            self._stopped_for += now - self._stopped_at
            self._stopped_at = None

    @property
    def clock_runs(self) -> bool:
        """Whether time counts now."""
        return self._stopped_at is None

    def when(self, clock_time: float, now: float) -> float:
        """Return the moment at which this queue's clock, if it goes on, shows
        *clock_time*."""
        remaining = clock_time - self.clock(now)
        return now + remaining

    @property
    def oldest_bound(self) -> float:
        """A time of this queue's clock before which no request came that waits or is
        held. At this time or later the first of those came; :meth:`find_oldest` tells
        when."""
        return self._oldest

    def find_oldest(self) -> float:
        """Return when the first of those came that wait or are held; infinity if there
        is none."""
        times = [held.since for held in chain(self.waiting, self.held)]
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
        """Whether requests in it are about to leave."""
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
        """Return how many count towards the limit of requests that may wait for first
        answers: only a few once the answer to a first fetch is late, so that such an
        origin doesn't stop the others."""
        if self.fetch is None or self.fetch.again:  # no first fetch
            return self.unheld
        if self.lateness is Lateness.NOT_LATE:
            return self.unheld
        if self.lateness is Lateness.LATE:
            return min(LATE_COUNT, self.unheld + self.count)
        return 0

    def report(self) -> None:
        """Bring :attr:`tally` up to date. Whatever changes the queue's lengths ends
        with this."""
        before = self._reported
        current = _Counts(self.unheld, self.count, self._counted())
        self._reported = current
        self.tally.waiting += current.waiting - before.waiting
        self.tally.held += current.held - before.held
        self.tally.counted += current.counted - before.counted

    def become_late(self, lateness: Lateness) -> None:
        """Note that the answer to the fetch is late, or very late."""
        self.lateness = lateness
        self.report()

    def forget_past(self) -> None:
        """Forget what was about requests from the scheduler: none is left."""
        self.fails = False
        self.was_overtaken = False
        self.is_answered = False
        self.extra_attempt = 0
        self.unanswered = 0
        self.released = 0
        self.given_up = 0
        self.longest = 0.0
        self.logged_as = ""

    # They come, move and leave

    def arrive(self, held: Held) -> None:
        """Let *held* wait."""
        self.waiting.append(held)
        self._oldest = min(self._oldest, held.since)
        self.report()

    def recover(self, requests: list[Held]) -> None:
        """Hold *requests*, which an earlier run has held."""
        self.held += requests
        heapify(self.held)
        self.find_oldest()
        self.report()

    def hold(self, count: int, keep: Callable[[Held], Held]) -> list[Held]:
        """Hold the first *count* of those that wait. *keep* returns each as it is to be
        held (with its row on disk, say). Return them as they were. For those that still
        wait there is no room."""
        moving = self.waiting[:count]
        self.waiting = self.waiting[count:]
        self.without_room = len(self.waiting)
        for held in moving:
            heappush(self.held, keep(held))
        self.report()
        return moving

    def dismiss_waiting(self) -> list[Held]:
        """Remove and return those that wait."""
        dismissed = self.waiting
        self.waiting = []
        self.without_room = 0
        self.report()
        return dismissed

    def let_leave(self, why: Drop | None, now: float, before: float = math.inf) -> None:
        """Let those leave that came until *before*, a time of this queue's clock: to
        fail, if there is a reason *why*, otherwise because they are released."""
        are_to_fail = why is not None
        if self.fails != are_to_fail:
            # Those that are about to leave would do so for the other reason.
            self.recall(now)
        self.fails = are_to_fail
        if why is not None:
            self.why = why
        else:
            self.released_at = self.clock(now)
        if before == math.inf and not self.leaving_held:
            # All leave, and they are a heap already: to build a heap of 100,000 again
            # takes long.
            self.leaving_held = self.held
            self.held = []
        self.held = _move_older(self.held, self.leaving_held, before)
        heapify(self.held)
        self.waiting = _move_older(self.waiting, self.leaving_others, before)
        self._limit_without_room()
        self.find_oldest()
        self.report()

    def join_leaving(self, request: Held) -> None:
        """Let *request* stand among those that are about to leave, by its priority and
        number."""
        heappush(self.leaving_others, request)
        self.report()

    def recall(self, now: float) -> None:
        """Keep those that were about to leave. The time of those that had been released
        begins anew: an answer had come for them, so what follows is another wait."""
        if not self.has_leaving:
            return
        recalled_held = self.leaving_held
        recalled_others = self.leaving_others
        self.leaving_held = []
        self.leaving_others = []
        if not self.fails:
            since = self.clock(now)
            recalled_held = [held._replace(since=since) for held in recalled_held]
            recalled_others = [held._replace(since=since) for held in recalled_others]
        self.held += recalled_held
        self.waiting += recalled_others
        heapify(self.held)
        self.waiting.sort(key=attrgetter("number"))
        self.find_oldest()
        self.report()

    def take(self, is_taken: Callable[[Held], bool]) -> list[Held]:
        """Remove those that wait or are held for which *is_taken* is true. Return them
        in the order in which they would leave."""
        taken = list(filter(is_taken, self.waiting))
        taken += filter(is_taken, self.held)
        if not taken:
            # To build a heap of 100,000 again, as below, takes long.
            return []
        self.waiting = list(filterfalse(is_taken, self.waiting))
        self.held = list(filterfalse(is_taken, self.held))
        heapify(self.held)
        self._limit_without_room()
        self.report()
        return sorted(taken)

    def _limit_without_room(self) -> None:
        """Bring :attr:`without_room` up to date, since some of those that wait are
        gone."""
        self.without_room = min(self.without_room, len(self.waiting))

    def first_leaving(self) -> Held | None:
        """Return the request that is next to leave; None if none is about to."""
        heap = self._heap_of_first()
        return heap[0] if heap else None

    def replace_first(self, held: Held) -> None:
        """Put *held*, which was read from disk, in the place of the request that is
        next to leave."""
        self._heap_of_first()[0] = held

    def pop_first(self) -> Held:
        """Remove and return the request that is next to leave."""
        held = heappop(self._heap_of_first())
        self.report()
        return held

    def _heap_of_first(self) -> list[Held]:
        """Return the heap that begins with the request that is next to leave; an empty
        one if none is."""
        if not self.leaving_others:
            return self.leaving_held
        if not self.leaving_held:
            return self.leaving_others
        # Lists are compared by their first items: requests, of which no two have the
        # same number.
        return min(self.leaving_held, self.leaving_others)


def _move_older(requests: list[Held], heap: list[Held], before: float) -> list[Held]:
    """Move those of *requests* that came until *before* to *heap*. Return the
    others."""
    staying: list[Held] = []
    for held in requests:
        if held.since <= before:
            heappush(heap, held)
        else:
            staying.append(held)
    return staying


class Step(Enum):
    """What has to be done for those in a queue: :meth:`.flights.Flights._act` does it,
    or has it done by holding/holding.py."""

    ASK = "fetch robots.txt again"
    APPLY = "do what the status says with those who wait"
    COUNT_LATE = "the answer is late: let few of those who wait count"
    HOLD = "hold those who have waited too long for a first answer"
    COUNT_VERY_LATE = (
        "the answer is very late: let none count, and drop those for which there is "
        "no room"
    )
    TIME_IS_OVER = "give up those whose time is over, or make a last attempt"
    FREE_PLACE = "the fetch is slow: another may have its place"


def steps(
    status: Status, queue: Queue, now: float, limits: Limits
) -> dict[Step, float]:
    """Return what has to be done for those in *queue*, and when. *status* is what is
    known of the origin.

    Pure. Steps whose time has come are due; the first of the others is the queue's
    wake-up. With nobody waiting, and no fetch, there is no step: those that are leaving
    have a turn.
    """
    fetch = queue.fetch
    if fetch is not None:
        due = _during_fetch(queue, fetch, now, limits)
    else:
        due = _between_fetches(status, queue, now, limits)
    if queue.being_told:
        # The answer is known, and listeners are being told. One of them (a handler of
        # the signal `robots_resolved`, say) may take long, or never return.
        answered_at = min(flight.answered_at for flight in queue.being_told)
        due[Step.APPLY] = answered_at + limits.grace
    return due


def next_wakeup(
    status: Status, queue: Queue, now: float, limits: Limits
) -> float | None:
    """Return when the next step is due; None if there is none."""
    return min(steps(status, queue, now, limits).values(), default=None)


def _during_fetch(
    queue: Queue, fetch: Flight, now: float, limits: Limits
) -> dict[Step, float]:
    """Return the steps of an origin whose *fetch* is queued or in flight."""
    due: dict[Step, float] = {}
    if fetch.took_off_at is not None and not fetch.is_slow:
        seconds = fetch.patience * SLOW_SECONDS
        due[Step.FREE_PLACE] = fetch.took_off_at + seconds
    stays = bool(queue.waiting or queue.held)
    if stays and queue.lateness is Lateness.NOT_LATE:
        due[Step.COUNT_LATE] = fetch.began_at + LATE_SECONDS
    if stays and queue.lateness is not Lateness.VERY_LATE:
        seconds = max(limits.grace, VERY_LATE_SECONDS)
        due[Step.COUNT_VERY_LATE] = fetch.began_at + seconds
    if len(queue.waiting) > queue.without_room:
        due[Step.HOLD] = fetch.began_at + limits.grace
    if stays and queue.clock_runs:
        over_at = queue.when(queue.oldest_bound + limits.max_wait, now)
        # Those who wait for a fetch are given up only after its timeout.
        due[Step.TIME_IS_OVER] = max(over_at, fetch.patient_until(limits))
    return due


def _between_fetches(
    status: Status, queue: Queue, now: float, limits: Limits
) -> dict[Step, float]:
    """Return the steps of an origin without a fetch that is queued or in flight.
    *status*: what is known of it decides whether those who wait may go on."""
    due: dict[Step, float] = {}
    stays = bool(queue.waiting or queue.held)
    if queue.being_told or not (stays or queue.callers):
        return due  # the answer is being told, or nobody waits
    if isinstance(status, Unknown | Expired):
        due[Step.ASK] = now
    elif not isinstance(status, Unreachable):
        due[Step.APPLY] = now
    else:
        due[Step.ASK] = status.retry_at
        if queue.waiting:  # a failure came, so they are held now
            due[Step.APPLY] = now
        if stays:
            over_at = queue.oldest_bound + limits.max_wait
            due[Step.TIME_IS_OVER] = queue.when(over_at, now)
    return due
