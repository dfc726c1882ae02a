"""What the log says at the beginning (whether, and how, robots.txt is obeyed), and the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from textwrap import TextWrapper
from typing import Any

from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.log import BoundedSet, get_logger
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.record import ANSWERS, RuleOrigin, RuleRows, kind_of
from scrapy_rep.settings import SPIDER_SITEMAPS, changed
from scrapy_rep.storages.base import MemoryStorage
from scrapy_rep.text import counted, duration

logger = get_logger(__name__)

_INDENT = " " * 4
# Scrapy's log has a date and more before the first line.
_WRAPPER = TextWrapper(
    80, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
)
# Rules in the summary, and characters of each.
_TOP, _RULE_LENGTH = 5, 200
# Origins without an answer that are counted.
_UNANSWERED = 10_000

# What became of requests: a stat, or a verdict, and words. The first two are always there.
_REQUESTS = {
    "allowed": ("allowed", "allowed"),
    "forbidden": ("disallowed", "forbidden"),
    "passed": ("rep/unreachable/allowed", "allowed though robots.txt was unreachable"),
    "overruled": ("rep/overruled", "allowed by overrules() though forbidden"),
    "dropped": ("unreachable", "dropped (robots.txt unreachable)"),
    "held": ("rep/held/unreachable", "held"),
    "waited": ("rep/held", "waited for a first answer"),
    "released": ("rep/released", "released"),
    "given_up": ("rep/given_up", "given up"),
    "handed_back": ("rep/handed_back", "handed back to the scheduler"),
    "kept": ("rep/held/now", "kept for the next run"),
}
# Those that count as allowed, too.
_ALLOWED = ("passed", "overruled")
# Lines of the summary that show stats: the words for each, in the order in which things happen. A
# name that ends with a slash stands for all stats below it, which are listed by their own names.
STATS = {
    "Origins decided beyond the protocol": {
        "rep/beyond/overrides": "{:,} by REP_OVERRIDES",
        "rep/beyond/forbidden": "{:,} by REP_FORBIDDEN",
        "rep/beyond/challenge": "{:,} by REP_CHALLENGE",
        "rep/beyond/unreachable_rules": "{:,} by REP_UNREACHABLE_RULES",
    },
    "Crawl delays": {
        "rep/crawl_delay/origins": "{:,} obeyed",
        "rep/crawl_delay/limited": "{:,} limited",
        "rep/crawl_delay/skipped": "{:,} sites skipped",
        "rep/crawl_delay/alone": "{:,} requests without the fleet's turn",
        "rep/crawl_delay/max": "at most {:g} s",
    },
    "Visit times, which are not obeyed": {"rep/visit_time/origins": "{:,}"},
    "robots.txt files that changed in the crawl": {"rep/changed": "{:,}"},
    "Sitemaps": {
        "rep/sitemaps/found": "{:,} found",
        "rep/sitemaps/fetched": "{:,} read",
        "rep/sitemaps/failed": "{:,} failed",
        "rep/sitemaps/unread": "{:,} not read",
        "rep/sitemaps/nothing_taken": "{:,} without an accepted entry",
    },
    "Entries of sitemaps": {
        "rep/sitemaps/urls": "{:,} read",
        "rep/sitemaps/emitted": "{:,} scheduled as pages",
        "rep/sitemaps/waiting": "{:,} waiting",
        "rep/sitemaps/undated": "{:,} without a readable date",
        "rep/sitemaps/rejected/": "rejected ({})",
    },
    "Rules of pages": {
        "rep/page/noindex": "{:,} by noindex",
        "rep/page/expired": "{:,} by unavailable_after",
        "rep/page/nofollow": "{:,} by nofollow",
        "rep/page/nofollow_link": "{:,} by rel of links",
        "rep/page/dropped": "{:,} dropped in all",
    },
    "Usage preferences": {
        "rep/usage/pages": "{:,} recorded",
        "rep/usage/n/": "disallowed ({})",
        "rep/usage/y/": "allowed ({})",
        "rep/usage/items": "{:,} refused as items",
        "rep/usage/requests": "{:,} refused as requests",
    },
}


class Counts:
    """What the summary knows about a crawl besides the stats, in bounded memory."""

    part = "count for the summary"

    def __init__(self) -> None:
        self.fetches = 0
        self.requests: Counter[str] = Counter()
        """By verdict."""
        self.rules = RuleRows(_TOP, 1)
        self.unanswered: set[Origin] = set()
        self._latest: dict[Origin, str] = {}
        """The words for the latest answers, other than failures, of origins in memory."""
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._known = BoundedSet()

    @property
    def outcomes(self) -> Counter[tuple[str, str]]:
        """How many origins there are, by outcome, in words, and why."""
        return self._outcomes + Counter({(ANSWERS["none"], ""): len(self.unanswered)})

    def count_refusal(self, error: RobotsDisallowed) -> None:
        _, rule, agent = error.decision
        if rule is None:
            return
        name, line = str(error.origin), rule.line
        text = str(rule)[:_RULE_LENGTH]
        self.rules.refuse(text, agent or "", name, lambda: RuleOrigin(name, line))

    def note_answer(self, origin: Origin, outcome: str) -> None:
        """Note the latest answer of *origin*: a key of :data:`ANSWERS`."""
        if outcome != "unreachable" and origin not in self._known:
            self._latest[origin] = ANSWERS[outcome]

    def count_origin(self, state: OriginState) -> None:
        """Count an origin, by its latest answer, when it leaves memory for the first time, at the
        latest when the crawl ends."""
        self.unanswered.discard(state.origin)
        outcome, why = self._latest.pop(state.origin, ""), ""
        if not self._known.add(state.origin):
            return
        entry = state.entry
        if entry.unreachable_since is not None:
            outcome, why = ANSWERS["unreachable"], kind_of(entry.error)
        elif not outcome:
            outcome = ANSWERS["rules" if entry.outcome is Outcome.RULES else "missing"]
        self._outcomes[outcome, why] += 1

    def note_unanswered(self, origin: Origin) -> None:
        if len(self.unanswered) < _UNANSWERED and origin not in self._known:
            self.unanswered.add(origin)


def figures(counts: Counts, stats: StatsCollector) -> dict[str, int]:
    """Return how many requests were allowed, held, only ``waited``, and so on."""

    def number(name: str) -> int:
        return int(stats.get_value(name, 0)) if "/" in name else counts.requests[name]

    found = {name: number(stat) for name, (stat, _) in _REQUESTS.items()}
    found["allowed"] -= sum(found[name] for name in _ALLOWED)
    found["waited"] -= found["held"]
    return {
        **found,
        "held_max": number("rep/held/max"),
        "fetches": counts.fetches,
        "origins": counts.outcomes.total(),
        "page_dropped": number("rep/page/dropped"),
        "usage_dropped": number("rep/usage/items") + number("rep/usage/requests"),
    }


def log_summary(counts: Counts, told: dict[str, int], context: CrawlContext) -> None:
    """Log the summary, with the figures *told*, unless there were no requests."""
    outcomes = counts.outcomes
    if not outcomes and not told["dropped"]:
        return
    title = (
        "Requests, had this not been a dry run"
        if context.settings.dry_run
        else "Requests"
    )
    requests = [
        f"{told[name]:,} {words}"
        for name, (_, words) in _REQUESTS.items()
        if told[name] or name in ("allowed", "forbidden")
    ]
    lines = [
        f"robots.txt of {counted(outcomes.total(), 'origin')}:",
        f"{_INDENT}{_outcomes(outcomes) or 'none'}",
        f"{title}: {', '.join(requests)}",
    ]
    stats = context.stats.get_stats()
    for subject, words in STATS.items():
        parts = parts_of(stats, words)
        lines += [f"{subject}: {', '.join(parts)}"] if parts else []
    wrapped = [part for line in lines + _rules(counts) for part in _WRAPPER.wrap(line)]
    logger.info("\n".join(["%s"] * len(wrapped)), *wrapped, extra=context.extra)


def parts_of(stats: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """Return what *stats* say, in *words*."""
    parts = []
    for name, text in words.items():
        if not name.endswith("/"):
            value = stats.get(name)
            parts += [text.format(value)] if value else []
            continue
        below = sorted(
            (-value, key) for key, value in stats.items() if key.startswith(name)
        )
        named = [f"{-count:,} {key.removeprefix(name)}" for count, key in below]
        parts += [text.format(", ".join(named))] if named else []
    return parts


def _outcomes(outcomes: Counter[tuple[str, str]]) -> str:
    parts = []
    for words in dict.fromkeys(ANSWERS.values()):
        found = sorted(
            (-number, why) for (what, why), number in outcomes.items() if what == words
        )
        total = -sum(number for number, _ in found)
        whys = ", ".join(
            f"{-n:,} {why}" if total > 1 else why for n, why in found if why
        )
        parts += (
            [f"{total:,} {words}" + (f" ({whys})" if whys else "")] if total else []
        )
    return ", ".join(parts)


def _rules(counts: Counts) -> list[str]:
    top = counts.rules.top
    lines = [
        "Lines that decided most often:" if len(top) > 1 else "The line that decided:"
    ]
    for one in top:
        [first] = one.first_origins.values()
        where = f"{first.origin}, line {first.line}"
        if one.all_origins > 1:
            where = counted(one.all_origins, "origin")
        times = f"{one.times:>{len(f'{top[0].times:,}')},}"
        lines.append(f"  {times} × {where}: {one.rule} (group {one.group})")
    return lines if top else []


def log_beginning(context: CrawlContext, agents: Agents) -> None:
    settings = context.settings
    what = {
        "hold": f"held for up to {duration(settings.hold_max_wait)}",
        "drop": "dropped",
        "allow": "let through",
    }
    storage = settings.cache_storage
    name = storage.rpartition(".")[2] if isinstance(storage, str) else storage.__name__
    logger.info(
        "Obeying robots.txt as %(agent)s. While it is unreachable, requests are %(unreachable)s. "
        "Cache: %(storage)s",
        {
            "agent": name_of(agents),
            "unreachable": what[settings.unreachable],
            "storage": name,
        },
        extra=context.extra,
    )
    if name == MemoryStorage.__name__ and context.crawler.settings.getbool(
        "HTTPCACHE_ENABLED"
    ):
        logger.info(
            "Scrapy's HTTP cache keeps no robots.txt. To replay a crawl while its sites can't be "
            "reached, keep them in a storage that lasts: "
            'REP_CACHE_STORAGE = "scrapy_rep.storages.SqliteStorage"',
            extra=context.extra,
        )


def name_of(agents: Agents) -> str:
    return " or ".join(agents.default) or "any crawler (*)"


def log_switched_off(crawler: Crawler) -> None:
    """Log that ``ROBOTSTXT_OBEY`` is off, and which settings have no effect then.

    A project's settings are not named where one spider, or the command line, switches it off: who
    does that means it.
    """
    extra = {"spider": crawler.spider}
    logger.info("Not obeying robots.txt: ROBOTSTXT_OBEY is False", extra=extra)
    names = [
        name for name in changed(crawler.settings) if not _is_outranked(name, crawler)
    ]
    if getattr(crawler.spider, SPIDER_SITEMAPS, None):
        names.append(f"the spider's {SPIDER_SITEMAPS}")
    if names:
        message = "Without ROBOTSTXT_OBEY, these have no effect: %(names)s"
        logger.warning(message, {"names": ", ".join(names)}, extra=extra)


def _is_outranked(name: str, crawler: Crawler) -> bool:
    """Tell whether ``ROBOTSTXT_OBEY`` was set at a higher priority than the setting *name*."""
    of_setting = crawler.settings.getpriority(name) or 0
    return of_setting < (crawler.settings.getpriority("ROBOTSTXT_OBEY") or 0)
