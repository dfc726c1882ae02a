"""Product tokens: what is one, and which one a User-Agent header carries (REP.md section 7)."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[a-zA-Z_-]*")

# A product in a User-Agent header: a name, perhaps of several words, and its version.
_PRODUCT = re.compile(r"([a-zA-Z][a-zA-Z_-]*)(?=[/;,\s)]|$)")
_VERSIONED = re.compile(r"([a-zA-Z][a-zA-Z_-]*)/")
_COMMENT = re.compile(r"\(([^()]*)\)")

# What browsers call themselves, and what crawlers repeat to look like one to servers that
# care. None of it is a crawler's own name.
_BROWSER_PRODUCTS = frozenset(
    [
        "mozilla",
        "applewebkit",
        "khtml",
        "gecko",
        "chrome",
        "chromium",
        "headlesschrome",
        "crios",
        "safari",
        "version",
        "mobile",
        "firefox",
        "fxios",
        "edge",
        "edg",
        "edga",
        "edgios",
        "opera",
        "opr",
        "vivaldi",
        "yabrowser",
        "samsungbrowser",
        "ucbrowser",
        "seamonkey",
        "trident",
        "presto",
        "msie",
        "like",
    ]
)

# How crawlers' names end or begin, for headers that hide them in a comment without version.
_CRAWLER_NAME = re.compile(
    r"bot\b|bot[-_]|spider|crawl|scrap|slurp|fetch|archiver|agent|preview|scan|monitor|checker",
    re.IGNORECASE,
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

    A product that stands outside the comments is preferred to one inside; the versions after
    a ``/`` are cut off, and so is what follows a character that no token can hold.
    """
    user_agent = user_agent.strip()
    if is_token(user_agent):
        return user_agent
    comments = _COMMENT.findall(user_agent)
    outside = _COMMENT.sub(" ", user_agent)
    is_browser = leading_token(outside).lower() in _BROWSER_PRODUCTS
    own = [name for name in _names(outside) if name.lower() not in _BROWSER_PRODUCTS]
    if not is_browser:
        # `Scrapy/2.19 (+https://scrapy.org)`: the first product is the sender's own.
        return own[0] if own else None
    # A browser's disguise: the crawler's name stands in a comment, or among the products.
    hidden = [name for comment in comments for name in _comment_names(comment)]
    for name in [*own, *hidden]:
        if _CRAWLER_NAME.search(name):
            return name
    return None


def _names(text: str) -> list[str]:
    return _VERSIONED.findall(text) or _PRODUCT.findall(text)


def _comment_names(comment: str) -> list[str]:
    """Names of a comment's parts. A part that is a URL or an address has none."""
    parts = (part.strip() for part in re.split(r"[;,]", comment))
    return [
        leading_token(part)
        for part in parts
        if part and "://" not in part and "@" not in part and leading_token(part)
    ]
