"""The contents of the report, as `page.html` shows them: plain values, limited to what a browser can
show. Times are seconds since the epoch, positions on the time axis percent. `reading.py` gathers them from
the record."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import scrapy_rep
from scrapy_rep.protocol.syntax import normalise
from scrapy_rep.reporting.announcements import changed_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scrapy_rep.reporting.report.reading import CrawlSum

    BodyOf = Callable[[str, str], bytes | None]
    """Returns the robots.txt of an origin with a SHA-256."""

RowT = TypeVar("RowT")

_ORIGINS_OF_A_RULE = 100
# Excerpts from robots.txt files: of all rules, and of one. Lines before and after the one that decided,
# and characters of each.
_EXCERPTS, _OF_A_RULE, _AROUND, _LENGTH = 250, 20, 4, 200
_NARROWEST = 0.3
_INTERESTING = ("forbidden", "dropped", "given_up", "passed", "held")


class Top(list[RowT]):
    """Rows of a table: those that come first in an order, and how many there were."""

    def __init__(self, limit: int, order: Callable[[RowT], Any]) -> None:
        super().__init__()
        self._limit, self._order = limit, order
        self.all = 0

    def add(self, row: RowT) -> None:
        """Add *row*, which doesn't change any more."""
        self.all += 1
        self.append(row)
        if len(self) > 2 * self._limit:
            self.cut()

    def cut(self) -> None:
        """Sort the rows, and keep the first ones."""
        self.sort(key=self._order)
        del self[self._limit :]


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
    items: Sequence[str] = ()
    """Some origins or URLs, those most affected first."""
    filter: str = ""
    """What the section's filter shows then."""
    command: str = ""
    """A command that tells more."""


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """How many origins answered so."""

    key: str
    words: str
    count: int
    share: float


@dataclass(slots=True)
class RuleOrigin:
    """An origin whose robots.txt has a rule that refused requests."""

    origin: str
    robots_url: str
    line: int
    url: str
    """The first that was refused."""
    sha256: str | None
    times: int = 0
    excerpt: list[tuple[int, str, bool]] = field(default_factory=list)
    """Lines around it: number, text, whether it is the one that decided."""


@dataclass(slots=True)
class RuleRow:
    """A rule that refused requests, over all origins."""

    rule: str
    group: str
    times: int = 0
    all_origins: int = 0
    known: dict[str, RuleOrigin] = field(default_factory=dict)

    @property
    def origins(self) -> list[RuleOrigin]:
        """Those with most refusals first."""
        found = sorted(self.known.values(), key=lambda one: (-one.times, one.origin))
        return found[:_ORIGINS_OF_A_RULE]


@dataclass(slots=True)
class Period:
    """A bar on the time axis: an unbroken row of failures to fetch a robots.txt, from the start of the
    first fetch; or requests that waited for a first answer."""

    origin: str
    began: float
    ended: float
    end: str = "open"
    """``answered``, ``given_up``, ``open``; or ``waited``: for a first answer."""
    fetches: int = 0
    reason: str = ""
    requests: int = 0
    given_up: int = 0

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.ended - self.began)


@dataclass(slots=True)
class OriginRow:
    """What happened at one origin."""

    origin: str
    outcome: str = "none"
    """Its last answer, a key of :data:`~scrapy_rep.reporting.record.OUTCOMES`."""
    kind: str = ""
    """Why it is unreachable, in a word or two."""
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
    """How many are there now."""
    spell: Period | None = None
    """Its failures go on."""
    wait: Period | None = None
    """Requests wait for its first answer."""

    @property
    def share(self) -> float | None:
        """The part that was forbidden."""
        allowed, forbidden = self.requests["allowed"], self.requests["forbidden"]
        return forbidden / (allowed + forbidden) if allowed or forbidden else None

    @property
    def interest(self) -> int:
        """How much a reader wants to see it."""
        refused = sum(self.requests[name] for name in _INTERESTING)
        return 2 * refused + (self.outcome not in ("rules", "missing", "none"))


class SitemapRow(NamedTuple):
    """What became of one sitemap."""

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
    """For example."""
    count: int = 0
    dropped: int = 0


class TimePoint(NamedTuple):
    """How many requests are held, and how many wait for a first answer, from this moment on."""

    at: float
    held: int
    waiting: int
    x: float


class Tick(NamedTuple):
    """A mark on the time axis."""

    at: float
    x: float
    text: str


@dataclass(slots=True)
class Axis:
    """The time axis."""

    began: float
    ended: float
    ticks: list[Tick] = field(default_factory=list)

    def x(self, at: float) -> float:
        """Where a moment is."""
        return round(min(100.0, max(0.0, 100 * (at - self.began) / (self.ended - self.began))), 3)

    def bar(self, one: Period) -> tuple[float, float]:
        """Where a bar begins, and its width: it can be seen, however short it is."""
        left = min(self.x(one.began), 100 - _NARROWEST)
        return left, round(max(_NARROWEST, self.x(one.ended) - left), 3)


@dataclass(slots=True)
class Change:
    """What differs between two robots.txt files of an origin: in the crawl, or since the one before."""

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


@dataclass(slots=True)
class ReportData:
    """Everything on the page."""

    crawls: list[CrawlSum]
    """The oldest first. The page shows the last one, and all side by side."""
    changes: list[Change] = field(default_factory=list)
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
    def crawl(self) -> CrawlSum:
        """The last one."""
        return self.crawls[-1]

    def wanted(self) -> Iterator[tuple[str, str]]:
        """Yield the files that :meth:`fill` asks for: origins, each with a SHA-256."""
        for one in self._excerpted():
            yield one.origin, one.sha256 or ""
        for change in self.changes:
            yield from ((change.origin, sha256) for sha256 in change.sha256 if sha256)

    def fill(self, body_of: BodyOf) -> None:
        """Add what the robots.txt files say.

        :param body_of: returns None for a file that is not at hand
        """
        for one in self._excerpted():
            body = body_of(one.origin, one.sha256 or "")
            if body is not None:
                one.excerpt = _excerpt(body, one.line)
        for change in self.changes:
            bodies = [body_of(change.origin, one) if one else b"" for one in change.sha256]
            change.known = None not in bodies
            if change.known:
                for name, value in changed_lines(*map(bytes, bodies)).items():  # type: ignore[arg-type]
                    setattr(change, name, value)

    def _excerpted(self) -> Iterator[RuleOrigin]:
        left = _EXCERPTS
        for rule in self.crawl.rules:
            found = [one for one in rule.origins if one.sha256][: min(left, _OF_A_RULE)]
            left -= len(found)
            yield from found


def _excerpt(body: bytes, line: int) -> list[tuple[int, str, bool]]:
    """Return what stands around *line*, counted from 1."""
    lines = normalise(body).split("\n")
    if not 1 <= line <= len(lines):
        return []
    first = max(0, line - 1 - _AROUND)
    return [
        (number, _readable(text), number == line)
        for number, text in enumerate(lines[first : line + _AROUND], first + 1)
    ]


def _readable(text: str) -> str:
    return text.encode("latin-1").decode(errors="replace").rstrip()[:_LENGTH]
