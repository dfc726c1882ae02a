"""A priority queue for crawls of many hosts.

Scrapy's DownloaderAwarePriorityQueue looks at every waiting download slot to find the one with the
fewest active downloads: with 30,000 hosts, that takes longer than a page. A heap knows it.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from scrapy import signals as scrapy_signals
from scrapy.pqueues import DownloaderAwarePriorityQueue, DownloaderInterface
from scrapy.squeues import FifoMemoryQueue, LifoMemoryQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import ScrapyPriorityQueue

_Entry: TypeAlias = tuple[int, int, str]
"""Active downloads, a number that increases, and the slot."""

# What one request is in no other way than as itself. None: start requests have no queue of their own.
_PLAIN = {FifoMemoryQueue, LifoMemoryQueue, None}

# Slots that wait from which a heap is faster than a look at each. With fewer than half, the heap goes.
_MANY = 64

# Outdated entries in the heap before it is cleaned, beside as many as there are slots.
_OUTDATED = 100


class BroadPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's DownloaderAwarePriorityQueue, with requests in nearly the same order and on disk in the
    same form. Its time for a request does not grow with the number of hosts that wait. Among many
    hosts with equally few active downloads, the one that was served longest ago is next.

    :class:`~scrapy_rep.Addon` puts it in the place of Scrapy's default, unless the project sets
    ``SCHEDULER_PRIORITY_QUEUE``.
    """

    # Documented are only the settings. tests/engine/test_pqueue.py fails when a name goes away:
    # `DownloaderInterface.stats`, `_downloader_interface`, `pqfactory`, `pqueues`, `_start_queue_cls`.

    def __init__(self, crawler: Crawler, *arguments: Any, **options: Any) -> None:
        self._order = _Order(crawler)
        self._make = super().pqfactory
        super().__init__(crawler, *arguments, **options)

    def pqfactory(self, slot: str, startprios: Iterable[int] = ()) -> ScrapyPriorityQueue:
        """Return a queue for *slot*, which had none."""
        if self._ordered:
            self._order.add(slot)
        elif len(self.pqueues) >= _MANY:
            self._order.begin([*self.pqueues, slot])
            self._downloader_interface = self._order
        plain = not self.key and {self.downstream_queue_cls, self._start_queue_cls} <= _PLAIN
        if startprios or not plain:
            return self._make(slot, startprios)
        return cast("ScrapyPriorityQueue", _SlotQueue(self._make, slot))

    @property
    def _ordered(self) -> bool:
        """Whether there is a heap. It takes the place of what Scrapy's queue asks about slots."""
        return self._downloader_interface is self._order

    def pop(self) -> Request | None:
        """Return the next request."""
        if not self._ordered:
            return super().pop()
        try:
            return super().pop()
        finally:  # a host whose file is damaged must not stop the others
            self._order.popped(self.pqueues)
            if len(self.pqueues) < _MANY // 2:
                self._order.end()
                self._downloader_interface = DownloaderInterface(self.crawler)


class _SlotQueue:
    """A slot's queue in memory: a ScrapyPriorityQueue once there are two requests. Most hosts of a
    broad crawl have one, and Python's garbage collector looks at each object of each host."""

    __slots__ = ("_first", "_make", "_queue", "_slot")

    def __init__(self, make: Callable[[str], ScrapyPriorityQueue], slot: str) -> None:
        self._make = make
        self._slot = slot
        self._first: Request | None = None
        self._queue: ScrapyPriorityQueue | None = None

    def _all(self) -> ScrapyPriorityQueue:
        if self._queue is None:
            self._queue = self._make(self._slot)
            if self._first is not None:
                self._queue.push(self._first)
                self._first = None
        return self._queue

    def push(self, request: Request) -> None:
        if self._first is None and self._queue is None:
            self._first = request
        else:
            self._all().push(request)

    def pop(self) -> Request | None:
        if self._first is None:
            return self._all().pop()
        first, self._first = self._first, None
        return first

    def peek(self) -> Request | None:
        return self._all().peek() if self._first is None else self._first

    def close(self) -> list[int]:
        return self._all().close() if len(self) else []

    def __len__(self) -> int:
        return int(self._first is not None) if self._queue is None else len(self._queue)


class _Order(DownloaderInterface):
    """The slots that wait, in the order of their active downloads."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._signals = crawler.signals
        self._numbers = count()
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []

    def begin(self, slots: Iterable[str]) -> None:
        """Put these *slots* in order."""
        self._signals.connect(self._left, scrapy_signals.request_left_downloader)
        for slot in slots:
            self.add(slot)

    def end(self) -> None:
        """Forget all slots."""
        self._signals.disconnect(self._left, scrapy_signals.request_left_downloader)
        self._entries.clear()
        self._heap.clear()

    def _active(self, slot: str) -> int:
        return super().stats([slot])[0][0]

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        """Return only the slot to take, which spares the queue the search for it."""
        heap = self._heap
        while heap:
            entry = heap[0]
            active, _, slot = entry
            if self._entries.get(slot) is not entry:
                heapq.heappop(heap)
                continue
            now = self._active(slot)
            if now <= active:
                return [(now, slot)]
            self._set(slot, now)
        return []

    def _set(self, slot: str, active: int) -> None:
        entry = self._entries[slot] = active, next(self._numbers), slot
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + _OUTDATED:
            self._heap[:] = self._entries.values()
            heapq.heapify(self._heap)

    def add(self, slot: str) -> None:
        """Begin to wait with *slot*."""
        self._set(slot, self._active(slot))

    def popped(self, waiting: Container[str]) -> None:
        """Move the slot to take behind others, or forget it if it is not among those *waiting*."""
        if self._heap:
            slot = self._heap[0][2]
            del self._entries[slot]
            if slot in waiting:
                self.add(slot)

    def _left(self, request: Request) -> None:
        """A download has ended, and *request* is about to leave its slot."""
        slot = request.meta.get("download_slot", "")
        entry = self._entries.get(slot)
        if entry is not None and entry[0]:
            # Several may leave before the downloader removes the first: its own count is too high then.
            # One too low is put right by stats().
            self._set(slot, entry[0] - 1)
