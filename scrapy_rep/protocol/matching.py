"""The rules of one group, prepared for speed; URL to decision (REP.md section 8).

Three kinds of rules are kept apart, so that few are tested for each URL:

- plain prefixes (``/dir/``): sorted, a bisection finds the longest;
- exact paths (``/dir/$``): one look-up in a dictionary;
- wildcards: see :mod:`scrapy_rep.protocol.wildcards`.

Inside the package a rule is one integer, its key, that compares as the protocol compares rules: by
length in octets, then allow before disallow, then the first line.
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


ROBOTS_PATH = "/robots.txt"
"""The path that no rule can forbid (RFC 9309, 2.2.2)."""

# A rule's number: a bit for allow, then its line, counted down. Its key: its length in front of
# that. The largest wins. 512,000 bytes hold fewer lines than 20 bits count.
ALLOW_BIT = 20
ALLOW = 1 << ALLOW_BIT
LENGTH_BIT = ALLOW_BIT + 1
SHORTEST = 1 << LENGTH_BIT
"""The smallest key of a rule that restricts. Below it: an empty rule, or 0 for none."""


def line_of(number: int) -> int:
    """Return the line of a rule, from its number or its key."""
    return ALLOW - 1 - (number & ALLOW - 1)


# Bytes of memory beside the text: of all rules together; of each; of an exact path and of a
# wildcard on top of that.
_BYTES, _EACH, _EXACT, _WILDCARD = 400, 61, 40, 85

_HTTP_PATH = re.compile(r"https?://[^/?;#]*([/?;][^#]*)")
_PATH_START = re.compile(r"[/?;]")


def path_of(url: str) -> str:
    """Return the part of *url* that is compared: path, parameters and query, starting with ``/``.

    Takes anything, as Google's matcher does: ``foo.bar/x``, ``//foo.bar/x``, no URL at all.
    """
    match = _HTTP_PATH.match(url)  # nearly all URLs
    if match is not None:
        path = match[1]
        return path if path[0] == "/" else "/" + path
    start = 2 if url.startswith("//") else 0
    first = _PATH_START.search(url, start)
    protocol_end = url.find("://", start)
    # After the start of a path, parameter or query, "://" is not a scheme's.
    if protocol_end >= 0 and (first is None or first.start() > protocol_end):
        first = _PATH_START.search(url, protocol_end + 3)
    if first is None:
        return "/"
    fragment = url.find("#", start)
    if 0 <= fragment < first.start():
        return "/"
    path = url[first.start() : fragment if fragment >= 0 else None]
    return path if path[0] == "/" else "/" + path


def comparable(url: str) -> str:
    """Return *url* (or a path) as the middleware and ``RobotParser`` compare it: ``%aa`` upper-cased
    to ``%AA``, raw non-ASCII percent-encoded as UTF-8 (REP.md section 8).

    For URLs that others have written: ``RobotsTxt.allowed`` and ``decide`` compare as is.
    """
    if url.isascii():
        return escape(url) if "%" in url else url
    return escape(url.encode("utf-8", "surrogatepass").decode("latin-1"))


class Rules:
    """The rules of one group, prepared."""

    __slots__ = ("_exact", "_fallback", "_inner", "_numbers", "_prefixes", "_wildcards", "size")

    def __init__(self, values: list[str], numbers: list[int]) -> None:
        """:param values: of the rules (latin-1)
        :param numbers: of the rules, see ``ALLOW_BIT``
        """
        # What is in none of the values needn't be looked for in each.
        joined = "".join(values)
        if "%" in joined or not joined.isascii():
            values = [
                escape(value) if "%" in value or not value.isascii() else value for value in values
            ]
            joined = "".join(values)
        # Each pattern once; of equal ones the largest number counts.
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
            self._fallback = SHORTEST + rules.pop("/")
        self._exact: dict[str, int] | None = None
        self._wildcards: Wildcards | None = None
        if "*" in joined or "$" in joined or "/index.htm" in joined:
            self._sort_out(rules)
        # No list: the garbage collector visits all strings of a list again and again, which is felt
        # with thousands of origins. A tuple of strings it leaves alone.
        self._prefixes = prefixes = tuple(sorted(rules))
        self._numbers = array("i", map(rules.__getitem__, prefixes))
        # Prefixes that other ones start with: then the next one does.
        pairs = map(str.startswith, islice(prefixes, 1, None), prefixes)
        self._inner = tuple(compress(prefixes, pairs))
        if self._inner:
            self._inner = tuple(sorted(self._inner, key=len, reverse=True))

    def _sort_out(self, rules: dict[str, int]) -> None:
        """Take what isn't a plain prefix out of *rules*."""
        wildcards: list[tuple[int, str]] = []
        exact: dict[str, int] = {}
        for pattern in [one for one in rules if "*" in one or one[-1] == "$"]:
            key = (len(pattern) << LENGTH_BIT) + rules.pop(pattern)
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

    def allows(self, path: str) -> bool:
        """Return whether *path* may be fetched.

        :param path: see :func:`path_of`, and :func:`comparable` if others have written the URL
        """
        found = self._find(path)
        return found < SHORTEST or found & ALLOW > 0 or path == ROBOTS_PATH

    def _find(self, path: str) -> int:
        """Return the key of the rule that decides about *path*, 0 for none. Only for this package:
        :func:`allows`, :func:`line_of` and ``RobotsTxt._decision`` read it."""
        found = self._fallback
        prefixes = self._prefixes
        # All that sorts between a prefix of the path and the path starts with that prefix: the
        # longest prefix is at this place, or what is there starts with it.
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
"""Where no group applies."""


def _add_directories(rules: dict[str, int]) -> None:
    """Allowing a directory's index allows the directory itself."""
    for pattern, number in list(rules.items()):
        slash = pattern.rfind("/")
        if number & ALLOW and pattern.startswith("/index.htm", slash):
            directory = pattern[: slash + 1] + "$"
            rules[directory] = max(number, rules.get(directory, 0))


def allows(found: int) -> bool:
    """Return whether the rule that :meth:`Rules._find` has found allows. No rule and an empty one
    do."""
    return found < SHORTEST or found & ALLOW > 0
