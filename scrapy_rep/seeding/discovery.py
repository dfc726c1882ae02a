"""Sitemaps that robots.txt files list (REP.md section 9): found, announced, counted, in any crawl.
That they seed the crawl is the work of `seeding/seeding.py`, which is not even imported where they don't."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from scrapy_rep import signals
from scrapy_rep.engine.interactive import is_interactive
from scrapy_rep.engine.log import Few, get_logger
from scrapy_rep.engine.pause import pause, work
from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.urls import as_it_stands, encoded
from scrapy_rep.engine.words import counted
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.resolver import ResolutionListener
from scrapy_rep.protocol import Origin
from scrapy_rep.settings import SITEMAPS_HINT, sitemaps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.protocol import RobotsTxt
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

SPIDER_ATTRIBUTE = "rep_sitemaps"

SITEMAP = "_rep_sitemap"
"""Meta key of requests for sitemaps: what another process needs to know of one that it gets from a
shared scheduler."""

FED = "_rep_page"
"""Meta key of pages that sitemaps list, while the scheduler has them."""

# How an origin is written in canonical form, if it has its default port and no letters but ASCII's.
_CANONICAL = re.compile(r"https?://[a-z0-9._-]{1,255}")

# How many wrong sitemap lines of one file are logged; the others are only counted.
_TOLD = 3

# As many as Google lets a site submit. A file of 512,000 bytes has room for 20,000.
MAX_SITEMAPS = 500

MAX_URL = 2048
"""Characters: what sitemaps.org allows. To encode a host of foreign letters takes microseconds for
each letter."""


def seeding_mode(crawler: Crawler, settings: RepSettings) -> str | bool:
    """Return which origins may seed the crawl: False, ``"start"`` or ``"all"``.

    :raises SettingsError: if the spider's attribute is none of what it may be
    """
    value = getattr(crawler.spider, SPIDER_ATTRIBUTE, None)
    try:
        mode = settings.sitemaps if value is None else sitemaps(value)
        return mode and not is_interactive(crawler) and mode
    except ValueError:
        raise SettingsError(
            f"The spider's attribute {SPIDER_ATTRIBUTE} is {value!r}, but must be {SITEMAPS_HINT}."
        ) from None


class Discovery(ResolutionListener):
    """Announces each sitemap once; a second time if very many others came between."""

    part = "search for sitemaps"

    def __init__(self, context: CrawlContext) -> None:
        self._crawler = context.crawler
        self._stats = context.stats
        self._seen = Recent()

    async def resolved(self, resolution: Resolution) -> None:
        """Take the sitemaps that a new robots.txt lists."""
        robots = resolution.robots
        if robots is None:
            return
        steps = self._announce(resolution.known.origin, resolution.robots_url, robots)
        while not work(steps):
            await pause()

    def _announce(self, origin: Origin, robots_url: str, robots: RobotsTxt) -> Iterator[None]:
        for one in self.listed(origin, robots_url, robots, warn=True):
            yield
            if one is not None and self.count(url := one[0]):
                self._crawler.signals.send_catch_log(
                    signals.sitemap_discovered,
                    origin=origin,
                    url=url,
                    spider=self._crawler.spider,
                )

    def count(self, url: str) -> bool:
        """Count a sitemap. Return False if it was counted before."""
        is_new = self._seen.add(url)
        if is_new:
            self._stats.inc_value("rep/sitemaps/found")
        return is_new

    def listed(
        self, origin: Origin, robots_url: str, robots: RobotsTxt, *, warn: bool
    ) -> Iterator[tuple[str, str] | None]:
        """The sitemaps that a robots.txt lists: their URLs and where these are; None for one that
        is not a URL. Strange ones take a millisecond each: a caller can stop after any."""
        listed = list(dict.fromkeys(robots.sitemaps))
        if len(listed) > MAX_SITEMAPS and warn:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first "
                "%(limit)d are ignored",
                {"origin": origin, "count": len(listed), "limit": MAX_SITEMAPS},
                extra={"spider": self._crawler.spider},
            )
        seen = set()
        few = Few(_TOLD)
        for value in listed[:MAX_SITEMAPS]:
            message = found = None
            try:
                plain = as_it_stands(value) if len(value) <= MAX_URL else None
                if plain is not None and _CANONICAL.fullmatch(plain[0]):
                    found = value, plain[0]  # most: a fifth of the time
                else:
                    if _is_relative(value):
                        message = "robots.txt of %(origin)s lists a sitemap by a relative URL"
                    url = resolved(robots_url, value)
                    place = Origin.from_url(url)
                    if place.scheme not in ("http", "https"):
                        raise ValueError
                    found = url, str(place)
            except ValueError:
                message = "robots.txt of %(origin)s lists a sitemap that is no URL"
            if message and warn and few.one_more():
                logger.warning(
                    f"{message}: %(value)s",
                    {"origin": origin, "value": value[:200]},
                    extra={"spider": self._crawler.spider},
                )
            if found is None or found[0] not in seen:
                yield found
            if found is not None:
                seen.add(found[0])
        if few.left_out:
            logger.warning(
                "robots.txt of %(origin)s: %(lines)s with such sitemaps",
                {"origin": origin, "lines": counted(few.left_out, "more line")},
                extra={"spider": self._crawler.spider},
            )


def resolved(robots_url: str, value: str) -> str:
    """Return the URL that the value of a ``sitemap`` line means.

    :raises ValueError: if it is none
    """
    if len(value) > MAX_URL:
        raise ValueError
    return encoded(urljoin(robots_url, value) if _is_relative(value) else value)


def _is_relative(url: str) -> bool:
    try:
        return not urlsplit(url).scheme
    except ValueError:  # a bracket behind a backslash, say, of which Scrapy makes a slash
        return False
