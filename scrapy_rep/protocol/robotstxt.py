"""A robots.txt: its groups, the one that a crawler obeys, and what it says (REP.md section 7)."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

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
from scrapy_rep.protocol.outline import CleanParam, Group, Outline, clean_params_of
from scrapy_rep.protocol.syntax import (
    MAX_BYTES,
    RULES,
    SPACE,
    agent_token,
    as_bytes,
    field_of,
    fields_in,
    normalise,
    obeyed,
    readable_url,
)

# Neither many agents nor one group of 500 KB with many agents may fill the memory.
_AGENTS_REMEMBERED = 100
_MAX_SIZE = 16_000_000

# Bytes of memory besides the text: for a sitemap, a rule that decided, an agent.
_SITEMAP, _DECIDED, _ANSWER = 57, 390, 200

_Agent: TypeAlias = "str | tuple[str, ...]"
# The agent, whether it obeys "*", the token whose group applies, and its rules.
_Answer: TypeAlias = "tuple[_Agent | None, bool | None, str | None, Rules]"
_NOT_ASKED: _Answer = (None, None, None, NO_RULES)

# Origin and path of nearly all URLs.
_USUAL = re.compile(r"(https?://[^/?;#]*)(/[^#]*)")


class Pace(NamedTuple):
    """What a file asks of a crawl's pace (REP.md section 12). Of several lines the slowest counts."""

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

    Threads may share an instance.
    """

    __slots__ = (
        "_known",
        "_latest",
        "_origin",
        "_paces",
        "_rules",
        "_sitemaps",
        "_source",
        "size",
    )

    def __init__(self, source: bytes | Callable[[], bytes]) -> None:
        """*source*: the body, or a function that always returns the same one."""
        self._source = source
        # Most calls are about the latest agent and origin.
        self._latest, self._origin = _NOT_ASKED, ""
        # Replaced as a whole, so that threads may share a RobotsTxt.
        self._known: tuple[_Answer, ...] = ()
        self._paces: dict[str, Pace] | None = None
        self._rules: dict[int, Rule] | None = None
        self._sitemaps: tuple[str, ...] | None = None
        self.size = 0
        """Approximate bytes of memory, without the source."""

    @classmethod
    def parse(cls, body: bytes | bytearray | memoryview | str) -> RobotsTxt:
        """Keep up to 512,000 bytes of any *body*, and the one that tells whether the last line is whole.
        A text is read as UTF-8. The bytes as received are better: nothing has been lost of these.

        :raises TypeError: if *body* is neither bytes-like nor a text
        """
        start = body[: MAX_BYTES + 1]
        if isinstance(start, str):
            start = as_bytes(start)[: MAX_BYTES + 1]
        return cls(bytes(start))

    def preload(
        self,
        body: bytes,
        agent: str | Sequence[str],
        obey_global: bool = True,
        with_delay: bool = False,
    ) -> None:
        """Read *body* once for *agent*'s rules, the sitemaps and, if asked, :meth:`pace`."""
        text = normalise(body)
        groups = Groups(text)
        if self._sitemaps is None:
            self._sitemaps = sitemaps = _sitemaps_of(text)
            self.size += _SITEMAP * len(sitemaps) + len("".join(sitemaps))
        self.rules(agent, obey_global, groups)
        if with_delay:
            self.pace(agent, obey_global, groups)

    def is_read(self, agent: str | Sequence[str], obey_global: bool = True) -> bool:
        key = agent if isinstance(agent, str) else tuple(agent), obey_global
        for answer in self._known:
            if answer[:2] == key:
                return True
        return False

    def allowed(
        self, url: str, agent: str | Sequence[str], *, obey_global: bool = True
    ) -> bool:
        """Return whether *agent* may fetch *url*. Arguments as for :meth:`decide`."""
        latest = self._latest
        if agent == latest[0] and obey_global is latest[1]:
            rules = latest[3]
        else:
            _, rules = self.rules(agent, obey_global)
        path = url.removeprefix(self._origin)
        if path[:1] != "/" or path == url or "#" in path:
            usual = _USUAL.match(url)
            if usual is None:
                path = path_of(url)
            else:
                self._origin, path = usual.groups()
        found = rules.find(path)
        return (
            found < SHORTEST or found & ALLOW > 0 or path == ROBOTS_PATH
        )  # Rules.allows()

    def decide(
        self, url: str, agent: str | Sequence[str], *, obey_global: bool = True
    ) -> Decision:
        """Return whether *agent* may fetch *url*, and which line says so (REP.md sections 7, 8).
        ``/robots.txt`` is always allowed.

        Compares *url* as it is, as Google's matcher does. For URLs from outside, pass
        ``comparable(url)``, which is what the middleware and ``RobotParser`` compare.

        :param url: absolute and percent-encoded, or a path; other text is read as Google does
        :raises ValueError: if *agent* is not a product token
        """
        token, rules = self.rules(agent, obey_global)
        path = path_of(url)
        decision = self.decision(token, rules.find(path))
        always = path == ROBOTS_PATH and not decision.allowed
        return Decision(True, None, token) if always else decision

    def rules(
        self,
        agent: str | Sequence[str],
        obey_global: bool = True,
        groups: Groups | None = None,
    ) -> tuple[str | None, Rules]:
        """Return *agent*'s group (a token of the chain, ``*`` or None) and its rules, and remember
        them. *groups*: those of the file, if it has just been read."""
        latest = self._latest
        if agent == latest[0] and obey_global is latest[1]:
            return latest[2:]
        key = agent if isinstance(agent, str) else tuple(agent), obey_global
        for answer in self._known:
            if answer[:2] == key:
                break
        else:
            answer = self._read(*key, groups or Groups(self._text()))
        self._latest = answer
        return answer[2:]

    def _read(self, agent: _Agent, obey_global: bool, groups: Groups) -> _Answer:
        """Return the answer to an agent that hasn't asked yet, and remember it."""
        if len(self._known) >= _AGENTS_REMEMBERED or self.size > _MAX_SIZE:
            self._known, self.size = (), 0
            self._paces = self._rules = self._sitemaps = None
        answer: _Answer = agent, obey_global, None, NO_RULES
        for token in obeyed(agent, obey_global):
            if (name := token.lower()) in groups.tokens:
                # Thousands of rules take 50 ms, so agents of one group share theirs.
                for _, _, other, rules in self._known:
                    if other == token:
                        break
                else:
                    rules = Rules(*groups.rules_of(name))
                    self.size += rules.size
                answer = agent, obey_global, token, rules
                break
        self._known += (answer,)
        self.size += _ANSWER
        return answer

    def decision(self, token: str | None, found: int) -> Decision:
        """Return the decision for the group of *token*, given what :meth:`Rules.find` has *found*."""
        if not found:
            return Decision(True, None, token)
        rules = self._rules = self._rules or {}
        rule = rules.get(found)
        if rule is None:
            line = line_of(found)
            row = self._text().split("\n", line)[line - 1]
            field, value = field_of(row)  # type: ignore[misc]  # this line has been read before
            rule = rules[found] = Rule.of(row, line, value, field == "allow")
            self.size += _DECIDED + len(rule.pattern) + len(rule.text)
        return Decision(allows(found), rule, token)

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The values of the ``sitemap`` lines, as written, in order (REP.md section 9)."""
        return _sitemaps_of(self._text()) if self._sitemaps is None else self._sitemaps

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups, in order, each with its agents and rules (REP.md section 7). Reads the file."""
        source = self._source
        outline = Outline.of(source if isinstance(source, bytes) else source())
        return tuple(outline.groups)

    @property
    def clean_params(self) -> tuple[CleanParam, ...]:
        """The ``clean-param`` lines, in order. Reads the file."""
        return clean_params_of(self._text())

    def crawl_delay(
        self, agent: str | Sequence[str], *, obey_global: bool = True
    ) -> float | None:
        """Return the ``crawl-delay`` for *agent* in seconds, None without one. The largest counts.
        It is not part of the protocol, and Google ignores it.

        :raises ValueError: if *agent* is not a product token
        """
        delay, _, _ = self.pace(agent, obey_global)
        return delay and delay.seconds

    def pace(
        self,
        agent: str | Sequence[str],
        obey_global: bool = True,
        groups: Groups | None = None,
    ) -> Pace:
        """Return :meth:`crawl_delay` and what else the file asks of a crawl's pace, each with its
        line. *groups* spares reading the file."""
        token, _ = self.rules(agent, obey_global)
        if token is None:
            return Pace()
        paces = self._paces = self._paces or {}
        if token not in paces:
            paces[token] = (groups or Groups(self._text())).pace_of(token.lower())
            self.size += _ANSWER
        return paces[token]

    def _text(self) -> str:
        source = self._source
        return normalise(source if isinstance(source, bytes) else source())


