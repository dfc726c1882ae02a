"""The requests that stay at the gate, by origin, in memory. With a JOBDIR, disk.py adds a file.

There requests are bytes: JSON if that preserves them exactly, else pickle, as in Scrapy's own queues.
Reading a pickle can run code, reading JSON can't. But JSON turns tuples into lists and numeric keys
into strings, and has no bytes: such requests are pickled. Headers and body, always bytes, are written
as Latin-1.
"""

from __future__ import annotations

import json
import pickle
import time
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scrapy.utils.request import request_from_dict

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request, Spider

    from scrapy_rep import storages

_PLAIN = {str, int, float, bool, type(None)}


def dumps(request: Request, spider: Spider) -> bytes:
    """Return *request* as bytes.

    :raises Exception: from pickling a user's meta
    """
    fields = request.to_dict(spider=spider)
    data = _as_json(fields)
    return pickle.dumps(fields, pickle.HIGHEST_PROTOCOL) if data is None else data


def is_serialisable(request: Request, spider: Spider) -> bool:
    """Whether :func:`dumps` can write *request*."""
    try:
        dumps(request, spider)
    except Exception:  # noqa: BLE001 (from pickling a user's meta)
        return False
    return True


def loads(data: bytes, spider: Spider) -> Request:
    """Return the request in *data*.

    :raises Exception: if it can't be read, or the spider no longer has its callback
    """
    # How all pickles of this and earlier versions begin.
    if data[:1] == b"\x80":
        # Write access to JOBDIR allows running code anyway: Scrapy's own queues are pickles.
        fields = pickle.loads(data)  # noqa: S301
    else:
        fields = _from_json(data)
    return request_from_dict(fields, spider=spider)


