"""What a disk that is full, locked or gone does to seeding: it waits, up to a limit. Everything that
uses the spool reports to its :class:`Patience`."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, TypeVar

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import pause
from scrapy_rep.storages.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy import Spider

logger = get_logger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 1.0
"""Seconds until what failed is tried again."""

# A disk is slow if this many writes in a row take longer than this, in seconds.
_SLOW_TIMES, _SLOW_SECONDS = 3, 0.05


class Patience:
    """Keeps track of what fails, and since when. The log has a line when something begins to fail, one
    when everything works again, and one when it has taken too long."""

    def __init__(self, path: Path | None, seconds: float, spider: Spider | None) -> None:
        """:param seconds: for how long what fails is tried again"""
        self._durable = path is not None
        self._path = path or "The temporary file of what sitemaps list"
        self._seconds = seconds
        self._spider = spider
        self.trouble = Trouble(
            self._path, f"seeding waits until it works, for {seconds:g} seconds at most", spider
        )
        self._since: dict[str, float] = {}
        self._slow = 0
        self._told_slow = False
        self.over = False
        """Whether nothing more is tried in this run."""
        self.ending = False
        """Whether the crawl ends: what fails is not tried again."""

    def attempt(self, user: str, step: Callable[[], T]) -> T:
        """Do *step*, and take note whether it fails.

        :raises sqlite3.Error: if it does
        """
        try:
            result = step()
        except sqlite3.Error as error:
            self.failed(user, error)
            raise
        self.worked(user)
        return result

    async def retry(self, user: str, step: Callable[[], T]) -> T:
        """Do *step*, again and again while the disk fails and patience lasts.

        :raises sqlite3.Error: if that is over, or the crawl ends
        """
        while True:
            try:
                return self.attempt(user, step)
            except sqlite3.Error:
                if self.over or self.ending:
                    raise
            await pause(RETRY_SECONDS)

    def failed(self, user: str, error: Exception) -> float | None:
        """Return after how many seconds *user* is to try again; None: not at all."""
        if self.over:
            return None
        if type(error) is sqlite3.DatabaseError:
            self._end(error, "it is damaged", "sets it aside and reads the sitemaps again")
            return None
        self.trouble.begins(error)
        now = time.monotonic()
        if now - self._since.setdefault(user, now) >= self._seconds:
            self._end(error, f"it can't be used for {self._seconds:g} seconds", "goes on with it")
            return None
        return RETRY_SECONDS

    def worked(self, user: str) -> None:
        """*user* has not failed."""
        if self._since.pop(user, None) is not None and not self._since and not self.over:
            self.trouble.ends()

    def took(self, seconds: float) -> None:
        """A write took *seconds*, in which the event loop was blocked."""
        self._slow = self._slow + 1 if seconds > _SLOW_SECONDS else 0
        if self._slow >= _SLOW_TIMES and not self._told_slow:
            self._told_slow = True
            logger.warning(
                "Writing to %(path)s takes long (%(seconds).2f s): all of the crawl waits meanwhile. "
                "It belongs on a faster disk",
                {"path": self._path, "seconds": seconds},
                extra={"spider": self._spider},
            )

    def _end(self, error: Exception, why: str, then: str) -> None:
        self.over = True
        logger.error(
            "Seeding from sitemaps ends for this run. %(path)s: %(why)s (%(error)s). %(then)s",
            {
                "path": self._path,
                "why": why,
                "error": error,
                "then": f"The next run with this JOBDIR {then}"
                if self._durable
                else "What is in it is lost",
            },
            extra={"spider": self._spider},
        )
