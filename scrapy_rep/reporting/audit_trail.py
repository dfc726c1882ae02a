"""The audit trail: decisions as lines of JSON, in a file of the user's choice (``REP_DECISIONS``).

Lines gather for at most a second, then they are written in one go: a kill loses that second, and
leaves no half line behind. What can't be written is one error in the log; the crawl goes on. While a
disk is full, lines wait for room.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted, json_line, text_of
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.reporting.line_file import DiskFull, LineFile
from scrapy_rep.reporting.output import Feed

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.utils.asyncio import CallLaterResult

    from scrapy_rep.origins.agents import Agents
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision, Origin

logger = get_logger(__name__)

# Seconds and bytes after which lines are written.
_SECONDS = 1.0
_BYTES = 65536
# While the disk is full: seconds until the next try, and how many bytes wait for room.
_AGAIN_SECONDS = 10.0
_MAX_WAITING = 1 << 20

_REASONS = {
    Standing.STALE: "an older copy is applied",
    Standing.UNRESTRICTED: "unreachable for longer than REP_UNREACHABLE_LIMIT",
}


class AuditTrail:
    """Writes one line a decision."""

    def __init__(self, context: CrawlContext, uri: str, agents: Agents) -> None:
        """:raises SettingsError: if *uri* can't be written to"""
        self._context = context
        self._agents = agents
        self._feed = Feed(context.crawler, "REP_DECISIONS", uri, overwrite=False)
        self._file: LineFile | None = None
        self._lines: list[bytes] = []
        self._bytes = 0
        self._timer: CallLaterResult | None = None
        self._broken = False
        self._full = False
        self._lost = 0
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
        usage: dict[str, Any] | None = None,
        dry_run: bool,
    ) -> None:
        """Write a decision down. README.md says what the fields mean.

        :param state: what it rests on
        :param usage: how the page may be used, if somebody asked
        """
        if self._broken:
            return
        entry = state.entry if state is not None else None
        if entry is not None and entry.fetched_at is None:
            entry = None  # there never was an answer
        if reason is None and state is not None and state.standing in _REASONS:
            reason = f"{_REASONS[state.standing]}; {state.entry.error}"
        rule = decision.rule if decision is not None else None
        self._add(
            {
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
                **({"usage": usage} if usage is not None else {}),
            }
        )

    def _add(self, record: dict[str, Any]) -> None:
        if self._full and self._bytes >= _MAX_WAITING:
            self._lost += 1
            return
        line = (json_line(record) + "\n").encode()
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes >= _BYTES and not self._full:
            self._write()
        elif self._timer is None:
            self._timer = call_later(_AGAIN_SECONDS if self._full else _SECONDS, self._write)

    async def close(self) -> None:
        """Write what is left, and hand the file to its storage."""
        self._write()
        self._stop_timer()
        if self._file is None or self._broken:
            return
        self._lost += len(self._lines)
        if self._lost:
            logger.error(
                "REP_DECISIONS: %(uri)s lacks %(decisions)s: there was no room",
                {"decisions": counted(self._lost, "decision"), "uri": self._feed},
                extra=self._context.extra,
            )
        try:
            await self._feed.store(self._file.file)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        else:
            logger.info(
                "Decisions are in %(uri)s",
                {"uri": self._feed},
                extra=self._context.extra,
            )

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
            self._no_room(error)
        except Exception as error:  # noqa: BLE001 (the file may be of a class of the project's)
            self._fail(error)
        else:
            self._full = False
        self._bytes = sum(map(len, self._lines))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _no_room(self, error: DiskFull) -> None:
        """Try again later. Tell the user once."""
        if not self._full:
            logger.error(
                "REP_DECISIONS: decisions can't be written to %(uri)s now: %(error)s. They wait for "
                "room, as many as fit into a megabyte of memory.",
                {"uri": self._feed, "error": error},
                extra=self._context.extra,
            )
        self._full = True
        self._timer = call_later(_AGAIN_SECONDS, self._write)

    def _fail(self, error: Exception) -> None:
        """Give up, with a word to the user."""
        self._broken = True
        self._lines.clear()
        if self._file is not None:
            self._file.close()
        logger.error(
            "REP_DECISIONS: decisions can't be written to %(uri)s, so no more of them are: "
            "%(error)s",
            {"uri": self._feed, "error": text_of(error)},
            extra=self._context.extra,
        )


def _iso(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601 has them, UTC, to the millisecond."""
    if seconds is None:
        return None
    try:
        time = datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a clock may say anything
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
