"""What is on record of a crawl: lines of JSON about decisions, answers and sitemaps
(docs/observing.md explains the fields); the outcomes of requests for a robots.txt, in words; and
what happened, in numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from scrapy_rep.engine.log import BoundedSet
from scrapy_rep.origins.faults import is_lost_connection, is_tls_failure
from scrapy_rep.origins.flights import Resolution
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.availability import REDIRECTS, Outcome, is_html
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.entry import UnreadableEntry
from scrapy_rep.text import clean, iso

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
    """Return all fields of a line, in order. *at*: seconds since the epoch."""
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
"""The outcomes of requests for an origin's robots.txt, in words, in the order of the report."""

CONFIGURATION = "configuration"
"""Why there is no answer if the project keeps us from asking."""

# Bytes of a body that are searched.
_SEARCHED = 20_000
# A line that says something, not only a comment.
_SAYS = re.compile(rb"^[ \t\v\f]*[^#\s\x00]", re.MULTILINE)
# Bot walls: Cloudflare, Imperva, DataDome, PerimeterX, AWS, Akamai, and captchas of all kinds.
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
    """The outcome of the requests for a robots.txt."""

    outcome: str
    """A key of :data:`OUTCOMES`."""
    kind: str | None = None
    """Why it is unreachable, in a word or two."""
    fetches: int = 0
    """The number of requests."""
    body: bytes | None = None
    """The file, if there is one."""

    @classmethod
    def of(cls, resolution: Resolution) -> Found:
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
        """Return the fields of the line about it. *delay*: seconds between requests, as far as
        ``REP_CRAWL_DELAY`` grants it."""
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
    """Return why a robots.txt is unreachable, in a word or two. *error*: what was raised, if known.
    *short*: if there is no such word, return the beginning of *reason*, not "other"."""
    name = (reason or "").partition(":")[0]
    if name.startswith("HTTP ") or name in _KINDS:
        return _KINDS.get(name, name[:20])
    if error is not None and is_tls_failure(error):
        return "TLS"
    if error is not None and is_lost_connection(error):
        return "connection lost"
    return (reason or "")[:_SHORT] if short else "other"


# Rules in the summary.
_TOP = 5
# Origins whose latest outcome may still change. One that is forgotten and comes back counts twice.
_ORIGINS = 100_000
_RULES = 5_000
_RULE_LENGTH = 500

_NAMES = {"disallowed": "forbidden", "unreachable": "dropped"}

# One in this many rows is looked at in one go: half of 50,000 would take a third of a second.
_AT_A_TIME = 100

RowT = TypeVar("RowT")


class Rows(dict[Any, RowT]):
    """Rows by key, in bounded memory: beyond a limit, of the oldest ones, the half that comes last
    in an order is forgotten, and the others are young again."""

    def __init__(
        self,
        limit: int,
        most: int,
        order: Callable[[RowT], Any],
        forget: Callable[[RowT], None] = lambda _: None,
    ) -> None:
        """*most*: how many are shown. *forget* is called with each row that is forgotten."""
        super().__init__()
        self._limit, self._most, self._order, self._forget = limit, most, order, forget
        self.all = 0
        """How many there were: one that was forgotten, and comes back, counts twice."""

    @property
    def top(self) -> list[RowT]:
        """The first rows: those that are shown."""
        return sorted(self.values(), key=self._order)[: self._most]

    def row(self, key: Any, make: Callable[[], RowT]) -> RowT:
        """Return the row of *key*, a new one if there is none."""
        found = self.get(key)
        if found is None:
            if len(self) >= self._limit:
                oldest = sorted(
                    islice(self, max(2, self._limit // _AT_A_TIME)),
                    key=lambda one: self._order(self[one]),
                )
                for position, one in enumerate(oldest):
                    row = self.pop(one)
                    if position < len(oldest) // 2:
                        self[one] = row
                    else:
                        self._forget(row)
            self.all += 1
            found = self[key] = make()
        return found

    def add(self, row: RowT) -> None:
        self.row(self.all, lambda: row)


@dataclass(slots=True)
class DecidingRule:
    rule: str
    group: str
    first: tuple[str, int]
    """The first of the origins that have it, and the line there."""
    times: int = 0
    origins: int = 0


class Counts:
    """Exact totals, and details of the most frequent things, in bounded memory."""

    part = "count for the summary"

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By what became of them."""
        self.fetches = 0
        self._latest: dict[int, tuple[str, str]] = {}
        """By the hash of an origin: a third of the memory."""
        self._known: dict[tuple[str, str], tuple[str, str]] = {}
        self._settled: Counter[tuple[str, str]] = Counter()
        self.rules: Rows[DecidingRule] = Rows(_RULES, _TOP, lambda one: (-one.times, one.first))
        """Those that refused requests."""
        self._seen = BoundedSet()

    def answered(self, origin: Origin, found: Found) -> None:
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
        passed = verdict == "allowed" and (reason or "").startswith(IMPOLITE)
        self.requests["passed" if passed else _NAMES.get(verdict, verdict)] += 1
        if origin is None:
            return
        self.answered(origin, Found("none"))
        if verdict == "disallowed" and decision is not None and decision.rule is not None:
            key = clean(str(decision.rule)[:_RULE_LENGTH]), decision.agent or ""
            where = str(origin), decision.rule.line
            found = self.rules.row(key, lambda: DecidingRule(*key, where))
            found.times += 1
            found.origins += self._seen.add((key, origin))
            found.first = min(found.first, where)

    def outcomes(self) -> Counter[tuple[str, str]]:
        """Return the number of origins by outcome and, of those unreachable, why."""
        return Counter(self._latest.values()) + self._settled
