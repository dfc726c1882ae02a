"""Finds, announces and counts the sitemaps that robots.txt files list (REP.md section 9), in any
crawl. If they seed it, the middleware is a :class:`SeedingMiddleware` too, and the spider's
attributes count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, TypeVar

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_rep.engine.access import is_interactive
from scrapy_rep.engine.crawl_rules import CrawlRules
from scrapy_rep.engine.log import BoundedSet, get_logger
from scrapy_rep.engine.timers import in_slices
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.entries import SitemapEntry
from scrapy_rep.settings import SITEMAPS_HINT, SPIDER_SITEMAPS, RepSettings, sitemaps
from scrapy_rep.signals import sitemap_discovered
from scrapy_rep.text import (
    MAX_LISTED_IDN,
    Encoder,
    SitemapURL,
    counted,
    resolve_sitemap,
)

logger = get_logger(__name__)

T = TypeVar("T")

SITEMAP_KEY = "_rep_sitemap"
"""Meta key of requests for sitemaps. Its value has all that another process needs, if processes
share a scheduler."""

PAGE_KEY = "rep_sitemap"
"""Meta key of requests for pages from sitemaps: what their entry says."""
PAGE_ROW_KEY = "_rep_page"
"""Meta key of the same requests while they are in the scheduler: the page's row in the spool."""

# Per robots.txt: as many as Google lets a site submit. There is room for 20,000 in the file.
MAX_SITEMAPS = 500

LISTED = "listed"
"""A mode of seeding: only from the sitemaps that the spider names."""


def own_sitemaps(crawler: Crawler) -> list[str]:
    """Return the sitemaps that the spider names; ``ValueError`` if one is not an absolute URL."""
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    urls = [str(url) for url in value] if isinstance(value, list | tuple) else []
    for url in urls:
        Origin.from_url(url)
    return urls


def seeding_mode(crawler: Crawler, settings: RepSettings) -> str | bool:
    """Return which origins may seed the crawl: False, ``"listed"``, ``"start"`` or ``"all"``;
    ``SettingsError`` if the spider's attribute has another value."""
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    try:
        if value is None or isinstance(value, list | tuple):
            named = own_sitemaps(crawler)
            mode = settings.sitemaps or (LISTED if named else False)
        else:
            mode = sitemaps(value)
        return False if is_interactive(crawler) else mode
    except ValueError:
        raise SettingsError(
            f"The spider's attribute {SPIDER_SITEMAPS} is {value!r}, but must be {SITEMAPS_HINT}, "
            "or a list of sitemaps' URLs."
        ) from None


def listed_sitemaps(
    robots_url: str, values: Iterable[str]
) -> Iterator[tuple[str, SitemapURL | None]]:
    """Yield each value of a ``sitemap`` line, with its URL; None if it is invalid. A strange value
    takes up to a millisecond, so callers can pause after each."""
    encode = Encoder(MAX_LISTED_IDN)
    for value in list(dict.fromkeys(values))[:MAX_SITEMAPS]:
        try:
            yield value, resolve_sitemap(value, robots_url, encode)
        except ValueError:
            yield value, None


async def resolve_all(robots_url: str, values: Iterable[str]) -> dict[str, str]:
    """Return the URLs of sitemaps, with the origin that each is fetched from. Resolving hostile ones
    takes a second."""
    listed = in_slices(listed_sitemaps(robots_url, values))
    return {
        one.url.partition("#")[0]: str(one.origin) async for _, one in listed if one
    }


async def listed_by(state: OriginState) -> dict[str, str]:
    """Return the sitemaps that a robots.txt lists, see :func:`resolve_all`."""
    return await resolve_all(
        state.robots_url, state.robots.sitemaps if state.robots else ()
    )


