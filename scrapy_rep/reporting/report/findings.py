"""What needs a look, the most serious first. Findings about the same origins are one finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from scrapy_rep.reporting.report.reading import CrawlSum, OriginRow
from scrapy_rep.text import counted

LEVELS = ("error", "warning", "note")

# Examples that a finding names.
_EXAMPLES = 5


@dataclass(slots=True)
class Finding:
    level: str
    """One of :data:`LEVELS`."""
    sentences: list[str]
    sections: dict[str, str]
    """The page's sections that say more, each with the outcome by which its table is filtered."""
    origins: frozenset[str] = frozenset()
    """All that it is about; none if that isn't known."""
    examples: list[str] = field(default_factory=list)
    """URLs or origins, not all of them."""
    has_more: bool = False
    """Whether there are more than these."""
    command: str = ""
    """One that tells more."""

    def join(self, other: Finding) -> None:
        """Add what *other* says about the same origins, or some of them."""
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
    """Return a finding about *origins*; its examples are *urls*, or else the origins."""
    shown = list(urls or origins)
    has_more = len(shown) > _EXAMPLES
    about = frozenset(origins)
    sections = {section: outcome}
    return Finding(
        level, [sentence], sections, about, shown[:_EXAMPLES], has_more, command
    )


def findings_of(crawl: CrawlSum) -> list[Finding]:
    """Return what to show of *crawl*, after its last line."""
    joined: list[Finding] = []
    for finding in _findings(crawl, crawl.origins.top):
        for earlier in joined:
            if finding.origins and finding.origins <= earlier.origins:
                earlier.join(finding)
                break
        else:
            joined.append(finding)
    return sorted(joined, key=lambda finding: LEVELS.index(finding.level))


def _findings(crawl: CrawlSum, rows: Sequence[OriginRow]) -> Iterator[Finding]:
    yield from _unreachable(crawl, rows)
    closed = crawl.closed
    yield from _start_requests(crawl, rows, closed)
    for outcome, words in (
        ("challenge", "answered with a bot wall in place of robots.txt"),
        ("html", "answered with an HTML page in place of robots.txt"),
        ("redirected", "redirected in a loop, too many times, or without a target"),
    ):
        yield from _of_outcome(crawl, rows, outcome, "warning", words)
    if closed:
        yield _finding(
            "warning", f"{_count(closed)} closed to this crawler.", "rules", closed
        )
    yield from _sitemaps(crawl)
    yield from _of_outcome(crawl, rows, "none", "note", "without an answer")
    changed = dict.fromkeys(change["origin"] for change in crawl.changes.values())
    for count, section, words, origins in (
        (crawl.changes.ever_added, "changes", "robots.txt files that changed in the crawl", changed),
        (crawl.counts["page_dropped"], "pages", "Items and requests dropped because of page rules", ()),
        (crawl.counts["usage_dropped"], "pages",
         "Items and requests dropped because of usage preferences", ()),
    ):  # fmt: skip
        if count:
            yield _finding("note", f"{words}: {count:,}.", section, list(origins))


def _count(origins: Collection[str]) -> str:
    return counted(len(origins), "origin")


def _of_outcome(
    crawl: CrawlSum, rows: Sequence[OriginRow], outcome: str, level: str, words: str
) -> Iterator[Finding]:
    count = crawl.outcomes[outcome]
    if count:
        origins = [row.origin for row in rows if row.outcome == outcome]
        sentence = f"{counted(count, 'origin')} {words}."
        yield _finding(level, sentence, "origins", origins, outcome=outcome)


def _unreachable(crawl: CrawlSum, rows: Sequence[OriginRow]) -> Iterator[Finding]:
    """Yield what is said of origins that could not be reached, and of requests to them."""
    words = f"unreachable at the end ({in_words(crawl.reasons)})"
    yield from _of_outcome(crawl, rows, "unreachable", "error", words)
    gave_up = [
        row.origin for row in rows if row.counts["given_up"] or row.counts["dropped"]
    ]
    lost = crawl.counts["given_up"] + crawl.counts["dropped"]
    if lost and not crawl.dry_run:
        sentence = f"{counted(lost, 'request')} given up or dropped."
        yield _finding("warning", sentence, "given-up", gave_up)
    kept = crawl.counts["kept"]
    if kept:
        held = [row.origin for row in rows if row.held]
        sentence = f"{counted(kept, 'request')} still held, kept for the next run."
        yield _finding("note", sentence, "unreachable", held)


def _start_requests(
    crawl: CrawlSum, rows: Sequence[OriginRow], closed: Collection[str]
) -> Iterator[Finding]:
    starts = crawl.finished.part("start_requests")
    refused, unreachable = starts.number("refused"), starts.number("unreachable")
    if not refused:
        return
    forbidden = max(0, refused - unreachable)
    parts = []
    if forbidden:
        parts.append(f"robots.txt refused {counted(forbidden, 'start request')}")
    if unreachable:
        parts.append(
            f"{counted(unreachable, 'start request')} failed, robots.txt being unreachable"
        )
    passed = starts.flag("passed")
    others = "; others got through" if passed else ", and none got through"
    url, why = starts.text("url"), starts.text("why")
    sentence = f"{' and '.join(parts)}{others}. The first was {url}: {why}."
    first = "/".join(url.split("/", 3)[:3])
    # All that is known of the others is how many there were. If all fail for one reason, they belong
    # to the origins of which that reason is told.
    down = {row.origin for row in rows if row.outcome == "unreachable"}
    alike = (unreachable == refused and first in down) or (
        forbidden == refused and first in closed
    )
    yield _finding(
        "warning" if passed else "error",
        sentence,
        "rules" if forbidden else "unreachable",
        [first] if refused == 1 or alike else (),
        urls=[url],
        command=starts.text("command"),
    )


def _sitemaps(crawl: CrawlSum) -> Iterator[Finding]:
    count = crawl.counts["sitemaps_failed"]
    if not count:
        return
    failed = [
        row for row in crawl.sitemaps.top if row["failed"] and row["found"] != "guessed"
    ]
    urls = [row["url"] for row in failed]
    first = f" The first: {failed[0]['problem']}." if failed else ""
    origins = {"/".join(url.split("/", 3)[:3]) for url in urls}
    sentence = f"{counted(count, 'sitemap')} could not be read.{first}"
    yield _finding("warning", sentence, "sitemaps", origins, urls=urls)


def in_words(reasons: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in reasons.most_common())
