"""The requests that stay at the gate, in memory. With a JOBDIR, disk.py adds a file.

On disk, requests are bytes: JSON if that preserves them exactly, else pickle, as in Scrapy's own queues.
Reading a pickle can run code, reading JSON can't. But JSON turns tuples into lists and numeric keys
into strings, and has no bytes: such requests are pickled. Headers and body, always bytes, are written
as Latin-1.
"""

from __future__ import annotations

import json
import math
import pickle
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from heapq import heapify, heappush
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scrapy.utils.request import request_from_dict

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import iso

if TYPE_CHECKING:
    from scrapy import Request, Spider

    from scrapy_rep import storages
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

_PLAIN = {str, int, float, bool, type(None)}

# Seconds for which an answer releases requests, however short it may be kept.
_GOOD_SECONDS = 5.0


def dumps(request: Request, spider: Spider) -> bytes:
    """Return *request* as bytes.

    :raises Exception: from pickling a user's meta
    """
    fields = request.to_dict(spider=spider)
    data = _as_json(dict(fields))
    return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL) if data is None else data


def loads(data: bytes, spider: Spider) -> Request:
    """Return the request in *data*.

    :raises Exception: if it can't be read, or the spider no longer has its callback
    """
    # How all pickles of this and earlier versions begin.
    if data[:1] == b"\x80":
        # Write access to JOBDIR allows running code anyway: Scrapy's own queues are pickles.
        return request_from_dict(pickle.loads(data), spider=spider)  # noqa: S301
    fields = json.loads(data)
    headers = {}
    for name, values in fields["headers"]:
        headers[name.encode("latin-1")] = [value.encode("latin-1") for value in values]
    fields |= {"headers": headers, "body": fields["body"].encode("latin-1")}
    return request_from_dict(fields, spider=spider)


