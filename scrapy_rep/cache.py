"""What is known of each origin, and what an answer adds to it (REP.md sections 4 and 5)."""

from __future__ import annotations

import random
import zlib
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy import Request

from scrapy_rep.fetcher import DEAD_HOST_ERRORS, Answer
from scrapy_rep.protocol import RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing, backoff, fresh_seconds, retry_after, standing
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.base import Entry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy.http import Headers

    from scrapy_rep.fetcher import Fetcher
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings


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
        settings: RepSettings,
        fetcher: Fetcher,
        clock: Callable[[], float],
        on_resolved: Callable[[Known, Answer, Request], Awaitable[None]],
    ) -> None:
        """:param on_resolved: awaited after each fetch, before those who wait for it go on; its
        last argument is the request that was the first to wait"""
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._on_resolved = on_resolved
        self._known: OrderedDict[Origin, Known] = OrderedDict()
        self._pinned: dict[Origin, Known] = {}

    def get(self, origin: Origin) -> Known | None:
        """Return what is known of *origin* and may be used now, None if it has to be asked."""
        known = self.get_any(origin)
        if known is None:
            return None
        self.touch(known)
        now = self._clock()
        if now >= known.usable_until:
            self._judge(known, now)
        return None if known.standing is Standing.ASK else known

    def get_any(self, origin: Origin) -> Known | None:
        """Return what is known of *origin*, usable or not."""
        return self._known.get(origin) or self._pinned.get(origin)

    def touch(self, known: Known) -> None:
        """Remember that *known* was used, for those who keep it and do not call :meth:`get`."""
        if known.origin in self._known:
            self._known.move_to_end(known.origin)

    async def ask(self, origin: Origin, request: Request | None) -> Known:
        """Fetch *origin*'s robots.txt and take in what came of it.

        :param request: the one that was the first to want to know, if it was one
        :raises Exception: one of :data:`~scrapy_rep.fetcher.CONFIGURATION_ERRORS`
        """
        answer = await self._fetcher.fetch(origin)
        known = self._learn(origin, answer)
        await self._on_resolved(known, answer, request or Request(origin.robots_url))
        return known

    def pin(self, origin: Origin) -> None:
        """Keep *origin* whatever its age: something waits for it."""
        known = self._known.pop(origin, None)
        if known is not None:
            self._pinned[origin] = known

    def unpin(self, origin: Origin) -> None:
        """Let *origin* leave when its turn comes."""
        known = self._pinned.pop(origin, None)
        if known is not None:
            self._known[origin] = known

    def _learn(self, origin: Origin, answer: Answer) -> Known:
        """Take in what a fetch brought."""
        now = self._clock()
        previous = self.get_any(origin)
        if answer.outcome is Outcome.UNREACHABLE:
            entry = self._failed(previous.entry if previous else Entry(str(origin)), answer, now)
        else:
            entry = self._answered(origin, answer, now)
        if previous is None:
            known = self._known[origin] = Known(origin, entry)
        else:
            known = previous
            known.update(entry)
            self.touch(known)
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
            dead_attempts=entry.dead_attempts + 1
            if isinstance(answer.error, DEAD_HOST_ERRORS)
            else 0,
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
