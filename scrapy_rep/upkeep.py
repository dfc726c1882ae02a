"""What the hold on disk has done to it beside holding: opened, looked after, closed. All of it in
threads, since a disk may take its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.holds import DiskHold, MemoryHold, open_hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.utils.asyncio import CallLaterResult

_SECONDS = 1.0


class Upkeep:
    """Looks after a hold every second: what could not be written is tried again, and the running
    time is written down, since a run that is killed has taken time too."""

    def __init__(self, now: Callable[[], float], has_lines: Callable[[], bool]) -> None:
        """:param now: for how long the crawl has been running, in seconds
        :param has_lines: whether time counts: anything is held
        """
        self._now = now
        self._has_lines = has_lines
        self._hold: DiskHold | None = None
        self._timer: CallLaterResult | None = None

    async def open(self, directory: str, spider: Spider) -> MemoryHold | DiskHold:
        """Return a hold in the JOBDIR *directory*, see :func:`open_hold`."""
        return await run_in_thread(open_hold, directory, spider)

    def begin(self, hold: DiskHold) -> None:
        """Look after *hold* from now on."""
        self._hold = hold
        self._again_soon()

    def _again_soon(self) -> None:
        self._timer = call_later(_SECONDS, lambda: deferred_from_coro(self._look()))

    async def _look(self) -> None:
        self._timer = None
        await self.now()
        if self._hold is not None:
            self._again_soon()

    async def now(self) -> None:
        """Look after the hold at once."""
        if self._hold is not None:
            await self._hold.upkeep(self._now() if self._has_lines() else None)

    async def end(self) -> None:
        """Close the hold."""
        hold, self._hold = self._hold, None
        if self._timer is not None:
            self._timer.cancel()
        if hold is not None:
            await hold.upkeep(self._now(), last=True)
