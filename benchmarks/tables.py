"""What a benchmark prints: its heading, its tables, and which goals were met."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUILT_IN, OURS, NONE = "Scrapy's own", "scrapy-rep", "no robots.txt"
SETTINGS: dict[str, Any] = {
    "USER_AGENT": "BenchmarkBot/1.0",
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
}
"""Of every crawl."""


def settings_of(who: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a crawl with Scrapy's own middleware, ours, or none."""
    addons = {"scrapy_rep.Addon": 300} if who == OURS else {}
    return {**SETTINGS, "ROBOTSTXT_OBEY": who != NONE, "ADDONS": addons, **more}


def parser(doc: str | None, *, rounds: int | None = None) -> argparse.ArgumentParser:
    """Return a parser of options: ``--quick``, and ``--rounds`` if there are some."""
    options = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    options.add_argument(
        "--quick", action="store_true", help="small: only to see it work"
    )
    if rounds is not None:
        options.add_argument("--rounds", metavar="N", type=int, default=rounds)
    return options


def say(text: str) -> None:
    """Tell what is done, beside the table."""
    print(f"... {text}", file=sys.stderr, flush=True)


def print_heading(text: str) -> None:
    load = os.getloadavg()[0]
    print(
        f"Scrapy {version('scrapy')}, Protego {version('protego')}, "
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load:.1f}\n{text}\n",
        flush=True,
    )


def print_table(rows: Iterable[Sequence[str]]) -> None:
    """Print *rows* of cells, the first of which is a heading, aligned: the first column left."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1])]
        cells += [cell.rjust(width) for cell, width in others]
        print("  " + "  ".join(cells).rstrip())
    print(flush=True)


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(
        one / other for one, other in zip(ones, others, strict=True)
    )


class Goals:
    """What was measured beside what it should be."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def at_most(self, what: str, figure: float, most: float, unit: str = "") -> None:
        self._add(what, figure, f"at most {most:g}{unit}", figure <= most, unit)

    def at_least(self, what: str, figure: float, least: float, unit: str = "") -> None:
        self._add(what, figure, f"at least {least:g}{unit}", figure >= least, unit)

    def _add(
        self, what: str, figure: float, goal: str, is_met: bool, unit: str
    ) -> None:
        verdict = "met" if is_met else "MISSED"
        self._lines.append(f"  {verdict:8}{what}: {figure:,.3g}{unit} ({goal})")

    def print(self, *, quick: bool = False) -> None:
        print("Goals")
        if quick:
            print("  told by the full run: this one was small")
        for line in self._lines if not quick else ():
            print(line)
