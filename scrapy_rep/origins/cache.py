"""What is known of each origin, in memory (state.py) and in a storage that may outlive
the process (storages/); how an answer changes it; how to wait for another process that
fetches the same robots.txt (REP.md sections 4 and 5)."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace

from scrapy.exceptions import DownloadFailedError
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.access import Chain
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
from scrapy_rep.origins.flights import CANCELLED, is_ending_with_loop
from scrapy_rep.origins.queue import Flight
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
from scrapy_rep.protocol.availability import UNCHANGED, Outcome
from scrapy_rep.protocol.freshness import (
    NO_CRAWL_SECONDS,
    backoff,
    fresh_seconds,
    retry_after,
    unreachable_seconds,
)
from scrapy_rep.protocol.syntax import MAX_BYTES, cut
from scrapy_rep.settings import RepSettings
from scrapy_rep.storages.base import MAX_TIME, Entry, squeeze
from scrapy_rep.storages.client import StorageClient

_POLL_SECONDS = 0.05
"""The pause before we look for the first time whether another process has stored its
answer. The pause doubles each time."""

_MAX_POLL_SECONDS = 1.0
"""The longest pause between two looks whether another process has stored its answer."""

_AT_ONCE_SECONDS = 0.5
"""The pause before a lost connection is tried again, within the same fetch."""

_FETCH_SHARE = 0.9
"""The transfers of a fetch may take this share of REP_HOLD_MAX_WAIT. If they took
longer, the requests that wait for the fetch would be given up before it failed, and its
failure wouldn't be counted as an attempt."""

_PROXY_SECONDS = 1.0
"""The pause after a proxy's first failure: a short one, since the next proxy may
work."""

_PROXY_STEPS = 3
"""After this many failures of a proxy, the pause no longer doubles with each."""

LARGE_BYTES = 65_536
"""A robots.txt larger than this is parsed in a thread, since to parse it would block
the event loop for too long."""

_PAGE_SECONDS = 3600.0
"""The shortest time between two notes in an entry that a page has answered, since the
entry is stored each time."""

_MAX_MISCONFIGURED = 10_000
"""Origins that are remembered as misconfigured."""


