"""What a benchmark prints: its heading, its tables, and which goals were met."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

BUILT_IN, OURS, NONE = "Scrapy's own", "scrapy-rep", "no robots.txt"


def settings_of(who: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a crawl with Scrapy's own middleware, ours, or none."""
    return {
        "USER_AGENT": "BenchmarkBot/1.0",
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "ROBOTSTXT_OBEY": who != NONE,
        "ADDONS": {"scrapy_rep.Addon": 300} if who == OURS else {},
        **more,
    }


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    pairs = zip(ones, others, strict=True)
    return statistics.median(one / other for one, other in pairs)


class Report:
    """Reads a benchmark's options, and prints what it finds."""

    def __init__(self, doc: str | None) -> None:
        """*doc*: the docstring of the benchmark."""
        self._parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
        self._names: list[str] = []
        self._quick: dict[str, Any] = {}
        self._is_quick = False
        self._rows: list[list[str]] = []
        self._goals: list[str] = []

    def option(self, name: str, default: Any, quick: Any = None, **more: Any) -> None:
        """Add an option ``--name``; *quick*: what it is with ``--quick``, if that differs."""
        if not more:
            more = {"type": type(default), "metavar": "N"}
        self._parser.add_argument(f"--{name}", default=default, **more)
        self._names.append(name)
        if quick is not None:
            self._quick[name] = quick

    def begin(self) -> argparse.Namespace:
        """Return the options; print what is measured where."""
        self._parser.add_argument("--quick", action="store_true", help="only a try")
        chosen = self._parser.parse_args()
        self._is_quick = chosen.quick
        if chosen.quick:
            vars(chosen).update(self._quick)
        print(
            f"Scrapy {version('scrapy')}, Protego {version('protego')}, Python "
            f"{platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
        )
        print(", ".join(f"{name} {vars(chosen)[name]}" for name in self._names), "\n")
        return chosen

    def say(self, text: str) -> None:
        """Tell what is done, beside the table."""
        print(f"... {text}", file=sys.stderr, flush=True)

    def row(self, *cells: object) -> None:
        """Add a row to the table, the first of which is its heading."""
        texts = []
        for cell in cells:
            whole = isinstance(cell, float) and abs(cell) >= 100
            form = ",.0f" if whole else ".3g" if isinstance(cell, float) else ""
            texts.append(format(cell, form))
        self._rows.append(texts)

    def show(self) -> None:
        """Print the table, the first column left, and begin a new one."""
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for first, *others in self._rows:
            cells = zip(others, widths[1:], strict=True)
            right = [cell.rjust(width) for cell, width in cells]
            print("  " + "  ".join([first.ljust(widths[0]), *right]))
        print(flush=True)
        self._rows = []

    def at_most(self, what: str, figure: float, most: float) -> None:
        self._goal(what, figure, f"at most {most:.4g}", figure <= most)

    def at_least(self, what: str, figure: float, least: float) -> None:
        self._goal(what, figure, f"at least {least:.4g}", figure >= least)

    def _goal(self, what: str, figure: float, goal: str, is_met: bool) -> None:
        verdict = "met" if is_met else "MISSED"
        self._goals.append(f"  {verdict:8}{what}: {figure:.3g} ({goal})")

    def end(self) -> None:
        """Print which goals were met; a quick run can't tell."""
        print("Goals: the full run tells" if self._is_quick else "Goals")
        for line in () if self._is_quick else self._goals:
            print(line)
