"""Finds, announces and counts the sitemaps that robots.txt files list (REP.md section
9), in any crawl. Where sitemaps seed the crawl (it requests the pages that they list),
the package's downloader middleware is a :class:`SeedingMiddleware` too, and the
spider's attributes count (:class:`SpiderOptions`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, NamedTuple, TypeVar

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
"""Meta key of requests for sitemaps. If processes share a scheduler, its value has all
that another process needs to read the sitemap."""

PAGE_KEY = "rep_sitemap"
"""Meta key of requests for pages from sitemaps: what the sitemap's entry says about the
page. Users read it."""

PAGE_ROW_KEY = "_rep_page"
"""Meta key of requests for pages from sitemaps, while they are in the scheduler: the
page's row (its number in the spool, seeding/spool.py)."""

MAX_SITEMAPS = 500
"""So many sitemaps of one robots.txt count: as many as Google lets a site submit. The
file has room for 20,000."""

LISTED = "listed"
"""In this mode (see :func:`seeding_mode`), only sitemaps that the spider names seed the
crawl."""


def own_sitemaps(crawler: Crawler) -> list[str]:
    """Return the sitemaps that the spider names; ``ValueError`` if one is not an
    absolute URL."""
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    if not isinstance(value, list | tuple):
        return []
    urls = [str(url) for url in value]
    for url in urls:
        Origin.from_url(url)  # raises ValueError
    return urls


def seeding_mode(crawler: Crawler, settings: RepSettings) -> str | bool:
    """Return which origins may seed the crawl: ``"all"``, ``"start"`` (those of start
    requests), ``"listed"`` (those of sitemaps that the spider names), or False for
    none; ``SettingsError`` if the spider's attribute has another value."""
    value = getattr(crawler.spider, SPIDER_SITEMAPS, None)
    mode: str | bool
    try:
        if value is None:
            mode = settings.sitemaps
        elif isinstance(value, list | tuple):
            # A list of sitemaps leaves the setting as it is. If the setting is off,
            # only these sitemaps seed.
            named_urls = own_sitemaps(crawler)
            mode = settings.sitemaps or (LISTED if named_urls else False)
        else:
            mode = sitemaps(value)  # as the setting REP_SITEMAPS is read
    except ValueError:
        raise SettingsError(
            f"The spider's attribute {SPIDER_SITEMAPS} is {value!r}, but must be {SITEMAPS_HINT}, "
            "or a list of sitemaps' URLs."
        ) from None
    if is_interactive(crawler):
        return False  # in Scrapy's shell, say
    return mode


def listed_sitemaps(
    robots_url: str, values: Iterable[str]
) -> Iterator[tuple[str, SitemapURL | None]]:
    """Yield each value of a ``sitemap`` line, once, with its URL, or None if that is
    invalid. A strange value takes up to a millisecond, so callers can pause after
    each."""
    # Hosts that aren't ASCII take time to encode, so those of one file have a limit.
    encode = Encoder(MAX_LISTED_IDN)
    distinct_values = list(dict.fromkeys(values))
    for value in distinct_values[:MAX_SITEMAPS]:
        try:
            yield value, resolve_sitemap(value, robots_url, encode)
        except ValueError:
            yield value, None


async def resolve_all(robots_url: str, values: Iterable[str]) -> dict[str, str]:
    """Return the origin that each sitemap is fetched from, by the sitemap's URL. Makes
    pauses, since resolving hostile *values* takes a second. See
    :func:`listed_sitemaps`."""
    hosts: dict[str, str] = {}
    async for _, sitemap in in_slices(listed_sitemaps(robots_url, values)):
        if sitemap is not None:
            url = sitemap.url.partition("#")[0]  # without its fragment
            hosts[url] = str(sitemap.origin)
    return hosts


async def listed_by(state: OriginState) -> dict[str, str]:
    """Return the sitemaps that the robots.txt of an origin lists, see
    :func:`resolve_all`."""
    if state.robots is None:
        return {}
    return await resolve_all(state.robots_url, state.robots.sitemaps)


