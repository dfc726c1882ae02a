"""Compares each new robots.txt with the copy before."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Flight
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.storages.base import UnreadableEntry

logger = get_logger(__name__)

# Refused URLs that are remembered; of one origin, how many are compared.
_REFUSED, _URLS = 1000, 20
# Lines of a change that are kept, and characters of each.
MAX_LINES, _LENGTH = 50, 300


class ChangeWatch:
    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused: deque[tuple[Origin, str]] = deque(maxlen=_REFUSED)
        self._log = Limiter(logger, "robots.txt files that have changed")

    def forbidden(self, origin: Origin, url: str) -> None:
        """Remember a URL that is refused: a change may allow it."""
        self._refused.append((origin, url))

    async def look(
        self, state: OriginState, flight: Flight, waiting: Callable[[str], Iterable[str]]
    ) -> dict[str, Any] | None:
        """Return what has changed since the fetch began; None if nothing has. Log and count it.
        *waiting* returns URLs that wait for an origin's answer; it may read them from disk."""
        before, now = flight.before, state.entry
        if before is None or before.fetched_at is None or now.unreachable_since is not None:
            return None  # only answers that count are compared
        if (before.outcome, before.sha256) == (now.outcome, now.sha256):
            return None
        try:
            bodies = before.body, now.body
        except UnreadableEntry:  # a damaged file of another process
            return None
        refused = [url for origin, url in self._refused if origin == state.origin]
        urls = list(dict.fromkeys([*refused[-_URLS:], *waiting(state.name)]))
        chain = self._agents.chain_of(flight.request)
        obey_global = self._context.settings.obey_global_group
        change = await run_in_thread(compare, *bodies, urls, chain, obey_global)
        self._context.stats.inc_value("rep/changed")
        message = (
            "robots.txt of %(origin)s has changed: lines added %(lines_added)d, removed "
            "%(lines_removed)d"
        )
        values = {"origin": state.origin, **change}
        if change["turned"]:
            message += ", verdicts that turn %(turned_count)d: %(url)s is now %(now)s"
            values |= change["turned"][0]
        self._log.log(message, values, self._context.spider)
        return {"old_sha256": before.sha256, **change}


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
