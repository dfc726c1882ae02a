"""What stands in a robots.txt, line by line: its groups, agents and rules, and ``Clean-param`` lines
(REP.md sections 6 to 8).

Explanations, lint and users read an :class:`Outline`. Crawls use
:class:`~scrapy_rep.protocol.RobotsTxt`, which is faster and keeps less. Both read lines by the same
code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from scrapy_rep.protocol.matching import ALLOW, Rule, Rules
from scrapy_rep.protocol.syntax import (
    GLOBAL,
    RULES,
    SPACE,
    agent_token,
    escape,
    fields_in,
    normalise,
    readable,
)


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
        outline = cls(
            {number: (kind, value) for number, kind, value in fields_in(rows)}
        )
        group = Group([], outline.ungrouped)
        for number, (kind, value) in outline.fields.items():
            if kind in RULES:
                rule = Rule.of(rows[number - 1], number, value, kind == "allow")
                group.rules.append(RuleLine(rule, escape(value)))
            elif kind == "user-agent":
                if group.rules or not outline.groups:
                    group = Group([], [])
                    outline.groups.append(group)
                group.agents.append(
                    AgentLine(number, readable(value), agent_token(value))
                )
        return outline

    def tokens(self) -> list[str]:
        """Return the agents that the file names, in their spelling and order, and ``*`` last."""
        agents = [agent for group in self.groups for agent in group.agents]
        named = {token: value[: len(token)] for _, value, token in agents}
        return [
            *(one for token, one in named.items() if token not in ("", GLOBAL)),
            GLOBAL,
        ]

    def rules_for(self, token: str) -> Iterable[RuleLine]:
        """Return the rules of all groups that name *token*."""
        return (
            rule for group in self.groups if group.names(token) for rule in group.rules
        )


class CleanParam(NamedTuple):
    """A ``Clean-param`` line, which only Yandex reads: parameters that make no difference to a page.
    It belongs to no group."""

    line: int
    """Counted from 1."""
    params: tuple[str, ...]
    """Names of query parameters, case-sensitive."""
    path: str
    """How the paths begin that the line is about, ``*`` standing for any characters; empty for all."""


_CLEAN_PARAM = re.compile(
    r"[ \t\v\f]*clean-param[ \t\v\f]*:([^\n#]*)", re.IGNORECASE | re.ASCII
)


def clean_params_of(text: str) -> tuple[CleanParam, ...]:
    """Return the ``Clean-param`` lines of a normalised *text* that name a parameter, in order."""
    lines = []
    for number, row in enumerate(text.split("\n"), 1):
        match = _CLEAN_PARAM.match(row)
        if match is None:
            continue
        names, _, path = readable(match[1].strip(SPACE).replace("\t", " ")).partition(
            " "
        )
        params = tuple(name for name in names.split("&") if name)
        if params:
            lines.append(CleanParam(number, params, path.strip(SPACE)))
    return tuple(lines)