class Discovery:
    """Announces each sitemap once (unless very many others have come in between)."""

    def __init__(self, context: CrawlContext) -> None:
        """Raises ``SettingsError`` if one of the spider's attributes is wrong."""
        self._context = context
        # URLs of sitemaps that were counted, the latest 100,000 at least.
        self._counted_urls = BoundedSet()
        self.mode = seeding_mode(context.crawler, context.settings)

    async def announce(self, state: OriginState) -> None:
        """Announce the sitemaps that a new robots.txt lists. Warn of sitemaps with a
        wrong URL."""
        assert state.robots is not None  # callers announce a robots.txt only
        # The values are taken before any pause, since the parsed robots.txt may be
        # forgotten during one.
        values = dict.fromkeys(state.robots.sitemaps)
        wrong_values: list[str] = []
        listed = listed_sitemaps(state.robots_url, values)
        async for value, sitemap in in_slices(listed):
            if sitemap is None or sitemap.relative:
                wrong_values.append(value[:200])  # cut, for the log
            is_new = sitemap is not None and self.count_if_new(sitemap.url)
            if sitemap is not None and is_new:
                self._context.crawler.signals.send_catch_log(
                    sitemap_discovered,
                    origin=state.origin,
                    url=sitemap.url,
                    **self._context.extra,
                )
        if wrong_values:
            self._warn_of_wrong(state.origin, wrong_values)
        if len(values) > MAX_SITEMAPS:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first %(most)d are ignored",
                {"origin": state.origin, "count": len(values), "most": MAX_SITEMAPS},
                extra=self._context.extra,
            )

    def _warn_of_wrong(self, origin: Origin, values: list[str]) -> None:
        """Warn of *values* in the robots.txt of *origin* that are relative or no
        URLs."""
        logger.warning(
            "robots.txt of %(origin)s lists %(count)s with a relative or an invalid URL: %(url)s",
            {
                "origin": origin,
                "count": counted(len(values), "sitemap"),
                "url": values[0],
            },
            extra=self._context.extra,
        )

    def count_if_new(self, url: str) -> bool:
        """Count the sitemap at *url*, if it is new. Return whether it is."""
        is_new = self._counted_urls.add(url)
        if is_new:
            self._context.stats.inc_value("rep/sitemaps/found")
        return is_new


class SeedingMiddleware:
    """Mixed into the middleware only if sitemaps seed the crawl, because each method of
    a middleware costs every request. Takes responses for sitemaps, and leaves others to
    the project's own subclass of the middleware, if there is one."""

    _seeding: Any
    """The crawl's ``SitemapSeeding`` (seeding/seeding.py)."""

    def process_response(self, request: Request, response: Response) -> Any:
        """Read a sitemap, see :meth:`~scrapy_rep.seeding.loader.Loader.read`;
        ``CannotResolveHostError`` if a public host has led us to a sitemap, or to a
        page from one, at a private address (origins/targets.py)."""
        if SITEMAP_KEY in request.meta or PAGE_KEY in request.meta:
            self._seeding.loader.targets.check_answer(request, response)
        if SITEMAP_KEY in request.meta:
            return self._seeding.loader.read(request, response)
        if self._seeding.links is not None:
            self._seeding.links.look_at(response)
        projects_own = getattr(super(), "process_response", None)
        if projects_own is None:
            return response
        return projects_own(request, response)

    def process_exception(self, request: Request, exception: Exception) -> Any:
        """Note that a sitemap can't be fetched, see
        :meth:`~scrapy_rep.seeding.loader.Loader.failed`."""
        if SITEMAP_KEY in request.meta:
            return self._seeding.loader.failed(request, exception)
        projects_own = getattr(super(), "process_exception", None)
        if projects_own is None:
            return None
        return projects_own(request, exception)


def with_seeding(middleware: type) -> Any:
    """Return a subclass of *middleware*, a class, that reads sitemaps. It has the same
    name, since Scrapy logs the names of middlewares."""
    bases = (SeedingMiddleware, middleware)
    return type(middleware.__name__, bases, {"__module__": middleware.__module__})


class Entries(Iterator[SitemapEntry]):
    """What ``sitemap_filter`` gets: an iterator of entries that knows the sitemap's
    kind, like Scrapy's ``Sitemap``."""

    def __init__(
        self, entries: list[SitemapEntry], sitemap_kind: str, url: str
    ) -> None:
        self._entries = iter(entries)
        self.type = sitemap_kind
        """``"urlset"``, ``"sitemapindex"``, ``"text"``, ``"rss"`` or ``"atom"``."""
        self.url = url
        """The URL of the sitemap."""

    def __next__(self) -> SitemapEntry:
        return next(self._entries)

    def count_left(self) -> int:
        """Return how many entries the filter has not taken yet."""
        return length_hint(self._entries)


