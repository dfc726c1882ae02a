"""The file of the record (``REP_DECISIONS``): lines of JSON. It and the report are written through
Scrapy's feed storages: a path, ``file:``, ``stdout:``, ``ftp:``, ``s3:`` or whatever else a project
has in ``FEED_STORAGES``.

Lines are written together, once a second: a kill loses that second, but leaves no half-written
line. If they can't be written, because the disk is full, say, they wait in memory.
"""

from __future__ import annotations

import io
import os
import re
import sys
from datetime import datetime, timezone
from typing import IO, Any
from uuid import uuid4

from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_rep.engine.log import Gauge, get_logger
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.text import counted, json_line, text_of, without_password

logger = get_logger(__name__)

# Schemes whose storages let us choose between overwriting and appending. Others warn.
_APPENDING = ("", "file", "ftp", "ftps")
# One letter is a drive of Windows.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Feed:
    """One file, written in the course of a crawl. Its storage opens it, and takes it back when it
    is complete. A path is opened in place, so what is written is there at once. ``str()`` is its
    URI without a password."""

    def __init__(
        self, context: CrawlContext, setting: str, uri: str, *, overwrite: bool
    ) -> None:
        """*setting* holds *uri*. With *overwrite*, an existing file is replaced, not appended to.
        ``SettingsError`` if no storage can write to *uri*."""
        self._context, self._setting = context, setting
        crawler, shown = context.crawler, without_password(uri)
        try:
            self._uri = _PLACEHOLDER.sub(self._value, uri)
            found = _SCHEME.match(self._uri)
            scheme = found[1].lower() if found else ""
            path = crawler.settings.getwithbase("FEED_STORAGES").get(scheme)
            if path is None:
                raise NotConfigured(f"no feed storage writes to {scheme}:")
            options = {"overwrite": overwrite} if scheme in _APPENDING else None
            self._storage: Any = build_from_crawler(
                load_object(path), crawler, self._uri, feed_options=options
            )
        except Exception as error:  # noqa: BLE001
            # Storages assert that the URI has a host, read ports, load libraries. What they say may
            # quote a part of the password.
            why = text_of(error) if shown == uri else type(error).__name__
            if isinstance(error, NotConfigured):
                why = without_password(str(error))
            raise SettingsError(
                f"{setting} is {shown!r}, which can't be written: {why}."
            ) from None

    def __str__(self) -> str:
        return without_password(self._uri)

    def _value(self, placeholder: re.Match[str]) -> str:
        if placeholder[1] == "time":
            now = datetime.now(timezone.utc).replace(microsecond=0)
            return now.isoformat().replace(":", "-")
        return str(getattr(self._context.spider, placeholder[1]))

    def open(self) -> IO[bytes]:
        """Return a file to write to. Raises whatever the storage raises, mostly an OSError."""
        file: IO[bytes] = self._storage.open(self._context.spider)
        return file

    async def store(self, file: IO[bytes], message: str) -> None:
        """Hand the finished *file* to its storage, and log *message*. Raises whatever that raises."""
        await ensure_awaitable(self._storage.store(file))
        logger.info(message, {"uri": self}, extra=self._context.extra)

    def log_error(self, message: str, error: Exception | None = None) -> None:
        values = {"uri": self, "error": text_of(error) if error is not None else ""}
        logger.error(f"{self._setting}: {message}", values, extra=self._context.extra)


def append(file: io.FileIO, lines: bytearray) -> None:
    """Append *lines*, and remove what was written from them: only complete ones, if the disk gets
    full; then ``OSError``."""
    done = 0
    try:
        while done < len(lines):
            done += file.write(lines[done:]) or 0
    except OSError:
        incomplete = done - (lines.rfind(b"\n", 0, done) + 1)
        done -= incomplete
        # Unless another process has appended since: its lines are not ours to cut.
        if incomplete and os.fstat(file.fileno()).st_size == file.tell():
            file.truncate(file.tell() - incomplete)
        raise
    finally:
        del lines[:done]


# Seconds or bytes after which lines are written.
_WRITE_SECONDS = 1.0
_WRITE_BYTES = 65536
# Bytes that wait in memory while they can't be.
_MAX_WAITING_BYTES = 1 << 20


class RecordFile:
    part = "file of the record (REP_DECISIONS)"

    def __init__(self, context: CrawlContext, uri: str) -> None:
        """Raises ``SettingsError`` if *uri* can't be written to."""
        self._feed = Feed(context, "REP_DECISIONS", uri, overwrite=False)
        self._crawl = uuid4().hex[
            :12
        ]  # tells its lines from those of others in the same file
        self._file: IO[bytes] | None = None
        self._lines = bytearray()
        self._lost = 0
        self._failing = False
        """Whether the last attempt to write failed."""
        self._down = Gauge(context.stats, "rep/down/record")
        self._often = create_looping_call(self._write)

    def add(self, fields: dict[str, Any]) -> None:
        if not self._often.running:
            self._often.start(_WRITE_SECONDS, now=False)
        if self._failing and len(self._lines) >= _MAX_WAITING_BYTES:
            self._lost += 1
            return
        self._lines += f"{json_line({**fields, 'crawl': self._crawl})}\n".encode()
        if len(self._lines) >= _WRITE_BYTES and not self._failing:
            self._write()

    async def end(self) -> None:
        """Write the rest, and hand the file to its storage."""
        if self._often.running:
            self._often.stop()
        self._write()
        if lost := self._lost + self._lines.count(b"\n"):
            self._feed.log_error(
                f"%(uri)s lacks {counted(lost, 'line')} that could not be written"
            )
        if self._file is None:
            return
        try:
            await self._feed.store(self._file, "Decisions are in %(uri)s")
        except Exception as error:  # noqa: BLE001
            self._feed.log_error("can't write to %(uri)s: %(error)s", error)

    def _write(self) -> None:
        """Write the lines. If that fails, keep them for the next time."""
        try:
            self._file = self._file or self._feed.open()
            _put(self._file, self._lines)
            self._failing = False
        except Exception as error:  # noqa: BLE001 (the file's class may be the project's)
            if not self._failing:
                more = (
                    ". Until that works, decisions wait in memory, up to 1 MB of them"
                )
                self._feed.log_error(f"can't write to %(uri)s: %(error)s{more}", error)
            self._failing = True
        self._down.set(self._failing)


def _put(file: IO[bytes], lines: bytearray) -> None:
    """Write *lines* to *file*, and remove them. For a file on a disk, bypass the buffer: it would keep
    what there is no room for, and write it later."""
    raw = getattr(file, "raw", None)
    is_stdout = file is getattr(sys.stdout, "buffer", None)  # others write to it, too
    if isinstance(raw, io.FileIO) and raw.seekable() and not is_stdout:
        append(raw, lines)
    else:
        file.write(bytes(lines))
        file.flush()
        lines.clear()
