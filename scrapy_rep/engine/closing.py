"""Steps before a spider closes. Scrapy sends no signal before it closes the scheduler, so this wraps
``close_spider_async``, which every way to close goes through."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.log import Isolation
from scrapy_rep.engine.pause import pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.core.engine import ExecutionEngine


class Stage(IntEnum):
    """The order of the steps."""

    COMMAND = 1
    """``scrapy robots`` ends its look-ups: nothing new is fetched."""
    SEEDING = 2
    """No more pages from sitemaps, which could still be held."""
    HOLDING = 3
    """Requests that wait or are held are saved, or their errbacks called."""
    COUNTING = 4
    """Stats are updated, with what the earlier stages counted."""


class Closing:
    """Stands in for an engine's ``close_spider_async``."""

    def __init__(self, engine: ExecutionEngine) -> None:
        self._engine = engine
        self._close = engine.close_spider_async
        self._lock = DeferredLock()
        self._wishes: list[dict[str, Any]] = []
        self._steps: list[tuple[Stage, Callable[[], Awaitable[None]]]] = []

    @classmethod
    def of(cls, engine: Any) -> Closing:
        """Return *engine*'s, which is put in place if there is none."""
        if not isinstance(engine.close_spider_async, cls):
            engine.close_spider_async = cls(engine)
        closing: Closing = engine.close_spider_async
        return closing

    def add(self, stage: Stage, step: Callable[[], Awaitable[None]]) -> None:
        """Await *step* once, in its *stage*."""
        self._steps.append((stage, step))

    async def __call__(self, **wish: Any) -> None:
        """Close the spider after all steps. Further calls wait: the engine, not yet closing, may find
        that it is idle, say. The first reason counts.

        Nothing happens before the loop's next turn. Closing breaks the engine in a signal handler for
        a request just taken from the scheduler, and, without asyncio, on Ctrl-C: Scrapy iterates over
        its set of crawlers, which must not shrink.
        """
        self._wishes.append(wish)
        self._engine.pause()  # it takes no more requests
        await pause()
        await maybe_deferred_to_future(self._lock.acquire())
        isolated = Isolation(self._engine.crawler)
        try:
            while self._steps:
                next_one = min(self._steps, key=lambda step: step[0])
                self._steps.remove(next_one)
                with isolated("work before closing"):  # or the spider would stay open, paused
                    await next_one[1]()
        finally:
            self._lock.release()
        self._engine.unpause()
        if self._engine.spider is not None:  # else another call closed it
            await self._close(**self._wishes[0])
