"""What is kept of an origin's robots.txt (REP.md sections 4 and 5)."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from scrapy_rep.protocol.availability import Outcome


@dataclass(frozen=True, slots=True)
class Entry:
    """Everything known of one origin's robots.txt. One entry serves all agents.

    Times are seconds since the epoch. The first half speaks of the last answer that counted
    (rules, or a missing file), the second of the unbroken row of failures since, if any.
    """

    origin: str
    """Canonical, as ``str()`` of an :class:`~scrapy_rep.protocol.Origin`."""

    outcome: Outcome = Outcome.UNREACHABLE
    """Of the last answer that counted; ``UNREACHABLE`` if there never was one."""
    status: int | None = None
    url: str = ""
    """Where the answer came from, after redirects."""
    hops: int = 0
    packed: bytes = b""
    """The body as received, cut to size, compressed."""
    fetched_at: float | None = None
    fresh_until: float = 0.0

    unreachable_since: float | None = None
    """When the first failure of the row was; None while all is well."""
    attempts: int = 0
    """Failures in the row."""
    dead_attempts: int = 0
    """How many of the last ones, in a row, were failures to resolve the host or to connect."""
    next_attempt_at: float = 0.0
    error: str | None = None
    """What happened at the last failure."""

    @property
    def body(self) -> bytes:
        """The body of the last answer that counted."""
        return zlib.decompress(self.packed) if self.packed else b""

    @property
    def has_copy(self) -> bool:
        """Whether there are rules to go on with while the origin is unreachable.

        A missing file is no copy: who had no robots.txt yesterday and answers 503 today has
        trouble that a crawl would add to, so the polite reading is to wait.
        """
        return self.outcome is Outcome.RULES
