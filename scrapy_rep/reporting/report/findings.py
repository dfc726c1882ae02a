"""What needs a look: sentences at the top of the report. Beside it, requests held over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.text import counted, date
from scrapy_rep.reporting.record import CONFIGURATION
from scrapy_rep.reporting.report.data import Axis, Finding, Tick, TimePoint
from scrapy_rep.reporting.report.lines import mapping, number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy_rep.reporting.report.data import Bar, CrawlData, OriginRow
    from scrapy_rep.reporting.report.reading import CrawlSum

_ITEMS = 5
_LEVELS = ("error", "warning", "note")
# Rules that close a whole site.
_WHOLE = frozenset({"/", "/*", "*"})


def findings(data: CrawlData, one: CrawlSum) -> list[Finding]:
    """Return what needs a look, the most serious first."""
    found = [*_of_the_crawl(data, one), *_of_origins(data), *_of_sitemaps(data), *_of_pages(data)]
    return sorted(found, key=lambda finding: _LEVELS.index(finding.level))


def _of_the_crawl(data: CrawlData, one: CrawlSum) -> Iterator[Finding]:
    starts = mapping((one.finished or {}).get("start_requests"))
    if count := number(starts.get("refused")):
        command, url = text(starts.get("command")), text(starts.get("url"))
        if starts.get("passed") is True:
            words = f"robots.txt refused {counted(count, 'start request')}. The others got through."
            level = "warning"
        else:
            words, level = f"robots.txt refused every start request ({count:,}).", "error"
        words += f" The first was {url}: {text(starts.get('why')).rstrip('.')}."
        yield Finding("start_requests", level, count, words, "rules", "", command, [url])
    if count := one.outcomes()["none", CONFIGURATION]:
        stuck = [(name, row) for name, row in one.origins.items() if row.kind == CONFIGURATION]
        words = f"The project's configuration keeps the crawl from {counted(count, 'origin')}"
        words += f": {stuck[0][1].reason}." if stuck else "."
        items = [name for name, _ in stuck[:_ITEMS]]
        yield Finding("configuration", "error", count, words, "origins", "none", "", items)
    if one.finished is None and one.started:
        words = "The record has no end: the crawl was killed, or is still running."
        yield Finding("killed", "warning", 1, words)
    if count := data.counts.given_up:
        words = f"{counted(count, 'request')} held to no avail and given up."
        yield Finding("given_up", "warning", count, words, "unreachable")
    if count := data.counts.kept:
        words = f"{counted(count, 'request')} still held at the end, and kept for the next run."
        yield Finding("kept", "note", count, words, "unreachable")
    if count := data.all_changes:
        words = f"{counted(count, 'robots.txt', 'robots.txt files')} changed in the crawl."
        items = [change.origin for change in data.changes[:_ITEMS]]
        yield Finding("changed", "note", count, words, "changes", "", "", items)


def _of_origins(data: CrawlData) -> Iterator[Finding]:
    outcomes = {row.key: row.count for row in data.outcomes}

    def rows(accepts: Callable[[OriginRow], bool]) -> list[OriginRow]:
        return [row for row in data.origins if accepts(row)]

    whole = {
        one.origin
        for row in data.rules
        if row.rule.partition(":")[2].strip() in _WHOLE
        for one in row.origins
    }
    shut = rows(lambda row: row.origin in whole and not row.allowed)
    if shut:
        refused = sum(row.forbidden for row in shut)
        words = (
            f"{counted(len(shut), 'origin')} closed to this crawler as a whole: "
            f"{counted(refused, 'request')} refused."
        )
        yield _finding("closed", "warning", len(shut), words, "rules", shut)
    if count := outcomes.get("unreachable", 0):
        why = ", ".join(f"{n:,} {kind or 'unknown'}" for kind, n in data.reasons)
        words = f"{counted(count, 'origin')} unreachable at the end: {why}."
        down = rows(lambda row: row.outcome == "unreachable")
        yield _finding("down", "error", count, words, "origins", down, "unreachable")
    for kind, level, what in (
        ("challenge", "warning", "answered with a bot wall in place of robots.txt"),
        ("html", "warning", "answered with an HTML page in place of robots.txt"),
        ("redirected", "warning", "redirected in a loop, too often or to nowhere"),
    ):
        if count := outcomes.get(kind, 0):
            words = f"{counted(count, 'origin')} {what}."
            some = rows(lambda row, kind=kind: row.outcome == kind)  # type: ignore[misc]
            name = "redirects" if kind == "redirected" else kind
            yield _finding(name, level, count, words, "origins", some, kind)


def _finding(
    kind: str,
    level: str,
    count: int,
    words: str,
    section: str,
    rows: list[OriginRow],
    only: str = "",
) -> Finding:
    items = [row.origin for row in rows[:_ITEMS]]
    return Finding(kind, level, count, words, section, only, "", items)


def _of_sitemaps(data: CrawlData) -> Iterator[Finding]:
    failed = [row for row in data.sitemaps if not row.read and row.found != "guessed"]
    if failed:
        first = failed[0]
        words = f"{counted(len(failed), 'sitemap')} could not be read: {first.url} ({first.failed})"
        words += ", for example." if len(failed) > 1 else "."
        items = [row.url for row in failed[:_ITEMS]]
        yield Finding("sitemaps", "warning", len(failed), words, "sitemaps", "", "", items)
    empty = [row for row in data.sitemaps if row.read and row.entries and not row.taken]
    if empty:
        words = f"Nothing was taken from {counted(len(empty), 'sitemap')} that could be read."
        items = [row.url for row in empty[:_ITEMS]]
        yield Finding("sitemaps", "note", len(empty), words, "sitemaps", "", "", items)


def _of_pages(data: CrawlData) -> Iterator[Finding]:
    for kind, count, why in (
        ("pages", data.counts.page_dropped, "the rules of their pages"),
        ("usage", data.counts.usage_dropped, "preferences about use"),
    ):
        if count:
            words = f"{counted(count, 'item or request', 'items and requests')} dropped because of {why}."
            yield Finding(kind, "note", count, words, kind)


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
