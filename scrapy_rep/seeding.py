"""Sitemaps that robots.txt files list become requests (REP.md section 9)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from scrapy import Request

from scrapy_rep import signals
from scrapy_rep.protocol import Origin

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.protocol import RobotsTxt
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
        listed = list(dict.fromkeys(robots.sitemaps))
        if len(listed) > MAX_SITEMAPS:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first "
                "%(limit)d are ignored",
                {"origin": origin, "count": len(listed), "limit": MAX_SITEMAPS},
                extra={"spider": self._crawler.spider},
            )
        for value in listed[:MAX_SITEMAPS]:
            request = self._request(origin, robots_url, value)
            if request is None:
                self._warn("robots.txt of %(origin)s lists a sitemap that is no URL", origin, value)
                continue
            if hash(request.url) in self._seen:
                continue
            self._seen.add(hash(request.url))
            self._emit(origin, request)

    def _request(self, origin: Origin, robots_url: str, value: str) -> Request | None:
        """The request for a sitemap as written in a robots.txt; None where that is no URL."""
        try:
            if urlsplit(value).scheme:
                url = value
            else:
                url = urljoin(robots_url, value)
                self._warn(
                    "robots.txt of %(origin)s lists a sitemap by a relative URL", origin, value
                )
            # A sitemap may be on any host; allowed_domains is about pages.
            request = Request(url, meta={META_KEY: str(origin), "allow_offsite": True})
            return request if Origin.from_url(request.url).scheme in ("http", "https") else None
        except ValueError:
            return None

    def _warn(self, message: str, origin: Origin, value: str) -> None:
        logger.warning(
            f"{message}: %(value)s",
            {"origin": origin, "value": value[:200]},
            extra={"spider": self._crawler.spider},
        )

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
