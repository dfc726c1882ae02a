"""What is known of each origin, and what an answer adds to it (REP.md sections 4 and 5).

What is known in memory is in `origins/table.py`. Behind that a storage may be, which outlives the process.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine import headers
from scrapy_rep.engine.pause import pause
from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.failures import DEAD_HOST_ERRORS, ProjectError, ProxyError
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.http_cache import HttpCache
from scrapy_rep.origins.table import OriginTable
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

    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings
    from scrapy_rep.storages.access import StorageAccess

# While another process asks, its answer is looked for so often: first, and at most (seconds).
_POLL_SECONDS = 0.05
_MAX_POLL_SECONDS = 1.0


LARGE = 65_536
"""Bytes. To read a larger robots.txt takes longer than the event loop may be held: a thread does it."""

# Of this many origins it is remembered that the project keeps us from asking them.
_MAX_BROKEN = 10_000


class RobotsCache:
    """What is known of each origin, and may be used now."""

    def __init__(
        self,
        settings: RepSettings,
        table: OriginTable,
        fetcher: Fetcher | HttpCache,
        clock: Callable[[], float],
        storage: StorageAccess | HttpCache | None = None,
    ) -> None:
        """:param storage: what outlives the process"""
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._storage = storage
        self._longest_fresh = max(settings.cache_ttl, settings.cache_max_ttl)
        self._table = table
        # Threads that read take the event loop's turns: one of them at a time.
        self._reading = DeferredLock()
        self._broken: dict[Origin, tuple[float, str]] = {}
        """What the project's own code has kept us from asking: until when we don't try, and why."""

    def sibling(self) -> RobotsCache:
        """Return a cache for another file of origins, which has the same source and storage."""
        settings = self._settings
        table = OriginTable(settings.cache_max_origins, settings.cache_max_bytes, self._clock)
        # The HTTP cache keeps pages for replays by itself, where the project wants them.
        storage = None if isinstance(self._storage, HttpCache) else self._storage
        return RobotsCache(settings, table, self._fetcher, self._clock, storage)

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin* and may be used now, None if it has to be asked."""
        state = self._table.get(origin)
        if state is None:
            return None
        now = state.used_at = self._clock()
        if now >= state.usable_until:
            self._judge(state, now)
        return None if state.standing is Standing.ASK else state

    def takes_long(self, state: OriginState, agent: tuple[str, ...]) -> bool:
        """Whether the rules for *agent* have to be made ready by :meth:`read`."""
        robots = state.robots
        if robots is None or robots.is_read(agent, self._settings.obey_global_group):
            return False
        return len(state.entry.body) > LARGE

    async def read(
        self, state: OriginState, agent: tuple[str, ...], body: bytes | None = None
    ) -> None:
        """Have the rules for *agent* ready: a large file is read in a thread, since that takes
        longer than the event loop may be held.

        :param body: of the robots.txt, if the caller has it at hand
        """
        obey_global = self._settings.obey_global_group
        if state.robots is None or state.robots.is_read(agent, obey_global):
            return
        await maybe_deferred_to_future(self._reading.acquire())
        try:
            robots, entry = state.robots, state.entry
            if robots is None or robots.is_read(agent, obey_global):
                return  # another request has had it read meanwhile
            body = entry.body if body is None else body
            with_delay = self._settings.crawl_delay > 0
            if len(body) > LARGE:
                # Nobody sees it before it is ready.
                robots = RobotsTxt(entry)
                await run_in_thread(robots.preload, body, agent, obey_global, with_delay)
                if state.entry is entry:
                    state.robots = robots
            else:
                robots.preload(body, agent, obey_global, with_delay)
            self._table.weigh(state)
        finally:
            self._reading.release()

    async def ask(
        self, origin: Origin, like: Request | None = None
    ) -> tuple[OriginState, Answer | None]:
        """Have *origin*'s robots.txt fetched, here or by another process, and take in what came
        of it.

        :param like: a request to *origin*, see :meth:`Fetcher.fetch`
        :returns: what is known now, and the answer; None if it came from the storage
        :raises Exception: one of :data:`~scrapy_rep.origins.failures.CONFIGURATION_ERRORS`
        """
        answer: Answer | None = None
        self._raise_if_broken(origin)
        storage = self._storage
        state = await self._recall(origin, storage) if storage else None
        if state is None:
            try:
                answer = await self._fetcher.fetch(origin, like)
                state = self._learn(origin, answer)
            except BaseException as error:
                if storage:
                    storage.give_back(str(origin))
                if isinstance(error, ProjectError):
                    self._remember_broken(origin, error)
                raise
            if storage:
                storage.publish(state.entry)
        return state, answer

    def _remember_broken(self, origin: Origin, error: ProjectError) -> None:
        if len(self._broken) >= _MAX_BROKEN:
            self._broken.clear()
        self._broken[origin] = (self._clock() + self._settings.retry_max_delay, str(error))

    def _raise_if_broken(self, origin: Origin) -> None:
        broken = self._broken.get(origin)
        if broken and self._clock() < broken[0]:
            raise ProjectError(broken[1])

    async def _recall(
        self, origin: Origin, storage: StorageAccess | HttpCache
    ) -> OriginState | None:
        """Return what *storage* knows of *origin*, waiting for another process that asks for it;
        None if it has to be asked, by us."""
        seconds = _POLL_SECONDS
        while True:
            claim = await storage.claim(str(origin), self._is_usable)
            state = self._table.get(origin)
            # A stored entry that is older than ours and no longer usable was saved before the storage
            # became unreachable.
            if claim.entry and (
                state is None
                or state.entry.updated_at < claim.entry.updated_at
                or self._is_usable(claim.entry)
            ):
                state = self._take(origin, claim.entry)
            if claim.granted:
                return None
            if state is not None:
                self._judge(state, self._clock())  # time has passed since it was
                if state.standing is not Standing.ASK:
                    return state
            await pause(seconds)
            seconds = min(2 * seconds, _MAX_POLL_SECONDS)

    def _learn(self, origin: Origin, answer: Answer) -> OriginState:
        """Take in what a fetch brought."""
        now = _in_range(self._clock())
        previous = self._table.get(origin)
        if answer.outcome is Outcome.UNREACHABLE:
            entry = self._failed(previous.entry if previous else Entry(str(origin)), answer, now)
        else:
            entry = self._answered(origin, answer, now)
        return self._take(origin, entry)

    def _take(self, origin: Origin, entry: Entry) -> OriginState:
        """Take a newer entry in."""
        state = self._table.put(origin, entry)
        self._judge(state, self._clock())
        return state

    def _answered(self, origin: Origin, answer: Answer, now: float) -> Entry:
        settings = self._settings
        lifetime = fresh_seconds(
            headers.text(answer.headers, "Cache-Control"),
            headers.text(answer.headers, "Age"),
            default=settings.cache_ttl,
            minimum=settings.cache_min_ttl,
            maximum=settings.cache_max_ttl,
        )
        fresh_until = _in_range(now + lifetime)
        return answer.entry(str(origin), updated_at=now, fetched_at=now, fresh_until=fresh_until)

    def _failed(self, entry: Entry, answer: Answer, now: float) -> Entry:
        settings = self._settings
        attempts = entry.attempts + 1
        about_site = not isinstance(answer.error, ProxyError)
        dead = isinstance(answer.error, DEAD_HOST_ERRORS)
        delay = backoff(
            attempts,
            base=settings.retry_delay,
            maximum=settings.retry_max_delay,
            jitter=random.random(),  # noqa: S311 (nobody gains by guessing it)
            retry_after=retry_after(headers.text(answer.headers, "Retry-After"), now),
        )
        return replace(
            entry,
            updated_at=now,
            unreachable_since=now if entry.unreachable_since is None else entry.unreachable_since,
            unreachable_for=_in_range(
                unreachable_seconds(
                    entry.unreachable_for,
                    entry.attempts,
                    now - entry.updated_at,
                    settings.unreachable_limit,
                )
            )
            if about_site
            else entry.unreachable_for,
            attempts=attempts,
            dead_attempts=entry.dead_attempts + dead if dead or not about_site else 0,
            next_attempt_at=_in_range(now + delay),
            error=answer.reason,
        )

    def _judge(self, state: OriginState, now: float) -> None:
        """Say what *state* is good for from *now* on."""
        state.rules = None
        state.standing, state.usable_until = self._standing(state.entry, now)

    def _is_usable(self, entry: Entry) -> bool:
        return self._standing(entry, self._clock())[0] is not Standing.ASK

    def _standing(self, entry: Entry, now: float) -> tuple[Standing, float]:
        settings = self._settings
        return standing(
            now,
            # Whoever shares a storage may have a clock that is years ahead.
            fresh_until=_credible(entry.fresh_until, now, self._longest_fresh),
            has_copy=entry.has_copy,
            unreachable_since=entry.unreachable_since,
            unreachable_for=entry.unreachable_for,
            next_attempt_at=_credible(entry.next_attempt_at, now, settings.retry_max_delay),
            limit=settings.unreachable_limit,
        )


def _in_range(time: float) -> float:
    """Return *time* as an entry can have it: settings and clocks know no limits."""
    return min(max(time, 0.0), MAX_TIME)


def _credible(time: float, now: float, longest: float) -> float:
    """Return *time*, or 0 if that is farther off than it could be."""
    return time if time - now <= longest else 0.0
