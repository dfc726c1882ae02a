"""Crawl delays that processes keep together (REP.md section 12): before a request leaves a slowed
download slot, the storage that they share is asked for the origin's next moment."""

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
    """Sends what waits in slowed slots, one request at a time, each at a moment that the storage gives
    to this process alone. A moment is asked for when the request before it has come back, and only if
    another one waits: a process that dies leaves at most one unused for each slot."""

    def __init__(
        self,
        context: CrawlContext,
        storage: StorageClient,
        delay_of: Callable[[Request], tuple[str, float]],
    ) -> None:
        """*delay_of* returns the origin of a request, and the seconds between two of its requests; 0
        if it has no delay."""
        self._context = context
        self._storage = storage
        self._delay_of = delay_of
        self._isolated = Isolation(context.crawler)

    def queued(self, key: str) -> None:
        """A request is about to queue in the slot *key*."""
        if self._context.engine.slots.paced(key, take=True) is not None:
            call_later(0, self._look, key)  # it is in the queue then

    def came_back(self, key: str, request: Request) -> None:
        """The transfer of *request*, from the slot *key*, has ended."""
        slot = self._context.engine.slots.paced(key)
        if slot is not None:
            slot.came_back(request)
            self._look(key)

    def _look(self, key: str) -> None:
        """Take a turn for what waits in the slot *key*, if something does."""
        slots = self._context.engine.slots
        slot = slots.paced(key)
        request = slot.take_next() if slot is not None else None
        if slot is not None and request is not None and not slots.unpace(key):
            deferred_from_coro(self._take_turn(slot, request))

    async def _take_turn(self, slot: PacedSlot, request: Request) -> None:
        moment = None
        with self._isolated("turn of a crawl delay"):
            origin, seconds = self._delay_of(request)
            if seconds:
                moment = await self._storage.turn(origin, seconds, slot.own_seconds)
                if moment is None:
                    self._context.stats.inc_value("rep/crawl_delay/alone")
        slot.send_in(slot.own_seconds if moment is None else moment - time.monotonic())
