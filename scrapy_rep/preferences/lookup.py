"""Looks up how pages of a crawl may be used (REP.md section 11). Reads robots.txt, the
page and its headers, and ``/.well-known/tdmrep.json`` if ``REP_TDMREP`` asks for
it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.access import concurrency_of
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.origins.agents import origin_of, path_in
from scrapy_rep.origins.cache import LARGE_BYTES, RobotsCache
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Flights
from scrapy_rep.origins.origins import Origins, limits_of
from scrapy_rep.origins.queue import Flight
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
"""The product tokens under which a crawler looks for its group in robots.txt, the most
specific first."""

# What usage() returned for each response, so that it is worked out only once.
_usages: WeakKeyDictionary[Response, Usage] = WeakKeyDictionary()

# The parsed statements of this many files are kept. The statements of a robots.txt take
# at worst 800 KB, those of a tdmrep.json 2.5 MB.
_FILES_KEPT = 32


@lru_cache(_FILES_KEPT)
def _read_robots(entry: Entry, token: str | None) -> RobotsUsage:
    return read_robots(entry.body, token)


@lru_cache(_FILES_KEPT)
def _is_large(entry: Entry) -> bool:
    # The answer is kept, because reading the body unpacks it, which takes up to 5 ms.
    return len(entry.body) > LARGE_BYTES


@lru_cache(_FILES_KEPT)
def _read_tdm(entry: Entry) -> TdmFile:
    return TdmFile(entry.body)


def usage(response: Response) -> Usage:
    """Return what is said about the use of *response*: training, search, answering, …

    Reads the page, its headers, and the robots.txt that the crawl has in memory; with
    ``REP_TDMREP`` also tdmrep.json. Fetches nothing.

    :raises ModuleNotFoundError: if there is a ``Content-Usage``, and the extra
        ``usage`` is not installed
    """
    if response in _usages:
        return _usages[response]
    request = response.request
    if request is None:
        return usage_of(response, None, None, ())
    lookup = _lookup_behind(request)
    return usage_of(response, request, lookup, chain_behind(request))


def _lookup_behind(request: Request) -> UsageLookup | None:
    """Return the lookup of the crawl that *request* belongs to. If that may be one of
    several crawls, the first that knows the request's origin counts."""
    # Each crawl has one object that determines its agents (origins/agents.py).
    for agents in crawls_behind(request):
        with suppress(RuntimeError):  # the crawl's engine is not there yet
            rep = agents.crawler.get_downloader_middleware(RepMiddleware)
            if rep is None:
                continue
            lookup = lookup_of(rep)
            if lookup.known_of(request).state is not None:
                return lookup
    return None


def usage_of(
    response: Response,
    request: Request | None,
    lookup: UsageLookup | None,
    chain: Chain,
) -> Usage:
    """Return what is said about the use of *response*, like :func:`usage`, and remember
    it.

    :param request: what *response* answers
    :param lookup: the crawl's; if it is None, only the page and its headers are read
    :param chain: product tokens of the crawler, the most specific first
    """
    header_values = response.headers.getlist
    # The name, content and line of each meta that is about use.
    metas: list[tuple[str, str, int]] = []
    if is_html(response):
        names = (RESERVATION, POLICY, META_SIGNAL)
        metas = list(metas_of(response.body, encoding_of(response), names))
    signal_metas = [meta for meta in metas if meta[0] == META_SIGNAL]
    tdm_metas = [meta for meta in metas if meta[0] != META_SIGNAL]
    # What is said about text and data mining. Metas take precedence over headers, and
    # headers over tdmrep.json, since |= only adds what is missing so far.
    tdm = reservation_in("meta", tdm_metas)
    tdm |= reservation_in("header", _tdm_headers(response))

    # What robots.txt says, and tdmrep.json if the page and its headers say too little.
    robots = Usage()
    tdmrep_sha256 = None
    if lookup is not None and request is not None:
        robots = lookup.robots(request, chain)
        needs_policy = tdm.is_reserved and tdm.policy is None
        if tdm.statement is None or needs_policy:
            tdm_of_file, tdmrep_sha256 = lookup.tdmrep(request)
            tdm |= tdm_of_file

    # All statements in one list, and the other fields.
    statements = [
        *robots.statements,
        *header_statements("Content-Usage", header_values("Content-Usage")),
        *header_statements("Content-Signal", header_values("Content-Signal")),
        *meta_statements(signal_metas),
        *page_statements(page_rules(response, chain)),
    ]
    if tdm.statement is not None:
        statements.append(tdm.statement)
    licenses = [*robots.licenses, *link_licenses(header_values("Link"))]
    page_usage = replace(
        robots,
        statements=tuple(statements),
        licenses=tuple(dict.fromkeys(licenses)),  # each once, in order
        tdm_policy=tdm.policy if tdm.is_reserved else None,
        tdmrep_sha256=tdmrep_sha256,
    )
    _usages[response] = page_usage
    return page_usage


