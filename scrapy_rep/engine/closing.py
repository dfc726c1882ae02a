"""What is done before a spider closes, and in which order. No signal of Scrapy's is sent before the
scheduler is closed, so this wraps ``close_spider_async``, through which every way to close leads."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.pause import pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.core.engine import ExecutionEngine


class Stage(IntEnum):
    """Who is told, the lowest number first."""

    COMMAND = 1
    """``scrapy robots`` ends its look-ups, so that nothing new is asked for."""
    SEEDING = 2
    """No more pages from sitemaps: they could still be held."""
    HOLDING = 3
    """What is in flight or held finds another place, or its errback is called."""
    COUNTING = 4
    """Stats are brought up to date: the stages before may still count."""


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
        """Return the one of *engine*, which is put in place if there is none."""
        if not isinstance(engine.close_spider_async, cls):
            engine.close_spider_async = cls(engine)
        closing: Closing = engine.close_spider_async
        return closing

    def add(self, stage: Stage, step: Callable[[], Awaitable[None]]) -> None:
        """Await *step*, once, when it is the turn of its stage."""
        self._steps.append((stage, step))

    async def __call__(self, **wish: Any) -> None:
        """Close the spider after all steps. Calls that come meanwhile wait: the engine does not
        know yet that it is closing and may find, for one, that the crawl has nothing more to do.
        The first one's reason counts.

        It starts on the loop's next turn. The call may come from a signal handler for a request
        just taken from the scheduler, and closing before that handler returns breaks the engine.
        So does Ctrl-C without asyncio: Scrapy iterates over a set of crawlers, which shrinks if one
        ends at once.
        """
        self._wishes.append(wish)
        self._engine.pause()  # it takes no more requests, as when it closes at once
        await pause()
        await maybe_deferred_to_future(self._lock.acquire())
        try:
            while self._steps:
                next_one = min(self._steps, key=lambda step: step[0])
                self._steps.remove(next_one)
                await next_one[1]()
        finally:
            self._lock.release()
        self._engine.unpause()
        if self._engine.spider is not None:  # else another call has closed it meanwhile
            await self._close(**self._wishes[0])
