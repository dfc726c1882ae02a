"""Reads the lines of a robots.txt (REP.md section 6), as leniently as Google's parser:
with typos in field names, missing colons, any line ends, and whole or truncated byte
order marks. Also finds the product tokens in them, and in User-Agent headers (section
7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

MAX_BYTES = 512_000
"""How many bytes of a file are read (REP.md section 2)."""

MAX_LINE = 16_663
"""How many bytes of a line are read (REP.md section 6)."""

SPACE = " \t\v\f"
"""The white space that Google strips. ``str.strip()`` alone would strip more."""

# The fields that are recognised, and the spellings of their names that Google's parser
# accepts. A name needs only begin with a spelling: "Sitemaps:" is a sitemap line. The
# last three fields are not part of the protocol.
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
    "crawl-delay": ("crawl-delay",),
    "request-rate": ("request-rate",),
    "visit-time": ("visit-time",),
}
FIELDS = frozenset(_SPELLINGS)
"""The names of all fields that are recognised, in their usual spelling."""

RULES = ("allow", "disallow")
"""The fields that are rules."""

# The fields by spelling, in lower case.
_FIELD_BY_SPELLING = {
    spelling: field for field, names in _SPELLINGS.items() for spelling in names
}


def _with_usual_cases(field_by_spelling: dict[str, str]) -> dict[str, str]:
    """Return *field_by_spelling* with each spelling in all the cases that people
    use."""
    fields = {}
    for spelling, field in field_by_spelling.items():
        fields[spelling] = field
        fields[spelling.capitalize()] = field
        fields[spelling.title()] = field
        fields[spelling.upper()] = field
    return fields


# The fields by their usual spellings, which nearly all lines have before the colon. One
# look-up makes the pattern below needless for such lines.
_FIELD_BY_USUAL_SPELLING = _with_usual_cases(_FIELD_BY_SPELLING)
_SPELLING = re.compile(
    "|".join(map(re.escape, _FIELD_BY_SPELLING)), re.IGNORECASE | re.ASCII
)
# Characters with which a field's name can begin. Most other lines are recognised by
# their first character.
_INITIALS = {spelling[0] for spelling in _FIELD_BY_USUAL_SPELLING}
# The name of a known field has at least this many characters.
_SHORTEST_SPELLING = min(map(len, _FIELD_BY_SPELLING))

# A byte order mark in UTF-8, read as latin-1. Like Google, we also drop the beginning
# of one.
_BOM = re.compile("^\xef(?:\xbb\xbf?)?")
# A CR that ends a line by itself, as old Macs wrote them.
_LONE_CR = re.compile(r"\r(?!\n)")
# The rest of a line from a NUL on, which Google's parser doesn't see.
_AFTER_NUL = re.compile(r"\0[^\n]*")
_BLANKS = re.compile(r"[ \t]+")
# A percent-encoded byte with a letter in lower case.
_LOWER_CASE_ESCAPE = re.compile(r"%(?:[0-9A-F][a-f]|[a-f][0-9a-fA-F])")
# For str.translate(): percent-encodes what isn't ASCII in a latin-1 text.
_PERCENT_ENCODED = {byte: f"%{byte:02X}" for byte in range(128, 256)}


def as_bytes(text: str) -> bytes:
    """Return *text* in UTF-8. Surrogates that stand for bytes (``surrogateescape``)
    become these bytes, unless there are other surrogates; then all surrogates become
    question marks."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def cut(body: bytes) -> bytes:
    """Return up to 512,000 bytes of *body*, without a line cut in two (REP.md section
    2)."""
    if len(body) <= MAX_BYTES:
        return body
    head = body[:MAX_BYTES]
    if body[MAX_BYTES] in b"\r\n":  # the last line in head ends here, so it is whole
        return head
    last_line_end = max(head.rfind(b"\n"), head.rfind(b"\r"))
    return head[: last_line_end + 1]


def normalise(body: bytes) -> str:
    """Return *body* as latin-1 text (one character a byte): cut to size, without byte
    order mark, with LF as line ends, and with each line cut to :data:`MAX_LINE`, and
    before a NUL."""
    if len(body) > MAX_BYTES:
        body = cut(body)
    text = body.decode("latin-1")
    if text[:1] == "\xef":
        text = _BOM.sub("", text, count=1)
    if "\r" in text:
        if _LONE_CR.search(text):
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        else:
            # Each CR stands before an LF. A blank in its place means nothing, and this
            # replacement is faster.
            text = text.replace("\r", " ")
    if len(text) > MAX_LINE:
        text = _with_short_lines(text)
    if "\0" in text:
        text = _AFTER_NUL.sub("", text)
    return text


