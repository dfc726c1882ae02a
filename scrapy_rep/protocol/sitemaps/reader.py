"""From bytes to entries, whatever the sitemap is: the content tells, not a name or a header.

`seeding/intake.py` and `commands/sitemaps.py` read with it."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from scrapy_rep.protocol.sitemaps.gunzip import GunzipError, gunzip
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
        :param max_entries: the most that are returned
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

        :param pieces: the file, as it came
        :returns: lists that may be empty, each after about a millisecond of work
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
        """Yield the content of the file as far as it may be read."""
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
        """Return what can read a file that begins so; None if nothing can, and then there is a
        problem."""
        text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text.startswith(_UTF16):
            if text[2:].lstrip(b"\0 \t\r\n").startswith(b"<"):
                return XmlFeed()
            if start.startswith(_UTF16):  # elsewhere it is no mark to Python
                return TextFeed("utf-16")
        if not text:
            problem = "it is empty"
        elif _HTML.match(_without_comments(text[:_ENOUGH])):
            problem = "it is an HTML page, not a sitemap"
        elif text.startswith(b"<") or text[:4] in (b"\0<\0?", b"<\0?\0"):
            return XmlFeed()
        elif b"\0" in text[:_ENOUGH]:
            problem = "it is neither XML nor text"
        else:
            return TextFeed("utf-8-sig")
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
            self.problem = f"its root element is <{feed.root[:100]}>: it is no sitemap"
        self.problem = self.problem or feed.problem
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
