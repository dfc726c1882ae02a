"""The body of a robots.txt response, truncated on arrival and decoded within a limit (REP.md
section 2). ``DOWNLOAD_MAXSIZE`` and HttpCompressionMiddleware fail a response that is too large; the
protocol wants its beginning.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import ResponseDataLossError, StopDownload

from scrapy_rep.engine import headers
from scrapy_rep.engine.listener import Listener
from scrapy_rep.protocol.syntax import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

META_KEY = "_rep_transfer"

ACCEPT_ENCODING = "gzip, deflate"
"""What :func:`decode` supports."""

# One byte more than counts: it tells the parser whether the limit cuts a line in two.
READ_BYTES = MAX_BYTES + 1

OTHER_ENCODINGS_MAX = 16 * MAX_BYTES
"""Limit for HttpCompressionMiddleware, which decodes other encodings, in one go."""

_MAX_MEMBERS = 100
"""Of a gzip file. An empty one costs as much as a kilobyte of rules."""


class Transfer:
    """One response while it arrives. Kept in the request's meta."""

    __slots__ = ("cut", "encodings", "on_left", "problem", "received")

    def __init__(self, on_left: Callable[[], object]) -> None:
        """:param on_left: called when the response leaves the downloader, before the next request"""
        self.on_left = on_left
        self.received = 0
        self.cut = False
        self.encodings: list[str] = []
        self.problem: str | None = None
        """Why the body can't be decoded."""

    def body_of(self, response: Response) -> bytes:
        """Return at most :data:`READ_BYTES` of the decoded body.

        :raises ResponseDataLossError: if it is truncated or not what ``Content-Encoding`` says
        """
        if self.problem is not None:
            raise ResponseDataLossError(self.problem)
        body = response.body
        for encoding in reversed(self.encodings):
            body, complete = decode(body, encoding)
            if not complete and not self.cut and len(body) < READ_BYTES:
                raise ResponseDataLossError(f"the {encoding} body ends too early")
        return body[:READ_BYTES]


class TransferWatch:
    """Follows robots.txt responses by Scrapy's signals, while there are any: ``bytes_received`` is
    sent for every piece of every page."""

    def __init__(self, crawler: Crawler) -> None:
        self._listener = Listener(
            crawler,
            {
                signals.bytes_received: self._bytes_received,
                signals.response_downloaded: self._response_downloaded,
                signals.request_left_downloader: self._left,
                signals.response_received: self._left,  # one from the HTTP cache leaves nothing
            },
        )
        self._watched = 0

    def __enter__(self) -> None:
        self._watched += 1
        self._listener.begin()

    def __exit__(self, *_: object) -> None:
        self._watched -= 1
        if self._watched == 0:
            self._listener.end()

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        transfer = request.meta.get(META_KEY)
        if isinstance(transfer, Transfer):
            transfer.received += len(data)
            # Compressed or not: this many bytes never decode to less than counts.
            if transfer.received >= READ_BYTES:
                transfer.cut = True
                raise StopDownload(fail=False)

    def _response_downloaded(self, request: Request, response: Response, **_: Any) -> None:
        """Take over from HttpCompressionMiddleware, which sees the response next."""
        transfer = request.meta.get(META_KEY)
        if not isinstance(transfer, Transfer):
            return
        try:
            encodings = headers.encodings(response.headers)
        except headers.NotCredible as error:
            transfer.problem = str(error)
            encodings = []
        if all(encoding in _WBITS for encoding in encodings):
            transfer.encodings = encodings
            response.headers.pop("Content-Encoding", None)
        elif len(encodings) == 1:
            request.meta["download_maxsize"] = OTHER_ENCODINGS_MAX
        else:
            transfer.problem = f"the body is encoded as {', '.join(encodings)}"[:200]
            response.headers.pop("Content-Encoding", None)

    def _left(self, request: Request, **_: Any) -> None:
        transfer = request.meta.get(META_KEY)
        if isinstance(transfer, Transfer):
            transfer.on_left()


# 47: gzip or zlib, as zlib detects.
_WBITS = {"gzip": 47, "x-gzip": 47, "deflate": 47}


def decode(data: bytes, encoding: str) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of the decoded *data*, and whether its end was reached.

    :raises ResponseDataLossError: if *data* isn't what *encoding* says
    """
    if not data:
        return b"", True
    wbits = _WBITS[encoding]
    # In RFC 9110 "deflate" means zlib; some servers send it raw.
    if encoding == "deflate" and (data[0] & 15 != 8 or int.from_bytes(data[:2], "big") % 31):
        wbits = -15
    output = b""
    try:
        for _ in range(_MAX_MEMBERS):
            if not data or len(output) >= READ_BYTES:
                break
            decoder = zlib.decompressobj(wbits)
            output += decoder.decompress(data, READ_BYTES - len(output))
            if not decoder.eof:
                return output, False
            data = decoder.unused_data.lstrip(b"\0")  # the next member of a gzip file
    except zlib.error as error:
        if output:  # garbage after the stream
            return output, True
        raise ResponseDataLossError(f"the body is not {encoding}: {error}") from error
    return output, True
