"""What the report says needs attention, the most serious first. All that is found out
about the same origins is one finding. `page.html` shows all findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from scrapy_rep.reporting.report.reading import CrawlSum, OriginRow
from scrapy_rep.text import counted

LEVELS = ("error", "warning", "note")
"""How serious a finding is, the most serious first."""

# A finding names at most this many URLs or origins. More would hide the other findings.
_EXAMPLES = 5

# What is said of origins, by the outcome of their last answer (a key of ``ANSWERS`` in
# `record.py`).
_STRANGE_ANSWERS = {
    "challenge": "answered with a bot wall in place of robots.txt",
    "html": "answered with an HTML page in place of robots.txt",
    "redirected": "redirected in a loop, too many times, or without a target",
}


@dataclass(slots=True)
class Finding:
    """One item of the page's list of what needs attention."""

    level: str
    """One of :data:`LEVELS`."""
    sentences: list[str]
    sections: dict[str, str]
    """The page's sections that say more, each with the outcome by which a link filters
    the section's table. The outcome is empty if the table isn't filtered."""
    origins: frozenset[str] = frozenset()
    """All origins that the finding is about; none if they aren't known."""
    examples: list[str] = field(default_factory=list)
    """URLs or origins, not all of them."""
    has_more: bool = False
    """Whether the finding is about more URLs or origins than the examples."""
    command: str = ""
    """A command that explains the finding; empty if there is none."""

    def join(self, other: Finding) -> None:
        """Add what *other* says about the same origins, or some of them."""
        # The more serious level comes first in LEVELS.
        self.level = min(self.level, other.level, key=LEVELS.index)
        self.sentences += other.sentences
        self.sections |= other.sections
        self.command = self.command or other.command


def _finding(
    level: str,
    sentence: str,
    section: str,
    origins: Collection[str] = (),
    *,
    outcome: str = "",
    urls: Collection[str] = (),
    command: str = "",
) -> Finding:
    """Return a finding of one *sentence* about *origins*; its examples are *urls*, or
    else the origins. *section*: the page's section about it. *outcome*: the one by
    which that section's table is filtered."""
    examples = list(urls or origins)
    return Finding(
        level,
        [sentence],
        {section: outcome},
        frozenset(origins),
        examples[:_EXAMPLES],
        has_more=len(examples) > _EXAMPLES,
        command=command,
    )


def findings_of(crawl: CrawlSum) -> list[Finding]:
    """Return the findings about *crawl*, after its last line (:meth:`CrawlSum.end`)."""
    findings: list[Finding] = []
    for finding in _single_findings(crawl, crawl.origins.top):
        # An earlier finding about the same origins takes up this one.
        wider = _about_all_origins_of(finding, findings)
        if wider is None:
            findings.append(finding)
        else:
            wider.join(finding)
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def _about_all_origins_of(
    finding: Finding,
    earlier: Sequence[Finding],
) -> Finding | None:
    """Return the first of the *earlier* findings that is about each origin of
    *finding*; None if no finding is, or if the origins of *finding* aren't known."""
    if not finding.origins:
        return None
    for candidate in earlier:
        if finding.origins <= candidate.origins:
            return candidate
    return None


def _single_findings(crawl: CrawlSum, rows: Sequence[OriginRow]) -> Iterator[Finding]:
    """Yield findings. Several may be about the same origins. Then the first of these
    takes up the later ones, see :func:`findings_of`."""
    yield from _unreachable(crawl, rows)
    closed = crawl.closed
    yield from _start_requests(crawl, rows, closed)
    for outcome, words in _STRANGE_ANSWERS.items():
        yield from _of_outcome(
            crawl,
            rows,
            outcome,
            "warning",
            words,
        )
    if closed:
        sentence = f"{counted(len(closed), 'origin')} closed to this crawler."
        yield _finding("warning", sentence, "rules", origins=closed)
    yield from _sitemaps(crawl)
    yield from _of_outcome(
        crawl,
        rows,
        "none",
        "note",
        "without an answer",
    )
    if crawl.changes:
        changed = []
        for change in crawl.changes.values():
            if change["origin"] not in changed:
                changed.append(change["origin"])
        count = crawl.changes.ever_added
        sentence = f"robots.txt files that changed in the crawl: {count:,}."
        yield _finding("note", sentence, "changes", origins=changed)
    yield from _dropped(crawl.counts["page_dropped"], "page rules")
    yield from _dropped(crawl.counts["usage_dropped"], "usage preferences")