def _with_short_lines(text: str) -> str:
    """Return *text* with each line cut to :data:`MAX_LINE` characters."""
    start = 0
    while start + MAX_LINE < len(text):
        cut_at = start + MAX_LINE
        # Where the last line before the cut begins; 0 if this is the line at *start*,
        # which then is too long.
        next_start = text.rfind("\n", start, cut_at + 1) + 1
        if next_start:
            start = next_start
            continue
        line_end = text.find("\n", cut_at)
        following = text[line_end:] if line_end >= 0 else ""
        text = text[:cut_at] + following
    return text


def fields_in(rows: Iterable[str], first: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield number, field and value of each of *rows* (normalised lines) that holds a
    known field. *first* is the number of the first row."""
    for number, row in enumerate(rows, first):
        if not row:  # this spares a call of field_of()
            continue
        field_and_value = field_of(row)
        if field_and_value is not None:
            field, value = field_and_value
            yield number, field, value


def field_of(row: str) -> tuple[str, str] | None:
    """Return field and value (latin-1, stripped, not escaped) of a normalised line;
    None without a known field."""
    name, colon, value = row.partition(":")
    field = _FIELD_BY_USUAL_SPELLING.get(name)
    if field is None or not colon:
        return _unusual_field_of(row)
    if "#" in value:
        value = value.partition("#")[0]
    return field, value.strip(SPACE)


def _unusual_field_of(row: str) -> tuple[str, str] | None:
    """Do what :func:`field_of` does for a line that doesn't begin with a usual spelling
    and a colon."""
    row = row.strip(SPACE)
    # Most such lines are refused here, since they are blank, comments or HTML.
    if len(row) < _SHORTEST_SPELLING or row[0] not in _INITIALS:
        return None
    if not _SPELLING.match(row):
        return None
    without_comment = row.partition("#")[0].rstrip(SPACE)
    name, colon, value = without_comment.partition(":")
    if not colon:
        # A missing colon is forgiven if there are exactly two words.
        words = _BLANKS.split(name)
        if len(words) != 2:
            return None
        name, value = words
    spelling = _SPELLING.match(name)
    if spelling is None:  # it was recognised only together with what follows the name
        return None
    field = _FIELD_BY_SPELLING[spelling[0].lower()]
    return field, value.strip(SPACE)


def escape(value: str) -> str:
    """Return a latin-1 value for comparison: ``%aa`` as ``%AA``, bytes above 127
    percent-encoded, nothing decoded (REP.md section 8)."""
    if not value.isascii():
        value = value.translate(_PERCENT_ENCODED)
    if "%" not in value:
        return value
    return _LOWER_CASE_ESCAPE.sub(_in_upper_case, value)


def _in_upper_case(match: re.Match[str]) -> str:
    return match[0].upper()


def readable(value: str) -> str:
    """Return a value that was read as latin-1 in the UTF-8 its author wrote, with
    invalid bytes as ``\\xNN``."""
    return value.encode("latin-1").decode("utf-8", "backslashreplace")


def readable_url(value: str) -> str:
    """Return a URL that was read as latin-1 in the UTF-8 its author wrote. If it isn't
    UTF-8, bytes above 127 are percent-encoded."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value.translate(_PERCENT_ENCODED)


GLOBAL = "*"
"""The token of the group that applies to a crawler that no other group names."""

# The product token at the beginning of a text; it may be empty.
_TOKEN = re.compile(r"[a-zA-Z_-]*")
# What a project may call its crawler: a token, or one with digits.
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
# A comment in a User-Agent header: "(compatible; FooBot/1.2)".
_AGENT_COMMENT = re.compile(r"\(([^()]*)\)")

# Words in the User-Agent headers of browsers, and of crawlers that pose as browsers.
_BROWSER_WORDS = frozenset(
    {
        "mozilla",
        "compatible",
        "like",
        "mobile",
        "version",
        "build",
        # Engines
        "applewebkit",
        "gecko",
        "khtml",
        "presto",
        "trident",
        # Browsers
        "chrome",
        "chromium",
        "crios",
        "edg",
        "edga",
        "edge",
        "edgios",
        "firefox",
        "fxios",
        "headlesschrome",
        "msie",
        "opera",
        "opr",
        "safari",
        "samsungbrowser",
        "seamonkey",
        "ucbrowser",
        "vivaldi",
        "yabrowser",
    }
)
# What names of crawlers contain.
_CRAWLER_NAME = re.compile(
    r"bot\b|bot[-_]|spider|crawl|scrap|slurp|fetch|archiver|preview|checker",
    re.IGNORECASE,
)


def leading_token(value: str) -> str:
    """Return *value* up to the first character that is not a letter, ``-`` or ``_``."""
    return _TOKEN.match(value)[0]  # type: ignore[index]  # it matches anything


def agent_token(value: str) -> str:
    """Return the token, in lower case, that a ``user-agent`` line's value names; ``*``
    for all crawlers, empty for none (REP.md section 7)."""
    if value == GLOBAL:
        return GLOBAL
    # Only white space may follow the star directly: "*bot" names no crawler.
    if value[:1] == GLOBAL and value[1] in SPACE:
        return GLOBAL
    return leading_token(value).lower()


def is_name(value: str) -> bool:
    """Return whether a crawler may be called *value*: a product token, or one with
    digits, which is read up to its first digit, as in Google's matcher."""
    return _NAME.fullmatch(value) is not None


def chain(value: Any) -> tuple[str, ...]:
    """Return a token or a list of tokens (on a command line: joined by commas) as a
    chain: the product tokens of one crawler, most specific first. ``ValueError`` if
    *value* holds anything but tokens."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, Iterable):
        raise ValueError
    tokens = tuple(value)
    if not tokens:
        raise ValueError
    for token in tokens:
        if not isinstance(token, str) or not is_name(token):
            raise ValueError
    return tokens


@lru_cache(maxsize=100)  # a crawl asks each file about the same agents
def obeyed(agent: str | tuple[str, ...], obey_global: bool) -> tuple[str, ...]:
    """Return the tokens whose groups *agent* obeys; the first one with a group counts.
    ``*`` and an empty token name no crawler.

    :raises ValueError: if a text is not a product token; the message suggests a token
    :raises TypeError: if a token is not a string
    """
    names = []
    tokens = (agent,) if isinstance(agent, str) else agent
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"a product token is a str, not {type(token).__name__}")
        if _NAME.fullmatch(token) is not None:
            # This is what leading_token() returns. It ends before the first digit, so it
            # may be empty.
            name = _TOKEN.match(token)[0]  # type: ignore[index]  # it matches anything
            if name:
                names.append(name)
        elif token not in ("", GLOBAL):
            raise ValueError(_not_a_token(token))
    if obey_global:
        names.append(GLOBAL)
    return tuple(names)


def _not_a_token(value: str) -> str:
    """Return the error for a *value*, often a whole User-Agent header, in place of a
    product token."""
    shown = value[:200]
    message = f"{shown!r} is not a product token (letters, '-' and '_' only)"
    token = product_token(shown)
    if token is None:
        return message
    return f"{message}; product_token() finds {token!r} in it"


def product_token(user_agent: str) -> str | None:
    """Return the crawler's own token from a full User-Agent header, None if there is
    none.

    ``Mozilla/5.0 (compatible; FooBot/1.2; +https://…)`` is ``FooBot``. If the header
    begins like a browser's, the token is a name with "bot", "spider" or the like in it,
    or a name with a version beside an address.
    """
    user_agent = user_agent.strip()
    first = leading_token(user_agent)
    if first and first.lower() not in _BROWSER_WORDS:
        return first
    for word, has_address in _words_of(user_agent):
        name = leading_token(word)
        if not name or name.lower() in _BROWSER_WORDS:
            continue
        if "://" in word or "@" in word:
            continue
        if _CRAWLER_NAME.search(name) or (has_address and "/" in word):
            return name
    return None


def _words_of(user_agent: str) -> Iterator[tuple[str, bool]]:
    """Yield the words of a User-Agent header that may be a crawler's name, each with
    whether an address is beside it. First come the words outside of comments; then, of
    each part of a comment, the first word."""
    for word in _AGENT_COMMENT.sub(" ", user_agent).split():
        yield word, False
    for comment in _AGENT_COMMENT.findall(user_agent):
        has_address = "://" in comment or "@" in comment
        for part in re.split(r"[;,]", comment):
            first_word = part.strip().partition(" ")[0]
            yield first_word, has_address
