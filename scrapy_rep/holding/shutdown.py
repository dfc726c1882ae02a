"""What becomes of held requests when the crawl ends: none is lost without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredList

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.holding.release import MARK, tell_given_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.holding.disk import DiskHold
    from scrapy_rep.holding.memory import Held, MemoryHold
    from scrapy_rep.holding.queue import Line
    from scrapy_rep.holding.queues import LineTable
from scrapy_rep.holding.release import Releases

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
        table: LineTable,
    ) -> None:
        self._crawler = crawler
        self._engine = engine
        self._releases = releases
        self._table = table

    async def explain(self, lines: LineTable, why: Callable[[Line], tuple[str, int]]) -> None:
        """Write down why the requests of each line are given up, if they have to be."""
        slices = Slices()
        for line in lines.all():
            line.why = why(line)
            if slices.over:
                await pause()

    async def empty(self, hold: MemoryHold | DiskHold, lines: list[Line]) -> None:
        """As :meth:`emptied`, while the event loop has its turns."""
        slices = Slices()
        for failed in self.emptied(hold, lines):
            if failed is not None:
                # Before the engine begins to close: an errback may still want to use it.
                self._engine.pause()
                await maybe_deferred_to_future(DeferredList(failed))
            if slices.over:
                await pause()

    def emptied(
        self, hold: MemoryHold | DiskHold, lines: list[Line]
    ) -> Iterator[list[Deferred[None]] | None]:
        """Find another place for what would end with the process, or call its errback.

        :returns: slice by slice, what fires when the errbacks' output has been dealt with; None
            where there was nothing to do
        """
        for line in lines:
            failed: list[Deferred[None]] | None = None
            for number, held in enumerate(hold.take_mortal(str(line.origin))):
                if failed is None or not number % _AT_THE_END:
                    yield failed
                    failed = []
                self._table.leave(line, 1)
                if not (self._engine.scheduler_outlives and self._hand_back(held)):
                    failed.append(self.fail(held, RobotsUnreachable(line.origin, *line.why)))
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
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("rep/handed_back")
        return True

    def fail(self, held: Held, error: RobotsUnreachable) -> Deferred[None]:
        """Call the errback of *held*."""
        held.request.dont_filter = held.dont_filter
        held.request.meta.pop(MARK, None)
        tell_given_up(self._crawler, held.request, error)
        return self._engine.fail(held.request, error)
