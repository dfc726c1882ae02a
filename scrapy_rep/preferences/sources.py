"""Where statements about use are found (REP.md section 11): the lines of a robots.txt, and short vocabularies.

As draft-ietf-aipref-attach-05 (August 2026) has it, ``Content-Usage`` is a rule: a ``user-agent`` line after
it begins a new group. So is ``Content-Signal`` here. Neither changes which pages may be fetched.

- ``Content-Signal``: Cloudflare's Content Signals Policy, September 2025, contentsignals.org;
  draft-romm-aipref-contentsignals-00, October 2025, expired.
- ``noai`` and ``noimageai`` in ``X-Robots-Tag`` and metas: DeviantArt, November 2022; ``noml``: noml.info,
  October 2023. No draft.
- Policy tokens, names in ordinary groups that no crawler sends: ``Google-Extended`` (Google, September
  2023), ``Applebot-Extended`` (Apple, June 2024), ``CCBot``, … No draft: who reads one describes it.
- Licenses: RSL 1.0, Really Simple Licensing, December 2025. Their URLs are reported, never fetched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.preferences.statements import (
    IMAGES,
    INPUT,
    MAX_TEXT,
    NO,
    SEARCH,
    TRAINING,
    YES,
    Statement,
    preferences,
    split_rule,
)
from scrapy_rep.protocol.matching import ALLOW, LENGTH_BIT, SHORTEST, Rules
from scrapy_rep.protocol.robotstxt import Groups
from scrapy_rep.protocol.syntax import GLOBAL, SPACE, normalise, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy_rep.protocol.matching import Decision
    from scrapy_rep.protocol.page import PageRules

SIGNALS = {"search": SEARCH, "ai-input": INPUT, "ai-train": TRAINING}
"""The signals, and our purposes."""

OTHER = frozenset({"use"})
"""Written by Cloudflare too. Restricts nothing: ``use=reference``."""

VALUES = {"yes": YES, "no": NO}

# Of one line. There are three.
_MAX_SIGNALS = 100


class Signal(NamedTuple):
    """One signal of a line, in lower case."""

    name: str
    value: str
    loose: bool
    """Whether there are blanks around the ``=``: other crawlers may not read it then."""


def read_signals(value: str) -> list[Signal]:
    found = []
    for part in value.lower().split(",", _MAX_SIGNALS)[:_MAX_SIGNALS]:
        name, equals, said = part.partition("=")
        loose = bool(equals) and (name[-1:].isspace() or said[:1].isspace())
        if part.strip():
            found.append(Signal(name.strip(), said.strip(), loose))
    return found


def signals(value: str) -> dict[str, str]:
    """Return ``"y"`` or ``"n"`` by purpose. If a signal has both values, ``no`` takes precedence."""
    says: dict[str, str] = {}
    for name, said, _ in read_signals(value):
        if name in SIGNALS and said in VALUES and says.get(SIGNALS[name]) != NO:
            says[SIGNALS[name]] = VALUES[said]
    return says


# noai and noml speak for the images too.
RULES = {"noai": (TRAINING, IMAGES), "noimageai": (IMAGES,), "noml": (TRAINING, IMAGES)}


def page_statements(rules: PageRules) -> list[Statement]:
    return [
        Statement(rule.source, rule.line, rule.name, dict.fromkeys(RULES[rule.name], NO))
        for rule in rules.rules
        if rule.name in RULES
    ]


def token_statement(token: str, decision: Decision, purposes: Iterable[str]) -> Statement | None:
    """Return what robots.txt says to *token*; None for nothing.

    A line that forbids the page says no. A line that allows it says yes only if its group names the
    token: permission for all crawlers says nothing about use.
    """
    rule = decision.rule
    if rule is None or (decision.allowed and decision.agent == GLOBAL):
        return None
    says = dict.fromkeys(purposes, YES if decision.allowed else NO)
    return Statement(f"robots.txt for {token}", rule.line, str(rule)[:MAX_TEXT].rstrip(), says)


MAX_LICENSES = 100
"""Of one page."""

# Bytes of Link headers that are looked at.
_MAX_BYTES = 16 * 1024

_MEDIA_TYPE = "application/rsl+xml"
_LINK = re.compile(r"<([^<>]*)>([^<>]*)")
_LICENSE = re.compile(r";\s*rel\s*=\s*(?:\"(?:[^\"]*[ \t])?license[\" \t]|license\s*(?:[;,]|\Z))")


def link_licenses(values: Sequence[bytes]) -> list[str]:
    text = b",".join(values)[:_MAX_BYTES].decode("latin-1")
    return [
        url.strip()
        for url, parameters in _LINK.findall(text)
        if _MEDIA_TYPE in parameters.lower() and _LICENSE.search(parameters.lower())
    ][:MAX_LICENSES]


MAX_LINES = 250
"""Lines of each kind that are looked at in the groups of one crawler: each page looks at all of them."""

# Bytes of preferences that are parsed: a thousand take a millisecond.
_MAX_PREFERENCES = 50_000

# Lines about use that are read in a file, for any agent: a slow machine has to read them in 50 ms.
_MAX_READ = 5_000

# Of one kind, about one page. More are kept only if they say something new.
_MAX_STATEMENTS = 20

# Bytes of memory for a line, beside its text and rules.
_LINE = 500

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

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        lines = [*(one for _, one in self.rules), *self.signals]
        paths = sum(rules.size for rules, _ in self.rules if rules is not None)
        return paths + sum(_LINE + len(one.text) for one in lines) + sum(map(len, self.licenses))

    def about(self, path: str, *, allowed: bool) -> list[Statement]:
        """Return the statements about *path*: those of the longest matching path, and all signals.

        :param path: see :func:`~scrapy_rep.protocol.comparable`
        :param allowed: whether it may be fetched; if not, ``Content-Usage`` doesn't apply to it
        """
        best, found = -1, list[Statement]()
        for rules, statement in self.rules if allowed else ():
            key = SHORTEST if rules is None else rules.find(path)
            length = -1 if key < SHORTEST else 0 if rules is None else key >> LENGTH_BIT
            if length > best:
                best, found = length, [statement]
            elif length == best >= 0:
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


def fields(stretch: str, number: int = 0) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield number, name (in lower case) and match of each line about use.

    :param stretch: some normalised lines, each with its line end in front
    :param number: of the line before
    """
    counted = 0
    for match in _FIELD.finditer(stretch):
        number += stretch.count("\n", counted, match.start() + 1)
        counted = match.start() + 1
        yield number, match[1].lower(), match


