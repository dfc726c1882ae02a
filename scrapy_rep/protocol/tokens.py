"""Product tokens, and the one that a User-Agent header names (REP.md section 7)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    r"bot\b|bot[-_]|spider|crawl|scrap|slurp|fetch|archiver|preview|checker", re.IGNORECASE
)


def leading_token(value: str) -> str:
    """Return *value* up to the first character that is not a letter, ``-`` or ``_``."""
    return _TOKEN.match(value)[0]  # type: ignore[index]  # it matches anything


def is_token(value: str) -> bool:
    """Return whether *value* is a product token: only letters, ``-`` and ``_``."""
    return bool(value) and leading_token(value) == value


def is_name(value: str) -> bool:
    """Return whether a crawler may go by *value*: a product token, or one with digits, which counts up
    to the first of them, as in Google's matcher."""
    return _NAME.fullmatch(value) is not None


def checked_chain(agent: str | Sequence[str]) -> Sequence[str]:
    """Return the tokens of *agent*. They may include ``*`` and an empty one, which name no crawler.

    :raises ValueError: if one is no product token; the message suggests one
    :raises TypeError: if one is no string
    """
    chain = (agent,) if isinstance(agent, str) else agent
    for token in chain:
        if not isinstance(token, str):
            raise TypeError(f"a product token is a str, not {type(token).__name__}")
        if token not in ("", GLOBAL) and not is_name(token):
            shown = token[:200]
            meant = product_token(shown)
            hint = f"; product_token() finds {meant!r} in it" if meant else ""
            raise ValueError(f"{shown!r} is not a product token (letters, '-' and '_' only){hint}")
    return chain


@lru_cache(maxsize=100)  # a crawl asks each file about the same agents
def obeyed(agent: str | tuple[str, ...], obey_global: bool) -> tuple[str, ...]:
    """Return the tokens whose groups *agent* obeys, of which the first one with a group counts. Raises
    what :func:`checked_chain` does."""
    named = filter(None, map(leading_token, checked_chain(agent)))
    return (*named, GLOBAL) if obey_global else tuple(named)


def product_token(user_agent: str) -> str | None:
    """Return the crawler's own token from a full User-Agent header, None if there is none.

    ``Mozilla/5.0 (compatible; FooBot/1.2; +https://…)`` is ``FooBot``. In a header that begins like a
    browser's, this is a name with "bot", "spider" or so, or with a version beside an address.
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
    """Return the token that *word* starts with; empty for addresses and browsers' words."""
    name = leading_token(word)
    if "://" in word or "@" in word or name.lower() in _BROWSER_WORDS:
        return ""
    return name
