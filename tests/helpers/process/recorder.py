"""In the process of a crawl under test: writes down what happens, when it happens, in a file
that the test reads meanwhile. What is in it has happened, however the process ends.

`CRAWL_EVENTS` is the file. `CRAWL_ENDS`, such as `SIGKILL released 17`, is a signal that the
process sends itself in the moment of that event: some moments are too short to be hit from
outside. `CRAWL_LATER` is a number of seconds by which the process's clocks are ahead, so that time
seems to have passed since another run.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import Any

from scrapy import signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.http import Request, Response
from scrapy.http.request import NO_CALLBACK

from scrapy_rep import RepMiddleware
from scrapy_rep import signals as rep_signals

COUNTS: Counter[str] = Counter()


def record(kind: str, url: str = "", detail: object = "") -> None:
    """Write one event down."""
    line = "\t".join((kind, url, str(detail).replace("\n", " "))) + "\n"
    file = os.open(os.environ["CRAWL_EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
    COUNTS[kind] += 1
    if ends := os.environ.get("CRAWL_ENDS"):
        name, wanted, count = ends.split()
        if kind == wanted and COUNTS[kind] == int(count):
            os.kill(os.getpid(), signal.Signals[name])


def record_page(response: Response) -> None:
    """What a callback gets; and what it would get if nothing had been held."""
    request = response.request
    assert request is not None
    marks = [key for key in request.meta if key.startswith("_rep")]
    record("page", response.url, f"dont_filter={request.dont_filter} marks={marks}")


PAGE_AS_EVER = "dont_filter=False marks=[]"


def put_clocks_forward(seconds: float) -> None:
    """All that tell the time."""
    wall, monotonic = time.time, time.monotonic
    time.time, time.monotonic = lambda: wall() + seconds, lambda: monotonic() + seconds
    RepMiddleware.clock = staticmethod(time.time)


class Recorder:
    """An extension that records signals. Spiders record what their callbacks get themselves."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Recorder:
        # The engine looks that often (seconds) whether the crawl is over, or whether others have
        # put something into a shared queue. Scrapy's 5 make most runs as much longer.
        ExecutionEngine._SLOT_HEARTBEAT_INTERVAL = 0.1
        if later := float(os.environ.get("CRAWL_LATER", "0")):
            put_clocks_forward(later)
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._kinds = {
            rep_signals.request_deferred: "deferred",
            rep_signals.request_released: "released",
            signals.request_scheduled: "scheduled",
            signals.request_dropped: "dropped",
            signals.request_reached_downloader: "reached",
            signals.response_downloaded: "downloaded",
            signals.request_left_downloader: "left",
        }
        for one in self._kinds:
            crawler.signals.connect(self._request_seen, one)
        crawler.signals.connect(self._resolved, rep_signals.robots_resolved)
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._closed, signals.spider_closed)
        self._stats = crawler.stats

    def _request_seen(self, request: Request, signal: Any, **_: Any) -> None:
        if request.callback is not NO_CALLBACK:  # else it is a robots.txt
            record(self._kinds[signal], request.url, request.meta.get("note", ""))

    def _resolved(self, origin: Any, outcome: Any, **_: Any) -> None:
        record("resolved" if outcome.value != "unreachable" else "refused", str(origin))

    def _opened(self) -> None:
        record("opened")

    def _closed(self, reason: str) -> None:
        assert self._stats is not None
        for key, value in self._stats.get_stats().items():
            record("stat", key, value)
        record("closed", detail=reason)
