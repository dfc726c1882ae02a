"""URLs as requests have them; a request's origin and path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy.utils.httpobj import urlparse_cached

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.matching import path_of

if TYPE_CHECKING:
    from scrapy import Request

USUAL = re.compile(r"((?:https?|ftp)://[^/?#;\\@]+)(/[^#]*)")
"""Scheme, host and port, and path with query, of the URLs that nearly all requests have. The others
(user info, no path, ...) are for :func:`origin_of` and :func:`path_in`."""

# Characters that Scrapy leaves as they are, wherever they stand. An apostrophe it escapes in a query,
# a second "#" in a fragment, and an empty query or fragment it drops.
_PLAIN = re.compile(r"[!$%&()*+,./0-9:;=?@A-Z_a-z~-]*(?<!\?)")

SCHEME = len("https://")
"""Where to look for the slash that a path begins with: behind the longest scheme, or in the host
behind a shorter one."""

FOREIGN = re.compile(r"(?!https?:|ftp:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""A scheme that the protocol does not cover: data:, file:, s3: and the like."""


def _as_handlers_see_it(request: Request) -> str:
    # With the meta key `verbatim_url` (Scrapy 2.18) a request has its URL as the spider wrote it:
    # with a blank in front, say, which download handlers don't mind.
    return urlparse_cached(request).geturl()


def as_it_stands(url: str) -> tuple[str, str] | None:
    """Return how *url* begins (scheme, host, port) and its path, if it is a usual one and the same
    as a request's; None: make a request of it to see, which takes ten times as long."""
    usual = USUAL.match(url) if _PLAIN.fullmatch(url) else None
    return (usual[1], usual[2]) if usual else None


def origin_of(request: Request) -> Origin:
    """Return the origin of the request's URL.

    :raises ValueError: if it has none
    """
    return Origin.from_url(_as_handlers_see_it(request))


def path_in(request: Request) -> str:
    """Return what of the request's URL is compared with rules, see :func:`path_of`."""
    return path_of(_as_handlers_see_it(request))
