"""The calls of a storage, of up to some hundred origins each. They block, and belong in a thread."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from twisted.internet.defer import Deferred

from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry
from scrapy_rep.storages.outage import CLOSE, LEASE, LOAD, RELEASE, SAVE, Outages

if TYPE_CHECKING:
    from collections.abc import Callable


class Claim(NamedTuple):
    """A storage's answer to a process that may have to fetch a robots.txt."""

    entry: Entry | None
    granted: bool
    """Whether to fetch it: no other process does."""


class Asked:
    """A claim waiting for its answer."""

    __slots__ = ("done", "is_enough", "origin", "wanted")

    def __init__(self, origin: str, is_enough: Callable[[Entry], bool]) -> None:
        self.origin = origin
        self.is_enough = is_enough
        self.done: Deferred[Claim] = Deferred()
        self.wanted = True

    def settled_by(self, entry: Entry | None) -> bool:
        """Whether *entry* makes a fetch unnecessary."""
        return entry is not None and self.is_enough(entry)


class StorageCalls:
    """Calls a storage for one process. What fails is logged; the answer is then that of an empty
    storage in which every lease is free."""

    def __init__(self, storage: Storage, outages: Outages, lease_seconds: float) -> None:
        self._storage = storage
        self._outages = outages
        self._lease_seconds = lease_seconds
        self._owner = uuid4().hex
        self._told_unreadable = False

    def claim(
        self, asked: list[Asked], renewed: list[str], unsaved: dict[str, Entry]
    ) -> list[Claim]:
        """Renew the leases of *renewed*. Return the claims of *asked*.

        :param unsaved: answers that count as stored
        """
        found = unsaved | self._load([one.origin for one in asked if one.origin not in unsaved])
        left = [one for one in asked if not one.settled_by(found.get(one.origin))]
        granted = self._lease(renewed, [one.origin for one in left])
        # Another process may have saved its answer between the two calls.
        found |= self._load([origin for origin in granted if origin not in unsaved])
        late = {one.origin for one in left if one.settled_by(found.get(one.origin))} & granted
        self._release(list(late))
        granted -= late
        return [Claim(found.get(one.origin), one.origin in granted) for one in asked]

    def _lease(self, renewed: list[str], origins: list[str]) -> set[str]:
        """Return which *origins* to fetch: all, if leasing fails."""
        if not (every := [*renewed, *origins]):
            return set()

        def lease() -> set[str]:
            return set(self._storage.lease_many(every, self._owner, self._lease_seconds))

        return self._outages.attempt(LEASE, set(every), lease) & set(origins)

    def _release(self, origins: list[str]) -> None:
        if origins:
            release = self._storage.release_many
            self._outages.attempt(RELEASE, None, release, origins, self._owner)

    def _load(self, origins: list[str]) -> dict[str, Entry]:
        return self._outages.attempt(LOAD, {}, self._load_checked, origins) if origins else {}

    def _load_checked(self, origins: list[str]) -> dict[str, Entry]:
        found = {}
        for origin, entry in self._storage.load_many(origins).items():
            try:
                if isinstance(entry, UnreadableEntry):
                    raise entry
                found[origin] = entry.check(origin)
            except UnreadableEntry as error:
                self._tell_unreadable(origin, error)
        return found

    def _tell_unreadable(self, origin: str, error: UnreadableEntry) -> None:
        if not self._told_unreadable:
            self._told_unreadable = True
            self._outages.log(
                logging.WARNING,
                f"Ignoring the entry of {origin} in the robots.txt cache, which is {error}. "
                "Further ones are not reported.",
            )

    def write(self, entries: list[Entry], late: bool, released: list[str]) -> int | None:
        """Save *entries*, then end the leases of *released*.

        :param late: others may have saved newer ones
        :returns: how many entries can't be saved; None: all are left, to be saved later
        """
        save = self._save_late if late else self._save
        lost = save(entries) if entries else 0
        self._release(released)
        return lost

    def _save(self, entries: list[Entry]) -> int | None:
        def save(some: list[Entry]) -> bool:
            self._storage.save_many(some)
            return True

        insist = self._outages.insist
        if self._outages.attempt(SAVE, False, save, entries):
            return 0
        if len(entries) == 1 or not insist(SAVE, False, save, entries[:1]):
            return None
        # The storage works. An entry it can't save even alone is lost, and fetched again.
        return sum(not insist(SAVE, False, save, [entry]) for entry in entries[1:])

    def _save_late(self, entries: list[Entry]) -> int | None:
        known = self._load([entry.origin for entry in entries])
        newer = [
            entry
            for entry in entries
            if (other := known.get(entry.origin)) is None or other.updated_at < entry.updated_at
        ]
        return self._save(newer) if newer else 0

    def purge_some(self, before: float) -> bool:
        """Purge a part. Return whether more may be left."""
        return self._outages.attempt(SAVE, False, self._storage.purge_some, before)

    def close(self) -> None:
        """Close the storage."""
        self._outages.insist(CLOSE, None, self._storage.close)
