"""Requests for sitemaps, from the spool to the scheduler: a few at a time, since their bodies are in
memory. A transfer is cut at the size limit. `protocol/sitemaps/gunzip.py` unpacks gzip piece by piece,
Scrapy's HttpCompressionMiddleware other encodings in one go, up to a limit."""

from __future__ import annotations

from collections import Counter
from inspect import isabstract
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.exceptions import StopDownload
from scrapy.utils.misc import load_object

from scrapy_rep.engine.access import Listener
from scrapy_rep.engine.pause import Slices
from scrapy_rep.origins.body import OTHER_ENCODINGS_MAX, NotCredible, content_encodings
from scrapy_rep.seeding.discovery import SITEMAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.seeding.spool import SeedingContext
    from scrapy_rep.seeding.spool_file import SitemapRow

SITEMAP_KEY = "rep_sitemap_of"

# Limits of outstanding sitemaps: of one host, of all.
_OF_HOST, _ALL = 2, 32
# Of each host in one step, when the crawl closes and the scheduler gets everything.
_AT_ONCE = 50
# While this many pages wait, no sitemaps are requested.
_PAGES_ENOUGH = 1_000_000

MAXSIZE = "download_maxsize"
"""Scrapy's meta key that limits what HttpCompressionMiddleware unpacks. For one response alone:
:meth:`~scrapy_rep.seeding.intake.Intake.check` removes it from retries."""


class Transfers:
    """Watches the transfers of sitemaps, while there are any."""

    def __init__(self, context: CrawlContext) -> None:
        crawler = context.crawler
        handlers: dict[object, Callable[..., Any]] = {
            signals.bytes_received: self._bytes_received,
            signals.response_downloaded: self._response_downloaded,
        }
        self._listener = Listener(crawler, handlers)
        self._max_bytes = context.settings.sitemap_max_bytes
        maxsize = crawler.settings.getint("DOWNLOAD_MAXSIZE") or OTHER_ENCODINGS_MAX
        self._other_encodings_max = min(maxsize, OTHER_ENCODINGS_MAX)
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    def watch(self, on: bool) -> None:
        """Begin or end: a ``bytes_received`` handler is called for every piece of every page."""
        (self._listener.begin if on else self._listener.end)()

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received[request] = received = self._received.get(request, 0) + len(data)
        if received > self._max_bytes:
            raise StopDownload(fail=False)

    def _response_downloaded(self, request: Request, response: Response, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received.pop(request, None)
        try:
            encodings = content_encodings(response.headers)
        except NotCredible:
            encodings = []  # what can't be decoded is no sitemap
        if len(encodings) == 1 and encodings[0] not in ("gzip", "x-gzip"):
            request.meta[MAXSIZE] = self._other_encodings_max
        else:
            response.headers.pop("Content-Encoding", None)


class SitemapRequester:
    """Hands requests for sitemaps to the scheduler."""

    def __init__(self, context: SeedingContext, wake: Callable[[], None]) -> None:
        """:param wake: has :meth:`some` called soon"""
        self._settings = context.crawl.settings
        self._engine = context.crawl.engine
        self._spool = context.spool
        self._wake = wake
        self._handlers = context.crawl.crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        self._transfers = Transfers(context.crawl)
        self._waiting = False
        self._host = ""  # had the last turn
        self._outstanding: dict[str, str] = {}  # URL: host
        self._shared = False

    def __bool__(self) -> bool:
        """Whether any sitemaps wait or are outstanding."""
        return self._waiting or bool(self._outstanding)

    def open(self) -> None:
        """Begin."""
        self._shared = self._engine.scheduler_is_foreign  # and may hand us anything at any time
        self._transfers.watch(self._shared)

    def stop(self) -> None:
        """The crawl is closing."""
        self._transfers.watch(False)

    def added(self) -> None:
        """There are more sitemaps in the spool."""
        self._waiting = True
        self._wake()

    def some(self, *, everything: bool = False) -> bool:
        """Request those whose turn it is; with *everything*, ignore the limits. Return whether to go
        on at once."""
        if self._spool.waiting >= _PAGES_ENOUGH and not everything:
            return False
        # What another process may read is not outstanding here: only time ends the step.
        unlimited = everything or self._shared
        most = _AT_ONCE if everything else _OF_HOST
        requested = Counter(() if everything else self._outstanding.values())
        slices = Slices()
        left = False
        for host in self._spool.sitemaps.hosts(self._host):
            if len(self._outstanding) >= _ALL and not unlimited:
                left = True
                break
            self._host = host
            while requested[host] < most and (sitemap := self._spool.sitemaps.next(host)):
                requested[host] += 1
                self._hand_over(sitemap)
            left = left or requested[host] >= most
            if unlimited and slices.over:
                left = True
                break
        self._waiting = left
        return left and unlimited

    def _hand_over(self, sitemap: SitemapRow) -> None:
        if not self._shared:  # else it may go to another process
            self._outstanding[sitemap.url] = sitemap.host
        try:
            self.request(sitemap)
        except Exception:  # the feeder retries
            self._outstanding.pop(sitemap.url, None)
            self._spool.sitemaps.put_back(sitemap)
            raise

    def request(self, sitemap: SitemapRow, *, dont_filter: bool = False) -> None:
        """Hand the request for *sitemap* to the scheduler."""
        about = {"url": sitemap.url, "chain": list(sitemap.chain), "guessed": sitemap.guessed}
        request = Request(
            sitemap.url,
            priority=self._settings.sitemap_priority,
            dont_filter=dont_filter,
            headers=self._headers(sitemap.url),
            # A sitemap may be on any host: allowed_domains is about pages.
            meta={SITEMAP_KEY: sitemap.origin, SITEMAP: about, "allow_offsite": True},
        )
        self._transfers.watch(True)
        self._engine.crawl(request)

    def _headers(self, url: str) -> dict[str, str]:
        """Ask for what gunzip.py unpacks, if bodies come as servers encode them. That is so with Scrapy's
        download handlers and what is made of them. Others may take a header that isn't Scrapy's for the
        project's."""
        path = self._handlers.get(url.partition(":")[0])
        kinds = getattr(load_object(path), "__mro__", ()) if path else ()
        found = any(one.__module__.startswith("scrapy.") and not isabstract(one) for one in kinds)
        return {"Accept-Encoding": "gzip"} if found else {}

    @property
    def outstanding(self) -> list[str]:
        """The sitemaps that were requested and have not arrived."""
        return list(self._outstanding)

    def came(self, url: str) -> None:
        """A sitemap was read, or will not be."""
        self._outstanding.pop(url, None)
        self._transfers.watch(self._shared or bool(self._outstanding))
        self._wake()
