"""How a crawl uses a storage: in threads, so that it can't block the event loop; in
batches, so that it may be slow; and, once it failed, not at all for a while.

A lease for each origin lets only one of the processes that share the storage fetch its
robots.txt: a process *claims* an origin, and gets the stored entry, or the lease, or
neither.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar
from uuid import uuid4

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import CallLaterResult, call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

from scrapy_rep.engine.log import Gauge, get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import (
    BATCH,
    MAX_TURNS,
    MAX_VALUE,
    Entry,
    MemoryStorage,
    Storage,
    Turn,
    UnreadableEntry,
)
from scrapy_rep.text import text_of

logger = get_logger(__name__)

T = TypeVar("T")

# How often a lease is renewed in the time after which it would end: more than once,
# since a renewal may be late.
_RENEWALS = 3
# Seconds for which an operation that failed isn't tried again.
_RETRY_SECONDS = 10.0
# The operations of a storage. Each may fail while others work: a full disk may have
# room for a lease, and none for an entry.
_LOADING = "load"
_LEASING = "lease"
_RELEASING = "release"
_SAVING = "save"
_CLOSING = "close"
_RESERVING = "turn"
# At most this many entries are kept while they can't be saved. Beyond that, the oldest
# are dropped, and their robots.txt files are fetched again in the next crawl.
_MAX_UNSAVED = 10_000
# The bodies of these entries have at most this many bytes in all.
_MAX_UNSAVED_BYTES = 16_000_000
# Where our own storages are, to suggest one to users who misspell its path.
_PACKAGE = "scrapy_rep.storages"
_OUR_STORAGES = ("MemoryStorage", "RedisStorage", "SqliteStorage")
# How similar (difflib) a name must be to that of a suggested storage: 1 is identical.
_SIMILARITY = 0.55
# Seconds by which a storage may round a wait down.
_ROUNDING_SECONDS = 0.001


class Successor(Protocol):
    """A function that returns what replaces a stored *value*; None if nothing does.
    *reason*: why the crawl ended."""

    def __call__(self, value: str | None, *, reason: str) -> str | None: ...


class Claim(NamedTuple):
    """A storage's answer to a process that may have to fetch a robots.txt."""

    entry: Entry | None
    """The stored entry; None if there is none."""
    granted: bool
    """Whether this process is to fetch the robots.txt, since no other one does."""


class _PendingClaim(NamedTuple):
    """A call of :meth:`StorageClient.claim` that waits for its answer."""

    origin: str
    is_enough: Callable[[Entry], bool]
    """Whether an entry makes a fetch needless."""
    answer: Deferred[Claim]

    def is_settled_by(self, entries: dict[str, Entry]) -> bool:
        """Whether *entries*, by origin, have one that makes a fetch needless."""
        entry = entries.get(self.origin)
        return entry is not None and self.is_enough(entry)


class _PendingTurn(NamedTuple):
    """A call of :meth:`StorageClient.turn` that waits for its answer."""

    origin: str
    seconds: float
    """The crawl delay."""
    earliest: float
    """When the turn may come at the earliest, by the monotonic clock."""
    answer: Deferred[float | None]


class _PendingValue(NamedTuple):
    """A call of :meth:`StorageClient.load_value` that waits for its answer."""

    name: str
    answer: Deferred[str | None]


