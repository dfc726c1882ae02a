"""What an answer to the request for robots.txt means (REP.md section 3): 404 allows everything, 503
and 429 are unreachable. What becomes of requests then is for ``origins/policy.py`` to say."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HOPS = 5
"""How many redirects are followed (REP.md section 2)."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

STATUSES = (100, 999)
"""The smallest and the largest number that is a valid HTTP status."""


class Outcome(Enum):
    """What is known of an origin's rules once it has answered, or failed to."""

    RULES = "rules"
    """2xx: the body holds the rules."""
    MISSING = "missing"
    """No file: no restrictions."""
    UNREACHABLE = "unreachable"
    """No answer that counts: temporarily everything is disallowed."""


def outcome_of(status: int, body: bytes = b"", *, soft_404: bool = True) -> Outcome:
    """Return what an answer with HTTP *status* means. A 3xx is one that can't be followed.

    A status outside 100 to 599 counts as 5xx: sites that send 999 don't want to answer.

    :param body: looked at only for a 5xx, see :func:`says_not_found`
    :param soft_404: whether a 5xx whose page says "not found" is a 404
    """
    if 200 <= status < 300:
        return Outcome.RULES
    if 300 <= status < 500 and status != 429:
        return Outcome.MISSING
    if soft_404 and 500 <= status < 600 and says_not_found(body):
        return Outcome.MISSING
    return Outcome.UNREACHABLE


# A title or heading beyond this is not found.
_SEARCHED_BYTES = 65536
# Bytes of a tag, and of an element's content.
_WITHIN = 500

_TITLE = re.compile(rb"<title\b", re.IGNORECASE)
_HEADING = re.compile(rb"<h[1-6]\b", re.IGNORECASE)
_HEADING_END = re.compile(rb"</h[1-6]\s*>", re.IGNORECASE)
_NOT_FOUND = re.compile(rb"\b404\b|\bnot\s+found\b|\bdoes\s+not\s+exist\b", re.IGNORECASE)


def says_not_found(body: bytes) -> bool:
    """Return whether the title or the first heading of an HTML page reads like "404"."""
    head = body[:_SEARCHED_BYTES]
    texts = _title(head), _heading(head)
    return any(_NOT_FOUND.search(_without_tags(text)) for text in texts)


def _title(head: bytes) -> bytes:
    """Return the beginning of the title; empty if there is none."""
    for start in _after(_TITLE, head):
        text = head[start : start + _WITHIN]
        return text.partition(b"<")[0]
    return b""


def _heading(head: bytes) -> bytes:
    """Return the first heading that has an end nearby; empty if there is none."""
    # One search for an end serves all headings before it: linear in a page of headings.
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
    """Return *text* with a blank for each tag. No pattern: it would search for each ``<`` to the end."""
    out = []
    while (start := text.find(b"<")) >= 0 and (end := text.find(b">", start)) >= 0:
        out.append(text[:start])
        text = text[end + 1 :]
    return b" ".join([*out, text])
