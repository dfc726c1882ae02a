"""The requests of one origin that stand in line, and what people are told of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.log import Sparse, get_logger
from scrapy_rep.engine.words import counted, duration

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)


class Log:
    """What the log has of the lines of one crawl."""

    def __init__(self, spider: Spider | None) -> None:
        self.spider = spider
        self.slow = Sparse(logger, "origins whose first answer takes long")
        self.held = Sparse(logger, "origins with an unreachable robots.txt")
        self.given_up = Sparse(logger, "origins whose requests were given up")
        self.released = Sparse(logger, "origins whose requests were released")


class Line:
    """The held requests of one origin. Times are in seconds on the clock of the running crawl."""

    __slots__ = (
        "_log",
        "announced",
        "attempt_at",
        "began",
        "count",
        "deadline",
        "given_up",
        "origin",
        "released",
        "retry_at",
        "slow_at",
        "told_slow",
        "unanswered",
        "why",
    )

    def __init__(self, origin: Origin, began: float, log: Log) -> None:
        self.origin = origin
        self._log = log
        self.began = began
        self.count = 0
        self.unanswered = 0
        """How many of these wait for a first answer, and not because there is none."""
        self.announced = False
        self.told_slow = False
        self.released = 0
        self.given_up = 0
        self.why = ("", 0)
        """Why the last ones were given up, and how often robots.txt was asked for by then."""
        self.deadline = math.inf
        """When the one that was held first is given up."""
        self.attempt_at = 0.0
        """The same as an entry has it, in seconds since the epoch."""
        self.retry_at = math.inf
        """When robots.txt is asked for again."""
        self.slow_at = math.inf
        """When an answer that has not come is worth a word in the log."""

    @property
    def due_at(self) -> float:
        """When something is to be done next."""
        return min(self.deadline, self.retry_at, self.slow_at)

    def later(self, seconds: float) -> None:
        """The clock was put forward."""
        self.began += seconds
        self.deadline += seconds
        self.retry_at += seconds
        self.slow_at += seconds

    def announce(self) -> None:
        """Log that requests are being held because robots.txt is unreachable, once."""
        if not self.announced:
            self.announced = True
            message = "Requests of %(origin)s are held until its robots.txt can be had"
            self._tell(self._log.held, message)

    def announce_slow(self) -> None:
        """Log that requests wait for the first answer, once."""
        if not (self.announced or self.told_slow):
            self.told_slow = True
            message = "Requests of %(origin)s wait for the first answer of its robots.txt"
            self._tell(self._log.slow, message)

    def log_end(self, now: float, kept: bool) -> None:
        """Log what became of all these requests, now that none is held any more.

        :param kept: whether those given up are on disk for the next run
        """
        seconds = now - self.began
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
        if self.released and (self.announced or self.told_slow):
            self._tell(
                self._log.released,
                "%(requests)s of %(origin)s released after %(seconds).1f s",
                requests=counted(self.released, "request"),
                seconds=seconds,
            )

    def _tell(self, sparse: Sparse, message: str, **values: Any) -> None:
        sparse.log(message, {"origin": self.origin, **values}, self._log.spider)


def log_recovered(requests: int, origins: int, spider: Spider | None) -> None:
    """Tell how many *requests* of how many *origins* an earlier run has left."""
    logger.info(
        "Still held from an earlier run: %(requests)s of %(origins)s",
        {"requests": counted(requests, "request"), "origins": counted(origins, "origin")},
        extra={"spider": spider},
    )


def log_full(requests: int, origin: Origin | str | None, spider: Spider | None) -> None:
    """Warn that no more may be held, of one *origin* or of any (None)."""
    if origin is None:
        message = "As many requests are held as REP_DEFER_MAX_REQUESTS allows (%(count)d): further"
        message += " ones for unreachable origins are dropped. Others are not reported."
    else:
        message = "%(origin)s has its share of REP_DEFER_MAX_REQUESTS (%(count)d requests are held"
        message += " in all): further requests of it are dropped. Other origins are not reported."
    logger.warning(message, {"origin": origin, "count": requests}, extra={"spider": spider})


def log_held(
    requests: int,
    origins: int,
    next_attempt: float,
    given_up: float,
    *,
    spider: Spider | None,
    nothing_else: bool = False,
) -> None:
    """Tell what is held.

    :param next_attempt: in how many seconds a robots.txt is asked for again
    :param given_up: in how many seconds the first requests are given up; infinity: they are on
        their way
    :param nothing_else: whether the crawl has nothing else to do
    """
    logger.info(
        "%(only)s%(requests)s to %(sites)s held; %(next)s, given up %(given_up)s "
        "(REP_DEFER_MAX_WAIT)",
        {
            "only": "Nothing is left to do but to wait: " if nothing_else else "",
            "requests": counted(requests, "request"),
            "sites": counted(origins, "site"),
            "next": "robots.txt is being asked for"
            if next_attempt == math.inf
            else f"next attempt in {duration(next_attempt)}",
            "given_up": "now" if given_up == math.inf else f"in {duration(given_up)}",
        },
        extra={"spider": spider},
    )
