"""What the cache of robots.txt takes: memory of an origin, and of ever more of them.

    python benchmarks/cache.py [--quick] [--origins N] [--most N]

Memory for each origin that is known, beside Scrapy's own parser objects; and the growth of a process that
meets more of them than are kept in memory.
"""

from __future__ import annotations

import hashlib
import sys
import time
from multiprocessing.connection import Connection

from files import made
from processes import resident_bytes, result_of
from tables import OURS, Report

from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages import Entry
from scrapy_rep.storages.base import squeeze

DAY = 86400.0
SAMPLE = 25_000  # Of Scrapy's parser objects: 100,000 of them would be gigabytes
MOST_SHARE = 1 / 13  # Of the memory of Scrapy's parser objects
MOST_BYTES = 1500
MOST_GROWTH = 5  # MB, of a process beyond REP_CACHE_MAX_ORIGINS


def url_of(number: int) -> str:
    return f"https://www.site-{number}.example"


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
        body = b"# robots.txt of site %d\n" % number + files[number % len(files)]
        parsers.append(ProtegoRobotParser(body, None))
    pipe.send((resident_bytes() - before) / origins)


def growth(most: int, steps: list[int], pipe: Connection) -> None:
    """Meet ever more origins, with so many in memory at most. Sends by how many MB the process has grown at
    each of the *steps*."""
    # The hash says that all are different; else each file is compressed only once, to save time.
    bodies = made(2000)  # kept: its memory would be used again
    files = [squeeze(body) for body in bodies]
    table = OriginTable(most, sys.maxsize)
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


def main() -> None:
    report = Report(__doc__)
    report.option("origins", 100_000, 5000)
    report.option("most", 1_000_000, 20_000)
    chosen = report.begin()
    report.say("memory")
    theirs = result_of(scrapys_memory, min(chosen.origins, SAMPLE))
    origins = chosen.origins
    ours = result_of(growth, origins, [origins])[0] * 1e6 / origins
    report.row("bytes of an origin", "Scrapy's own", OURS)
    report.row("", theirs, ours)
    report.show()
    report.at_most("memory of an origin, to Scrapy's", ours / theirs, MOST_SHARE)
    report.at_most("bytes of an origin", ours, MOST_BYTES)
    report.say("growth")
    steps = [
        step for step in (10_000, 20_000, 100_000, 1_000_000) if step <= chosen.most
    ]
    sizes = result_of(growth, steps[0], steps)
    report.row("origins", *steps)
    report.row("growth, MB", *sizes)
    report.show()
    report.at_most("growth beyond 10,000, MB", sizes[-1] - sizes[0], MOST_GROWTH)
    report.end()


if __name__ == "__main__":
    main()
