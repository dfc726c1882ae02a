"""What is known of origins, in memory: with parsed rules for those used recently,
compressed for the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

from scrapy_rep.origins.status import (
    SAYS_NOTHING,
    UNKNOWN,
    Expired,
    Fresh,
    Status,
    expired,
)
from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.matching import Rules
from scrapy_rep.storages.base import Entry, MemoryStorage, UnreadableEntry

_MAX_PARSED = 2000
"""How many origins are kept parsed, which takes some 6 KB each. To parse a robots.txt
again is cheap compared to a page."""

_LEAVING_SHARE = 50
"""The share (a fiftieth) of the parsed origins, or of their bytes, that leaves at a
time. More than one origin leaves, since to find the least recently used takes a while,
and to keep origins in order would cost every request."""

_MAX_PREFIXES = 4
"""How many URL prefixes of one origin the fast path knows. An origin has several:
HTTP://EXAMPLE.com:80/ is one."""

_OVERHEAD_BYTES = 900
"""What an origin takes in memory, beside its texts, the packed body and what is
parsed."""


@dataclass(slots=True, eq=False)
class OriginState:
    """What is known of an origin: its status (status.py), and what changes with
    requests to it. Mutable: who has a reference sees updates."""

    origin: Origin
    entry: Entry = field(init=False)
    """The last answer, as storages keep it. Is set by :meth:`learn`."""
    name: str = field(init=False)
    """The origin, as text."""
    robots: RobotsTxt | None = None
    """The robots.txt, parsed as far as it was needed; None without a copy."""
    unparsed_bytes: int = 0
    """About how many bytes it takes in memory, without what is parsed."""
    status: Status = UNKNOWN
    """What the robots.txt is good for now. Only :meth:`become` replaces it, together
    with the next three attributes, which follow from it."""
    counts_as: Status = UNKNOWN
    """The status that counts for requests that have passed the gate: an expired one
    still counts as what it was before its time was over."""
    unreachable: bool = True
    """Whether nothing is known of what the origin allows."""
    forbids_all: bool = False
    """Whether a 401 or 403 for robots.txt forbids everything, by
    ``REP_FORBIDDEN``."""
    used_at: float = 0.0
    """When a request asked for it last, in seconds since the epoch."""
    rules: Rules | None = None
    """The rules for the usual agent (:attr:`.agents.Agents.usual`). The middleware's
    fast path applies them until ``status.until``. If they are None, or don't allow the
    path, the request takes the longer way: :meth:`.origins.Origins.decide`."""
    allowed: int = 0
    """Requests that passed on the fast path and aren't on record
    (reporting/recorder.py) so far."""
    size: int = 0
    """How many bytes :meth:`OriginTable.weigh` counted for it, with what was parsed by
    then; 0 if it isn't counted."""
    prefixes: tuple[str, ...] = ()
    """Its keys in :attr:`OriginTable.by_prefix`."""

    def learn(self, entry: Entry) -> None:
        """Replace what is known by *entry*. The status stays."""
        self.entry = entry
        self.name = entry.origin
        self.robots = None
        if entry.outcome is Outcome.RULES:
            self.robots = RobotsTxt(entry)
        self.unparsed_bytes = _OVERHEAD_BYTES + len(entry.packed) + len(entry.url)
        if entry.error is not None:
            self.unparsed_bytes += len(entry.error)

    @property
    def robots_url(self) -> str:
        """The file's URL after redirects: the base of relative URLs in it."""
        return self.entry.url or self.origin.robots_url

    def become(self, status: Status) -> None:
        """Replace the status. The fast path has no rules from now on, until a request
        that takes the longer way sets them."""
        self.status = status
        self.rules = None
        if isinstance(status, Expired):  # it still counts as what it was
            status = status.was
        self.counts_as = status
        self.unreachable = isinstance(status, SAYS_NOTHING)
        self.forbids_all = isinstance(status, Fresh) and status.forbids_all


_StateListener = Callable[[OriginState], None]