# A user-agent line: its token in the usual spelling, otherwise all after "user", which may be another
# field. Possessive from Python 3.11 on, for HTML and its many indented lines.
_BLANKS = r"[ \t\v\f]*" + ("+" if sys.version_info >= (3, 11) else "")
_LINES_OF_AGENTS = re.compile(
    rf"\n{_BLANKS}[Uu][Ss][Ee][Rr]"
    r"(?:-[Aa]gent: ?([a-zA-Z_-]+|\*(?=[ \t\v\f\n#]|\Z))[^\n]*|([^\n]*))"
)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
# "1/10" is a page in ten seconds, "60/1h" sixty in an hour; "1/10 0600-0845" at those hours alone.
_HOURS = r"[0-9]{4}[ \t]*-[ \t]*[0-9]{4}"
_RATE = re.compile(
    rf"([0-9]{{1,9}})[ \t]*/[ \t]*([0-9]{{1,9}})([smh]?)(?:[ \t]+{_HOURS})?",
    re.IGNORECASE,
)
_VISIT = re.compile(_HOURS)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_COMMENT = re.compile(r"#[^\n]*")
_LINES_OF_SITEMAPS = re.compile(rf"\n{_BLANKS}([Ss][Ii][Tt][Ee][^\n]*)")


def delay_seconds(value: str) -> float | None:
    """Return a number in decimal notation (REP.md section 12); None for anything else."""
    seconds = float(value) if _NUMBER.fullmatch(value) else math.inf
    return seconds if math.isfinite(seconds) else None


