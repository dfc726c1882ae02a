"""How a crawl uses a storage: in threads, so that it can't block the event loop; in batches, so
that it may be slow; and, once it failed, not at all for a while. A lease per origin lets only one
process fetch its robots.txt."""

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

# Renewals before a lease would end: one may be late.
_RENEWALS = 3
# Seconds for which calls of a kind that failed are skipped.
_RETRY_SECONDS = 10.0
# Kinds of calls. Each may fail alone: a full disk may have room for a lease.
_LOAD, _LEASE, _RELEASE, _SAVE, _CLOSE = "load", "lease", "release", "save", "close"
_TURN = "turn"
# Answers, and bytes of their bodies, kept while the storage fails. The oldest are dropped.
_MAX_UNSAVED, _MAX_UNSAVED_BYTES = 10_000, 16_000_000
# Where ours are, for who misspells one; how similar a name must be; 1: identical.
_PACKAGE = "scrapy_rep.storages"
_OURS = ("MemoryStorage", "RedisStorage", "SqliteStorage")
_SIMILAR = 0.55


class Successor(Protocol):
    """Returns what replaces a stored value; None: nothing does."""

    def __call__(self, value: str | None, *, reason: str) -> str | None: ...


class Claim(NamedTuple):
    """A storage's answer to a process that may have to fetch a robots.txt."""

    entry: Entry | None
    granted: bool
    """Whether to fetch it: no other process does."""


class _PendingClaim(NamedTuple):
    origin: str
    is_enough: Callable[[Entry], bool]
    answer: Deferred[Claim]

    def settled_by(self, found: dict[str, Entry]) -> bool:
        entry = found.get(self.origin)
        return entry is not None and self.is_enough(entry)


class _PendingTurn(NamedTuple):
    origin: str
    seconds: float
    earliest: float
    """By the monotonic clock."""
    answer: Deferred[float | None]


class _PendingValue(NamedTuple):
    name: str
    answer: Deferred[str | None]


class _Calls:
    """Calls a storage for one process, blocking. A failure is logged once, and such calls are
    skipped for a while: as if the storage were empty, and every lease free."""

    def __init__(
        self, crawler: Crawler, storage: Storage, lease_seconds: float
    ) -> None:
        self._crawler = crawler
        self.storage = storage
        self._name = type(storage).__name__
        self.lease_seconds = lease_seconds
        self._owner = uuid4().hex
        self._told_unreadable = False
        self.again_at: dict[str, float] = {}
        """When to try again, for each kind that failed."""

    @property
    def fails(self) -> bool:
        """Whether the last call of some kind failed."""
        return bool(self.again_at)

    def works(self, kind: str) -> bool:
        """Whether calls of *kind* work, or are due to be tried again."""
        return self.again_at.get(kind, 0.0) <= time.monotonic()

    def attempt(self, kind: str, otherwise: T, call: Callable[[], T]) -> T:
        """Return what *call* returns; *otherwise* if it fails, or its *kind* failed recently."""
        if not self.works(kind):
            return otherwise
        try:
            result = call()
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

    def claim(self, asked: list[_PendingClaim], renewed: list[str]) -> list[Claim]:
        """Renew leases of *renewed*. Return answers to *asked*."""
        found = self._load([one.origin for one in asked])
        origins = [one.origin for one in asked if not one.settled_by(found)]
        granted = self._lease([*renewed, *origins]).intersection(origins)
        # Another process may have saved its answer between the two calls.
        found |= self._load([*granted])
        late = {
            one.origin
            for one in asked
            if one.origin in granted and one.settled_by(found)
        }
        self._release([*late])
        granted -= late
        return [Claim(found.get(one.origin), one.origin in granted) for one in asked]

    def _lease(self, origins: list[str]) -> set[str]:
        """Return which *origins* to fetch: all, if the storage fails."""
        if not origins or not self.works(_LOAD):
            return set(origins)
        lease, seconds = self.storage.lease_many, self.lease_seconds
        return self.attempt(
            _LEASE, set(origins), lambda: set(lease(origins, self._owner, seconds))
        )

    def _release(self, origins: list[str]) -> None:
        if origins:
            self.attempt(
                _RELEASE, None, lambda: self.storage.release_many(origins, self._owner)
            )

    def _load(self, origins: list[str]) -> dict[str, Entry]:
        return (
            self.attempt(_LOAD, {}, lambda: self._load_checked(origins))
            if origins
            else {}
        )

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

    def take_turns(self, asked: list[_PendingTurn]) -> list[float | None]:
        """Return the moment of each, by the monotonic clock; None if the storage fails."""
        waits = self.attempt(_TURN, None, lambda: self._take_turns(asked))
        # From when the answer is here: no moment may come too early.
        now = time.monotonic()
        return [None] * len(asked) if waits is None else [now + wait for wait in waits]

    def _take_turns(self, asked: list[_PendingTurn]) -> list[float]:
        now = time.monotonic()
        turns = [
            Turn(one.origin, one.seconds, max(0.0, one.earliest - now)) for one in asked
        ]
        waits = self.storage.turn_many(turns)
        for turn, wait in zip(turns, waits, strict=True):
            if (
                not turn.wait - 0.001
                <= wait
                <= turn.wait + (MAX_TURNS + 1) * turn.seconds
            ):
                raise ValueError(f"turn_many() returned {wait!r:.20} for {turn}")
        return waits

    def load_value(self, name: str) -> str | None:
        """Return a value; None if there is none, or the storage fails; "" if it is nothing that was saved."""
        value: object = self.attempt(_LOAD, None, lambda: self.storage.load_value(name))
        if value is None or (isinstance(value, str) and len(value) <= MAX_VALUE):
            return value
        return ""

    def replace_value(
        self, name: str, successor: Callable[[str | None], str | None]
    ) -> None:
        """Store what *successor* makes of the value; None: leave it as it is."""

        def replace() -> None:
            value = successor(self.load_value(name))
            if value is not None:
                self.storage.save_value(name, value)

        self.attempt(_SAVE, None, replace)

    def write(self, entries: list[Entry], released: list[str]) -> bool:
        """Save *entries*, then end the leases of *released*. Return whether *entries* are saved."""
        if entries:
            self.attempt(_SAVE, None, lambda: self.storage.save_many(entries))
        self._release(released)
        return not entries or _SAVE not in self.again_at


