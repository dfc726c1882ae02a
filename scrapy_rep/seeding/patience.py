"""Makes seeding wait, up to a limit, while the disk is full, locked or gone. All users of the spool
report to its :class:`Patience`."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import pause
from scrapy_rep.storages.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy import Spider

logger = get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# Until the next attempt.
RETRY_SECONDS = 1.0
# Since the last failure, until the log says that all works again: where a disk is full, what is deleted
# makes room for a moment, over and over.
_CALM_SECONDS = 10.0
# A disk is slow if this many writes in a row each take longer than these seconds.
_SLOW_TIMES, _SLOW_SECONDS = 3, 0.05


class Patience:
    """Tracks which users fail, and since when. Logs the first failure, the end of the last one, and
    the end of patience."""

    def __init__(self, path: Path | None, seconds: float, spider: Spider | None) -> None:
        """:param seconds: how long to retry"""
        self._durable = path is not None
        self._path = path or "the temporary file of sitemaps"
        self._seconds = seconds
        self._spider = spider
        self.trouble = Trouble(
            self._path, f"seeding waits up to {seconds:g} seconds for it", spider
        )
        self._since: dict[str, float] = {}
        self._failed_at = 0.0  # the last time
        self._slow = 0
        self._told_slow = False
        self.over = False  # whether seeding has ended for this run
        self.ending = False  # whether the crawl is closing: no retries

    def attempt(self, user: str, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do *step*, and note whether it raises ``sqlite3.Error``."""
        try:
            result = step(*args, **kwargs)
        except sqlite3.Error as error:
            self.failed(user, error)
            raise
        self.worked(user)
        return result

    async def retry(self, user: str, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do *step*. Retry on ``sqlite3.Error`` until patience is over or the crawl is closing."""
        while True:
            try:
                return self.attempt(user, step, *args, **kwargs)
            except sqlite3.Error:
                if self.over or self.ending:
                    raise
            await pause(RETRY_SECONDS)

    def failed(self, user: str, error: Exception) -> float | None:
        """Return the seconds until *user*'s next attempt; None: give up."""
        if self.over:
            return None
        if type(error) is sqlite3.DatabaseError:
            self._end(error, "is damaged", "sets it aside and reads the sitemaps again")
            return None
        self.trouble.begins(error)
        now = self._failed_at = time.monotonic()
        if now - self._since.setdefault(user, now) >= self._seconds:
            self._end(error, f"has failed for {self._seconds:g} seconds", "goes on with it")
            return None
        return RETRY_SECONDS

    def worked(self, user: str) -> None:
        """*user* has succeeded."""
        self._since.pop(user, None)

    def look(self, *, last: bool = False) -> None:
        """Log that all works again, if it has for a while; *last*: or if it does now."""
        calm = last or time.monotonic() - self._failed_at >= _CALM_SECONDS
        if calm and not self._since and not self.over:
            self.trouble.ends()

    def took(self, seconds: float) -> None:
        """A write has blocked the event loop for *seconds*."""
        self._slow = self._slow + 1 if seconds > _SLOW_SECONDS else 0
        if self._slow >= _SLOW_TIMES and not self._told_slow:
            self._told_slow = True
            logger.warning(
                "Writing to %(path)s takes long (%(seconds).2f s) and blocks the crawl: use a faster "
                "disk",
                {"path": self._path, "seconds": seconds},
                extra={"spider": self._spider},
            )

    def _end(self, error: Exception, why: str, then: str) -> None:
        self.over = True
        then = f"The next run with this JOBDIR {then}" if self._durable else "Its contents are lost"
        logger.error(
            "Seeding from sitemaps stops for this run: %(path)s %(why)s (%(error)s). %(then)s",
            {"path": self._path, "why": why, "error": error, "then": then},
            extra={"spider": self._spider},
        )
