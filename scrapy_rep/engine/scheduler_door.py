"""Stands where requests come out of the scheduler: sees them, and lets others go ahead of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess


class SchedulerDoor:
    """Wraps the scheduler's ``next_request()``."""

    def __init__(self, crawler: Crawler, engine: EngineAccess) -> None:
        self._engine = engine
        self._next: Callable[[], Any] | None = None
        self._requests: WeakSet[Request] = WeakSet()
        self._ahead: deque[Request] = deque()
        crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def __contains__(self, request: Request) -> bool:
        """Whether *request* came through here. Others are direct downloads (of a media pipeline, say),
        which can't be held; nothing else tells the two apart in time."""
        return request in self._requests

    def __len__(self) -> int:
        """How many requests have yet to go ahead."""
        return len(self._ahead)

    def go_ahead(self, request: Request) -> bool:
        """Have the engine take *request* next, before those in the scheduler. Return False if it must
        go through the scheduler: one that isn't Scrapy's own may share it, or outlive the crawl."""
        if self._next is None or self._engine.scheduler_is_foreign:
            return False
        self._engine.wake()
        self._ahead.append(request)
        return True

    def clear(self) -> list[Request]:
        """Let no more requests go ahead. Return those that were to."""
        ahead = list(self._ahead)
        self._ahead.clear()
        return ahead

    def _spider_opened(self) -> None:
        scheduler = self._engine.scheduler
        wrapped = scheduler.next_request
        try:
            scheduler.next_request = self._next_request
        except AttributeError:
            return  # with __slots__: its requests are held the long way
        self._next = wrapped

    def _next_request(self) -> Any:
        assert self._next is not None
        request = self._ahead.popleft() if self._ahead else self._next()
        if request is not None:
            self._requests.add(request)
        return request
