"""Why is this URL allowed or not? (REP.md sections 7 and 8.) No Scrapy, no I/O, no clock.

A :class:`RobotsFile` is what is known of a robots.txt, and explains URLs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.inspection.lint.file import is_html
from scrapy_rep.inspection.outline import GLOBAL, Group, Outline, RuleLine
from scrapy_rep.protocol import Decision, RobotsTxt, Rule
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.origin import ROBOTS_PATH

if TYPE_CHECKING:
    from collections.abc import Sequence


class Matched(NamedTuple):
    """A rule of the group that applied, which matches the path."""

    rule: Rule
    length: int
    """In octets: what rules are compared by."""
    why: str
    """Why it decided, or what it lost by."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a robots.txt came from. Times are in seconds since the epoch."""

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
    """Unreachable now: what is applied is the copy of an earlier answer."""
    error: str | None = None
    """What happened at the last attempt, if it failed."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one URL for one crawler."""

    url: str
    chain: tuple[str, ...]
    """The tokens that the crawler goes by; empty if none can be told."""
    path: str
    """What of the URL was compared."""
    allowed: bool
    decision: Decision
    reason: str
    robots: RobotsFile
    steps: tuple[tuple[str, str], ...]
    """What was made of the URL on the way to :attr:`path`: what was done, and what came of it."""
    unreachable: bool = False
    """There was nothing to decide by."""

    @property
    def agent(self) -> str | None:
        """The crawler's token or chain, as ``--agent`` takes it."""
        return ",".join(self.chain) or None

    @property
    def delay(self) -> tuple[float, int] | None:
        """What ``crawl-delay`` the group that applied asks for: seconds, and its line."""
        token = self.decision.agent
        return None if token is None else self.robots.parsed.delay(token)

    @property
    def matched(self) -> list[Matched]:
        """The rules of the group that applied that match, the one that decided first."""
        if self.decision.agent is None or self.decision.rule is None:
            return []
        return self.robots.matched(self.path, self.decision)

    @property
    def considered(self) -> list[tuple[Group, bool]]:
        """The groups that name a token of the chain, or all crawlers, and whether they applied."""
        tokens = {token.lower() for token in self.chain} | {GLOBAL}
        applied = (self.decision.agent or "").lower()
        return [
            (group, group.names(applied))
            for group in self.robots.outline.groups
            if any(group.names(token) for token in tokens)
        ]


