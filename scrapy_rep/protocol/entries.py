"""Reads XML sitemaps, RSS and Atom piece by piece, with one entry at a time in memory. An entry counts
if its URL is intact (REP.md section 9). Damage elsewhere spoils only the text that it is in."""

from __future__ import annotations

import re
from contextlib import suppress
from enum import Enum
from typing import Any

from scrapy_rep.protocol.markup import MAX_TEXT, TOO_LONG, Damage, Markup

Entry = dict[str, Any]
"""What a sitemap says about one URL: ``loc``, and where given ``lastmod``, ``changefreq``, ``priority``
and the like (str, stripped), ``alternate`` (list of str: URLs of the page in other languages),
``hreflang`` (dict: the same by language, if one is named), ``news`` (dict of str: from the news
extension), ``images`` and ``videos`` (lists of str: their URLs, if the reader was asked for them),
``broken`` (True: ``loc`` is damaged, and may be wrong)."""


class Kind(str, Enum):
    """The formats of sitemaps."""

    URLSET = "urlset"
    INDEX = "sitemapindex"
    TEXT = "text"
    RSS = "rss"
    ATOM = "atom"


# By the name of the root element, and the name of its entries.
_ROOTS = {
    "urlset": (Kind.URLSET, "url"),
    "sitemapindex": (Kind.INDEX, "sitemap"),
    "rss": (Kind.RSS, "item"),
    "feed": (Kind.ATOM, "entry"),
}
# What feeds call these things.
_RENAMED = {Kind.RSS: {"link": "loc", "pubDate": "lastmod"}, Kind.ATOM: {"updated": "lastmod"}}
# Of one entry: elements with different names, alternates, images; characters in all; levels.
_MAX_CHILDREN, _MAX_CHARACTERS, _MAX_DEPTH = 1000, 4 * MAX_TEXT, 100
_MAX_NAME = _MAX_PREFIXES = 100

_ATTRIBUTE = re.compile("(?<![^\\s\"'])([^\\s=<>\"']+)\\s*=\\s*(?:\"([^\"]*)\"|'([^']*)')")
_FALSE = re.compile("isPermaLink\\s*=\\s*[\"']\\s*false", re.IGNORECASE)
# The namespaces of sitemaps, but not of extensions; prefixes of extensions whose namespace is missing.
_SITEMAPS = re.compile("schemas/sitemap/")
_EXTENSIONS = frozenset(
    ("atom", "code", "geo", "image", "media", "mobile", "news", "pagemap", "video", "xhtml")
)
# Keys of entries that don't come from an element of that name.
_RESERVED = frozenset(("alternate", "broken", "hreflang", "images", "news", "videos"))
_USUAL = frozenset(("loc", "lastmod", "changefreq", "priority"))
# The elements of extensions that are read, and the keys of entries for what is in them.
_GROUPS = {"news": "news", "image": "images", "video": "videos"}
_MEDIA = {"images": ("loc",), "videos": ("loc", "content_loc", "player_loc")}


