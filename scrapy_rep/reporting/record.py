"""What is on record of a crawl: lines of JSON about decisions, answers and sitemaps. docs/observing.md explains the
fields. And what came of the requests for a robots.txt, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.engine.text import iso
from scrapy_rep.origins.answer import is_lost_connection, is_tls_failure
from scrapy_rep.protocol.availability import REDIRECTS, Outcome, is_html
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.entry import UnreadableEntry

if TYPE_CHECKING:
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision

_MS = "milliseconds"

ALLOWED_COUNT, ANSWER, CHANGED, SITEMAP, STARTED, ENDED = OTHERS = (
    "allowed_count",
    "answer",
    "changed",
    "sitemap",
    "crawl_started",
    "crawl_ended",
)
"""Verdicts of lines that are about something other than a decision."""

UNKNOWN_YET = "no answer yet"
"""Why a request is held whose robots.txt has not answered so far."""
IMPOLITE = "REP_UNREACHABLE is 'allow'"
"""How the reason begins for which a request passes though its robots.txt is unreachable."""

_REASONS = {
    Standing.STALE: "an older copy is applied",
    Standing.UNRESTRICTED: "unreachable for longer than REP_UNREACHABLE_LIMIT",
}


def fields_of(
    at: float, state: OriginState | None, decision: Decision | None, more: dict[str, Any]
) -> dict[str, Any]:
    """Return all fields of a line, in order.

    :param at: when, in seconds since the epoch
    :param more: the line's own fields
    """
    entry = state.entry if state and state.entry.fetched_at is not None else None
    rule = decision.rule if decision is not None else None
    fields = {
        "time": iso(at, _MS),
        "url": None,
        "agent": None,
        "origin": None,
        "verdict": None,
        "rule": str(rule) if rule is not None else None,
        "line": rule.line if rule is not None else None,
        "group": decision.agent if decision is not None else None,
        "sha256": entry.sha256 if entry is not None else None,
        "fetched": iso(entry.fetched_at, _MS) if entry is not None else None,
        "status": entry.status if entry is not None else None,
        "reason": None,
        "dry_run": False,
    }
    reason = more.get("reason")
    if state is not None and not reason:  # why something other than a current robots.txt decides
        why = _REASONS.get(state.standing)
        if state.by and state.standing is Standing.UNRESTRICTED:
            why = "unreachable"
        parts = state.by, why, state.entry.error if why else ""
        reason = "; ".join(filter(None, parts))
    return {**fields, **more, "reason": reason or None}


OUTCOMES = {
    "rules": "with rules",
    "empty": "empty file",
    "html": "HTML page in its place",
    "challenge": "bot wall in its place",
    "missing": "missing",
    "redirected": "redirect loop, or redirect without a target",
    "unreachable": "unreachable",
    "none": "no answer",
}
"""What came of the requests for an origin's robots.txt, in words, in the order of the report."""

CONFIGURATION = "configuration"
"""Why there is no answer if the project keeps us from asking."""

# Bytes of a body that are searched.
_SEARCHED = 20_000
# A line that says something, not only a comment.
_SAYS = re.compile(rb"^[ \t\v\f]*[^#\s\x00]", re.MULTILINE)
# Of bot walls: Cloudflare, Imperva, DataDome, PerimeterX, AWS, Akamai, and captchas of all kinds.
_WALL = (
    *(b"challenge-platform", b"cf-chl", b"just a moment", b"_incapsula_", b"datadome", b"captcha"),
    *(b"perimeterx", b"awswaf", b"aws-waf", b"bot manager", b"are you human", b"are you a human"),
    *(b"are you a robot", b"verify you are"),
)

_SHORT = 60
_KINDS = {
    "CannotResolveHostError": "unknown host",
    "UnsupportedURLSchemeError": "unknown host",
    "DownloadTimeoutError": "timeout",
    "TimeoutError": "timeout",
    "DownloadConnectionRefusedError": "refused",
    "ProxyError": "proxy",
    "RedirectRefused": "redirect refused",
    "ResponseDataLossError": "invalid answer",
    "InvalidStatus": "invalid answer",
}


class Found(NamedTuple):
    """What came of the requests for a robots.txt."""

    outcome: str
    """A key of :data:`OUTCOMES`."""
    kind: str | None = None
    """Why it is unreachable, in a word or two."""
    fetches: int = 0
    """How many there were."""
    body: bytes | None = None
    """The file, if there is one."""

    @classmethod
    def of(cls, resolution: Resolution) -> Found:
        """Return what a resolution says."""
        entry, answer, flight = resolution.state.entry, resolution.answer, resolution.flight
        fetches = flight.fetches if flight is not None else 0
        if entry.unreachable_since is not None:
            error = answer.error if answer is not None else None
            return cls("unreachable", kind_of(entry.error, error), fetches)
        if entry.outcome is not Outcome.RULES:
            status = entry.status if answer is None else answer.status
            return cls("redirected" if status in REDIRECTS else "missing", None, fetches)
        try:
            body = answer.body if answer is not None else entry.body
        except UnreadableEntry:
            body = b""
        start = body[:_SEARCHED]
        if is_html(start):
            text = start.lower()
            outcome = "challenge" if any(words in text for words in _WALL) else "html"
        else:
            outcome = "rules" if len(body) > _SEARCHED or _SAYS.search(body) else "empty"
        return cls(outcome, None, fetches, body)

    def fields(self, resolution: Resolution, delay: float, now: float) -> dict[str, Any]:
        """Return the fields of the line about it.

        :param delay: seconds between requests, as far as ``REP_CRAWL_DELAY`` grants it
        """
        state, answer, flight = resolution.state, resolution.answer, resolution.flight
        entry, failed = state.entry, self.outcome == "unreachable"
        has_body = self.body is not None
        about = {
            "outcome": self.outcome,
            "stored": answer is None,
            "asked": iso(flight.asked_at, _MS) if flight is not None and self.fetches else None,
            "fetches": self.fetches,
            "hops": answer.hops if answer is not None else entry.hops,
            "bytes": len(cut(self.body)) if self.body is not None else None,
            "kind": self.kind,
            "attempts": entry.attempts,
            "next": max(0.0, round(entry.next_attempt_at - now, 3)) if failed else None,
            "fresh_until": None if failed else iso(entry.fresh_until, _MS),
            "crawl_delay": delay or None,
            "sitemaps": len(state.robots.sitemaps) if has_body and state.robots is not None else 0,
        }
        note = answer.note if answer is not None else None
        return {
            "status": answer.status if answer is not None else entry.status,
            "sha256": entry.sha256 if has_body else None,
            "fetched": iso(entry.updated_at if failed else entry.fetched_at, _MS),
            "reason": entry.error if failed else note or None,
            "answer": about,
        }


def kind_of(reason: str | None, error: Exception | None = None, *, short: bool = False) -> str:
    """Return why a robots.txt is unreachable, in a word or two.

    :param error: what was raised, if that is known
    :param short: of what has no such word, return the beginning of *reason* instead of "other"
    """
    name = (reason or "").partition(":")[0]
    if name.startswith("HTTP ") or name in _KINDS:
        return _KINDS.get(name, name[:20])
    if error is not None and is_tls_failure(error):
        return "TLS"
    if error is not None and is_lost_connection(error):
        return "connection lost"
    return (reason or "")[:_SHORT] if short else "other"
