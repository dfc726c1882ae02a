"""The result of one fetch of a robots.txt (REP.md section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.words import text_of
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.protocol.syntax import cut
from scrapy_rep.storages.entry import Entry, pack_body

if TYPE_CHECKING:
    from scrapy.http import Headers

_MAX_REASON = 250
"""Characters."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one fetch."""

    outcome: Outcome
    url: str
    """After redirects."""
    hops: int
    status: int | None = None
    """None if there was no HTTP answer."""
    headers: Headers | None = None
    body: bytes = b""
    error: Exception | None = None

    @property
    def reason(self) -> str:
        """Why there are no rules, in words for people."""
        if self.error is not None:
            return text_of(self.error)[:_MAX_REASON]
        return f"HTTP status {self.status}"

    def entry(self, origin: str, **times: Any) -> Entry:
        """Return an answer that counts as an entry, with its *times*."""
        has_rules = self.outcome is Outcome.RULES
        packed, sha256 = pack_body(cut(self.body)) if has_rules else (b"", None)
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
