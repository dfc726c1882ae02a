"""The audit trail (``REP_DECISIONS``): lines of JSON in a file of the user's; and the files that
the package writes through Scrapy's feed storages: a path, ``file:``, ``stdout:``, ``ftp:``, ``s3:``
or whatever else a project has in ``FEED_STORAGES``.

Lines are written together, once a second: a kill loses that second, but leaves no half-written
line. A failure to write is one error in the log; the crawl goes on. While the disk is full, lines
wait in memory.
"""

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
from typing import IO, Any
from uuid import uuid4

from scrapy import signals as scrapy_signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.text import counted, json_line, text_of, without_password

logger = get_logger(__name__)

# Schemes whose storages let us choose between overwriting and appending. Others warn.
_APPENDING = ("", "file", "ftp", "ftps")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")

# Errors that may pass: room may be made.
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Feed:
    """One file, written in the course of a crawl. Its storage opens it, and takes it back when it
    is complete. A path is opened in place, so what is written is there at once. ``str()`` is its
    URI without a password."""

    def __init__(self, crawler: Crawler, setting: str, uri: str, *, overwrite: bool) -> None:
        """*setting* holds *uri*. With *overwrite*, an existing file is replaced, not appended to.
        ``SettingsError`` if no storage can write to *uri*."""
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


def append(file: io.FileIO, lines: bytearray) -> None:
    """Append *lines*, and remove what was written from them: only complete ones, if the disk gets
    full; then ``OSError``."""
    done, data = 0, bytes(lines)
    try:
        while done < len(data):
            done += file.write(data[done:]) or 0
    except OSError:
        incomplete = done - (data.rfind(b"\n", 0, done) + 1)
        done -= incomplete
        end = os.fstat(file.fileno()).st_size
        # Unless another process has appended since: its lines are not ours to cut.
        if incomplete and end == file.tell():
            file.truncate(end - incomplete)
            file.seek(0, io.SEEK_END)
        raise
    finally:
        del lines[:done]


def _below_the_buffer(file: IO[bytes]) -> io.FileIO | None:
    """Return the raw file below the buffer of a file on a disk; None for any other file. The buffer
    would keep what doesn't fit on the disk, and write it later."""
    with suppress(OSError, ValueError):
        if file is getattr(sys.stdout, "buffer", None):
            return None  # others write to it too
        file.flush()
        raw = getattr(file, "raw", None)
        if isinstance(raw, io.FileIO) and stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raw.seek(0, io.SEEK_END)
            return raw
    return None


# Seconds or bytes after which lines are written; also seconds until another try on a full disk.
_SECONDS = 1.0
_BYTES = 65536
# Bytes that wait in memory meanwhile.
_MAX_WAITING = 1 << 20


class AuditTrail:
    part = "audit trail (REP_DECISIONS)"

    def __init__(self, context: CrawlContext, uri: str) -> None:
        """Raises ``SettingsError`` if *uri* can't be written to."""
        self._context = context
        self._feed = Feed(context.crawler, "REP_DECISIONS", uri, overwrite=False)
        self._crawl = uuid4().hex[:12]  # tells its lines from those of others in the same file
        self._file: IO[bytes] | None = None
        self._on_disk: io.FileIO | None = None
        self._lines = bytearray()
        self._lost = 0
        self._timer: CallLaterResult | None = None
        self._broken = self._full = False
        context.crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def _spider_opened(self) -> None:
        try:
            self._file = self._feed.open()
            self._on_disk = _below_the_buffer(self._file)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def add(self, fields: dict[str, Any]) -> None:
        if self._broken:
            return
        if self._full and len(self._lines) >= _MAX_WAITING:
            self._lost += 1
            return
        self._lines += f"{json_line({**fields, 'crawl': self._crawl})}\n".encode()
        if len(self._lines) >= _BYTES and not self._full:
            self._write()
        elif self._timer is None:
            self._timer = call_later(_SECONDS, self._write)

    async def end(self) -> None:
        """Write the rest, and hand the file to its storage."""
        self._write()
        self._stop_timer()
        if self._file is None or self._broken:
            return
        if lost := self._lost + self._lines.count(b"\n"):
            lines = counted(lost, "line")
            self._error("the disk was full, so %(uri)s lacks %(lost)s", lost=lines)
        try:
            await self._feed.store(self._file)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return
        values = {"uri": self._feed}
        logger.info("Decisions are in %(uri)s", values, extra=self._context.extra)

    def _write(self) -> None:
        self._stop_timer()
        if self._file is None or not self._lines:
            return
        try:
            if self._on_disk is not None:
                append(self._on_disk, self._lines)
            else:
                self._file.write(bytes(self._lines))
                self._file.flush()
                self._lines.clear()
            self._full = False
        except Exception as error:  # noqa: BLE001 (the file's class may be the project's)
            if self._on_disk is None or getattr(error, "errno", None) not in _FULL:
                self._fail(error)
                return
            if not self._full:
                self._error(
                    "can't write to %(uri)s: %(error)s. Until there is room, decisions wait in "
                    "memory, up to 1 MB of them.",
                    error=error,
                )
            self._full = True
            self._timer = call_later(_SECONDS, self._write)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, error: Exception) -> None:
        self._broken = True
        self._lines.clear()
        if self._file is not None and self._file is not getattr(sys.stdout, "buffer", None):
            with suppress(OSError):
                self._file.close()
        message = "can't write to %(uri)s, so no more decisions are recorded: %(error)s"
        self._error(message, error=text_of(error))

    def _error(self, message: str, **values: Any) -> None:
        extra = self._context.extra
        logger.error(f"REP_DECISIONS: {message}", {"uri": self._feed, **values}, extra=extra)
