"""Looks up a request's origin, asks the policy for advice, and acts on it.

A request that the fast path does not allow is decided by rules, waits, is held, or is dropped.
``RobotsDisallowed`` and ``RobotsUnreachable`` are raised here.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy import Request

from scrapy_rep.engine.interactive import in_shell
from scrapy_rep.engine.stat_counter import StatCounter
from scrapy_rep.engine.urls import FOREIGN
from scrapy_rep.exceptions import NotFetched, RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.policy import Decide, Drop, Hold, Pass, Situation, Wait
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.waiting import Waiting
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.waiting_room import Place
    from scrapy_rep.protocol import Decision
    from scrapy_rep.reporting.recorder import Recorder

Decided: TypeAlias = "Coroutine[Any, Any, Request | None] | Request | None"
"""What ``process_request`` returns."""


async def settled(decided: Decided) -> Request | None:
    """Await *decided* if it takes time."""
    return await decided if isinstance(decided, Coroutine) else decided


class Gate:
    """Handles every request that the middleware's fast path does not allow."""

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        recorder: Recorder,
        deferral: Deferral,
        overrules: Callable[[Request, Decision], bool],
    ) -> None:
        """:param overrules: whether a request passes although a decision forbids it"""
        self._crawler = context.crawler
        self._clock = context.clock
        self._stats = context.stats
        self.hits = StatCounter(context.crawler, context.engine, "rep/cache/hit")
        self._in_shell = in_shell(context.crawler)
        self._origins = origins
        self._policy = origins.policy
        self._chain_of = origins.agents.chain_of
        self._recorder = recorder
        self._deferral = deferral
        self._overrules = overrules
        self._waiting = Waiting(context, origins)

    def ask(self, request: Request, direct: bool) -> Decided:
        """Return what ``process_request`` should return.

        :param direct: a direct download, which can't be held
        :raises RobotsDisallowed, RobotsUnreachable: if it must not be fetched
        """
        if FOREIGN.match(request.url):
            return None
        try:
            found, path = self._origins.find(request)
        except ValueError as error:
            self._stats.inc_value("rep/invalid_url")
            why = f"the URL has no origin: {error}"
            self._refuse(request, RobotsUnreachable(None, why, cause=error))
            return None
        if isinstance(found, Origin):
            return None if path == ROBOTS_PATH else self._wait(request, found, path, direct)
        if found.standing is Standing.STALE:
            self._stats.inc_value("rep/cache/stale")
        else:
            self.hits.add(found.used_at)
        return self._act(request, found, path, direct)

    async def _wait(
        self, request: Request, origin: Origin, path: str, direct: bool
    ) -> Request | None:
        """Nothing is known of *origin*: wait for its robots.txt."""
        asked_before = self._origins.table.get(origin) is not None
        self._stats.inc_value("rep/cache/refresh" if asked_before else "rep/cache/miss")
        deferral, situation = self._deferral, self._situation(origin, direct)
        flight, place = await self._waiting.place_for(request, origin, situation)
        try:
            answer = await self._waiting.first(flight, situation, place)
            released = False
            if place is not None and isinstance(answer, Hold) and self._holds(place):
                released = await place.wait()
                if not released:
                    return deferral.interceptor.hand_over(request)
                deferral.releases.arrive(request)
        finally:
            if place is not None:
                self._origins.waiting_room.leave(place)
        goes_on = released or isinstance(answer, OriginState) or self._recorder.dry_run
        # Others are direct downloads, which those in the slots may wait for.
        scheduled = not direct and request in deferral.door
        if goes_on and scheduled and not await self._origins.waiting_room.slot():
            released, answer = False, self._policy.at_the_end(situation)
        if released:
            return await settled(self.ask(request, direct))
        if isinstance(answer, OriginState):
            return await settled(self._act(request, answer, path, direct))
        if self._replays(request, origin):
            return None
        return self._set_aside(request, origin, answer, direct=direct)

    def _holds(self, place: Place) -> bool:
        """Whether the request in *place* is held where it waits."""
        if self._recorder.dry_run or self._origins.http_cache.answers(place.request):
            return False
        if not self._deferral.hold_in_place(place):
            return False
        self._recorder.handed_over(place.request, place.origin)
        return True

    def _situation(self, origin: Origin, direct: bool) -> Situation:
        room, durable = self._deferral.held.room(origin), self._deferral.durable
        return Situation(direct, room, self._waiting.slot_free(origin), durable)

    def _act(self, request: Request, state: OriginState, path: str, direct: bool) -> Decided:
        """Act as the policy advises for *state*."""
        if path == ROBOTS_PATH:
            return None
        origin = state.origin
        situation = self._situation(origin, direct) if state.unreachable else Situation()
        advice = self._policy.advise(state, self._clock(), situation)
        if isinstance(advice, Decide):
            if self._origins.cache.takes_long(state, self._chain_of(request)):
                return self._read_then_decide(request, state, path)
            self._decide(request, state, path)
            return None
        if isinstance(advice, Pass):
            self._stats.inc_value("rep/unreachable/allowed")
            self._recorder.passed(request, state)
            return None
        if self._replays(request, origin):
            return None
        if isinstance(advice, Wait):
            return self._wait_again(request, state, path, advice.seconds)
        return self._set_aside(request, origin, advice, state, direct=direct)

    async def _read_then_decide(self, request: Request, state: OriginState, path: str) -> None:
        """Read a large file in a thread first."""
        await self._origins.cache.read(state, self._chain_of(request))
        self._decide(request, state, path)

    def _decide(self, request: Request, state: OriginState, path: str) -> None:
        """Let the rules decide.

        :raises RobotsDisallowed: if they forbid the request
        """
        everything = self._recorder.everything
        decision = self._origins.decide(state, self._chain_of(request), path, always=everything)
        if decision is None or decision.allowed:
            if everything or state.standing is Standing.UNRESTRICTED:
                self._recorder.allowed(request, state, decision)
        elif self._overrules(request, decision):
            self._recorder.overruled(request, state, decision)
        else:
            self._stats.inc_value("robotstxt/forbidden")
            self._refuse(request, RobotsDisallowed(state.origin, decision), state)
        self._origins.crawl_delay.choose_slot(request, state)

    async def _wait_again(
        self, request: Request, state: OriginState, path: str, seconds: float
    ) -> Request | None:
        """Wait for the next answer, which is near: a direct download can't be held."""
        answer = await self._waiting.again(request, state, seconds)
        if isinstance(answer, OriginState):
            return await settled(self._act(request, answer, path, direct=True))
        return self._set_aside(request, state.origin, answer, state, direct=True)

    def _replays(self, request: Request, origin: Origin) -> bool:
        """Whether *request* passes because Scrapy's HTTP cache answers it."""
        if not self._origins.http_cache.answers(request):
            return False
        self._stats.inc_value("rep/unreachable/replayed")
        self._recorder.replayed(request, origin)
        return True

    def _set_aside(
        self,
        request: Request,
        origin: Origin,
        advice: Hold | Drop,
        state: OriginState | None = None,
        *,
        direct: bool,
    ) -> Request | None:
        """Have *request* held, or drop it."""
        if isinstance(advice, Hold):
            self._recorder.handed_over(request, origin)
            # Returned to the engine and taken out when scheduled: see intercept.py.
            return None if self._recorder.dry_run else self._deferral.interceptor.hand_over(request)
        if advice.for_room:
            self._deferral.held.warn_full(origin)
        if advice.for_room or state is not None:
            self._stats.inc_value("rep/unreachable/dropped")
        error = RobotsUnreachable(origin, advice.reason, advice.attempts, advice.cause)
        self._refuse(request, error, state, direct=direct)
        return None

    def _refuse(
        self,
        request: Request,
        error: RobotsDisallowed | RobotsUnreachable,
        state: OriginState | None = None,
        *,
        direct: bool = False,
    ) -> None:
        """Fail *request* with *error*, unless this is a dry run."""
        self._recorder.dropped(request, error, state, direct=direct)
        if self._recorder.dry_run:
            return
        # Without a spider, the middleware is used alone, in somebody's test.
        if self._in_shell and self._crawler.spider and isinstance(error, RobotsUnreachable):
            raise NotFetched(str(error)) from error.__cause__
        raise error from error.__cause__  # not from what is being handled here

    async def may_fetch(self, url: str) -> bool:
        """See :func:`scrapy_rep.middleware.may_fetch`."""
        if FOREIGN.match(url) or self._recorder.dry_run:
            return True
        try:
            request = Request(url)
            found, path = self._origins.find(request)
        except ValueError:
            return False
        if path == ROBOTS_PATH:
            return True
        state = (
            found if isinstance(found, OriginState) else await self._waiting.alone(request, found)
        )
        if state is None or state.unreachable:
            return self._policy.unreachable == "allow"
        decision = self._origins.decide(state, self._chain_of(request), path, always=True)
        return decision is None or decision.allowed or self._overrules(request, decision)
