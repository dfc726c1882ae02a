"""Entries in memory, packed: mostly a kilobyte each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from scrapy.crawler import Crawler

from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry

# Overhead of an entry: its key, and its slot.
_BYTES = 250


class MemoryStorage(Storage):
    """A limited number of entries and bytes: the least recently used are evicted.

    Over the limit of bytes, entries larger than their share go first, so that a hundred large files
    can't evict ten thousand ordinary ones. The latest entry stays, whatever its size.
    """

    def __init__(self, max_origins: int, max_bytes: int) -> None:
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._bytes = 0
        # Bytes and not objects: half the memory, and the same code path as on disk.
        self._packed: OrderedDict[str, bytes] = OrderedDict()
        self._large: OrderedDict[str, None] = OrderedDict()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> MemoryStorage:
        """Use the limits ``REP_CACHE_MAX_ORIGINS`` and ``REP_CACHE_MAX_BYTES``."""
        settings = RepSettings.from_settings(crawler.settings)
        return cls(settings.cache_max_origins, settings.cache_max_bytes)

    def __len__(self) -> int:
        return len(self._packed)

    def load(self, origin: str) -> Entry | None:
        packed = self._packed.get(origin)
        if packed is None:
            return None
        self._packed.move_to_end(origin)
        if origin in self._large:
            self._large.move_to_end(origin)
        return Entry.unpack(packed)

    def save(self, entry: Entry) -> None:
        self._pop(entry.origin)
        packed = self._packed[entry.origin] = entry.pack()
        size = _BYTES + len(packed)
        self._bytes += size
        if size * self._max_origins > self._max_bytes:
            self._large[entry.origin] = None
        self.shrink(self._max_origins, self._max_bytes)

    def shrink(self, max_origins: int, max_bytes: int) -> None:
        """Evict entries down to these limits."""
        while (many := len(self._packed) > max_origins) or (
            self._bytes > max_bytes and len(self._packed) > 1
        ):
            large = not many and len(self._large) > 1
            self._pop(next(iter(self._large if large else self._packed)))

    def take(self, origin: str) -> Entry | None:
        """Remove and return the entry of *origin*."""
        packed = self._pop(origin)
        return None if packed is None else Entry.unpack(packed)

    def drop(self, origin: str) -> bool:
        return self._pop(origin) is not None

    def _pop(self, origin: str) -> bytes | None:
        packed = self._packed.pop(origin, None)
        if packed is not None:
            self._bytes -= _BYTES + len(packed)
            self._large.pop(origin, None)
        return packed

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        for packed in list(self._packed.values()):
            yield Entry.unpack(packed)

    def purge(self, before: float) -> None:
        for origin, packed in list(self._packed.items()):
            if Entry.unpack(packed).updated_at < before:
                self._pop(origin)
