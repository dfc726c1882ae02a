"""Answers that a storage hasn't saved yet."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.storages.entry import Entry

# Answers, and bytes of their bodies, kept while the storage fails. The oldest are dropped.
_MAX_ENTRIES, _MAX_BYTES = 10_000, 16_000_000


class Unsaved:
    """The latest answer of each origin, up to a limit."""

    def __init__(self, stats: StatsCollector) -> None:
        self._stats = stats
        self._entries: dict[str, Entry] = {}
        self._bytes = 0
        self.late = False
        """Whether saving has failed: another process may have saved newer answers meanwhile."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, origin: str) -> Entry | None:
        """Return the answer of *origin*."""
        return self._entries.get(origin)

    def add(self, entry: Entry) -> None:
        """Add *entry*, replacing an earlier one of its origin."""
        self._pop(entry.origin)
        self._entries[entry.origin] = entry
        self._bytes += len(entry.packed)
        while len(self) > _MAX_ENTRIES or (self._bytes > _MAX_BYTES and len(self) > 1):
            self._pop(next(iter(self._entries)))
            self.count_lost(1)

    def first(self, limit: int) -> list[Entry]:
        """Return up to *limit* answers, oldest first."""
        return list(islice(self._entries.values(), limit))

    def saved(self, entries: list[Entry]) -> None:
        """Remove *entries*, unless newer ones have replaced them."""
        for entry in entries:
            if self._entries.get(entry.origin) is entry:
                self._pop(entry.origin)
        self.late = self.late and bool(self._entries)

    def failed(self, entries: list[Entry]) -> None:
        """None of *entries* could be saved: move the first, which may be the reason, to the end."""
        self.late = True
        if self._entries.get(entries[0].origin) is entries[0]:
            self.add(entries[0])

    def give_up(self) -> None:
        """Forget all: nothing can be saved any more."""
        self.count_lost(len(self))
        self._entries.clear()
        self._bytes = 0

    def count_lost(self, count: int) -> None:
        """Count answers that will never be saved."""
        if count:
            self._stats.inc_value("rep/cache/unsaved", count)

    def _pop(self, origin: str) -> None:
        entry = self._entries.pop(origin, None)
        if entry is not None:
            self._bytes -= len(entry.packed)
