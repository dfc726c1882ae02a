"""Schedulers that aren't Scrapy's."""

from __future__ import annotations

from collections import deque
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler


class Slotted:
    """A scheduler with the four documented methods, which can't be replaced."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[Request] = deque()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Slotted:
        return cls()

    def open(self, spider: Any) -> None: ...
    def close(self, reason: str) -> None: ...
    def has_pending_requests(self) -> bool:
        return bool(self._queue)

    def enqueue_request(self, request: Request) -> bool:
        self._queue.append(request)
        return True

    def next_request(self) -> Request | None:
        return self._queue.popleft() if self._queue else None


class FourMethods(Slotted):
    """One that lets itself be changed, as that of a cloud platform."""
