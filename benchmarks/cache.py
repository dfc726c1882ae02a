"""What the cache of robots.txt takes and gives: memory of an origin, look-ups, the event loop.

    python benchmarks/cache.py [--quick] [--origins N] [--most N]

Memory for each origin that is known, beside Scrapy's own parser objects; the growth of a process that
meets ever more of them; how many new origins a second are looked up, leased and saved, 64 at a time, and
for how long the event loop is held meanwhile (CPU time).
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

import scrapy
from files import made
from processes import resident_bytes, result_of
from scrapy.crawler import CrawlerProcess
from storages import storages
from tables import OURS, Report, settings_of

from scrapy_rep import RepMiddleware
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry
from scrapy_rep.storages.base import squeeze

DAY = 86400.0
SAMPLE = 25_000
"""Of Scrapy's parser objects: 100,000 of them would be gigabytes."""
AT_ONCE = 64
"""As many as a crawl with CONCURRENT_REQUESTS = 16 asks for at a time."""
MOST_SHARE = 1 / 13
"""Of the memory of Scrapy's parser objects."""
MOST_BYTES = 1500
MOST_GROWTH = 5
"""MB, of a process beyond REP_CACHE_MAX_ORIGINS."""
LEAST_RATE = 2000
"""New origins a second."""
MOST_BLOCK = 100
"""Milliseconds."""


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


def scrapys_memory(origins: int, pipe: Connection) -> None:
    """Have Scrapy's parser objects of so many origins. Sends the bytes for each."""
    from scrapy.robotstxt import ProtegoRobotParser

    files = made(2000)
    parsers = [ProtegoRobotParser(files[0], None)]  # what is loaded once
    before = resident_bytes()
    for number in range(origins):
        parsers.append(ProtegoRobotParser(body_of(files, number), None))
    pipe.send((resident_bytes() - before) / origins)


def our_memory(origins: int, pipe: Connection) -> None:
    """Have so many origins in memory. Sends the bytes for each."""
    files = made(2000)
    table = OriginTable(origins, sys.maxsize)
    before = resident_bytes()
    for number in range(origins):
        body = body_of(files, number)
        entry = entry_of(number, squeeze(body), hashlib.sha256(body).hexdigest())
        table.put(Origin.from_url(url_of(number)), entry)
    pipe.send((resident_bytes() - before) / origins)


def growth(steps: list[int], pipe: Connection) -> None:
    """Meet ever more origins. Sends by how many MB the process has grown at each of the *steps*."""
    # The hash says that all are different; else each file is compressed only once, to save time.
    files = [squeeze(body) for body in made(2000)]
    settings = RepSettings()
    table = OriginTable(settings.cache_max_origins, settings.cache_max_bytes)
    before, first = resident_bytes(), 0
    sizes = []
    for step in steps:
        for number in range(first, step):
            packed = bytes(bytearray(files[number % len(files)]))  # not the same object
            sha256 = hashlib.sha256(b"%d" % number).hexdigest()
            entry = entry_of(number, packed, sha256)
            table.put(Origin.from_url(url_of(number)), entry)
        first = step
        sizes.append((resident_bytes() - before) / 1e6)
    pipe.send(sizes)


class InsideSpider(scrapy.Spider):
    """Fetches nothing: what is measured happens in its event loop."""

    name = "inside"

    async def start(self) -> AsyncIterator[Any]:
        middleware = self.crawler.get_downloader_middleware(RepMiddleware)
        try:
            await self.measure(middleware)
        except Exception:  # noqa: BLE001
            traceback.print_exc()  # Scrapy would only log it
        return
        yield


def run_inside(
    where: dict[str, Any], measure: Callable[[Any], Awaitable[None]]
) -> None:
    """Await *measure* in a crawl, with its middleware."""
    process = CrawlerProcess(
        settings_of(OURS, REP_CACHE_MAX_ORIGINS=1_000_000, **where)
    )
    process.crawl(InsideSpider, measure=measure)
    process.start()


def meet(where: dict[str, Any], origins: int, pipe: Connection) -> None:
    """Look up, lease and save so many new origins. Sends how many a second, and the longest time for
    which the event loop was held."""

    async def measure(middleware: Any) -> None:
        client = middleware.origins.cache._storage
        body = made(1)[0]
        packed, sha256 = squeeze(body), hashlib.sha256(body).hexdigest()
        numbers = iter(range(origins))
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            while True:
                before = time.thread_time()
                await asyncio.sleep(0.002)
                longest = max(longest, time.thread_time() - before)

        async def one_after_another() -> None:
            for number in numbers:
                entry = entry_of(number, packed, sha256)
                if client is None:  # memory alone
                    await asyncio.sleep(0)
                    middleware.origins.table.put(Origin.from_url(url_of(number)), entry)
                    continue
                claim = await client.claim(entry.origin, lambda entry: True)
                assert claim.granted
                client.publish(entry)

        watching = asyncio.ensure_future(watch())
        began = time.perf_counter()
        await asyncio.gather(*[one_after_another() for _ in range(AT_ONCE)])
        while client is not None and client._running:
            await asyncio.sleep(0.001)
        pipe.send((origins / (time.perf_counter() - began), longest))
        watching.cancel()

    run_inside(where, measure)


def main() -> None:
    report = Report(__doc__)
    report.option("origins", 100_000, 5000)
    report.option("most", 1_000_000, 20_000)
    report.option("new", 20_000, 2000)
    chosen = report.begin()
    report.say("memory")
    theirs = result_of(scrapys_memory, min(chosen.origins, SAMPLE))
    ours = result_of(our_memory, chosen.origins)
    report.row("bytes of an origin", "Scrapy's own", OURS)
    report.row("", theirs, ours)
    report.show()
    report.at_most("memory of an origin, to Scrapy's", ours / theirs, MOST_SHARE)
    report.at_most("bytes of an origin", ours, MOST_BYTES)
    report.say("growth")
    steps = [
        step for step in (10_000, 20_000, 100_000, 1_000_000) if step <= chosen.most
    ]
    sizes = result_of(growth, steps)
    report.row("origins", *steps)
    report.row("growth, MB", *sizes)
    report.show()
    report.at_most("growth beyond 10,000, MB", sizes[-1] - sizes[0], MOST_GROWTH)
    report.row("new origins", "a second", "longest block, ms")
    with storages() as kinds:
        for kind in kinds.kinds:
            report.say(f"new origins, {kind}")
            with kinds.empty(kind) as where:
                rate, block = result_of(meet, where, chosen.new)
            report.row(kind, rate, block * 1000)
            report.at_least(f"{kind}, new origins a second", rate, LEAST_RATE)
            report.at_most(f"{kind}, ms of a block", block * 1000, MOST_BLOCK)
    report.show()
    report.end()


if __name__ == "__main__":
    main()