class _Calls:
    """Calls a storage for one process, in threads, since calls block. A failure is
    logged once, and the operation that failed is skipped for a while, as if the storage
    were empty, and every lease free."""

    def __init__(
        self,
        crawler: Crawler,
        storage: Storage,
        lease_seconds: float,
    ) -> None:
        self._crawler = crawler
        self.storage = storage
        self._name = type(storage).__name__
        self.lease_seconds = lease_seconds
        self._owner = uuid4().hex
        """The name of this process in leases."""
        self._has_logged_unreadable = False
        self.again_at: dict[str, float] = {}
        """The operations that failed, and when to try each again, by the monotonic
        clock."""

    @property
    def is_failing(self) -> bool:
        """Whether the last call of some operation failed."""
        return bool(self.again_at)

    def may_try(self, operation: str) -> bool:
        """Whether *operation* works, or is due to be tried again."""
        # An operation that has not failed may be tried at any time: from 0.0 on.
        return self.again_at.get(operation, 0.0) <= time.monotonic()

    def attempt(
        self,
        operation: str,
        fallback: T,
        call: Callable[[], T],
    ) -> T:
        """Return what *call* returns; *fallback* if it fails, or its *operation* failed
        recently."""
        if not self.may_try(operation):
            return fallback
        try:
            result = call()
        except Exception as error:  # noqa: BLE001
            # A storage may raise anything: the disk is full, the server gone, the
            # user's class broken.
            if not self.is_failing:
                problem = "read" if operation == _LOADING else "written"
                reason = text_of(error)
                self._log(
                    logging.WARNING,
                    f"The robots.txt cache ({self._name}) can't be {problem}: {reason}. The crawl "
                    f"goes on with what is in memory, and tries again every {_RETRY_SECONDS:g} s.",
                )
            self.again_at[operation] = time.monotonic() + _RETRY_SECONDS
            return fallback
        has_failed_before = self.again_at.pop(operation, None) is not None
        if has_failed_before and not self.is_failing:
            self._log(logging.INFO, f"The robots.txt cache ({self._name}) works again.")
        return result

    def _log(self, level: int, message: str) -> None:
        extra = {"spider": self._crawler.spider}
        logger.log(level, "%(message)s", {"message": message}, extra=extra)

    def claim(self, pending: list[_PendingClaim], to_renew: list[str]) -> list[Claim]:
        """Renew the leases of *to_renew*, and return an answer to each of *pending*."""
        # Take leases for origins whose stored entries aren't good enough.
        entries = self._load([claim.origin for claim in pending])
        wanted = []
        for claim in pending:
            if not claim.is_settled_by(entries):
                wanted.append(claim.origin)
        leased = self._lease([*to_renew, *wanted])
        granted = leased.intersection(wanted)
        # Another process may have saved its answer since the entries were loaded. Then
        # there is nothing to fetch, and the lease ends.
        entries |= self._load(list(granted))
        settled_meanwhile = set()
        for claim in pending:
            if claim.origin in granted and claim.is_settled_by(entries):
                settled_meanwhile.add(claim.origin)
        self._release(list(settled_meanwhile))
        granted -= settled_meanwhile
        # Answer all claims.
        answers = []
        for claim in pending:
            entry = entries.get(claim.origin)
            is_granted = claim.origin in granted
            answers.append(Claim(entry, is_granted))
        return answers

    def _lease(self, origins: list[str]) -> set[str]:
        """Return the *origins* whose leases this process has now: all, if the storage
        fails, so that each process fetches for itself."""
        if not origins or not self.may_try(_LOADING):
            return set(origins)

        def lease() -> set[str]:
            lease_many = self.storage.lease_many
            return set(lease_many(origins, self._owner, self.lease_seconds))

        return self.attempt(_LEASING, set(origins), lease)

    def _release(self, origins: list[str]) -> None:
        """End this process's leases of *origins*."""
        if not origins:
            return

        def release() -> None:
            self.storage.release_many(origins, self._owner)

        self.attempt(_RELEASING, None, release)

    def _load(self, origins: list[str]) -> dict[str, Entry]:
        """Return the sound entries of *origins*, by origin: none if the storage
        fails."""
        if not origins:
            return {}
        return self.attempt(_LOADING, {}, lambda: self._load_sound(origins))

    def _load_sound(self, origins: list[str]) -> dict[str, Entry]:
        """Return the entries that can be read, by origin; log the first that can't."""
        entries = {}
        for origin, entry in self.storage.load_many(origins).items():
            try:
                if isinstance(entry, UnreadableEntry):
                    raise entry
                entries[origin] = entry.check(origin)
            except UnreadableEntry as error:
                self._log_unreadable(origin, error)
        return entries

    def _log_unreadable(self, origin: str, error: UnreadableEntry) -> None:
        """Log the first entry that can't be read."""
        if self._has_logged_unreadable:
            return
        self._has_logged_unreadable = True
        self._log(
            logging.WARNING,
            f"Ignoring the robots.txt cache's entry for {origin}: it is {error}. Further "
            "unreadable entries are not reported.",
        )

    def take_turns(self, pending: list[_PendingTurn]) -> list[float | None]:
        """Return the moment of each turn, by the monotonic clock. If the storage fails,
        return None for each turn."""
        waits = self.attempt(_RESERVING, None, lambda: self._reserve(pending))
        if waits is None:
            return [None for _ in pending]
        # The waits count from now on, not from when the storage was asked, so that no
        # moment comes too early.
        now = time.monotonic()
        return [now + wait for wait in waits]

    def _reserve(self, pending: list[_PendingTurn]) -> list[float]:
        """Return for how many seconds each turn has to wait. ``ValueError`` if the
        storage returns impossible waits."""
        now = time.monotonic()
        turns = []
        for asked in pending:
            own_wait = max(0.0, asked.earliest - now)
            turns.append(Turn(asked.origin, asked.seconds, own_wait))
        waits = self.storage.turn_many(turns)
        for turn, wait in zip(turns, waits, strict=True):
            shortest = turn.wait - _ROUNDING_SECONDS
            longest = turn.wait + (MAX_TURNS + 1) * turn.seconds
            if not shortest <= wait <= longest:
                raise ValueError(f"turn_many() returned {wait!r:.20} for {turn}")
        return waits

    def load_value(self, name: str) -> str | None:
        """Return the value that is stored as *name*; None if there is none, or the
        storage fails; "" if the storage returns what can't have been saved."""

        def load() -> object:
            return self.storage.load_value(name)

        value = self.attempt(_LOADING, None, load)
        if value is None:
            return None
        # A storage may return anything.
        if isinstance(value, str) and len(value) <= MAX_VALUE:
            return value
        return ""

    def replace_value(
        self,
        name: str,
        successor: Callable[[str | None], str | None],
    ) -> None:
        """Store what *successor* makes of the value that is stored as *name*. If it
        returns None, leave the value as it is."""

        def replace() -> None:
            value = successor(self.load_value(name))
            if value is not None:
                self.storage.save_value(name, value)

        self.attempt(_SAVING, None, replace)

    def write(self, entries: list[Entry], to_release: list[str]) -> bool:
        """Save *entries*, then end the leases of *to_release*. Return whether *entries*
        are saved."""
        if entries:
            self.attempt(_SAVING, None, lambda: self.storage.save_many(entries))
        self._release(to_release)
        is_saving_broken = _SAVING in self.again_at
        return not (entries and is_saving_broken)


