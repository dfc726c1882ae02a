"""Who waits for an origin's robots.txt, for which fetch of it, and when something has
to be done for them (docs/DESIGN.md, "Queue" and "Wake-up"; REP.md section 4).

There is one :class:`Queue` for each origin with somebody in it. Requests from the
scheduler stand in it at one of three stages, and move by its methods alone:

- *waiting*: for a first answer, in memory;
- *held*: since there was none in time, or a failure; on disk, if there is a JOBDIR;
- *leaving*: an answer releases them, or they are given up. They go one by one, as
  download slots become free.

*Callers* (direct downloads, ``may_fetch()``, the verifier of sitemaps) wait in
coroutines of their own.

A fetch is called a *flight*. It goes through these stages, which flights.py moves it
along:

- *queued*: it stands in line (flights.py), since too many others are in flight;
- *in flight*: it has taken off; its request may stand in a queue of the downloader, or
  be sent;
- *being told*: the answer is known, and listeners are being told;
- *landed*: those who wait have been told the result.

:func:`steps` says what has to be done for an origin, and when. So nobody can be stuck:
each origin with somebody in its queue has a fetch (queued, in flight or being told), a
step with a time, or a turn to leave (:attr:`Queue.has_turn`). Two waits have no limit:
that of callers while a middleware keeps the fetch, and that of anybody while the fetch
stands in line, or its request in a queue.

Times are seconds of the crawl's running time, in which pauses of the crawl don't count.
How long a request has waited is measured by its queue's own clock, from when it came,
also between two attempts. That clock also stands still while robots.txt waits in our
line or in a queue of the downloader's, or behind another process, which is nobody's
fault. Whether a first fetch is late (:attr:`Limits.grace`, :class:`Lateness`) is
measured from when it was needed: time in line or in a queue counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import chain, filterfalse
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from scrapy import Request
from twisted.internet.defer import Deferred

from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.policy import NO_REASON, Drop
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Expired, Status, Unknown, Unreachable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages.base import Entry

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
"""Seconds in flight after which a fetch is slow: it is probably to a silent origin, and
no longer counts among the quick ones that may run at a time."""

LANDING_SECONDS = 1.0
"""Seconds that a fetch may take to fail once its time is over, or that an answer may
take to be handled."""

ROUNDING = 0.001
"""Seconds by which a step may be done early, since sums of the same times may differ in
their last digits."""


@dataclass(frozen=True)
class Limits:
    """How long requests may wait and fetches may take, in seconds."""

    grace: float
    """How long a request waits for a first fetch, from when that was needed, before it
    counts as held."""
    max_wait: float
    """How long a request is held before it is given up (``REP_HOLD_MAX_WAIT``)."""
    fetch: float
    """How long a fetch may take, from when it is sent, before it fails."""


class Held(NamedTuple):
    """A request at the gate (holding/gate.py). Requests are sorted by the first two
    fields, and leave in this order: urgent ones first, then early ones."""

    urgency: int
    """The request's negated priority."""
    number: int
    """A number that increases as requests come to the gate. Those of an earlier run
    have negative numbers."""
    since: float
    """When the request came, in seconds of its queue's clock."""
    request: Request = None  # type: ignore[assignment]
    """The request itself; None: it is on disk, and hasn't been read so far."""
    row: int | None = None
    """The request's row on disk (holding/disk.py); None: it is in memory only."""
    was_held: bool = False
    """Whether the request has been held; otherwise it has only waited for a first
    answer."""


class Owner(Protocol):
    """What makes flights: :class:`scrapy_rep.origins.flights.Flights`."""

    queues: dict[Origin, Queue]
    """By origin: its queue, with those who wait for its flight."""

    def clock(self) -> float:
        """Return for how many seconds the crawl has run."""

    def set_alarm_or_forget(self, queue: Queue) -> None:
        """Set the alarm of *queue* anew, since something has changed; forget the queue
        if nobody needs it any more."""

    async def wait_for(self, flight: Flight, seconds: float | None) -> OriginState:
        """Wait for *flight*, see :meth:`Flight.wait`."""
        ...


