"""Asks for a robots.txt, takes in what comes of it, and tells all parts of the package that want to
know, before the requests that wait for it go on. The order is set in ``RepMiddleware.__init__``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_rep.engine.isolation import Isolation
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
    """What the fetch brought. None: it was found in the storage."""
    request: Request
    """The first request that wanted to know."""

    @property
    def outcome(self) -> Outcome:
        """What the answer means; what is known, if nothing was fetched."""
        return self.state.entry.outcome if self.answer is None else self.answer.outcome

    @property
    def robots(self) -> RobotsTxt | None:
        """The rules that it brought."""
        return self.state.robots if self.outcome is Outcome.RULES else None

    @property
    def robots_url(self) -> str:
        """Where the file came from, for relative URLs in it."""
        return self.state.entry.url or self.state.origin.robots_url


class ResolutionListener:
    """What wants to know of answers. A bug in one of them keeps it from no other."""

    part = "part"
    """What the log calls it when it fails."""

    async def resolved(self, resolution: Resolution) -> None:
        """There is an answer, or news from the storage. Requests are decided by it already."""

    def failed(self, origin: Origin, error: Exception) -> None:
        """There will be none.

        :param error: one of :data:`~scrapy_rep.origins.failures.CONFIGURATION_ERRORS`, a bug, or
            ``CancelledError``: nothing waits for it any more
        """


class Resolver:
    """Has robots.txt files asked for, and announces what came of it."""

    def __init__(self, context: CrawlContext, agents: Agents, cache: RobotsCache) -> None:
        self._agents = agents
        self._cache = cache
        self._isolated = Isolation(context.crawler)
        self.listeners: list[ResolutionListener] = []
        """In the order in which they are told."""

    async def ask(self, flight: Flight) -> OriginState:
        """Have a flight's robots.txt fetched, or found in the storage.

        :raises Exception: one of :data:`~scrapy_rep.origins.failures.CONFIGURATION_ERRORS`
        """
        try:
            state, answer = await self._cache.ask(flight.origin, flight.request)
        except Exception as error:
            for listener in self.listeners:
                with self._isolated(listener.part):
                    listener.failed(flight.origin, error)
            raise
        flight.landing = True
        request = flight.request or Request(flight.origin.robots_url)
        resolution = Resolution(state, answer, request)
        for listener in self.listeners:
            with self._isolated(listener.part):
                await listener.resolved(resolution)
        return state


class RulesReader(ResolutionListener):
    """Has a new file read while its body is at hand, a large one in a thread. Listeners after this
    one find its rules and its sitemaps ready."""

    part = "reading of robots.txt"

    def __init__(self, agents: Agents, cache: RobotsCache) -> None:
        self._agents = agents
        self._cache = cache

    async def resolved(self, resolution: Resolution) -> None:
        """Read them for the agent that asked first."""
        if resolution.robots is not None:
            chain, answer = self._agents.chain_of(resolution.request), resolution.answer
            await self._cache.read(resolution.state, chain, answer.body if answer else None)
