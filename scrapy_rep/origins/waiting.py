"""Requests that wait in the downloader for a robots.txt, beside its slots: those that passed no gate
(direct downloads, of a media pipeline, say), and those whose origin was forgotten after the gate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError

from scrapy_rep.engine.words import text_of
from scrapy_rep.origins.flights import CrawlEnding, StillWaiting
from scrapy_rep.origins.policy import Drop

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Origin


class Waiting:
    """Waits for answers."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._context = context
        self._cache = origins.cache
        self._flights = origins.flights

    async def first(self, request: Request, origin: Origin) -> OriginState | Drop:
        """Wait for the unknown robots.txt of *origin*."""
        with self._context.engine.extra_slot():  # it may wait long
            answer = await self.briefly(request, origin, math.inf)
        assert answer is not None
        return answer

    async def briefly(
        self, request: Request, origin: Origin, seconds: float
    ) -> OriginState | Drop | None:
        """Wait for it in a download slot, until the fetch has taken *seconds*. None: it takes longer."""
        flight = self._flights.to(origin, request)
        try:
            return await flight.wait(None if seconds == math.inf else flight.left_of(seconds))
        except StillWaiting:
            return None
        except CrawlEnding:
            return Drop("the crawl is ending")
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
        ``REP_DOWNLOAD_TIMEOUT``.

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
