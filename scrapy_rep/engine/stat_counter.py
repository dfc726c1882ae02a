"""Counting: a stat for the hot path, and the most frequent of very many things."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.lifecycle import Stage
from scrapy_rep.engine.timers import PeriodicTask

if TYPE_CHECKING:
    from collections.abc import Coroutine, Hashable
    from typing import Any

    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess

KeyT = TypeVar("KeyT", bound="Hashable")


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


class CappedCounter(Generic[KeyT]):
    """Counts the most frequent keys in bounded memory. When there are too many, the rarest half is
    counted together, as :attr:`others`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: Counter[KeyT] = Counter()
        self.others = 0

    def add(self, key: KeyT, times: int = 1) -> None:
        """Count *key* so many times more."""
        self._counts[key] += times
        if len(self._counts) > self._limit:
            kept = Counter(dict(self._counts.most_common(self._limit // 2)))
            self.others += self._counts.total() - kept.total()
            self._counts = kept

    def __contains__(self, key: KeyT) -> bool:
        return key in self._counts

    def most(self, count: int) -> list[tuple[KeyT, int]]:
        """Return the most frequent ones with their counts."""
        return self._counts.most_common(count)
