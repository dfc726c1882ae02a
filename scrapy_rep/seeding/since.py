"""From which date on pages of sitemaps are wanted: ``REP_SITEMAP_SINCE``. With ``"last"``, a storage
keeps when the spider's last crawl that ended in order began."""

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

# Before the spider's name, in the name of the stored value.
_VALUE = "last-crawl:"
# Scrapy's reason for the end of a crawl that nobody has stopped.
_IN_ORDER = "finished"


class Since:
    """Pages that were changed before :attr:`date` are not wanted."""

    def __init__(self, context: CrawlContext, storage: StorageClient | None) -> None:
        setting = context.settings.sitemap_since
        self._context = context
        self._storage = storage
        self._is_last = setting == LAST
        self.date = setting if isinstance(setting, datetime) else None
        """None: all pages are wanted."""
        self._stored: str | None = None  # as the crawl began
        self._began_at: float | None = None

    async def begin(self) -> None:
        """Ask the storage for the date, if that is what the setting says."""
        if not self._is_last:
            return
        storage, spider = self._storage, self._context.spider
        if storage is None or not storage.keeps_values:
            kind = MemoryStorage.__name__ if storage is None else storage.name
            logger.warning(
                "REP_SITEMAP_SINCE is 'last', but %(storage)s doesn't keep when a crawl began, so all pages of "
                "sitemaps are requested. Set REP_CACHE_STORAGE to scrapy_rep.storages.SqliteStorage or "
                "RedisStorage.",
                {"storage": kind},
                extra=self._context.extra,
            )
            return
        name = _VALUE + (spider.name if spider is not None else "")
        self._stored = await storage.load_value(name)
        before = self._read(self._stored)
        self.date = moment_of(before)
        storage.replace_at_close(name, self._successor)
        if before is None:
            message = "No crawl of this spider that finished is on record: all pages of sitemaps are requested"
        else:
            message = (
                "Pages of sitemaps are requested if they were changed since %(date)s, when this spider's last "
                "crawl that finished began"
            )
        logger.info(message, {"date": iso(before)}, extra=self._context.extra)

    def complete(self, began_at: float) -> None:
        """Note that this crawl has seen all that sitemaps listed. *began_at*: when it began, in seconds
        since the epoch."""
        self._began_at = began_at

    def _successor(self, value: str | None, *, reason: str) -> str | None:
        """Return the date for the next crawl, given the stored one; None if this crawl doesn't count."""
        began_at = self._began_at
        if reason != _IN_ORDER or began_at is None:
            return None
        before = self._read(value)
        if before is not None:
            # If the date is another one by now, a crawl of this spider that ran beside this one has ended,
            # and each may have read sitemaps for the other: the earlier beginning counts.
            is_alone = value == self._stored
            began_at = max(before, began_at) if is_alone else min(before, began_at)
        return iso(began_at)

    def _read(self, value: str | None) -> float | None:
        """Return a stored date in seconds since the epoch; None if it is missing, damaged or in the future:
        a clock that was wrong must not keep pages away."""
        date = read_date(value) if value else None
        is_past = date is not None and 0 < date.timestamp() <= self._context.clock()
        return date.timestamp() if date is not None and is_past else None
