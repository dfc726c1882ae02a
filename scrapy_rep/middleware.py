"""What happens to a request: ask, decide, act, count.

``process_request`` is a plain function: where the origin is known and fresh it decides on the
spot, else it returns a coroutine that waits for the origin's robots.txt and decides then.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest, NotConfigured

from scrapy_rep import signals
from scrapy_rep.agents import Agents
from scrapy_rep.cache import Known, RobotsCache
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable, SettingsError
from scrapy_rep.fetcher import CONFIGURATION_ERRORS, Answer, Fetcher
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import allows, comparable, path_of
from scrapy_rep.protocol.origin import DEFAULT_PORTS
from scrapy_rep.robotparser import RobotParser
from scrapy_rep.seeding import SitemapSeeding
from scrapy_rep.settings import RepSettings
from scrapy_rep.startup import StopAtStart

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

# Scheme, host and port, and path with query, of the URLs that nearly all requests have. The
# others (user info, no path, ...) take the way of Origin.from_url.
_USUAL_URL = re.compile(r"((?:https?|ftp)://[^/?#;\\@]+)(/[^#]*)")

# RFC 9309, 2.2.2: the file itself is implicitly allowed.
_ROBOTS_PATH = "/robots.txt"

# How many spellings of origins the hot path remembers, for each origin that the cache may hold.
_SPELLINGS = 2


class RepMiddleware:
    """Drops what robots.txt forbids (REP.md). Replaces Scrapy's RobotsTxtMiddleware."""

    clock = staticmethod(time.time)
    """Seconds since the epoch. A test may set another."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._policy = settings.unreachable
        self._obey_global = settings.obey_global_group
        self._agents = Agents(crawler, settings)
        self._seeding = SitemapSeeding(crawler, settings)
        fetcher = Fetcher(crawler, settings)
        self._cache = RobotsCache(crawler, settings, fetcher, self.clock, self._resolved)
        self._spellings: dict[str, Known] = {}
        self._max_spellings = _SPELLINGS * settings.cache_max_origins
        self._logged: set[str] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RepMiddleware | StopAtStart:
        """:raises NotConfigured: if ``ROBOTSTXT_OBEY`` is off"""
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        try:
            middleware = cls(crawler, RepSettings.from_settings(crawler.settings))
            middleware._agents.check_spider()
        except SettingsError as error:
            return StopAtStart(crawler, str(error))
        return middleware

    def process_request(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Return None to let *request* pass, or a coroutine that does.

        Either raises ``RobotsDisallowed`` if the robots.txt of the URL's origin forbids it, and
        ``RobotsUnreachable`` if that can't be had.
        """
        if request.meta.get("dont_obey_robotstxt"):
            return None
        usual = _USUAL_URL.match(request.url)
        spelling = usual[1] if usual else None
        known = self._spellings.get(spelling) if spelling else None
        if usual and known is not None and self.clock() < known.usable_until:
            self._cache.touch(known)
            if usual[2] != _ROBOTS_PATH:
                self._decide(request, known, usual[2])
            return None

        scheme = request.url.partition(":")[0].lower()
        if scheme not in DEFAULT_PORTS:
            return None  # data:, file:, s3: and the like are not covered by the protocol
        origin = self._origin_of(request)
        path = usual[2] if usual else path_of(request.url)
        if path == _ROBOTS_PATH:
            return None
        known = self._cache.get(origin)
        if known is None:
            return self._wait(request, origin, path)
        if spelling:
            if len(self._spellings) >= self._max_spellings:
                self._spellings.clear()
            self._spellings[spelling] = known
        self._decide(request, known, path)
        return None

    def _origin_of(self, request: Request) -> Origin:
        try:
            return Origin.from_url(request.url)
        except ValueError as error:
            # Nothing can be fetched from there, and nothing says that it may.
            self._stats.inc_value("rep/invalid_url")
            raise RobotsUnreachable(None, f"the URL has no origin: {error}") from None

    async def _wait(self, request: Request, origin: Origin, path: str) -> None:
        """Have the robots.txt of *origin* fetched, and decide then."""
        stale = self._cache.holds(origin)
        self._stats.inc_value("rep/cache/refresh" if stale else "rep/cache/miss")
        try:
            known = await self._cache.resolve(origin, request)
        except CONFIGURATION_ERRORS as error:
            self._log_once(
                f"{origin.scheme} {error}",
                logging.ERROR,
                "robots.txt of %(origin)s can't be asked for, so its pages are not fetched: "
                "%(error)s",
                {"origin": origin, "error": error},
            )
            raise RobotsUnreachable(origin, f"{type(error).__name__}: {error}") from error
        self._judge(request, known, path)

    def _decide(self, request: Request, known: Known, path: str) -> None:
        """Decide by what is at hand."""
        stale = known.standing is Standing.STALE
        self._stats.inc_value("rep/cache/stale" if stale else "rep/cache/hit")
        self._judge(request, known, path)

    def _judge(self, request: Request, known: Known, path: str) -> None:
        if known.unreachable:
            self._unreachable(request, known)
            return
        robots = known.robots
        if robots is None:
            return
        token, rules = robots.rules(self._agents.chain_of(request), self._obey_global)
        found = rules.find(comparable(path))
        if allows(found):
            return
        error = RobotsDisallowed(known.origin, robots.decision(token, found))
        self._stats.inc_value("robotstxt/forbidden")
        logger.debug(
            "%(error)s: %(request)s",
            {"error": error, "request": request},
            extra={"spider": self._crawler.spider},
        )
        raise error

    def _unreachable(self, request: Request, known: Known) -> None:
        if self._policy == "allow":
            self._stats.inc_value("rep/unreachable/allowed")
            return
        entry = known.entry
        error = RobotsUnreachable(known.origin, entry.error or "unreachable", entry.attempts)
        self._stats.inc_value("rep/unreachable/dropped")
        logger.debug(
            "Dropped, since %(error)s: %(request)s",
            {"error": error, "request": request},
            extra={"spider": self._crawler.spider},
        )
        raise error

    async def _resolved(self, known: Known, answer: Answer, request: Request) -> None:
        """Count, log and announce what a fetch brought."""
        inc_value = self._stats.inc_value
        # Scrapy's own names, for dashboards written for the built-in middleware.
        inc_value("robotstxt/request_count")
        if answer.status is not None:
            inc_value("robotstxt/response_count")
            inc_value(f"robotstxt/response_status_count/{answer.status}")
        elif not isinstance(answer.error, IgnoreRequest):
            inc_value(f"robotstxt/exception_count/{type(answer.error)}")
        inc_value(f"rep/outcome/{answer.outcome.value}")
        if answer.outcome is Outcome.UNREACHABLE:
            self._log_failure(known, answer)
        robots = known.robots if answer.outcome is Outcome.RULES else None
        send = self._crawler.signals.send_catch_log_async
        # Scrapy has it since 2.18.
        robots_parsed = getattr(scrapy_signals, "robots_parsed", None)
        if robots is not None and robots_parsed is not None:
            await send(robots_parsed, robotparser=RobotParser(robots), request=request)
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
        if robots is not None:
            self._seeding.discovered(known.origin, answer.url, robots)

    def _log_failure(self, known: Known, answer: Answer) -> None:
        entry = known.entry
        logger.log(
            # The first failure of a row is news.
            logging.INFO if entry.attempts == 1 else logging.DEBUG,
            "robots.txt of %(origin)s is unreachable (%(reason)s)%(copy)s; asked for again in "
            "%(delay).0f s at the earliest",
            {
                "origin": known.origin,
                "reason": answer.reason,
                "copy": ", an older copy goes on being applied" if entry.has_copy else "",
                "delay": entry.next_attempt_at - self.clock(),
            },
            extra={"spider": self._crawler.spider},
        )

    def _log_once(self, key: str, level: int, message: str, values: dict[str, Any]) -> None:
        if key not in self._logged and len(self._logged) < 1000:
            self._logged.add(key)
            logger.log(level, message, values, extra={"spider": self._crawler.spider})
