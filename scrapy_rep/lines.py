"""The requests of one origin that stand in line, and what people are told of them."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_rep.protocol import Origin

logger = logging.getLogger(__name__)


class Line:
    """The held requests of one origin. Times are in seconds on the clock of the running crawl."""

    __slots__ = ("_spider", "announced", "began", "count", "deadline", "origin", "retry_at")

    def __init__(self, origin: Origin, began: float, spider: Spider | None) -> None:
        self.origin = origin
        self._spider = spider
        self.began = began
        self.count = 0
        self.announced = False
        self.deadline = math.inf
        """When the one that was held first is given up."""
        self.retry_at = math.inf
        """When robots.txt is asked for again."""

    def announce(self) -> None:
        """Log that requests are being held, once."""
        if not self.announced:
            self.announced = True
            self._log("Requests of %(origin)s are held until its robots.txt can be had")

    def log_released(self, count: int, now: float) -> None:
        """Log that *count* requests were released."""
        self._log(
            "%(count)d requests of %(origin)s released, held for up to %(seconds).1f s",
            count=count,
            seconds=now - self.began,
        )

    def log_given_up(self, count: int, now: float, why: tuple[str, int], kept: bool) -> None:
        """Log that *count* requests were given up.

        :param why: the reason, and how often robots.txt was asked for
        :param kept: whether they are on disk for the next run
        """
        self._log(
            "%(count)d requests of %(origin)s given up after %(seconds).1f s: %(reason)s "
            "(robots.txt asked for %(attempts)d times)%(kept)s",
            count=count,
            seconds=now - self.began,
            reason=why[0],
            attempts=why[1],
            kept="; they are kept for the next run with this JOBDIR" if kept else "",
        )

    def _log(self, message: str, **values: Any) -> None:
        logger.info(message, {"origin": self.origin, **values}, extra={"spider": self._spider})
