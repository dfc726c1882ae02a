"""Reads XML sitemaps, RSS and Atom piece by piece, even broken ones, with one entry at a time in memory.
An entry counts if its URL is intact (REP.md section 9): damage elsewhere spoils only the text it is in.

No library does that. libxml2 reports at most 100 errors, so damaged URLs after these would pass as good
ones; and it keeps every element's name, and a stack as deep as the file nests. expat ends at the first
error. Here a tag ends at the next "<" at the latest. Nothing outside the file is loaded, and no entity
is expanded.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from enum import Enum
from typing import Any

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


MAX_TEXT = 65536
"""Characters of a text, and of a tag. No URL is as long."""

_TOO_LONG = f"a text is longer than {MAX_TEXT} characters"

_IN_NAME = "[^\\s<>\"'/=&;\\0-\\x20\ud800-\udfff]"
# To be linear, none of these looks beyond the next "<", and no name ends before its last letter.
_NAME = f"(?![!?#]){_IN_NAME}+(?!{_IN_NAME})"
_QUOTED = "(?:\"[^\"<]*\"|'[^'<]*')"
_ATTRIBUTES = rf"([^<>\"']*(?:{_QUOTED}[^<>\"']*)*)"
# Nearly all of a sitemap: text, then either an element that contains only text, or another tag.
_USUAL = re.compile(rf"([^<]*)<(?:({_NAME})>([^<]*)</\2>|(/?{_NAME}){_ATTRIBUTES}>)")
_OTHER = re.compile(
    rf"<(?:(!--|!\[CDATA\[|\?)|(![A-Za-z]+)(?![A-Za-z])[^<>\[\"']*(?:{_QUOTED}[^<>\[\"']*)*[\[>])"
)
# A tag whose quotes don't match.
_DAMAGED_TAG = re.compile(rf"<(/?{_NAME})([^<>]*)>")
_BEGINNING = re.compile(f"<(/?{_NAME})")
_CDATA = "![CDATA["
_ENDS = {"!--": "-->", _CDATA: "]]>", "?": "?>"}

_REFERENCE = re.compile(
    r"&(?:#([0-9]{1,8});|#x([0-9a-fA-F]{1,8});|([A-Za-z_][\w.-]{0,30});)", re.ASCII
)
_PREDEFINED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NO_CHARACTERS = "\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\ud800-\udfff\ufffe\uffff"
_WRONG = re.compile(f"[{_NO_CHARACTERS}]|\\]\\]>")
_WRONG_OR_REPLACED = re.compile(f"[{_NO_CHARACTERS}\ufffd]|\\]\\]>")

_DECLARATION = re.compile(
    rb"<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']", re.ASCII
)
# Python's codecs that no file uses.
_NO_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")

# By the name of the root element, and the name of its entries.
_ROOTS = {
    "urlset": (Kind.URLSET, "url"),
    "sitemapindex": (Kind.INDEX, "sitemap"),
    "rss": (Kind.RSS, "item"),
    "feed": (Kind.ATOM, "entry"),
}
# What feeds call these things.
_RENAMED = {Kind.RSS: {"link": "loc", "pubDate": "lastmod"}, Kind.ATOM: {"updated": "lastmod"}}
# Limits of one entry: elements with different names, alternates, images; characters; levels.
_MAX_CHILDREN, _MAX_CHARACTERS, _MAX_DEPTH = 1000, 4 * MAX_TEXT, 100
_MAX_NAME = _MAX_PREFIXES = 100

_ATTRIBUTE = re.compile("(?<![^\\s\"'])([^\\s=<>\"']+)\\s*=\\s*(?:\"([^\"]*)\"|'([^']*)')")
_FALSE = re.compile("isPermaLink\\s*=\\s*[\"']\\s*false", re.IGNORECASE)
# The namespaces of sitemaps, not of extensions; prefixes of extensions without a namespace.
_SITEMAPS = "schemas/sitemap/"
_EXTENSIONS = frozenset(
    ("atom", "code", "geo", "image", "media", "mobile", "news", "pagemap", "video", "xhtml")
)
# Keys of entries that don't come from an element of that name.
_RESERVED = frozenset(("alternate", "broken", "hreflang", "images", "news", "videos"))
_PLAIN = frozenset(("loc", "lastmod", "changefreq", "priority"))
# The elements of extensions that are read, and the keys of entries for what is in them.
_GROUPS = {"news": "news", "image": "images", "video": "videos"}
_MEDIA = {"images": ("loc",), "videos": ("loc", "content_loc", "player_loc")}


class _Damage(ValueError):
    """What is wrong with a text."""


class _Over(Exception):
    """Reading on is pointless."""


class XmlFeed:
    """Turns bytes into entries."""

    root: str | None = None  # local name of the root element, once seen
    kind: Kind | None = None
    problem: str | None = None
    """The first error in the file so far."""
    over = False
    """Whether there is no point in reading on."""

    def __init__(self, start: bytes, *, media: bool = False) -> None:
        """*start* of the file tells its encoding. *media*: read the URLs of images and videos."""
        self._media = media
        encoding, unknown = _encoding_of(start)
        utf8 = encoding == "utf-8"
        # So that bytes that aren't UTF-8 can be told from a U+FFFD in the file.
        errors = "surrogateescape" if utf8 else "replace"
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if utf8 else encoding)(errors)
        self._no_text = _WRONG if utf8 else _WRONG_OR_REPLACED
        self._lines, self._text, self._at = 1, "", 0  # what is being read, and how far it is read
        self._inside = ""  # a comment, a CDATA section or an instruction
        self._closed = False  # whether the root element was
        self._namespaces: dict[str, str] = {}  # of the whole file, by prefix
        self._entries: list[Entry] = []
        self._entry: Entry | None = None
        self._items = ""  # the name of entries' elements, and of this one's, with prefix
        self._item = ""
        self._prefix = ""
        self._size = 0
        self._open: list[str] = []  # the elements that are open in the entry
        self._group: str | None = None  # key of the entry, if the first of these is an extension's
        self._deep: Entry = {}  # what is in one of these, but may belong to the entry itself
        # The text that is read: its key, and the dict or list for it (None: no text is wanted); its element.
        self._name, self._element = "", ""
        self._into: Any = None
        self._texts: list[str] = []
        self._length = 0
        self._wrong = ""  # what is wrong with it
        if unknown:
            self._damaged(f"unknown encoding {unknown}, read as UTF-8")

    def feed(self, data: bytes, *, last: bool = False) -> list[Entry]:
        """Return the entries that *data* completes. One cut off by the end of the file is lost."""
        text = self._text = self._text + self._decoder.decode(data, last)
        at: int | None = 0
        try:
            while at is not None:
                if self._inside:
                    at = self._section(text, at)
                else:
                    at = self._other(text, self._tags(text, at), last=last)
            self._lines += text.count("\n", 0, self._at)
            self._text, self._at = text[self._at :], 0
            if last and self._inside:
                self._damaged("the end of a comment or a section is missing")
            if last and not self._closed:
                self._damaged("the file ends too early")
        except _Over:
            self.over = True
        entries, self._entries = self._entries, []
        return entries

    def _damaged(self, why: str) -> None:
        """Note that something isn't XML. It spoils the text that is being read."""
        if self._into is not None:
            self._wrong = self._wrong or why
        if self.problem is None:
            line = self._lines + self._text.count("\n", 0, self._at)
            self.problem = f"broken XML, line {line}: {why}"

    # These read on, and return how far they got; None: the rest is still to come.

    def _tags(self, text: str, at: int) -> int:
        usual = _USUAL.match
        while found := usual(text, at):
            self._at, at = at, found.end()
            before, leaf, content, name, attributes = found.groups()
            if before and self._into is not None:
                self._add(before)
            if leaf:
                self._leaf(leaf, content)
            else:
                self._tag(name, attributes)
        self._at = at
        return at

    def _other(self, text: str, at: int, *, last: bool) -> int | None:
        """Read what isn't a proper tag, and the text before it."""
        start = text.find("<", at)
        if start < 0:
            if self._into is not None and not last and len(text) - at <= MAX_TEXT:
                return None
            if self._into is not None and not last:
                self._damaged(_TOO_LONG)
            elif self._into is not None:
                self._add(text[at:])
            self._at = len(text)
            return None
        if start != at and self._into is not None:
            self._add(text[at:start])
        self._at = start
        if found := _OTHER.match(text, start):
            self._inside, declaration = found.groups("")
            if declaration.upper() == "!ENTITY" and self.root is None:
                # URLs would lack them.
                self.problem = "it declares XML entities, which are not resolved"
                raise _Over
            return found.end()
        cut = text.find("<", start + 1) >= 0
        if not (cut or last or len(text) - start > MAX_TEXT):
            return None
        return self._damaged_tag(text, start, ends=cut or last)

    def _damaged_tag(self, text: str, start: int, *, ends: bool) -> int:
        """Read a tag that isn't a proper one. *ends*: no more of it is to come."""
        if found := _DAMAGED_TAG.match(text, start):
            self._tag(*found.groups())
            self._damaged("a tag is damaged")
            return found.end()
        if ends or not (begun := _BEGINNING.match(text, start)):
            self._damaged("'<' without a tag")
            return start + 1
        self._tag(begun[1], "")
        self._damaged(f"a tag is longer than {MAX_TEXT} characters")
        return len(text)

    def _section(self, text: str, at: int) -> int | None:
        mark = _ENDS[self._inside]
        end = text.find(mark, at)
        stop = end if end >= 0 else max(at, len(text) - len(mark) + 1)
        if self._inside == _CDATA and self._into is not None and stop > at:
            self._add(text[at:stop], plain=True)
        if end < 0:
            self._at = stop
            return None
        self._inside = ""
        return end + len(mark)

    # These handle what was read.

    def _leaf(self, name: str, content: str) -> None:
        """Handle an element without attributes that contains only this text."""
        entry = self._entry
        if entry is None:
            if self.root is not None and name != self._items:
                return
        elif self._into is not None or self.kind in _RENAMED:
            pass
        elif self._open:
            if self._group is None and ":" in name:
                return
        elif name in _PLAIN and name not in entry and not self._prefix and len(content) <= MAX_TEXT:
            with suppress(_Damage):
                entry[name] = self._resolved(content).strip()
                return
        self._tag(name, "")
        if content and self._into is not None:
            self._add(content)
        self._end(name)

    def _tag(self, name: str, attributes: str) -> None:
        """Handle a tag: an element begins, ends, or both."""
        if name[0] == "/":
            self._end(name[1:])
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
            self.root, self._prefix, self._closed = local, prefix, empty
            if local not in _ROOTS:
                raise _Over
            self.kind, self._items = _ROOTS[local]
        elif local == self._items:
            self._finish()  # its end tag is missing
            if not empty:
                self._entry, self._item, self._prefix, self._size = {}, name, prefix, 0

    def _child(self, entry: Entry, name: str, attributes: str, *, empty: bool) -> None:
        prefix, _, local = name.rpartition(":")
        if self._into is not None:
            if self._name == "loc":
                self._damaged("an element in a URL")
            self._end_text(lost=True)
        if self._open and self._group is None and local not in ("loc", "link"):
            pass  # most of hostile files
        elif local == "link" and attributes and self._link(entry, prefix, attributes):
            pass
        elif target := self._target(entry, prefix, local, attributes):
            self._name, self._into = target
            self._element, self._texts, self._length, self._wrong = name, [], 0, ""
        if empty and self._into is not None:
            self._end_text()
        elif not empty and len(self._open) < _MAX_DEPTH:
            if not self._open:
                group = _GROUPS.get(local)
                self._group = group if group == "news" or self._media else None
            self._open.append(name)

    def _target(
        self, entry: Entry, prefix: str, local: str, attributes: str
    ) -> tuple[str, Any] | None:
        """Return the key of the text that begins, and where it goes; None if it isn't wanted."""
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
        """Whether a *prefix* may be the sitemap's own, even with a missing or wrong namespace."""
        found, own = self._namespaces.get(prefix), self._namespaces.get(self._prefix)
        if self.kind in _RENAMED:  # feeds have elements of others, with the same names
            return found is not None and found == own
        if found is None:
            return prefix.lower() not in _EXTENSIONS
        return found == own or _SITEMAPS in found

    def _link(self, entry: Entry, prefix: str, attributes: str) -> bool:
        """Read a link with its URL in an attribute. Return whether it is one."""
        # The first of several with one name counts.
        found = reversed(_ATTRIBUTE.findall(attributes))
        values = {name: one or other for name, one, other in found}
        href, language = values.get("href"), values.get("hreflang", "")
        atom = self.kind is Kind.ATOM
        if not href or self.kind is Kind.RSS or (atom and prefix != self._prefix):
            return False
        if values.get("rel", "alternate") != "alternate" or (self._open and atom):
            return True
        try:
            href = self._resolved(href).strip()
            language = language and self._resolved(language).strip()
        except _Damage as error:
            self._damaged(str(error))
            if atom:
                entry.setdefault("broken", True)
            return True
        if atom:
            entry.setdefault("loc", href)
            return True
        alternates = entry.setdefault("alternate", [])
        if len(alternates) < _MAX_CHILDREN and self._size + len(href) <= _MAX_CHARACTERS:
            self._size += len(href)
            alternates.append(href)
            if language and len(language) <= _MAX_NAME:
                entry.setdefault("hreflang", {}).setdefault(language, href)
        return True

    def _add(self, text: str, *, plain: bool = False) -> None:
        """Add the text between two tags. *plain*: what looks like a reference isn't one (CDATA)."""
        if self._wrong:
            return
        try:
            text = self._resolved(text, plain=plain)
            self._length += len(text)
            if self._length > MAX_TEXT:
                raise _Damage(_TOO_LONG)
            self._texts.append(text)
        except _Damage as error:
            self._damaged(str(error))

    def _resolved(self, text: str, *, plain: bool = False) -> str:
        """Return *text* with its references resolved, unless it is *plain*; ``_Damage`` if it isn't
        XML. An "&" that begins no reference stands for itself: the most common error in
        sitemaps."""
        if wrong := self._no_text.search(text):
            raise _Damage(_named(wrong[0]))
        return text if plain or "&" not in text else _REFERENCE.sub(_character, text)

    def _end(self, name: str) -> None:
        """Handle an end tag. Also ends elements within that lack theirs."""
        local = name.rpartition(":")[2]
        if self._entry is None:
            if local == self.root:
                if self._closed:
                    self._lost(name)
                self._closed = True
        elif name in self._open:
            while (last := self._open.pop()) != name:
                self._lost(last)
            if self._into is not None:
                self._end_text(lost=name != self._element)
            if not self._open:
                self._deep.clear()
        elif local in (self._items, self.root):
            self._finish()
            self._closed = self._closed or local == self.root
        else:
            self._lost(name)

    def _lost(self, name: str) -> None:
        self._damaged(f"the tags of <{name[:_MAX_NAME]}> don't match")

    def _end_text(self, *, lost: bool = False) -> None:
        into, self._into = self._into, None
        text = "".join(self._texts).strip()
        self._size += len(text)
        if self._wrong or lost or (self._size > _MAX_CHARACTERS and self._name != "loc"):
            if self._wrong and self._name == "loc" and into is self._entry:
                self._entry["broken"] = True
        elif isinstance(into, list):
            into.append(text)
        else:
            into[self._name] = text

    def _finish(self) -> None:
        entry = self._entry
        if entry is None:
            return
        if self._open:
            self._lost(self._open[-1])
            if self._into is not None:
                self._end_text(lost=True)
            if not entry.get("loc"):  # in an element whose end tag is missing
                entry.update(self._deep)
            self._open, self._deep = [], {}
        self._entry = None
        if self.kind is Kind.RSS and not entry.get("loc") and "guid" in entry:
            entry["loc"] = entry["guid"]
        if entry:
            self._entries.append(entry)


