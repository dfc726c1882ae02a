"""XML sitemaps, RSS and Atom, read piece by piece without a tree: memory is that of one entry.

lxml's parser does it with everything off that reaches outside the file: no DTD is loaded, no
entity is resolved, nothing is looked up. A file that declares entities is not read at all: libxml2
would leave them out of URLs without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree  # type: ignore[import-untyped]

from scrapy_rep.protocol.sitemaps.ampersands import MAX_MENDED, Ampersands
from scrapy_rep.protocol.sitemaps.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_rep.protocol.sitemaps.kinds import Entry

_ROOTS = {"urlset": Kind.URLSET, "sitemapindex": Kind.INDEX, "rss": Kind.RSS, "feed": Kind.ATOM}
_ITEMS = {Kind.URLSET: "url", Kind.INDEX: "sitemap", Kind.RSS: "item", Kind.ATOM: "entry"}

# Names of the same thing in feeds.
_RENAMED = {
    Kind.RSS: {"link": "loc", "pubDate": "lastmod"},
    Kind.ATOM: {"updated": "lastmod"},
}

# What makes much out of little. Older libxml2 puts default attributes into each element.
_BOMBS = {
    b"<!ENTITY": "it declares XML entities, which are not resolved",
    b"<!ATTLIST": "it declares attributes, which are not added",
}

_MAX_TEXT = 65536
"""Characters of one value. No URL is as long."""

_MAX_ERRORS = 100
"""A file with so many is not read further."""

_MAX_SILENT = 1 << 20
"""Bytes. Nothing in so many: libxml2 has given up after an error, or keeps them until a tag, a
comment or a CDATA section ends, to read them all at once then."""

_MAX_ATTRIBUTES = 4096
"""Of one tag, about: libxml2 reads a tag at once."""

_MAX_CHILDREN = 1000
"""Of one entry: elements of different names, and alternates."""


class XmlFeed:
    """Takes bytes, gives entries."""

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self.root: str | None = None
        """Local name of the root element, once it was seen."""
        self._target = _Target(self)
        self._parser = self._target.parser = etree.XMLParser(
            target=self._target,
            recover=True,
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        self._mend: Ampersands | None = None
        self._begun = False
        self._silent = 0
        self._attributes = 0
        self._tail = b""
        self._declared: str | None = None

    @property
    def problem(self) -> str | None:
        """The first error in the file, if there is one so far."""
        if self._declared is not None:
            return self._declared
        for error in self._parser.feed_error_log:
            if error.level >= etree.ErrorLevels.ERROR:
                return f"broken XML, line {error.line}: {error.message.strip()[:200]}"
        if self._silent > _MAX_SILENT:
            return f"something in it is longer than {_MAX_SILENT} bytes: a tag or a comment"
        if self._attributes > _MAX_ATTRIBUTES:
            return f"a tag has more than {_MAX_ATTRIBUTES} attributes"
        if self._mended > MAX_MENDED:
            return f"more than {MAX_MENDED} ampersands are not escaped"
        return None

    @property
    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        if self._declared is not None or (self.root is not None and self.kind is None):
            return True
        return (
            self._silent > _MAX_SILENT
            or self._attributes > _MAX_ATTRIBUTES
            or self._mended > MAX_MENDED
            or len(self._parser.feed_error_log) > _MAX_ERRORS
        )

    @property
    def _mended(self) -> int:
        return self._mend.count if self._mend is not None else 0

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that *data* completes."""
        if not self._begun:
            self._begun = True
            data = data.lstrip()  # an XML declaration has to be the very first thing
            if b"\0" not in data[:4] and data[:2] not in (b"\xfe\xff", b"\xff\xfe"):
                self._mend = Ampersands()
        if self.root is None:
            # Where declarations can be. (In UTF-16 there are zeros between the letters.)
            prolog = self._tail + data.replace(b"\0", b"")
            self._declared = next((why for mark, why in _BOMBS.items() if mark in prolog), None)
            self._tail = prolog[-8:]
            if self._declared is not None:
                return []
        if self._mend is not None:
            data = self._mend.feed(data)
        before = self._target.events
        self._push(data)
        self._listen(data, silent=before == self._target.events)
        return self._target.take()

    def _listen(self, data: bytes, *, silent: bool) -> None:
        """Take note of how much libxml2 keeps for later."""
        if not silent:
            self._silent = self._attributes = 0
            return
        self._silent += len(data)
        # A tag has no "<" but the one that it begins with, and a "=" for each attribute.
        start = data.rfind(b"<")
        attributes = data.count(b"=", start + 1)
        self._attributes = attributes if start >= 0 else self._attributes + attributes

    def close(self) -> list[Entry]:
        """Return what is left. An entry that the end cuts in two is none."""
        if self._mend is not None:
            self._push(self._mend.close())
        try:
            self._parser.close()
        except etree.XMLSyntaxError:
            pass  # an empty file, say; `problem` tells
        return self._target.take()

    def _push(self, data: bytes) -> None:
        if data:
            self._parser.feed(data)


