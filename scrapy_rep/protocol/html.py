"""The metas and links of a page as a browser sees them: the start tags that make HTML elements by the
HTML standard (REP.md section 10). Any bytes, in linear time.

A parser such as lxml builds the whole tree, and doesn't know, as the standard has it, which tags are
within scripts, templates or foreign content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from html import unescape

MAX_STEPS = 6_000
"""Tags, comments and unusual attributes of a page that are examined one by one."""

# Bytes at the start of a page whose plain tags are skipped, and don't count as steps.
_SKIPPED = 300_000

# The rest of a tag in the usual form: each "=" follows a name, and each quote an "=". The attributes of
# other tags are read one by one. No "<", so that a search from within something else ends there.
PLAIN = (
    rb"(?:>|[ \t\n\f\r/](?:[^<>\"'=]{1,500}=(?<![ \t\n\f\r/]=)"
    rb"(?:\"[^\"<]*\"|'[^'<]*'|[^ \t\n\f\r\"'<>=]{0,500}[^ \t\n\f\r\"'<>=/](?=[ \t\n\f\r>]))){0,10}[^<>\"'=]{0,500}>)"
)
_TOKEN = re.compile(
    rb"<(?=[A-Za-z!?/])(?:(/?)([A-Za-z][^ \t\n\f\r/>]*)(" + PLAIN + rb")?|(!--)|[!?/])"
)
# It matches anywhere: searching on after a failure would not be linear.
_ATTRIBUTE = re.compile(
    rb"[ \t\n\f\r/]*(?:(>)|([^ \t\n\f\r/>][^ \t\n\f\r/>=]*)"
    rb"(?:[ \t\n\f\r]*=[ \t\n\f\r]*(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^ \t\n\f\r>]*)))?|)"
)
_END, _COMMENT_END, _CDATA_END = (
    re.compile(end) for end in (rb">", rb"--!?>", rb"]]>")
)

# Elements that contain text alone.
_RAW = {
    name: re.compile(rb"</%s(?=[ \t\n\f\r/>])" % name, re.IGNORECASE)
    for name in b"iframe noembed noframes noscript plaintext script style textarea title xmp".split()
}
# What changes within a script: "<!--" and then "<script" hide the next "</script" from the parser (the
# HTML standard calls that double escaped), and "-->" ends both.
_SCRIPT_ENDS = re.compile(rb"<!--|</script(?=[ \t\n\f\r/>])", re.IGNORECASE)
_ESCAPED_ENDS = re.compile(rb"-->|</?script(?=[ \t\n\f\r/>])", re.IGNORECASE)
_HIDDEN_ENDS = re.compile(rb"-->|</script(?=[ \t\n\f\r/>])", re.IGNORECASE)
_FOREIGN = frozenset({b"svg", b"math"})
# Elements that end foreign content, or contain HTML; a font element does with one of these attributes.
_BREAKOUT = frozenset(
    b"foreignobject b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li "
    b"listing menu meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var".split()
)
_FONT = frozenset({b"color", b"face", b"size"})
# Names of tags that change what follows.
_MATTERS = frozenset({*_RAW, *_FOREIGN, b"template"})

MAX_BYTES = 2_000_000
"""Bytes of a page that are read."""

MAX_TEXT = 16 * 1024
"""Bytes of an attribute's value that are read."""

# Metas that are examined; all further ones count as candidates.
_MAX_METAS = 5_000
# Bytes that are read of a page in broken UTF-16: each error takes a call.
_MAX_BROKEN = 250_000

_META = re.compile(rb"<meta(?=[ \t\n\f\r/])(" + PLAIN + rb")?[^<]*", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,]+")

# Values of `rel` for links that should not be followed.
_NOT_VOUCHED_FOR = frozenset({"nofollow", "ugc", "sponsored"})

_TAGS = frozenset({b"a", b"area", b"base"})

