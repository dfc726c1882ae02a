"""How a request waits for its robots.txt in the downloader: not for long, and not with too many
others (DESIGN.md, "Nothing waits while holding a download slot")."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError

from scrapy_rep.engine.words import text_of
from scrapy_rep.exceptions import RobotsUnreachable
from scrapy_rep.origins.flights import CrawlEnding, StillWaiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.origins.flights import Flights
    from scrapy_rep.origins.table import Known
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings

# Half of the download slots (one in so many) may be taken by requests that wait for an answer.
_SHARE = 2


class Waiting:
    """Waits where a request is, as long as that is better than to have it held."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        engine: EngineAccess,
        flights: Flights,
        deferral: Deferral,
    ) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._engine = engine
        self._flights = flights
        self._deferral = deferral
        self._grace = settings.defer_grace
        self._patience = settings.download_timeout
        self._waiting = 0
        # 0 means no limit; so many that are silent are many all the same.
        concurrency = crawler.settings.getint("CONCURRENT_REQUESTS") or 100
        self._max_waiting = max(1, concurrency // _SHARE)
        if settings.dry_run:
            # Who can't be held waits where it is, or there would be nothing to decide by.
            self._max_waiting = sys.maxsize

    async def answer(self, request: Request, origin: Origin, direct: bool) -> Known | None:
        """Have the robots.txt of *origin* asked for, and wait for the answer. None: *request* is
        to be held.

        :param direct: a direct download, which can't be held
        :raises RobotsUnreachable: if there will be no answer
        """
        flight = self._flights.to(origin, request)
        crowded = not direct and self._deferral.full_for(origin)
        greedy = crowded and self._deferral.is_greedy(origin)
        if greedy and self._waiting >= self._max_waiting:
            # Other origins need the slots.
            self._deferral.warn_full(origin)
            self._stats.inc_value("rep/unreachable/dropped")
            raise RobotsUnreachable(origin, "too many of its requests are held")
        try:
            if direct:
                with self._engine.extra_slot():
                    return await flight.wait()
            if crowded and not greedy:
                # Not an extra slot: who floods the hold with new origins shall be slowed down.
                return await flight.wait()
            if self._waiting >= self._max_waiting:
                return None
            self._waiting += 1
            try:
                return await flight.wait(None if crowded else flight.left_of(self._grace))
            finally:
                self._waiting -= 1
        except StillWaiting:
            return None
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            if isinstance(error, CrawlEnding) and self._deferral.outlives and not direct:
                return None
            raise _no_answer(origin, error) from None

    async def ask(self, request: Request, origin: Origin) -> Known | None:
        """Have the robots.txt of *origin* asked for, and wait for the answer, for somebody who takes
        no slot of the downloader. None: there will be none."""
        try:
            return await self._flights.to(origin, request).wait()
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 (as above)
            return None

    async def once_more(
        self,
        request: Request,
        known: Known,
        seconds: float,
        look: Callable[[Origin], Known | None],
    ) -> Known:
        """Wait until the robots.txt of *known*, which is unreachable, has been asked for once more,
        ``REP_DOWNLOAD_TIMEOUT`` at most. For direct downloads, which can't be held.

        :param seconds: until it may be asked for again
        :param look: what is known then; None if it has to be asked
        :raises RobotsUnreachable: if that brought no answer
        """
        origin = known.origin
        left = self._patience - seconds
        try:
            if left > 0:
                with self._engine.extra_slot():
                    await self._flights.rest(origin, seconds)
                    flights = self._flights
                    known = look(origin) or await flights.to(origin, request, again=True).wait(left)
        except StillWaiting:
            pass
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            raise _no_answer(origin, error) from None
        if known.unreachable:
            entry = known.entry
            raise RobotsUnreachable(origin, entry.error or "unreachable", entry.attempts)
        return known


def _no_answer(origin: Origin, error: Exception) -> RobotsUnreachable:
    if isinstance(error, CrawlEnding):
        return RobotsUnreachable(origin, "the crawl is ending")
    # A wrong configuration, or a bug, which Flights logs. The request is innocent.
    return RobotsUnreachable(origin, text_of(error))
