"""What is known of the origins in memory: those in use parsed, those that were in use compressed
(docs/DESIGN.md, "Bodies compressed, rules on demand")."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING

from scrapy_rep.origins.state import OriginState
from scrapy_rep.storages.entry import UnreadableEntry
from scrapy_rep.storages.memory import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_rep.protocol import Origin
    from scrapy_rep.storages.base import Entry

# This many origins are kept parsed, some 6 KB each. Reading a file again is cheap beside a page.
_PARSED = 2000

# One in this many of these, or of their bytes, leave together: finding the least recently used takes
# a while, and keeping a list in order would cost every request.
_LEAVING = 50

# How many prefixes of an origin's URLs the hot path knows: HTTP://EXAMPLE.com:80/ is one.
_PREFIXES = 4


class OriginTable:
    """A limited number of origins, and of bytes. The least recently used leave; if bytes are short,
    those do that take more than their share.

    Parsed ones may take half of the bytes, packed ones what is left. Pinned ones come on top. The
    latest one stays, however large it is.
    """

    def __init__(
        self, max_origins: int, max_bytes: int, clock: Callable[[], float] = time.time
    ) -> None:
        """:param clock: seconds since the epoch"""
        self._clock = clock
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._max_parsed = min(_PARSED, max_origins)
        self._parsed: dict[str, OriginState] = {}
        self._parsed_bytes = 0
        self._packed = MemoryStorage(max_origins, max_bytes)
        self._pinned: dict[str, OriginState] = {}
        self.by_prefix: dict[str, OriginState] = {}
        """Those in use, by how their URLs begin, up to the path's slash."""

    def get(self, origin: Origin) -> OriginState | None:
        """Return what is known of *origin*, whatever that is good for."""
        name = str(origin)
        state = self._parsed.get(name) or self._pinned.get(name)
        if state is None:
            try:
                entry = self._packed.take(name)
            except UnreadableEntry:  # from a clock that is out of range, say
                entry = None
            if entry is not None:
                state = OriginState(entry)
                self._add(state)
        return state

    def put(self, origin: Origin, entry: Entry) -> OriginState:
        """Take a newer entry in."""
        state = self.get(origin)
        if state is None:
            state = OriginState(entry)
            self._add(state)
        else:
            state.update(entry)
            state.used_at = self._clock()
            self.weigh(state)
        return state

    def weigh(self, state: OriginState) -> None:
        """Count *state* anew: it takes more once its file was read."""
        if state.size != (size := state.bytes) and self._parsed.get(state.name) is state:
            self._parsed_bytes += size - state.size
            state.size = size
            self._make_room(state)

    def add_prefix(self, state: OriginState, prefix: str) -> None:
        """Have *state* in :attr:`by_prefix` as long as it is in use."""
        if self.by_prefix.get(prefix) is state or state.name not in self._parsed:
            return
        if len(state.prefixes) < _PREFIXES:
            state.prefixes += (prefix,)
            self.by_prefix[prefix] = state

    def pin(self, origin: Origin) -> None:
        """Keep *origin* whatever its age: something waits for it."""
        state = self.get(origin)
        if state is not None:
            if self._parsed.pop(state.name, None) is not None:
                self._parsed_bytes -= state.size
            self._pinned[state.name] = state

    def unpin(self, origin: Origin) -> None:
        """Let *origin* leave when its turn comes."""
        state = self._pinned.pop(str(origin), None)
        if state is not None:
            self._add(state)

    def _add(self, state: OriginState) -> None:
        state.used_at = self._clock()
        state.size = state.bytes
        self._parsed[state.name] = state
        self._parsed_bytes += state.size
        self._make_room(state)

    def _make_room(self, latest: OriginState) -> None:
        """Have some leave if there are too many, or too many bytes, but not the *latest*."""
        most, half = self._max_parsed, self._max_bytes // 2
        if len(self._parsed) > most or self._parsed_bytes > half:
            # Some are larger than the average, so there is no need to pack all the others.
            share = half // len(self._parsed)
            most, enough = most - most // _LEAVING, half - half // _LEAVING
            for oldest in sorted(self._parsed.values(), key=attrgetter("used_at")):
                many = len(self._parsed) > most
                if not many and self._parsed_bytes <= enough:
                    break
                if (many or oldest.size > share) and oldest is not latest:
                    self._leave(oldest)
        self._packed.shrink(
            self._max_origins - len(self._parsed), self._max_bytes - min(self._parsed_bytes, half)
        )

    def _leave(self, state: OriginState) -> None:
        del self._parsed[state.name]
        self._parsed_bytes -= state.size
        state.usable_until = 0.0  # holders of a reference have to ask again
        for prefix in state.prefixes:
            del self.by_prefix[prefix]
        state.prefixes = ()
        self._packed.save(state.entry)
