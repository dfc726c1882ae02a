"""What came of one fetch of a robots.txt (REP.md sections 2 and 3): an answer or a
failure.

The body of an answer is decoded here, up to a limit. Scrapy's HttpCompressionMiddleware
fails a response that is too large, while the protocol wants its beginning. The cause of
a failure is found out here, too: the origin, a proxy or the project itself. Only a
failure that the origin caused says anything about it.
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
from typing import Any, NamedTuple

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

_MAX_REASON = 250
"""How many characters of an answer's reason are kept: enough for the target of a
redirect (fetcher.py), and why that is refused."""

READ_BYTES = MAX_BYTES + 1
"""Bytes of a body that are read: one more than counts, so that the parser can tell
whether the limit cuts a line in two."""

OTHER_ENCODINGS_MAX = 16 * MAX_BYTES
"""The limit in bytes for a sitemap's body that HttpCompressionMiddleware decodes, in
one go (seeding/loader.py)."""

_ZLIB = ("gzip", "x-gzip", "deflate")
"""Encodings that Python decodes itself."""

_LIBRARIES = {
    "br": ("brotli", "brotlicffi"),
    "zstd": ("compression.zstd", "backports.zstd"),
}
"""Other encodings, each with the modules that can decode it. Newer versions of Scrapy
require one module for each encoding."""

_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")
"""Matches bytes that no text has."""

_ZSTD_WINDOW = 23
"""The largest window, as a power of two: 8 MiB, as in RFC 9659. A frame may ask for
gigabytes."""

_MAX_MEMBERS = 100
"""How many members of a gzip file are decoded. Even an empty member takes as long as a
kilobyte of rules."""

_ZLIB_OR_GZIP = 47
"""zlib's ``wbits``: the largest window (15), and detect whether the data is gzip or
zlib (32)."""

_RAW_DEFLATE = -15
"""zlib's ``wbits``: the largest window, and neither header nor checksum."""

MAX_HEADER = 16 * 1024
"""Bytes that all headers of one name may have together. Twisted lets a folded header be
megabytes long."""

MAX_ENCODINGS = 5
"""How many encodings one body may have, one around the other. Each may unpack to much
more than it gets."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a fetch. If it failed, ``outcome`` is ``UNREACHABLE``, and ``error``
    says why."""

    outcome: Outcome
    url: str
    """The URL that answered, after redirects."""
    hops: int
    """How many redirects led there."""
    status: int | None = None
    """The HTTP status; None if there was no HTTP answer."""
    headers: Headers | None = None
    body: bytes = b""
    error: Exception | None = None
    note: str = ""
    """What is strange about the answer, in words."""
    wall: str = ""
    """The bot wall's sign that its headers carry, one of ``WALL_SIGNS``; empty without
    one."""
    setting: str = ""
    """The setting that decides what the answer means (REP.md section 13; choices.py),
    in words; empty if none does."""
    ends_at: float = math.inf
    """Until when ``setting`` counts, in seconds since the epoch."""

    @property
    def reason(self) -> str:
        """Why there are no rules, in words."""
        if self.error is not None:
            text = text_of(self.error)
            # Log lines name the origin anyway, so its URL is left out. After a
            # redirect, the URL is another one, and stays.
            if self.hops == 0:
                text = text.replace(f"Getting {self.url} took", "took")
            return text[:_MAX_REASON]
        detail = self.setting or self.wall
        if detail:
            return f"HTTP {self.status}, {detail}"
        return f"HTTP {self.status}"


@dataclass(slots=True)
class Transfer:
    """One response while it arrives."""

    request: Request | None = None
    sent_at: float | None = None
    """When the request left the downloader's queue, in seconds of ``time.monotonic()``;
    None if it never did: a middleware may have answered."""
    received: int = 0
    """How many bytes have arrived."""
    cut: bool = False
    """Whether the end of the body doesn't matter: the transfer was stopped since enough
    had arrived, or the project accepts bodies that end too early."""
    encodings: list[bytes] = field(default_factory=list)
    """The headers about the body's encoding, which are removed from the response."""


