"""What is on record of a crawl: lines of JSON about decisions, answers, changes and sitemaps
(docs/observing.md explains the fields); and rows that count, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from scrapy import Request
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Stale, Status, Unrestricted
from scrapy_rep.protocol import Decision, Origin, RobotsTxt
from scrapy_rep.protocol.availability import (
    REDIRECTS,
    WALL_SIGNS,
    Outcome,
    is_challenge,
    is_html,
)
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.base import Entry, UnreadableEntry
from scrapy_rep.text import iso

logger = get_logger(__name__)

_MS = "milliseconds"

IMPOLITE = "REP_UNREACHABLE is 'allow'"
"""How the reason begins for which a request passes though its robots.txt is unreachable."""

OVERRULED = "RepMiddleware.overrules()"
"""The reason for which a request passes though rules forbid it."""

_FIELDS = (
    *(
        "time",
        "url",
        "agent",
        "origin",
        "verdict",
        "rule",
        "line",
        "group",
        "sha256",
        "fetched",
    ),
    *("status", "reason", "dry_run"),
)
_REASONS: dict[type[Status], str] = {
    Stale: "an older copy is applied",
    Unrestricted: "unreachable for longer than REP_UNREACHABLE_LIMIT",
}


def fields_of(
    at: float,
    state: OriginState | None,
    decision: Decision | None,
    more: dict[str, Any],
) -> dict[str, Any]:
    """Return all fields of a line, in order. *at*: seconds since the epoch."""
    fields = {**dict.fromkeys(_FIELDS), "time": iso(at, _MS), "dry_run": False}
    if decision is not None:
        rule, fields["group"] = decision.rule, decision.agent
        if rule is not None:
            fields |= {"rule": str(rule), "line": rule.line}
    if state is not None:
        if (entry := state.entry).fetched_at is not None:
            fetched = iso(entry.fetched_at, _MS)
            fields |= {
                "sha256": entry.sha256,
                "fetched": fetched,
                "status": entry.status,
            }
        # Why something other than a current robots.txt decides.
        status = state.status.counts_as
        why = _REASONS.get(type(status))
        if status.setting and isinstance(status, Unrestricted):
            why = "unreachable"
        parts = status.setting, why, entry.error if why else ""
        fields["reason"] = "; ".join(filter(None, parts)) or None
    return {**fields, **more, "reason": more.get("reason") or fields["reason"]}


OUTCOMES = (
    "rules",
    "empty",
    "html",
    "challenge",
    "missing",
    "redirected",
    "unreachable",
    "none",
)
"""The outcomes of requests for an origin's robots.txt, in the order of the report."""

_UNRESTRICTED = "without restrictions"
ANSWERS = {
    "rules": "with rules",
    "empty": _UNRESTRICTED,
    "missing": _UNRESTRICTED,
    "denied": _UNRESTRICTED,
    "redirected": _UNRESTRICTED,
    "html": "with HTML in its place",
    "challenge": "with a bot wall in its place",
    "closed": "closed by REP_FORBIDDEN",
    "unreachable": "unreachable",
    "none": "without an answer",
}
"""How the summary and the report count origins: what each outcome amounts to, in words. The record
calls "denied" and "closed" missing, too: see :func:`detailed`."""

# Statuses that say that there is no file. A 5xx page that says so counts as 404.
_GONE = frozenset({404, 410})


def detailed(outcome: str, status: int | None, *, forbids: bool) -> str:
    """Return the key in :data:`ANSWERS` of an answer on record. A site that answers 403 has not said
    that its robots.txt is missing. *forbids*: a setting makes the answer forbid everything."""
    if forbids:
        return "closed"
    if outcome != "missing":
        return outcome
    denied = status is not None and 400 <= status < 500 and status not in _GONE
    return "denied" if denied else outcome


