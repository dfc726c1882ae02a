"""The bytes of a robots.txt to the lines that mean something (REP.md section 6).

As lenient as Google's parser: typos in field names, missing colons, line ends of every system,
byte order marks whole or truncated. One pass; the usual spellings cost a look-up each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_BYTES = 512_000
"""How much of a file is read, in bytes (REP.md section 2)."""

MAX_LINE = 16_663
"""After how many bytes a line is cut (REP.md section 6)."""

_BOM = b"\xef\xbb\xbf"

# The white space that Google strips. str.strip() without this argument strips more: \x1c, \x85, \xa0.
SPACE = " \t\v\f"


class Field:
    """The fields that mean something. All others are ignored (REP.md section 6).

    Plain integers: members of an enumeration are slower to compare, once for each line.
    """

    DISALLOW = 0
    ALLOW = 1
    USER_AGENT = 2
    SITEMAP = 3
    CRAWL_DELAY = 4


# Recognised by prefix. Crawl-delay is no part of the protocol and decides nothing.
_NAMES = {
    "user-agent": Field.USER_AGENT,
    "useragent": Field.USER_AGENT,
    "user agent": Field.USER_AGENT,
    "allow": Field.ALLOW,
    "disallow": Field.DISALLOW,
    "dissallow": Field.DISALLOW,
    "dissalow": Field.DISALLOW,
    "disalow": Field.DISALLOW,
    "diasllow": Field.DISALLOW,
    "disallaw": Field.DISALLOW,
    "sitemap": Field.SITEMAP,
    "site-map": Field.SITEMAP,
    "crawl-delay": Field.CRAWL_DELAY,
}

_PREFIXES = re.compile("|".join(map(re.escape, _NAMES)), re.IGNORECASE | re.ASCII)

# Nearly all lines use one of these: one look-up.
_FIELDS = {
    spelling: field
    for name, field in _NAMES.items()
    for spelling in (name, name.capitalize(), name.title(), name.upper())
}


def cut(body: bytes) -> bytes:
    """Return the part of *body* that counts: at most 512,000 bytes, less the line that this
    limit cuts in two (REP.md section 2)."""
    if len(body) <= MAX_BYTES:
        return body
    head = body[:MAX_BYTES]
    if body[MAX_BYTES] in b"\r\n":
        return head
    return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]


def normalise(body: bytes) -> str:
    """Return *body* as latin-1 text (one character a byte), cut to size, without a byte order
    mark, with LF for line ends, with no line over :data:`MAX_LINE`, and without NULs."""
    body = cut(body)
    # Google drops as many of the first three bytes as are those of a BOM, in order.
    bom = 0
    while bom < len(_BOM) and body[bom : bom + 1] == _BOM[bom : bom + 1]:
        bom += 1
    text = body[bom:].decode("latin-1")
    if "\r" in text:
        if not _LONE_CR.search(text):
            # A blank at a line's end means nothing, and costs less than taking it out.
            text = text.replace("\r", " ")
        else:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_LINE:
        text = _cut_lines(text)
    if "\0" in text:
        text = _AFTER_NUL.sub("", text)
    return text


def _cut_lines(text: str) -> str:
    """Cut the lines that are too long. Looks at no others: such a line has a character at one of a
    few places."""
    pieces: list[str] = []
    done = 0
    for at in range(MAX_LINE, len(text), MAX_LINE):
        if at < done:
            continue  # within the line that was just cut
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        if end < 0:
            end = len(text)
        if end - start > MAX_LINE:
            pieces.append(text[done : start + MAX_LINE])
            done = end
    return "".join([*pieces, text[done:]]) if pieces else text


_LONE_CR = re.compile(r"\r(?!\n)")
_AFTER_NUL = re.compile(r"\0[^\n]*")


def read(rows: Iterable[str], number: int = 1) -> Iterator[tuple[int, int, str]]:
    """Yield number, field and value of those normalised *rows* that hold a known field.

    Values are latin-1 (one character a byte), stripped and not escaped.

    :param number: of the first row
    """
    number -= 1
    for line in rows:
        number += 1
        name, colon, value = line.partition(":")
        field = _FIELDS.get(name)
        if field is None or not colon:
            line = line.strip(SPACE)
            # Most other lines are blank, comments or HTML.
            if len(line) < _SHORTEST or line[0] not in _INITIALS or not _PREFIXES.match(line):
                continue
            line = line.partition("#")[0].rstrip(SPACE)
            name, colon, value = line.partition(":")
            if not colon:
                name, value = _without_colon(line)
            known = _PREFIXES.match(name)
            if known is None:
                continue
            field = _NAMES[known.group().lower()]
        elif "#" in value:
            value = value.partition("#")[0]
        yield number, field, value.strip(SPACE)


def lines(body: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a whole file, see :func:`read`. Never raises."""
    return read(normalise(body).split("\n"))


_INITIALS = {initial for name in _NAMES for initial in (name[0], name[0].upper())}
_SHORTEST = min(map(len, _NAMES))
_BLANK = re.compile(r"[ \t]+")


def _without_colon(line: str) -> tuple[str, str]:
    """Return name and value of a line without a colon: forgiven if it is exactly two words."""
    words = _BLANK.split(line)
    return (words[0], words[1]) if len(words) == 2 else ("", "")


_LOWER_CASE_ESCAPE = re.compile(r"%(?:[0-9A-F][a-f]|[a-f][0-9a-fA-F])")
_PERCENT_ENCODED = {byte: f"%{byte:02X}" for byte in range(128, 256)}


def escape(value: str) -> str:
    """Return a latin-1 value as it is compared: ``%aa`` upper-cased to ``%AA``, bytes above 127
    percent-encoded, nothing decoded (REP.md section 8)."""
    if not value.isascii():
        value = value.translate(_PERCENT_ENCODED)
    return _LOWER_CASE_ESCAPE.sub(lambda match: match[0].upper(), value) if "%" in value else value


def readable(value: str) -> str:
    """Return a latin-1 value as people wrote it: UTF-8, with other bytes as ``\\xNN``, so that it
    can be printed anywhere."""
    if value.isascii():
        return value
    return value.encode("latin-1").decode("utf-8", "backslashreplace")
