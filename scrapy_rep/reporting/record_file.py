"""The file of the record (``REP_DECISIONS``): lines of JSON; and how this file and the
report are written, through Scrapy's feed storages: to a path, ``file:``, ``stdout:``,
``ftp:``, ``s3:`` or whatever else a project has in ``FEED_STORAGES``.

Lines of the record are written together, once a second. A kill loses that second, but
leaves no half-written line. If they can't be written, because the disk is full, say,
they wait in memory.
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

# Schemes whose storages let us choose between overwriting and appending. Storages of
# other schemes log a warning if we choose.
_SCHEMES_WITH_CHOICE = ("", "file", "ftp", "ftps")
# The scheme of a URI has two characters at least. A single letter is a drive of
# Windows.
_URI_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# URIs in settings may have such placeholders, as in Scrapy's FEEDS: %(time)s, or
# %(name)s for an attribute of the spider.
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Feed:
    """One file, written in the course of a crawl. Scrapy's feed storage opens the file,
    and takes it back when it is complete. A file at a path is written in place, so that
    it can be read at once. ``str()`` of a feed is its URI without a password."""

    def __init__(
        self,
        context: CrawlContext,
        setting: str,
        uri: str,
        *,
        overwrite: bool,
    ) -> None:
        """*setting* holds *uri*. With *overwrite*, an existing file is replaced, not
        appended to. ``SettingsError`` if no storage can write to *uri*."""
        self._context = context
        self._setting = setting
        try:
            self._uri = _PLACEHOLDER.sub(self._value_of, uri)
            self._storage = self._make_storage(overwrite=overwrite)
        except Exception as error:  # noqa: BLE001
            # Storages may raise anything: they assert that the URI has a host, read
            # ports, load libraries. No message may show the password.
            shown = without_password(uri)
            if isinstance(error, NotConfigured):
                why = without_password(str(error))
            elif shown == uri:  # there is no password
                why = text_of(error)
            else:
                # The error's message may quote a part of the password.
                why = type(error).__name__
            raise SettingsError(
                f"{setting} is {shown!r}, which can't be written: {why}."
            ) from None

    def _make_storage(self, *, overwrite: bool) -> Any:
        """Return the feed storage that the project has for the URI's scheme."""
        crawler = self._context.crawler
        match = _URI_SCHEME.match(self._uri)
        scheme = match[1].lower() if match is not None else ""
        path = crawler.settings.getwithbase("FEED_STORAGES").get(scheme)
        if path is None:
            raise NotConfigured(f"no feed storage writes to {scheme}:")
        options = {"overwrite": overwrite} if scheme in _SCHEMES_WITH_CHOICE else None
        return build_from_crawler(
            load_object(path),
            crawler,
            self._uri,
            feed_options=options,
        )

    def __str__(self) -> str:
        return without_password(self._uri)

    def _value_of(self, placeholder: re.Match[str]) -> str:
        """Return what stands for a placeholder in the URI."""
        if placeholder[1] == "time":
            now = datetime.now(timezone.utc).replace(microsecond=0)
            return now.isoformat().replace(":", "-")
        return str(getattr(self._context.spider, placeholder[1]))

    def open(self) -> IO[bytes]:
        """Open the file, and return it. Raises whatever the storage raises, mostly an
        OSError."""
        file: IO[bytes] = self._storage.open(self._context.spider)
        return file

    async def store(self, file: IO[bytes], message: str) -> None:
        """Hand the finished *file* to its storage, and log *message*. Raises whatever
        the storage raises."""
        await ensure_awaitable(self._storage.store(file))
        logger.info(message, {"uri": self}, extra=self._context.extra)

    def log_error(self, message: str, error: Exception | None = None) -> None:
        """Log *message*, which may have ``%(uri)s`` and ``%(error)s`` in it, after the
        setting's name."""
        values = {"uri": self, "error": ""}
        if error is not None:
            values["error"] = text_of(error)
        message = f"{self._setting}: {message}"
        logger.error(message, values, extra=self._context.extra)


