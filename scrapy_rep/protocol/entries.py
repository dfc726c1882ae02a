"""Reads XML sitemaps, RSS and Atom piece by piece, even broken ones, with one entry at
a time in memory. An entry counts if its URL is intact (REP.md section 9): damage
elsewhere spoils only the text it is in.

No library does that. libxml2 reports at most 100 errors, so damaged URLs after these
would pass as good ones; and it keeps every element's name, and a stack as deep as the
file nests. expat ends at the first error. Here the tags that begin and end entries are
searched for, and then the elements of each entry. Nothing outside the file is loaded,
and no entity is expanded.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urljoin

SitemapEntry = dict[str, Any]
"""What a sitemap says about one URL: ``loc``, and where given ``lastmod``,
``changefreq``, ``priority`` and the like (str, stripped), ``alternate`` (list of str:
URLs of the page in other languages), ``hreflang`` (dict: the same by language, if one
is named), ``news`` (dict of str: from the news extension), ``images`` and ``videos``
(lists of str: their URLs, if the reader was asked for them), ``broken`` (True: ``loc``
is damaged, and may be wrong)."""


class Kind(str, Enum):
    """The formats of sitemaps."""

    URLSET = "urlset"
    INDEX = "sitemapindex"
    TEXT = "text"
    RSS = "rss"
    ATOM = "atom"


MAX_ELEMENT_TEXT = 65536
"""The most characters of a text, and of a tag. No URL is as long."""

# The most characters of a processing instruction without a proper end.
_MAX_INSTRUCTION = 1_000
# The most characters of one entry.
_MAX_ENTRY = 4 * MAX_ELEMENT_TEXT
# The most tags that are read in one entry.
_MAX_TAGS = 5_000
# The most names of elements that one entry may have.
_MAX_NAMES = 1_000
# The most characters of an element's name.
_MAX_NAME = 100
# The most characters of an xml:base, by which all relative links become longer.
_MAX_BASE = 8_192

# What follows the name in a tag. So that searching takes linear time, no pattern here
# looks beyond the next "<", and none can divide the same attributes in two ways.
_ATTRIBUTES = (
    r"""(?=(?P<all>(?:[\s/](?:[^<>"']+|"[^"<]*"|'[^'<]*'|["'])*)?))(?P=all)>"""
)
# How sections (comments, CDATA sections and processing instructions) begin after the
# "<", and how they end. Tags in sections are no tags.
_SECTION = r"(!--|!\[CDATA\[|\?)"
_SECTION_ENDS = {"!--": "-->", "![CDATA[": "]]>", "?": "?>"}
_XML_DECLARATION = re.compile(r"xml\s", re.IGNORECASE)
# What matters before the root element. Groups: a section's beginning; the declaration
# of an entity; name and attributes of the root element.
_PROLOG = re.compile(
    rf"<(?:{_SECTION}|(!ENTITY\b)|([^\s<>/!?]+){_ATTRIBUTES})", re.IGNORECASE
)
# A tag, or the beginning of a section. Groups: a section's beginning; "/" in an end
# tag; name and attributes of a tag.
_TAG = re.compile(rf"<(?:{_SECTION}|(/?)([^\s<>/!?]+){_ATTRIBUTES})")
# An element within an entry. Groups: the name in an end tag; name and attributes in a
# start tag; what follows the start tag, if that is only text and the element's end.
_PART = re.compile(
    rf"<(?:/([^\s<>/]+)\s*>|([^\s<>/!?]+){_ATTRIBUTES}(?:([^<]*)</\2\s*>)?)"
)
# An attribute. Groups: name, and the value in double or in single quotes.
_XML_ATTRIBUTE = re.compile(
    "(?<![^\\s\"'])([^\\s=<>\"']+)\\s*=\\s*(?:\"([^\"]*)\"|'([^']*)')"
)
# The beginning of an absolute URL.
_SCHEME = re.compile("[a-z][a-z0-9+.-]{0,30}:", re.IGNORECASE)
# The attribute by which an RSS feed says that a guid is no URL.
_NO_PERMALINK = re.compile("isPermaLink\\s*=\\s*[\"']\\s*false", re.IGNORECASE)

# A reference to a character. Groups: the character's number in decimal or in
# hexadecimal notation, or its name.
_REFERENCE = re.compile(
    r"&(?:#([0-9]{1,8});|#x([0-9a-fA-F]{1,8});|([A-Za-z_][\w.-]{0,30});)", re.ASCII
)
_PREDEFINED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# Characters that XML doesn't allow. The replacement character stands for bytes that
# aren't text.
_NOT_ALLOWED = re.compile("[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\ud800-\udfff\ufffd-\uffff]")

# The XML declaration. Group 1: the encoding.
_DECLARATION = re.compile(
    rb"<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']", re.ASCII
)
# The beginnings of the names of safe codecs in which ASCII characters are as in ASCII.
# (In any other codec, the declaration could not have been read.)
_ENCODINGS = ("big5", "cp", "euc_", "gb", "iso8859", "koi8", "mac", "shift_jis")


class _Format(NamedTuple):
    """What files with the same root element have in common."""

    kind: Kind
    entry_name: str
    """The name of the elements that are entries."""
    key_by_element: dict[str, str]
    """From the name of a feed's element to the key of the :data:`SitemapEntry` that the
    element fills; empty if the file is no feed."""


# The formats, by the name of the root element.
_FORMATS = {
    "urlset": _Format(Kind.URLSET, "url", {}),
    "sitemapindex": _Format(Kind.INDEX, "sitemap", {}),
    "rss": _Format(Kind.RSS, "item", {"link": "loc", "pubDate": "lastmod"}),
    "feed": _Format(Kind.ATOM, "entry", {"updated": "lastmod"}),
}
# The names of entries in sitemaps that are no feeds.
_SITEMAP_ENTRIES = ("url", "sitemap")
# Usual prefixes of the elements of extensions.
_EXTENSIONS = frozenset(
    {
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
    }
)
# The elements of extensions that are read, each with the key that a SitemapEntry has
# for what is in it.
_EXTENSION_KEYS = {"news": "news", "image": "images", "video": "videos"}
# The elements in image:image and video:video whose text is a URL.
_MEDIA_URLS = {"images": ("loc",), "videos": ("loc", "content_loc", "player_loc")}
# Keys of entries that don't come from an element of that name.
_RESERVED = frozenset(("alternate", "broken", "hreflang", *_EXTENSION_KEYS.values()))


class _DamageError(ValueError):
    """A text isn't as XML has it. The message says what is wrong."""


