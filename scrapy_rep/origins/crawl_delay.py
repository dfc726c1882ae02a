"""``crawl-delay`` and ``request-rate``: not in the protocol and ignored by Google. ``REP_CRAWL_DELAY``
slows down the download slot that the origin's requests use (REP.md section 12)."""

from __future__ import annotations

from scrapy import Request, signals

from scrapy_rep.engine.access import META_KEY
from scrapy_rep.engine.log import BoundedSet, Limiter, get_logger
from scrapy_rep.origins.agents import SCHEME, Agents, origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.robotstxt import Pace

logger = get_logger(__name__)

# The slot chosen by Scrapy or here. Redirects and retries inherit `download_slot`: only a user's stays.
_CHOSEN = "rep_download_slot"


class CrawlDelay(ResolutionListener):
    part = "crawl delay"

    def __init__(self, context: CrawlContext, agents: Agents, table: OriginTable) -> None:
        self._context = context
        self._most = context.settings.crawl_delay
        self._agents = agents
        self._table = table
        self._told = BoundedSet()
        self._log = Limiter(logger, "origins whose crawl-delay is obeyed")
        self.marks = frozenset({META_KEY} if self._most else ())
        """Meta keys that keep a request off the middleware's fast path."""
        if self._most:
            context.crawler.signals.connect(self._reached, signals.request_reached_downloader)

    def seconds(self, state: OriginState, chain: tuple[str, ...]) -> float:
        """Return the seconds between two requests to the origin, at most ``REP_CRAWL_DELAY``; 0 if
        its robots.txt asks for none."""
        slowest = self._pace(state, chain).slowest if self._most else None
        return 0.0 if slowest is None else min(slowest.seconds, self._most)

    def _pace(self, state: OriginState, chain: tuple[str, ...]) -> Pace:
        obey_global = self._context.settings.obey_global_group
        return Pace() if state.robots is None else state.robots.pace(chain, obey_global)

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Slow down at once: requests may be waiting in the slot."""
        request = flight.request
        if flight.outcome is not Outcome.RULES or not self._agents.is_usual(request):
            return
        chain = self._agents.chain_of(request)
        self._slow(self._context.engine.slots.key_of(request.url), state, chain)
        visit = self._pace(state, chain).visit_time
        if visit is not None and self._told.add((state.name, visit.value)):
            self._context.stats.inc_value("rep/visit_time/origins")

    def _reached(self, request: Request) -> None:
        """Slow down the slot that *request* is about to queue in."""
        meta, url = request.meta, request.url
        if meta.get("dont_obey_robotstxt"):  # as our own requests have
            return
        key = meta[META_KEY]
        if key == self._context.engine.slots.key_of(url):
            meta[_CHOSEN] = key
        state = self._table.by_prefix.get(url[: url.find("/", SCHEME) + 1])
        if state is None:
            try:
                state = self._table.get(origin_of(request))
            except ValueError:
                return  # the protocol doesn't cover this URL
        if state is not None:
            self._slow(key, state, self._agents.chain_sent(request))

    def _slow(self, key: str, state: OriginState, chain: tuple[str, ...]) -> None:
        context, seconds = self._context, self.seconds(state, chain)
        if context.settings.dry_run:
            raised = seconds > context.crawler.settings.getfloat("DOWNLOAD_DELAY")
        else:
            raised = context.engine.slots.slow(key, state.name, seconds)
        slowest = self._pace(state, chain).slowest if raised else None
        if slowest is None or not self._told.add((state.name, seconds)):
            return
        stats = context.stats
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
        self._log.log(message, values, context.spider)

    def choose_slot(self, request: Request, state: OriginState) -> None:
        """Keep *request* out of slots with delays of the origin that redirected it, or of another agent."""
        if not self._most or self._context.settings.dry_run:
            return
        meta, agents = request.meta, self._agents
        if META_KEY in meta and meta[META_KEY] == meta.get(_CHOSEN):
            del meta[META_KEY]
        if META_KEY in meta or agents.is_usual(request):
            return
        chain, usual = agents.chain_of(request), agents.chain_of(Request(request.url))
        if self.seconds(state, chain) != self.seconds(state, usual):
            name = chain[0] if chain else "*"
            meta.update(self._context.engine.slots.beside(request.url, name))
            meta[_CHOSEN] = meta[META_KEY]
