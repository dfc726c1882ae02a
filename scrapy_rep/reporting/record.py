"""The record of a crawl: what is reported about each decision, answer and sitemap, and the counts for the
summary. docs/observing.md explains the fields.

Each record is one :class:`logging.LogRecord`. The listeners are logging handlers: the audit trail
(`audit_trail.py`) and the report; without them, no record is made. To add a field, add it to
:meth:`Record.fields`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from scrapy_rep.engine.log import BoundedSet
from scrapy_rep.engine.text import clean, iso, json_line
from scrapy_rep.origins.faults import is_lost_connection, is_tls_failure
from scrapy_rep.protocol.availability import REDIRECTS, Outcome, is_html
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.entry import UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_rep.engine.log import Isolation
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision, Origin, Rule

NAME = "scrapy_rep.decisions"
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


class Record(logging.LogRecord):
    """One thing that happened."""

    def __init__(
        self,
        verdict: str,
        at: float,
        about: tuple[str | None, Origin | str | None] = (None, None),
        state: OriginState | None = None,
        decision: Decision | None = None,
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
        self.state, self.decision = state, decision
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
        state, decision = self.state, self.decision
        entry = state.entry if state and state.entry.fetched_at is not None else None
        rule = decision.rule if decision is not None else None
        reason = self.more.get("reason") or (_reason(state) if state else None)
        fields = {
            "time": iso(self.at, _MS),
            "url": self.url,
            "agent": None,
            "origin": self.origin,
            "verdict": self.verdict,
            "rule": str(rule) if rule is not None else None,
            "line": rule.line if rule is not None else None,
            "group": decision.agent if decision is not None else None,
            "sha256": entry.sha256 if entry is not None else None,
            "fetched": iso(entry.fetched_at, _MS) if entry is not None else None,
            "status": entry.status if entry is not None else None,
            "reason": None,
            "dry_run": False,
        }
        return {**fields, **self.more, "reason": reason}


def _reason(state: OriginState) -> str | None:
    """Return why something other than a current robots.txt decides; None if that decides."""
    why = _REASONS.get(state.standing)
    if state.by and state.standing is Standing.UNRESTRICTED:
        why = "unreachable"
    parts = (state.by, why, state.entry.error if why else "")
    return "; ".join(filter(None, parts)) or None


class Listener(logging.Handler):
    """A handler of records. A bug in one doesn't affect the others, nor the crawl."""

    part = "listener"
    """Its name in the log."""

    def __init__(self, isolated: Isolation) -> None:
        super().__init__()
        self._isolated = isolated

    async def end(self) -> None:
        """Finish: the crawl has ended."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Take *record*. All come from one thread, so there is no lock."""
        with self._isolated(self.part):
            self.emit(record)
        return True


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

    @classmethod
    def of(cls, resolution: Resolution) -> Found:
        """Return what a resolution says."""
        entry, answer, flight = resolution.state.entry, resolution.answer, resolution.flight
        fetches = flight.fetches if flight is not None else 0
        if entry.unreachable_since is not None:
            error = answer.error if answer is not None else None
            return cls("unreachable", kind_of(entry.error, error), fetches)
        if entry.outcome is Outcome.RULES:
            return cls(_kind_of_file(_body_of(resolution)), None, fetches)
        status = entry.status if answer is None else answer.status
        return cls("redirected" if status in REDIRECTS else "missing", None, fetches)


def answer_fields(resolution: Resolution, found: Found, delay: float, now: float) -> dict[str, Any]:
    """Return the fields of the record for an answer.

    :param delay: seconds between requests, as far as ``REP_CRAWL_DELAY`` grants it
    """
    state, answer, flight = resolution.state, resolution.answer, resolution.flight
    entry = state.entry
    failed = found.outcome == "unreachable"
    has_body = not failed and entry.has_copy
    note = answer.note if answer is not None else ""
    about = {
        "outcome": found.outcome,
        "stored": answer is None,
        "asked": iso(flight.asked_at, _MS) if flight is not None and found.fetches else None,
        "fetches": found.fetches,
        "hops": answer.hops if answer is not None else entry.hops,
        "bytes": len(cut(_body_of(resolution))) if has_body else None,
        "kind": found.kind,
        "attempts": entry.attempts,
        "next": max(0.0, round(entry.next_attempt_at - now, 3)) if failed else None,
        "fresh_until": None if failed else iso(entry.fresh_until, _MS),
        "crawl_delay": delay or None,
        "sitemaps": len(state.robots.sitemaps) if has_body and state.robots is not None else 0,
    }
    return {
        "status": answer.status if answer is not None else entry.status,
        "sha256": entry.sha256 if has_body else None,
        "fetched": iso(entry.updated_at if failed else entry.fetched_at, _MS),
        "reason": entry.error if failed else note or None,
        "answer": about,
    }


