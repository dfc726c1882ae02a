"""Whose doing it is that a robots.txt could not be fetched: the site's, a proxy's, or the project's
own. Only the site's says anything about the site (REP.md section 3)."""

from __future__ import annotations

from traceback import walk_tb
from typing import TYPE_CHECKING

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)

from scrapy_rep.engine.words import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


class ProjectError(Exception):
    """The project's own code has kept us from asking: asking again would change nothing."""


class ProxyError(Exception):
    """A proxy has failed, which says nothing about the site behind it."""


# The user's to mend, not the site's.
CONFIGURATION_ERRORS = (
    ProjectError,
    NotSupported,
    NotConfigured,
    ImportError,
    NotImplementedError,
)

DEAD_HOST_ERRORS = (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    # What Scrapy's aiohttp handler raises for a host such as 1.2.3: no handler is missing then.
    UnsupportedURLSchemeError,
)

_NETWORK_ERRORS = (
    *DEAD_HOST_ERRORS,
    DownloadCancelledError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
    TimeoutError,
    OSError,
)
_NETWORK_MODULES = frozenset({"twisted", "aiohttp", "httpx", "httpcore", "h2", "OpenSSL"})

# What no network raises. (ValueError may be about what a server sent.)
_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
)

_MIDDLEWARE = frozenset({"process_request", "process_response", "process_exception"})
_HANDLER = frozenset({"download_request"})

_ADVICE = "let it leave alone what ends in /robots.txt"


def refused_by_project(error: Exception) -> ProjectError | None:
    """Return what to tell the user if *error* is the doing of the project's own code; None if it
    is not: then it says something about the site, or the way there."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if isinstance(error, IgnoreRequest):
        who = _component(frames, _MIDDLEWARE, own=False) or "a component of the project"
        text = f"{who} refused the request for robots.txt ({text_of(error)}): {_ADVICE}"
    elif isinstance(error, StopDownload):
        text = stopped()
    elif name := _component(frames, _MIDDLEWARE, own=True):
        if isinstance(error, _NETWORK_ERRORS) or _is_of_network(error):
            return None
        text = f"{name} failed at the request for robots.txt ({text_of(error)})"
    elif isinstance(error, _BUGS) and (name := _component(frames, _HANDLER, own=True)):
        text = f"the download handler {name} failed ({text_of(error)})"
    else:
        return None
    found = ProjectError(text)
    found.__cause__ = error
    return found


def stopped() -> str:
    """What to tell the user of a download that one of the project's handlers stopped."""
    return (
        "a handler of the signal headers_received or bytes_received stopped the download of "
        f"robots.txt: {_ADVICE}"
    )


def _is_of_network(error: Exception) -> bool:
    return any(one.__module__.partition(".")[0] in _NETWORK_MODULES for one in type(error).__mro__)


def _component(frames: Iterable[FrameType], names: frozenset[str], *, own: bool) -> str | None:
    """Return the class whose method an exception went through last.

    :param own: whether it has to be one of the project's
    """
    found = None
    for frame in frames:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name in names and module.partition(".")[0] != "scrapy_rep":
            if own and module.partition(".")[0] == "scrapy":
                continue
            if module == "scrapy.core.downloader.middleware":
                continue  # it calls the others
            component = frame.f_locals.get("self")
            kind = type(component)
            found = f"{module}.{frame.f_code.co_name}"
            if component is not None:
                found = f"{kind.__module__}.{kind.__qualname__}"
    return found
