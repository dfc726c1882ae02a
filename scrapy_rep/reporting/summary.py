"""What the log says at the beginning of a crawl (whether, and how, robots.txt is
obeyed), and the summary at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from textwrap import TextWrapper
from typing import Any, NamedTuple

from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.log import BoundedSet, get_logger
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.record import ANSWERS, RuleOrigin, RuleRows, kind_of
from scrapy_rep.settings import SPIDER_SITEMAPS, changed
from scrapy_rep.storages.base import MemoryStorage
from scrapy_rep.text import counted, duration

logger = get_logger(__name__)

# The indent of lines that belong to the line above.
_INDENT = "    "
# Lines are short: Scrapy's log has a date and more before the first of them.
_WRAPPER = TextWrapper(
    80,
    subsequent_indent=_INDENT,
    break_long_words=False,
    break_on_hyphens=False,
)
# At most this many rules are in the summary. The report has more of them.
_TOP_RULES = 5
# Characters of a rule in the summary.
_RULE_LENGTH = 200
# At most this many origins without an answer are counted, since each takes memory until
# it answers.
_MAX_UNANSWERED = 10_000


class _Figure(NamedTuple):
    """What became of requests, and how the summary counts it."""

    source: str
    """With a slash, the name of a stat; without one, a verdict that :class:`Counts`
    counts."""
    words: str


_REQUESTS = {
    "allowed": _Figure("allowed", "allowed"),
    "forbidden": _Figure("disallowed", "forbidden"),
    "passed": _Figure(
        "rep/unreachable/allowed",
        "allowed though robots.txt was unreachable",
    ),
    "overruled": _Figure("rep/overruled", "allowed by overrules() though forbidden"),
    "dropped": _Figure("unreachable", "dropped (robots.txt unreachable)"),
    "held": _Figure("rep/held/unreachable", "held"),
    "waited": _Figure("rep/held", "waited for a first answer"),
    "released": _Figure("rep/released", "released"),
    "given_up": _Figure("rep/given_up", "given up"),
    "handed_back": _Figure("rep/handed_back", "handed back to the scheduler"),
    "kept": _Figure("rep/held/now", "kept for the next run"),
}
# Figures that the summary has even if they are 0.
_ALWAYS_SHOWN = ("allowed", "forbidden")
# Figures of requests that the verdict "allowed" counts as well, so figures() subtracts
# them.
_PARTS_OF_ALLOWED = ("passed", "overruled")
# Lines of the summary that show stats: the words for each, in the order in which things
# happen. A name that ends with a slash stands for all stats below it, which are listed
# by their own names.
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


class CountedOutcome(NamedTuple):
    """How an origin answered, as the summary counts it."""

    words: str
    """A value of ``ANSWERS`` in `record.py`."""
    why: str = ""
    """Why it is unreachable, in a word or two; empty if it isn't."""


class Counts:
    """What the summary knows about a crawl besides the stats, in bounded memory."""

    part = "count for the summary"
    """What the log calls it if it fails (``Isolation`` in engine/log.py)."""

    def __init__(self) -> None:
        self.fetches = 0
        """How many requests for robots.txt files were sent."""
        self.requests: Counter[str] = Counter()
        """How many requests had each verdict."""
        self.rules = RuleRows(shown=_TOP_RULES, origins=1)
        self._unanswered: set[Origin] = set()
        """Origins that were asked, without an answer or a failure so far: the fetch was
        cancelled, or the project's settings prevent it."""
        self._latest: dict[Origin, str] = {}
        """The words for the latest answers, other than failures, of origins in
        memory."""
        self._outcomes: Counter[CountedOutcome] = Counter()
        """How many of the origins that have left memory had each outcome
        (:meth:`count_origin`)."""
        self._counted = BoundedSet()
        """The origins in ``_outcomes``. One that comes back to memory isn't counted
        again."""

    @property
    def outcomes(self) -> Counter[CountedOutcome]:
        """How many origins there are, by outcome."""
        unanswered = CountedOutcome(ANSWERS["none"])
        return self._outcomes + Counter({unanswered: len(self._unanswered)})

    def count_refusal(self, error: RobotsDisallowed, name: str) -> None:
        """Count the rule that refused a request to the origin *name*. If a setting
        refused it, count nothing."""
        _, rule, agent = error.decision
        if rule is None:
            return
        line = rule.line
        text = rule.text or str(rule)
        text = text[:_RULE_LENGTH]
        group = agent or ""  # the token of the group that has the rule
        self.rules.refuse(text, group, name, lambda: RuleOrigin(name, line))

    def note_answer(self, origin: Origin, outcome: str) -> None:
        """Note the latest answer of *origin*. *outcome*: a key of ``ANSWERS``. Failures
        need no note, since the origin's entry has them (``unreachable_since``)."""
        if outcome == "unreachable":
            return
        # In most crawls, no origin leaves memory before the end, so none is counted.
        if self._outcomes and origin in self._counted:
            return
        self._latest[origin] = ANSWERS[outcome]

    def count_origin(self, state: OriginState) -> None:
        """Count an origin, by its latest answer, when it leaves memory for the first
        time, at the latest when the crawl ends."""
        origin = state.origin
        self._unanswered.discard(origin)
        latest = self._latest.pop(origin, "")
        is_new = self._counted.add(origin)
        if not is_new:
            return
        entry = state.entry
        if entry.unreachable_since is not None:
            outcome = CountedOutcome(ANSWERS["unreachable"], kind_of(entry.error))
        elif latest:
            outcome = CountedOutcome(latest)
        elif entry.has_copy:
            outcome = CountedOutcome(ANSWERS["rules"])
        else:
            outcome = CountedOutcome(ANSWERS["missing"])
        self._outcomes[outcome] += 1

    def note_unanswered(self, origin: Origin) -> None:
        """Note that a fetch of the robots.txt of *origin* ended without an answer or a
        failure."""
        if len(self._unanswered) < _MAX_UNANSWERED and origin not in self._counted:
            self._unanswered.add(origin)


