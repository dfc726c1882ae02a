"""News of robots.txt: counted, logged, and announced by signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest

from scrapy_rep import signals
from scrapy_rep.engine.log import Isolation, Limiter, get_logger
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS
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

# Configuration errors that are logged, once each.
_MAX_LOGGED = 1000


class Announcer(ResolutionListener):
    """Announces the answers to requests for robots.txt."""

    part = "announcement of robots.txt"

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._send = context.crawler.signals.send_catch_log_async
        self._logged: set[str] = set()
        self._unreachable = Limiter(logger, "failures to fetch the robots.txt of an origin")
        self._isolated = Isolation(context.crawler)

    async def resolved(self, resolution: Resolution) -> None:
        """A robots.txt was fetched, or found in the storage."""
        state, answer = resolution.state, resolution.answer
        robots, request = resolution.robots, resolution.request
        if answer is None:  # found in the storage
            self._context.stats.inc_value("rep/cache/recalled")
            await self._parsed(state.robots, request)
            return
        with self._isolated("count of answers"):
            self._count(answer)
        if answer.outcome is Outcome.UNREACHABLE:
            with self._isolated("log of failures"):
                self._log_failure(state, answer)
        await self._parsed(robots, request)
        await self._send(
            signals.robots_resolved,
            origin=state.origin,
            outcome=answer.outcome,
            status=answer.status,
            url=answer.url,
            hops=answer.hops,
            robots=robots,
            error=str(answer.error) if answer.error else None,
            attempts=state.entry.attempts,
            spider=self._context.spider,
        )

    async def _parsed(self, robots: RobotsTxt | None, request: Request) -> None:
        # Scrapy has it since 2.18.
        robots_parsed = getattr(scrapy_signals, "robots_parsed", None)
        if robots is not None and robots_parsed is not None:
            await self._send(robots_parsed, robotparser=RobotParser(robots), request=request)

    def failed(self, origin: Origin, error: Exception) -> None:
        """Log a misconfiguration, once for each kind."""
        if not isinstance(error, CONFIGURATION_ERRORS):
            return  # a bug, which Flights logs
        self._context.stats.inc_value(f"robotstxt/exception_count/{type(error)}")
        key = f"{origin.scheme} {error}"
        if key not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(key)
            logger.error(
                "Can't request the robots.txt of %(origin)s, so its pages are not fetched: "
                "%(error)s",
                {"origin": origin, "error": error},
                extra=self._context.extra,
                exc_info=error.__cause__,
            )

    def _count(self, answer: Answer) -> None:
        inc_value = self._context.stats.inc_value
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
        copy = ", so an older copy applies" if entry.has_copy else ""
        message = (
            f"robots.txt of %(origin)s is unreachable (%(reason)s){copy}; next attempt in "
            "%(delay).1f s"
        )
        delay = entry.next_attempt_at - self._context.clock()
        values = {"origin": state.origin, "reason": answer.reason, "delay": delay}
        if entry.attempts == 1:  # the first of a series is news
            self._unreachable.log(message, values, self._context.spider)
        else:
            logger.debug(message, values, extra=self._context.extra)
