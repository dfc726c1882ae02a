"""A set of bounded size, which forgets the oldest items."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

_REMEMBERED = 100_000

# Sorting takes some milliseconds.
_UNSORTED = 5000


class BoundedSet:
    """Remembers the last 100,000 to 200,000 items. A forgotten item counts as new again.

    It keeps sorted hashes of 8 bytes each. In a set, each takes 70, and an URL several times that.
    """

    def __init__(self) -> None:
        self._latest: set[int] = set()
        self._new = array("q")
        self._old = array("q")

    def __len__(self) -> int:
        return len(self._latest) + len(self._new) + len(self._old)

    def add(self, one: Hashable) -> bool:
        """Remember *one*. Return whether it is new."""
        is_new = one not in self
        number = hash(one)
        if number not in self._latest and not _has(self._new, number):
            full = len(self._latest) + len(self._new) >= _REMEMBERED
            if full or len(self._latest) >= _UNSORTED:
                self._new = array("q", sorted([*self._new, *sorted(self._latest)]))
                self._latest = set()
            if full:
                self._old, self._new = self._new, array("q")
            self._latest.add(number)
        return is_new

    def __contains__(self, one: Hashable) -> bool:
        number = hash(one)
        return number in self._latest or _has(self._new, number) or _has(self._old, number)


def _has(numbers: array[int], number: int) -> bool:
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number