class StorageClient:
    """Calls a storage, one call at a time; what is asked of it meanwhile is batched
    into the next call. Closes the storage with the spider."""

    def __init__(
        self,
        crawler: Crawler,
        storage: Storage,
        lease_seconds: float,
    ) -> None:
        """*lease_seconds*: after this time, a lease ends that isn't renewed. So others
        wait no longer than that for a process that died."""
        assert crawler.stats is not None  # Scrapy has made them before
        self._stats = crawler.stats
        self._down_stat = Gauge(crawler.stats, "rep/down/cache")
        """The stat that is 1 while the storage fails (``Gauge`` in engine/log.py)."""
        self._calls = _Calls(crawler, storage, lease_seconds)
        self.name = type(storage).__name__
        self.shares_turns = type(storage).turn_many is not Storage.turn_many
        """Whether processes that share the storage can take turns by :meth:`turn`."""
        self.keeps_values = type(storage).save_value is not Storage.save_value
        """Whether :meth:`load_value` returns what an earlier crawl stored."""

        # What the next calls are about, see _work().
        self._pending_claims: dict[_PendingClaim, None] = {}
        """Claims that somebody waits for, oldest first; the values mean nothing."""
        self._pending_turns: list[_PendingTurn] = []
        self._pending_values: list[_PendingValue] = []
        self._to_renew: list[str] = []
        """Origins whose leases are to be renewed."""
        self._to_release: set[str] = set()
        """Origins whose leases are to be ended."""
        self._unsaved: dict[str, Entry] = {}
        """The latest answer of each origin that isn't saved yet, oldest first."""
        self._unsaved_bytes = 0
        """How many bytes the bodies of these entries have."""
        self._successors: dict[str, Successor] = {}
        """What replaces a value when the storage closes, by the value's name."""

        self._leased: set[str] = set()
        """Origins whose leases this process has, and keeps for now."""
        self._renewal_timer: CallLaterResult | None = None
        """Fires when all leases are to be renewed."""
        self._retry_timer: CallLaterResult | None = None
        """Fires when a storage that could save nothing is to be tried again."""
        self._running = False
        """Whether :meth:`_work` runs."""
        self._all_done: Deferred[None] | None = None
        """Fires when the storage is closed; None before :meth:`close`."""
        self._ended = False
        """Whether the storage is closed or closing: nothing is asked of it any more."""
        self._closing_reason = ""
        """Why the crawl ended."""
        # Signals refer to a method weakly. A closure would stay in the table of
        # handlers, which belongs to the process, and keep the crawl in memory.
        crawler.signals.connect(self.close, signals.spider_closed)

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the stored entry; if it isn't good enough (*is_enough* is called in a
        thread), try to take the lease. While the storage fails there are no entries,
        and every process may fetch."""
        if self._ended or not self._calls.may_try(_LOADING):
            return Claim(None, granted=True)
        pending = _PendingClaim(origin, is_enough, Deferred())
        self._pending_claims[pending] = None
        self._begin_work()
        try:
            return await maybe_deferred_to_future(pending.answer)
        except BaseException:
            # Whoever asked was cancelled, or thrown away. The lease is given back; if
            # the thread gets it only later, _answer_claims() gives it back.
            self._pending_claims.pop(pending, None)
            self.give_back_lease(origin)
            raise

    async def turn(
        self,
        origin: str,
        seconds: float,
        wait: float,
    ) -> float | None:
        """Return the moment (of the monotonic clock) at which this process may send the
        next request to *origin*; None if the storage fails. That is at least *wait*
        seconds from now, and *seconds* after the requests of all processes that share
        the storage."""
        if self._ended or not self._calls.may_try(_RESERVING):
            return None
        earliest = time.monotonic() + wait
        pending = _PendingTurn(origin, seconds, earliest, Deferred())
        self._pending_turns.append(pending)
        self._begin_work()
        return await maybe_deferred_to_future(pending.answer)

    async def load_value(self, name: str) -> str | None:
        """Return the text that is stored as *name*; None if there is none, or the
        storage fails."""
        if self._ended:
            return None
        pending = _PendingValue(name, Deferred())
        self._pending_values.append(pending)
        self._begin_work()
        return await maybe_deferred_to_future(pending.answer)

    def replace_at_close(self, name: str, successor: Successor) -> None:
        """When the crawl has ended, store what *successor* (called in a thread)
        returns, given the value that is stored then and the reason why the crawl ended;
        None: leave it as it is."""
        self._successors[name] = successor

    def publish(self, entry: Entry) -> None:
        """Save *entry*, then end its origin's lease. If no entry can be saved now, the
        lease ends all the same, so that others may fetch, and *entry* is saved once the
        storage works again."""
        self._keep_unsaved(entry)
        self.give_back_lease(entry.origin)
        self._begin_work()

    def give_back_lease(self, origin: str) -> None:
        """End the lease of *origin*, if this process has it."""
        if origin in self._leased:
            self._leased.remove(origin)
            self._to_release.add(origin)
            self._begin_work()

    async def close(self, reason: str = "") -> None:
        """Finish what is pending, end all leases and close the storage. *reason*: why
        the crawl ended."""
        self._closing_reason = reason
        for timer in (self._retry_timer, self._renewal_timer):
            if timer is not None:
                timer.cancel()
        # Operations that failed may be tried at once (from 0.0 on), since this is the
        # last chance. The dictionary is a new one, since a thread may be changing the
        # old one.
        self._calls.again_at = dict.fromkeys(self._calls.again_at, 0.0)
        self._to_release |= self._leased
        self._leased.clear()
        self._all_done = Deferred()
        self._begin_work()
        await maybe_deferred_to_future(self._all_done)

    def _keep_unsaved(self, entry: Entry) -> None:
        """Keep *entry* until it is saved. Beyond the limits, the oldest entries are
        lost."""
        self._forget_unsaved(entry.origin)
        self._unsaved[entry.origin] = entry
        self._unsaved_bytes += len(entry.packed)
        while self._has_too_many_unsaved:
            self._forget_unsaved(next(iter(self._unsaved)))
            self._stats.inc_value("rep/cache/unsaved")

    @property
    def _has_too_many_unsaved(self) -> bool:
        count = len(self._unsaved)
        is_too_large = self._unsaved_bytes > _MAX_UNSAVED_BYTES and count > 1
        return count > _MAX_UNSAVED or is_too_large

    def _forget_unsaved(self, origin: str) -> None:
        """Keep the unsaved entry of *origin* no longer, if there is one."""
        entry = self._unsaved.pop(origin, None)
        if entry is not None:
            self._unsaved_bytes -= len(entry.packed)

    def _begin_work(self) -> None:
        """Start :meth:`_work`, unless it runs already, or the storage is closed."""
        if not (self._running or self._ended):
            self._running = True
            deferred_from_coro(self._work())

    @property
    def _can_save(self) -> bool:
        """Whether there is something to save, and saving works or is due to be tried
        again."""
        return bool(self._unsaved) and self._calls.may_try(_SAVING)

    @property
    def _has_work(self) -> bool:
        """Whether there is something to ask of the storage now."""
        return bool(
            self._pending_turns
            or self._pending_values
            or self._pending_claims
            or self._to_renew
            or self._to_release
            or self._can_save
        )

    async def _work(self) -> None:
        """Call the storage until nothing is pending; then close it, if :meth:`close`
        was called."""
        while self._has_work:
            # A batch of each kind, so that no claim has to wait until everything is
            # written.
            await self._take_turns()
            await self._load_values()
            await self._answer_claims()
            await self._write()
        self._running = False
        if self._all_done is not None:  # close() was called
            self._ended = True
            for name, successor in self._successors.items():
                replacement = partial(successor, reason=self._closing_reason)
                await run_in_thread(self._calls.replace_value, name, replacement)
            close = self._calls.storage.close
            await run_in_thread(self._calls.attempt, _CLOSING, None, close)
            self._all_done.callback(None)

    async def _take_turns(self) -> None:
        """Answer a batch of calls of :meth:`turn`."""
        pending = self._pending_turns[:BATCH]
        del self._pending_turns[:BATCH]
        if not pending:
            return
        moments = await run_in_thread(self._calls.take_turns, pending)
        for turn, moment in zip(pending, moments, strict=True):
            turn.answer.callback(moment)

    async def _load_values(self) -> None:
        """Answer the calls of :meth:`load_value`, which are few."""
        pending = self._pending_values
        self._pending_values = []
        for asked in pending:
            value = await run_in_thread(self._calls.load_value, asked.name)
            asked.answer.callback(value)

    async def _answer_claims(self) -> None:
        """Answer a batch of claims, and renew leases."""
        # A lease that was given back meanwhile is not in _leased, and isn't renewed.
        renewed = [
            origin for origin in self._to_renew[:BATCH] if origin in self._leased
        ]
        del self._to_renew[:BATCH]
        room = BATCH - len(renewed)
        pending = list(islice(self._pending_claims, room))
        if not (pending or renewed):
            return
        claims = await run_in_thread(self._calls.claim, pending, renewed)
        self._down_stat.set(self._calls.is_failing)
        # Note which leases were granted, and answer whoever still waits.
        for asked, claim in zip(pending, claims, strict=True):
            if claim.granted:
                self._leased.add(asked.origin)
                self._to_release.discard(asked.origin)
            if asked in self._pending_claims:
                del self._pending_claims[asked]
                asked.answer.callback(claim)
            elif claim.granted:  # whoever asked was cancelled meanwhile
                self.give_back_lease(asked.origin)
        # Renew the leases in time.
        is_closing = self._all_done is not None
        if self._leased and self._renewal_timer is None and not is_closing:
            seconds = self._calls.lease_seconds / _RENEWALS
            self._renewal_timer = call_later(seconds, self._renew)

    def _renew(self) -> None:
        """Renew all leases, since a fetch may wait for its slot, follow redirects, and
        last until its timeout."""
        self._renewal_timer = None
        self._to_renew = list(self._leased)
        self._begin_work()

    async def _write(self) -> None:
        """Save a batch of entries, the oldest first, and end leases."""
        entries: list[Entry] = []
        if self._can_save:
            entries = list(islice(self._unsaved.values(), BATCH))
        to_release = self._leases_to_end_after(entries)
        self._to_release.difference_update(to_release)
        if not (entries or to_release):
            return
        is_saved = await run_in_thread(self._calls.write, entries, to_release)
        self._down_stat.set(self._calls.is_failing)
        if is_saved:
            for entry in entries:
                # A newer entry may have replaced this one meanwhile.
                if self._unsaved.get(entry.origin) is entry:
                    self._forget_unsaved(entry.origin)
        elif self._all_done is None:
            # The client isn't closing, so there is a next time. The first entry may be
            # why nothing was saved, so it is put behind the others.
            first = self._unsaved.get(entries[0].origin)
            if first is not None:
                self._keep_unsaved(first)
            self._retry_timer = call_later(_RETRY_SECONDS, self._begin_work)
        else:  # closing: there is no next time
            self._stats.inc_value("rep/cache/unsaved", len(self._unsaved))
            for origin in list(self._unsaved):
                self._forget_unsaved(origin)

    def _leases_to_end_after(self, entries: list[Entry]) -> list[str]:
        """Return the origins whose leases may end once *entries* are saved. When other
        processes see that a lease has ended, its origin's answer should be there. So a
        lease whose answer is saved by a later call ends after that call. If no entry
        can be saved now (*entries* is empty), all leases may end."""
        saved = {entry.origin for entry in entries}
        origins = []
        for origin in self._to_release:
            if not entries or origin in saved or origin not in self._unsaved:
                origins.append(origin)
        return origins[:BATCH]


def make_storage(crawler: Crawler, settings: RepSettings) -> Storage:
    """Return the storage that ``REP_CACHE_STORAGE`` names; ``SettingsError`` if it
    can't be made."""
    name = settings.cache_storage
    try:
        storage_class = load_object(name)
        if not (isinstance(storage_class, type) and issubclass(storage_class, Storage)):
            raise TypeError("it is not a subclass of scrapy_rep.storages.Storage")
        return build_from_crawler(storage_class, crawler)
    except SettingsError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise SettingsError(
            f"REP_CACHE_STORAGE is {name!r}, which can't be used: {text_of(error)}."
            f"{_hint(name, error)}"
        ) from error


