"""A set of bounded size for what a crawl meets without end: it forgets the oldest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

# As hashes, 70 bytes each. URLs would take several times that.
_REMEMBERED = 100_000


class Recent:
    """Remembers the last 100,000 items at least, and the last 200,000 at most. Callers must
    tolerate that an item counts as new once more."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._old: set[int] = set()

    def add(self, one: Hashable) -> bool:
        """Remember *one*. Return whether it is new."""
        is_new = one not in self
        if len(self._new) >= _REMEMBERED:
            self._old, self._new = self._new, set()
        self._new.add(hash(one))
        return is_new

    def __contains__(self, one: Hashable) -> bool:
        return hash(one) in self._new or hash(one) in self._old
