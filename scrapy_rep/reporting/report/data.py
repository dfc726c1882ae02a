"""The rows of the report, and its time axis: plain values, limited to what a browser can show.
Times are seconds since the epoch, positions on the time axis percent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from scrapy_rep.text import duration

_INTERESTING = ("forbidden", "dropped", "given_up", "passed", "held")


@dataclass(slots=True)
class Period:
    """A bar on the time axis: an unbroken row of failures to fetch a robots.txt, from the start of
    the first fetch. Its *end*: ``answered``, ``given_up``, ``open``."""

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
    """Its last answer, one of :data:`~scrapy_rep.reporting.record.OUTCOMES`."""
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
    held: int = 0
    """How many are held, or wait, now."""
    waiting: int = 0
    """How many were held without an answer so far."""
    still_waiting: int = 0
    """How many of them have not left."""
    period: Period | None = None
    """The one that goes on."""

    @property
    def order(self) -> tuple[int, str]:
        """Sorts those refused most first, and those whose answer is unusual."""
        refused = sum(self.requests[name] for name in _INTERESTING)
        interest = 2 * refused + (self.outcome not in ("rules", "missing", "none"))
        return -interest, self.origin


class SitemapSum(NamedTuple):
    """What became of a sitemap."""

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


# Seconds between two ticks; for longer crawls, whole days.
_STEPS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20),
    *(60, 120, 300, 600, 1200, 3600, 7200, 14400, 28800),
)
_TICKS = 7


class Axis:
    """Time since the beginning of the crawl."""

    def __init__(self, began: float, ended: float) -> None:
        self._began = began
        self._span = span = max(ended - began, 0.001)
        days = 86400 * (1 + span // (86400 * _TICKS))
        step = next((one for one in _STEPS if span <= _TICKS * one), days)
        moments = [number * step for number in range(int(span / step) + 1)]
        texts = [f"+{at:g} s" if step < 60 else f"+{duration(at)}" for at in moments]
        self.ticks = [(self.x(began + at), text) for at, text in zip(moments, texts, strict=True)]
        """Where they are, and what they say."""

    def x(self, at: float) -> float:
        return round(min(100.0, max(0.0, 100 * (at - self._began) / self._span)), 3)

    def bar(self, one: Period) -> tuple[float, float]:
        """Return where a bar begins, and its width: visible, however short it is."""
        left = min(self.x(one.began), 100 - _NARROWEST)
        return left, round(max(_NARROWEST, self.x(one.ended) - left), 3)


_NARROWEST = 0.3
_POINTS = 500


class Timeline:
    """How many requests are held, or wait, over time, with all peaks."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        self._now = self._least = 0

    def change(self, at: float, by: int) -> None:
        """Note that this many more are held from then on."""
        self._now += by
        self._least = min(self._least, self._now)
        if self._points:
            at = max(at, self._points[-1][0])  # the clock may be set back
        self._points.append((at, self._now))
        if len(self._points) > 2 * _POINTS:
            # Keep half of them: the larger values of two, and the last one.
            *points, last = self._points
            pairs = zip(points[::2], points[1::2], strict=True)
            self._points = [(at, max(held, more)) for (at, held), (_, more) in pairs] + [last]

    def points(self, axis: Axis) -> list[tuple[float, int]]:
        """Return where the values begin, and the values. What an earlier run has held was there from
        the beginning."""
        found = [(0.0, 0), *((axis.x(at), held) for at, held in self._points), (100.0, self._now)]
        return [(x, held - self._least) for x, held in found]
