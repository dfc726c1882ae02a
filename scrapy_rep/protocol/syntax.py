"""Reads the lines of a robots.txt (REP.md section 6), as leniently as Google's parser: with typos in
field names, missing colons, any line ends, and whole or truncated byte order marks. Product tokens, and
the one that a User-Agent header names (section 7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

MAX_BYTES = 512_000
"""Bytes of a file that are read (REP.md section 2)."""

MAX_LINE = 16_663
"""Bytes of a line that are read (REP.md section 6)."""

SPACE = " \t\v\f"
"""The white space that Google strips. ``str.strip()`` alone would strip more."""

# Each field as the standards write it, and what it is recognised by: these are prefixes. The last three
# are not part of the protocol.
_SPELLINGS = {
    "user-agent": ("user-agent", "useragent", "user agent"),
    "allow": ("allow",),
    "disallow": (
        "disallow",
        "dissallow",
        "dissalow",
        "disalow",
        "diasllow",
        "disallaw",
    ),
    "sitemap": ("sitemap", "site-map"),
    **{name: (name,) for name in ("crawl-delay", "request-rate", "visit-time")},
}
FIELDS, RULES = frozenset(_SPELLINGS), ("allow", "disallow")
_NAMES = {name: field for field, names in _SPELLINGS.items() for name in names}
_PREFIXES = re.compile("|".join(map(re.escape, _NAMES)), re.IGNORECASE | re.ASCII)
_INITIALS = {initial for name in _NAMES for initial in (name[0], name[0].upper())}
_SHORTEST = min(map(len, _NAMES))

# Spellings of nearly all lines.
_FIELDS = {
    spelling: field
    for name, field in _NAMES.items()
    for spelling in (name, name.capitalize(), name.title(), name.upper())
}

# Google also drops the beginning of a byte order mark.
_BOM = re.compile("^\xef(?:\xbb\xbf?)?")
_LONE_CR = re.compile(r"\r(?!\n)")
_AFTER_NUL = re.compile(r"\0[^\n]*")
_BLANK = re.compile(r"[ \t]+")
_LOWER_CASE_ESCAPE = re.compile(r"%(?:[0-9A-F][a-f]|[a-f][0-9a-fA-F])")
_PERCENT_ENCODED = {byte: f"%{byte:02X}" for byte in range(128, 256)}


def as_bytes(text: str) -> bytes:
    """Return *text* in UTF-8. Surrogates that stand for bytes (``surrogateescape``) become these, all
    others question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def cut(body: bytes) -> bytes:
    """Return up to 512,000 bytes of *body*, without a line cut in two (REP.md section 2)."""
    if len(body) <= MAX_BYTES:
        return body
    head = body[:MAX_BYTES]
    if body[MAX_BYTES] in b"\r\n":
        return head
    return head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]


def normalise(body: bytes) -> str:
    """Return *body* as latin-1 text (one character a byte): cut to size, without byte order mark
    and NULs, line ends as LF, lines cut to :data:`MAX_LINE`."""
    text = (body if len(body) <= MAX_BYTES else cut(body)).decode("latin-1")
    if text[:1] == "\xef":
        text = _BOM.sub("", text, count=1)
    if "\r" in text:
        if _LONE_CR.search(text):
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        else:
            text = text.replace("\r", " ")  # faster, and a blank there means nothing
    start = 0
    while start + MAX_LINE < len(text):
        if line_end := text.rfind("\n", start, start + MAX_LINE + 1) + 1:
            start = line_end
        else:
            end = text.find("\n", start + MAX_LINE)
            text = text[: start + MAX_LINE] + (text[end:] if end >= 0 else "")
    if "\0" in text:
        text = _AFTER_NUL.sub("", text)
    return text


