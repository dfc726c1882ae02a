"""A robots.txt: the group that a crawler obeys, and what it says (REP.md section 7)."""

from __future__ import annotations

import re
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy_rep.protocol.groups import Ask, Groups, sitemaps_of
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
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.protocol.syntax import MAX_BYTES, Field, cut, normalise, obeyed, read

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Neither many agents nor a group of 500 KB that names many of them may fill the memory.
_AGENTS_REMEMBERED = 100
_MAX_SIZE = 16_000_000

# Bytes of memory besides the text: for a sitemap, a rule that decided, an agent.
_SITEMAP, _DECIDED, _ANSWER = 57, 390, 200

_Agent: TypeAlias = "str | tuple[str, ...]"
# The agent, whether it obeys "*", the token whose group applies, and its rules. Replaced as a whole,
# so that threads may share a RobotsTxt.
_Answer: TypeAlias = "tuple[_Agent | None, bool | None, str | None, Rules]"
_NOT_ASKED: _Answer = (None, None, None, NO_RULES)

# Origin and path of nearly all URLs.
_USUAL = re.compile(r"(https?://[^/?;#]*)(/[^#]*)")


class Pace(NamedTuple):
    """What a file asks of the pace of a crawl (REP.md section 12). Of several lines the slowest counts."""

    crawl_delay: Ask | None = None
    slowest: Ask | None = None
    """Of ``crawl-delay`` and ``request-rate``."""
    visit_time: Ask | None = None