class Discovery:
    """Announces each sitemap once (unless very many others have come in between)."""

    def __init__(self, context: CrawlContext) -> None:
        """Raises ``SettingsError`` if one of the spider's attributes is wrong."""
        self._context = context
        self._seen = BoundedSet()
        self.mode = seeding_mode(context.crawler, context.settings)

    async def announce(self, state: OriginState) -> None:
        """Announce the sitemaps that a new robots.txt lists."""
        assert state.robots is not None
        origin, context = state.origin, self._context
        values = dict.fromkeys(state.robots.sitemaps)
        wrong = []
        async for value, found in in_slices(listed_sitemaps(state.robots_url, values)):
            if found is None or found.relative:
                wrong.append(value[:200])
            if found is not None and self.count(found.url):
                about = {"origin": origin, "url": found.url, **context.extra}
                context.crawler.signals.send_catch_log(sitemap_discovered, **about)
        if wrong:
            message = "robots.txt of %(origin)s lists %(count)s with a relative or an invalid URL: %(url)s"
            about = {
                "origin": origin,
                "count": counted(len(wrong), "sitemap"),
                "url": wrong[0],
            }
            logger.warning(message, about, extra=context.extra)
        if len(values) > MAX_SITEMAPS:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first %(most)d are ignored",
                {"origin": origin, "count": len(values), "most": MAX_SITEMAPS},
                extra=context.extra,
            )

    def count(self, url: str) -> bool:
        """Count a sitemap. Return whether it is new."""
        is_new = self._seen.add(url)
        if is_new:
            self._context.stats.inc_value("rep/sitemaps/found")
        return is_new


