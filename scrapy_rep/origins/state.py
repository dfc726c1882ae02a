"""Origins in memory: recently used ones parsed, others compressed (docs/DESIGN.md, "Bodies
compressed, rules on demand")."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

from scrapy_rep.origins.status import UNKNOWN, Fresh, Status, expired
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.matching import Rules
from scrapy_rep.storages.base import Entry, MemoryStorage, UnreadableEntry

# Origins kept parsed, some 6 KB each. Parsing again is cheap compared to a page.
_MAX_PARSED = 2000

# One in this many (or of their bytes) leave together: finding the least recently used takes a
# while, and keeping them in order would cost every request.
_LEAVING = 50

# URL prefixes per origin on the hot path: HTTP://EXAMPLE.com:80/ is one.
_PREFIXES = 4

# An origin's overhead, beside texts, the packed body and the parsed part.
_BYTES = 900


@dataclass(slots=True, eq=False)
class OriginState:
    """What changes with requests to an origin, beside its status. Mutable: holders of a reference see
    updates."""

    entry: Entry
    origin: Origin
    name: str = field(init=False)
    """The origin, as text."""
    robots: RobotsTxt | None = field(init=False)
    status: Status = UNKNOWN
    """What is known of the origin. See :meth:`become`."""
    used_at: float = 0.0
    """Seconds since the epoch."""
    rules: Rules | None = None
    """The usual agent's, for the fast path, until ``status.until``. If None, or if they don't
    allow the path, the middleware looks closer."""
    allowed: int = 0
    """Requests that passed, not yet on record."""
    size: int = 0
    """Bytes, as :meth:`OriginTable.weigh` counted them."""
    prefixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.name = self.entry.origin
        self.robots = RobotsTxt(self.entry) if self.entry.has_copy else None

    @property
    def bytes(self) -> int:
        """About how many bytes it takes, with what was parsed so far."""
        entry = self.entry
        size = _BYTES + len(entry.packed) + len(entry.url) + len(entry.error or "")
        return size if self.robots is None else size + self.robots.size

    @property
    def robots_url(self) -> str:
        """The file's URL after redirects: the base of relative URLs in it."""
        return self.entry.url or self.origin.robots_url

    def become(self, status: Status) -> None:
        """Replace the status. The fast path has to ask for rules again."""
        self.status = status
        self.rules = None

    @property
    def unreachable(self) -> bool:
        """Whether nothing says what is allowed."""
        return self.status.says_nothing

    @property
    def forbids_all(self) -> bool:
        """Whether a 401 or 403 for robots.txt forbids everything, by ``REP_FORBIDDEN``."""
        status = self.status.counts_as
        return isinstance(status, Fresh) and status.forbids_all


class OriginTable:
    """A limited number of origins, and of bytes. The least recently used leave; if only bytes are
    short, only those above the average size. Parsed ones may take half of the bytes, packed ones
    the rest; pinned ones don't count. The latest stays, whatever its size."""

    def __init__(
        self, max_origins: int, max_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        """*clock*: seconds since the epoch."""
        self._clock = clock
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._max_parsed = min(_MAX_PARSED, max_origins)
        self._parsed: dict[str, OriginState] = {}
        self._parsed_bytes = 0
        self._packed: MemoryStorage | None = None
        """Those that have left the parsed ones; None while there are none."""
        self._pinned: dict[str, OriginState] = {}
        self.by_prefix: dict[str, OriginState] = {}
        """Parsed ones, by what their URLs begin with, up to the path's slash."""
        self._listeners: list[Callable[[OriginState], None]] = []

    def notify(self, listener: Callable[[OriginState], None]) -> None:
        """From now on, call *listener* with each state that is about to be forgotten or compressed."""
        self._listeners.append(listener)

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin*, usable or not."""
        name = str(origin)
        state = self._parsed.get(name) or self._pinned.get(name)
        if state is None and self._packed is not None:
            with suppress(UnreadableEntry):  # a clock out of range, say
                if entry := self._packed.load(name):
                    self._packed.drop(name)
                    state = self._keep(OriginState(entry, origin))
        return state

    def put(self, origin: Origin, entry: Entry) -> OriginState:
        state = self.get(origin)
        if state is None:
            state = OriginState(entry, origin)
        else:
            state.entry, state.robots = (
                entry,
                RobotsTxt(entry) if entry.has_copy else None,
            )
        return self._keep(state)

    def weigh(self, state: OriginState) -> None:
        """Count the bytes of *state* again: parsing adds some. Beyond the limits, pack others."""
        if (
            state.size == (size := state.bytes)
            or self._parsed.get(state.name) is not state
        ):
            return
        self._parsed_bytes += size - state.size
        state.size = size
        most, half = self._max_parsed, self._max_bytes // 2
        if len(self._parsed) > most or self._parsed_bytes > half:
            # If only bytes are short, packing the large ones is enough.
            share = half // len(self._parsed)
            most, enough = most - most // _LEAVING, half - half // _LEAVING
            for oldest in sorted(self._parsed.values(), key=attrgetter("used_at")):
                many = len(self._parsed) > most
                if not many and self._parsed_bytes <= enough:
                    break
                if (many or oldest.size > share) and oldest is not state:
                    self._pack(oldest)
        if self._packed is not None:
            left = self._max_bytes - min(self._parsed_bytes, half)
            self._packed.shrink(self._max_origins - len(self._parsed), left)

    def add_prefix(self, state: OriginState, prefix: str) -> None:
        """Keep *state* in :attr:`by_prefix` while it is parsed."""
        is_new = prefix not in state.prefixes and len(state.prefixes) < _PREFIXES
        if is_new and state.name in self._parsed:
            state.prefixes += (prefix,)
            self.by_prefix[prefix] = state

    def states(self) -> list[OriginState]:
        return [*self._parsed.values(), *self._pinned.values()]

    def pin(self, origin: Origin) -> None:
        """Keep *origin*: requests wait for it."""
        state = self.get(origin)
        if state is not None:
            self._parsed.pop(state.name, None)
            self._parsed_bytes -= state.size  # 0 if it is pinned already
            state.size = 0
            self._pinned[state.name] = state

    def unpin(self, origin: Origin) -> None:
        """Let *origin* leave again."""
        state = self._pinned.pop(str(origin), None)
        if state is not None:
            self._keep(state)

    def _keep(self, state: OriginState) -> OriginState:
        state.used_at = self._clock()
        if state.name not in self._pinned:
            self._parsed[state.name] = state
            self.weigh(state)
        return state

    def _pack(self, state: OriginState) -> None:
        del self._parsed[state.name]
        self._parsed_bytes -= state.size
        state.become(expired(state.status))  # for holders of a reference
        for listener in self._listeners:
            listener(state)
        for prefix in state.prefixes:
            del self.by_prefix[prefix]
        state.prefixes = ()
        if self._packed is None:
            self._packed = MemoryStorage(self._max_origins, self._max_bytes)
        self._packed.save(state.entry)
