"""The contents of the report, limited to what a browser can show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import scrapy_rep
from scrapy_rep.reporting.ledger import COUNTS
from scrapy_rep.reporting.summary import OUTCOMES, page_rules

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.reporting.ledger import Ledger
    from scrapy_rep.reporting.summary import Figures

MAX_ORIGINS = 10_000
MAX_RULES = 1_000
MAX_SPELLS = 1_000

# Of a timeline: the number of samples, and seconds that each takes at first.
_SAMPLES = 1000
_SECONDS = 0.1

_HAPPENS = {name: at for at, name in enumerate(("found", "fetched", "failed", "urls", "emitted"))}

_COLUMNS = ("origin", "outcome", "status", "asked", "error", "delay", *COUNTS)
# Origins with refused requests come first, then those in trouble.
_ORIGINS = f"""
SELECT {", ".join(_COLUMNS)} FROM origins
ORDER BY forbidden + dropped + held + given_up + passed DESC, outcome = 'unreachable' DESC, origin
LIMIT ?
"""  # noqa: S608 (names of columns)
_SPELLS = """
SELECT spells.origin, began, coalesce(ended, seen), ended IS NOT NULL, attempts, spells.error, held
FROM spells LEFT JOIN origins USING (origin)
ORDER BY coalesce(ended, seen) - began DESC, began, spells.origin LIMIT ?
"""


class Spell(NamedTuple):
    """A period in which a robots.txt was unreachable. Times are seconds since the epoch."""

    origin: str
    began: float
    ended: float
    """When an answer came; without one, when robots.txt was last requested."""
    over: bool
    """Whether an answer came."""
    attempts: int
    error: str | None
    held: int
    """Requests of the origin held in the whole crawl."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.ended - self.began)


class ReportData:
    """Everything on the page."""

    def __init__(
        self,
        context: CrawlContext,
        ledger: Ledger,
        figures: Figures,
        timeline: list[tuple[float, int]],
        finish_reason: str,
    ) -> None:
        stats = context.stats
        self.version = scrapy_rep.__version__
        self.spider = context.spider.name if context.spider else ""
        self.finish_reason = finish_reason
        self.figures = figures
        self.counts = figures.counts(ledger, stats)
        found = ledger.outcomes()
        self.outcomes = {words: found[key] for key, words in OUTCOMES.items() if found.get(key)}
        """By words, in the order of the page."""
        self.all_origins = sum(found.values())
        self.origins = [
            SimpleNamespace(**dict(zip(_COLUMNS, row, strict=True)))
            for row in ledger.rows(_ORIGINS, (MAX_ORIGINS,))
        ]
        self.all_rules = ledger.size("rules")
        self.rules = ledger.top_rules(MAX_RULES)
        self.all_spells = ledger.size("spells")
        self.spells = [Spell(*row) for row in ledger.rows(_SPELLS, (MAX_SPELLS,))]
        """Longest first."""
        self.timeline = timeline
        """How many requests were held, see :attr:`Timeline.points`."""
        self.delays = bool(stats.get_value("rep/crawl_delay/origins", 0))
        """Whether crawl delays are obeyed."""
        self.sitemaps = _sitemaps(stats.get_stats())
        self.pages = page_rules(stats)
        self.pages_dropped = int(stats.get_value("rep/page/dropped", 0))
        self.broken = ledger.broken


def _sitemaps(stats: dict[str, object]) -> list[tuple[str, int]]:
    """Return the stats of sitemaps: ``rep/sitemaps/rejected/forbidden`` as "rejected, forbidden"."""
    prefix = "rep/sitemaps/"
    found = [
        (name.removeprefix(prefix), value)
        for name, value in stats.items()
        if name.startswith(prefix) and isinstance(value, int)
    ]
    # In the order of events, then by name.
    found.sort(key=lambda one: (_HAPPENS.get(one[0], len(_HAPPENS)), one[0]))
    return [(name.replace("/", ", ").replace("_", " "), value) for name, value in found]


class Timeline:
    """A value over time, in up to a thousand samples, which get longer and longer; with all peaks."""

    def __init__(self) -> None:
        # When each sample begins, its highest value and its last.
        self._samples: list[tuple[float, int, int]] = []
        self._step = _SECONDS
        self._set_back = 0.0

    @property
    def points(self) -> list[tuple[float, int]]:
        """Seconds since the epoch, and the value from then on."""
        found: list[tuple[float, int]] = []
        for began, highest, last in self._samples:
            found += [(began, highest)] if last == highest else [(began, highest), (began, last)]
        return found

    def add(self, now: float, value: int) -> None:
        """The value is *value* from *now* on."""
        now += self._set_back
        if self._samples and now < (latest := self._samples[-1][0]):
            # The clock was set back: go on from where it was.
            self._set_back += latest - now
            now = latest
        self._append((now, value, value))

    def _append(self, new: tuple[float, int, int]) -> None:
        samples = self._samples
        if samples and new[0] - samples[-1][0] < self._step:
            began, highest, _ = samples[-1]
            samples[-1] = (began, max(highest, new[1]), new[2])
            return
        samples.append(new)
        if len(samples) > _SAMPLES:
            self._samples = []
            self._step = 2 * (new[0] - samples[0][0]) / _SAMPLES
            for one in samples:
                self._append(one)