def append(file: io.FileIO, lines: bytearray) -> None:
    """Append *lines* to *file*, and remove from *lines* what was written. If the disk
    gets full, raise ``OSError``. Then only the complete lines stay in the file, and
    only these are removed."""
    written = 0  # bytes
    try:
        while written < len(lines):
            written += file.write(lines[written:]) or 0
    except OSError:
        # Cut what comes after the last complete line.
        end_of_last_line = lines.rfind(b"\n", 0, written) + 1
        incomplete = written - end_of_last_line
        written = end_of_last_line
        if incomplete:
            end = file.tell()
            # If the file is longer, another process has appended lines meanwhile, which
            # are not ours to cut.
            if os.fstat(file.fileno()).st_size == end:
                file.truncate(end - incomplete)
        raise
    finally:
        del lines[:written]


# Lines are written when the first of them has waited for this many seconds, or when
# they take this many bytes, since writing each by itself would take longer than all
# else about a decision.
_WRITE_SECONDS = 1.0
_WRITE_BYTES = 65536
# At most this many bytes of lines wait in memory while they can't be written. Further
# lines are lost, and counted.
_MAX_WAITING_BYTES = 1 << 20


class RecordFile:
    """Writes lines of the record to the file that ``REP_DECISIONS`` names."""

    part = "file of the record (REP_DECISIONS)"
    """What the log calls it if it fails (``Isolation`` in engine/log.py)."""

    def __init__(self, context: CrawlContext, uri: str) -> None:
        """Raises ``SettingsError`` if *uri* can't be written to."""
        self._feed = Feed(context, "REP_DECISIONS", uri, overwrite=False)
        self._crawl = uuid4().hex[:12]
        """Tells this crawl's lines from those of others in the same file."""
        self._file: IO[bytes] | None = None
        self._lines = bytearray()
        """What isn't written yet: whole lines."""
        self._lost_lines = 0
        """How many lines were lost, since there was no room for them in memory."""
        self._failing = False
        """Whether the last attempt to write failed."""
        self._down_stat = Gauge(context.stats, "rep/down/record")
        """The stat that is 1 while writing fails (``Gauge`` in engine/log.py)."""
        self._write_loop = create_looping_call(self._write)
        """Calls _write() once a second, from the first line on."""

    def add(self, fields: dict[str, Any]) -> None:
        """Take the *fields* of a line, to be written within a second."""
        if not self._write_loop.running:
            self._write_loop.start(_WRITE_SECONDS, now=False)
        if self._failing and len(self._lines) >= _MAX_WAITING_BYTES:
            self._lost_lines += 1
            return
        line = json_line({**fields, "crawl": self._crawl})
        self._lines += f"{line}\n".encode()
        if len(self._lines) >= _WRITE_BYTES and not self._failing:
            self._write()

    async def end(self) -> None:
        """Write all lines, and hand the file to its storage."""
        if self._write_loop.running:
            self._write_loop.stop()
        self._write()
        # Lines that could not even now be written are lost, too.
        missing = self._lost_lines + self._lines.count(b"\n")
        if missing:
            self._feed.log_error(
                f"%(uri)s lacks {counted(missing, 'line')} that could not be written"
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
            _write_out(self._file, self._lines)
            self._failing = False
        except Exception as error:  # noqa: BLE001 (the file's class may be the project's)
            if not self._failing:
                self._feed.log_error(
                    "can't write to %(uri)s: %(error)s. Until that works, decisions wait in memory, "
                    "up to 1 MB of them",
                    error,
                )
            self._failing = True
        self._down_stat.set(self._failing)


def _write_out(file: IO[bytes], lines: bytearray) -> None:
    """Write *lines* to *file*, and remove from *lines* what was written."""
    # On a full disk, file.write() would keep the rest of the lines in its buffer and
    # write it later, half a line perhaps. So files on a disk are written without the
    # buffer. Standard output is written with it, as other code does.
    raw = getattr(file, "raw", None)
    is_stdout = file is getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.FileIO) and raw.seekable() and not is_stdout:
        append(raw, lines)
    else:
        file.write(bytes(lines))
        file.flush()
        lines.clear()
