"""The rules of a group that have a ``*`` before their end (REP.md section 8).

Each match is linear in the path, and nearly all rules are ruled out before:

- those that begin with a path (``/dir/*.css$``), if the URL's path begins otherwise;
- any rule whose longest literal after the first star, the *needle*, is not in the path.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# In longer paths, first check that all characters of a rule occur.
_LONG = 300


class Wildcards:
    """Rules with wildcards, prepared, in columns to save memory."""

    __slots__ = ("_anywhere", "_bounds", "_keys", "_needles", "_patterns", "_somewhere")

    def __init__(self, rules: Iterable[tuple[int, str]]) -> None:
        """:param rules: key and pattern of each"""
        rows: list[tuple[str, int, str, str]] = []
        for key, pattern in rules:
            start, _, needle = pattern.removesuffix("$").partition("*")
            if "*" in needle:
                needle = max(needle.split("*"), key=len)
            rows.append(("" if start == "/" else start, key, needle, pattern))
        # The best rule of each start first, and the empty start last.
        rows.sort(reverse=True)
        keys: list[int] = []
        needles: list[str] = []
        patterns: list[str] = []
        first: dict[str, int] = {}
        for at, (start, key, needle, pattern) in enumerate(rows):
            keys.append(key)
            needles.append(needle)
            patterns.append(pattern)
            first.setdefault(start, at)
        self._keys: array[int] = array("q", keys)
        self._needles = tuple(needles)
        self._patterns = tuple(patterns)
        # Where the rules of each start begin, and the end.
        self._bounds: array[int] = array("i", [*first.values(), len(rows)])
        self._anywhere: tuple[str, ...] = self._needles[first[""] :] if "" in first else ()
        self._somewhere: tuple[str, ...] = tuple(filter(None, first))

    def best(self, path: str, found: int) -> int:
        """Return the key of the best rule that matches *path*, or *found* if that is larger."""
        letters = "*$" + "".join(set(path)) if len(path) > _LONG else None
        for needle in self._anywhere:
            if letters or needle in path:
                end = len(self._needles)
                begin = end - len(self._anywhere) + self._anywhere.index(needle)
                found = self._best_of(begin, end, path, found, letters)
                break
        if self._somewhere and path.startswith(self._somewhere):
            bounds = self._bounds
            for number, start in enumerate(self._somewhere):
                if path.startswith(start):
                    begin, end = bounds[number], bounds[number + 1]
                    found = self._best_of(begin, end, path, found, letters)
        return found

    def _best_of(self, begin: int, end: int, path: str, found: int, letters: str | None) -> int:
        if self._keys[begin] < found:
            return found
        for at, needle in enumerate(self._needles[begin:end], begin):
            if letters is not None and self._patterns[at].strip(letters):
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
