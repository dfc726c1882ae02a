"""What a storage has to do. There are three here; a project may bring its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.storages.entry import Entry, UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Entry", "Storage", "UnreadableEntry"]


class Storage:
    """Keeps entries beyond the end of the process, and shares them with others.

    Scrapy makes one from its class: by ``from_crawler(crawler)`` where there is one, else without
    arguments. A crawl calls the methods in threads, one call at a time, so they may take their time
    and need no locks. What they raise is logged as a warning, and the crawl goes on without the
    storage for a while.

    :meth:`load` and :meth:`save` are required; the defaults of the rest will do for a storage that
    one process at a time uses. A crawl calls the methods ``…_many``, with up to 500 origins: override
    these where one call can do what several did.
    """

    def load(self, origin: str) -> Entry | None:
        """Return the entry stored for *origin*, or None.

        :raises UnreadableEntry: for what can't be read: it counts as nothing
        """
        raise NotImplementedError

    def save(self, entry: Entry) -> None:
        """Keep *entry* in the place of what is kept of its origin."""
        raise NotImplementedError

    def load_many(self, origins: Sequence[str]) -> dict[str, Entry | UnreadableEntry]:
        """Return the entries stored for *origins*, each with its origin; an
        :class:`UnreadableEntry` for one that can't be read."""
        found: dict[str, Entry | UnreadableEntry] = {}
        for origin in origins:
            try:
                entry = self.load(origin)
            except UnreadableEntry as error:
                found[origin] = error
            else:
                if entry is not None:
                    found[origin] = entry
        return found

    def save_many(self, entries: Sequence[Entry]) -> None:
        """Keep each of *entries*, see :meth:`save`."""
        for entry in entries:
            self.save(entry)

    def drop(self, origin: str) -> bool:
        """Forget *origin*. Return whether anything was kept of it."""
        raise NotImplementedError

    def entries(self) -> Iterator[Entry | UnreadableEntry]:
        """Go through all entries, in no particular order."""
        raise NotImplementedError

    def body(self, sha256: str) -> bytes | None:
        """Return the body that has this hash, of a robots.txt that is or was in use; None if it is
        not kept."""
        for entry in self.entries():
            if isinstance(entry, Entry) and entry.sha256 == sha256:
                return entry.body
        return None

    def lease(self, origin: str, owner: str, seconds: float) -> bool:
        """Give *owner* alone the right to ask for the robots.txt of *origin*, for some *seconds*. An
        owner that has the lease already renews it.

        :returns: whether *owner* has the lease; False: another one does
        """
        return True

    def release(self, origin: str, owner: str) -> None:
        """End the lease of *origin*, if *owner* has it."""

    def lease_many(self, origins: Sequence[str], owner: str, seconds: float) -> set[str]:
        """Return those of *origins* that *owner* has the lease of now, see :meth:`lease`."""
        # None: a method that was meant to return True, most likely.
        return {one for one in origins if self.lease(one, owner, seconds) is not False}

    def release_many(self, origins: Sequence[str], owner: str) -> None:
        """End the leases of *origins* that *owner* has."""
        for origin in origins:
            self.release(origin, owner)

    def purge(self, before: float) -> None:
        """Forget what was not updated since *before*, in seconds since the epoch."""

    def close(self) -> None:
        """The crawl has ended."""
