"""Reads the metas and links of a page as a browser sees them: only start tags that make
HTML elements by the HTML standard count (REP.md section 10). A page may be any bytes,
and takes linear time.

A parser such as lxml builds the whole tree, and doesn't know, as the standard has it,
which tags are within scripts, templates or foreign content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from html import unescape

MAX_STEPS = 6_000
"""How many steps reading a page may take. Each tag, comment or unusual attribute that
is examined is a step."""

# In this many bytes at the start of a page, plain tags are skipped, and are no steps.
_SKIPPED = 300_000

# What follows the name in a *plain* tag, which is one in the usual form: each "="
# follows a name, and each quote an "=". The attributes of other tags are read one by
# one. The pattern matches no "<", so that a search that began within something else
# ends there.
PLAIN = (
    rb"(?:>|[ \t\n\f\r/](?:[^<>\"'=]{1,500}=(?<![ \t\n\f\r/]=)"
    rb"(?:\"[^\"<]*\"|'[^'<]*'|[^ \t\n\f\r\"'<>=]{0,500}[^ \t\n\f\r\"'<>=/](?=[ \t\n\f\r>]))){0,10}[^<>\"'=]{0,500}>)"
)
# The beginning of a tag, or of a comment and what counts as one. Groups: "/" of an end
# tag; a tag's name; its rest, if the tag is plain; the beginning of a proper comment.
_TOKEN = re.compile(
    rb"<(?=[A-Za-z!?/])(?:(/?)([A-Za-z][^ \t\n\f\r/>]*)(" + PLAIN + rb")?|(!--)|[!?/])"
)
# Groups: the end of the tag; or an attribute's name, and its value in double quotes, in
# single quotes, after a quote that isn't closed, or without quotes. The pattern matches
# everywhere, if need be the empty string, since to search on after a failure would not
# take linear time.
_ATTRIBUTE = re.compile(
    rb"[ \t\n\f\r/]*(?:(>)|([^ \t\n\f\r/>][^ \t\n\f\r/>=]*)"
    rb"(?:[ \t\n\f\r]*=[ \t\n\f\r]*(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^ \t\n\f\r>]*)))?|)"
)
_BOGUS_COMMENT_END = re.compile(rb">")
_COMMENT_END = re.compile(rb"--!?>")
_CDATA_END = re.compile(rb"]]>")

# Elements that contain text alone.
_RAW_NAMES = (
    b"iframe",
    b"noembed",
    b"noframes",
    b"noscript",
    b"plaintext",
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"xmp",
)
# A pattern of the end tag of each element in _RAW_NAMES.
_RAW = {
    name: re.compile(rb"</%s(?=[ \t\n\f\r/>])" % name, re.IGNORECASE)
    for name in _RAW_NAMES
}
# What matters within a script: "<!--" and then "<script" hide the next "</script" from
# the parser (the HTML standard calls that double escaped), and "-->" ends both.
# What to look for at the beginning of a script:
_IN_SCRIPT = re.compile(rb"<!--|</script(?=[ \t\n\f\r/>])", re.IGNORECASE)
# What to look for after "<!--":
_IN_SCRIPT_COMMENT = re.compile(rb"-->|</?script(?=[ \t\n\f\r/>])", re.IGNORECASE)
# What to look for after "<script" in such a comment:
_IN_HIDDEN_SCRIPT = re.compile(rb"-->|</script(?=[ \t\n\f\r/>])", re.IGNORECASE)
# Elements whose content isn't HTML: the standard calls it foreign.
_FOREIGN = frozenset({b"svg", b"math"})
# Start tags that end foreign content; foreignobject counts, since it contains HTML. A
# font tag ends foreign content, too, if it has one of the attributes below.
_BREAKOUT = frozenset(
    b"foreignobject b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li "
    b"listing menu meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var".split()
)
_FONT_ATTRIBUTES = frozenset({b"color", b"face", b"size"})
# Names of tags that change how the tags after them are read.
_MATTERS = frozenset({*_RAW, *_FOREIGN, b"template"})

MAX_HTML_BYTES = 2_000_000
"""How many bytes of a page are read."""

MAX_VALUE_BYTES = 16 * 1024
"""How many bytes of an attribute's value are read."""

