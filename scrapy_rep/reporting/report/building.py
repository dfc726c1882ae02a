"""Makes the contents of the report (`data.py`) of the sums of a record (`reading.py`)."""

from __future__ import annotations

from itertools import pairwise
from typing import IO, TYPE_CHECKING

from scrapy_rep.reporting.record import OUTCOMES
from scrapy_rep.reporting.report.data import (
    MAX_CHANGES,
    CrawlData,
    FileChange,
    OriginRow,
    OutcomeRow,
    PageRow,
    ReportData,
    RuleRow,
    StatementRow,
)
from scrapy_rep.reporting.report.findings import axis_of, findings, place
from scrapy_rep.reporting.report.lines import Line, LineReader, mapping, seconds, text
from scrapy_rep.reporting.report.reading import CrawlSum, sitemap_order
from scrapy_rep.reporting.summary import PAGE_VERDICTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.reporting.report.reading import OriginSum

MAX_ORIGINS, MAX_RULES, MAX_SITEMAPS, MAX_PERIODS, MAX_SAID = 10_000, 300, 1_000, 200, 200
_OF_A_RULE = 100
_SETTINGS = 200
_CRAWLS = 50

_WORDS = {verdict: f"{noun}s {what}" for verdict, noun, what in PAGE_VERDICTS}


def report_data(files: Iterable[IO[bytes]]) -> ReportData:
    """Return what the page shows of records."""
    sums, notes = _read(files)
    if not sums:
        sums = [CrawlSum("")]
        notes.append("The record is empty.")
    changes = [
        change
        for number, (old, new) in enumerate(pairwise(sums))
        for change in _changes(old, new, number)
    ]
    return ReportData([_crawl(one) for one in sums], changes[:MAX_CHANGES], len(changes), notes)


def _crawl(one: CrawlSum) -> CrawlData:
    began, ended = seconds(one.first) or 0.0, seconds(one.last) or 0.0
    settings = mapping(one.started.get("changed"))
    data = CrawlData(
        id=one.id,
        name=text(one.started.get("spider")),
        agent=text(one.started.get("agent")),
        version=text(one.started.get("version")),
        scrapy=text(one.started.get("scrapy")),
        began=began,
        ended=max(began, ended),
        finish_reason=one.reason,
        dry_run=one.dry_run,
        settings=sorted((text(name), text(value)) for name, value in settings.items())[:_SETTINGS],
        counts=one.counts(),
        axis=axis_of(began, ended),
    )
    _add_origins(data, one)
    _add_rules(data, one)
    _add_periods(data, one)
    data.sitemaps = sorted(one.sitemaps, key=sitemap_order)[:MAX_SITEMAPS]
    data.all_sitemaps = one.all_sitemaps
    _add_said(data, one)
    data.changes, data.all_changes = one.changes, one.all_changes
    data.findings = findings(data, one)
    return data


def _add_origins(data: CrawlData, one: CrawlSum) -> None:
    outcomes = one.outcomes()
    total = data.all_origins = outcomes.total()
    for key, words in OUTCOMES.items():
        if count := sum(n for (outcome, _), n in outcomes.items() if outcome == key):
            data.outcomes.append(OutcomeRow(key, words, count, count / total))
    kinds = [(kind, n) for (outcome, kind), n in outcomes.items() if outcome == "unreachable"]
    data.reasons = sorted(kinds, key=lambda kind: (-kind[1], kind[0]))
    rows = sorted(one.origins.items(), key=lambda origin: (-origin[1].interest, origin[0]))
    data.origins = [
        _origin(f"o{number}", name, origin)
        for number, (name, origin) in enumerate(rows[:MAX_ORIGINS], 1)
    ]
    data.delays = any(origin.delay for origin in data.origins)


def _origin(anchor: str, name: str, one: OriginSum) -> OriginRow:
    requests = one.requests
    decided = requests["allowed"] + requests["forbidden"]
    return OriginRow(
        name,
        f"{name}/robots.txt",
        one.outcome,
        OUTCOMES[one.outcome],
        one.status,
        one.hops,
        one.size,
        one.fetches,
        allowed=requests["allowed"],
        forbidden=requests["forbidden"],
        share=requests["forbidden"] / decided if decided else None,
        held=one.held,
        waited=one.waited,
        released=requests["released"],
        given_up=requests["given_up"],
        dropped=requests["dropped"],
        passed=requests["passed"],
        sitemaps=one.sitemaps,
        delay=one.delay,
        reason=one.reason,
        id=anchor,
    )


