"""What is known of each origin, in memory and in a storage that may outlive the process; how an
answer changes it; how to wait for another process that is fetching (REP.md sections 4 and 5)."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from scrapy.exceptions import DownloadFailedError
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.timers import SLICE_SECONDS, pause
from scrapy_rep.origins.answer import (
    NOT_ABOUT_SITE,
    Answer,
    ProjectError,
    ProxyError,
    header_text,
    in_place_of,
    is_dead_host,
    is_lost_connection,
    is_tls_failure,
)
from scrapy_rep.origins.choices import Choices, in_outage, is_own
from scrapy_rep.origins.fetcher import Allowance, Fetcher
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.flights import CANCELLED, is_ending_with_loop
from scrapy_rep.origins.state import OriginState, OriginTable
from scrapy_rep.origins.status import (
    UNKNOWN,
    Answered,
    Event,
    Failed,
    Fresh,
    Misconfigured,
    NotAccepted,
    NotConfigured,
    Status,
    Stored,
    Unknown,
    after,
    expired,
)
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import (
    BLACKOUT,
    backoff,
    fresh_seconds,
    retry_after,
    unreachable_seconds,
)
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import MAX_TIME, Entry, squeeze
from scrapy_rep.storages.client import StorageClient

# How often to look for another process's answer: at first, at last.
_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 1.0

# Until a lost connection is tried again.
_AT_ONCE_SECONDS = 0.5

# Of REP_HOLD_MAX_WAIT: a fetch fails before those that wait for it are given up, else it wouldn't count.
_FETCH_SHARE = 0.9

# The pause after a proxy's failure: the next proxy may work. It doubles up to this step.
_PROXY_SECONDS, _PROXY_STEPS = 1.0, 3

LARGE_BYTES = 65_536
"""Bytes. A larger robots.txt would block the event loop, so it is parsed in a thread."""

# A page's answer is remembered at most this often.
_PAGE_SECONDS = 3600.0

_MAX_MISCONFIGURED = 10_000
"""Origins that are remembered as misconfigured."""


class RobotsCache:
    def __init__(
        self,
        settings: RepSettings,
        fetcher: Fetcher,
        clock: Callable[[], float],
        storage: StorageClient | None = None,
        choices: Choices | None = None,
        running: Callable[[], float] = time.monotonic,
    ) -> None:
        """*storage* outlives the process. *choices*: what the project chooses beyond the protocol.
        *running*: seconds for which the crawl has run."""
        self._running = running
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._storage = storage
        self.table = OriginTable(
            settings.cache_max_origins, settings.cache_max_bytes, clock
        )
        self.choices = choices
        # Parsing threads compete with the event loop: one at a time.
        self._reading = DeferredLock()
        self._read_seconds = 0.0
        """Time spent on parsing in the event loop since the last pause for it."""
        self._misconfigured: dict[Origin, Misconfigured] = {}
        """Origins that the project prevents us from fetching."""

    def sibling(self) -> RobotsCache:
        """Return a cache for another of the origins' files, with the same source and storage."""
        return RobotsCache(
            self._settings,
            self._fetcher,
            self._clock,
            self._storage,
            running=self._running,
        )

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin* and usable now; None if a fetch is due."""
        state = self.look_up(origin)
        if state is None:
            return None
        now = state.used_at = self._clock()
        if now < state.status.until:
            return state
        state.become(expired(state.status))
        return None

    def look_up(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin*, usable or not."""
        state = self.table.get(origin)
        if state is not None and isinstance(state.status, Unknown):
            self._judge(state, is_stored=True)  # it was packed
        return state

    def status_of(self, origin: Origin) -> tuple[Status, OriginState | None]:
        """Return the status of *origin*, and what else is known of it."""
        state = self.look_up(origin)
        misconfigured = self._misconfigured.get(origin)
        if misconfigured is not None:
            if self._clock() < misconfigured.until:
                return misconfigured, state
            del self._misconfigured[origin]  # what else is known counts again
        if state is None:
            return UNKNOWN, None
        # Of a failure, the time of the next attempt counts: the clock may be set.
        if isinstance(state.status, Fresh) and self._clock() >= state.status.until:
            state.become(expired(state.status))
        return state.status, state

    def takes_long(self, state: OriginState, agent: tuple[str, ...]) -> bool:
        """Whether :meth:`read` has to prepare the rules for *agent* in a thread."""
        robots = state.robots
        unread = robots and not robots.is_read(agent, self._settings.obey_global_group)
        return bool(unread) and len(state.entry.body) > LARGE_BYTES

    async def read(
        self,
        state: OriginState,
        agent: tuple[str, ...],
        body: bytes = b"",
        always: bool = False,
    ) -> None:
        """Prepare the rules for *agent*, of a large file in a thread. *body*: if known. *always*: the
        group for "*" applies, whatever ``REP_OBEY_GLOBAL_GROUP`` says."""
        entry, robots, settings = state.entry, state.robots, self._settings
        obey = always or settings.obey_global_group
        if robots is None or robots.is_read(agent, obey):
            return
        how = body or entry.body, agent, obey, bool(settings.crawl_delay)
        await maybe_deferred_to_future(self._reading.acquire())
        try:
            if self._read_seconds > SLICE_SECONDS:
                self._read_seconds = 0.0
                await (
                    pause()
                )  # a storage may have answered for hundreds of origins at once
            if state.entry is entry:
                robots = state.robots or robots
            if robots.is_read(agent, obey):
                return  # for another request, meanwhile
            if len(how[0]) > LARGE_BYTES:
                # Not shared with other requests until it is ready; what others asked for stays.
                robots = copy(robots)
                await run_in_thread(robots.preload, *how)
            else:
                began = time.perf_counter()
                robots.preload(*how)
                self._read_seconds += time.perf_counter() - began
            if state.entry is entry:
                state.robots = robots
                self.table.weigh(state)
        finally:
            self._reading.release()

    async def ask(self, flight: Flight) -> OriginState:
        """Get the robots.txt of the flight's origin fetched, here or by another process. Return
        what is known now. Raises :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        origin, storage, choices = flight.origin, self._storage, self.choices
        if choices is not None:
            own_answer = choices.own_answer(origin, self._clock())
            if own_answer is not None:
                flight.answer = own_answer
                return self._learn(origin, own_answer)
            self._forget_own_answer(origin)
        status, _ = self.status_of(origin)
        if isinstance(status, Misconfigured):
            raise ProjectError(status.reason)
        state = await self._recall(flight, storage) if storage else None
        if state is not None:
            return state
        try:
            answer = in_place_of(await self._fetch(flight), flight.before)
            if choices is not None and (by := choices.refusal(answer)):
                answer = replace(answer, outcome=Outcome.UNREACHABLE, setting=by)
            flight.answer, state = answer, self._learn(origin, answer)
            self._misconfigured.pop(origin, None)
        except BaseException as error:
            if storage:
                storage.give_back(str(origin))
            # Other errors may be due to what one request wants: a proxy, say.
            if isinstance(error, ProjectError):
                self._note_misconfiguration(origin, error)
            raise
        if storage:
            storage.publish(state.entry)
        return state

    def _forget_own_answer(self, origin: Origin) -> None:
        """Forget the project's answer, which has ended: it is no older copy of the origin's."""
        state = self.table.get(origin)
        if state is not None and is_own(state.entry):
            self._take(origin, Entry(str(origin)))

    def _note_misconfiguration(self, origin: Origin, error: ProjectError) -> None:
        status, _ = self.status_of(origin)
        event = NotConfigured(
            self._clock() + self._settings.retry_max_delay, str(error)
        )
        if len(self._misconfigured) >= _MAX_MISCONFIGURED:
            self._misconfigured.clear()
        changed = after(status, event)
        assert isinstance(changed, Misconfigured)
        self._misconfigured[origin] = changed

    async def _recall(
        self, flight: Flight, storage: StorageClient
    ) -> OriginState | None:
        """Return what *storage* has of the flight's origin, after another process's fetch if there is one;
        None if the fetch is ours to make."""
        origin = flight.origin
        state = self.table.get(origin)
        known, seconds = state.entry.updated_at if state else -math.inf, _POLL_SECONDS

        def is_enough(entry: Entry) -> bool:
            refused = self.choices is not None and self.choices.refusal(entry)
            usable = self._is_usable(entry)
            return entry.updated_at > known and usable and not refused

        while True:
            claim = await storage.claim(str(origin), is_enough)
            # An older entry was stored before the storage became unreachable.
            if claim.entry and claim.entry.updated_at > known:
                state = self._take(origin, claim.entry, is_stored=True)
                if is_enough(claim.entry) and not claim.granted:
                    return state
            if claim.granted:
                return None
            flight.queued(True)  # behind another process
            await pause(seconds)
            flight.queued(False)
            seconds = min(2 * seconds, _MAX_POLL_SECONDS)

    async def _fetch(self, flight: Flight) -> Answer:
        """Fetch robots.txt: twice if a connection is lost that has worked so far."""
        known = self.table.get(flight.origin)
        entry, settings = known.entry if known else None, self._settings
        longest_wait = max(settings.hold_max_wait, settings.hold_grace)
        allowance = Allowance(settings.download_timeout, _FETCH_SHARE * longest_wait)
        flight.fetches, flight.asked_at, flight.before = 1, self._clock(), entry
        answer = await self._fetch_once(flight, allowance)
        works, error = (
            entry is None or entry.attempts <= entry.proxy_attempts,
            answer.error,
        )
        if works and error and (is_lost_connection(error) or is_tls_failure(error)):
            await pause(min(_AT_ONCE_SECONDS, settings.retry_delay))
            if allowance.seconds > 0:
                flight.fetches += 1
                answer = await self._fetch_once(flight, allowance)
        return answer

    async def _fetch_once(self, flight: Flight, allowance: Allowance) -> Answer:
        origin = flight.origin
        try:
            return await self._fetcher.fetch(
                origin, flight.request, allowance, flight.queued
            )
        except CANCELLED as error:
            if flight.is_abandoned or is_ending_with_loop(error):
                raise
            # A middleware or handler of the project's awaited what a timeout cancelled, say.
            why = DownloadFailedError("the project's own code cancelled the download")
            return Answer(Outcome.UNREACHABLE, origin.robots_url, 0, error=why)

    def page_answered(self, origin: Origin) -> None:
        """Note that a page of *origin* answered. If robots.txt doesn't, later runs need to know, too."""
        state, now = self.table.get(origin), self._clock()
        if (
            state is None
            or state.entry.unreachable_since is None
            or now >= state.status.until
        ):
            return
        if abs(now - state.entry.page_answered_at) > _PAGE_SECONDS:
            state.entry = replace(
                state.entry, page_answered_at=min(max(now, 0.0), MAX_TIME)
            )
            if self._storage:
                self._storage.publish(state.entry)

    def _learn(self, origin: Origin, answer: Answer) -> OriginState:
        settings, now = self._settings, min(max(self._clock(), 0.0), MAX_TIME)
        if answer.outcome is Outcome.UNREACHABLE:
            previous = self.table.get(origin)
            entry = self._failed(
                previous.entry if previous else Entry(str(origin)), answer, now
            )
            return self._take(origin, entry)
        lifetime = fresh_seconds(
            header_text(answer.headers, "Cache-Control"),
            header_text(answer.headers, "Age"),
            default=settings.cache_ttl,
            minimum=settings.cache_min_ttl,
            maximum=settings.cache_max_ttl,
        )
        about: dict[str, Any] = {
            "status": answer.status,
            "url": answer.url,
            "hops": answer.hops,
        }
        about |= {
            "wall": answer.wall,
            "updated_at": now,
            "fetched_at": now,
            "fresh_until": min(now + lifetime, answer.ends_at, MAX_TIME),
        }
        if answer.outcome is Outcome.RULES:
            body = cut(answer.body)
            about |= {
                "packed": squeeze(body),
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        return self._take(origin, Entry(str(origin), outcome=answer.outcome, **about))

    def _failed(self, entry: Entry, answer: Answer, now: float) -> Entry:
        settings = self._settings
        is_proxys, dead = (
            isinstance(answer.error, ProxyError),
            is_dead_host(answer.error),
        )
        attempts, proxy_attempts = entry.attempts + 1, entry.proxy_attempts + is_proxys
        step, base = attempts - proxy_attempts, settings.retry_delay
        if is_proxys:
            step, base = min(proxy_attempts, _PROXY_STEPS), min(_PROXY_SECONDS, base)
        wait = retry_after(header_text(answer.headers, "Retry-After"), now)
        delay = backoff(
            step,
            base=base,
            maximum=settings.retry_max_delay,
            jitter=random.random(),  # noqa: S311 (nobody gains by guessing it)
            retry_after=wait,
        )
        return replace(
            entry,
            updated_at=now,
            unreachable_since=now
            if entry.unreachable_since is None
            else entry.unreachable_since,
            unreachable_for=min(self._unreachable_for(entry, answer, now), MAX_TIME),
            attempts=attempts,
            proxy_attempts=proxy_attempts,
            dead_attempts=entry.dead_attempts + dead if dead or is_proxys else 0,
            next_attempt_at=min(now + delay, MAX_TIME),
            not_before=min(now + delay, now + wait, MAX_TIME) if wait else 0.0,
            error=answer.reason,
        )

    def _unreachable_for(self, entry: Entry, answer: Answer, now: float) -> float:
        known = entry.unreachable_for
        if isinstance(answer.error, NOT_ABOUT_SITE):
            return known
        ladder = self.choices is not None and self.choices.ladder
        # Twelve hours, too, are attempts that were made, spread over that time.
        limit = (
            BLACKOUT
            if ladder and known < BLACKOUT
            else self._settings.unreachable_limit
        )
        attempts = entry.attempts - entry.proxy_attempts
        return unreachable_seconds(known, attempts, now - entry.updated_at, limit)

    def _take(
        self, origin: Origin, entry: Entry, *, is_stored: bool = False
    ) -> OriginState:
        if self.choices is not None and self.choices.refusal(entry):
            entry = Entry(entry.origin)
        state = self.table.put(origin, entry)
        self._judge(state, is_stored=is_stored)
        return state

    def _judge(self, state: OriginState, *, is_stored: bool) -> None:
        """Replace the status by what the state's entry says now."""
        news = self._news(state.entry, state.origin)
        event: Event = NotAccepted()
        if news is not None:
            event = Stored(news) if is_stored else news
        state.become(after(state.status, event))

    def _is_usable(self, entry: Entry) -> bool:
        now = self._clock()
        return now < usable_until(entry, now, self._settings)

    def _news(self, entry: Entry, origin: Origin) -> Answered | Failed | None:
        """Return what *entry* says of *origin*; None if that is nothing (REP.md sections 4 and 5)."""
        now, choices = self._clock(), self.choices
        until = usable_until(entry, now, self._settings)
        setting = choices.setting_for(entry, origin, now) if choices is not None else ""
        if entry.unreachable_since is not None:
            means = in_outage(entry, now, self._settings)
            # In running time, from now on: the clock may be set.
            return Failed(
                means, until, self._running() + max(0.0, until - now), setting
            )
        if entry.fetched_at is None:
            return None
        forbids_all = choices is not None and choices.forbids_all(entry)
        return Answered(until, setting, forbids_all)


def state_of(entry: Entry, now: float, settings: RepSettings) -> str:
    """Return in a word how *entry* can be used *now*: "fresh", "stale", "unreachable", "unrestricted", or
    "ask", if robots.txt has to be fetched first."""
    if now >= usable_until(entry, now, settings):
        return "ask"
    if entry.unreachable_since is None:
        return "fresh"
    return in_outage(entry, now, settings).__name__.lower()


def usable_until(entry: Entry, now: float, settings: RepSettings) -> float:
    """Return until when *entry* can be used (REP.md sections 4 and 5). No time is farther off than it
    can be: another user of the storage may have a clock that is years ahead."""
    if entry.unreachable_since is None:
        until = entry.fresh_until
        most = max(settings.cache_ttl, settings.cache_max_ttl)
    else:
        until = entry.next_attempt_at
        most = settings.retry_max_delay
    return until if until - max(now, 0.0) <= most else now
