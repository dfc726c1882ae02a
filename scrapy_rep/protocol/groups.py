"""A robots.txt: the group that a crawler obeys, and what it says (REP.md section 7)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from scrapy_rep.protocol.matching import (
    ALLOW,
    NO_RULES,
    SHORTEST,
    Decision,
    Rule,
    Rules,
    allows,
    line_of,
    path_of,
)
from scrapy_rep.protocol.stretches import GLOBAL, Groups, sitemaps_of
from scrapy_rep.protocol.syntax import Field, normalise, read, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# A crawler has one agent or few. Ever new ones must not fill the memory, nor must a group of
# 500 KB that names many of them.
_AGENTS_REMEMBERED = 100
_MAX_SIZE = 16_000_000

# What is remembered takes so many bytes, beside its text: a sitemap, a rule that decided, an agent.
_SITEMAP, _DECIDED, _ANSWER = 57, 230, 200

# Who asks: a token, or a chain of them. The answer: the token whose group applies, and its rules.
_Agent: TypeAlias = "str | tuple[str, ...]"
_Answer: TypeAlias = "tuple[str | None, Rules]"

_SITE = re.compile(r"https?://[^/?;#]*(?=/)")


class RobotsTxt:
    """A robots.txt. Build it with :meth:`parse`, or with a function that gives its body.

    The file is read when an agent is first asked about, and kept of it is only what decides
    about that agent's URLs: a third of the memory, and half of the time. Who asks more (another
    agent, which line decided) has it read again, once for each answer.
    """

    __slots__ = (
        "_agent",
        "_answers",
        "_decided",
        "_obeyed",
        "_rules",
        "_site",
        "_sitemaps",
        "_source",
        "_token",
        "size",
    )

    def __init__(self, source: Callable[[], bytes]) -> None:
        """:param source: returns the body, the same each time: any bytes at all"""
        self._source = source
        # A robots.txt is asked by one agent about URLs of one site, again and again: to remember
        # both is a quarter of the time to match.
        self._agent: _Agent = ()
        self._obeyed = False
        self._token: str | None = None
        self._rules = NO_RULES
        self._site = ""
        self._answers: dict[tuple[_Agent, bool], _Answer] | None = None
        self._decided: dict[int, Rule] | None = None
        self._sitemaps: tuple[str, ...] | None = None
        self.size = 0
        """About how many bytes its answers take by now, the source not counted."""

    @classmethod
    def parse(cls, body: bytes) -> RobotsTxt:
        """Parse *body*: any bytes at all; never raises (REP.md section 6).

        What is beyond 512,000 bytes is ignored, and so is a line that the limit cuts in two.
        """
        return cls(lambda: body)

    def preload(self, body: bytes, agent: str | Sequence[str], obey_global: bool = True) -> None:
        """Have the rules for *agent* and the sitemaps at hand, both from one look at *body*: the
        one that the source would give, for who has it just now."""
        text = normalise(body)
        self._sitemaps = sitemaps_of(text)
        self.size += sum([_SITEMAP + len(value) for value in self._sitemaps])
        self._turn_to(agent, obey_global, Groups(text))

    def is_read(self, agent: str | Sequence[str], obey_global: bool = True) -> bool:
        """Return whether the rules for *agent* are at hand, so that nothing has to be read."""
        if agent == self._agent and obey_global is self._obeyed:
            return True
        key = agent if isinstance(agent, str) else tuple(agent)
        return self._answers is not None and (key, obey_global) in self._answers

    def allowed(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> bool:
        """Return whether *agent* may fetch *url*. Arguments as for :meth:`decide`."""
        if agent != self._agent or obey_global is not self._obeyed:
            self.rules(agent, obey_global)
        path = url.removeprefix(self._site)
        if path[:1] != "/" or path == url or "#" in path:
            path = path_of(url)
            usual = _SITE.match(url)
            if usual is not None:
                self._site = usual[0]
        found = self._rules.find(path)
        return found < SHORTEST or found & ALLOW > 0  # allows(), written out

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
        if agent != self._agent or obey_global is not self._obeyed:
            self._turn_to(agent, obey_global)
        return self._token, self._rules

    def decision(self, token: str | None, found: int) -> Decision:
        """Return the decision that an answer of :meth:`Rules.find` stands for."""
        return Decision(allows(found), self._rule(found) if found else None, token)

    def _rule(self, found: int) -> Rule:
        if self._decided is None:
            self._decided = {}
        rule = self._decided.get(found)
        if rule is None:
            line = line_of(found)
            row = normalise(self._source()).split("\n", line)[line - 1]
            for _, field, value in read([row]):
                rule = self._decided[found] = Rule(line, readable(value), field == Field.ALLOW)
                self.size += _DECIDED + len(rule.pattern)
        assert rule is not None
        return rule

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The values of the ``sitemap`` lines, as written, in order (REP.md section 9). Read anew
        each time, except after :meth:`preload`: they are asked for once or twice."""
        if self._sitemaps is None:
            return sitemaps_of(normalise(self._source()))
        return self._sitemaps

    def crawl_delay(self, agent: str | Sequence[str], *, obey_global: bool = True) -> float | None:
        """Return the ``crawl-delay`` of the group that applies to *agent*, in seconds.

        No part of the protocol, and Google ignores it. Of several the largest counts: the one
        that the owner of the site would mind least.
        """
        token, _ = self.rules(agent, obey_global)
        if token is None:
            return None
        return max(self._groups().delays_of(token.lower()), default=None)

    def _groups(self) -> Groups:
        return Groups(normalise(self._source()))

    def _turn_to(
        self, agents: str | Sequence[str], obey_global: bool, groups: Groups | None = None
    ) -> None:
        """Have the answer for *agents* at hand, and remember the one before.

        :param groups: of the file; None: it is read if need be
        """
        agent: _Agent = agents if isinstance(agents, str) else tuple(agents)
        answers = self._answers
        if answers is None and self._rules is not NO_RULES:
            answers = self._answers = {(self._agent, self._obeyed): (self._token, self._rules)}
        answer = answers.get((agent, obey_global)) if answers is not None else None
        if answer is None:
            chain = (agent,) if isinstance(agent, str) else agent
            answer = self._choose(chain, obey_global, groups or self._groups())
            if answers is not None:
                if len(answers) >= _AGENTS_REMEMBERED or self.size > _MAX_SIZE:
                    answers.clear()
                    self._decided = self._sitemaps = None
                    self.size = answer[1].size
                self.size += _ANSWER
                answers[agent, obey_global] = answer
        self._agent, self._obeyed = agent, obey_global
        self._token, self._rules = answer

    def _choose(self, agents: Iterable[str], obey_global: bool, groups: Groups) -> _Answer:
        for token in agents:
            # "*" names no crawler, and case is ASCII's: the Kelvin sign is no K.
            if token.isascii() and token not in ("", GLOBAL) and token.lower() in groups.tokens:
                return token, self._prepare(token, groups)
        if obey_global and GLOBAL in groups.tokens:
            return GLOBAL, self._prepare(GLOBAL, groups)
        return None, NO_RULES

    def _prepare(self, token: str, groups: Groups) -> Rules:
        """The rules of a group: those that another agent has asked about, if one has."""
        for named, rules in (self._answers or {}).values():
            if named is not None and named.lower() == token.lower():
                return rules
        rules = Rules(*groups.rules_of(token.lower()))
        self.size += rules.size
        return rules
