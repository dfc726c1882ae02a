"""What needs a look: sentences at the top of the report. Beside it, requests held over time."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from scrapy_rep.engine.text import counted, date
from scrapy_rep.reporting.record import CONFIGURATION
from scrapy_rep.reporting.report.data import Axis, Finding, Tick, TimePoint
from scrapy_rep.reporting.report.lines import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.reporting.report.data import Change, OriginRow
    from scrapy_rep.reporting.report.reading import CrawlSum

_ITEMS = 5
_LEVELS = ("error", "warning", "note")
# Rules that close a whole origin.
_WHOLE = frozenset({"/", "/*", "*"})


def findings(crawl: CrawlSum) -> list[Finding]:
    """Return what needs a look, the most serious first."""
    found = [*_of_the_crawl(crawl), *_of_origins(crawl), *_of_sitemaps(crawl), *_of_pages(crawl)]
    return sorted(found, key=lambda finding: _LEVELS.index(finding.level))


def _of_the_crawl(crawl: CrawlSum) -> Iterator[Finding]:
    yield from _of_start_requests(crawl)
    if count := crawl.outcomes["none", CONFIGURATION]:
        stuck = [row for row in crawl.known.values() if row.kind == CONFIGURATION]
        words = f"The project's configuration keeps the crawl from {counted(count, 'origin')}"
        words += f": {stuck[0].reason}." if stuck else "."
        yield Finding("configuration", "error", count, words, "origins", _names(stuck), "none")
    if crawl.finished is None and crawl.started:
        words = "The record is incomplete: the crawl was killed, or is still running."
        yield Finding("killed", "warning", 1, words)
    if count := crawl.counts["given_up"]:
        words = f"{counted(count, 'held request')} given up."
        yield Finding("given_up", "warning", count, words, "unreachable")
    if count := crawl.counts["kept"]:
        words = f"{counted(count, 'request')} still held at the end, and kept for the next run."
        yield Finding("kept", "note", count, words, "unreachable")
    if count := crawl.changes.all:
        words = f"{counted(count, 'robots.txt', 'robots.txt files')} changed in the crawl."
        yield Finding("changed", "note", count, words, "changes", _names(crawl.changes))


def _of_start_requests(crawl: CrawlSum) -> Iterator[Finding]:
    starts = (crawl.finished or Line({})).part("start_requests")
    count = starts.number("refused")
    if not count:
        return
    level, words = "error", f"robots.txt refused every start request ({count:,})."
    if starts.flag("passed"):
        level = "warning"
        words = f"robots.txt refused {counted(count, 'start request')}. The others got through."
    url, command = starts.text("url"), starts.text("command")
    words += f" The first was {url}: {starts.text('why').rstrip('.')}."
    yield Finding("start_requests", level, count, words, "rules", [url], "", command)


def _of_origins(crawl: CrawlSum) -> Iterator[Finding]:
    closed = {
        one.origin
        for row in crawl.rules
        if row.rule.partition(":")[2].strip() in _WHOLE
        for one in row.origins
    }
    shut = [row for row in crawl.origins if row.origin in closed and not row.requests["allowed"]]
    if shut:
        refused = counted(sum(row.requests["forbidden"] for row in shut), "request")
        words = (
            f"{counted(len(shut), 'origin')} entirely closed to this crawler: {refused} refused."
        )
        yield Finding("closed", "warning", len(shut), words, "rules", _names(shut))
    reasons = ", ".join(f"{n:,} {kind or 'unknown'}" for kind, n in crawl.reasons)
    for outcome, kind, level, what in (
        ("unreachable", "down", "error", f"unreachable at the end: {reasons}"),
        ("challenge", "challenge", "warning", "answered with a bot wall in place of robots.txt"),
        ("html", "html", "warning", "answered with an HTML page in place of robots.txt"),
        (
            "redirected",
            "redirects",
            "warning",
            "redirected in a loop, too many times, or without a target",
        ),
    ):
        if count := sum(row.count for row in crawl.answers if row.key == outcome):
            some = _names(row for row in crawl.origins if row.outcome == outcome)
            words = f"{counted(count, 'origin')} {what}."
            yield Finding(kind, level, count, words, "origins", some, outcome)


def _of_sitemaps(crawl: CrawlSum) -> Iterator[Finding]:
    failed = [row for row in crawl.sitemaps if not row.read and row.found != "guessed"]
    if failed:
        first = failed[0]
        words = f"{counted(len(failed), 'sitemap')} could not be read: {first.url} ({first.failed})"
        words += ", for example." if len(failed) > 1 else "."
        urls = [row.url for row in failed[:_ITEMS]]
        yield Finding("sitemaps", "warning", len(failed), words, "sitemaps", urls)
    empty = [row for row in crawl.sitemaps if row.read and row.entries and not row.taken]
    if empty:
        words = f"Nothing was taken from {counted(len(empty), 'sitemap')} that could be read."
        urls = [row.url for row in empty[:_ITEMS]]
        yield Finding("sitemaps", "note", len(empty), words, "sitemaps", urls)


def _of_pages(crawl: CrawlSum) -> Iterator[Finding]:
    for kind, count, why in (
        ("pages", crawl.counts["page_dropped"], "the rules of their pages"),
        ("usage", crawl.counts["usage_dropped"], "preferences about use"),
    ):
        if count:
            words = f"{counted(count, 'item or request', 'items and requests')} dropped because of {why}."
            yield Finding(kind, "note", count, words, kind)


def _names(rows: Iterable[OriginRow | Change]) -> list[str]:
    return [row.origin for row in islice(rows, _ITEMS)]


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
    axis = Axis(began, ended)
    for count in range(first, first + _TICKS + 2):
        at = zero + count * step
        if began <= at + 1e-6 and at <= ended + 1e-6:
            axis.ticks.append(Tick(at, axis.x(at), _words(at, at - zero, step, span)))
    return axis


def _words(at: float, since: float, step: float, span: float) -> str:
    if span < _SHORT:
        return f"+{round(since, 2):g} s"
    form = "%H:%M:%S" if step < _MINUTE else "%H:%M"
    return date(round(at), form if span < _DAY else f"%m-%d {form}")


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
        found = [(axis.began, 0, 0), *self._points]
        if len(found) > 1:
            found.append((axis.ended, *found[-1][1:]))
        return [
            TimePoint(at, max(0, held + self.before), max(0, waiting), axis.x(at))
            for at, held, waiting in found
        ]


def _peak(points: list[tuple[float, int, int]]) -> tuple[float, int, int]:
    return points[0][0], max(one[1] for one in points), max(one[2] for one in points)
