"""Where held requests are: in memory here, with a JOBDIR in a file too (disk.py)."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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


Entry: TypeAlias = "Held | tuple[int, float, int]"
"""A request, or what stands for one on disk: its number, since when it is held, its row. A plain
tuple of numbers, which the garbage collector does not track."""


class Hold:
    """Held requests by origin (as text), first in first out. These end with the process."""

    durable = False
    """Whether they outlive it."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Entry]] = {}

    def add(self, origin: str, held: Held) -> None:
        """Keep *held*, behind all others."""
        self.keep(origin, lean(held))

    def keep(self, origin: str, entry: Entry) -> None:
        """Keep *entry* in memory."""
        self._queues.setdefault(origin, deque()).append(entry)

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Take out the first requests of *origin*.

        :param limit: how many at most
        :param upto: only those with no higher number
        :param before: only those held since no later time
        :raises sqlite3.Error: if the file can't be read now
        """
        while entries := self._first(origin, limit, upto, before):
            taken = self._read(entries)
            self._remove(origin, entries)
            if taken:
                return taken
        return []

    def _first(self, origin: str, limit: int, upto: int, before: float) -> list[Entry]:
        found: list[Entry] = []
        for entry in self._queues.get(origin, ()):
            if len(found) >= limit or entry[0] > upto:
                break
            # One that was held before may have waited longer than those in front of it.
            if entry[1] <= before:
                found.append(entry)
        return found

    def _remove(self, origin: str, some: list[Entry]) -> None:
        queue = self._queues[origin]
        gone = {entry[0] for entry in some}
        while queue and queue[0][0] in gone:
            gone.discard(queue.popleft()[0])
        if gone:
            queue = deque(entry for entry in queue if entry[0] not in gone)
            self._queues[origin] = queue
        if not queue:
            del self._queues[origin]

    def _read(self, entries: list[Entry]) -> list[Held]:
        """Return the requests that *entries* stand for, as far as they can be read."""
        return [entry for entry in entries if isinstance(entry, Held)]

    def put_back(self, origin: str, some: list[Held]) -> None:
        """Keep what was taken out after all, in its place: before all others."""
        if some:
            entries = map(self._entry, reversed(some))
            self._queues.setdefault(origin, deque()).extendleft(entries)

    def _entry(self, held: Held) -> Entry:
        return held

    def take_mortal(self, origin: str) -> Iterator[Held]:
        """Take out those that would end with the process."""
        yield from self._read(list(self._queues.pop(origin, ())))

    def peek(self, origin: str) -> Request | None:
        """Return the request of *origin* that is first, if it can be read."""
        queue = self._queues.get(origin)
        return self._request(queue[0]) if queue else None

    def _request(self, entry: Entry) -> Request | None:
        return entry.request if isinstance(entry, Held) else None

    def oldest(self, origin: str) -> float | None:
        """Since when the request of *origin* that has waited longest has been held."""
        return min((entry[1] for entry in self._queues.get(origin, ())), default=None)

    def give_up(self, origin: str, some: list[Held]) -> None:
        """These were taken out, to fail: keep them for the next run, if there can be one."""

    def done(self, rows: list[int]) -> None:
        """The requests of these rows have been dealt with: forget them."""

    def tell_unreadable(self) -> None:
        """Warn of requests that could not be read, if there were any since the last time."""

    async def upkeep(self, ran: float | None) -> None:
        """Do what is to be done every second.

        :param ran: for how many seconds the crawl has been running, if that is to be written down
        """

    def close(self) -> None:
        """The crawl has ended. It takes a while."""
        self._queues.clear()


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
