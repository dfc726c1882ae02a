"""Bodies decoded within a limit (REP.md section 2), and headers of a reasonable length.

HttpCompressionMiddleware fails a response that is too large; the protocol wants its beginning.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

from scrapy.downloadermiddlewares.httpcompression import ACCEPTED_ENCODINGS
from scrapy.exceptions import ResponseDataLossError
from scrapy.http import Headers

from scrapy_rep.protocol.syntax import MAX_BYTES

# One byte more than counts: it tells the parser whether the limit cuts a line in two.
READ_BYTES = MAX_BYTES + 1

OTHER_ENCODINGS_MAX = 16 * MAX_BYTES
"""Limit for HttpCompressionMiddleware, which decodes those of sitemaps, in one go."""

_GZIP = ("gzip", "x-gzip")

# Newer Scrapy requires the first or the second of each.
_LIBRARIES = {
    "br": ("brotli", "brotlicffi"),
    "zstd": ("compression.zstd", "backports.zstd"),
}
# As in RFC 9659, 8 MiB: a frame may ask for gigabytes.
_ZSTD_WINDOW = 23

_MAX_MEMBERS = 100
"""Of a gzip file. An empty one costs as much as a kilobyte of rules."""

MAX_HEADER = 16 * 1024
"""Bytes of all headers of one name. Twisted lets a folded header be megabytes long."""

MAX_ENCODINGS = 5
"""Of one body. Each may unpack to much more than the one around it."""


def accept_encoding() -> dict[str, str]:
    """Return the header that a request for robots.txt needs: none if :func:`decode` undoes all that
    HttpCompressionMiddleware asks for, since download handlers may take a header that isn't Scrapy's for
    the project's. Older Scrapy can ask for zstd because of a library that we don't use."""
    ours = {*_GZIP, "deflate"} | {name for name in _LIBRARIES if _library(name) is not None}
    known = ours.issuperset(one.decode() for one in ACCEPTED_ENCODINGS)
    return {} if known else {"Accept-Encoding": "gzip, deflate"}


def undo(body: bytes, encodings: list[str], *, cut: bool = False) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of *body* without its *encodings*, and whether that is all that
    counts.

    :param cut: whether the end of *body* is missing, which then doesn't matter
    :raises ResponseDataLossError: if *body* isn't what *encodings* say
    """
    for encoding in reversed(encodings):
        try:
            body, complete = decode(body, encoding)
        except ResponseDataLossError as error:
            names = ", ".join(encodings)[:200]
            raise ResponseDataLossError(f"the body is encoded as {names}, but {error}") from error
        cut = cut or len(body) >= READ_BYTES
        if not (complete or cut):
            return body, False
    return body[:READ_BYTES], True


def decode(data: bytes, encoding: str) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of the decoded *data*, and whether its end was reached.

    :raises ResponseDataLossError: if *data* isn't what *encoding* says, or nothing here decodes that
    """
    if not data:
        return b"", True
    new, errors = _decoders(data, encoding)
    output = b""
    try:
        for _ in range(_MAX_MEMBERS):
            if not data or len(output) >= READ_BYTES:
                break
            decoder = new()
            output += decoder.decompress(data, READ_BYTES - len(output))
            if not decoder.eof:
                return output, False
            data = decoder.unused_data.lstrip(b"\0")  # the next member of a gzip file
    except errors as error:
        if output:  # garbage after the stream
            return output, True
        raise ResponseDataLossError(f"the body is not {encoding}: {error}") from error
    return output, True


def _decoders(data: bytes, encoding: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return what makes a decoder with the methods of zlib's, and what that raises.

    :raises ResponseDataLossError: if there is none
    """
    if encoding in _GZIP or encoding == "deflate":
        wbits = 47  # gzip or zlib, as zlib detects
        # In RFC 9110 "deflate" means zlib; some servers send it raw.
        if encoding == "deflate" and (data[0] & 15 != 8 or int.from_bytes(data[:2], "big") % 31):
            wbits = -15
        return partial(zlib.decompressobj, wbits), zlib.error
    library = _library(encoding) if encoding in _LIBRARIES else None
    if library is None:
        raise ResponseDataLossError(f"nothing here decodes {encoding}")
    if encoding == "br":
        return partial(_Brotli, library.Decompressor), library.error
    limit = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW}
    return partial(library.ZstdDecompressor, options=limit), library.ZstdError


@cache
def _library(encoding: str) -> Any:
    """Return the module that decodes *encoding*; None if none is installed."""
    for name in _LIBRARIES[encoding]:
        with suppress(ImportError):
            return import_module(name)
    return None


class _Brotli:
    """Brotli's decoder, with the methods of zlib's."""

    unused_data = b""

    def __init__(self, new: Callable[[], Any]) -> None:
        self._decoder = new()

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, most: int) -> bytes:
        output: bytes = self._decoder.process(data, output_buffer_limit=most)
        return output[:most]


class NotCredible(ValueError):
    """A header is unreasonably long."""


def header_text(headers: Headers | None, name: str) -> str | None:
    """Return the values of all headers with that name, joined by commas; None without one, or if that
    is longer than :data:`MAX_HEADER`."""
    values = headers.getlist(name) if headers is not None else []
    if sum(map(len, values)) + len(values) > MAX_HEADER:
        return None
    return b",".join(values).decode("latin-1") or None


def content_encodings(headers: Headers) -> list[str]:
    """Return the content encodings, lower case, in the order applied, without ``identity``.

    :raises NotCredible: if the header is too long, or there are more than :data:`MAX_ENCODINGS`
    """
    text = header_text(headers, "Content-Encoding")
    if text is None and any(headers.getlist("Content-Encoding")):
        raise NotCredible(f"the Content-Encoding header is longer than {MAX_HEADER} bytes")
    names = map(str.strip, (text or "").lower().split(","))
    found = [name for name in names if name not in ("", "identity")]
    if len(found) > MAX_ENCODINGS:
        raise NotCredible(f"{len(found)} content encodings, more than {MAX_ENCODINGS}")
    return found


def last_header(headers: Headers, name: str) -> bytes:
    """Return the last header's value; empty without one, or if it is too long."""
    value = headers.get(name) or b""
    return value if len(value) <= MAX_HEADER else b""
