"""What the log says of held requests."""

from __future__ import annotations

from collections.abc import Collection
from heapq import nlargest
from operator import attrgetter

from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.holding.hold import HeldOrigin
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import Origin
from scrapy_rep.reporting.record import kind_of
from scrapy_rep.text import counted, duration

logger = get_logger(__name__)

# Kinds of lines about an origin, see Limiter.
_KINDS = {
    "slow": "origins that are slow to answer",
    "unreachable": "origins with an unreachable robots.txt",
    "given up": "origins whose requests were given up",
    "released": "origins whose requests were released",
}
# Origins that are named.
_NAMED = 3


class HoldLog:
    def __init__(self, context: CrawlContext, table: OriginTable) -> None:
        self._context = context
        self._table = table
        self._limiters = {kind: Limiter(logger, what) for kind, what in _KINDS.items()}
        self._told_full = False

    def held(self, one: HeldOrigin, why: str) -> None:
        """Log once that robots.txt is "slow" and requests held, once that it is "unreachable"."""
        if one.told not in (why, "unreachable"):
            one.told = why
            what = ": its robots.txt has not answered yet"
            if why == "unreachable":
                what = " until its robots.txt can be fetched"
            self._tell(why, one, f"Holding requests to %(origin)s{what}")

    def end(self, one: HeldOrigin, *, kept: bool) -> None:
        """Log what became of the requests. *kept*: those given up are on disk for the next run."""
        if one.given_up:
            reason, attempts = one.why
            self._tell(
                "given up",
                one,
                "Gave up %(requests)s to %(origin)s after %(seconds).1f s: %(reason)s "
                "(%(times)s at robots.txt)%(kept)s",
                requests=counted(one.given_up, "request"),
                reason=reason,
                times=counted(attempts, "attempt"),
                kept="; kept for the next run with this JOBDIR" if kept else "",
            )
        if one.released and one.told:
            message = "Released %(requests)s to %(origin)s after %(seconds).1f s"
            self._tell("released", one, message, requests=counted(one.released, "request"))

    def _tell(self, kind: str, one: HeldOrigin, message: str, **values: object) -> None:
        values |= {"origin": one.origin, "seconds": one.longest}
        self._limiters[kind].log(message, values, self._context.spider)

    def full(self, origin: Origin) -> None:
        """Warn once that requests are dropped because too many are held."""
        if not self._told_full:
            self._told_full = True
            message = (
                "Too many requests are held (REP_DEFER_MAX_REQUESTS; one origin may have about 91 %% of "
                "them): dropping further ones, such as to %(origin)s. This is reported once."
            )
            logger.warning(message, {"origin": origin}, extra=self._context.extra)

    def state(
        self, origins: Collection[HeldOrigin], attempt: float, given_up: float, *, idle: bool
    ) -> None:
        """Log what is held of which *origins*, and why. *attempt*, *given_up*: seconds until a
        robots.txt is fetched again, and until the first requests are given up. *idle*: the crawl can
        only wait."""
        total = sum(one.count for one in origins)
        most = nlargest(_NAMED, origins, key=attrgetter("count"))
        parts = [f"{one.count:,} to {one.origin}: {self._why(one.origin)}" for one in most]
        if others := len(origins) - len(most):
            rest = total - sum(one.count for one in most)
            parts.append(f"{rest:,} to {counted(others, 'other origin')}")
        values = {
            "begin": "Nothing left to do but wait: " if idle else "",
            "requests": counted(total, "request"),
            "which": "; ".join(parts),
            "next": duration(attempt),
            "given_up": duration(given_up),
        }
        logger.info(
            "%(begin)s%(requests)s held (%(which)s); next robots.txt attempt in %(next)s, giving "
            "up in %(given_up)s (REP_DEFER_MAX_WAIT)",
            values,
            extra=self._context.extra,
        )

    def _why(self, origin: Origin) -> str:
        known = self._table.get(origin)
        if known is None:
            return "no answer yet"
        error = known.entry.error
        return kind_of(error, short=True) if error else "answered, about to leave"
