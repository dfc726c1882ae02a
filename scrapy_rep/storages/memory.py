"""Entries in memory, packed: a kilobyte each. They end with the process."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler


class MemoryStorage(Storage):
    """So many entries; the least recently used leave."""

    def __init__(self, max_origins: int) -> None:
        self._max = max_origins
        # Bytes and not objects: half the memory, and the same code path as on disk.
        self._packed: OrderedDict[str, bytes] = OrderedDict()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> MemoryStorage:
        """As ``REP_CACHE_MAX_ORIGINS`` says."""
        return cls(RepSettings.from_settings(crawler.settings).cache_max_origins)

    def __len__(self) -> int:
        return len(self._packed)

    def load(self, origin: str) -> Entry | None:
        packed = self._packed.get(origin)
        if packed is None:
            return None
        self._packed.move_to_end(origin)
        return Entry.unpack(packed)

    def save(self, entry: Entry) -> None:
        self._packed[entry.origin] = entry.pack()
        self._packed.move_to_end(entry.origin)
        if len(self._packed) > self._max:
            self._packed.popitem(last=False)

    def take(self, origin: str) -> Entry | None:
        """Take the entry of *origin* out."""
        packed = self._packed.pop(origin, None)
        return None if packed is None else Entry.unpack(packed)

    def drop(self, origin: str) -> bool:
        return self._packed.pop(origin, None) is not None

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        for packed in list(self._packed.values()):
            yield Entry.unpack(packed)

    def purge(self, before: float) -> None:
        for origin, packed in list(self._packed.items()):
            if Entry.unpack(packed).updated_at < before:
                del self._packed[origin]
