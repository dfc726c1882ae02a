"""What an answer to the request for robots.txt means (REP.md section 3)."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from scrapy_rep.protocol.not_found import is_not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HOPS = 5
"""How many redirects are followed (REP.md section 2)."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

STATUSES = (100, 999)
"""The smallest and the largest valid HTTP status."""

FORBIDDEN = frozenset({401, 403})
"""The statuses that ``REP_FORBIDDEN`` is about."""

# How much of a page, of a tag and of an element's content is searched.
_SEARCHED_BYTES = 65536
_WITHIN = 500
# As browsers do.
_CHARSET_WITHIN = 1024

_CHARSET = re.compile(rb"""charset\s{0,9}=\s{0,9}["']?([a-z0-9_-]{1,20})""", re.IGNORECASE)

# A page, such as an error page sent with status 200.
_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head|body|\?xml)\b", re.IGNORECASE
)
# A rule with a path, or an empty one: not a word of a page's text or script that begins a line. Linear.
_RULE = re.compile(
    rb"(?:\A|[\r\n])[ \t\v\f]*(?:allow|diss?all?ow|diasllow|disallaw)"
    rb"(?:[^\r\n:#]*:[ \t]*(?:[/*]|[\r\n#]|\Z)|[^\r\n:# \t]*[ \t]+[/*])",
    re.IGNORECASE,
)

_TITLE = re.compile(rb"<title\b", re.IGNORECASE)
_HEADING = re.compile(rb"<h[1-6]\b", re.IGNORECASE)
_HEADING_END = re.compile(rb"</h[1-6]\s*>", re.IGNORECASE)


class Outcome(Enum):
    """What an origin's answer says about its rules."""

    RULES = "rules"
    """2xx: the body holds the rules."""
    MISSING = "missing"
    """No file: no restrictions."""
    UNREACHABLE = "unreachable"
    """No valid answer: everything is disallowed for now."""


def outcome_of(status: int, body: bytes = b"", *, soft_404: bool = True) -> Outcome:
    """Return what an answer with HTTP *status* means. A 3xx is a redirect that can't be followed.

    A status outside 100 to 599 counts as 5xx: sites that send 999 don't want to answer.

    :param soft_404: whether a 5xx whose *body* says "not found" is a 404. Not if the answer has a
        ``Retry-After``: then the site itself says that it is a passing trouble
    """
    if 200 <= status < 300:
        return Outcome.RULES
    if 300 <= status < 500 and status != 429:
        return Outcome.MISSING
    if soft_404 and 500 <= status < 600 and says_not_found(body):
        return Outcome.MISSING
    return Outcome.UNREACHABLE


def is_html(body: bytes) -> bool:
    """Return whether *body* is a page of HTML, or XML."""
    return _HTML.match(body) is not None


def is_challenge(status: int | None, body: bytes) -> bool:
    """Return whether an answer may be a bot wall's: 200 or 202 and a page of HTML, without a rule."""
    return status in (200, 202) and is_html(body) and _RULE.search(body) is None


def says_not_found(body: bytes) -> bool:
    """Return whether the title or the first heading of an HTML page is "404", "Page not found" or the
    like, give or take the site's name: see :mod:`~scrapy_rep.protocol.not_found`."""
    head = body[:_SEARCHED_BYTES]
    titles = (head[start : start + _WITHIN].partition(b"<")[0] for start in _after(_TITLE, head))
    texts = next(titles, b""), _heading(head)
    charset = _CHARSET.search(head[:_CHARSET_WITHIN])
    declared = charset[1].decode("ascii") if charset else ""
    return any(is_not_found(_without_tags(text), declared) for text in texts)


def _heading(head: bytes) -> bytes:
    """Return the first heading with an end nearby; empty without one."""
    # Linear: one search for an end serves all headings before it.
    end = None
    for start in _after(_HEADING, head):
        if end is None or end.start() < start:
            end = _HEADING_END.search(head, start)
            if end is None:
                break
        if end.start() - start <= _WITHIN:
            return head[start : end.start()]
    return b""


def _after(tag: re.Pattern[bytes], head: bytes) -> Iterator[int]:
    """Yield the offset behind each tag of a kind."""
    for match in tag.finditer(head):
        end = head.find(b">", match.end(), match.end() + _WITHIN + 1)
        if end >= 0:
            yield end + 1


def _without_tags(text: bytes) -> bytes:
    """Return *text* with a blank for each tag. A pattern would not be linear."""
    out = []
    while (start := text.find(b"<")) >= 0 and (end := text.find(b">", start)) >= 0:
        out.append(text[:start])
        text = text[end + 1 :]
    return b" ".join([*out, text])
