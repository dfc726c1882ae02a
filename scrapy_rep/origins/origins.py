"""All that a crawl knows of origins, put together: the door of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.urls import USUAL, origin_of, path_in
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.crawl_delay import CrawlDelay
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flights import Flights
from scrapy_rep.origins.http_cache import HttpCache
from scrapy_rep.origins.policy import Policy
from scrapy_rep.origins.resolver import Resolver
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.table import OriginTable
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import NO_RULES, allows, comparable
from scrapy_rep.storages.opening import open_storage

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Decision, Origin
    from scrapy_rep.storages.access import StorageAccess


class Origins:
    """What is known of origins, how it is found out, and what it means for a request."""

    def __init__(self, context: CrawlContext) -> None:
        """:raises SettingsError: if there is no such storage as the settings name"""
        settings = context.settings
        self._clock = context.clock
        self._obey_global = settings.obey_global_group
        self.agents = Agents(context.crawler, settings)
        """Which product tokens a request goes by."""
        self.table = OriginTable(
            settings.cache_max_origins, settings.cache_max_bytes, context.clock
        )
        """What is in memory."""
        fetcher = Fetcher(context.crawler, settings, context.engine)
        self.http_cache = HttpCache(context.crawler, settings, context.engine, fetcher)
        """Scrapy's own, which keeps robots.txt files for replays."""
        source: Fetcher | HttpCache = fetcher
        storage: StorageAccess | HttpCache | None = None
        if self.http_cache.offline:
            source = self.http_cache  # what is old must not be taken for new by others: no storage
        else:
            storage = open_storage(context.crawler, settings, context.clock)
            if storage is None and self.http_cache.enabled:
                storage = self.http_cache
        self.cache = RobotsCache(settings, self.table, source, context.clock, storage)
        """What is known, and may be used now."""
        self.policy = Policy.of(settings)
        self.resolver = Resolver(context, self.agents, self.cache)
        """Tells its listeners of each answer."""
        self.crawl_delay = CrawlDelay(context, self.agents, self.table)
        """Slows down the requests to sites that ask for it, if the user wants that."""
        self.flights = Flights(context.crawler, self.resolver.ask)
        """The fetches that are under way."""

    def find(self, request: Request) -> tuple[OriginState | Origin, str]:
        """Return what is known of the request's origin, or the origin if its robots.txt has to be
        asked for; and what of the URL is compared with rules.

        :raises ValueError: if the URL has no origin
        """
        usual = USUAL.match(request.url)
        if usual is None:
            origin = origin_of(request)
            return self.cache.get(origin) or origin, path_in(request)
        prefix, path = usual[1] + "/", usual[2]
        state = self.table.by_prefix.get(prefix)
        now = self._clock()
        if state is not None and now < state.usable_until:
            state.used_at = now
            return state, path
        origin = origin_of(request)
        state = self.cache.get(origin)
        if state is None:
            return origin, path
        self.table.add_prefix(state, prefix)
        return state, path

    def decide(
        self, state: OriginState, chain: tuple[str, ...], path: str, *, always: bool = False
    ) -> Decision | None:
        """Return what the rules at hand say about *path*; None for what they plainly allow, which
        then takes the middleware's fast path.

        :param chain: the product tokens that the request goes by
        :param always: return a decision in any case, and leave the fast path out
        """
        robots = state.robots
        if robots is None:
            if not always and state.standing is not Standing.UNRESTRICTED:
                state.rules = NO_RULES
            return None
        token, rules = robots.rules(chain, self._obey_global)
        self.table.weigh(state)
        found = rules._find(comparable(path))
        if always or not allows(found):
            return robots._decision(token, found)
        if chain is self.agents.usual and state.standing is Standing.FRESH:
            state.rules = rules
        return None
