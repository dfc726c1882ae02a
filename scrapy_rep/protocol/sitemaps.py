"""Reads sitemaps (REP.md section 9): bytes, gzipped or not, to entries.

    reader = SitemapReader()
    for entries in reader.read([body]):
        for entry in entries:
            entry["loc"], entry.get("lastmod"), entry.get("alternate")
    reader.kind, reader.count, reader.problem

The content decides the format; names and headers don't. Unpacking goes piece by piece, so a bomb takes
no more memory, and blocks no longer, than any other file. `entries` reads XML.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from scrapy_rep.protocol.entries import Kind, SitemapEntry, XmlFeed

__all__ = ["Kind", "SitemapReader"]

# The protocol's limits for one file, unpacked: its bytes, its URLs or the sitemaps of an index.
MAX_BYTES = 50 * 1024 * 1024
MAX_ENTRIES = 50_000
# Characters of a line of text. No server accepts a URL as long.
_MAX_LINE = 8192
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# How XML begins, or at least what a sitemap is in; not in a string.
_XML = re.compile(
    rb"(?<![\"'`])(?:\xef\xbb\xbf)?<(?:\?xml\s|(?:[\w.-]+:)?(?:urlset|sitemapindex|rss|feed)[\s>])"
)
# What JSON, comments, pages and binary files have before that, and rubbish hasn't.
_NO_RUBBISH = re.compile(
    rb"\A\{|\0|<(?:!|(?:html|head|body|title|meta)\b)", re.IGNORECASE
)
_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
# Bytes that suffice to tell the format.
_ENOUGH = 4096
_URL = re.compile("https?://", re.IGNORECASE)
# A byte that isn't UTF-8, as the error handler "surrogateescape" decodes it.
_BYTE = re.compile("[\udc80-\udcff]")

MAGIC = b"\x1f\x8b\x08"
# Bytes of the longest piece yielded. Reading one takes about a millisecond.
STEP = 8 * 1024
# Servers compress compressed files once more for transfer. Nobody needs more layers.
_LAYERS = 3
# Of one layer. 50 MiB packed in blocks (bgzip) have 800; empty ones only take time.
_MAX_MEMBERS = 10_000
_GZIP = 31  # zlib's code for gzip


class TextFeed:
    """Reads a plain text sitemap: one URL on each line. Long lines are cut."""

    kind = Kind.TEXT
    problem = None
    over = False

    def __init__(self, encoding: str) -> None:
        errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._line = ""

    def feed(self, data: bytes, *, last: bool = False) -> list[SitemapEntry]:
        text = self._decoder.decode(data, last) + "\n" * last
        first, *lines = text.replace("\r", "\n").split("\n")
        lines = [self._line + first[: _MAX_LINE + 1 - len(self._line)], *lines]
        self._line = lines.pop()[: _MAX_LINE + 1]
        return [_of_line(line) for line in map(str.strip, lines) if line]


def _of_line(line: str) -> SitemapEntry:
    line = _BYTE.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", line)
    return {"loc": line, "broken": True} if "\ufffd" in line else {"loc": line}


def _lists_urls(start: bytes, encoding: str) -> bool:
    """Whether at least half of a text's first lines, not counting comments, are URLs."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start)
    lines = [
        line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"
    ]
    if len(start) >= _ENOUGH and len(lines) > 1:
        lines.pop()  # it may be cut
    urls = sum(_URL.match(line) is not None for line in lines)
    return 0 < urls >= len(lines) - urls