def figures(counts: Counts, stats: StatsCollector) -> dict[str, int]:
    """Return how many requests were allowed, were held, only ``waited``, and so on; and
    how many fetches and origins there were."""

    def number(source: str) -> int:
        if "/" in source:
            return int(stats.get_value(source, 0))
        return counts.requests[source]

    numbers = {}
    for name, figure in _REQUESTS.items():
        numbers[name] = number(figure.source)
    for name in _PARTS_OF_ALLOWED:
        numbers["allowed"] -= numbers[name]
    # The stat rep/held also counts requests that waited and were held after that.
    numbers["waited"] -= numbers["held"]
    numbers["held_max"] = number("rep/held/max")
    numbers["fetches"] = counts.fetches
    numbers["origins"] = counts.outcomes.total()
    numbers["page_dropped"] = number("rep/page/dropped")
    numbers["usage_dropped"] = number("rep/usage/items") + number("rep/usage/requests")
    return numbers


def log_summary(counts: Counts, numbers: dict[str, int], context: CrawlContext) -> None:
    """Log the summary, unless there were no requests. *numbers*: what :func:`figures`
    returned."""
    outcomes = counts.outcomes
    if not outcomes and not numbers["dropped"]:
        return
    is_dry_run = context.settings.dry_run
    subject = "Requests, had this not been a dry run" if is_dry_run else "Requests"
    requests = []
    for name, figure in _REQUESTS.items():
        if numbers[name] or name in _ALWAYS_SHOWN:
            count = f"{numbers[name]:,}"
            requests.append(f"{count} {figure.words}")
    lines = [
        f"robots.txt of {counted(outcomes.total(), 'origin')}:",
        f"{_INDENT}{_in_words(outcomes) or 'none'}",
        f"{subject}: {', '.join(requests)}",
    ]
    stats = context.stats.get_stats()
    for subject, words in STATS.items():
        parts = parts_of(stats, words)
        if parts:
            lines.append(f"{subject}: {', '.join(parts)}")
    lines += _rules(counts)
    wrapped: list[str] = []
    for line in lines:
        wrapped += _WRAPPER.wrap(line)
    # Each line is an argument of its own, so that newlines in other people's text are
    # escaped, and can't forge lines.
    placeholders = "\n".join("%s" for _ in wrapped)
    logger.info(placeholders, *wrapped, extra=context.extra)


