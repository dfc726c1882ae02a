"""How a crawl uses a storage: in threads, so that it can't block the event loop; in batches, so
that it may be slow; and, once it failed, not at all for a while. A lease per origin lets only one
process fetch its robots.txt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar
from uuid import uuid4

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import CallLaterResult, call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry, MemoryStorage, Storage, UnreadableEntry
from scrapy_rep.text import text_of

logger = get_logger(__name__)

T = TypeVar("T")

# Origins in one call.
_AT_ONCE = 500
# Renewals before a lease would end: one may be late.
_RENEWALS = 3
# Seconds that a claim waits for a failing storage: each of its calls may take a timeout.
_PATIENCE = 0.2
# Seconds for which calls of a kind that failed are skipped.
_RETRY_SECONDS = 10.0
# Kinds of calls. Each may fail alone: a full disk may have room for a lease.
_LOAD, _LEASE, _RELEASE, _SAVE, _CLOSE = "load", "lease", "release", "save", "close"
# Answers, and bytes of their bodies, kept while the storage fails. The oldest are dropped.
_MAX_ENTRIES, _MAX_BYTES = 10_000, 16_000_000


class Claim(NamedTuple):
    """A storage's answer to a process that may have to fetch a robots.txt."""

    entry: Entry | None
    granted: bool
    """Whether to fetch it: no other process does."""


@dataclass(slots=True, eq=False)
class _PendingClaim:
    origin: str
    is_enough: Callable[[Entry], bool]
    answer: Deferred[Claim] = field(default_factory=Deferred)
    wanted: bool = True
    """Whether somebody still waits for the answer."""

    def settled_by(self, found: dict[str, Entry]) -> bool:
        entry = found.get(self.origin)
        return entry is not None and self.is_enough(entry)

    def tell(self, claim: Claim) -> bool:
        """Answer, once. Return whether somebody waited for it."""
        waited, self.wanted = self.wanted, False
        if waited:
            self.answer.callback(claim)
        return waited


class _Calls:
    """Calls a storage for one process, blocking. A failure is logged once, and such calls are
    skipped for a while: as if the storage were empty, and every lease free."""

    def __init__(self, crawler: Crawler, storage: Storage, lease_seconds: float) -> None:
        self._crawler = crawler
        self.storage = storage
        self._name = type(storage).__name__
        self._lease_seconds = lease_seconds
        self._owner = uuid4().hex
        self._told_unreadable = False
        self.again_at: dict[str, float] = {}
        """When to try again, for each kind that failed."""

    def is_tried(self, kind: str) -> bool:
        """Whether calls of *kind* work, or are due to be tried again."""
        return self.again_at.get(kind, 0.0) <= time.monotonic()

    def attempt(
        self,
        kind: str,
        otherwise: T,
        method: Callable[..., T],
        *arguments: object,
        insist: bool = False,
    ) -> T:
        """Return what *method* returns; *otherwise* if it fails, or its *kind* failed recently.
        With *insist*, call it even then."""
        if not insist and not self.is_tried(kind):
            return otherwise
        try:
            result = method(*arguments)
        except Exception as error:  # noqa: BLE001
            # A storage may raise anything: the disk is full, the server gone, the user's class broken.
            if not self.again_at:
                what = "read" if kind == _LOAD else "written"
                self._log(
                    logging.WARNING,
                    f"The robots.txt cache ({self._name}) can't be {what}: {text_of(error)}. The crawl "
                    f"goes on with what is in memory, and tries again every {_RETRY_SECONDS:g} s.",
                )
            self.again_at[kind] = time.monotonic() + _RETRY_SECONDS
            return otherwise
        if self.again_at.pop(kind, None) is not None and not self.again_at:
            self._log(logging.INFO, f"The robots.txt cache ({self._name}) works again.")
        return result

    def _log(self, level: int, message: str) -> None:
        extra = {"spider": self._crawler.spider}
        logger.log(level, "%(message)s", {"message": message}, extra=extra)

    def claim(
        self, asked: list[_PendingClaim], renewed: list[str], unsaved: dict[str, Entry]
    ) -> list[Claim]:
        """Renew leases of *renewed*. Return answers to *asked*; *unsaved* ones count as stored."""
        found = unsaved | self._load([one.origin for one in asked if one.origin not in unsaved])
        left = [one for one in asked if not one.settled_by(found)]
        origins = [one.origin for one in left]
        granted = self._lease([*renewed, *origins]).intersection(origins)
        # Another process may have saved its answer between the two calls.
        found |= self._load([origin for origin in granted if origin not in unsaved])
        late = granted.intersection(one.origin for one in left if one.settled_by(found))
        self._release(list(late))
        granted -= late
        return [Claim(found.get(one.origin), one.origin in granted) for one in asked]

    def _lease(self, origins: list[str]) -> set[str]:
        """Return which *origins* to fetch: all, if leasing fails."""

        def lease() -> set[str]:
            return set(self.storage.lease_many(origins, self._owner, self._lease_seconds))

        return self.attempt(_LEASE, set(origins), lease) if origins else set()

    def _release(self, origins: list[str]) -> None:
        if origins:
            self.attempt(_RELEASE, None, self.storage.release_many, origins, self._owner)

    def _load(self, origins: list[str]) -> dict[str, Entry]:
        return self.attempt(_LOAD, {}, self._load_checked, origins) if origins else {}

    def _load_checked(self, origins: list[str]) -> dict[str, Entry]:
        found = {}
        for origin, entry in self.storage.load_many(origins).items():
            try:
                if isinstance(entry, UnreadableEntry):
                    raise entry
                found[origin] = entry.check(origin)
            except UnreadableEntry as error:
                if not self._told_unreadable:
                    self._told_unreadable = True
                    self._log(
                        logging.WARNING,
                        f"Ignoring the robots.txt cache's entry for {origin}: it is {error}. Further "
                        "unreadable entries are not reported.",
                    )
        return found

    def write(self, entries: list[Entry], late: bool, released: list[str]) -> int | None:
        """Save *entries*, then end the leases of *released*. *late*: others may have saved newer
        ones. Return how many entries can't be saved; None: all are left, to be saved later."""
        if late:
            known = self._load([entry.origin for entry in entries])
            entries = [
                entry
                for entry in entries
                if (other := known.get(entry.origin)) is None or other.updated_at < entry.updated_at
            ]
        lost = self._save(entries) if entries else 0
        self._release(released)
        return lost

    def _save(self, entries: list[Entry]) -> int | None:
        def saves(some: list[Entry], insist: bool = True) -> bool:
            def save() -> bool:
                self.storage.save_many(some)
                return True

            return self.attempt(_SAVE, False, save, insist=insist)

        if saves(entries, insist=False):
            return 0
        if len(entries) == 1 or not saves(entries[:1]):
            return None
        # The storage works. An entry that it can't save even alone is lost, and fetched again.
        return sum(not saves([entry]) for entry in entries[1:])


