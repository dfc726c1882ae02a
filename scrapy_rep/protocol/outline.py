"""What stands in a robots.txt, line by line: its groups, agents and rules, and
``Clean-param`` lines (REP.md sections 6 to 8).

Explanations, lint and users read an :class:`Outline`. Crawls use
:class:`~scrapy_rep.protocol.RobotsTxt`, which is faster and keeps less. Both read lines
by the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from scrapy_rep.protocol.matching import ALLOW, Rule, Rules, disallow_number
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
    """The product token that it names, in lower case; ``*`` for the global group, empty
    if no token can equal it (REP.md section 7)."""


class RuleLine(NamedTuple):
    """An ``allow`` or ``disallow`` line."""

    rule: Rule
    pattern: str
    """As it is compared: percent-encoded."""

    def key_for(self, path: str) -> int:
        """Return the key with which this rule alone matches *path*; 0 if it doesn't
        match. The largest key of several rules wins, see
        :mod:`~scrapy_rep.protocol.matching`."""
        # Most rules are ruled out at once, since preparing each of thousands takes too
        # long. An allow of an index page may match another path, that of its directory.
        start = self.pattern.partition("*")[0].rstrip("$")
        if not path.startswith(start) and "/index.htm" not in self.pattern:
            return 0
        # The rule's number, see matching.py.
        number = disallow_number(self.rule.line)
        if self.rule.allow:
            number |= ALLOW
        return Rules([self.pattern], [number]).find(path)


class Group(NamedTuple):
    """Agents, and the rules that belong to them."""

    agents: list[AgentLine]
    rules: list[RuleLine]

    def names(self, token: str) -> bool:
        """Return whether one of the group's lines names *token* (in lower case, or
        ``*``)."""
        # The agents of lines that name nobody have an empty token.
        if token == "":
            return False
        return any(agent.token == token for agent in self.agents)


@dataclass(slots=True)
class Outline:
    """The lines of a robots.txt that mean something."""

    fields: dict[int, tuple[str, str]]
    """The usual name and the value (in latin-1) of each known field, by line number."""
    groups: list[Group] = field(default_factory=list)
    ungrouped: list[RuleLine] = field(default_factory=list)
    """Rules before the first ``user-agent`` line, which are ignored."""

    @classmethod
    def of(cls, body: bytes) -> Outline:
        """Read *body*, any bytes at all; never raises."""
        rows = normalise(body).split("\n")
        outline = cls({})
        # Rules go to the latest group. Rules before any group go to `ungrouped`.
        group = Group([], outline.ungrouped)
        for number, name, value in fields_in(rows):
            outline.fields[number] = (name, value)
            if name in RULES:
                row = rows[number - 1]
                is_allow = name == "allow"
                rule = Rule.of(row, number, value, is_allow)
                group.rules.append(RuleLine(rule, escape(value)))
            elif name == "user-agent":
                # After a rule, a user-agent line begins another group.
                if group.rules or not outline.groups:
                    group = Group([], [])
                    outline.groups.append(group)
                agent = AgentLine(number, readable(value), agent_token(value))
                group.agents.append(agent)
        return outline

    def tokens(self) -> list[str]:
        """Return the agents that the file names, in their spelling and order, and ``*``
        last."""
        # Spellings by token. A token's place in the order is that of its first line;
        # its spelling is that of its last.
        spellings: dict[str, str] = {}
        for group in self.groups:
            for agent in group.agents:
                if agent.token not in ("", GLOBAL):
                    # A value may go on after the token, as in "FooBot/1.0".
                    length = len(agent.token)
                    spellings[agent.token] = agent.value[:length]
        return [*spellings.values(), GLOBAL]

    def rules_for(self, token: str) -> Iterator[RuleLine]:
        """Yield the rules of all groups that name *token*."""
        for group in self.groups:
            if group.names(token):
                yield from group.rules


class CleanParam(NamedTuple):
    """A ``Clean-param`` line, which only Yandex reads: parameters that make no
    difference to a page. It belongs to no group."""

    line: int
    """Counted from 1."""
    params: tuple[str, ...]
    """Names of query parameters, case-sensitive."""
    path: str
    """The beginning of the paths that the line is about, in which ``*`` stands for any
    characters; empty for all paths."""


# A Clean-param line. Group 1: the value.
_CLEAN_PARAM = re.compile(
    r"[ \t\v\f]*clean-param[ \t\v\f]*:([^\n#]*)", re.IGNORECASE | re.ASCII
)


def clean_params_of(text: str) -> tuple[CleanParam, ...]:
    """Return the ``Clean-param`` lines of a normalised *text* that name a parameter, in
    order."""
    lines = []
    for number, row in enumerate(text.split("\n"), 1):
        match = _CLEAN_PARAM.match(row)
        if match is None:
            continue
        value = match[1].strip(SPACE).replace("\t", " ")
        names, _, path = readable(value).partition(" ")
        params = tuple(filter(None, names.split("&")))
        if params:
            lines.append(CleanParam(number, params, path.strip(SPACE)))
    return tuple(lines)
