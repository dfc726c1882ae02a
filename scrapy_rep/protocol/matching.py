"""Matches a path against the rules of a group, prepared for speed (REP.md section 8):

- plain prefixes (``/dir/``): sorted, a bisection finds the longest;
- exact paths (``/dir/$``): one dictionary look-up;
- rules with a ``*`` (``/dir/*.css$``): two checks rule out nearly all of them. The path
  must begin as the rule does (``/dir/``), and must contain the rule's *needle*, which
  is the longest literal after its first star. Matching the others takes linear time.

Internally a rule is an integer, its *key*. Of several rules that match, the one with
the largest key wins.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, chain, compress
from typing import NamedTuple, TypeAlias

from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.protocol.syntax import SPACE, escape, readable

# The parts of a rule's key, from the highest bits to the lowest:
#
#     length of the pattern in octets | 1 for allow, 0 for disallow | 2**20 - 1 - line
#
# So the largest key is that of the longest rule; of equally long ones, of an allow; of
# these, of the first line. The two parts below the length are the rule's *number*. 20
# bits suffice for the lines of 512,000 bytes.
ALLOW = 1 << 20
"""The bit of a number or key that is set for an allow."""
LENGTH_BIT = 21
"""The position in a key of the lowest bit of the length."""
SHORTEST = 1 << LENGTH_BIT
"""The smallest key of a rule that isn't empty. 0 is the key of no rule."""


def disallow_number(line: int) -> int:
    """Return the number of a disallow rule in this *line*. With the bit ALLOW set, it
    is the number of an allow."""
    return ALLOW - 1 - line


def line_of(number: int) -> int:
    """Return the line of a rule by its number or key."""
    lowest_bits = number & (ALLOW - 1)
    return ALLOW - 1 - lowest_bits


# If a path has more characters, searching it for each rule's needle takes long. So we
# first look whether the path has all characters of the rule at all.
_LONG_PATH = 300


# Needle (see the module's docstring), key and pattern of a rule.
_Row: TypeAlias = "tuple[str, int, str]"


class Wildcards:
    """Rules with wildcards, prepared: those of each start together, the best one first.

    A rule's *start* is the text before its first star. The rules are rows of a table:
    row *i* has its key in ``_keys[i]``, its pattern in ``_patterns[i]`` and its needle
    in ``_needles[i]``. First come the rules for any path, whose start is empty or "/";
    then those of ``_starts[0]``, of ``_starts[1]`` and so on. ``_ends`` has the row
    after the last one of each of these blocks.
    """

    # The table consists of columns: a tuple and a number for each rule would take 100
    # bytes more.
    __slots__ = ("_anywhere", "_ends", "_keys", "_needles", "_patterns", "_starts")

    def __init__(self, rules: Iterable[tuple[int, str]]) -> None:
        """*rules*: key and pattern of each."""
        any_path = ""
        blocks: dict[str, list[_Row]] = {any_path: []}
        for key, pattern in sorted(rules, reverse=True):
            text = pattern.removesuffix("$")
            start, _, needle = text.partition("*")
            # The needle is the longest text between stars. A path without it can't
            # match.
            if "*" in needle:
                needle = max(needle.split("*"), key=len)
            if start == "/":  # as all paths begin
                start = any_path
            block = blocks.setdefault(start, [])
            block.append((needle, key, pattern))
        rows = chain.from_iterable(blocks.values())
        needles, keys, patterns = zip(*rows)
        self._needles: tuple[str, ...] = needles
        self._patterns: tuple[str, ...] = patterns
        self._keys: array[int] = array("q", keys)
        self._starts = tuple(blocks)[1:]  # without any_path, which is the first
        lengths = map(len, blocks.values())
        self._ends = array("i", accumulate(lengths))
        # The needles of the first block, that of the rules for any path.
        first_end = self._ends[0]
        self._anywhere = self._needles[:first_end]

    def best(self, path: str, best_key: int) -> int:
        """Return the key of the best rule that matches *path*, or *best_key* if that is
        larger."""
        # The characters of a long path. Stripping these from a pattern leaves nothing
        # if the path has all characters of the pattern.
        letters = ""
        if len(path) > _LONG_PATH:
            letters = "*$" + "".join(set(path))
        # The needles of the rules for any path have a loop of their own, since mostly
        # none of these needles is in the path. For a long path the loop only starts
        # _best_of(), which looks at the characters before it searches.
        for needle in self._anywhere:
            if letters or needle in path:
                first = self._anywhere.index(needle)
                best_key = self._best_of(first, self._ends[0], path, best_key, letters)
                break
        if self._starts and path.startswith(self._starts):
            ends = self._ends
            for block, start in enumerate(self._starts):
                if path.startswith(start):
                    first = ends[block]
                    end = ends[block + 1]
                    best_key = self._best_of(first, end, path, best_key, letters)
        return best_key

    def _best_of(
        self, first: int, end: int, path: str, best_key: int, letters: str
    ) -> int:
        """Do what :meth:`best` does, with the rules from row *first* to the one before
        *end*, which are of one block. *letters*: all characters of a long path, and
        "*$"; a pattern with any other character can't match. Empty for a short path."""
        if self._keys[first] < best_key:  # the rows after it have smaller keys still
            return best_key
        needles = self._needles[first:end]
        for row, needle in enumerate(needles, first):
            # The pattern is looked up late, since mostly its needle isn't in the path.
            if letters and self._patterns[row].strip(letters):
                continue
            if needle in path and _matches(path, self._patterns[row]):
                return max(best_key, self._keys[row])
        return best_key


