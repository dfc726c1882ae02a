"""What becomes of held requests when the crawl ends: none is lost without a word."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.log import get_logger
from scrapy_rep.release import MARK, tell_given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_rep.engine import EngineAccess
    from scrapy_rep.lines import Line
    from scrapy_rep.memoryhold import Held, MemoryHold
    from scrapy_rep.release import Releases

logger = get_logger(__name__)

# So many errbacks are called before the event loop has its turn, when the crawl ends.
_AT_THE_END = 20


class Ending:
    """Hands held requests back to a scheduler that outlives the process, else calls errbacks."""

    def __init__(
        self,
        crawler: Crawler,
        engine: EngineAccess,
        releases: Releases[Line],
        gauge: Callable[[int], None],
    ) -> None:
        """:param gauge: called with how many more are held, less than 0 if fewer"""
        self._crawler = crawler
        self._engine = engine
        self._releases = releases
        self._gauge = gauge

    def empty(self, hold: MemoryHold, lines: list[Line]) -> Iterator[list[Deferred[None]]]:
        """Find another place for what would end with the process, or call its errback.

        :returns: slice by slice, what fires when the errbacks' output has been dealt with
        """
        for line in lines:
            while some := hold.take(str(line.origin), _AT_THE_END, sys.maxsize, math.inf):
                failed = []
                for held in some:
                    line.count -= 1
                    self._gauge(-1)
                    if not (self._engine.scheduler_outlives and self._hand_back(held)):
                        error = RobotsUnreachable(line.origin, *line.why)
                        failed.append(self.fail(held, error))
                yield failed

    def _hand_back(self, held: Held) -> bool:
        """Give *held* to the scheduler for another process. Return whether that worked."""
        self._releases.mark(held)
        assert self._crawler.engine is not None
        try:
            self._crawler.engine.crawl(held.request)
        except Exception as error:  # noqa: BLE001
            # Whatever a scheduler raises whose server is gone.
            logger.error(
                "%(request)s can't be handed back to the scheduler: %(error)s",
                {"request": held.request, "error": error},
                extra={"spider": self._crawler.spider},
            )
            return False
        return True

    def fail(self, held: Held, error: RobotsUnreachable) -> Deferred[None]:
        """Call the errback of *held*."""
        held.request.dont_filter = held.dont_filter
        held.request.meta.pop(MARK, None)
        tell_given_up(self._crawler, held.request, error)
        return self._engine.fail(held.request, error)
