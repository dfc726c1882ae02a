"""Sitemaps that robots.txt files list (REP.md section 9): found, announced and counted in any crawl.

The middleware makes a :class:`Discovery`; the resolver tells it of each new robots.txt. That
sitemaps seed the crawl is the work of `seeding.py`, which is imported only where they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep import signals
from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.engine.interactive import is_interactive
from scrapy_rep.engine.log import Few, get_logger
from scrapy_rep.engine.pause import pause, work
from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.words import counted
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.resolver import ResolutionListener
from scrapy_rep.settings import SITEMAPS_HINT, sitemaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.crawler import Crawler

    from scrapy_rep.engine.encoding import SitemapURL
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.protocol import Origin, RobotsTxt
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

SPIDER_ATTRIBUTE = "rep_sitemaps"

SITEMAP = "_rep_sitemap"
"""Meta key of requests for sitemaps: what another process needs to know of one that it gets from a
shared scheduler."""

FED = "_rep_page"
"""Meta key of pages that sitemaps list, while the scheduler has them."""

MAX_SITEMAPS = 500
"""Of one robots.txt: as many as Google lets a site submit. A file has room for 20,000."""

# How many wrong sitemap lines of one file are logged; the others are only counted.
_WARNINGS = 3


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


def listed_sitemaps(
    robots_url: str, values: Iterable[str]
) -> Iterator[tuple[str, SitemapURL | None]]:
    """Yield the values of ``sitemap`` lines, and what each means; None for one that is no URL.
    Strange ones take a millisecond each, so a caller can pause after any.

    :param robots_url: where the robots.txt came from, for relative URLs
    """
    for value in list(dict.fromkeys(values))[:MAX_SITEMAPS]:
        try:
            yield value, resolve_sitemap(value, robots_url)
        except ValueError:
            yield value, None


class Discovery(ResolutionListener):
    """Announces each sitemap once; a second time if very many others came between."""

    part = "search for sitemaps"

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._seen = Recent()

    async def resolved(self, resolution: Resolution) -> None:
        """Take the sitemaps that a new robots.txt lists."""
        robots = resolution.robots
        if robots is None:
            return
        steps = self._announce(resolution.state.origin, resolution.robots_url, robots)
        while not work(steps):
            await pause()

    def _announce(self, origin: Origin, robots_url: str, robots: RobotsTxt) -> Iterator[None]:
        for one in self.listed(origin, robots_url, robots, warn=True):
            yield
            if one is not None and self.count(url := one[0]):
                self._context.crawler.signals.send_catch_log(
                    signals.sitemap_discovered,
                    origin=origin,
                    url=url,
                    **self._context.extra,
                )

    def count(self, url: str) -> bool:
        """Count a sitemap. Return False if it was counted before."""
        is_new = self._seen.add(url)
        if is_new:
            self._context.stats.inc_value("rep/sitemaps/found")
        return is_new

    def listed(
        self, origin: Origin, robots_url: str, robots: RobotsTxt, *, warn: bool
    ) -> Iterator[tuple[str, str] | None]:
        """Yield the sitemaps that a robots.txt lists, each once: its URL and the origin that it is
        fetched from; None for one that repeats, or is no URL.

        :param warn: whether to log what is wrong with them
        """
        count = len(set(robots.sitemaps))
        if count > MAX_SITEMAPS and warn:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first "
                "%(limit)d are ignored",
                {"origin": origin, "count": count, "limit": MAX_SITEMAPS},
                extra=self._context.extra,
            )
        seen = set()
        few = Few(_WARNINGS)
        for value, found in listed_sitemaps(robots_url, robots.sitemaps):
            wrong = "that is no URL" if found is None else "by a relative URL"
            if (found is None or found.relative) and warn and few.one_more():
                logger.warning(
                    f"robots.txt of %(origin)s lists a sitemap {wrong}: %(value)s",
                    {"origin": origin, "value": value[:200]},
                    extra=self._context.extra,
                )
            if found is None or found.url in seen:
                yield None
            else:
                seen.add(found.url)
                yield found.url, str(found.origin)
        if few.left_out:
            logger.warning(
                "robots.txt of %(origin)s: %(lines)s with such sitemaps",
                {"origin": origin, "lines": counted(few.left_out, "more line")},
                extra=self._context.extra,
            )