class _Unsaved(dict[str, "Entry"]):
    """The latest answer of each origin that isn't saved yet, oldest first, up to a limit."""

    _bytes = 0
    late = False
    """Whether saving has failed: another process may have saved newer answers meanwhile."""

    def add(self, entry: Entry) -> int:
        """Add *entry*, replacing an earlier one of its origin. Return how many others were dropped."""
        self._drop(entry.origin)
        self[entry.origin] = entry
        self._bytes += len(entry.packed)
        dropped = 0
        while len(self) > _MAX_ENTRIES or (self._bytes > _MAX_BYTES and len(self) > 1):
            self._drop(next(iter(self)))
            dropped += 1
        return dropped

    def saved(self, entries: Iterable[Entry]) -> None:
        """Remove *entries*, unless newer ones have replaced them."""
        for entry in list(entries):
            if self.get(entry.origin) is entry:
                self._drop(entry.origin)
        self.late = self.late and bool(self)

    def failed(self, first: Entry) -> None:
        """After nothing could be saved: move *first*, which may be the reason, to the end."""
        self.late = True
        if self.get(first.origin) is first:
            self.add(first)

    def _drop(self, origin: str) -> None:
        if (entry := self.pop(origin, None)) is not None:
            self._bytes -= len(entry.packed)


