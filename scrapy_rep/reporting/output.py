"""Files that the package writes, by Scrapy's feed storages: a path, ``file:``, ``stdout:``, ``ftp:``,
``s3:`` or whatever else a project has in ``FEED_STORAGES``."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import PureWindowsPath
from typing import IO, TYPE_CHECKING, Any

from scrapy.exceptions import NotConfigured
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_rep.engine.words import text_of, without_password
from scrapy_rep.exceptions import SettingsError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# Schemes whose storages let us choose between overwriting and appending. Others warn.
_APPENDING = ("", "file", "ftp", "ftps")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")

# Errors that may pass: room may be made.
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Feed:
    """One file, written in the course of a crawl.

    Its storage opens it, and takes it back when it is complete. A path is opened in place, so what
    is written is there at once. ``str()`` is its URI without a password.
    """

    def __init__(self, crawler: Crawler, setting: str, uri: str, *, overwrite: bool) -> None:
        """:param setting: the name of the setting that holds *uri*
        :param overwrite: whether to replace an existing file instead of appending to it
        :raises SettingsError: if no storage can write to *uri*
        """
        self._crawler = crawler
        self._uri = _filled_in(crawler, setting, uri)
        found = _SCHEME.match(self._uri)
        scheme = found[1].lower() if found else ""
        if PureWindowsPath(self._uri).drive:
            scheme = "file"
        paths = crawler.settings.getwithbase("FEED_STORAGES")
        bad = f"{setting} is {without_password(uri)!r}, "
        if paths.get(scheme) is None:
            known = ", ".join(sorted(name for name, path in paths.items() if name and path))
            raise SettingsError(f"{bad}but no feed storage writes to {scheme}:, only to {known}.")
        options = {"overwrite": overwrite} if scheme in _APPENDING else None
        try:
            self._storage: Any = build_from_crawler(
                load_object(paths[scheme]), crawler, self._uri, feed_options=options
            )
        except Exception as error:  # noqa: BLE001
            # Storages assert that the URI has a host, read ports, load libraries.
            why = error if isinstance(error, NotConfigured) else text_of(error)
            if without_password(uri) != uri:  # the reason may quote a part of the password
                why = type(error).__name__
            raise SettingsError(f"{bad}which can't be written: {why}.") from None

    def __str__(self) -> str:
        return without_password(self._uri)

    def open(self) -> IO[bytes]:
        """Return a file to write to. Raises whatever the storage raises, mostly an OSError."""
        file: IO[bytes] = self._storage.open(self._crawler.spider)
        return file

    async def store(self, file: IO[bytes]) -> None:
        """Hand the finished *file* to its storage. Raises whatever that raises."""
        await ensure_awaitable(self._storage.store(file))


def _filled_in(crawler: Crawler, setting: str, uri: str) -> str:
    """Return *uri* with its ``%(time)s`` and ``%(spider attribute)s`` placeholders filled in."""
    time = datetime.now(timezone.utc).replace(microsecond=0).isoformat().replace(":", "-")

    def value(match: re.Match[str]) -> str:
        if match[1] == "time":
            return time  # in Scrapy's format
        try:
            return str(getattr(crawler.spider, match[1]))
        except AttributeError:
            raise SettingsError(
                f"{setting} is {without_password(uri)!r}, but the spider has no attribute {match[1]!r}."
            ) from None

    return _PLACEHOLDER.sub(value, uri)


class DiskFull(OSError):
    """There is no room now. The file ends with a complete line."""


class LineFile:
    """Appends lines to a file that a feed storage has opened: complete ones or none, even if the
    disk is full."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self._raw = _raw(file)

    def write(self, lines: list[bytes]) -> None:
        """Append *lines*, and remove those that were written from the list.

        :raises DiskFull: if the rest can be written later
        :raises OSError, ValueError: if nothing more can be written
        """
        data = b"".join(lines)
        raw = self._raw
        if raw is None:
            self.file.write(data)
            self.file.flush()
            lines.clear()
            return
        # Bypasses the buffer, which would keep what didn't fit and write it later.
        done = 0
        try:
            while done < len(data):
                done += raw.write(memoryview(data)[done:]) or 0
        except OSError as error:
            self._end_with_a_line(raw, lines, done)
            if error.errno in _FULL:
                raise DiskFull(error.errno, error.strerror) from None
            raise
        lines.clear()

    def _end_with_a_line(self, raw: io.FileIO, lines: list[bytes], done: int) -> None:
        """Cut an incomplete line off the *done* bytes that were written."""
        while lines and len(lines[0]) <= done:
            done -= len(lines.pop(0))
        if done:
            end = os.fstat(raw.fileno()).st_size
            # Unless another process has appended since: its lines are not ours to cut.
            if end == raw.tell():
                raw.truncate(end - done)
                raw.seek(end - done)

    def close(self) -> None:
        """Give up."""
        if self.file is not getattr(sys.stdout, "buffer", None):
            with suppress(OSError):
                self.file.close()


def _raw(file: IO[bytes]) -> io.FileIO | None:
    """Return what is below the buffer of a file on a disk, None for any other file."""
    with suppress(OSError, ValueError):
        if file is getattr(sys.stdout, "buffer", None):
            return None  # others write to it too
        file.flush()
        raw = getattr(file, "raw", None)
        if isinstance(raw, io.FileIO) and stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raw.seek(0, io.SEEK_END)
            return raw
    return None
