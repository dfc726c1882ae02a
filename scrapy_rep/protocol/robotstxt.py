"""Reads a robots.txt: its groups, the one that a crawler obeys, and what that says
(REP.md section 7)."""

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

# When a RobotsTxt remembers the answers to this many agents, it forgets them all, since
# those to ever more agents would fill the memory.
_MAX_ANSWERS = 100
# When all that a RobotsTxt remembers takes this many bytes, it forgets everything, too,
# since agents may have groups of 500 KB each.
_MAX_SIZE = 16_000_000

# Bytes of memory that a sitemap's URL takes beside its text. This and the following
# were measured.
_BYTES_OF_A_SITEMAP = 57
# Bytes that a decision takes, with its rule, beside the rule's texts.
_BYTES_OF_A_DECISION = 460
# Bytes that an answer to an agent takes beside the rules, or a Pace.
_BYTES_OF_AN_ANSWER = 200

_Agent: TypeAlias = "str | tuple[str, ...]"


# Which rules an agent has to obey: the agent; whether it obeys the `*` group; the token
# whose group applies, None if there is none; and its rules. A plain tuple, since it is
# made for each file and unpacked for each request, for both of which a class takes
# longer.
_Answer: TypeAlias = "tuple[_Agent | None, bool | None, str | None, Rules]"

# The answer before anybody has asked.
_NOT_ASKED: _Answer = (None, None, None, NO_RULES)

# Origin and path of nearly all URLs.
_USUAL_URL = re.compile(r"(https?://[^/?;#]*)(/[^#]*)")


class Pace(NamedTuple):
    """What a file asks of a crawl's pace (REP.md section 12). Of several lines the
    slowest counts; None: there is no such line."""

    crawl_delay: Ask | None = None
    slowest: Ask | None = None
    """The slowest of all ``crawl-delay`` and ``request-rate`` lines."""
    visit_time: Ask | None = None


