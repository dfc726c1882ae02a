"""What became of a sitemap: one line in the log, and the stats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy_rep.log import get_logger
from scrapy_rep.sitemaps.sorting import Reason

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.sitemaps.reader import SitemapReader
    from scrapy_rep.sitemaps.sorting import Sorter

logger = get_logger(__name__)


class Report:
    """Tells of one sitemap."""

    def __init__(self, crawler: Crawler, url: str) -> None:
        assert crawler.stats is not None
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
        why = ", ".join(f"{count} {reason.text}" for reason, count in rejected.items())
        assert reader.kind is not None
        self._log(
            logging.INFO,
            "Sitemap %(url)s (%(kind)s): %(count)d entries, %(accepted)d accepted%(unproven)s%(why)s",
            kind=reader.kind.value,
            count=reader.count,
            accepted=sorter.accepted,
            unproven=f" ({sorter.unproven} wait for robots.txt of their hosts)"
            if sorter.unproven
            else "",
            why=f"; not accepted: {why}" if why else "",
        )
        if reader.problem:
            self._log(logging.WARNING, "Sitemap %(url)s: %(problem)s", problem=reader.problem)

    def failed(self, why: str, *, quiet: bool) -> None:
        """It can't be read.

        :param quiet: that was to be expected
        """
        self._stats.inc_value("rep/sitemaps/failed")
        level = logging.INFO if quiet else logging.WARNING
        self._log(level, "Sitemap %(url)s was not read: %(why)s", why=why)

    def too_many(self, origin: str) -> None:
        """It is one too many."""
        self._stats.inc_value(Reason.LIMIT.value)
        self._log(
            logging.WARNING,
            "Sitemap %(url)s is not read: %(origin)s has as many as REP_SITEMAP_MAX_FILES allows",
            origin=origin,
        )

    def _log(self, level: int, message: str, **values: Any) -> None:
        logger.log(
            level, message, {"url": self._url, **values}, extra={"spider": self._crawler.spider}
        )
