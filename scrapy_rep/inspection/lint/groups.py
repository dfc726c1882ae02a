"""What is to be said of groups, and of rules beside each other (REP.md sections 7 and 8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy_rep.inspection.lint.finding import Finding
from scrapy_rep.protocol.tokens import GLOBAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy_rep.inspection.outline import AgentLine, Group, Outline, RuleLine

_STARS = re.compile(r"\*+")

# Pairs of an agent and a rule: with more the file is hostile, and only its other findings count.
_MAX_PAIRS = 1_000_000


def group_findings(outline: Outline) -> Iterator[Finding]:
    """Yield agents without rules or with several groups, and rules without effect."""
    ruled = {agent.token for group in outline.groups if group.rules for agent in group.agents}
    for group in outline.groups:
        for agent in group.agents:
            if agent.token and agent.token not in ruled:
                who = "all crawlers" if agent.token == GLOBAL else agent.token
                yield Finding(agent.line, "no-rules", f"no rules for {who}: no restrictions")
        yield from _odd_patterns(group)
    yield from _split(outline)
    yield from _never_decide(outline)


def _split(outline: Outline) -> Iterator[Finding]:
    """Yield agents that an earlier group names."""
    first: dict[str, AgentLine] = {}
    for group in outline.groups:
        for agent in group.agents:
            earlier = first.get(agent.token)
            if agent.token and earlier is not None:
                why = f"{agent.value} has a group on line {earlier.line} too: one group here, but not for all crawlers"
                yield Finding(agent.line, "split-group", why)
        for agent in group.agents:
            first.setdefault(agent.token, agent)


def _odd_patterns(group: Group) -> Iterator[Finding]:
    """Yield patterns that differ from others by case alone, or end with a needless wildcard."""
    spelt: dict[str, RuleLine] = {}
    for line in group.rules:
        other = spelt.setdefault(line.pattern.lower(), line)
        if other.pattern != line.pattern:
            why = f"differs from line {other.rule.line} ({other.rule}) by upper and lower case, which counts: these are two rules"
            yield Finding(line.rule.line, "case", why)
        if len(line.pattern) > 1 and line.pattern.endswith("*"):
            why = "the * at the end matches nothing more; it only makes the rule longer, and the longest rule wins"
            yield Finding(line.rule.line, "trailing-star", why)


def _never_decide(outline: Outline) -> Iterator[Finding]:
    """Yield rules that lose to another one whatever the URL.

    Only what can be proven: the other one matches exactly the same paths, and wins. All groups
    that name an agent are one, so a rule must lose for each of its agents.
    """
    if sum(len(group.agents) * len(group.rules) for group in outline.groups) > _MAX_PAIRS:
        return
    groups = [
        (dict.fromkeys(agent.token for agent in group.agents if agent.token), group.rules)
        for group in outline.groups
    ]
    best: dict[tuple[str, str], RuleLine] = {}
    for tokens, rules in groups:
        for rule in rules:
            same = same_paths(rule)
            if same is None:
                continue
            for token in tokens:
                if _rank(rule) > _rank(best.setdefault((token, same), rule)):
                    best[token, same] = rule
    for tokens, rules in groups:
        for rule in rules:
            same = same_paths(rule)
            if same is None or not tokens:
                continue
            rivals = [best[token, same] for token in tokens]
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


def same_paths(line: RuleLine) -> str | None:
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
