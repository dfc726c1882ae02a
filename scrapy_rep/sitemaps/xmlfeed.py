"""XML sitemaps, RSS and Atom, read piece by piece without a tree: memory is that of one entry.

lxml's parser does it with everything off that reaches outside the file: no DTD is loaded, no
entity is resolved, nothing is looked up. A file that declares entities is not read at all: libxml2
would leave them out of URLs without a word.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lxml import etree  # type: ignore[import-untyped]

from scrapy_rep.sitemaps.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy_rep.sitemaps.kinds import Entry

_ROOTS = {"urlset": Kind.URLSET, "sitemapindex": Kind.INDEX, "rss": Kind.RSS, "feed": Kind.ATOM}
_ITEMS = {Kind.URLSET: "url", Kind.INDEX: "sitemap", Kind.RSS: "item", Kind.ATOM: "entry"}

# Names of the same thing in feeds.
_RENAMED = {
    Kind.RSS: {"link": "loc", "pubDate": "lastmod"},
    Kind.ATOM: {"updated": "lastmod"},
}

_MAX_TEXT = 65536
"""Characters of one value. No URL is as long."""

_MAX_ERRORS = 100
"""A file with so many is not read further."""

_MAX_SILENT = 1 << 20
"""Bytes. Nothing in so many, after an error: libxml2 has given up and only hoards them."""


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
        self._mend: _Ampersands | None = None
        self._begun = False
        self._silent = 0
        self._tail = b""
        self._entities = False

    @property
    def problem(self) -> str | None:
        """The first error in the file, if there is one so far."""
        if self._entities:
            return "it declares XML entities, which are not resolved"
        for error in self._parser.feed_error_log:
            if error.level >= etree.ErrorLevels.ERROR:
                return f"broken XML, line {error.line}: {error.message.strip()[:200]}"
        return None

    @property
    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        if self._entities or (self.root is not None and self.kind is None):
            return True
        return self._silent > _MAX_SILENT or len(self._parser.feed_error_log) > _MAX_ERRORS

    def feed(self, data: bytes) -> list[Entry]:
        """Return the entries that *data* completes."""
        if not self._begun:
            self._begun = True
            data = data.lstrip()  # an XML declaration has to be the very first thing
            if b"\0" not in data[:4] and data[:2] not in (b"\xfe\xff", b"\xff\xfe"):
                self._mend = _Ampersands()
        if self.root is None:
            # Where declarations can be. (In UTF-16 there are zeros between the letters.)
            prolog = self._tail + data.replace(b"\0", b"")
            self._entities = b"<!ENTITY" in prolog
            self._tail = prolog[-8:]
            if self._entities:
                return []
        if self._mend is not None:
            data = self._mend.feed(data)
        before = self._target.events
        self._push(data)
        silent = before == self._target.events and len(self._parser.feed_error_log) > 0
        self._silent = self._silent + len(data) if silent else 0
        return self._target.take()

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
                else:
                    self._entry.setdefault("alternate", []).append(href)
        elif namespace == self._namespace or kind in (Kind.URLSET, Kind.INDEX):
            # Others than these in feeds: <atom:link>, <media:title> ...
            name = self._renamed.get(name, name)
            # <image:loc> stands deeper; whatever else has the name, the page's own is meant.
            if name not in self._entry and (name != "loc" or namespace == self._namespace):
                self._name = name
                self._texts = []
                self._length = 0

    def data(self, text: str) -> None:
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


class _Ampersands:
    """Mends what is wrong most often: `&` in a URL that should be `&amp;`. libxml2 would leave out
    what follows, so that the URL is another one. In CDATA it is right as it is."""

    # A complete CDATA section, the beginning of one, or an ampersand that begins no reference.
    _PATTERN = re.compile(
        rb"<!\[CDATA\[(?:.*?\]\]>)?|&(?!#[0-9]{1,8};|#x[0-9a-fA-F]{1,8};|[A-Za-z_][\w.-]{0,30};)",
        re.DOTALL,
    )
    _LONGEST = 40  # bytes of what may be cut in two by the end of a piece

    def __init__(self) -> None:
        self._rest = b""
        self._in_cdata = False

    def feed(self, data: bytes) -> bytes:
        if not (self._rest or self._in_cdata or b"&" in data or b"<![" in data[-12:]):
            start = data.rfind(b"<![CDATA[")
            if (start < 0 or data.find(b"]]>", start) >= 0) and b"<" not in data[-9:]:
                return data
        data = self._rest + data
        cut = len(data)
        if self._in_cdata:
            cut -= 2  # of the three bytes that end it
        else:
            for mark in (b"&", b"<"):
                at = data.rfind(mark, max(0, len(data) - self._LONGEST))
                if at >= 0:
                    cut = min(cut, at)
        cut = max(cut, 0)
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
            elif not match[0].endswith(b"]]>"):
                self._in_cdata = True
                break
        out.append(data[done:])
        return b"".join(out)
