"""Who caused a failed fetch of a robots.txt: the origin, a proxy or the project itself. Only the first
says anything about the origin (REP.md section 3)."""

from __future__ import annotations

import ssl
from traceback import walk_tb

from scrapy import exceptions
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
from twisted.internet.error import ConnectionClosed
from twisted.python.failure import Failure

from scrapy_rep.text import text_of

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

CONFIGURATION_ERRORS = (ProjectError, NotSupported, NotConfigured, ImportError, NotImplementedError)
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
_NETWORK_MODULES = frozenset({"twisted", "aiohttp", "httpx", "httpcore", "h2", "OpenSSL"})

# Of libraries that may not be installed, by the names of their classes.
_TLS_NAMES = frozenset({"VerificationError"})
_LOST_NAMES = frozenset({"ServerDisconnectedError", "RemoteProtocolError", "ReadError"})
_TUNNEL_NAMES = frozenset({"TunnelError", "ClientHttpProxyError"})

# No ValueError: it may be about what a server sent.
_BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)

_HANDLER = "download_request"
_METHODS = (_HANDLER, "process_request", "process_response", "process_exception")

_ADVICE = "make it ignore URLs that end in /robots.txt"
STOPPED = (
    f"a handler of headers_received or bytes_received stopped the download of robots.txt: {_ADVICE}"
)
"""What to tell the user if the project's signal handler stopped a download."""


def _any(error: Exception | None, kinds: tuple[type, ...], names: frozenset[str]) -> bool:
    """Whether *error*, or what led to it, is of *kinds* or has one of *names*: handlers wrap the
    errors of their libraries."""
    found: list[BaseException | None] = [error]
    for one in found:
        if isinstance(one, kinds) or type(one).__name__ in names:
            return True
        if one is not None and len(found) < _MAX_CAUSES:
            reasons = getattr(one, "reasons", None)
            some = reasons[:_MAX_CAUSES] if isinstance(reasons, list) else ()
            found += [reason.value for reason in some if isinstance(reason, Failure)]
            found.append(one.__cause__ or one.__context__)
    return False


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
        if name in _METHODS and module.partition(".")[0] not in ("scrapy", "scrapy_rep"):
            component = frame.f_locals.get("self")  # a module may have several
            of_class = "" if component is None else f"{type(component).__name__}."
            found = f"{module}.{of_class}{name}"
    return found
