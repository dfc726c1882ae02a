"""Finds, announces and counts the sitemaps that robots.txt files list (REP.md section 9), in any
crawl. Where they seed it, the middleware has the methods of :class:`SeedingMiddleware` too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scrapy_rep import signals
from scrapy_rep.engine.encoding import resolve_sitemap
from scrapy_rep.engine.interactive import is_interactive
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.pause import pause, work
from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.words import counted
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.resolver import ResolutionListener
from scrapy_rep.settings import SITEMAPS_HINT, SPIDER_SITEMAPS, sitemaps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.engine.encoding import SitemapURL
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

KindT = TypeVar("KindT", bound=type)

SITEMAP = "_rep_sitemap"
"""Meta key of requests for sitemaps: what another process that shares the scheduler needs to know."""

PAGE_KEY = "rep_sitemap"
FED = "_rep_page"
"""Meta key of pages from sitemaps, while the scheduler has them."""

# Per robots.txt: as many as Google lets a site submit. A file has room for 20,000.
MAX_SITEMAPS = 500
# Bad sitemap lines of one file that are logged; the rest are only counted.
_WARNINGS = 3


def seeding_mode(crawler: Crawler, settings: RepSettings) -> str | bool:
    """Return which origins may seed the crawl: False, ``"start"`` or ``"all"``.

    :raises SettingsError: if the spider's attribute has another value
    """
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    try:
        mode = settings.sitemaps if value is None else sitemaps(value)
        return mode and not is_interactive(crawler) and mode
    except ValueError:
        raise SettingsError(
            f"The spider's attribute {SPIDER_SITEMAPS} is {value!r}, but must be {SITEMAPS_HINT}."
        ) from None


def listed_sitemaps(
    robots_url: str, values: Iterable[str]
) -> Iterator[tuple[str, SitemapURL | None]]:
    """Yield the values of ``sitemap`` lines, each with its URL, or None if it has none. Strange
    values take a millisecond each, so callers can pause after any."""
    for value in list(dict.fromkeys(values))[:MAX_SITEMAPS]:
        try:
            yield value, resolve_sitemap(value, robots_url)
        except ValueError:
            yield value, None


class Discovery(ResolutionListener):
    """Announces each sitemap once; again only after very many others."""

    part = "search for sitemaps"

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._seen = Recent()

    async def resolved(self, resolution: Resolution) -> None:
        """Announce the sitemaps that a new robots.txt lists."""
        if resolution.robots is not None:
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
    """What only crawls seeded from sitemaps need: each method of a middleware costs every request. It
    takes the responses for sitemaps, and leaves the others to a user's own class."""

    _seeding: Any  # a SitemapSeeding

    def process_response(self, request: Request, response: Response) -> Any:
        """Read a sitemap, see :meth:`~scrapy_rep.seeding.intake.Intake.read`.

        :raises CannotResolveHostError: if a sitemap, or a page from one, came from a private address
            that its site may not lead to
        """
        if SITEMAP in request.meta or PAGE_KEY in request.meta:
            self._seeding.intake.targets.check_answer(request, response)
        if SITEMAP in request.meta:
            return self._seeding.intake.read(request, response)
        theirs = getattr(super(), "process_response", None)
        return response if theirs is None else theirs(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Note a failure, see :meth:`~scrapy_rep.seeding.intake.Intake.failed`."""
        if SITEMAP in request.meta:
            return self._seeding.intake.failed(request, exception)
        theirs = getattr(super(), "process_exception", None)
        return None if theirs is None else theirs(request, exception)


def with_seeding(kind: KindT) -> KindT:
    """Return a subclass of *kind*, a middleware class, that reads sitemaps."""
    made: KindT = type(kind.__name__, (SeedingMiddleware, kind), {"__module__": kind.__module__})  # type: ignore[assignment]
    return made