class StillWaiting(Exception):
    """The time to wait is over, and there is no answer yet."""


class CrawlEnding(Exception):
    """There will be no answer: the spider is closing."""


class FetchAbandoned(Exception):
    """Nobody waited for the fetch any more, and it was cancelled."""


@dataclass(slots=True, eq=False)
class Flight:
    """A fetch, from when it is needed until all that wait for it have been told.
    Its times are seconds of the crawl's running time, unless something else is said."""

    origin: Origin
    request: Request
    """The first request that needs the answer; if none does, one for the file
    itself."""
    owner: Owner | None = None
    """What made this flight; None for one that nobody waits for (in tests)."""
    again: bool = False
    """Whether the flight is a retry: requests are held for the origin already. Retries
    give way to first fetches."""
    began_at: float = 0.0
    """When the flight was needed first."""
    took_off_at: float | None = None
    """When the flight left our line; None before."""
    sent_at: float | None = None
    """When the request for robots.txt last left a queue (the downloader's, or that
    behind another process); None before."""
    has_place: bool = False
    """Whether the flight has one of the places that flights may have at a time."""
    is_slow: bool = False
    """Whether the flight has been under way for long (:data:`SLOW_SECONDS`). Then
    another one may have its place among the quick flights, which aren't slow."""
    patience: int = 1
    """How many times as long as others the flight may be under way before it is
    slow."""
    is_abandoned: bool = False
    """Whether we cancelled the flight."""
    is_put_off: bool = False
    """Whether we cancelled the flight for others that needed its place. Another flight
    to this origin is queued instead."""
    running: Deferred[Any] | None = None
    """The flight's task; None while the flight is queued."""

    # Set by the cache, which fetches (cache.py).
    fetches: int = 0
    """How often this process has requested the origin's robots.txt for this flight."""
    asked_at: float | None = None
    """When this process first requested robots.txt for this flight, in seconds since
    the epoch."""
    before: Entry | None = None
    """What was known of the origin before this process requested robots.txt."""
    answer: Answer | None = None
    """The answer to this process; None if another process's answer came from the
    storage."""
    outcome: Outcome | None = None
    """What the answer means, whichever process got it."""

    # Set by the flights when the answer is known.
    answered_at: float = 0.0
    """When the answer was known."""
    state: OriginState | None = None
    """What the answer has made known."""
    callers: list[Deferred[OriginState]] = field(default_factory=list)
    """While the answer is being told, those who wait for it in coroutines of their own.
    Before, they are in the origin's queue (:attr:`Queue.callers`)."""
    result: OriginState | Exception | None = None
    """What those who wait are told; None until the flight has landed."""

    def later(self) -> Flight:
        """Return a flight that asks again in place of this one, which is put off. It
        may be in flight twice as long before it is slow."""
        return Flight(
            self.origin,
            self.request,
            owner=self.owner,
            again=self.again,
            began_at=self.began_at,
            patience=2 * self.patience,
        )

    def remaining(self, seconds: float) -> float:
        """Return how many of some *seconds* are left, which count from when the flight
        was needed first."""
        now = self.owner.clock() if self.owner is not None else 0.0
        return self.began_at + seconds - now

    def note_queued(self, is_queued: bool) -> None:
        """Note that its request has entered (*is_queued*) or left a queue: of the
        downloader, or behind another process. The time there doesn't count against
        those who wait."""
        if self.owner is None:  # nobody waits
            return
        queue = self.owner.queues.get(self.origin)
        if queue is None or queue.fetch is not self:
            return  # it was cancelled, or put off
        now = self.owner.clock()
        queue.run_clock(now, runs=not is_queued)
        # When the request enters a queue, the alarm stays as it is. If it rings too
        # early, nothing is due, and it is set anew.
        if not is_queued:
            self.sent_at = now
            self.owner.set_alarm_or_forget(queue)

    async def wait(self, seconds: float | None = None) -> OriginState:
        """Wait for the answer. Raises ``StillWaiting`` after *seconds*, ``CrawlEnding``
        if the spider closes, or one of
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        if isinstance(self.result, Exception):
            raise self.result
        if self.result is not None:
            return self.result
        assert self.owner is not None
        return await self.owner.wait_for(self, seconds)


def tell(
    callers: Iterable[Deferred[OriginState]], result: OriginState | Exception
) -> None:
    """Let *callers* go on with *result*."""
    for caller in list(callers):  # a copy, since each removes itself
        if isinstance(result, Exception):
            caller.errback(result)
        else:
            caller.callback(result)


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


class Lateness(Enum):
    """How long the answer to a fetch has been awaited. While a first answer is late,
    fewer of those who wait count (:attr:`Queue.counted`), so that the gate goes on.
    Once it is very late, requests for which there is no room are turned away: those
    that wait (``Holding.act``) and those that come (``Gate._keep_unless_full``)."""

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

    # Who is in the queue
    callers: list[Deferred[OriginState]] = field(default_factory=list)
    """Those that wait in coroutines of their own, for the answer to :attr:`fetch` or to
    the next one."""
    waiting: list[Held] = field(default_factory=list)
    """Requests that wait, in the order in which they came."""
    without_room: int = 0
    """How many of :attr:`waiting`, from its beginning, should have been held, but
    weren't, since too many are held already."""
    held: list[Held] = field(default_factory=list)
    """A heap of requests that are held."""
    leaving: list[Held] = field(default_factory=list)
    """A heap of requests that are about to leave: the first is next."""
    leaving_held: int = 0
    """How many of :attr:`leaving` have been held; the others have only waited."""

    # How many there are, kept up to date by :meth:`recount`
    count: int = 0
    """How many requests have been held, including those that are about to leave."""
    unheld: int = 0
    """How many have never been held, including those that are about to leave."""
    counted: int = 0
    """How many count towards the limit of requests that may wait for first answers."""
    has_requests: bool = False
    """Whether requests from the scheduler are in the queue."""

    # About those that leave
    fails: bool = False
    """Whether those that leave fail; otherwise they are released. This is not about
    those that stay or come later."""
    why: Drop = NO_REASON
    """Why those that leave fail, if they do."""
    released_at: float = 0.0
    """When the answer came that releases those that leave, in seconds of this queue's
    clock."""
    good_until: float = 0.0
    """Until when, in the crawl's running time, an answer releases requests, even if the
    answer may not be kept so long."""
    has_turn: bool = False
    """Whether the queue has a turn: the gate is going to let a request leave, if any
    may."""
    on_their_way: list[Request] = field(default_factory=list)
    """Requests that have left, and may not have reached their download slot."""
    was_overtaken: bool = False
    """Whether a request that came later has gone past those of this origin. Then, for
    fairness, one of these may leave even though the slot is full."""

    # What the gate and the log remember until nobody is left
    extra_attempt: int = 0
    """The number (``entry.attempts``) of the last attempt that was made only because
    the time of held requests was over (policy.py)."""
    is_answered: bool = False
    """Whether an answer, or at least a failure, has come since there was somebody in
    the queue."""
    unanswered: int = 0
    """How many requests were held before there was any answer or failure."""
    released: int = 0
    """How many requests were released."""
    given_up: int = 0
    """How many requests were given up."""
    longest: float = 0.0
    """The longest time in seconds for which a request that left was held, earlier runs
    included."""
    logged_as: str = ""
    """What the log says of the origin: that it is "slow", or "unreachable"."""

    oldest_bound: float = math.inf
    """A time of the queue's clock: none of the requests that wait or are held came
    earlier, but the oldest of them may have come later. To keep this time exact would
    take a search for each request that leaves; :meth:`find_oldest` makes it exact."""
    stopped_at: float | None = None
    """When the queue's clock was stopped; None while the clock runs."""
    _stopped_for: float = 0.0
    """Seconds for which the queue's clock stood still earlier."""
    _clock_before: float = 0.0
    """What the queue's clock showed when the fetch took off."""

    # Its fetch

    def begin_fetch(self, fetch: Flight, now: float) -> None:
        """Wait for *fetch*, which stands in line (flights.py) so far. The time there
        doesn't count."""
        self.fetch = fetch
        self.run_clock(now, runs=False)

    def take_off(self, now: float) -> None:
        """Note that the fetch leaves the line."""
        assert self.fetch is not None  # it stood in line
        self.fetch.took_off_at = now
        self._clock_before = self.clock(now)
        self.run_clock(now, runs=True)

    def put_off(self, later: Flight, now: float) -> None:
        """Wait for *later*, which stands in line, in place of a fetch that was broken
        off. The clock goes back to what it showed before that fetch took off."""
        self.fetch = later
        self.stopped_at = now
        self._stopped_for = now - self._clock_before

    def end_fetch(self, fetch: Flight, now: float) -> None:
        """Wait for *fetch* no more, since it has ended. Another fetch may have taken
        its place in the queue before."""
        if self.fetch is fetch:
            self.fetch = None
            self.run_clock(now, runs=True)
            # The next fetch isn't late so far.
            if self.lateness is not Lateness.NOT_LATE:
                self.lateness = Lateness.NOT_LATE
                self.recount()

    def remove_callers(self) -> list[Deferred[OriginState]]:
        """Remove and return the callers, who are going to be told."""
        callers = self.callers
        self.callers = []
        return callers

    # Time

    def clock(self, now: float) -> float:
        """Return *now* in seconds of this queue's clock."""
        stopped_for = self._stopped_for
        if self.stopped_at is not None:
            stopped_for += now - self.stopped_at
        return now - stopped_for

    def run_clock(self, now: float, *, runs: bool) -> None:
        """Let time count from now on if the clock *runs*; otherwise stop it."""
        if self.stopped_at is not None:
            self._stopped_for += now - self.stopped_at
        self.stopped_at = None if runs else now

    def find_oldest(self) -> float:
        """Return when the oldest of the requests came that wait or are held, in seconds
        of this clock; infinity if there is none. Make :attr:`oldest_bound` exact."""
        self.oldest_bound = math.inf
        for held in chain(self.waiting, self.held):
            self.oldest_bound = min(self.oldest_bound, held.since)
        return self.oldest_bound

    # How many there are

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the queue."""
        return not (self.has_requests or self.callers)

    def recount(self) -> None:
        """Count the queue's requests anew, here and in :attr:`tally`. Whatever changes
        the queue's lists, or how late its fetch is, ends with this method."""
        count = len(self.held) + self.leaving_held
        unheld = len(self.waiting) + len(self.leaving) - self.leaving_held
        counted = unheld
        is_first_fetch = self.fetch is not None and not self.fetch.again
        if is_first_fetch and self.lateness is Lateness.LATE:
            # Only a few count, so that such an origin doesn't stop the others.
            counted = min(LATE_COUNT, unheld + count)
        elif is_first_fetch and self.lateness is Lateness.VERY_LATE:
            counted = 0
        self.tally.waiting += unheld - self.unheld
        self.tally.held += count - self.count
        self.tally.counted += counted - self.counted
        self.unheld = unheld
        self.count = count
        self.counted = counted
        self.has_requests = unheld > 0 or count > 0

    def become_late(self, lateness: Lateness) -> None:
        """Note that the answer to the fetch is late, or very late."""
        self.lateness = lateness
        self.recount()

    def forget_past(self) -> None:
        """Forget what happened to requests from the scheduler, of which none is
        left."""
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
        self.oldest_bound = min(self.oldest_bound, held.since)
        self.recount()

    def recover(self, requests: list[Held]) -> None:
        """Hold *requests*, which an earlier run has held."""
        self.held += requests
        heapify(self.held)
        self.find_oldest()
        self.recount()

    def hold(self, count: int, keep: Callable[[Held], Held]) -> list[Held]:
        """Hold the first *count* of those that wait, and return them as they were. Each
        is held as *keep* returns it (with its row on disk, say). There is no room for
        those that still wait."""
        moving = self.waiting[:count]
        self.waiting = self.waiting[count:]
        self.without_room = len(self.waiting)
        for held in moving:
            heappush(self.held, keep(held))
        self.recount()
        return moving

    def dismiss_waiting(self) -> list[Held]:
        """Remove and return those that wait."""
        dismissed = self.waiting
        self.waiting = []
        self.without_room = 0
        self.recount()
        return dismissed

    def let_leave(self, why: Drop | None, now: float, before: float = math.inf) -> None:
        """Let those leave that came until *before*, a time of this queue's clock. If
        there is a reason *why*, they are to fail; otherwise they are released."""
        are_to_fail = why is not None
        if self.fails != are_to_fail:
            # All that leave do so for one reason. Those that were about to leave for
            # the other one are kept first, and may leave again below.
            self.recall_leaving(now)
        self.fails = are_to_fail
        if why is not None:
            self.why = why
        else:
            self.released_at = self.clock(now)
        if before < math.inf:
            self._let_older_leave(before)
            return
        # All leave.
        self.leaving_held += len(self.held)
        if not self.leaving:
            # Those that are held are a heap already. To build one of 100,000 again
            # takes long.
            self.leaving = self.held
            self.held = []
        for held in chain(self.held, self.waiting):
            heappush(self.leaving, held)
        self.held = []
        self.waiting = []
        self.without_room = 0
        self.oldest_bound = math.inf
        self.recount()

    def _let_older_leave(self, before: float) -> None:
        """Let those leave that came until *before*, a time of this queue's clock, and
        the others stay."""
        staying = _move_older(self.held, self.leaving, before)
        self.leaving_held += len(self.held) - len(staying)
        heapify(staying)
        self.held = staying
        self.waiting = _move_older(self.waiting, self.leaving, before)
        self._limit_without_room()
        self.find_oldest()
        self.recount()

    def join_leaving(self, request: Held) -> None:
        """Let *request* stand among those that are about to leave, by its priority and
        number."""
        heappush(self.leaving, request)
        self.recount()

    def recall_leaving(self, now: float) -> None:
        """Keep those that were about to leave. The waiting time of those that had been
        released begins anew: an answer had come for them, so what follows is another
        wait."""
        if not self.leaving:
            return
        recalled = self.leaving
        self.leaving = []
        self.leaving_held = 0
        if not self.fails:  # they had been released
            since = self.clock(now)
            recalled = [held._replace(since=since) for held in recalled]
        for held in recalled:
            stays_in = self.held if held.was_held else self.waiting
            stays_in.append(held)
        self.fails = False
        heapify(self.held)
        self.waiting.sort(key=attrgetter("number"))
        self.find_oldest()
        self.recount()

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
        self.recount()
        return sorted(taken)

    def _limit_without_room(self) -> None:
        """Bring :attr:`without_room` up to date, since some of those that wait are
        gone."""
        self.without_room = min(self.without_room, len(self.waiting))

    def numbers_to_fail(self) -> set[int]:
        """Return the numbers (``Held.number``) of those that are about to leave, to
        fail."""
        if not self.fails:
            return set()
        return {held.number for held in self.leaving}

    def note_departure(self) -> None:
        """Note that all that were about to leave have left, and that others stay.
        :attr:`fails` was not about these."""
        self.fails = False

    def replace_first(self, held: Held) -> None:
        """Put *held*, the next to leave, in its place again, now with the request that
        was read from disk."""
        self.leaving[0] = held

    def pop_first(self) -> Held:
        """Remove and return the request that is next to leave."""
        held = heappop(self.leaving)
        if held.was_held:
            self.leaving_held -= 1
        self.recount()
        return held


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