class SitemapReader:
    """Reads one sitemap: any bytes at all. Never raises."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        max_entries: int = MAX_ENTRIES,
        media: bool = False,
        url: str | None = None,
    ) -> None:
        """*max_bytes*: after unpacking. *media*: read the URLs of images and videos. *url*: where the
        file is from; without it, relative links in feeds stay as they are."""
        self._media = media
        self._url = url
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self.kind: Kind | None = None  # None: not a sitemap, or not known yet
        self.bytes = 0  # after unpacking
        self.count = 0  # entries returned
        self.problem: str | None = None
        """What is wrong with the file, or why its end was not read; None if it is fine."""

    def read(self, pieces: Iterable[bytes]) -> Iterator[list[SitemapEntry]]:
        """Yield lists of entries, some of them empty, each after about a millisecond of work, from
        the *pieces* of the file, packed or not."""
        content = self._unpacked(pieces)
        start = b""
        for piece in content:
            start += piece
            if len(start) >= _ENOUGH:
                break
            yield []
        start = _without_rubbish(start.lstrip())
        if (feed := self._feed_for(start)) is None:
            return
        parts: Iterable[bytes | None] = chain([start], content, [None])
        for part in parts:
            entries: list[SitemapEntry] = []
            # None is the end. If the file was cut, its last part may be incomplete.
            if part or (part is None and self.problem is None):
                entries = feed.feed(part or b"", last=part is None)
            self.kind = feed.kind
            if len(entries) > (room := self._max_entries - self.count):
                entries = entries[:room]
                self.problem = (
                    f"more than {self._max_entries} entries: the rest is ignored"
                )
            self.count += len(entries)
            yield entries
            if feed.over or self.problem is not None:
                break
        if isinstance(feed, XmlFeed) and feed.kind is None and feed.root is not None:
            self.problem = (
                f"its root element is <{feed.root[:100]}>, so it is not a sitemap"
            )
        self.problem = self.problem or feed.problem
        if self.kind is None:
            self.problem = self.problem or "it is not a sitemap"

    def _unpacked(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for piece in gunzip(pieces, self._max_bytes):
                data = piece[: self._max_bytes - self.bytes]
                self.bytes += len(data)
                yield data
                if len(data) < len(piece):
                    self.problem = (
                        f"longer than {self._max_bytes} bytes: the rest is ignored"
                    )
                    return
        except GunzipError as error:
            self.problem = str(error)

    def _feed_for(self, start: bytes) -> XmlFeed | TextFeed | None:
        """Return what reads a file with this start. If nothing can, note the problem."""
        text = start.removeprefix(codecs.BOM_UTF8).lstrip()
        utf16 = start.startswith(_UTF16)
        visible = text[2:].lstrip(b"\0 \t\r\n") if utf16 else text
        if not text:
            problem = "it is empty"
        elif _HTML.match(_without_comments(text[:_ENOUGH])):
            problem = "it is an HTML page, not a sitemap"
        elif visible.startswith(b"<") or text[:4] in (b"\0<\0?", b"<\0?\0"):
            return XmlFeed(start, media=self._media, url=self._url)
        elif b"\0" in text[:_ENOUGH] and not utf16:
            problem = "it is neither XML nor text"
        else:
            encoding = "utf-16" if utf16 else "utf-8-sig"
            if _lists_urls(start[:_ENOUGH], encoding):
                return TextFeed(encoding)
            problem = "it is text, but most of its first lines are not URLs"
        self.problem = self.problem or problem
        return None


def _without_rubbish(start: bytes) -> bytes:
    """Return *start* without what stands before the XML: a warning of PHP's, byte order marks."""
    if (found := _XML.search(start, 0, _ENOUGH)) is None:
        return start
    before = found.start()
    return start if _NO_RUBBISH.search(start, 0, before) else start[before:]


def _without_comments(text: bytes) -> bytes:
    """Return *text* without leading comments. A regular expression would take quadratic time."""
    while text.startswith(b"<!--") and (end := text.find(b"-->", 4)) >= 0:
        text = text[end + 3 :].lstrip()
    return text


class GunzipError(Exception):
    """The file is damaged, or a bomb. What was unpacked so far is good."""


def gunzip(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield a file, unpacked if it is packed, in pieces of at most :data:`STEP` bytes: an empty one
    for a step without output, so that the caller can pause. The caller will read *max_bytes*.

    :raises GunzipError: after the last piece that can be unpacked
    """
    pieces = _evenly(pieces)
    for _ in range(_LAYERS):
        first = b""
        for piece in pieces:
            first += piece
            if len(first) >= len(MAGIC):
                break
            yield b""
        pieces = chain([first], pieces)
        if not first.startswith(MAGIC):
            break
        # Only a bomb's compressed form is much longer than its content.
        pieces = _layer(pieces, 2 * max_bytes + 2 * STEP)
    yield from pieces


def _evenly(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut into pieces of :data:`STEP` bytes: what zlib makes of a broken file depends on them."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        upto = len(data) // STEP * STEP
        yield from (data[start : start + STEP] for start in range(0, upto, STEP))
        rest = data[upto:]
    yield rest


def _layer(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Unpack one layer. Yields at least once for each piece."""
    decoder = zlib.decompressobj(_GZIP)
    members = size = 0  # members: those that have ended
    begun = full = False
    for piece in pieces:
        data = piece.lstrip(b"\0") if decoder.eof else piece  # padding between members
        if not data:
            yield b""
        while (
            data or full
        ):  # after a full piece there may be more to come without further input
            if decoder.eof:
                if members >= _MAX_MEMBERS:
                    raise GunzipError(
                        f"the gzip file has more than {_MAX_MEMBERS} members"
                    )
                decoder = zlib.decompressobj(_GZIP)
            try:
                out = decoder.decompress(data, STEP)
            except zlib.error as error:
                # Like gunzip, ignore garbage after the end of a member.
                if members and not begun:
                    return
                raise GunzipError(f"broken gzip ({error})") from None
            begun = not decoder.eof
            full = begun and len(out) == STEP
            members += decoder.eof
            data = decoder.unconsumed_tail or decoder.unused_data.lstrip(b"\0")
            size += len(out)
            yield out
            if size > max_bytes:
                raise GunzipError(f"it unpacks to more than {max_bytes} bytes")
    if not decoder.eof:
        raise GunzipError("the gzip file is truncated")
