"""The tags of a page: what the HTML standard says of where tags, comments and raw text end, and of
its tree what hides an element. Linear in the page, whatever is in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAX_STEPS = 25_000
"""Tags, comments and unusual attributes of a page that are looked at: the event loop waits meanwhile."""

# Templates and foreign elements in each other. Deeper ones open nothing.
_MAX_DEPTH = 100

BLANK = rb"[ \t\n\f\r]"

# The rest of a tag as nearly all are written. Where it does not match, attributes are read one by
# one. It stops at "<": the search for metas may begin in the midst of something else.
PLAIN = (
    rb"(?:" + BLANK + rb"{1,100}[^\s/>=\"'<]{1,100}"
    rb"(?:=(?:\"[^\"<]*\"|'[^'<]*'|[^\s\"'<>=]{1,1000}(?=[\s>])))?){0,40}" + BLANK + rb"{0,100}/?>"
)
_TOKEN = re.compile(
    rb"<(?=[A-Za-z!?/])(?:(/?)([A-Za-z][^ \t\n\f\r/>]*)(" + PLAIN + rb")?"
    rb"|(!--)|[!?/])"
)
# Matches anywhere: a search that goes on after a failure would not be linear.
_ATTRIBUTE = re.compile(
    rb"([ \t\n\f\r/]*)(?:(>)|([^ \t\n\f\r/>][^ \t\n\f\r/>=]*)"
    rb"(?:[ \t\n\f\r]*=[ \t\n\f\r]*(?:\"([^\"]*)\"|'([^']*)'|([\"'])|([^ \t\n\f\r>]*)))?|)"
)
_COMMENT_END = re.compile(rb"--!?>")
_SCRIPT_PART = re.compile(rb"<!--|-->|<(/?)script(?=[ \t\n\f\r/>])", re.IGNORECASE)

# What these hold is text.
_RAW = {
    name: re.compile(rb"</%s(?=[ \t\n\f\r/>])" % name, re.IGNORECASE)
    for name in b"iframe noembed noframes noscript style textarea title xmp".split()
}

# HTML elements that can't stand in foreign content, and so end it.
_BREAKOUT = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li "
    b"listing menu nobr ol p pre ruby s small span strong strike sub sup table tt u ul var".split()
)
# Foreign content, and the elements in it that hold HTML again.
_FOREIGN = {
    b"svg": frozenset(b"foreignobject desc title".split()),
    b"math": frozenset(b"mi mo mn ms mtext".split()),
}
# Names whose tags change what those behind them mean.
_MATTERS = frozenset({*_RAW, *_FOREIGN, b"plaintext", b"script", b"template"})


class _Attributes(NamedTuple):
    values: dict[bytes, bytes]
    """By names in lower case; of several the first."""
    end: int
    """Behind the tag."""
    empty: bool
    """Whether the tag ends with ``/>``."""
    steps: int


def start_tags(
    body: bytes, wanted: Collection[bytes], end: int, *, unscripted: bool = False
) -> Iterator[tuple[bytes, int, dict[bytes, bytes]]]:
    """Yield name, offset and attributes of each start tag in *wanted* that makes an HTML element.

    A browser ends foreign content at a meta and has it as an HTML element; REP.md does not.

    :param end: the last offset at which a tag may begin
    :param unscripted: see what is in ``noscript``, ``template`` and foreign content too
    """
    scopes: list[bytes] = []  # templates, foreign elements, and HTML elements in these
    matters = _MATTERS.union(wanted)
    at = steps = 0
    while steps < MAX_STEPS and (token := _TOKEN.search(body, at)) and token.start() <= end:
        steps += 1
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
        attributes = None
        if rest is None or name in wanted:
            attributes = _attributes(body, token.end(2), MAX_STEPS - steps)
            if attributes is None:
                return
            steps += attributes.steps + 1
            at = attributes.end
            empty = attributes.empty
        else:
            at = token.end()
            empty = rest.endswith(b"/>")
        if name in _BREAKOUT:
            while scopes and scopes[-1] in _FOREIGN:
                scopes.pop()
            continue
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
        elif attributes is not None and name in wanted:
            if unscripted or (within is None and b"template" not in scopes):
                yield name, token.start(), attributes.values
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
    """Return where a comment, or what counts as one, ends; 0 if it does not."""
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
    """Return where the end tag of a script begins; 0 if there is none.

    In a comment a script may hold another one with its end tag.
    """
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


def _attributes(body: bytes, at: int, limit: int) -> _Attributes | None:
    """Read the attributes of a tag from *at*. None if it has no end, or more than *limit*."""
    values: dict[bytes, bytes] = {}
    for steps, match in enumerate(_ATTRIBUTE.finditer(body, at)):
        blank, end, name, double, single, unclosed, unquoted = match.groups()
        if end:
            return _Attributes(values, match.end(), blank.endswith(b"/"), steps)
        if not name or unclosed or steps > limit:
            return None
        values.setdefault(name.lower(), double or single or unquoted or b"")
    return None
