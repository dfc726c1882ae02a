"""The report's time axis, and the number of requests held over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.words import date
from scrapy_rep.reporting.report.data import Axis, Tick, TimePoint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_rep.reporting.report.data import Bar

# Seconds between two ticks.
_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400),
)
_TICKS = 7
_MINUTE, _DAY = 60, 86400
# Shorter than that, a crawl's axis has seconds since its beginning.
_SHORT = 60
_POINTS = 1000
_NARROWEST = 0.3


def axis_of(began: float, ended: float) -> Axis:
    """Return the axis of a crawl."""
    ended = max(ended, began + 0.001)
    span = ended - began
    step: float = next((step for step in _STEPS if span / step <= _TICKS), _DAY)
    while span / step > _TICKS:
        step *= 2
    # In whole steps, so that a tick at 12:00:00 does not say 11:59:59.
    zero = 0.0 if span >= _SHORT else began
    first = -int(-(began - zero) // step)
    ticks = []
    for count in range(first, first + _TICKS + 2):
        at = zero + count * step
        if began <= at + 1e-6 and at <= ended + 1e-6:
            ticks.append(Tick(at, _share(at, began, span), _words(at, at - zero, step, span)))
    return Axis(began, ended, ticks)


def _words(at: float, since: float, step: float, span: float) -> str:
    if span < _SHORT:
        return f"+{round(since, 2):g} s"
    form = "%H:%M:%S" if step < _MINUTE else "%H:%M"
    return date(round(at), form if span < _DAY else f"%m-%d {form}")


def _share(at: float, began: float, span: float) -> float:
    return round(min(100.0, max(0.0, 100 * (at - began) / span)), 3)


def place(bars: Iterable[Bar], axis: Axis) -> None:
    """Set the positions of *bars*."""
    span = axis.ended - axis.began
    for one in bars:
        one.left = min(_share(one.began, axis.began, span), 100 - _NARROWEST)
        width = _share(one.ended, axis.began, span) - one.left
        one.width = round(max(_NARROWEST, width), 3)


class Timeline:
    """How many requests are held, and wait, over time, with all peaks."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int, int]] = []
        self.held = self.waiting = self.before = 0
        """Now; and how many an earlier run held, as far as they have left."""

    def change(self, at: float, held: int, waiting: int) -> None:
        """So many more are held, and wait, from then on."""
        self.held += held
        self.waiting += waiting
        if self._points:
            at = max(at, self._points[-1][0])  # the clock may be set back
        self._points.append((at, self.held, self.waiting))
        if len(self._points) > 2 * _POINTS:
            self._points = self._thinned()

    def _thinned(self) -> list[tuple[float, int, int]]:
        """Return half of the points: the larger values of two, and the last ones."""
        *points, last = self._points
        found = [_peak(points[at : at + 2]) for at in range(0, len(points), 2)]
        return [*found, last]

    def points(self, axis: Axis) -> list[TimePoint]:
        """Return the values, each until the next."""
        while len(self._points) > _POINTS - 2:
            self._points = self._thinned()
        span = axis.ended - axis.began
        found = [(axis.began, 0, 0), *self._points]
        if len(found) > 1:
            found.append((axis.ended, *found[-1][1:]))
        return [
            TimePoint(at, max(0, held + self.before), max(0, waiting), _share(at, axis.began, span))
            for at, held, waiting in found
        ]


def _peak(points: list[tuple[float, int, int]]) -> tuple[float, int, int]:
    return points[0][0], max(one[1] for one in points), max(one[2] for one in points)
