"""Mends what is wrong most often in XML sitemaps: `&` in a URL that should be `&amp;`. libxml2 would
leave out what follows, so that the URL is another one. In CDATA it is right as it is."""

from __future__ import annotations

import re

MAX_MENDED = 1_000_000
"""Of one file. Each becomes five bytes and an event: a file of nothing else would take a minute."""


class Ampersands:
    """Takes bytes, gives them mended."""

    # A complete CDATA section, one whose end is not there yet, or an ampersand that begins no
    # reference.
    _PATTERN = re.compile(
        rb"<!\[CDATA\[(?:.*?\]\]>|.*)|&(?!#[0-9]{1,8};|#x[0-9a-fA-F]{1,8};|[A-Za-z_][\w.-]{0,30};)",
        re.DOTALL,
    )
    _LONGEST = 40  # bytes of what may be cut in two by the end of a piece

    def __init__(self) -> None:
        self._rest = b""
        self._in_cdata = False
        self.count = 0
        """How many were mended."""

    def feed(self, data: bytes) -> bytes:
        if not (self._rest or self._in_cdata or b"&" in data or b"<![" in data[-12:]):
            start = data.rfind(b"<![CDATA[")
            if (start < 0 or data.find(b"]]>", start) >= 0) and b"<" not in data[-9:]:
                return data
        data = self._rest + data
        # A CDATA section may end with the next piece's first byte.
        cut = max(0, len(data) - 2) if data.endswith(b"]") else len(data)
        for mark in (b"&", b"<"):
            at = data.rfind(mark, max(0, len(data) - self._LONGEST))
            if at >= 0:
                cut = min(cut, at)
        self._rest = data[cut:]
        return self._mend(data[:cut])

    def close(self) -> bytes:
        data, self._rest = self._rest, b""
        return self._mend(data)

    def _mend(self, data: bytes) -> bytes:
        if self._in_cdata:
            end = data.find(b"]]>")
            if end < 0:
                return data
            self._in_cdata = False
            return data[: end + 3] + self._mend(data[end + 3 :])
        out: list[bytes] = []
        done = 0
        for match in self._PATTERN.finditer(data):
            if match[0] == b"&":
                out += [data[done : match.start()], b"&amp;"]
                done = match.end()
                self.count += 1
            elif not match[0].endswith(b"]]>"):
                self._in_cdata = True
                break
        out.append(data[done:])
        return b"".join(out)