def read(rows: Iterable[str], first: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield number, field and value of each of the normalised *rows* that holds a known field.
    *first* is the number of the first row."""
    for number, row in enumerate(rows, first):
        if row and (found := field_of(row)):
            yield number, *found


def field_of(row: str) -> tuple[str, str] | None:
    """Return field and value (latin-1, stripped, not escaped) of a normalised line; None without a
    known field."""
    name, colon, value = row.partition(":")
    field = _FIELDS.get(name)
    if field is None or not colon:
        row = row.strip(SPACE)
        # Most other lines are blank, comments or HTML.
        if len(row) < _SHORTEST or row[0] not in _INITIALS or not _PREFIXES.match(row):
            return None
        name, colon, value = row.partition("#")[0].rstrip(SPACE).partition(":")
        if not colon:  # forgiven if there are exactly two words
            words = _BLANK.split(name)
            name, value = words if len(words) == 2 else ("", "")
        known = _PREFIXES.match(name)
        if known is None:
            return None
        field = _NAMES[known.group().lower()]
    elif "#" in value:
        value = value.partition("#")[0]
    return field, value.strip(SPACE)


def escape(value: str) -> str:
    """Return a latin-1 value for comparison: ``%aa`` as ``%AA``, bytes above 127 percent-encoded,
    nothing decoded (REP.md section 8)."""
    if not value.isascii():
        value = value.translate(_PERCENT_ENCODED)
    return (
        _LOWER_CASE_ESCAPE.sub(lambda match: match[0].upper(), value)
        if "%" in value
        else value
    )


def readable(value: str) -> str:
    """Return a latin-1 value as its author wrote it: UTF-8, with invalid bytes as ``\\xNN``."""
    return value.encode("latin-1").decode("utf-8", "backslashreplace")


def readable_url(value: str) -> str:
    """Return a latin-1 URL likewise, or if it isn't UTF-8, with bytes above 127 percent-encoded."""
    try:
        return value if value.isascii() else value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value.translate(_PERCENT_ENCODED)


GLOBAL = "*"
"""The token of the group that applies where no other does."""

_TOKEN = re.compile(r"[a-zA-Z_-]*")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_COMMENT = re.compile(r"\(([^()]*)\)")

# Words that browsers use, and crawlers that pose as browsers.
# fmt: off
_BROWSER_WORDS = frozenset({
    "mozilla", "applewebkit", "khtml", "gecko", "chrome", "chromium", "headlesschrome", "crios",
    "safari", "version", "mobile", "firefox", "fxios", "edge", "edg", "edga", "edgios", "opera",
    "opr", "vivaldi", "yabrowser", "samsungbrowser", "ucbrowser", "seamonkey", "trident", "presto",
    "msie", "like", "compatible", "build",
})
# fmt: on

_CRAWLER_NAME = re.compile(
    r"bot\b|bot[-_]|spider|crawl|scrap|slurp|fetch|archiver|preview|checker",
    re.IGNORECASE,
)


def leading_token(value: str) -> str:
    """Return *value* up to the first character that is not a letter, ``-`` or ``_``."""
    return _TOKEN.match(value)[0]  # type: ignore[index]  # it matches anything


def agent_token(value: str) -> str:
    """Return the token, in lower case, that a ``user-agent`` line's value names; ``*`` for all
    crawlers, empty for none (REP.md section 7)."""
    if value[:1] == GLOBAL and (len(value) == 1 or value[1] in SPACE):
        return GLOBAL
    return leading_token(value).lower()


def is_name(value: str) -> bool:
    """Return whether a crawler may go by *value*: a product token, or one with digits, which is
    read up to the first of them, as in Google's matcher."""
    return _NAME.fullmatch(value) is not None


def chain(value: Any) -> tuple[str, ...]:
    """Return a token or a list of them (on a command line: joined by commas) as a chain;
    ``ValueError`` if one is not a token."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, Iterable):
        raise ValueError
    found = tuple(value)
    if not found or not all(
        isinstance(token, str) and is_name(token) for token in found
    ):
        raise ValueError
    return found


@lru_cache(maxsize=100)  # a crawl asks each file about the same agents
def obeyed(agent: str | tuple[str, ...], obey_global: bool) -> tuple[str, ...]:
    """Return the tokens whose groups *agent* obeys; the first one with a group counts. ``*`` and an
    empty one name no crawler.

    :raises ValueError: if one is not a product token; the message suggests one
    :raises TypeError: if one is not a string
    """
    names = []
    for token in (agent,) if isinstance(agent, str) else agent:
        if not isinstance(token, str):
            raise TypeError(f"a product token is a str, not {type(token).__name__}")
        if token not in ("", GLOBAL) and not _NAME.fullmatch(token):
            shown = token[:200]
            meant = product_token(shown)
            hint = f"; product_token() finds {meant!r} in it" if meant else ""
            raise ValueError(
                f"{shown!r} is not a product token (letters, '-' and '_' only){hint}"
            )
        if name := _TOKEN.match(token)[0]:  # type: ignore[index]  # it matches anything
            names.append(name)
    return (*names, GLOBAL) if obey_global else tuple(names)


def product_token(user_agent: str) -> str | None:
    """Return the crawler's own token from a full User-Agent header, None if there is none.

    ``Mozilla/5.0 (compatible; FooBot/1.2; +https://…)`` is ``FooBot``. In a header that begins like a
    browser's, this is a name with "bot", "spider" or so, or with a version beside an address.
    """
    user_agent = user_agent.strip()
    first = leading_token(user_agent)
    if first and first.lower() not in _BROWSER_WORDS:
        return first
    # Words, and whether an address is beside them.
    words = [(word, False) for word in _COMMENT.sub(" ", user_agent).split()]
    for comment in _COMMENT.findall(user_agent):
        has_address = "://" in comment or "@" in comment
        for part in re.split(r"[;,]", comment):
            words.append((part.strip().partition(" ")[0], has_address))
    for word, has_address in words:
        name = leading_token(word)
        if not name or "://" in word or "@" in word or name.lower() in _BROWSER_WORDS:
            continue
        if _CRAWLER_NAME.search(name) or (has_address and "/" in word):
            return name
    return None
