"""A set of bounded size, which forgets the oldest items."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

# As hashes, 70 bytes each. URLs take several times that.
_REMEMBERED = 100_000


class Recent:
    """Remembers the last 100,000 to 200,000 items. A forgotten item counts as new again."""

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