def answer_of(
    response: Response, transfer: Transfer, url: str, hops: int, *, soft_404: bool
) -> Answer:
    """Return what a response means. Its status and headers count even if its body is
    damaged, since of an error page any part of the body will do. *soft_404*: whether a
    5xx page that says "not found" is a 404."""
    # Was the whole file sent, and can it be decoded?
    status, headers = response.status, response.headers
    if status == 206 and not is_whole(header_text(headers, "Content-Range")):
        return _lost(url, hops, "only a part of the file was sent (HTTP 206)")
    # The fetcher moves the headers to *transfer*; other sources leave them in the
    # response.
    encodings = transfer.encodings or headers.getlist("Content-Encoding")
    is_lost = "dataloss" in response.flags and not transfer.cut
    body = response.body[:READ_BYTES]
    damage = None
    if encodings or is_lost:
        lacks_end = is_lost or transfer.cut
        body, damage = _decoded_body(
            response.body, encodings, is_lost=is_lost, lacks_end=lacks_end
        )
    is_success = 200 <= status < 300
    if damage is not None and is_success:
        return _lost(url, hops, damage.problem)

    # What is strange about it.
    note = ""
    if damage is not None:
        note = f"{damage.note}, which changes nothing"
    elif status == UNCHANGED:
        note = "nobody asked whether the file has changed"

    # What it means.
    outcome = Outcome.RULES
    if not is_success:
        # A Retry-After says that the error is a passing one, whatever its page says.
        soft_404 = soft_404 and "Retry-After" not in headers
        outcome = outcome_of(status, body, soft_404=soft_404)
    wall = ""
    if not _WALL_HEADERS.isdisjoint(headers):
        wall = wall_sign(headers)
    return Answer(outcome, url, hops, status, headers, body, note=note, wall=wall)


def _lost(url: str, hops: int, problem: str) -> Answer:
    """Return the answer of a server that sent no whole file."""
    error = ResponseDataLossError(problem)
    return Answer(Outcome.UNREACHABLE, url, hops, error=error)


class _Damage(NamedTuple):
    """What is wrong with a body."""

    problem: str
    """What the failure says, if the body is needed."""
    note: str
    """What the record says of the answer ("its body ..."), if the body isn't needed."""


def _decoded_body(
    body: bytes, values: list[bytes], *, is_lost: bool, lacks_end: bool
) -> tuple[bytes, _Damage | None]:
    """Return *body*, decoded, and what is wrong with it, if anything is. *values*:
    those of its Content-Encoding headers. *is_lost*: the transfer ended too early.
    *lacks_end*: the end of the body is missing, since the transfer ended too early or
    was stopped when enough had arrived."""
    is_complete = True
    encodings: list[str] = []
    try:
        if values:
            encodings = content_encodings(values)
            body, is_complete = undo(body, encodings, cut=lacks_end)
    except ResponseDataLossError as error:
        return b"", _Damage(str(error), "its body can't be decoded")
    body = body[:READ_BYTES]
    if is_lost:
        return body, _Damage("the transfer ends too early", "its body ends too early")
    if not is_complete:
        problem = f"the {', '.join(encodings)} body ends too early"
        return body, _Damage(problem, "its body ends too early")
    return body, None


def in_place_of(answer: Answer, before: Entry) -> Answer:
    """Return what *answer*, a 304, means if *before* is what was known. Though nobody
    asked, a 304 says that an older copy is still good."""
    if not before.has_copy:  # there is nothing that could be good
        return answer
    return replace(
        answer,
        outcome=before.outcome,
        status=before.status,
        body=before.body,
        error=None,
        wall=answer.wall or before.wall,
    )


def accept_encoding() -> dict[str, str]:
    """Return, as a dictionary, the header that asks only for encodings that
    :func:`decode` undoes. The dictionary is empty if Scrapy asks for no others by
    itself. Then it is better to send no header of ours, since download handlers may
    take it for the project's. Older Scrapy may ask for zstd because of a library that
    :func:`decode` doesn't use."""
    decodable = set(_ZLIB)
    for encoding in _LIBRARIES:
        if _library(encoding) is not None:
            decodable.add(encoding)
    scrapys = {encoding.decode() for encoding in ACCEPTED_ENCODINGS}
    if scrapys <= decodable:
        return {}
    return {"Accept-Encoding": "gzip, deflate"}


