"""Reads sitemaps (REP.md section 9): bytes, gzipped or not, to entries.

    reader = SitemapReader()
    for entries in reader.read([body]):
        for entry in entries:
            entry["loc"], entry.get("lastmod"), entry.get("alternate")
    reader.kind, reader.count, reader.problem

The content decides the format; names and headers don't. Unpacking goes piece by piece,
so a bomb takes no more memory, and blocks no longer, than any other file. XML is read
in entries.py.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from scrapy_rep.protocol.entries import Kind, SitemapEntry, XmlFeed

__all__ = ["Kind", "SitemapReader"]

MAX_SITEMAP_BYTES = 50 * 1024 * 1024
"""Bytes of a file, unpacked: the protocol's limit."""

MAX_SITEMAP_ENTRIES = 50_000
"""URLs in a file, or sitemaps in an index: the protocol's limit."""

# The most characters of a line of text. No server accepts a longer URL.
_MAX_TEXT_LINE = 8192
# Byte order marks of UTF-16.
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# How UTF-16 without a byte order mark begins, if it is XML.
_UTF16_XML = (b"\0<\0?", b"<\0?\0")
# The beginning of XML, or at least of a sitemap's root element, unless it is quoted.
_XML_START = re.compile(
    rb"(?<![\"'`])(?:\xef\xbb\xbf)?<(?:\?xml\s|(?:[\w.-]+:)?(?:urlset|sitemapindex|rss|feed)[\s>])"
)
# What JSON, comments, pages and binary files have before XML. Rubbish that may be
# skipped has none of it.
_NO_RUBBISH = re.compile(
    rb"\A\{|\0|<(?:!|(?:html|head|body|title|meta)\b)", re.IGNORECASE
)
# The beginning of a web page.
_HTML_PAGE = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
# The format of a file is told by this many bytes at its start.
_BYTES_FOR_FORMAT = 4096
# The beginning of a line that is a URL.
_WEB_URL = re.compile("https?://", re.IGNORECASE)

# Python's error handler "surrogateescape" adds this to a byte that isn't UTF-8, to make
# it a character.
_FIRST_SURROGATE = 0xDC00
# A character that "surrogateescape" has made of a byte.
_STRAY_BYTE = re.compile("[\udc80-\udcff]")

MAGIC = b"\x1f\x8b\x08"
"""How a gzip file begins."""

STEP = 8 * 1024
"""How many bytes the longest piece that is yielded has. Reading such a piece takes
about a millisecond."""

# Servers compress compressed files once more for transfer. Nobody needs more layers.
_MAX_LAYERS = 3
# A layer may consist of this many members, which are gzip files one after another. 50
# MiB packed in blocks (bgzip) have 800 members; empty members only take time.
_MAX_MEMBERS = 10_000
# The number by which zlib is told to unpack gzip.
_GZIP = 31


class TextFeed:
    """Reads a plain text sitemap: one URL on each line. Long lines are cut."""

    # XmlFeed has the attributes kind, problem and is_finished, too. Any text is a
    # sitemap without a problem, and is read to its end.
    kind = Kind.TEXT
    problem = None
    is_finished = False

    def __init__(self, encoding: str) -> None:
        # Bytes that aren't UTF-8 are kept, since URLs in other encodings can be
        # requested, too.
        errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        # The beginning of the line that isn't complete yet.
        self._line = ""

    def feed(self, data: bytes, *, last: bool = False) -> list[SitemapEntry]:
        """Return the entries of the lines that *data* completes."""
        text = self._decoder.decode(data, last)
        if last:
            text += "\n"
        first, *lines = text.replace("\r", "\n").split("\n")
        # A line is cut one character beyond the limit, so that its URL is longer than
        # MAX_URL (origin.py), and is refused.
        cut_at = _MAX_TEXT_LINE + 1
        characters_left = cut_at - len(self._line)
        continued = self._line + first[:characters_left]
        lines = [continued, *lines]
        unfinished = lines.pop()
        self._line = unfinished[:cut_at]
        stripped = map(str.strip, lines)
        return [_entry_of(line) for line in stripped if line]


def _entry_of(line: str) -> SitemapEntry:
    """Return the entry of a line that isn't blank."""
    url = _STRAY_BYTE.sub(_percent_encoded, line)
    if "\ufffd" in url:  # it stands for what couldn't be decoded
        return {"loc": url, "broken": True}
    return {"loc": url}


