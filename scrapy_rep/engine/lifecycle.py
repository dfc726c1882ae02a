"""How a crawl begins and ends.

Someone may be waiting for it (``scrapy shell``, ``fetch``, ``view``, ``parse`` and ``check``). A wrong
setting ends it before anything is fetched, with one sentence in the log and no traceback.

It ends in steps. Scrapy sends no signal before it closes the scheduler, so this wraps
``close_spider_async``, which every way to close goes through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Any

from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.log import Isolation, get_logger
from scrapy_rep.engine.timers import pause

logger = get_logger(__name__)

REASON = "rep_settings_error"
"""The crawl's ``finish_reason``."""

# Seconds between checks whether the engine runs.
_START_SECONDS = 0.01
# Someone waits there: nothing is held, no sitemaps are crawled. `scrapy robots` crawls nothing.
_COMMANDS = ("scrapy.commands.", "scrapy_rep.commands.")


def in_shell(crawler: Crawler) -> bool:
    """Whether this is ``scrapy shell``, which makes middlewares before the spider. Ask only then."""
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether this is one of these commands, which put their own start() into the spider's class."""
    start = getattr(crawler.spidercls, "start", None)
    return in_shell(crawler) or getattr(start, "__module__", "").startswith(_COMMANDS)


class StopAtStart:
    """Replaces the middleware and refuses everything until the crawl ends."""

    def __init__(self, crawler: Crawler, message: str) -> None:
        self._crawler = crawler
        self._message = message
        self._in_shell = in_shell(crawler)
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    def process_request(self, request: Request) -> None:
        # The shell doesn't show an IgnoreRequest.
        raise (ValueError if self._in_shell else IgnoreRequest)(self._message)

    def _engine_started(self, **_: Any) -> None:
        extra = {"spider": self._crawler.spider}
        logger.error("%(message)s The crawl ends.", {"message": self._message}, extra=extra)
        if not self._in_shell:  # fetch() would wait for ever
            # Nothing leaves the scheduler meanwhile: with a JOBDIR, requests wait for the next run.
            self._crawler.engine.pause()
            deferred_from_coro(self._close())

    async def _close(self) -> None:
        engine = self._crawler.engine
        await pause()
        while engine.spider is not None and not engine.running:
            # Another handler of engine_started isn't done (Scrapy's remote control starts a server).
            # If the spider closed now, there would be no engine_stopped.
            await pause(_START_SECONDS)
        if engine.spider is not None:  # else something else closed it
            await engine.close_spider_async(reason=REASON)

    def _engine_stopped(self) -> None:
        # Without a spider, the crawl counts as failed to start: Scrapy's runners set
        # `bootstrap_failed`, and its commands exit with status 1. An exception does that too, but is
        # logged with its traceback.
        self._crawler.spider = None


class Stage(IntEnum):
    """The order of the steps."""

    SEEDING = 1  # no more pages from sitemaps, which could still be held
    HOLDING = 2  # requests that wait or are held are saved, or their errbacks called
    GATE = 3  # the scheduler is left to itself


class Closing:
    """Stands in for an engine's ``close_spider_async``."""

    def __init__(self, engine: ExecutionEngine) -> None:
        self._engine = engine
        self._close = engine.close_spider_async
        self._lock = DeferredLock()
        self._wishes: list[dict[str, Any]] = []
        self.steps: list[tuple[Stage, Callable[[], Awaitable[None]]]] = []
        """Each is awaited once, in the order of their stages."""

    @classmethod
    def of(cls, engine: Any) -> Closing:
        """Return *engine*'s, which is put in place if there is none."""
        if not isinstance(engine.close_spider_async, cls):
            engine.close_spider_async = cls(engine)
        closing: Closing = engine.close_spider_async
        return closing

    async def __call__(self, **wish: Any) -> None:
        """Close the spider after all steps. Further calls wait (the engine, not yet closing, may
        find that it is idle); the first reason counts.

        Nothing happens before the loop's next turn. Closing breaks the engine in a signal handler
        for a request just taken from the scheduler, and, without asyncio, on Ctrl-C: Scrapy
        iterates over its set of crawlers, which must not shrink.
        """
        self._wishes.append(wish)
        self._engine.pause()  # it takes no more requests
        await pause()
        await maybe_deferred_to_future(self._lock.acquire())
        isolated = Isolation(self._engine.crawler)
        try:
            while self.steps:
                next_one = min(self.steps, key=lambda step: step[0])
                self.steps.remove(next_one)
                with isolated("work before closing"):  # or the spider would stay open, paused
                    await next_one[1]()
        finally:
            self._lock.release()
        # Or its loop may go on reading start(), and schedule requests after the scheduler's end.
        self._engine._start = None
        self._engine.unpause()
        if self._engine.spider is not None:  # else another call closed it
            await self._close(**self._wishes[0])