class XmlFeed:
    """Turns the bytes of a sitemap or feed in XML into entries, piece by piece.

    Outside of entries, a pattern finds the next *mark*: a tag of an entry or of the
    root element, or the beginning of a section (a comment, CDATA, a processing
    instruction). Within an entry, the text between the marks is gathered. When the
    entry ends, its elements are read from this text.
    """

    root: str | None = None
    """The name of the root element, without its prefix; None until it was seen."""
    kind: Kind | None = None
    """The format of the file; None until the root element was seen. It stays None if
    the root element is not that of a sitemap or feed."""
    problem: str | None = None
    """The first error by which something was or may be lost; None if there is none."""
    is_finished = False
    """Whether there is no point in reading on, since the file is no sitemap, or all its
    URLs may be wrong."""

    def __init__(
        self, start: bytes, *, media: bool = False, url: str | None = None
    ) -> None:
        """*start* of the file tells its encoding. *media*: read the URLs of images and
        videos. *url*: where the file is from, to resolve relative links in feeds."""
        self._media = media
        # The URL to which relative links of a feed refer.
        self._base = url
        # The URL to which relative links in the open entry refer.
        self._entry_base = url
        encoding, unknown = _encoding_of(start)
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        # The text that has been decoded and can't be forgotten yet.
        self._text = ""
        # Up to where _text has been searched for tags.
        self._position = 0
        # The number that the first line of _text has in the file.
        self._first_line = 1
        # Whether the file ends where _text ends.
        self._is_last = False
        # The pattern that finds the next mark.
        self._marks = _PROLOG
        self._is_root_closed = False
        # Whether all processing instructions so far had an end.
        self._instructions_have_ends = True
        # The entries that are complete, and not returned yet.
        self._entries: list[SitemapEntry] = []
        # The values of the file's _Format, once the root element was seen.
        self._entry_name = ""
        self._key_by_element: dict[str, str] = {}
        self._is_feed = False
        # The name of the first element that stands where entries do, but isn't one.
        self._unexpected = ""
        # The name of the open entry's element, with its prefix; empty if none is open.
        self._open_entry = ""
        # Where the part of the open entry begins in _text that isn't in _entry_parts
        # yet.
        self._entry_position = 0
        # The text of the open entry before _entry_position, without comments and
        # processing instructions.
        self._entry_parts: list[str] = []
        if unknown:
            self._note_damage(f"unknown encoding {unknown}, read as UTF-8")

    def feed(self, data: bytes, *, last: bool = False) -> list[SitemapEntry]:
        """Return the entries that *data* completes. An entry that the end of the file
        cuts off is lost."""
        self._is_last = last
        self._text += self._decoder.decode(data, last)
        needs_more_data = False
        while not (self.is_finished or needs_more_data):
            mark = self._marks.search(self._text, self._position)
            if mark is None:
                # What begins with the last "<" may be a tag that goes on in the next
                # piece.
                last_tag = self._text.rfind("<", self._position)
                self._position = last_tag if last_tag >= 0 else len(self._text)
                break
            self._position = mark.end()
            # In _PROLOG, in _TAG and in what _marks_of_entries() returns, group 1 is
            # the beginning of a section.
            is_section = mark[1] is not None
            if is_section:
                has_end = self._pass_section(mark)
                needs_more_data = not has_end
            elif self.root is None:
                _, entity, name, attributes = mark.groups()
                self._begin(entity, name, attributes)
            else:
                self._take_tag(mark)
        self._forget_read_text()
        if last:
            self._check_end()
        entries = self._entries
        self._entries = []
        return entries

    def _check_end(self) -> None:
        """Note what the end of the file shows to be wrong with it."""
        if not self._is_root_closed and not self.is_finished:  # there is more to read
            self._note_damage("the file ends too early")
        if self._unexpected and self.problem is None:
            name = self._unexpected[:100]
            self.problem = f"<{name}> is no entry of a {self.root}, and was ignored"

    def _pass_section(self, mark: re.Match[str]) -> bool:
        """Pass over a comment, a CDATA section or a processing instruction. *mark* is
        its beginning. In an entry, the text of a CDATA section is kept, with its
        special characters as references.

        Return whether the section's end is there. If not, the section is read again
        with the next piece.
        """
        opening = mark[1].upper()
        if opening == "?":
            return self._pass_instruction(mark)
        text = self._text
        start = mark.end()
        closing = _SECTION_ENDS[opening]
        end = text.find(closing, start)
        if end < 0:
            self._position = mark.start()
            if not self._open_entry:
                # Forget the text that was searched, except the last two characters,
                # which may begin the section's end.
                kept_from = max(start, len(text) - 2)
                self._first_line += text.count("\n", start, kept_from)
                self._text = text[:start] + text[kept_from:]
            return False
        self._position = end + len(closing)
        if self._open_entry:
            content = ""
            if opening == "![CDATA[":
                content = text[start:end].replace("&", "&amp;").replace("<", "&lt;")
            self._replace_in_entry(mark, content)
        return True

    def _pass_instruction(self, mark: re.Match[str]) -> bool:
        """Pass over a processing instruction; return whether its end is there. An
        instruction without a proper end ends as a tag does, with ">", so that no entry
        after it is lost. The XML declaration always ends so, since people leave out its
        "?"."""
        text = self._text
        start = mark.end()
        end = -1
        if self._instructions_have_ends and not _XML_DECLARATION.match(text, start):
            end = text.find("?>", start, start + MAX_ELEMENT_TEXT)
            end_may_follow = not self._is_last and len(text) - start < MAX_ELEMENT_TEXT
            if end < 0 and end_may_follow:
                self._position = mark.start()  # to read it again with the next piece
                return False
            # Once an instruction has no end, the ends of later ones aren't searched
            # for, since a million such searches would take long.
            self._instructions_have_ends = end >= 0
        if end >= 0:
            self._position = end + len("?>")
        else:
            # If there is no ">" either, only the beginning of the instruction is
            # passed.
            tag_end = text.find(">", start, start + _MAX_INSTRUCTION)
            self._position = tag_end + 1 if tag_end >= 0 else start
        if self._open_entry:
            self._replace_in_entry(mark, "")
        return True

    def _replace_in_entry(self, mark: re.Match[str], replacement: str) -> None:
        """Replace the part of the open entry from the start of *mark* to the current
        position by *replacement*."""
        before = self._text[self._entry_position : mark.start()]
        self._entry_parts += [before, replacement]
        self._entry_position = self._position

    def _forget_read_text(self) -> None:
        """Forget all text but that of the open entry, and what may be the beginning of
        a tag. An entry that has become too long ends here; a tag that has become too
        long is skipped."""
        kept_from = self._entry_position if self._open_entry else self._position
        # Comments may cut an entry into millions of parts, so they are joined.
        gathered = "".join(self._entry_parts)
        self._entry_parts = [gathered]
        size = len(gathered) + len(self._text) - kept_from
        if self._open_entry and size > _MAX_ENTRY:
            self._note_damage(f"an entry is longer than {_MAX_ENTRY} characters")
            self._finish_entry(self._position)
            kept_from = self._position
        elif not self._open_entry and size > MAX_ELEMENT_TEXT:
            kept_from = len(self._text)
        # All positions are counted from the new beginning of _text.
        self._first_line += self._text.count("\n", 0, kept_from)
        self._text = self._text[kept_from:]
        self._position = max(self._position - kept_from, 0)
        self._entry_position = 0

    def _begin(self, entity: str | None, name: str, attributes: str) -> None:
        """Handle the start tag of the root element, or the declaration of an
        *entity*."""
        if entity:
            # Entities aren't resolved, so URLs would lack what the entities stand for.
            self.problem = "it declares XML entities, which are not resolved"
            self.is_finished = True
            return
        self.root = name.rpartition(":")[2]  # without the prefix
        if self.root not in _FORMATS:
            self.is_finished = True
            return
        file_format = _FORMATS[self.root]
        self.kind = file_format.kind
        self._entry_name = file_format.entry_name
        self._key_by_element = file_format.key_by_element
        self._is_feed = bool(file_format.key_by_element)
        self._is_root_closed = attributes.endswith("/")
        # A sitemap's first element shows what its entries look like (_learn_from()).
        self._marks = self._marks_of_entries() if self._is_feed else _TAG
        self._base = self._base_within(self._base, attributes)
        self._entry_base = self._base

    def _marks_of_entries(self, *further_names: str) -> re.Pattern[str]:
        """Return the pattern of tags of entries and of the root element, with any
        prefix, and of elements with *further_names*, without a prefix."""
        names = [self._entry_name, self.root or ""]
        if not self._is_feed:
            names += _SITEMAP_ENTRIES
        alternatives = "|".join(names)
        with_prefix = rf"(?:[^\s<>/:]+:)?(?:{alternatives})"
        any_name = "|".join([*further_names, with_prefix])
        return re.compile(rf"<(?:{_SECTION}|(/?)({any_name}){_ATTRIBUTES})")

    def _take_tag(self, mark: re.Match[str]) -> None:
        """Handle a tag of an entry or of the root element, or that of the root's first
        child."""
        _, slash, name, attributes = mark.groups()
        local = name.rpartition(":")[2]
        if self._open_entry:
            # If an entry's end tag is missing, the next entry or the end of the root
            # ends this entry.
            is_end_of_root = slash and local == self.root
            if name == self._open_entry or is_end_of_root:
                self._finish_entry(mark.start())
        if slash:
            if local == self.root:
                self._is_root_closed = True
            return
        if self._open_entry:
            return
        self._learn_from(name, local)
        is_empty = attributes.endswith("/")
        if self._is_entry(name, local) and not is_empty:
            self._open_entry = name
            self._entry_position = mark.end()
            if self._is_feed:
                self._entry_base = self._base_within(self._base, attributes)

    def _learn_from(self, name: str, local: str) -> None:
        """Learn from an element outside of entries what tags to look for, and whether
        the file has something else in place of entries. *local* is its *name* without
        the prefix."""
        if self._marks is _TAG and local != self.root:
            # This is the root's first child. From now on, all elements but entries may
            # be passed over.
            further_names = ["loc"] if name == "loc" else []
            self._marks = self._marks_of_entries(*further_names)
        if local == self.root:
            return
        if not self._is_entry(name, local):
            self._unexpected = self._unexpected or local
        elif self._unexpected not in _SITEMAP_ENTRIES:
            # What stood before the first entry was harmless, but a <sitemap> in a
            # urlset remains wrong.
            self._unexpected = ""

    def _is_entry(self, name: str, local: str) -> bool:
        """Return whether an element is an entry, or a ``loc`` where the tags of the
        entry are missing. *local* is its *name* without the prefix."""
        return local == self._entry_name or name == "loc"

    def _finish_entry(self, end: int) -> None:
        """Read the open entry, which ends at *end*."""
        self._entry_parts.append(self._text[self._entry_position : end])
        text = "".join(self._entry_parts)
        entry: SitemapEntry = {}
        self._read(entry, text)
        is_bare_text = "<" not in text and text.strip()
        if not entry and not self._is_feed and is_bare_text:  # the tag <loc> is missing
            self._add_child(entry, "loc", "", text, is_core=True)
        if self.kind is Kind.RSS and not entry.get("loc") and "guid" in entry:
            entry["loc"] = entry["guid"]
        if entry:
            self._entries.append(entry)
        self._open_entry = ""
        self._entry_parts = []

    def _read(self, entry: SitemapEntry, text: str) -> None:
        """Read the *text* between an entry's tags. The entry's URL may be within an
        element whose end tag is missing."""
        own_prefix = self._open_entry.rpartition(":")[0]
        key_by_element = self._key_by_element
        # The outermost element that is open, and the first URL that was seen within
        # this element.
        open_element = ""
        url_within = ""
        for part in islice(_PART.finditer(text), _MAX_TAGS):
            # content: the element's text; None if it has more than text, or no end tag.
            ended, name, attributes, content = part.groups()
            if ended:
                if ended == open_element:
                    open_element = ""
                    url_within = ""
                continue
            # An element begins here.
            prefix, _, local = name.rpartition(":")
            # Core elements are those of sitemaps or of the feed's format, not of an
            # extension. In sitemaps, elements with a missing or wrong prefix are core,
            # too, so that nothing is lost. In feeds such elements aren't core, since
            # feeds have elements of many namespaces.
            is_core = prefix == own_prefix
            if not is_core and not self._is_feed:
                is_core = prefix.lower() not in _EXTENSIONS
            if is_core:
                local = key_by_element.get(local, local)
            if local == "link" and self._may_have_href(is_core=is_core):
                values = _values_in(attributes)
                if values.get("href"):
                    is_nested = open_element != ""
                    self._add_link(entry, attributes, values, is_nested=is_nested)
                    continue
            has_only_text = content is not None or attributes.endswith("/")
            if not has_only_text:
                is_url = is_core and local == "loc" and not open_element
                if is_url and not entry.get("loc"):
                    self._note_damage("an element in a URL")
                    entry["broken"] = True
                open_element = open_element or name
            elif not open_element:
                text_within = content or ""
                self._add_child(entry, local, attributes, text_within, is_core=is_core)
            elif is_core and local == "loc":
                # This URL counts if the end tag of the element around it is missing.
                url_within = url_within or self._resolved(content or "") or ""
            else:
                extension = open_element.rpartition(":")[2]
                key = _EXTENSION_KEYS.get(extension)
                if key is not None:
                    self._add_of_extension(entry, key, local, content or "")
        if url_within and not entry.get("loc"):
            entry["loc"] = url_within

    def _add_child(
        self,
        entry: SitemapEntry,
        name: str,
        attributes: str,
        content: str,
        *,
        is_core: bool,
    ) -> None:
        """Add to *entry* a child element that contains only text, its *content*, if
        this child is to be read. *is_core*: see :meth:`_read`."""
        if not is_core and (name == "loc" or self._is_feed):
            return
        # A guid is the URL of the page, unless its attribute denies that.
        is_guid = name == "guid" and self.kind is Kind.RSS
        if is_guid and _NO_PERMALINK.search(attributes):
            return
        if name == "loc" and not self._is_feed:
            has_url = entry.get("loc") or "broken" in entry
            if has_url:  # the tags between two entries are missing
                self._entries.append(entry.copy())
                entry.clear()
        # The first element of a name counts, and names have limits.
        if entry.get(name) or len(entry) >= _MAX_NAMES:
            return
        if name in _RESERVED or len(name) > _MAX_NAME:
            return
        value = self._resolved(content, is_url=name == "loc")
        if value is None:
            if name == "loc":
                entry["broken"] = True
            return
        if name == "loc" and self._is_feed:
            base = self._base_within(self._entry_base, attributes)
            value = self._absolute(value, base)
        entry[name] = value

    def _add_of_extension(
        self, entry: SitemapEntry, key: str, name: str, content: str
    ) -> None:
        """Add what is in an element of an extension, such as image:loc. *key*: the
        entry's key for it ("news", "images" or "videos"); *name*: the element's,
        without its prefix."""
        if key == "news":
            news = entry.setdefault("news", {})
            is_wanted = name not in news and len(name) <= _MAX_NAME
        else:
            is_wanted = self._media and name in _MEDIA_URLS[key]
        value = self._resolved(content) if is_wanted else None
        if value is None:
            return
        if key == "news":
            entry["news"][name] = value
        else:
            entry.setdefault(key, []).append(value)

    def _may_have_href(self, *, is_core: bool) -> bool:
        """Return whether a link of this file may have its URL in an attribute, as those
        of Atom and of XHTML do. RSS has it as the element's text."""
        if self.kind is Kind.ATOM:
            return is_core
        return self.kind is not Kind.RSS

    def _add_link(
        self,
        entry: SitemapEntry,
        attributes: str,
        values: dict[str, str],
        *,
        is_nested: bool,
    ) -> None:
        """Add a link with its URL in an attribute: in Atom, the page's; in sitemaps,
        that of the page in another language. *values* are those of the *attributes*, by
        name."""
        is_atom = self.kind is Kind.ATOM
        if values.get("rel", "alternate") != "alternate":
            return
        if is_atom and is_nested:  # such as the link of the feed that the entry is from
            return
        href = self._resolved(values["href"], is_url=True)
        if is_atom:
            if href is None:
                entry.setdefault("broken", True)
                return
            base = self._base_within(self._entry_base, attributes)
            entry.setdefault("loc", self._absolute(href, base))
        elif href is not None:
            entry.setdefault("alternate", []).append(href)
            hreflang = values.get("hreflang", "")[:_MAX_NAME]
            language = self._resolved(hreflang)
            if language:
                by_language = entry.setdefault("hreflang", {})
                by_language.setdefault(language, href)

    def _base_within(self, outer_base: str | None, attributes: str) -> str | None:
        """Return the base of the links in an element with these *attributes*.
        *outer_base* is that of the element around it."""
        if "xml:base" not in attributes:
            return outer_base
        own_base = ""
        for name, double_quoted, single_quoted in _XML_ATTRIBUTE.findall(attributes):
            if name == "xml:base":
                own_base = double_quoted or single_quoted
        resolved = self._resolved(own_base)
        if resolved is None or len(resolved) > _MAX_BASE:
            return outer_base
        return self._absolute(resolved, outer_base)

    def _absolute(self, link: str, base: str | None) -> str:
        """Return a feed's *link*, which may be relative, as an absolute URL; unchanged
        if that can't be done."""
        if base is None or not link or _SCHEME.match(link):
            return link
        try:
            return urljoin(base, link)
        except ValueError:
            return link

    def _resolved(self, text: str, *, is_url: bool = False) -> str | None:
        """Return *text* stripped, with its references resolved; None if it isn't XML.
        An "&" that begins no reference stands for itself, since this is the most common
        error in sitemaps. *is_url*: whether *text* is a URL, whose damage is noted as a
        problem of the file."""
        try:
            return _plain_text_of(text)
        except _DamageError as error:
            if is_url:
                self._note_damage(str(error))
            return None

    def _note_damage(self, reason: str) -> None:
        """Note *reason* as the problem of the file, if it is the first."""
        if self.problem is None:
            lines_before = self._text.count("\n", 0, self._position)
            line = self._first_line + lines_before
            self.problem = f"broken XML, line {line}: {reason}"


