"""Who waits inside `process_request` for a robots.txt that is being asked for, and goes on from
there (DESIGN.md, "Nothing waits while holding a download slot").

To wait here costs next to nothing; what is held passes through the downloader and the scheduler
twice, which makes a request dearer by half. So the first of each origin waits here, for as long as
an answer usually takes, and others while they are few.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.engine import EngineAccess
    from scrapy_rep.flights import Flight
    from scrapy_rep.known import Known
    from scrapy_rep.settings import RepSettings

    Judge = Callable[[Known], Request | None]

# Who takes a slot waits for so long (seconds): sites may be silent, and pages want it.
_IN_A_SLOT_SECONDS = 0.1
# While somebody is in line, it is looked so often (seconds) whether a slot has become free without
# a page: of a request that failed, say.
_LOOK_SECONDS = 0.5


class Places:
    """The places where requests wait.

    A page that waits takes no slot from the others: Scrapy gets one more meanwhile. When its answer
    has come it goes on as soon as one of CONCURRENT_REQUESTS is free, before any that Scrapy would
    take from the scheduler. As many as CONCURRENT_REQUESTS wait so. Others take a slot each for a
    moment, which keeps Scrapy from emptying the scheduler faster than answers come.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings, engine: EngineAccess) -> None:
        self._engine = engine
        self._grace = settings.defer_grace
        concurrency = crawler.settings.getint("CONCURRENT_REQUESTS") or 100
        self._beside_most = concurrency
        self._few = concurrency // 2
        self._in_a_slot = min(self._grace, _IN_A_SLOT_SECONDS)
        if settings.dry_run:
            # Who can't be held waits where it is, or there would be nothing to decide by.
            self._few = sys.maxsize
            self._in_a_slot = self._grace
        self._waiting = 0
        self._beside = 0
        self._line: deque[tuple[ExitStack, Deferred[None]]] = deque()
        self._listener = Listener(crawler, {scrapy_signals.response_received: self._response})
        self._timer: CallLaterResult | None = None
        self._ended = False

    def any_for(self, flight: Flight) -> bool:
        """Whether one more may wait for *flight*."""
        return not flight.waiters or self._waiting < self._few

    async def wait(self, flight: Flight, judge: Judge) -> Request | None:
        """Wait for what *flight* brings, and if the request passes, for a slot to go on with.

        :param judge: decides by what is known then, as `process_request` does
        :raises Exception: as :meth:`Flight.wait` and *judge* do
        """
        self._waiting += 1
        try:
            if self._beside < self._beside_most:
                return await self._wait_beside(flight, judge)
            return judge(await flight.wait(min(flight.left_of(self._grace), self._in_a_slot)))
        finally:
            self._waiting -= 1

    async def _wait_beside(self, flight: Flight, judge: Judge) -> Request | None:
        self._beside += 1
        try:
            with ExitStack() as slot:
                is_extra = slot.enter_context(self._engine.extra_slot())
                self._engine.look_again()
                held = judge(await flight.wait(flight.left_of(self._grace)))
                if is_extra and held is None and self._engine.full:
                    await self._stand_in_line(slot)
            return held
        finally:
            self._beside -= 1

    async def _stand_in_line(self, slot: ExitStack) -> None:
        turn: Deferred[None] = Deferred()
        self._line.append((slot, turn))
        self._listener.begin()
        self._look_later()
        await maybe_deferred_to_future(turn)

    def _response(self, request: Request, **_: Any) -> None:
        # Its slot is free, and Scrapy has not filled it yet. That of a robots.txt was an extra one.
        if request.callback is not NO_CALLBACK:
            self._move_up()

    def _move_up(self) -> None:
        while self._line and (self._ended or not self._engine.full):
            slot, turn = self._line.popleft()
            slot.close()  # now: until the other end of `turn` is there Scrapy may have filled it
            turn.callback(None)
        if not self._line:
            self._listener.end()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _look_later(self) -> None:
        if self._line and self._timer is None:
            self._timer = call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._move_up()
        self._look_later()

    def end(self) -> None:
        """The crawl is ending: who has an answer goes on."""
        self._ended = True
        self._move_up()
