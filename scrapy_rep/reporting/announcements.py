"""What became of a robots.txt: counted, logged, and announced by signals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest

from scrapy_rep import signals
from scrapy_rep.engine.isolation import Isolation
from scrapy_rep.engine.log import Sparse, get_logger
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.robotparser import RobotParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.origins.fetcher import Answer
    from scrapy_rep.origins.table import Known
    from scrapy_rep.protocol import Origin, RobotsTxt

logger = get_logger(__name__)

# Each configuration error is logged once, as many as this.
_MAX_LOGGED = 1000


class Announcer:
    """Tells the world about answers."""

    def __init__(self, crawler: Crawler, clock: Callable[[], float]) -> None:
        """:param clock: seconds since the epoch"""
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._clock = clock
        self._logged: set[str] = set()
        self._unreachable = Sparse(logger, "failures to fetch the robots.txt of an origin")
        self._isolated = Isolation(crawler)

    async def resolved(self, known: Known, answer: Answer, request: Request) -> None:
        """A robots.txt was asked for.

        :param request: the request that was the first to want to know
        """
        with self._isolated("count of answers"):
            self._count(answer)
        if answer.outcome is Outcome.UNREACHABLE:
            with self._isolated("log of failures"):
                self._log_failure(known, answer)
        robots = known.robots if answer.outcome is Outcome.RULES else None
        await self._parsed(robots, request)
        send = self._crawler.signals.send_catch_log_async
        await send(
            signals.robots_resolved,
            origin=known.origin,
            outcome=answer.outcome,
            status=answer.status,
            url=answer.url,
            hops=answer.hops,
            robots=robots,
            error=str(answer.error) if answer.error else None,
            attempts=known.entry.attempts,
            spider=self._crawler.spider,
        )

    async def recalled(self, known: Known, request: Request) -> None:
        """An answer came from the storage: nothing was asked for in this crawl.

        :param request: the request that was the first to want to know
        """
        self._stats.inc_value("rep/cache/recalled")
        await self._parsed(known.robots, request)

    async def _parsed(self, robots: RobotsTxt | None, request: Request) -> None:
        # Scrapy has it since 2.18.
        robots_parsed = getattr(scrapy_signals, "robots_parsed", None)
        if robots is not None and robots_parsed is not None:
            await self._crawler.signals.send_catch_log_async(
                robots_parsed, robotparser=RobotParser(robots), request=request
            )

    def cannot_ask(self, origin: Origin, error: Exception) -> None:
        """A robots.txt can't be asked for, for a reason that is the user's to mend."""
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

    def _log_failure(self, known: Known, answer: Answer) -> None:
        entry = known.entry
        message = (
            "robots.txt of %(origin)s is unreachable (%(reason)s)%(copy)s; not asked for again "
            "within %(delay).1f s"
        )
        values: dict[str, Any] = {
            "origin": known.origin,
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