def _hint(name: object, error: Exception) -> str:
    """Return a sentence about what to do, after a space; empty if we don't know. *name*
    is what REP_CACHE_STORAGE holds."""
    # The name of the module that can't be imported.
    missing = (error.name or "") if isinstance(error, ImportError) else ""
    if missing.startswith("redis"):
        return ' Try "pip install scrapy-rep[redis]".'
    meant = _meant_by(name) if isinstance(name, str) else ""
    return f" Did you mean {meant}?" if meant else ""


def _meant_by(path: str) -> str:
    """Return the path of the storage of ours that *path* misspells; empty if *path* is
    right, or doesn't look like one of ours."""
    folder, _, name = path.rpartition(".")
    package = folder.partition(".")[0]
    # A class in another package is the project's. A name without a package is taken for
    # one of ours.
    ours = (_PACKAGE.partition(".")[0], "storages")
    if package and not get_close_matches(package, ours):
        return ""
    # Case is ignored in the comparison.
    names = {storage.lower(): storage for storage in _OUR_STORAGES}
    similar = get_close_matches(name.lower(), names, n=1, cutoff=_SIMILARITY)
    if not similar:
        return ""
    meant = f"{_PACKAGE}.{names[similar[0]]}"
    return "" if meant == path else meant


def open_storage(crawler: Crawler, settings: RepSettings) -> StorageClient | None:
    """Return the client of the crawl's storage; None for plain memory, which needs
    none; ``SettingsError`` if the storage can't be made."""
    storage = make_storage(crawler, settings)
    if type(storage) is MemoryStorage:  # not a user's subclass
        return None
    return StorageClient(crawler, storage, settings.download_timeout)
