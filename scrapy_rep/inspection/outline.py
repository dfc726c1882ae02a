"""A robots.txt for explaining and linting: its groups, agents and rules, each with its line.

Crawls use :class:`~scrapy_rep.protocol.RobotsTxt`, which is faster and keeps less. Both read lines
by the same code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.protocol import RobotsTxt, Rule
from scrapy_rep.protocol.syntax import SPACE, Field, escape, normalise, read, readable, readable_url
from scrapy_rep.protocol.tokens import GLOBAL, leading_token

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.protocol.matching import Rules

BOM = b"\xef\xbb\xbf"


class AgentLine(NamedTuple):
    """A ``user-agent`` line."""

    line: int
    value: str
    """As written."""
    token: str
    """What it names, in lower case; ``*`` for the global group, empty if no token can equal it
    (REP.md section 7)."""


class RuleLine:
    """An ``allow`` or ``disallow`` line."""

    __slots__ = ("_directory", "_rules", "pattern", "rule")

    def __init__(self, rule: Rule, value: str) -> None:
        """:param value: latin-1, as :func:`~scrapy_rep.protocol.syntax.read` yields it"""
        self.rule = rule
        self.pattern = escape(value)
        """As it is compared: percent-encoded."""
        # Matched as a disallow: an allow may speak for a directory too.
        self._rules = _alone("Disallow", value)
        slash = self.pattern.rfind("/")
        self._directory: tuple[int, Rules] | None = None
        if rule.allow and self.pattern.startswith("/index.htm", slash):
            # The directory and a "$" are what counts then (REP.md section 8).
            self._directory = slash + 2, _alone("Allow", value)

    def length_for(self, path: str) -> int | None:
        """Return how many octets of this rule match *path*, None if it doesn't match: the length
        of the pattern, or of the directory that an ``index.htm`` stands for."""
        if self._rules.find(path):
            return len(self.pattern)
        if self._directory is not None and self._directory[1].find(path):
            return self._directory[0]
        return None


def _alone(kind: str, value: str) -> Rules:
    """Return the rules of a file that has only this one, for the matcher to judge."""
    body = f"User-agent: *\n{kind}:{value}\n".encode("latin-1")
    return RobotsTxt.parse(body).rules(GLOBAL)[1]


@dataclass(slots=True)
class Group:
    """Agents, and the rules that belong to them."""

    agents: list[AgentLine] = field(default_factory=list)
    rules: list[RuleLine] = field(default_factory=list)

    def names(self, token: str) -> bool:
        """Return whether one of the group's lines names *token* (in lower case, or ``*``)."""
        return any(agent.token == token for agent in self.agents)


@dataclass(slots=True)
class Outline:
    """The lines of a robots.txt that mean something."""

    groups: list[Group] = field(default_factory=list)
    homeless: list[RuleLine] = field(default_factory=list)
    """Rules before the first ``user-agent`` line: ignored."""
    sitemaps: list[tuple[int, str]] = field(default_factory=list)
    """Line and value as written, empty values included."""

    @classmethod
    def of(cls, body: bytes) -> Outline:
        """Read *body*, any bytes at all; never raises."""
        outline = cls()
        open_to_agents = False
        rows = normalise(body).split("\n")
        for number, kind, value in read(rows):
            if kind in (Field.ALLOW, Field.DISALLOW):
                found = Rule.of(rows[number - 1], number, value, kind == Field.ALLOW)
                rule = RuleLine(found, value)
                (outline.groups[-1].rules if outline.groups else outline.homeless).append(rule)
                open_to_agents = False
            elif kind == Field.USER_AGENT:
                if not open_to_agents:
                    outline.groups.append(Group())
                    open_to_agents = True
                agent = AgentLine(number, readable(value), token_of(value))
                outline.groups[-1].agents.append(agent)
            elif kind == Field.SITEMAP:
                outline.sitemaps.append((number, readable_url(value)))
        return outline

    def tokens(self) -> list[str]:
        """Return the agents that the file names, in their spelling and order, and ``*`` last."""
        named = {
            agent.token: agent.value[: len(agent.token)]
            for group in self.groups
            for agent in group.agents
            if agent.token not in ("", GLOBAL)
        }
        return [*named.values(), GLOBAL]

    def rules_for(self, token: str) -> Iterable[RuleLine]:
        """Return the rules of all groups that name *token*."""
        return (rule for group in self.groups if group.names(token) for rule in group.rules)


def token_of(value: str) -> str:
    """Return the token, in lower case, that the value of a ``user-agent`` line names."""
    if value[:1] == GLOBAL and (len(value) == 1 or value[1] in SPACE):
        return GLOBAL
    return leading_token(value).lower()
