"""The rules of a group that have a ``*`` before their end (REP.md section 8).

Each is tested in time linear in the path, and nearly all are refused by less than that:

- those that start with a path of their own (``/dir/*.css$``) are looked at only where a path
  starts so, which one call tells for all of them: a tenth of the time to match;
- of the others, and of those, one needs its longest literal part after the first star.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# In a path longer than this a search costs more than to look whether it has all characters of
# the rule: a fifth of the time that a hostile file takes.
_LONG = 300


class Wildcards:
    """Rules with wildcards, prepared. Columns, not an object for each rule: half of the memory."""

    __slots__ = ("_anywhere", "_first", "_keys", "_needles", "_patterns", "_somewhere", "_starts")

    def __init__(self, rules: Iterable[tuple[int, str]]) -> None:
        """:param rules: of each the key that it wins by, and its pattern"""
        rows: list[tuple[str, int, str, str]] = []
        for key, pattern in rules:
            plain = pattern[:-1] if pattern[-1] == "$" else pattern
            start, _, needle = plain.partition("*")
            if "*" in needle:
                needle = max(needle.split("*"), key=len)
            rows.append(("" if start == "/" else start, key, needle, pattern))
        # By start, and of one start the best rule first. The empty start comes last.
        rows.sort(reverse=True)
        self._needles: tuple[str, ...]
        self._patterns: tuple[str, ...]
        self._starts: tuple[str, ...]
        self._starts, keys, self._needles, self._patterns = zip(*rows, strict=True)
        self._keys: array[int] = array("q", keys)
        self._first: dict[str, int] = {}
        at = 0
        for start in dict.fromkeys(self._starts):
            at = self._first[start] = self._starts.index(start, at)
        self._anywhere: tuple[str, ...] = self._needles[at:] if not start else ()
        self._somewhere = tuple(filter(None, self._first))

    def best(self, path: str, found: int) -> int:
        """Return the key of the best rule that matches *path*, if it is larger than *found*, and
        *found* else."""
        letters = None
        if len(path) > _LONG:
            letters = "*$" + "".join(set(path))
        for needle in self._anywhere:
            if letters or needle in path:
                found = self._best_of("", path, found, letters)
                break
        if self._somewhere and path.startswith(self._somewhere):
            for start in self._somewhere:
                if path.startswith(start):
                    found = self._best_of(start, path, found, letters)
        return found

    def _best_of(self, start: str, path: str, found: int, letters: str | None) -> int:
        for at in range(self._first[start], len(self._starts)):
            key = self._keys[at]
            if key < found or self._starts[at] != start:
                break
            if (
                (letters is None or not self._patterns[at].strip(letters))
                and self._needles[at] in path
                and _matches(path, self._patterns[at])
            ):
                return key
        return found


def _matches(path: str, pattern: str) -> bool:
    """Each part is taken at the first place where it fits, so there is no way back to try, and
    time is linear in the path."""
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
