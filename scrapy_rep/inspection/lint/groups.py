"""What is to be said of groups and of rules beside each other (REP.md sections 7 and 8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.inspection.outline import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import Outline, RuleLine

_STARS = re.compile(r"\*+")


def group_findings(outline: Outline) -> Iterator[Finding]:
    """Yield them."""
    yield from _without_rules(outline)
    yield from _never_decide(outline)


def _without_rules(outline: Outline) -> Iterator[Finding]:
    """Agents whom the file names and says nothing about."""
    ruled = {agent.token for group in outline.groups if group.rules for agent in group.agents}
    for group in outline.groups:
        for agent in group.agents:
            if agent.token and agent.token not in ruled:
                who = "all crawlers" if agent.token == GLOBAL else agent.token
                yield Finding(agent.line, "no-rules", f"no rules follow: no restrictions for {who}")


def _never_decide(outline: Outline) -> Iterator[Finding]:
    """Rules of which another rule of the same group always takes the decision.

    Only what can be proven: the other one matches exactly the same paths, and wins. All groups
    that name an agent are one, so a rule counts as shadowed if that is so for each agent that it
    is for.
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
            winners_here = [best[token][same] for token in here]
            if all(_beats(winner, rule) for winner in winners_here):
                yield _shadowed(rule, winners_here[0])


def _rank(line: RuleLine) -> tuple[int, bool, int]:
    """As the matcher compares rules: the longest, then an allow, then the first."""
    return len(line.pattern), line.rule.allow, -line.rule.line


def _beats(winner: RuleLine, rule: RuleLine) -> bool:
    if winner is rule:
        return False
    # Such an allow also speaks for its directory, where a disallow of the same file does not.
    return winner.rule.allow or not (rule.rule.allow and "/index.htm" in rule.pattern)


def _same_paths(line: RuleLine) -> str | None:
    """Return the same for rules that match the same paths; None for those that match none, or
    restrict nothing."""
    pattern = line.pattern
    if pattern[:1] not in ("/", "*"):
        return None
    pattern = _STARS.sub("*", pattern)
    if pattern.endswith("*$"):
        pattern = pattern[:-1]
    return pattern.removesuffix("*") or "/"


def _shadowed(rule: RuleLine, winner: RuleLine) -> Finding:
    other = winner.rule
    if winner.pattern == rule.pattern and other.allow == rule.rule.allow:
        return Finding(rule.rule.line, "duplicate", f"the same rule as on line {other.line}")
    if len(winner.pattern) > len(rule.pattern):
        why = "is longer"
    elif other.allow != rule.rule.allow:
        why = "is as long, and Allow counts"
    else:
        why = "is as long and comes first"
    return Finding(
        rule.rule.line,
        "shadowed",
        f"can never decide: line {other.line} ({other}) matches the same URLs and {why}",
    )
