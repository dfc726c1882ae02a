"""What a known origin takes in memory, and what the package adds to the start of Scrapy.

python benchmarks/footprint.py [--rounds N]
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cachework import pack_body
from corpus import sites
from tables import Row, table

from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.storages.base import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from corpus import Site

AGENT = "BenchmarkBot"
MAX_IMPORT = 0.015
"""Seconds."""
CRAWL = (
    "scrapy.core.downloader.handlers.http11",
    "scrapy.core.engine",
    "scrapy.crawler",
    "scrapy.downloadermiddlewares.robotstxt",
    "scrapy.extensions.feedexport",
)
"""Modules that each crawl imports, with all that they import."""


def ours(file: Site) -> object:
    """All that the middleware keeps of an origin: its entry with the body, compressed, too."""
    origin = Origin.from_url(file.urls[0])
    packed, sha256 = pack_body(file.body)
    entry = Entry(
        str(origin), outcome=Outcome.RULES, status=200, packed=packed, sha256=sha256
    )
    known = OriginState(entry, origin)
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


def python(code: str, compiled: str) -> str:
    """Run *code* in a new Python, whose modules are compiled once, into the folder *compiled*."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


# What is imported, what has been imported before, and what it may take in seconds.
IMPORTS = [
    ("import scrapy_rep", "import scrapy", MAX_IMPORT),
    ("import scrapy_rep.commands.robots", "import scrapy.cmdline", MAX_IMPORT),
    ("from scrapy_rep import Addon, RepMiddleware", "import " + ", ".join(CRAWL), None),
]
MEANING = """\
The second is what any `scrapy` command takes more (as Scrapy looks for commands), the third what a
crawl takes more, beyond what each crawl imports."""

LOADED = """
import contextlib, io, sys
from scrapy.cmdline import execute
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    execute(["scrapy", "version"])
print(*sorted(name for name in sys.modules if name.split(".")[0] == "scrapy_rep"), sep=", ")
"""


def start_up(rounds: int) -> str:
    lines = ["Start-up: CPU time of imports"]
    with tempfile.TemporaryDirectory() as compiled:
        for statement, before, goal in IMPORTS:
            code = f"{before}, time; t = time.process_time(); {statement}"
            code += "; print(time.process_time() - t)"
            python(code, compiled)
            seconds = statistics.median(
                float(python(code, compiled)) for _ in range(rounds)
            )
            text = f"  {statement:45}{seconds * 1000:6.1f} ms"
            if goal is not None:
                text += f"  <= {goal * 1000:.0f} ms {'met' if seconds <= goal else 'MISSED'}"
            lines.append(text)
        lines.append(MEANING)
        loaded = python(LOADED, compiled) or "nothing: it is not installed here"
    lines.append(f"`scrapy version` imports of it: {loaded}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", metavar="N", type=int, choices=range(1, 100), default=9
    )
    options = parser.parse_args()
    print(memory())
    print()
    print(start_up(options.rounds))


if __name__ == "__main__":
    main()
