"""The audit trail (``REP_DECISIONS``): one line of JSON for each decision, in a file of the user's.

Lines are buffered for up to a second and written together: a kill loses that second, but leaves no
half-written line. A failure to write is one error in the log; the crawl goes on. While the disk is
full, lines wait in memory.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted, json_line, text_of
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.reporting.output import DiskFull, Feed, LineFile

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.requests import Agents
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision, Origin
    from scrapy_rep.protocol.usage import Usage

logger = get_logger(__name__)

# Lines are written after this many seconds or bytes.
_SECONDS = 1.0
_BYTES = 65536
# While the disk is full: seconds between attempts, and how many bytes wait in memory.
_AGAIN_SECONDS = 10.0
_MAX_WAITING = 1 << 20

_REASONS = {
    Standing.STALE: "an older copy is applied",
    Standing.UNRESTRICTED: "unreachable for longer than REP_UNREACHABLE_LIMIT",
}


class AuditTrail:
    """Writes one line for each decision."""

    def __init__(self, context: CrawlContext, uri: str, agents: Agents) -> None:
        """:raises SettingsError: if *uri* can't be written to"""
        self._context = context
        self._agents = agents
        self._feed = Feed(context.crawler, "REP_DECISIONS", uri, overwrite=False)
        self._file: LineFile | None = None
        self._lines: list[bytes] = []
        self._bytes = self._lost = 0
        self._timer: CallLaterResult | None = None
        self._broken = self._full = False
        context.crawler.signals.connect(self._spider_opened, scrapy_signals.spider_opened)

    def record(
        self,
        request: Request,
        origin: Origin | None,
        verdict: str,
        *,
        state: OriginState | None = None,
        decision: Decision | None = None,
        reason: str | None = None,
        usage: Usage | None = None,
        dry_run: bool,
    ) -> None:
        """Record a decision. docs/observing.md explains the fields.

        :param state: what the decision is based on
        :param usage: how the page may be used, if a setting asks for that
        """
        if self._broken:
            return
        if self._full and self._bytes >= _MAX_WAITING:
            self._lost += 1
            return
        entry = state.entry if state is not None else None
        if entry is not None and entry.fetched_at is None:
            entry = None  # there has never been an answer
        if reason is None and state is not None and state.standing in _REASONS:
            reason = f"{_REASONS[state.standing]}; {state.entry.error}"
        rule = decision.rule if decision is not None else None
        record = {
            "time": _iso(self._context.clock()),
            "url": request.url,
            "agent": ",".join(self._agents.chain_of(request)) or None,
            "origin": str(origin) if origin is not None else None,
            "verdict": verdict,
            "rule": str(rule) if rule is not None else None,
            "line": rule.line if rule is not None else None,
            "group": decision.agent if decision is not None else None,
            "sha256": entry.sha256 if entry is not None else None,
            "fetched": _iso(entry.fetched_at) if entry is not None else None,
            "status": entry.status if entry is not None else None,
            "reason": reason,
            "dry_run": dry_run,
            **({"usage": usage.as_dict()} if usage is not None else {}),
        }
        line = (json_line(record) + "\n").encode()
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= _BYTES and not self._full:
            self._write()
        elif self._timer is None:
            self._timer = call_later(_AGAIN_SECONDS if self._full else _SECONDS, self._write)

    async def close(self) -> None:
        """Write the rest, and hand the file to its storage."""
        self._write()
        self._stop_timer()
        if self._file is None or self._broken:
            return
        self._lost += len(self._lines)
        if self._lost:
            lost = counted(self._lost, "decision")
            self._error("the disk was full, so %(uri)s lacks %(lost)s", lost=lost)
        try:
            await self._feed.store(self._file.file)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        else:
            extra = self._context.extra
            logger.info("Decisions are in %(uri)s", {"uri": self._feed}, extra=extra)

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


def _iso(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601, UTC, to the millisecond."""
    if seconds is None:
        return None
    try:
        time = datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a clock may be set to anything
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