def rate_seconds(value: str) -> float | None:
    """Return the seconds between two pages of a ``request-rate``; None if it can't be read. Hours
    in it make no difference: nothing says that more is welcome at other times."""
    rate = _RATE.fullmatch(value)
    if rate is None or not int(rate[1]):
        return None
    return int(rate[2]) * _UNITS[rate[3].lower()] / int(rate[1])


class Ask(NamedTuple):
    """A line about the pace of a crawl (REP.md section 12)."""

    seconds: float
    """Between two requests; 0 for a ``visit-time``."""
    line: int
    field: str
    """``crawl-delay``, ``request-rate`` or ``visit-time``."""
    value: str


# The fields about pace, and what reads their seconds.
_PACE: dict[str, Callable[[str], float | None]] = {
    "crawl-delay": delay_seconds,
    "request-rate": rate_seconds,
    "visit-time": lambda value: 0.0 if _VISIT.fullmatch(value) else None,
}


class Groups:
    """A file, split at its ``user-agent`` lines: a crawler needs few of the stretches in between."""

    __slots__ = ("_stretches", "tokens")

    def __init__(self, text: str) -> None:
        """*text* is normalised, see :func:`~scrapy_rep.protocol.syntax.normalise`."""
        # The patterns begin each line with a line end.
        pieces = _LINES_OF_AGENTS.split("\n" + text)
        self._stretches = pieces[::3]
        tokens: list[str | None] = [None]
        for usual, rest in zip(pieces[1::3], pieces[2::3]):
            tokens.append(usual.lower() if usual else _unusual_token(f"user{rest}"))
        self.tokens = tokens
        """The token before each stretch of lines. None: the file's start, or another field."""

    def __iter__(self) -> Iterator[tuple[str | None, str]]:
        return zip(self.tokens, self._stretches, strict=True)

    def rules_of(self, token: str) -> tuple[list[str], list[int]]:
        """Return value and number (see ``ALLOW``) of each rule of *token*'s groups."""
        values: list[str] = []
        numbers: list[int] = []
        named, start, line = False, 0, 0
        for name, stretch in zip(self.tokens, self._stretches):
            if name == token:
                named, start = True, len(values)
            elif name is not None and len(values) > start:
                named = (
                    False  # a group ends with the first user-agent line after a rule
                )
            if named:
                _collect(stretch, line, values, numbers)
            line += stretch.count("\n") + 1
        return values, numbers

    def pace_of(self, token: str) -> Pace:
        """Return what *token*'s groups ask of a crawl's pace. Here only, such a line ends the list
        of agents above it, as a rule does (REP.md section 12)."""
        asks: list[Ask] = []
        line, named, ended = (
            0,
            False,
            False,
        )  # lines before the first group apply to no agent
        for name, stretch in self:
            if name is not None:
                named, ended = name == token or (named and not ended), False
            for number, field, value in (
                fields_in(stretch.split("\n"), line) if named else ()
            ):
                ended = ended or field in RULES or field in _PACE
                if field in _PACE and (seconds := _PACE[field](value)) is not None:
                    asks.append(Ask(seconds, number, field, value))
            line += stretch.count("\n") + 1
        # Slowest first; of equals, the first line.
        asks.sort(key=lambda ask: (-ask.seconds, ask.line))
        fields = ("crawl-delay",), ("crawl-delay", "request-rate"), ("visit-time",)
        return Pace(
            *(next((ask for ask in asks if ask.field in some), None) for some in fields)
        )


def _unusual_token(row: str) -> str | None:
    """Return the token of a line that begins with "user"; None for another field."""
    found = field_of(row)
    return None if found is None else agent_token(found[1])


def _collect(stretch: str, line: int, values: list[str], numbers: list[int]) -> None:
    """Append the rules of the lines from *line* on."""
    if "#" in stretch:
        stretch = _COMMENT.sub("", stretch)
    for number, row in zip(range(ALLOW - 1 - line, 0, -1), stretch.split("\n")):
        value = row.removeprefix("Disallow: ")
        if value != row:  # nine of ten rules
            values.append(value.strip(SPACE))
            numbers.append(number)
        elif row and (found := field_of(row)) and found[0] in RULES:
            values.append(found[1])
            numbers.append(number | ALLOW if found[0] == "allow" else number)


def _sitemaps_of(text: str) -> tuple[str, ...]:
    """Return the values of a normalised *text*'s ``sitemap`` lines, in order."""
    values = []
    for _, _, value in fields_in(_LINES_OF_SITEMAPS.findall("\n" + text)):
        if value:
            values.append(readable_url(value))
    return tuple(values)
