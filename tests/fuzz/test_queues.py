"""Whatever happens to origins and to those who wait for them, in any order, nobody is stuck, and once the
origins answer, each request has left the gate once."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from scrapy import Request
from scrapy.utils.test import get_crawler
from twisted.internet.defer import CancelledError, Deferred

from scrapy_rep.engine.access import DownloadSlots, EngineAccess
from scrapy_rep.holding.holding import Holding
from scrapy_rep.origins.answer import Answer, ProjectError
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Action
from scrapy_rep.origins.queue import CrawlEnding, Flight, StillWaiting, steps
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from tests.helpers.invariant import has_wakeup
from tests.helpers.storing import learn

ORIGINS = [Origin("http", f"{name}.example", 80) for name in "abc"]
NAMES = st.sampled_from(ORIGINS)
SETTINGS = {
    "CONCURRENT_REQUESTS": 1,
    "_REP_HOLD_GRACE": 0.5,
    "REP_HOLD_MAX_WAIT": 60.0,
    "REP_DOWNLOAD_TIMEOUT": 10.0,
    "REP_RETRY_DELAY": 2.0,
    "REP_RETRY_MAX_DELAY": 20.0,
    "REP_HOLD_MAX_REQUESTS": 8,
    "REP_CACHE_TTL": 30,
    "REP_CACHE_MIN_TTL": 0,
}


@cache
def a_crawler() -> Any:
    """The same for all examples: making one takes long, and it only has settings and signals."""
    return get_crawler(settings_dict=SETTINGS)


class Timers:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._number = itertools.count()
        self._cancelled: set[int] = set()

    def call_later(
        self, seconds: float, call: Callable[..., object], *args: Any
    ) -> Any:
        number = next(self._number)
        heapq.heappush(self._calls, (self.now + seconds, number, lambda: call(*args)))
        return SimpleNamespace(cancel=lambda: self._cancelled.add(number))

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            at, number, call = heapq.heappop(self._calls)
            self.now = max(self.now, at)
            if number not in self._cancelled:
                call()
        self.now = end


class SlowListener(ResolutionListener):
    """A handler of `robots_resolved` that returns when it is let, or never."""

    def __init__(self) -> None:
        self.is_slow = False
        self.waiting: list[Deferred[None]] = []

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        if self.is_slow:
            done: Deferred[None] = Deferred()
            self.waiting.append(done)
            await done


class QueueMachine(RuleBasedStateMachine):
    has_small_pool = False

    def __init__(self) -> None:
        super().__init__()
        self.timers = timers = Timers()
        clock = SimpleNamespace(
            monotonic=lambda: timers.now,
            time=lambda: timers.now,
            perf_counter=time.perf_counter,
        )
        self.patches = [
            patch("scrapy_rep.engine.timers.call_later", timers.call_later),
            patch("scrapy_rep.origins.flights.call_later", timers.call_later),
            patch("scrapy_rep.engine.timers.time", clock),
            patch("scrapy_rep.engine.access.time", clock),
            # Coroutines run at once, as without asyncio.
            patch(
                "scrapy_rep.origins.flights.deferred_from_coro", Deferred.fromCoroutine
            ),
            patch(
                "scrapy_rep.engine.timers.maybe_deferred_to_future",
                lambda deferred: deferred,
            ),
            patch(
                "scrapy_rep.origins.flights.has_small_pool",
                lambda _: self.has_small_pool,
            ),
            patch.object(EngineAccess, "wake", lambda _: None),
            patch.object(DownloadSlots, "is_full", lambda *_: False),
            patch.object(DownloadSlots, "not_there_yet", lambda *_: []),
        ]
        for one in self.patches:
            one.start()
        crawler = a_crawler()
        known_settings = RepSettings.from_settings(crawler.settings)
        context = CrawlContext(crawler, known_settings, lambda: timers.now)
        context.crawler.engine = SimpleNamespace(
            paused=False,
            pause=None,
            unpause=None,
            scheduler=None,
            _slot=None,
            downloader=None,
        )
        self.origins = Origins(context)
        self.flights = self.origins.flights
        self.origins.cache.ask = self.ask  # type: ignore[method-assign]
        self.holding = Holding(context, self.origins)
        patcher = patch.object(EngineAccess, "scheduler_is_foreign", False)
        self.patches.append(patcher)
        patcher.start()
        self.listener = SlowListener()
        self.origins.flights.notify(self.listener)
        self.asked: dict[Origin, Deferred[Answer]] = {}
        self.number = itertools.count()
        self.at_the_gate: set[Request] = set()
        self.left: list[Request] = []
        self.callers: set[int] = set()

    def teardown(self) -> None:
        try:
            self.end()
        finally:
            for one in self.patches:
                one.stop()

    # The other side

    async def ask(self, flight: Flight) -> OriginState:
        answer: Deferred[Answer] = Deferred()
        self.asked[flight.origin] = answer
        try:
            flight.answer = await answer
        finally:
            if self.asked.get(flight.origin) is answer:
                del self.asked[flight.origin]
        return learn(self.origins.cache, flight.origin, flight.answer)

    @rule(origin=NAMES, is_queued=st.booleans())
    def enter_or_leave_a_queue(self, origin: Origin, is_queued: bool) -> None:
        flight = self.flights.get(origin)
        if flight is not None and origin in self.asked:
            flight.note_queued(is_queued)

    @rule(origin=NAMES, outcome=st.sampled_from([Outcome.MISSING, Outcome.UNREACHABLE]))
    def answer(self, origin: Origin, outcome: Outcome) -> None:
        if origin in self.asked:
            failed = outcome is Outcome.UNREACHABLE
            error = OSError("it is down") if failed else None
            status = None if failed else 404
            answer = Answer(outcome, origin.robots_url, 0, status, error=error)
            self.asked.pop(origin).callback(answer)

    @rule(
        origin=NAMES,
        error=st.sampled_from(
            [ProjectError, CancelledError, asyncio.CancelledError, KeyError]
        ),
    )
    def raise_out_of_the_fetch(
        self, origin: Origin, error: type[BaseException]
    ) -> None:
        if origin in self.asked:
            self.asked.pop(origin).errback(error("raised"))

    # Those who wait

    @rule(origin=NAMES, priority=st.integers(-1, 1))
    def request(self, origin: Origin, priority: int) -> None:
        request = Request(
            f"http://{origin.host}/{next(self.number)}", priority=priority
        )
        state = self.origins.cache.get(origin)
        if state is not None and not state.unreachable:
            if not self.holding.stay_behind(origin, request, None):
                return
        else:
            room = self.holding.held.room_for(self.flights.queues.get(origin))
            full = state is not None and not room
            if (
                self.origins.policy.at_the_gate(state, full=full).action
                is not Action.STAY
            ):
                return
            self.at_the_gate.add(request)
            self.holding.keep(origin, state, request, None)
            return
        self.at_the_gate.add(request)

    @rule(origin=NAMES, seconds=st.sampled_from([None, 3.0]), gives_up=st.booleans())
    def call(self, origin: Origin, seconds: float | None, gives_up: bool) -> None:
        number = next(self.number)
        self.callers.add(number)

        async def wait() -> None:
            try:
                if self.origins.cache.get(origin) is not None:
                    await self.flights.next_answer(origin)
                else:
                    await self.flights.to(origin).wait(seconds)
            except StillWaiting:
                if gives_up:
                    self.flights.abandon(origin)
            except (CrawlEnding, RuntimeError, ProjectError, KeyError):
                pass
            finally:
                self.callers.discard(number)

        state = self.origins.cache.get(origin)
        if state is None or state.unreachable:
            Deferred.fromCoroutine(wait())
        else:
            self.callers.discard(number)

    # What happens meanwhile

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.6, 3.0, 11.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.timers.pass_by(seconds)

    @rule(count=st.integers(1, 4))
    def engine_asks(self, count: int) -> None:
        for _ in range(count):
            request = self.holding.releases.next()
            if request is not None:
                self.left.append(request)
                self.holding.releases.verdicts.pop(request, None)

    @rule(is_slow=st.booleans())
    def listeners_are_slow(self, is_slow: bool) -> None:
        self.listener.is_slow = is_slow
        if not is_slow:
            waiting, self.listener.waiting = self.listener.waiting, []
            for done in waiting:
                done.callback(None)

    # What must be true

    @invariant()
    def nobody_is_stuck(self) -> None:
        for origin, queue in self.flights.queues.items():
            stays = queue.callers or queue.waiting or queue.held
            is_asked = queue.fetch is not None or queue.being_told
            wakes_up = has_wakeup(self.flights, origin)
            status, _ = self.origins.cache.status_of(origin)
            due = steps(status, queue, self.flights.clock(), self.flights.limits)
            assert wakes_up or not due, "the alarm is not what the queue needs"
            if stays:
                assert is_asked or wakes_up, queue
            if queue.leaving:
                assert queue.has_turn or is_asked or wakes_up, queue
            assert not queue.is_empty or is_asked, "nobody needs it"

    @invariant()
    def counts_are_lengths(self) -> None:
        queues, tally = self.flights.queues.values(), self.flights.tally
        assert tally.held == sum(queue.count for queue in queues)
        assert tally.waiting == sum(queue.unheld for queue in queues)
        assert tally.counted == sum(queue.counted for queue in queues)
        for queue in queues:
            leaving_held = [held for held in queue.leaving if held.was_held]
            assert queue.leaving_held == len(leaving_held)
            assert queue.leaving or not queue.fails, "nobody is left who could fail"
            count, unheld = queue.count, queue.unheld
            assert count == len(queue.held) + len(leaving_held)
            assert count + unheld == len([*queue.held, *queue.waiting, *queue.leaving])
            assert queue.has_requests is bool(count or unheld)
            queue.recount()
            assert (count, unheld) == (queue.count, queue.unheld)
            assert tally.counted == sum(queue.counted for queue in queues)

    def end(self) -> None:
        """All origins answer: each request that came to the gate has left it, once."""
        self.listener.is_slow = False
        for _ in range(200):
            for origin in list(self.asked):
                self.enter_or_leave_a_queue(origin, False)
                self.answer(origin, Outcome.MISSING)
            self.timers.pass_by(5.0)
            self.engine_asks(4)
            if not self.flights.queues and not self.holding.is_holding:
                break
        assert not self.flights.queues
        assert len(self.left) == len(set(self.left))
        assert set(self.left) == self.at_the_gate
        assert not self.callers


class CrawlWithSmallPool(QueueMachine):
    """Slow fetches give way: one may run at a time."""

    has_small_pool = True

    def __init__(self) -> None:
        with patch("scrapy_rep.origins.flights.concurrency_of", lambda _: 2):
            super().__init__()


@pytest.mark.parametrize("crawl", [QueueMachine, CrawlWithSmallPool])
def test_nobody_is_stuck_whatever_happens(crawl: type[QueueMachine]) -> None:
    run_state_machine_as_test(
        crawl, settings=settings(stateful_step_count=60, deadline=None)
    )  # type: ignore[no-untyped-call]
