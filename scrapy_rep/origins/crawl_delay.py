"""``crawl-delay`` and ``request-rate``: not in the protocol and ignored by Google. ``REP_CRAWL_DELAY``
slows down the download slot that the origin's requests use (REP.md section 12)."""

from __future__ import annotations

from weakref import WeakSet

from scrapy import Request, signals

from scrapy_rep.engine.access import SLOT_KEY
from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.inspection.pace import too_slow
from scrapy_rep.origins.agents import SCHEME_LENGTH, Agents, origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.origins.turns import Turns
from scrapy_rep.protocol import Decision
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.robotstxt import Pace
from scrapy_rep.settings import DelayLimit
from scrapy_rep.storages.client import StorageClient

logger = get_logger(__name__)


class CrawlDelay(ResolutionListener):
    part = "crawl delay"

    def __init__(
        self,
        context: CrawlContext,
        agents: Agents,
        table: OriginTable,
        storage: StorageClient | None = None,
    ) -> None:
        """*storage*: shared by processes that take turns."""
        self._context = context
        limit = context.settings.crawl_delay
        self._most = limit.most if isinstance(limit, DelayLimit) else 0.0
        self._max_delay = context.settings.max_delay
        self._agents = agents
        self._table = table
        self._told = BoundedSet()
        self._log = Limiter(logger, "origins whose crawl-delay is obeyed")
        self._log_skipped = Limiter(
            logger, "origins that are not crawled for their crawl-delay"
        )
        # Requests whose slot Scrapy chose.
        self._placed: WeakSet[Request] = WeakSet()
        self._turns: Turns | None = None
        if (
            self._most
            and not context.settings.dry_run
            and storage
            and storage.shares_turns
        ):
            self._turns = Turns(context, storage, self._delay_of)
        if self._most:
            context.crawler.signals.connect(
                self._reached, signals.request_reached_downloader
            )
            context.crawler.signals.connect(self._left, signals.request_left_downloader)

    def seconds(self, state: OriginState, chain: tuple[str, ...]) -> float:
        """Return the seconds between two requests to the origin, at most ``REP_CRAWL_DELAY``; all that
        it asks for if it is not crawled for that; 0 if its robots.txt asks for none."""
        slowest = self._pace(state, chain).slowest if self._most else None
        if slowest is not None and self._max_delay is not None:
            return slowest.seconds
        return self._kept(state, chain)

    def _kept(self, state: OriginState, chain: tuple[str, ...]) -> float:
        """Return the seconds that are kept between two requests, also to an origin that is skipped: a
        subclass of the middleware may let requests pass."""
        slowest = self._pace(state, chain).slowest if self._most else None
        return 0.0 if slowest is None else min(slowest.seconds, self._most)

    def refusal(self, state: OriginState, chain: tuple[str, ...]) -> Decision | None:
        """Return the decision against all URLs of an origin that asks for a longer delay than is
        allowed, if such origins are not crawled; None if it may be crawled."""
        if self._max_delay is None or state.robots is None:
            return None
        obey_global = self._context.settings.obey_global_group
        return too_slow(state.robots, chain, obey_global, self._max_delay)

    def tell_skipped(self, state: OriginState, chain: tuple[str, ...]) -> None:
        """Count and log an origin that is not crawled, once."""
        slowest = self._pace(state, chain).slowest
        if slowest is not None and self._told.add((state.name, "skipped")):
            self._context.stats.inc_value("rep/crawl_delay/skipped")
            message = (
                "Not crawling %(origin)s: %(field)s in line %(line)d of its robots.txt asks for "
                "%(seconds)g s between requests, more than REP_CRAWL_DELAY allows"
            )
            values = {"origin": state.name, **slowest._asdict()}
            self._log_skipped.log(message, values, self._context.spider)

    def _pace(self, state: OriginState, chain: tuple[str, ...]) -> Pace:
        obey_global = self._context.settings.obey_global_group
        return Pace() if state.robots is None else state.robots.pace(chain, obey_global)

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Slow down at once: requests may be waiting in the slot."""
        if flight.outcome is not Outcome.RULES:
            return
        request = flight.request
        chain = self._agents.chain_of(request)
        if self.refusal(state, chain) is None:
            key = self._context.engine.slots.key_of(request.url)
            self._slow(key, state, chain)
            if self._turns is not None:
                self._turns.queued(key)
        visit = self._pace(state, chain).visit_time
        if visit is not None and self._told.add((state.name, visit.value)):
            self._context.stats.inc_value("rep/visit_time/origins")

    def _reached(self, request: Request) -> None:
        """Slow down the slot that *request* is about to queue in."""
        meta = request.meta
        key = meta[SLOT_KEY]
        if not meta.get("dont_obey_robotstxt"):  # as our own requests have
            if key == self._context.engine.slots.key_of(request.url):
                self._placed.add(request)
            state = self._state_of(request)
            if state is not None:
                self._slow(key, state, self._agents.chain_sent(request))
        if self._turns is not None:
            self._turns.queued(key)

    def _left(self, request: Request) -> None:
        """Forget the slot that Scrapy noted down in the meta of *request*. Otherwise redirects to
        other hosts, and links that inherit the meta, would queue there, beside the slot of their own
        origin and its delay. A slot that the user chose stays."""
        if self._turns is not None:
            self._turns.came_back(request.meta.get(SLOT_KEY, ""), request)
        if request in self._placed:
            self._placed.discard(request)
            request.meta.pop(SLOT_KEY, None)

    def _state_of(self, request: Request) -> OriginState | None:
        """Return what is known of the origin of *request*, if the protocol covers it."""
        url = request.url
        state = self._table.by_prefix.get(url[: url.find("/", SCHEME_LENGTH) + 1])
        if state is None:
            try:
                state = self._table.get(origin_of(request))
            except ValueError:
                return None
        return state

    def _delay_of(self, request: Request) -> tuple[str, float]:
        """Return the origin of *request*, and the longest delay of its agents in use."""
        is_free = bool(request.meta.get("dont_obey_robotstxt"))
        state = None if is_free else self._state_of(request)
        if state is None:
            return "", 0.0
        agents = self._context.engine.slots.agents_of(
            request.meta[SLOT_KEY], state.name
        )
        chain = self._agents.chain_sent(request)
        return state.name, max(self._kept(state, agent) for agent in (chain, *agents))

    def _slow(self, key: str, state: OriginState, chain: tuple[str, ...]) -> None:
        """Make the slot *key* keep the longest delay of the agents in use, *chain* among them."""
        slots = self._context.engine.slots
        for agent in {chain, *slots.agents_of(key, state.name)}:
            seconds = self._kept(state, agent)
            if self._context.settings.dry_run:
                own = self._context.crawler.settings.getfloat("DOWNLOAD_DELAY")
                raised = seconds > own
            else:
                raised = slots.slow(key, state.name, agent, seconds)
            if raised:
                self._tell(state, agent, seconds)

    def _tell(self, state: OriginState, agent: tuple[str, ...], seconds: float) -> None:
        """Count and log a delay of an origin, once."""
        slowest = self._pace(state, agent).slowest
        if slowest is None or not self._told.add((state.name, seconds)):
            return
        stats = self._context.stats
        stats.inc_value("rep/crawl_delay/origins")
        stats.max_value("rep/crawl_delay/max", seconds)
        message = (
            "Waiting %(seconds)g s between requests to %(origin)s: %(field)s in line %(line)d of its "
            "robots.txt"
        )
        values = {"origin": state.name, **slowest._asdict(), "seconds": seconds}
        if slowest.seconds > seconds:
            stats.inc_value("rep/crawl_delay/limited")
            message += " asks for %(asked)g s, more than REP_CRAWL_DELAY allows"
            values["asked"] = slowest.seconds
        self._log.log(message, values, self._context.spider)
