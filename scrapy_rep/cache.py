"""What is known of each origin, and who asks for what is not (REP.md sections 4 and 5).

One flight an origin: however many requests wait for a robots.txt, it is asked for once.
"""

from __future__ import annotations

import logging
import random
import zlib
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_rep.fetcher import CONFIGURATION_ERRORS, Answer
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing, backoff, fresh_seconds, retry_after, standing
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.base import Entry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Headers

    from scrapy_rep.fetcher import Fetcher
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings

logger = logging.getLogger(__name__)


class Known:
    """An origin's entry, ready to decide by. Who keeps it sees the news."""

    __slots__ = ("entry", "origin", "robots", "standing", "usable_until")

    def __init__(self, origin: Origin, entry: Entry) -> None:
        self.origin = origin
        self.standing = Standing.ASK
        self.usable_until = 0.0
        """Until when nothing has to be asked, in seconds since the epoch."""
        self.update(entry)

    def update(self, entry: Entry) -> None:
        """Take a newer entry in."""
        self.entry = entry
        self.robots = RobotsTxt.parse(entry.body) if entry.has_copy else None

    @property
    def unreachable(self) -> bool:
        """Whether there is nothing to decide by."""
        return (
            self.entry.outcome is not Outcome.RULES
            and self.entry.unreachable_since is not None
            and self.standing is not Standing.UNRESTRICTED
        )


class RobotsCache:
    """What is known of each origin; the least recently used leave."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        fetcher: Fetcher,
        clock: Callable[[], float],
        on_resolved: Callable[[Known, Answer, Request], Awaitable[None]],
    ) -> None:
        """:param on_resolved: awaited after each fetch, before those who wait for it go on; its
        last argument is the request that was the first to wait"""
        self._crawler = crawler
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._on_resolved = on_resolved
        self._known: OrderedDict[Origin, Known] = OrderedDict()
        self._flights: dict[Origin, list[Deferred[Known]]] = {}

    def get(self, origin: Origin) -> Known | None:
        """Return what is known of *origin* and may be used now, else None: ask :meth:`resolve`."""
        known = self._known.get(origin)
        if known is None:
            return None
        self._known.move_to_end(origin)
        now = self._clock()
        if now >= known.usable_until:
            self._judge(known, now)
        return None if known.standing is Standing.ASK else known

    def holds(self, origin: Origin) -> bool:
        """Whether anything is known of *origin*, usable or not."""
        return origin in self._known

    def touch(self, known: Known) -> None:
        """Remember that *known* was used, for those who keep it and do not call :meth:`get`."""
        if known.origin in self._known:
            self._known.move_to_end(known.origin)

    async def resolve(self, origin: Origin, request: Request) -> Known:
        """Ask for *origin*'s robots.txt, or wait with those who wait for it already.

        :param request: the one that wants to know
        :raises Exception: one of :data:`~scrapy_rep.fetcher.CONFIGURATION_ERRORS`
        """
        waiter: Deferred[Known] = Deferred()
        waiters = self._flights.get(origin)
        if waiters is None:
            self._flights[origin] = [waiter]
            # A task of its own: it goes on if the request that began it is given up.
            deferred_from_coro(self._fly(origin, request))
        else:
            waiters.append(waiter)
        return await maybe_deferred_to_future(waiter)

    async def _fly(self, origin: Origin, request: Request) -> None:
        try:
            answer = await self._fetcher.fetch(origin)
            known = self._learn(origin, answer)
            await self._on_resolved(known, answer, request)
        except Exception as error:
            if not isinstance(error, CONFIGURATION_ERRORS):
                logger.exception(
                    "Bug in scrapy-rep: robots.txt of %(origin)s",
                    {"origin": origin},
                    extra={"spider": self._crawler.spider},
                )
            for waiter in self._flights.pop(origin):
                waiter.errback(error)
        else:
            for waiter in self._flights.pop(origin):
                waiter.callback(known)

    def _learn(self, origin: Origin, answer: Answer) -> Known:
        """Take in what a fetch brought."""
        now = self._clock()
        previous = self._known.get(origin)
        if answer.outcome is Outcome.UNREACHABLE:
            entry = self._failed(previous.entry if previous else Entry(str(origin)), answer, now)
        else:
            entry = self._answered(origin, answer, now)
        if previous is None:
            known = self._known[origin] = Known(origin, entry)
        else:
            known = previous
            known.update(entry)
        self._known.move_to_end(origin)
        while len(self._known) > self._settings.cache_max_origins:
            _, oldest = self._known.popitem(last=False)
            oldest.usable_until = 0.0
        self._judge(known, now)
        return known

    def _answered(self, origin: Origin, answer: Answer, now: float) -> Entry:
        settings = self._settings
        lifetime = fresh_seconds(
            _header(answer.headers, "Cache-Control"),
            _header(answer.headers, "Age"),
            default=settings.cache_ttl,
            minimum=settings.cache_min_ttl,
            maximum=settings.cache_max_ttl,
        )
        body = cut(answer.body) if answer.outcome is Outcome.RULES else b""
        return Entry(
            str(origin),
            outcome=answer.outcome,
            status=answer.status,
            url=answer.url,
            hops=answer.hops,
            packed=zlib.compress(body) if body else b"",
            fetched_at=now,
            fresh_until=now + lifetime,
        )

    def _failed(self, entry: Entry, answer: Answer, now: float) -> Entry:
        settings = self._settings
        attempts = entry.attempts + 1
        delay = backoff(
            attempts,
            base=settings.retry_delay,
            maximum=settings.retry_max_delay,
            jitter=random.random(),
            retry_after=retry_after(_header(answer.headers, "Retry-After"), now),
        )
        return replace(
            entry,
            unreachable_since=now if entry.unreachable_since is None else entry.unreachable_since,
            attempts=attempts,
            next_attempt_at=now + delay,
            error=answer.reason,
        )

    def _judge(self, known: Known, now: float) -> None:
        """Say what *known* is good for from *now* on."""
        entry = known.entry
        known.standing, known.usable_until = standing(
            now,
            fresh_until=entry.fresh_until,
            has_copy=entry.has_copy,
            unreachable_since=entry.unreachable_since,
            next_attempt_at=entry.next_attempt_at,
            limit=self._settings.unreachable_limit,
        )


def _header(headers: Headers | None, name: str) -> str | None:
    values = headers.getlist(name) if headers is not None else []
    return b",".join(values).decode("latin-1") if values else None