class RobotsCache:
    """The one way to what is known of an origin: works out what entries, old and new,
    mean now, and has robots.txt fetched."""

    def __init__(
        self,
        settings: RepSettings,
        fetcher: Fetcher,
        clock: Callable[[], float],
        storage: StorageClient | None = None,
        choices: Choices | None = None,
        running: Callable[[], float] = time.monotonic,
    ) -> None:
        """*clock*: seconds since the epoch. *storage* outlives the process. *choices*:
        what the project chooses beyond the protocol (choices.py); None: nothing.
        *running*: the crawl's running time in seconds, in which its pauses don't count;
        by default (in tests), the time that passes."""
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._running_time = running
        self._storage = storage
        self.table = OriginTable(
            settings.cache_max_origins, settings.cache_max_bytes, clock
        )
        self.choices = choices
        self._reading = DeferredLock()
        """Held while a file is parsed, one at a time, since parsing threads compete
        with the event loop."""
        self._read_seconds = 0.0
        """Seconds that parsing has taken in the event loop since other tasks last got a
        turn."""
        self._misconfigured: dict[Origin, Misconfigured] = {}
        """Origins whose robots.txt the project prevents us from fetching."""

    def sibling(self) -> RobotsCache:
        """Return a cache for another of the origins' files (tdmrep.json), with the same
        fetcher and storage."""
        return RobotsCache(
            self._settings,
            self._fetcher,
            self._clock,
            self._storage,
            running=self._running_time,
        )

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin* and usable now; None if a fetch is due."""
        _, state = self.status_of(origin)
        if state is None:
            return None
        now = self._clock()
        state.used_at = now
        if now < state.status.until:
            return state
        state.become(expired(state.status))  # it isn't usable any more
        return None

    def look_up(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin*, usable or not."""
        _, state = self.status_of(origin)
        return state

    def status_of(self, origin: Origin) -> tuple[Status, OriginState | None]:
        """Return the status of *origin*, and what else is known of it."""
        state = self.table.get(origin)
        # A state that was packed (state.py) comes back with its entry, but without a
        # status.
        if state is not None and isinstance(state.status, Unknown):
            self._make_known(origin, state.entry, is_stored=True)
        misconfigured = self._misconfigured.get(origin)
        if misconfigured is not None:
            if self._clock() < misconfigured.until:
                return misconfigured, state
            # From now on, what else is known counts again.
            del self._misconfigured[origin]
        if state is None:
            return UNKNOWN, None
        # An answer's time is over when the clock says so. A failure's status stays: its
        # `retry_at` says when the next attempt is due, in the crawl's running time,
        # since the clock may be set.
        is_fresh = isinstance(state.status, Fresh)
        if is_fresh and self._clock() >= state.status.until:
            state.become(expired(state.status))
        return state.status, state

    def takes_long(self, state: OriginState, agent: Chain) -> bool:
        """Return whether :meth:`read` has to prepare the rules for *agent* in a
        thread."""
        robots = state.robots
        if robots is None or robots.is_read(agent, self._settings.obey_global_group):
            return False
        return len(state.entry.body) > LARGE_BYTES

    async def read(
        self,
        state: OriginState,
        agent: Chain,
        body: bytes = b"",
        always: bool = False,
    ) -> None:
        """Prepare the rules for *agent*, of a large file in a thread. *body*: the
        file's body, if it is at hand; then the entry's needn't be unpacked. *always*:
        the group for "*" applies, whatever ``REP_OBEY_GLOBAL_GROUP`` says."""
        entry = state.entry
        robots = state.robots
        obey_global = always or self._settings.obey_global_group
        if robots is None:
            return
        # A body that is at hand has just come, so nobody has read it.
        if not body and robots.is_read(agent, obey_global):
            return
        body = body or entry.body
        with_delay = bool(self._settings.crawl_delay)

        # One file is read at a time.
        must_wait = self._reading.locked
        await maybe_deferred_to_future(self._reading.acquire())
        try:
            # A storage may have answered for hundreds of origins at once. Other tasks
            # get a turn in between.
            if self._read_seconds > SLICE_SECONDS:
                self._read_seconds = 0.0
                await pause()
            # While this waited, another request may have read the file, or the file may
            # have changed. A file that has changed is read all the same, for nothing.
            if state.entry is entry:
                robots = state.robots or robots
            if must_wait and robots.is_read(agent, obey_global):
                return
            if len(body) > LARGE_BYTES:
                # Read into a copy, which other requests don't see before it is ready.
                # It keeps what was read for them.
                robots = copy(robots)
                await run_in_thread(
                    robots.preload, body, agent, obey_global, with_delay
                )
            else:
                began = time.perf_counter()
                robots.preload(body, agent, obey_global, with_delay)
                self._read_seconds += time.perf_counter() - began
            if state.entry is entry:  # the file hasn't changed meanwhile
                state.robots = robots
                self.table.weigh(state)
        finally:
            self._reading.release()

    async def ask(self, flight: Flight) -> OriginState:
        """Get the robots.txt of the flight's origin fetched, here or by another
        process. Return what is known now. Raises
        :data:`~scrapy_rep.origins.answer.CONFIGURATION_ERRORS`."""
        origin = flight.origin
        # The project may have an answer of its own, or prevent the fetch.
        if self.choices is not None:
            own_answer = self.choices.own_answer(origin, self._clock())
            if own_answer is not None:
                flight.answer = own_answer
                return self._learn(origin, own_answer)
            self._forget_own_answer(origin)
        if origin in self._misconfigured:
            status, _ = self.status_of(origin)
            if isinstance(status, Misconfigured):
                raise ProjectError(status.reason)

        # The storage may have an answer.
        storage = self._storage
        if storage is not None:
            state = await self._ask_storage(flight, storage)
            if state is not None:
                return state

        # Fetch it.
        try:
            answer = await self._fetch(flight)
            if answer.status == UNCHANGED and flight.before is not None:
                answer = in_place_of(answer, flight.before)
            if self.choices is not None:
                answer = self.choices.applied_to(answer)
            flight.answer = answer
            state = self._learn(origin, answer)
        except BaseException as error:
            if storage is not None:
                # _ask_storage() has claimed the fetch for this process. Let another one
                # fetch.
                storage.give_back_lease(str(origin))
            if isinstance(error, ProjectError):
                # Only a ProjectError is remembered, since other errors may be due to
                # what one request wants (a proxy, say).
                self._note_misconfiguration(origin, error)
            raise
        self._misconfigured.pop(origin, None)
        if storage is not None:
            storage.publish(state.entry)
        return state

    def _forget_own_answer(self, origin: Origin) -> None:
        """Forget the project's own answer, whose time has ended, if it is still there:
        that must not count as an older copy of the origin's file."""
        state = self.table.get(origin)
        if state is not None and is_own(state.entry):
            self._make_known(origin, Entry(str(origin)))

    def _note_misconfiguration(self, origin: Origin, error: ProjectError) -> None:
        """Remember, for a while, that the project prevents us from fetching the
        robots.txt of *origin*."""
        until = self._clock() + self._settings.retry_max_delay
        status, _ = self.status_of(origin)
        misconfigured = after(status, NotConfigured(until, str(error)))
        assert isinstance(misconfigured, Misconfigured)  # NotConfigured leads there
        if len(self._misconfigured) >= _MAX_MISCONFIGURED:
            self._misconfigured.clear()
        self._misconfigured[origin] = misconfigured

    async def _ask_storage(
        self, flight: Flight, storage: StorageClient
    ) -> OriginState | None:
        """Return what *storage* has of the flight's origin, after another process's
        fetch if there is one; None if the fetch is ours to make. Then it is claimed for
        this process."""
        origin = flight.origin
        state = self.table.get(origin)
        known_at = -math.inf if state is None else state.entry.updated_at

        def is_enough(entry: Entry) -> bool:
            """Return whether *entry* makes a fetch needless. Is called in a thread,
            too."""
            if entry.updated_at <= known_at or not self._is_usable(entry):
                return False
            return self.choices is None or not self.choices.refusal(entry)

        seconds = _POLL_SECONDS
        while True:
            # The claim says what is stored and, if that isn't enough, whether this
            # process may fetch (`granted`).
            claim = await storage.claim(str(origin), is_enough)
            entry = claim.entry
            # The entry may come from before the storage became unreachable. Then what
            # we know is newer.
            if entry is not None and entry.updated_at > known_at:
                state = self._make_known(origin, entry, is_stored=True)
                if is_enough(entry) and not claim.granted:
                    return state
            if claim.granted:
                return None
            # Another process is fetching. The time until it has fetched is nobody's
            # fault, as if the fetch stood in a queue.
            flight.note_queued(is_queued=True)
            await pause(seconds)
            flight.note_queued(is_queued=False)
            seconds = min(2 * seconds, _MAX_POLL_SECONDS)

    async def _fetch(self, flight: Flight) -> Answer:
        """Fetch robots.txt. If the connection to an origin that wasn't failing is lost,
        fetch it once more. If the project's own code cancelled the download, that is an
        answer, too."""
        origin = flight.origin
        settings = self._settings
        longest_wait = max(settings.hold_max_wait, settings.hold_grace)
        allowance = Allowance(settings.download_timeout, _FETCH_SHARE * longest_wait)
        # Note what was known before, and when we began to ask.
        state = self.table.get(origin)
        flight.before = None if state is None else state.entry
        flight.asked_at = self._clock()
        flight.fetches = 0
        while True:
            flight.fetches += 1
            try:
                answer = await self._fetcher.fetch(
                    origin, flight.request, allowance, flight.note_queued
                )
            except CANCELLED as error:
                if flight.is_abandoned or is_ending_with_loop(error):
                    raise
                # A middleware or handler of the project's has awaited something that a
                # timeout cancelled, say.
                why = "the project's own code cancelled the download"
                failure = DownloadFailedError(why)
                url = origin.robots_url
                answer = Answer(Outcome.UNREACHABLE, url, 0, error=failure)
            # Fetch once more, at most.
            if answer.error is None or flight.fetches > 1:
                return answer
            if not _is_tried_again(answer.error, flight.before):
                return answer
            await pause(min(_AT_ONCE_SECONDS, settings.retry_delay))
            if allowance.is_used_up:
                return answer

    def page_answered(self, origin: Origin) -> None:
        """Note that a page of *origin* answered. While its robots.txt doesn't answer,
        this decides whether there are restrictions (choices.in_outage()), in later
        runs, too."""
        state = self.table.get(origin)
        if state is None or state.entry.unreachable_since is None:
            return
        now = self._clock()
        if now >= state.status.until:
            return
        # abs(): the clock may have been set back.
        if abs(now - state.entry.page_answered_at) > _PAGE_SECONDS:
            page_answered_at = min(max(now, 0.0), MAX_TIME)
            state.entry = replace(state.entry, page_answered_at=page_answered_at)
            if self._storage is not None:
                self._storage.publish(state.entry)

    def _learn(self, origin: Origin, answer: Answer) -> OriginState:
        """Make an entry of *answer*, and make that what is known of *origin*."""
        # The clock may be set to anything.
        now = min(max(self._clock(), 0.0), MAX_TIME)
        if answer.outcome is Outcome.UNREACHABLE:
            state = self.table.get(origin)
            before = Entry(str(origin)) if state is None else state.entry
            return self._make_known(origin, self._after_failure(before, answer, now))

        # How long the answer may be kept.
        settings = self._settings
        lifetime = settings.cache_ttl
        headers = answer.headers
        if headers is not None and "Cache-Control" in headers:
            lifetime = fresh_seconds(
                header_text(headers, "Cache-Control"),
                header_text(headers, "Age"),
                default=settings.cache_ttl,
                minimum=settings.cache_min_ttl,
                maximum=settings.cache_max_ttl,
            )

        # What storages keep of the answer.
        entry = Entry(
            str(origin),
            outcome=answer.outcome,
            status=answer.status,
            url=answer.url,
            hops=answer.hops,
            wall=answer.wall,
            updated_at=now,
            fetched_at=now,
            fresh_until=min(now + lifetime, answer.ends_at, MAX_TIME),
        )
        if answer.outcome is Outcome.RULES:
            body = answer.body
            if len(body) > MAX_BYTES:
                body = cut(body)
            digest = hashlib.sha256(body).hexdigest()
            entry = replace(entry, packed=squeeze(body), sha256=digest)
        return self._make_known(origin, entry)

    def _after_failure(self, before: Entry, answer: Answer, now: float) -> Entry:
        """Return the entry that follows *before* since *answer* is a failure. The copy
        that *before* may have stays."""
        is_proxys = isinstance(answer.error, ProxyError)
        attempts = before.attempts + 1
        proxy_attempts = before.proxy_attempts
        dead_attempts = before.dead_attempts
        if is_proxys:
            # This says nothing about the host, so dead_attempts stays.
            proxy_attempts += 1
        elif is_dead_host(answer.error):
            dead_attempts += 1
        else:
            dead_attempts = 0

        # When the next attempt is due, and when an extra one is allowed.
        wait = retry_after(header_text(answer.headers, "Retry-After"), now)
        delay = self._delay(attempts, proxy_attempts, is_proxys, wait)
        not_before = 0.0  # the server sent no Retry-After
        if wait:
            not_before = min(now + delay, now + wait, MAX_TIME)

        since = before.unreachable_since
        return replace(
            before,
            updated_at=now,
            unreachable_since=now if since is None else since,
            unreachable_for=min(self._unreachable_for(before, answer, now), MAX_TIME),
            attempts=attempts,
            proxy_attempts=proxy_attempts,
            dead_attempts=dead_attempts,
            next_attempt_at=min(now + delay, MAX_TIME),
            not_before=not_before,
            error=answer.reason,
        )

    def _delay(
        self, attempts: int, proxy_attempts: int, is_proxys: bool, wait: float | None
    ) -> float:
        """Return the seconds until the next attempt, after *attempts* failures, of
        which a proxy caused *proxy_attempts*. *is_proxys*: a proxy caused the last one.
        *wait*: the server's Retry-After."""
        base = self._settings.retry_delay
        step = attempts - proxy_attempts  # only the origin's failures
        if is_proxys:
            base = min(_PROXY_SECONDS, base)
            step = min(proxy_attempts, _PROXY_STEPS)
        return backoff(
            step,
            base=base,
            maximum=self._settings.retry_max_delay,
            jitter=random.random(),  # noqa: S311 (nobody gains by guessing it)
            retry_after=wait,
        )

    def _unreachable_for(self, before: Entry, answer: Answer, now: float) -> float:
        """Return how many seconds count as unreachable after another failure. What
        isn't about the site (a proxy's failure, say) adds nothing."""
        if isinstance(answer.error, NOT_ABOUT_SITE):
            return before.unreachable_for
        limit = self._settings.unreachable_limit
        has_steps = self.choices is not None and self.choices.follows_2026
        if has_steps and before.unreachable_for < NO_CRAWL_SECONDS:
            # The 12 hours of Google's rules of 2026 are counted like the 30 days: as
            # time during which attempts failed, not as time on the clock.
            limit = NO_CRAWL_SECONDS
        attempts = before.attempts - before.proxy_attempts
        elapsed = now - before.updated_at
        return unreachable_seconds(before.unreachable_for, attempts, elapsed, limit)

    def _make_known(
        self, origin: Origin, entry: Entry, *, is_stored: bool = False
    ) -> OriginState:
        """Make *entry* what is known of *origin*, and its status what the entry says
        now (REP.md sections 4 and 5). *is_stored*: the entry comes from the storage, or
        was packed (state.py); otherwise it is the answer to a fetch of ours that has
        just ended."""
        choices = self.choices
        if choices is not None and choices.refusal(entry):
            # This project doesn't accept the entry, though another one may.
            entry = Entry(entry.origin)  # nothing is known
        state = self.table.put(origin, entry)

        # Until when the entry can be used, and what the project makes of it.
        now = self._clock()
        until = entry.fresh_until
        if is_stored or entry.unreachable_since is not None:
            until = usable_until(entry, now, self._settings)
        setting = ""
        forbids_all = False
        if choices is not None:
            setting = choices.setting_for(entry, origin, now)
            forbids_all = choices.forbids_all(entry)

        # The status follows from that.
        news: Answered | Failed | None = None
        if entry.unreachable_since is not None:
            means = in_outage(entry, now, self._settings)
            # retry_at is running time, worked out once, since the clock may be set
            # before the attempt is due.
            retry_at = self._running_time() + max(0.0, until - now)
            news = Failed(means, until, retry_at, setting)
        elif entry.fetched_at is not None:
            news = Answered(until, setting, forbids_all)
        event: Event = NotAccepted()  # if nothing is known
        if news is not None:
            event = Stored(news) if is_stored else news
        state.become(after(state.status, event))
        return state

    def _is_usable(self, entry: Entry) -> bool:
        """Return whether *entry* decides now; otherwise a fetch is due."""
        now = self._clock()
        return now < usable_until(entry, now, self._settings)


