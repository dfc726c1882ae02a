"""What became of a sitemap: one line in the log, and the stats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.log import Few, Sparse, get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.seeding.selection import Reason

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from scrapy_rep.protocol.sitemaps.reader import SitemapReader
    from scrapy_rep.seeding.selection import Sorter

logger = get_logger(__name__)


# How many warnings one origin's sitemaps get: an index may list 50,000 that are missing. Beyond
# _ORIGINS, origins are counted together.
_TOLD = 5
_ORIGINS = 10_000


class _Told:
    """How much one crawl has told of sitemaps."""

    def __init__(self, crawler: Crawler) -> None:
        self._of: dict[str, Few] = {}
        self.read = Sparse(logger, "sitemaps read")
        self.unread = Sparse(logger, "sitemaps not read")
        crawler.signals.connect(self._closed, scrapy_signals.spider_closed)

    def one_more(self, origin: str) -> bool:
        """Whether another one of *origin* may be warned of."""
        if origin not in self._of and len(self._of) >= _ORIGINS:
            origin = ""  # the others, together
        return self._of.setdefault(origin, Few(_TOLD)).one_more()

    def _closed(self, spider: Spider) -> None:
        left_out = [few.left_out for few in self._of.values() if few.left_out]
        if left_out:
            logger.warning(
                "%(count)s with sitemaps, of %(origins)s, logged at DEBUG level alone",
                {
                    "count": counted(sum(left_out), "more problem"),
                    "origins": counted(len(left_out), "origin"),
                },
                extra={"spider": spider},
            )


# Nothing in the values may hold on to the crawlers.
_told: WeakKeyDictionary[Crawler, _Told] = WeakKeyDictionary()


class Report:
    """Tells of one sitemap."""

    def __init__(self, crawler: Crawler, url: str, origin: str) -> None:
        """:param origin: whose robots.txt led to it"""
        assert crawler.stats is not None
        self._origin = origin
        self._crawler = crawler
        self._stats = crawler.stats
        self._url = url

    def read(self, reader: SitemapReader, sorter: Sorter) -> None:
        """It was read."""
        inc_value = self._stats.inc_value
        inc_value("rep/sitemaps/fetched")
        inc_value("rep/sitemaps/urls", reader.count)
        rejected = {reason: count for reason, count in sorter.rejected.items() if count}
        for reason, count in rejected.items():
            inc_value(reason.value, count)
        why = ", ".join(f"{count:,} {reason.text}" for reason, count in rejected.items())
        assert reader.kind is not None
        self._tell(
            self._told.read,
            "Sitemap %(url)s (%(kind)s): %(entries)s, %(accepted)s accepted%(unproven)s%(why)s",
            kind=reader.kind.value,
            entries=counted(reader.count, "entry", "entries"),
            accepted=f"{sorter.accepted:,}",
            unproven=f" (waiting for robots.txt of their hosts: {sorter.unproven:,})"
            if sorter.unproven
            else "",
            why=f"; not accepted: {why}" if why else "",
        )
        if reader.problem:
            self._warn("Sitemap %(url)s: %(problem)s", problem=reader.problem)

    def failed(self, why: str, *, quiet: bool) -> None:
        """It can't be read.

        :param quiet: that was to be expected
        """
        self._stats.inc_value("rep/sitemaps/failed")
        message = "Sitemap %(url)s was not read: %(why)s"
        if quiet:
            self._tell(self._told.unread, message, why=why)
        else:
            self._warn(message, why=why)

    def too_many(self) -> None:
        """It is one too many."""
        self._stats.inc_value(Reason.LIMIT.value)
        self._warn(
            "Sitemap %(url)s is not read: %(origin)s has as many as REP_SITEMAP_MAX_FILES allows",
            origin=self._origin,
        )

    @property
    def _told(self) -> _Told:
        told = _told.get(self._crawler)
        if told is None:
            told = _told[self._crawler] = _Told(self._crawler)
        return told

    def _tell(self, sparse: Sparse, message: str, **values: Any) -> None:
        sparse.log(message, {"url": self._url, **values}, self._crawler.spider)

    def _warn(self, message: str, **values: Any) -> None:
        level = logging.WARNING if self._told.one_more(self._origin) else logging.DEBUG
        logger.log(
            level, message, {"url": self._url, **values}, extra={"spider": self._crawler.spider}
        )
