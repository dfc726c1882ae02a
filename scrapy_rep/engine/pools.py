"""How many connections a download handler opens at a time.

Scrapy's usual handlers open one for each request that its download slots let through.
Its handlers for httpx and aiohttp, the only ones without a reactor, make a pool of
``CONCURRENT_REQUESTS`` connections; so do those of scrapy-download-handlers-incubator,
which derive from the same class. The downloader has room for fetches of robots.txt
beside pages (``EngineAccess.extra_slot``), but in such a pool the fetches take the
connections of pages: as many silent sites as the pool has connections would stop the
crawl. So :class:`Pools` makes these handlers anew, with room, when the spider opens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from scrapy import signals
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_rep.engine.access import when_opened
from scrapy_rep.engine.log import get_logger, silenced

logger = get_logger(__name__)

ROOM = 1024
"""Connections beyond ``CONCURRENT_REQUESTS``: one for each robots.txt and tdmrep.json
that may ever be fetched at a time (512 of each; ``_MAX_SOCKETS`` in
origins/flights.py). None is opened before it is needed."""

_SETTING = "CONCURRENT_REQUESTS"
_SCHEMES = ("http", "https")
_HANDLERS = "scrapy.core.downloader.handlers"
# The names of Scrapy's usual handlers, which have no pool. (Without a reactor, these
# classes may not be imported.)
_USUAL_HANDLERS = {
    f"{_HANDLERS}.http11.HTTP11DownloadHandler",
    f"{_HANDLERS}.http2.H2DownloadHandler",
}
# The base class of handlers with a pool, undocumented, whose constructor takes the size
# of the pool from the setting. Scrapy 2.15 hasn't got this class: its handler for httpx
# has httpx's own limit, 100.
_STREAMING_MODULE = f"{_HANDLERS}._base_streaming"
_WITH_POOL = f"{_STREAMING_MODULE}.BaseStreamingDownloadHandler"
# Packages whose handlers can be made a second time, since their constructors do nothing
# that must be done once only.
_REPEATABLE_PACKAGES = {"scrapy", "scrapy_download_handlers_incubator"}


def has_small_pool(crawler: Crawler) -> bool:
    """Whether a download handler for http or https may have a pool (of
    ``CONCURRENT_REQUESTS`` connections, say) that :class:`Pools` can't enlarge. Most
    handlers that aren't Scrapy's may have one. A subclass of Scrapy's usual handlers is
    treated like them, although it might add a pool that we can't see."""
    for _, handler_class in _handler_classes(crawler):
        is_usual = not _USUAL_HANDLERS.isdisjoint(_names(handler_class))
        if not is_usual and not _is_enlargeable(handler_class):
            return True
    return False


def _handler_classes(crawler: Crawler) -> Iterator[tuple[str, type]]:
    """Yield each scheme that has a download handler, with the handler's class."""
    handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
    for scheme in _SCHEMES:
        handler_class = None
        with suppress(Exception):  # a broken one: Scrapy tells the user
            handler_class = load_object(handlers[scheme])
        if isinstance(handler_class, type):
            yield scheme, handler_class


def _names(handler_class: type) -> set[str]:
    """Return the names, with their modules, of a class and its base classes."""
    return {f"{base.__module__}.{base.__qualname__}" for base in handler_class.__mro__}


def _is_enlargeable(handler_class: type) -> bool:
    """Whether a handler of this class has a pool, and can be made anew. A constructor
    of the project's own might do anything."""
    if _WITH_POOL not in _names(handler_class):
        return False
    for name in ("__init__", "from_crawler"):
        if _package_with(name, handler_class) not in (*_REPEATABLE_PACKAGES, None):
            return False
    return True


def _package_with(name: str, handler_class: type) -> str | None:
    """Return the package of the class from which *handler_class* has the method *name*;
    None if it has no such method."""
    for base in handler_class.__mro__:
        if name in vars(base):
            return base.__module__.partition(".")[0]
    return None


class Pools:
    """Makes room in the pools of download handlers. Scrapy keeps its handlers in
    ``DownloadHandlers._handlers``, which ``_get_handler`` fills; both are
    undocumented."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._replaced: list[Any] = []
        """Handlers that were replaced. Somebody may still be downloading something with
        them."""
        when_opened(crawler, self._enlarge)

    def _enlarge(self) -> None:
        """Replace the handlers whose pool can be enlarged."""
        handlers = getattr(self._crawler.engine.downloader, "handlers", None)
        size = self._crawler.settings.getint(_SETTING)
        # Without a limit (0) there is room. A project's own downloader may have no
        # handlers like Scrapy's.
        if size <= 0 or not isinstance(handlers, DownloadHandlers):
            return
        for scheme, handler_class in _handler_classes(self._crawler):
            if not _is_enlargeable(handler_class):
                continue
            handler: Any = handlers._get_handler(scheme)  # a lazy handler is made now
            if handler is None or handler._pool_size_total != size:
                continue  # it can't be made, or its pool has been enlarged already
            # The constructor may log something a second time, which is silenced.
            with self._roomy_settings(size), silenced(_STREAMING_MODULE):
                roomy_handler = build_from_crawler(handler_class, self._crawler)
            handlers._handlers[scheme] = roomy_handler
            if not self._replaced:
                self._crawler.signals.connect(self._close, signals.engine_stopped)
            self._replaced.append(handler)

    @contextmanager
    def _roomy_settings(self, size: int) -> Iterator[None]:
        """In this context, let ``CONCURRENT_REQUESTS`` be *size* plus :data:`ROOM`."""
        settings = self._crawler.settings
        roomy_settings = BaseSettings(settings)
        roomy_settings.set(_SETTING, size + ROOM, settings.getpriority(_SETTING))
        self._crawler.settings = roomy_settings
        try:
            yield
        finally:
            self._crawler.settings = settings

    async def _close(self) -> None:
        """Close the handlers that were replaced. Scrapy closes those that replaced
        them."""
        for handler in self._replaced:
            await handler.close()
