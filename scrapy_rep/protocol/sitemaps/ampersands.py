"""Mends the most common error in XML sitemaps: `&` in a URL instead of `&amp;`. libxml2 would drop
what follows, and so change the URL. CDATA sections stay as they are."""

from __future__ import annotations

import re

MAX_MENDED = 1_000_000
"""Per file. Each costs five bytes and an event: a file of nothing else would take a minute."""

_CDATA = b"<![CDATA["
# A CDATA section, maybe unfinished, or an ampersand that begins no reference.
_PATTERN = re.compile(
    rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|&(?!#[0-9]{1,8};|#x[0-9a-fA-F]{1,8};|[A-Za-z_][\w.-]{0,30};)",
    re.DOTALL,
)
# What the end of a piece may cut in two, in its last bytes.
_CUT = re.compile(rb"(?:[&<][^;>]{0,39}|\]\]?)\Z")
_LONGEST = 40


class Ampersands:
    """Mends a file piece by piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._in_cdata = False
        self.count = 0  # mended so far

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """Return *data* mended, without an end that depends on the next piece."""
        data = self._rest + data
        cut = None if last else _CUT.search(data, max(0, len(data) - _LONGEST))
        self._rest = data[cut.start() :] if cut else b""
        begun = _CDATA if self._in_cdata else b""  # as if an open section began here
        data = begun + data[: len(data) - len(self._rest)]
        if b"&" in data or _CDATA in data:
            self._in_cdata = False
            data = _PATTERN.sub(self._mended, data)
        return data[len(begun) :]

    def _mended(self, match: re.Match[bytes]) -> bytes:
        if match[0] == b"&":
            self.count += 1
            return b"&amp;"
        self._in_cdata = not match[0].endswith(b"]]>")
        return match[0]
