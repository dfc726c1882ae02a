"""The summary of a crawl: a few lines of log at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import counted

if TYPE_CHECKING:
    from scrapy.statscollectors import StatsCollector

    from scrapy_rep.origins.context import CrawlContext
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
"""Outcomes of requests for robots.txt, in words."""

PAGE_VERDICTS = (
    ("nofollow", "request", "from pages that say nofollow"),
    ("nofollow_link", "request", "for links marked nofollow, ugc or sponsored"),
    ("noindex", "item", "from pages that say noindex"),
    ("expired", "item", "from pages that have expired"),
)
"""Verdicts of page rules, each with what it applies to, in words."""

BEYOND = ("REP_OVERRIDES", "REP_FORBIDDEN", "REP_CHALLENGE", "REP_UNREACHABLE_RULES")
"""Settings that decide about origins beyond the protocol."""

# What becomes of held requests.
_ENDS = {
    "released": "released",
    "given_up": "given up",
    "handed_back": "handed back to the scheduler",
    "kept": "kept for the next run",
}

_LOOKED_AT = ("hit", "stale", "miss", "refresh")


@dataclass(slots=True)
class Figures:
    """What is counted in addition to the stats."""

    dry_run: bool = False
    began: float = 0.0
    ended: float = 0.0
    """Seconds since the epoch."""
    forbidden: int = 0
    """Forbidden by a rule."""
    dropped: int = 0
    """Dropped at once, because robots.txt is unreachable."""
    without_origin: int = 0
    """Dropped because their URL has no origin."""
    passed: int = 0
    """Passed because ``REP_UNREACHABLE`` is "allow"."""
    undecided: int = 0
    """Not decided when they were looked at, but later."""

    def allowed(self, stats: StatsCollector) -> int:
        """Return how many requests passed because robots.txt allows them: nothing counts them one
        by one, but they are what is left of all that were looked at."""
        asked = sum(stats.get_value(f"rep/cache/{what}", 0) for what in _LOOKED_AT)
        refused = self.forbidden + self.dropped + self.passed + self.undecided
        return max(0, int(asked) - refused)

    def counts(self, ledger: Ledger, stats: StatsCollector) -> dict[str, int]:
        """Return how many requests were allowed, held and so on. Of those held, some ``waited`` only
        for a first answer."""

        def stat(name: str) -> int:
            return int(stats.get_value(f"rep/{name}", 0))

        return {
            "allowed": self.allowed(stats),
            "dropped": self.dropped + self.without_origin,
            "held": stat("deferred"),
            "waited": stat("deferred") - stat("deferred/unreachable"),
            "held_max": stat("held/max"),
            "released": ledger.total("released"),
            "given_up": ledger.total("given_up"),
            "handed_back": stat("handed_back"),
            "kept": stat("held"),
        }


def log_summary(ledger: Ledger, figures: Figures, context: CrawlContext) -> None:
    """Log the summary, unless there were no requests."""
    try:
        lines = _summary(ledger, figures, context.stats)
    except Exception as error:  # noqa: BLE001 (a full disk, mostly)
        lines = [f"No summary of robots.txt: {error}"]
    if lines:
        logger.info("\n".join(["%s"] * len(lines)), *lines, extra=context.extra)


def _summary(ledger: Ledger, figures: Figures, stats: StatsCollector) -> list[str]:
    outcomes = ledger.outcomes()
    if not outcomes and not figures.without_origin:
        return []
    parts = [f"{outcomes[key]:,} {words}" for key, words in OUTCOMES.items() if outcomes.get(key)]
    lines = [
        f"robots.txt of {counted(sum(outcomes.values()), 'origin')}: {', '.join(parts) or 'none'}",
        _requests(figures, figures.counts(ledger, stats)),
    ]
    beyond = [
        f"{name} for {counted(int(number), 'origin')}"
        for name in BEYOND
        if (number := stats.get_value(f"rep/beyond/{name.removeprefix('REP_').lower()}", 0))
    ]
    if beyond:
        lines.append(f"Beyond the protocol: {', '.join(beyond)}")
    if slowed := int(stats.get_value("rep/crawl_delay/origins", 0)):
        longest = stats.get_value("rep/crawl_delay/max", 0)
        lines.append(f"crawl-delay of {counted(slowed, 'origin')}: {longest:g} s at most")
    if timed := int(stats.get_value("rep/visit_time/origins", 0)):
        lines.append(f"visit-time of {counted(timed, 'origin')}, not obeyed")
    if pages := page_rules(stats):
        found = ", ".join(f"{counted(number, noun)} {what}" for number, noun, what in pages)
        dropped = int(stats.get_value("rep/page/dropped", 0))
        total = sum(number for number, _, _ in pages)
        lines.append(f"Page rules: {found}; {dropped:,} of {total:,} dropped")
    if top := ledger.top_of_all(_TOP):
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
        lines.append("(Figures for origins and lines are too low: see the warning above.)")
    return lines


def page_rules(stats: StatsCollector) -> list[tuple[int, str, str]]:
    """Return how many requests and items were against the rules of their page, in words."""
    return [
        (int(number), noun, what)
        for verdict, noun, what in PAGE_VERDICTS
        if (number := stats.get_value(f"rep/page/{verdict}", 0))
    ]


def _requests(figures: Figures, counts: dict[str, int]) -> str:
    parts = [f"{counts['allowed']:,} allowed"]
    if figures.passed:
        parts.append(f"{figures.passed:,} allowed though robots.txt was unreachable")
    parts.append(f"{figures.forbidden:,} forbidden")
    if counts["dropped"]:
        parts.append(f"{counts['dropped']:,} dropped (robots.txt unreachable)")
    ends = [f"{counts[name]:,} {words}" for name, words in _ENDS.items() if counts[name]]
    waited = counts["waited"]
    held = counts["held"] - waited
    if held or waited or ends:  # ends may be of requests that an earlier run held
        why = [f"{held:,} held"] if held or not waited else []
        why += [f"{waited:,} waited for a first answer"] if waited else []
        parts.append(", ".join(why) + (f" ({', '.join(ends)})" if ends else ""))
    name = "Requests, had this not been a dry run" if figures.dry_run else "Requests"
    return f"{name}: {', '.join(parts)}"