class StorageClient:
    """Calls a storage, one call at a time; what arrives meanwhile is batched into the next. Closes
    the storage with the spider."""

    def __init__(
        self, crawler: Crawler, storage: Storage, lease_seconds: float
    ) -> None:
        """*lease_seconds*: how long others wait at most for a process that died."""
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._down = Gauge(crawler.stats, "rep/down/cache")
        self._calls = _Calls(crawler, storage, lease_seconds)
        self._asked: dict[_PendingClaim, None] = {}
        """Those whose answers somebody waits for."""
        self._turns: list[_PendingTurn] = []
        self.name = type(storage).__name__
        self.shares_turns = type(storage).turn_many is not Storage.turn_many
        """Whether processes that share the storage can take turns by :meth:`turn`."""
        self._values: list[_PendingValue] = []
        self.keeps_values = type(storage).save_value is not Storage.save_value
        """Whether the storage has values, for :meth:`load_value`."""
        self._successors: dict[str, Successor] = {}
        """What replaces a value when the storage closes, by the value's name."""
        self._unsaved: dict[str, Entry] = {}
        """The latest answer of each origin that isn't saved yet, oldest first."""
        self._unsaved_bytes = 0
        self._leased: set[str] = set()
        self._renewed: list[str] = []
        self._released: set[str] = set()
        self._running = False
        self._retry: CallLaterResult | None = None
        self._renewal: CallLaterResult | None = None
        self._closed: Deferred[None] | None = None
        self._reason = ""
        self._ended = False
        """Whether the storage is closed or closing: nothing is asked of it any more."""
        # A method, which signals refer to weakly: the table of handlers belongs to the process, and
        # would keep a closure, and so the crawl, in memory.
        crawler.signals.connect(self.close, signals.spider_closed)

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the stored entry; if it isn't good enough (*is_enough* is called in a thread), try
        to take the lease. While the storage fails there are no entries, and every process may
        fetch."""
        if self._ended or not self._calls.works(_LOAD):
            return Claim(None, granted=True)
        asked = _PendingClaim(origin, is_enough, Deferred())
        self._asked[asked] = None
        self._go()
        try:
            return await maybe_deferred_to_future(asked.answer)
        except (
            BaseException
        ):  # cancelled, or thrown away; the thread may get the lease yet
            self._asked.pop(asked, None)
            self.give_back(origin)
            raise

    async def turn(self, origin: str, seconds: float, wait: float) -> float | None:
        """Return the moment of the monotonic clock at which this process may send the next request to
        *origin*, *wait* seconds from now at the earliest: at least *seconds* after those of all
        processes that share the storage. None if the storage fails."""
        if self._ended or not self._calls.works(_TURN):
            return None
        earliest = time.monotonic() + wait
        asked = _PendingTurn(origin, seconds, earliest, Deferred())
        self._turns.append(asked)
        self._go()
        return await maybe_deferred_to_future(asked.answer)

    async def load_value(self, name: str) -> str | None:
        """Return the text that is stored as *name*; None if there is none, or the storage fails."""
        if self._ended:
            return None
        asked = _PendingValue(name, Deferred())
        self._values.append(asked)
        self._go()
        return await maybe_deferred_to_future(asked.answer)

    def replace_at_close(self, name: str, successor: Successor) -> None:
        """When the crawl has ended, store what *successor* (called in a thread) returns, given the value
        that is stored then and the reason why the crawl ended; None: leave it as it is."""
        self._successors[name] = successor

    def publish(self, entry: Entry) -> None:
        """Save *entry*, then end its origin's lease: even if nothing can be saved now, so that
        others may fetch; *entry* is saved once the storage works again."""
        self._keep(entry)
        self.give_back(entry.origin)
        self._go()

    def give_back(self, origin: str) -> None:
        if origin in self._leased:
            self._leased.remove(origin)
            self._released.add(origin)
            self._go()

    async def close(self, reason: str = "") -> None:
        """Finish everything else, end all leases and close the storage. *reason*: why the crawl ended."""
        self._reason = reason
        for timer in (self._retry, self._renewal):
            if timer is not None:
                timer.cancel()
        self._calls.again_at = dict.fromkeys(
            self._calls.again_at, 0.0
        )  # the last chance
        self._released |= self._leased
        self._leased.clear()
        self._closed = Deferred()
        self._go()
        await maybe_deferred_to_future(self._closed)

    def _keep(self, entry: Entry) -> None:
        """Keep *entry* until it is saved. Beyond the limits, the oldest are lost."""
        self._forget(entry.origin)
        self._unsaved[entry.origin] = entry
        self._unsaved_bytes += len(entry.packed)
        while len(self._unsaved) > _MAX_UNSAVED or (
            self._unsaved_bytes > _MAX_UNSAVED_BYTES and len(self._unsaved) > 1
        ):
            self._forget(next(iter(self._unsaved)))
            self._stats.inc_value("rep/cache/unsaved")

    def _forget(self, origin: str) -> None:
        if (entry := self._unsaved.pop(origin, None)) is not None:
            self._unsaved_bytes -= len(entry.packed)

    def _go(self) -> None:
        if not (self._running or self._ended):
            self._running = True
            deferred_from_coro(self._work())

    @property
    def _saves(self) -> bool:
        return bool(self._unsaved) and self._calls.works(_SAVE)

    async def _work(self) -> None:
        while (
            self._turns
            or self._values
            or self._asked
            or self._renewed
            or self._released
            or self._saves
        ):
            await self._take_turns()
            await self._load_values()
            await (
                self._answer()
            )  # between any two writes: a claim doesn't wait for all of them
            await self._write()
        self._running = False
        if self._closed is not None:
            self._ended = True
            for name, successor in self._successors.items():
                after = partial(successor, reason=self._reason)
                await run_in_thread(self._calls.replace_value, name, after)
            await run_in_thread(
                self._calls.attempt, _CLOSE, None, self._calls.storage.close
            )
            self._closed.callback(None)

    async def _take_turns(self) -> None:
        asked = self._turns[:BATCH]
        del self._turns[:BATCH]
        if not asked:
            return
        moments = await run_in_thread(self._calls.take_turns, asked)
        for one, moment in zip(asked, moments, strict=True):
            one.answer.callback(moment)

    async def _load_values(self) -> None:
        asked, self._values = self._values, []
        for pending in asked:
            pending.answer.callback(
                await run_in_thread(self._calls.load_value, pending.name)
            )

    async def _answer(self) -> None:
        renewed = [one for one in self._renewed[:BATCH] if one in self._leased]
        del self._renewed[:BATCH]
        asked = list(islice(self._asked, BATCH - len(renewed)))
        if not (asked or renewed):
            return
        claims = await run_in_thread(self._calls.claim, asked, renewed)
        self._down.set(self._calls.fails)
        for one, claim in zip(asked, claims, strict=True):
            if claim.granted:
                self._leased.add(one.origin)
                self._released.discard(one.origin)
            if one in self._asked:
                del self._asked[one]
                one.answer.callback(claim)
            elif claim.granted:
                self.give_back(one.origin)
        if self._leased and self._renewal is None and self._closed is None:
            self._renewal = call_later(
                self._calls.lease_seconds / _RENEWALS, self._renew
            )

    def _renew(self) -> None:
        # A fetch may wait for its slot, follow redirects, and last until its timeout.
        self._renewal = None
        self._renewed = list(self._leased)
        self._go()

    async def _write(self) -> None:
        entries = list(islice(self._unsaved.values(), BATCH)) if self._saves else []
        saved = {entry.origin for entry in entries}
        released = [
            origin
            for origin in self._released
            # The lease of an answer that a later call saves ends after that.
            if not entries or origin in saved or origin not in self._unsaved
        ][:BATCH]
        self._released.difference_update(released)
        if not (entries or released):
            return
        is_saved = await run_in_thread(self._calls.write, entries, released)
        self._down.set(self._calls.fails)
        if not is_saved:
            if self._closed is None:
                if first := self._unsaved.get(entries[0].origin):
                    self._keep(first)  # to the end: it may be the reason
                self._retry = call_later(_RETRY_SECONDS, self._go)
                return
            entries = list(self._unsaved.values())  # nothing can be saved any more
            self._stats.inc_value("rep/cache/unsaved", len(entries))
        for entry in entries:
            if (
                self._unsaved.get(entry.origin) is entry
            ):  # unless a newer one has replaced it
                self._forget(entry.origin)


def make_storage(crawler: Crawler, settings: RepSettings) -> Storage:
    """Return the storage that ``REP_CACHE_STORAGE`` names; ``SettingsError`` if it can't be made."""
    name = settings.cache_storage
    try:
        made = load_object(name)
        if not (isinstance(made, type) and issubclass(made, Storage)):
            raise TypeError("it is not a subclass of scrapy_rep.storages.Storage")
        return build_from_crawler(made, crawler)
    except SettingsError:
        raise
    except Exception as error:  # a user's class may raise anything
        hint = ""
        if isinstance(error, ImportError) and (error.name or "").startswith("redis"):
            hint = ' Try "pip install scrapy-rep[redis]".'
        elif isinstance(name, str) and (meant := _meant_by(name)):
            hint = f" Did you mean {meant}?"
        message = f"REP_CACHE_STORAGE is {name!r}, which can't be used: {text_of(error)}.{hint}"
        raise SettingsError(message) from error


def _meant_by(path: str) -> str:
    """Return the path of the storage of ours that *path* misspells; empty if it is none of ours, or
    right."""
    folder, _, name = path.rpartition(".")
    package = folder.partition(".")[0]
    if package and not get_close_matches(
        package, [_PACKAGE.partition(".")[0], "storages"]
    ):
        return ""
    ours = {known.lower(): f"{_PACKAGE}.{known}" for known in _OURS}
    similar = get_close_matches(name.lower(), ours, n=1, cutoff=_SIMILAR)
    meant = ours[similar[0]] if similar else ""
    return meant if meant != path else ""


def open_storage(crawler: Crawler, settings: RepSettings) -> StorageClient | None:
    """Return the client of the crawl's storage; None for plain memory, which needs none;
    ``SettingsError`` if the storage can't be made."""
    storage = make_storage(crawler, settings)
    if type(storage) is MemoryStorage:  # not a user's subclass
        return None
    return StorageClient(crawler, storage, settings.download_timeout)