def _matches(path: str, pattern: str) -> bool:
    """Return whether *path* matches a *pattern* with a star. Each literal is taken
    where it first occurs after the one before. So there is no backtracking, and the
    time is linear."""
    first, *middle, last = pattern.split("*")
    if not path.startswith(first):
        return False
    position = len(first)
    for literal in middle:
        position = path.find(literal, position)
        if position < 0:
            return False
        position += len(literal)
    if last[-1:] == "$":  # the pattern ends where the path does
        return path.endswith(last[:-1], position)
    return path.find(last, position) >= 0


# Tabs and the like in a rule's line become blanks when it is shown.
_AS_BLANKS = str.maketrans(dict.fromkeys(SPACE, " "))


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
        if self.text:
            return self.text
        name = "Allow" if self.allow else "Disallow"
        return f"{name}: {self.pattern}"

    @classmethod
    def of(cls, row: str, line: int, value: str, allow: bool) -> Rule:
        """Return the rule in *row*, the text of line number *line*. *row* and the
        rule's *value* are latin-1, as syntax.py reads them; the rule has them as their
        author wrote them."""
        without_comment = row.partition("#")[0]
        text = without_comment.translate(_AS_BLANKS).strip()
        return cls(line, readable(value), allow, readable(text))


class Decision(NamedTuple):
    """What a robots.txt says about one URL, and why."""

    allowed: bool
    rule: Rule | None
    """The rule that decided, an empty one if no other matches. None: no rule
    matches."""
    agent: str | None
    """The group that applied: one of the crawler's product tokens, or ``*``; None if no
    group applied."""


# Bytes of memory that a Rules takes even if it is empty. These four numbers of bytes
# were measured.
_BYTES_OF_RULES = 400
# Bytes that each rule takes besides its text.
_BYTES_OF_A_RULE = 61
# Bytes that an exact path takes beyond those of a rule.
_BYTES_OF_AN_EXACT_PATH = 40
# Bytes that a rule with wildcards takes beyond those of a rule.
_BYTES_OF_A_WILDCARD = 130

# Skips what Google skips, in any text: a "//" at the start, then what ends in "://",
# then the host. Lookaheads keep the pattern from going back behind a "//" or "://" that
# it has skipped. Group 1: what follows, without the fragment.
_URL_AND_PATH = re.compile(
    r"(?://|(?!//))(?:[^/?;#]*://|(?![^/?;#]*://))[^/?;#]*([/?;][^#]*)"
)


def path_of(url: str) -> str:
    """Return path, parameters and query of *url*, starting with ``/``. Takes any text,
    as Google's matcher does: ``foo.bar/x``, ``//foo.bar/x``, no URL at all."""
    match = _URL_AND_PATH.match(url)
    if match is None:
        return "/"
    path = match[1]
    # Parameters or a query may follow the host directly.
    if path[0] != "/":
        path = f"/{path}"
    return path