def _as_json(fields: dict[str, Any]) -> bytes | None:
    """Return *fields* as JSON, None if JSON would change them."""
    headers, body = fields.pop("headers", None), fields.pop("body", None)
    try:
        if type(headers) is not dict or not _is_exact(fields):
            return None
        fields["headers"] = pairs = []
        for name, values in headers.items():
            pairs.append([str(name, "latin-1"), [str(value, "latin-1") for value in values]])
        fields["body"] = str(body, "latin-1")
        # Half a surrogate pair can't be encoded: two of them would come back as one character.
        return json.dumps(fields, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _is_exact(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return set(map(type, value)) <= {str} and all(map(_is_exact, value.values()))
    return kind in _PLAIN or (kind is list and all(map(_is_exact, value)))


class Held(NamedTuple):
    """A request at the gate."""

    number: int
    """Increases in the order in which requests came to the gate."""
    since: float
    """When it came, in seconds of the crawl's running time."""
    request: Request
    row: int | None = None
    """Its row on disk, if any."""
    counts: bool = False
    """Whether it counts as held. Otherwise it only waits for a first answer."""

    @property
    def as_read(self) -> Entry:
        """The entry of a heap for it."""
        return (-self.request.priority, self.number, self.since, self)


Entry: TypeAlias = "tuple[int, int, float, Request | int | Held]"
"""Negated priority, number, since, and the request, or its row on disk; :class:`Held` if it only waits,
or has been read. A plain tuple of numbers is not tracked by the garbage collector, and a heap of these
yields urgent requests first, then early ones."""


class Job:
    """Requests of an origin that may leave the gate."""

    __slots__ = ("given_up", "good_until", "heap")

    def __init__(self, heap: list[Entry], given_up: tuple[str, int] | None) -> None:
        self.heap = heap
        self.given_up = given_up
        """Why they are given up, and after how many attempts; None to release them."""
        self.good_until = time.monotonic() + _GOOD_SECONDS
        """Until when the answer that releases them counts, even if it may not be kept that long."""

    def add(self, held: Held) -> None:
        """Let *held*, which only waits, leave too."""
        heappush(self.heap, held.as_read)


@dataclass(eq=False, slots=True)
class HeldOrigin:
    """An origin with requests at the gate, until none is left.

    Its requests *wait* for a first answer, in memory, until ``REP_DEFER_GRACE`` is over; then they are
    *held*: counted, announced, and on disk with a JOBDIR. Once there is an answer, or they are given
    up, they are *ready* to leave.
    """

    origin: Origin
    key: str
    """The same as text."""
    waiting: list[Held] = field(default_factory=list)
    """Those that wait for a first answer, as they came."""
    heap: list[Entry] = field(default_factory=list)
    """Those that are held."""
    jobs: deque[Job] = field(default_factory=deque)
    """Those that are ready, waiting or held before, in order."""
    unheld: int = 0
    """How many are not held: they wait, or are ready to leave."""
    count: int = 0
    """How many are held, including those that are ready."""
    unanswered: int = 0
    """How many of the held ones never had an answer."""
    answered: bool = False
    """Whether there was an answer, if only a failure."""
    late: bool = False
    slow: bool = False
    """Whether a first answer takes long, or very long."""
    weight: int = 0
    """Its part of the limit for first answers, see :meth:`HeldOrigins.changed`."""
    leaving: list[Request] = field(default_factory=list)
    """Those that left last, and may not have reached their download slot."""
    released: int = 0
    longest: float = 0.0
    """Seconds for which one that left was held, in earlier runs too."""
    given_up: int = 0
    why: tuple[str, int] = ("", 0)
    """Why the last ones were given up, and after how many robots.txt attempts."""
    told_unreachable: bool = False
    """Whether the log says that its robots.txt is unreachable."""
    told_slow: bool = False

    def oldest(self, *, ready: bool = False) -> float | None:
        """Return the ``since`` of the request that has been here longest.

        :param ready: look at those that may leave, too
        """
        times = [*map(attrgetter("since"), self.waiting), *map(itemgetter(2), self.heap)]
        for job in self.jobs if ready else ():
            times += map(itemgetter(2), job.heap)
        return min(times, default=None)

    def begin(self, given_up: tuple[str, int] | None, before: float) -> None:
        """Let those that came *before* then leave; with a reason, give them up."""
        heap, self.heap = self.heap, []
        if before < math.inf:
            self.heap = [entry for entry in heap if entry[2] > before]
            heap = [entry for entry in heap if entry[2] <= before]
            heapify(self.heap)
            heapify(heap)
        self.jobs.append(job := Job(heap, given_up))
        waiting, self.waiting = self.waiting, []
        for held in waiting:
            if held.since <= before:
                job.add(held)
            else:
                self.waiting.append(held)

    def recall(self, *, everything: bool = False) -> None:
        """Keep the requests that were to be released; with *everything*, those given up too."""
        jobs = [job for job in self.jobs if everything or job.given_up is None]
        for job in jobs:
            self.jobs.remove(job)
            self.heap += [entry for entry in job.heap if not isinstance(entry[3], Held)]
            for held in [what for _, _, _, what in job.heap if isinstance(what, Held)]:
                if held.counts:
                    unread = held.request if held.row is None else held.row
                    self.heap.append((*held.as_read[:3], unread))
                else:
                    self.waiting.append(held)
        if jobs:
            heapify(self.heap)
            self.waiting.sort()


class Hold:
    """Keeps held requests in memory; they are lost when the process ends."""

    durable = False
    """Whether held requests outlive the process."""

    def hold(self, origin: str, held: Held) -> Entry:
        """Keep *held*. Return its place in a heap."""
        return (-held.request.priority, held.number, held.since, lean(held.request))

    def together(self) -> AbstractContextManager[None]:
        """Return a context for several calls of :meth:`hold`, which are written at once."""
        return nullcontext()

    def is_held_already(self, origin: str, request: Request) -> bool:
        """Whether an earlier run held *request*, which comes a second time now."""
        return False

    def read(self, entry: Entry) -> Held | None:
        """Return the request of *entry*, None if it can't be read.

        :raises sqlite3.Error: if the file can't be read now
        """
        _, number, since, what = entry
        assert not isinstance(what, int)
        return what if isinstance(what, Held) else Held(number, since, what, counts=True)

    def peek(self, entry: Entry) -> Request | None:
        """Return the request of *entry* if it can be read."""
        held = self.read(entry)
        return held.request if held is not None else None

    def is_mortal(self, entry: Entry) -> bool:
        """Whether the request of *entry* would end with the process."""
        return True

    def left(self, origin: str, held: Held) -> None:
        """*held* has left the gate."""

    def give_up(self, origin: str, held: Held) -> None:
        """Keep *held*, taken out to fail, for the next run with this JOBDIR."""

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


def lean(request: Request) -> Request:
    """Return a copy of *request*: for each request object it has seen, Scrapy keeps a kilobyte (the
    parsed URL, the fingerprint) as long as that object lives."""
    try:
        return copy(request)
    except Exception as error:  # noqa: BLE001 (of a user's class)
        values = {"request": request, "error": error}
        logger.debug("Can't copy %(request)s, so it is held as it is: %(error)s", values)
        return request


def announce(
    context: CrawlContext, signal: object, request: Request, origin: Origin | None, **told: object
) -> None:
    """Send one of our signals of held requests."""
    context.crawler.signals.send_catch_log(
        signal, request=request, origin=origin, spider=context.spider, **told
    )


def held_fields(
    origin: str, requests: int, seconds: float, entry: storages.Entry | None
) -> dict[str, Any]:
    """Return what ``scrapy robots --held --json`` and :meth:`RepMiddleware.held` report about an origin.

    :param seconds: for which the request that came first has been held
    :param entry: what is known of its robots.txt
    """
    down = entry if entry is not None and entry.unreachable_since is not None else None
    return {
        "origin": origin,
        "requests": requests,
        "held_seconds": round(seconds, 3),
        "unreachable_since": iso(down.unreachable_since) if down else None,
        "error": down.error if down else None,
        "attempts": down.attempts if down else None,
        "next_attempt_at": iso(down.next_attempt_at or None) if down else None,
    }