class StorageClient:
    """Calls a storage, one call at a time; what arrives meanwhile is batched into the next. Purges
    the storage when the spider opens, and closes it with the spider."""

    def __init__(
        self,
        crawler: Crawler,
        storage: Storage,
        lease_seconds: float,
        expired: Callable[[], float],
    ) -> None:
        """*lease_seconds*: how long others wait at most for a process that died. *expired* returns
        since when an entry must have been updated, in seconds since the epoch."""
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._lease_seconds = lease_seconds
        self._expired = expired
        self._calls = _Calls(crawler, storage, lease_seconds)
        self._leased: set[str] = set()
        self._running = False
        self._retry: CallLaterResult | None = None
        self._renewal: CallLaterResult | None = None
        self._asked: dict[_PendingClaim, None] = {}
        self._renewed: list[str] = []
        self._unsaved = _Unsaved()
        self._released: set[str] = set()
        self._purges = False
        self._closed: Deferred[None] | None = None
        self._ended = False
        """Whether the storage is closed or closing: nothing is asked of it any more."""
        # Methods, which signals refer to weakly: the table of handlers belongs to the process, and
        # would keep a closure, and so the crawl, in memory.
        crawler.signals.connect(self.purge, signals.spider_opened)
        crawler.signals.connect(self.close, signals.spider_closed)

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the stored entry; if it isn't good enough (*is_enough* is called in a thread), try
        to take the lease. While the storage fails there are no entries but unsaved ones, and every
        process may fetch."""
        without = Claim(self._unsaved.get(origin), granted=True)
        if self._ended:
            return without
        asked = _PendingClaim(origin, is_enough)
        self._asked[asked] = None
        self._go()
        timer = call_later(_PATIENCE, asked.tell, without) if self._calls.again_at else None
        try:
            return await maybe_deferred_to_future(asked.answer)
        except BaseException:  # cancelled, or thrown away; the thread may get the lease yet
            asked.wanted = False
            self.give_back(origin)
            raise
        finally:
            self._asked.pop(asked, None)
            if timer is not None:
                timer.cancel()

    def publish(self, entry: Entry) -> None:
        """Save *entry*, then end its origin's lease: even if nothing can be saved now, so that
        others may fetch; *entry* is saved once the storage works again."""
        self._lost(self._unsaved.add(entry))
        self.give_back(entry.origin)
        self._go()

    def give_back(self, origin: str) -> None:
        if origin in self._leased:
            self._leased.remove(origin)
            self._released.add(origin)
            self._go()

    def purge(self) -> None:
        """Delete what has expired, soon."""
        self._purges = True
        self._go()

    async def close(self) -> None:
        """Finish everything else, end all leases and close the storage."""
        for timer in (self._renewal, self._retry):
            if timer is not None:
                timer.cancel()
        self._calls.again_at = dict.fromkeys(self._calls.again_at, 0.0)  # the last chance
        self._released |= self._leased
        self._leased.clear()
        self._closed = Deferred()
        self._go()
        await maybe_deferred_to_future(self._closed)

    def _lost(self, count: int) -> None:
        if count:
            self._stats.inc_value("rep/cache/unsaved", count)

    def _go(self) -> None:
        if not (self._running or self._ended):
            self._running = True
            deferred_from_coro(self._work())

    @property
    def _saves(self) -> bool:
        return bool(self._unsaved) and self._calls.is_tried(_SAVE)

    async def _work(self) -> None:
        while self._asked or self._renewed or self._released or self._purges or self._saves:
            for step in (self._write, self._purge_some):
                await self._answer()  # claims don't wait for all that is to be written
                if not (self._asked and self._calls.again_at):
                    await step()
        self._running = False
        if self._closed is not None:
            self._ended = True
            await run_in_thread(self._calls.attempt, _CLOSE, None, self._calls.storage.close)
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
            if not one.tell(claim) and claim.granted:
                self.give_back(one.origin)

    def _renew(self) -> None:
        # A fetch with redirects may outlast its lease.
        self._renewal = None
        self._renewed = list(self._leased)
        self._go()

    async def _write(self) -> None:
        entries = list(islice(self._unsaved.values(), _AT_ONCE)) if self._saves else []
        saved = {entry.origin for entry in entries}
        released = [
            origin
            for origin in self._released
            # The lease of an answer that a later call saves ends after that.
            if not entries or origin in saved or origin not in self._unsaved
        ][:_AT_ONCE]
        self._released.difference_update(released)
        if not (entries or released):
            return
        lost = await run_in_thread(self._calls.write, entries, self._unsaved.late, released)
        if lost is not None:
            self._unsaved.saved(entries)
            self._lost(lost)
        elif self._closed is None:
            self._unsaved.failed(entries[0])
            self._retry = call_later(_RETRY_SECONDS, self._go)
        else:  # nothing can be saved any more
            self._lost(len(self._unsaved))
            self._unsaved.saved(self._unsaved.values())

    async def _purge_some(self) -> None:
        if self._purges:
            attempt, purge = self._calls.attempt, self._calls.storage.purge_some
            self._purges = await run_in_thread(attempt, _SAVE, False, purge, self._expired())


def make_storage(crawler: Crawler, settings: RepSettings) -> Storage:
    """Return the storage that ``REP_CACHE_STORAGE`` names; ``SettingsError`` if it can't be made."""
    name = settings.cache_storage
    wrong = f"REP_CACHE_STORAGE is {name!r}"
    try:
        made = load_object(name)
    except (ImportError, NameError, ValueError) as error:
        hint = ""
        if isinstance(error, ImportError) and (error.name or "").startswith("redis"):
            hint = ' Try "pip install scrapy-rep[redis]".'
        raise SettingsError(f"{wrong}, which can't be imported: {error}.{hint}") from None
    if not (isinstance(made, type) and issubclass(made, Storage)):
        raise SettingsError(f"{wrong}, which is not a subclass of scrapy_rep.storages.Storage.")
    try:
        return build_from_crawler(made, crawler)
    except SettingsError:
        raise
    except Exception as error:
        # A user's class may raise anything.
        raise SettingsError(f"{wrong}: {text_of(error)}.") from error


def open_storage(
    crawler: Crawler, settings: RepSettings, clock: Callable[[], float]
) -> StorageClient | None:
    """Return the client of the crawl's storage; None for plain memory, which needs none;
    ``SettingsError`` if the storage can't be made. *clock*: seconds since the epoch."""
    storage = make_storage(crawler, settings)
    if type(storage) is MemoryStorage:  # not a user's subclass
        return None
    return StorageClient(
        crawler, storage, settings.download_timeout, lambda: clock() - settings.cache_expiry
    )
