"""The rules of one group, prepared for speed; URL to decision (REP.md section 8).

Three kinds of rules are kept apart, so that no rule is tested in vain:

- plain prefixes (``/dir/``, also ``/dir*``): sorted, each with the longest other prefix that
  it starts with. A bisection and some steps up find the best, however many there are;
- exact paths (``/dir/$``): one look-up in a dictionary;
- wildcards: best rule first, each tested in time linear in the path, until none can win.

A rule is one integer, its key, that compares as the protocol compares rules: by length in
octets, then allow before disallow, then the first line.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.protocol.syntax import escape

if TYPE_CHECKING:
    from collections.abc import Iterable


class Rule(NamedTuple):
    """A line of a robots.txt that decided."""

    line: int
    """Number of the line, counted from 1."""
    pattern: str
    """As written in the file."""
    allow: bool

    def __str__(self) -> str:
        return f"{'Allow' if self.allow else 'Disallow'}: {self.pattern}"


class Decision(NamedTuple):
    """What a robots.txt says about one URL, and why."""

    allowed: bool
    rule: Rule | None
    """The rule that decided. None: no rule matches. As in Google's matcher, an empty rule is
    named where no other matches, though it restricts nothing."""
    agent: str | None
    """The group that applied: a token of the crawler's chain, ``*``, or None for no group."""


# A rule as one number, the largest wins: its length, whether it allows, and its line counted
# from below. 512,000 bytes hold fewer lines than 20 bits count.
ALLOW_BIT = 20
ALLOW = 1 << ALLOW_BIT


def number_of(line: int, allow: bool) -> int:
    """Return a rule's line and kind as one number; the larger of two wins if they are equally
    long: an allow, then the first."""
    return allow << ALLOW_BIT | ALLOW - 1 - line


def line_of(number: int) -> int:
    """Return the line of a number of :func:`number_of`, or of an answer of :meth:`Rules.find`."""
    return ALLOW - 1 - (number & ALLOW - 1)


_HTTP_PATH = re.compile(r"https?://[^/?;#]*([/?;][^#]*)")
_PATH_START = re.compile(r"[/?;]")


def path_of(url: str) -> str:
    """Return what of *url* is compared: path, parameters and query, starting with ``/``.

    Takes anything, in the way of Google's matcher: ``foo.bar/x``, ``//foo.bar/x`` and what is
    no URL at all.
    """
    match = _HTTP_PATH.match(url)  # nearly all URLs; the general way takes four times as long
    if match is not None:
        path = match[1]
        return path if path[0] == "/" else "/" + path
    start = 2 if url.startswith("//") else 0
    first = _PATH_START.search(url, start)
    protocol_end = url.find("://", start)
    # A path, parameter or query that starts before "://" means that it is no scheme's.
    if protocol_end >= 0 and (first is None or first.start() > protocol_end):
        first = _PATH_START.search(url, protocol_end + 3)
    if first is None:
        return "/"
    fragment = url.find("#", start)
    if 0 <= fragment < first.start():
        return "/"
    path = url[first.start() : fragment if fragment >= 0 else None]
    return path if path[0] == "/" else "/" + path


def comparable(path: str) -> str:
    """Return *path* as the matcher wants it: ``%aa`` upper-cased to ``%AA``, what is left of raw
    non-ASCII percent-encoded as UTF-8 (REP.md section 8). For callers with URLs from outside."""
    if path.isascii():
        return escape(path) if "%" in path else path
    return escape(path.encode("utf-8", "surrogatepass").decode("latin-1"))


# Of a rule with a `*` inside: its key; its longest literal part, since one search for that
# refuses most paths; all its literal parts; whether the last one must end the path.
_Wildcard = tuple[int, str, list[str], bool]


def _wildcard(pattern: str, key: int) -> _Wildcard:
    anchored = pattern[-1] == "$"
    literals = (pattern[:-1] if anchored else pattern).split("*")
    # An empty last part is a `*` at the end, before the `$` or without one: not anchored.
    return key, max(literals, key=len), literals, anchored and bool(literals[-1])


def _matches(path: str, literals: list[str], anchored: bool) -> bool:
    """Whether a wildcard rule matches. Each part is taken at the first place where it fits, so
    there is no way back to try, and time is linear in the path."""
    if not path.startswith(literals[0]):
        return False
    position = len(literals[0])
    for literal in literals[1:-1] if anchored else literals[1:]:
        position = path.find(literal, position)
        if position < 0:
            return False
        position += len(literal)
    return not anchored or path.endswith(literals[-1], position)


