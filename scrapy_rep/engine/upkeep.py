"""Looks after one of our files: opens it once that works, and retries what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.utils.asyncio import CallLaterResult


_SECONDS = 1.0


class Upkeep:
    """Calls a function every second, never twice at a time."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        self._look = look
        self._turn = DeferredLock()
        self._timer: CallLaterResult | None = None
        self._ended = False

    async def begin(self) -> None:
        """Call it now, and every second from now on."""
        self._timer = None
        await self.now()
        if not self._ended:
            self._timer = call_later(_SECONDS, lambda: deferred_from_coro(self.begin()))

    async def now(self, *, last: bool = False) -> None:
        """Call it at once.

        :param last: and never again
        """
        await maybe_deferred_to_future(self._turn.acquire())
        try:
            if not self._ended:
                self._ended = last
                await self._look()
        finally:
            self._turn.release()

    async def end(self) -> None:
        """Call it for the last time."""
        await self.now(last=True)
        if self._timer is not None:
            self._timer.cancel()
