"""Where first requests wait for a first answer: in the downloader, but without a download slot.

With the answer they go on from there, once a slot is free. In crawls of many origins, the long way
through the hold and the scheduler would cost more than a page.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.engine.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

# Places per CONCURRENT_REQUESTS: for the fetches at a time (flights.py), and as many that are next.
_PLACES = 8
# One origin may have one place in this many: none if requests come nearly one by one.
_SHARE = 32
# In place of CONCURRENT_REQUESTS = 0 (unlimited).
_UNLIMITED = 100
# Seconds to wait for a place, at most; and at most twice REP_DEFER_GRACE.
_QUEUE_SECONDS = 1.0
# Seconds between looks for a free slot: not every request ends with a response.
_LOOK_SECONDS = 0.02


class Place:
    """A request's place."""

    __slots__ = ("_called", "origin", "request", "slots")

    def __init__(self, request: Request, origin: Origin) -> None:
        self.request = request
        self.origin = origin
        self.slots: int | None = None
        """How many download slots were added for it; None if the request isn't inside."""
        self._called: Deferred[bool] | None = None

    @property
    def waits(self) -> bool:
        """Whether the request waits in :meth:`wait`."""
        return self._called is not None

    async def wait(self) -> bool:
        """Wait for :meth:`call`, whose argument is returned."""
        self._called = Deferred()
        return await maybe_deferred_to_future(self._called)

    def call(self, *, go_on: bool) -> None:
        """End the wait, if there is one."""
        called, self._called = self._called, None
        if called is not None:
            called.callback(go_on)


class WaitingRoom:
    """Its places, and the requests that queue at either door."""

    def __init__(self, context: CrawlContext) -> None:
        crawler = context.crawler
        self._engine: EngineAccess = context.engine
        self._most = _PLACES * (crawler.settings.getint("CONCURRENT_REQUESTS") or _UNLIMITED)
        self._most_of_one = self._most // _SHARE
        self._count = 0
        self._of: Counter[Origin] = Counter()
        self._patience = min(_QUEUE_SECONDS, 2 * context.settings.defer_grace)
        self._outside: deque[tuple[Place, Deferred[None]]] = deque()
        self._ready: deque[Deferred[bool]] = deque()
        self._listener = Listener(crawler, {scrapy_signals.response_received: self._admit})
        self._timer: CallLaterResult | None = None
        self._ended = self._letting_in = self._admitting = False
        self.in_slots = 0
        """How many requests wait in download slots instead."""

    async def enter(self, request: Request, origin: Origin) -> Place | None:
        """Return a place for *request*; None if *origin* has its share. If all are taken, wait for one
        in a download slot, but not for long: then the engine takes fewer requests out of the
        scheduler."""
        if self._of[origin] >= self._most_of_one or self._ended:
            return None
        place = Place(request, origin)
        if self._count < self._most:
            self._take(place)
            return place
        woken: Deferred[None] = Deferred()
        entry = place, woken
        self._outside.append(entry)
        self.in_slots += 1

        def give_up() -> None:
            if entry in self._outside:  # else there is a place, in this turn of the event loop
                self._outside.remove(entry)
                self._wake(woken)

        timer = call_later(self._patience, give_up)
        try:
            await maybe_deferred_to_future(woken)
        except BaseException:  # the wait was cancelled
            if entry in self._outside:
                self._outside.remove(entry)
                self.in_slots -= 1
            elif place.slots is not None:
                self.leave(place)
            raise
        finally:
            timer.cancel()
        return None if place.slots is None else place

    def _wake(self, woken: Deferred[None]) -> None:
        """End a wait outside, with a place or without."""
        self.in_slots -= 1
        woken.callback(None)

    def waiting_for(self, origin: Origin) -> int:
        """Return how many requests wait for *origin*, or in download slots for any."""
        return self.in_slots + self._of[origin]

    def _take(self, place: Place) -> None:
        self._count += 1
        self._of[place.origin] += 1
        place.slots = self._engine.add_slot()

    def leave(self, place: Place) -> None:
        """Free *place*."""
        self._engine.remove_slot(place.slots or 0)
        self._count -= 1
        self._of[place.origin] -= 1
        if not self._of[place.origin]:
            del self._of[place.origin]
        if self._letting_in:
            return  # a request that was let in has left already, which without asyncio is at once
        self._letting_in = True
        try:
            while self._outside and self._count < self._most:
                waiting, woken = self._outside.popleft()
                self._take(waiting)
                self._wake(woken)
        finally:
            self._letting_in = False

    def end(self) -> None:
        """Let no request wait for a place or a slot: the spider closes."""
        self._ended = True
        while self._outside:
            self._wake(self._outside.popleft()[1])
        while self._ready:
            self._ready.popleft().callback(False)

    @contextmanager
    def in_slot(self) -> Iterator[None]:
        """Wait in a download slot."""
        self.in_slots += 1
        try:
            yield
        finally:
            self.in_slots -= 1

    async def slot(self) -> bool:
        """Wait for a download slot, after an answer: a request that has left its place needs one, and
        so may many others. First come, first served. Return False if there is none: the spider
        closes."""
        if not self._ready and not self._engine.busy(beside=1 + self.in_slots):
            return True
        if self._ended:
            return False
        ready: Deferred[bool] = Deferred()
        self._ready.append(ready)
        self._listener.begin()
        self._look_later()
        return await maybe_deferred_to_future(ready)

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._admit()
        if self._ready:
            self._look_later()

    def _admit(self) -> None:
        if self._admitting:
            return  # the response of a request that was admitted, which may be there at once
        self._admitting = True
        try:
            while self._ready and not self._engine.busy(beside=len(self._ready) + self.in_slots):
                self._ready.popleft().callback(True)
        finally:
            self._admitting = False
        if not self._ready:
            self._listener.end()
