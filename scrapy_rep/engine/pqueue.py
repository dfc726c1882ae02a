"""A priority queue for crawls of many hosts.

Scrapy's DownloaderAwarePriorityQueue looks at every download slot for which requests
wait, to find the one with the fewest active downloads. With 30,000 hosts, that takes
longer than all else about a page. :class:`BroadPriorityQueue` looks at few slots.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.pqueues import (
    DownloaderAwarePriorityQueue,
    DownloaderInterface,
    ScrapyPriorityQueue,
)

# With fewer waiting slots than this, Scrapy's search is fast enough, and Scrapy's order
# is kept.
_MANY = 64


class BroadPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's DownloaderAwarePriorityQueue, with requests in nearly the same order and
    on disk in the same form. The time that this class takes for a request does not grow
    with the number of hosts that wait. With 64 waiting hosts or more,
    those without active downloads take turns; Scrapy goes by their names.

    :class:`~scrapy_rep.Addon` replaces Scrapy's default with it, unless the project
    sets ``SCHEDULER_PRIORITY_QUEUE``.
    """

    # Only the settings are documented. tests/engine/test_pqueue.py fails when one of
    # these names goes away: `DownloaderInterface.stats` and `._active_downloads`,
    # `_downloader_interface`, `pqueues`, `_last_selected_slot`.

    pqueues: OrderedDict[str, ScrapyPriorityQueue]

    def __init__(self, crawler: Crawler, *arguments: Any, **options: Any) -> None:
        super().__init__(crawler, *arguments, **options)
        # An OrderedDict, since a plain dict whose first keys are gone is slow to begin
        # iterating.
        self.pqueues = OrderedDict(self.pqueues)
        self._downloader_interface = _Turns(crawler)

    def pop(self) -> Request | None:
        """Return the next request, and put its slot behind all others, even if an
        exception is raised, as for a damaged file: a host with such a file must not
        stop others."""
        try:
            return super().pop()
        finally:
            slot = self._last_selected_slot
            if slot is not None and slot in self.pqueues:
                self.pqueues.move_to_end(slot)


class _Turns(DownloaderInterface):
    """What the queue asks about the downloader's slots."""

    def stats(self, possible_slots: Iterable[str]) -> list[tuple[int, str]]:
        """Return one pair: the number of active downloads of the slot to take, and the
        slot. That is the first slot without active downloads; if there is none, the
        slot with the fewest. Scrapy's own method returns such a pair for each slot, and
        the queue takes the least.

        This method looks at one slot more than there are active downloads, at most.
        Busy slots are moved behind the others."""
        assert isinstance(possible_slots, OrderedDict)  # the queue's `pqueues`
        if len(possible_slots) < _MANY:
            return super().stats(possible_slots)
        busy: list[tuple[int, str]] = []
        for slot in possible_slots:
            active_count = self._active_downloads(slot)
            if not active_count:
                for _, busy_slot in busy:
                    possible_slots.move_to_end(busy_slot)
                return [(0, slot)]
            busy.append((active_count, slot))
        return [min(busy, key=itemgetter(0))]
