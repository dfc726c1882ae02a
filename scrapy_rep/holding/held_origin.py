"""One origin's requests at the gate: counts, reasons and log messages. The hold has the requests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.words import counted

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.holding.hold import Held
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)


class Log:
    """The log of all origins with held requests."""

    def __init__(self, context: CrawlContext) -> None:
        self.context = context
        self.slow = Limiter(logger, "origins that are slow to answer")
        self.held = Limiter(logger, "origins with an unreachable robots.txt")
        self.given_up = Limiter(logger, "origins whose requests were given up")
        self.released = Limiter(logger, "origins whose requests were released")


class Job(NamedTuple):
    """Requests of an origin that may leave the gate."""

    upto: int
    """The highest number to take: later requests wait for another answer."""
    before: float
    """The latest ``since`` to take."""
    given_up: tuple[str, int] | None
    """Why they are given up, and after how many attempts; None to release them."""
    good_until: float
    """Until when the answer that releases them counts, even if it may not be kept that long."""


class HeldOrigin:
    """An origin with requests at the gate, until none is left.

    Its requests *wait* for a first answer, in memory, until ``REP_DEFER_GRACE`` is over; then they are
    *held*: counted, announced, and on disk with a JOBDIR. Once there is an answer, or they are given
    up, they are *ready* to leave.
    """

    __slots__ = (
        "_log",
        "_told_slow",
        "answered",
        "count",
        "given_up",
        "head",
        "held_upto",
        "jobs",
        "late",
        "leaving",
        "longest",
        "origin",
        "released",
        "slow",
        "told_unreachable",
        "unanswered",
        "waiting",
        "weight",
        "why",
    )

    def __init__(self, origin: Origin, log: Log) -> None:
        self.origin = origin
        self._log = log
        self._told_slow = False
        self.told_unreachable = False
        """Whether the log says that its robots.txt is unreachable."""
        self.waiting = 0
        """How many wait for a first answer, not yet held."""
        self.count = 0
        """How many are held."""
        self.held_upto = 0
        """The highest number of those that are held. Higher ones wait."""
        self.unanswered = 0
        """How many of the held ones never had an answer."""
        self.answered = self.late = self.slow = False
        """Whether there was an answer, if only a failure; whether a first answer takes long, or very
        long."""
        self.weight = 0
        """Its part of the limit for first answers, see :class:`HeldOrigins`."""
        self.jobs: deque[Job] = deque()
        """What is ready, in order."""
        self.head: Held | None = None
        """Taken from the hold, and next to leave."""
        self.leaving: list[Request] = []
        """Those that left last, and may not have reached their download slot."""
        self.released = 0
        self.longest = 0.0
        """Seconds for which one that left was held, in earlier runs too."""
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
        if self.given_up:
            reason, attempts = self.why
            self._tell(
                self._log.given_up,
                "Gave up %(requests)s to %(origin)s after %(seconds).1f s: %(reason)s "
                "(%(times)s at robots.txt)%(kept)s",
                requests=counted(self.given_up, "request"),
                seconds=self.longest,
                reason=reason,
                times=counted(attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if self.released and (self.told_unreachable or self._told_slow):
            self._tell(
                self._log.released,
                "Released %(requests)s to %(origin)s after %(seconds).1f s",
                requests=counted(self.released, "request"),
                seconds=self.longest,
            )

    def _tell(self, limiter: Limiter, message: str, **values: Any) -> None:
        limiter.log(message, {"origin": self.origin, **values}, self._log.context.spider)
