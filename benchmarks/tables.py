"""The table of a benchmark: what was measured, beside whom, and which goal was met."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Row(NamedTuple):
    """One comparison."""

    what: str
    peer: str
    """Its name and version."""
    ours: str
    theirs: str
    ratio: float
    goal: float | None = None
    """What the ratio shall be. None: no goal, only told."""
    at_most: bool = False
    """Whether the goal is the most, not the least, that the ratio may be."""
    exact: bool = False
    """Whether the ratio is told with three decimals, not with one."""

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        met = self.ratio <= self.goal if self.at_most else self.ratio >= self.goal
        return f"{'<=' if self.at_most else '>='} {self.goal:g} {'met' if met else 'MISSED'}"


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(
        one / other for one, other in zip(ones, others, strict=True)
    )


def table(rows: Sequence[Row]) -> str:
    """Return *rows* as aligned text."""
    cells = [("", "beside", "scrapy-rep", "peer", "ratio", "goal")]
    for row in rows:
        ratio = f"{row.ratio:.3f}" if row.at_most or row.exact else f"{row.ratio:.1f}"
        cells.append((row.what, row.peer, row.ours, row.theirs, ratio, row.verdict))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row_ in cells:
        padded = [
            cell.ljust(width) if at in (0, 1, 5) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row_, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)
