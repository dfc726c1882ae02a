"""What came of one fetch of a robots.txt (REP.md sections 2 and 3), its body decoded within a limit.

HttpCompressionMiddleware fails a response that is too large; the protocol wants its beginning.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any

from scrapy.downloadermiddlewares.httpcompression import ACCEPTED_ENCODINGS
from scrapy.exceptions import ResponseDataLossError
from scrapy.http import Headers, Response

from scrapy_rep.protocol.availability import Outcome, outcome_of
from scrapy_rep.protocol.syntax import MAX_BYTES
from scrapy_rep.text import text_of

# Characters. The reasons for refused redirects fit beside the target.
_MAX_REASON = 250

# One byte more than counts: it tells the parser whether the limit cuts a line in two.
READ_BYTES = MAX_BYTES + 1

OTHER_ENCODINGS_MAX = 16 * MAX_BYTES
"""Limit of HttpCompressionMiddleware, which decodes sitemaps in one go."""

_ZLIB = ("gzip", "x-gzip", "deflate")
# Newer Scrapy requires the first or the second of each.
_LIBRARIES = {"br": ("brotli", "brotlicffi"), "zstd": ("compression.zstd", "backports.zstd")}
# What no text has.
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")
# 8 MiB, as in RFC 9659: a frame may ask for gigabytes.
_ZSTD_WINDOW = 23

_MAX_MEMBERS = 100
"""Members of a gzip file. An empty one costs as much as a kilobyte of rules."""

MAX_HEADER = 16 * 1024
"""Bytes of all headers of one name. Twisted lets a folded header be megabytes long."""

MAX_ENCODINGS = 5
"""Encodings of one body. Each may unpack to much more than the one around it."""


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    url: str
    """After redirects."""
    hops: int
    status: int | None = None
    """None if there was no HTTP answer."""
    headers: Headers | None = None
    body: bytes = b""
    error: Exception | None = None
    note: str = ""
    """What is strange about it, in words."""
    by: str = ""
    """The setting that makes it what it is (REP.md section 13), in words."""

    @property
    def reason(self) -> str:
        """Why there are no rules, in words."""
        if self.error is not None:
            return text_of(self.error)[:_MAX_REASON]
        return f"HTTP {self.status}{', ' * bool(self.by)}{self.by}"


@dataclass(slots=True)
class Transfer:
    """One response while it arrives, kept in the request's meta."""

    slot: ExitStack = field(default_factory=ExitStack)
    """Removes, once, the download slot that was added for it."""
    received: int = 0
    """Bytes."""
    cut: bool = False
    """Whether the transfer was stopped because enough had arrived."""
    encodings: list[bytes] = field(default_factory=list)
    """The headers about the body's encoding, once they are removed from the response."""


def answer_of(
    response: Response, transfer: Transfer, url: str, hops: int, *, soft_404: bool
) -> Answer:
    """Return what a response means. Its status and headers count whatever its body is; of an error
    page, any part of the body will do."""
    status, note, problem = response.status, "", ""
    lost = "dataloss" in response.flags and not transfer.cut
    body, complete, encodings = response.body[:READ_BYTES], True, list[str]()
    try:
        if sent := transfer.encodings or response.headers.getlist("Content-Encoding"):
            encodings = content_encodings(sent)
            body, complete = undo(response.body, encodings, cut=lost or transfer.cut)
        if lost or not complete:
            by = "transfer" if lost else f"{', '.join(encodings)} body"
            problem, note = f"the {by} ends too early", "its body ends too early"
    except ResponseDataLossError as error:
        body, problem, note = b"", str(error), "its body can't be decoded"
    if problem and 200 <= status < 300:
        return Answer(Outcome.UNREACHABLE, url, hops, error=ResponseDataLossError(problem))
    soft_404 = soft_404 and "Retry-After" not in response.headers
    outcome = outcome_of(status, body, soft_404=soft_404)
    note = note and f"{note}, which changes nothing"
    return Answer(outcome, url, hops, status, response.headers, body, note=note)


def accept_encoding() -> dict[str, str]:
    """Return the header that a request for robots.txt needs: none if :func:`decode` undoes all that
    Scrapy asks for, since download handlers may take our header for the project's. Older Scrapy can
    ask for zstd because of a library that we don't use."""
    ours = {*_ZLIB} | {name for name in _LIBRARIES if _library(name) is not None}
    known = ours.issuperset(one.decode() for one in ACCEPTED_ENCODINGS)
    return {} if known else {"Accept-Encoding": "gzip, deflate"}


def undo(body: bytes, encodings: list[str], *, cut: bool = False) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of *body* without its *encodings*, and whether that is all
    that counts; ``ResponseDataLossError`` if they don't fit. If *body* is *cut*, a missing end
    doesn't matter."""
    for encoding in reversed(encodings):
        body, complete = decode(body, encoding)
        cut = cut or len(body) >= READ_BYTES
        if not (complete or cut):
            return body, False
    return body[:READ_BYTES], True


def decode(data: bytes, encoding: str) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of the decoded *data*, and whether its end was reached;
    ``ResponseDataLossError`` if *data* isn't what *encoding* says, or nothing here decodes it."""
    if not data or not (encoding in _ZLIB or encoding in _LIBRARIES or _BINARY.search(data)):
        return data[:READ_BYTES], True  # "utf-8" and "none" are no encodings: browsers ignore them
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
    """Return what makes a decoder with the methods of zlib's, and what that raises."""
    if encoding in _ZLIB:
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
    unused_data = b""

    def __init__(self, new: Callable[[], Any]) -> None:
        self._decoder = new()

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, most: int) -> bytes:
        output: bytes = self._decoder.process(data, output_buffer_limit=most)
        return output[:most]


def header_text(headers: Headers | None, name: str) -> str | None:
    """Return the values of all headers of that name, joined by commas; None without one, or if that
    is longer than :data:`MAX_HEADER`."""
    text = b",".join(headers.getlist(name)) if headers is not None else b""
    return text.decode("latin-1") if 0 < len(text) < MAX_HEADER else None


def content_encodings(values: list[bytes]) -> list[str]:
    """Return the content encodings that headers of these *values* name, lower case, in the order
    applied, without ``identity``; ``ResponseDataLossError`` beyond the limits."""
    text = b",".join(values).decode("latin-1")
    if any(values) and len(text) >= MAX_HEADER:
        raise ResponseDataLossError(
            f"the Content-Encoding header is longer than {MAX_HEADER} bytes"
        )
    names = map(str.strip, text.lower().split(","))
    found = [name for name in names if name not in ("", "identity")]
    if len(found) > MAX_ENCODINGS:
        raise ResponseDataLossError(f"{len(found)} content encodings, more than {MAX_ENCODINGS}")
    return found
