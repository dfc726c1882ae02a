"""Crawls that go step by step, with a clock that the test moves: 24 hours and 30 days pass in
milliseconds, between two requests of one real crawl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from scrapy import Request

from scrapy_rep import RepMiddleware
from tests.helpers.crawling import ListSpider

Step = str | Request | float | Callable[[], object]


class Clock:
    """Wall-clock time as the middleware under test reads it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        monkeypatch.setattr(RepMiddleware, "clock", staticmethod(self))
        return self


class StepSpider(ListSpider):
    """Does `steps` in their order, each after the one before has ended: a URL or request is
    requested, a number is seconds by which the clock moves, a function is called.

    `outcomes`: for each request "ok", or the name of the exception that its errback got.
    """

    def __init__(self, steps: list[Step], clock: Clock | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps = list(steps)
        self.clock = clock or Clock()
        self.outcomes: list[str] = []

    async def start(self) -> AsyncIterator[Any]:
        if request := self.following():
            yield request

    def following(self) -> Request | None:
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, (int, float)):
                self.clock.now += step
            elif isinstance(step, (str, Request)):
                return self.recorded(step).replace(cb_kwargs={"step": True})
            else:
                step()
        return None

    def parse(self, response: Any, step: bool = False, **kwargs: Any) -> Request | None:
        super().parse(response, **kwargs)
        if not step:  # a sitemap
            return None
        self.outcomes.append("ok")
        return self.following()

    def failed(self, failure: Any) -> Request | None:
        super().failed(failure)
        self.outcomes.append(type(failure.value).__name__)
        return self.following()


DAY = 86400


OK, NO, DOWN = "ok", "RobotsDisallowed", "RobotsUnreachable"


# Back-off: 75 to 100 s after the first failure, 150 to 200, 300 to 400, then 600 to 800.
SLOW = {"REP_RETRY_DELAY": 100, "REP_RETRY_MAX_DELAY": 800}
