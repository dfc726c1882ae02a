"""What the log says at the beginning (whether, and how, robots.txt is obeyed), and the summary."""

from __future__ import annotations

from collections import Counter
from textwrap import TextWrapper

from scrapy.crawler import Crawler
from scrapy.statscollectors import StatsCollector

from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.reporting.record import Counts
from scrapy_rep.settings import SPIDER_SITEMAPS, chosen
from scrapy_rep.text import counted, duration

logger = get_logger(__name__)

_PRINTED_LENGTH = 200
_INDENT = " " * 4
# Scrapy's log has a date and more before the first line.
_WRAPPER = TextWrapper(
    80, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
)

_OUTCOMES = {
    "with rules": ("rules", "empty", "html", "challenge"),
    "without restrictions": ("missing", "redirected"),
    "unreachable": ("unreachable",),
    "without an answer": ("none",),
}

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
_SITEMAPS = {
    "found": "found",
    "fetched": "read",
    "failed": "failed",
    "urls": "entries",
    "emitted": "pages requested",
}


def figures(counts: Counts, stats: StatsCollector) -> dict[str, int]:
    """Return how many requests were allowed, held, only ``waited``, and so on."""
    held = _stat(stats, "deferred/unreachable")
    names = ("allowed", "forbidden", "dropped", "passed", "released", "given_up")
    return {
        **{name: counts.requests[name] for name in names},
        "held": held,
        "waited": _stat(stats, "deferred") - held,
        "held_max": _stat(stats, "held/max"),
        "handed_back": _stat(stats, "handed_back"),
        "kept": _stat(stats, "held"),
        "fetches": counts.fetches,
        "origins": counts.outcomes().total(),
        "page_dropped": _stat(stats, "page/dropped"),
        "usage_dropped": _stat(stats, "usage/items") + _stat(stats, "usage/requests"),
    }


def log_summary(counts: Counts, told: dict[str, int], context: CrawlContext) -> None:
    """Log the summary, with the figures *told*, unless there were no requests."""
    outcomes, stats = counts.outcomes(), context.stats
    if not outcomes and not told["dropped"]:
        return
    lines = [
        f"robots.txt of {counted(outcomes.total(), 'origin')}:",
        f"{_INDENT}{_outcomes(outcomes) or 'none'}",
        _requests(told, context.settings.dry_run),
    ]
    beyond = [
        f"{name} for {counted(number, 'origin')}"
        for name in BEYOND
        if (number := _stat(stats, f"beyond/{name.removeprefix('REP_').lower()}"))
    ]
    if beyond:
        lines.append(f"Beyond the protocol: {', '.join(beyond)}")
    if slowed := _stat(stats, "crawl_delay/origins"):
        longest = stats.get_value("rep/crawl_delay/max", 0)
        lines.append(f"crawl-delay of {counted(slowed, 'origin')}: {longest:g} s at most")
    if timed := _stat(stats, "visit_time/origins"):
        lines.append(f"visit-time of {counted(timed, 'origin')}, not obeyed")
    if changed := _stat(stats, "changed"):
        lines.append(f"{counted(changed, 'robots.txt', 'robots.txt files')} changed in the crawl")
    lines += filter(None, (_sitemaps(stats), _pages(stats), _usage(stats)))
    wrapped = [part for line in lines + _rules(counts) for part in _WRAPPER.wrap(line)]
    logger.info("\n".join(["%s"] * len(wrapped)), *wrapped, extra=context.extra)


def _stat(stats: StatsCollector, name: str) -> int:
    return int(stats.get_value(f"rep/{name}", 0))


def _outcomes(outcomes: Counter[tuple[str, str]]) -> str:
    parts = []
    for words, keys in _OUTCOMES.items():
        found = [(kind, n) for (key, kind), n in outcomes.items() if key in keys]
        total = sum(n for _, n in found)
        kinds = sorted((-n, kind) for kind, n in found if kind)
        why = ", ".join(f"{-n:,} {kind}" if total > 1 else kind for n, kind in kinds)
        parts += [f"{total:,} {words}" + (f" ({why})" if why else "")] if total else []
    return ", ".join(parts)


def _requests(told: dict[str, int], dry_run: bool) -> str:
    parts = [f"{told['allowed']:,} allowed"]
    if told["passed"]:
        parts.append(f"{told['passed']:,} allowed though robots.txt was unreachable")
    parts.append(f"{told['forbidden']:,} forbidden")
    if told["dropped"]:
        parts.append(f"{told['dropped']:,} dropped (robots.txt unreachable)")
    ends = [f"{told[name]:,} {words}" for name, words in _ENDS.items() if told[name]]
    waited, held = told["waited"], told["held"]
    if held or waited or ends:  # requests that end may have been held by an earlier run
        why = [f"{held:,} held"] if held or not waited else []
        why += [f"{waited:,} waited for a first answer"] if waited else []
        parts.append(", ".join(why) + (f" ({', '.join(ends)})" if ends else ""))
    name = "Requests, had this not been a dry run" if dry_run else "Requests"
    return f"{name}: {', '.join(parts)}"