class RobotsTxt:
    """A robots.txt. Build it with :meth:`parse`, or with a function that returns its body.

    Lazy: the file is read for each new agent, to keep only the rules of its group, for each line that
    decides, for each group's :meth:`pace`, and for :attr:`sitemaps` on each call.

    *agent* is always a product token (letters, ``-`` and ``_``), or a sequence of them, most specific
    first: only the first token with a group in this file counts. For an empty string, an empty
    sequence and ``*`` the ``*`` group applies; *obey_global* = False ignores that. A full User-Agent
    header raises ``ValueError``; :func:`~scrapy_rep.protocol.product_token` finds its token.

    Threads may share an instance. Copies and pickles hold the body, and read it again.
    """

    __slots__ = ("_answer", "_known", "_paces", "_rules", "_site", "_sitemaps", "_source", "size")

    def __init__(self, source: bytes | Callable[[], bytes]) -> None:
        """:param source: the body, or a function that always returns the same one"""
        self._source = source
        # The latest answer and origin, since most calls are about the same.
        self._answer = _NOT_ASKED
        self._site = ""
        self._known: dict[tuple[_Agent | None, bool | None], _Answer] | None = None
        self._rules: dict[int, Rule] | None = None
        self._paces: dict[str, Pace] | None = None
        self._sitemaps: tuple[str, ...] | None = None
        self.size = 0
        """Approximate bytes of memory, without the source."""

    @classmethod
    def parse(cls, body: bytes | bytearray | memoryview) -> RobotsTxt:
        """Keep up to 512,000 bytes of any *body*, cut before a line that exceeds this limit, and read
        them on demand (REP.md section 6).

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
        """Prepare the rules for *agent*, the sitemaps and, if asked, :meth:`pace`, in one reading of
        *body*, which is what the source would return."""
        text = normalise(body)
        sitemaps = self._sitemaps = sitemaps_of(text)
        self.size += sum([_SITEMAP + len(value) for value in sitemaps])
        groups = Groups(text)
        self._choose_group(agent, obey_global, groups)
        if with_delay:
            self.pace(agent, obey_global, groups)

    def is_read(self, agent: str | Sequence[str], obey_global: bool = True) -> bool:
        """Return whether the rules for *agent* are ready, without reading the file."""
        key = agent if isinstance(agent, str) else tuple(agent), obey_global
        return self._answer[:2] == key or (self._known is not None and key in self._known)

    def allowed(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> bool:
        """Return whether *agent* may fetch *url*. Arguments as for :meth:`decide`."""
        answer = self._answer
        if agent != answer[0] or obey_global is not answer[1]:
            answer = self._choose_group(agent, obey_global)
        path = url.removeprefix(self._site)
        if path[:1] != "/" or path == url or "#" in path:
            usual = _USUAL.match(url)
            if usual is None:
                path = path_of(url)
            else:
                self._site, path = usual.groups()
        found = answer[3].find(path)
        return found < SHORTEST or found & ALLOW > 0 or path == ROBOTS_PATH  # Rules.allows()

    def decide(self, url: str, agent: str | Sequence[str], *, obey_global: bool = True) -> Decision:
        """Return whether *agent* may fetch *url*, and which line says so (REP.md sections 7, 8).
        ``/robots.txt`` is always allowed (RFC 9309, 2.2.2).

        Compares *url* as it is, as Google's matcher does. For URLs from outside, pass
        ``comparable(url)``, which is what the middleware and ``RobotParser`` compare.

        :param url: absolute and percent-encoded, or a path; other text is read as Google does
        :raises ValueError: if *agent* is not a product token
        """
        token, rules = self.rules(agent, obey_global)
        path = path_of(url)
        found = rules.find(path)
        if path == ROBOTS_PATH and not allows(found):
            return Decision(True, None, token)
        return self.decision(token, found)

    def rules(
        self, agent: str | Sequence[str], obey_global: bool = True
    ) -> tuple[str | None, Rules]:
        """Return the group that applies to *agent* (a token of the chain, ``*`` or None) and its
        rules, see :meth:`Rules.allows`."""
        answer = self._answer
        if agent != answer[0] or obey_global is not answer[1]:
            answer = self._choose_group(agent, obey_global)
        return answer[2:]

    def decision(self, token: str | None, found: int) -> Decision:
        """Return the decision for the group of *token* by what :meth:`Rules.find` has *found*."""
        return Decision(allows(found), self._rule(found) if found else None, token)

    def _rule(self, found: int) -> Rule:
        rules = self._rules = self._rules or {}
        rule = rules.get(found)
        if rule is None:
            line = line_of(found)
            row = self._text().split("\n", line)[line - 1]
            ((_, field, value),) = read([row])
            rule = rules[found] = Rule.of(row, line, value, field == Field.ALLOW)
            self.size += _DECIDED + len(rule.pattern) + len(rule.text)
        return rule

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The values of the ``sitemap`` lines, as written, in order (REP.md section 9)."""
        found = self._sitemaps
        return sitemaps_of(self._text()) if found is None else found

    def crawl_delay(self, agent: str | Sequence[str], *, obey_global: bool = True) -> float | None:
        """Return the ``crawl-delay`` for *agent* in seconds, None without one. The largest counts.
        It is not part of the protocol, and Google ignores it.

        :raises ValueError: if *agent* is not a product token
        """
        delay = self.pace(agent, obey_global).crawl_delay
        return None if delay is None else delay.seconds

    def pace(
        self, agent: str | Sequence[str], obey_global: bool = True, groups: Groups | None = None
    ) -> Pace:
        """Return :meth:`crawl_delay` and what else is asked of the pace of a crawl, each with its line;
        from *groups* if the file is read."""
        token, _ = self.rules(agent, obey_global)
        if token is None:
            return _ANY_PACE
        token = token.lower()
        paces = self._paces
        if paces is None or len(paces) >= _AGENTS_REMEMBERED:
            paces = self._paces = {}
        if token not in paces:
            groups = groups or Groups(self._text())
            asks = list(groups.asks_of(token))
            paces[token] = Pace(
                _slowest(asks, "crawl-delay"),
                _slowest(asks, "crawl-delay", "request-rate"),
                _slowest(asks, "visit-time"),
            )
            self.size += _ANSWER
        return paces[token]

    def _text(self) -> str:
        source = self._source
        return normalise(source if isinstance(source, bytes) else source())

    def _choose_group(
        self, agents: str | Sequence[str], obey_global: bool, groups: Groups | None = None
    ) -> _Answer:
        """Return the answer for *agents*, and remember it and the one before."""
        agent = agents if isinstance(agents, str) else tuple(agents)
        answer, answers = self._answer, self._known
        if answers is None and answer is not _NOT_ASKED:
            answers = self._known = {answer[:2]: answer}
        found = None if answers is None else answers.get((agent, obey_global))
        if found is None:
            tokens = obeyed(agent, obey_global)
            groups = groups or Groups(self._text())
            for token in tokens:
                if token.lower() in groups.tokens:
                    found = agent, obey_global, token, self._prepare(token, groups)
                    break
            else:
                found = agent, obey_global, None, NO_RULES
            if answers is not None:
                if len(answers) >= _AGENTS_REMEMBERED or self.size > _MAX_SIZE:
                    answers.clear()
                    self._rules = self._sitemaps = None
                    self.size = found[3].size
                self.size += _ANSWER
                answers[agent, obey_global] = found
        self._answer = found
        return found

    def _prepare(self, token: str, groups: Groups) -> Rules:
        """Return the rules of a group, which another agent may have in use."""
        for _, _, named, rules in list(self._known.values()) if self._known else ():
            if named is not None and named.lower() == token.lower():
                return rules
        rules = Rules(*groups.rules_of(token.lower()))
        self.size += rules.size
        return rules


_ANY_PACE = Pace()


def _slowest(asks: Sequence[Ask], *fields: str) -> Ask | None:
    """Return the first of the slowest lines of these *fields*."""
    found = (ask for ask in asks if ask.field in fields)
    return max(found, key=lambda ask: (ask.seconds, -ask.line), default=None)
