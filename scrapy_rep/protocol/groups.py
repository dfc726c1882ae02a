"""Lines to groups, and the group that a crawler obeys (REP.md section 7)."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from scrapy_rep.protocol.agents import leading_token
from scrapy_rep.protocol.matching import (
    ALLOW,
    ALLOW_BIT,
    Decision,
    Rule,
    Rules,
    allows,
    line_of,
    number_of,
    path_of,
)
from scrapy_rep.protocol.syntax import SPACE, Field, lines, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

GLOBAL = "*"

# A crawler has one agent or few; who asks for ever new ones shall not fill the memory.
_AGENTS_REMEMBERED = 100


class _Group:
    """A stretch of rules and the agents that they belong to."""

    __slots__ = ("crawl_delay", "end", "start", "tokens")

    def __init__(self, start: int) -> None:
        self.tokens: set[str] = set()
        self.start = start
        self.end = start
        self.crawl_delay: float | None = None


def _agent_token(value: str) -> str:
    """The token, in lower case, that a ``user-agent`` line names; ``*`` for the global group."""
    if value[:1] == GLOBAL and (len(value) == 1 or value[1] in SPACE):
        return GLOBAL
    return leading_token(value).lower()


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


class RobotsTxt:
    """A parsed robots.txt. Build it with :meth:`parse`.

    Rules are prepared for matching when a group is first asked for, once for each group.
    """

    __slots__ = ("_by_agent", "_by_token", "_groups", "_numbers", "_values", "sitemaps")

    sitemaps: tuple[str, ...]
    """The values of the ``sitemap`` lines, as written, in order (REP.md section 9)."""

    def __init__(self, body: bytes) -> None:
        sitemaps: list[str] = []
        groups: list[_Group] = []
        # Two flat columns are an eighth of the memory of an object for each rule.
        values: list[str] = []
        numbers = array("i")
        group: _Group | None = None
        open_to_agents = False
        for number, field, value in lines(body):
            if field <= Field.ALLOW:  # a rule; first, since most lines are
                if group is not None:  # rules before the first user-agent line are ignored
                    values.append(value)
                    # number_of(), written out: a call for each rule is a tenth of the time.
                    numbers.append(field << ALLOW_BIT | ALLOW - 1 - number)
                    open_to_agents = False
            elif field == Field.USER_AGENT:
                if group is None or not open_to_agents:
                    group = _Group(len(values))
                    groups.append(group)
                    open_to_agents = True
                group.tokens.add(_agent_token(value))
            elif field == Field.SITEMAP:
                if value:
                    sitemaps.append(readable(value))
            elif group is not None:
                delay = _seconds(value)
                if delay is not None:
                    group.crawl_delay = max(delay, group.crawl_delay or 0.0)
        for group, following in pairwise(groups):
            group.end = following.start
        if groups:
            groups[-1].end = len(values)
        self.sitemaps = tuple(sitemaps)
        self._values = values
        self._numbers = numbers
        self._groups = groups
        self._by_token: dict[str, Rules] = {}
        self._by_agent: dict[tuple[str | tuple[str, ...], bool], tuple[str | None, Rules]] = {}

    @classmethod
    def parse(cls, body: bytes) -> RobotsTxt:
        """Parse *body*: any bytes at all; never raises (REP.md section 6).

        What is beyond 512,000 bytes is ignored, and so is a line that the limit cuts in two.
        """
        return cls(body)

    def allowed(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> bool:
        """Return whether *agent* may fetch *url*. Arguments as for :meth:`decide`."""
        return allows(self.rules(agent, obey_global)[1].find(path_of(url)))

    def decide(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> Decision:
        """Return whether *agent* may fetch *url*, and which line says so (REP.md sections 7, 8).

        :param url: percent-encoded, as Scrapy's ``Request.url`` is; compared as it stands
        :param agent: a product token, or a chain of them, most specific first: the first that
            has a group in this file decides, alone
        :param obey_global: False for a crawler that obeys only groups that name it
        """
        token, rules = self.rules(agent, obey_global)
        return self.decision(token, rules.find(path_of(url)))

    def rules(
        self, agent: str | Sequence[str], obey_global: bool = True
    ) -> tuple[str | None, Rules]:
        """Return the group that applies to *agent* (a token of the chain as given, ``*`` or
        None) and its rules, prepared. For callers who ask about many paths."""
        if not isinstance(agent, str):
            agent = tuple(agent)
        known = self._by_agent.get((agent, obey_global))
        if known is None:
            if len(self._by_agent) >= _AGENTS_REMEMBERED:
                self._by_agent.clear()
            known = self._by_agent[agent, obey_global] = self._choose(agent, obey_global)
        return known

    def decision(self, token: str | None, found: int) -> Decision:
        """Return the decision that an answer of :meth:`Rules.find` stands for."""
        if not found:
            return Decision(True, None, token)
        line = line_of(found)
        at = bisect_left(self._numbers, line, key=line_of)
        allow = self._numbers[at] == number_of(line, True)
        return Decision(allows(found), Rule(line, readable(self._values[at]), allow), token)

    def crawl_delay(self, agent: str | Sequence[str], *, obey_global: bool = True) -> float | None:
        """Return the ``crawl-delay`` of the group that applies to *agent*, in seconds.

        No part of the protocol, and Google ignores it. Of several the largest counts: the one
        that the owner of the site would mind least.
        """
        token, _ = self.rules(agent, obey_global)
        if token is None:
            return None
        delays = [g.crawl_delay for g in self._named(token.lower()) if g.crawl_delay is not None]
        return max(delays, default=None)

    def _named(self, token: str) -> list[_Group]:
        return [group for group in self._groups if token in group.tokens]

    def _choose(self, agent: str | Sequence[str], obey_global: bool) -> tuple[str | None, Rules]:
        for token in (agent,) if isinstance(agent, str) else agent:
            # "*" names no crawler, and case is ASCII's: the Kelvin sign is no K.
            if token.isascii() and token not in ("", GLOBAL) and self._named(token.lower()):
                return token, self._prepare(token.lower())
        if obey_global and self._named(GLOBAL):
            return GLOBAL, self._prepare(GLOBAL)
        return None, Rules(())

    def _prepare(self, token: str) -> Rules:
        rules = self._by_token.get(token)
        if rules is None:
            rules = self._by_token[token] = Rules(self._rules_of(self._named(token)))
        return rules

    def _rules_of(self, groups: Iterable[_Group]) -> Iterator[tuple[str, int]]:
        stretches = [slice(group.start, group.end) for group in groups]
        return chain.from_iterable(
            zip(self._values[stretch], self._numbers[stretch], strict=True) for stretch in stretches
        )
