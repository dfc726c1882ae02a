"""In the process of a crawl under test: an extension that tells when our code holds the event loop,
and how much memory the crawl took. It writes down what it finds as the recorder does.

Time is CPU time of the event loop's thread: what other processes do on the machine does not count,
nor what Python's garbage collector takes, which goes through all that Scrapy keeps: it has turns of
its own.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from traceback import walk_stack
from types import FrameType
from typing import Any

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import call_later

import scrapy_rep
from tests.helpers.pages_spider import record
from tests.helpers.timing import slowness

OURS = str(Path(scrapy_rep.__file__).parent)
MOST = 0.2
"""Seconds that our code may take in one turn of the event loop, on an ordinary machine. A turn may have
several pages, of some 50 ms each (tests/protocol/test_page.py)."""
_LOOK = 0.005


class LoopWatch:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> LoopWatch:
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._closed, signals.spider_closed)
        self._loop = threading.get_ident()
        self._turn = 0
        self._over = threading.Event()
        self._timer: Any = None

    def _opened(self) -> None:
        self._before = getrusage(RUSAGE_SELF).ru_maxrss
        self._loop = threading.get_ident()
        gc.disable()
        self._beat()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _closed(self) -> None:
        self._over.set()
        self._timer.cancel()
        record(
            "memory", detail=(getrusage(RUSAGE_SELF).ru_maxrss - self._before) // 1024
        )

    def _beat(self) -> None:
        self._turn += 1
        if self._turn % 100 == 0:
            gc.collect()
        self._timer = call_later(_LOOK, self._beat)

    def _watch(self) -> None:
        clock = time.pthread_getcpuclockid(self._loop)
        turn, last, ours, told = 0, time.clock_gettime(clock), 0.0, False
        while not self._over.wait(_LOOK):
            now = time.clock_gettime(clock)
            if turn != self._turn:
                turn, ours, told = self._turn, 0.0, False
            elif frame := _our_frame(sys._current_frames()[self._loop]):
                ours += now - last
                if ours > MOST and not told and ours > MOST * slowness():
                    told = True
                    record("stall", frame, f"{ours:.3f} s")
            last = now


def _our_frame(frame: FrameType) -> str:
    """Where in our code the event loop is; empty if it is in somebody else's."""
    for one, line in walk_stack(frame):
        if one.f_code.co_filename.startswith(OURS):
            return f"{one.f_code.co_filename}:{line} {one.f_code.co_name}"
    return ""
