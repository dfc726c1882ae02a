"""Sitemaps that robots.txt files list become requests (REP.md section 9)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from scrapy import Request

from scrapy_rep import signals

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.protocol import Origin, RobotsTxt
    from scrapy_rep.settings import RepSettings

logger = logging.getLogger(__name__)

META_KEY = "rep_sitemap_of"

# As many as Google lets a site submit. A file of 512,000 bytes has room for 20,000.
MAX_SITEMAPS = 500


class SitemapSeeding:
    """Announces each sitemap once, and hands it to the scheduler if ``REP_SITEMAPS`` is on."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        self._crawler = crawler
        self._enabled = settings.sitemaps
        # Hashes: the URLs of a million sites would be a hundred megabytes.
        self._seen: set[int] = set()

    def discovered(self, origin: Origin, robots_url: str, robots: RobotsTxt) -> None:
        """Take the sitemaps that *robots*, the robots.txt of *origin*, lists.

        :param robots_url: where the file came from, for relative URLs
        """
        extra = {"spider": self._crawler.spider}
        listed = list(dict.fromkeys(robots.sitemaps))
        if len(listed) > MAX_SITEMAPS:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first "
                "%(limit)d are ignored",
                {"origin": origin, "count": len(listed), "limit": MAX_SITEMAPS},
                extra=extra,
            )
        for value in listed[:MAX_SITEMAPS]:
            try:
                url = urljoin(robots_url, value)
                if url != value and not urlsplit(value).scheme:
                    logger.warning(
                        "robots.txt of %(origin)s lists a sitemap by a relative URL: %(value)s",
                        {"origin": origin, "value": value[:200]},
                        extra=extra,
                    )
                request = Request(
                    url,
                    meta={
                        META_KEY: str(origin),
                        # A sitemap may be on any host; allowed_domains is about pages.
                        "allow_offsite": True,
                    },
                )
                usable = urlsplit(request.url).scheme in ("http", "https")
            except ValueError:
                usable = False
            if not usable:
                logger.warning(
                    "robots.txt of %(origin)s lists a sitemap that is no URL: %(value)s",
                    {"origin": origin, "value": value[:200]},
                    extra=extra,
                )
                continue
            if hash(request.url) in self._seen:
                continue
            self._seen.add(hash(request.url))
            self._emit(origin, request)

    def _emit(self, origin: Origin, request: Request) -> None:
        crawler = self._crawler
        assert crawler.stats is not None
        crawler.stats.inc_value("rep/sitemaps/found")
        crawler.signals.send_catch_log(
            signals.sitemap_discovered, origin=origin, url=request.url, spider=crawler.spider
        )
        # The engine has no spider any more when the crawl is ending.
        if self._enabled and crawler.engine is not None and crawler.engine.spider is not None:
            crawler.engine.crawl(request)