def parts_of(stats: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """Return what *stats* say, in *words*: a value of :data:`STATS`. Stats that are 0
    are left out."""
    parts = []
    for name, form in words.items():
        if name.endswith("/"):
            below = _stats_below(name, stats)
            if below:
                parts.append(form.format(", ".join(below)))
        elif stats.get(name):
            parts.append(form.format(stats[name]))
    return parts


def _stats_below(prefix: str, stats: Mapping[str, Any]) -> list[str]:
    """Return number and name of each stat whose name begins with *prefix*, the largest
    first."""
    below: Counter[str] = Counter()
    for name, value in stats.items():
        if name.startswith(prefix):
            below[name.removeprefix(prefix)] = value
    return [f"{count:,} {name}" for name, count in _largest_first(below)]


def _largest_first(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return names and counts, the largest first, equal ones by name."""
    by_name = sorted(counts.items())
    return sorted(by_name, key=lambda item: item[1], reverse=True)


def _in_words(outcomes: Counter[CountedOutcome]) -> str:
    """Return how many origins answered how: ``5 with rules, 2 unreachable (1 HTTP 503,
    1 timeout)``."""
    parts = []
    for words in dict.fromkeys(ANSWERS.values()):
        reasons: Counter[str] = Counter()
        for outcome, count in outcomes.items():
            if outcome.words == words:
                reasons[outcome.why] += count
        if reasons:
            total = f"{reasons.total():,}"
            why = _in_parentheses(reasons)
            parts.append(f"{total} {words}{why}")
    return ", ".join(parts)


def _in_parentheses(reasons: Counter[str]) -> str:
    """Return reasons in parentheses, after a space, the most frequent first, each with
    its number if there are more than one in all; empty if there are none."""
    has_several = reasons.total() > 1
    parts = []
    for reason, count in _largest_first(reasons):
        if not reason:
            continue
        if has_several:
            reason = f"{count:,} {reason}"
        parts.append(reason)
    return f" ({', '.join(parts)})" if parts else ""


def _rules(counts: Counts) -> list[str]:
    """Return the lines about the rules that refused most requests."""
    top = counts.rules.top
    if not top:
        return []
    lines = ["The line that decided:"]
    if len(top) > 1:
        lines = ["Lines that decided most often:"]
    width = len(f"{top[0].times:,}")
    for row in top:
        # One origin of each rule is known (``RuleRows`` in Counts), the first that had
        # it.
        [first] = row.first_origins.values()
        where = f"{first.origin}, line {first.line}"
        if row.all_origins > 1:
            where = counted(row.all_origins, "origin")
        times = f"{row.times:>{width},}"
        rule = f"{row.rule} (group {row.group})"
        lines.append(f"  {times} × {where}: {rule}")
    return lines


def log_beginning(context: CrawlContext, agents: Agents) -> None:
    """Log that robots.txt is obeyed, as whom, and what happens to requests while it is
    unreachable."""
    settings = context.settings
    treatments = {
        "hold": f"held for up to {duration(settings.hold_max_wait)}",
        "drop": "dropped",
        "allow": "let through",
    }
    storage = settings.cache_storage
    # The storage is given as a path or as a class.
    path = storage if isinstance(storage, str) else storage.__name__
    name = path.rpartition(".")[2]
    logger.info(
        "Obeying robots.txt as %(agent)s. While it is unreachable, requests are %(unreachable)s. "
        "Cache: %(storage)s",
        {
            "agent": name_of(agents),
            "unreachable": treatments[settings.unreachable],
            "storage": name,
        },
        extra=context.extra,
    )
    replays = context.crawler.settings.getbool("HTTPCACHE_ENABLED")
    if replays and name == MemoryStorage.__name__:
        logger.info(
            "Scrapy's HTTP cache keeps no robots.txt. To replay a crawl while its sites can't be "
            "reached, keep them in a storage that lasts: "
            'REP_CACHE_STORAGE = "scrapy_rep.storages.SqliteStorage"',
            extra=context.extra,
        )


def name_of(agents: Agents) -> str:
    """Return the product tokens that the crawl goes by, in words, if its requests don't
    say otherwise."""
    return " or ".join(agents.default) or "any crawler (*)"


def log_switched_off(crawler: Crawler) -> None:
    """Log that ``ROBOTSTXT_OBEY`` is off, and which settings have no effect then.

    A project's settings are not named where one spider, or the command line, switches
    it off, since who does that means it.
    """
    extra = {"spider": crawler.spider}
    logger.info("Not obeying robots.txt: ROBOTSTXT_OBEY is False", extra=extra)
    names = []
    for name in changed(crawler.settings):
        if not _is_outranked(name, crawler):
            names.append(name)
    if getattr(crawler.spider, SPIDER_SITEMAPS, None):
        names.append(f"the spider's {SPIDER_SITEMAPS}")
    if names:
        message = "Without ROBOTSTXT_OBEY, these have no effect: %(names)s"
        values = {"names": ", ".join(names)}
        logger.warning(message, values, extra=extra)


def _is_outranked(name: str, crawler: Crawler) -> bool:
    """Tell whether ``ROBOTSTXT_OBEY`` was set at a higher priority than the setting
    *name*."""
    of_setting = crawler.settings.getpriority(name) or 0
    of_obeying = crawler.settings.getpriority("ROBOTSTXT_OBEY") or 0
    return of_setting < of_obeying