def _as_json(fields: dict[str, Any]) -> bytes | None:
    """Return *fields* as JSON, None if JSON would change them."""
    fields = dict(fields)
    headers, body = fields.pop("headers", None), fields.pop("body", None)
    try:
        if type(headers) is not dict or type(body) is not bytes or not _is_exact(fields):
            return None
        fields["headers"] = [
            [_text(name), [_text(value) for value in values]] for name, values in headers.items()
        ]
        fields["body"] = _text(body)
        # Half a surrogate pair can't be encoded: two of them would come back as one character.
        return json.dumps(fields, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return None


def _text(value: Any) -> str:
    if type(value) is not bytes:
        raise TypeError
    return value.decode("latin-1")


def _is_exact(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        return all(type(key) is str and _is_exact(one) for key, one in value.items())
    return kind is list and all(_is_exact(one) for one in value)


def _from_json(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(data)
    fields["headers"] = {
        name.encode("latin-1"): [value.encode("latin-1") for value in values]
        for name, values in fields["headers"]
    }
    fields["body"] = fields["body"].encode("latin-1")
    return fields


logger = get_logger(__name__)

# Seconds for which an answer releases requests, however short it may be kept.
_GOOD_SECONDS = 5.0


class Held(NamedTuple):
    """A request at the gate."""

    number: int
    """Increases in the order in which requests came to the gate."""
    since: float
    """When it came, in seconds of the crawl's running time."""
    request: Request
    row: int | None = None
    """Its row on disk, if any."""


Entry: TypeAlias = "tuple[int, int, float, Request | int]"
"""Negated priority, number, since, and the request or its row on disk. A plain tuple of numbers is not
tracked by the garbage collector, and a heap of these yields urgent requests first, then early ones."""


class Job:
    """Requests of an origin that may leave the gate."""

    __slots__ = ("before", "given_up", "good_until", "ready", "upto")

    def __init__(self, upto: int, before: float, given_up: tuple[str, int] | None) -> None:
        self.ready: list[tuple[int, int, Held]] = []
        """A heap of those that were not held: negated priority, number, and the request."""
        self.upto = upto
        """The highest number to take from the hold: later requests wait for another answer."""
        self.before = before
        """The latest ``since`` to take."""
        self.given_up = given_up
        """Why they are given up, and after how many attempts; None to release them."""
        self.good_until = time.monotonic() + _GOOD_SECONDS
        """Until when the answer that releases them counts, even if it may not be kept that long."""

    def add(self, held: Held) -> None:
        """Let *held*, which is not in the hold, leave."""
        heappush(self.ready, (-held.request.priority, held.number, held))


class Hold:
    """Requests by origin (as text). They end with the process."""

    durable = False
    """Whether held requests outlive the process."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[Entry]] = {}
        self._ready: dict[str, list[Entry]] = {}
        """Heaps of those that leave though more urgent ones don't: found once, not for each."""

    def add(self, origin: str, held: Held) -> None:
        """Keep *held* for the moment, as it is."""
        self._keep(origin, _entry(held, held.request))

    def hold(self, origin: str, held: Held) -> None:
        """Keep *held* for longer."""
        self._keep(origin, _entry(held, lean(held.request)))

    def _keep(self, origin: str, entry: Entry) -> None:
        heappush(self._heaps.setdefault(origin, []), entry)

    def together(self) -> AbstractContextManager[None]:
        """Return a context for several calls of :meth:`hold`, which are written at once."""
        return nullcontext()

    def is_held_already(self, origin: str, request: Request) -> bool:
        """Whether an earlier run held *request*, which comes a second time now."""
        return False

    def _whole(self, origin: str) -> list[Entry]:
        """Return the heap of *origin*, with all of its requests."""
        heap = self._heaps.setdefault(origin, [])
        if ready := self._ready.pop(origin, None):
            heap += ready
            heapify(heap)
        return heap

    def take(self, origin: str, upto: int, before: float) -> Held | None:
        """Remove and return the most urgent request of *origin*, None if there is none.

        :param upto: the highest number to take
        :param before: the latest ``since`` to take
        :raises sqlite3.Error: if the file can't be read now
        """
        while heap := self._first(origin, upto, before):
            held = self._read(heap[0])
            heappop(heap)
            self._drop_empty(origin)
            if held is not None:
                return held
        return None

    def _first(self, origin: str, upto: int, before: float) -> list[Entry]:
        """Return the heap whose first request is the next to take, an empty one if there is none."""
        heaps = [self._ready.get(origin), self._heaps.get(origin)]
        found = [one for one in heaps if one and one[0][1] <= upto and one[0][2] <= before]
        if found:
            return min(found)
        ready: list[Entry] = []
        rest: list[Entry] = []
        for one in self._whole(origin):
            (ready if one[1] <= upto and one[2] <= before else rest).append(one)
        heapify(ready)
        heapify(rest)
        self._ready[origin], self._heaps[origin] = ready, rest
        self._drop_empty(origin)
        return ready

    def _drop_empty(self, origin: str) -> None:
        for heaps in (self._ready, self._heaps):
            if not heaps.get(origin, True):
                del heaps[origin]

    def _read(self, entry: Entry) -> Held | None:
        """Return the request of *entry*, None if it can't be read."""
        _, number, since, what = entry
        return None if isinstance(what, int) else Held(number, since, what)

    def put_back(self, origin: str, held: Held) -> None:
        """Return *held*, which was taken."""
        heaps = self._ready if origin in self._ready else self._heaps
        entry = _entry(held, held.request if held.row is None else held.row)
        heappush(heaps.setdefault(origin, []), entry)

    def urgency(self, origin: str) -> int | None:
        """Return the priority of the most urgent request of *origin*."""
        heads = [heap[0] for one in (self._ready, self._heaps) if (heap := one.get(origin))]
        return -min(heads)[0] if heads else None

    def take_mortal(self, origin: str) -> Iterator[Held]:
        """Remove and yield requests that would end with the process."""
        entries = self._whole(origin)
        del self._heaps[origin]
        for entry in sorted(entries):
            held = self._read(entry)
            if held is not None:
                yield held

    def peek(self, origin: str, number: int = 0) -> Request | None:
        """Return the most urgent request of *origin*, or another with this *number*, from 0 and round
        and round, if it can be read."""
        heap = self._whole(origin)
        self._drop_empty(origin)
        return self._request(heap[number % len(heap)]) if heap else None

    def _request(self, entry: Entry) -> Request | None:
        return None if isinstance(entry[3], int) else entry[3]

    def oldest(self, origin: str) -> float | None:
        """Return the ``since`` of the request that has waited longest."""
        heap = self._whole(origin)
        self._drop_empty(origin)
        return min((entry[2] for entry in heap), default=None)

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
        self._heaps.clear()
        self._ready.clear()


def _entry(held: Held, what: Request | int) -> Entry:
    return (-held.request.priority, held.number, held.since, what)


def lean(request: Request) -> Request:
    """Return a copy of *request*: for each request object it has seen, Scrapy keeps a kilobyte (the
    parsed URL, the fingerprint) as long as that object lives."""
    try:
        return copy(request)
    except Exception as error:  # noqa: BLE001 (of a user's class)
        values = {"request": request, "error": error}
        logger.debug("Can't copy %(request)s, so it is held as it is: %(error)s", values)
        return request


def held_fields(
    origin: str, requests: int, seconds: float, entry: storages.Entry | None
) -> dict[str, Any]:
    """Return what ``scrapy robots --held --json`` and :meth:`RepMiddleware.held` tell of an origin.

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