def _percent_encoded(stray_byte: re.Match[str]) -> str:
    """Return the byte that a match of ``_STRAY_BYTE`` stands for, percent-encoded."""
    byte = ord(stray_byte[0]) - _FIRST_SURROGATE
    return f"%{byte:02X}"


def _lists_urls(start: bytes, encoding: str) -> bool:
    """Return whether at least half of a text's first lines, not counting comments, are
    URLs."""
    text = codecs.getincrementaldecoder(encoding)("replace").decode(start)
    lines = []
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            lines.append(line)
    if len(start) >= _BYTES_FOR_FORMAT and len(lines) > 1:
        lines.pop()  # it may be cut
    urls = [line for line in lines if _WEB_URL.match(line)]
    if not urls:
        return False
    return 2 * len(urls) >= len(lines)


class SitemapReader:
    """Reads one sitemap: any bytes at all. Never raises."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_SITEMAP_BYTES,
        max_entries: int = MAX_SITEMAP_ENTRIES,
        media: bool = False,
        url: str | None = None,
    ) -> None:
        """*max_bytes*: after unpacking. *media*: read the URLs of images and videos.
        *url*: where the file is from; without it, relative links in feeds stay as they
        are."""
        self._media = media
        self._url = url
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self.kind: Kind | None = None
        """The format; None if the file is not a sitemap, or as long as the format isn't
        known."""
        self.bytes = 0
        """Bytes that were read, after unpacking."""
        self.count = 0
        """Entries that were returned."""
        self.problem: str | None = None
        """What is wrong with the file, or why its end was not read; None if it is
        fine."""

    def read(self, pieces: Iterable[bytes]) -> Iterator[list[SitemapEntry]]:
        """Yield the entries of the file from its *pieces*, packed or not: in lists,
        some of them empty, each after about a millisecond of work."""
        content = self._unpacked(pieces)
        # Gather what tells the format.
        start = b""
        for piece in content:
            start += piece
            if len(start) >= _BYTES_FOR_FORMAT:
                break
            yield []
        start = _without_rubbish(start.lstrip())
        feed = self._feed_for(start)
        if feed is None:
            return
        # None stands for the end of the file.
        parts: Iterable[bytes | None] = chain([start], content, [None])
        for part in parts:
            entries = self._entries_from(feed, part)
            self.kind = feed.kind
            entries_left = self._max_entries - self.count
            if len(entries) > entries_left:
                entries = entries[:entries_left]
                self.problem = (
                    f"more than {self._max_entries} entries: the rest is ignored"
                )
            self.count += len(entries)
            yield entries
            # After a problem of its own, the reader ends, too.
            if feed.is_finished or self.problem is not None:
                break
        self._note_problem_of(feed)

    def _entries_from(
        self, feed: XmlFeed | TextFeed, part: bytes | None
    ) -> list[SitemapEntry]:
        """Return the entries that the next *part* of the file completes; None stands
        for the end."""
        if part is not None:
            return feed.feed(part) if part else []
        # If the file was cut, what it ends with is no complete entry.
        was_cut = self.problem is not None
        return [] if was_cut else feed.feed(b"", last=True)

    def _note_problem_of(self, feed: XmlFeed | TextFeed) -> None:
        """Note what *feed* has found to be wrong with the file, if that is the first or
        the main problem."""
        if isinstance(feed, XmlFeed) and feed.kind is None and feed.root is not None:
            root = feed.root[:100]
            self.problem = f"its root element is <{root}>, so it is not a sitemap"
        self.problem = self.problem or feed.problem
        if self.kind is None:
            self.problem = self.problem or "it is not a sitemap"

    def _unpacked(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the file, unpacked, up to the limit of bytes. If its end is missing,
        note why."""
        try:
            for piece in gunzip(pieces, self._max_bytes):
                bytes_left = self._max_bytes - self.bytes
                data = piece[:bytes_left]
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
        """Return what reads a file with this start. If nothing can, note the
        problem."""
        text = start.removeprefix(codecs.BOM_UTF8).lstrip()
        is_utf16 = start.startswith(_UTF16_MARKS)
        visible = text
        if is_utf16:
            # The mark has two bytes, and blanks may follow it.
            visible = text[2:].lstrip(b"\0 \t\r\n")
        if not text:
            problem = "it is empty"
        elif _HTML_PAGE.match(_without_comments(text[:_BYTES_FOR_FORMAT])):
            problem = "it is an HTML page, not a sitemap"
        elif visible.startswith(b"<") or text.startswith(_UTF16_XML):
            return XmlFeed(start, media=self._media, url=self._url)
        elif b"\0" in text[:_BYTES_FOR_FORMAT] and not is_utf16:
            problem = "it is neither XML nor text"
        else:
            encoding = "utf-16" if is_utf16 else "utf-8-sig"
            if _lists_urls(start[:_BYTES_FOR_FORMAT], encoding):
                return TextFeed(encoding)
            problem = "it is text, but most of its first lines are not URLs"
        self.problem = self.problem or problem
        return None


