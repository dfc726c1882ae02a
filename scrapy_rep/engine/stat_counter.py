"""A stat for the hot path."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.closing import Stage

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess


class StatCounter:
    """Updates Scrapy's stats once a second: for every request would slow down the hot path."""

    def __init__(self, crawler: Crawler, engine: EngineAccess, name: str) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._engine = engine
        self._name = name
        self._count = 0
        self._told_at = self._due = 0.0
        self._every = 1.0
        crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def add(self, now: float) -> None:
        """Count one.

        :param now: seconds since the epoch
        """
        self._count += 1
        if not self._told_at <= now < self._due:  # the clock may be set back
            self._tell()
            self._told_at, self._due = now, now + self._every

    def _tell(self) -> None:
        if self._count:
            self._stats.inc_value(self._name, self._count)
            self._count = 0

    def _spider_opened(self) -> None:
        self._engine.before_closing(Stage.COUNTING, self._before_closing)

    async def _before_closing(self) -> None:
        """Update now, and on each call from now on: the stats may be read at any moment."""
        self._every = self._due = -math.inf
        self._tell()
