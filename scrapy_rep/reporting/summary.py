"""What a crawl's robots.txt files came to, in some lines of the log at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.reporting.ledger import Ledger

logger = get_logger(__name__)

_TOP = 5
_RULE_LENGTH = 200

OUTCOMES = {
    "rules": "with rules",
    "missing": "without restrictions",
    "unreachable": "unreachable",
    None: "without an answer",
}
"""What became of an origin's robots.txt, in words."""

PAGE_VERDICTS = (
    ("nofollow", "request", "of pages that say nofollow"),
    ("nofollow_link", "request", "for links marked nofollow, ugc or sponsored"),
    ("noindex", "item", "of pages that say noindex"),
    ("expired", "item", "of pages that have expired"),
)
"""What is counted by the rules of pages: the verdict, and in words."""


class AgainstPage(NamedTuple):
    """What was against the rules of its page."""

    number: int
    noun: str
    what: str


@dataclass(slots=True)
class Figures:
    """What is counted of requests, beyond the stats."""

    dry_run: bool = False
    began: float = 0.0
    ended: float = 0.0
    """Seconds since the epoch."""
    forbidden: int = 0
    """Forbidden by a rule."""
    dropped: int = 0
    """Dropped at once, because their robots.txt is unreachable."""
    without_origin: int = 0
    """Dropped because their URL has no origin."""
    passed: int = 0
    """Let pass because ``REP_UNREACHABLE`` is "allow"."""
    handed_over: int = 0
    """Not decided by now."""

    def allowed(self, stats: StatsCollector) -> int:
        """How many requests passed because robots.txt allows them.

        Nothing counts these one by one: they are what is left of all that were looked at.
        """
        asked = sum(stats.get_value(f"rep/cache/{what}", 0) for what in _LOOKED_AT)
        refused = self.forbidden + self.dropped + self.passed + self.handed_over
        return max(0, int(asked) - refused)


_LOOKED_AT = ("hit", "stale", "miss", "refresh")


def log_summary(ledger: Ledger, figures: Figures, crawler: Crawler) -> None:
    """Log it, unless nothing came by."""
    assert crawler.stats is not None
    try:
        lines = _summary(ledger, figures, crawler.stats)
    except Exception as error:  # noqa: BLE001 (a full disk, mostly)
        lines = [f"No summary of robots.txt: {error}"]
    if lines:
        logger.info("\n".join(["%s"] * len(lines)), *lines, extra={"spider": crawler.spider})


def _summary(ledger: Ledger, figures: Figures, stats: StatsCollector) -> list[str]:
    outcomes = ledger.outcomes()
    if not outcomes and not figures.without_origin:
        return []
    parts = [f"{outcomes[key]:,} {words}" for key, words in OUTCOMES.items() if outcomes.get(key)]
    lines = [
        f"robots.txt of {counted(sum(outcomes.values()), 'origin')}: {', '.join(parts) or 'none'}",
        _requests(ledger, figures, stats),
    ]
    if slowed := int(stats.get_value("rep/crawl_delay/origins", 0)):
        longest = stats.get_value("rep/crawl_delay/max", 0)
        lines.append(f"crawl-delay of {counted(slowed, 'origin')}: {longest:g} s at most")
    if pages := page_rules(stats):
        counts = ", ".join(f"{counted(one.number, one.noun)} {one.what}" for one in pages)
        dropped = int(stats.get_value("rep/page/dropped", 0))
        total = sum(one.number for one in pages)
        lines.append(f"Rules of pages: {counts}; {dropped:,} of {total:,} dropped")
    top = ledger.top_of_all(_TOP)
    if top:
        lines.append("Lines that decided most often:" if len(top) > 1 else "The line that decided:")
        width = len(f"{top[0][0].times:,}")
        for one, origins in top:
            rule = one.rule if len(one.rule) <= _RULE_LENGTH else one.rule[:_RULE_LENGTH] + "…"
            others = f" and {counted(origins - 1, 'other site')}" if origins > 1 else ""
            lines.append(
                f"  {one.times:>{width},} × {one.origin}, line {one.line}{others}: {rule} "
                f"(group {one.token})"
            )
    if ledger.broken:
        lines.append("(The figures of origins and lines are too low, see the warning above.)")
    return lines


def page_rules(stats: StatsCollector) -> list[AgainstPage]:
    """Return how many requests and items were against the rules of their page."""
    found = [
        AgainstPage(int(stats.get_value(f"rep/page/{verdict}", 0)), noun, what)
        for verdict, noun, what in PAGE_VERDICTS
    ]
    return [one for one in found if one.number]


def _requests(ledger: Ledger, figures: Figures, stats: StatsCollector) -> str:
    held = int(stats.get_value("rep/deferred/unreachable", 0))
    waited = int(stats.get_value("rep/deferred", 0)) - held
    parts = [f"{figures.allowed(stats):,} allowed"]
    if figures.passed:
        parts.append(f"{figures.passed:,} let pass though their robots.txt is unreachable")
    parts.append(f"{figures.forbidden:,} forbidden")
    unreachable = figures.dropped + figures.without_origin
    if unreachable:
        parts.append(f"{unreachable:,} dropped without an answer")
    ends = [
        f"{number:,} {words}"
        for number, words in (
            (ledger.total("released"), "released"),
            (ledger.total("given_up"), "given up"),
            (int(stats.get_value("rep/handed_back", 0)), "handed back to the scheduler"),
            (int(stats.get_value("rep/held", 0)), "kept for the next run"),
        )
        if number
    ]
    if held or waited or ends:  # what an earlier run has held may end in this one
        why = [f"{held:,} held"] if held or not waited else []
        why += [f"{waited:,} waited for a first answer"] if waited else []
        parts.append(", ".join(why) + (f" ({', '.join(ends)})" if ends else ""))
    name = "Requests, had this been no dry run" if figures.dry_run else "Requests"
    return f"{name}: {', '.join(parts)}"
