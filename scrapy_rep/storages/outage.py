"""Calls of a storage that may fail: logged once, and not tried again for a while."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

logger = get_logger(__name__)

T = TypeVar("T")

# Kinds of calls. Each may fail by itself: on a full disk there may be room for a lease.
LOAD, LEASE, RELEASE, SAVE, CLOSE = "load", "lease", "release", "save", "close"


class Outages:
    """Which kinds of calls fail now."""

    retry_seconds = 10.0
    """Until a kind of call that failed is tried again, by one call."""

    def __init__(self, crawler: Crawler, name: str) -> None:
        """:param name: of the storage, in the log"""
        self._crawler = crawler
        self._name = name
        self._again_at: dict[str, float] = {}
        """When kinds of calls that fail are tried again."""

    def over(self, kind: str) -> bool:
        """Whether calls of *kind* work, or are to be tried again."""
        return self._again_at.get(kind, 0.0) <= time.monotonic()

    def attempt(self, kind: str, otherwise: T, method: Callable[..., T], *arguments: object) -> T:
        """Return what *method* does; *otherwise* if that fails, or its kind has failed not long
        ago."""
        return self.insist(kind, otherwise, method, *arguments) if self.over(kind) else otherwise

    def insist(self, kind: str, otherwise: T, method: Callable[..., T], *arguments: object) -> T:
        """As :meth:`attempt`, whatever has failed."""
        try:
            result = method(*arguments)
        except Exception as error:  # noqa: BLE001
            # Whatever a storage raises: a full disk, a server that is gone, a bug of the user's.
            if not self._again_at:
                self.log(
                    logging.WARNING,
                    f"The robots.txt cache ({self._name}) can't be "
                    f"{'read' if kind == LOAD else 'written'}: {text_of(error)}. The crawl goes on "
                    "with what is in memory, and tries again now and then.",
                )
            self._again_at[kind] = time.monotonic() + self.retry_seconds
            return otherwise
        if self._again_at.pop(kind, None) is not None and not self._again_at:
            self.log(logging.INFO, f"The robots.txt cache ({self._name}) works again.")
        return result

    def log(self, level: int, message: str) -> None:
        """Log *message*, which may hold what others wrote."""
        extra = {"spider": self._crawler.spider}
        logger.log(level, "%(message)s", {"message": message}, extra=extra)
