"""In the process of a crawl under test: what happens is written into the file that `CRAWL_EVENTS` names, a line
each, for the process of the test to read."""

from __future__ import annotations

import os
from typing import Any

from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.http.request import NO_CALLBACK

from scrapy_rep import signals as rep_signals


def write(line: str) -> None:
    file = os.open(os.environ["CRAWL_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


class EventRecorder:
    """An extension that is told of the crawl's beginning and end, of each robots.txt, and of what happens to
    requests."""

    kinds: dict[object, str] = {}
    """Signals about requests, and what these events are called."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> EventRecorder:
        # How often the engine looks whether the crawl is over; Scrapy's 5 s make most runs longer.
        ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        for signal in self.kinds:
            crawler.signals.connect(self._request_seen, signal)
        crawler.signals.connect(self.resolved, rep_signals.robots_resolved)
        crawler.signals.connect(self.opened, signals.spider_opened)
        crawler.signals.connect(self.closed, signals.spider_closed)

    def _request_seen(self, request: Request, signal: Any, **_: Any) -> None:
        if request.callback is not NO_CALLBACK:  # else it is a robots.txt
            self.seen(self.kinds[signal], request)

    def seen(self, kind: str, request: Request) -> None: ...

    def resolved(self, origin: Any, outcome: Any, **_: Any) -> None: ...

    def opened(self) -> None: ...

    def closed(self, reason: str) -> None: ...

    @property
    def stats(self) -> dict[str, Any]:
        assert self.crawler.stats is not None
        return self.crawler.stats.get_stats()