class Rules:
    """The rules of one group, prepared."""

    __slots__ = ("_best", "_exact", "_fallback", "_parents", "_prefixes", "_wildcards")

    def __init__(self, rules: Iterable[tuple[str, int]]) -> None:
        """:param rules: of each rule its value (latin-1) and its number, see :func:`number_of`"""
        self._exact: dict[str, int] = {}
        # Empty rules and `*` match every path.
        self._fallback = 0
        prefixes: dict[str, int] = {}
        wildcards: dict[str, int] = {}
        for value, number in rules:
            pattern = escape(value) if "%" in value or not value.isascii() else value
            key = (len(pattern) << ALLOW_BIT + 1) + number
            if "*" in pattern or pattern[-1:] == "$" or pattern[:1] != "/":
                self._add(pattern, key, prefixes, wildcards)
            elif key > prefixes.get(pattern, 0):
                prefixes[pattern] = key
            if number & ALLOW and "/index.htm" in pattern:
                slash = pattern.rfind("/")
                if pattern.startswith("/index.htm", slash):
                    # Allowing a directory's index allows the directory itself.
                    directory = pattern[: slash + 1] + "$"
                    key = (len(directory) << ALLOW_BIT + 1) + number
                    self._add(directory, key, prefixes, wildcards)
        self._prefixes = sorted(prefixes)
        self._best = array("q", map(prefixes.__getitem__, self._prefixes))
        self._parents = array("i", [-1]) * len(prefixes)
        # A tenth of the time to prepare: in most files no prefix starts with another, and this
        # tells without a loop in Python. If any does, the one that sorts before it is one.
        if any(map(str.startswith, islice(self._prefixes, 1, None), self._prefixes)):
            self._link()
        self._wildcards = [
            _wildcard(pattern, key)
            for pattern, key in sorted(wildcards.items(), key=itemgetter(1), reverse=True)
        ]

    def _add(
        self, pattern: str, key: int, prefixes: dict[str, int], wildcards: dict[str, int]
    ) -> None:
        """Sort a rule that isn't a plain prefix into its kind."""
        if not pattern:
            self._fallback = max(self._fallback, key)
            return
        if pattern[0] not in "/*":
            return  # compared with paths, which start with a slash: can never match
        anchored = pattern[-1] == "$"
        plain = pattern[:-1] if anchored else pattern
        if plain[-1:] == "*":
            anchored = False
            plain = plain.rstrip("*")
        if not plain:
            self._fallback = max(self._fallback, key)
        elif "*" in plain:
            wildcards[pattern] = max(key, wildcards.get(pattern, 0))
        elif anchored:
            self._exact[plain] = max(key, self._exact.get(plain, 0))
        else:
            prefixes[plain] = max(key, prefixes.get(plain, 0))

    def _link(self) -> None:
        """Give each prefix its parent: the longest other prefix that it starts with. The best
        rule of a prefix takes its ancestors in, since a path that starts with it starts with
        them too."""
        prefixes, best = self._prefixes, self._best
        stack: list[int] = []
        for at, prefix in enumerate(prefixes):
            while stack and not prefix.startswith(prefixes[stack[-1]]):
                stack.pop()
            if stack:
                self._parents[at] = parent = stack[-1]
                best[at] = max(best[at], best[parent])
            stack.append(at)

    def find(self, path: str) -> int:
        """Return the rule that decides about *path* (see :func:`path_of`), 0 for none.

        :func:`allows` and :func:`line_of` read the answer.
        """
        found = self._fallback
        prefixes = self._prefixes
        # The prefix sought is at this place or among its ancestors: whatever sorts between a
        # prefix of the path and the path starts with that prefix.
        at = bisect_right(prefixes, path) - 1
        while at >= 0:
            if path.startswith(prefixes[at]):
                if self._best[at] > found:
                    found = self._best[at]
                break
            at = self._parents[at]
        if path in self._exact and self._exact[path] > found:
            found = self._exact[path]
        for key, needle, literals, anchored in self._wildcards:
            if key < found:
                break
            if needle in path and _matches(path, literals, anchored):
                return key
        return found


def allows(found: int) -> bool:
    """Return whether an answer of :meth:`Rules.find` lets pass. No rule and an empty one do."""
    return bool(found & ALLOW) or found < ALLOW * 2