class RobotsTxt:
    """A robots.txt. Build it with :meth:`parse`, or with a function that returns its
    body.

    Lazy: the file is read for each new agent (only the rules of its group are kept),
    for each line that decides, for each group's :meth:`pace`, and each time
    :attr:`sitemaps` is asked for.

    *agent* is always a product token (letters, ``-`` and ``_``), or a sequence of them,
    most specific first: only the first token with a group in this file counts. For an
    empty string, an empty sequence and ``*`` the ``*`` group applies; *obey_global* =
    False ignores that group. A full User-Agent header raises ``ValueError``;
    :func:`~scrapy_rep.protocol.product_token` finds its token.

    Threads may share an instance.
    """

    __slots__ = (
        "_answers",
        "_decisions",
        "_latest_answer",
        "_latest_origin",
        "_paces",
        "_sitemaps",
        "_source",
        "size",
    )

    def __init__(self, source: bytes | Callable[[], bytes]) -> None:
        """*source*: the body, or a function that always returns the same one."""
        self._source = source
        # Most calls are about the same agent as the latest one, and about the same
        # origin.
        self._latest_answer = _NOT_ASKED
        self._latest_origin = ""
        # The tuple is replaced as a whole, so that threads may share a RobotsTxt.
        self._answers: tuple[_Answer, ...] = ()
        # The pace that each group asks for, by the group's token.
        self._paces: dict[str, Pace] | None = None
        # What rules have decided, by their keys (matching.py), for the group that asked
        # first.
        self._decisions: dict[int, Decision] | None = None
        self._sitemaps: tuple[str, ...] | None = None
        self.size = 0
        """Approximate bytes of memory, without the source."""

    @classmethod
    def parse(cls, body: bytes | bytearray | memoryview | str) -> RobotsTxt:
        """Keep up to 512,000 bytes of any *body*, and one more, which tells whether the
        last line is whole. A text is read as UTF-8. It is better to pass the bytes as
        received, since decoding may lose some of them.

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
        """Read *body* once for *agent*'s rules, the sitemaps and, *with_delay*, its
        :meth:`pace`, and remember them."""
        text = normalise(body)
        groups = Groups(text)
        if self._sitemaps is None:
            rows = _LINES_OF_SITEMAPS.findall("\n" + text)
            self._sitemaps = _sitemaps_in(rows) if rows else ()
            self.size += _BYTES_OF_A_SITEMAP * len(self._sitemaps)
            self.size += sum(map(len, self._sitemaps))
        # These two methods remember what they return.
        self.rules(agent, obey_global, groups)
        if with_delay:
            self.pace(agent, obey_global, groups)

    def is_read(self, agent: str | Sequence[str], obey_global: bool = True) -> bool:
        """Return whether *agent*'s rules are remembered, so that the file needn't be
        read for them."""
        if not self._answers:  # of a file that has just been fetched
            return False
        return self._answer_to(agent, obey_global) is not None

    def _answer_to(
        self, agent: str | Sequence[str], obey_global: bool
    ) -> _Answer | None:
        """Return the answer that is remembered; None if there is none."""
        if not isinstance(agent, str):
            agent = tuple(agent)
        for answer in self._answers:
            asking_agent, obeyed_global, _, _ = answer
            if asking_agent == agent and obeyed_global == obey_global:
                return answer
        return None

    def allowed(
        self, url: str, agent: str | Sequence[str], *, obey_global: bool = True
    ) -> bool:
        """Return whether *agent* may fetch *url*. Arguments as for :meth:`decide`."""
        # This runs for each request. So the beginnings of rules() and Rules.allows()
        # are repeated here, and path_of() is left to unusual URLs.
        latest_agent, latest_obey_global, _, rules = self._latest_answer
        if agent != latest_agent or obey_global is not latest_obey_global:
            _, rules = self.rules(agent, obey_global)
        path = url.removeprefix(self._latest_origin)
        if path[:1] != "/" or path == url or "#" in path:
            # Another origin, or what follows it is not just a path.
            usual = _USUAL_URL.match(url)
            if usual is None:
                path = path_of(url)
            else:
                self._latest_origin, path = usual.groups()
        key = rules.find(path)
        return key < SHORTEST or key & ALLOW > 0 or path == ROBOTS_PATH

    def decide(
        self, url: str, agent: str | Sequence[str], *, obey_global: bool = True
    ) -> Decision:
        """Return whether *agent* may fetch *url*, and which line says so (REP.md
        sections 7, 8). ``/robots.txt`` is always allowed.

        Compares *url* as it is, as Google's matcher does. For URLs from outside, pass
        ``comparable(url)``, which is what the middleware and ``RobotParser`` compare.

        :param url: absolute and percent-encoded, or a path; other text is read as
            Google does
        :raises ValueError: if *agent* is not a product token
        """
        token, rules = self.rules(agent, obey_global)
        path = path_of(url)
        decision = self.decision(token, rules.find(path))
        if path == ROBOTS_PATH and not decision.allowed:
            return Decision(True, None, token)
        return decision

    def rules(
        self,
        agent: str | Sequence[str],
        obey_global: bool = True,
        groups: Groups | None = None,
    ) -> tuple[str | None, Rules]:
        """Return *agent*'s group (a token of the chain, ``*`` or None) and its rules,
        and remember them. *groups*: those of the file, if it has just been read."""
        latest_agent, latest_obey_global, token, rules = self._latest_answer
        if agent == latest_agent and obey_global is latest_obey_global:
            return token, rules
        answer = None
        if self._answers:  # most files are read for one agent, and need no search
            answer = self._answer_to(agent, obey_global)
        if answer is None:
            asking_agent = agent if isinstance(agent, str) else tuple(agent)
            if groups is None:
                groups = Groups(self._text())
            answer = self._read_for(asking_agent, obey_global, groups)
        self._latest_answer = answer
        _, _, token, rules = answer
        return token, rules

    def _read_for(self, agent: _Agent, obey_global: bool, groups: Groups) -> _Answer:
        """Return the answer to an agent that hasn't asked yet, and remember it."""
        if len(self._answers) >= _MAX_ANSWERS or self.size > _MAX_SIZE:
            self._forget()
        group_token = None
        for token in obeyed(agent, obey_global):
            if token.lower() in groups.tokens:
                group_token = token
                break
        rules = NO_RULES
        if group_token is not None:
            # Thousands of rules take 50 ms, so agents of one group share theirs.
            for _, _, known_token, known_rules in self._answers:
                if known_token == group_token:
                    rules = known_rules
                    break
            else:
                rules = Rules(*groups.rules_of(group_token.lower()))
                self.size += rules.size
        answer: _Answer = (agent, obey_global, group_token, rules)
        self._answers += (answer,)
        self.size += _BYTES_OF_AN_ANSWER
        return answer

    def _forget(self) -> None:
        """Forget all that can be read again."""
        self._answers = ()
        self._paces = None
        self._decisions = None
        self._sitemaps = None
        self.size = 0

    def decision(self, token: str | None, key: int) -> Decision:
        """Return the decision for the group of *token*, given the *key* that
        :meth:`Rules.find` has returned."""
        if not key:  # no rule matches
            return Decision(True, None, token)
        if self._decisions is None:
            self._decisions = {}
        # A local name, since another thread may reset the attribute.
        decisions = self._decisions
        decision = decisions.get(key)
        if decision is None:
            line = line_of(key)
            rows = self._text().split("\n", line)
            row = rows[line - 1]
            field, value = field_of(row)  # type: ignore[misc]  # this line has been read before
            rule = Rule.of(row, line, value, field == "allow")
            decision = Decision(allows(key), rule, token)
            decisions[key] = decision
            self.size += _BYTES_OF_A_DECISION
            self.size += len(rule.pattern) + len(rule.text)
        elif decision.agent != token:  # one line may be in the groups of several agents
            return decision._replace(agent=token)
        return decision

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The values of the ``sitemap`` lines, as written, in order (REP.md section
        9)."""
        if self._sitemaps is not None:
            return self._sitemaps
        return _sitemaps_in(_LINES_OF_SITEMAPS.findall("\n" + self._text()))

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups, in order, each with its agents and rules (REP.md section 7).
        Reads the file."""
        return tuple(Outline.of(self._body()).groups)

    @property
    def clean_params(self) -> tuple[CleanParam, ...]:
        """The ``clean-param`` lines, in order. Reads the file."""
        return clean_params_of(self._text())

    def crawl_delay(
        self, agent: str | Sequence[str], *, obey_global: bool = True
    ) -> float | None:
        """Return the ``crawl-delay`` for *agent* in seconds, None without one. The
        largest counts. This field is not part of the protocol, and Google ignores it.

        :raises ValueError: if *agent* is not a product token
        """
        delay = self.pace(agent, obey_global).crawl_delay
        return None if delay is None else delay.seconds

    def pace(
        self,
        agent: str | Sequence[str],
        obey_global: bool = True,
        groups: Groups | None = None,
    ) -> Pace:
        """Return :meth:`crawl_delay` and what else the file asks of a crawl's pace,
        each with its line. *groups* spares reading the file."""
        token, _ = self.rules(agent, obey_global)
        if token is None:
            return Pace()
        if self._paces is None:
            self._paces = {}
        # A local name, since another thread may reset the attribute.
        paces = self._paces
        if token not in paces:
            if groups is None:
                groups = Groups(self._text())
            paces[token] = groups.pace_of(token.lower())
            self.size += _BYTES_OF_AN_ANSWER
        return paces[token]

    def _body(self) -> bytes:
        source = self._source
        return source if isinstance(source, bytes) else source()

    def _text(self) -> str:
        return normalise(self._body())


