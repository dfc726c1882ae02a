"""The rules of one group, prepared for speed; URL to decision (REP.md section 8).

Three kinds of rules are kept apart, so that no rule is tested in vain:

- plain prefixes (``/dir/``): sorted. A bisection finds the longest, however many there are;
- exact paths (``/dir/$``): one look-up in a dictionary;
- wildcards: see :mod:`scrapy_rep.protocol.wildcards`.

A rule is one integer, its key, that compares as the protocol compares rules: by length in
octets, then allow before disallow, then the first line.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from itertools import compress, islice
from typing import NamedTuple

from scrapy_rep.protocol.syntax import escape
from scrapy_rep.protocol.wildcards import Wildcards


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


# A rule's number: whether it allows, and its line counted from below. Its key: its length, in
# front of that. The largest wins: the longest, an allow, then the first. 512,000 bytes hold fewer
# lines than 20 bits count.
ALLOW_BIT = 20
ALLOW = 1 << ALLOW_BIT
LENGTH_BIT = ALLOW_BIT + 1
SHORTEST = 1 << LENGTH_BIT
"""The least key of a rule that restricts: what is below is an empty rule, or 0 for none."""


def line_of(number: int) -> int:
    """Return the line of a rule's number, or of an answer of :meth:`Rules.find`."""
    return ALLOW - 1 - (number & ALLOW - 1)


def key_of(pattern: str, number: int) -> int:
    """Return the key of a rule: as its number, with its length in octets in front."""
    return (len(pattern) << LENGTH_BIT) + number


# What rules take in memory, in bytes, beside their text: all of them together; each; what an exact
# path and a wildcard take more.
_BYTES, _EACH, _EXACT, _WILDCARD = 400, 61, 40, 85

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


class Rules:
    """The rules of one group, prepared."""

    __slots__ = ("_exact", "_fallback", "_inner", "_numbers", "_prefixes", "_wildcards", "size")

    def __init__(self, values: list[str], numbers: list[int]) -> None:
        """:param values: of the rules (latin-1)
        :param numbers: of the rules, see ``ALLOW_BIT``
        """
        # What no value has needn't be looked for in each: a third of the time to prepare.
        joined = "".join(values)
        if "%" in joined or not joined.isascii():
            values = [
                escape(value) if "%" in value or not value.isascii() else value for value in values
            ]
            joined = "".join(values)
        # Each pattern once, and of two that are equal the one with the larger number.
        rules = dict(zip(values, numbers, strict=True))
        if len(rules) < len(values):
            for pattern, number in zip(values, numbers, strict=True):
                if number > rules[pattern]:
                    rules[pattern] = number
            joined = "".join(rules)
        if "/index.htm" in joined:
            _add_directories(rules)
        self.size = _BYTES + len(joined) + _EACH * len(rules)
        """About how many bytes it takes."""
        # Empty rules, `/` and `*` match every path.
        self._fallback = rules.pop("", 0)
        if "/" in rules:
            self._fallback = key_of("/", rules.pop("/"))
        self._exact: dict[str, int] | None = None
        self._wildcards: Wildcards | None = None
        if "*" in joined or "$" in joined or "/index.htm" in joined:
            self._sort_out(rules)
        # No list: the garbage collector looks at each string in a list, again and again. With some
        # thousand origins that is felt, and more than anything else here (a tuple it leaves alone).
        self._prefixes = prefixes = tuple(sorted(rules))
        self._numbers = array("i", map(rules.__getitem__, prefixes))
        # Prefixes that others start with. The next one does, if any does.
        pairs = map(str.startswith, islice(prefixes, 1, None), prefixes)
        self._inner = tuple(compress(prefixes, pairs))
        if self._inner:
            self._inner = tuple(sorted(self._inner, key=len, reverse=True))

    def _sort_out(self, rules: dict[str, int]) -> None:
        """Take what isn't a plain prefix out of *rules*."""
        wildcards: list[tuple[int, str]] = []
        exact: dict[str, int] = {}
        for pattern in [one for one in rules if "*" in one or one[-1] == "$"]:
            key = (len(pattern) << LENGTH_BIT) + rules.pop(pattern)  # key_of(), written out
            if "*" not in pattern:
                exact[pattern[:-1]] = key
            elif pattern.removesuffix("$").rstrip("*") in ("", "/"):
                self._fallback = max(self._fallback, key)
            else:
                wildcards.append((key, pattern))
        self.size += _EXACT * len(exact)
        self.size += sum([_WILDCARD + len(pattern) for _, pattern in wildcards])
        self._exact = exact or None
        self._wildcards = Wildcards(wildcards) if wildcards else None

    def find(self, path: str) -> int:
        """Return the rule that decides about *path* (see :func:`path_of`), 0 for none.

        :func:`allows` and :func:`line_of` read the answer.
        """
        found = self._fallback
        prefixes = self._prefixes
        # What sorts between a prefix of the path and the path starts with that prefix: so either
        # the longest prefix is at this place, or what is there starts with the longest prefix.
        at = bisect_right(prefixes, path) - 1
        if at >= 0:
            prefix = prefixes[at]
            if not path.startswith(prefix):
                prefix = ""
                if self._inner and path.startswith(self._inner):
                    prefix = next(filter(path.startswith, self._inner))
                    at = bisect_left(prefixes, prefix)
            if prefix:
                key = (len(prefix) << LENGTH_BIT) + self._numbers[at]  # key_of(), written out
                if key > found:
                    found = key
        if self._exact is not None and self._exact.get(path, 0) > found:
            found = self._exact[path]
        if self._wildcards is not None:
            found = self._wildcards.best(path, found)
        return found


NO_RULES = Rules([], [])
"""What applies where no group does."""


def _add_directories(rules: dict[str, int]) -> None:
    """Allowing a directory's index allows the directory itself."""
    for pattern, number in list(rules.items()):
        slash = pattern.rfind("/")
        if number & ALLOW and pattern.startswith("/index.htm", slash):
            directory = pattern[: slash + 1] + "$"
            rules[directory] = max(number, rules.get(directory, 0))


def allows(found: int) -> bool:
    """Return whether an answer of :meth:`Rules.find` lets pass. No rule and an empty one do."""
    return found < SHORTEST or found & ALLOW > 0