def _named(wrong: str) -> str:
    if wrong == "]]>":
        return "']]>' in a text"
    if wrong == "\ufffd" or "\udc80" <= wrong <= "\udcff":
        return "bytes that are not valid text in its encoding"
    return f"a character that XML doesn't allow (U+{ord(wrong):04X})"


def _character(match: re.Match[str]) -> str:
    decimal, hexadecimal, name = match.groups()
    if name:
        if name not in _PREDEFINED:
            raise _Damage(f"Entity '{name}' not defined")
        return _PREDEFINED[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code > 0x10FFFF or _WRONG.match(character := chr(code)):
        raise _Damage(f"{match[0]} is not a valid character")
    return character


def _encoding_of(start: bytes) -> tuple[str, str]:
    """Return the encoding to read a file in; and the declared one, if that is unknown."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16", ""
    if start[:1] == b"\0" or start[1:2] == b"\0":
        return "utf-16-be" if start[:1] == b"\0" else "utf-16-le", ""
    # A byte order mark overrules the declaration.
    declared = _DECLARATION.match(start)
    if declared is None:
        return "utf-8", ""
    name = declared[1].decode()
    try:
        found = codecs.lookup(name).name
        if found in _NO_ENCODINGS:
            return "utf-8", name
        # The declaration was read as ASCII, so only an encoding that contains ASCII can be right.
        ascii_too = found != "ascii" and b"<".decode(found, "replace") == "<"
        return (found if ascii_too else "utf-8"), ""
    except (LookupError, ValueError):
        return "utf-8", name
