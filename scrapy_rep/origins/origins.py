"""The entrance to this folder: what a crawl knows of origins, and how it finds out."""

from __future__ import annotations

from scrapy import Request

from scrapy_rep.engine.access import Chain
from scrapy_rep.origins.agents import AGENT_KEY, USUAL_URL, Agents, origin_of, path_in
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.choices import Choices, chosen
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.crawl_delay import CrawlDelay
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flights import Flights
from scrapy_rep.origins.policy import Policy
from scrapy_rep.origins.queue import Flight, Limits
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
    fetch = min(settings.download_timeout, max_wait)
    return Limits(settings.hold_grace, max_wait, fetch)


class Origins:
    """Makes the parts of this folder and connects them: agents, fetcher, storage,
    cache, policy, crawl delay and flights. Answers what the rest of the package asks
    about origins."""

    def __init__(self, context: CrawlContext, usual_agent: Chain | None = None) -> None:
        """*usual_agent*: the product tokens of requests that don't name any; None for
        those that the project says. Raises ``SettingsError`` if the storage, or a file
        of ``REP_OVERRIDES``, doesn't exist."""
        settings = context.settings
        self._clock = context.clock
        self._obey_global = settings.obey_global_group
        self.agents = Agents(context.crawler, settings, usual_agent)
        fetcher = Fetcher(context)
        self.fetcher = fetcher
        self.targets = fetcher.targets
        storage = open_storage(context.crawler, settings)
        self.storage = storage
        """None: what is known is in memory only."""
        choices = None
        if chosen(settings):
            choices = Choices(settings)
        self.cache = RobotsCache(
            settings, fetcher, context.clock, storage, choices, running=context.running
        )
        self.table = self.cache.table
        self.policy = Policy(settings)
        self.crawl_delay = CrawlDelay(context, self.agents, self.table, storage)
        self.flights = Flights(
            context.crawler,
            self._ask,
            self.cache.status_of,
            context.running,
            limits_of(settings),
        )

    async def _ask(self, flight: Flight) -> OriginState:
        """Get a flight's robots.txt fetched. Return what is known now. Raises
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        state = await self.cache.ask(flight)
        request = flight.request
        body = b""
        flight.outcome = state.entry.outcome
        if flight.answer is not None:
            body = flight.answer.body
            flight.outcome = flight.answer.outcome
        chain = self.agents.usual
        if chain is None or request.headers or AGENT_KEY in request.meta:
            # Only such a request may name an agent of its own.
            chain = self.agents.chain_of(request)
        if flight.outcome is Outcome.RULES:
            # Read them now, while the answer's body is at hand. Listeners and requests
            # find the rules read.
            await self.cache.read(state, chain, body)
        usual_url = USUAL_URL.match(request.url)
        if usual_url is None or chain is not self.agents.usual:
            return state
        # Where rules alone decide, the middleware's fast path may apply them.
        status = state.status
        if not isinstance(status, Fresh) or status.setting:
            return state
        delay = self.crawl_delay
        if delay.may_refuse and delay.refusal(state, chain) is not None:
            return state
        if state.robots is None:
            state.rules = NO_RULES
        else:
            _, state.rules = state.robots.rules(chain, self._obey_global)
        prefix = usual_url[1] + "/"
        self.table.add_prefix(state, prefix)
        return state

    def find(self, request: Request) -> tuple[OriginState | Origin, str]:
        """Return what is known of the request's origin, or the origin if a fetch is
        due; and the part of the URL that rules match. ``ValueError`` if the URL has no
        origin."""
        usual_url = USUAL_URL.match(request.url)
        if usual_url is None:
            origin = origin_of(request)
            state = self.cache.get(origin)
            return state or origin, path_in(request)
        prefix = usual_url[1] + "/"
        path = usual_url[2]
        # The prefix is looked up first, since to make an Origin of a URL takes longer
        # than all of this.
        state = self.table.by_prefix.get(prefix)
        now = self._clock()
        if state is not None and now < state.status.until:
            state.used_at = now
            return state, path
        origin = Origin.from_url(prefix)
        state = self.cache.get(origin)
        if state is None:
            return origin, path
        self.table.add_prefix(state, prefix)
        return state, path

    def decision(self, state: OriginState, key: int) -> Decision:
        """Return what the rule with *key* decides, for the middleware's fast path:
        *key* is what ``state.rules.find()`` returned."""
        robots = state.robots
        chain = self.agents.usual
        assert robots is not None
        assert chain is not None
        token, _ = robots.rules(chain, self._obey_global)
        self.table.weigh(state)
        return robots.decision(token, key)

    def decide(
        self,
        state: OriginState,
        chain: Chain,
        path: str,
        *,
        always: bool = False,
        status: Status | None = None,
    ) -> Decision | None:
        """Return what the rules say about *path* to a request with the product tokens
        *chain*; None if they allow it. Then the middleware's fast path may allow such
        requests from now on, too.

        With *always*, return a decision even if it allows, and leave the fast path
        alone. *status*: what counts for this request, if not what is known now."""
        robots = state.robots
        status = status or state.counts_as
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
        key = rules.find(comparable(path))
        if always or not allows(key):
            return robots.decision(token, key)
        is_usual = chain is self.agents.usual
        if is_usual and isinstance(state.status, Fresh):
            state.rules = rules
        return None