# Bytes of a body that are searched.
_SEARCHED = 20_000
# A line that says something, not only a comment.
_SAYS = re.compile(rb"^[ \t\v\f]*[^#\s\x00]", re.MULTILINE)
# In pages of bot walls: Cloudflare, Imperva, DataDome, PerimeterX, AWS, Akamai, and captchas of all kinds.
_WALL_WORDS = (
    *(
        b"challenge-platform",
        b"cf-chl",
        b"just a moment",
        b"_incapsula_",
        b"datadome",
        b"captcha",
    ),
    *(
        b"perimeterx",
        b"awswaf",
        b"aws-waf",
        b"bot manager",
        b"are you human",
        b"are you a human",
    ),
    *(b"are you a robot", b"verify you are"),
)
_SHORT = 40
_BOT_WALL = "bot wall"
# What a reason has in it if a bot wall is why an origin is unreachable.
_OF_WALLS = (*WALL_SIGNS, "REP_CHALLENGE")
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


def answer_fields(
    state: OriginState, flight: Flight, delay: float, now: float
) -> dict[str, Any]:
    """Return the fields of the line about an answer. *delay*: seconds between requests, as far as
    ``REP_CRAWL_DELAY`` grants it."""
    entry, answer = state.entry, flight.answer
    outcome, body = outcome_of_answer(entry, answer)
    failed = outcome == "unreachable"
    robots = state.robots if body is not None else None
    about = {
        "outcome": outcome,
        "stored": answer is None,
        "asked": iso(flight.asked_at, _MS),
        "fetches": flight.fetches,
        "hops": answer.hops if answer is not None else entry.hops,
        "bytes": len(cut(body)) if body is not None else None,
        "kind": kind_of(entry.error) if failed else None,
        "attempts": entry.attempts,
        "next": max(0.0, round(entry.next_attempt_at - now, 3)) if failed else None,
        "fresh_until": None if failed else iso(entry.fresh_until, _MS),
        "crawl_delay": delay or None,
        "sitemaps": len(robots.sitemaps) if robots is not None else 0,
        "forbids": state.forbids_all,
    }
    if failed:
        reason = entry.error
    else:
        notes = [answer.note if answer is not None else "", entry.note]
        reason = "; ".join(filter(None, notes)) or state.status.setting
    return {
        "status": answer.status if answer is not None else entry.status,
        "sha256": entry.sha256 if body is not None else None,
        "fetched": iso(entry.updated_at if failed else entry.fetched_at, _MS),
        "reason": reason or None,
        "answer": about,
    }


def outcome_of_answer(entry: Entry, answer: Answer | None) -> tuple[str, bytes | None]:
    """Return one of :data:`OUTCOMES`, and the file, if there is one."""
    if entry.unreachable_since is not None:
        return "unreachable", None
    if entry.outcome is not Outcome.RULES:
        if entry.wall:
            return "challenge", None
        status = entry.status if answer is None else answer.status
        return "redirected" if status in REDIRECTS else "missing", None
    try:
        body = answer.body if answer is not None else entry.body
    except UnreadableEntry:
        body = b""
    if entry.wall:
        return "challenge", body
    start = body[:_SEARCHED]
    if is_html(start):
        is_walls = _has_wall_words(start) and is_challenge(entry.status, body)
        return ("challenge" if is_walls else "html"), body
    return "rules" if len(body) > _SEARCHED or _SAYS.search(body) else "empty", body


def _has_wall_words(page: bytes) -> bool:
    text = page.lower()
    return any(words in text for words in _WALL_WORDS)


def is_of_wall(outcome: str, entry: Entry) -> bool:
    """Whether a bot wall answered for robots.txt. *outcome*: one of :data:`OUTCOMES`, of that answer."""
    if outcome == "unreachable":
        return kind_of(entry.error) == _BOT_WALL
    return outcome == "challenge"


def kind_of(reason: str | None) -> str:
    """Return why a robots.txt is unreachable, in a word or two."""
    reason = reason or "other"
    name = reason.partition(":")[0]
    if name.startswith("HTTP "):
        if any(words in reason for words in _OF_WALLS):
            return _BOT_WALL
        return name[: len("HTTP 503")]
    if name in _KINDS:
        return _KINDS[name]
    if "SSL" in reason:
        return "TLS"
    return "connection lost" if "onnection" in reason else name[:_SHORT]


