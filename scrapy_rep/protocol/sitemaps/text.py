"""A plain text sitemap: one URL a line, UTF-8."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

from scrapy_rep.protocol.sitemaps.kinds import Kind

if TYPE_CHECKING:
    from scrapy_rep.protocol.sitemaps.kinds import Entry

MAX_LINE = 8192
"""Characters. What is longer is no URL that a server would take; only so much of it is kept."""


class TextFeed:
    """Takes bytes, gives entries. A line of any length takes no more memory than a short one."""

    kind = Kind.TEXT
    problem = None
    over = False

    def __init__(self, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._line = ""

    def feed(self, data: bytes, *, last: bool = False) -> list[Entry]:
        """Return the entries that *data* completes; a last line needs no end."""
        text = self._decoder.decode(data, last) + "\n" * last
        first, *lines = text.replace("\r", "\n").split("\n")
        lines = [self._line + first[: MAX_LINE + 1 - len(self._line)], *lines]
        self._line = lines.pop()[: MAX_LINE + 1]
        return [{"loc": line} for line in map(str.strip, lines) if line]
