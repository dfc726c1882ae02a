"""How pages of a crawl may be used, as far as that is known without the page: by its origin's
robots.txt and tdmrep.json (REP.md section 11)."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, TypeVar

from scrapy.utils.asyncio import run_in_thread

from scrapy_rep.origins.requests import origin_of, path_in
from scrapy_rep.pages.tdmrep import TdmFiles
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.protocol.usage import RobotsUsage, Usage, read_robots
from scrapy_rep.protocol.usage.policy_tokens import token_statement
from scrapy_rep.protocol.usage.tdmrep import PATH, Reservation, TdmFile

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.middleware import RepMiddleware
    from scrapy_rep.origins.cache import RobotsCache
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.state import OriginState, OriginTable
    from scrapy_rep.protocol import Origin

Chain = tuple[str, ...]
KeyT = TypeVar("KeyT")
FileT = TypeVar("FileT", RobotsUsage, TdmFile)

# Bytes. Reading a larger file takes up to 50 ms, so that happens in a thread.
_LARGE = 16_384
# Bytes of what was read of files, and how many of them.
_MAX_BYTES = 16_000_000
_MAX_FILES = 10_000


class Files(dict[KeyT, FileT]):
    """What was read of files, up to a limit."""

    _bytes = 0

    def keep(self, key: KeyT, found: FileT) -> FileT:
        """Return *found*, and keep it."""
        if len(self) >= _MAX_FILES or self._bytes > _MAX_BYTES:
            self.clear()
            self._bytes = 0
        self[key] = found
        self._bytes += found.size
        return found


class UsageLookup:
    """What the origins of one crawl say about use. Use :func:`lookup_of`."""

    def __init__(self, context: CrawlContext, table: OriginTable, cache: RobotsCache) -> None:
        settings = context.settings
        self._table = table
        self._cache = cache
        self._obey_global = settings.obey_global_group
        self._tokens = settings.usage_tokens or {}
        self._clock = context.clock
        # By SHA-256 and group.
        self._robots: Files[tuple[str | None, str | None], RobotsUsage] = Files()
        self._tdm: Files[str | None, TdmFile] = Files()
        self.tdm = TdmFiles(context, cache) if settings.tdmrep else None
        """Where tdmrep.json files are fetched; None if they are not."""

    def known(self, request: Request) -> tuple[Origin | None, OriginState | None]:
        """Return the origin of *request*, and its state."""
        try:
            origin = origin_of(request)
        except ValueError:
            return None, None
        return origin, self._table.get(origin)

    def robots(self, request: Request, chain: Chain) -> Usage:
        """Return what robots.txt says about the page of *request*."""
        time = _date(self._clock())
        _, state = self.known(request)
        if state is None or state.robots is None:
            return Usage(time=time)
        entry, path = state.entry, comparable(path_in(request))
        token, rules = state.robots.rules(chain, self._obey_global)
        said = self._read(state, token)
        statements = said.about(path, allowed=rules.allows(path))
        for name, purposes in self._tokens.items():
            decision = state.robots.decide(comparable(request.url), name)
            if statement := token_statement(name, decision, purposes):
                statements.append(statement)
        self._table.weigh(state)
        return Usage(
            tuple(statements),
            said.licenses,
            robots_sha256=entry.sha256,
            robots_fetched_at=_date(entry.fetched_at),
            time=time,
        )

    def tdmrep(self, request: Request) -> tuple[Reservation | None, str | None]:
        """Return what tdmrep.json says about the page of *request*, and the file's SHA-256."""
        origin, _ = self.known(request)
        entry = self.tdm.known(origin) if self.tdm is not None and origin is not None else None
        if entry is None:
            return None, None
        file = self._tdm.get(entry.sha256)
        if file is None:
            file = self._tdm.keep(entry.sha256, TdmFile(entry.body))
        return file.about(comparable(path_in(request))), entry.sha256

    async def read(self, request: Request, chain: Chain) -> None:
        """Read a large robots.txt in a thread, so that :meth:`robots` need not do it."""
        _, state = self.known(request)
        if state is None or state.robots is None:
            return
        for one in (chain, *((name,) for name in self._tokens)):
            if self._cache.takes_long(state, one):
                await self._cache.read(state, one)
        entry = state.entry
        group, _ = state.robots.rules(chain, self._obey_global)
        # The body is unpacked for its length: only if there is something to read.
        if (entry.sha256, group) not in self._robots and len(entry.body) > _LARGE:
            found = await run_in_thread(read_robots, entry.body, group)
            self._robots.keep((entry.sha256, group), found)

    async def fetch(self, request: Request, chain: Chain) -> None:
        """Fetch tdmrep.json if it is wanted, not known, and allowed by robots.txt."""
        origin, state = self.known(request)
        if self.tdm is None or origin is None or state is None:
            return
        if state.robots is not None:
            _, rules = state.robots.rules(chain, self._obey_global)
            if not rules.allows(PATH):
                return
        await self.tdm.fetch(request, origin)

    def _read(self, state: OriginState, token: str | None) -> RobotsUsage:
        key = state.entry.sha256, token
        found = self._robots.get(key)
        if found is None:
            found = self._robots.keep(key, read_robots(state.entry.body, token))
        return found


def lookup_of(rep: RepMiddleware) -> UsageLookup:
    """Return the one of a crawl."""
    found = rep.parts.get(UsageLookup)
    if found is None:
        found = UsageLookup(rep.context, rep.origins.table, rep.origins.cache)
        rep.parts[UsageLookup] = found
    return found


def _date(seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a clock may say anything
        return None
