"""The metas and links of a page, as a browser sees them (REP.md section 10). Linear, for any bytes."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, NamedTuple

from scrapy_rep.protocol.page.directives import with_blanks
from scrapy_rep.protocol.page.tags import PLAIN, start_tags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAX_BYTES = 2_000_000
"""Bytes of a page that are read."""

MAX_TEXT = 16 * 1024
"""Bytes of an attribute's value that are read."""

# Metas that are examined before all count as candidates.
_MAX_METAS = 5_000
# Bytes that are read of a page in broken UTF-16: each error costs a call.
_MAX_BROKEN = 250_000

_META = re.compile(rb"<meta(?=[ \t\n\f\r/])(%s)?" % PLAIN, re.IGNORECASE)
_NAME_WITH_REFERENCE = re.compile(rb"name=[\"']?[^\"'>]{,200}&")
_BETWEEN = re.compile(r"[\s,]+")

NOT_VOUCHED_FOR = ("nofollow", "ugc", "sponsored")
"""Values of ``rel`` for links that should not be followed."""

_TAGS = frozenset({b"a", b"area", b"base"})
# Bytes of values with character references, which are slow to resolve.
_MAX_REFERENCES = 200_000

# Python refuses numbers of thousands of digits.
_HUGE_REFERENCE = re.compile(r"&#\d{100,};?", re.ASCII)

# Encodings in which markup is not ASCII, by name: looking a codec up would import it.
_WIDE = re.compile(
    r"(?:iso[-_]?2022[-_]jp|utf[-_]?(?P<bits>16|32)[-_]?(?P<order>[lb]e)?)",
    re.IGNORECASE | re.ASCII,
)


def metas_of(body: bytes, encoding: str, names: Collection[str]) -> Iterator[tuple[str, str, int]]:
    """Yield name (in lower case), content and line of each meta that has one of *names*."""
    body, _ = as_ascii(body, encoding)
    end = _end_of_metas(body, [name.encode() for name in names])
    line, counted = 1, 0
    for _, start, attributes in start_tags(body, frozenset({b"meta"}), end):
        name = with_blanks(text_of(attributes.get(b"name", b""))).strip().lower()
        if name in names:
            line += body.count(b"\n", counted, start)
            counted = start
            yield name, text_of(attributes.get(b"content", b"")), line


def as_ascii(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Return the part of *body* that is read, in an encoding with ASCII markup, and that encoding."""
    body = bytes(body[:MAX_BYTES])
    # Decoding a page of digits as punycode takes seconds.
    encoding = "latin-1" if "punycode" in encoding.lower() else encoding
    # A byte order mark overrules everything else.
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        codec = "utf-16"
    elif wide := _WIDE.fullmatch(encoding):
        # Browsers default to little-endian.
        codec = f"utf-{wide['bits']}-{wide['order'] or 'le'}" if wide["bits"] else "iso2022-jp"
    else:
        return body, encoding
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        text = body[:_MAX_BROKEN].decode(codec, "replace")
    return text.encode("utf-8", "replace"), "utf-8"


def has_references(value: bytes) -> bool:
    """Return whether *value* holds character references other than ``&amp;``."""
    return value.count(b"&") > value.count(b"&amp;")


def text_of(value: bytes, encoding: str = "latin-1") -> str:
    """Return an attribute's value, cut to size, with its character references resolved."""
    value = value[:MAX_TEXT]
    try:
        text = value.decode(encoding, "replace")
    except (LookupError, ValueError):  # no codec of that name
        text = value.decode("latin-1")
    if has_references(value):
        return unescape(_HUGE_REFERENCE.sub("\ufffd", text))
    return text.replace("&amp;", "&")


def _end_of_metas(body: bytes, names: list[bytes]) -> int:
    """Return the offset of the last tag that may be a meta with one of *names*; -1 for none."""
    end = -1
    for count, match in enumerate(_META.finditer(body)):
        if count == _MAX_METAS:
            return len(body)
        tag = match[1].lower() if match[1] else b""
        if not tag or any(name in tag for name in names) or _NAME_WITH_REFERENCE.search(tag):
            end = match.start()
    return end


class Links(NamedTuple):
    """References as in the page, mostly relative, each at most once in each list."""

    base: str = ""
    """The page's ``base``, relative to the page; empty without one."""
    nofollow: tuple[str, ...] = ()
    follow: tuple[str, ...] = ()


def links_of(body: bytes, encoding: str = "utf-8") -> Links:
    """Return the links of any page, with those in ``noscript`` and ``template``, as link extractors
    do; no links if none is marked. Never raises."""
    body, encoding = as_ascii(body, encoding)
    lower = body.lower()
    if not any(word.encode() in lower for word in NOT_VOUCHED_FOR):
        return Links()
    base = None
    left = _MAX_REFERENCES
    kinds: tuple[dict[str, None], dict[str, None]] = {}, {}  # as ordered sets
    for name, _, attributes in start_tags(body, _TAGS, len(body), unscripted=True):
        href = attributes.get(b"href")
        if href is None:
            continue
        rel = attributes.get(b"rel", b"")
        left -= sum(len(value) for value in (href, rel) if has_references(value))
        if left < 0:
            break
        reference = text_of(href.strip(b" \t\r\n\f"), encoding)
        if name == b"base":
            base = reference if base is None else base
        else:
            words = _BETWEEN.split(with_blanks(text_of(rel)).lower())
            kinds[any(word in NOT_VOUCHED_FOR for word in words)][reference] = None
    return Links(base or "", nofollow=tuple(kinds[True]), follow=tuple(kinds[False]))
