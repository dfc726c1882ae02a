"""Failing calls of a storage: logged once, and skipped for a while."""

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

# Kinds of calls. Each may fail alone: a full disk may have room for a lease.
LOAD, LEASE, RELEASE, SAVE, CLOSE = "load", "lease", "release", "save", "close"


class Outages:
    """Tracks which kinds of calls fail."""

    retry_seconds = 10.0
    """How long calls of a failed kind are skipped."""

    def __init__(self, crawler: Crawler, name: str) -> None:
        """:param name: of the storage, in the log"""
        self._crawler = crawler
        self._name = name
        self._again_at: dict[str, float] = {}
        """When to try a failed kind again."""

    @property
    def on(self) -> bool:
        """Whether any kind fails."""
        return bool(self._again_at)

    def over(self, kind: str) -> bool:
        """Whether calls of *kind* work, or are due to be tried again."""
        return self._again_at.get(kind, 0.0) <= time.monotonic()

    def end_pauses(self) -> None:
        """Let every kind be tried again now."""
        self._again_at = dict.fromkeys(self._again_at, 0.0)

    def attempt(self, kind: str, otherwise: T, method: Callable[..., T], *arguments: object) -> T:
        """Return what *method* returns; *otherwise* if it fails, or its *kind* failed recently."""
        return self.insist(kind, otherwise, method, *arguments) if self.over(kind) else otherwise

    def insist(self, kind: str, otherwise: T, method: Callable[..., T], *arguments: object) -> T:
        """Like :meth:`attempt`, even if *kind* failed recently."""
        try:
            result = method(*arguments)
        except Exception as error:  # noqa: BLE001
            # A storage may raise anything: the disk is full, the server gone, the user's class broken.
            if not self._again_at:
                self.log(
                    logging.WARNING,
                    f"The robots.txt cache ({self._name}) can't be "
                    f"{'read' if kind == LOAD else 'written'}: {text_of(error)}. The crawl goes on "
                    f"with what is in memory, and tries again every {self.retry_seconds:g} s.",
                )
            self._again_at[kind] = time.monotonic() + self.retry_seconds
            return otherwise
        if self._again_at.pop(kind, None) is not None and not self._again_at:
            self.log(logging.INFO, f"The robots.txt cache ({self._name}) works again.")
        return result

    def log(self, level: int, message: str) -> None:
        """Log *message*, which may contain text from outside."""
        extra = {"spider": self._crawler.spider}
        logger.log(level, "%(message)s", {"message": message}, extra=extra)
