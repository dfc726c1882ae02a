"""The lines of a robots.txt that are about use (REP.md section 11): ``Content-Usage``,
``Content-Signal`` and ``License``. Linear in the file; what they mean is said elsewhere in this
package.

As draft-ietf-aipref-attach-05 (August 2026) has it, ``Content-Usage`` is a rule: a ``user-agent`` line
after it begins a new group. So is ``Content-Signal`` here. Neither changes which pages may be fetched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from scrapy_rep.preferences.aipref import preferences, split_rule
from scrapy_rep.preferences.sources import MAX_LICENSES, signals
from scrapy_rep.preferences.statements import MAX_TEXT, Statement
from scrapy_rep.protocol.groups import Groups
from scrapy_rep.protocol.matching import ALLOW, LENGTH_BIT, SHORTEST, Rules
from scrapy_rep.protocol.syntax import SPACE, normalise, readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_LINES = 250
"""Lines of each kind that are looked at in the groups of one crawler: each page looks at all of them."""

# Bytes of preferences that are parsed: a thousand take a millisecond.
_MAX_PREFERENCES = 50_000

# Lines about use that are read in a file, for any agent: a slow machine has to read them in 50 ms.
_MAX_READ = 5_000

# Of one kind, about one page. More are kept only if they say something new.
_MAX_STATEMENTS = 20

# Bytes of memory for a line, beside its text and path.
_LINE = 900

_FIELD = re.compile(
    r"\n[ \t\v\f]*(content-usage|content-signal|license)[ \t\v\f]*:([^\n]*)",
    re.IGNORECASE | re.ASCII,
)
_RULE = re.compile(
    r"\n[ \t\v\f]*(?:allow|dis{1,2}al{1,2}ow|diasllow|disallaw)"
    r"(?:[^:#\n]*:|[^\s:#]*[ \t]+[^\s:#]+[ \t\v\f]*(?:[#\n]|\Z))",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class RobotsUsage:
    """What a robots.txt says about use, to one crawler."""

    rules: tuple[tuple[Rules | None, Statement], ...] = ()
    """``Content-Usage`` lines; None where no path is given."""
    signals: tuple[Statement, ...] = ()
    """``Content-Signal`` lines: of the crawler's groups, and those before all groups."""
    licenses: tuple[str, ...] = ()
    size: int = 0
    """About how many bytes it takes."""

    def about(self, path: str, *, allowed: bool) -> list[Statement]:
        """Return the statements about *path*: those of the longest matching path, and all signals.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        :param allowed: whether it may be fetched; ``Content-Usage`` says nothing of what may not
        """
        best, found = -1, list[Statement]()
        for rules, statement in self.rules if allowed else ():
            key = SHORTEST if rules is None else rules.find(path)
            length = 0 if rules is None else key >> LENGTH_BIT
            if key < SHORTEST or length < best:
                continue
            if length > best:
                best, found = length, []
            found.append(statement)
        return [*_without_repetitions(found), *_without_repetitions(self.signals)]


def _without_repetitions(statements: Sequence[Statement]) -> list[Statement]:
    kept = list(statements[:_MAX_STATEMENTS])
    said = {pair for one in kept for pair in one.says.items()}
    for one in statements[_MAX_STATEMENTS:]:
        if not said >= one.says.items():
            kept.append(one)
            said |= one.says.items()
    return kept


NOTHING = RobotsUsage()


def fields(stretch: str, number: int = 0) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield number, name (in lower case) and match of each line about use. :func:`value_of` and
    :func:`text_of` take the match: there may be many lines, and few of them matter.

    :param stretch: some normalised lines, each with its line end in front
    :param number: of the line before
    """
    counted = 0
    for match in _FIELD.finditer(stretch):
        number += stretch.count("\n", counted, match.start() + 1)
        counted = match.start() + 1
        yield number, match[1].lower(), match


def value_of(line: re.Match[str]) -> str:
    """Return a line's value, without its comment."""
    return line[2].partition("#")[0].strip(SPACE)


def text_of(line: re.Match[str]) -> str:
    """Return a line for display."""
    return readable(line[0].strip("\n" + SPACE))[:MAX_TEXT]


def read_robots(body: bytes, token: str | None) -> RobotsUsage:
    """Read what *body* says to a crawler: any bytes at all.

    :param token: of the group that applies (in any case), ``*``, or None for none
    :raises ModuleNotFoundError: if the extra ``usage`` is needed and not installed
    """
    lowered = body.lower()
    if not any(name in lowered for name in (b"content-usage", b"content-signal", b"license")):
        return NOTHING
    token = token and token.lower()
    rules: list[tuple[Rules | None, Statement]] = []
    said: list[Statement] = []
    licenses: list[str] = []
    started = named = ended = False
    number = size = 0
    left, room = _MAX_READ, _MAX_PREFERENCES
    for at, (name, stretch) in enumerate(Groups(normalise(body))):
        if at:
            number += 1  # the user-agent line
        if name is not None:
            if ended:
                named = ended = False
            started, named = True, named or name == token
        for line, kind, match in islice(fields(stretch, number), left):
            left -= 1
            if kind == "license":
                if len(licenses) < MAX_LICENSES and (value := value_of(match)):
                    licenses.append(readable(value))
                continue
            ended = True
            if kind == "content-signal" and (named or not started) and len(said) < MAX_LINES:
                text = text_of(match)
                said.append(Statement("robots.txt", line, text, signals(value_of(match))))
            elif kind == "content-usage" and named and len(rules) < MAX_LINES:
                text = text_of(match)
                path, given = split_rule(value_of(match))
                room -= len(given)
                said_here = preferences(given.encode("latin-1")) if room >= 0 else {}
                statement = Statement("robots.txt", line, text, said_here)
                rules.append((Rules([path], [ALLOW - 1 - line]) if path else None, statement))
                size += _LINE + len(text) + len(path)
        ended = ended or (bool(stretch) and _RULE.search(stretch) is not None)
        number += stretch.count("\n")
    size += sum(_LINE + len(one.text) for one in said) + sum(map(len, licenses))
    return RobotsUsage(tuple(rules), tuple(said), tuple(licenses), size)
