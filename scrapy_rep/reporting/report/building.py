"""Builds the report's contents (`data.py`) from records."""

from __future__ import annotations

from itertools import pairwise
from typing import IO, TYPE_CHECKING

from scrapy_rep.reporting.report.data import Change, ReportData
from scrapy_rep.reporting.report.lines import LineReader
from scrapy_rep.reporting.report.reading import MAX_CHANGES, CrawlSum

if TYPE_CHECKING:
    from collections.abc import Iterable

_CRAWLS = 50


def report_data(files: Iterable[IO[bytes]]) -> ReportData:
    """Return what the page shows, built from records."""
    crawls, notes = _read(files)
    if not crawls:
        crawls = [CrawlSum()]
        notes.append("The record is empty.")
    for one in crawls:
        one.end()
    changes = [
        change
        for number, (old, new) in enumerate(pairwise(crawls))
        for change in _changes(old, new, number)
    ]
    return ReportData(crawls, changes[:MAX_CHANGES], len(changes), notes)


def _changes(old: CrawlSum, new: CrawlSum, number: int) -> list[Change]:
    """Return whose robots.txt differs between two crawls, as far as both have an answer."""
    found = []
    for name, after in new.known.items():
        before = old.known.get(name)
        if before is None or {before.outcome, after.outcome} & {"none", "unreachable"}:
            continue
        if (before.outcome, before.sha256) != (after.outcome, after.sha256):
            change = Change(name, crawls=(number, number + 1))
            change.outcomes = before.outcome, after.outcome
            change.sha256 = before.sha256, after.sha256
            found.append(change)
    return found


def _read(files: Iterable[IO[bytes]]) -> tuple[list[CrawlSum], list[str]]:
    """Return what is on record of each crawl, the oldest first, and what is to be said of the files."""
    crawls: dict[str, CrawlSum] = {}
    unreadable = cut = left_out = 0
    for position, file in enumerate(files, 1):
        reader = LineReader(file)
        for line in reader:
            # Earlier versions did not say which crawl it is.
            crawl = line.text("crawl", 40) or f"file {position}"
            if crawl not in crawls:
                if len(crawls) >= _CRAWLS:
                    left_out += 1
                    continue
                crawls[crawl] = CrawlSum()
            crawls[crawl].add(line)
        unreadable += reader.unreadable
        cut += reader.cut
    notes = []
    if unreadable:
        notes.append(f"Lines of the record that could not be read: {unreadable:,}.")
    if cut:
        notes.append("The record ends in the middle of a packed file.")
    if left_out:
        notes.append(f"Only the first {_CRAWLS} crawls on record are shown.")
    return sorted(crawls.values(), key=lambda one: one.began), notes
