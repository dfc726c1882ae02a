"""How a crawl uses a storage: in threads, so that it can't block the event loop; in batches, so that
it may be slow; and, after it failed, not at all for a while."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry
from scrapy_rep.storages.outage import CLOSE, LEASE, LOAD, RELEASE, SAVE, Outages
from scrapy_rep.storages.unsaved import Unsaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

# Origins in one call.
_AT_ONCE = 500
# Renewals before a lease would end: one may be late.
_RENEWALS = 3
# Seconds that a claim waits for a storage that fails: each of its calls may take a timeout.
_PATIENCE = 0.2


class Claim(NamedTuple):
    """A storage's answer to a process that may have to fetch a robots.txt."""

    entry: Entry | None
    granted: bool
    """Whether to fetch it: no other process does."""


class _Asked:
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


class StorageAccess:
    """Calls a storage, one call at a time. What arrives during a call is batched into the next."""

    def __init__(self, crawler: Crawler, storage: Storage, lease_seconds: float) -> None:
        """:param lease_seconds: how long others wait at most for a process that died"""
        self._storage = storage
        self._lease_seconds = lease_seconds
        self._owner = uuid4().hex
        self._outages = Outages(crawler, type(storage).__name__)
        self._told_unreadable = False
        self._leased: set[str] = set()
        self._running = False
        self._retry: CallLaterResult | None = None
        self._renewal: CallLaterResult | None = None
        # Still to do
        self._asked: list[_Asked] = []
        self._renewed: list[str] = []
        self._unsaved = Unsaved()
        self._waits = False
        """Whether saving failed, and nothing new has come since."""
        self._released: set[str] = set()
        self._purged: list[float] = []
        self._closed: Deferred[None] | None = None
        self._ended = False
        """Whether the storage is closed, or closing: nothing is asked of it any more."""

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the stored entry; if it isn't good enough, try to take the lease. While the storage
        fails there are no entries but unsaved ones, and every process may fetch.

        :param is_enough: called in a thread
        """
        if self._ended:
            return Claim(self._unsaved.get(origin), granted=True)
        asked = _Asked(origin, is_enough)
        self._asked.append(asked)
        self._go()
        timer = call_later(_PATIENCE, self._go_without, asked) if self._outages.on else None
        try:
            return await maybe_deferred_to_future(asked.done)
        except BaseException:
            asked.wanted = False  # but the thread may get the lease yet
            if origin in self._leased:
                self.give_back(origin)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def publish(self, entry: Entry) -> None:
        """Save *entry*, then end the lease of its origin: soon, or once the storage works again."""
        self._unsaved.add(entry)
        self._waits = False
        self.give_back(entry.origin)

    def give_back(self, origin: str) -> None:
        """End the lease of *origin*, soon."""
        self._leased.discard(origin)
        self._released.add(origin)
        self._go()

    def purge(self, before: float) -> None:
        """Delete what wasn't updated since *before* (seconds since the epoch), soon."""
        self._purged.append(before)
        self._go()

    async def close(self) -> None:
        """Finish everything else, end all leases and close the storage."""
        for timer in (self._renewal, self._retry):
            if timer is not None:
                timer.cancel()
        self._waits = False
        self._outages.end_pauses()  # the last chance
        self._released |= self._leased
        self._leased.clear()
        self._closed = Deferred()
        self._go()
        await maybe_deferred_to_future(self._closed)

    # In the event loop

    def _go_without(self, asked: _Asked) -> None:
        """Answer what the storage, which fails, has not answered."""
        if not asked.done.called:
            asked.wanted = False
            asked.done.callback(Claim(self._unsaved.get(asked.origin), granted=True))

    def _go(self) -> None:
        if not (self._running or self._ended):
            self._running = True
            deferred_from_coro(self._work())

    @property
    def _saves(self) -> bool:
        return len(self._unsaved) > 0 and not self._waits and self._outages.over(SAVE)

    async def _work(self) -> None:
        while self._asked or self._renewed or self._released or self._purged or self._saves:
            await self._answer()  # first: claims don't wait for writes
            if not (self._asked and self._outages.on):
                await self._write()
        self._running = False
        if self._closed is not None:
            self._ended = True
            await run_in_thread(self._outages.insist, CLOSE, None, self._storage.close)
            self._closed.callback(None)

    async def _answer(self) -> None:
        asked = [one for one in self._asked[:_AT_ONCE] if one.wanted]
        del self._asked[:_AT_ONCE]
        renewed, self._renewed = self._renewed, []
        if not asked and not renewed:
            return
        unsaved = {one.origin: entry for one in asked if (entry := self._unsaved.get(one.origin))}
        claims = await run_in_thread(self._claim, asked, renewed, unsaved)
        self._leased |= {
            one.origin for one, claim in zip(asked, claims, strict=True) if claim.granted
        }
        if self._leased and self._renewal is None and self._closed is None:
            self._renewal = call_later(self._lease_seconds / _RENEWALS, self._renew)
        for one, claim in zip(asked, claims, strict=True):
            if one.wanted and not one.done.called:
                one.done.callback(claim)
            elif claim.granted:
                self.give_back(one.origin)

    def _renew(self) -> None:
        # A fetch with redirects may outlast its lease.
        self._renewal = None
        self._renewed = list(self._leased)
        self._go()

    async def _write(self) -> None:
        entries = self._unsaved.first(_AT_ONCE) if self._saves else []
        released = list(self._released - self._leased)  # not those claimed again
        self._released.clear()
        purged, self._purged = self._purged, []
        if not (entries or released or purged):
            return
        save = self._save_late if self._unsaved.late else self._save
        done = await run_in_thread(self._save_and_release, save, entries, released, purged)
        if done:
            self._unsaved.saved(entries)
        elif self._closed is None:
            self._unsaved.failed(entries)
            self._waits = True
            if self._retry is None:
                self._retry = call_later(self._outages.retry_seconds, self._save_again)
        else:
            self._unsaved = Unsaved()

    def _save_again(self) -> None:
        self._retry, self._waits = None, False
        self._go()

    # In a thread

    def _claim(
        self, asked: list[_Asked], renewed: list[str], unsaved: dict[str, Entry]
    ) -> list[Claim]:
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

    def _save_and_release(
        self,
        save: Callable[[list[Entry]], bool],
        entries: list[Entry],
        released: list[str],
        purged: list[float],
    ) -> bool:
        """Return whether none of *entries* is left to save."""
        for before in purged:
            self._outages.attempt(SAVE, None, self._storage.purge, before)
        done = not entries or save(entries)
        self._release(released)
        return done

    def _save(self, entries: list[Entry]) -> bool:
        def save(some: list[Entry]) -> bool:
            self._storage.save_many(some)
            return True

        insist = self._outages.insist
        if self._outages.attempt(SAVE, False, save, entries):
            return True
        if len(entries) == 1 or not insist(SAVE, False, save, entries[:1]):
            return False
        # The storage works. An entry it can't save even alone is lost, and fetched again.
        for entry in entries[1:]:
            insist(SAVE, False, save, [entry])
        return True

    def _save_late(self, entries: list[Entry]) -> bool:
        known = self._load([entry.origin for entry in entries])
        newer = [
            entry
            for entry in entries
            if (other := known.get(entry.origin)) is None or other.updated_at < entry.updated_at
        ]
        return not newer or self._save(newer)
