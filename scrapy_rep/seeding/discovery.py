"""Finds, announces and counts the sitemaps that robots.txt files list (REP.md section 9), in any crawl.
If they seed it, the middleware is a :class:`SeedingMiddleware` too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_rep import signals
from scrapy_rep.engine.bounded_set import BoundedSet
from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.pause import pause, work
from scrapy_rep.engine.startup import is_interactive
from scrapy_rep.engine.words import counted
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.protocol import Origin
from scrapy_rep.settings import SITEMAPS_HINT, SPIDER_SITEMAPS, sitemaps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.engine.encoding import SitemapURL
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

KindT = TypeVar("KindT", bound=type)

SITEMAP = "_rep_sitemap"
"""Meta key of requests for sitemaps. Its value has all that another process needs, if processes share a
scheduler."""

PAGE_KEY = "rep_sitemap"
"""Meta key of requests for pages from sitemaps: what their entry says."""
FED = "_rep_page"
"""Meta key of the same requests, while they are in the scheduler: the page's row in the spool."""

# Of one robots.txt: as many as Google lets a site submit. There is room for 20,000 in the file.
MAX_SITEMAPS = 500
# Of one robots.txt: bad lines that are logged. Further ones are only counted.
_WARNINGS = 3


LISTED = "listed"
"""A mode of seeding: only from the sitemaps that the spider names."""


def own_sitemaps(crawler: Crawler) -> list[str]:
    """Return the sitemaps that the spider names itself.

    :raises ValueError: if one is no absolute URL
    """
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    urls = [str(url) for url in value] if isinstance(value, list | tuple) else []
    for url in urls:
        Origin.from_url(url)
    return urls


def seeding_mode(crawler: Crawler, settings: RepSettings) -> str | bool:
    """Return which origins may seed the crawl: False, ``"listed"``, ``"start"`` or ``"all"``.

    :raises SettingsError: if the spider's attribute has another value
    """
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    try:
        if value is None or isinstance(value, list | tuple):
            mode = settings.sitemaps or (LISTED if own_sitemaps(crawler) else False)
        else:
            mode = sitemaps(value)
        return mode and not is_interactive(crawler) and mode
    except ValueError:
        raise SettingsError(
            f"The spider's attribute {SPIDER_SITEMAPS} is {value!r}, but must be {SITEMAPS_HINT}, "
            "or a list of sitemaps' URLs."
        ) from None


def listed_sitemaps(
    robots_url: str, values: Iterable[str]
) -> Iterator[tuple[str, SitemapURL | None]]:
    """Yield each value of a ``sitemap`` line, with its URL; None if it is invalid. A strange value takes up
    to a millisecond, so callers can pause after each."""
    for value in list(dict.fromkeys(values))[:MAX_SITEMAPS]:
        try:
            yield value, resolve_sitemap(value, robots_url)
        except ValueError:
            yield value, None


class Discovery(ResolutionListener):
    """Announces each sitemap once (unless very many others have come in between)."""

    part = "search for sitemaps"

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._seen = BoundedSet()

    async def resolved(self, resolution: Resolution) -> None:
        """Announce the sitemaps that a new robots.txt lists."""
        if resolution.robots is not None and resolution.robots.sitemaps:
            steps = self._announce(resolution, dict.fromkeys(resolution.robots.sitemaps))
            while not work(steps):
                await pause()

    def _announce(self, resolution: Resolution, values: Collection[str]) -> Iterator[None]:
        origin, few = resolution.state.origin, Limiter(logger, first=_WARNINGS)
        for value, found in listed_sitemaps(resolution.robots_url, values):
            if (found is None or found.relative) and few.one_more():
                wrong = "an invalid" if found is None else "a relative"
                self._warn(origin, f"lists a sitemap with {wrong} URL: %(what)s", value[:200])
            yield
            if found is not None and self.count(found.url):
                self._context.crawler.signals.send_catch_log(
                    signals.sitemap_discovered,
                    origin=origin,
                    url=found.url,
                    **self._context.extra,
                )
        if few.left_out:
            self._warn(origin, "has %(what)s like these", counted(few.left_out, "more line"))
        if len(values) > MAX_SITEMAPS:
            message = f"lists %(what)d sitemaps; those after the first {MAX_SITEMAPS} are ignored"
            self._warn(origin, message, len(values))

    def _warn(self, origin: Origin, message: str, what: object) -> None:
        values = {"origin": origin, "what": what}
        logger.warning("robots.txt of %(origin)s " + message, values, extra=self._context.extra)

    def count(self, url: str) -> bool:
        """Count a sitemap. Return whether it is new."""
        is_new = self._seen.add(url)
        if is_new:
            self._context.stats.inc_value("rep/sitemaps/found")
        return is_new


class SeedingMiddleware:
    """Mixed into the middleware only if sitemaps seed the crawl, because each method of a middleware costs
    every request. Takes responses for sitemaps, and leaves all others to the user's own class."""

    _seeding: Any  # a SitemapSeeding

    def process_response(self, request: Request, response: Response) -> Any:
        """Read a sitemap, see :meth:`~scrapy_rep.seeding.loader.Loader.read`.

        :raises CannotResolveHostError: if a sitemap, or a page from one, came from a private address to
            which its origin may not lead us
        """
        if SITEMAP in request.meta or PAGE_KEY in request.meta:
            self._seeding.loader.targets.check_answer(request, response)
        if SITEMAP in request.meta:
            return self._seeding.loader.read(request, response)
        theirs = getattr(super(), "process_response", None)
        return response if theirs is None else theirs(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Note a failure, see :meth:`~scrapy_rep.seeding.loader.Loader.failed`."""
        if SITEMAP in request.meta:
            return self._seeding.loader.failed(request, exception)
        theirs = getattr(super(), "process_exception", None)
        return None if theirs is None else theirs(request, exception)


def with_seeding(kind: KindT) -> KindT:
    """Return a subclass of *kind*, a middleware class, that reads sitemaps."""
    made: KindT = type(kind.__name__, (SeedingMiddleware, kind), {"__module__": kind.__module__})  # type: ignore[assignment]
    return made