@dataclass(frozen=True)
class RobotsFile:
    """What is known of a robots.txt."""

    outcome: Outcome
    body: bytes = b""
    facts: Facts = field(default_factory=Facts)
    unrestricted: bool = False
    """Unreachable for so long that there are no restrictions (REP.md section 4)."""
    pass_unreachable: bool = False
    """``REP_UNREACHABLE = "allow"``."""

    @cached_property
    def parsed(self) -> RobotsTxt:
        """The rules."""
        return RobotsTxt.parse(self.body)

    @cached_property
    def outline(self) -> Outline:
        """The file as people read it."""
        return Outline.of(self.body)

    @cached_property
    def sha256(self) -> str | None:
        """Of the body, as far as it counts; None if there is no body."""
        return sha256(self.body).hexdigest() if self.outcome is Outcome.RULES else None

    @cached_property
    def is_page(self) -> bool:
        """Whether a page was sent instead of a robots.txt. Rules in it count all the same."""
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
        """Say what this file means for *url*.

        :param path: what of it is compared
        :param chain: the crawler's tokens, most specific first
        :param obey_global: False for a crawler that obeys only groups that name it
        :param steps: see :attr:`Explanation.steps`
        """
        decision, reason, unreachable = self._decide(path, tuple(chain), obey_global)
        return Explanation(
            url,
            tuple(chain),
            path,
            decision.allowed,
            decision,
            reason,
            self,
            tuple(steps),
            unreachable,
        )

    def _decide(
        self, path: str, chain: tuple[str, ...], obey_global: bool
    ) -> tuple[Decision, str, bool]:
        """The decision, why, and whether there was nothing to decide by."""
        free = Decision(True, None, None)
        if path == ROBOTS_PATH and self.facts.file is None:
            return free, "robots.txt itself is under no rules", False
        if self.outcome is Outcome.MISSING:
            return free, f"no robots.txt ({self.answer}): no restrictions", False
        if self.outcome is Outcome.UNREACHABLE:
            why = f"robots.txt unreachable ({self.facts.error})"
            if self.unrestricted:
                return free, f"{why}, for longer than REP_UNREACHABLE_LIMIT: no restrictions", True
            if self.pass_unreachable:
                return free, f'{why}: REP_UNREACHABLE = "allow" lets it pass', True
            return Decision(False, None, None), f"{why}: nothing may be fetched for now", True
        token, rules = self.parsed.rules(chain, obey_global)
        decision = self.parsed._decision(token, rules._find(path))
        reason = _reason(decision, chain, obey_global)
        return decision, reason + " (robots.txt is an HTML page)" * self.is_page, False

    @property
    def answer(self) -> str:
        """What was answered, and what is strange about it."""
        facts = self.facts
        if self.outcome is Outcome.MISSING:
            return missing(facts.status, facts.hops)
        page = ", an HTML page" if self.is_page else ""
        return "" if facts.status is None else f"HTTP status {facts.status}{page}"

    def matched(self, path: str, decision: Decision) -> list[Matched]:
        """See :attr:`Explanation.matched`."""
        assert decision.agent is not None
        found = [
            (length, rule)
            for rule in self.outline.rules_for(decision.agent.lower())
            if (length := rule.length_for(path)) is not None
        ]
        # As the matcher has it: the longest, then an allow, then the first.
        found.sort(key=lambda one: (-one[0], not one[1].rule.allow, one[1].rule.line))
        return [
            Matched(rule.rule, length, _why(found, at)) for at, (length, rule) in enumerate(found)
        ]


def _reason(decision: Decision, chain: tuple[str, ...], obey_global: bool) -> str:
    rule = decision.rule
    if decision.agent is None:
        who = " nor ".join(chain) or "the crawler"
        return f"no group names {who}" + (
            ", and none is for all crawlers" if obey_global else ", and the others are not obeyed"
        )
    if rule is None:
        return f"no rule of the group for {decision.agent} matches"
    if not rule.pattern:
        return f"line {rule.line}: {rule}(empty: restricts nothing)"
    return f"line {rule.line}: {rule}"


def _why(found: list[tuple[int, RuleLine]], at: int) -> str:
    """Why the rule in that place decided, or lost to the first. They are in order."""
    length, line = found[at]
    if at == 0:
        if len(found) == 1:
            return "decides: the only rule that matches" + _as_directory(length, line)
        second, rival = found[1]
        if second < length:
            why = "the longest that matches"
        elif rival.rule.allow != line.rule.allow:
            why = "no other is longer, and of equally long ones Allow counts"
        else:
            why = "no other is longer, and of equally long ones the first counts"
        return f"decides: {why}" + _as_directory(length, line)
    best, winner = found[0]
    if length < best:
        return "lost: shorter"
    if winner.rule.allow != line.rule.allow:
        return "lost: as long, and Allow counts"
    return "lost: as long, and the first counts"


def _as_directory(length: int, line: RuleLine) -> str:
    if length == len(line.pattern):
        return ""
    return "; allowing the index page of a directory allows the directory"


def missing(status: int | None, hops: int) -> str:
    """Return which answer means that there is no file, and why."""
    if status is not None and 300 <= status < 400:
        return f"HTTP status {status} that leads nowhere, after {hops} redirects"
    if status is not None and status >= 500:
        return f'HTTP status {status} with a page that says "not found", see REP_SOFT_404'
    return f"HTTP status {status}"
