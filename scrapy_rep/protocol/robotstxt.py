"""A robots.txt: which group a crawler obeys, and what that says (REP.md section 7)."""

from __future__ import annotations

import re
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, TypeAlias

from scrapy_rep.protocol.groups import Groups, sitemaps_of
from scrapy_rep.protocol.matching import (
    ALLOW,
    NO_RULES,
    ROBOTS_PATH,
    SHORTEST,
    Decision,
    Rule,
    Rules,
    allows,
    line_of,
    path_of,
)
from scrapy_rep.protocol.syntax import MAX_BYTES, Field, cut, normalise, read, readable
from scrapy_rep.protocol.tokens import GLOBAL, checked_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# A crawler has few agents. Ever new ones must not fill the memory, nor must a group of 500 KB
# that names many of them.
_AGENTS_REMEMBERED = 100
_MAX_SIZE = 16_000_000

# Bytes that are remembered beside the text: of a sitemap, a rule that decided, an agent.
_SITEMAP, _DECIDED, _ANSWER = 57, 230, 200

Delay: TypeAlias = "tuple[float, int]"
"""Seconds, and the line that says so."""

_Agent: TypeAlias = "str | tuple[str, ...]"
# Who asked (a token or a chain), and whether it obeys "*"; the token whose group applies, and its
# rules. One tuple, replaced as a whole: so threads may share a RobotsTxt.
_Answer: TypeAlias = "tuple[_Agent | None, bool | None, str | None, Rules]"
_NOT_ASKED: _Answer = (None, None, None, NO_RULES)

_SITE = re.compile(r"https?://[^/?;#]*(?=/)")


