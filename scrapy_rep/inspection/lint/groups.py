"""What is to be said of groups, and of rules beside each other (REP.md sections 7 and 8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import Outline, RuleLine

_STARS = re.compile(r"\*+")


def group_findings(outline: Outline) -> Iterator[Finding]:
    """Yield agents without rules, and rules without effect."""
    ruled = {agent.token for group in outline.groups if group.rules for agent in group.agents}
    for group in outline.groups:
        for agent in group.agents:
            if agent.token and agent.token not in ruled:
                who = "all crawlers" if agent.token == GLOBAL else agent.token
                yield Finding(agent.line, "no-rules", f"no rules for {who}: no restrictions")
    yield from _never_decide(outline)


def _never_decide(outline: Outline) -> Iterator[Finding]:
    """Yield rules that lose to another one whatever the URL.

    Only what can be proven: the other one matches exactly the same paths, and wins. All groups
    that name an agent are one, so a rule must lose for each of its agents.
    """
    tokens = dict.fromkeys(
        agent.token for group in outline.groups for agent in group.agents if agent.token
    )
    best: dict[str, dict[str, RuleLine]] = {}
    for token in tokens:
        winners = best[token] = {}
        for rule in outline.rules_for(token):
            same = _same_paths(rule)
            if same is not None and (same not in winners or _rank(rule) > _rank(winners[same])):
                winners[same] = rule
    for group in outline.groups:
        here = dict.fromkeys(agent.token for agent in group.agents if agent.token)
        for rule in group.rules:
            same = _same_paths(rule)
            if same is None or not here:
                continue
            rivals = [best[token][same] for token in here]
            if all(_beats(rival, rule) for rival in rivals):
                yield _shadowed(rule, rivals[0])


def _rank(line: RuleLine) -> tuple[int, bool, int]:
    """As the matcher compares rules: the longest, then an allow, then the first."""
    return len(line.pattern), line.rule.allow, -line.rule.line


def _beats(winner: RuleLine, rule: RuleLine) -> bool:
    if winner is rule:
        return False
    # An allow of an index page also speaks for its directory; a disallow does not.
    return winner.rule.allow or not (rule.rule.allow and "/index.htm" in rule.pattern)


def _same_paths(line: RuleLine) -> str | None:
    """Return a key that rules share if they match the same paths; None for rules that match none,
    or restrict nothing."""
    pattern = line.pattern
    if pattern[:1] not in ("/", "*"):
        return None
    pattern = _STARS.sub("*", pattern)
    if pattern.endswith("*$"):
        pattern = pattern[:-1]
    return pattern.removesuffix("*") or "/"


def _shadowed(rule: RuleLine, winner: RuleLine) -> Finding:
    line, other = rule.rule.line, winner.rule
    if winner.pattern == rule.pattern and other.allow == rule.rule.allow:
        return Finding(line, "duplicate", f"same rule as on line {other.line}")
    if len(winner.pattern) > len(rule.pattern):
        why = "is longer"
    elif other.allow != rule.rule.allow:
        why = "wins: Allow beats a Disallow of the same length"
    else:
        why = "comes first"
    message = f"never decides: line {other.line} ({other}) matches the same URLs and {why}"
    return Finding(line, "shadowed", message)
