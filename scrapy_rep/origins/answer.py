"""What one fetch of a robots.txt brought (REP.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.words import text_of
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.entry import Entry, pack_body

if TYPE_CHECKING:
    from scrapy.http import Headers

# Characters of what an exception says.
_MAX_REASON = 250


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of asking for a robots.txt."""

    outcome: Outcome
    url: str
    """Of the last request, after redirects."""
    hops: int
    status: int | None = None
    """None if there was no HTTP answer."""
    headers: Headers | None = None
    body: bytes = b""
    error: Exception | None = None

    @property
    def reason(self) -> str:
        """What to tell a person about an outcome that isn't rules."""
        if self.error is not None:
            return text_of(self.error)[:_MAX_REASON]
        return f"HTTP status {self.status}"

    def entry(self, origin: str, **times: Any) -> Entry:
        """Return what is kept of it, for an answer that counts.

        :param times: of the entry
        """
        packed, sha256 = b"", None
        if self.outcome is Outcome.RULES:
            packed, sha256 = pack_body(cut(self.body))
        return Entry(
            origin,
            outcome=self.outcome,
            status=self.status,
            url=self.url,
            hops=self.hops,
            packed=packed,
            sha256=sha256,
            **times,
        )
