"""A stat counter without a crawl."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scrapy import signals as scrapy_signals
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.stat_counter import StatCounter

NOW = 1_800_000_000.0


class World:
    """A stat counter, and what the stats say."""

    def __init__(self) -> None:
        self.crawler: Any = SimpleNamespace(settings=Settings(), spider=None)
        self.crawler.stats = StatsCollector(self.crawler)
        self.crawler.signals = SignalManager(self.crawler)
        self.callbacks: list[Any] = []
        engine: Any = SimpleNamespace(before_closing=lambda _, step: self.callbacks.append(step))
        self.counter = StatCounter(self.crawler, engine, "hits")
        self.crawler.signals.send_catch_log(scrapy_signals.spider_opened)

    def after(self, *seconds: float) -> list[int | None]:
        """What the stats say after each of them."""
        said = []
        for one in seconds:
            self.counter.add(NOW + one)
            said.append(self.crawler.stats.get_value("hits"))
        return said
