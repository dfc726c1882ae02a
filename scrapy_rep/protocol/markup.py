"""Finds the tags and texts of an XML file, piece by piece, even in a broken one.

No library does what REP.md section 9 asks for. libxml2 reports no more than 100 errors, so after these,
damaged URLs would pass as good ones; and it keeps the name of every element, and a stack as deep as the
file nests. expat ends at the first error. Here a tag ends at the next "<" at the latest, so an error
spoils only the tag or text that it is in. Nothing outside the file is loaded, and no entity is expanded.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_rep.protocol.entries import XmlFeed

MAX_TEXT = 65536
"""Characters of a text, and of a tag. No URL is as long."""

TOO_LONG = f"a text is longer than {MAX_TEXT} characters"

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
# Python's codecs that files don't use.
_NO_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")


class Damage(ValueError):
    """What is wrong with a text."""


class Markup:
    """Reads an XML file for a feed, whose methods say what they are told."""

    def __init__(self, feed: XmlFeed, start: bytes) -> None:
        """:param start: of the file, which tells its encoding"""
        encoding, self.unknown = _encoding_of(start)
        utf8 = encoding == "utf-8"
        # So that bytes that aren't UTF-8 can be told from a U+FFFD in the file.
        errors = "surrogateescape" if utf8 else "replace"
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if utf8 else encoding)(errors)
        self._wrong = _WRONG if utf8 else _WRONG_OR_REPLACED
        self._feed = feed
        self._rest = ""
        self._inside = ""  # a comment, a CDATA section or an instruction
        self._lines = 1
        self._text, self._at = "", 0  # what is being read, and how far it is read

    @property
    def line(self) -> int:
        """The number of the line that is being read."""
        return self._lines + self._text.count("\n", 0, self._at)

    def read(self, data: bytes, *, last: bool) -> None:
        """Tell the feed what is in *data*."""
        text = self._text = self._rest + self._decoder.decode(data, last)
        at: int | None = 0
        while at is not None:
            if self._inside:
                at = self._section(text, at)
            else:
                at = self._other(text, self._tags(text, at), last=last)
        self._rest = text[self._at :]
        self._lines += text.count("\n", 0, self._at)
        self._text, self._at = "", 0
        if last and self._inside:
            self._feed.damaged("the end of a comment or a section is missing")

    # These read on in a text, and return the place that they got to.

    def _tags(self, text: str, at: int) -> int:
        """Read tags and the texts before them."""
        feed, usual = self._feed, _USUAL.match
        while found := usual(text, at):
            self._at, at = at, found.end()
            before, leaf, content, name, attributes = found.groups()
            if before and feed.listening:
                feed.text(before, plain=False)
            if leaf:
                feed.leaf(leaf, content)
            else:
                feed.tag(name, attributes)
        self._at = at
        return at

    def _other(self, text: str, at: int, *, last: bool) -> int | None:
        """Read what isn't a tag, and the text before it. None: its end is still to come."""
        start = text.find("<", at)
        if start < 0:
            self._last_text(text, at, last=last)
            return None
        if start != at and self._feed.listening:
            self._feed.text(text[at:start], plain=False)
        self._at = start
        found = _OTHER.match(text, start)
        if found is None:
            return self._damaged(text, start, last=last)
        self._inside, declaration = found.groups("")
        if declaration:
            self._feed.declared(declaration.upper())
        return found.end()

    def _last_text(self, text: str, at: int, *, last: bool) -> None:
        """Keep text whose end is still to come, unless nobody wants it or it is too long."""
        if self._feed.listening:
            if last:
                self._feed.text(text[at:], plain=False)
            elif len(text) - at <= MAX_TEXT:
                return
            else:
                self._feed.damaged(TOO_LONG)
        self._at = len(text)

    def _damaged(self, text: str, start: int, *, last: bool) -> int | None:
        """Read a "<" that doesn't seem to begin a tag."""
        cut = text.find("<", start + 1) >= 0
        if not (cut or last or len(text) - start > MAX_TEXT):
            return None  # the tag goes on
        found = _DAMAGED_TAG.match(text, start)
        if found is not None:
            self._feed.tag(*found.groups())
            self._feed.damaged("a tag is damaged")
            return found.end()
        begun = _BEGINNING.match(text, start)
        if begun is None or cut or last:
            self._feed.damaged("'<' without a tag")
            return start + 1
        self._feed.tag(begun[1], "")
        self._feed.damaged(f"a tag is longer than {MAX_TEXT} characters")
        return len(text)

    def _section(self, text: str, at: int) -> int | None:
        """Read a comment, a CDATA section or an instruction."""
        mark = _ENDS[self._inside]
        end = text.find(mark, at)
        stop = end if end >= 0 else max(at, len(text) - len(mark) + 1)
        if self._inside == _CDATA and self._feed.listening and stop > at:
            self._feed.text(text[at:stop], plain=True)
        if end < 0:
            self._at = stop
            return None
        self._inside = ""
        return end + len(mark)

    def resolved(self, text: str, *, plain: bool = False) -> str:
        """Return *text* with its references resolved, unless it is *plain*. An "&" that doesn't begin one
        stands for itself: this is the most common error in sitemaps.

        :raises Damage: if something in it isn't XML
        """
        wrong = self._wrong.search(text)
        if wrong is not None:
            raise Damage(_named(wrong[0]))
        return text if plain or "&" not in text else _REFERENCE.sub(_character, text)


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
            raise Damage(f"Entity '{name}' not defined")
        return _PREDEFINED[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    if code > 0x10FFFF or _WRONG.match(character := chr(code)):
        raise Damage(f"{match[0]} is not a valid character")
    return character


def _encoding_of(start: bytes) -> tuple[str, str]:
    """Return the encoding to read a file in, and the declared one if that is unknown."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16", ""
    if start[:1] == b"\0" or start[1:2] == b"\0":
        return "utf-16-be" if start[:1] == b"\0" else "utf-16-le", ""
    declared = _DECLARATION.match(start.removeprefix(codecs.BOM_UTF8))
    if declared is None or start.startswith(codecs.BOM_UTF8):
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