def undo(body: bytes, encodings: list[str], *, cut: bool = False) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of *body* without its *encodings*, and whether
    all that counts is there; ``ResponseDataLossError`` if *body* isn't encoded like
    that. If *body* is *cut*, a missing end doesn't matter."""
    for encoding in reversed(encodings):
        body, is_complete = decode(body, encoding)
        # If enough has come out, missing ends don't matter from here on either.
        cut = cut or len(body) >= READ_BYTES
        if not (is_complete or cut):
            return body, False
    return body[:READ_BYTES], True


def decode(data: bytes, encoding: str) -> tuple[bytes, bool]:
    """Return up to :data:`READ_BYTES` of the decoded *data*, and whether its end was
    reached; ``ResponseDataLossError`` if *data* isn't what *encoding* says, or nothing
    here decodes it."""
    if not data:
        return data, True
    is_known = encoding in _ZLIB or encoding in _LIBRARIES
    if not is_known and not _BINARY.search(data):
        # "utf-8" and "none", say, are no encodings, and browsers ignore them.
        return data[:READ_BYTES], True
    new_decoder, errors = _decoders(data, encoding)
    output = b""
    try:
        for _ in range(_MAX_MEMBERS):
            if not data or len(output) >= READ_BYTES:
                break
            decoder = new_decoder()
            output += decoder.decompress(data, READ_BYTES - len(output))
            if not decoder.eof:
                # Either the data ends before the stream does, or there is enough
                # output.
                return output, False
            # What follows is the next member of a gzip file, perhaps. Zeros between
            # members are padding.
            data = decoder.unused_data.lstrip(b"\0")
    except errors as error:
        if output:  # what follows the stream is garbage
            return output, True
        raise ResponseDataLossError(f"the body is not {encoding}: {error}") from error
    return output, True


_NewDecoder = Callable[[], Any]
"""Makes a decoder with the methods of zlib's."""


def _decoders(data: bytes, encoding: str) -> tuple[_NewDecoder, type[Exception]]:
    """Return a function that makes a decoder with the methods of zlib's, and the type
    of exception that such a decoder raises."""
    if encoding in _ZLIB:
        # In RFC 9110 "deflate" means zlib's format; some servers send it raw.
        is_raw = encoding == "deflate" and not _begins_as_zlib(data)
        wbits = _RAW_DEFLATE if is_raw else _ZLIB_OR_GZIP
        return partial(zlib.decompressobj, wbits), zlib.error
    library = _library(encoding) if encoding in _LIBRARIES else None
    if library is None:
        raise ResponseDataLossError(f"nothing here decodes {encoding}")
    if encoding == "br":
        return partial(_Brotli, library.Decompressor), library.error
    options = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW}
    return partial(library.ZstdDecompressor, options=options), library.ZstdError


def _begins_as_zlib(data: bytes) -> bool:
    """Return whether *data* begins as RFC 1950 says: method 8, and a header that 31
    divides."""
    method = data[0] & 15
    header = int.from_bytes(data[:2], "big")
    return method == 8 and header % 31 == 0


@cache
def _library(encoding: str) -> Any:
    """Return the module that decodes *encoding*; None if none is installed."""
    for name in _LIBRARIES[encoding]:
        with suppress(ImportError):
            return import_module(name)
    return None


class _Brotli:
    """A decoder of Brotli with the methods of zlib's decoder."""

    unused_data = b""
    """What follows the stream: nothing, so that no next member is looked for."""

    def __init__(self, new_decoder: _NewDecoder) -> None:
        self._decoder = new_decoder()

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, max_length: int) -> bytes:
        output: bytes = self._decoder.process(data, output_buffer_limit=max_length)
        return output[:max_length]  # the library takes the limit for a hint


