"""From bytes to entries, whatever the sitemap is: the content tells, not a name or a header."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy_rep.protocol.sitemaps.gunzip import Unpacker
from scrapy_rep.protocol.sitemaps.text import TextFeed
from scrapy_rep.protocol.sitemaps.xml import XmlFeed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_rep.protocol.sitemaps.kinds import Entry, Kind

MAX_BYTES = 50 * 1024 * 1024
"""Of one file, unpacked: the protocol's limit."""

MAX_ENTRIES = 50_000
"""Of one file: the protocol's limit, for URLs as for the sitemaps of an index."""

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HTML = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
# Bytes by which it is seen what a file is.
_ENOUGH = 512


class SitemapReader:
    """Reads one sitemap. Never raises, whatever the bytes are."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, max_entries: int = MAX_ENTRIES) -> None:
        """:param max_bytes: after unpacking
        :param max_entries: so many are returned at most
        """
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self.kind: Kind | None = None
        """What it is; None if it is no sitemap, or as long as that is not known."""
        self.bytes = 0
        """How many were read, after unpacking."""
        self.count = 0
        """How many entries were returned."""
        self.problem: str | None = None
        """What was wrong with the file, or why its end was not read; None if it was fine."""

    def read(self, pieces: Iterable[bytes]) -> Iterator[list[Entry]]:
        """Return the entries, some at a time.

        :param pieces: the file, in as many pieces as you like
        :returns: lists that may be empty, each after about a millisecond of work
        """
        unpacker = Unpacker(self._max_bytes)
        feed: XmlFeed | TextFeed | None = None
        start = b""
        whole = False
        for piece in unpacker.unpack(pieces):
            data = piece[: self._max_bytes - self.bytes]
            self.bytes += len(data)
            if not piece:
                yield []
                continue
            if feed is None:
                start += data
                if len(start) < _ENOUGH and len(data) == len(piece):
                    yield []
                    continue
                feed = self._feed_for(start)
                if feed is None:
                    return
                yield self._limited(feed, feed.feed(start))
                start = b""
            else:
                yield self._limited(feed, feed.feed(data))
            if isinstance(feed, XmlFeed) and feed.over:
                break
            if self.problem is not None:
                break  # more entries than allowed
            if len(data) < len(piece) and self.bytes >= self._max_bytes:
                self.problem = f"longer than {self._max_bytes} bytes: the rest is ignored"
                break
        else:
            whole = True
            if feed is None:
                feed = self._feed_for(start)
                if feed is None:
                    self.problem = unpacker.problem or self.problem
                    return
                yield self._limited(feed, feed.feed(start))
        if whole and unpacker.problem is None:
            yield self._limited(feed, feed.close())
        self._conclude(feed, unpacker)

    def _feed_for(self, start: bytes) -> XmlFeed | TextFeed | None:
        """What can read a file that begins so."""
        text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not text:
            self.problem = "it is empty"
            return None
        if text.startswith(_UTF16):
            if text[2:].lstrip(b"\0 \t\r\n").startswith(b"<"):
                return XmlFeed()
            if start.startswith(_UTF16):  # elsewhere it is no mark to Python
                return TextFeed("utf-16")
        if _HTML.match(_without_comments(text[:_ENOUGH])):
            self.problem = "it is an HTML page, not a sitemap"
            return None
        if text.startswith(b"<") or text[:4] in (b"\0<\0?", b"<\0?\0"):
            return XmlFeed()
        if b"\0" in text[:_ENOUGH]:
            self.problem = "it is neither XML nor text"
            return None
        return TextFeed("utf-8")

    def _limited(self, feed: XmlFeed | TextFeed, entries: list[Entry]) -> list[Entry]:
        self.kind = feed.kind
        if self.count + len(entries) > self._max_entries:
            entries = entries[: self._max_entries - self.count]
            self.problem = f"more than {self._max_entries} entries: the rest is ignored"
        self.count += len(entries)
        return entries

    def _conclude(self, feed: XmlFeed | TextFeed, unpacker: Unpacker) -> None:
        if isinstance(feed, XmlFeed) and feed.kind is None and feed.root is not None:
            self.problem = f"its root element is <{feed.root[:100]}>: it is no sitemap"
            return
        self.problem = self.problem or unpacker.problem or feed.problem
        if self.kind is None:
            self.problem = self.problem or "it is no sitemap"


def _without_comments(text: bytes) -> bytes:
    """Return *text* without the comments that it begins with. A regular expression for these
    would try each end of a comment for each comment."""
    while text.startswith(b"<!--"):
        end = text.find(b"-->", len(b"<!--"))
        if end < 0:
            break
        text = text[end + len(b"-->") :].lstrip()
    return text
