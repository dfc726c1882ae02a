"""What the report shows: gathered at the end of the crawl, limited to what a browser can bear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import scrapy_rep
from scrapy_rep.reporting.ledger import COUNTS
from scrapy_rep.reporting.summary import OUTCOMES, page_rules

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.reporting.ledger import Ledger, RuleCount
    from scrapy_rep.reporting.summary import AgainstPage, Figures
    from scrapy_rep.reporting.timeline import Timeline

MAX_ORIGINS = 10_000
MAX_RULES = 1_000
MAX_SPELLS = 1_000

_HAPPENS = {name: at for at, name in enumerate(("found", "fetched", "failed", "urls", "emitted"))}

# Origins with refused requests come first, then those in trouble.
_ORIGINS = f"""
SELECT origin, outcome, status, hops, asked, error, delay, {", ".join(COUNTS)} FROM origins
ORDER BY forbidden + dropped + held + given_up + passed DESC, outcome = 'unreachable' DESC, origin
LIMIT ?
"""  # noqa: S608 (names of columns)
_SPELLS = """
SELECT spells.origin, began, coalesce(ended, seen), ended IS NOT NULL, attempts, spells.error, held
FROM spells LEFT JOIN origins USING (origin)
ORDER BY coalesce(ended, seen) - began DESC, began, spells.origin LIMIT :limit
"""


class OriginRow(NamedTuple):
    """What came of an origin."""

    origin: str
    outcome: str | None
    status: int | None
    hops: int | None
    asked: int
    error: str | None
    delay: float | None
    """Seconds between requests that its robots.txt asks for, and ``REP_CRAWL_DELAY`` grants."""
    forbidden: int
    dropped: int
    held: int
    released: int
    given_up: int
    passed: int
    sitemaps: int


class Spell(NamedTuple):
    """A time in which a robots.txt was unreachable, in seconds since the epoch."""

    origin: str
    began: float
    ended: float
    """When an answer came; where none did, when robots.txt was last asked for."""
    over: bool
    """Whether an answer came."""
    attempts: int
    error: str | None
    held: int
    """How many requests of the origin were held in the whole crawl."""

    @property
    def seconds(self) -> float:
        """How long it was."""
        return max(0.0, self.ended - self.began)


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything on the page."""

    version: str
    spider: str
    finish_reason: str
    figures: Figures
    allowed: int
    held: int
    waited: int
    """Of these, those that waited for a first answer alone."""
    held_max: int
    released: int
    given_up: int
    kept: int
    outcomes: dict[str, int]
    """In words, in the order of the page; none is 0."""
    all_origins: int
    origins: list[OriginRow]
    all_rules: int
    rules: list[RuleCount]
    all_spells: int
    spells: list[Spell]
    """The longest ones, longest first."""
    timeline: list[tuple[float, int]]
    delays: bool
    """Whether crawl delays are obeyed."""
    sitemaps: list[tuple[str, int]]
    """What is counted of sitemaps, in words."""
    pages: list[AgainstPage]
    """What was against the rules of pages; none is 0."""
    pages_dropped: int
    """Of these, how many requests and items were dropped."""
    broken: bool
    """Whether figures are missing."""


def gather(
    crawler: Crawler, ledger: Ledger, figures: Figures, held: Timeline, finish_reason: str
) -> ReportData:
    """Collect what *ledger* and the crawl's stats have."""
    assert crawler.stats is not None
    stats = crawler.stats
    found = ledger.outcomes()
    spells = ledger.rows(_SPELLS, {"limit": MAX_SPELLS})
    return ReportData(
        version=scrapy_rep.__version__,
        spider=crawler.spider.name if crawler.spider else "",
        finish_reason=finish_reason,
        figures=figures,
        allowed=figures.allowed(stats),
        held=int(stats.get_value("rep/deferred", 0)),
        waited=int(stats.get_value("rep/deferred", 0))
        - int(stats.get_value("rep/deferred/unreachable", 0)),
        held_max=int(stats.get_value("rep/held/max", 0)),
        released=ledger.total("released"),
        given_up=ledger.total("given_up"),
        kept=int(stats.get_value("rep/held", 0)),
        outcomes={words: found[key] for key, words in OUTCOMES.items() if found.get(key)},
        all_origins=sum(found.values()),
        origins=[OriginRow(*row) for row in ledger.rows(_ORIGINS, (MAX_ORIGINS,))],
        all_rules=ledger.size("rules"),
        rules=ledger.top_rules(MAX_RULES),
        all_spells=ledger.size("spells"),
        spells=[Spell(*row) for row in spells],
        timeline=held.points,
        delays=bool(stats.get_value("rep/crawl_delay/origins", 0)),
        sitemaps=_sitemaps(stats.get_stats()),
        pages=page_rules(stats),
        pages_dropped=int(stats.get_value("rep/page/dropped", 0)),
        broken=ledger.broken,
    )


def _sitemaps(stats: dict[str, object]) -> list[tuple[str, int]]:
    """What the stats say of sitemaps: ``rep/sitemaps/rejected/forbidden`` is "rejected,
    forbidden"."""
    prefix = "rep/sitemaps/"
    found = {
        name.removeprefix(prefix): value
        for name, value in stats.items()
        if name.startswith(prefix) and isinstance(value, int)
    }
    # In the order in which things happen, then by name.
    names = sorted(found, key=lambda name: (_HAPPENS.get(name, len(_HAPPENS)), name))
    return [(name.replace("/", ", ").replace("_", " "), found[name]) for name in names]
