"""The transfer of sitemaps: no more is received than counts, and gzip stays as it is, to be unpacked
piece by piece (`protocol/sitemaps/gunzip.py`). Other encodings, which nobody asked for, are unpacked
by Scrapy's HttpCompressionMiddleware, in one go: up to a limit. Used by `requester.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import StopDownload

from scrapy_rep.engine import headers
from scrapy_rep.engine.listener import Listener
from scrapy_rep.origins.body import OTHER_ENCODINGS_MAX
from scrapy_rep.seeding.discovery import SITEMAP

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_rep.origins.context import CrawlContext

ACCEPT_ENCODING = "gzip"
"""All that can be unpacked here. HttpCompressionMiddleware would unpack a file in one go."""

MAXSIZE = "download_maxsize"
"""Scrapy's meta key, by which HttpCompressionMiddleware is told how much it may unpack. It holds
for one response alone: :meth:`Intake.check` takes it off a request that is sent again."""

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
        # Packed or not: so many bytes are never less when unpacked.
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
