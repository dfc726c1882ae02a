"""Requests that wait in the downloader for a robots.txt: few, and briefly (docs/DESIGN.md, "Nothing
waits while holding a download slot"), as :mod:`scrapy_rep.origins.policy` advises."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, TypeAlias

from twisted.internet.defer import CancelledError

from scrapy_rep.engine.words import text_of
from scrapy_rep.origins.flights import CrawlEnding, StillWaiting
from scrapy_rep.origins.policy import Drop, Hold, Room, Situation, Wait

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Flight
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.origins.waiting_room import Place
    from scrapy_rep.protocol import Origin

# Waiting requests may take one in this many download slots.
_SHARE = 2

# In place of CONCURRENT_REQUESTS = 0 (unlimited).
_UNLIMITED = 100

_Answer: TypeAlias = "OriginState | Hold | Drop"


class Waiting:
    """Counts and times them."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._policy = origins.policy
        self._cache = origins.cache
        self._flights = origins.flights
        self._room = origins.waiting_room
        concurrency = context.crawler.settings.getint("CONCURRENT_REQUESTS") or _UNLIMITED
        self._most = max(1, concurrency // _SHARE)
        if context.settings.dry_run:
            self._most = sys.maxsize  # a dry run holds nothing, so every request waits in place

    def slot_free(self, origin: Origin) -> bool:
        """Whether another request to *origin* may wait in a download slot."""
        return self._room.waiting_for(origin) < self._most

    async def place_for(
        self, request: Request, origin: Origin, situation: Situation
    ) -> tuple[Flight, Place | None]:
        """Have the unknown robots.txt of *origin* fetched. Return that flight and a place to wait for
        it, if any."""
        flight = self._flights.to(origin, request)
        if situation.direct or situation.room is not Room.FREE or not self._policy.grace:
            return flight, None
        return flight, await self._room.enter(request, origin)

    async def first(self, flight: Flight, situation: Situation, place: Place | None) -> _Answer:
        """Wait for *flight* as the policy advises. Return what is known then, or what to do with the
        request instead."""
        if situation.direct:
            with self._context.engine.extra_slot():  # it may wait long
                return await self._land(flight, situation)
        if place is not None:
            return await self._land(flight, situation._replace(slot_free=True))
        if situation.room is Room.FULL:
            return await self._land(flight, situation)
        situation = situation._replace(slot_free=self.slot_free(flight.origin))
        with self._room.in_slot():
            return await self._land(flight, situation)

    async def _land(self, flight: Flight, situation: Situation) -> _Answer:
        """Wait for *flight*."""
        advice = self._policy.advise(None, self._context.clock(), situation)
        if not isinstance(advice, Wait):
            assert isinstance(advice, Hold | Drop)
            return advice
        seconds = advice.seconds
        try:
            return await flight.wait(None if seconds == math.inf else flight.left_of(seconds))
        except StillWaiting:
            return Hold()
        except CrawlEnding:
            return self._policy.at_the_end(situation)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            # A wrong configuration, or a bug, which Flights logs. The request is innocent.
            return Drop(text_of(error), cause=error)

    async def alone(self, request: Request, origin: Origin) -> OriginState | None:
        """Have the robots.txt of *origin* fetched, for a caller outside the downloader, however long
        it takes. None: there will be no answer."""
        try:
            return await self._flights.to(origin, request).wait()
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 (as above)
            return None

    async def again(
        self, request: Request, state: OriginState, seconds: float
    ) -> OriginState | Drop:
        """Wait for the next attempt to fetch an unreachable robots.txt, at most
        ``REP_DOWNLOAD_TIMEOUT``. For direct downloads, which can't be held.

        :param seconds: until that attempt may start
        """
        origin = state.origin
        try:
            with self._context.engine.extra_slot():
                await self._flights.rest(origin, seconds)
                news = self._cache.get(origin)
                if news is None:
                    left = self._context.settings.download_timeout - seconds
                    news = await self._flights.to(origin, request, again=True).wait(left)
                state = news
        except StillWaiting:
            pass
        except CrawlEnding:
            return Drop("the crawl is ending")
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (as above)
            return Drop(text_of(error), cause=error)
        return Drop.of(state) if state.unreachable else state
