"""The audit trail (``REP_DECISIONS``): one line of JSON for each record, in a file of the user's.

Lines are buffered for up to a second and written together: a kill loses that second, but leaves no
half-written line. A failure to write is one error in the log; the crawl goes on. While the disk is
full, lines wait in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import counted, text_of
from scrapy_rep.reporting.decision_log import DiskFull, Feed, LineFile
from scrapy_rep.reporting.record import Listener, Record

if TYPE_CHECKING:
    import logging

    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.engine.log import Isolation
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# Lines are written after this many seconds or bytes.
_SECONDS = 1.0
_BYTES = 65536
# While the disk is full: seconds between attempts, and how many bytes wait in memory.
_AGAIN_SECONDS = 10.0
_MAX_WAITING = 1 << 20


class AuditTrail(Listener):
    """Writes one line for each record."""

    part = "audit trail (REP_DECISIONS)"

    def __init__(self, context: CrawlContext, uri: str, isolated: Isolation) -> None:
        """:raises SettingsError: if *uri* can't be written to"""
        super().__init__(isolated)
        self._context = context
        self._feed = Feed(context.crawler, "REP_DECISIONS", uri, overwrite=False)
        self._file: LineFile | None = None
        self._lines: list[bytes] = []
        self._bytes = self._lost = 0
        self._timer: CallLaterResult | None = None
        self._broken = self._full = False
        context.crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record*, soon."""
        assert isinstance(record, Record)
        if self._broken:
            return
        if self._full and self._bytes >= _MAX_WAITING:
            self._lost += 1
            return
        line = record.line(self._context.channel.crawl)
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= _BYTES and not self._full:
            self._write()
        elif self._timer is None:
            self._timer = call_later(_AGAIN_SECONDS if self._full else _SECONDS, self._write)

    async def end(self) -> None:
        """Write the rest, and hand the file to its storage."""
        self._write()
        self._stop_timer()
        if self._file is None or self._broken:
            return
        self._lost += len(self._lines)
        if self._lost:
            lost = counted(self._lost, "line")
            self._error("the disk was full, so %(uri)s lacks %(lost)s", lost=lost)
        try:
            await self._feed.store(self._file.file)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return
        values = {"uri": self._feed}
        logger.info("Decisions are in %(uri)s", values, extra=self._context.extra)

    def _spider_opened(self) -> None:
        try:
            self._file = LineFile(self._feed.open())
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _write(self) -> None:
        self._stop_timer()
        if self._file is None or not self._lines:
            return
        try:
            self._file.write(self._lines)
        except DiskFull as error:
            if not self._full:
                self._error(
                    "can't write to %(uri)s: %(error)s. Until there is room, decisions wait in "
                    "memory, up to 1 MB of them.",
                    error=error,
                )
            self._full = True
            self._timer = call_later(_AGAIN_SECONDS, self._write)
        except Exception as error:  # noqa: BLE001 (the file's class may be the project's)
            self._fail(error)
        else:
            self._full = False
        self._bytes = sum(map(len, self._lines))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail(self, error: Exception) -> None:
        self._broken = True
        self._lines.clear()
        if self._file is not None:
            self._file.close()
        message = "can't write to %(uri)s, so no more decisions are recorded: %(error)s"
        self._error(message, error=text_of(error))

    def _error(self, message: str, **values: Any) -> None:
        extra = self._context.extra
        logger.error(f"REP_DECISIONS: {message}", {"uri": self._feed, **values}, extra=extra)
