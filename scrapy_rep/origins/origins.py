"""The entrance to this folder: what a crawl knows of origins, how it finds out, and its policy:
whether a request leaves, waits (how long), is held, fails or passes."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NamedTuple

from scrapy import Request
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.log import Isolation
from scrapy_rep.origins.agents import USUAL, Agents, origin_of, path_in
from scrapy_rep.origins.answer import failure_in
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.choices import Choices, chosen
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.crawl_delay import CrawlDelay
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flights import Flight, Flights, ResolutionListener
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import NO_RULES, allows, comparable
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import Entry
from scrapy_rep.storages.client import open_storage
from scrapy_rep.text import text_of

UNKNOWN_YET = "no answer yet"  # why requests wait for an origin that hasn't failed

# An attempt counts as the last one if it was made in the last quarter of REP_DEFER_MAX_WAIT.
_LATE_SHARE = 4

# The time of one request after the other runs out: between two last attempts, half a pause passes.
_PAUSE_SHARE = 2


class Advice(Enum):
    """What to do with a request."""

    LEAVE = "let it go on to the middleware"
    STAY = "keep it at the gate until there is an answer"
    DECIDE = "apply the rules"
    ALLOW = 'let it pass: REP_UNREACHABLE is "allow"'


class Drop(NamedTuple):
    """Fail it with ``RobotsUnreachable``."""

    reason: str
    attempts: int = 0
    """Consecutive failed fetches of robots.txt."""
    for_room: bool = False
    """Whether the only reason is that too many are held."""
    cause: BaseException | None = None
    """What the last fetch raised, or an exception like that."""

    @classmethod
    def of(cls, state: OriginState | None) -> Drop:
        """Return why there is no robots.txt of the origin of which *state* is known."""
        entry = None if state is None else state.entry
        if entry is None or entry.error is None:
            return cls(UNKNOWN_YET)
        return cls(entry.error, entry.attempts, cause=failure_in(entry.error))

    @classmethod
    def after(cls, error: Exception) -> Drop:
        """Return that a fetch raised *error*: a misconfiguration, or a bug."""
        why = text_of(error)
        return cls(why, cause=failure_in(why))


class Policy:
    """What to do with a request, given what is known of its origin (REP.md section 4).

    The one place that decides whether a request leaves the gate, waits, is held, is judged, is dropped
    or passes, except when a held request's time is over: holding/deferral.py does. Pure: no I/O, no
    clock.
    """

    def __init__(self, settings: RepSettings) -> None:
        self.unreachable = settings.unreachable
        """``REP_UNREACHABLE``."""
        self.grace = settings.defer_grace
        """Seconds from the start of a first fetch until a request that waits for it counts as held."""
        self._tries = settings.defer_dead_host_tries
        self._patience = settings.download_timeout
        """Seconds that a direct download waits for the next attempt."""
        self._late = min(settings.retry_delay, settings.defer_max_wait / _LATE_SHARE)

    def at_the_gate(self, state: OriginState | None, *, full: bool) -> Advice | Drop:
        """Return what to do with a request from the scheduler. *state* is what is known of its
        origin; None: a fetch is due. *full*: no more requests to it may be held."""
        if state is not None and not self.is_worth_waiting(state):
            return Advice.LEAVE
        if not full:
            return Advice.STAY
        drop = Drop.of(state) if state is not None else Drop("too many of its requests are held")
        return drop._replace(for_room=True)  # other origins need the place

    def in_the_middleware(self, state: OriginState, now: float) -> Advice | Drop | float:
        """Return what to do, *now* (seconds since the epoch), with a request that may have passed
        no gate: a direct download (a media pipeline's, say) can't be held, but can wait for the next
        attempt, for so many seconds."""
        if not state.unreachable:
            return Advice.DECIDE
        if self.unreachable == "allow":
            return Advice.ALLOW
        seconds = max(0.0, state.entry.next_attempt_at - now)
        near = self.is_worth_waiting(state) and seconds < self._patience
        return seconds if near else Drop.of(state)

    def is_worth_waiting(self, state: OriginState) -> bool:
        """Whether to wait for *state* to change."""
        alive = state.entry.dead_attempts < self._tries
        return state.unreachable and alive and self.unreachable == "defer"

    def last_attempt_at(self, entry: Entry, latest: int) -> float:
        """Return from when on (seconds since the epoch) an attempt may be made because the time of
        held requests is over, before the origin's next one is due. *latest*: which attempt in a row
        of failures was such a last one."""
        pause = self._late
        if entry.attempts == latest:
            pause = max(pause, (entry.next_attempt_at - entry.updated_at) / _PAUSE_SHARE)
        # Whatever a storage says, the origin's clock goes on.
        not_before = min(entry.not_before, entry.next_attempt_at)
        return max(entry.updated_at + pause, not_before)


class Origins:
    def __init__(self, context: CrawlContext) -> None:
        """Raises ``SettingsError`` if the storage, or a file of ``REP_OVERRIDES``, doesn't exist."""
        settings = context.settings
        self._clock = context.clock
        self._obey_global = settings.obey_global_group
        self.agents = Agents(context.crawler, settings)
        self.fetcher = fetcher = Fetcher(context)
        self.targets = fetcher.targets
        storage = open_storage(context.crawler, settings)
        self.cache = RobotsCache(settings, fetcher, context.clock, storage)
        self.table = self.cache.table
        self.cache.choices = Choices(settings) if chosen(settings) else None
        self.policy = Policy(settings)
        self.crawl_delay = CrawlDelay(context, self.agents, self.table, storage)
        self.flights = Flights(context.crawler, self.ask)
        self.listeners: list[ResolutionListener] = []
        """Notified of answers, in order."""
        self._isolated = Isolation(context.crawler)
        self._records_all = bool(settings.decisions) and settings.decisions_all

    async def ask(self, flight: Flight) -> OriginState:
        """Get a flight's robots.txt fetched, and notify the listeners, before waiting requests go
        on. Raises :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        try:
            state = await self.cache.ask(flight)
        except (Exception, asyncio.CancelledError) as error:
            self._failed(flight.origin, error)
            raise
        request, answer = flight.request, flight.answer
        flight.outcome = state.entry.outcome if answer is None else answer.outcome
        chain = self.agents.chain_of(request)
        if flight.outcome is Outcome.RULES:
            # While its body is in memory, so that listeners needn't.
            await self.cache.read(state, chain, answer.body if answer else b"")
        usual = USUAL.match(request.url)
        is_plain = state.standing is Standing.FRESH and not state.by and not self._records_all
        is_plain = is_plain and self.crawl_delay.refusal(state, chain) is None
        if is_plain and usual is not None and chain is self.agents.usual:
            # The middleware's fast path may decide, see OriginState.rules.
            known = state.robots
            state.rules = NO_RULES if known is None else known.rules(chain, self._obey_global)[1]
            self.table.add_prefix(state, usual[1] + "/")
        for listener in self.listeners:
            with self._isolated(listener.part):
                await listener.resolved(state, flight)
        return state

    def _failed(self, origin: Origin, error: Exception | asyncio.CancelledError) -> None:
        told = error if isinstance(error, Exception) else CancelledError()
        for listener in self.listeners:
            with self._isolated(listener.part):
                listener.failed(origin, told)

    def find(self, request: Request) -> tuple[OriginState | Origin, str]:
        """Return what is known of the request's origin, or the origin if a fetch is due; and the
        part of the URL that rules match. ``ValueError`` if the URL has no origin."""
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
        origin = Origin.from_url(prefix)
        state = self.cache.get(origin)
        if state is not None:
            self.table.add_prefix(state, prefix)
        return state or origin, path

    def decide(
        self, state: OriginState, chain: tuple[str, ...], path: str, *, always: bool = False
    ) -> Decision | None:
        """Return what the rules say about *path* to a request with the product tokens *chain*; None
        if they allow it, and so the middleware's fast path can from now on. With *always*, return a
        decision even then, and leave the fast path alone."""
        robots = state.robots
        if robots is None or state.standing is Standing.UNRESTRICTED:
            if state.forbids:
                return Decision(False, None, None)
            if not always and state.standing is not Standing.UNRESTRICTED:
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
        if chain is self.agents.usual and state.standing is Standing.FRESH:
            state.rules = rules
        return None
