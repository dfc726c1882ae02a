"""Bytes to entries. The content decides the format, not a name or a header."""

from __future__ import annotations

import codecs
import re
from itertools import chain
from typing import TYPE_CHECKING

from scrapy_rep.protocol.sitemaps.gunzip import GunzipError, gunzip
from scrapy_rep.protocol.sitemaps.xml import Kind, XmlFeed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.protocol.sitemaps.xml import Entry

# The protocol's limits for one file, unpacked: its bytes, its URLs or the sitemaps of an index.
MAX_BYTES = 50 * 1024 * 1024
MAX_ENTRIES = 50_000
# Characters of a line of text. No server takes a URL as long.
_MAX_LINE = 8192
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
# Bytes that tell the format of a file.
_ENOUGH = 4096
_URL = re.compile("https?://", re.IGNORECASE)
# A byte that is no UTF-8, as Python's error handler "surrogateescape" gives it.
_BYTE = re.compile("[\udc80-\udcff]")


class TextFeed:
    """Reads a plain text sitemap: one URL a line. Long lines are cut, to bound memory."""

    kind = Kind.TEXT
    problem = None
    over = False

    def __init__(self, encoding: str) -> None:
        errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._line = ""

    def feed(self, data: bytes, *, last: bool = False) -> list[Entry]:
        """Return the entries that *data* completes."""
        text = self._decoder.decode(data, last) + "\n" * last
        first, *lines = text.replace("\r", "\n").split("\n")
        lines = [self._line + first[: _MAX_LINE + 1 - len(self._line)], *lines]
        self._line = lines.pop()[: _MAX_LINE + 1]
        return [_of_line(line) for line in map(str.strip, lines) if line]


def _of_line(line: str) -> Entry:
    """Bytes that are no UTF-8 are percent-encoded, as in rules."""
    if not line.isascii():
        line = _BYTE.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", line)
        if "\ufffd" in line:
            return {"loc": line, "broken": True}
    return {"loc": line}


def _lists_urls(start: bytes, encoding: str) -> bool:
    """Whether at least half of a text's first lines, without comments, are URLs."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start)
    lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
    if len(start) >= _ENOUGH and len(lines) > 1:
        lines.pop()  # it may be cut
    urls = sum(_URL.match(line) is not None for line in lines)
    return 0 < urls >= len(lines) - urls


class SitemapReader:
    """Reads one sitemap. Never raises, whatever the bytes are."""

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES, media: bool = False
    ) -> None:
        """:param max_bytes: after unpacking
        :param media: whether entries have the URLs of images and videos
        """
        self._media = media
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self.kind: Kind | None = None  # None if it is not a sitemap, or not known yet
        self.bytes = 0  # after unpacking
        self.count = 0  # entries returned
        self.problem: str | None = None
        """What is wrong with the file, or why its end was not read; None if it is fine."""

    def read(self, pieces: Iterable[bytes]) -> Iterator[list[Entry]]:
        """Yield the entries in lists, maybe empty, each after about a millisecond of work.

        :param pieces: the file, packed or not
        """
        content = self._unpacked(pieces)
        start = b""
        for piece in content:
            start += piece
            if len(start) >= _ENOUGH:
                break
            yield []
        feed = self._feed_for(start)
        if feed is None:
            return
        for piece in chain([start], content):
            if piece:
                yield self._limited(feed, feed.feed(piece))
                if feed.over or self.problem is not None:
                    break
            else:
                yield []
        else:
            if self.problem is None:
                yield self._limited(feed, feed.feed(b"", last=True))
        self._conclude(feed)

    def _unpacked(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the content of the file, up to the limit."""
        try:
            for piece in gunzip(pieces, self._max_bytes):
                data = piece[: self._max_bytes - self.bytes]
                self.bytes += len(data)
                yield data
                if len(data) < len(piece):
                    self.problem = f"longer than {self._max_bytes} bytes: the rest is ignored"
                    return
        except GunzipError as error:
            self.problem = str(error)

    def _feed_for(self, start: bytes) -> XmlFeed | TextFeed | None:
        """Return what reads a file with this start. If nothing can, note the problem."""
        text = start.removeprefix(codecs.BOM_UTF8).lstrip()
        utf16 = text.startswith(_UTF16)
        visible = text[2:].lstrip(b"\0 \t\r\n") if utf16 else text
        if not text:
            problem = "it is empty"
        elif _HTML.match(_without_comments(text[:_ENOUGH])):
            problem = "it is an HTML page, not a sitemap"
        elif visible.startswith(b"<") or text[:4] in (b"\0<\0?", b"<\0?\0"):
            return XmlFeed(start, media=self._media)
        elif b"\0" in text[:_ENOUGH] and not start.startswith(_UTF16):  # Python's mark comes first
            problem = "it is neither XML nor text"
        else:
            encoding = "utf-16" if utf16 else "utf-8-sig"
            if _lists_urls(start[:_ENOUGH], encoding):
                return TextFeed(encoding)
            problem = "it is text, but most of its first lines are no URLs"
        self.problem = self.problem or problem
        return None

    def _limited(self, feed: XmlFeed | TextFeed, entries: list[Entry]) -> list[Entry]:
        self.kind = feed.kind
        if self.count + len(entries) > self._max_entries:
            entries = entries[: self._max_entries - self.count]
            self.problem = f"more than {self._max_entries} entries: the rest is ignored"
        self.count += len(entries)
        return entries

    def _conclude(self, feed: XmlFeed | TextFeed) -> None:
        if isinstance(feed, XmlFeed) and feed.kind is None and feed.root is not None:
            self.problem = f"its root element is <{feed.root[:100]}>, so it is not a sitemap"
        self.problem = self.problem or feed.problem
        if self.kind is None:
            self.problem = self.problem or "it is not a sitemap"


def _without_comments(text: bytes) -> bytes:
    """Return *text* without leading comments. A regular expression would take quadratic time."""
    while text.startswith(b"<!--") and (end := text.find(b"-->", 4)) >= 0:
        text = text[end + 3 :].lstrip()
    return text
