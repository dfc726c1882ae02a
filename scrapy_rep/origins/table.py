"""What is known of the origins in memory: those in use parsed, those that were in use compressed
(docs/DESIGN.md, "Bodies compressed, rules on demand")."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING

from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.storages.entry import UnreadableEntry
from scrapy_rep.storages.memory import MemoryStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_rep.protocol.matching import Rules
    from scrapy_rep.storages.base import Entry

# This many origins are kept parsed, some 6 KB each. Reading a file again is cheap beside a page.
_PARSED = 2000

# One in this many of these, or of their bytes, leave together: finding the least recently used takes
# a while, and keeping a list in order would cost every request.
_LEAVING = 50

# What an origin in use takes, beside texts, the packed body and what was read of it.
_BYTES = 900

# How many prefixes of an origin's URLs the hot path knows: HTTP://EXAMPLE.com:80/ is one.
_PREFIXES = 4


class Known:
    """An origin's entry, ready to decide by. Mutable: holders of a reference see updates.

    What it is good for changes so (REP.md sections 4 and 5; ``Standing``): an answer makes it FRESH,
    until ``entry.fresh_until``; a failure makes it STALE if there is a copy, else UNREACHABLE, and
    after 30 days of failures UNRESTRICTED, each until ``entry.next_attempt_at``. After that it is
    ASK: robots.txt is fetched before the next decision, see :mod:`scrapy_rep.origins.flights`.
    """

    __slots__ = (
        "entry",
        "name",
        "prefixes",
        "robots",
        "rules",
        "size",
        "standing",
        "usable_until",
        "used_at",
    )

    def __init__(self, entry: Entry) -> None:
        self.name = entry.origin
        """The origin, as text."""
        self.used_at = 0.0
        """When it was last used, in seconds since the epoch."""
        self.size = 0
        """The bytes that it is counted with, see :meth:`KnownOrigins.weigh`."""
        self.standing = Standing.ASK
        self.usable_until = 0.0
        """Until when nothing has to be asked, in seconds since the epoch."""
        self.rules: Rules | None = None
        """What allows a request of the crawl's own agent until then. None, and what these rules do
        not allow, has to be looked at more closely."""
        self.prefixes: tuple[str, ...] = ()
        self.update(entry)

    def update(self, entry: Entry) -> None:
        """Take a newer entry in."""
        self.entry = entry
        # The body is kept compressed, in the entry alone.
        self.robots = RobotsTxt(entry) if entry.has_copy else None

    @property
    def bytes(self) -> int:
        """About how many bytes it takes by now: what was read of the file too."""
        entry = self.entry
        size = _BYTES + len(entry.packed) + len(entry.url) + len(entry.error or "")
        return size if self.robots is None else size + self.robots.size

    @property
    def origin(self) -> Origin:
        """Whose robots.txt this is. Made when it is asked for, which is rare."""
        return Origin.from_text(self.name)

    @property
    def unreachable(self) -> bool:
        """Whether there is nothing to decide by."""
        return (
            self.entry.outcome is not Outcome.RULES
            and self.entry.unreachable_since is not None
            and self.standing is not Standing.UNRESTRICTED
        )


class KnownOrigins:
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
        self._parsed: dict[str, Known] = {}
        self._parsed_bytes = 0
        self._packed = MemoryStorage(max_origins, max_bytes)
        self._pinned: dict[str, Known] = {}
        self.by_prefix: dict[str, Known] = {}
        """Those in use, by how their URLs begin, up to the path's slash."""

    def get(self, origin: Origin) -> Known | None:
        """Return what is known of *origin*, whatever that is good for."""
        name = str(origin)
        known = self._parsed.get(name) or self._pinned.get(name)
        if known is None:
            try:
                entry = self._packed.take(name)
            except UnreadableEntry:  # from a clock that is out of range, say
                entry = None
            if entry is not None:
                known = Known(entry)
                self._add(known)
        return known

    def put(self, origin: Origin, entry: Entry) -> Known:
        """Take a newer entry in."""
        known = self.get(origin)
        if known is None:
            known = Known(entry)
            self._add(known)
        else:
            known.update(entry)
            known.used_at = self._clock()
            self.weigh(known)
        return known

    def weigh(self, known: Known) -> None:
        """Count *known* anew: it takes more once its file was read."""
        if known.size != (size := known.bytes) and self._parsed.get(known.name) is known:
            self._parsed_bytes += size - known.size
            known.size = size
            self._make_room(known)

    def add_prefix(self, known: Known, prefix: str) -> None:
        """Have *known* in :attr:`by_prefix` as long as it is in use."""
        if self.by_prefix.get(prefix) is known or known.name not in self._parsed:
            return
        if len(known.prefixes) < _PREFIXES:
            known.prefixes += (prefix,)
            self.by_prefix[prefix] = known

    def pin(self, origin: Origin) -> None:
        """Keep *origin* whatever its age: something waits for it."""
        known = self.get(origin)
        if known is not None:
            if self._parsed.pop(known.name, None) is not None:
                self._parsed_bytes -= known.size
            self._pinned[known.name] = known

    def unpin(self, origin: Origin) -> None:
        """Let *origin* leave when its turn comes."""
        known = self._pinned.pop(str(origin), None)
        if known is not None:
            self._add(known)

    def _add(self, known: Known) -> None:
        known.used_at = self._clock()
        known.size = known.bytes
        self._parsed[known.name] = known
        self._parsed_bytes += known.size
        self._make_room(known)

    def _make_room(self, latest: Known) -> None:
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

    def _leave(self, known: Known) -> None:
        del self._parsed[known.name]
        self._parsed_bytes -= known.size
        known.usable_until = 0.0  # holders of a reference have to ask again
        for prefix in known.prefixes:
            del self.by_prefix[prefix]
        known.prefixes = ()
        self._packed.save(known.entry)
