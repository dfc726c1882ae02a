"""What came of one fetch of a robots.txt (REP.md sections 2 and 3): an answer, its body decoded within
a limit (HttpCompressionMiddleware fails a response that is too large; the protocol wants its
beginning), or a failure. Who caused that: the origin, a proxy or the project itself? Only the first
says anything about the origin.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from traceback import walk_tb
from typing import Any

from scrapy import Request, exceptions
from scrapy.downloadermiddlewares.httpcompression import ACCEPTED_ENCODINGS
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from scrapy.http import Headers, Response
from twisted.internet.error import ConnectionClosed
from twisted.python.failure import Failure

from scrapy_rep.protocol.availability import (
    UNCHANGED,
    WALL_SIGNS,
    Outcome,
    is_whole,
    outcome_of,
)
from scrapy_rep.protocol.syntax import MAX_BYTES
from scrapy_rep.storages.base import Entry
from scrapy_rep.text import text_of

# Characters. The reasons for refused redirects fit beside the target.
_MAX_REASON = 250

# One byte more than counts: it tells the parser whether the limit cuts a line in two.
READ_BYTES = MAX_BYTES + 1

OTHER_ENCODINGS_MAX = 16 * MAX_BYTES
"""Limit of HttpCompressionMiddleware, which decodes sitemaps in one go."""

_ZLIB = ("gzip", "x-gzip", "deflate")
# Newer Scrapy requires the first or the second of each.
_LIBRARIES = {
    "br": ("brotli", "brotlicffi"),
    "zstd": ("compression.zstd", "backports.zstd"),
}
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
    wall: str = ""
    """The bot wall's sign that it carries, one of ``WALL_SIGNS``; empty without one."""
    setting: str = ""
    """The setting that makes it what it is (REP.md section 13), in words."""
    ends_at: float = math.inf
    """Seconds since the epoch: from then on, the setting doesn't."""

    @property
    def reason(self) -> str:
        """Why there are no rules, in words."""
        if self.error is not None:
            text = text_of(self.error)
            if not self.hops:  # messages name the origin anyway
                text = text.replace(f"Getting {self.url} took", "took")
            return text[:_MAX_REASON]
        detail = self.setting or self.wall
        return f"HTTP {self.status}, {detail}" if detail else f"HTTP {self.status}"


@dataclass(slots=True)
class Transfer:
    """One response while it arrives."""

    request: Request | None = None
    sent_at: float | None = None
    """When the request left the downloader's queue, in seconds of ``time.monotonic()``; None if it
    never did: a middleware may have answered."""
    received: int = 0
    """Bytes."""
    cut: bool = False
    """Whether the transfer was stopped because enough had arrived."""
    encodings: list[bytes] = field(default_factory=list)
    """The headers about the body's encoding, which are removed from the response."""


def answer_of(
    response: Response, transfer: Transfer, url: str, hops: int, *, soft_404: bool
) -> Answer:
    """Return what a response means. Its status and headers count whatever its body is; of an error
    page, any part of the body will do."""
    status, note, problem = response.status, "", ""
    if status == 206 and not is_whole(header_text(response.headers, "Content-Range")):
        error = ResponseDataLossError("only a part of the file was sent (HTTP 206)")
        return Answer(Outcome.UNREACHABLE, url, hops, error=error)
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
        return Answer(
            Outcome.UNREACHABLE, url, hops, error=ResponseDataLossError(problem)
        )
    soft_404 = soft_404 and "Retry-After" not in response.headers
    outcome = outcome_of(status, body, soft_404=soft_404)
    note = note and f"{note}, which changes nothing"
    if status == UNCHANGED:
        note = note or "nobody asked whether the file has changed"
    wall = wall_sign(response.headers)
    return Answer(
        outcome, url, hops, status, response.headers, body, note=note, wall=wall
    )


def in_place_of(answer: Answer, known: Entry | None) -> Answer:
    """Return what *answer* means if *known* is what was known: a 304, for which nobody asked, says that
    a copy is still good."""
    if answer.status != UNCHANGED or known is None or not known.has_copy:
        return answer
    return replace(
        answer,
        outcome=known.outcome,
        status=known.status,
        body=known.body,
        error=None,
        wall=answer.wall or known.wall,
    )


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
    if not data or not (
        encoding in _ZLIB or encoding in _LIBRARIES or _BINARY.search(data)
    ):
        return data[
            :READ_BYTES
        ], True  # "utf-8" and "none" are no encodings: browsers ignore them
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
        if encoding == "deflate" and (
            data[0] & 15 != 8 or int.from_bytes(data[:2], "big") % 31
        ):
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


