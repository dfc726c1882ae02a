"""Reads XML sitemaps, RSS and Atom piece by piece, even broken ones, with one entry at a time in memory.
An entry counts if its URL is intact (REP.md section 9): damage elsewhere spoils only the text it is in.

No library does that. libxml2 reports at most 100 errors, so damaged URLs after these would pass as good
ones; and it keeps every element's name, and a stack as deep as the file nests. expat ends at the first
error. Here the tags that begin and end entries are searched for, and then the elements of each entry.
Nothing outside the file is loaded, and no entity is expanded.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum
from itertools import islice
from typing import Any
from urllib.parse import urljoin

SitemapEntry = dict[str, Any]
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

# Characters of a processing instruction without a proper end.
_MAX_INSTRUCTION = 1_000
# Of one entry: characters; tags; different names, and characters of one.
_MAX_ENTRY, _MAX_TAGS = 4 * MAX_TEXT, 5_000
_MAX_NAMES, _MAX_NAME = 1_000, 100

# To be linear, no pattern looks beyond the next "<", and none divides attributes in two ways.
_ATTRIBUTES = (
    r"""(?=(?P<all>(?:[\s/](?:[^<>"']+|"[^"<]*"|'[^'<]*'|["'])*)?))(?P=all)>"""
)
_SECTION = r"(!--|!\[CDATA\[|\?)"
_ENDS = {"!--": "-->", "![CDATA[": "]]>", "?": "?>"}
_XML_DECLARATION = re.compile(r"xml\s", re.IGNORECASE)
_PROLOG = re.compile(
    rf"<(?:{_SECTION}|(!ENTITY\b)|([^\s<>/!?]+){_ATTRIBUTES})", re.IGNORECASE
)
_TAG = re.compile(rf"<(?:{_SECTION}|(/?)([^\s<>/!?]+){_ATTRIBUTES})")
# An end tag; or a start tag, with what follows if that is only text and the element's end.
_PART = re.compile(
    rf"<(?:/([^\s<>/]+)\s*>|([^\s<>/!?]+){_ATTRIBUTES}(?:([^<]*)</\2\s*>)?)"
)
_ATTRIBUTE = re.compile(
    "(?<![^\\s\"'])([^\\s=<>\"']+)\\s*=\\s*(?:\"([^\"]*)\"|'([^']*)')"
)
_SCHEME = re.compile("[a-z][a-z0-9+.-]{0,30}:", re.IGNORECASE)
_FALSE = re.compile("isPermaLink\\s*=\\s*[\"']\\s*false", re.IGNORECASE)

_REFERENCE = re.compile(
    r"&(?:#([0-9]{1,8});|#x([0-9a-fA-F]{1,8});|([A-Za-z_][\w.-]{0,30});)", re.ASCII
)
_PREDEFINED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# The replacement character stands for bytes that aren't text.
_WRONG = re.compile("[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\ud800-\udfff\ufffd-\uffff]")

_DECLARATION = re.compile(
    rb"<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']", re.ASCII
)
# How the names of Python's codecs begin that contain ASCII, as the declaration does, and are safe.
_ENCODINGS = ("big5", "cp", "euc_", "gb", "iso8859", "koi8", "mac", "shift_jis")

# By the name of the root element; the name of its entries; what feeds call things.
_ROOTS: dict[str, tuple[Kind, str, dict[str, str]]] = {
    "urlset": (Kind.URLSET, "url", {}),
    "sitemapindex": (Kind.INDEX, "sitemap", {}),
    "rss": (Kind.RSS, "item", {"link": "loc", "pubDate": "lastmod"}),
    "feed": (Kind.ATOM, "entry", {"updated": "lastmod"}),
}
_ITEMS = ("url", "sitemap")
_EXTENSIONS = frozenset(
    (
        "atom",
        "code",
        "geo",
        "image",
        "media",
        "mobile",
        "news",
        "pagemap",
        "video",
        "xhtml",
    )
)
# The elements of extensions that are read, and the keys of entries for what is in them.
_GROUPS = {"news": "news", "image": "images", "video": "videos"}
_MEDIA = {"images": ("loc",), "videos": ("loc", "content_loc", "player_loc")}
# Keys of entries that don't come from an element of that name.
_RESERVED = frozenset(("alternate", "broken", "hreflang", *_GROUPS.values()))


class _Damage(ValueError):
    """What is wrong with a text."""


class XmlFeed:
    """Turns bytes into entries."""

    root: str | None = None  # local name of the root element, once seen
    kind: Kind | None = None
    problem: str | None = None
    """The first error that cost something."""
    over = False
    """Whether there is no point in reading on."""

    def __init__(
        self, start: bytes, *, media: bool = False, url: str | None = None
    ) -> None:
        """*start* of the file tells its encoding. *media*: read the URLs of images and videos. *url*:
        where the file is from, to resolve relative links in feeds."""
        self._media = media
        self._base = url
        self._entry_base = url
        encoding, unknown = _encoding_of(start)
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._text, self._at = "", 0  # what is being read, and how far it is searched
        self._lines = 1  # the number of its first
        self._marks = _PROLOG  # finds what matters outside of entries
        self._closed = False  # whether the root element was
        self._is_last = False  # whether nothing comes after what is being read
        self._instructions_end = (
            True  # whether all processing instructions so far had an end
        )
        self._entries: list[SitemapEntry] = []
        self._items = ""  # see _ROOTS
        self._other = ""  # the first element in place of an entry
        self._renamed: dict[str, str] = {}
        self._item = ""  # the name of the open entry's element, with prefix
        self._from = 0  # where the unread part of that one begins
        self._parts: list[str] = []  # what was before that, without sections
        if unknown:
            self._damaged(f"unknown encoding {unknown}, read as UTF-8")

    def feed(self, data: bytes, *, last: bool = False) -> list[SitemapEntry]:
        """Return the entries that *data* completes. One cut off by the end of the file is lost."""
        self._is_last = last
        self._text += self._decoder.decode(data, last)
        waiting = False  # for the end of a section
        while not (self.over or waiting):
            mark = self._marks.search(self._text, self._at)
            if mark is None:
                begun = self._text.rfind("<", self._at)
                self._at = begun if begun >= 0 else len(self._text)
                break
            self._at = mark.end()
            if mark[1]:
                waiting = not self._section(mark)
            elif self.root is None:
                self._begin(*mark.group(2, 3, 4))
            else:
                self._tag(mark)
        self._forget()
        if last and not self._closed and not self.over:
            self._damaged("the file ends too early")
        if last and self._other:
            ignored = (
                f"<{self._other[:100]}> is no entry of a {self.root}, and was ignored"
            )
            self.problem = self.problem or ignored
        entries, self._entries = self._entries, []
        return entries

    def _section(self, mark: re.Match[str]) -> bool:
        """Read a comment, a CDATA section or a processing instruction; return whether its end is there."""
        text, start, kind = self._text, mark.end(), mark[1].upper()
        if kind == "?":
            return self._instruction(mark)
        end = text.find(_ENDS[kind], start)
        if end < 0:
            self._at = mark.start()
            if not self._item:  # all but what may be part of its end can be forgotten
                kept = max(start, len(text) - 2)
                self._lines += text.count("\n", start, kept)
                self._text = text[:start] + text[kept:]
            return False
        self._at = end + len(_ENDS[kind])
        if self._item:
            self._parts.append(text[self._from : mark.start()])
            if kind != "!--":
                self._parts.append(
                    text[start:end].replace("&", "&amp;").replace("<", "&lt;")
                )
            self._from = self._at
        return True

    def _instruction(self, mark: re.Match[str]) -> bool:
        """Pass over a processing instruction; return whether its end is there. One without an end ends
        as a tag does, so that no entry after it is lost; as does the declaration, which people write so."""
        text, start = self._text, mark.end()
        end = -1
        if self._instructions_end and not _XML_DECLARATION.match(text, start):
            end = text.find("?>", start, start + MAX_TEXT)
            if end < 0 and not self._is_last and len(text) - start < MAX_TEXT:
                self._at = mark.start()  # wait for more
                return False
            # Searching for each of a million would take long.
            self._instructions_end = end >= 0
        at = (
            end + 2 if end >= 0 else text.find(">", start, start + _MAX_INSTRUCTION) + 1
        )
        self._at = at or start
        if self._item:
            self._parts.append(text[self._from : mark.start()])
            self._from = self._at
        return True

    def _forget(self) -> None:
        """Forget what was read."""
        kept = self._from if self._item else self._at
        self._parts = ["".join(self._parts)]  # comments may cut an entry into millions
        size = len(self._parts[0]) + len(self._text) - kept
        if self._item and size > _MAX_ENTRY:
            self._damaged(f"an entry is longer than {_MAX_ENTRY} characters")
            self._finish(self._at)
            kept = self._at
        elif not self._item and size > MAX_TEXT:
            kept = len(self._text)
        self._lines += self._text.count("\n", 0, kept)
        self._text = self._text[kept:]
        self._at, self._from = max(self._at - kept, 0), 0

    def _begin(self, entity: str | None, name: str, attributes: str) -> None:
        """Handle the start tag of the root element, or the declaration of an *entity*."""
        self.over = True
        if entity:
            # URLs would lack them.
            self.problem = "it declares XML entities, which are not resolved"
            return
        self.root = name.rpartition(":")[2]
        if self.root in _ROOTS:
            self.over, self._closed = False, attributes.endswith("/")
            self.kind, self._items, self._renamed = _ROOTS[self.root]
            self._marks = self._marks_of_entries() if self._renamed else _TAG
            self._base = self._entry_base = self._based(self._base, attributes)

    def _marks_of_entries(self, bare: str = "") -> re.Pattern[str]:
        """Return what finds tags of entries and of the root element."""
        others = () if self._renamed else _ITEMS
        names = rf"{bare}(?:[^\s<>/:]+:)?(?:{'|'.join((self._items, *others, self.root or ''))})"
        return re.compile(rf"<(?:{_SECTION}|(/?)({names}){_ATTRIBUTES})")

    def _tag(self, mark: re.Match[str]) -> None:
        """Handle a tag of an entry or of the root element, or the first one within that."""
        _, end, name, attributes = mark.groups()
        local = name.rpartition(":")[2]
        if self._item and (name == self._item or (end and local == self.root)):
            self._finish(mark.start())
        if end:
            self._closed = self._closed or local == self.root
        elif (
            not self._item
            and self._is_entry(name, local)
            and not attributes.endswith("/")
        ):
            self._item, self._from = name, mark.end()
            if self._renamed:
                self._entry_base = self._based(self._base, attributes)

    def _is_entry(self, name: str, local: str) -> bool:
        """Whether an element is an entry."""
        if self._marks is _TAG and local != self.root:  # the first element
            self._marks = self._marks_of_entries("loc|" if name == "loc" else "")
        is_entry = (
            local == self._items or name == "loc"
        )  # the tags around that are missing
        if is_entry:
            if self._other not in _ITEMS:
                self._other = ""
        elif local != self.root:
            self._other = self._other or local
        return is_entry

    def _finish(self, upto: int) -> None:
        """Read the entry that ends there."""
        text = "".join([*self._parts, self._text[self._from : upto]])
        entry: SitemapEntry = {}
        self._read(entry, text)
        if not (entry or self._renamed or "<" in text) and text.strip():
            self._child(entry, "loc", "", text, core=True)  # <loc> is missing
        if self.kind is Kind.RSS and not entry.get("loc") and "guid" in entry:
            entry["loc"] = entry["guid"]
        if entry:
            self._entries.append(entry)
        self._item, self._parts = "", []

    def _read(self, entry: SitemapEntry, text: str) -> None:
        """Read an entry. Its URL may be within an element whose end tag is missing."""
        own, renamed = self._item.rpartition(":")[0], self._renamed
        outer = inner = ""  # outer: the outermost element that is open
        for part in islice(_PART.finditer(text), _MAX_TAGS):
            ended, name, attributes, content = part.groups()
            if ended:
                if ended == outer:
                    outer = inner = ""
                continue
            prefix, _, local = name.rpartition(":")
            # A missing or wrong namespace loses nothing, but feeds have elements of others.
            core = prefix == own or not (renamed or prefix.lower() in _EXTENSIONS)
            local = renamed.get(local, local) if core else local
            if local == "link" and self._link(
                entry, attributes, core=core, within=bool(outer)
            ):
                continue
            if content is None and not attributes.endswith("/"):
                if core and local == "loc" and not outer and not entry.get("loc"):
                    self._damaged("an element in a URL")
                    entry["broken"] = True
                outer = outer or name
            elif not outer:
                self._child(entry, local, attributes, content or "", core=core)
            elif core and local == "loc":
                inner = inner or self._resolved(content or "") or ""
            elif group := _GROUPS.get(outer.rpartition(":")[2]):
                self._of_extension(entry, group, local, content or "")
        if inner and not entry.get("loc"):
            entry["loc"] = inner

    def _child(
        self,
        entry: SitemapEntry,
        name: str,
        attributes: str,
        content: str,
        *,
        core: bool,
    ) -> None:
        """Add a child of the entry, which contains only text."""
        if not core and (name == "loc" or self._renamed):
            return
        if name == "guid" and self.kind is Kind.RSS and _FALSE.search(attributes):
            return
        if (
            name == "loc"
            and (entry.get("loc") or "broken" in entry)
            and not self._renamed
        ):
            self._entries.append(entry.copy())  # tags are missing between two entries
            entry.clear()
        new = not entry.get(name) and len(entry) < _MAX_NAMES
        if not new or name in _RESERVED or len(name) > _MAX_NAME:
            return
        if (value := self._resolved(content, told=name == "loc")) is not None:
            if name == "loc" and self._renamed:
                value = self._absolute(value, self._based(self._entry_base, attributes))
            entry[name] = value
        elif name == "loc":
            entry["broken"] = True

    def _of_extension(
        self, entry: SitemapEntry, group: str, name: str, content: str
    ) -> None:
        """Add what is in an element of an extension, such as image:loc."""
        if group == "news":
            wanted = name not in entry.setdefault(group, {}) and len(name) <= _MAX_NAME
        else:
            wanted = self._media and name in _MEDIA[group]
        if wanted and (value := self._resolved(content)) is not None:
            if group == "news":
                entry[group][name] = value
            else:
                entry.setdefault(group, []).append(value)

    def _link(
        self, entry: SitemapEntry, attributes: str, *, core: bool, within: bool
    ) -> bool:
        """Read a link with its URL in an attribute. Return whether it is one."""
        # The first of several with one name counts.
        found = reversed(_ATTRIBUTE.findall(attributes))
        values = {name: one or other for name, one, other in found}
        atom = self.kind is Kind.ATOM
        if not values.get("href") or self.kind is Kind.RSS or (atom and not core):
            return False
        if values.get("rel", "alternate") != "alternate" or (atom and within):
            return True
        href = self._resolved(values["href"], told=True)
        if atom and href is None:
            entry.setdefault("broken", True)
        elif atom:
            base = self._based(self._entry_base, attributes)
            entry.setdefault("loc", self._absolute(href or "", base))
        elif href is not None:
            entry.setdefault("alternate", []).append(href)
            language = self._resolved(values.get("hreflang", "")[:_MAX_NAME])
            if language:
                entry.setdefault("hreflang", {}).setdefault(language, href)
        return True

    def _based(self, base: str | None, attributes: str) -> str | None:
        """Return the base of an element's links; *base* is that of the one around it."""
        if "xml:base" not in attributes:
            return base
        values = {
            name: one or other for name, one, other in _ATTRIBUTE.findall(attributes)
        }
        own = self._resolved(values.get("xml:base", ""))
        return (
            base
            if own is None or len(own) > MAX_TEXT // 8
            else self._absolute(own, base)
        )

    def _absolute(self, link: str, base: str | None) -> str:
        """Return a feed's *link*, which may be relative, as an absolute URL; as it is if it can't be."""
        if base is None or not link or _SCHEME.match(link):
            return link
        try:
            return urljoin(base, link)
        except ValueError:
            return link

    def _resolved(self, text: str, *, told: bool = False) -> str | None:
        """Return *text* stripped, with its references resolved; None if it isn't XML. An "&" that
        begins no reference stands for itself: the most common error in sitemaps."""
        try:
            if len(text) > MAX_TEXT:
                raise _Damage(f"a text is longer than {MAX_TEXT} characters")
            if "]]>" in text:
                raise _Damage("']]>' in a text")
            if wrong := _WRONG.search(text):
                raise _Damage(_named(wrong[0]))
            return (_REFERENCE.sub(_character, text) if "&" in text else text).strip()
        except _Damage as error:
            if told:
                self._damaged(str(error))
            return None

    def _damaged(self, why: str) -> None:
        if self.problem is None:
            line = self._lines + self._text.count("\n", 0, self._at)
            self.problem = f"broken XML, line {line}: {why}"


def _named(wrong: str) -> str:
    if wrong == "\ufffd":
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
    if b"\0" in start[:2]:
        return "utf-16-be" if start[:1] == b"\0" else "utf-16-le", ""
    # A byte order mark overrules the declaration.
    declared = _DECLARATION.match(start)
    name = declared[1].decode() if declared else "utf-8"
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return "utf-8-sig", name
    return found if found.startswith(_ENCODINGS) else "utf-8-sig", ""