# Bytes of a page in which its head is looked for: more than some have of styles.
_MAX_HEAD = 300_000
# The body's tag ends the head.
_HEAD_TAGS = frozenset({b"base", b"body", b"link"})
# Links to sitemaps that count of a page.
_MAX_SITEMAPS = 10
# What may be one, in lower case: nearly all pages have the word only elsewhere, if at all.
_MAYBE_SITEMAP = re.compile(rb"<link[ \t\n\f\r/][^<]*sitemap")

# Bytes of values with character references, which are slow to resolve.
_MAX_REFERENCES = 100_000

# Python refuses numbers of thousands of digits.
_HUGE_REFERENCE = re.compile(r"&#\d{100,};?", re.ASCII)

# Encodings whose markup is not ASCII, by name: looking a codec up would import it.
_WIDE = re.compile(
    r"utf[-_]?16[-_]?([lb]e)?|(iso[-_]?2022[-_]jp)", re.IGNORECASE | re.ASCII
)

# What people take for blanks: no-break spaces, byte order marks, zero-width spaces. Also in UTF-8
# read as Latin-1, the encoding of headers.
_BLANKS = re.compile(
    "[\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
    "|\xc2[\x85\xa0]|\xef\xbb\xbf|\xe2\x80[\x80-\x8d\xa8\xa9\xaf]|\xe2\x81[\x9f\xa0]|\xe3\x80\x80|\xe1\x9a\x80"
)