class OriginTable:
    """A limited number of origins, and of bytes. The least recently used leave; if only
    bytes are short, only those above the average size do. The latest stays, whatever
    its size.

    An origin is in one of three places: *parsed* (used recently; these may take half of
    the bytes), *packed* (compressed; these get the rest), or *pinned* (requests wait
    for it; these don't count)."""

    def __init__(
        self, max_origins: int, max_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        """*clock*: seconds since the epoch."""
        self._clock = clock
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._max_parsed = min(_MAX_PARSED, max_origins)
        self._max_parsed_bytes = max_bytes // 2
        self._parsed: dict[Origin, OriginState] = {}
        """Parsed origins."""
        self._parsed_bytes = 0
        """The sum of their sizes."""
        self._packed: MemoryStorage | None = None
        """Packed origins; None until there is one."""
        self._pinned: dict[Origin, OriginState] = {}
        """Pinned origins."""
        self.by_prefix: dict[str, OriginState] = {}
        """Parsed origins by what their URLs begin with, up to the path's slash: for the
        fast path."""
        self._listeners: list[_StateListener] = []
        """Called with each state that is about to be forgotten or packed."""

    def notify(self, listener: _StateListener) -> None:
        """From now on, call *listener* with each state that is about to be forgotten or
        packed."""
        self._listeners.append(listener)

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin*, usable or not."""
        state = self._parsed.get(origin)
        if state is None:
            state = self._pinned.get(origin)
        if state is None and self._packed is not None:
            state = self._unpack(self._packed, origin)
        return state

    def _unpack(self, packed: MemoryStorage, origin: Origin) -> OriginState | None:
        """Move *origin* from the *packed* ones to the parsed ones; return None if it
        isn't packed."""
        name = str(origin)
        with suppress(UnreadableEntry):  # the entry has a time out of range, say
            entry = packed.load(name)
            if entry is not None:
                packed.drop(name)
                return self.put(origin, entry)
        return None

    def put(self, origin: Origin, entry: Entry) -> OriginState:
        """Replace what is known of *origin* by *entry*, which is used now. Return its
        state."""
        state = self.get(origin)
        if state is None:
            state = OriginState(origin)
        state.learn(entry)
        state.used_at = self._clock()
        if origin not in self._pinned:
            self._parsed[origin] = state
            self.weigh(state)
        return state

    def weigh(self, state: OriginState) -> None:
        """Count the bytes of *state* again, since parsing adds some. Beyond the limits,
        pack other origins and forget packed ones."""
        # Each decision ends here, so this returns at once if nothing has changed.
        size = state.unparsed_bytes
        if state.robots is not None:
            size += state.robots.size
        if size == state.size:
            return
        if self._parsed.get(state.origin) is not state:  # it is pinned, or was packed
            return
        self._parsed_bytes += size - state.size
        state.size = size
        # Pack others, and forget packed ones.
        is_too_many = len(self._parsed) > self._max_parsed
        if is_too_many or self._parsed_bytes > self._max_parsed_bytes:
            self._pack_oldest(state)
        if self._packed is not None:
            # The latest may be larger than the half for parsed ones. The packed ones
            # keep their half.
            parsed_bytes = min(self._parsed_bytes, self._max_parsed_bytes)
            max_packed = self._max_origins - len(self._parsed)
            max_packed_bytes = self._max_bytes - parsed_bytes
            self._packed.shrink(max_packed, max_packed_bytes)

    def _pack_oldest(self, latest: OriginState) -> None:
        """Pack the least recently used of the parsed origins, but not the *latest*,
        until the number and bytes of the parsed ones are below the limits by
        :data:`_LEAVING_SHARE`."""
        average = self._max_parsed_bytes // len(self._parsed)
        enough = self._max_parsed - self._max_parsed // _LEAVING_SHARE
        leaving_bytes = self._max_parsed_bytes // _LEAVING_SHARE
        enough_bytes = self._max_parsed_bytes - leaving_bytes
        oldest_first = sorted(self._parsed.values(), key=attrgetter("used_at"))
        for oldest in oldest_first:
            is_too_many = len(self._parsed) > enough
            if not is_too_many and self._parsed_bytes <= enough_bytes:
                break
            # If only bytes are short, packing the large ones is enough.
            leaves = is_too_many or oldest.size > average
            if leaves and oldest is not latest:
                self._pack(oldest)

    def add_prefix(self, state: OriginState, prefix: str) -> None:
        """Keep *state* in :attr:`by_prefix` while it is parsed."""
        if prefix in state.prefixes:
            return
        has_room = len(state.prefixes) < _MAX_PREFIXES
        if has_room and state.origin in self._parsed:
            state.prefixes += (prefix,)
            self.by_prefix[prefix] = state

    def states(self) -> list[OriginState]:
        """Return the states of all origins that aren't packed."""
        return [*self._parsed.values(), *self._pinned.values()]

    def pin(self, origin: Origin) -> None:
        """Keep *origin* until :meth:`unpin`, since requests wait for it."""
        state = self.get(origin)
        if state is not None:
            self._parsed.pop(state.origin, None)
            # The size is 0 if the origin is pinned already.
            self._parsed_bytes -= state.size
            state.size = 0
            self._pinned[state.origin] = state

    def unpin(self, origin: Origin) -> None:
        """Let *origin*, which is used now, be packed again."""
        state = self._pinned.pop(origin, None)
        if state is not None:
            state.used_at = self._clock()
            self._parsed[origin] = state
            self.weigh(state)

    def _pack(self, state: OriginState) -> None:
        """Move a parsed origin to the packed ones."""
        del self._parsed[state.origin]
        self._parsed_bytes -= state.size
        # The state gets no more updates, so code that still has a reference to it must
        # not use it for decisions.
        state.become(expired(state.status))
        for listener in self._listeners:
            listener(state)
        for prefix in state.prefixes:
            del self.by_prefix[prefix]
        state.prefixes = ()
        if self._packed is None:
            self._packed = MemoryStorage(self._max_origins, self._max_bytes)
        self._packed.save(state.entry)
