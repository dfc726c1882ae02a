"""The links of a page, and which of them are not vouched for (REP.md section 10, "Links")."""

from __future__ import annotations

import re
from typing import NamedTuple

from scrapy_rep.protocol.page.html import as_ascii, has_references, text_of
from scrapy_rep.protocol.page.tags import start_tags

NOT_VOUCHED_FOR = ("nofollow", "ugc", "sponsored")
"""Values of ``rel`` for links that are generally not followed."""

_TAGS = frozenset({b"a", b"area", b"base"})
# Bytes of values with character references: resolving them takes time.
_MAX_REFERENCES = 200_000

_BETWEEN = re.compile(r"[\s,]+")


class Links(NamedTuple):
    """References as they stand in the page, mostly relative, each once in either list."""

    base: str = ""
    """The page's ``base``: itself relative to the page; empty if there is none."""
    nofollow: tuple[str, ...] = ()
    follow: tuple[str, ...] = ()


def links_of(body: bytes, encoding: str = "utf-8") -> Links:
    """Return the links of a page: any bytes; never raises.

    None at all if no link is marked. Includes those in ``noscript`` and ``template``, as link
    extractors do.

    :param encoding: of the page; only what is not ASCII in references depends on it
    """
    body, encoding = as_ascii(body, encoding)
    lower = body.lower()
    if not any(word.encode() in lower for word in NOT_VOUCHED_FOR):
        return Links()
    base = None
    left = _MAX_REFERENCES
    # Dictionaries for their order.
    kinds: tuple[dict[str, None], dict[str, None]] = {}, {}
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
            words = _BETWEEN.split(text_of(rel).lower())
            kinds[any(word in NOT_VOUCHED_FOR for word in words)][reference] = None
    return Links(base or "", nofollow=tuple(kinds[True]), follow=tuple(kinds[False]))