def _without_rubbish(start: bytes) -> bytes:
    """Return *start*, of a file, without what stands before the XML, such as a warning
    by PHP or byte order marks."""
    xml = _XML_START.search(start, 0, _BYTES_FOR_FORMAT)
    if xml is None or _NO_RUBBISH.search(start, 0, xml.start()):
        return start
    return start[xml.start() :]


def _without_comments(text: bytes) -> bytes:
    """Return *text* without leading comments. A regular expression would take quadratic
    time."""
    while text.startswith(b"<!--"):
        end = text.find(b"-->", len(b"<!--"))
        if end < 0:
            break
        after = end + len(b"-->")
        text = text[after:].lstrip()
    return text


class GunzipError(Exception):
    """The file is damaged, or a bomb. What was unpacked so far is good."""


def gunzip(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield a file, unpacked if it is packed, in pieces of at most :data:`STEP` bytes.
    A step without output yields an empty piece, so that the caller can pause.
    *max_bytes*: how many the caller will read at most.

    :raises GunzipError: after the last piece that can be unpacked
    """
    pieces = _evenly(pieces)
    for _ in range(_MAX_LAYERS):
        first = b""
        for piece in pieces:
            first += piece
            if len(first) >= len(MAGIC):
                break
            yield b""
        pieces = chain([first], pieces)
        if not first.startswith(MAGIC):
            break
        # What is unpacked here may be packed once more. Even so it isn't twice as long
        # as what the caller reads, unless it is a bomb.
        max_unpacked = 2 * (max_bytes + STEP)
        pieces = _layer(pieces, max_unpacked)
    yield from pieces


def _evenly(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of *pieces* in pieces of :data:`STEP` bytes, since what zlib
    makes of a broken file depends on the pieces."""
    remainder = b""
    for piece in pieces:
        data = remainder + piece
        whole_steps = len(data) // STEP * STEP
        for start in range(0, whole_steps, STEP):
            yield data[start : start + STEP]
        remainder = data[whole_steps:]
    yield remainder


def _layer(pieces: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Unpack one layer of gzip. Yields at least once for each piece.

    :raises GunzipError: if the layer is damaged, or unpacks to more than *max_bytes*
    """
    decoder = zlib.decompressobj(_GZIP)
    ended_members = 0
    unpacked_bytes = 0
    # Whether zlib is within a member.
    is_in_member = False
    for piece in pieces:
        # Zeros between two members are padding.
        data = piece.lstrip(b"\0") if decoder.eof else piece
        if not data:
            yield b""
        # After a full step, zlib may have more to give without further input.
        was_full_step = False
        while data or was_full_step:
            if decoder.eof:
                if ended_members >= _MAX_MEMBERS:
                    raise GunzipError(
                        f"the gzip file has more than {_MAX_MEMBERS} members"
                    )
                decoder = zlib.decompressobj(_GZIP)
            try:
                unpacked = decoder.decompress(data, STEP)
            except zlib.error as error:
                # Like gunzip, ignore garbage after the end of a member.
                if ended_members and not is_in_member:
                    return
                raise GunzipError(f"broken gzip ({error})") from None
            # At the end of a member, zlib hands back what follows as unused_data.
            is_in_member = not decoder.eof
            was_full_step = is_in_member and len(unpacked) == STEP
            if decoder.eof:
                ended_members += 1
            data = decoder.unconsumed_tail or decoder.unused_data.lstrip(b"\0")
            unpacked_bytes += len(unpacked)
            yield unpacked
            if unpacked_bytes > max_bytes:
                raise GunzipError(f"it unpacks to more than {max_bytes} bytes")
    if not decoder.eof:
        raise GunzipError("the gzip file is truncated")
