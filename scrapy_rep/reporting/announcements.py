"""What became of a robots.txt: counted, logged, and announced by signals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest

from scrapy_rep import signals
from scrapy_rep.engine.isolation import Isolation
from scrapy_rep.engine.log import Sparse, get_logger
from scrapy_rep.origins.failures import CONFIGURATION_ERRORS
from scrapy_rep.origins.resolver import ResolutionListener
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.robotparser import RobotParser

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.answer import Answer
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin, RobotsTxt

logger = get_logger(__name__)

# Each configuration error is logged once, as many as this.
_MAX_LOGGED = 1000


class Announcer(ResolutionListener):
    """Tells the world about answers."""

    part = "announcement of robots.txt"

    def __init__(self, context: CrawlContext) -> None:
        self._crawler = crawler = context.crawler
        self._stats = context.stats
        self._clock = context.clock
        self._logged: set[str] = set()
        self._unreachable = Sparse(logger, "failures to fetch the robots.txt of an origin")
        self._isolated = Isolation(crawler)

    async def resolved(self, resolution: Resolution) -> None:
        """A robots.txt was asked for, or found in the storage."""
        state, answer = resolution.state, resolution.answer
        robots, request = resolution.robots, resolution.request
        if answer is None:  # nothing was asked for in this crawl
            self._stats.inc_value("rep/cache/recalled")
            await self._parsed(state.robots, request)
            return
        with self._isolated("count of answers"):
            self._count(answer)
        if answer.outcome is Outcome.UNREACHABLE:
            with self._isolated("log of failures"):
                self._log_failure(state, answer)
        await self._parsed(robots, request)
        send = self._crawler.signals.send_catch_log_async
        await send(
            signals.robots_resolved,
            origin=state.origin,
            outcome=answer.outcome,
            status=answer.status,
            url=answer.url,
            hops=answer.hops,
            robots=robots,
            error=str(answer.error) if answer.error else None,
            attempts=state.entry.attempts,
            spider=self._crawler.spider,
        )

    async def _parsed(self, robots: RobotsTxt | None, request: Request) -> None:
        # Scrapy has it since 2.18.
        robots_parsed = getattr(scrapy_signals, "robots_parsed", None)
        if robots is not None and robots_parsed is not None:
            await self._crawler.signals.send_catch_log_async(
                robots_parsed, robotparser=RobotParser(robots), request=request
            )

    def failed(self, origin: Origin, error: Exception) -> None:
        """Log a misconfiguration, once for each kind."""
        if not isinstance(error, CONFIGURATION_ERRORS):
            return  # a bug, which Flights logs
        self._stats.inc_value(f"robotstxt/exception_count/{type(error)}")
        key = f"{origin.scheme} {error}"
        if key not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(key)
            self._log(
                logging.ERROR,
                "robots.txt of %(origin)s can't be asked for, so its pages are not fetched: "
                "%(error)s",
                origin=origin,
                error=error,
                cause=error.__cause__,
            )

    def _count(self, answer: Answer) -> None:
        inc_value = self._stats.inc_value
        inc_value(f"rep/outcome/{answer.outcome.value}")
        # Scrapy's own names, for dashboards written for the built-in middleware.
        inc_value("robotstxt/request_count")
        if answer.status is not None:
            inc_value("robotstxt/response_count")
            inc_value(f"robotstxt/response_status_count/{answer.status}")
        elif answer.error is not None and not isinstance(answer.error, IgnoreRequest):
            inc_value(f"robotstxt/exception_count/{type(answer.error)}")

    def _log_failure(self, state: OriginState, answer: Answer) -> None:
        entry = state.entry
        message = (
            "robots.txt of %(origin)s is unreachable (%(reason)s)%(copy)s; not asked for again "
            "within %(delay).1f s"
        )
        values: dict[str, Any] = {
            "origin": state.origin,
            "reason": answer.reason,
            "copy": ", an older copy goes on being applied" if entry.has_copy else "",
            "delay": entry.next_attempt_at - self._clock(),
        }
        if entry.attempts == 1:  # the first failure of a row is news
            self._unreachable.log(message, values, self._crawler.spider)
        else:
            self._log(logging.DEBUG, message, **values)

    def _log(
        self, level: int, message: str, *, cause: BaseException | None = None, **values: Any
    ) -> None:
        extra = {"spider": self._crawler.spider}
        logger.log(level, message, values, extra=extra, exc_info=cause)
