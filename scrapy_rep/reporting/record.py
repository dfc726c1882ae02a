"""The record of a crawl: what is told of a decision, an answer, a sitemap. docs/observing.md explains
the fields.

Each is one :class:`logging.LogRecord`. What listens are handlers: the counts for the summary
(`counts.py`), the audit trail (`audit_trail.py`) and the report. To add a field, add it to
:meth:`Record.fields`.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.engine.words import json_line
from scrapy_rep.protocol.freshness import Standing

if TYPE_CHECKING:
    from scrapy_rep.engine.log import Isolation
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision, Origin

NAME = "scrapy_rep.decisions"

ALLOWED_COUNT, ANSWER, CHANGED, SITEMAP, STARTED, ENDED = OTHERS = (
    "allowed_count",
    "answer",
    "changed",
    "sitemap",
    "crawl_started",
    "crawl_ended",
)
"""Verdicts of lines that are about something else than a decision."""

UNKNOWN_YET = "no answer yet"
"""Why a request is held whose robots.txt has not answered so far."""
IMPOLITE = "REP_UNREACHABLE is 'allow'"
"""How the reason begins for which a request passes though its robots.txt is unreachable."""

_REASONS = {
    Standing.STALE: "an older copy is applied",
    Standing.UNRESTRICTED: "unreachable for longer than REP_UNREACHABLE_LIMIT",
}


class Basis(NamedTuple):
    """What a decision rests on."""

    state: OriginState | None = None
    decision: Decision | None = None


class Record(logging.LogRecord):
    """One thing that happened."""

    def __init__(
        self,
        verdict: str,
        at: float,
        about: tuple[str | None, Origin | str | None] = (None, None),
        basis: Basis = Basis(),  # noqa: B008 (immutable)
        **more: Any,
    ) -> None:
        """:param at: when, in seconds since the epoch
        :param about: a URL, and an origin
        :param more: further fields, of any JSON type
        """
        url, origin = about
        super().__init__(NAME, logging.INFO, "", 0, "%s: %s", (verdict, url), None)
        self.verdict = verdict
        self.at = at
        self.url = url
        self.origin = None if origin is None else str(origin)
        self.basis = basis
        self.more = more
        self._line: bytes | None = None

    def line(self, crawl: str) -> bytes:
        """Return it as a line of JSON.

        :param crawl: which crawl it is of
        """
        if self._line is None:  # there may be two that want it
            self._line = (json_line({**self.fields(), "crawl": crawl}) + "\n").encode()
        return self._line

    def fields(self) -> dict[str, Any]:
        """Return all fields, in order."""
        state, decision = self.basis
        entry = state.entry if state is not None else None
        more = self.more
        reason = more.get("reason")
        if reason is None and state is not None and state.standing in _REASONS:
            reason = f"{_REASONS[state.standing]}; {state.entry.error}"
        if entry is not None and entry.fetched_at is None:
            entry = None  # there has never been an answer
        rule = decision.rule if decision is not None else None
        fields = {
            "time": iso(self.at),
            "url": self.url,
            "agent": None,
            "origin": self.origin,
            "verdict": self.verdict,
            "rule": str(rule) if rule is not None else None,
            "line": rule.line if rule is not None else None,
            "group": decision.agent if decision is not None else None,
            "sha256": entry.sha256 if entry is not None else None,
            "fetched": iso(entry.fetched_at) if entry is not None else None,
            "status": entry.status if entry is not None else None,
            "reason": None,
            "dry_run": False,
        }
        if (usage := more.get("usage")) is not None:
            more = {**more, "usage": usage.as_dict()}
        return {**fields, **more, "reason": reason}


class Listener(logging.Handler):
    """A handler of records. A bug in one doesn't affect the others, nor the crawl."""

    part = "listener"
    """Its name in the log."""

    def __init__(self, isolated: Isolation) -> None:
        super().__init__()
        self._isolated = isolated

    def handle(self, record: logging.LogRecord) -> bool:
        """Take *record*. All come from one thread, so there is no lock."""
        with self._isolated(self.part):
            self.emit(record)
        return True


def iso(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601, UTC, to the millisecond."""
    if seconds is None:
        return None
    try:
        time = datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a clock may be set to anything
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
