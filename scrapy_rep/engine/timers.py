"""What is done later, or a slice at a time, with any reactor or none: :class:`Alarm`
(one timer for any number of keys), :class:`PeriodicTask`, :func:`within` (a time
limit), :func:`pause` and :func:`in_slices`. Scrapy has pauses of its own since 2.18."""

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

# Seconds between two runs of a periodic task. What a crash loses is at most this old.
_PERIOD_SECONDS = 1.0
# An alarm calls back this many times before the event loop gets a turn, since one call
# may take 50 µs.
_CALLBACKS_AT_A_TURN = 200
# Seconds between checks whether the crawl is still paused. (Scrapy sends no signal when
# it goes on.)
_PAUSE_CHECK_SECONDS = 0.5
# Seconds until a callback that failed is called again.
_RETRY_SECONDS = 1.0
# An alarm's heap may have as many outdated times as the alarm has keys, and this many
# more, before it is built anew.
_MOST_OUTDATED = 1000
# A key is not set anew if that would change its time by less than this many seconds.
_SAME_SECONDS = 0.001


class Alarm:
    """Calls back for each key when it is due, by one timer, since a task for each of
    100,000 keys would be too many."""

    def __init__(self, crawler: Crawler, on_due: Callable[[Any], None]) -> None:
        """*on_due* gets a key (any value that can be ordered) when the key is due, and
        may set it again. While the engine is paused, nothing is due."""
        self._crawler: Any = crawler
        self._on_due = on_due
        self._isolated = Isolation(crawler)
        """Logs a bug of *on_due* in place of raising it (engine/log.py)."""
        self._times: dict[Any, float] = {}
        """When each key is due (``time.monotonic()``)."""
        self._heap: list[tuple[float, Any]] = []
        """Times with their keys. Some pairs are outdated: no longer in
        :attr:`_times`."""
        self._timer: CallLaterResult | None = None
        """Calls :meth:`_ring` at the first of these times."""
        self._is_stopped = False

    def __contains__(self, key: object) -> bool:
        """Whether *key* is set, and not due yet."""
        return key in self._times

    def set(self, key: Any, seconds: float | None, *, sooner: bool = False) -> None:
        """Make *key* due in *seconds*; None: it isn't due any more. With *sooner*, do
        nothing if *key* is due earlier already."""
        if seconds is None:
            self._times.pop(key, None)
            return
        when = time.monotonic() + seconds
        latest = self._times.get(key, math.inf)
        if sooner and when >= latest:
            return
        if abs(when - latest) < _SAME_SECONDS:
            return
        self._times[key] = when
        heapq.heappush(self._heap, (when, key))
        # Build the heap anew if most of its times are outdated.
        if len(self._heap) > 2 * len(self._times) + _MOST_OUTDATED:
            self._heap = [(when, key) for key, when in self._times.items()]
            heapq.heapify(self._heap)
        # Set the timer anew if this is the first time now.
        if self._heap[0] == (when, key) and not self._is_stopped:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = call_later(max(0.0, seconds), self._ring)

    def stop(self) -> None:
        """Call back no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        """Call back for keys that are due, but not for too many at a time. Set the
        timer for the others."""
        if self._crawler.engine.paused:
            self._timer = call_later(_PAUSE_CHECK_SECONDS, self._ring)
            return
        self._timer = None
        # Call back.
        now = time.monotonic()
        for _ in range(_CALLBACKS_AT_A_TURN):
            if self._is_stopped or not self._heap:
                break
            when, key = self._heap[0]
            if when > now:
                break
            heapq.heappop(self._heap)
            if self._times.get(key) != when:
                continue  # this time is outdated
            del self._times[key]
            try:
                self._on_due(key)
            except Exception as error:  # noqa: BLE001 (whatever a bug raises)
                self._isolated.contain("processing of held requests", error)
                # The key must not wait for ever.
                self.set(key, _RETRY_SECONDS)
        # Set the timer.
        if self._is_stopped or not self._heap:
            return
        if self._timer is not None:  # a callback has set a key
            self._timer.cancel()
        first_time, _ = self._heap[0]
        seconds = max(0.0, first_time - time.monotonic())
        self._timer = call_later(seconds, self._ring)


class PeriodicTask:
    """Calls a function every second, never twice at a time."""

    def __init__(self, task: Callable[[], Awaitable[None]]) -> None:
        self._task = task
        self._lock = DeferredLock()
        self._timer: CallLaterResult | None = None
        self._has_ended = False

    async def begin(self) -> None:
        """Call the function now, and every second from now on."""
        await self.now(again=True)

    def _call_again(self) -> None:
        """Do what :meth:`begin` does, since a second has passed."""
        deferred_from_coro(self.now(again=True))

    async def now(self, *, again: bool = False, last: bool = False) -> None:
        """Call the function at once, unless this was called with *last* before. With
        *again*, call the function every second from then on; with *last*, never
        again."""
        await maybe_deferred_to_future(self._lock.acquire())
        try:
            if not self._has_ended:
                self._has_ended = last
                await self._task()
        finally:
            self._lock.release()
        if again and not self._has_ended:
            self._timer = call_later(_PERIOD_SECONDS, self._call_again)
        if last and self._timer is not None:
            self._timer.cancel()


async def within(seconds: float | None, waiting: Deferred[T], late: Exception) -> T:
    """Return the result of *waiting*. After some *seconds* (None: no limit), cancel it
    and raise *late*, even if *waiting* doesn't let itself be cancelled."""
    done: Deferred[T] = Deferred()
    is_over = False  # once this coroutine needs no result any more

    def finish(result: Any) -> None:
        if not (done.called or is_over):
            done.callback(result)  # a Failure goes to the errbacks

    def give_up() -> None:
        finish(Failure(late))  # type: ignore[no-untyped-call]

    waiting.addBoth(finish)
    timer = None
    if seconds is not None:
        timer = call_later(seconds, give_up)
    try:
        return await maybe_deferred_to_future(done)
    finally:
        if timer is not None:
            timer.cancel()
        # cancel() calls finish(), which must not resume this coroutine: the coroutine
        # may be about to be closed.
        is_over = True
        waiting.cancel()


async def pause(seconds: float = 0) -> None:
    """Let the event loop have at least one turn, and *seconds* pass."""
    over: Deferred[None] = Deferred()
    timer = call_later(seconds, over.callback, None)
    try:
        await maybe_deferred_to_future(over)
    finally:
        timer.cancel()


class Slices:
    """Slices of time, after each of which the event loop should get a turn."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    def renew_if_over(self) -> bool:
        """Begin the next slice, if this one is over. Return whether this one was
        over."""
        now = time.perf_counter()
        if now < self._until:
            return False
        self._until = now + SLICE_SECONDS
        return True


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield *items*. After each slice of time, the event loop gets a turn."""
    slices = Slices()
    for item in items:
        yield item
        if slices.renew_if_over():
            await pause()