# So many metas are searched for a name by _end_of_metas(); any further meta may have
# the name.
_MAX_METAS = 5_000
# So many bytes of a page in broken UTF-16 are read, since each error in it takes a
# call.
_MAX_BROKEN = 250_000

# Group 1: what follows the name, if the tag is plain.
_META = re.compile(rb"<meta(?=[ \t\n\f\r/])(" + PLAIN + rb")?[^<]*", re.IGNORECASE)
# What separates the words of a `rel`; the standard has no commas there, but people do.
_BETWEEN_WORDS = re.compile(r"[\s,]+")

# Values of `rel` for links that should not be followed.
_NOT_VOUCHED_FOR = frozenset({"nofollow", "ugc", "sponsored"})

# Tags that links_of() reads.
_LINK_TAGS = frozenset({b"a", b"area", b"base"})

# So many bytes of a page are searched for its head, since some heads begin with long
# styles.
_MAX_HEAD = 300_000
# Tags that sitemaps_of() reads. The body's tag ends the head.
_HEAD_TAGS = frozenset({b"base", b"body", b"link"})
# At most this many links to sitemaps count in a page.
_MAX_SITEMAPS = 10
# What may be a link to a sitemap, in lower case. Nearly all pages have the word
# "sitemap" only elsewhere, if at all.
_MAYBE_SITEMAP = re.compile(rb"<link[ \t\n\f\r/][^<]*sitemap")

# Character references are resolved in values of at most this many bytes together in a
# page, since resolving them is slow.
_MAX_REFERENCES = 100_000

# Python refuses numbers of thousands of digits.
_HUGE_REFERENCE = re.compile(r"&#\d{100,};?", re.ASCII)

# Names of encodings in which tags are not ASCII: UTF-16 (group 1: its byte order) and
# ISO-2022-JP (group 2). A pattern, since looking a codec up would import it.
_WIDE = re.compile(
    r"utf[-_]?16[-_]?([lb]e)?|(iso[-_]?2022[-_]jp)", re.IGNORECASE | re.ASCII
)

# What people take for blanks: no-break spaces, byte order marks, zero-width spaces.
# Also what these are if their UTF-8 is read as Latin-1, the encoding of headers.
_LIKE_BLANKS = re.compile(
    "[\x85\xa0\u1680\u2000-\u200d\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]"
    "|\xc2[\x85\xa0]|\xef\xbb\xbf|\xe2\x80[\x80-\x8d\xa8\xa9\xaf]|\xe2\x81[\x9f\xa0]|\xe3\x80\x80|\xe1\x9a\x80"
)