def header_text(headers: Headers | None, name: str) -> str | None:
    """Return the values of all *headers* called *name*, joined by commas; None if there
    are none, or if the values together are longer than :data:`MAX_HEADER`."""
    if headers is None:
        return None
    text = b",".join(headers.getlist(name))
    if not 0 < len(text) < MAX_HEADER:
        return None
    return text.decode("latin-1")


_WALL_HEADERS = frozenset(
    sign.partition(":")[0].title().encode("ascii") for sign in WALL_SIGNS
)
"""The names of headers that may be a bot wall's, as ``Headers`` writes them."""


def wall_sign(headers: Headers) -> str:
    """Return which of :data:`WALL_SIGNS` *headers* have; empty if they have none. Each
    sign is a name, a colon and a value (protocol/availability.py)."""
    for sign in WALL_SIGNS:
        name, _, value = sign.partition(": ")
        if name not in headers:
            continue
        text = header_text(headers, name)
        if text is None:
            continue
        values = text.lower().split(",")
        if value in map(str.strip, values):
            return sign
    return ""


def content_encodings(values: list[bytes]) -> list[str]:
    """Return the content encodings that headers of these *values* name, lower case, in
    the order applied, without ``identity``; ``ResponseDataLossError`` beyond
    :data:`MAX_HEADER` or :data:`MAX_ENCODINGS`."""
    text = b",".join(values).decode("latin-1")
    # Empty values, however many, name no encoding.
    if any(values) and len(text) >= MAX_HEADER:
        raise ResponseDataLossError(
            f"the Content-Encoding header is longer than {MAX_HEADER} bytes"
        )
    names = map(str.strip, text.lower().split(","))
    encodings = [name for name in names if name not in ("", "identity")]
    if len(encodings) > MAX_ENCODINGS:
        raise ResponseDataLossError(
            f"{len(encodings)} content encodings, more than {MAX_ENCODINGS}"
        )
    return encodings


_MAX_CAUSES = 20
"""How many of the errors that led to an error are looked at: far more than there ever
are."""

PROJECT_REFUSES = (IgnoreRequest, NotSupported, NotConfigured)
"""How the project's middlewares and missing download handlers refuse a request."""

DOWNLOAD_ERRORS: dict[str, type[Exception]] = {
    name: error_type
    for name, error_type in vars(exceptions).items()
    if name.startswith(("Download", "Cannot", "ResponseDataLoss"))
}
"""Scrapy's exceptions for failed downloads, by which its stats count them."""


class ProjectError(Exception):
    """The project's own code prevented the fetch. Retrying can't help."""


class ProxyError(Exception):
    """A proxy failed, which says nothing about the origin behind it."""


class RedirectRefused(Exception):
    """robots.txt redirects to where we, or the project, don't go. So it stays unknown
    what the origin allows."""


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
    """Return a new exception like the one that *reason* is about:
    :attr:`Answer.reason`, or a text of :func:`text_of`. None if *reason* is about an
    HTTP answer. The original exception isn't kept, since its frames would keep requests
    and responses in memory. It may not even be at hand: another process may have made
    the attempt."""
    name, _, text = (reason or "").partition(": ")
    if not name.isidentifier():  # *reason* is "HTTP 503", say
        return None
    error_types = dict(DOWNLOAD_ERRORS)
    for error_type in (*NOT_ABOUT_SITE, *CONFIGURATION_ERRORS):
        error_types[error_type.__name__] = error_type
    if name not in error_types:
        return DownloadFailedError(reason)
    return error_types[name](text)


_DEAD_HOST_ERRORS = (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    # What Scrapy's aiohttp handler raises for a host such as 1.2.3.
    UnsupportedURLSchemeError,
)
"""Scrapy's exceptions for hosts that are unknown, or that refuse connections."""

_NETWORK_ERRORS = (*DOWNLOAD_ERRORS.values(), UnsupportedURLSchemeError, OSError)
"""Exceptions that the network may cause, so they show no bug of the project's."""

