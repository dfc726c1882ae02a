"""What is known of each origin, in memory and in a storage that may outlive the process, and how an
answer changes it (REP.md sections 4 and 5)."""

from __future__ import annotations

import asyncio
import math
import random
import time
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadTimeoutError
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import CancelledError, DeferredLock

from scrapy_rep.engine import headers
from scrapy_rep.engine.pause import SLICE_SECONDS, pause
from scrapy_rep.origins.answer import (
    CONFIGURATION_ERRORS,
    NOT_ABOUT_SITE,
    Answer,
    ProjectError,
    ProxyError,
    is_dead_host,
    is_lost_connection,
    is_tls_failure,
    without_frames,
)
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.http_cache import HttpCache
from scrapy_rep.origins.state import OriginTable
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import (
    Standing,
    backoff,
    fresh_seconds,
    retry_after,
    standing,
    unreachable_seconds,
)
from scrapy_rep.storages.base import Entry
from scrapy_rep.storages.entry import MAX_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_rep.origins.flights import Flight
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings
    from scrapy_rep.storages.access import StorageAccess

# How often to look for another process's answer: at first, and at last.
_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0

# Until a lost connection is tried again.
_AT_ONCE_SECONDS = 0.5

# The pause after a proxy's failure, and how often it doubles at first: the next proxy may work. If as
# many as this have failed, probably none does.
_PROXY_SECONDS, _PROXY_STEPS, _PROXIES = 1.0, 3, 8

LARGE = 65_536
"""Bytes. A larger robots.txt is parsed in a thread: it would block the event loop for too long."""

_MAX_BROKEN = 10_000
"""Origins."""


