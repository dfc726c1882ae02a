"""Handlers of ours that come and go are no trouble to anybody else's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import signals as scrapy_signals
from scrapy.signalmanager import SignalManager

from scrapy_rep.engine.access import Listener
from tests.helpers.crawling import crawl
from tests.helpers.held import a_while
from tests.helpers.servers import Sites

SIGNAL, OTHER = object(), object()


class World:
    """Signals, and a handler that ends by itself after so many."""

    def __init__(self, lasts: int = 1000) -> None:
        self.crawler: Any = SimpleNamespace(spider=None)
        self.signals = self.crawler.signals = SignalManager(self.crawler)
        self.heard: list[int] = []
        self.lasts = lasts
        self.listener = Listener(self.crawler, {SIGNAL: self.hear, OTHER: self.hear})

    def hear(self, number: int) -> None:
        self.heard.append(number)
        if len(self.heard) >= self.lasts:
            self.listener.end()

    def send(self, number: int, signal: object = SIGNAL) -> None:
        self.signals.send_catch_log(signal, number=number)


@pytest.mark.loop
async def test_a_listener_that_leaves_takes_no_other_along() -> None:
    world, seen = World(lasts=1), []

    def other(number: int) -> None:
        seen.append(number)

    world.listener.begin()
    world.signals.connect(other, SIGNAL)
    for number in range(3):
        world.send(number)
        await a_while(0)
    assert world.heard == [0]
    assert seen == [0, 1, 2]


async def test_a_listener_hears_only_while_it_is_wanted() -> None:
    world = World()
    world.listener.end()  # of no effect
    world.send(0)
    world.listener.begin()
    world.listener.begin()
    world.send(1)
    world.send(2, OTHER)
    world.listener.end()
    world.listener.begin()  # before it has left
    await a_while(0)
    world.send(3)
    world.listener.end()
    world.listener.end()
    await a_while(0)
    world.send(4)
    world.send(5, OTHER)
    world.listener.begin()
    world.send(6)
    assert world.heard == [1, 2, 3, 6]
    world.listener.end()
    await a_while(0)


async def test_an_extension_misses_nothing(sites: Sites) -> None:
    """One that connects when the spider opens, as many do."""
    site, seen = sites.add(), {"reached": 0, "received": 0}

    class Extension:
        @classmethod
        def from_crawler(cls, crawler: Any) -> Extension:
            extension = cls()
            extension.signals = crawler.signals
            crawler.signals.connect(extension.opened, scrapy_signals.spider_opened)
            return extension

        signals: SignalManager

        def opened(self) -> None:
            self.signals.connect(self.reached, scrapy_signals.request_reached_downloader)
            self.signals.connect(self.received, scrapy_signals.response_received)

        def reached(self) -> None:
            seen["reached"] += 1

        def received(self) -> None:
            seen["received"] += 1

    await crawl([site.url("/1"), site.url("/2")], {"EXTENSIONS": {Extension: 1}})
    assert seen == {"reached": 3, "received": 3}  # with robots.txt
