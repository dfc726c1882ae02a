"""The contents of the report, as `page.html` shows them: plain values, limited to what a browser can
show. Times are seconds since the epoch, positions on the time axis percent. `reading.py` gathers them
from the record.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from typing import IO, TYPE_CHECKING

import scrapy_rep
from scrapy_rep.protocol.syntax import normalise
from scrapy_rep.reporting.announcements import MAX_LINES, changed_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    BodyOf = Callable[[str, str], bytes | None]
    """Returns the robots.txt of an origin with a SHA-256."""

MAX_CHANGES = 500
# Excerpts from robots.txt files: of all rules, and of one. Lines before and after the one that decided,
# and characters of each.
_EXCERPTS, _OF_A_RULE, _AROUND, _LENGTH = 250, 20, 4, 200


@dataclass(slots=True)
class Counts:
    """Requests by what became of them, and some totals."""

    allowed: int = 0
    forbidden: int = 0
    dropped: int = 0
    """At once, as robots.txt was unreachable or the URL has no origin."""
    passed: int = 0
    """Let through though robots.txt was unreachable."""
    held: int = 0
    waited: int = 0
    """Only for a first answer. Not part of :attr:`held`."""
    held_max: int = 0
    released: int = 0
    given_up: int = 0
    kept: int = 0
    handed_back: int = 0
    fetches: int = 0
    origins: int = 0
    page_dropped: int = 0
    usage_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that needs a look."""

    kind: str
    level: str
    """``error``, ``warning`` or ``note``."""
    count: int
    text: str
    """A sentence."""
    section: str = ""
    """The section of the page that has more."""
    filter: str = ""
    """What its filter shows then."""
    command: str = ""
    """A command that tells more."""
    items: list[str] = field(default_factory=list)
    """Some origins or URLs, those most affected first."""


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """How many origins answered so."""

    key: str
    words: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """A line of a robots.txt."""

    number: int
    text: str
    marked: bool


