"""Has robots.txt fetched and tells the package's other parts of the answer, before waiting requests
go on. ``RepMiddleware.__init__`` sets the order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy import Request
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.log import Isolation
from scrapy_rep.protocol.availability import Outcome

if TYPE_CHECKING:
    from scrapy_rep.origins.agents import Agents
    from scrapy_rep.origins.answer import Answer
    from scrapy_rep.origins.cache import RobotsCache
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Flight
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin, RobotsTxt


@dataclass(frozen=True, slots=True)
class Resolution:
    """News of one origin."""

    state: OriginState
    answer: Answer | None
    """None: it came from the storage."""
    request: Request
    """The first that needed it."""
    flight: Flight | None = None
    """How it came."""

    @property
    def outcome(self) -> Outcome:
        """The answer's outcome; without one, the stored one."""
        return self.state.entry.outcome if self.answer is None else self.answer.outcome

    @property
    def robots(self) -> RobotsTxt | None:
        """The rules, if it has any."""
        return self.state.robots if self.outcome is Outcome.RULES else None

    @property
    def robots_url(self) -> str:
        """The file's URL after redirects: the base of relative URLs in it."""
        return self.state.entry.url or self.state.origin.robots_url


class ResolutionListener:
    """Is told of answers. A bug in one listener doesn't affect the others."""

    part = "part"
    """Its name in the log."""

    async def resolved(self, resolution: Resolution) -> None:
        """Handle an answer, or news from the storage. It already counts for requests."""

    def failed(self, origin: Origin, error: Exception) -> None:
        """Handle that there will be no answer.

        :param error: one of :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`, a bug, or
            ``CancelledError`` (nothing waits for it)
        """


class Resolver:
    """Has robots.txt fetched and tells its listeners."""

    def __init__(self, context: CrawlContext, cache: RobotsCache) -> None:
        self._cache = cache
        self._isolated = Isolation(context.crawler)
        self.listeners: list[ResolutionListener] = []
        """In order."""

    async def ask(self, flight: Flight) -> OriginState:
        """Resolve a flight's robots.txt.

        :raises Exception: one of :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`
        """
        try:
            state, answer = await self._cache.ask(flight.origin, flight.request, flight)
        except (Exception, asyncio.CancelledError) as error:
            told = error if isinstance(error, Exception) else CancelledError()
            for listener in self.listeners:
                with self._isolated(listener.part):
                    listener.failed(flight.origin, told)
            raise
        flight.landing = True
        request = flight.request or Request(flight.origin.robots_url)
        resolution = Resolution(state, answer, request, flight)
        for listener in self.listeners:
            with self._isolated(listener.part):
                await listener.resolved(resolution)
        return state


class RulesReader(ResolutionListener):
    """Parses a new file while its body is in memory, so that later listeners needn't."""

    part = "reading of robots.txt"

    def __init__(self, agents: Agents, cache: RobotsCache) -> None:
        self._agents = agents
        self._cache = cache

    async def resolved(self, resolution: Resolution) -> None:
        """Parse them for the first agent that needs them."""
        if resolution.robots is not None:
            chain, answer = self._agents.chain_of(resolution.request), resolution.answer
            await self._cache.read(resolution.state, chain, answer.body if answer else None)
