"""Log messages about decisions; and the files that the package writes through Scrapy's feed storages: a
path, ``file:``, ``stdout:``, ``ftp:``, ``s3:`` or whatever else a project has in ``FEED_STORAGES``.

The fields of ``REP_DECISIONS`` are in record.py (``Record.fields``, ``answer_fields``); those about
sitemaps in seeding/selection.py.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import stat
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import PureWindowsPath
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_rep.engine.access import Listener
from scrapy_rep.engine.lifecycle import is_interactive
from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.engine.text import clean, text_of, without_password
from scrapy_rep.exceptions import SettingsError

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.requests import Agents
    from scrapy_rep.protocol import Origin

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


logger = get_logger(__name__)

# Set by Scrapy's StartSpiderMiddleware.
_START = "is_start_request"


class DecisionLog:
    """Logs the first refusal of each origin at INFO level, all others at DEBUG level."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._dry_run = context.settings.dry_run
        self._interactive = is_interactive(context.crawler)
        self._told = BoundedSet()
        self._forbids = Limiter(logger, "origins whose robots.txt forbids requests")
        self._drops = Limiter(logger, "origins whose requests are dropped")
        self._holds = Limiter(logger, "origins whose requests would be held")

    def begin(self) -> None:
        """Warn of a dry run."""
        logger.warning(
            "REP_DRY_RUN is on: robots.txt is fetched and decisions are recorded, but no request is "
            "dropped or held.",
            extra=self._context.extra,
        )

    def forbidden(self, request: Request, error: RobotsDisallowed) -> None:
        """Log that robots.txt forbids *request*."""
        if self._told.add(error.origin):
            message = (
                "robots.txt of %(origin)s forbids %(url)s (%(why)s); more for this origin at DEBUG "
                "level"
            )
            values = {"origin": error.origin, "url": request.url, "why": error.why}
            self._forbids.log(message, values, self._context.spider)
            if not self._dry_run:
                return
        self._log_each(request, error, "")

    def unreachable(self, request: Request, error: RobotsUnreachable, *, direct: bool) -> None:
        """Log that *request* is dropped because robots.txt can't be fetched.

        :param direct: a direct download: Scrapy doesn't log that its item goes on without it
        """
        values = {"origin": error.origin, "url": request.url, "error": error}
        extra, has_origin = self._context.extra, error.origin is not None
        if has_origin and self._interactive and not self._dry_run:
            logger.error(
                "Not fetching %(url)s: %(error)s. This command tries robots.txt only once; to "
                "fetch the page anyway, add -s REP_UNREACHABLE=allow",
                values,
                extra=extra,
            )
        elif has_origin and not direct and self._told.add(error.origin):
            dropping = "Would drop" if self._dry_run else "Dropping"
            message = f"{dropping} requests to %(origin)s: %(error)s"
            self._drops.log(message, values, self._context.spider)
        if direct:
            logger.warning("Not downloading %(url)s: %(error)s", values, extra=extra)
        else:
            self._log_each(request, error, "Dropped: ")

    def would_hold(self, origin: Origin, why: str) -> None:
        """Log that a dry run would hold requests of *origin*."""
        if self._told.add(origin):
            message = (
                "Would hold requests to %(origin)s until its robots.txt can be fetched (%(why)s)"
            )
            self._holds.log(message, {"origin": origin, "why": why}, self._context.spider)

    def _log_each(self, request: Request, error: Exception, prefix: str) -> None:
        prefix = "Dry run, not dropped: " if self._dry_run else prefix
        values = {"error": error, "request": request}
        logger.debug(f"{prefix}%(error)s: %(request)s", values, extra=self._context.extra)


class StartRequests:
    """Warns if robots.txt refused every start request: the spider would seem broken."""

    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused = 0
        self._first: dict[str, str] | None = None
        self._dry: WeakSet[Request] = WeakSet()
        self._passed = False
        signals = (scrapy_signals.request_reached_downloader, scrapy_signals.response_received)
        self._listener = Listener(context.crawler, dict.fromkeys(signals, self._got_through))
        self._listener.begin()

    def refused(self, request: Request, error: Exception, *, dry_run: bool) -> None:
        """*request* was dropped, or a dry run lets it pass."""
        if request.meta.get(_START):
            self._refused += 1
            if self._first is None:
                # As --agent takes it. With no token, the rules for all apply.
                agent = ",".join(self._agents.chain_of(request)) or "*"
                url, why = clean(request.url), str(error).rstrip(".")
                command = f"scrapy robots --explain --agent {shlex.quote(agent)} {shlex.quote(url)}"
                self._first = {"url": url, "why": why, "command": command}
            if dry_run:
                self._dry.add(request)

    def _got_through(self, request: Request, **_: Any) -> None:
        if request.meta.get(_START) and request not in self._dry:
            self._passed = True
            self._listener.end()

    def fields(self) -> dict[str, Any]:
        """Return what is on record about them."""
        return {"refused": self._refused, "passed": self._passed, **(self._first or {})}

    def warn(self) -> None:
        """Tell the user if no start request got through."""
        if self._passed or self._first is None:
            return
        refused = "refused"
        outcome = "If the crawl found nothing, that is why; your spider may be fine."
        if self._context.settings.dry_run:
            refused, outcome = "would have refused", "A crawl that obeys it may find nothing."
        logger.warning(
            f"robots.txt {refused} every start request (%(count)d). {outcome} The first was "
            "%(url)s: %(why)s. For details: %(command)s",
            {"count": self._refused, **self._first},
            extra=self._context.extra,
        )
