"""What cache.py measures, each to be run in a process of its own (`crawls.child`)."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from corpus import read
from crawls import resident_bytes
from robotsfiles import made

from scrapy_rep.origins.cache import usable_until
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry
from scrapy_rep.storages.base import squeeze

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from scrapy_rep.storages import Storage

MEMORY, SQLITE, REDIS = "memory", "SQLite", "Redis"
DAY = 86400.0


class Place(NamedTuple):
    """Where a storage is."""

    kind: str
    path: str = ""
    url: str = ""

    def settings(self) -> dict[str, Any]:
        """Those of a crawl."""
        name = {MEMORY: "Memory", SQLITE: "Sqlite", REDIS: "Redis"}[self.kind]
        where = {
            SQLITE: {"REP_CACHE_PATH": self.path},
            REDIS: {"REP_CACHE_REDIS_URL": self.url},
        }
        return {
            "REP_CACHE_STORAGE": f"scrapy_rep.storages.{name}Storage",
            **where.get(self.kind, {}),
        }

    def server_bytes(self) -> int:
        """What the Redis server takes."""
        if self.kind != REDIS:
            return 0
        import redis

        with redis.Redis.from_url(self.url) as client:
            return int(client.info("memory")["used_memory"])

    def open(self) -> Storage | None:
        """The storage itself; None: there is nothing behind the memory."""
        if self.kind == SQLITE:
            from scrapy_rep.storages import SqliteStorage

            return SqliteStorage(Path(self.path))
        if self.kind == REDIS:
            from scrapy_rep.storages import RedisStorage

            return RedisStorage(self.url, "{scrapy-rep}", 90 * DAY)
        return None


def pack_body(body: bytes) -> tuple[bytes, str]:
    return squeeze(body), hashlib.sha256(body).hexdigest()


def files_of(corpus: str | None) -> list[bytes]:
    if corpus is None:
        return made(2000)
    return sorted({site.body for site in read(Path(corpus))})


def url_of(number: int) -> str:
    return f"https://www.site-{number}.example"


def body_of(files: list[bytes], number: int) -> bytes:
    """The robots.txt of a site: no two have the same."""
    return b"# robots.txt of site %d\n" % number + files[number % len(files)]


def entry_of(number: int, packed: bytes, sha256: str) -> Entry:
    """As a crawl would have it."""
    origin, now = str(Origin.from_url(url_of(number))), time.time()
    return Entry(
        origin,
        updated_at=now,
        outcome=Outcome.RULES,
        status=200,
        url=f"{origin}/robots.txt",
        packed=packed,
        sha256=sha256,
        fetched_at=now,
        fresh_until=now + DAY,
    )


# Memory


def builtin(corpus: str | None, count: int, pipe: Connection) -> None:
    """Have Scrapy's parser objects of so many origins. Sends the bytes for each."""
    from scrapy.robotstxt import ProtegoRobotParser

    files = files_of(corpus)
    keep = {
        url_of(-1): ProtegoRobotParser(body_of(files, -1), None)
    }  # what is loaded once
    before = resident_bytes()
    for number in range(count):
        keep[url_of(number)] = ProtegoRobotParser(body_of(files, number), None)
    pipe.send((resident_bytes() - before) / count)


def ours(corpus: str | None, count: int, most: int, pipe: Connection) -> None:
    """Have so many origins in memory, with REP_CACHE_MAX_ORIGINS = *most*. Sends the bytes for
    each."""
    files = files_of(corpus)
    before = resident_bytes()
    known = OriginTable(most, sys.maxsize)
    for number in range(count):
        put(known, number, *pack_body(body_of(files, number)))
    pipe.send((resident_bytes() - before) / count)


def put(known: OriginTable, number: int, packed: bytes, sha256: str) -> Entry:
    entry = entry_of(number, packed, sha256)
    known.put(Origin.from_url(url_of(number)), entry)
    return entry


