"""What a disk that is full, locked or gone does to seeding: it waits, up to a limit."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_rep.log import get_logger

if TYPE_CHECKING:
    import sqlite3

    from scrapy import Spider

logger = get_logger(__name__)

RETRY_SECONDS = 1.0
"""What failed is tried again after so many seconds."""


class Patience:
    """Knows who fails, and since when. The log has a line when the first one begins to, and one
    when nobody does any more."""

    def __init__(self, spider: Spider | None, seconds: float) -> None:
        """:param seconds: for how long anybody is to try"""
        self._spider = spider
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def failed(self, who: str, error: sqlite3.Error) -> bool:
        """Somebody has failed. Return whether to try again."""
        now = time.monotonic()
        if not self._since:
            logger.warning(
                "What sitemaps list can't be written to disk, or read from it (%(error)s): seeding "
                "waits until it can",
                {"error": error},
                extra={"spider": self._spider},
            )
        return now - self._since.setdefault(who, now) < self._seconds

    def worked(self, who: str) -> None:
        """Somebody has not failed."""
        if self._since.pop(who, None) is not None and not self._since:
            logger.info(
                "What sitemaps list can be written and read again", extra={"spider": self._spider}
            )
