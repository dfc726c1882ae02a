"""Reads XML sitemaps, RSS and Atom piece by piece, without a tree: one entry at a time in memory.

lxml's parser runs with everything off that reaches outside the file: no DTD, no entities, no
network. A file that declares entities is rejected: libxml2 would drop them from URLs silently.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from lxml import etree  # type: ignore[import-untyped]

from scrapy_rep.protocol.sitemaps.ampersands import MAX_MENDED, Ampersands

if TYPE_CHECKING:
    from collections.abc import Mapping

Entry = dict[str, Any]
"""What a sitemap says of one URL: ``loc``, and where given ``lastmod``, ``changefreq``, ``priority``
and the like (str, stripped), ``alternate`` (list of str: URLs of the page in other languages),
``broken`` (True: an XML error is in it, so ``loc`` may be wrong)."""


class Kind(str, Enum):
    """The formats of sitemaps."""

    URLSET = "urlset"
    INDEX = "sitemapindex"
    TEXT = "text"
    RSS = "rss"
    ATOM = "atom"


_ROOTS = {"urlset": Kind.URLSET, "sitemapindex": Kind.INDEX, "rss": Kind.RSS, "feed": Kind.ATOM}
_ITEMS: dict[Kind | None, str] = {
    Kind.URLSET: "url",
    Kind.INDEX: "sitemap",
    Kind.RSS: "item",
    Kind.ATOM: "entry",
}
# What feeds call the same things.
_RENAMED: dict[Kind | None, dict[str, str]] = {
    Kind.RSS: {"link": "loc", "pubDate": "lastmod"},
    Kind.ATOM: {"updated": "lastmod"},
}
# These make much out of little. Older libxml2 puts default attributes into each element.
_BOMBS = {
    b"<!ENTITY": "it declares XML entities, which are not resolved",
    b"<!ATTLIST": "it declares attributes, which are not added",
}

# Characters of one value. No URL is as long.
_MAX_TEXT = 65536
# Reading stops after this many.
_MAX_ERRORS = 100
# Bytes without an event: libxml2 has given up after an error, or buffers a tag, a comment or a CDATA
# section, to read it all at once when it ends.
_MAX_SILENT = 1 << 20
# Of one tag, about: libxml2 reads a tag at once.
_MAX_ATTRIBUTES = 4096
# Of one entry: elements of different names, and alternates.
_MAX_CHILDREN = 1000


class XmlFeed:
    """Turns bytes into entries. It is its own parser target: lxml calls it for each tag and text."""

    def __init__(self) -> None:
        self._parser = etree.XMLParser(
            target=self,
            recover=True,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        self.root: str | None = None  # local name of the root element, once seen
        self.kind: Kind | None = None
        self._limit: str | None = None  # why reading stopped
        self._begun = False
        self._ampersands: Ampersands | None = None
        self._prolog = b""
        self._events = self._silent = self._attributes = self._depth = 0
        self._namespace = ""
        self._entries: list[Entry] = []
        self._entry: Entry | None = None
        self._at = 0  # the depth of the entry's children
        self._errors = 0  # before the entry
        self._name: str | None = None
        self._texts: list[str] = []
        self._length = 0

    @property
    def problem(self) -> str | None:
        """The first error in the file so far."""
        for error in self._parser.feed_error_log:
            if error.level >= etree.ErrorLevels.ERROR:
                return f"broken XML, line {error.line}: {error.message.strip()[:200]}"
        return self._limit

    @property
    def over(self) -> bool:
        """Whether there is no point in reading on."""
        if self.root is not None and self.kind is None:
            return True
        return self._limit is not None or len(self._parser.feed_error_log) > _MAX_ERRORS

    def feed(self, data: bytes, *, last: bool = False) -> list[Entry]:
        """Return the entries that *data* completes. One cut off by the end of the file is lost."""
        if not self._begun:
            self._begun = True
            data = data.lstrip()  # an XML declaration must come first
            if b"\0" not in data[:4] and data[:2] not in (b"\xfe\xff", b"\xff\xfe"):
                self._ampersands = Ampersands()
        if self.root is None:
            # Declarations can only be here. (UTF-16 has zeros between the letters.)
            prolog = self._prolog + data.replace(b"\0", b"")
            self._limit = next((why for mark, why in _BOMBS.items() if mark in prolog), None)
            self._prolog = prolog[-8:]
            if self._limit is not None:
                return []
        if self._ampersands is not None:
            data = self._ampersands.feed(data, last=last)
        before = self._events
        if data:
            self._parser.feed(data)
        if last:
            with suppress(etree.XMLSyntaxError):  # `problem` tells
                self._parser.close()
        else:
            self._check(data, silent=before == self._events)
        entries, self._entries = self._entries, []
        return entries

    def _check(self, data: bytes, *, silent: bool) -> None:
        """Limit what libxml2 buffers, and how much work it gets."""
        if not silent:
            self._silent = self._attributes = 0
        else:
            self._silent += len(data)
            # A tag has one "<", at its beginning, and a "=" for each attribute.
            start = data.rfind(b"<")
            attributes = data.count(b"=", start + 1)
            self._attributes = attributes if start >= 0 else self._attributes + attributes
        if self._silent > _MAX_SILENT:
            self._limit = f"a tag or a comment is longer than {_MAX_SILENT} bytes"
        elif self._attributes > _MAX_ATTRIBUTES:
            self._limit = f"a tag has more than {_MAX_ATTRIBUTES} attributes"
        elif self._ampersands is not None and self._ampersands.count > MAX_MENDED:
            self._limit = f"it has more than {MAX_MENDED} unescaped ampersands"

    # lxml calls these.

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._events += 1
        self._depth += 1
        namespace, _, name = tag.rpartition("}")
        if self._depth == 1:
            self.root, self._namespace = name, namespace
            self.kind = _ROOTS.get(name)
        elif name == _ITEMS.get(self.kind) and namespace == self._namespace:
            # In a broken file entries may be nested.
            self._finish()
            self._entry, self._name = {}, None
            self._at = self._depth + 1
            self._errors = len(self._parser.feed_error_log)
        elif self._entry is not None and self._depth == self._at:
            self._child(namespace, name, attributes)

    def _child(self, namespace: str, name: str, attributes: Mapping[str, str]) -> None:
        assert self._entry is not None
        self._name = None
        kind = self.kind
        if name == "link" and kind is not Kind.RSS:
            href, rel = attributes.get("href"), attributes.get("rel", "alternate")
            if href and rel == "alternate":
                # libxml2 gives us unresolved ampersands like this.
                href = href.strip().replace("&#38;", "&")
                if kind is Kind.ATOM:
                    self._entry.setdefault("loc", href)
                elif len(alternates := self._entry.setdefault("alternate", [])) < _MAX_CHILDREN:
                    alternates.append(href)
        elif namespace == self._namespace or kind in (Kind.URLSET, Kind.INDEX):
            # Skipped in feeds: <atom:link>, <media:title> ...
            name = _RENAMED.get(kind, {}).get(name, name)
            # <image:loc> is deeper. Of equal names the first counts.
            new = name not in self._entry and len(self._entry) < _MAX_CHILDREN
            if new and (name != "loc" or namespace == self._namespace):
                self._name, self._texts, self._length = name, [], 0

    def data(self, text: str) -> None:
        self._events += 1
        if self._name is not None and self._depth == self._at:
            self._length += len(text)
            if self._length <= _MAX_TEXT:
                self._texts.append(text)

    def end(self, tag: str) -> None:
        self._events += 1
        if self._entry is not None:
            if self._depth == self._at:
                if self._name is not None:
                    self._entry[self._name] = "".join(self._texts).strip()
                    if self._length > _MAX_TEXT:
                        self._entry["broken"] = True
                    self._name = None
            elif self._depth == self._at - 1:
                self._finish()
        self._depth -= 1

    def _finish(self) -> None:
        """Complete the current entry."""
        entry, self._entry = self._entry, None
        if entry:
            if len(self._parser.feed_error_log) > self._errors:
                entry["broken"] = True
            self._entries.append(entry)

    def close(self) -> None:
        pass