@dataclass(slots=True)
class RuleOrigin:
    """An origin whose robots.txt has a rule that refused requests."""

    origin: str
    robots_url: str
    line: int
    times: int
    url: str
    """The first that was refused."""
    sha256: str | None
    excerpt: list[ExcerptLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule that refused requests, over all origins."""

    rule: str
    group: str
    times: int
    all_origins: int
    origins: list[RuleOrigin]
    id: str


@dataclass(frozen=True, slots=True)
class OriginRow:
    """What happened at one origin."""

    origin: str
    robots_url: str
    outcome: str
    words: str
    status: int | None
    hops: int
    size: int | None
    fetches: int
    allowed: int
    forbidden: int
    share: float | None
    held: int
    waited: int
    released: int
    given_up: int
    dropped: int
    passed: int
    sitemaps: int
    delay: float | None
    reason: str
    id: str


@dataclass(frozen=True, slots=True)
class SitemapRow:
    """What became of one sitemap."""

    url: str
    origin: str
    found: str
    by: str
    kind: str
    entries: int
    taken: int
    rejected: list[tuple[str, int]]
    failed: str
    read: bool


@dataclass(frozen=True, slots=True)
class PageRow:
    """What pages said about themselves."""

    verdict: str
    words: str
    reason: str
    count: int
    dropped: int
    url: str


@dataclass(slots=True)
class UsageRow:
    """What was said about one purpose."""

    purpose: str
    yes: int = 0
    no: int = 0
    unknown: int = 0
    requests_dropped: int = 0
    items_dropped: int = 0


@dataclass(frozen=True, slots=True)
class StatementRow:
    """A statement about use."""

    purpose: str
    text: str
    pages: int
    url: str


@dataclass(slots=True)
class Bar:
    """A period, as a bar on the time axis."""

    origin: str
    began: float
    ended: float
    left: float = 0.0
    width: float = 0.0

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.ended - self.began)


@dataclass(slots=True)
class Spell(Bar):
    """An unbroken row of failures to fetch a robots.txt, from the start of the first fetch."""

    end: str = "open"
    """``answered``, ``given_up``, or ``open``."""
    fetches: int = 0
    kind: str = ""
    reason: str = ""
    held: int = 0
    given_up: int = 0


@dataclass(slots=True)
class Wait(Bar):
    """Requests that waited for a first answer."""

    requests: int = 0
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """How many requests are held, and how many wait for a first answer, from this moment on."""

    at: float
    held: int
    waiting: int
    x: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the time axis."""

    at: float
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis."""

    began: float
    ended: float
    ticks: list[Tick]


@dataclass(frozen=True, slots=True)
class Turned:
    """A URL on which the verdict has changed."""

    url: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class MidChange:
    """A robots.txt that changed in the crawl."""

    at: float
    origin: str
    robots_url: str
    added: list[str]
    removed: list[str]
    lines_added: int
    lines_removed: int
    turned: list[Turned]
    turned_count: int


@dataclass(slots=True)
class CrawlData:
    """One crawl."""

    id: str
    name: str
    agent: str
    version: str
    scrapy: str
    began: float
    ended: float
    finish_reason: str
    dry_run: bool
    settings: list[tuple[str, str]]
    counts: Counts
    axis: Axis
    findings: list[Finding] = field(default_factory=list)
    outcomes: list[OutcomeRow] = field(default_factory=list)
    reasons: list[tuple[str, int]] = field(default_factory=list)
    rules: list[RuleRow] = field(default_factory=list)
    all_rules: int = 0
    origins: list[OriginRow] = field(default_factory=list)
    all_origins: int = 0
    sitemaps: list[SitemapRow] = field(default_factory=list)
    all_sitemaps: int = 0
    pages: list[PageRow] = field(default_factory=list)
    usage: list[UsageRow] = field(default_factory=list)
    usage_statements: list[StatementRow] = field(default_factory=list)
    usage_pages: int = 0
    spells: list[Spell] = field(default_factory=list)
    all_spells: int = 0
    waits: list[Wait] = field(default_factory=list)
    all_waits: int = 0
    timeline: list[TimePoint] = field(default_factory=list)
    changes: list[MidChange] = field(default_factory=list)
    all_changes: int = 0
    delays: bool = False


@dataclass(slots=True)
class FileChange:
    """A robots.txt that was another in the crawl before."""

    origin: str
    robots_url: str
    before: str
    after: str
    before_crawl: int
    after_crawl: int
    before_sha256: str | None
    after_sha256: str | None
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    lines_added: int = 0
    lines_removed: int = 0
    known: bool = False
    """Whether what has changed is known."""


@dataclass(slots=True)
class ReportData:
    """Everything on the page."""

    crawls: list[CrawlData]
    """The oldest first. The page shows the last one, and all side by side."""
    changes: list[FileChange] = field(default_factory=list)
    all_changes: int = 0
    notes: list[str] = field(default_factory=list)
    """Sentences about the record itself."""
    version: str = scrapy_rep.__version__

    @classmethod
    def read(
        cls, record: Sequence[str | PathLike[str] | IO[bytes]], body_of: BodyOf | None = None
    ) -> ReportData:
        """Read files of JSON lines, packed by gzip or not.

        :param body_of: see :meth:`fill`
        :raises OSError: if a file can't be read
        """
        from scrapy_rep.reporting.report.building import report_data

        with ExitStack() as opened:
            files = [
                opened.enter_context(open(one, "rb")) if isinstance(one, (str, PathLike)) else one
                for one in record
            ]
            data = report_data(files)
        if body_of is not None:
            data.fill(body_of)
        return data

    @property
    def crawl(self) -> CrawlData:
        """The last one."""
        return self.crawls[-1]

    def wanted(self) -> Iterator[tuple[str, str]]:
        """Yield the files that :meth:`fill` asks for: origins, each with a SHA-256."""
        for one in self._excerpted():
            yield one.origin, one.sha256 or ""
        for change in self.changes:
            for sha256 in (change.before_sha256, change.after_sha256):
                if sha256:
                    yield change.origin, sha256

    def fill(self, body_of: BodyOf) -> None:
        """Add what the robots.txt files say.

        :param body_of: returns None for a file that is not at hand
        """
        for one in self._excerpted():
            body = body_of(one.origin, one.sha256 or "")
            if body is not None:
                one.excerpt = _excerpt(body, one.line)
        for change in self.changes:
            shas = change.before_sha256, change.after_sha256
            bodies = [b"" if sha is None else body_of(change.origin, sha) for sha in shas]
            if None not in bodies:
                change.known = True
                for name, value in changed_lines(*map(bytes, bodies)).items():  # type: ignore[arg-type]
                    setattr(change, name, value[:MAX_LINES] if isinstance(value, list) else value)

    def _excerpted(self) -> Iterator[RuleOrigin]:
        left = _EXCERPTS
        for rule in self.crawl.rules:
            found = [one for one in rule.origins if one.sha256][: min(left, _OF_A_RULE)]
            left -= len(found)
            yield from found


def _excerpt(body: bytes, line: int) -> list[ExcerptLine]:
    """Return what stands around *line*, counted from 1."""
    lines = normalise(body).split("\n")
    if not 1 <= line <= len(lines):
        return []
    first = max(0, line - 1 - _AROUND)
    return [
        ExcerptLine(number, _readable(text), number == line)
        for number, text in enumerate(lines[first : line + _AROUND], first + 1)
    ]


def _readable(text: str) -> str:
    return text.encode("latin-1").decode(errors="replace").rstrip()[:_LENGTH]