# Blanks before a field. Possessive from Python 3.11 on, since HTML has many indented
# lines, and going back over the blanks of each would take time.
_INDENT = r"[ \t\v\f]*+" if sys.version_info >= (3, 11) else r"[ \t\v\f]*"
# A line that may be a user-agent line. Group 1: its token, if it is written as usual.
# Group 2: if it isn't, all that follows "user". _unusual_token() tells whether that is
# such a line or another field.
_LINES_OF_AGENTS = re.compile(
    rf"\n{_INDENT}[Uu][Ss][Ee][Rr]"
    r"(?:-[Aa]gent: ?([a-zA-Z_-]+|\*(?=[ \t\v\f\n#]|\Z))[^\n]*|([^\n]*))"
)
# Seconds of a crawl-delay: "10", "0.5", "5.", ".5".
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
# Hours such as "0600-0845".
_HOURS = r"[0-9]{4}[ \t]*-[ \t]*[0-9]{4}"
# "1/10" is a page in ten seconds, "60/1h" sixty in an hour; "1/10 0600-0845" at those
# hours alone.
_RATE = re.compile(
    r"(?P<pages>[0-9]{1,9})[ \t]*/[ \t]*(?P<time>[0-9]{1,9})(?P<unit>[smh]?)"
    rf"(?:[ \t]+{_HOURS})?",
    re.IGNORECASE,
)
_VISIT = re.compile(_HOURS)
_SECONDS_OF_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600}
_LINE_COMMENT = re.compile(r"#[^\n]*")
# A line that may be a sitemap line. Group 1: the line without its indent.
_LINES_OF_SITEMAPS = re.compile(rf"\n{_INDENT}([Ss][Ii][Tt][Ee][^\n]*)")


