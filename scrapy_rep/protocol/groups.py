"""Splits a file into groups, which are read on demand (REP.md section 7). Which of them applies to an
agent: robotstxt.py."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.protocol.matching import ALLOW, ALLOW_BIT
from scrapy_rep.protocol.syntax import GLOBAL, SPACE, Field, leading_token, read, readable_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    rf"([0-9]{{1,9}})[ \t]*/[ \t]*([0-9]{{1,9}})([smh]?)(?:[ \t]+{_HOURS})?", re.IGNORECASE
)
_VISIT = re.compile(_HOURS)
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_COMMENT = re.compile(r"#[^\n]*")
# Up to so many pieces, looking for runs of rules takes longer than reading each line.
_FEW_PIECES = 3
_LINES_OF_SITEMAPS = re.compile(rf"\n{_BLANKS}([Ss][Ii][Tt][Ee][^\n]*)")


def _agent_token(line: str) -> str | None:
    """Return the token of a ``user-agent`` line, in lower case, or ``*``; None for other lines."""
    for _, _, value in read((line,)):
        if value[:1] == GLOBAL and (len(value) == 1 or value[1] in SPACE):
            return GLOBAL
        return leading_token(value).lower()
    return None


def delay_seconds(value: str) -> float | None:
    """Return a number in decimal notation (REP.md section 12), None for anything else."""
    seconds = float(value) if _NUMBER.fullmatch(value) else math.inf
    return seconds if math.isfinite(seconds) else None


def rate_seconds(value: str) -> float | None:
    """Return the seconds between two pages of a ``request-rate``, None if it can't be read. The hours it
    may name make no difference: at others, nothing says that more is welcome."""
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


# The fields about pace, and what returns their seconds.
_PACE: dict[int, tuple[str, Callable[[str], float | None]]] = {
    Field.CRAWL_DELAY: ("crawl-delay", delay_seconds),
    Field.REQUEST_RATE: ("request-rate", rate_seconds),
    Field.VISIT_TIME: ("visit-time", lambda value: 0.0 if _VISIT.fullmatch(value) else None),
}


class Groups:
    """A file, split at its ``user-agent`` lines. A crawler needs few of the stretches in between."""

    __slots__ = ("_stretches", "tokens")

    def __init__(self, text: str) -> None:
        """:param text: normalised, see :func:`~scrapy_rep.protocol.syntax.normalise`"""
        # The patterns begin each line with a line end.
        pieces = _LINES_OF_AGENTS.split("\n" + text)
        self._stretches = pieces[::3]
        tokens: list[str | None] = [None]
        for at in range(1, len(pieces), 3):
            token = pieces[at]
            tokens.append(token.lower() if token else _agent_token("user" + pieces[at + 1]))
        self.tokens = tokens
        """The token before each stretch of lines. None: the file's start, or another field."""

    def __iter__(self) -> Iterator[tuple[str | None, str]]:
        """Yield the token before each stretch of lines, and the stretch."""
        return zip(self.tokens, self._stretches, strict=True)

    def rules_of(self, token: str) -> tuple[list[str], list[int]]:
        """Return value and number (see ``ALLOW_BIT``) of each rule of *token*'s groups."""
        values: list[str] = []
        numbers: list[int] = []
        line = upto = 0
        for at, name in enumerate(self.tokens):
            if name != token or at < upto:
                continue  # another group, or within one that has been read
            line += at - upto + "".join(self._stretches[upto:at]).count("\n")
            upto = at
            before = len(values)
            # A group ends with the first user-agent line after a rule.
            while upto < len(self.tokens) and (len(values) == before or self.tokens[upto] is None):
                line = 1 + _collect(self._stretches[upto], line, values, numbers)
                upto += 1
        return values, numbers

    def asks_of(self, token: str) -> Iterator[Ask]:
        """Yield what *token*'s groups ask of the pace of a crawl. Here, and only here, such a line ends
        the list of agents above it, as a rule does (REP.md section 12)."""
        named, ended = False, True  # lines before the first group apply to no agent
        asks: list[Ask] = []
        line = 0
        for name, stretch in self:
            if name is not None:
                if ended:
                    yield from asks if named else ()
                    named = ended = False
                    asks = []
                named = named or name == token
            rows = stretch.split("\n")
            for number, field, value in read(rows, line):
                ended = ended or field <= Field.ALLOW or field in _PACE
                if field in _PACE:
                    kind, read_seconds = _PACE[field]
                    if (seconds := read_seconds(value)) is not None:
                        asks.append(Ask(seconds, number, kind, value))
            line += len(rows)
        yield from asks if named else ()


def _collect(stretch: str, line: int, values: list[str], numbers: list[int]) -> int:
    """Append the rules of lines from *line* on. Return the number of the last line."""
    if "#" in stretch:
        stretch = _COMMENT.sub("", stretch)
    # Runs of rules in the usual spelling are taken at once.
    pieces = stretch.split("\nDisallow: ")
    if len(pieces) <= _FEW_PIECES:
        return line - 1 + _collect_rows(stretch.split("\n"), line, values, numbers)
    start = 1
    last = len(pieces) - 1
    for at, piece in enumerate(pieces):
        if "\n" in piece or at == last:
            pieces[at], others, rest = piece.partition("\n")
            run = pieces[start : at + 1]
            start = at + 1
            values += [value.strip(SPACE) for value in run]
            numbers += range(ALLOW - 2 - line, ALLOW - 2 - line - len(run), -1)
            line += len(run)
            if not rest:
                line += len(others)  # a blank line, or none
            else:
                line += _collect_rows(rest.split("\n"), line + 1, values, numbers)
    return line


def _collect_rows(rows: list[str], first: int, values: list[str], numbers: list[int]) -> int:
    """Append the rules of *rows*, the first of which has the number *first*. Return how many rows
    there are."""
    for number, field, value in read(rows, first):
        if field <= Field.ALLOW:
            values.append(value)
            numbers.append(field << ALLOW_BIT | ALLOW - 1 - number)
    return len(rows)


def sitemaps_of(text: str) -> tuple[str, ...]:
    """Return the values of the ``sitemap`` lines of a normalised *text*, in order."""
    found = read(_LINES_OF_SITEMAPS.findall("\n" + text))
    return tuple([readable_url(value) for _, _, value in found if value])
