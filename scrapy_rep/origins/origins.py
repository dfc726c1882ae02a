"""The entrance to this folder: what a crawl knows of origins, and how it finds out."""

from __future__ import annotations

from scrapy import Request

from scrapy_rep.engine.log import Isolation
from scrapy_rep.origins.agents import USUAL_URL, Agents, origin_of, path_in
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.choices import Choices, chosen
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.crawl_delay import CrawlDelay
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flight import Flight, Limits
from scrapy_rep.origins.flights import Flights, ResolutionListener
from scrapy_rep.origins.policy import Policy
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Fresh, Status, Unrestricted
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import NO_RULES, allows, comparable
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.client import open_storage


def limits_of(settings: RepSettings) -> Limits:
    """Return how long requests wait."""
    max_wait = settings.hold_max_wait
    return Limits(
        settings.hold_grace, max_wait, min(settings.download_timeout, max_wait)
    )


class Origins:
    def __init__(
        self, context: CrawlContext, usual_agent: tuple[str, ...] | None = None
    ) -> None:
        """*usual_agent*: the product tokens of requests that don't name any; None for those that the
        project says. Raises ``SettingsError`` if the storage, or a file of ``REP_OVERRIDES``, doesn't
        exist."""
        settings = context.settings
        self._clock = context.clock
        self._obey_global = settings.obey_global_group
        self.agents = Agents(context.crawler, settings, usual_agent)
        self.fetcher = fetcher = Fetcher(context)
        self.targets = fetcher.targets
        self.storage = storage = open_storage(context.crawler, settings)
        """None: what is known is in memory only."""
        choices = Choices(settings) if chosen(settings) else None
        self.cache = RobotsCache(
            settings, fetcher, context.clock, storage, choices, running=context.running
        )
        self.table = self.cache.table
        self.policy = Policy(settings)
        self.crawl_delay = CrawlDelay(context, self.agents, self.table, storage)
        self.flights = Flights(
            context.crawler,
            self._ask,
            self._tell,
            self.cache.known,
            context.running,
            limits_of(settings),
        )
        self._listeners: list[ResolutionListener] = []
        self._isolated = Isolation(context.crawler)

    def notify(self, *listeners: ResolutionListener) -> None:
        """From now on, notify these too of answers, in this order after those there are."""
        self._listeners += listeners

    async def _ask(self, flight: Flight) -> OriginState:
        """Get a flight's robots.txt fetched. Return what is known now. Raises
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        state = await self.cache.ask(flight)
        request, answer = flight.request, flight.answer
        flight.outcome = state.entry.outcome if answer is None else answer.outcome
        chain = self.agents.chain_of(request)
        if flight.outcome is Outcome.RULES:
            # While its body is in memory, so that listeners needn't.
            await self.cache.read(state, chain, answer.body if answer else b"")
        usual = USUAL_URL.match(request.url)
        fresh = isinstance(state.status, Fresh)
        is_plain = fresh and not state.status.setting
        is_plain = is_plain and self.crawl_delay.refusal(state, chain) is None
        if is_plain and usual is not None and chain is self.agents.usual:
            # The middleware's fast path may decide, see OriginState.rules.
            known = state.robots
            state.rules = (
                NO_RULES if known is None else known.rules(chain, self._obey_global)[1]
            )
            self.table.add_prefix(state, usual[1] + "/")
        return state

    async def _tell(self, flight: Flight, result: OriginState | Exception) -> None:
        """Notify the listeners of the *result* of a flight, before requests that wait go on."""
        for listener in self._listeners:
            with self._isolated(listener.part):
                if isinstance(result, Exception):
                    listener.failed(flight.origin, result)
                else:
                    await listener.resolved(result, flight)

    def find(self, request: Request) -> tuple[OriginState | Origin, str]:
        """Return what is known of the request's origin, or the origin if a fetch is due; and the
        part of the URL that rules match. ``ValueError`` if the URL has no origin."""
        usual = USUAL_URL.match(request.url)
        if usual is None:
            origin = origin_of(request)
            return self.cache.get(origin) or origin, path_in(request)
        prefix, path = usual[1] + "/", usual[2]
        state = self.table.by_prefix.get(prefix)
        now = self._clock()
        if state is not None and now < state.status.until:
            state.used_at = now
            return state, path
        origin = Origin.from_url(prefix)
        state = self.cache.get(origin)
        if state is not None:
            self.table.add_prefix(state, prefix)
        return state or origin, path

    def decision(self, state: OriginState, key: int) -> Decision:
        """Return what the rule with *key* decides: one of those that *state* has for the fast path."""
        robots, agent = state.robots, self.agents.usual
        assert robots is not None
        assert agent is not None
        token, _ = robots.rules(agent, self._obey_global)
        self.table.weigh(state)
        return robots.decision(token, key)

    def decide(
        self,
        state: OriginState,
        chain: tuple[str, ...],
        path: str,
        *,
        always: bool = False,
        status: Status | None = None,
    ) -> Decision | None:
        """Return what the rules say about *path* to a request with the product tokens *chain*; None
        if they allow it, and so the middleware's fast path can from now on. With *always*, return a
        decision even then, and leave the fast path alone. *status*: what counts for this request, if not
        what is known now."""
        robots = state.robots
        status = status or state.status.counts_as
        if robots is None or isinstance(status, Unrestricted):
            if isinstance(status, Fresh) and status.forbids_all:
                return Decision(False, None, None)
            if not always and isinstance(state.status, Fresh):
                state.rules = NO_RULES
            return None
        token, rules = robots.rules(chain, self._obey_global)
        self.table.weigh(state)
        refusal = self.crawl_delay.refusal(state, chain)
        if refusal is not None:
            self.crawl_delay.tell_skipped(state, chain)
            return refusal
        found = rules.find(comparable(path))
        if always or not allows(found):
            return robots.decision(token, found)
        if chain is self.agents.usual and isinstance(state.status, Fresh):
            state.rules = rules
        return None