def delay_seconds(value: str) -> float | None:
    """Return the seconds of a ``crawl-delay`` (REP.md section 12); None if *value*
    isn't a number in decimal notation."""
    if _DECIMAL.fullmatch(value) is None:
        return None
    seconds = float(value)  # infinite if it has hundreds of digits
    return seconds if math.isfinite(seconds) else None


def rate_seconds(value: str) -> float | None:
    """Return the seconds between two pages of a ``request-rate``; None if it can't be
    read. Hours in it make no difference, since nothing says that more is welcome at
    other times."""
    rate = _RATE.fullmatch(value)
    if rate is None:
        return None
    pages = int(rate["pages"])
    if not pages:
        return None
    unit = rate["unit"].lower()
    seconds = int(rate["time"]) * _SECONDS_OF_UNIT[unit]
    return seconds / pages


def _visit_time_seconds(value: str) -> float | None:
    """Return 0, since a ``visit-time`` has hours and no pause; None if it can't be
    read."""
    return None if _VISIT.fullmatch(value) is None else 0.0


class Ask(NamedTuple):
    """A line about the pace of a crawl (REP.md section 12)."""

    seconds: float
    """The pause between two requests; 0 for a ``visit-time``."""
    line: int
    field: str
    """``crawl-delay``, ``request-rate`` or ``visit-time``."""
    value: str


# The fields about pace, and what reads the seconds in their values.
_PACE: dict[str, Callable[[str], float | None]] = {
    "crawl-delay": delay_seconds,
    "request-rate": rate_seconds,
    "visit-time": _visit_time_seconds,
}


