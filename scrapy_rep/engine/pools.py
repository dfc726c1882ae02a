"""How many connections a download handler opens at a time.

Scrapy's usual handlers open one for each request that its download slots let through. Its handlers for httpx
and aiohttp (so all that it has without a reactor) make a pool of ``CONCURRENT_REQUESTS`` connections; so do
those of scrapy-download-handlers-incubator, which derive from the same class. Fetches of robots.txt have
slots beside those of pages, but in such a pool they take the connections of pages: as many silent sites as
it has would stop the crawl. So these handlers are made anew, with room, when the spider opens.
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
"""Connections beyond ``CONCURRENT_REQUESTS``: as many as files of ours may ever be fetched at a time
(robots.txt and tdmrep.json, 512 of each). None is opened before it is needed."""

_SETTING = "CONCURRENT_REQUESTS"
_SCHEMES = ("http", "https")
_HANDLERS = "scrapy.core.downloader.handlers"
# By name: without a reactor, they may not be imported.
_WITHOUT_POOL = {
    f"{_HANDLERS}.http11.HTTP11DownloadHandler",
    f"{_HANDLERS}.http2.H2DownloadHandler",
}
# Undocumented. Its constructor takes the size of the pool from the setting. Not in Scrapy 2.15, whose
# handler for httpx has httpx's own limit: 100.
_FROM_SETTING = f"{_HANDLERS}._base_streaming.BaseStreamingDownloadHandler"
# Packages whose handlers' constructors do nothing that may not be done twice.
_KNOWN = {"scrapy", "scrapy_download_handlers_incubator"}


def has_small_pool(crawler: Crawler) -> bool:
    """Whether a download handler for http or https may have a pool, of ``CONCURRENT_REQUESTS`` connections,
    say, that :class:`Pools` can't enlarge: most of other people, and a project's own. A subclass of
    Scrapy's usual handlers counts as these: nobody can tell what it adds."""
    return any(
        _WITHOUT_POOL.isdisjoint(_names(kind)) and not _can_grow(kind)
        for _, kind in _kinds(crawler)
    )


def _kinds(crawler: Crawler) -> Iterator[tuple[str, type]]:
    """Yield the schemes that have a handler, and its class."""
    handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
    for scheme in _SCHEMES:
        kind = None
        with suppress(Exception):  # a broken one: Scrapy tells the user
            kind = load_object(handlers[scheme])
        if isinstance(kind, type):
            yield scheme, kind


def _names(kind: type) -> set[str]:
    return {f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__}


def _can_grow(kind: type) -> bool:
    """Whether a handler of this *kind* can be made anew: a constructor of the project's own might do
    anything."""
    if _FROM_SETTING not in _names(kind):
        return False
    for name in ("__init__", "from_crawler"):
        owner = next((one for one in kind.__mro__ if name in vars(one)), None)
        if owner is not None and owner.__module__.partition(".")[0] not in _KNOWN:
            return False
    return True


class Pools:
    """Makes room in the pools of download handlers, where Scrapy keeps these: ``DownloadHandlers._handlers``,
    which ``_get_handler`` fills, both undocumented."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler: Any = crawler
        self._replaced: list[Any] = []
        """Handlers of which somebody may still download something."""
        when_opened(crawler, self._enlarge)

    def _enlarge(self) -> None:
        handlers = getattr(self._crawler.engine.downloader, "handlers", None)
        size = self._crawler.settings.getint(_SETTING)
        # Without a limit there is room. A project's own downloader may have no such handlers.
        if size <= 0 or not isinstance(handlers, DownloadHandlers):
            return
        for scheme, kind in _kinds(self._crawler):
            if not _can_grow(kind):
                continue
            handler: Any = handlers._get_handler(scheme)  # a lazy one is made now
            if handler is None or handler._pool_size_total != size:
                continue  # it can't be made, or it has been enlarged
            with self._roomy_settings(size), silenced(_FROM_SETTING.rpartition(".")[0]):
                handlers._handlers[scheme] = build_from_crawler(kind, self._crawler)
            if not self._replaced:
                self._crawler.signals.connect(self._close, signals.engine_stopped)
            self._replaced.append(handler)

    @contextmanager
    def _roomy_settings(self, size: int) -> Iterator[None]:
        """Meanwhile, let the setting say more than *size*."""
        kept = self._crawler.settings
        roomy = BaseSettings(kept)
        roomy.set(_SETTING, size + ROOM, kept.getpriority(_SETTING))
        self._crawler.settings = roomy
        try:
            yield
        finally:
            self._crawler.settings = kept

    async def _close(self) -> None:
        for handler in self._replaced:
            await handler.close()
