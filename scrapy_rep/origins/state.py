"""What is known of one origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.protocol import Origin, RobotsTxt
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.freshness import Standing

if TYPE_CHECKING:
    from scrapy_rep.protocol.matching import Rules
    from scrapy_rep.storages.base import Entry

# An origin's overhead, beside texts, the packed body and the parsed part.
_BYTES = 900


class OriginState:
    """An origin's entry and rules. Mutable: holders of a reference see updates.

    ``standing`` says what it is good for, and changes as follows (REP.md sections 4 and 5):

    - ASK → a fetch, a *flight* (:mod:`scrapy_rep.origins.flights`); new origins have no state;
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
        """Seconds since the epoch."""
        self.size = 0
        """Bytes, as :meth:`OriginTable.weigh` counted them."""
        self.standing = Standing.ASK
        self.usable_until = 0.0
        """When the next fetch is due, in seconds since the epoch."""
        self.rules: Rules | None = None
        """For the fast path: the usual agent's, until :attr:`usable_until`. If None, or if they don't
        allow the path, the gate decides."""
        self.prefixes: tuple[str, ...] = ()
        self.update(entry)

    def update(self, entry: Entry) -> None:
        """Replace the entry by a newer one."""
        self.entry = entry
        self.robots = RobotsTxt(entry) if entry.has_copy else None

    @property
    def bytes(self) -> int:
        """About how many bytes it takes, with what was parsed so far."""
        entry = self.entry
        size = _BYTES + len(entry.packed) + len(entry.url) + len(entry.error or "")
        return size if self.robots is None else size + self.robots.size

    @property
    def origin(self) -> Origin:
        """Whose robots.txt this is. Rarely needed, so made on demand."""
        return Origin.from_text(self.name)

    @property
    def unreachable(self) -> bool:
        """Whether nothing says what is allowed."""
        return (
            self.entry.outcome is not Outcome.RULES
            and self.entry.unreachable_since is not None
            and self.standing is not Standing.UNRESTRICTED
        )