class RobotsTxt:
    """A robots.txt. Build it with :meth:`parse`, or with a function that returns its body.

    Lazy: the file is read when an agent is first asked about, and only the rules of that agent's
    group are kept. Another agent, or which line decided, takes another reading, once for each
    answer. :attr:`sitemaps` reads the file on each call, :meth:`crawl_delay` once for each group.

    *agent* is everywhere a product token (letters, ``-`` and ``_``), or a sequence of them, most
    specific first: the first token that has a group in this file decides, alone. An empty string,
    an empty sequence and ``*`` name no crawler: the ``*`` group applies. A full User-Agent header
    raises ``ValueError``; :func:`~scrapy_rep.protocol.product_token` finds the token in it.
    *obey_global* is False for a crawler that obeys only groups that name it.

    Threads may share one. Copies and pickles hold the body, and read it again.
    """

    __slots__ = (
        "_answer",
        "_answers",
        "_decided",
        "_delays",
        "_site",
        "_sitemaps",
        "_source",
        "size",
    )

    def __init__(self, source: bytes | Callable[[], bytes]) -> None:
        """:param source: the body, or a function that returns it, the same each time"""
        self._source = source
        # A crawl asks as one agent about URLs of one site, again and again: both are remembered.
        self._answer = _NOT_ASKED
        self._site = ""
        self._answers: dict[tuple[_Agent | None, bool | None], _Answer] | None = None
        self._decided: dict[int, Rule] | None = None
        self._delays: dict[str, Delay | None] | None = None
        self._sitemaps: tuple[str, ...] | None = None
        self.size = 0
        """About how many bytes its answers take by now, the source not counted."""

    @classmethod
    def parse(cls, body: bytes | bytearray | memoryview) -> RobotsTxt:
        """Take *body*, any bytes at all (REP.md section 6). It is read when an agent is asked about.

        Keeps a copy of the first 512,000 bytes, less a line that this limit cuts in two.

        :raises TypeError: if *body* is not bytes-like
        """
        if type(body) is not bytes:
            try:
                body = bytes(memoryview(body).cast("B")[: MAX_BYTES + 1])
            except TypeError:
                kind = type(body).__name__
                raise TypeError(f"the body of a robots.txt is bytes-like, not {kind}") from None
        return cls(cut(body))

    def __reduce__(self) -> tuple[type[RobotsTxt], tuple[bytes | Callable[[], bytes]]]:
        return type(self), (self._source,)

    def __repr__(self) -> str:
        source = self._source
        agent, _, token, _ = self._answer
        size = f"{len(source)} bytes, " if isinstance(source, bytes) else ""
        if agent is None:
            return f"<RobotsTxt: {size}not read yet>"
        group = "no group" if token is None else f"group {short_repr(token)}"
        return f"<RobotsTxt: {size}{group} for {short_repr(agent)}>"

    def preload(
        self,
        body: bytes,
        agent: str | Sequence[str],
        obey_global: bool = True,
        with_delay: bool = False,
    ) -> None:
        """Prepare the rules for *agent* and the sitemaps by one reading of *body*: what the source
        would return, for a caller who has it at hand.

        :param with_delay: prepare :meth:`delay` too
        """
        text = normalise(body)
        sitemaps = self._sitemaps = sitemaps_of(text)
        self.size += sum([_SITEMAP + len(value) for value in sitemaps])
        groups = Groups(text)
        self._turn_to(agent, obey_global, groups)
        if with_delay:
            self.delay(agent, obey_global, groups)

    def is_read(self, agent: str | Sequence[str], obey_global: bool = True) -> bool:
        """Return whether the rules for *agent* are at hand, so that nothing has to be read."""
        key = agent if isinstance(agent, str) else tuple(agent), obey_global
        return self._answer[:2] == key or (self._answers is not None and key in self._answers)

    def allowed(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> bool:
        """Return whether *agent* may fetch *url*. Arguments as for :meth:`decide`."""
        answer = self._answer
        if agent != answer[0] or obey_global is not answer[1]:
            answer = self._turn_to(agent, obey_global)
        path = url.removeprefix(self._site)
        if path[:1] != "/" or path == url or "#" in path:
            path = path_of(url)
            usual = _SITE.match(url)
            if usual is not None:
                self._site = usual[0]
        found = answer[3]._find(path)
        return found < SHORTEST or found & ALLOW > 0 or path == ROBOTS_PATH  # Rules.allows()

    def decide(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> Decision:
        """Return whether *agent* may fetch *url*, and which line says so (REP.md sections 7, 8).

        Compares *url* as it stands, as Google's matcher does. ``comparable(url)`` spells it as the
        middleware and ``RobotParser`` compare it: do so with URLs that others have written.

        ``/robots.txt`` is always allowed: rules for it are passed over (RFC 9309, 2.2.2).

        :param url: absolute and percent-encoded, or a path; anything else is read as Google does
        :raises ValueError: if *agent* is no product token
        """
        token, rules = self.rules(agent, obey_global)
        path = path_of(url)
        found = rules._find(path)
        if path == ROBOTS_PATH and not allows(found):
            return Decision(True, None, token)
        return self._decision(token, found)

    def rules(
        self, agent: str | Sequence[str], obey_global: bool = True
    ) -> tuple[str | None, Rules]:
        """Return the group that applies to *agent* (a token of the chain as given, ``*`` or
        None) and its rules, prepared. For callers with many paths: see :meth:`Rules.allows`.

        :raises ValueError: if *agent* is no product token
        """
        answer = self._answer
        if agent != answer[0] or obey_global is not answer[1]:
            answer = self._turn_to(agent, obey_global)
        return answer[2:]

    def _decision(self, token: str | None, found: int) -> Decision:
        """Return the decision that :meth:`Rules._find` has *found* for the group of *token*."""
        return Decision(allows(found), self._rule(found) if found else None, token)

    def _rule(self, found: int) -> Rule:
        decided = self._decided
        if decided is None:
            decided = self._decided = {}
        rule = decided.get(found)
        if rule is None:
            line = line_of(found)
            ((_, field, value),) = read([self._text().split("\n", line)[line - 1]])
            rule = decided[found] = Rule(line, readable(value), field == Field.ALLOW)
            self.size += _DECIDED + len(rule.pattern)
        return rule

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The values of the ``sitemap`` lines, as written, in order (REP.md section 9)."""
        found = self._sitemaps
        return sitemaps_of(self._text()) if found is None else found

    def crawl_delay(self, agent: str | Sequence[str], *, obey_global: bool = True) -> float | None:
        """Return the ``crawl-delay`` of the group that applies to *agent*, in seconds; None if
        there is none.

        No part of the protocol, and Google ignores it. Of several the largest counts.

        :raises ValueError: if *agent* is no product token
        """
        delay = self.delay(agent, obey_global)
        return None if delay is None else delay[0]

    def delay(
        self, agent: str | Sequence[str], obey_global: bool = True, groups: Groups | None = None
    ) -> Delay | None:
        """Return what :meth:`crawl_delay` does, with the number of the line that says so.

        :param groups: of the file; None: read the file if need be
        """
        token, _ = self.rules(agent, obey_global)
        if token is None:
            return None
        token = token.lower()
        delays = self._delays
        if delays is None or len(delays) >= _AGENTS_REMEMBERED:
            delays = self._delays = {}
        if token not in delays:
            groups = groups or Groups(self._text())
            delays[token] = max(
                groups.delays_of(token), key=lambda delay: (delay[0], -delay[1]), default=None
            )
            self.size += _ANSWER
        return delays[token]

    def _text(self) -> str:
        source = self._source
        return normalise(source if isinstance(source, bytes) else source())

    def _turn_to(
        self, agents: str | Sequence[str], obey_global: bool, groups: Groups | None = None
    ) -> _Answer:
        """Return the answer for *agents*, and remember it and the one before.

        :param groups: of the file; None: read the file if need be
        """
        agent = agents if isinstance(agents, str) else tuple(agents)
        answer, answers = self._answer, self._answers
        if answers is None and answer is not _NOT_ASKED:
            answers = self._answers = {answer[:2]: answer}
        found = None if answers is None else answers.get((agent, obey_global))
        if found is None:
            token, rules = self._choose(
                checked_chain(agent), obey_global, groups or Groups(self._text())
            )
            found = agent, obey_global, token, rules
            if answers is not None:
                if len(answers) >= _AGENTS_REMEMBERED or self.size > _MAX_SIZE:
                    answers.clear()
                    self._decided = self._sitemaps = None
                    self.size = rules.size
                self.size += _ANSWER
                answers[agent, obey_global] = found
        self._answer = found
        return found

    def _choose(
        self, chain: Sequence[str], obey_global: bool, groups: Groups
    ) -> tuple[str | None, Rules]:
        for token in chain:
            if token not in ("", GLOBAL) and token.lower() in groups.tokens:
                return token, self._prepare(token, groups)
        if obey_global and GLOBAL in groups.tokens:
            return GLOBAL, self._prepare(GLOBAL, groups)
        return None, NO_RULES

    def _prepare(self, token: str, groups: Groups) -> Rules:
        """Return the rules of a group: those that another agent has asked about, if one has."""
        for _, _, named, rules in list((self._answers or {}).values()):
            if named is not None and named.lower() == token.lower():
                return rules
        rules = Rules(*groups.rules_of(token.lower()))
        self.size += rules.size
        return rules
