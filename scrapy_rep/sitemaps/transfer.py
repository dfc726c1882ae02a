"""The transfer of sitemaps: no more is received than counts, and gzip stays as it is, to be unpacked
piece by piece (`unpack.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import StopDownload

from scrapy_rep.discovery import SITEMAP
from scrapy_rep.listener import Listener

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

ACCEPT_ENCODING = "gzip"
"""All that can be unpacked here. HttpCompressionMiddleware would unpack a file in one go."""


class Transfers:
    """Watches the transfers of sitemaps, while there are any."""

    def __init__(self, crawler: Crawler, max_bytes: int) -> None:
        self._listener = Listener(
            crawler,
            {
                signals.bytes_received: self._bytes_received,
                signals.response_downloaded: self._response_downloaded,
            },
        )
        self._max_bytes = max_bytes
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
        named = b",".join(response.headers.getlist("Content-Encoding")).strip().lower()
        if named in (b"gzip", b"x-gzip"):
            del response.headers["Content-Encoding"]
