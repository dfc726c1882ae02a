"""Requests for sitemaps, from the spool to the scheduler: only some at a time, since their bodies are
in memory. The :class:`~scrapy_rep.seeding.feeder.Feeder` calls it.

No more of a sitemap is received than counts, and gzip stays as it is, to be unpacked piece by piece
(`protocol/sitemaps/gunzip.py`). Other encodings, which nobody asked for, are unpacked by Scrapy's
HttpCompressionMiddleware, in one go: up to a limit.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.exceptions import StopDownload

from scrapy_rep.engine import headers
from scrapy_rep.engine.listener import Listener
from scrapy_rep.engine.pause import Slices
from scrapy_rep.origins.body import OTHER_ENCODINGS_MAX
from scrapy_rep.seeding.discovery import SITEMAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.seeding.context import SeedingContext
    from scrapy_rep.seeding.sitemap_table import SitemapRow

SITEMAP_KEY = "rep_sitemap_of"

# The most sitemaps that are outstanding: of one host, of all.
_OF_HOST, _ALL = 2, 32
# When the crawl ends, and the scheduler is to have all: of each host in one step.
_AT_ONCE = 50
# No more sitemaps are read while as many pages wait.
_PAGES_ENOUGH = 1_000_000

ACCEPT_ENCODING = "gzip"
"""All that can be unpacked here. HttpCompressionMiddleware would unpack a file in one go."""

MAXSIZE = "download_maxsize"
"""Scrapy's meta key, by which HttpCompressionMiddleware is told how much it may unpack. It holds
for one response alone: :meth:`~scrapy_rep.seeding.intake.Intake.check` takes it off a request that is sent again."""

_GZIP = ("gzip", "x-gzip")


class Transfers:
    """Watches the transfers of sitemaps, while there are any."""

    def __init__(self, context: CrawlContext) -> None:
        crawler = context.crawler
        self._listener = Listener(
            crawler,
            {
                signals.bytes_received: self._bytes_received,
                signals.response_downloaded: self._response_downloaded,
            },
        )
        self._max_bytes = context.settings.sitemap_max_bytes
        maxsize = crawler.settings.getint("DOWNLOAD_MAXSIZE") or OTHER_ENCODINGS_MAX
        self._other_encodings_max = min(maxsize, OTHER_ENCODINGS_MAX)
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    def watch(self, on: bool) -> None:
        """Begin or end. A handler of ``bytes_received`` is called for every piece of every page."""
        if on:
            self._listener.begin()
        else:
            self._listener.end()

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        received = self._received.get(request, 0) + len(data)
        self._received[request] = received
        # Counted as received: unpacking never makes them fewer.
        if received > self._max_bytes:
            raise StopDownload(fail=False)

    def _response_downloaded(self, request: Request, response: Response, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received.pop(request, None)
        try:
            encodings = headers.encodings(response.headers)
        except headers.NotCredible:
            encodings = []  # read as it came, it is no sitemap
        if len(encodings) == 1 and encodings[0] not in _GZIP:
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
        self._transfers = Transfers(context.crawl)
        self._waiting = False
        self._host = ""  # whose turn was the last
        self._outstanding: dict[str, str] = {}
        """URLs and their hosts."""
        self._shared = False

    def __bool__(self) -> bool:
        """Whether any sitemaps are to be requested, or to come."""
        return self._waiting or bool(self._outstanding)

    def open(self) -> None:
        """Begin."""
        # Of a scheduler that others use too, anything may come at any time.
        self._shared = self._engine.scheduler_is_foreign
        self._transfers.watch(self._shared)

    def stop(self) -> None:
        """The crawl ends."""
        self._transfers.watch(False)

    def added(self) -> None:
        """There are more sitemaps in the spool."""
        self._waiting = True
        self._wake()

    def some(self, *, everything: bool = False) -> bool:
        """Request those whose turn it is. Return whether to go on with the next at once.

        :param everything: whether to request more than are wanted at a time
        """
        if self._spool.waiting >= _PAGES_ENOUGH and not everything:
            return False
        # What another process may read does not count as outstanding: only time ends the step.
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
            while (
                requested[host] < most and (sitemap := self._spool.sitemaps.next(host)) is not None
            ):
                requested[host] += 1
                self._hand_over(sitemap)
            left = left or requested[host] >= most
            if unlimited and slices.over:
                left = True
                break
        self._waiting = left
        return left and unlimited

    def _hand_over(self, sitemap: SitemapRow) -> None:
        if not self._shared:  # else another process may have it, and it need not come here
            self._outstanding[sitemap.url] = sitemap.host
        try:
            self.request(sitemap)
        except Exception:
            # The scheduler's server is gone, say: it will be tried again.
            self._outstanding.pop(sitemap.url, None)
            self._spool.sitemaps.put_back(sitemap)
            raise

    def request(self, sitemap: SitemapRow, *, dont_filter: bool = False) -> None:
        """Hand the request for *sitemap* to the scheduler."""
        request = Request(
            sitemap.url,
            priority=self._settings.sitemap_priority,
            dont_filter=dont_filter,
            headers={"Accept-Encoding": ACCEPT_ENCODING},
            meta={
                SITEMAP_KEY: sitemap.origin,
                SITEMAP: {
                    "url": sitemap.url,
                    "chain": list(sitemap.chain),
                    "guessed": sitemap.guessed,
                },
                # A sitemap may be on any host; allowed_domains is about pages.
                "allow_offsite": True,
            },
        )
        self._transfers.watch(True)
        self._engine.crawl(request)

    @property
    def outstanding(self) -> list[str]:
        """The sitemaps that were requested and have not come."""
        return list(self._outstanding)

    def came(self, url: str) -> None:
        """Take note that a sitemap was read, or will not be."""
        self._outstanding.pop(url, None)
        self._transfers.watch(self._shared or bool(self._outstanding))
        self._wake()