class RobotsCache:
    """What is known of each origin and usable now."""

    def __init__(
        self,
        settings: RepSettings,
        table: OriginTable,
        fetcher: Fetcher | HttpCache,
        clock: Callable[[], float],
        storage: StorageAccess | HttpCache | None = None,
    ) -> None:
        """:param storage: outlives the process"""
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._storage = storage
        self._longest_fresh = max(settings.cache_ttl, settings.cache_max_ttl)
        self._table = table
        # Parsing threads compete with the event loop: one at a time.
        self._reading = DeferredLock()
        self._read_seconds = 0.0
        """Spent on parsing in the event loop since the last pause for it."""
        self._broken: dict[Origin, tuple[float, Exception]] = {}
        """Origins that the project prevents us from fetching: until when not to try, and why."""
        self._early: dict[str, float] = {}
        """Origins to be asked before their next attempt is due: the attempt before."""

    def sibling(self) -> RobotsCache:
        """Return a cache for another of the origins' files, with the same source and storage."""
        settings = self._settings
        table = OriginTable(settings.cache_max_origins, settings.cache_max_bytes, self._clock)
        # The HTTP cache stores other pages by itself.
        storage = None if isinstance(self._storage, HttpCache) else self._storage
        return RobotsCache(settings, table, self._fetcher, self._clock, storage)

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin* and usable now; None if a fetch is due."""
        state = self._table.get(origin)
        if state is None:
            return None
        now = state.used_at = self._clock()
        if now >= state.usable_until:
            self._judge(state, now)
        return None if state.standing is Standing.ASK else state

    def takes_long(self, state: OriginState, agent: tuple[str, ...]) -> bool:
        """Whether :meth:`read` has to prepare the rules for *agent*."""
        return self._is_unread(state, agent) and len(state.entry.body) > LARGE

    def _is_unread(self, state: OriginState, agent: tuple[str, ...]) -> bool:
        robots = state.robots
        return robots is not None and not robots.is_read(agent, self._settings.obey_global_group)

    async def read(
        self, state: OriginState, agent: tuple[str, ...], body: bytes | None = None
    ) -> None:
        """Prepare the rules for *agent*; those of a large file in a thread.

        :param body: of the robots.txt, if the caller has it
        """
        if not self._is_unread(state, agent):
            return
        await maybe_deferred_to_future(self._reading.acquire())
        try:
            robots, entry = state.robots, state.entry
            if robots is None or not self._is_unread(state, agent):
                return  # done for another request meanwhile
            began = time.perf_counter()
            body = entry.body if body is None else body
            settings = self._settings
            how = agent, settings.obey_global_group, settings.crawl_delay > 0
            if len(body) > LARGE:
                robots = RobotsTxt(entry)  # not shared with other requests until it is ready
                await run_in_thread(robots.preload, body, *how)
                if state.entry is entry:
                    state.robots = robots
            else:
                robots.preload(body, *how)
                self._read_seconds += time.perf_counter() - began
            self._table.weigh(state)
            if self._read_seconds > SLICE_SECONDS:
                self._read_seconds = 0.0
                await pause()  # a storage may have answered for hundreds of origins at once
        finally:
            self._reading.release()

    def ask_early(self, origin: Origin) -> None:
        """Have the next :meth:`ask` fetch, though the next attempt isn't due."""
        if state := self._table.get(origin):
            self._early[str(origin)] = state.entry.updated_at

    async def ask(
        self, origin: Origin, like: Request | None = None, flight: Flight | None = None
    ) -> tuple[OriginState, Answer | None]:
        """Have *origin*'s robots.txt fetched, here or by another process, and update what is known.

        :param like: a request to *origin*, see :meth:`Fetcher.fetch`
        :param flight: told while it can expire
        :returns: what is known now, and the answer; None if it came from the storage
        :raises Exception: one of :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`
        """
        broken_until, why = self._broken.get(origin, (-math.inf, None))
        if self._clock() < broken_until:
            raise ProjectError(str(why))
        storage = self._storage
        try:
            state = await self._recall(origin, storage) if storage else None
        finally:
            self._early.pop(str(origin), None)
        if state is not None:
            return state, None
        try:
            answer = await self._fetch(origin, like, flight)
            state = self._learn(origin, answer)
            self._broken.pop(origin, None)
        except BaseException as error:
            if storage:
                storage.give_back(str(origin))
            if isinstance(error, CONFIGURATION_ERRORS):
                self._remember_broken(origin, error)
            raise
        if storage:
            storage.publish(state.entry)
        return state, answer

    def failure(self, origin: Origin) -> Exception | None:
        """Return what the last attempt to fetch *origin*'s robots.txt raised, without a
        traceback, as far as that is known."""
        if origin in self._broken:
            return self._broken[origin][1]
        state = self._table.get(origin)
        return None if state is None else state.failure

    def _remember_broken(self, origin: Origin, error: Exception) -> None:
        if len(self._broken) >= _MAX_BROKEN:
            self._broken.clear()
        # A copy has no traceback, whose frames would stay in memory.
        kept = copy(error) if type(error) in CONFIGURATION_ERRORS else ProjectError(str(error))
        own = isinstance(error, ProjectError)
        until = self._clock() + self._settings.retry_max_delay if own else -math.inf
        self._broken[origin] = until, kept

    async def _fetch(self, origin: Origin, like: Request | None, flight: Flight | None) -> Answer:
        """Fetch *origin*'s robots.txt: twice if the connection is lost that has worked so far."""
        known = self._table.get(origin)
        if flight is not None:
            flight.fetching, flight.fetches = True, 1
            flight.asked_at, flight.before = self._clock(), known.entry if known else None
        try:
            answer = await self._fetcher.fetch(origin, like)
            known = self._table.get(origin)
            has_failed = known is not None and known.entry.attempts > known.entry.proxy_attempts
            lost = is_lost_connection(answer.error) or is_tls_failure(answer.error)
            if lost and not has_failed:
                await pause(min(_AT_ONCE_SECONDS, self._settings.retry_delay))
                if flight is not None:
                    flight.fetches += 1
                answer = await self._fetcher.fetch(origin, like)
        except (CancelledError, asyncio.CancelledError):
            if flight is None or not flight.expired:
                raise
            late = DownloadTimeoutError("no answer before the requests for it were given up")
            answer = Answer(Outcome.UNREACHABLE, origin.robots_url, 0, error=late)
        finally:
            if flight is not None:
                flight.fetching = False
        return answer

    async def _recall(
        self, origin: Origin, storage: StorageAccess | HttpCache
    ) -> OriginState | None:
        """Return what *storage* has of *origin*, after another process's fetch if there is one; None
        if the fetch is ours to make."""
        seconds = _POLL_SECONDS
        while True:
            claim = await storage.claim(str(origin), self._is_usable)
            state = self._table.get(origin)
            # An older, unusable entry was stored before the storage became unreachable.
            if claim.entry and (
                state is None
                or state.entry.updated_at < claim.entry.updated_at
                or self._is_usable(claim.entry)
            ):
                state = self._take(origin, claim.entry)
            if claim.granted:
                return None
            if state is not None:
                self._judge(state, self._clock())
                if self._is_usable(state.entry):
                    return state
            await pause(seconds)
            seconds = min(2 * seconds, _MAX_POLL_SECONDS)

    def _learn(self, origin: Origin, answer: Answer) -> OriginState:
        now = _in_range(self._clock())
        if answer.outcome is Outcome.UNREACHABLE:
            previous = self._table.get(origin)
            entry = self._failed(previous.entry if previous else Entry(str(origin)), answer, now)
            state = self._take(origin, entry)
            if answer.error is not None:
                state.raised = without_frames(answer.error)
                self._table.weigh(state)
            return state
        settings = self._settings
        lifetime = fresh_seconds(
            headers.text(answer.headers, "Cache-Control"),
            headers.text(answer.headers, "Age"),
            default=settings.cache_ttl,
            minimum=settings.cache_min_ttl,
            maximum=settings.cache_max_ttl,
        )
        until = _in_range(now + lifetime)
        entry = answer.entry(str(origin), updated_at=now, fetched_at=now, fresh_until=until)
        return self._take(origin, entry)

    def _take(self, origin: Origin, entry: Entry) -> OriginState:
        state = self._table.put(origin, entry)
        self._judge(state, self._clock())
        return state

    def _failed(self, entry: Entry, answer: Answer, now: float) -> Entry:
        settings = self._settings
        attempts, proxy_attempts = entry.attempts + 1, entry.proxy_attempts
        unreachable_for = entry.unreachable_for
        about_site = not isinstance(answer.error, NOT_ABOUT_SITE)
        if about_site:
            unreachable_for = unreachable_seconds(
                unreachable_for,
                entry.attempts - proxy_attempts,
                now - entry.updated_at,
                settings.unreachable_limit,
            )
        is_proxys = isinstance(answer.error, ProxyError)
        proxy_attempts += is_proxys
        dead = is_dead_host(answer.error)
        wait = retry_after(headers.text(answer.headers, "Retry-After"), now)
        delay = backoff(
            _proxy_step(proxy_attempts) if is_proxys else attempts - proxy_attempts,
            base=min(_PROXY_SECONDS, settings.retry_delay) if is_proxys else settings.retry_delay,
            maximum=settings.retry_max_delay,
            jitter=random.random(),  # noqa: S311 (nobody gains by guessing it)
            retry_after=wait,
        )
        return replace(
            entry,
            updated_at=now,
            unreachable_since=now if entry.unreachable_since is None else entry.unreachable_since,
            unreachable_for=_in_range(unreachable_for),
            attempts=attempts,
            proxy_attempts=proxy_attempts,
            dead_attempts=entry.dead_attempts + dead if dead or is_proxys else 0,
            next_attempt_at=_in_range(now + delay),
            not_before=_in_range(now + min(delay, wait)) if wait else 0.0,
            error=answer.reason,
        )

    def _judge(self, state: OriginState, now: float) -> None:
        """Set what *state* is good for from *now* on."""
        state.rules = None
        state.standing, state.usable_until = self._standing(state.entry, now)

    def _is_usable(self, entry: Entry) -> bool:
        if entry.unreachable_since is not None and entry.updated_at <= self._early.get(
            entry.origin, -math.inf
        ):
            return False
        return self._standing(entry, self._clock())[0] is not Standing.ASK

    def _standing(self, entry: Entry, now: float) -> tuple[Standing, float]:
        settings = self._settings
        return standing(
            now,
            # Another user of the storage may have a clock that is years ahead.
            fresh_until=_credible(entry.fresh_until, now, self._longest_fresh),
            has_copy=entry.has_copy,
            unreachable_since=entry.unreachable_since,
            unreachable_for=entry.unreachable_for,
            next_attempt_at=_credible(entry.next_attempt_at, now, settings.retry_max_delay),
            limit=settings.unreachable_limit,
        )


def _proxy_step(failures: int) -> int:
    """Return which of the growing pauses comes after so many failures of proxies."""
    return max(min(failures, _PROXY_STEPS), failures - _PROXIES + _PROXY_STEPS)


def _in_range(time: float) -> float:
    """Return *time* within an entry's limits. Settings and clocks have none."""
    return min(max(time, 0.0), MAX_TIME)


def _credible(time: float, now: float, longest: float) -> float:
    """Return *time*, or 0 if it is impossibly far off."""
    return time if time - now <= longest else 0.0