class SeedingMiddleware:
    """Mixed into the middleware only if sitemaps seed the crawl, because each method of a
    middleware costs every request. Takes responses for sitemaps, and leaves others to the user's
    own class."""

    _seeding: Any  # a SitemapSeeding

    def process_response(self, request: Request, response: Response) -> Any:
        """Read a sitemap, see :meth:`~scrapy_rep.seeding.loader.Loader.read`;
        ``CannotResolveHostError`` if a sitemap, or a page from one, came from a private address to
        which its origin may not lead us."""
        if SITEMAP_KEY in request.meta or PAGE_KEY in request.meta:
            self._seeding.loader.targets.check_answer(request, response)
        if SITEMAP_KEY in request.meta:
            return self._seeding.loader.read(request, response)
        if self._seeding.links is not None:
            self._seeding.links.look_at(response)
        theirs = getattr(super(), "process_response", None)
        return response if theirs is None else theirs(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Note a failure, see :meth:`~scrapy_rep.seeding.loader.Loader.failed`."""
        if SITEMAP_KEY in request.meta:
            return self._seeding.loader.failed(request, exception)
        theirs = getattr(super(), "process_exception", None)
        return None if theirs is None else theirs(request, exception)


def with_seeding(kind: type) -> Any:
    """Return a subclass of *kind*, a middleware class, that reads sitemaps."""
    return type(
        kind.__name__, (SeedingMiddleware, kind), {"__module__": kind.__module__}
    )


class Entries(Iterator[SitemapEntry]):
    """What ``sitemap_filter`` gets: an iterator that knows the kind, like Scrapy's ``Sitemap``."""

    def __init__(self, entries: list[SitemapEntry], kind: str, url: str) -> None:
        self.left = iter(entries)
        self.type = kind
        """``"urlset"``, ``"sitemapindex"``, ``"text"``, ``"rss"`` or ``"atom"``."""
        self.url = url
        """The URL of the sitemap."""

    def __next__(self) -> SitemapEntry:
        return next(self.left)


class SpiderOptions:
    """The attributes of Scrapy's SitemapSpider, on any spider, checked: ``sitemap_rules``,
    ``sitemap_follow``, ``sitemap_alternate_links`` and ``sitemap_filter``; and ``sitemap_media``,
    ``sitemap_request`` and ``sitemap_page``."""

    def __init__(self, spider: Spider | None) -> None:
        self._spider = spider
        pairs = "pairs of a regular expression and a callback (the name of a method, or a callable)"
        self._rules = self._checked("sitemap_rules", self._rule, pairs)
        self._follow = self._checked(
            "sitemap_follow", re.compile, "regular expressions"
        )
        self._filter = self._method("sitemap_filter")
        self._request = self._method("sitemap_request")
        self._page = self._method("sitemap_page")
        self._crawl_rules = CrawlRules(spider if self._rules is None else None)
        self._told: set[str] = set()
        self.alternate_links = bool(getattr(spider, "sitemap_alternate_links", False))
        """Whether alternate URLs of a page are requested too."""
        self.media = bool(getattr(spider, "sitemap_media", False))
        """Whether entries have the URLs of images and videos."""

    def _checked(
        self, name: str, convert: Callable[[Any], T], what: str
    ) -> list[T] | None:
        value = getattr(self._spider, name, None)
        try:
            if isinstance(value, str):
                raise TypeError("it is a single string")
            return None if value is None else list(map(convert, value))
        except (TypeError, ValueError, AttributeError, re.error) as error:
            raise SettingsError(
                f"The spider's attribute {name} must be a list of {what}: {error}."
            ) from None

    def _rule(self, pair: Any) -> tuple[re.Pattern[str], Any]:
        regex, value = pair
        callback = getattr(self._spider, value) if isinstance(value, str) else value
        if not callable(callback):
            raise TypeError(f"{value!r} can't be called")
        return re.compile(regex), callback

    def _method(self, name: str) -> Any:
        method = getattr(self._spider, name, None)
        if method is not None and not callable(method):
            raise SettingsError(f"The spider's attribute {name} must be a method.")
        return method

    def prepared(self, request: Request) -> Request:
        """Return the request for a sitemap as ``sitemap_request`` wants it."""
        if self._request is None:
            return request
        ours = dict(request.meta)
        try:
            made = self._request(request) or request
            if not isinstance(made, Request):
                raise TypeError(f"it returned {made!r}, which is not a Request")
        except Exception:  # noqa: BLE001 (it is the spider's)
            self._tell("sitemap_request", "the sitemap is requested as it was")
            return request
        made.meta.update(ours)
        made.dont_filter = request.dont_filter
        return made

    def _tell(self, method: str, what: str) -> None:
        """Log the exception that is being handled, if it is the first of the spider's *method*."""
        if method not in self._told:
            self._told.add(method)
            message = (
                f"{method}() raised an exception: {what}. Further ones are not logged."
            )
            logger.exception(message, extra={"spider": self._spider})

    @property
    def has_rules(self) -> bool:
        """Whether the spider has ``sitemap_rules``."""
        return self._rules is not None

    def page_request(
        self, url: str, about: dict[str, Any], priority: int
    ) -> Request | None:
        """Return the request for a page of a sitemap, with what that says *about* it; None if the spider
        doesn't want it. Raises what Scrapy's constructor does."""
        index = self._crawl_rules.index_for(url) if self._crawl_rules else None
        if index is not None:
            return self._rule_request(index, url, about, priority)
        is_wanted, callback = self.callback_for(url)
        if not is_wanted:
            return None
        return Request(url, callback, priority=priority, meta={PAGE_KEY: about})

    def _rule_request(
        self, index: int, url: str, about: dict[str, Any], priority: int
    ) -> Request | None:
        """Return what the rule of a CrawlSpider with this *index* makes of a page."""
        try:
            request = self._crawl_rules.request(index, url, about["sitemap"])
        except Exception:  # noqa: BLE001 (it is the spider's)
            self._tell("process_request", "its page is skipped")
            return None
        if request is not None:
            request.meta[PAGE_KEY] = about
            request.priority += priority
        return request

    def changed_page(self, request: Request) -> Request | None:
        """Return the request for a page as ``sitemap_page`` wants it; None to skip the page."""
        if self._page is None:
            return request
        about = request.meta.get(
            PAGE_KEY
        )  # a rule's process_request may have removed it
        try:
            made: Request | None = self._page(request, about)
            if made is not None and not isinstance(made, Request):
                raise TypeError(
                    f"it returned {made!r}, which is neither a Request nor None"
                )
        except Exception:  # noqa: BLE001 (it is the spider's)
            self._tell("sitemap_page", "the page is requested as it was")
            return request
        if made is not None:
            made.meta.setdefault(PAGE_KEY, about)
        return made

    def callback_for(self, url: str) -> tuple[bool, Any]:
        """Return whether a page is wanted, and its callback (None: the spider's default)."""
        if self._rules is None:
            return True, None
        for regex, callback in self._rules:
            if regex.search(url):
                return True, callback
        return False, None

    def follows(self, url: str) -> bool:
        return self._follow is None or any(regex.search(url) for regex in self._follow)

    def filtered(
        self, entries: list[SitemapEntry], kind: str, url: str
    ) -> tuple[list[SitemapEntry], int]:
        """Return what ``sitemap_filter`` leaves of *entries*, from a sitemap of that *kind* and *url*,
        and how many entries made it raise."""
        if self._filter is None:
            return entries, 0
        kept: list[SitemapEntry] = []
        failed, rest = 0, Entries(entries, kind, url)
        while left := length_hint(rest.left):
            try:
                for entry in self._filter(rest) or ():
                    if not isinstance(entry, dict):
                        raise TypeError(
                            f"it returned {entry!r}, which is not an entry (a dict)"
                        )
                    kept.append(entry)  # one by one: those before an exception count
                break
            except Exception:  # noqa: BLE001 (it is the spider's)
                self._tell("sitemap_filter", "its entry is skipped")
                if (
                    length_hint(rest.left) == left
                ):  # it took no entry, so it would raise again
                    return kept, failed + left
                failed += 1
        return kept, failed
