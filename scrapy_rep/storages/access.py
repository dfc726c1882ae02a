"""A storage as the crawl uses it: in threads, so that neither disk nor network blocks the event
loop; and when it fails, not at all for a while, since the crawl has to go on."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import uuid4

from scrapy import signals
from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred, DeferredLock

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.storages.base import Entry, Storage, UnreadableEntry
from scrapy_rep.storages.memory import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

T = TypeVar("T")

# Seconds until a storage that failed is tried again, by one call.
_RETRY_SECONDS = 10.0
# How often a lease is renewed before it ends: one renewal may come late.
_RENEWALS = 3

# Kinds of calls. Each may fail by itself: on a full disk there may be room for a lease.
_LOAD, _LEASE, _RELEASE, _SAVE = "load", "lease", "release", "save"


def make_storage(crawler: Crawler, settings: RepSettings) -> Storage:
    """Return the storage that ``REP_CACHE_STORAGE`` names.

    :raises SettingsError: if it can't be made
    """
    name = settings.cache_storage
    wrong = f"REP_CACHE_STORAGE is {name!r}"
    try:
        made = load_object(name)
    except (ImportError, NameError, ValueError) as error:
        hint = ""
        if isinstance(error, ImportError) and (error.name or "").startswith("redis"):
            hint = ' Perhaps "pip install scrapy-rep[redis]" was forgotten.'
        raise SettingsError(f"{wrong}, which can't be imported: {error}.{hint}") from None
    if not (isinstance(made, type) and issubclass(made, Storage)):
        raise SettingsError(f"{wrong}, but must be a subclass of scrapy_rep.storages.Storage.")
    try:
        return build_from_crawler(made, crawler)
    except SettingsError:
        raise
    except Exception as error:
        # Whatever a class of the user's raises.
        raise SettingsError(f"{wrong}: {text_of(error)}.") from error


def open_storage(
    crawler: Crawler, settings: RepSettings, clock: Callable[[], float]
) -> StorageAccess | None:
    """Return the storage for a crawl; None for memory alone, which needs no access.

    :param clock: seconds since the epoch

    :raises SettingsError: if it can't be made
    """
    storage = make_storage(crawler, settings)
    if type(storage) is MemoryStorage:  # not a user's class that is made of it
        return None
    access = StorageAccess(crawler, storage, settings.download_timeout)

    def spider_opened() -> None:
        access.purge(clock() - settings.cache_expiry)

    # Weak, as Scrapy's signals are, this one would be gone at once.
    crawler.signals.connect(spider_opened, signals.spider_opened, weak=False)
    crawler.signals.connect(access.close, signals.spider_closed)
    return access


class Claim(NamedTuple):
    """What a storage says when a robots.txt is to be asked for."""

    entry: Entry | None
    """What is kept of the origin."""
    granted: bool
    """Whether it may be asked for: no other process does."""


class StorageAccess:
    """One storage, as one crawl uses it."""

    def __init__(self, crawler: Crawler, storage: Storage, lease_seconds: float) -> None:
        """:param lease_seconds: how long others wait at most for a process that has died"""
        self._crawler = crawler
        self._storage = storage
        self._lease_seconds = lease_seconds
        self._owner = uuid4().hex
        self._turn = DeferredLock()
        self._name = type(storage).__name__
        self._again_at: dict[str, float] = {}
        """When kinds of calls that fail are tried again. The log tells once, until all work."""
        self._told_unreadable = False
        self._leased: set[str] = set()
        self._renewal: CallLaterResult | None = None

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the stored entry; if it isn't good enough, try to take the lease. While the storage
        fails there is no entry, and every process may ask.

        :param is_enough: called in a thread
        """
        waiting = self._queue(lambda: self._claim(origin, is_enough))
        try:
            claim = await maybe_deferred_to_future(waiting)
        except BaseException:
            self.give_back(origin)  # nothing waits any more, but the thread may get the lease yet
            raise
        if claim.granted:
            self._leased.add(origin)
            self._renew_later()
        return claim

    def publish(self, entry: Entry) -> None:
        """Keep *entry* and end the lease of its origin, soon."""
        self._leased.discard(entry.origin)
        self._queue(lambda: self._publish(entry))

    def give_back(self, origin: str) -> None:
        """End the lease of *origin*, soon: there was no answer."""
        self._leased.discard(origin)
        self._queue(lambda: self._attempt(_RELEASE, self._storage.release, origin, self._owner))

    def purge(self, before: float) -> None:
        """Forget what was not updated since *before* (seconds since the epoch), soon."""
        self._queue(lambda: self._attempt(_SAVE, self._storage.purge, before))

    async def close(self) -> None:
        """End all leases and close the storage, when what is under way is done."""
        if self._renewal is not None:
            self._renewal.cancel()
        for origin in list(self._leased):
            self.give_back(origin)
        await maybe_deferred_to_future(self._queue(self._close))

    # In the event loop

    def _queue(self, job: Callable[[], T]) -> Deferred[T]:
        """Run *job* in a thread, after those queued before. It runs to its end even if its caller is
        cancelled."""
        done: Deferred[T] = Deferred()
        running = self._turn.run(lambda: deferred_from_coro(run_in_thread(job)))
        running.addBoth(lambda result: None if done.called else done.callback(result))
        return done

    def _renew_later(self) -> None:
        if self._renewal is None:
            self._renewal = call_later(self._lease_seconds / _RENEWALS, self._renew)

    def _renew(self) -> None:
        self._renewal = None
        for origin in self._leased:
            # A redirect takes its own time.
            self._queue(lambda origin=origin: self._lease(origin))  # type: ignore[misc]
        if self._leased:
            self._renew_later()

    # In a thread, one at a time

    def _claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        entry = self._load(origin)
        if entry is not None and is_enough(entry):
            return Claim(entry, granted=False)
        if not self._lease(origin):
            return Claim(entry, granted=False)
        # Another process's answer may have come between the two.
        entry = self._load(origin)
        if entry is not None and is_enough(entry):
            self._attempt(_RELEASE, self._storage.release, origin, self._owner)
            return Claim(entry, granted=False)
        return Claim(entry, granted=True)

    def _publish(self, entry: Entry) -> None:
        self._attempt(_SAVE, self._storage.save, entry)
        self._attempt(_RELEASE, self._storage.release, entry.origin, self._owner)

    def _close(self) -> None:
        try:
            self._storage.close()
        except Exception as error:  # noqa: BLE001
            self._failed(_SAVE, error)

    def _lease(self, origin: str) -> bool:
        lease = self._storage.lease
        return self._attempt(_LEASE, lease, origin, self._owner, self._lease_seconds) is not False

    def _load(self, origin: str) -> Entry | None:
        return self._attempt(_LOAD, self._checked, origin)

    def _checked(self, origin: str) -> Entry | None:
        try:
            entry = self._storage.load(origin)
            return None if entry is None else entry.check(origin)
        except UnreadableEntry as error:
            if not self._told_unreadable:
                self._told_unreadable = True
                self._log(
                    logging.WARNING,
                    f"What the robots.txt cache has of {origin} is ignored, since it is {error}. "
                    "Others like it are not reported.",
                )
            return None

    def _attempt(self, kind: str, method: Callable[..., T], *arguments: object) -> T | None:
        """Call a method of the storage; None if that fails, or has failed not long ago."""
        if self._again_at.get(kind, -math.inf) > time.monotonic():
            return None
        try:
            result = method(*arguments)
        except Exception as error:  # noqa: BLE001
            # Whatever a storage raises: a full disk, a server that is gone, a bug of the user's.
            self._failed(kind, error)
            return None
        if self._again_at.pop(kind, None) is not None and not self._again_at:
            self._log(logging.INFO, f"The robots.txt cache ({self._name}) works again.")
        return result

    def _failed(self, kind: str, error: Exception) -> None:
        if not self._again_at:
            self._log(
                logging.WARNING,
                f"The robots.txt cache ({self._name}) can't be "
                f"{'read' if kind == _LOAD else 'written'}: "
                f"{text_of(error)}. The crawl goes on with what is in memory, and "
                "tries again now and then.",
            )
        self._again_at[kind] = time.monotonic() + _RETRY_SECONDS

    def _log(self, level: int, message: str) -> None:
        extra = {"spider": self._crawler.spider}
        logger.log(level, "%(message)s", {"message": message}, extra=extra)
