"""Tells when a robots.txt is another than the copy known before."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.words import counted
from scrapy_rep.origins.cache import LARGE
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.storages.entry import UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.protocol import Origin
    from scrapy_rep.storages.base import Entry

logger = get_logger(__name__)

# Origins whose refused URLs are remembered, and how many of each.
_ORIGINS, _URLS = 1000, 20
# Of a change: lines kept, and characters of each.
MAX_LINES, _LENGTH = 50, 300


class ChangeWatch:
    """Compares each new robots.txt with the one before."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._obey_global = context.settings.obey_global_group
        self._table = origins.table
        self._refused: OrderedDict[Origin, deque[str]] = OrderedDict()
        self._log = Limiter(logger, "robots.txt files that have changed")

    def forbidden(self, origin: Origin, url: str) -> None:
        """Remember a URL that is refused: a change may allow it."""
        urls = self._refused.get(origin)
        if urls is None:
            urls = self._refused[origin] = deque(maxlen=_URLS)
            if len(self._refused) > _ORIGINS:
                self._refused.popitem(last=False)
        urls.append(url)

    async def look(
        self,
        resolution: Resolution,
        chain: tuple[str, ...],
        waiting: Callable[[str], Iterable[str]],
    ) -> dict[str, Any] | None:
        """Return what has changed, None if nothing has. Log and count it.

        :param waiting: returns URLs that wait for an origin's answer; it may read them from disk
        """
        flight, state = resolution.flight, resolution.state
        before = flight.before if flight is not None and resolution.answer is not None else None
        if before is None or not _differ(before, state.entry):
            return None
        try:
            old, new = before.body, state.entry.body
        except UnreadableEntry:  # a damaged file of another process
            return None
        urls = dict.fromkeys([*self._refused.get(state.origin, ()), *waiting(state.name)])
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
                f"; the verdict on {count} of {counted(looked_at, 'waiting or recent URL')} changes: "
                f"{first['url']}, say, is {first['now']} now"
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
    files = RobotsTxt.parse(old), RobotsTxt.parse(new)

    def verdicts(url: str) -> list[str]:
        decisions = [one.decide(comparable(url), chain, obey_global=obey_global) for one in files]
        return ["allowed" if one.allowed else "disallowed" for one in decisions]

    found = [{"url": url, **dict(zip(("was", "now"), verdicts(url), strict=True))} for url in urls]
    turned = [one for one in found if one["was"] != one["now"]]
    return {
        **changed_lines(old, new),
        "turned": turned[:_URLS],
        "turned_count": len(turned),
    }


def changed_lines(old: bytes, new: bytes) -> dict[str, Any]:
    """Return the lines that only one of two files has, in its order."""
    before, after = _lines(old), _lines(new)
    added, removed = _surplus(after, before), _surplus(before, after)
    return {
        "added": [one[:_LENGTH] for one in added[:MAX_LINES]],
        "removed": [one[:_LENGTH] for one in removed[:MAX_LINES]],
        "lines_added": len(added),
        "lines_removed": len(removed),
    }


def _lines(body: bytes) -> list[str]:
    text = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode(errors="replace")
    return [line for line in map(str.strip, text.split("\n")) if line]


def _surplus(lines: list[str], others: list[str]) -> list[str]:
    left = Counter(others)
    found = []
    for line in lines:
        if left[line] > 0:
            left[line] -= 1
        else:
            found.append(line)
    return found
