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

    def __init__(self, encoding: str = "utf-8") -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._line = ""
        self._first = True

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that *data* completes."""
        return self._lines(self._decoder.decode(data))

    def close(self) -> list[Entry]:
        """Return what is left: a last line needs no end."""
        return self._lines(self._decoder.decode(b"", True) + "\n")

    def _lines(self, text: str) -> list[Entry]:
        if self._first and text:
            self._first = False
            text = text.removeprefix("\ufeff")
        first, *others = text.replace("\r", "\n").split("\n")
        if len(self._line) <= MAX_LINE:
            first = self._line + first[: MAX_LINE + 1]
        else:
            first = self._line
        if not others:
            self._line = first[: MAX_LINE + 1]
            return []
        *whole, last = others
        self._line = last[: MAX_LINE + 1]
        return [{"loc": line} for line in map(str.strip, (first, *whole)) if line]