class XmlFeed:
    """Turns bytes into entries. :class:`Markup` calls the methods below :meth:`feed`."""

    def __init__(self, start: bytes, *, media: bool = False) -> None:
        """:param start: of the file
        :param media: whether entries have the URLs of images and videos
        """
        self.root: str | None = None  # local name of the root element, once seen
        self.kind: Kind | None = None
        self.problem: str | None = None
        """The first error in the file so far."""
        self.over = False
        """Whether reading on is pointless."""
        self.listening = False
        """Whether it wants texts now."""
        self._media = media
        self._closed = False  # whether the root element was
        self._namespaces: dict[str, str] = {}  # by prefix, of the whole file
        self._entries: list[Entry] = []
        self._entry: Entry | None = None
        self._items = ""  # the name of entries' elements, and of this one's, with prefix
        self._item = ""
        self._prefix = ""
        self._size = 0
        self._open: list[str] = []  # the elements that are open in the entry
        self._group: str | None = None  # key of the entry, if the first of these is an extension's
        self._deep: Entry = {}  # what is in one of these, but may belong to the entry itself
        self._name = self._element = ""  # key of the text that is being read, name of its element
        self._into: Any = None  # dict or list for it
        self._texts: list[str] = []
        self._length = 0
        self._wrong = ""  # what is wrong with it
        self._markup = Markup(self, start)
        if self._markup.unknown:
            self.damaged(f"unknown encoding {self._markup.unknown}, read as UTF-8")

    def feed(self, data: bytes, *, last: bool = False) -> list[Entry]:
        """Return the entries that *data* completes. One cut off by the end of the file is lost."""
        if data or last:
            self._markup.read(data, last=last)
        if last and not self.over and not self._closed:
            self.damaged("the file ends too early")
        entries, self._entries = self._entries, []
        return entries

    def damaged(self, why: str) -> None:
        """Something isn't XML. It spoils the text that is being read."""
        if self.listening:
            self._wrong = self._wrong or why
        if self.problem is None and not self.over:
            self.problem = f"broken XML, line {self._markup.line}: {why}"

    def declared(self, name: str) -> None:
        """A declaration, as in a DTD. Entities would be missing in URLs: refuse such a file."""
        if name == "!ENTITY" and self.root is None:
            self.over = True
            self.problem = "it declares XML entities, which are not resolved"

    def leaf(self, name: str, content: str) -> None:
        """An element without attributes that contains nothing but this text."""
        entry = self._entry
        if entry is None:
            if self.over or (self.root is not None and name != self._items):
                return
        elif self.listening or self.kind in _RENAMED:
            pass
        elif self._open:
            if self._group is None and ":" in name:
                return
        elif name in _USUAL and name not in entry and not self._prefix and len(content) <= MAX_TEXT:
            with suppress(Damage):
                entry[name] = self._markup.resolved(content).strip()
                return
        self.tag(name, "")
        if content and self.listening:
            self.text(content, plain=False)
        self._end(name)

    def tag(self, name: str, attributes: str) -> None:
        """An element begins, or ends, or both."""
        if name[0] == "/":
            self._end(name[1:])
            return
        if self.over:
            return
        empty = attributes[-1:] == "/"
        if attributes and "xmlns" in attributes:
            for one, *values in _ATTRIBUTE.findall(attributes):
                mark, _, prefix = one.partition(":")
                if mark == "xmlns" and len(self._namespaces) < _MAX_PREFIXES:
                    self._namespaces[prefix] = "".join(values)[:_MAX_NAME]
        if self._entry is not None and name != self._item:
            self._child(self._entry, name, attributes, empty=empty)
            return
        prefix, _, local = name.rpartition(":")
        if self.root is None:
            self.root, self._prefix = local, prefix
            self.kind, self._items = _ROOTS.get(local, (None, ""))
            self.over, self._closed = self.kind is None, empty
        elif local == self._items:
            self._finish()  # its end tag is missing
            if not empty:
                self._entry, self._item, self._prefix, self._size = {}, name, prefix, 0

    def _child(self, entry: Entry, name: str, attributes: str, *, empty: bool) -> None:
        prefix, _, local = name.rpartition(":")
        if self.listening:
            if self._name == "loc":
                self.damaged("an element in a URL")
            self._end_text(lost=True)
        if self._open and self._group is None and local not in ("loc", "link"):
            pass  # most of hostile files
        elif not (local == "link" and attributes and self._link(entry, prefix, attributes)):
            target = self._target(entry, prefix, local, attributes)
            if target is not None:
                self._name, self._into = target
                self._element, self._texts, self._length = name, [], 0
                self._wrong, self.listening = "", True
        if empty:
            if self.listening:
                self._end_text()
        elif len(self._open) < _MAX_DEPTH:
            if not self._open:
                group = _GROUPS.get(local)
                self._group = group if group == "news" or self._media else None
            self._open.append(name)

    def _target(
        self, entry: Entry, prefix: str, local: str, attributes: str
    ) -> tuple[str, Any] | None:
        """Return the key of the text that begins, and the dict or list for it; None if it isn't wanted."""
        kind = self.kind
        core = prefix == self._prefix or self._is_core(prefix)
        if core or (kind in (Kind.URLSET, Kind.INDEX) and local != "loc"):
            name = _RENAMED[kind].get(local, local) if kind in _RENAMED else local
            if kind is Kind.RSS and local == "guid" and _FALSE.search(attributes):
                return None
            if not self._open:
                new = not entry.get(name) and len(entry) < _MAX_CHILDREN
                fits = name not in _RESERVED and len(name) <= _MAX_NAME
                return (name, entry) if new and fits else None
            if core and name == "loc" and name not in self._deep:
                return name, self._deep
        if not self._open or self._group is None:
            return None
        # Of an extension, such as image:loc.
        if self._group == "news":
            found: Any = entry.setdefault("news", {})
            new = local not in found and len(local) <= _MAX_NAME
        elif new := local in _MEDIA[self._group]:
            found = entry.setdefault(self._group, [])
        return (local, found) if new and len(found) < _MAX_CHILDREN else None

    def _is_core(self, prefix: str) -> bool:
        """Whether elements with this *prefix* may be the sitemap's own: also if its namespace is missing or
        wrong, or if several are mixed."""
        found, own = self._namespaces.get(prefix), self._namespaces.get(self._prefix)
        if self.kind in _RENAMED:  # feeds have elements of others, with the same names
            return found is not None and found == own
        if found is None:
            return prefix.lower() not in _EXTENSIONS
        return found == own or _SITEMAPS.search(found) is not None

    def _link(self, entry: Entry, prefix: str, attributes: str) -> bool:
        """Read a link whose URL is in an attribute. Return whether it is one."""
        # The first of several with one name counts.
        found = reversed(_ATTRIBUTE.findall(attributes))
        values = {name: one or other for name, one, other in found}
        href, kind, language = values.get("href"), self.kind, values.get("hreflang", "")
        if not href or kind is Kind.RSS or (kind is Kind.ATOM and prefix != self._prefix):
            return False
        if values.get("rel", "alternate") != "alternate" or (self._open and kind is Kind.ATOM):
            return True
        try:
            href = self._markup.resolved(href).strip()
            language = language and self._markup.resolved(language).strip()
        except Damage as error:
            self.damaged(str(error))
            if kind is Kind.ATOM:
                entry.setdefault("broken", True)
            return True
        if kind is Kind.ATOM:
            entry.setdefault("loc", href)
            return True
        alternates = entry.setdefault("alternate", [])
        if len(alternates) < _MAX_CHILDREN and self._size + len(href) <= _MAX_CHARACTERS:
            self._size += len(href)
            alternates.append(href)
            if language and len(language) <= _MAX_NAME:
                entry.setdefault("hreflang", {}).setdefault(language, href)
        return True

    def text(self, text: str, *, plain: bool) -> None:
        """All text between two tags. *plain*: what looks like a reference isn't one (CDATA)."""
        if self._wrong:
            return
        try:
            text = self._markup.resolved(text, plain=plain)
            self._length += len(text)
            if self._length > MAX_TEXT:
                raise Damage(TOO_LONG)
            self._texts.append(text)
        except Damage as error:
            self.damaged(str(error))

    def _end(self, name: str) -> None:
        """An end tag, maybe of no open element. Ends those in between whose end tags are missing."""
        if self._entry is None or self.over:
            if name.rpartition(":")[2] == self.root and not self.over:
                if self._closed:
                    self._lost(name)
                self._closed = True
        elif name in self._open:
            while (last := self._open.pop()) != name:
                self._lost(last)
            if self.listening:
                self._end_text(lost=name != self._element)
            if not self._open:
                self._deep.clear()
        elif (local := name.rpartition(":")[2]) in (self._items, self.root):
            self._finish()
            self._closed = self._closed or local == self.root
        else:
            self._lost(name)

    def _lost(self, name: str) -> None:
        self.damaged(f"the tags of <{name[:_MAX_NAME]}> don't match")

    def _end_text(self, *, lost: bool = False) -> None:
        into, name, self.listening = self._into, self._name, False
        text = "".join(self._texts).strip()
        self._size += len(text)
        if self._wrong or lost or (self._size > _MAX_CHARACTERS and name != "loc"):
            if self._wrong and name == "loc" and into is self._entry and self._entry is not None:
                self._entry["broken"] = True
        elif isinstance(into, list):
            into.append(text)
        else:
            into[name] = text

    def _finish(self) -> None:
        entry = self._entry
        if entry is None:
            return
        if self._open:
            self._lost(self._open[-1])
            if self.listening:
                self._end_text(lost=True)
            if not entry.get("loc"):  # in an element whose end tag is missing
                entry.update(self._deep)
            self._open, self._deep = [], {}
        self._entry = None
        if self.kind is Kind.RSS and not entry.get("loc") and "guid" in entry:
            entry["loc"] = entry["guid"]
        if entry:
            self._entries.append(entry)