def _dropped(count: int, reason: str) -> Iterator[Finding]:
    """Yield what is said of *count* items and requests that were dropped because of
    what pages say. *reason*: such rules or preferences, in words."""
    if count:
        sentence = f"Items and requests dropped because of {reason}: {count:,}."
        yield _finding("note", sentence, "pages")


def _of_outcome(
    crawl: CrawlSum,
    rows: Sequence[OriginRow],
    outcome: str,
    level: str,
    words: str,
) -> Iterator[Finding]:
    """Yield what is said, in *words*, of origins whose last answer had this
    *outcome*."""
    count = crawl.outcomes[outcome]
    if count:
        origins = [row.origin for row in rows if row.outcome == outcome]
        sentence = f"{counted(count, 'origin')} {words}."
        yield _finding(
            level,
            sentence,
            "origins",
            origins,
            outcome=outcome,
        )


def _unreachable(crawl: CrawlSum, rows: Sequence[OriginRow]) -> Iterator[Finding]:
    """Yield what is said of origins that could not be reached, and of requests to
    them."""
    words = f"unreachable at the end ({in_words(crawl.reasons)})"
    yield from _of_outcome(
        crawl,
        rows,
        "unreachable",
        "error",
        words,
    )
    lost = crawl.counts["given_up"] + crawl.counts["dropped"]
    if lost and not crawl.dry_run:
        origins = []
        for row in rows:
            if row.counts["given_up"] or row.counts["dropped"]:
                origins.append(row.origin)
        sentence = f"{counted(lost, 'request')} given up or dropped."
        yield _finding("warning", sentence, "given-up", origins=origins)
    kept = crawl.counts["kept"]
    if kept:
        origins = [row.origin for row in rows if row.held]
        sentence = f"{counted(kept, 'request')} still held, kept for the next run."
        yield _finding("note", sentence, "unreachable", origins=origins)


def _start_requests(
    crawl: CrawlSum,
    rows: Sequence[OriginRow],
    closed: Collection[str],
) -> Iterator[Finding]:
    """Yield what is said of start requests that were refused. *closed*: origins that a
    rule closes."""
    # What the last line of the record says about start requests.
    starts = crawl.finished.part("start_requests")
    refused = starts.number("refused")
    if not refused:
        return
    unreachable = starts.number("unreachable")
    forbidden = max(0, refused - unreachable)
    # Put the sentence together.
    reasons = []
    if forbidden:
        reasons.append(f"robots.txt refused {counted(forbidden, 'start request')}")
    if unreachable:
        requests = counted(unreachable, "start request")
        reasons.append(f"{requests} failed, robots.txt being unreachable")
    passed = starts.flag("passed")
    outcome = "; others got through" if passed else ", and none got through"
    first_url = starts.text("url")
    why = starts.text("why")
    first = f"The first was {first_url}: {why}."
    sentence = " and ".join(reasons) + f"{outcome}. {first}"
    # The record names only the first of the refused requests, so the origins of several
    # requests aren't known. But if all were refused for one reason, and another finding
    # is about origins with that reason, this finding belongs to the other one. So this
    # finding is said to be about the first request's origin, and joins the other.
    first_origin = _origin_part(first_url)
    if forbidden:
        joins_other = forbidden == refused and first_origin in closed
    else:
        down = {row.origin for row in rows if row.outcome == "unreachable"}
        joins_other = unreachable == refused and first_origin in down
    yield _finding(
        "warning" if passed else "error",
        sentence,
        "rules" if forbidden else "unreachable",
        [first_origin] if refused == 1 or joins_other else (),
        urls=[first_url],
        command=starts.text("command"),
    )


def _sitemaps(crawl: CrawlSum) -> Iterator[Finding]:
    """Yield what is said of sitemaps that could not be read, other than guessed
    ones."""
    count = crawl.counts["sitemaps_failed"]
    if not count:
        return
    failed = []
    for row in crawl.sitemaps.top:
        if row["failed"] and row["found"] != "guessed":
            failed.append(row)
    sentence = f"{counted(count, 'sitemap')} could not be read."
    if failed:
        sentence += f" The first: {failed[0]['problem']}."
    urls = [row["url"] for row in failed]
    origins = {_origin_part(url) for url in urls}
    yield _finding(
        "warning",
        sentence,
        "sitemaps",
        origins,
        urls=urls,
    )


def _origin_part(url: str) -> str:
    """Return what is before the path of *url*, which may be any text."""
    return "/".join(url.split("/", 3)[:3])


def in_words(reasons: Counter[str]) -> str:
    """Return reasons and how often each occurs, the most frequent first: ``2 HTTP 503,
    1 timeout``."""
    parts = [f"{count:,} {reason}" for reason, count in reasons.most_common()]
    return ", ".join(parts)