def _body_of(resolution: Resolution) -> bytes:
    try:
        return resolution.answer.body if resolution.answer else resolution.state.entry.body
    except UnreadableEntry:
        return b""


def _kind_of_file(body: bytes) -> str:
    start = body[:_SEARCHED]
    if is_html(start):
        text = start.lower()
        return "challenge" if any(words in text for words in _WALL) else "html"
    return "rules" if len(body) > _SEARCHED or _SAYS.search(body) else "empty"


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


# Origins whose latest outcome is known. Of older ones, it is final: one that comes back counts twice.
_ORIGINS = 100_000
_RULES = 5_000
_RULE_LENGTH = 500

_NAMES = {"disallowed": "forbidden", "unreachable": "dropped"}

RowT = TypeVar("RowT")


class Rows(dict[Any, RowT]):
    """Rows by key, in bounded memory: beyond a limit, the half that comes last in an order is forgotten."""

    def __init__(
        self,
        limit: int,
        order: Callable[[RowT], Any],
        forget: Callable[[RowT], None] = lambda _: None,
    ) -> None:
        """:param forget: is called with each row that is forgotten"""
        super().__init__()
        self._limit, self._order, self._forget = limit, order, forget
        self.all = 0
        """How many there were: one that was forgotten, and comes back, counts twice."""
        self.top: list[RowT] = []

    def row(self, key: Any, make: Callable[[], RowT]) -> RowT:
        """Return the row of *key*, a new one if there is none."""
        found = self.get(key)
        if found is None:
            if len(self) >= self._limit:
                ordered = sorted(self, key=lambda one: self._order(self[one]))
                for one in ordered[self._limit // 2 :]:
                    self._forget(self.pop(one))
            self.all += 1
            found = self[key] = make()
        return found

    def add(self, row: RowT) -> None:
        """Add a row without a key."""
        self.row(self.all, lambda: row)

    def end(self, most: int) -> list[RowT]:
        """Return the first rows, which are :attr:`top` from now on."""
        self.top = sorted(self.values(), key=self._order)[:most]
        return self.top


@dataclass(slots=True)
class DecidingRule:
    """A rule that refused requests."""

    rule: str
    group: str
    first: tuple[str, int]
    """The first of the origins that have it, and the line there."""
    times: int = 0
    origins: int = 0


class Counts:
    """What happened, in numbers: exact totals, and details of the most frequent things, in bounded
    memory."""

    part = "count for the summary"

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By what became of them."""
        self.fetches = 0
        self._latest: dict[int, tuple[str, str]] = {}
        """By the hash of an origin: a third of the memory."""
        self._known: dict[tuple[str, str], tuple[str, str]] = {}
        self._settled: Counter[tuple[str, str]] = Counter()
        self.rules: Rows[DecidingRule] = Rows(_RULES, lambda one: (-one.times, one.first))
        """Those that refused requests."""
        self._seen = BoundedSet()

    def answered(self, origin: Origin, found: Found) -> None:
        """Count what came of the requests for an origin's robots.txt."""
        self.fetches += found.fetches
        if found.outcome == "none" and hash(origin) in self._latest:
            return
        key = found.outcome, found.kind or ""
        self._latest[hash(origin)] = self._known.setdefault(key, key)
        if len(self._latest) > _ORIGINS:
            for oldest in list(islice(self._latest, _ORIGINS // 10)):
                self._settled[self._latest.pop(oldest)] += 1

    def decided(
        self,
        verdict: str,
        origin: Origin | None,
        decision: Decision | None = None,
        reason: str | None = None,
    ) -> None:
        """Count a decision about a request."""
        passed = verdict == "allowed" and (reason or "").startswith(IMPOLITE)
        self.requests["passed" if passed else _NAMES.get(verdict, verdict)] += 1
        if origin is None:
            return
        self.answered(origin, Found("none"))
        if verdict == "disallowed" and decision is not None and decision.rule is not None:
            self._ruled(str(origin), decision.rule, decision.agent or "")

    def _ruled(self, origin: str, rule: Rule, group: str) -> None:
        key, where = (clean(str(rule)[:_RULE_LENGTH]), group), (origin, rule.line)
        found = self.rules.row(key, lambda: DecidingRule(*key, where))
        found.times += 1
        found.origins += self._seen.add((key, origin))
        found.first = min(found.first, where)

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return the number of origins by outcome (a key of :data:`OUTCOMES`) and, of those unreachable,
        why."""
        return Counter(self._latest.values()) + self._settled
