"""``crawl-delay`` and ``request-rate``, which aren't in the protocol, and which Google
ignores. With ``REP_CRAWL_DELAY``, the download slot that the origin's requests use is
slowed down (REP.md section 12)."""

from __future__ import annotations

from weakref import WeakSet

from scrapy import Request, signals

from scrapy_rep.engine.access import SLOT_KEY, Chain
from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.inspection.pace import delay_refusal
from scrapy_rep.origins.agents import SCHEME_LENGTH, Agents, origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.queue import Flight
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.origins.turns import Turns
from scrapy_rep.protocol import Decision
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.robotstxt import Ask, Pace
from scrapy_rep.settings import DelayLimit
from scrapy_rep.storages.client import StorageClient

logger = get_logger(__name__)


class CrawlDelay(ResolutionListener):
    """Slows down the download slots (engine/access.py) of origins that ask for it, and
    tells which origins are not crawled because they ask for too long a delay."""

    part = "crawl delay"

    def __init__(
        self,
        context: CrawlContext,
        agents: Agents,
        table: OriginTable,
        storage: StorageClient | None = None,
    ) -> None:
        """*storage*: shared by processes that take turns (turns.py)."""
        self._context = context
        self._stats = context.stats
        self._slots = context.engine.slots
        settings = context.settings
        self._obey_global = settings.obey_global_group
        self._is_dry_run = settings.dry_run
        limit = settings.crawl_delay
        self._cut_to = 0.0
        """The longest delay that is kept, in seconds: a longer one is cut to this. 0:
        no delays are kept."""
        if isinstance(limit, DelayLimit):
            self._cut_to = limit.most
        self._refuse_above = settings.max_delay
        """Origins that ask for a longer delay than this, in seconds, are not crawled.
        None: there is no such limit."""
        self.may_refuse = self._refuse_above is not None
        """Whether :meth:`refusal` may return a decision. If not, it needn't be
        called."""
        self._agents = agents
        self._table = table
        self._reported = BoundedSet()
        """What was counted, so that it isn't counted again: pairs of an origin's name
        and what it asks for."""
        # Limiters log what happens to the first ten origins, then their number now and
        # then (engine/log.py).
        self._log = Limiter(logger, "origins whose crawl-delay is obeyed")
        self._log_skipped = Limiter(
            logger, "origins that are not crawled for their crawl-delay"
        )
        self._placed_by_scrapy: WeakSet[Request] = WeakSet()
        """Requests whose slot Scrapy chose, and not the user."""
        self._turns: Turns | None = None
        """Takes turns with other processes; None if this process keeps delays alone."""
        if not self._cut_to:  # no delays are kept
            return
        if storage is not None and storage.shares_turns and not self._is_dry_run:
            self._turns = Turns(context, storage, self._delay_of)
        connect = context.crawler.signals.connect
        connect(self._reached_downloader, signals.request_reached_downloader)
        connect(self._left_downloader, signals.request_left_downloader)

    # What an origin asks for

    def seconds(self, state: OriginState, chain: Chain) -> float:
        """Return the seconds between two requests to the origin, for the record; 0 if
        its robots.txt asks for none. A delay longer than ``REP_CRAWL_DELAY`` is cut to
        that, unless such delays keep origins from being crawled."""
        if self._refuse_above is None:
            return self._kept_seconds(state, chain)
        slowest = self._slowest(state, chain)
        return 0.0 if slowest is None else slowest.seconds

    def _kept_seconds(self, state: OriginState, chain: Chain) -> float:
        """Return the seconds that are kept between two requests, also to an origin that
        is not crawled: a subclass of the middleware may let requests pass."""
        slowest = self._slowest(state, chain)
        if slowest is None:
            return 0.0
        return min(slowest.seconds, self._cut_to)

    def _slowest(self, state: OriginState, chain: Chain) -> Ask | None:
        """Return the line that asks for the longest delay; None if there is none, or no
        delays are kept."""
        if not self._cut_to:
            return None
        return self._pace(state, chain).slowest

    def _pace(self, state: OriginState, chain: Chain) -> Pace:
        """Return what the robots.txt says about pace; an empty ``Pace`` without a
        copy."""
        if state.robots is None:
            return Pace()
        return state.robots.pace(chain, self._obey_global)

    def refusal(self, state: OriginState, chain: Chain) -> Decision | None:
        """Return the decision against all URLs of an origin that asks for a longer
        delay than is allowed, if such origins are not crawled; None if it may be
        crawled."""
        if self._refuse_above is None or state.robots is None:
            return None
        return delay_refusal(state.robots, chain, self._obey_global, self._refuse_above)

    def tell_skipped(self, state: OriginState, chain: Chain) -> None:
        """Count and log an origin that is not crawled, once."""
        slowest = self._pace(state, chain).slowest
        if slowest is None:
            return
        is_new = self._reported.add((state.name, "skipped"))
        if not is_new:
            return
        self._stats.inc_value("rep/crawl_delay/skipped")
        message = (
            "Not crawling %(origin)s: %(field)s in line %(line)d of its robots.txt asks for "
            "%(seconds)g s between requests, more than REP_CRAWL_DELAY allows"
        )
        values = slowest._asdict()
        values["origin"] = state.name
        self._log_skipped.log(message, values, self._context.spider)

    # When its slot is slowed down

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Slow down the slot of the origin at once, since requests may be waiting in
        it. Count an origin that gives a visit-time."""
        if flight.outcome is not Outcome.RULES:
            return
        request = flight.request
        chain = self._agents.chain_of(request)
        # Slow the slot down.
        is_crawled = self.refusal(state, chain) is None
        if is_crawled:
            key = self._slots.key_of(request.url)
            self._slow_down(key, state, chain)
            if self._turns is not None:
                self._turns.note_queued(key)
        # Count the origin.
        visit_time = self._pace(state, chain).visit_time
        if visit_time is None:
            return
        is_new = self._reported.add((state.name, visit_time.value))
        if is_new:
            self._stats.inc_value("rep/visit_time/origins")

    def _reached_downloader(self, request: Request) -> None:
        """Slow down the slot that *request* is about to queue in."""
        key = request.meta[SLOT_KEY]
        # Our own requests have this meta key, too, and are not slowed down.
        if not request.meta.get("dont_obey_robotstxt"):
            scrapys_key = self._slots.key_of(request.url)
            if key == scrapys_key:  # the user hasn't chosen another one
                self._placed_by_scrapy.add(request)
            state = self._state_of(request)
            if state is not None:
                chain = self._agents.chain_sent(request)
                self._slow_down(key, state, chain)
        if self._turns is not None:
            self._turns.note_queued(key)

    def _left_downloader(self, request: Request) -> None:
        """Remove the slot that Scrapy noted down in the meta of *request*. Otherwise
        redirects to other hosts, and links that inherit the meta, would queue in that
        slot, and not in the slot of their own origin with its delay. A slot that the
        user chose stays in the meta."""
        if self._turns is not None:
            key = request.meta.get(SLOT_KEY, "")
            self._turns.note_return(key, request)
        if request in self._placed_by_scrapy:
            self._placed_by_scrapy.discard(request)
            request.meta.pop(SLOT_KEY, None)

    def _state_of(self, request: Request) -> OriginState | None:
        """Return what is known of the origin of *request*; None if nothing is, or if
        the protocol doesn't cover its URL."""
        # This looks origins up as the middleware's fast path does. Most are found by
        # what the URL begins with.
        url = request.url
        slash = url.find("/", SCHEME_LENGTH)
        prefix = url[: slash + 1]
        state = self._table.by_prefix.get(prefix)
        if state is not None:
            return state
        try:
            return self._table.get(origin_of(request))
        except ValueError:
            return None

    def _delay_of(self, request: Request) -> tuple[str, float]:
        """Return the origin of *request*, and the longest delay in seconds that its
        slot keeps for it; an empty text and 0 if nothing slows it down. Serves
        :class:`.turns.Turns`."""
        if request.meta.get("dont_obey_robotstxt"):
            return "", 0.0
        state = self._state_of(request)
        if state is None:
            return "", 0.0
        key = request.meta[SLOT_KEY]
        chain = self._agents.chain_sent(request)
        longest = 0.0
        for agent in self._agents_in(key, state, chain):
            longest = max(longest, self._kept_seconds(state, agent))
        return state.name, longest

    def _agents_in(self, key: str, state: OriginState, chain: Chain) -> set[Chain]:
        """Return the agents that use the slot *key* for the origin: *chain*, and those
        that have used it before."""
        earlier = self._slots.agents_of(key, state.name)
        return {chain, *earlier}

    def _slow_down(self, key: str, state: OriginState, chain: Chain) -> None:
        """Make the slot *key* keep the longest delay of the agents that use it, *chain*
        among them. In a dry run, only tell what would be."""
        settings = self._context.crawler.settings
        for agent in self._agents_in(key, state, chain):
            seconds = self._kept_seconds(state, agent)
            if self._is_dry_run:
                is_slower = seconds > settings.getfloat("DOWNLOAD_DELAY")
            else:
                is_slower = self._slots.slow(key, state.name, agent, seconds)
            if is_slower:
                self._tell(state, agent, seconds)

    def _tell(self, state: OriginState, agent: Chain, seconds: float) -> None:
        """Count and log a delay of an origin, once."""
        slowest = self._pace(state, agent).slowest
        if slowest is None:
            return
        is_new = self._reported.add((state.name, seconds))
        if not is_new:
            return
        self._stats.inc_value("rep/crawl_delay/origins")
        self._stats.max_value("rep/crawl_delay/max", seconds)
        message = (
            "Waiting %(seconds)g s between requests to %(origin)s: %(field)s in line %(line)d of its "
            "robots.txt"
        )
        values = slowest._asdict()
        values["origin"] = state.name
        values["seconds"] = seconds
        if slowest.seconds > seconds:
            self._stats.inc_value("rep/crawl_delay/limited")
            message += " asks for %(asked)g s, more than REP_CRAWL_DELAY allows"
            values["asked"] = slowest.seconds
        self._log.log(message, values, self._context.spider)
