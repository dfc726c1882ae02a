"""Crawl delays that several processes keep together (REP.md section 12): before a
request leaves a slowed download slot, the storage that the processes share is asked for
the moment of the origin's next request."""

from __future__ import annotations

import time
from collections.abc import Callable

from scrapy import Request
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.access import PacedSlot
from scrapy_rep.engine.log import Isolation
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.storages.client import StorageClient


class Turns:
    """Sends what waits in slowed slots, one request at a time, each at a moment that
    the storage gives to this process alone: its turn. A moment is asked for when the
    request before it has come back, and only if another one waits. So a process that
    dies leaves at most one moment unused for each slot.

    Slots are paced (:class:`.access.PacedSlot`), so they send a request only when they
    are told to."""

    def __init__(
        self,
        context: CrawlContext,
        storage: StorageClient,
        delay_of: Callable[[Request], tuple[str, float]],
    ) -> None:
        """*delay_of* returns the origin of a request, and the seconds between two
        requests to that origin; 0 if it has no delay."""
        self._stats = context.stats
        self._slots = context.engine.slots
        self._storage = storage
        self._delay_of = delay_of
        self._isolated = Isolation(context.crawler)
        """Logs a bug within its ``with`` block in place of raising it
        (engine/log.py)."""

    def note_queued(self, key: str) -> None:
        """Note that a request is about to queue in the slot *key*. If a crawl delay
        slows the slot, pace it."""
        slot = self._slots.paced(key, take=True)
        if slot is not None:
            call_later(0, self._send_next, key)  # by then, the request is in the queue

    def note_return(self, key: str, request: Request) -> None:
        """Note that the transfer of *request*, from the slot *key*, has ended."""
        slot = self._slots.paced(key)
        if slot is not None:
            slot.note_return(request)
            self._send_next(key)

    def _send_next(self, key: str) -> None:
        """Begin to take a turn for the request that waits in the slot *key*, if there
        is one and the slot is paced. A slot that nothing slows any more is left to
        Scrapy."""
        slot = self._slots.paced(key)
        if slot is None:
            return
        request = slot.take_next()
        if request is None:
            return
        is_left_to_scrapy = self._slots.unpace(key)
        if not is_left_to_scrapy:
            deferred_from_coro(self._take_turn(slot, request))

    async def _take_turn(self, slot: PacedSlot, request: Request) -> None:
        """Ask the storage for a moment, and send *request* then. Without an answer,
        *request* is sent when Scrapy would send it."""
        moment: float | None = None  # also if there is a bug
        with self._isolated("turn of a crawl delay"):
            moment = await self._moment(slot, request)
        if moment is None:
            slot.send_in(slot.own_seconds)
        else:
            slot.send_in(moment - time.monotonic())

    async def _moment(self, slot: PacedSlot, request: Request) -> float | None:
        """Return when *request* may be sent, by ``time.monotonic()``; None if its
        origin has no delay, or if the storage fails."""
        origin, seconds = self._delay_of(request)
        if not seconds:
            return None
        moment = await self._storage.turn(origin, seconds, slot.own_seconds)
        if moment is None:
            self._stats.inc_value("rep/crawl_delay/alone")
        return moment
