"""Held requests in memory."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.log import get_logger

if TYPE_CHECKING:
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


class MemoryHold:
    """Held requests in memory, by origin, first in first out."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Held]] = {}

    def add(self, origin: str, held: Held) -> None:
        """Keep *held*."""
        # Scrapy remembers a kilobyte of each request object that it has seen (its parsed URL, its
        # fingerprint) for as long as that lives: a copy has the same contents without that.
        try:
            held = held._replace(request=copy(held.request))
        except Exception as error:  # noqa: BLE001
            # A class of the user's that can't be copied: held as it is.
            logger.debug(
                "%(request)s can't be copied: %(error)s", {"request": held.request, "error": error}
            )
        self._queues.setdefault(origin, deque()).append(held)

    def first(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Return the first requests of *origin*.

        :param limit: how many at most
        :param upto: only those with no higher number
        :param before: only those held since no later time
        """
        found: list[Held] = []
        for held in self._queues.get(origin, ()):
            if len(found) >= limit or held.number > upto:
                break
            # One that was held before may have waited longer than those in front of it.
            if held.since <= before:
                found.append(held)
        return found

    def remove(self, origin: str, some: list[Held]) -> None:
        """Take *some* of those that :meth:`first` returned out."""
        queue = self._queues.get(origin)
        if queue is None:
            return
        gone = {held.number for held in some}
        while queue and queue[0].number in gone:
            gone.discard(queue.popleft().number)
        if gone:
            queue = deque(held for held in queue if held.number not in gone)
            self._queues[origin] = queue
        if not queue:
            del self._queues[origin]

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Take out the first requests of *origin*, see :meth:`first`."""
        taken = self.first(origin, limit, upto, before)
        self.remove(origin, taken)
        return taken

    def put_back(self, origin: str, some: list[Held]) -> None:
        """Keep what was taken out on, in its place: before all others."""
        if some:
            self._queues.setdefault(origin, deque()).extendleft(reversed(some))

    def count(self, origin: str) -> int:
        """How many requests of *origin* are held."""
        return len(self._queues.get(origin, ()))

    def oldest(self, origin: str) -> float | None:
        """Since when the request of *origin* that was held first has been held."""
        return min((held.since for held in self._queues.get(origin, ())), default=None)

    def close(self) -> None:
        """Forget everything."""
        self._queues.clear()
