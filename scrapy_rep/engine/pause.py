"""A pause in a coroutine, on every kind of reactor and without one (Scrapy has its own from 2.18 on)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Iterator

SLICE_SECONDS = 0.01
"""How long the event loop may wait for its turn."""


def work(steps: Iterator[object]) -> bool:
    """Take steps for one slice of time. Return whether those were all."""
    slices = Slices()
    return not any(slices.over for _ in steps)


async def pause(seconds: float = 0) -> None:
    """Let the event loop have its turn, and go on after *seconds*."""
    over: Deferred[None] = Deferred()
    timer = call_later(seconds, over.callback, None)
    try:
        await maybe_deferred_to_future(over)
    finally:
        timer.cancel()


class Slices:
    """Tells when the event loop is to have its turn: every 10 ms."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_SECONDS

    @property
    def over(self) -> bool:
        """Whether it is time. If so, the next slice begins."""
        now = time.perf_counter()
        if now < self._until:
            return False
        # Other tasks run meanwhile, and rarely use up the next slice.
        self._until = now + SLICE_SECONDS
        return True