def metas_of(
    body: bytes, encoding: str, names: Collection[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield name (in lower case), content and line of each meta that has one of *names*."""
    body, _ = as_ascii(body, encoding)
    end = _end_of_metas(body, [name.encode() for name in names])
    line, counted = 1, 0
    for _, start, attributes in start_tags(body, frozenset({b"meta"}), end):
        name = with_blanks(attribute_text(attributes.get(b"name", b""))).strip().lower()
        if name in names:
            line += body.count(b"\n", counted, start)
            counted = start
            yield name, attribute_text(attributes.get(b"content", b"")), line


def as_ascii(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Return the part of *body* that is read, with ASCII markup, and its encoding."""
    body = bytes(body[:MAX_BYTES])
    # Decoding a page of digits as punycode takes seconds.
    encoding = "latin-1" if "punycode" in encoding.lower() else encoding
    # A byte order mark overrules everything else.
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        codec = "utf-16"
    elif wide := _WIDE.fullmatch(encoding):
        # Browsers default to little-endian.
        codec = "iso2022-jp" if wide[2] else f"utf-16-{wide[1] or 'le'}"
    else:
        return body, encoding
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        text = body[:_MAX_BROKEN].decode(codec, "replace")
    return text.encode("utf-8", "replace"), "utf-8"


def has_references(value: bytes) -> bool:
    return value.count(b"&") > value.count(b"&amp;")


def attribute_text(value: bytes, encoding: str = "latin-1") -> str:
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
    """Return where the last tag that may be a meta with one of *names* begins; -1 for none."""
    end = -1
    for count, match in enumerate(_META.finditer(body)):
        if count == _MAX_METAS:
            return len(body)
        tag, is_plain = match[0].lower(), match[1] is not None
        # Another tag may have "<" or ">" in an attribute, and a name of references any letters.
        if not is_plain or has_references(tag) or any(name in tag for name in names):
            end = match.start()
    return end


def links_of(body: bytes, encoding: str = "utf-8") -> tuple[str, dict[str, bool]]:
    """Return the ``base`` of any page (empty without one), and its references with whether they may
    be followed: as in the page, mostly relative, and as link extractors see them, also those in
    ``noscript`` and ``template``. No references if none is marked. Never raises."""
    body, encoding = as_ascii(body, encoding)
    lower = body.lower()
    links: dict[str, bool] = {}
    if not any(word.encode() in lower for word in _NOT_VOUCHED_FOR):
        return "", links
    base, left = "", _MAX_REFERENCES
    for name, _, attributes in start_tags(body, _TAGS, len(body), unscripted=True):
        href = attributes.get(b"href")
        if href is None:
            continue
        rel = attributes.get(b"rel", b"")
        left -= sum(len(value) for value in (href, rel) if has_references(value))
        if left < 0:
            break
        reference = attribute_text(href.strip(b" \t\r\n\f"), encoding)
        if name == b"base":
            base = base or reference
        else:
            words = _BETWEEN.split(with_blanks(attribute_text(rel)).lower())
            # What is linked both ways may be followed.
            links[reference] = links.get(reference) or _NOT_VOUCHED_FOR.isdisjoint(
                words
            )
    return base, links


def sitemaps_of(body: bytes, encoding: str = "utf-8") -> tuple[str, list[str]]:
    """Return the ``base`` of any page (empty without one), and the references of links to sitemaps
    (``<link rel="sitemap">``) before its ``body``, as they stand there. Never raises."""
    head, encoding = as_ascii(body[:_MAX_HEAD], encoding)
    base = ""
    sitemaps: list[str] = []
    end = -1
    for candidate in _MAYBE_SITEMAP.finditer(head.lower()):
        end = candidate.start()
    if end < 0:
        return base, sitemaps
    for name, _, attributes in start_tags(head, _HEAD_TAGS, end):
        if name == b"body" or len(sitemaps) == _MAX_SITEMAPS:
            break
        href = attributes.get(b"href", b"").strip(b" \t\r\n\f")
        if not href:
            continue
        if name == b"base":
            base = base or attribute_text(href, encoding)
        elif b"sitemap" in attributes.get(b"rel", b"").lower().split():
            sitemaps.append(attribute_text(href, encoding))
    return base, sitemaps


def with_blanks(text: str) -> str:
    return text if text.isascii() else _BLANKS.sub(" ", text)


def _but_plain(names: bytes) -> re.Pattern[bytes]:
    """Return a pattern for all but plain tags, and for tags whose names begin as in *names*."""
    return re.compile(
        rb"<(?!/[^<>\"'=]*>|(?!%s)[A-Za-z][^ \t\n\f\r/><]*" % names + PLAIN + rb")",
        re.IGNORECASE,
    )


# Names like those in _MATTERS, and metas; and links; and what is in the head.
_NOT_PLAIN = _but_plain(rb"if|m[ae]|no|pl|s[ctv]|t[ei]|xm")
_NOT_PLAIN_NOR_LINK = _but_plain(
    rb"a[ \t\n\f\r/>]|area|bas|if|m[ae]|no|pl|s[ctv]|t[ei]|xm"
)
_NOT_PLAIN_NOR_IN_HEAD = _but_plain(rb"bas|bod|if|link|m[ae]|no|pl|s[ctv]|t[ei]|xm")
_NOT_PLAIN_FOR = {_TAGS: _NOT_PLAIN_NOR_LINK, _HEAD_TAGS: _NOT_PLAIN_NOR_IN_HEAD}


class _Foreign:
    """The elements of foreign content that are open. True if there is one."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._counts = dict.fromkeys(
            _FOREIGN, 0
        )  # of each name: searching thousands takes long

    def __bool__(self) -> bool:
        return bool(self._names)

    def open(self, name: bytes) -> None:
        self._names.append(name)
        self._counts[name] += 1

    def close(self, name: bytes) -> None:
        """Close the last element of that *name*, and what is open in it. An end tag of none means nothing."""
        closed = None
        while self._counts[name] and closed != name:
            closed = self._names.pop()
            self._counts[closed] -= 1

    def clear(self) -> None:
        self._names.clear()
        self._counts = dict.fromkeys(_FOREIGN, 0)


def start_tags(
    body: bytes, wanted: frozenset[bytes], end: int, *, unscripted: bool = False
) -> Iterator[tuple[bytes, int, dict[bytes, bytes]]]:
    """Yield name, offset and attributes of each start tag in *wanted* that makes an HTML element
    and begins at *end* at the latest. *unscripted* includes ``noscript``, ``template`` and foreign
    content."""
    matters = _MATTERS | wanted
    not_plain = _NOT_PLAIN_FOR.get(wanted, _NOT_PLAIN)
    skipped = min(_SKIPPED, end)
    at = steps = templates = 0  # templates: those that are open
    foreign = _Foreign()
    while steps < MAX_STEPS:
        steps += 1
        if at < skipped and not (templates or foreign):
            found = not_plain.search(body, at, skipped)
            at = found.start() if found else skipped
        token = _TOKEN.search(body, at)
        if token is None or token.start() > end:
            return
        closing, tag, rest, comment = token.groups()
        at = token.end()
        if tag is None:
            at = _end_of_comment(body, at, comment, foreign)
            if not at:
                return
            continue
        name = tag.lower()
        if rest is not None and not foreign and name not in matters:
            continue  # nearly all
        attributes: dict[bytes, bytes] = {}
        if rest is None or name in wanted or name == b"font":
            if (read := _attributes(body, token.end(2), MAX_STEPS - steps)) is None:
                return
            attributes, at, took = read
            steps += took
        # In HTML, "/>" doesn't make an element empty. But if it may contain only text, that was meant.
        empty = rest is not None and rest.endswith(b"/>")
        if name in _FOREIGN:
            if closing:
                foreign.close(name)
            elif not empty:
                foreign.open(name)
        elif foreign and _breaks_out(name, closing, attributes):
            foreign.clear()
        if name in wanted and not closing:
            if unscripted or not templates:
                yield name, token.start(), attributes
        elif name == b"template" and (closing or not foreign):
            templates = max(templates + (-1 if closing else 1), 0)
        elif name in _RAW and not (
            closing or empty or foreign or (unscripted and name == b"noscript")
        ):
            if name == b"script":
                at, took = _end_of_script(body, at, MAX_STEPS - steps)
                steps += took
            else:
                raw = _RAW[name].search(body, at)
                at = raw.start() if raw else 0
            if not at:
                return


def _end_of_script(body: bytes, at: int, limit: int) -> tuple[int, int]:
    """Return where the end tag of a script begins, and the steps taken; 0 for the former if it has
    none, or beyond *limit* steps."""
    ends = _SCRIPT_ENDS
    for steps in range(1, limit + 1):
        mark = ends.search(body, at)
        if mark is None:
            break
        at, text = mark.end(), mark[0]
        if text == b"<!--":
            ends = _ESCAPED_ENDS
            at -= len(b"--")  # "<!-->" ends at once
        elif text == b"-->":
            ends = _SCRIPT_ENDS
        elif not text.startswith(b"</"):
            ends = _HIDDEN_ENDS
        elif ends is _HIDDEN_ENDS:
            ends = _ESCAPED_ENDS
        else:
            return mark.start(), steps
    return 0, limit


def _end_of_comment(
    body: bytes, at: int, comment: bytes | None, foreign: _Foreign
) -> int:
    """Return where a comment, or what counts as one, ends; 0 if it doesn't."""
    ends = _END
    if comment and not body.startswith((b">", b"->"), at):
        ends = _COMMENT_END
    elif foreign and body.startswith(b"<![CDATA[", at - 2):
        ends = _CDATA_END
    ended = ends.search(body, at)
    return ended.end() if ended else 0


def _breaks_out(name: bytes, closing: bytes, attributes: dict[bytes, bytes]) -> bool:
    """Return whether a tag ends foreign content."""
    if closing:
        return name in (b"br", b"p")
    return name in _BREAKOUT or (name == b"font" and not _FONT.isdisjoint(attributes))


def _attributes(
    body: bytes, at: int, limit: int
) -> tuple[dict[bytes, bytes], int, int] | None:
    """Return a tag's attributes from *at* (by name in lower case; the first of a name counts), the
    offset after it, and the steps taken; None without an end, or beyond *limit* steps."""
    values: dict[bytes, bytes] = {}
    for steps, match in enumerate(_ATTRIBUTE.finditer(body, at), 1):
        end, name, double, single, unclosed, unquoted = match.groups()
        if end:
            return values, match.end(), steps
        if not name or unclosed or steps > limit:
            return None
        values.setdefault(name.lower(), double or single or unquoted or b"")
    return None
