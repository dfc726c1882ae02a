"""One origin's held requests: counts, reasons and log messages. The hold has the requests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.log import Sparse, get_logger
from scrapy_rep.engine.words import counted

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.waiting_room import Place
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)


class Log:
    """The log of all origins with held requests."""

    def __init__(self, context: CrawlContext) -> None:
        self.context = context
        self.slow = Sparse(logger, "origins that are slow to answer")
        self.held = Sparse(logger, "origins with an unreachable robots.txt")
        self.given_up = Sparse(logger, "origins whose requests were given up")
        self.released = Sparse(logger, "origins whose requests were released")


class HeldOrigin:
    """An origin with held requests, until none is left."""

    __slots__ = (
        "_began",
        "_log",
        "_told_slow",
        "count",
        "given_up",
        "origin",
        "places",
        "released",
        "told_unreachable",
        "unanswered",
        "why",
    )

    def __init__(self, origin: Origin, log: Log) -> None:
        self.origin = origin
        self._log = log
        self._began = time.monotonic()
        self._told_slow = False
        self.told_unreachable = False
        """Whether the log says that its robots.txt is unreachable."""
        self.count = 0
        self.unanswered = 0
        """How many of these wait for a first answer."""
        self.places: list[Place] = []
        """Of those in the waiting room."""
        self.released = 0
        self.given_up = 0
        self.why = ("", 0)
        """Why the last ones were given up, and after how many robots.txt attempts."""

    def tell_unreachable(self) -> None:
        """Log that requests are held because robots.txt is unreachable, once."""
        if not self.told_unreachable:
            self.told_unreachable = True
            message = "Holding requests to %(origin)s until its robots.txt can be fetched"
            self._tell(self._log.held, message)

    def tell_slow(self) -> None:
        """Log that the first answer is slow, once."""
        if not (self.told_unreachable or self._told_slow):
            self._told_slow = True
            message = "Holding requests to %(origin)s: its robots.txt has not answered yet"
            self._tell(self._log.slow, message)

    def tell_end(self, kept: bool) -> None:
        """Log what became of the requests.

        :param kept: whether those given up are on disk for the next run
        """
        seconds = time.monotonic() - self._began
        if self.given_up:
            reason, attempts = self.why
            self._tell(
                self._log.given_up,
                "Gave up %(requests)s to %(origin)s after %(seconds).1f s: %(reason)s "
                "(%(times)s at robots.txt)%(kept)s",
                requests=counted(self.given_up, "request"),
                seconds=seconds,
                reason=reason,
                times=counted(attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if self.released and (self.told_unreachable or self._told_slow):
            self._tell(
                self._log.released,
                "Released %(requests)s to %(origin)s after %(seconds).1f s",
                requests=counted(self.released, "request"),
                seconds=seconds,
            )

    def _tell(self, sparse: Sparse, message: str, **values: Any) -> None:
        sparse.log(message, {"origin": self.origin, **values}, self._log.context.spider)