def wall_sign(headers: Headers) -> str:
    """Return which of :data:`WALL_SIGNS` *headers* have; empty if none."""
    for sign in WALL_SIGNS:
        name, _, value = sign.partition(": ")
        sent = header_text(headers, name)
        if sent is not None and value in map(str.strip, sent.lower().split(",")):
            return sign
    return ""


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
        raise ResponseDataLossError(
            f"{len(found)} content encodings, more than {MAX_ENCODINGS}"
        )
    return found


# Errors that led to an error: far more than there ever are.
_MAX_CAUSES = 20

PROJECT_REFUSES = (IgnoreRequest, NotSupported, NotConfigured)
"""How the project's middlewares and missing download handlers refuse a request."""

DOWNLOAD_ERRORS: dict[str, type[Exception]] = {
    name: kind
    for name, kind in vars(exceptions).items()
    if name.startswith(("Download", "Cannot", "ResponseDataLoss"))
}
"""Scrapy's exceptions for failed downloads, by which its stats count them."""


class ProjectError(Exception):
    """The project's own code prevented the fetch: retrying can't help."""


class ProxyError(Exception):
    """A proxy failed, which says nothing about the origin behind it."""


class RedirectRefused(Exception):
    """robots.txt redirects to where we, or the project, don't go: what it allows stays unknown."""


NOT_ABOUT_SITE = (ProxyError, RedirectRefused)
"""Failures that don't show that the origin is down, however long they last."""

CONFIGURATION_ERRORS = (
    ProjectError,
    NotSupported,
    NotConfigured,
    ImportError,
    NotImplementedError,
)
"""Misconfiguration: retrying can't help."""


def failure_in(reason: str | None) -> Exception | None:
    """Return a new exception like the one that *reason*, an answer's or from :func:`text_of`, is
    about; None if there was an answer. The original's frames would keep requests and responses in
    memory, and another process may have made the attempt."""
    name, _, text = (reason or "").partition(": ")
    if not name.isidentifier():
        return None
    others = {kind.__name__: kind for kind in (*NOT_ABOUT_SITE, *CONFIGURATION_ERRORS)}
    kinds = DOWNLOAD_ERRORS | others
    return kinds[name](text) if name in kinds else DownloadFailedError(reason)


_DEAD_HOST_ERRORS = (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    # What Scrapy's aiohttp handler raises for a host such as 1.2.3.
    UnsupportedURLSchemeError,
)

_NETWORK_ERRORS = (*DOWNLOAD_ERRORS.values(), UnsupportedURLSchemeError, OSError)
_NETWORK_MODULES = frozenset(
    {"twisted", "aiohttp", "httpx", "httpcore", "h2", "OpenSSL"}
)


@dataclass(frozen=True)
class _Kind:
    """By what errors of one kind are known, whichever library raises them."""

    types: tuple[type, ...] = ()
    names: re.Pattern[str] = re.compile(r"(?!)")
    """Names of classes. The library may not be installed."""
    texts: re.Pattern[str] = re.compile(r"(?!)")
    """What a message contains, where a library has one class for all."""
    curl_codes: frozenset[int] = frozenset()
    """The numbers of libcurl (its manual page libcurl-errors)."""

    def is_in(self, error: BaseException | None) -> bool:
        """Whether *error*, or what led to it, is of this kind: handlers wrap their libraries' errors."""
        return any(self._has(one) for one in _causes(error))

    def _has(self, error: Exception) -> bool:
        return (
            isinstance(error, self.types)
            or self.names.fullmatch(type(error).__name__) is not None
            or _curl_code(error) in self.curl_codes
            or self.texts.search(text_of(error)[:_MAX_MESSAGE]) is not None
        )


def _curl_code(error: Exception) -> int | None:
    """Return curl's number for *error*, None if it isn't curl's. (Others have a `code`, too.)"""
    is_curls = any(base.__name__ == "CurlError" for base in type(error).__mro__)
    return getattr(error, "code", None) if is_curls else None


def _causes(error: BaseException | None) -> list[Exception]:
    """Return *error* and what led to it."""
    known = [error] if isinstance(error, Exception) else []
    for one in known:
        if len(known) >= _MAX_CAUSES:
            break
        reasons = getattr(
            one, "reasons", None
        )  # of Twisted's errors: exceptions and Failures
        some = reasons[:_MAX_CAUSES] if isinstance(reasons, (list, tuple)) else ()
        values = [
            reason.value if isinstance(reason, Failure) else reason for reason in some
        ]
        cause = one.__cause__ or one.__context__
        known += [value for value in (*values, cause) if isinstance(value, Exception)]
    return known


# Characters of a message that are searched.
_MAX_MESSAGE = 2000

