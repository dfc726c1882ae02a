"""The rows of the report, and its time axis: plain values, limited to what a browser can show.
Times are seconds since the epoch, positions on the time axis percent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from scrapy_rep.text import date

_INTERESTING = ("forbidden", "dropped", "given_up", "passed", "held")


@dataclass(slots=True)
class RuleOrigin:
    origin: str
    robots_url: str
    line: int
    url: str
    """The first that was refused."""
    sha256: str | None
    times: int = 0
    excerpt: list[tuple[int, str, bool]] = field(default_factory=list)
    """Lines around it: number, text, whether it decided."""


@dataclass(slots=True)
class RuleRow:
    rule: str
    group: str
    times: int = 0
    all_origins: int = 0
    known: dict[str, RuleOrigin] = field(default_factory=dict)
    """The first origins that have it."""

    @property
    def origins(self) -> list[RuleOrigin]:
        """Those with most refusals first."""
        return sorted(self.known.values(), key=lambda one: (-one.times, one.origin))


@dataclass(slots=True)
class Period:
    """A bar on the time axis: an unbroken row of failures to fetch a robots.txt, from the start of
    the first fetch (its *end*: ``answered``, ``given_up``, ``open``); or requests that ``waited``
    for a first answer, or wait for one that never came (``unanswered``)."""

    origin: str
    began: float
    ended: float
    end: str = "open"
    fetches: int = 0
    reason: str = ""
    requests: int = 0
    given_up: int = 0

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.began)


@dataclass(slots=True)
class OriginRow:
    origin: str
    outcome: str = "none"
    """Its last answer, a key of :data:`~scrapy_rep.reporting.record.OUTCOMES`."""
    kind: str = ""
    reason: str = ""
    url: str = ""
    status: int | None = None
    size: int | None = None
    delay: float | None = None
    sha256: str | None = None
    """Of the last file that counted."""
    fetches: int = 0
    sitemaps: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    """By what became of them, see :attr:`CrawlSum.counts`."""
    unclear: int = 0
    """How many are held without an answer so far."""
    open_held: int = 0
    open_waiting: int = 0
    period: Period | None = None
    """The one that goes on."""

    @property
    def share(self) -> float | None:
        allowed, forbidden = self.requests["allowed"], self.requests["forbidden"]
        return forbidden / (allowed + forbidden) if allowed or forbidden else None

    @property
    def order(self) -> tuple[bool, int, str]:
        """Sorts origins with something going on, and those refused most, first."""
        refused = sum(self.requests[name] for name in _INTERESTING)
        interest = 2 * refused + (self.outcome not in ("rules", "missing", "none"))
        return self.period is None, -interest, self.origin


class SitemapRow(NamedTuple):
    url: str
    found: str
    by: str
    kind: str
    entries: int
    taken: int
    rejected: list[tuple[str, int]]
    failed: str
    read: bool


@dataclass(slots=True)
class SaidRow:
    """What pages said about themselves: against which requests or items, or about which use."""

    about: str
    text: str
    url: str
    count: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Change:
    """What differs between an origin's robots.txt files: in the crawl, or since the one before."""

    origin: str
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    lines_added: int = 0
    lines_removed: int = 0
    at: float = 0.0
    turned: list[dict[str, str]] = field(default_factory=list)
    """Some URLs on which the verdict has changed: ``url``, ``was`` and ``now``."""
    turned_count: int = 0
    outcomes: tuple[str, str] = ("", "")
    """Before and after, between crawls."""
    sha256: tuple[str | None, str | None] = (None, None)
    crawls: tuple[int, int] = (0, 0)
    known: bool = False
    """Whether what has changed is known."""


class Tick(NamedTuple):
    at: float
    x: float
    text: str


# Seconds between two ticks; for longer crawls, whole days.
_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
)
_TICKS = 7
_MINUTE, _DAY = 60, 86400
# Shorter than that, a crawl's axis has seconds since its beginning.
_SHORT = 60
_NARROWEST = 0.3


class Axis:
    def __init__(self, began: float, ended: float) -> None:
        self._began = began
        self._span = max(ended - began, 0.001)
        self.ticks = list(self._ticks())

    def x(self, at: float) -> float:
        return round(min(100.0, max(0.0, 100 * (at - self._began) / self._span)), 3)

    def bar(self, one: Period) -> tuple[float, float]:
        """Return where a bar begins, and its width: visible, however short it is."""
        left = min(self.x(one.began), 100 - _NARROWEST)
        return left, round(max(_NARROWEST, self.x(one.ended) - left), 3)

    def _ticks(self) -> Iterator[Tick]:
        """Yield moments in whole steps, so that a tick at 12:00:00 does not say 11:59:59."""
        days = math.ceil(self._span / _TICKS / _DAY) * _DAY
        step: float = next((one for one in _STEPS if self._span <= _TICKS * one), days)
        zero = 0.0 if self._span >= _SHORT else self._began
        form = "%H:%M:%S" if step < _MINUTE else "%H:%M"
        form = form if self._span < _DAY else f"%m-%d {form}"
        first = math.ceil((self._began - zero) / step)
        for number in range(first, first + _TICKS + 1):
            at = zero + number * step
            if at <= self._began + self._span:
                text = date(at, form) if zero == 0.0 else f"+{number * step:g} s"
                yield Tick(at, self.x(at), text)


_POINTS = 500


class TimePoint(NamedTuple):
    """How many requests are held, and how many wait for a first answer, from this moment on."""

    at: float
    held: int
    waiting: int
    x: float = 0.0


class Timeline:
    """How many requests are held, and wait, over time, with all peaks."""

    def __init__(self) -> None:
        self._points: list[TimePoint] = []
        self.held = self.waiting = self.before = 0
        """Now; and how many an earlier run held, as far as they have left."""

    def change(self, at: float, held: int, waiting: int) -> None:
        """Note that this many more are held, and wait, from then on."""
        self.held += held
        self.waiting += waiting
        if self._points:
            at = max(at, self._points[-1].at)  # the clock may be set back
        self._points.append(TimePoint(at, self.held, self.waiting))
        if len(self._points) > 2 * _POINTS - 2:
            # Keep half of them: the larger values of two, and the last one.
            *points, last = self._points
            pairs = [points[at : at + 2] for at in range(0, len(points), 2)]
            self._points = [
                TimePoint(two[0].at, max(one.held for one in two), max(one.waiting for one in two))
                for two in pairs
            ]
            self._points.append(last)

    def points(self, began: float, ended: float, axis: Axis) -> list[TimePoint]:
        """Return the values, each until the next."""
        found = [TimePoint(began, 0, 0), *self._points]
        if self._points:
            found.append(found[-1]._replace(at=ended))
        return [
            TimePoint(one.at, max(0, one.held + self.before), max(0, one.waiting), axis.x(one.at))
            for one in found
        ]
