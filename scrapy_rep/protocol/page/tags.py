"""The start tags of a page that make HTML elements, by the HTML standard. Linear, for any bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_STEPS = 6_000
"""Tags, comments and unusual attributes of a page that are examined one by one."""

# Bytes of a page in which plain tags are skipped without counting as steps.
_SKIPPED = 300_000

# Nested templates and foreign elements. Deeper ones are ignored.
_MAX_DEPTH = 100

# The rest of a tag in the usual form: each "=" follows a name, and each quote an "=". Other tags have
# their attributes read one by one. Without "<", which ends a search that began within something else.
PLAIN = (
    rb"(?:>|[ \t\n\f\r/](?:[^<>\"'=]{1,500}=(?<![ \t\n\f\r/]=)"
    rb"(?:\"[^\"<]*\"|'[^'<]*'|[^ \t\n\f\r\"'<>=]{0,500}[^ \t\n\f\r\"'<>=/](?=[ \t\n\f\r>]))){0,10}[^<>\"'=]{0,500}>)"
)
_TOKEN = re.compile(
    rb"<(?=[A-Za-z!?/])(?:(/?)([A-Za-z][^ \t\n\f\r/>]*)(" + PLAIN + rb")?|(!--)|[!?/])"
)
# Matches anywhere: a search that went on after a failure would not be linear.
_ATTRIBUTE = re.compile(
    rb"([ \t\n\f\r/]*)(?:(>)|([^ \t\n\f\r/>][^ \t\n\f\r/>=]*)"
    rb"(?:[ \t\n\f\r]*=[ \t\n\f\r]*(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^ \t\n\f\r>]*)))?|)"
)
_COMMENT_END = re.compile(rb"--!?>")
_SCRIPT_PART = re.compile(rb"<!--|-->|<(/?)script(?=[ \t\n\f\r/>])", re.IGNORECASE)

# These hold text.
_RAW = {
    name: re.compile(rb"</%s(?=[ \t\n\f\r/>])" % name, re.IGNORECASE)
    for name in b"iframe noembed noframes noscript style textarea title xmp".split()
}

# HTML elements that end foreign content.
_BREAKOUT = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li "
    b"listing menu meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var".split()
)
# Attributes with which a font does, and the only end tags that do.
_FONT = frozenset({b"color", b"face", b"size"})
_BREAKOUT_ENDS = frozenset({b"br", b"p"})
# Foreign content, and the elements in it that hold HTML.
_FOREIGN = {
    b"svg": frozenset(b"foreignobject desc title".split()),
    b"math": frozenset(b"mi mo mn ms mtext".split()),
}
# Names of tags that change what follows.
_MATTERS = frozenset({*_RAW, *_FOREIGN, b"plaintext", b"script", b"template"})


def _but_plain(names: bytes) -> re.Pattern[bytes]:
    """Return what finds anything but plain tags, and tags whose names begin as in *names*."""
    return re.compile(
        rb"<(?!/[^<>\"'=]*>|(?!%s)[A-Za-z][^ \t\n\f\r/><]*" % names + PLAIN + rb")", re.IGNORECASE
    )


# Names like those in _MATTERS, and metas; and links.
_NOT_PLAIN = _but_plain(rb"if|m[ae]|no|pl|s[ctv]|t[ei]|xm")
_NOT_PLAIN_NOR_LINK = _but_plain(rb"a[ \t\n\f\r/>]|area|bas|if|m[ae]|no|pl|s[ctv]|t[ei]|xm")


def start_tags(
    body: bytes, wanted: frozenset[bytes], end: int, *, unscripted: bool = False
) -> Iterator[tuple[bytes, int, dict[bytes, bytes]]]:
    """Yield name, offset and attributes of each start tag in *wanted* that makes an HTML element.

    :param end: the last offset at which a tag may begin
    :param unscripted: include ``noscript``, ``template`` and foreign content
    """
    scopes: list[bytes] = []  # open templates, foreign elements, and HTML elements in these
    matters = _MATTERS | wanted
    not_plain = _NOT_PLAIN_NOR_LINK if wanted - {b"meta"} else _NOT_PLAIN
    skipped = min(_SKIPPED, end)
    at = steps = 0
    while steps < MAX_STEPS:
        steps += 1
        if at < skipped and not scopes:
            found = not_plain.search(body, at, skipped)
            at = found.start() if found else skipped
        token = _TOKEN.search(body, at)
        if token is None or token.start() > end:
            return
        closing, tag, rest, comment = token.groups()
        if tag is None:
            foreign = bool(scopes) and scopes[-1] in _FOREIGN
            at = _end_of_markup(body, token.start(), comment=bool(comment), foreign=foreign)
            if at == 0:
                return
            continue
        name = tag.lower()
        if rest is not None and not scopes and name not in matters:
            at = token.end()  # nearly all
            continue
        attributes: dict[bytes, bytes] = {}
        is_font = name == b"font" and bool(scopes) and not closing
        if rest is not None and name not in wanted and not is_font:
            at = token.end()
            empty = rest.endswith(b"/>")
        elif read := _attributes(body, token.end(2), MAX_STEPS - steps):
            attributes, at, empty, took = read
            steps += took + 1
        else:
            return
        breaks_out = name in _BREAKOUT or (is_font and not _FONT.isdisjoint(attributes))
        if breaks_out and (not closing or name in _BREAKOUT_ENDS):
            while scopes and scopes[-1] in _FOREIGN:
                scopes.pop()
        if closing:
            if name in scopes:
                while scopes.pop() != name:
                    pass
            continue
        within = _FOREIGN.get(scopes[-1]) if scopes else None
        if within is not None:
            opens = name in within or name in _FOREIGN
        else:
            opens = name in _FOREIGN or name == b"template"
            empty = empty and name != b"template"
        if opens:
            if not empty and len(scopes) < _MAX_DEPTH:
                scopes.append(name)
        elif name in wanted:
            if unscripted or (within is None and b"template" not in scopes):
                yield name, token.start(), attributes
        elif within is None:
            if name == b"script":
                at = _end_of_script(body, at)
            elif name == b"plaintext":
                return
            elif name in _RAW and not (unscripted and name == b"noscript"):
                raw = _RAW[name].search(body, at)
                at = raw.start() if raw else 0
            if at == 0:
                return


def _end_of_markup(body: bytes, start: int, *, comment: bool, foreign: bool) -> int:
    """Return the offset after a comment, or what counts as one; 0 if it has no end."""
    if comment:
        if body.startswith((b">", b"->"), start + 4):
            return body.index(b">", start) + 1
        match = _COMMENT_END.search(body, start + 4)
        return match.end() if match else 0
    if foreign and body.startswith(b"<![CDATA[", start):
        end = body.find(b"]]>", start)
        return end + 3 if end >= 0 else 0
    return body.find(b">", start + 2) + 1


def _end_of_script(body: bytes, at: int) -> int:
    """Return where the end tag of a script begins; 0 for none. Within a comment, scripts may nest."""
    escaped = nested = False
    for _ in range(MAX_STEPS):
        match = _SCRIPT_PART.search(body, at)
        if match is None:
            break
        part = match[0]
        at = match.end()
        if part == b"<!--":
            at -= 2  # "<!-->" is a whole comment
            escaped = True
        elif part == b"-->":
            escaped = nested = False
        elif not match[1]:
            nested = escaped
        elif nested:
            nested = False
        else:
            return match.start()
    return 0


def _attributes(
    body: bytes, at: int, limit: int
) -> tuple[dict[bytes, bytes], int, bool, int] | None:
    """Return the attributes of a tag from *at* (names in lower case, first ones win), the offset after
    it, whether it ends with ``/>``, and the steps taken; None without an end, or beyond *limit*."""
    values: dict[bytes, bytes] = {}
    for steps, match in enumerate(_ATTRIBUTE.finditer(body, at)):
        blank, end, name, double, single, unclosed, unquoted = match.groups()
        if end:
            return values, match.end(), blank.endswith(b"/"), steps
        if not name or unclosed or steps > limit:
            return None
        values.setdefault(name.lower(), double or single or unquoted or b"")
    return None
