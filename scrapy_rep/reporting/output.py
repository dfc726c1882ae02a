"""Files of ours, wherever Scrapy's feed storages can write: a path, ``file:``, ``stdout:``,
``ftp:``, ``s3:`` and what else a project has in ``FEED_STORAGES``.

A feed storage gives out a file to write to, and takes it back when it is complete. For a path that
file is the file itself, so what is written is there at once.
"""

from __future__ import annotations

import inspect
import re
from datetime import datetime, timezone
from pathlib import PureWindowsPath
from typing import IO, TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import SettingsError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

_APPENDING = ("", "file", "ftp", "ftps")
_PASSWORD = re.compile(r"(?<=:)[^:/@]*@")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Feed:
    """One file, to be written in the course of a crawl."""

    def __init__(self, crawler: Crawler, setting: str, uri: str, *, overwrite: bool) -> None:
        """:param setting: the name of the setting that *uri* is from
        :param overwrite: whether a file that is there is replaced, not appended to
        :raises SettingsError: if there is no storage for *uri*
        """
        self._crawler = crawler
        self._uri = _filled_in(crawler, setting, uri)
        shown = _without_password(uri)
        paths = crawler.settings.getwithbase("FEED_STORAGES")
        schemes = sorted(scheme for scheme, path in paths.items() if path is not None and scheme)
        found = _SCHEME.match(self._uri)
        scheme = found[1].lower() if found else ""
        if PureWindowsPath(self._uri).drive:
            scheme = "file"
        if paths.get(scheme) is None:
            raise SettingsError(
                f"{setting} is {shown!r}, but no feed storage writes to {scheme}:, only to "
                f"{', '.join(schemes)}."
            )
        try:
            self._storage: Any = build_from_crawler(
                load_object(paths[scheme]),
                crawler,
                self._uri,
                # Others can't choose, and warn.
                feed_options={"overwrite": overwrite} if scheme in _APPENDING else None,
            )
        except Exception as error:  # noqa: BLE001
            # Storages assert that the URI has a host, read ports, load libraries.
            why = error if isinstance(error, NotConfigured) else text_of(error)
            raise SettingsError(f"{setting} is {shown!r}, which can't be written: {why}.") from None

    def __str__(self) -> str:
        return _without_password(self._uri)

    def open(self) -> IO[bytes]:
        """Return a file to write to.

        :raises Exception: what the storage raises, an OSError mostly
        """
        file: IO[bytes] = self._storage.open(self._crawler.spider)
        return file

    async def store(self, file: IO[bytes]) -> None:
        """Hand the finished *file* to its feed storage, which stores it in a thread.

        :raises Exception: what the storage raises
        """
        done = self._storage.store(file)
        if isinstance(done, Deferred):
            await maybe_deferred_to_future(done)
        elif inspect.isawaitable(done):
            await done


def _without_password(uri: str) -> str:
    """Return *uri* as it may be shown in a log."""
    return _PASSWORD.sub("***@", uri)


def _filled_in(crawler: Crawler, setting: str, uri: str) -> str:
    """Return *uri* with ``%(time)s`` and the spider's attributes in their places."""
    now = datetime.now(timezone.utc).replace(microsecond=0)
    spider = crawler.spider

    def value(match: re.Match[str]) -> str:
        if match[1] == "time":
            return now.isoformat().replace(":", "-")  # as Scrapy writes it
        try:
            return str(getattr(spider, match[1]))
        except AttributeError:
            raise SettingsError(
                f"{setting} is {_without_password(uri)!r}, but the spider has no attribute {match[1]!r}."
            ) from None

    return _PLACEHOLDER.sub(value, uri)
