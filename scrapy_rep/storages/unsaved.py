"""Answers that a storage has not saved yet: a moment long, or as long as it fails."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_rep.storages.entry import Entry

# Answers, and bytes of their bodies, that wait for a storage to work again. The oldest leave.
_MAX_ENTRIES, _MAX_BYTES = 10_000, 16_000_000


class Unsaved:
    """Answers to be saved: the latest of each origin, a limited number."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._bytes = 0
        self.late = False
        """Whether saving has failed since these came: another process may have saved newer ones."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, origin: str) -> Entry | None:
        """Return what is to be saved of *origin*."""
        return self._entries.get(origin)

    def add(self, entry: Entry) -> None:
        """Have *entry* saved, in place of an earlier one of its origin."""
        self._pop(entry.origin)
        self._entries[entry.origin] = entry
        self._bytes += len(entry.packed)
        while len(self) > _MAX_ENTRIES or (self._bytes > _MAX_BYTES and len(self) > 1):
            self._pop(next(iter(self._entries)))

    def first(self, limit: int) -> list[Entry]:
        """Return up to *limit* of them, the oldest first."""
        return list(islice(self._entries.values(), limit))

    def saved(self, entries: list[Entry]) -> None:
        """These need not be saved any more."""
        for entry in entries:
            if self._entries.get(entry.origin) is entry:
                self._pop(entry.origin)
        self.late = self.late and bool(self._entries)

    def failed(self, entries: list[Entry]) -> None:
        """None of these could be saved. Next time the first is not the first: it may be the reason."""
        self.late = True
        if self._entries.get(entries[0].origin) is entries[0]:
            self.add(entries[0])

    def _pop(self, origin: str) -> None:
        entry = self._entries.pop(origin, None)
        if entry is not None:
            self._bytes -= len(entry.packed)
