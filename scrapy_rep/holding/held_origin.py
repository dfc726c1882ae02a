"""One origin's held requests: how many, why, and what the log says of them. The requests themselves
are in the hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.log import Sparse, get_logger
from scrapy_rep.engine.words import counted

if TYPE_CHECKING:
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)


class Log:
    """What the log says of all origins that requests are held of."""

    def __init__(self, context: CrawlContext) -> None:
        self.context = context
        self.slow = Sparse(logger, "origins whose first answer takes long")
        self.held = Sparse(logger, "origins with an unreachable robots.txt")
        self.given_up = Sparse(logger, "origins whose requests were given up")
        self.released = Sparse(logger, "origins whose requests were released")


class HeldOrigin:
    """An origin that requests are held of, from the first of them until none is left."""

    __slots__ = (
        "_began",
        "_log",
        "_told_slow",
        "count",
        "given_up",
        "origin",
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
        """How many are held."""
        self.unanswered = 0
        """How many of these wait for a first answer, and not because there is none."""
        self.released = 0
        self.given_up = 0
        self.why = ("", 0)
        """Why the last ones were given up, and how often robots.txt was asked for by then."""

    def tell_unreachable(self) -> None:
        """Log that requests are held because robots.txt is unreachable, once."""
        if not self.told_unreachable:
            self.told_unreachable = True
            message = "Requests of %(origin)s are held until its robots.txt can be had"
            self._tell(self._log.held, message)

    def tell_slow(self) -> None:
        """Log that requests wait for the first answer, once."""
        if not (self.told_unreachable or self._told_slow):
            self._told_slow = True
            message = "Requests of %(origin)s wait for the first answer of its robots.txt"
            self._tell(self._log.slow, message)

    def tell_end(self, kept: bool) -> None:
        """Log what became of the requests, now that none is held any more.

        :param kept: whether those given up are on disk for the next run
        """
        seconds = time.monotonic() - self._began
        if self.given_up:
            reason, attempts = self.why
            self._tell(
                self._log.given_up,
                "%(requests)s of %(origin)s given up after %(seconds).1f s: %(reason)s "
                "(robots.txt asked for %(times)s)%(kept)s",
                requests=counted(self.given_up, "request"),
                seconds=seconds,
                reason=reason,
                times=counted(attempts, "time"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if self.released and (self.told_unreachable or self._told_slow):
            self._tell(
                self._log.released,
                "%(requests)s of %(origin)s released after %(seconds).1f s",
                requests=counted(self.released, "request"),
                seconds=seconds,
            )

    def _tell(self, sparse: Sparse, message: str, **values: Any) -> None:
        sparse.log(message, {"origin": self.origin, **values}, self._log.context.spider)