def _is_tried_again(error: Exception, before: Entry | None) -> bool:
    """Return whether robots.txt is fetched once more at once, since the connection was
    lost (*error*) to an origin that wasn't failing. *before*: what was known of it."""
    # A proxy's failures say nothing about the origin.
    has_worked = before is None or before.attempts <= before.proxy_attempts
    if not has_worked:
        return False
    return is_lost_connection(error) or is_tls_failure(error)


def state_of(entry: Entry, now: float, settings: RepSettings) -> str:
    """Return in a word how *entry* can be used *now*: "fresh", "stale", "unreachable",
    "unrestricted", or "ask", if robots.txt has to be fetched first."""
    if now >= usable_until(entry, now, settings):
        return "ask"
    if entry.unreachable_since is None:
        return "fresh"
    return in_outage(entry, now, settings).__name__.lower()


def usable_until(entry: Entry, now: float, settings: RepSettings) -> float:
    """Return until when *entry* can be used (REP.md sections 4 and 5). A time that is
    farther off than settings allow doesn't count, since another user of the storage may
    have a clock that is years ahead."""
    if entry.unreachable_since is None:
        until = entry.fresh_until
        longest = max(settings.cache_ttl, settings.cache_max_ttl)
    else:
        until = entry.next_attempt_at
        longest = settings.retry_max_delay
    is_possible = until - max(now, 0.0) <= longest
    return until if is_possible else now
