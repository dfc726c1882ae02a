"""A stat for the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.lifecycle import Stage
from scrapy_rep.engine.timers import PeriodicTask

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess


class StatCounter:
    """Adds up in :attr:`count`, without a call, and updates Scrapy's stats once a second."""

    def __init__(self, crawler: Crawler, engine: EngineAccess, name: str) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._engine = engine
        self._name = name
        self._upkeep = PeriodicTask(self.tell)
        self.count = 0
        crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)
        crawler.signals.connect(self.tell, scrapy_signals.spider_closed)

    async def tell(self) -> None:
        """Update the stat."""
        count, self.count = self.count, 0
        if count:
            self._stats.inc_value(self._name, count)

    def _spider_opened(self) -> Coroutine[Any, Any, None]:
        self._engine.before_closing(Stage.COUNTING, self._upkeep.end)
        return self._upkeep.begin()
