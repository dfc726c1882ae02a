"""Counts, logs and signals each robots.txt result, and whether the file differs from the previous copy.
At the crawl's beginning, logs whether robots.txt is obeyed, and how."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import run_in_thread

from scrapy_rep import signals
from scrapy_rep.engine.lifecycle import is_interactive
from scrapy_rep.engine.log import Isolation, Limiter, get_logger
from scrapy_rep.engine.text import counted, duration
from scrapy_rep.origins.cache import LARGE
from scrapy_rep.origins.faults import CONFIGURATION_ERRORS
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.robotparser import RobotParser
from scrapy_rep.settings import SPIDER_SITEMAPS, changed
from scrapy_rep.storages.entry import UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy.crawler import Crawler

    from scrapy_rep.origins.answer import Answer
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.origins.requests import Agents
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin
    from scrapy_rep.storages.base import Entry

logger = get_logger(__name__)

# Scrapy has it since 2.18.
_PARSED = getattr(scrapy_signals, "robots_parsed", None)
# Configuration errors that are logged, once each.
_MAX_LOGGED = 1000


class Announcer(ResolutionListener):
    """Announces the answers to requests for robots.txt."""

    part = "announcement of robots.txt"

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._logged: set[str] = set()
        self._once = is_interactive(context.crawler)  # there is only one attempt
        self._unreachable = Limiter(logger, "failures to fetch the robots.txt of an origin")
        self._isolated = Isolation(context.crawler)

    async def resolved(self, resolution: Resolution) -> None:
        """A robots.txt was fetched, or found in the storage."""
        state, answer, robots = resolution.state, resolution.answer, resolution.robots
        if answer is None:  # found in the storage
            self._context.stats.inc_value("rep/cache/recalled")
        else:
            with self._isolated("count of answers"):
                self._count(answer)
            if answer.outcome is Outcome.UNREACHABLE:
                with self._isolated("log of failures"):
                    self._log_failure(state, answer)
        has_listeners = self._context.engine.has_listeners
        send = self._context.crawler.signals.send_catch_log_async
        if robots is not None and _PARSED is not None and has_listeners(_PARSED):
            await send(_PARSED, robotparser=RobotParser(robots), request=resolution.request)
        if answer is not None and has_listeners(signals.robots_resolved):
            await send(
                signals.robots_resolved,
                origin=state.origin,
                outcome=answer.outcome,
                status=answer.status,
                url=answer.url,
                hops=answer.hops,
                robots=robots,
                error=str(answer.error) if answer.error else None,
                attempts=state.entry.attempts,
                spider=self._context.spider,
            )

    def failed(self, origin: Origin, error: Exception) -> None:
        """Log a misconfiguration, once for each kind."""
        if not isinstance(error, CONFIGURATION_ERRORS):
            return  # a bug, which Flights logs
        self._context.stats.inc_value(f"robotstxt/exception_count/{type(error)}")
        key = f"{origin.scheme} {error}"
        if key not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(key)
            logger.error(
                "Can't request the robots.txt of %(origin)s, so its pages are not fetched: "
                "%(error)s",
                {"origin": origin, "error": error},
                extra=self._context.extra,
                exc_info=error.__cause__,
            )

    def _count(self, answer: Answer) -> None:
        inc_value = self._context.stats.inc_value
        inc_value(f"rep/outcome/{answer.outcome.value}")
        if not answer.asked:
            return
        # Scrapy's own names, for dashboards written for the built-in middleware.
        inc_value("robotstxt/request_count")
        if answer.status is not None:
            inc_value("robotstxt/response_count")
            inc_value(f"robotstxt/response_status_count/{answer.status}")
        elif answer.error is not None and not isinstance(answer.error, IgnoreRequest):
            inc_value(f"robotstxt/exception_count/{type(answer.error)}")

    def _log_failure(self, state: OriginState, answer: Answer) -> None:
        entry = state.entry
        copy = ", so an older copy applies" if state.standing is Standing.STALE else ""
        message = f"robots.txt of %(origin)s is unreachable (%(reason)s){copy}"
        if not self._once:
            message += "; next attempt in %(delay).1f s"
        delay = entry.next_attempt_at - self._context.clock()
        values = {"origin": state.origin, "reason": answer.reason, "delay": delay}
        if entry.attempts == 1:  # the first of a series is news
            self._unreachable.log(message, values, self._context.spider)
        else:
            logger.debug(message, values, extra=self._context.extra)


# Refused URLs that are remembered, and how many of an origin are compared.
_REFUSED, _URLS = 1000, 20
# Of a change: lines kept, and characters of each.
MAX_LINES, _LENGTH = 50, 300


class ChangeWatch:
    """Compares each new robots.txt with the one before."""

    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._obey_global = context.settings.obey_global_group
        self._refused: deque[tuple[Origin, str]] = deque(maxlen=_REFUSED)
        self._log = Limiter(logger, "robots.txt files that have changed")

    def forbidden(self, origin: Origin, url: str) -> None:
        """Remember a URL that is refused: a change may allow it."""
        self._refused.append((origin, url))

    async def look(
        self, resolution: Resolution, before: Entry, waiting: Callable[[str], Iterable[str]]
    ) -> dict[str, Any] | None:
        """Return what has changed since *before*, None if nothing has. Log and count it.

        :param waiting: returns URLs that wait for an origin's answer; it may read them from disk
        """
        state = resolution.state
        if not _differ(before, state.entry):
            return None
        try:
            old, new = before.body, state.entry.body
        except UnreadableEntry:  # a damaged file of another process
            return None
        refused = [url for origin, url in self._refused if origin == state.origin]
        urls = dict.fromkeys([*refused[-_URLS:], *waiting(state.name)])
        chain = self._agents.chain_of(resolution.request)
        how = old, new, list(urls), chain, self._obey_global
        large = len(old) + len(new) > LARGE
        change = await run_in_thread(compare, *how) if large else compare(*how)
        change = {"old_sha256": before.sha256, **change}
        self._context.stats.inc_value("rep/changed")
        self._tell(state.origin, change, len(urls))
        return change

    def _tell(self, origin: Origin, change: dict[str, Any], looked_at: int) -> None:
        values = {
            "origin": origin,
            "added": counted(change["lines_added"], "line"),
            "removed": f"{change['lines_removed']:,}",
            "turned": "",
        }
        if count := change["turned_count"]:
            first = change["turned"][0]
            values["turned"] = (
                f"; this changes the verdict on {count} of {counted(looked_at, 'waiting or recent URL')}: "
                f"for example, {first['url']} is now {first['now']}"
            )
        message = (
            "robots.txt of %(origin)s has changed: %(added)s added, %(removed)s removed%(turned)s"
        )
        self._log.log(message, values, self._context.spider)


def _differ(before: Entry, now: Entry) -> bool:
    """Whether both are answers that count, and not the same."""
    if before.fetched_at is None or now.unreachable_since is not None:
        return False
    return (before.outcome, before.sha256) != (now.outcome, now.sha256)


def compare(
    old: bytes, new: bytes, urls: list[str], chain: tuple[str, ...], obey_global: bool
) -> dict[str, Any]:
    """Return what differs between two robots.txt files: lines, and verdicts on *urls*."""
    turned = []
    files = RobotsTxt.parse(old), RobotsTxt.parse(new)
    for url in urls:
        found = [one.decide(comparable(url), chain, obey_global=obey_global) for one in files]
        was, now = ("allowed" if one.allowed else "disallowed" for one in found)
        if was != now:
            turned.append({"url": url, "was": was, "now": now})
    return {**changed_lines(old, new), "turned": turned[:_URLS], "turned_count": len(turned)}


def changed_lines(old: bytes, new: bytes) -> dict[str, Any]:
    """Return the lines that only one of two files has, in the order in which they first appear."""
    before, after = _lines(old), _lines(new)
    added, removed = (list(one.elements()) for one in (after - before, before - after))
    return {
        "added": [one[:_LENGTH] for one in added[:MAX_LINES]],
        "removed": [one[:_LENGTH] for one in removed[:MAX_LINES]],
        "lines_added": len(added),
        "lines_removed": len(removed),
    }


def _lines(body: bytes) -> Counter[str]:
    text = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode(errors="replace")
    return Counter(filter(None, map(str.strip, text.split("\n"))))


_SHORT = {"MemoryStorage": "memory", "SqliteStorage": "SQLite", "RedisStorage": "Redis"}


def log_beginning(context: CrawlContext, agents: Agents) -> None:
    """Log that robots.txt is obeyed."""
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
            "agent": agents_in_words(agents),
            "unreachable": unreachable[settings.unreachable],
            "storage": _SHORT.get(short, name) if module.startswith("scrapy_rep.") else name,
        },
        extra=context.extra,
    )


def agents_in_words(agents: Agents) -> str:
    """Return what the crawler goes by."""
    return " or ".join(agents.default) or "any crawler (*)"


def log_switched_off(crawler: Crawler) -> None:
    """Log that ``ROBOTSTXT_OBEY`` is off, and what is set for nothing."""
    extra = {"spider": crawler.spider}
    logger.info("Not obeying robots.txt: ROBOTSTXT_OBEY is False", extra=extra)
    names = changed(crawler.settings)
    if getattr(crawler.spider, SPIDER_SITEMAPS, None):
        names.append(f"the spider's {SPIDER_SITEMAPS}")
    if names:
        what = f"{counted(len(names), 'setting')} {'has' if len(names) == 1 else 'have'}"
        logger.warning(
            "Without ROBOTSTXT_OBEY, %(what)s no effect: %(names)s",
            {"what": what, "names": ", ".join(names)},
            extra=extra,
        )