_TLS = _Kind(
    types=(ssl.SSLError,),
    names=re.compile(r"\w*(?:SSL|Tls|TLS)\w*Error|VerificationError|CertificateError"),
    # Of rustls and BoringSSL.
    texts=re.compile(
        r"SSL routines|corrupt message of type|invalid peer certificate|received fatal alert"
    ),
    # CURLE_SSL_CONNECT_ERROR, _CERTPROBLEM, _CIPHER, CURLE_PEER_FAILED_VERIFICATION.
    curl_codes=frozenset({35, 58, 59, 60}),
)
_DEAD = _Kind(
    types=(*_DEAD_HOST_ERRORS, ConnectionRefusedError, socket.gaierror),
    names=re.compile(r"DNSError|DNSLookupError|NameResolutionError|NewConnectionError"),
    texts=re.compile(r"\bclient error \(Connect\)"),  # hyper's: pyreqwest has one class
    # CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT.
    curl_codes=frozenset({6, 7}),
)
_LOST = _Kind(
    types=(
        ConnectionClosed,
        ConnectionResetError,
        ConnectionAbortedError,
        BrokenPipeError,
    ),
    names=re.compile(
        r"ServerDisconnectedError|RemoteProtocolError|ReadError|WriteError|ConnectionResetError"
        r"|InactiveStreamClosed"
    ),
    texts=re.compile(r"Connection reset by peer"),
    # CURLE_GOT_NOTHING, CURLE_SEND_ERROR, CURLE_RECV_ERROR.
    curl_codes=frozenset({52, 55, 56}),
)
_PROXYS = _Kind(
    names=re.compile(r"\w*Proxy\w*Error|TunnelError|\w*(?:SOCKS|Socks)\w*Error"),
    texts=re.compile(
        r"CONNECT tunnel failed|Proxy CONNECT aborted|Tunnel connection failed"
    ),
    # CURLE_COULDNT_RESOLVE_PROXY, CURLE_PROXY.
    curl_codes=frozenset({5, 97}),
)

# No ValueError: it may be about what a server sent.
_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
)

_HANDLER = "download_request"
_METHODS = (_HANDLER, "process_request", "process_response", "process_exception")

_ADVICE = "make it ignore URLs that end in /robots.txt"
STOPPED = f"a handler of headers_received or bytes_received stopped the download of robots.txt: {_ADVICE}"
"""What to tell the user if the project's signal handler stopped a download."""


def is_tls_failure(error: Exception | None) -> bool:
    """Whether no TLS connection came about."""
    from OpenSSL.SSL import Error  # slow to import, and few fetches fail

    return _TLS.is_in(error) or any(isinstance(one, Error) for one in _causes(error))


def is_lost_connection(error: Exception | None) -> bool:
    """Whether the connection ended before there was an answer."""
    return not isinstance(error, ResponseDataLossError) and _LOST.is_in(error)


def is_dead_host(error: Exception | None) -> bool:
    """Whether the host is unknown, or can't be connected to (REP.md section 4)."""
    if isinstance(error, NOT_ABOUT_SITE):
        return False
    return _DEAD.is_in(error) or is_tls_failure(error)


def blamed_on_proxy(error: Exception) -> ProxyError | None:
    """Return a proxy's failure if *error*, of a request through a proxy, is one. The connection is to
    the proxy: if it can't be made, that says nothing about the host behind it."""
    if is_tls_failure(error):  # with the host, by way of the proxy
        return None
    if _DEAD.is_in(error) or _PROXYS.is_in(error):
        return ProxyError(f"no connection through the proxy ({text_of(error)})")
    return None


def refused_by_project(error: Exception) -> ProjectError | None:
    """Return what to tell the user if the project's code caused *error*, not origin or network."""
    what, asked, who = text_of(error), "the request for robots.txt", _component(error)
    if isinstance(error, StopDownload):
        return ProjectError(STOPPED)
    if isinstance(error, IgnoreRequest):
        who = who or "a component of the project"
        return ProjectError(f"{who} refused {asked} ({what}): {_ADVICE}")
    modules = {one.__module__.partition(".")[0] for one in type(error).__mro__}
    is_bug = not (isinstance(error, _NETWORK_ERRORS) or modules & _NETWORK_MODULES)
    if who.endswith(_HANDLER):
        is_bug = isinstance(error, _BUGS)
    return ProjectError(f"{who} failed on {asked} ({what})") if who and is_bug else None


def _component(error: Exception) -> str:
    """Return the last method in the traceback of the project's middlewares and download handlers;
    empty if there is none."""
    found = ""
    for frame, _ in walk_tb(error.__traceback__):
        name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
        if name in _METHODS and module.partition(".")[0] not in (
            "scrapy",
            "scrapy_rep",
        ):
            component = frame.f_locals.get("self")  # a module may have several
            of_class = "" if component is None else f"{type(component).__name__}."
            found = f"{module}.{of_class}{name}"
    return found
