"""A pause in a coroutine, on every kind of reactor and without one (Scrapy has its own from 2.18 on)."""

from __future__ import annotations

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred


async def pause(seconds: float = 0) -> None:
    """Let the event loop have its turn, and go on after so many *seconds*."""
    over: Deferred[None] = Deferred()
    timer = call_later(seconds, over.callback, None)
    try:
        await maybe_deferred_to_future(over)
    finally:
        timer.cancel()