_NETWORK_MODULES = frozenset(
    {"twisted", "aiohttp", "httpx", "httpcore", "h2", "OpenSSL"}
)
"""Packages whose own exceptions the network may cause, too."""


@dataclass(frozen=True)
class _Kind:
    """A kind of failure, and by what its errors are known, whichever library raises
    them."""

    types: tuple[type, ...] = ()
    names: re.Pattern[str] = re.compile(r"(?!)")
    """Matches the names of classes whose library may not be installed. By default it
    matches no name."""
    texts: re.Pattern[str] = re.compile(r"(?!)")
    """Matches what a message contains, where a library has one class for all failures.
    By default it matches nothing."""
    curl_codes: frozenset[int] = frozenset()
    """libcurl's numbers for this kind (manual page libcurl-errors)."""

    def is_in(self, error: BaseException | None) -> bool:
        """Return whether *error*, or what led to it, is of this kind. (Handlers wrap
        the errors of their libraries.)"""
        return any(map(self._includes, _causes(error)))

    def _includes(self, error: Exception) -> bool:
        """Return whether *error* itself is of this kind."""
        if isinstance(error, self.types) or _curl_code(error) in self.curl_codes:
            return True
        if self.names.fullmatch(type(error).__name__) is not None:
            return True
        message = text_of(error)[:_MAX_MESSAGE]
        return self.texts.search(message) is not None


def _curl_code(error: Exception) -> int | None:
    """Return curl's number for *error*; None if it isn't curl's. (Other errors have a
    `code`, too.)"""
    for base in type(error).__mro__:
        if base.__name__ == "CurlError":
            return getattr(error, "code", None)
    return None


def _causes(error: BaseException | None) -> list[Exception]:
    """Return *error* and the errors that led to it, directly or not."""
    causes = [error] if isinstance(error, Exception) else []
    for effect in causes:  # what is appended below has its turn, too
        if len(causes) >= _MAX_CAUSES:
            break
        for cause in (*_reasons(effect), effect.__cause__ or effect.__context__):
            if isinstance(cause, Exception):
                causes.append(cause)
    return causes


def _reasons(error: Exception) -> list[Any]:
    """Return the ``reasons`` of one of Twisted's errors: exceptions, some of them in a
    ``Failure``."""
    reasons = getattr(error, "reasons", None)
    if not isinstance(reasons, (list, tuple)):
        return []
    return [
        reason.value if isinstance(reason, Failure) else reason
        for reason in reasons[:_MAX_CAUSES]
    ]


_MAX_MESSAGE = 2000
"""How many characters of an error's message are searched for the kind of failure."""

# Four kinds of failure. No TLS connection came about:
_TLS = _Kind(
    types=(ssl.SSLError,),
    names=re.compile(r"\w*(?:SSL|Tls|TLS)\w*Error|VerificationError|CertificateError"),
    # rustls and BoringSSL write these.
    texts=re.compile(
        r"SSL routines|corrupt message of type|invalid peer certificate|received fatal alert"
    ),
    # CURLE_SSL_CONNECT_ERROR, _CERTPROBLEM, _CIPHER, CURLE_PEER_FAILED_VERIFICATION.
    curl_codes=frozenset({35, 58, 59, 60}),
)
# The host is unknown, or no connection to it came about:
_DEAD = _Kind(
    types=(*_DEAD_HOST_ERRORS, ConnectionRefusedError, socket.gaierror),
    names=re.compile(r"DNSError|DNSLookupError|NameResolutionError|NewConnectionError"),
    # hyper writes this. Pyreqwest, which uses hyper, has one class for all failures.
    texts=re.compile(r"\bclient error \(Connect\)"),
    # CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT.
    curl_codes=frozenset({6, 7}),
)
# A connection was lost:
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
# A proxy failed:
_PROXYS = _Kind(
    names=re.compile(r"\w*Proxy\w*Error|TunnelError|\w*(?:SOCKS|Socks)\w*Error"),
    texts=re.compile(
        r"CONNECT tunnel failed|Proxy CONNECT aborted|Tunnel connection failed"
    ),
    # CURLE_COULDNT_RESOLVE_PROXY, CURLE_PROXY.
    curl_codes=frozenset({5, 97}),
)