def value_of(line: re.Match[str]) -> str:
    return line[2].partition("#")[0].strip(SPACE)


def read_robots(body: bytes, token: str | None) -> RobotsUsage:
    """Read what *body* says to a crawler: any bytes at all.

    :param token: of the group that applies (in any case), ``*``, or None for none
    :raises ModuleNotFoundError: if the extra ``usage`` is needed and not installed
    """
    rules: list[tuple[Rules | None, Statement]] = []
    signs: list[Statement] = []
    licenses: list[str] = []
    room = _MAX_PREFERENCES
    for line, kind, match in _lines_for(body, token and token.lower()):
        value = value_of(match)
        if kind == "license" and value and len(licenses) < MAX_LICENSES:
            licenses.append(readable(value))
        elif kind == "content-signal" and len(signs) < MAX_LINES:
            signs.append(_statement(line, match, signals(value)))
        elif kind == "content-usage" and len(rules) < MAX_LINES:
            path, given = split_rule(value)
            room -= len(given)
            says = preferences(given.encode("latin-1")) if room >= 0 else {}
            rule = Rules([path], [ALLOW - 1 - line]) if path else None
            rules.append((rule, _statement(line, match, says)))
    return RobotsUsage(tuple(rules), tuple(signs), tuple(licenses))


def _lines_for(body: bytes, token: str | None) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield those of :func:`fields` that are for a crawler (a token in lower case), and licenses."""
    lowered = body.lower()
    if not any(name in lowered for name in (b"content-usage", b"content-signal", b"license")):
        return
    started = named = ended = False
    number, left = 0, _MAX_READ
    for at, (name, stretch) in enumerate(Groups(normalise(body))):
        number += at > 0  # the user-agent line
        if name is not None:
            if ended:
                named = ended = False
            started, named = True, named or name == token
        for line, kind, match in islice(fields(stretch, number), left):
            left -= 1
            ended = ended or kind != "license"
            if named or kind == "license" or (kind == "content-signal" and not started):
                yield line, kind, match
        ended = ended or (bool(stretch) and _RULE.search(stretch) is not None)
        number += stretch.count("\n")


def _statement(line: int, match: re.Match[str], says: dict[str, str]) -> Statement:
    text = readable(match[0].strip("\n" + SPACE))[:MAX_TEXT]
    return Statement("robots.txt", line, text, says)
