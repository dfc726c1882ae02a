"""The lines of all origins that requests are held of, and how many these are in all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.holding.queue import Line, Log, log_full, log_held, log_recovered
from scrapy_rep.protocol import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_rep.holding.disk import DiskHold

# An origin may hold this many times the room that is left. One alone leaves an eleventh to others;
# however many there are, there is room for one more ("dynamic thresholds", as network switches
# share their buffers).
_SHARE = 10

# That nothing else is left to do is told again after so many seconds, if it has changed meanwhile.
_IDLE_SECONDS = 10.0


class LineTable:
    """Lines by origin. Held requests are counted here."""

    def __init__(
        self, crawler: Crawler, now: Callable[[], float], most: int, max_wait: float
    ) -> None:
        """:param now: the clock of the running crawl, in seconds
        :param most: how many requests may be held
        :param max_wait: for how many seconds they are
        """
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._now = now
        self._most = most
        self._max_wait = max_wait
        self._lines: dict[str, Line] = {}
        self._spiders_log: Log | None = None
        self._total = 0
        self._warned: set[bool] = set()
        self._told_idle = False
        self._told_idle_at = -math.inf

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def _log(self) -> Log:
        if self._spiders_log is None:
            self._spiders_log = Log(self._crawler.spider)
        return self._spiders_log

    def tell_idle(self) -> None:
        """Log that the crawl has nothing to do but to wait: once, until some are held no more."""
        if not self._told_idle and self._now() >= self._told_idle_at + _IDLE_SECONDS:
            self._told_idle, self._told_idle_at = True, self._now()
            self.tell(nothing_else=True)

    def tell(self, *, nothing_else: bool = False) -> None:
        """Log what is held.

        :param nothing_else: whether the crawl has nothing else to do
        """
        now, lines = self._now(), self._lines.values()
        log_held(
            self._total,
            len(self),
            min((line.retry_at for line in lines), default=now) - now,
            min((line.deadline for line in lines), default=now) - now,
            spider=self._crawler.spider,
            nothing_else=nothing_else,
        )

    @property
    def full(self) -> bool:
        """Whether no more may be held."""
        return self._total >= self._most

    def full_for(self, origin: Origin | str) -> bool:
        """Whether no more requests of *origin* may be held: some room is left to other origins."""
        room = self._most - self._total
        line = self.get(origin)
        return room <= 0 or (line is not None and line.count >= _SHARE * room)

    def is_greedy(self, origin: Origin) -> bool:
        """Whether *origin* holds more than a tenth of what may be held in all."""
        line = self.get(origin)
        return line is not None and line.count > self._most // _SHARE

    def warn_full(self, origin: Origin | str) -> None:
        """Tell the user that requests of *origin* are dropped because too many are held: once if
        too many are in all, once if too many of one origin are."""
        if self.full not in self._warned:
            self._warned.add(self.full)
            log_full(self._total, None if self.full else origin, self._crawler.spider)

    def all(self) -> list[Line]:
        """The lines of all origins."""
        return list(self._lines.values())

    def get(self, origin: Origin | str) -> Line | None:
        """Return the line of *origin*, if anybody stands in it."""
        return self._lines.get(str(origin))

    def of(self, origin: Origin) -> Line:
        """Return the line of *origin*, an empty one if there was none."""
        line = self.get(origin)
        if line is None:
            line = Line(origin, self._now(), self._log)
            self._lines[str(origin)] = line
        return line

    def join(self, line: Line, count: int, since: float) -> None:
        """So many more stand in *line*, the first of them since then."""
        line.count += count
        line.deadline = min(line.deadline, since + self._max_wait)
        self._gauge(count)

    def leave(self, line: Line, count: int) -> None:
        """So many no longer stand in *line*."""
        line.count -= count
        self._told_idle = False
        self._gauge(-count)

    def remove(self, line: Line) -> bool:
        """Nobody stands in *line* any more. Return False if that was known."""
        if self.get(line.origin) is not line:
            return False
        self.leave(line, line.count)  # what couldn't be read from disk
        del self._lines[str(line.origin)]
        return True

    def _gauge(self, change: int) -> None:
        self._total += change
        self._stats.set_value("rep/held", self._total)
        self._stats.max_value("rep/held/max", self._total)

    async def recover(self, hold: DiskHold, on_recovered: Callable[[Line], None]) -> None:
        """Go on with what an earlier run held.

        :param on_recovered: called with each line, whose robots.txt is to be asked for
        """
        slices = Slices()
        requests = 0
        for key, count, oldest in hold.recover():
            try:
                line = self.of(Origin.from_url(key))
            except ValueError as error:
                hold.leave(key, error)
                continue
            self.join(line, count, oldest)
            requests += count
            line.announced = True
            line.retry_at = self._now()
            on_recovered(line)
            if slices.over:
                await pause()
        hold.tell_unreadable()
        if requests:
            log_recovered(requests, len(self), self._crawler.spider)
