"""``/.well-known/tdmrep.json`` of origins (REP.md section 11): fetched, cached and shared by the code
that does so with robots.txt, if ``REP_TDMREP`` asks for it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError

from scrapy_rep.origins.flights import Flight, Flights
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.usage.tdmrep import PATH

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.cache import RobotsCache
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.storages.base import Entry


class TdmOrigin(Origin):
    """An origin, of which tdmrep.json is asked for in the place of robots.txt. ``str()`` of it is
    the file's URL, so storages keep the two apart."""

    __slots__ = ()

    @property
    def robots_url(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return super().__str__() + PATH


class TdmFiles:
    """The files of all origins, each fetched once."""

    def __init__(self, context: CrawlContext, cache: RobotsCache) -> None:
        """:param cache: of robots.txt files"""
        self._context = context
        self._cache = cache.sibling()
        self._flights = Flights(context.crawler, self._ask)
        # Pages that wait hold a download slot. This many get one more; the others slow the crawl
        # down, so that a server that never answers can't fill the memory with pages.
        self._most = context.crawler.settings.getint("CONCURRENT_REQUESTS") or 16
        self._waiting = 0

    def known(self, origin: Origin) -> Entry | None:
        """Return what *origin* answered when it was last asked; None if there is no file."""
        state = self._cache.get(TdmOrigin(*origin))
        return state.entry if state is not None and state.entry.outcome is Outcome.RULES else None

    async def fetch(self, request: Request, origin: Origin) -> None:
        """Fetch the file of *origin* if need be, and wait for it: at most ``REP_DOWNLOAD_TIMEOUT``
        from the beginning of the fetch.

        :param request: to *origin*, see :meth:`~scrapy_rep.origins.fetcher.Fetcher.fetch`
        """
        file = TdmOrigin(*origin)
        if self._cache.get(file) is not None:
            return
        flight = self._flights.to(file, request)
        try:
            with ExitStack() as slot:
                if self._waiting < self._most:
                    slot.enter_context(self._context.engine.extra_slot())
                self._waiting += 1
                slot.callback(self._leave)
                await flight.wait(flight.left_of(self._context.settings.download_timeout))
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001, S110 (too late, the crawl is ending, or a bug, which is logged)
            pass

    def _leave(self) -> None:
        self._waiting -= 1

    async def _ask(self, flight: Flight) -> OriginState:
        state, _ = await self._cache.ask(flight.origin, flight.request)
        return state

    async def end(self) -> None:
        """Give up what is under way."""
        self._flights.end()
