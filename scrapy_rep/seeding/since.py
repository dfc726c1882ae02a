"""Determines from which date on pages of sitemaps are wanted (``REP_SITEMAP_SINCE``).
With ``"last"``, that is when the spider's last crawl that ended in order began, which a
storage keeps."""

from __future__ import annotations

from datetime import datetime

from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.protocol.freshness import read_date
from scrapy_rep.settings import LAST
from scrapy_rep.storages import MemoryStorage
from scrapy_rep.storages.client import StorageClient
from scrapy_rep.text import iso, moment_of

logger = get_logger(__name__)

# The name of the stored value begins with this; the spider's name follows.
_NAME_PREFIX = "last-crawl:"
# Scrapy's reason for the end of a crawl that nobody has stopped.
_ENDED_IN_ORDER = "finished"


class Since:
    """Pages that were changed before :attr:`date` are not wanted."""

    def __init__(self, context: CrawlContext, storage: StorageClient | None) -> None:
        setting = context.settings.sitemap_since
        self._context = context
        self._storage = storage
        self._is_last = setting == LAST
        self.date: datetime | None = None
        """None if all pages are wanted."""
        if isinstance(setting, datetime):
            self.date = setting
        # The value in the storage as the crawl began.
        self._stored_at_start: str | None = None
        # When this crawl began, in seconds since the epoch. None until the crawl has
        # seen all that sitemaps listed.
        self._began_at: float | None = None

    async def load_date(self) -> None:
        """Ask the storage for the date, if the setting is ``"last"``."""
        if not self._is_last:
            return
        storage = self._storage
        if storage is None or not storage.keeps_values:
            self._warn_of_storage(storage)
            return
        spider = self._context.spider
        spider_name = "" if spider is None else spider.name
        name = _NAME_PREFIX + spider_name
        self._stored_at_start = await storage.load_value(name)
        last_began_at = self._seconds_of(self._stored_at_start)
        self.date = moment_of(last_began_at)
        storage.replace_at_close(name, self._value_for_next)
        if last_began_at is None:
            message = "No crawl of this spider that finished is on record: all pages of sitemaps are requested"
        else:
            message = (
                "Pages of sitemaps are requested if they were changed since %(date)s, when this spider's last "
                "crawl that finished began"
            )
        values = {"date": iso(last_began_at)}
        logger.info(message, values, extra=self._context.extra)

    def _warn_of_storage(self, storage: StorageClient | None) -> None:
        """Warn that *storage* (None: there is only the memory) can't keep when a crawl
        began."""
        storage_name = MemoryStorage.__name__
        if storage is not None:
            storage_name = storage.name
        logger.warning(
            "REP_SITEMAP_SINCE is 'last', but %(storage)s doesn't keep when a crawl began, so all pages of "
            "sitemaps are requested. Set REP_CACHE_STORAGE to scrapy_rep.storages.SqliteStorage or "
            "RedisStorage.",
            {"storage": storage_name},
            extra=self._context.extra,
        )

    def note_all_seen(self, began_at: float) -> None:
        """Note that this crawl has seen all that sitemaps listed. *began_at*: when the
        crawl began, in seconds since the epoch."""
        self._began_at = began_at

    def _value_for_next(self, value: str | None, *, reason: str) -> str | None:
        """Return the value to store for the next crawl; None to leave the *value* that
        is stored now. *reason*: why this crawl ends."""
        began_at = self._began_at
        if reason != _ENDED_IN_ORDER or began_at is None:
            return None
        # The value is when another crawl of this spider began.
        other_began_at = self._seconds_of(value)
        if other_began_at is None:
            return iso(began_at)
        if value == self._stored_at_start:
            # Nobody has changed the value since this run began. If it is later than
            # when this crawl began, it stays, since it may be of a crawl between two
            # runs with this JOBDIR.
            return iso(max(other_began_at, began_at))
        # The other crawl ran beside this one, and has ended. Each may have read
        # sitemaps for the other, so the earlier beginning counts.
        return iso(min(other_began_at, began_at))

    def _seconds_of(self, value: str | None) -> float | None:
        """Return a stored date in seconds since the epoch; None if it is missing,
        damaged or in the future. (A clock that was wrong must not keep pages away.)"""
        date = read_date(value) if value else None
        if date is None:
            return None
        seconds = date.timestamp()
        is_past = 0 < seconds <= self._context.clock()
        return seconds if is_past else None