_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
)
"""Exceptions that show a bug, whatever a server sent. ``ValueError`` is not among them,
since it may be about an answer."""

_HANDLER = "download_request"
"""The name of the method by which a download handler fetches."""

_METHODS = (_HANDLER, "process_request", "process_response", "process_exception")
"""The methods of download handlers and downloader middlewares by which a request
passes."""

_NOT_PROJECTS = ("scrapy", "scrapy_rep")
"""Packages whose middlewares and handlers aren't the project's own."""

_ADVICE = "make it ignore URLs that end in /robots.txt"
"""What to do with a component of the project that keeps robots.txt from being
fetched."""

STOPPED = (
    "a handler of headers_received or bytes_received stopped the download of "
    f"robots.txt: {_ADVICE}"
)
"""What to tell the user if the project's signal handler stopped a download."""


def is_tls_failure(error: Exception | None) -> bool:
    """Whether no TLS connection came about."""
    from OpenSSL.SSL import Error  # slow to import, and few fetches fail

    if _TLS.is_in(error):
        return True
    return any(isinstance(cause, Error) for cause in _causes(error))


def is_lost_connection(error: Exception | None) -> bool:
    """Whether the connection ended before there was an answer."""
    if isinstance(error, ResponseDataLossError):  # a part of an answer came
        return False
    return _LOST.is_in(error)


def is_dead_host(error: Exception | None) -> bool:
    """Whether the host is unknown, or can't be connected to (REP.md section 4)."""
    if isinstance(error, NOT_ABOUT_SITE):
        return False
    return _DEAD.is_in(error) or is_tls_failure(error)


def blamed_on_proxy(error: Exception) -> ProxyError | None:
    """Return a proxy's failure if *error*, of a request through a proxy, is one. The
    connection is to the proxy. If it can't be made, that says nothing about the host
    behind the proxy."""
    if is_tls_failure(error):  # TLS is with the host, through the proxy
        return None
    if _DEAD.is_in(error) or _PROXYS.is_in(error):
        return ProxyError(f"no connection through the proxy ({text_of(error)})")
    return None


def refused_by_project(error: Exception) -> ProjectError | None:
    """Return what to tell the user if the project's code caused *error*; None if the
    origin or the network did."""
    if isinstance(error, StopDownload):
        return ProjectError(STOPPED)
    why = text_of(error)
    component = _component(error)
    if isinstance(error, IgnoreRequest):
        who = component or "a component of the project"
        return ProjectError(
            f"{who} refused the request for robots.txt ({why}): {_ADVICE}"
        )
    if not component or not _is_bug(error, component):
        return None
    return ProjectError(f"{component} failed on the request for robots.txt ({why})")


def _is_bug(error: Exception, component: str) -> bool:
    """Return whether *error* shows a bug of the project's *component*, a method that
    raised it."""
    if component.endswith(_HANDLER):
        # A download handler may raise what it likes when the network fails.
        return isinstance(error, _BUGS)
    if isinstance(error, _NETWORK_ERRORS):
        return False
    for base in type(error).__mro__:
        if _package(base.__module__) in _NETWORK_MODULES:
            return False
    return True


def _package(module: str) -> str:
    """Return the top-level package of *module*."""
    return module.partition(".")[0]


def _component(error: Exception) -> str:
    """Return the full name of the last method in the traceback that belongs to a
    middleware or download handler of the project's; empty if there is none."""
    component = ""
    for frame, _ in walk_tb(error.__traceback__):
        method = frame.f_code.co_name
        module = str(frame.f_globals.get("__name__", ""))
        if method not in _METHODS or _package(module) in _NOT_PROJECTS:
            continue
        owner = frame.f_locals.get("self")
        component = f"{module}.{method}"
        if owner is not None:  # a module may have several classes with such a method
            component = f"{module}.{type(owner).__name__}.{method}"
    return component