def _sitemaps(stats: StatsCollector) -> str:
    found = {words: _stat(stats, f"sitemaps/{name}") for name, words in _SITEMAPS.items()}
    prefix = "rep/sitemaps/rejected/"
    rejected = [one for one in stats.get_stats() if one.startswith(prefix)]
    found["rejected"] = sum(stats.get_value(one) for one in rejected)
    parts = [f"{count:,} {words}" for words, count in found.items() if count]
    return f"Sitemaps: {', '.join(parts)}" if parts else ""


def _pages(stats: StatsCollector) -> str:
    found = [(_stat(stats, f"page/{name}"), noun, what) for name, noun, what in PAGE_VERDICTS]
    parts = [f"{counted(number, noun)} {what}" for number, noun, what in found if number]
    total = sum(number for number, _, _ in found)
    dropped = _stat(stats, "page/dropped")
    return f"Page rules: {', '.join(parts)}; {dropped:,} of {total:,} dropped" if parts else ""


def _usage(stats: StatsCollector) -> str:
    pages = _stat(stats, "usage/pages")
    parts = [f"{counted(pages, 'page')} recorded"] if pages else []
    names = [name.split("/") for name in stats.get_stats() if name.startswith("rep/usage/")]
    for purpose in sorted({name[3] for name in names if len(name) == 4}):
        said = {words: _stat(stats, f"usage/{words[0]}/{purpose}") for words in ("no", "yes")}
        if any(said.values()):
            parts.append(
                f"{purpose}: {', '.join(f'{n:,} {words}' for words, n in said.items() if n)}"
            )
    dropped = {noun: _stat(stats, f"usage/{noun}s") for noun in ("request", "item")}
    if any(dropped.values()):
        some = " and ".join(counted(n, noun) for noun, n in dropped.items() if n)
        parts.append(f"{some} dropped")
    return f"Usage preferences: {'; '.join(parts)}" if parts else ""


def _rules(counts: Counts) -> list[str]:
    top = counts.rules.top
    lines = ["Lines that decided most often:" if len(top) > 1 else "The line that decided:"]
    for one in top:
        origin, line = one.first
        rule = one.rule if len(one.rule) <= _PRINTED_LENGTH else one.rule[:_PRINTED_LENGTH] + "…"
        others = f" and {counted(one.origins - 1, 'other origin')}" if one.origins > 1 else ""
        times = f"{one.times:>{len(f'{top[0].times:,}')},}"
        lines.append(f"  {times} × {origin}, line {line}{others}: {rule} (group {one.group})")
    return lines if top else []


_STORAGES = {"MemoryStorage": "memory", "SqliteStorage": "SQLite", "RedisStorage": "Redis"}


def log_beginning(context: CrawlContext, agents: Agents) -> None:
    settings = context.settings
    unreachable = {
        "defer": f"held for up to {duration(settings.defer_max_wait)}",
        "drop": "dropped",
        "allow": "let through",
    }
    storage = settings.cache_storage
    name = storage if isinstance(storage, str) else f"{storage.__module__}.{storage.__qualname__}"
    module, _, short = name.rpartition(".")
    logger.info(
        "Obeying robots.txt as %(agent)s. While it is unreachable, requests are %(unreachable)s. "
        "Cache: %(storage)s",
        {
            "agent": in_words(agents),
            "unreachable": unreachable[settings.unreachable],
            "storage": _STORAGES.get(short, name) if module.startswith("scrapy_rep.") else name,
        },
        extra=context.extra,
    )


def in_words(agents: Agents) -> str:
    return " or ".join(agents.default) or "any crawler (*)"


def log_switched_off(crawler: Crawler) -> None:
    """Log that ``ROBOTSTXT_OBEY`` is off, and what is set for nothing."""
    extra = {"spider": crawler.spider}
    logger.info("Not obeying robots.txt: ROBOTSTXT_OBEY is False", extra=extra)
    names = chosen(crawler.settings)
    if getattr(crawler.spider, SPIDER_SITEMAPS, None):
        names.append(f"the spider's {SPIDER_SITEMAPS}")
    if names:
        what = f"{counted(len(names), 'setting')} {'has' if len(names) == 1 else 'have'}"
        logger.warning(
            "Without ROBOTSTXT_OBEY, %(what)s no effect: %(names)s",
            {"what": what, "names": ", ".join(names)},
            extra=extra,
        )
