"""Why is this URL allowed or not? (REP.md sections 7 and 8.) No Scrapy, no I/O, no clock.

Explanations and lint read an :class:`Outline` of a robots.txt: its groups, agents and rules, each
with its line. Crawls use :class:`~scrapy_rep.protocol.RobotsTxt`, which is faster and keeps less.
Both read lines by the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from scrapy_rep.protocol import Decision, RobotsTxt, Rule
from scrapy_rep.protocol.availability import Outcome, is_html
from scrapy_rep.protocol.matching import ALLOW, LENGTH_BIT, Rules
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.protocol.robotstxt import Pace
from scrapy_rep.protocol.syntax import (
    GLOBAL,
    RULES,
    agent_token,
    escape,
    normalise,
    obeyed,
    read,
    readable,
)
from scrapy_rep.text import iso


class AgentLine(NamedTuple):
    """A ``user-agent`` line."""

    line: int
    value: str
    """As written."""
    token: str
    """What it names, in lower case; ``*`` for the global group, empty if no token can equal it
    (REP.md section 7)."""


class RuleLine(NamedTuple):
    """An ``allow`` or ``disallow`` line."""

    rule: Rule
    pattern: str
    """As it is compared: percent-encoded."""

    def key_for(self, path: str) -> int:
        """Return the key with which this rule alone matches *path*; 0 if it doesn't match. The
        largest of several wins, see :mod:`~scrapy_rep.protocol.matching`."""
        # Preparing each of thousands of rules takes too long.
        start = self.pattern.partition("*")[0].rstrip("$")
        if not path.startswith(start) and "/index.htm" not in self.pattern:
            return 0
        number = ALLOW - 1 - self.rule.line + self.rule.allow * ALLOW
        return Rules([self.pattern], [number]).find(path)


class Group(NamedTuple):
    """Agents, and the rules that belong to them."""

    agents: list[AgentLine]
    rules: list[RuleLine]

    def names(self, token: str) -> bool:
        """Return whether one of the group's lines names *token* (in lower case, or ``*``)."""
        return token != "" and any(agent.token == token for agent in self.agents)


@dataclass(slots=True)
class Outline:
    """The lines of a robots.txt that mean something."""

    fields: dict[int, tuple[str, str]]
    """All known fields: line, kind and value, in latin-1."""
    groups: list[Group] = field(default_factory=list)
    ungrouped: list[RuleLine] = field(default_factory=list)
    """Rules before the first ``user-agent`` line: ignored."""

    @classmethod
    def of(cls, body: bytes) -> Outline:
        """Read *body*, any bytes at all; never raises."""
        rows = normalise(body).split("\n")
        outline = cls({number: (kind, value) for number, kind, value in read(rows)})
        group = Group([], outline.ungrouped)
        for number, (kind, value) in outline.fields.items():
            if kind in RULES:
                rule = Rule.of(rows[number - 1], number, value, kind == "allow")
                group.rules.append(RuleLine(rule, escape(value)))
            elif kind == "user-agent":
                if group.rules or not outline.groups:
                    group = Group([], [])
                    outline.groups.append(group)
                group.agents.append(AgentLine(number, readable(value), agent_token(value)))
        return outline

    def tokens(self) -> list[str]:
        """Return the agents that the file names, in their spelling and order, and ``*`` last."""
        agents = [agent for group in self.groups for agent in group.agents]
        named = {token: value[: len(token)] for _, value, token in agents}
        return [*(one for token, one in named.items() if token not in ("", GLOBAL)), GLOBAL]

    def rules_for(self, token: str) -> Iterable[RuleLine]:
        """Return the rules of all groups that name *token*."""
        return (rule for group in self.groups if group.names(token) for rule in group.rules)


STDIN = "standard input"