def _values_in(attributes: str) -> dict[str, str]:
    """Return the values of *attributes* by name. The first of several with one name
    counts."""
    values: dict[str, str] = {}
    for name, double_quoted, single_quoted in _XML_ATTRIBUTE.findall(attributes):
        values.setdefault(name, double_quoted or single_quoted)
    return values


def _plain_text_of(text: str) -> str:
    """Return *text* stripped, with its references resolved.

    :raises _DamageError: if it isn't XML
    """
    if len(text) > MAX_ELEMENT_TEXT:
        raise _DamageError(f"a text is longer than {MAX_ELEMENT_TEXT} characters")
    if "]]>" in text:
        raise _DamageError("']]>' in a text")
    wrong = _NOT_ALLOWED.search(text)
    if wrong is not None:
        raise _DamageError(_description_of(wrong[0]))
    if "&" in text:
        text = _REFERENCE.sub(_character, text)
    return text.strip()


def _description_of(wrong_character: str) -> str:
    """Return in words what is wrong with a text that has *wrong_character*."""
    if wrong_character == "\ufffd":
        return "bytes that are not valid text in its encoding"
    code = ord(wrong_character)
    return f"a character that XML doesn't allow (U+{code:04X})"


def _character(match: re.Match[str]) -> str:
    """Return the character that a match of ``_REFERENCE`` stands for.

    :raises _DamageError: if there is no such character
    """
    decimal, hexadecimal, name = match.groups()
    if name:
        if name not in _PREDEFINED:
            raise _DamageError(f"Entity '{name}' not defined")
        return _PREDEFINED[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code > 0x10FFFF or _NOT_ALLOWED.match(chr(code)):
        raise _DamageError(f"{match[0]} is not a valid character")
    return chr(code)


def _encoding_of(start: bytes) -> tuple[str, str]:
    """Return the encoding to read a file in, and an empty string; if Python doesn't
    know the encoding that the file declares, the name of that in place of the empty
    string."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):  # byte order marks
        return "utf-16", ""
    if b"\0" in start[:2]:
        is_big_endian = start[:1] == b"\0"
        return "utf-16-be" if is_big_endian else "utf-16-le", ""
    declaration = _DECLARATION.match(start)
    if declaration is None:  # or a byte order mark is before it, which overrules it
        return "utf-8-sig", ""
    declared = declaration[1].decode()
    try:
        codec = codecs.lookup(declared).name
    except LookupError:
        return "utf-8-sig", declared
    return codec if codec.startswith(_ENCODINGS) else "utf-8-sig", ""
