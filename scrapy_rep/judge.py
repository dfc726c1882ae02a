"""Applies the rules to requests that the middleware's fast path doesn't allow (REP.md).

What passed the gate is decided at once. Others (direct downloads, and requests whose origin was
forgotten after the gate) wait for their robots.txt beside the download slots.
``RobotsDisallowed`` and ``RobotsUnreachable`` are raised here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from scrapy import Request
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.lifecycle import in_shell
from scrapy_rep.engine.text import text_of
from scrapy_rep.exceptions import NotFetched, RobotsDisallowed, RobotsUnreachable
from scrapy_rep.holding.gate import Gate
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import CrawlEnding, StillWaiting
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Decide, Drop, Pass, Wait
from scrapy_rep.origins.requests import FOREIGN, origin_of
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Decision
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.origin import ROBOTS_PATH, Origin
from scrapy_rep.reporting.record import IMPOLITE
from scrapy_rep.reporting.recorder import Recorder

Decided: TypeAlias = "Coroutine[Any, Any, None] | None"
"""What ``process_request`` returns."""


async def settled(decided: Decided) -> None:
    """Await *decided* if it takes time."""
    if decided is not None:
        await decided


class Judge:
    """Decides on requests."""

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        recorder: Recorder,
        gate: Gate,
        overrules: Callable[[Request, Decision], bool],
    ) -> None:
        """:param overrules: whether a request passes although a decision forbids it"""
        self._gate = gate
        self._context = context
        self._stats = context.stats
        self._in_shell = in_shell(context.crawler)
        self._origins = origins
        self._policy = origins.policy
        self._chain_of = origins.agents.chain_of
        self._recorder = recorder
        self._overrules = overrules

    def ask(self, request: Request) -> Decided:
        """Return what ``process_request`` should return.

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
            return None if path == ROBOTS_PATH else self._wait(request, found, path)
        if found.standing is Standing.STALE:
            self._stats.inc_value("rep/cache/stale")
        else:
            self._stats.inc_value("rep/cache/hit")
        return self._act(request, found, path)

    async def _wait(self, request: Request, origin: Origin, path: str) -> None:
        """Nothing is known of *origin*: wait for its robots.txt."""
        known = self._origins.table.get(origin)
        replays = self._origins.http_cache.answers(request)
        if known is not None and not known.unreachable and request in self._gate and not replays:
            # The answer that let it pass the gate counts, though it has become due since.
            self._stats.inc_value("rep/cache/hit")
            await settled(self._act(request, known, path))
            return
        asked_before = known is not None
        self._stats.inc_value("rep/cache/refresh" if asked_before else "rep/cache/miss")
        flight = self._origins.flights.to(origin, request)
        if self._recorder.dry_run or replays:
            answer = await self._answer(flight.wait(flight.left_of(self._policy.grace)))
        else:
            with self._context.engine.extra_slot():  # it may wait long
                answer = await self._answer(flight.wait())
        if isinstance(answer, OriginState):
            await settled(self._act(request, answer, path))
        elif self._replays(request, origin):
            return
        elif answer is None:
            self._recorder.would_be_held(request, origin)
        else:
            self._drop(request, origin, answer)

    def _act(self, request: Request, state: OriginState, path: str) -> Decided:
        """Act as the policy advises for *state*."""
        if path == ROBOTS_PATH:
            return None
        advice = self._policy.in_the_middleware(state, self._context.clock())
        if isinstance(advice, Decide):
            if self._origins.cache.takes_long(state, self._chain_of(request)):
                return self._read_then_decide(request, state, path)
            self._decide(request, state, path)
        elif isinstance(advice, Pass):
            self._stats.inc_value("rep/unreachable/allowed")
            reason = f"{IMPOLITE}; {state.entry.error}"
            self._recorder.record(request, state.origin, "allowed", state, reason=reason)
        elif self._replays(request, state.origin):
            pass
        elif self._recorder.dry_run and self._policy.is_worth_waiting(state):
            self._recorder.would_be_held(request, state.origin)
        elif isinstance(advice, Wait):
            return self._wait_again(request, state, path, advice.seconds)
        else:
            self._drop(request, state.origin, advice, state)
        return None

    async def _read_then_decide(self, request: Request, state: OriginState, path: str) -> None:
        """Read a large file in a thread first."""
        await self._origins.cache.read(state, self._chain_of(request))
        self._decide(request, state, path)

    def _decide(self, request: Request, state: OriginState, path: str) -> None:
        """Let the rules decide.

        :raises RobotsDisallowed: if they forbid the request
        """
        everything = self._recorder.everything or bool(state.by)
        decision = self._origins.decide(state, self._chain_of(request), path, always=everything)
        if decision is None or decision.allowed:
            if everything or state.standing is Standing.UNRESTRICTED:
                self._recorder.record(request, state.origin, "allowed", state, decision)
            else:
                state.allowed += 1
        elif self._overrules(request, decision):
            reason = "RepMiddleware.overrules()"
            self._recorder.record(request, state.origin, "allowed", state, decision, reason=reason)
        else:
            self._stats.inc_value("robotstxt/forbidden")
            self._refuse(request, RobotsDisallowed(state.origin, decision, state.by), state)
        self._origins.crawl_delay.choose_slot(request, state)

    async def _wait_again(
        self, request: Request, state: OriginState, path: str, seconds: float
    ) -> None:
        """Wait for the next answer, which is near: this request can't be held."""
        with self._context.engine.extra_slot():
            news = await self._answer(self._next(request, state.origin, seconds))
        state = news if isinstance(news, OriginState) else state
        if isinstance(news, Drop) or state.unreachable:
            drop = news if isinstance(news, Drop) else Drop.of(state)
            self._drop(request, state.origin, drop, state)
        else:
            await settled(self._act(request, state, path))

    async def _next(self, request: Request, origin: Origin, seconds: float) -> OriginState:
        """Return the answer to the next attempt, which may start in so many *seconds*."""
        await self._origins.flights.rest(origin, seconds)
        left = self._context.settings.download_timeout - seconds
        news = self._origins.cache.get(origin)
        return news or await self._origins.flights.to(origin, request, again=True).wait(left)

    async def _answer(self, waiting: Awaitable[OriginState]) -> OriginState | Drop | None:
        """Return what is waited for, or why there will be none; None if it takes too long."""
        try:
            return await waiting
        except StillWaiting:
            return None
        except CrawlEnding:
            return Drop("the crawl is ending")
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            # A wrong configuration, or a bug, which Flights logs. The request is innocent.
            return Drop(text_of(error), cause=error)

    def _replays(self, request: Request, origin: Origin) -> bool:
        """Whether *request* passes because Scrapy's HTTP cache answers it."""
        if not self._origins.http_cache.answers(request):
            return False
        self._stats.inc_value("rep/unreachable/replayed")
        reason = f"the HTTP cache answers it; {self._recorder.why_held(origin)}"
        self._recorder.record(request, origin, "allowed", reason=reason)
        return True

    def drop(self, request: Request, drop: Drop) -> None:
        """Drop *request*, as was decided at the gate.

        :raises RobotsUnreachable: always, unless this is a dry run
        """
        origin = origin_of(request)
        self._stats.inc_value("rep/cache/hit")
        self._drop(request, origin, drop, self._origins.cache.get(origin))

    def _drop(
        self, request: Request, origin: Origin, drop: Drop, state: OriginState | None = None
    ) -> None:
        if drop.for_room or state is not None:
            self._stats.inc_value("rep/unreachable/dropped")
        error = RobotsUnreachable(origin, drop.reason, drop.attempts, drop.cause)
        self._refuse(request, error, state)

    def _refuse(
        self,
        request: Request,
        error: RobotsDisallowed | RobotsUnreachable,
        state: OriginState | None = None,
    ) -> None:
        """Fail *request* with *error*, unless this is a dry run."""
        self._recorder.dropped(request, error, state, direct=request not in self._gate)
        if self._recorder.dry_run:
            return
        # Without a spider, the middleware is used alone, in somebody's test.
        if self._in_shell and self._context.spider and isinstance(error, RobotsUnreachable):
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
        if isinstance(found, Origin):
            state = await self._answer(self._origins.flights.to(found, request).wait())
        else:
            state = found
        if not isinstance(state, OriginState) or state.unreachable:
            return self._policy.unreachable == "allow"
        decision = self._origins.decide(state, self._chain_of(request), path, always=True)
        return decision is None or decision.allowed or self._overrules(request, decision)