def in_words(chain: Sequence[str]) -> str:
    """Return the name of a crawler with these tokens: ``GPTBot, as fallback for Googlebot``."""
    return ", as fallback for ".join(reversed(chain)) or "an unknown crawler"


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a robots.txt came from. Times are seconds since the epoch."""

    origin: str | None = None
    """None for a file that was given."""
    robots_url: str | None = None
    file: str | None = None
    status: int | None = None
    hops: int = 0
    final_url: str | None = None
    """After redirects."""
    fetched_at: float | None = None
    fresh_until: float | None = None
    from_cache: bool = False
    stale: bool = False
    """Unreachable now: the copy of an earlier answer applies."""
    error: str | None = None
    """What happened at the last attempt, if it failed."""
    setting: str | None = None
    """The setting that decides beyond the protocol, in words."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one URL for one crawler."""

    url: str
    chain: tuple[str, ...]
    """The crawler's tokens; empty if none is known."""
    path: str
    """The part of the URL that was compared."""
    decision: Decision
    reason: str
    robots: RobotsFile
    steps: tuple[tuple[str, str], ...]
    """How :attr:`path` came about: what was done, and the result."""

    @property
    def allowed(self) -> bool:
        return self.decision.allowed

    @property
    def unreachable(self) -> bool:
        """Whether no robots.txt was available to decide by."""
        return self.robots.outcome is Outcome.UNREACHABLE and self.path != ROBOTS_PATH

    @property
    def verdict(self) -> str:
        return "allowed" if self.allowed else "unreachable" if self.unreachable else "disallowed"

    @property
    def why(self) -> str:
        """The reason, with the group, and with the file's name if there is one."""
        rule, file, why = self.decision.rule, self.robots.facts.file, self.reason
        if rule is not None:
            place = f"{STDIN if file == '-' else file}:{rule.line}" if file else f"line {rule.line}"
            why = f"{place}{why.removeprefix(f'line {rule.line}')} (group {self.decision.agent})"
        raw = "" if self.path.isascii() else "; compared as it stands, but a crawl encodes it"
        return why + raw

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict, ready for JSON (docs/command.md explains the fields)."""
        robots, facts = self.robots, self.robots.facts
        _, rule, group = self.decision
        pace = Pace() if group is None else robots.parsed.pace(group)
        delay, visit = pace.slowest, pace.visit_time
        return {
            "url": self.url,
            "agent": ",".join(self.chain) or None,
            "allowed": self.allowed,
            "line": rule and rule.line,
            "rule": rule and str(rule),
            "group": group,
            "reason": self.reason,
            "path": self.path,
            "outcome": robots.outcome.value,
            **asdict(facts),  # the fields have the names, and the order, of the facts
            "fetched_at": iso(facts.fetched_at),
            "fresh_until": iso(facts.fresh_until),
            "sha256": robots.sha256,
            "crawl_delay": delay and delay.seconds,
            "crawl_delay_line": delay and delay.line,
            "visit_time": visit and visit.value,
            "agent_in_words": in_words(self.chain),
            "verdict": self.verdict,
        }

    def how(self) -> dict[str, Any]:
        """Return how the verdict came about, ready for JSON. The groups are those that name a token
        of the chain, or all crawlers."""
        tokens = {token.lower() for token in obeyed(self.chain, True)}
        groups = [
            {
                "agents": [agent.value for agent in group.agents],
                "lines": [agent.line for agent in group.agents],
                "rules": len(group.rules),
                "applied": group.names((self.decision.agent or "").lower()),
            }
            for group in self.robots.outline.groups
            if any(map(group.names, tokens))
        ]
        steps = [{"step": step, "result": result} for step, result in self.steps]
        matched = self._matched()
        return {"chain": list(self.chain), "steps": steps, "groups": groups, "matched": matched}

    def _matched(self) -> list[dict[str, Any]]:
        """Return the matching rules of the group that applied, and why each wins or loses."""
        lines = self.robots.outline.rules_for((self.decision.agent or "").lower())
        keys = {key: line.rule for line in lines if (key := line.key_for(self.path))}
        best, found = max(keys, default=0), list[dict[str, Any]]()
        for key, rule in sorted(keys.items(), reverse=True):
            length, why = key >> LENGTH_BIT, "lost: shorter"
            if length == best >> LENGTH_BIT:
                why = "decides" if key == best else "lost: as long, but Allow wins, then the first"
            found.append({"line": rule.line, "rule": str(rule), "length": length, "why": why})
        return found


@dataclass(frozen=True)
class RobotsFile:
    """What is known of a robots.txt. Explains URLs."""

    outcome: Outcome
    body: bytes = b""
    facts: Facts = field(default_factory=Facts)
    unrestricted: bool = False
    """Unreachable for so long that there are no restrictions (REP.md section 4)."""
    pass_unreachable: bool = False
    """``REP_UNREACHABLE = "allow"``."""
    forbids: bool = False
    """``REP_FORBIDDEN``: everything is forbidden."""
    note: str = ""
    """What is strange about the latest answer."""

    @cached_property
    def parsed(self) -> RobotsTxt:
        return RobotsTxt.parse(self.body)

    @cached_property
    def outline(self) -> Outline:
        return Outline.of(self.body)

    @cached_property
    def sha256(self) -> str | None:
        """Of the body, cut to size; None if there is no body."""
        return sha256(self.body).hexdigest() if self.outcome is Outcome.RULES else None

    @cached_property
    def is_page(self) -> bool:
        """Whether the file is an HTML page. Rules in it count all the same."""
        return self.outcome is Outcome.RULES and is_html(self.body)

    def explain(
        self,
        url: str,
        path: str,
        chain: Sequence[str],
        *,
        obey_global: bool = True,
        steps: Sequence[tuple[str, str]] = (),
    ) -> Explanation:
        """Return what this file means for *url*.

        :param path: the part of it that is compared
        :param chain: the crawler's tokens, most specific first
        :param obey_global: False for a crawler that obeys only groups that name it
        """
        decision, reason = self._decide(path, tuple(chain), obey_global)
        return Explanation(url, tuple(chain), path, decision, reason, self, tuple(steps))

    def _decide(self, path: str, chain: tuple[str, ...], obey_global: bool) -> tuple[Decision, str]:
        free = Decision(True, None, None)
        if path == ROBOTS_PATH and self.facts.file is None:
            return free, "robots.txt itself may always be fetched"
        if self.outcome is Outcome.MISSING:
            why = self.facts.setting or f"no robots.txt ({self.answer})"
            meant = "nothing may be fetched" if self.forbids else "no restrictions"
            return Decision(not self.forbids, None, None), f"{why}: {meant}"
        if self.outcome is Outcome.UNREACHABLE:
            why = f"robots.txt unreachable ({noted(str(self.facts.error), self.note)})"
            if self.unrestricted:
                by = self.facts.setting or "for longer than REP_UNREACHABLE_LIMIT"
                return free, f"{why}{', ' if self.facts.setting else ' '}{by}: no restrictions"
            if self.pass_unreachable:
                return free, f'{why}: REP_UNREACHABLE = "allow" lets it pass'
            return Decision(False, None, None), f"{why}: nothing may be fetched for now"
        token, rules = self.parsed.rules(chain, obey_global)
        decision = self.parsed.decision(token, rules.find(path))
        rule = decision.rule
        if token is None:
            reason = f"no group for {' or '.join(chain) or 'this crawler'}, "
            reason += "and no * group" if obey_global else "and REP_OBEY_GLOBAL_GROUP is off"
        elif rule is None:
            reason = f"no rule matches in the group for {token}"
        else:
            empty = "" if rule.pattern else " (empty: restricts nothing)"
            reason = f"line {rule.line}: {rule}{empty}"
        return decision, reason + " (robots.txt is an HTML page)" * self.is_page

    @property
    def answer(self) -> str:
        """The HTTP status, and what is strange about the answer."""
        status, hops = self.facts.status, self.facts.hops
        if self.outcome is not Outcome.MISSING:
            return "" if status is None else f"HTTP {status}{', an HTML page' * self.is_page}"
        answer = f"HTTP {status}"
        if status is not None and 300 <= status < 400:
            after = f", after {hops} redirects" if hops else ""
            answer += f" without a usable target{after}"
        elif status is not None and status >= 500:
            answer += ' with a page that says "not found"'
        return noted(answer, self.note)


def noted(answer: str, note: str) -> str:
    """Return *answer* with what is strange about it."""
    return f"{answer}; {note}" if note else answer
