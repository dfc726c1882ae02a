"""What a known origin takes in memory, and what the package adds to the start of Scrapy.

python benchmarks/footprint.py [--rounds N]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
import tracemalloc
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from corpus import sites
from tables import Row, table

from scrapy_rep.known import Known
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages.entry import Entry, pack_body

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpus import Site

AGENT = "BenchmarkBot"
MAX_IMPORT = 0.015
"""Seconds."""


def ours(file: Site) -> object:
    """All that the middleware keeps of an origin: its entry with the body, compressed, too."""
    origin = Origin.from_url(file.urls[0])
    packed, sha256 = pack_body(file.body)
    entry = Entry(str(origin), outcome=Outcome.RULES, status=200, packed=packed, sha256=sha256)
    known = Known(entry)
    assert known.robots is not None
    known.robots.allowed(file.urls[0], AGENT)
    return known


def built_in(file: Site) -> object:
    """What Scrapy's middleware keeps: its parser."""
    from scrapy.robotstxt import ProtegoRobotParser

    parser: Any = ProtegoRobotParser(file.body, None)
    parser.allowed(file.urls[0], AGENT)
    return parser


def bytes_each(make: Callable[[Site], object], files: Sequence[Site]) -> float:
    make(files[0])
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [make(file) for file in files]
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return size / len(kept)


def memory() -> str:
    what, found = sites()
    files = list({file.body: file for file in found}.values())
    sizes = [bytes_each(make, files) for make in (ours, built_in)]
    figures = [f"{size:,.0f} bytes" for size in sizes]
    peer = f"built-in, Protego {version('protego')}"
    rows = [Row("memory of an origin", peer, *figures, sizes[1] / sizes[0], 3)]
    return f"Memory: {what}, {len(files)} files; as tracemalloc counts\n\n{table(rows)}"


def import_seconds(statement: str, rounds: int) -> Callable[[], float]:
    code = (
        f"import scrapy, time; t = time.process_time(); {statement}; print(time.process_time() - t)"
    )

    def run() -> float:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    return run


def command_seconds() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "scrapy", "version"], capture_output=True, check=True)
    return time.perf_counter() - started


def start_up(rounds: int) -> str:
    lines = ["Start-up: CPU time beyond `import scrapy`"]
    for statement, goal in {
        "import scrapy_rep": MAX_IMPORT,
        "from scrapy_rep import Addon": None,
        "from scrapy_rep import RepMiddleware": None,
    }.items():
        run = import_seconds(statement, rounds)
        seconds = statistics.median(run() for _ in range(rounds))
        text = f"  {statement:40}{seconds * 1000:6.1f} ms"
        if goal is not None:
            text += f"  <= {goal * 1000:.0f} ms {'met' if seconds <= goal else 'MISSED'}"
        lines.append(text)
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "scrapy", "version"],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    names = sorted({line.rpartition("|")[2].strip() for line in loaded.splitlines()})
    mine = [name for name in names if name.split(".")[0] == "scrapy_rep"]
    lines.append(
        f"  a scrapy command that crawls nothing imports of it: {', '.join(mine) or 'nothing'}"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", metavar="N", type=int, choices=range(1, 100), default=9)
    options = parser.parse_args()
    print(memory())
    print()
    print(start_up(options.rounds))


if __name__ == "__main__":
    main()
