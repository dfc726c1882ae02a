"""What is known of one origin, ready to decide by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing

if TYPE_CHECKING:
    from scrapy_rep.protocol.matching import Rules
    from scrapy_rep.storages.base import Entry

# What an origin in use takes, beside texts, the packed body and what was read of it.
_BYTES = 900


class OriginState:
    """An origin's entry, ready to decide by. Mutable: holders of a reference see updates.

    ``standing`` says what it is good for, and changes so (REP.md sections 4 and 5):

    - ASK → a fetch, a *flight* (:mod:`scrapy_rep.origins.flights`); an origin that was never asked
      is not in the table at all;
    - flight → FRESH: an answer that counts, until ``entry.fresh_until``;
    - flight → STALE (there is an older copy) or UNREACHABLE (there is none): a failure, until
      ``entry.next_attempt_at``; UNRESTRICTED instead of UNREACHABLE after 30 days of failures;
    - FRESH, STALE, UNREACHABLE, UNRESTRICTED → ASK: at ``usable_until``.
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
        """The bytes that it is counted with, see :meth:`OriginTable.weigh`."""
        self.standing = Standing.ASK
        self.usable_until = 0.0
        """Until when nothing has to be fetched, in seconds since the epoch."""
        self.rules: Rules | None = None
        """Rules for the fast path, for the crawl's own agent, valid until :attr:`usable_until`. If
        None, or if they don't allow the path, the gate decides."""
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