def metas_of(
    body: bytes, encoding: str, names: Collection[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield name (in lower case), content and line of each meta that has one of
    *names*."""
    body, _ = as_ascii(body, encoding)
    end = _end_of_metas(body, [name.encode() for name in names])
    line = 1
    # Where in the page line ends have been counted up to.
    counted_to = 0
    for _, start, attributes in start_tags(body, frozenset({b"meta"}), end):
        name_text = attribute_text(attributes.get(b"name", b""))
        name = with_plain_blanks(name_text).strip().lower()
        if name in names:
            line += body.count(b"\n", counted_to, start)
            counted_to = start
            content = attributes.get(b"content", b"")
            yield name, attribute_text(content), line


def as_ascii(body: bytes, encoding: str) -> tuple[bytes, str]:
    """Return the part of *body* that is read, in an encoding in which tags are ASCII,
    and that encoding: UTF-8 if tags in *encoding* aren't ASCII."""
    body = bytes(body[:MAX_HTML_BYTES])
    if "punycode" in encoding.lower():
        # Decoding a page of digits as punycode takes seconds.
        encoding = "latin-1"
    wide = _WIDE.fullmatch(encoding)
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        # A byte order mark overrules everything else.
        codec = "utf-16"
    elif wide is None:
        return body, encoding
    elif wide[2]:
        codec = "iso2022-jp"
    else:
        byte_order = wide[1] or "le"  # as browsers have it
        codec = f"utf-16-{byte_order}"
    try:
        text = body.decode(codec)
    except UnicodeDecodeError:
        text = body[:_MAX_BROKEN].decode(codec, "replace")
    return text.encode("utf-8", "replace"), "utf-8"


def has_other_references(value: bytes) -> bool:
    """Return whether *value* may have character references other than ``&amp;``, the
    only usual one."""
    return value.count(b"&") > value.count(b"&amp;")


def attribute_text(value: bytes, encoding: str = "latin-1") -> str:
    """Return an attribute's value, cut to size, with its character references
    resolved."""
    value = value[:MAX_VALUE_BYTES]
    try:
        text = value.decode(encoding, "replace")
    except (LookupError, ValueError):  # no codec of that name
        text = value.decode("latin-1")
    if has_other_references(value):
        return unescape(_HUGE_REFERENCE.sub("\ufffd", text))
    return text.replace("&amp;", "&")


def _end_of_metas(body: bytes, names: list[bytes]) -> int:
    """Return where the last tag that may be a meta with one of *names* begins; -1 if no
    tag may."""
    end = -1
    for metas_before, match in enumerate(_META.finditer(body)):
        if metas_before == _MAX_METAS:
            return len(body)
        tag = match[0].lower()
        # A tag can't be searched for the names if it isn't plain, since it may go on
        # after a "<" or ">"; nor if letters may be written as references.
        is_readable = match[1] is not None and not has_other_references(tag)
        if not is_readable or any(name in tag for name in names):
            end = match.start()
    return end


def links_of(body: bytes, encoding: str = "utf-8") -> tuple[str, dict[str, bool]]:
    """Return the ``base`` of any page (empty without one), and for each reference (what
    a link has as its URL, mostly relative) whether its links may be followed. Links in
    ``noscript`` and ``template`` are read, too, as link extractors do. If none of the
    words "nofollow", "ugc" and "sponsored" is in the page, both results are empty.
    Never raises."""
    body, encoding = as_ascii(body, encoding)
    lower = body.lower()
    may_follow: dict[str, bool] = {}
    if not any(word.encode() in lower for word in _NOT_VOUCHED_FOR):
        return "", may_follow
    base = ""
    # In values of this many bytes, character references may still be resolved.
    bytes_left = _MAX_REFERENCES
    tags = start_tags(body, _LINK_TAGS, len(body), unscripted=True)
    for name, _, attributes in tags:
        href = attributes.get(b"href")
        if href is None:
            continue
        rel = attributes.get(b"rel", b"")
        for value in (href, rel):
            if has_other_references(value):
                bytes_left -= len(value)
        if bytes_left < 0:
            break
        reference = attribute_text(href.strip(b" \t\r\n\f"), encoding)
        if name == b"base":
            base = base or reference
            continue
        rel_text = with_plain_blanks(attribute_text(rel)).lower()
        words = _BETWEEN_WORDS.split(rel_text)
        # A reference that has both marked and unmarked links may be followed.
        if not may_follow.get(reference):
            may_follow[reference] = _NOT_VOUCHED_FOR.isdisjoint(words)
    return base, may_follow


def sitemaps_of(body: bytes, encoding: str = "utf-8") -> tuple[str, list[str]]:
    """Return the ``base`` of any page (empty without one), and the references of links
    to sitemaps (``<link rel="sitemap">``) before its ``body``, as they stand there.
    Never raises."""
    head, encoding = as_ascii(body[:_MAX_HEAD], encoding)
    base = ""
    sitemaps: list[str] = []
    # Where the last tag that may be such a link begins.
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
        relations = attributes.get(b"rel", b"").lower().split()
        if name == b"base":
            base = base or attribute_text(href, encoding)
        elif b"sitemap" in relations:
            sitemaps.append(attribute_text(href, encoding))
    return base, sitemaps


def with_plain_blanks(text: str) -> str:
    """Return *text* with an ASCII space in place of each character that people take for
    a blank, such as a no-break space."""
    return text if text.isascii() else _LIKE_BLANKS.sub(" ", text)


def _but_plain(names: bytes) -> re.Pattern[bytes]:
    """Return a pattern that finds each "<" except those of plain tags; but it does find
    plain start tags whose names begin as the pattern *names* says."""
    return re.compile(
        rb"<(?!/[^<>\"'=]*>|(?!%s)[A-Za-z][^ \t\n\f\r/><]*" % names + PLAIN + rb")",
        re.IGNORECASE,
    )


# What start_tags() has to look at depends on the tags that it is to yield. These
# patterns list the beginnings of the names to yield and of the names in _MATTERS. Other
# names that begin in the same way are looked at needlessly. The pattern for metas:
_NOT_PLAIN = _but_plain(rb"if|m[ae]|no|pl|s[ctv]|t[ei]|xm")
# For _LINK_TAGS:
_NOT_PLAIN_NOR_LINK = _but_plain(
    rb"a[ \t\n\f\r/>]|area|bas|if|m[ae]|no|pl|s[ctv]|t[ei]|xm"
)
# For _HEAD_TAGS:
_NOT_PLAIN_NOR_IN_HEAD = _but_plain(rb"bas|bod|if|link|m[ae]|no|pl|s[ctv]|t[ei]|xm")
_NOT_PLAIN_FOR = {
    _LINK_TAGS: _NOT_PLAIN_NOR_LINK,
    _HEAD_TAGS: _NOT_PLAIN_NOR_IN_HEAD,
}


class _OpenForeign:
    """The elements of foreign content (see ``_FOREIGN``) that are open. In a condition,
    this counts as False if none is."""

    def __init__(self) -> None:
        # The names of the open elements, that of the innermost last.
        self._names: list[bytes] = []
        # How many elements of each name are open. (To search thousands takes long.)
        self._number_of = dict.fromkeys(_FOREIGN, 0)

    def __bool__(self) -> bool:
        return bool(self._names)

    def open(self, name: bytes) -> None:
        """Note that an element of that *name* begins."""
        self._names.append(name)
        self._number_of[name] += 1

    def close(self, name: bytes) -> None:
        """Close the last element of that *name*, and what is open in it. If no such
        element is open, its end tag means nothing."""
        closed = None
        while self._number_of[name] and closed != name:
            closed = self._names.pop()
            self._number_of[closed] -= 1

    def clear(self) -> None:
        """Close all elements."""
        self._names.clear()
        self._number_of = dict.fromkeys(_FOREIGN, 0)


def start_tags(
    body: bytes, wanted: frozenset[bytes], end: int, *, unscripted: bool = False
) -> Iterator[tuple[bytes, int, dict[bytes, bytes]]]:
    """Yield name, offset and attributes of each start tag in *wanted* that makes an
    HTML element and begins at *end* at the latest. *unscripted*: also of those in
    ``noscript``, ``template`` and foreign content, as readers without scripts see
    them."""
    # The names of tags that are not passed over, even if they are plain.
    matters = _MATTERS | wanted
    # The pattern of such tags, and of all that isn't plain.
    not_plain = _NOT_PLAIN_FOR.get(wanted, _NOT_PLAIN)
    # Up to here, plain tags are skipped.
    skipped_end = min(_SKIPPED, end)
    position = 0
    steps = 0
    open_templates = 0
    foreign = _OpenForeign()
    while steps < MAX_STEPS:
        steps += 1
        if position < skipped_end and not (open_templates or foreign):
            # One search passes over all plain tags that don't matter.
            next_tag = not_plain.search(body, position, skipped_end)
            position = skipped_end if next_tag is None else next_tag.start()
        token = _TOKEN.search(body, position)
        if token is None or token.start() > end:
            return
        slash, tag, plain_rest, comment = token.groups()
        position = token.end()
        if tag is None:
            position = _end_of_comment(body, position, comment, foreign)
            if not position:  # the comment has no end
                return
            continue
        name = tag.lower()
        is_plain = plain_rest is not None
        if is_plain and not foreign and name not in matters:  # nearly all tags
            continue
        attributes: dict[bytes, bytes] = {}
        if not is_plain or name in wanted or name == b"font":
            after_name = token.end(2)
            read = _attributes(body, after_name, MAX_STEPS - steps)
            if read is None:  # the tag has no end
                return
            attributes, position, steps_taken = read
            steps += steps_taken
        is_end_tag = slash != b""
        # By the standard, "/>" makes no HTML element empty. Yet an author who wrote it
        # in the tag of an element that may contain only text meant an empty element.
        is_empty = is_plain and plain_rest.endswith(b"/>")
        if name in _FOREIGN:
            if is_end_tag:
                foreign.close(name)
            elif not is_empty:
                foreign.open(name)
        elif foreign and _breaks_out(name, attributes, is_end_tag=is_end_tag):
            foreign.clear()
        if name in wanted and not is_end_tag:
            if unscripted or not open_templates:
                yield name, token.start(), attributes
            continue
        if name == b"template":
            if is_end_tag:
                open_templates = max(open_templates - 1, 0)
            elif not foreign:
                open_templates += 1
            continue
        is_raw = name in _RAW and not (is_end_tag or is_empty or foreign)
        if not is_raw or (unscripted and name == b"noscript"):
            continue
        # Up to the end tag there is only text.
        if name == b"script":
            position, steps_taken = _end_of_script(body, position, MAX_STEPS - steps)
            steps += steps_taken
        else:
            end_tag = _RAW[name].search(body, position)
            position = 0 if end_tag is None else end_tag.start()
        if not position:  # there is no end tag
            return


def _end_of_script(body: bytes, position: int, limit: int) -> tuple[int, int]:
    """Return where the end tag of a script begins, and the steps taken. The offset is 0
    if no end tag is found within *limit* steps."""
    marks = _IN_SCRIPT
    for steps in range(1, limit + 1):
        mark = marks.search(body, position)
        if mark is None:
            break
        position = mark.end()
        text = mark[0]
        if text == b"<!--":
            marks = _IN_SCRIPT_COMMENT
            position -= len(b"--")  # they may belong to the end: "<!-->"
        elif text == b"-->":
            marks = _IN_SCRIPT
        elif not text.startswith(b"</"):
            marks = _IN_HIDDEN_SCRIPT
        elif marks is _IN_HIDDEN_SCRIPT:
            marks = _IN_SCRIPT_COMMENT
        else:
            return mark.start(), steps
    return 0, limit


def _end_of_comment(
    body: bytes, position: int, comment: bytes | None, foreign: _OpenForeign
) -> int:
    """Return where a comment, or what counts as one, ends; 0 if it doesn't end.
    *position* is where its beginning ends; *comment* is None if the beginning isn't
    "<!--"."""
    ends = _BOGUS_COMMENT_END
    if comment and not body.startswith((b">", b"->"), position):
        ends = _COMMENT_END
    elif foreign and body.startswith(b"<![CDATA[", position - len(b"<!")):
        ends = _CDATA_END
    end = ends.search(body, position)
    return 0 if end is None else end.end()


def _breaks_out(
    name: bytes, attributes: dict[bytes, bytes], *, is_end_tag: bool
) -> bool:
    """Return whether a tag ends foreign content."""
    if is_end_tag:
        return name in (b"br", b"p")
    if name == b"font":
        return not _FONT_ATTRIBUTES.isdisjoint(attributes)
    return name in _BREAKOUT


def _attributes(
    body: bytes, position: int, limit: int
) -> tuple[dict[bytes, bytes], int, int] | None:
    """Return a tag's attributes from *position* (by name in lower case; the first of a
    name counts), the offset after the tag, and the steps taken; None if the tag has no
    end, or takes more than *limit* steps."""
    values: dict[bytes, bytes] = {}
    for steps, match in enumerate(_ATTRIBUTE.finditer(body, position), 1):
        tag_end, name, double_quoted, single_quoted, open_quote, bare = match.groups()
        if tag_end:
            return values, match.end(), steps
        if not name or open_quote or steps > limit:
            return None
        value = double_quoted or single_quoted or bare or b""
        values.setdefault(name.lower(), value)
    return None