def comparable(url: str) -> str:
    """Return a URL or path as the middleware and ``RobotParser`` compare it: with
    ``%aa`` as ``%AA``, and non-ASCII percent-encoded as UTF-8 (REP.md section 8)."""
    if url.isascii():
        return escape(url) if "%" in url else url
    utf8 = url.encode("utf-8", "surrogatepass")
    return escape(utf8.decode("latin-1"))


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

    def __init__(self, patterns: list[str], numbers: list[int]) -> None:
        """*patterns* are latin-1 and not escaped. *numbers* (see ``ALLOW``) are theirs,
        in the same order."""
        # To search all patterns at once, joined, is faster than to search each pattern.
        joined = "".join(patterns)
        if "%" in joined or not joined.isascii():
            patterns = _escaped(patterns)
            joined = "".join(patterns)
        # The number of each rule, by its pattern.
        rules = dict(zip(patterns, numbers))
        if len(rules) < len(patterns):
            # Of equal patterns the largest number counts. As the last one it replaces
            # the others.
            by_number = sorted(zip(numbers, patterns))
            rules = {pattern: number for number, pattern in by_number}
            joined = "".join(rules)
        has_index = "/index.htm" in joined
        if has_index:
            _allow_directories_of_indexes(rules)
        self.size = _BYTES_OF_RULES + len(joined)
        """Approximate bytes of memory that the rules take."""
        self.size += _BYTES_OF_A_RULE * len(rules)
        # The key of the best rule that matches every path: an empty one, which has the
        # length 0; "/", which has the length 1; or one of only stars.
        self._fallback = rules.pop("", 0)
        if "/" in rules:
            self._fallback = SHORTEST + rules.pop("/")
        # The keys of exact paths, and the rules with stars; None if there are none.
        self._exact: dict[str, int] | None = None
        self._wildcards: Wildcards | None = None
        if "*" in joined or "$" in joined or has_index:
            self._take_special(rules)
        # The rules that remain are plain prefixes. They are in a tuple, since the
        # garbage collector ignores tuples of strings, but not lists.
        prefixes = tuple(sorted(rules))
        self._prefixes = prefixes
        numbers_of_prefixes = map(rules.__getitem__, prefixes)
        self._numbers = array("i", numbers_of_prefixes)
        # The prefixes with which other prefixes begin, longest first.
        self._inner: tuple[str, ...] = ()
        if len(prefixes) > 1:
            self._inner = _inner_prefixes(prefixes)

    def _take_special(self, rules: dict[str, int]) -> None:
        """Move the rules with ``*`` or a final ``$`` from *rules* (pattern to number)
        to where they are looked up. What stays are plain prefixes."""
        wildcards: list[tuple[int, str]] = []
        exact: dict[str, int] = {}
        # No pattern is empty any more: see `_fallback`.
        special = [pattern for pattern in rules if "*" in pattern or pattern[-1] == "$"]
        for pattern in special:
            number = rules.pop(pattern)
            key = (len(pattern) << LENGTH_BIT) + number
            if "*" not in pattern:
                path = pattern[:-1]  # without the "$"
                exact[path] = key
                self.size += _BYTES_OF_AN_EXACT_PATH
            elif _matches_everything(pattern):
                self._fallback = max(self._fallback, key)
            else:
                wildcards.append((key, pattern))
                self.size += _BYTES_OF_A_WILDCARD + len(pattern)
        if exact:
            self._exact = exact
        if wildcards:
            self._wildcards = Wildcards(wildcards)

    def allows(self, path: str) -> bool:
        """Return whether *path* may be fetched: that of a URL, as :func:`path_of` and
        :func:`comparable` return it."""
        key = self.find(path)
        # This line does what the function allows(key) does, without the call, since it
        # runs for each request.
        return key < SHORTEST or key & ALLOW > 0 or path == ROBOTS_PATH

    def find(self, path: str) -> int:
        """Return the key of the rule that decides about *path*; 0 for none."""
        best_key = self._fallback
        prefixes = self._prefixes
        # Whatever sorts between a prefix of the path and the path itself starts with
        # that prefix. So the last of the rules' prefixes that sorts before the path is
        # the longest prefix of the path, or starts with it.
        index = bisect_right(prefixes, path) - 1
        if index >= 0:
            prefix = prefixes[index]
            if not path.startswith(prefix):
                # Then the longest prefix of the path is a prefix of *prefix*, too.
                prefix = ""
                if self._inner and path.startswith(self._inner):
                    prefix = next(filter(path.startswith, self._inner))
                    index = bisect_left(prefixes, prefix)
            if prefix:
                key = (len(prefix) << LENGTH_BIT) + self._numbers[index]
                if key > best_key:
                    best_key = key
        if self._exact is not None:
            key = self._exact.get(path, 0)
            if key > best_key:
                best_key = key
        if self._wildcards is not None:
            best_key = self._wildcards.best(path, best_key)
        return best_key


def _escaped(patterns: list[str]) -> list[str]:
    """Return *patterns* as :func:`~scrapy_rep.protocol.syntax.escape` returns each.
    Most patterns would be returned as they are, so that function isn't called for
    these."""
    return [
        escape(pattern) if "%" in pattern or not pattern.isascii() else pattern
        for pattern in patterns
    ]


def _matches_everything(pattern: str) -> bool:
    """Return whether a *pattern* with a star matches every path, as ``*``, ``/*`` and
    ``/**$`` do."""
    text = pattern.removesuffix("$")
    return text.rstrip("*") in ("", "/")


def _inner_prefixes(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of the sorted *prefixes* are prefixes of others, longest first. In
    sorted order, such a prefix is directly followed by one that begins with it."""
    following = prefixes[1:]
    # This is done without a loop, since there may be thousands of prefixes.
    begins_with_it = map(str.startswith, following, prefixes)
    inner = list(compress(prefixes, begins_with_it))
    if not inner:
        return ()
    inner.sort(key=len, reverse=True)
    return tuple(inner)


def _allow_directories_of_indexes(rules: dict[str, int]) -> None:
    """Add to *rules* (pattern to number) what Google reads out of an allow for
    "/dir/index.html": that "/dir/" itself is allowed, too."""
    for pattern, number in list(rules.items()):
        slash = pattern.rfind("/")
        if number & ALLOW and pattern.startswith("/index.htm", slash):
            directory = pattern[: slash + 1] + "$"
            # There may be a rule for the directory itself.
            own_number = rules.get(directory, 0)
            rules[directory] = max(number, own_number)


NO_RULES = Rules([], [])
"""For agents without a group."""


def allows(key: int) -> bool:
    """Return whether the rule with this *key* allows, see :meth:`Rules.find`. No rule
    (0) and an empty one allow everything."""
    return key < SHORTEST or key & ALLOW > 0
