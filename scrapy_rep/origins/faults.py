"""Who caused a failed fetch of a robots.txt: the origin, a proxy or the project itself. Only the first
says anything about the origin (REP.md section 3)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from traceback import walk_tb

from scrapy import exceptions
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from twisted.internet.error import ConnectionClosed
from twisted.python.failure import Failure

from scrapy_rep.text import text_of

# Characters.
_MAX_TARGET = 120

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


def failure_in(reason: str | None) -> Exception | None:
    """Return a new exception like the one that an :class:`~scrapy_rep.origins.answer.Answer` had
    for *reason*, if it was Scrapy's."""
    name, _, text = (reason or "").partition(": ")
    return DOWNLOAD_ERRORS[name](text) if name in DOWNLOAD_ERRORS else None


def without_frames(error: Exception) -> Exception:
    """Return *error* without its tracebacks and those of its causes: their frames would keep
    requests and responses in memory."""
    for one in _causes(error):
        one.__traceback__ = None
        for failure in _reasons(one):
            failure.cleanFailure()  # type: ignore[no-untyped-call]
    return error


class ProjectError(Exception):
    """The project's own code prevented the fetch: retrying can't help."""


class ProxyError(Exception):
    """A proxy failed, which says nothing about the origin behind it."""


class RedirectRefused(Exception):
    """robots.txt redirects to where we, or the project, don't go: what it allows stays unknown."""

    def __init__(self, target: str, why: str) -> None:
        super().__init__(f"not following the redirect to {target[:_MAX_TARGET]} ({why})")


NOT_ABOUT_SITE = (ProxyError, RedirectRefused)
"""Failures that don't show that the origin is down, however long they last."""

CONFIGURATION_ERRORS = (ProjectError, NotSupported, NotConfigured, ImportError, NotImplementedError)
"""Misconfiguration: retrying can't help."""

_DEAD_HOST_ERRORS = (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    # What Scrapy's aiohttp handler raises for a host such as 1.2.3.
    UnsupportedURLSchemeError,
)

_NETWORK_ERRORS = (*DOWNLOAD_ERRORS.values(), UnsupportedURLSchemeError, OSError)
_NETWORK_MODULES = frozenset({"twisted", "aiohttp", "httpx", "httpcore", "h2", "OpenSSL"})

# Of libraries that may not be installed, by the names of their classes.
_TLS_NAMES = frozenset({"VerificationError"})
_LOST_NAMES = frozenset({"ServerDisconnectedError", "RemoteProtocolError", "ReadError"})
_TUNNEL_NAMES = frozenset({"TunnelError", "ClientHttpProxyError"})

# No ValueError: it may be about what a server sent.
_BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)

_MIDDLEWARE = frozenset({"process_request", "process_response", "process_exception"})
_HANDLER = frozenset({"download_request"})

_ADVICE = "make it ignore URLs that end in /robots.txt"
STOPPED = (
    f"a handler of headers_received or bytes_received stopped the download of robots.txt: {_ADVICE}"
)
"""What to tell the user if the project's signal handler stopped a download."""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield *error* and what led to it: handlers wrap the errors of their libraries."""
    queue, seen = [error], 0
    while queue and seen < _MAX_CAUSES:
        if (one := queue.pop()) is not None:
            seen += 1
            yield one
            queue += [reason.value for reason in _reasons(one)]
            queue.append(one.__cause__ or one.__context__)


def _reasons(error: BaseException) -> list[Failure]:
    reasons = getattr(error, "reasons", None)
    found = reasons if isinstance(reasons, list) else ()
    return [one for one in found if isinstance(one, Failure)]


def _any(error: Exception | None, kinds: tuple[type, ...], names: frozenset[str]) -> bool:
    return any(isinstance(one, kinds) or type(one).__name__ in names for one in _causes(error))


def is_tls_failure(error: Exception | None) -> bool:
    """Whether no TLS connection came about."""
    from OpenSSL.SSL import Error  # slow to import, and few fetches fail

    return _any(error, (ssl.SSLError, Error), _TLS_NAMES)


def is_lost_connection(error: Exception | None) -> bool:
    """Whether the connection ended before there was an answer."""
    kinds = (ConnectionClosed, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
    return not isinstance(error, ResponseDataLossError) and _any(error, kinds, _LOST_NAMES)


def is_dead_host(error: Exception | None) -> bool:
    """Whether the host is unknown, or can't be connected to (REP.md section 4)."""
    return isinstance(error, _DEAD_HOST_ERRORS) or is_tls_failure(error)


def blamed_on_proxy(error: Exception) -> ProxyError | None:
    """Return a proxy's failure if *error*, of a request through a proxy, is one."""
    if _any(error, (), _TUNNEL_NAMES):
        return ProxyError(f"the proxy refused to connect ({text_of(error)})")
    if isinstance(error, _DEAD_HOST_ERRORS) and not is_tls_failure(error):
        return ProxyError(f"the proxy can't be reached ({text_of(error)})")
    return None


def refused_by_project(error: Exception) -> ProjectError | None:
    """Return what to tell the user if the project's code caused *error*, not origin or network."""
    if isinstance(error, IgnoreRequest):
        who = _component(error, _MIDDLEWARE, own=False) or "a component of the project"
        text = f"{who} refused the request for robots.txt ({text_of(error)}): {_ADVICE}"
    elif isinstance(error, StopDownload):
        text = STOPPED
    elif name := _component(error, _MIDDLEWARE, own=True):
        modules = {one.__module__.partition(".")[0] for one in type(error).__mro__}
        if isinstance(error, _NETWORK_ERRORS) or modules & _NETWORK_MODULES:
            return None
        text = f"{name} failed on the request for robots.txt ({text_of(error)})"
    elif isinstance(error, _BUGS) and (name := _component(error, _HANDLER, own=True)):
        text = f"the download handler {name} failed ({text_of(error)})"
    else:
        return None
    return ProjectError(text)


def _component(error: Exception, names: frozenset[str], *, own: bool) -> str | None:
    """Return the last class (else function) in the traceback with a method in *names*; with *own*,
    not one of Scrapy's."""
    found = None
    ignored = {"scrapy_rep", "scrapy"} if own else {"scrapy_rep"}
    for frame, _ in walk_tb(error.__traceback__):
        name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
        # Scrapy's middleware manager calls all the others.
        manager = module == "scrapy.core.downloader.middleware"
        if name in names and module.partition(".")[0] not in ignored and not manager:
            component = frame.f_locals.get("self")
            kind = type(component)
            of_class = f"{kind.__module__}.{kind.__qualname__}"
            found = f"{module}.{name}" if component is None else of_class
    return found