def _tdm_headers(response: Response) -> list[tuple[str, str, None]]:
    """Return the name and the value of each header about text and data mining; and
    None, since headers have no line."""
    headers = []
    for name in (RESERVATION, POLICY):
        for value in response.headers.getlist(name):
            headers.append((name, value.decode("latin-1"), None))
    return headers


class TdmOrigin(Origin):
    """With this origin, the code that fetches robots.txt fetches tdmrep.json instead.
    Its ``str()`` is the file's URL, so that storages keep the two files apart."""

    __slots__ = ()

    @property
    def robots_url(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return super().__str__() + TDMREP_PATH


class Known(NamedTuple):
    """What a crawl knows of a request's origin."""

    origin: Origin | None
    """None if the request's URL can't have a robots.txt, as in ``data:``."""
    state: OriginState | None
    """None if nothing is known of the origin."""


class UsageLookup:
    """Knows what the origins of one crawl say about use. Made by
    :func:`lookup_of`."""

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        settings = context.settings
        self._settings = settings
        # The table has what is known of origins now. The cache fetches, stores and
        # parses robots.txt.
        self._table = origins.table
        self._cache = origins.cache
        self._tokens = settings.usage_tokens or {}
        self._clock = context.clock
        # tdmrep.json files are fetched, cached and shared by the code for robots.txt
        # (origins/), in a cache of their own. None without REP_TDMREP.
        self._tdm_cache: RobotsCache | None = None
        if settings.tdmrep:
            self._tdm_cache = origins.cache.sibling()
        # Fetches of tdmrep.json files (called flights, see origins/flights.py). Without
        # REP_TDMREP there is no such fetch, since fetch_tdmrep() returns before it asks
        # for one. Then the cache for robots.txt stands in.
        files = self._tdm_cache or origins.cache
        self._flights = Flights(
            context.crawler,
            files.ask,
            files.status_of,
            context.running,
            limits_of(settings),
        )
        self._engine = context.engine
        # A page that waits for a tdmrep.json occupies a download slot. At most this
        # many of these pages get an extra slot. If all did, a server that never answers
        # could fill the memory with pages.
        self._max_extra_slots = concurrency_of(context.crawler)
        # How many pages wait for a tdmrep.json at the moment.
        self._waiting = 0

    def known_of(self, request: Request) -> Known:
        """Return the origin of *request*, and what is known of it."""
        try:
            origin = origin_of(request)
        except ValueError:  # its URL has no host, for example
            return Known(None, None)
        return Known(origin, self._table.get(origin))

    def robots(self, request: Request, chain: Chain) -> Usage:
        """Return what robots.txt says about the page of *request*. *chain*: the product
        tokens of the crawler."""
        now = moment_of(self._clock())
        state = self.known_of(request).state
        if state is None or state.robots is None:
            return Usage(time=now)
        entry = state.entry
        path = comparable(path_in(request))
        # The token that the group which applies to our crawler is for, and its rules.
        token, rules = state.robots.rules(chain, self._settings.obey_global_group)
        robots_usage = _read_robots(entry, token)
        statements = robots_usage.about(path, allowed=rules.allows(path))
        # Add what it says to policy tokens (REP_USAGE_TOKENS).
        for name, purposes in self._tokens.items():
            # What the file would decide about a crawler that has this name.
            decision = state.robots.decide(comparable(request.url), (name,))
            statement = token_statement(name, decision, purposes)
            if statement is not None:
                statements.append(statement)
        # What was parsed takes memory, which counts towards the limit for all origins.
        self._table.weigh(state)
        return Usage(
            tuple(statements),
            robots_usage.licenses,
            robots_sha256=entry.sha256,
            robots_fetched_at=moment_of(entry.fetched_at),
            time=now,
        )

    def tdmrep(self, request: Request) -> tuple[Reservation, str | None]:
        """Return what the origin's tdmrep.json says about the page of *request*, and
        the file's hash. If the file isn't known, it says nothing, and the hash is
        None."""
        origin = self.known_of(request).origin
        if self._tdm_cache is None or origin is None:
            return Reservation(), None
        state = self._tdm_cache.get(TdmOrigin(*origin))
        if state is None:
            return Reservation(), None
        path = comparable(path_in(request))
        return _read_tdm(state.entry).about(path), state.entry.sha256

    async def read_if_large(self, request: Request, chain: Chain) -> None:
        """If the robots.txt is large, read it in a thread, so that :meth:`robots` need
        not read it in the event loop."""
        state = self.known_of(request).state
        if state is None or not _is_large(state.entry):
            return
        await self._cache.read(state, chain)
        for name in self._tokens:
            # As in decide(), the group for "*" counts if there is no other (always),
            # whatever REP_OBEY_GLOBAL_GROUP says.
            await self._cache.read(state, (name,), always=True)
        if state.robots is not None:
            token, _ = state.robots.rules(chain, self._settings.obey_global_group)
            await run_in_thread(_read_robots, state.entry, token)

    async def fetch_tdmrep(self, request: Request, chain: Chain) -> None:
        """Fetch the origin's tdmrep.json if it is wanted and not known, and if the
        origin's robots.txt allows that. Wait for the fetch, until
        ``REP_DOWNLOAD_TIMEOUT`` after it began."""
        origin, state = self.known_of(request)
        if self._tdm_cache is None or origin is None or state is None:
            return
        file = TdmOrigin(*origin)
        if self._tdm_cache.get(file) is not None:
            return
        if state.robots:
            _, rules = state.robots.rules(chain, self._settings.obey_global_group)
            if not rules.allows(TDMREP_PATH):
                return
        await self._wait_for(self._flights.to(file, request))

    async def _wait_for(self, flight: Flight) -> None:
        """Wait until *flight* has fetched its file, or has failed, or the time for it
        is over."""
        self._waiting += 1
        slot: AbstractContextManager[None] = nullcontext()
        if self._waiting <= self._max_extra_slots:
            slot = self._engine.extra_slot()
        try:
            with slot:
                await flight.wait(flight.remaining(self._settings.download_timeout))
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001, S110 (too late, the crawl is ending, or a bug, which is logged)
            pass
        finally:
            self._waiting -= 1

    async def end(self) -> None:
        """Cancel all fetches, since the spider closes."""
        self._flights.end()


def lookup_of(rep: RepMiddleware) -> UsageLookup:
    """Return the lookup of the crawl that *rep* belongs to. It is made at the first
    call, and *rep* keeps it."""
    if not isinstance(rep.usage_lookup, UsageLookup):
        rep.usage_lookup = UsageLookup(rep.context, rep.origins)
    return rep.usage_lookup