# Refused URLs that are remembered; of one origin, how many are compared.
_REFUSED, _URLS = 1000, 20
# Lines of a change that are kept, and characters of each.
MAX_LINES, _LENGTH = 50, 300


class ChangeWatch:
    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused: deque[tuple[Origin, str]] = deque(maxlen=_REFUSED)
        self._log = Limiter(logger, "robots.txt files that have changed")

    def remember_refusal(self, origin: Origin, url: str) -> None:
        """Remember a URL that is refused: a change may allow it."""
        self._refused.append((origin, url))

    async def find_change(
        self,
        state: OriginState,
        before: Entry,
        request: Request,
        waiting: Callable[[Origin], Iterable[str]],
    ) -> dict[str, Any] | None:
        """Return what has changed since *before*, and log it; None if nothing has. *request* was
        the first to ask. *waiting* returns URLs that wait for an origin's answer, some from disk."""
        now = state.entry
        if before.fetched_at is None or now.unreachable_since is not None:
            return None  # only answers that count are compared
        if (before.outcome, before.sha256) == (now.outcome, now.sha256):
            return None
        try:
            bodies = before.body, now.body
        except UnreadableEntry:  # a damaged file of another process
            return None
        refused = [url for origin, url in self._refused if origin == state.origin]
        urls = list(dict.fromkeys([*refused[-_URLS:], *waiting(state.origin)]))
        chain = self._agents.chain_of(request)
        obey_global = self._context.settings.obey_global_group
        change = await run_in_thread(compare, *bodies, urls, chain, obey_global)
        self._log_change(state.origin, change)
        return {"old_sha256": before.sha256, **change}

    def _log_change(self, origin: Origin, change: dict[str, Any]) -> None:
        self._context.stats.inc_value("rep/changed")
        message = (
            "robots.txt of %(origin)s has changed: lines added %(lines_added)d, removed "
            "%(lines_removed)d"
        )
        values = {"origin": origin, **change}
        if change["turned"]:
            message += ", verdicts that turn %(turned_count)d: %(url)s is now %(now)s"
            values |= change["turned"][0]
        self._log.log(message, values, self._context.spider)


def compare(
    old: bytes, new: bytes, urls: list[str], chain: tuple[str, ...], obey_global: bool
) -> dict[str, Any]:
    """Return what differs between two robots.txt files: lines, and verdicts on *urls*."""
    turned = []
    files = RobotsTxt.parse(old), RobotsTxt.parse(new)
    for url in urls:
        found = [
            one.decide(comparable(url), chain, obey_global=obey_global) for one in files
        ]
        was, now = ("allowed" if one.allowed else "disallowed" for one in found)
        if was != now:
            turned.append({"url": url, "was": was, "now": now})
    return {
        **changed_lines(old, new),
        "turned": turned[:_URLS],
        "turned_count": len(turned),
    }


def changed_lines(old: bytes, new: bytes) -> dict[str, Any]:
    """Return the lines that only one of two files has, in the order in which they first appear."""
    before, after = _lines(old), _lines(new)
    added, removed = (list(one.elements()) for one in (after - before, before - after))
    return {
        "added": [one[:_LENGTH] for one in added[:MAX_LINES]],
        "removed": [one[:_LENGTH] for one in removed[:MAX_LINES]],
        "lines_added": len(added),
        "lines_removed": len(removed),
    }


def _lines(body: bytes) -> Counter[str]:
    text = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode(errors="replace")
    return Counter(filter(None, map(str.strip, text.split("\n"))))


_DIGITS = re.compile(r"[0-9]+")
# Digits of a number in a name that is sorted.
_WIDTH = 8


def by_domain(origin: str) -> str:
    """Return a key that sorts origins by their domains, then by the numbers in their names:
    127.0.0.11 before 127.0.0.100, and b.example's hosts after all of a.example's. The report's
    script sorts alike."""
    scheme, _, place = origin.partition("://")
    host, _, port = place.rpartition(":")
    if not host or port.endswith("]"):  # there is no port
        host, port = place, ""
    labels = host.split(".")
    if not labels[-1].isdigit():  # not an IPv4 address
        labels.reverse()
    text = "\0".join([*labels, port, scheme])
    return _DIGITS.sub(lambda number: number[0].zfill(_WIDTH), text)