class Groups:
    """A file, split at its ``user-agent`` lines. What stands between two of them is a
    *stretch*. A crawler needs only a few stretches."""

    __slots__ = ("_stretches", "tokens")

    def __init__(self, text: str) -> None:
        """*text* is normalised, see :func:`~scrapy_rep.protocol.syntax.normalise`."""
        # The pattern begins each line with a line end, so the first line needs one,
        # too. The pieces are: stretch, group 1, group 2, stretch, group 1, group 2, …
        # (see _LINES_OF_AGENTS).
        pieces = _LINES_OF_AGENTS.split("\n" + text)
        self._stretches = pieces[::3]
        usual_tokens = pieces[1::3]
        unusual_lines = pieces[2::3]
        tokens: list[str | None] = [None]
        for usual_token, after_user in zip(usual_tokens, unusual_lines):
            if usual_token:
                tokens.append(usual_token.lower())
            else:
                tokens.append(_unusual_token(f"user{after_user}"))
        self.tokens = tokens
        """The token before each stretch of lines. None: the file's start, or another
        field."""

    def __iter__(self) -> Iterator[tuple[str | None, str]]:
        """Yield each stretch, after the token before it (see :attr:`tokens`)."""
        return zip(self.tokens, self._stretches, strict=True)

    def rules_of(self, token: str) -> tuple[list[str], list[int]]:
        """Return the values and the numbers (see ``ALLOW`` in matching.py) of the rules
        of *token*'s groups."""
        values: list[str] = []
        numbers: list[int] = []
        is_in_group = False
        # How many rules there were when the token was last named.
        rules_before = 0
        # The number of the user-agent line before the stretch.
        agent_line = 0
        for name, stretch in zip(self.tokens, self._stretches):
            if name == token:
                is_in_group = True
                rules_before = len(values)
            elif name is not None and len(values) > rules_before:
                # A group ends with the first user-agent line after a rule.
                is_in_group = False
            first_line = agent_line
            agent_line += stretch.count("\n") + 1
            if not is_in_group:
                continue
            if "#" in stretch:
                stretch = _LINE_COMMENT.sub("", stretch)
            # A rule's number is its line, counted down from ALLOW - 1 (matching.py).
            # The first row is the rest of the user-agent line, which is empty.
            countdown = range(ALLOW - 1 - first_line, 0, -1)
            for number, row in zip(countdown, stretch.split("\n")):
                # Nine of ten rules are written so, which spares them field_of().
                value = row.removeprefix("Disallow: ")
                if value != row:
                    values.append(value.strip(SPACE))
                    numbers.append(number)
                    continue
                field_and_value = field_of(row) if row else None
                if field_and_value is None:
                    continue
                field, value = field_and_value
                if field in RULES:
                    if field == "allow":
                        number |= ALLOW
                    values.append(value)
                    numbers.append(number)
        return values, numbers

    def pace_of(self, token: str) -> Pace:
        """Return what *token*'s groups ask of a crawl's pace. For this purpose only, a
        line about pace ends the list of agents above it, as a rule does (REP.md section
        12)."""
        asks: list[Ask] = []
        # Lines before the first user-agent line apply to no agent.
        is_in_group = False
        # Whether the list of agents has ended, so that the next user-agent line begins
        # another group.
        has_ended = False
        # The number of the user-agent line before the stretch.
        agent_line = 0
        for name, stretch in self:
            if name is not None:
                is_in_group = name == token or (is_in_group and not has_ended)
                has_ended = False
            if is_in_group:
                rows = stretch.split("\n")
                for number, field, value in fields_in(rows, agent_line):
                    if field in RULES:
                        has_ended = True
                    elif field in _PACE:
                        has_ended = True
                        seconds = _PACE[field](value)
                        if seconds is not None:
                            asks.append(Ask(seconds, number, field, value))
            agent_line += stretch.count("\n") + 1
        asks.sort(key=_slowest_first)
        return Pace(
            crawl_delay=_first_of(asks, "crawl-delay"),
            slowest=_first_of(asks, "crawl-delay", "request-rate"),
            visit_time=_first_of(asks, "visit-time"),
        )


def _slowest_first(ask: Ask) -> tuple[float, int]:
    """Return what to sort by: the slowest comes first; of equals, the first line."""
    return -ask.seconds, ask.line


def _first_of(asks: list[Ask], *fields: str) -> Ask | None:
    for ask in asks:
        if ask.field in fields:
            return ask
    return None


def _unusual_token(row: str) -> str | None:
    """Return the token of a line that begins with "user"; None for another field."""
    field_and_value = field_of(row)
    if field_and_value is None:
        return None
    # Of the fields, only user-agent begins with "user".
    _, value = field_and_value
    return agent_token(value)


def _sitemaps_in(rows: list[str]) -> tuple[str, ...]:
    """Return the values of those of *rows*, lines that :data:`_LINES_OF_SITEMAPS` has
    found, that are ``sitemap`` lines, in order."""
    urls = []
    for _, _, value in fields_in(rows):
        if value:
            urls.append(readable_url(value))
    return tuple(urls)
