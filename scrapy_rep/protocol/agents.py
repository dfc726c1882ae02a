"""Product tokens: what is one, and which one a User-Agent header carries (REP.md section 7)."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[a-zA-Z_-]*")

_COMMENT = re.compile(r"\(([^()]*)\)")

# What browsers call themselves, and what crawlers repeat to look like one to servers that
# care. None of it is a crawler's own name.
# fmt: off
_BROWSER_WORDS = frozenset(
    {
        "mozilla", "applewebkit", "khtml", "gecko", "chrome", "chromium", "headlesschrome",
        "crios", "safari", "version", "mobile", "firefox", "fxios", "edge", "edg", "edga",
        "edgios", "opera", "opr", "vivaldi", "yabrowser", "samsungbrowser", "ucbrowser",
        "seamonkey", "trident", "presto", "msie", "like", "compatible", "build",
    }
)
# fmt: on

# How crawlers' names end or begin: for those that give neither version nor address.
_CRAWLER_NAME = re.compile(
    r"bot\b|bot[-_]|spider|crawl|scrap|slurp|fetch|archiver|preview|checker", re.IGNORECASE
)


def leading_token(value: str) -> str:
    """Return *value* up to the first character that is not a letter, ``-`` or ``_``."""
    match = _TOKEN.match(value)
    return match.group() if match else ""


def is_token(value: str) -> bool:
    """Return whether *value* is a product token that a group can name: letters, ``-`` and ``_``
    alone, at least one of them."""
    return bool(value) and leading_token(value) == value


def product_token(user_agent: str) -> str | None:
    """Return the crawler's own token from a full User-Agent header, None where none can be told.

    ``Mozilla/5.0 (compatible; FooBot/1.2; +https://…)`` is ``FooBot``: names that browsers give
    themselves do not count. A header that is nothing but a token is that token.

    A header that begins with another name is that name. In a browser's disguise a crawler gives
    itself away by how its name sounds, or by a version beside an address to complain to.
    """
    user_agent = user_agent.strip()
    first = leading_token(user_agent)
    if first and first.lower() not in _BROWSER_WORDS:
        return first
    outside = _COMMENT.sub(" ", user_agent)
    for word in outside.split():
        if _CRAWLER_NAME.search(_own_name(word)):
            return _own_name(word)
    for comment in _COMMENT.findall(user_agent):
        has_address = "://" in comment or "@" in comment
        for part in re.split(r"[;,]", comment):
            word = part.strip().partition(" ")[0]
            name = _own_name(word)
            if name and (_CRAWLER_NAME.search(name) or (has_address and "/" in word)):
                return name
    return None


def _own_name(word: str) -> str:
    """The token that *word* begins with; empty for an address and for a browser's words."""
    name = leading_token(word)
    if "://" in word or "@" in word or name.lower() in _BROWSER_WORDS:
        return ""
    return name
