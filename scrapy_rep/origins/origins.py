"""All that a crawl knows of origins, put together: the door of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.urls import USUAL, origin_of, path_in
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.flights import Flights
from scrapy_rep.origins.policy import Policy
from scrapy_rep.origins.resolver import Resolver
from scrapy_rep.origins.table import Known, KnownOrigins
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import NO_RULES, allows, comparable

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Decision, Origin


class Origins:
    """What is known of origins, how it is found out, and what it means for a request."""

    def __init__(self, context: CrawlContext) -> None:
        """:raises SettingsError: if there is no such storage as the settings name"""
        settings = context.settings
        self._clock = context.clock
        self._obey_global = settings.obey_global_group
        self.agents = Agents(context.crawler, settings)
        """Which product tokens a request goes by."""
        self.table = KnownOrigins(
            settings.cache_max_origins, settings.cache_max_bytes, context.clock
        )
        """What is in memory."""
        self.cache = RobotsCache.of(context, self.table)
        """What is known, and may be used now."""
        self.policy = Policy.of(settings)
        self.resolver = Resolver(context, self.agents, self.cache)
        """Tells its listeners of each answer."""
        self.flights = Flights(context.crawler, self.resolver.ask)
        """The fetches that are under way."""

    def find(self, request: Request) -> tuple[Known | Origin, str]:
        """Return what is known of the request's origin, or the origin if its robots.txt has to be
        asked for; and what of the URL is compared with rules.

        :raises ValueError: if the URL has no origin
        """
        usual = USUAL.match(request.url)
        if usual is None:
            origin = origin_of(request)
            return self.cache.get(origin) or origin, path_in(request)
        prefix, path = usual[1] + "/", usual[2]
        known = self.table.by_prefix.get(prefix)
        now = self._clock()
        if known is not None and now < known.usable_until:
            known.used_at = now
            return known, path
        origin = origin_of(request)
        known = self.cache.get(origin)
        if known is None:
            return origin, path
        self.table.add_prefix(known, prefix)
        return known, path

    def decide(
        self, known: Known, chain: tuple[str, ...], path: str, *, always: bool = False
    ) -> Decision | None:
        """Return what the rules at hand say about *path*; None for what they plainly allow, which
        then takes the middleware's fast path.

        :param chain: the product tokens that the request goes by
        :param always: return a decision in any case, and leave the fast path out
        """
        robots = known.robots
        if robots is None:
            if not always and known.standing is not Standing.UNRESTRICTED:
                known.rules = NO_RULES
            return None
        token, rules = robots.rules(chain, self._obey_global)
        self.table.weigh(known)
        found = rules._find(comparable(path))
        if always or not allows(found):
            return robots._decision(token, found)
        if chain is self.agents.usual and known.standing is Standing.FRESH:
            known.rules = rules
        return None
