"""Matches a path against the rules of a group, prepared for speed (REP.md section 8):

- plain prefixes (``/dir/``): sorted, a bisection finds the longest;
- exact paths (``/dir/$``): one dictionary look-up;
- a ``*`` before the end: each match is linear in the path, and nearly all rules are ruled out before:
  those that begin with a path (``/dir/*.css$``), if the URL's path begins otherwise; any rule whose
  longest literal after the first star, the *needle*, is not in the path.

Internally a rule is an integer, its key, ordered as the protocol orders rules: by length in octets,
then allow before disallow, then the first line.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, compress
from typing import NamedTuple

from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.protocol.syntax import SPACE, escape, readable

# In longer paths, first check that all characters of a rule occur.
_LONG = 300


class Wildcards:
    """Rules with wildcards, prepared: those of each start together, the best one first."""

    # In columns: a tuple and a number for each rule would take 100 bytes more.
    __slots__ = ("_anywhere", "_ends", "_keys", "_needles", "_patterns", "_starts")

    def __init__(self, rules: Iterable[tuple[int, str]]) -> None:
        """*rules*: key and pattern of each."""
        found: dict[str, list[tuple[str, int, str]]] = {
            "": []
        }  # by start; "": anywhere
        for key, pattern in sorted(rules, reverse=True):
            start, _, needle = pattern.removesuffix("$").partition("*")
            if "*" in needle:
                needle = max(needle.split("*"), key=len)
            found.setdefault("" if start == "/" else start, []).append(
                (needle, key, pattern)
            )
        rows = [row for some in found.values() for row in some]
        self._needles, keys, self._patterns = zip(*rows)
        self._keys: array[int] = array("q", keys)
        self._starts = tuple(found)[1:]
        self._ends = array("i", accumulate(map(len, found.values())))
        self._anywhere = self._needles[: self._ends[0]]

    def best(self, path: str, found: int) -> int:
        """Return the key of the best rule that matches *path*, or *found* if that is larger."""
        letters = "*$" + "".join(set(path)) if len(path) > _LONG else ""
        for needle in self._anywhere:  # mostly, none is there
            if letters or needle in path:
                first = self._anywhere.index(needle)
                found = self._best_of(first, self._ends[0], path, found, letters)
                break
        if self._starts and path.startswith(self._starts):
            ends = self._ends
            for at, start in enumerate(self._starts):
                if path.startswith(start):
                    found = self._best_of(ends[at], ends[at + 1], path, found, letters)
        return found

    def _best_of(
        self, first: int, end: int, path: str, found: int, letters: str
    ) -> int:
        if self._keys[first] < found:
            return found
        for at, needle in enumerate(self._needles[first:end], first):
            # Characters first: searching a long path for a needle takes time.
            if letters and self._patterns[at].strip(letters):
                continue
            if needle in path and _matches(path, self._patterns[at]):
                return max(found, self._keys[at])
        return found


def _matches(path: str, pattern: str) -> bool:
    """Match each literal at its first place. Linear: there is no backtracking."""
    first, *middle, last = pattern.split("*")
    if not path.startswith(first):
        return False
    position = len(first)
    for literal in middle:
        position = path.find(literal, position)
        if position < 0:
            return False
        position += len(literal)
    if last[-1:] == "$":
        return path.endswith(last[:-1], position)
    return path.find(last, position) >= 0


_BLANKS = str.maketrans(SPACE, " " * len(SPACE))


@dataclass(frozen=True, slots=True)
class Rule:
    """The line of a robots.txt that decided."""

    line: int
    """Counted from 1."""
    pattern: str
    """As written in the file."""
    allow: bool
    text: str = field(default="", compare=False, repr=False)
    """The whole line, without its comment; empty for a rule from no file."""

    def __str__(self) -> str:
        return self.text or f"{'Allow' if self.allow else 'Disallow'}: {self.pattern}"

    @classmethod
    def of(cls, row: str, line: int, value: str, allow: bool) -> Rule:
        """Return the rule in *row*, with its *value*: both as the parser reads them."""
        text = row.partition("#")[0].translate(_BLANKS).strip()
        return cls(line, readable(value), allow, readable(text))


class Decision(NamedTuple):
    """What a robots.txt says about one URL, and why."""

    allowed: bool
    rule: Rule | None
    """The rule that decided, an empty one if no other matches. None: no rule matches."""
    agent: str | None
    """The group that applied: a token of the crawler's chain, ``*``, or None."""


# A rule's number is a bit for allow and its line, counted down; its key is its length and its number.
# The largest wins. Lines take 20 bits, enough for 512,000 bytes.
ALLOW = 1 << 20
LENGTH_BIT = 21
SHORTEST = 1 << LENGTH_BIT
"""The smallest key of a rule that isn't empty. 0 is the key of no rule."""


def line_of(number: int) -> int:
    """Return the line of a rule by its number or key."""
    return ALLOW - 1 - (number & ALLOW - 1)


# Bytes of memory besides the text: once; for each rule; more for an exact path, and for a wildcard.
_BYTES, _EACH, _EXACT, _WILDCARD = 400, 61, 40, 130