class Filtered(NamedTuple):
    """What a ``sitemap_filter`` made of entries."""

    kept: list[SitemapEntry]
    failures: int
    """How many entries made it raise an exception."""


class PageCallback(NamedTuple):
    """What ``sitemap_rules`` say of a page."""

    is_wanted: bool
    """Whether the page is requested."""
    callback: Any
    """None stands for the spider's default."""


class SpiderOptions:
    """Checks and applies the spider's attributes about sitemaps: those of Scrapy's
    SitemapSpider, which any spider may have (``sitemap_rules``, ``sitemap_follow``,
    ``sitemap_alternate_links``, ``sitemap_filter``), and ours (``sitemap_media``,
    ``sitemap_request``, ``sitemap_page``)."""

    def __init__(self, spider: Spider | None) -> None:
        """Raises ``SettingsError`` if an attribute is wrong."""
        self._spider = spider
        self._rules = self._checked(
            "sitemap_rules",
            self._rule,
            "pairs of a regular expression and a callback (the name of a method, or a callable)",
        )
        self._follow = self._checked(
            "sitemap_follow", re.compile, "regular expressions"
        )
        self._sitemap_filter = self._method("sitemap_filter")
        self._sitemap_request = self._method("sitemap_request")
        self._sitemap_page = self._method("sitemap_page")
        # The rules of a CrawlSpider choose callbacks, unless there are sitemap_rules.
        self._crawl_rules = CrawlRules(spider if self._rules is None else None)
        # Methods of the spider that have raised an exception, by name.
        self._failed_methods: set[str] = set()
        self.alternate_links = bool(getattr(spider, "sitemap_alternate_links", False))
        """Whether alternate URLs of a page are requested too."""
        self.media = bool(getattr(spider, "sitemap_media", False))
        """Whether entries have the URLs of images and videos."""

    def _checked(
        self, name: str, convert: Callable[[Any], T], expected_items: str
    ) -> list[T] | None:
        """Return the list in the spider's attribute *name*, each item converted; None
        if there is no such attribute; ``SettingsError`` if it is not a list of
        *expected_items*."""
        value = getattr(self._spider, name, None)
        if value is None:
            return None
        try:
            if isinstance(value, str):
                raise TypeError("it is a single string")
            return [convert(item) for item in value]
        except (TypeError, ValueError, AttributeError, re.error) as error:
            raise SettingsError(
                f"The spider's attribute {name} must be a list of {expected_items}: {error}."
            ) from None

    def _rule(self, pair: Any) -> tuple[re.Pattern[str], Any]:
        """Return a pair of ``sitemap_rules`` with its regular expression compiled and
        its callback looked up."""
        regex, name_or_callback = pair
        callback = name_or_callback
        if isinstance(name_or_callback, str):
            callback = getattr(self._spider, name_or_callback)
        if not callable(callback):
            raise TypeError(f"{name_or_callback!r} can't be called")
        return re.compile(regex), callback

    def _method(self, name: str) -> Any:
        """Return the spider's method *name*; None if it has none; ``SettingsError`` if
        that is no method."""
        method = getattr(self._spider, name, None)
        if method is not None and not callable(method):
            raise SettingsError(f"The spider's attribute {name} must be a method.")
        return method

    def changed_sitemap(self, request: Request) -> Request:
        """Return the request for a sitemap as ``sitemap_request`` wants it."""
        if self._sitemap_request is None:
            return request
        our_meta = dict(request.meta)
        try:
            # The spider may change the request in place, and return nothing.
            changed = self._sitemap_request(request) or request
            if not isinstance(changed, Request):
                raise TypeError(f"it returned {changed!r}, which is not a Request")
        except Exception:  # noqa: BLE001 (it is the spider's)
            self._log_exception("sitemap_request", "the sitemap is requested as it was")
            return request
        # Without our meta keys, the response would not be read as a sitemap.
        changed.meta.update(our_meta)
        changed.dont_filter = request.dont_filter  # the loader decides about it
        return changed

    def _log_exception(self, method: str, consequence: str) -> None:
        """Log the exception that is being handled, if it is the first of the spider's
        *method*."""
        if method in self._failed_methods:
            return
        self._failed_methods.add(method)
        logger.exception(
            f"{method}() raised an exception: {consequence}. Further ones are not logged.",
            extra={"spider": self._spider},
        )

    @property
    def has_rules(self) -> bool:
        """Whether the spider has ``sitemap_rules``."""
        return self._rules is not None

    def page_request(
        self, url: str, listing: dict[str, Any], priority: int
    ) -> Request | None:
        """Return the request for a page of a sitemap; None if the spider doesn't want
        it. Raises what the constructor of ``Request`` does.

        :param listing: what the sitemap says about the page, see ``Page.listing`` in
            seeding/spool.py
        """
        # The rule of a CrawlSpider that applies to the page, if one does.
        index = self._crawl_rules.index_for(url) if self._crawl_rules else None
        if index is not None:
            return self._rule_request(index, url, listing, priority)
        is_wanted, callback = self.callback_for(url)
        if not is_wanted:
            return None
        return Request(url, callback, priority=priority, meta={PAGE_KEY: listing})

    def _rule_request(
        self, index: int, url: str, listing: dict[str, Any], priority: int
    ) -> Request | None:
        """Return what the rule of a CrawlSpider with this *index* makes of a page; None
        if the rule drops the page."""
        try:
            request = self._crawl_rules.request(index, url, listing["sitemap"])
        except Exception:  # noqa: BLE001 (it is the spider's)
            self._log_exception("process_request", "its page is skipped")
            return None
        if request is not None:
            request.meta[PAGE_KEY] = listing
            request.priority += priority
        return request

    def changed_page(self, request: Request) -> Request | None:
        """Return the request for a page as ``sitemap_page`` wants it; None to skip the
        page."""
        if self._sitemap_page is None:
            return request
        # The process_request of a CrawlSpider's rule may have removed this key.
        listing = request.meta.get(PAGE_KEY)
        try:
            changed: Request | None = self._sitemap_page(request, listing)
            if changed is not None and not isinstance(changed, Request):
                raise TypeError(
                    f"it returned {changed!r}, which is neither a Request nor None"
                )
        except Exception:  # noqa: BLE001 (it is the spider's)
            self._log_exception("sitemap_page", "the page is requested as it was")
            return request
        if changed is not None:
            changed.meta.setdefault(PAGE_KEY, listing)
        return changed

    def callback_for(self, url: str) -> PageCallback:
        """Return whether ``sitemap_rules`` want a page, and its callback."""
        if self._rules is None:
            return PageCallback(True, None)
        for regex, callback in self._rules:
            if regex.search(url):
                return PageCallback(True, callback)
        return PageCallback(False, None)

    def follows(self, url: str) -> bool:
        """Whether ``sitemap_follow`` wants a sitemap that an index lists."""
        return self._follow is None or any(regex.search(url) for regex in self._follow)

    def filtered(
        self, entries: list[SitemapEntry], sitemap_kind: str, url: str
    ) -> Filtered:
        """Return what ``sitemap_filter`` leaves of *entries*, which are from the
        sitemap at *url*, of *sitemap_kind*.

        An entry at which the filter raises an exception is skipped, and the filter is
        called again with the entries after it.
        """
        if self._sitemap_filter is None:
            return Filtered(entries, 0)
        kept: list[SitemapEntry] = []
        failures = 0
        remaining = Entries(entries, sitemap_kind, url)
        # After an exception, the filter is called again with the remaining entries.
        while left := remaining.count_left():
            try:
                for entry in self._sitemap_filter(remaining) or ():
                    if not isinstance(entry, dict):
                        raise TypeError(
                            f"it returned {entry!r}, which is not an entry (a dict)"
                        )
                    # One by one, so that entries before an exception count.
                    kept.append(entry)
                break
            except Exception:  # noqa: BLE001 (it is the spider's)
                self._log_exception("sitemap_filter", "its entry is skipped")
                if remaining.count_left() == left:
                    # The filter took no entry, so it would raise again. All that are
                    # left count as failures.
                    return Filtered(kept, failures + left)
                failures += 1
        return Filtered(kept, failures)