class _Target:
    """What lxml calls for each tag and text."""

    def __init__(self, feed: XmlFeed) -> None:
        self.parser: Any = None
        self.events = 0
        self._feed = feed
        self._entries: list[Entry] = []
        self._item = ""
        self._namespace = ""
        self._renamed: dict[str, str] = {}
        self._depth = 0
        self._entry: Entry | None = None
        self._at = 0  # the depth of the entry's children
        self._errors = 0
        self._name: str | None = None
        self._texts: list[str] = []
        self._length = 0

    def take(self) -> list[Entry]:
        entries, self._entries = self._entries, []
        return entries

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.events += 1
        self._depth += 1
        namespace, _, name = tag.rpartition("}")
        if self._depth == 1:
            self._begin(namespace, name)
        elif name == self._item and namespace == self._namespace:
            # In a broken file one may stand in another.
            self._finish()
            self._entry = {}
            self._at = self._depth + 1
            self._errors = len(self.parser.feed_error_log)
            self._name = None
        elif self._entry is not None and self._depth == self._at:
            self._child(namespace, name, attributes)

    def _begin(self, namespace: str, name: str) -> None:
        self._feed.root = name
        kind = self._feed.kind = _ROOTS.get(name)
        if kind is not None:
            self._item = _ITEMS[kind]
            self._namespace = namespace
            self._renamed = _RENAMED.get(kind, {})

    def _child(self, namespace: str, name: str, attributes: Mapping[str, str]) -> None:
        assert self._entry is not None
        self._name = None
        kind = self._feed.kind
        if name == "link" and kind is not Kind.RSS:
            href, rel = attributes.get("href"), attributes.get("rel", "alternate")
            if href and rel == "alternate":
                # As libxml2 hands an ampersand over that it was told not to resolve.
                href = href.strip().replace("&#38;", "&")
                if kind is Kind.ATOM:
                    self._entry.setdefault("loc", href)
                elif len(alternates := self._entry.setdefault("alternate", [])) < _MAX_CHILDREN:
                    alternates.append(href)
        elif namespace == self._namespace or kind in (Kind.URLSET, Kind.INDEX):
            # Others than these in feeds: <atom:link>, <media:title> ...
            name = self._renamed.get(name, name)
            # <image:loc> stands deeper; whatever else has the name, the page's own is meant.
            new = name not in self._entry and len(self._entry) < _MAX_CHILDREN
            if new and (name != "loc" or namespace == self._namespace):
                self._name = name
                self._texts = []
                self._length = 0

    def data(self, text: str) -> None:
        self.events += 1
        if self._name is not None and self._depth == self._at:
            self._length += len(text)
            if self._length <= _MAX_TEXT:
                self._texts.append(text)

    def end(self, tag: str) -> None:
        self.events += 1
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
        """Take the entry that is being read."""
        entry, self._entry = self._entry, None
        if entry:
            if len(self.parser.feed_error_log) > self._errors:
                entry["broken"] = True
            self._entries.append(entry)

    def close(self) -> None:
        pass