# Rules that are counted.
_KEPT_RULES = 1_000

RowT = TypeVar("RowT")


class Rows(OrderedDict[Any, RowT]):
    """Rows by key. Beyond a limit, those to which nothing was added for longest are forgotten."""

    def __init__(
        self,
        limit: int,
        most: int,
        order: Callable[[RowT], Any],
        forget: Callable[[RowT], None] = lambda _: None,
    ) -> None:
        """*most*: how many are shown, the first in an *order*. *forget* is called with each row that
        is forgotten."""
        super().__init__()
        self._limit, self._most, self._order, self._forget = limit, most, order, forget
        self.ever_added = 0
        """How many there were: one that was forgotten, and comes back, counts twice."""

    @property
    def top(self) -> list[RowT]:
        """The rows that are shown."""
        return sorted(self.values(), key=self._order)[: self._most]

    def row(self, key: Any, make: Callable[[], RowT]) -> RowT:
        """Return the row of *key*, a new one if there is none."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        if len(self) >= self._limit:
            self._forget(self.popitem(last=False)[1])
        self.ever_added += 1
        row = self[key] = make()
        return row

    def add(self, row: RowT) -> None:
        self.row(self.ever_added, lambda: row)


class QuotedLine(NamedTuple):
    number: int
    text: str
    decided: bool


@dataclass(slots=True)
class RuleOrigin:
    origin: str
    line: int
    robots_url: str = ""
    """Empty if it isn't known: the usual one."""
    url: str = ""
    """The first that was refused."""
    sha256: str = ""
    times: int = 0
    excerpt: list[QuotedLine] = field(default_factory=list)
    """Lines of the robots.txt around the one that decided."""


@dataclass(slots=True)
class RuleRow:
    rule: str
    group: str
    times: int = 0
    all_origins: int = 0
    first_origins: dict[str, RuleOrigin] = field(default_factory=dict)
    """The first origins that have it."""

    @property
    def origins(self) -> list[RuleOrigin]:
        """Those with most refusals first."""
        return sorted(
            self.first_origins.values(),
            key=lambda row: (-row.times, by_domain(row.origin)),
        )


class RuleRows(Rows[RuleRow]):
    """Rules that refused requests, those that refused most first. A rule of many origins is one."""

    def __init__(self, most: int, origins: int) -> None:
        """*most*: how many rules are shown, and how many *origins* of each."""
        super().__init__(
            _KEPT_RULES, most, lambda row: (-row.times, row.rule, row.group)
        )
        self._origins = origins
        self._seen = BoundedSet()

    def refuse(
        self, rule: str, group: str, origin: str, describe: Callable[[], RuleOrigin]
    ) -> None:
        """Count a refusal. *describe* the *origin*, if it is among the first that have the rule."""
        row = self.row((rule, group), lambda: RuleRow(rule, group))
        row.times += 1
        where = row.first_origins.get(origin)
        if where is None:
            row.all_origins += self._seen.add((rule, group, origin))
            if len(row.first_origins) >= self._origins:
                return
            where = row.first_origins[origin] = describe()
        where.times += 1


def held_fields(
    origin: str, requests: int, seconds: float, entry: Entry | None
) -> dict[str, Any]:
    """Return what ``scrapy robots --held --json`` and :meth:`RepMiddleware.held` report about an
    origin. *seconds*: for which its first request has been held. *entry*: what is known of its
    robots.txt."""
    down = entry if entry is not None and entry.unreachable_since is not None else None
    return {
        "origin": origin,
        "requests": requests,
        "held_seconds": round(seconds, 3),
        "unreachable_since": iso(down.unreachable_since) if down else None,
        "error": down.error if down else None,
        "attempts": down.attempts if down else None,
        "next_attempt_at": iso(down.next_attempt_at or None) if down else None,
    }
