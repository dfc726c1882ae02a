"""What is due later: alarms, one timer for any number of keys; periodic tasks; and pauses in
coroutines, with any reactor or none (Scrapy has its own since 2.18)."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from scrapy.crawler import Crawler
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from scrapy_rep.engine.log import Isolation

T = TypeVar("T")

SLICE_SECONDS = 0.01
"""The longest that work may block the event loop."""

# Of periodic tasks.
_PERIOD_SECONDS = 1.0
# Callbacks before the event loop gets a turn.
_AT_A_TURN = 200
# Seconds between checks whether the crawl is still paused.
_PAUSE_SECONDS = 0.5
# Seconds until a failed callback is retried.
_RETRY_SECONDS = 1.0
# The heap is built anew once it has more outdated times than this plus those that count.
_OUTDATED = 1000


class Alarm:
    """Calls back for each key when it is due: a heap, since 100,000 tasks would be too many."""

    def __init__(self, crawler: Crawler, on_due: Callable[[Any], None]) -> None:
        """*on_due* gets a key (any that can be ordered) when it is due, and may set it again. While
        the engine is paused, nothing is due."""
        self._crawler: Any = crawler
        self._on_due = on_due
        self._isolated = Isolation(crawler)
        self._times: dict[Any, float] = {}
        self._heap: list[tuple[float, Any]] = []
        self._timer: CallLaterResult | None = None
        self._stopped = False

    def __contains__(self, key: object) -> bool:
        return key in self._times

    def set(self, key: Any, seconds: float, *, sooner: bool = False) -> None:
        """Make *key* due in *seconds*; with *sooner*, only if that is earlier than now set."""
        when = time.monotonic() + seconds
        if sooner and when >= self._times.get(key, math.inf):
            return
        self._times[key] = when
        heapq.heappush(self._heap, (when, key))
        if len(self._heap) > 2 * len(self._times) + _OUTDATED:
            self._heap = [(when, key) for key, when in self._times.items()]
            heapq.heapify(self._heap)
        if self._heap[0] == (when, key):
            self._arm(seconds)

    def forget(self, key: object) -> None:
        self._times.pop(key, None)

    @property
    def soonest(self) -> float:
        """Seconds until the next key is due, 0 at least; 0 if none is."""
        return max(0.0, min(self._times.values(), default=0.0) - time.monotonic())

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped:
            self._timer = call_later(max(0.0, seconds), self._ring)

    def _ring(self) -> None:
        if self._crawler.engine.paused:
            self._arm(_PAUSE_SECONDS)
            return
        now = time.monotonic()
        for _ in range(_AT_A_TURN):
            if self._stopped or not self._heap or self._heap[0][0] > now:
                break
            when, key = heapq.heappop(self._heap)
            if self._times.get(key) != when:
                continue  # set again since
            del self._times[key]
            failed = True
            with self._isolated("processing of held requests"):
                self._on_due(key)
                failed = False
            if failed:  # the key must not wait for ever
                self.set(key, _RETRY_SECONDS)
        if self._heap:
            self._arm(self._heap[0][0] - time.monotonic())


class PeriodicTask:
    """Calls a function every second, never twice at a time."""

    def __init__(self, task: Callable[[], Awaitable[None]]) -> None:
        self._task = task
        self._turn = DeferredLock()
        self._timer: CallLaterResult | None = None
        self._ended = False

    async def begin(self) -> None:
        await self.now()
        if not self._ended:
            self._timer = call_later(
                _PERIOD_SECONDS, lambda: deferred_from_coro(self.begin())
            )

    async def now(self, *, last: bool = False) -> None:
        """Call it at once; with *last*, never again."""
        await maybe_deferred_to_future(self._turn.acquire())
        try:
            if not self._ended:
                self._ended = last
                await self._task()
        finally:
            self._turn.release()
        if last and self._timer is not None:
            self._timer.cancel()


async def within(seconds: float | None, waiting: Deferred[T], late: Exception) -> T:
    """Return what *waiting* comes to, even if it can't be cancelled. After some *seconds* (None: no
    limit), raise *late*."""
    done: Deferred[T] = Deferred()
    is_over = False

    def finish(result: Any) -> None:
        if not (done.called or is_over):
            done.callback(result)  # a Failure goes to the errbacks

    waiting.addBoth(finish)
    timer = None if seconds is None else call_later(seconds, finish, Failure(late))  # type: ignore[no-untyped-call]
    try:
        return await maybe_deferred_to_future(done)
    finally:
        if timer is not None:
            timer.cancel()
        # If this coroutine is being closed, nothing may call it back.
        is_over = True
        waiting.cancel()


async def pause(seconds: float = 0) -> None:
    over: Deferred[None] = Deferred()
    timer = call_later(seconds, over.callback, None)
    try:
        await maybe_deferred_to_future(over)
    finally:
        timer.cancel()


class Slices:
    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    def renew_if_over(self) -> bool:
        """Begin the next slice, if this one is over. Return whether it was."""
        now = time.perf_counter()
        if now < self._until:
            return False
        self._until = now + SLICE_SECONDS
        return True


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield *items*. After each slice of time, the event loop gets a turn."""
    slices = Slices()
    for one in items:
        yield one
        if slices.renew_if_over():
            await pause()