class Step(str, Enum):
    """What has to be done for those in a queue: :meth:`.flights.Flights._act` does it,
    or has it done by holding/holding.py."""

    # It is a str since Python computes the hash of any other Enum in Python code, and
    # steps are keys for each request that waits.

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
    """Return what has to be done for those in *queue*, and when, in seconds of the
    crawl's running time. *status* is what is known of the origin; it matters between
    fetches only.

    Pure. Steps whose time has come are due; the first of the others is the queue's
    wake-up. With nobody waiting, and no fetch, there is no step: those that are leaving
    have a turn.
    """
    due: dict[Step, float] = {}
    fetch = queue.fetch
    stays = bool(queue.waiting or queue.held)
    if fetch is None and not queue.being_told and (stays or queue.callers):
        return _between_fetches(status, queue, now, limits)

    # A fetch is in flight.
    if fetch is not None and fetch.took_off_at is not None and not fetch.is_slow:
        seconds = fetch.patience * SLOW_SECONDS
        due[Step.FREE_PLACE] = fetch.took_off_at + seconds

    # Requests wait or are held, and a fetch is queued or in flight.
    if fetch is not None and stays:
        if queue.lateness is Lateness.NOT_LATE:
            due[Step.COUNT_LATE] = fetch.began_at + LATE_SECONDS
        if queue.lateness is not Lateness.VERY_LATE:
            seconds = max(limits.grace, VERY_LATE_SECONDS)
            due[Step.COUNT_VERY_LATE] = fetch.began_at + seconds
        if len(queue.waiting) > queue.without_room:
            due[Step.HOLD] = fetch.began_at + limits.grace
        if queue.stopped_at is None:  # while the clock stands still, no time ends
            # When the oldest request's time may be over, by the queue's clock.
            over_at = queue.oldest_bound + limits.max_wait
            seconds_left = over_at - queue.clock(now)
            # Those who wait for a fetch are given up only after its timeout. If it
            # fails in time, they fail with its reason, and not for want of an answer.
            since = fetch.sent_at or fetch.took_off_at or fetch.began_at
            fails_at = since + limits.fetch + LANDING_SECONDS
            due[Step.TIME_IS_OVER] = max(now + seconds_left, fails_at)

    if queue.being_told:
        # The answer is known, and listeners are being told. One of them (a handler of
        # the signal `robots_resolved`, say) may take long, or never return.
        # queue.being_told begins with the fetch that was answered first.
        due[Step.APPLY] = queue.being_told[0].answered_at + limits.grace
    return due


def _between_fetches(
    status: Status, queue: Queue, now: float, limits: Limits
) -> dict[Step, float]:
    """Return the steps of an origin for which somebody waits, without a fetch in
    progress, and no answer of which listeners are being told. *status*: what is known
    of the origin decides whether those who wait may go on."""
    due: dict[Step, float] = {}
    if isinstance(status, Unknown | Expired):
        due[Step.ASK] = now
    elif not isinstance(status, Unreachable):
        due[Step.APPLY] = now
    else:
        due[Step.ASK] = status.retry_at
        if queue.waiting:  # a failure came, so those that wait are held now
            due[Step.APPLY] = now
        if queue.waiting or queue.held:
            # When the oldest request's time may be over, by the queue's clock.
            over_at = queue.oldest_bound + limits.max_wait
            seconds_left = over_at - queue.clock(now)
            due[Step.TIME_IS_OVER] = now + seconds_left
    return due
