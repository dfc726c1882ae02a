"""The interface of storages, and the simplest one: in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scrapy.crawler import Crawler

from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.entry import Entry, UnreadableEntry

__all__ = ["BatchStorage", "Entry", "MemoryStorage", "Storage", "UnreadableEntry"]

# Overhead of an entry in memory: its key and its slot.
_BYTES = 250


class Storage:
    """Keeps entries after the process ends, and shares them with other processes.

    Scrapy creates one with ``from_crawler(crawler)`` if the class has it, else without arguments. A
    crawl calls the methods in threads, one at a time, so they may block and need no locks. An
    exception is logged as a warning, and the crawl does without the storage for a while.

    :meth:`load` and :meth:`save` are required; the other defaults suit a storage used by one process
    at a time. A crawl calls the ``…_many`` methods, with up to 500 origins: override them where one
    call can replace many.
    """

    def load(self, origin: str) -> Entry | None:
        """Return the entry stored for *origin*, or None.

        :raises UnreadableEntry: if it can't be read; it counts as absent
        """
        raise NotImplementedError

    def save(self, entry: Entry) -> None:
        """Store *entry*, replacing that of its origin."""
        raise NotImplementedError

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        """Return the entries stored for *origins*, by origin: for an unreadable one, its
        :class:`UnreadableEntry`."""
        found: dict[str, Entry | UnreadableEntry] = {}
        for origin in origins:
            try:
                if (entry := self.load(origin)) is not None:
                    found[origin] = entry
            except UnreadableEntry as error:
                found[origin] = error
        return found

    def save_many(self, entries: Sequence[Entry]) -> None:
        """Store each of *entries*, see :meth:`save`."""
        for entry in entries:
            self.save(entry)

    def drop(self, origin: str) -> bool:
        """Delete the entry of *origin*. Return whether there was one."""
        raise NotImplementedError

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        """Iterate over all entries, in any order."""
        raise NotImplementedError

    def body(self, sha256: str) -> bytes | None:
        """Return the robots.txt body with this hash, in use or not; None if it isn't stored."""
        for entry in self.entries():
            if isinstance(entry, Entry) and entry.sha256 == sha256:
                return entry.body
        return None

    def lease(self, origin: str, owner: str, seconds: float) -> bool:
        """Give *owner* the exclusive right to fetch the robots.txt of *origin* for some *seconds*, or
        renew it. Return whether *owner* has the lease now; False: another owner does."""
        return True

    def release(self, origin: str, owner: str) -> None:
        """End the lease of *origin*, if *owner* has it."""

    def lease_many(self, origins: Sequence[str], owner: str, seconds: float) -> set[str]:
        """Return which of *origins* are leased to *owner* now, see :meth:`lease`."""
        # None: the method was probably meant to return True.
        return {one for one in origins if self.lease(one, owner, seconds) is not False}

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        """End the leases of *origins*, see :meth:`release`."""
        for origin in origins:
            self.release(origin, owner)

    def close(self) -> None:
        """The crawl has ended."""


class BatchStorage(Storage):
    """A storage that implements the ``…_many`` methods, which are all that a crawl calls."""

    def load(self, origin: str) -> Entry | None:
        entry = self.load_many([origin]).get(origin)
        if isinstance(entry, UnreadableEntry):
            raise entry
        return entry

    def save(self, entry: Entry) -> None:
        self.save_many([entry])

    def lease(self, origin: str, owner: str, seconds: float) -> bool:
        return bool(self.lease_many([origin], owner, seconds))

    def release(self, origin: str, owner: str) -> None:
        self.release_many([origin], owner)


class MemoryStorage(Storage):
    """Entries in memory, packed: mostly a kilobyte each. Beyond a number of entries or bytes, those
    saved longest ago are evicted. Over the limit of bytes, entries larger than their share go first,
    so that a hundred large files can't evict ten thousand ordinary ones. The latest entry stays,
    whatever its size."""

    def __init__(self, max_origins: int, max_bytes: int) -> None:
        self._max_origins, self._max_bytes = max_origins, max_bytes
        self._bytes = 0
        # Bytes, not objects: half the memory, and the same code path as on disk.
        self._packed: dict[str, bytes] = {}
        self._large: dict[str, None] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> MemoryStorage:
        """Use the limits ``REP_CACHE_MAX_ORIGINS`` and ``REP_CACHE_MAX_BYTES``."""
        settings = RepSettings.from_settings(crawler.settings)
        return cls(settings.cache_max_origins, settings.cache_max_bytes)

    def load(self, origin: str) -> Entry | None:
        packed = self._packed.get(origin)
        return None if packed is None else Entry.unpack(packed)

    def save(self, entry: Entry) -> None:
        self.drop(entry.origin)
        packed = self._packed[entry.origin] = entry.pack()
        size = _BYTES + len(packed)
        self._bytes += size
        if size * self._max_origins > self._max_bytes:
            self._large[entry.origin] = None
        self.shrink(self._max_origins, self._max_bytes)

    def shrink(self, max_origins: int, max_bytes: int) -> None:
        while (many := len(self._packed) > max_origins) or (
            self._bytes > max_bytes and len(self._packed) > 1
        ):
            large = not many and len(self._large) > 1
            self.drop(next(iter(self._large if large else self._packed)))

    def drop(self, origin: str) -> bool:
        packed = self._packed.pop(origin, None)
        if packed is None:
            return False
        self._bytes -= _BYTES + len(packed)
        self._large.pop(origin, None)
        return True

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        for packed in list(self._packed.values()):
            yield Entry.unpack(packed)