def _add_rules(data: CrawlData, one: CrawlSum) -> None:
    data.all_rules = one.all_rules
    rows = sorted(one.rules.items(), key=lambda rule: (-rule[1][0], rule[0]))[:MAX_RULES]
    for number, ((rule, group), (times, origins, listed)) in enumerate(rows, 1):
        most = sorted(listed.values(), key=lambda origin: (-origin.times, origin.origin))
        row = RuleRow(rule, group, times, origins, most[:_OF_A_RULE], f"r{number}")
        data.rules.append(row)


def _add_periods(data: CrawlData, one: CrawlSum) -> None:
    data.all_spells, data.all_waits = one.all_spells, one.all_waits
    data.spells = sorted(one.spells, key=lambda spell: -spell.seconds)[:MAX_PERIODS]
    data.waits = sorted(one.waits, key=lambda wait: -wait.seconds)[:MAX_PERIODS]
    place([*data.spells, *data.waits], data.axis)
    data.timeline = one.timeline.points(data.axis)


def _add_said(data: CrawlData, one: CrawlSum) -> None:
    for key, count in one.pages.most(MAX_SAID):
        url, dropped = one.page_examples.get(key, ("", 0))
        data.pages.append(PageRow(key[0], _WORDS[key[0]], key[1], count, dropped, url))
    if one.pages.others:
        data.pages.append(PageRow("", "others", "", one.pages.others, 0, ""))
    data.usage_pages = one.usage_pages
    for row in one.usage.values():
        row.unknown = max(0, one.usage_pages - row.yes - row.no)
        data.usage.append(row)
    for key, pages in one.statements.most(MAX_SAID):
        url = one.statement_examples.get(key, "")
        data.usage_statements.append(StatementRow(*key, pages, url))


def _changes(old: CrawlSum, new: CrawlSum, number: int) -> list[FileChange]:
    """Return whose robots.txt differs between two crawls, as far as both have an answer."""
    found = []
    for name, after in new.origins.items():
        before = old.origins.get(name)
        if before is None or {before.outcome, after.outcome} & {"none", "unreachable"}:
            continue
        ours, theirs = (before.outcome, before.sha256), (after.outcome, after.sha256)
        if ours != theirs:
            files = before.sha256, after.sha256
            about = name, f"{name}/robots.txt", before.outcome, after.outcome
            found.append(FileChange(*about, number, number + 1, *files))
    return found


def _read(files: Iterable[IO[bytes]]) -> tuple[list[CrawlSum], list[str]]:
    """Return what is on record of each crawl, the oldest first, and what is to be said of the files."""
    crawls: dict[str, CrawlSum] = {}
    unreadable = cut = left_out = 0
    for position, file in enumerate(files):
        reader = LineReader(file)
        for crawl, line in _by_crawl(reader, position):
            found = crawls.get(crawl)
            if found is None:
                if len(crawls) >= _CRAWLS:
                    left_out += 1
                    continue
                found = crawls[crawl] = CrawlSum(crawl)
            found.add(line)
        unreadable += reader.unreadable
        cut += reader.cut
    for one in crawls.values():
        one.end()
    notes = []
    if unreadable:
        notes.append(f"Lines of the record that could not be read: {unreadable:,}.")
    if cut:
        notes.append("The record ends in the middle of a packed file.")
    if left_out:
        notes.append(f"Only the first {_CRAWLS} crawls on record are shown.")
    return sorted(crawls.values(), key=lambda one: seconds(one.first) or 0.0), notes


def _by_crawl(reader: LineReader, position: int) -> Iterator[tuple[str, Line]]:
    """Yield each line with its crawl: earlier versions did not say."""
    for line in reader:
        crawl = line.get("crawl")
        yield crawl[:40] if isinstance(crawl, str) else f"file {position + 1}", line
