"""How a crawl uses a storage: in threads, so that it can't block the event loop; in batches, so that
it may be slow; and, after it failed, not at all for a while."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.storages.calls import Asked, Claim, StorageCalls
from scrapy_rep.storages.outage import SAVE, Outages
from scrapy_rep.storages.unsaved import Unsaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.storages.base import Entry, Storage

# Origins in one call.
_AT_ONCE = 500
# Renewals before a lease would end: one may be late.
_RENEWALS = 3
# Seconds that a claim waits for a storage that fails: each of its calls may take a timeout.
_PATIENCE = 0.2


class StorageAccess:
    """Calls a storage, one call at a time. What arrives during a call is batched into the next."""

    def __init__(self, crawler: Crawler, storage: Storage, lease_seconds: float) -> None:
        """:param lease_seconds: how long others wait at most for a process that died"""
        self._lease_seconds = lease_seconds
        self._outages = Outages(crawler, type(storage).__name__)
        self._calls = StorageCalls(storage, self._outages, lease_seconds)
        self._leased: set[str] = set()
        self._running = False
        self._retry: CallLaterResult | None = None
        self._renewal: CallLaterResult | None = None
        # Still to do
        self._asked: dict[Asked, None] = {}
        self._renewed: list[str] = []
        assert crawler.stats is not None
        self._unsaved = Unsaved(crawler.stats)
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
        asked = Asked(origin, is_enough)
        self._asked[asked] = None
        self._go()
        timer = call_later(_PATIENCE, self._go_without, asked) if self._outages.on else None
        try:
            return await maybe_deferred_to_future(asked.done)
        except BaseException:
            asked.wanted = False  # but the thread may get the lease yet
            self.give_back(origin)
            raise
        finally:
            self._asked.pop(asked, None)
            if timer is not None:
                timer.cancel()

    def publish(self, entry: Entry) -> None:
        """Save *entry*, then end the lease of its origin. While nothing can be saved, the lease ends
        all the same, so that others may fetch; *entry* is saved once the storage works again."""
        self._unsaved.add(entry)
        self._waits = False
        self.give_back(entry.origin)
        self._go()

    def give_back(self, origin: str) -> None:
        """End the lease of *origin*, if there is one, soon."""
        if origin in self._leased:
            self._leased.remove(origin)
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

    def _go_without(self, asked: Asked) -> None:
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
            for step in (self._write, self._purge_some):
                await self._answer()  # claims don't wait for all that is to be written
                if not (self._asked and self._outages.on):
                    await step()
        self._running = False
        if self._closed is not None:
            self._ended = True
            await run_in_thread(self._calls.close)
            self._closed.callback(None)

    async def _answer(self) -> None:
        renewed = self._renewed[:_AT_ONCE]
        del self._renewed[:_AT_ONCE]
        asked = list(islice(self._asked, _AT_ONCE - len(renewed)))
        for one in asked:
            del self._asked[one]
        if not asked and not renewed:
            return
        unsaved = {one.origin: entry for one in asked if (entry := self._unsaved.get(one.origin))}
        claims = await run_in_thread(self._calls.claim, asked, renewed, unsaved)
        granted = {one.origin for one, claim in zip(asked, claims, strict=True) if claim.granted}
        self._leased |= granted
        self._released -= granted
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
        saved = {entry.origin for entry in entries}
        released = [
            origin
            for origin in self._released
            # The lease of an answer that a later call saves ends after that.
            if not entries or origin in saved or self._unsaved.get(origin) is None
        ][:_AT_ONCE]
        self._released.difference_update(released)
        if not (entries or released):
            return
        lost = await run_in_thread(self._calls.write, entries, self._unsaved.late, released)
        if lost is not None:
            self._unsaved.saved(entries)
            self._unsaved.count_lost(lost)
        elif self._closed is None:
            self._unsaved.failed(entries)
            self._waits = True
            if self._retry is None:
                self._retry = call_later(self._outages.retry_seconds, self._save_again)
        else:
            self._unsaved.give_up()

    async def _purge_some(self) -> None:
        if self._purged and not await run_in_thread(self._calls.purge_some, self._purged[0]):
            del self._purged[0]

    def _save_again(self) -> None:
        self._retry, self._waits = None, False
        self._go()