def growth(
    corpus: str | None, steps: list[int], place: Place, most: int, pipe: Connection
) -> None:
    """Meet ever more origins. Sends, at each of the *steps*, by how many bytes the process has
    grown, and what Redis takes."""
    # The hash says that all are different; else each file is compressed only once, to save time.
    files = [pack_body(file)[0] for file in files_of(corpus)]
    storage = place.open()
    if storage is not None:
        storage.load("https://www.site-0.example")  # it has connected
    before = resident_bytes()
    known = OriginTable(most, RepSettings().cache_max_bytes)
    number = 0
    for step in steps:
        for number in range(number, step):  # noqa: B020
            packed = bytes(bytearray(files[number % len(files)]))  # not the same object
            sha256 = hashlib.sha256(b"%d" % number).hexdigest()
            entry = put(known, number, packed, sha256)
            if storage is not None:
                storage.save(entry)
        number = step
        pipe.send((resident_bytes() - before, place.server_bytes()))


# Look-ups: in a crawl, so that threads and event loop are those of a crawl


class Rates(NamedTuple):
    """Look-ups a second."""

    parsed: float
    packed: float
    storage: float | None
    """Alone, without the thread."""
    crawl: float | None
    """As a crawl does it, one after the other."""


def look_up(corpus: str | None, place: Place, count: int, pipe: Connection) -> None:
    """Sends :class:`Rates`."""
    from inside import run_inside

    run_inside(
        place.settings(), partial(_look_up, files_of(corpus), place, count, pipe)
    )


async def _look_up(
    files: list[bytes], place: Place, count: int, pipe: Connection, middleware: Any
) -> None:
    known, cache = middleware.origins.table, middleware.origins.cache
    access = cache._storage
    storage = place.open()
    for number in range(count):
        entry = put(known, number, *pack_body(body_of(files, number)))
        if storage is not None:
            storage.save(entry)
    chance = Random(1)
    origins = [Origin.from_url(url_of(number)) for number in range(count)]
    latest = origins[-500:]
    parsed = rate(chance.choices(latest, k=100_000), cache.get)
    # Each was used longer ago than as many others as are kept parsed.
    packed = rate(origins[: count // 2], cache.get)
    if storage is None or access is None:
        pipe.send(Rates(parsed, packed, None, None))
        return
    some = chance.choices(origins, k=2000)
    alone = rate([str(origin) for origin in some], lambda origin: storage.load(origin))

    def is_enough(entry: Entry) -> bool:
        return usable_until(entry, time.time(), cache._settings) > time.time()

    began = time.perf_counter()
    for origin in some:
        claim = await access.claim(str(origin), is_enough)
        assert claim.entry is not None
    pipe.send(Rates(parsed, packed, alone, len(some) / (time.perf_counter() - began)))


# New origins


def meet(place: Place, count: int, at_once: int, pipe: Connection) -> None:
    """Sends how many new origins a second can be looked up, leased and saved."""
    from inside import run_inside

    run_inside(place.settings(), partial(_meet, count, at_once, pipe))


async def _meet(count: int, at_once: int, pipe: Connection, middleware: Any) -> None:
    access = middleware.origins.cache._storage
    packed, sha256 = pack_body(made(1)[0])
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            origin = str(Origin.from_url(url_of(number)))
            claim = await access.claim(origin, lambda entry: True)
            assert claim.granted
            access.publish(entry_of(number, packed, sha256))

    began = time.perf_counter()
    await asyncio.gather(*[one_after_another() for _ in range(at_once)])
    while access._running:
        await asyncio.sleep(0.001)
    pipe.send(count / (time.perf_counter() - began))


def relay(url: str, seconds: float, pipe: Connection) -> None:
    """A server as far away as a round trip of *seconds*. Sends its port."""
    port = int(url.rpartition(":")[2])

    async def copy(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        later: Callable[..., Any],
    ) -> None:
        while data := await reader.read(65536):
            later(seconds / 2, writer.write, data)
        later(seconds / 2, writer.close)

    async def connect(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        later = asyncio.get_running_loop().call_later
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            copy(reader, far_writer, later), copy(far_reader, writer, later)
        )

    async def run() -> None:
        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def rate(keys: list[Any], look: Callable[[Any], Any]) -> float:
    began = time.perf_counter()
    for key in keys:
        assert look(key) is not None
    return len(keys) / (time.perf_counter() - began)
