"""Pauses in coroutines, with any reactor or none. (Scrapy has its own since 2.18.)"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE_SECONDS = 0.01
"""The longest that work may block the event loop."""


def work(steps: Iterator[object]) -> bool:
    """Take steps for one slice of time. Return whether none are left."""
    slices = Slices()
    return not any(slices.over for _ in steps)


async def pause(seconds: float = 0) -> None:
    """Yield to the event loop for *seconds*."""
    over: Deferred[None] = Deferred()
    timer = call_later(seconds, over.callback, None)
    try:
        await maybe_deferred_to_future(over)
    finally:
        timer.cancel()


class Slices:
    """Tells when to yield to the event loop: every 10 ms."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    @property
    def over(self) -> bool:
        """Whether the slice is over. If so, the next one begins."""
        now = time.perf_counter()
        if now < self._until:
            return False
        self._until = now + SLICE_SECONDS
        return True
