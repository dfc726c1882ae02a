"""Lines of the record: JSON about decisions, answers, changes and sitemaps
(docs/observing.md explains the fields); and rows that count such lines in bounded
memory, for the log's summary and the report."""

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
from scrapy_rep.origins.queue import Flight
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

_MS = "milliseconds"  # the precision of times, for iso()

IMPOLITE = "REP_UNREACHABLE is 'allow'"
"""The beginning of the reason of a request that passes though its robots.txt is
unreachable."""

OVERRULED = "RepMiddleware.overrules()"
"""The reason of a request that passes though rules forbid it."""

# The fields of every line, in this order; docs/observing.md explains them.
_FIELDS = (
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
    "status",
    "reason",
    "dry_run",
)
# Why something other than a current robots.txt decides, by the status of the origin
# (origins/status.py).
_REASONS: dict[type[Status], str] = {
    Stale: "an older copy is applied",
    Unrestricted: "unreachable for longer than REP_UNREACHABLE_LIMIT",
}


def fields_of(
    at: float,
    state: OriginState | None,
    decision: Decision | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Return all fields of a line, in order.

    *at*: seconds since the epoch. *state*: what is known of the origin. *decision*: the
    rule that decided. The line may be about neither an origin nor a rule: None stands
    for them. *given*: further fields, which replace those made of *state* and
    *decision*. Only an empty *reason* replaces nothing.
    """
    fields: dict[str, Any] = dict.fromkeys(_FIELDS)
    fields["time"] = iso(at, _MS)
    fields["dry_run"] = False
    if decision is not None:
        fields["group"] = decision.agent
        rule = decision.rule
        if rule is not None:
            fields["rule"] = str(rule)
            fields["line"] = rule.line
    if state is not None:
        entry = state.entry
        if entry.fetched_at is not None:
            fields["sha256"] = entry.sha256
            fields["fetched"] = iso(entry.fetched_at, _MS)
            fields["status"] = entry.status
        fields["reason"] = _reason_of(state)
    # An empty reason must not replace the one that the state has.
    reason = given.get("reason") or fields["reason"]
    fields |= given
    fields["reason"] = reason
    return fields


def _reason_of(state: OriginState) -> str | None:
    """Return why something other than a current robots.txt decides about an origin's
    requests; None if that isn't so."""
    # A status whose time is over (Expired) may still decide (origins/status.py), and
    # counts_as is the status that does.
    status = state.counts_as
    why = _REASONS.get(type(status))
    # If a setting lifts the restrictions (REP_UNREACHABLE_RULES), it isn't
    # REP_UNREACHABLE_LIMIT that lifts them.
    if status.setting and isinstance(status, Unrestricted):
        why = "unreachable"
    # Whatever decides in place of a current robots.txt, the last failure is why.
    failure = state.entry.error if why else ""
    parts = (status.setting, why, failure)
    return "; ".join(filter(None, parts)) or None


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
"""How the summary and the report count origins: what each outcome amounts to, in words.
The record has "missing" for "denied" and "closed"; :func:`detailed` tells them
apart."""

# Statuses that say that there is no file.
_GONE = frozenset({404, 410})


def detailed(outcome: str, status: int | None, *, forbids: bool) -> str:
    """Return the key in :data:`ANSWERS` of an answer on record, given its *outcome*
    there and its HTTP *status*. *forbids*: a setting makes the answer forbid
    everything."""
    if forbids:
        return "closed"
    if outcome != "missing" or status is None or status in _GONE:
        return outcome
    # A site that answers 403 has not said that its robots.txt is missing. A site whose
    # 5xx page says "not found" has said so (is_soft_404() in protocol/availability.py).
    return "denied" if 400 <= status < 500 else outcome


# Only this many bytes at the start of a body are searched for signs of HTML, bot walls
# and rules, since to search all 500 KB would hold the event loop.
_SEARCHED_BYTES = 20_000
# Matches the beginning of a line that has more than a comment.
_SAYS_SOMETHING = re.compile(rb"^[ \t\v\f]*[^#\s\x00]", re.MULTILINE)
# Pages of bot walls have one of these words in them, in any case: pages of Cloudflare,
# Imperva, DataDome, PerimeterX, AWS and Akamai, and captchas of all kinds.
_WALL_WORDS = (
    b"challenge-platform",
    b"cf-chl",
    b"just a moment",
    b"_incapsula_",
    b"datadome",
    b"captcha",
    b"perimeterx",
    b"awswaf",
    b"aws-waf",
    b"bot manager",
    b"are you human",
    b"are you a human",
    b"are you a robot",
    b"verify you are",
)
BOT_WALL = "bot wall"
"""The kind of failure (:func:`kind_of`) if a bot wall answered."""
# If a bot wall answered for an unreachable origin, the failure's reason has one of
# these texts in it.
_SIGNS_OF_A_WALL = (*WALL_SIGNS, "REP_CHALLENGE")
# Kinds of failures, by the class of the exception, with which a reason begins.
_KINDS_OF_FAILURES = {
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
# The name of any other exception is cut to this many characters.
_KIND_LENGTH = 40


def answer_fields(
    state: OriginState,
    flight: Flight,
    delay: float,
    now: float,
) -> dict[str, Any]:
    """Return the fields of the line about the answer to *flight*: a fetched robots.txt,
    a failure, or an entry from the storage. *delay*: seconds between requests, as far
    as ``REP_CRAWL_DELAY`` grants it."""
    entry = state.entry
    answer = flight.answer  # None if the entry comes from the storage
    outcome, body = outcome_of_answer(entry, answer)
    failed = outcome == "unreachable"
    robots = state.robots if body is not None else None
    # The field "answer".
    details: dict[str, Any] = {
        "outcome": outcome,
        "stored": answer is None,
        "asked": iso(flight.asked_at, _MS),
        "fetches": flight.fetches,
        "hops": entry.hops if answer is None else answer.hops,
        "bytes": None if body is None else len(cut(body)),
        "kind": None,
        "attempts": entry.attempts,
        "next": None,
        "fresh_until": None,
        "crawl_delay": delay or None,
        "sitemaps": 0 if robots is None else len(robots.sitemaps),
        "forbids": state.forbids_all,
    }
    # The fields that differ between failures and answers.
    if failed:
        details["kind"] = kind_of(entry.error)
        seconds_left = entry.next_attempt_at - now
        details["next"] = max(0.0, round(seconds_left, 3))
        fetched_at: float | None = entry.updated_at  # when a fetch was last tried
        reason = entry.error
    else:
        details["fresh_until"] = iso(entry.fresh_until, _MS)
        fetched_at = entry.fetched_at
        answers_note = "" if answer is None else answer.note
        notes = "; ".join(filter(None, (answers_note, entry.note)))
        reason = notes or state.status.setting
    return {
        "status": entry.status if answer is None else answer.status,
        "sha256": None if body is None else entry.sha256,
        "fetched": iso(fetched_at, _MS),
        "reason": reason or None,
        "answer": details,
    }


def outcome_of_answer(entry: Entry, answer: Answer | None) -> tuple[str, bytes | None]:
    """Return one of :data:`OUTCOMES`, and the file's body, None if there is no file.
    *answer*: what was fetched; None if *entry* comes from the storage."""
    # There is no file.
    if entry.unreachable_since is not None:
        return "unreachable", None
    if entry.outcome is not Outcome.RULES:
        if entry.wall:
            return "challenge", None
        status = entry.status if answer is None else answer.status
        return "redirected" if status in REDIRECTS else "missing", None
    # There is a file. Find out whether it is one of rules.
    try:
        body = answer.body if answer is not None else entry.body
    except UnreadableEntry:  # another program has damaged it in the storage
        body = b""
    if entry.wall:
        return "challenge", body
    start = body[:_SEARCHED_BYTES]
    if b"<" in start and is_html(start):
        if _has_wall_words(start) and is_challenge(entry.status, body):
            return "challenge", body
        return "html", body
    # A large file isn't searched, since it almost surely has rules.
    is_large = len(body) > _SEARCHED_BYTES
    return "rules" if is_large or _SAYS_SOMETHING.search(body) else "empty", body


def _has_wall_words(page: bytes) -> bool:
    text = page.lower()
    return any(words in text for words in _WALL_WORDS)


def kind_of(reason: str | None) -> str:
    """Return why a robots.txt is unreachable, in a word or two. *reason*:
    ``Entry.error``, which is ``HTTP 503`` and more words, or the class of an exception,
    a colon and its message."""
    reason = reason or "other"
    name = reason.partition(":")[0]
    if name.startswith("HTTP "):
        if any(sign in reason for sign in _SIGNS_OF_A_WALL):
            return BOT_WALL
        return name[: len("HTTP 503")]
    if name in _KINDS_OF_FAILURES:
        return _KINDS_OF_FAILURES[name]
    if "SSL" in reason:
        return "TLS"
    if "onnection" in reason:  # with a capital C or a small one
        return "connection lost"
    return name[:_KIND_LENGTH]


# At most this many refused URLs are remembered, the latest of all origins. When a
# robots.txt changes, its new rules are tried on some of them.
_REMEMBERED_URLS = 1000
# When the robots.txt of an origin changes, its new rules are tried on at most this many
# of the origin's refused URLs. The line about the change lists at most as many verdicts
# that differ.
_COMPARED_URLS = 20
MAX_CHANGED_LINES = 50
"""The line about a change of robots.txt lists at most this many added lines, and as
many removed ones."""
# Each added or removed line is cut to this many characters.
_CHANGED_LINE_LENGTH = 300


class ChangeWatch:
    """Finds out what a new robots.txt changes: its lines, and verdicts on URLs that
    matter to the crawl."""

    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused: deque[tuple[Origin, str]] = deque(maxlen=_REMEMBERED_URLS)
        self._log = Limiter(logger, "robots.txt files that have changed")

    def remember_refusal(self, origin: Origin, url: str) -> None:
        """Remember a URL that is refused, since a change may allow it."""
        self._refused.append((origin, url))

    async def find_change(
        self,
        state: OriginState,
        before: Entry,
        request: Request,
        waiting_urls: Callable[[Origin], Iterable[str]],
    ) -> dict[str, Any] | None:
        """Return what has changed since *before*, and log the change; None if nothing
        has changed.

        *request* was the first to ask for the new robots.txt; verdicts are those for
        the agent of this request. *waiting_urls* returns the URLs of requests that wait
        for an origin's answer, some of them read from disk.
        """
        after = state.entry
        if before.fetched_at is None or after.unreachable_since is not None:
            return None  # failures aren't compared
        if (before.outcome, before.sha256) == (after.outcome, after.sha256):
            return None
        try:
            old_body = before.body
            new_body = after.body
        except UnreadableEntry:  # a damaged file of another process
            return None
        # The URLs on which the rules are tried: the last ones that were refused, and
        # those that wait.
        refused = [url for origin, url in self._refused if origin == state.origin]
        urls = refused[-_COMPARED_URLS:]
        urls += waiting_urls(state.origin)
        change = await run_in_thread(
            compare,
            old_body,
            new_body,
            list(dict.fromkeys(urls)),  # each URL once
            self._agents.chain_of(request),
            self._context.settings.obey_global_group,
        )
        self._log_change(state.origin, change)
        return {"old_sha256": before.sha256, **change}

    def _log_change(self, origin: Origin, change: dict[str, Any]) -> None:
        """Count and log a change, as :func:`compare` returned it, with the first
        verdict that differs."""
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
    old: bytes,
    new: bytes,
    urls: list[str],
    chain: tuple[str, ...],
    obey_global: bool,
) -> dict[str, Any]:
    """Return what differs between two robots.txt files: the fields of
    :func:`changed_lines`; *turned*, the first verdicts on *urls* that differ for the
    agents of *chain* (``Agents.chain_of()`` in origins/agents.py); and *turned_count*,
    how many verdicts differ."""
    old_robots = RobotsTxt.parse(old)
    new_robots = RobotsTxt.parse(new)
    turned = []
    for url in urls:
        address = comparable(url)
        was = _verdict(old_robots.decide(address, chain, obey_global=obey_global))
        now = _verdict(new_robots.decide(address, chain, obey_global=obey_global))
        if was != now:
            turned.append({"url": url, "was": was, "now": now})
    return {
        **changed_lines(old, new),
        "turned": turned[:_COMPARED_URLS],
        "turned_count": len(turned),
    }


def _verdict(decision: Decision) -> str:
    return "allowed" if decision.allowed else "disallowed"


def changed_lines(old: bytes, new: bytes) -> dict[str, Any]:
    """Return the lines that only one of two files has, in the order in which they first
    appear: the first lines that were *added* and that were *removed*, and how many
    there are of each."""
    before = _lines(old)
    after = _lines(new)
    # elements() repeats a line as often as it was added or removed.
    added = list((after - before).elements())
    removed = list((before - after).elements())
    return {
        "added": [line[:_CHANGED_LINE_LENGTH] for line in added[:MAX_CHANGED_LINES]],
        "removed": [
            line[:_CHANGED_LINE_LENGTH] for line in removed[:MAX_CHANGED_LINES]
        ],
        "lines_added": len(added),
        "lines_removed": len(removed),
    }


def _lines(body: bytes) -> Counter[str]:
    """Return how often each line is in a file, without spaces around it."""
    body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    text = body.decode(errors="replace")
    lines = map(str.strip, text.split("\n"))
    return Counter(filter(None, lines))  # without empty ones


_DIGITS = re.compile(r"[0-9]+")
# Numbers in names are filled up to this many digits, with zeros, so that text sorts as
# numbers do.
_DIGITS_TO_SORT = 8


def by_domain(origin: str) -> str:
    """Return a key that sorts origins by their domains, then by the numbers in their
    names.

    127.0.0.11 comes before 127.0.0.100, and all of a.example's hosts before
    b.example's. `page.js` in report/ sorts alike.
    """
    scheme, _, host_and_port = origin.partition("://")
    host, _, port = host_and_port.rpartition(":")
    if not host or port.endswith("]"):  # there is no port
        host = host_and_port
        port = ""
    labels = host.split(".")
    # A name is sorted by its last label first; an IPv4 address is sorted as it is.
    if not labels[-1].isdigit():
        labels.reverse()
    text = "\0".join([*labels, port, scheme])
    return _DIGITS.sub(_with_leading_zeros, text)


def _with_leading_zeros(number: re.Match[str]) -> str:
    return number[0].zfill(_DIGITS_TO_SORT)


# At most this many rules are counted. Beyond that, the rule that refused nothing for
# longest is forgotten.
_KEPT_RULES = 1_000

RowT = TypeVar("RowT")


def _just_forget(_: object) -> None:
    pass


class Rows(OrderedDict[Any, RowT]):
    """Rows of a table by key. Beyond a limit, the rows that were not used for longest
    are forgotten."""

    def __init__(
        self,
        kept: int,
        shown: int,
        order: Callable[[RowT], Any],
        on_forget: Callable[[RowT], None] = _just_forget,
    ) -> None:
        """*kept*: how many rows are kept in memory; *shown*: how many of them are
        shown, the first by the key *order*. *on_forget* is called with each row that is
        forgotten."""
        super().__init__()
        self._kept = kept
        self._shown = shown
        self._order = order
        self._on_forget = on_forget
        self.ever_added = 0
        """How many rows there ever were. A row that was forgotten, and is added again,
        counts twice."""

    @property
    def top(self) -> list[RowT]:
        """The rows that are shown."""
        rows = sorted(self.values(), key=self._order)
        return rows[: self._shown]

    def row(self, key: Any, make: Callable[[], RowT]) -> RowT:
        """Return the row of *key*, a new one if there is none."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        if len(self) >= self._kept:
            # The first row is the one that was not used for longest.
            _, forgotten = self.popitem(last=False)
            self._on_forget(forgotten)
        self.ever_added += 1
        row = make()
        self[key] = row
        return row

    def add(self, row: RowT) -> None:
        """Add a row that has no key of its own: its number becomes its key."""
        self.row(self.ever_added, lambda: row)


class QuotedLine(NamedTuple):
    """A line of a robots.txt, as the report quotes it."""

    number: int
    """Counted from 1."""
    text: str
    decided: bool
    """Whether the rule in this line refused a request."""


@dataclass(slots=True)
class RuleOrigin:
    """An origin whose robots.txt has a certain rule."""

    origin: str
    line: int
    """Where the rule stands; 0: a setting decided, not a rule."""
    robots_url: str = ""
    """Where the robots.txt came from. Empty if that isn't known: then the page links to
    the usual place."""
    url: str = ""
    """The first URL that the rule refused."""
    sha256: str = ""
    """The hash of the robots.txt."""
    times: int = 0
    """How many requests to the origin the rule refused."""
    excerpt: list[QuotedLine] = field(default_factory=list)
    """Lines of the robots.txt around the one that decided."""


@dataclass(slots=True)
class RuleRow:
    """A rule of a group, on whichever origins, that refused requests."""

    rule: str
    group: str
    times: int = 0
    """How many requests it refused."""
    all_origins: int = 0
    """On how many origins it refused requests."""
    first_origins: dict[str, RuleOrigin] = field(default_factory=dict)
    """The first origins on which it refused requests, by name. There is a limit."""

    @property
    def origins(self) -> list[RuleOrigin]:
        """The first origins, those with most refusals first."""
        return sorted(self.first_origins.values(), key=_most_refusals_first)


def _most_refusals_first(row: RuleOrigin) -> tuple[int, str]:
    return -row.times, by_domain(row.origin)


def _rule_order(row: RuleRow) -> tuple[int, str, str]:
    return -row.times, row.rule, row.group


class RuleRows(Rows[RuleRow]):
    """Rules that refused requests, those that refused most first. The same rule of many
    origins is one row."""

    def __init__(self, shown: int, origins: int) -> None:
        """*shown*: how many rules are shown. *origins*: how many origins of each rule
        are kept in memory."""
        super().__init__(kept=_KEPT_RULES, shown=shown, order=_rule_order)
        self._kept_origins = origins
        self._counted_origins = BoundedSet()
        """Rule, group and origin of each refusal, so that each origin of a rule counts
        once."""

    def refuse(
        self,
        rule: str,
        group: str,
        origin: str,
        describe: Callable[[], RuleOrigin],
    ) -> None:
        """Count a refusal by a *rule* of a *group*. *describe* returns a row about
        *origin*, and is called only if the origin is among the first that have the
        rule."""
        key = (rule, group)
        row = self.get(key)
        if row is None:
            row = self.row(key, lambda: RuleRow(*key))
        else:  # as row() does, which takes longer
            self.move_to_end(key)
        row.times += 1
        rule_origin = row.first_origins.get(origin)
        if rule_origin is None:
            is_new = self._counted_origins.add((rule, group, origin))
            if is_new:
                row.all_origins += 1
            if len(row.first_origins) >= self._kept_origins:
                return
            rule_origin = describe()
            row.first_origins[origin] = rule_origin
        rule_origin.times += 1


def held_fields(
    origin: str,
    requests: int,
    seconds: float,
    entry: Entry | None,
) -> dict[str, Any]:
    """Return what ``scrapy robots --held --json`` and :meth:`RepMiddleware.held` report
    about an origin.

    *requests*: how many requests are held. *seconds*: how long the first of them has
    been held. *entry*: what is known of the origin's robots.txt; None: nothing.
    """
    fields: dict[str, Any] = {
        "origin": origin,
        "requests": requests,
        "held_seconds": round(seconds, 3),
        "unreachable_since": None,
        "error": None,
        "attempts": None,
        "next_attempt_at": None,
    }
    if entry is not None and entry.unreachable_since is not None:
        fields["unreachable_since"] = iso(entry.unreachable_since)
        fields["error"] = entry.error
        fields["attempts"] = entry.attempts
        fields["next_attempt_at"] = iso(entry.next_attempt_at or None)
    return fields
