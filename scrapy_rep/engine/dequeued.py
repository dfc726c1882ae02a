"""Which requests came from the scheduler. Others are direct downloads (of a media pipeline, say), which
can't be held; nothing else tells the two apart in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess


class Dequeued:
    """Remembers what the scheduler's ``next_request()`` returned."""

    def __init__(self, crawler: Crawler, engine: EngineAccess) -> None:
        self._engine = engine
        self._next: Callable[[], Any] = lambda: None
        self._requests: WeakSet[Request] = WeakSet()
        crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def _spider_opened(self) -> None:
        scheduler = self._engine.scheduler
        self._next = scheduler.next_request
        try:
            scheduler.next_request = self._next_request
        except AttributeError:
            pass  # with __slots__: its requests are held the long way

    def _next_request(self) -> Any:
        request = self._next()
        if request is not None:
            self._requests.add(request)
        return request
