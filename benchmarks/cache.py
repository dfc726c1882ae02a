"""What the cache of robots.txt takes and gives: memory of an origin, look-ups, the event loop.

    python benchmarks/cache.py [--quick] [--origins N] [--most N] [--corpus FILE]

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
from typing import TYPE_CHECKING, Any

import scrapy
from files import made, sites
from processes import resident_bytes, result_of
from scrapy.crawler import CrawlerProcess
from storages import MEMORY, REDIS, SQLITE, Storages, storages
from tables import OURS, Goals, parser, print_heading, print_table, say, settings_of

from scrapy_rep import RepMiddleware
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages import Entry
from scrapy_rep.storages.base import squeeze

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from multiprocessing.connection import Connection

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
LEAST_RATES = {MEMORY: 2000, SQLITE: 2000, REDIS: 2000}
"""New origins a second."""
MOST_BLOCK = 100
"""Milliseconds."""


def files_of(corpus: str | None) -> list[bytes]:
    if corpus is None:
        return made(2000)
    return sorted({site.body for site in sites(corpus)[1]})


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


def scrapys_memory(corpus: str | None, origins: int, pipe: Connection) -> None:
    """Have Scrapy's parser objects of so many origins. Sends the bytes for each."""
    from scrapy.robotstxt import ProtegoRobotParser

    files = files_of(corpus)
    parsers = [ProtegoRobotParser(files[0], None)]  # what is loaded once
    before = resident_bytes()
    for number in range(origins):
        parsers.append(ProtegoRobotParser(body_of(files, number), None))
    pipe.send((resident_bytes() - before) / origins)


def our_memory(corpus: str | None, origins: int, pipe: Connection) -> None:
    """Have so many origins in memory. Sends the bytes for each."""
    files = files_of(corpus)
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
    options = parser(__doc__)
    options.add_argument("--origins", metavar="N", type=int, default=100_000)
    options.add_argument("--most", metavar="N", type=int, default=1_000_000)
    options.add_argument("--corpus", metavar="FILE", help="real files (.jsonl.gz)")
    chosen = options.parse_args()
    origins, new = chosen.origins, 20_000
    steps = [step for step in (10_000, 100_000, 1_000_000) if step <= chosen.most]
    if chosen.quick:
        origins, steps, new = 5000, [10_000, 20_000], 2000
    print_heading(
        f"{origins:,} known origins, {'real' if chosen.corpus else 'made'} files"
    )
    goals = Goals()
    say("memory")
    theirs = result_of(scrapys_memory, chosen.corpus, min(origins, SAMPLE))
    ours = result_of(our_memory, chosen.corpus, origins)
    table = [("memory of an origin", "bytes"), ("Scrapy's own", f"{theirs:,.0f}")]
    print_table([*table, (OURS, f"{ours:,.0f}")])
    goals.at_most("memory of an origin, to Scrapy's", ours / theirs, MOST_SHARE)
    goals.at_most("memory of an origin", ours, MOST_BYTES, " bytes")
    say("growth")
    sizes = result_of(growth, steps)
    headings = [f"{step:,} origins" for step in steps]
    print_table([("growth", *headings), ("MB", *[f"{size:.1f}" for size in sizes])])
    goals.at_most("growth beyond 10,000", sizes[-1] - sizes[0], MOST_GROWTH, " MB")
    with storages() as kinds:
        print_table(new_origins(kinds, new, goals))
    goals.print(quick=chosen.quick)


def new_origins(kinds: Storages, count: int, goals: Goals) -> list[tuple[str, ...]]:
    table = [("new origins", "a second", "longest block")]
    for kind in kinds.kinds:
        say(f"new origins, {kind}")
        with kinds.empty(kind) as where:
            rate, block = result_of(meet, where, count)
        table.append((kind, f"{rate:,.0f}", f"{block * 1000:.0f} ms"))
        goals.at_least(f"{kind}, new origins a second", rate, LEAST_RATES[kind])
        goals.at_most(f"{kind}, event loop held", block * 1000, MOST_BLOCK, " ms")
    return table


if __name__ == "__main__":
    main()
