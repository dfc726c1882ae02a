"""How pages of a crawl may be used, all sources together (REP.md section 11): robots.txt, page,
headers, and ``/.well-known/tdmrep.json`` if ``REP_TDMREP`` asks for it."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.origins.agents import origin_of, path_in
from scrapy_rep.origins.cache import LARGE
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.flights import Flights
from scrapy_rep.origins.origins import Origins, limits_of
from scrapy_rep.origins.state import OriginState
from scrapy_rep.pages import (
    chain_behind,
    crawls_behind,
    encoding_of,
    is_html,
    page_rules,
)
from scrapy_rep.preferences.statements import (
    META_SIGNAL,
    POLICY,
    RESERVATION,
    TDMREP_PATH,
    Reservation,
    RobotsUsage,
    TdmFile,
    Usage,
    header_statements,
    link_licenses,
    meta_statements,
    page_statements,
    read_robots,
    reservation_in,
    token_statement,
)
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.html import metas_of
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.storages.base import Entry
from scrapy_rep.text import moment_of

Chain = tuple[str, ...]

_known: WeakKeyDictionary[Response, Usage] = WeakKeyDictionary()


# What was read last is kept: at worst 800 KB for a robots.txt, 2.5 MB for a tdmrep.json.
@lru_cache(32)
def _read_robots(entry: Entry, token: str | None) -> RobotsUsage:
    return read_robots(entry.body, token)


@lru_cache(32)
def _is_large(entry: Entry) -> bool:
    return (
        len(entry.body) > LARGE
    )  # which unpacks it: up to 5 ms, but not for each page


@lru_cache(32)
def _read_tdm(entry: Entry) -> TdmFile:
    return TdmFile(entry.body)


def usage(response: Response) -> Usage:
    """Return what is said about the use of *response*: training, search, answering, …

    Reads the page, its headers, and the robots.txt that the crawl has in memory; with
    ``REP_TDMREP`` also tdmrep.json. Fetches nothing.

    :raises ModuleNotFoundError: if there is a ``Content-Usage``, and the extra ``usage`` is not
        installed
    """
    if response in _known:
        return _known[response]
    request, lookup = response.request, None
    if request is None:
        return usage_of(response, None, None, ())
    for agents in crawls_behind(
        request
    ):  # if they may be several: the one that knows the origin
        with suppress(RuntimeError):  # its engine is not there yet
            rep = agents.crawler.get_downloader_middleware(RepMiddleware)
            if rep is not None and lookup_of(rep).known(request)[1] is not None:
                lookup = lookup_of(rep)
                break
    return usage_of(response, request, lookup, chain_behind(request))


def usage_of(
    response: Response,
    request: Request | None,
    lookup: UsageLookup | None,
    chain: Chain,
) -> Usage:
    """Return the same for a known crawl, and remember it. *request* is what *response* answers."""
    values = response.headers.getlist
    robots, sha256 = Usage(), None
    metas: list[tuple[str, str, int]] = []
    if is_html(response):
        names = RESERVATION, POLICY, META_SIGNAL
        metas = list(metas_of(response.body, encoding_of(response), names))
    tdm_headers = [
        (name, value.decode("latin-1"), None)
        for name in (RESERVATION, POLICY)
        for value in values(name)
    ]
    tdm = reservation_in("meta", (meta for meta in metas if meta[0] != META_SIGNAL))
    tdm |= reservation_in("header", tdm_headers)
    if lookup is not None and request is not None:
        robots = lookup.robots(request, chain)
        if tdm.statement is None or (tdm.is_reserved and tdm.policy is None):
            file, sha256 = lookup.tdmrep(request)
            tdm |= file
    statements = [
        *robots.statements,
        *header_statements("Content-Usage", values("Content-Usage")),
        *header_statements("Content-Signal", values("Content-Signal")),
        *meta_statements(meta for meta in metas if meta[0] == META_SIGNAL),
        *page_statements(page_rules(response, chain)),
        *([] if tdm.statement is None else [tdm.statement]),
    ]
    found = _known[response] = replace(
        robots,
        statements=tuple(statements),
        licenses=tuple(
            dict.fromkeys([*robots.licenses, *link_licenses(values("Link"))])
        ),
        tdm_policy=tdm.policy if tdm.is_reserved else None,
        tdmrep_sha256=sha256,
    )
    return found


class TdmOrigin(Origin):
    """An origin whose tdmrep.json takes the place of its robots.txt. Its ``str()`` is the file's
    URL, which keeps the two apart in storages."""

    __slots__ = ()

    @property
    def robots_url(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return super().__str__() + TDMREP_PATH


async def _tell_nobody(flight: Flight, result: object) -> None:
    """Nobody but those who wait wants to know of a tdmrep.json."""


class UsageLookup:
    """What the origins of one crawl say about use. Use :func:`lookup_of`."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        self._settings = settings = context.settings
        self._table = origins.table
        self._cache = cache = origins.cache
        self._tokens = settings.usage_tokens or {}
        self._clock = context.clock
        # tdmrep.json files are fetched, cached and shared by the code for robots.txt.
        self._tdm_cache = cache.sibling() if settings.tdmrep else None
        files = self._tdm_cache or cache
        self._flights = Flights(
            context.crawler,
            files.ask,
            _tell_nobody,
            files.known,
            context.running,
            limits_of(settings),
        )
        # A page that waits for a file occupies a download slot. This many get an extra one; more
        # would let a server that never answers fill the memory with pages.
        self._engine, self._most = context.engine, concurrency_of(context.crawler)
        self._waiting = 0

    def known(self, request: Request) -> tuple[Origin | None, OriginState | None]:
        with suppress(ValueError):
            origin = origin_of(request)
            return origin, self._table.get(origin)
        return None, None

    def robots(self, request: Request, chain: Chain) -> Usage:
        """Return what robots.txt says about the page of *request*."""
        time = moment_of(self._clock())
        _, state = self.known(request)
        if state is None or state.robots is None:
            return Usage(time=time)
        entry, path = state.entry, comparable(path_in(request))
        token, rules = state.robots.rules(chain, self._settings.obey_global_group)
        said = _read_robots(entry, token)
        statements = said.about(path, allowed=rules.allows(path))
        for name, purposes in self._tokens.items():
            decision = state.robots.decide(comparable(request.url), (name,))
            if statement := token_statement(name, decision, purposes):
                statements.append(statement)
        self._table.weigh(state)
        return Usage(
            tuple(statements),
            said.licenses,
            robots_sha256=entry.sha256,
            robots_fetched_at=moment_of(entry.fetched_at),
            time=time,
        )

    def tdmrep(self, request: Request) -> tuple[Reservation, str | None]:
        """Return what the origin's tdmrep.json says about the page of *request*, and its hash."""
        origin, _ = self.known(request)
        state = (
            self._tdm_cache.get(TdmOrigin(*origin))
            if self._tdm_cache and origin
            else None
        )
        if state is None:
            return Reservation(), None
        return _read_tdm(state.entry).about(
            comparable(path_in(request))
        ), state.entry.sha256

    async def read(self, request: Request, chain: Chain) -> None:
        """Read a large robots.txt in a thread, so that :meth:`robots` need not do it."""
        _, state = self.known(request)
        if state is None or not _is_large(state.entry):
            return
        await self._cache.read(state, chain)
        for name in self._tokens:
            await self._cache.read(state, (name,), always=True)
        if state.robots is not None:
            token, _ = state.robots.rules(chain, self._settings.obey_global_group)
            await run_in_thread(_read_robots, state.entry, token)

    async def fetch(self, request: Request, chain: Chain) -> None:
        """Fetch tdmrep.json if it is wanted, not known, and allowed by robots.txt. Wait for it, at
        most ``REP_DOWNLOAD_TIMEOUT`` from the beginning of the fetch."""
        origin, state = self.known(request)
        if self._tdm_cache is None or origin is None or state is None:
            return
        file, robots = TdmOrigin(*origin), state.robots
        if self._tdm_cache.get(file) is not None:
            return
        if robots and not robots.rules(chain, self._settings.obey_global_group)[
            1
        ].allows(TDMREP_PATH):
            return
        flight = self._flights.to(file, request)
        self._waiting += 1
        spare = (
            self._engine.extra_slot() if self._waiting <= self._most else nullcontext()
        )
        try:
            with spare:
                await flight.wait(flight.left_of(self._settings.download_timeout))
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001, S110 (too late, the crawl is ending, or a bug, which is logged)
            pass
        finally:
            self._waiting -= 1

    async def end(self) -> None:
        self._flights.end()


def lookup_of(rep: RepMiddleware) -> UsageLookup:
    if UsageLookup not in rep.parts:
        rep.parts[UsageLookup] = UsageLookup(rep.context, rep.origins)
    found: UsageLookup = rep.parts[UsageLookup]
    return found
