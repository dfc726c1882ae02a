"""Held requests in memory."""

from __future__ import annotations

import math
import sys
from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request

logger = get_logger(__name__)


class Held(NamedTuple):
    """A held request."""

    number: int
    """Counts upwards in the order of holding."""
    since: float
    """When it was first held, in seconds on the clock of the crawl's running time."""
    dont_filter: bool
    """As the user set it."""
    request: Request
    row: int | None = None
    """Where it is on disk, if it is."""


Kept = tuple[int, float, int]
"""Stands for a request that is elsewhere: its number, since when it is held, its row. A plain tuple,
since the garbage collector skips these."""

EntryT = TypeVar("EntryT", bound="Held | Kept")


class Queues(Generic[EntryT]):
    """Who waits, by origin, first in first out."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[EntryT]] = {}

    def append(self, origin: str, entry: EntryT) -> None:
        """Put *entry* last."""
        self._queues.setdefault(origin, deque()).append(entry)

    def first(self, origin: str, limit: int, upto: int, before: float) -> list[EntryT]:
        """Return the first ones of *origin*.

        :param limit: how many at most
        :param upto: only those with no higher number
        :param before: only those held since no later time
        """
        found: list[EntryT] = []
        for entry in self._queues.get(origin, ()):
            if len(found) >= limit or entry[0] > upto:
                break
            # One that was held before may have waited longer than those in front of it.
            if entry[1] <= before:
                found.append(entry)
        return found

    def remove(self, origin: str, some: list[EntryT]) -> None:
        """Take *some* of those that :meth:`first` returned out."""
        queue = self._queues.get(origin)
        if queue is None:
            return
        gone = {entry[0] for entry in some}
        while queue and queue[0][0] in gone:
            gone.discard(queue.popleft()[0])
        if gone:
            queue = deque(entry for entry in queue if entry[0] not in gone)
            self._queues[origin] = queue
        if not queue:
            del self._queues[origin]

    def put_back(self, origin: str, some: list[EntryT]) -> None:
        """Put *some* before all others."""
        if some:
            self._queues.setdefault(origin, deque()).extendleft(reversed(some))

    def pop(self, origin: str) -> deque[EntryT]:
        """Take all of *origin* out."""
        return self._queues.pop(origin, deque())

    def count(self, origin: str) -> int:
        """How many wait for *origin*."""
        return len(self._queues.get(origin, ()))

    def oldest(self, origin: str) -> float | None:
        """Since when the one that was held first has been."""
        return min((entry[1] for entry in self._queues.get(origin, ())), default=None)


class MemoryHold:
    """Held requests in memory."""

    def __init__(self) -> None:
        self._queues: Queues[Held] = Queues()

    def add(self, origin: str, held: Held) -> None:
        """Keep *held*."""
        self._queues.append(origin, lean(held))

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Take out the first requests of *origin*, see :meth:`Queues.first`."""
        taken = self._queues.first(origin, limit, upto, before)
        self._queues.remove(origin, taken)
        return taken

    def peek(self, origin: str) -> Request | None:
        """Return the request of *origin* that was held first, if it can be read."""
        first = self._queues.first(origin, 1, sys.maxsize, math.inf)
        return first[0].request if first else None

    def take_mortal(self, origin: str) -> Iterator[Held]:
        """Take out those that would end with the process."""
        yield from self._queues.pop(origin)

    def put_back(self, origin: str, some: list[Held]) -> None:
        """Keep what was taken out on, in its place: before all others."""
        self._queues.put_back(origin, some)

    def count(self, origin: str) -> int:
        """How many requests of *origin* are held."""
        return self._queues.count(origin)

    def oldest(self, origin: str) -> float | None:
        """Since when the request of *origin* that was held first has been held."""
        return self._queues.oldest(origin)

    def close(self) -> None:
        """Forget everything."""
        self._queues = Queues()


def lean(held: Held) -> Held:
    """Return *held* with a copy of its request.

    Scrapy remembers a kilobyte of each request object that it has seen (its parsed URL, its
    fingerprint) for as long as that lives: a copy has the same contents without that.
    """
    try:
        return held._replace(request=copy(held.request))
    except Exception as error:  # noqa: BLE001
        # A class of the user's that can't be copied: held as it is.
        logger.debug(
            "%(request)s can't be copied: %(error)s", {"request": held.request, "error": error}
        )
        return held