# Skips a "//" at the start, what ends in "://", and the host, as Google does: in any text. A look
# ahead keeps the first two from being taken back.
_PATH = re.compile(r"(?://|(?!//))(?:[^/?;#]*://|(?![^/?;#]*://))[^/?;#]*([/?;][^#]*)")


def path_of(url: str) -> str:
    """Return path, parameters and query of *url*, starting with ``/``. Takes any text, as Google's
    matcher does: ``foo.bar/x``, ``//foo.bar/x``, no URL at all."""
    match = _PATH.match(url)
    path = match[1] if match else "/"
    return path if path[0] == "/" else "/" + path


def comparable(url: str) -> str:
    """Return a URL or path as the middleware and ``RobotParser`` compare it: with ``%aa`` as
    ``%AA``, and non-ASCII percent-encoded as UTF-8 (REP.md section 8)."""
    if url.isascii():
        return escape(url) if "%" in url else url
    return escape(url.encode("utf-8", "surrogatepass").decode("latin-1"))


class Rules:
    """The rules of one group, prepared."""

    __slots__ = (
        "_exact",
        "_fallback",
        "_inner",
        "_numbers",
        "_prefixes",
        "_wildcards",
        "size",
    )

    def __init__(self, values: list[str], numbers: list[int]) -> None:
        """*values* are latin-1, with their *numbers* (see ``ALLOW``)."""
        # Searching all values at once is faster than each.
        joined = "".join(values)
        if "%" in joined or not joined.isascii():
            values = [
                escape(value) if "%" in value or not value.isascii() else value
                for value in values
            ]
            joined = "".join(values)
        rules = dict(zip(values, numbers))
        if len(rules) < len(values):  # of equal patterns the largest number counts
            rules = {value: number for number, value in sorted(zip(numbers, values))}
            joined = "".join(rules)
        has_index = "/index.htm" in joined
        if has_index:
            # Allowing a directory's index allows the directory itself.
            for pattern, number in list(rules.items()):
                slash = pattern.rfind("/")
                if number & ALLOW and pattern.startswith("/index.htm", slash):
                    directory = pattern[: slash + 1] + "$"
                    rules[directory] = max(number, rules.get(directory, 0))
        self.size = _BYTES + len(joined) + _EACH * len(rules)
        """Approximate bytes of memory."""
        # Empty rules, `/` and `*` match every path.
        self._fallback = rules.pop("", 0)
        if "/" in rules:
            self._fallback = SHORTEST + rules.pop("/")
        self._exact: dict[str, int] | None = None
        self._wildcards: Wildcards | None = None
        if "*" in joined or "$" in joined or has_index:
            self._sort_out(rules)
        # A tuple, since the garbage collector ignores tuples of strings, but not lists.
        self._prefixes = prefixes = tuple(sorted(rules))
        self._numbers = array("i", map(rules.__getitem__, prefixes))
        # Prefixes of other prefixes: the next in order starts with them, too.
        self._inner: tuple[str, ...] = ()
        if len(prefixes) > 1:
            inner = [*compress(prefixes, map(str.startswith, prefixes[1:], prefixes))]
            if inner:
                self._inner = tuple(sorted(inner, key=len, reverse=True))

    def _sort_out(self, rules: dict[str, int]) -> None:
        wildcards: list[tuple[int, str]] = []
        exact: dict[str, int] = {}
        for pattern in [one for one in rules if "*" in one or one[-1] == "$"]:
            key = (len(pattern) << LENGTH_BIT) + rules.pop(pattern)
            if "*" not in pattern:
                exact[pattern[:-1]] = key
                self.size += _EXACT
            elif pattern.removesuffix("$").rstrip("*") in ("", "/"):
                self._fallback = max(self._fallback, key)
            else:
                wildcards.append((key, pattern))
                self.size += _WILDCARD + len(pattern)
        self._exact = exact or None
        self._wildcards = Wildcards(wildcards) if wildcards else None

    def allows(self, path: str) -> bool:
        """Return whether *path* may be fetched, see :func:`path_of` and :func:`comparable`."""
        found = self.find(path)
        return found < SHORTEST or found & ALLOW > 0 or path == ROBOTS_PATH

    def find(self, path: str) -> int:
        """Return the key of the rule that decides about *path*; 0 for none."""
        found = self._fallback
        prefixes = self._prefixes
        # Whatever sorts between a prefix of the path and the path itself starts with that prefix.
        # So this is the longest one, or starts with it.
        at = bisect_right(prefixes, path) - 1
        if at >= 0:
            prefix = prefixes[at]
            if not path.startswith(prefix):
                prefix = ""
                if self._inner and path.startswith(self._inner):
                    prefix = next(filter(path.startswith, self._inner))
                    at = bisect_left(prefixes, prefix)
            if prefix:
                key = (len(prefix) << LENGTH_BIT) + self._numbers[at]
                if key > found:
                    found = key
        if self._exact is not None and self._exact.get(path, 0) > found:
            found = self._exact[path]
        if self._wildcards is not None:
            found = self._wildcards.best(path, found)
        return found


NO_RULES = Rules([], [])
"""For agents without a group."""


def allows(found: int) -> bool:
    """Return whether the rule with key *found* allows, see :meth:`Rules.find`."""
    return found < SHORTEST or found & ALLOW > 0
