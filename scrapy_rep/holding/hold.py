"""The hold in memory. With a JOBDIR, disk.py adds a file."""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request

    from scrapy_rep.origins.waiting_room import Place

logger = get_logger(__name__)


class Held(NamedTuple):
    """A held request."""

    number: int
    """Increases in the order of holding."""
    since: float
    """When it was first held, in seconds of the crawl's running time."""
    dont_filter: bool
    """As the user set it."""
    request: Request
    row: int | None = None
    """Its row on disk, if any."""
    place: Place | None = None
    """If it is in the waiting room: *request* is a copy then."""


Entry: TypeAlias = "Held | tuple[int, float, int]"
"""A request; or number, since and row of one on disk: a plain tuple, which the garbage collector does
not track."""


class Hold:
    """Held requests by origin (as text), first in, first out. They end with the process."""

    durable = False
    """Whether held requests outlive the process."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Entry]] = {}

    def add(self, origin: str, held: Held) -> None:
        """Hold *held*, behind all others."""
        self.keep(origin, lean(held))

    def keep(self, origin: str, entry: Entry) -> None:
        """Keep *entry* in memory."""
        self._queues.setdefault(origin, deque()).append(entry)

    def take(self, origin: str, limit: int, upto: int, before: float) -> list[Held]:
        """Remove and return the first requests of *origin*, at most *limit*.

        :param upto: the highest number to take
        :param before: the latest ``since`` to take
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
            # A request held a second time may have waited longer than those in front of it.
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
        """Return the requests of *entries* that can be read."""
        return [entry for entry in entries if isinstance(entry, Held)]

    def put_back(self, origin: str, some: list[Held]) -> None:
        """Return *some* to the front."""
        if some:
            entries = map(self._entry, reversed(some))
            self._queues.setdefault(origin, deque()).extendleft(entries)

    def _entry(self, held: Held) -> Entry:
        return held

    def take_mortal(self, origin: str) -> Iterator[Held]:
        """Remove and yield requests that would end with the process."""
        yield from self._read(list(self._queues.pop(origin, ())))

    def peek(self, origin: str, number: int = 0) -> Request | None:
        """Return the first request of *origin*, or that with this *number*, from 0 and round and
        round, if it can be read."""
        queue = self._queues.get(origin)
        return self._request(queue[number % len(queue)]) if queue else None

    def _request(self, entry: Entry) -> Request | None:
        return entry.request if isinstance(entry, Held) else None

    def oldest(self, origin: str) -> float | None:
        """Return the ``since`` of the request that has waited longest."""
        return min((entry[1] for entry in self._queues.get(origin, ())), default=None)

    def give_up(self, origin: str, some: list[Held]) -> None:
        """Keep *some*, taken out to fail, for the next run with this JOBDIR."""

    def done(self, rows: list[int]) -> None:
        """Delete *rows*: their requests have been dealt with."""

    def tell_unreadable(self) -> None:
        """Warn of requests that could not be read since the last warning."""

    async def upkeep(self, ran: float | None) -> None:
        """Maintain the file. Called every second.

        :param ran: seconds that the crawl has run, if they are to be recorded
        """

    def close(self) -> None:
        """Close the hold at the end of the crawl. Blocks."""
        self._queues.clear()


def lean(held: Held) -> Held:
    """Return *held* with a copy of its request: for each request object it has seen, Scrapy keeps a
    kilobyte (the parsed URL, the fingerprint) as long as that object lives."""
    try:
        return held._replace(request=copy(held.request))
    except Exception as error:  # noqa: BLE001 (of a user's class)
        values = {"request": held.request, "error": error}
        logger.debug("Can't copy %(request)s, so it is held as it is: %(error)s", values)
        return held
