"""What a robots.txt that was asked for sets in motion, before those who wait for it go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.words import text_of
from scrapy_rep.origins.failures import CONFIGURATION_ERRORS
from scrapy_rep.protocol.availability import Outcome

if TYPE_CHECKING:
    from scrapy_rep.engine.isolation import Isolation
    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.origins.agents import Agents
    from scrapy_rep.origins.cache import RobotsCache
    from scrapy_rep.origins.fetcher import Answer
    from scrapy_rep.origins.flights import Flight
    from scrapy_rep.origins.table import Known
    from scrapy_rep.reporting.announcements import Announcer
    from scrapy_rep.reporting.recorder import Decisions
    from scrapy_rep.seeding.discovery import Discovery
    from scrapy_rep.seeding.seeding import SitemapSeeding


class Answers:
    """Asks, takes in what comes of it, and tells all who have to know."""

    def __init__(
        self,
        cache: RobotsCache,
        agents: Agents,
        obey_global: bool,
        announcer: Announcer,
        decisions: Decisions,
        deferral: Deferral,
        discovery: Discovery,
        seeding: SitemapSeeding | None,
        isolated: Isolation,
    ) -> None:
        """:param obey_global: whether the group ``*`` applies where no other does"""
        self._cache = cache
        self._agents = agents
        self._obey_global = obey_global
        self._announcer = announcer
        self._decisions = decisions
        self._deferral = deferral
        self._discovery = discovery
        self._seeding = seeding
        self._isolated = isolated

    async def ask(self, flight: Flight) -> Known:
        """Have a flight's robots.txt fetched, or found in the storage.

        :raises Exception: one of :data:`~scrapy_rep.origins.failures.CONFIGURATION_ERRORS`
        """
        try:
            known, answer = await self._cache.ask(flight.origin, flight.request)
        except CONFIGURATION_ERRORS as error:
            with self._isolated("announcement of robots.txt"):
                self._announcer.cannot_ask(flight.origin, error)
            self._deferral.cannot_ask(flight.origin, text_of(error))
            raise
        except CancelledError:
            self._decisions.broken_off(flight.origin)
            raise
        except Exception as error:
            # A bug, which Flights logs. What is held must not wait for an answer for ever.
            self._deferral.cannot_ask(flight.origin, text_of(error))
            raise
        flight.landing = True
        await self._resolved(known, answer, flight.request or Request(flight.origin.robots_url))
        return known

    async def _resolved(self, known: Known, answer: Answer | None, request: Request) -> None:
        """There is news of an origin: an answer, or (None) what the storage has."""
        origin = known.origin
        self._decisions.answered(known, answer)
        outcome = known.entry.outcome if answer is None else answer.outcome
        # At once: requests are decided by it from now on, and the crawl may end with them.
        robots = known.robots if outcome is Outcome.RULES else None
        if robots is not None and answer is not None:
            # While the body is at hand: else it would be unpacked and read twice.
            with self._isolated("reading of robots.txt"):
                chain = self._agents.chain_of(request)
                await self._cache.read(known, chain, self._obey_global, answer.body)
                robots = known.robots
        url = known.entry.url or origin.robots_url
        if robots is not None:
            with self._isolated("search for sitemaps"):
                await self._discovery.discovered(origin, url, robots)
        if self._seeding is not None and (robots is not None or outcome is Outcome.MISSING):
            with self._isolated("seeding from sitemaps"):
                self._seeding.discovered(origin, url, robots)
        with self._isolated("announcement of robots.txt"):
            if answer is None:
                await self._announcer.recalled(known, request)
            else:
                await self._announcer.resolved(known, answer, request)
        self._deferral.resolved(known)
