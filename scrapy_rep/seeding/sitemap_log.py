"""Tells what became of each sitemap: a line in the log, and the stats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.log import Few, Sparse, get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.seeding.selection import Reason

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol.sitemaps.reader import SitemapReader
    from scrapy_rep.seeding.selection import Selection
    from scrapy_rep.seeding.sitemap_table import SitemapRow

logger = get_logger(__name__)

# Warnings per origin: an index may list 50,000 missing sitemaps. Beyond _ORIGINS, origins share.
_WARNINGS, _ORIGINS = 5, 10_000


class SitemapLog:
    """One for each crawl."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._warnings: dict[str, Few] = {}
        self._read = Sparse(logger, "sitemaps read")
        self._unread = Sparse(logger, "sitemaps not read")
        context.crawler.signals.connect(self._spider_closed, scrapy_signals.spider_closed)

    def read(self, sitemap: SitemapRow, reader: SitemapReader, selection: Selection) -> None:
        """*sitemap* was read."""
        inc_value = self._context.stats.inc_value
        inc_value("rep/sitemaps/fetched")
        inc_value("rep/sitemaps/urls", reader.count)
        rejected = {reason: count for reason, count in selection.rejected.items() if count}
        for reason, count in rejected.items():
            inc_value(reason.value, count)
        why = ", ".join(f"{count:,} {reason.text}" for reason, count in rejected.items())
        waiting = f" ({selection.unproven:,} waiting for another host's robots.txt)"
        assert reader.kind is not None
        self._read.log(
            "Sitemap %(url)s (%(kind)s): %(entries)s, %(accepted)s accepted%(unproven)s%(why)s",
            {
                "url": sitemap.url,
                "kind": reader.kind.value,
                "entries": counted(reader.count, "entry", "entries"),
                "accepted": f"{selection.accepted:,}",
                "unproven": waiting if selection.unproven else "",
                "why": f"; rejected: {why}" if why else "",
            },
            self._context.spider,
        )
        if reader.problem:
            message = "Sitemap %(url)s: %(why)s"
            self._warn(sitemap.origin, message, url=sitemap.url, why=reader.problem)

    def failed(self, sitemap: SitemapRow, why: str, *, expected: bool) -> None:
        """*sitemap* can't be read.

        :param expected: whether that deserves no warning
        """
        self._context.stats.inc_value("rep/sitemaps/failed")
        message, values = "Sitemap %(url)s was not read: %(why)s", {"url": sitemap.url, "why": why}
        if expected:
            self._unread.log(message, values, self._context.spider)
        else:
            self._warn(sitemap.origin, message, **values)

    def too_many(self, url: str, origin: str) -> None:
        """*origin* has too many sitemaps to read this one."""
        self._context.stats.inc_value(Reason.LIMIT.value)
        message = "Sitemap %(url)s is skipped: %(origin)s has reached REP_SITEMAP_MAX_FILES"
        self._warn(origin, message, url=url, origin=origin)

    def _warn(self, of: str, message: str, **values: Any) -> None:
        if of not in self._warnings and len(self._warnings) >= _ORIGINS:
            of = ""
        few = self._warnings.setdefault(of, Few(_WARNINGS))
        level = logging.WARNING if few.one_more() else logging.DEBUG
        logger.log(level, message, values, extra=self._context.extra)

    def _spider_closed(self) -> None:
        left_out = [few.left_out for few in self._warnings.values() if few.left_out]
        if left_out:
            logger.warning(
                "%(count)s with sitemaps of %(origins)s: logged at DEBUG level",
                {
                    "count": counted(sum(left_out), "more problem"),
                    "origins": counted(len(left_out), "origin"),
                },
                extra=self._context.extra,
            )
