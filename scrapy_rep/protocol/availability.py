"""What an answer to the request for robots.txt means (REP.md section 3)."""

from __future__ import annotations

import re
from enum import Enum

MAX_HOPS = 5
"""How many redirects are followed (REP.md section 2)."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})


STATUSES = (100, 999)
"""The first and the last HTTP status. An answer with another number is invalid HTTP."""


class Outcome(Enum):
    """What is known of an origin's rules once it has answered, or failed to."""

    RULES = "rules"
    """2xx: the body holds the rules."""
    MISSING = "missing"
    """No file: no restrictions."""
    UNREACHABLE = "unreachable"
    """No answer that counts: temporarily everything is disallowed."""


def outcome_of(status: int, body: bytes = b"", *, soft_404: bool = True) -> Outcome:
    """Return what an answer with HTTP *status* means; hops are the caller's to follow, and a
    3xx that comes here is one that can't be followed.

    A status outside 100 to 599 (some sites invent 999) is read as the sites mean it: as a
    server that doesn't want to answer, like a 5xx.

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


# A title or a heading stands near the start; what is beyond is not searched.
_SEARCHED_BYTES = 65536
_HEADINGS = (
    re.compile(rb"<title\b[^>]{0,500}>([^<]{0,500})", re.IGNORECASE),
    re.compile(rb"<h[1-6]\b[^>]{0,500}>(.{0,500}?)</h[1-6]\s*>", re.IGNORECASE | re.DOTALL),
)
_TAG = re.compile(rb"<[^>]*>")
_NOT_FOUND = re.compile(rb"\b404\b|\bnot\s+found\b|\bdoes\s+not\s+exist\b", re.IGNORECASE)


def says_not_found(body: bytes) -> bool:
    """Return whether the title or the first heading of an HTML page reads like "404"."""
    head = body[:_SEARCHED_BYTES]
    for pattern in _HEADINGS:
        match = pattern.search(head)
        if match and _NOT_FOUND.search(_TAG.sub(b" ", match.group(1))):
            return True
    return False
