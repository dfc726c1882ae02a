"""A request's origin and path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy.utils.httpobj import urlparse_cached

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.matching import path_of

if TYPE_CHECKING:
    from scrapy import Request

USUAL = re.compile(r"((?:https?|ftp)://[^/?#;\\@]+)(/[^#]*)")
"""Most URLs: scheme, host and port; path and query. Others (user info, no path, ...) take
:func:`origin_of` and :func:`path_in`."""

# Characters that Scrapy never changes. It escapes an apostrophe in a query and a second "#" in a
# fragment, and drops an empty query or fragment.
_PLAIN = re.compile(r"[!$%&()*+,./0-9:;=?@A-Z_a-z~-]*(?<!\?)")

SCHEME = len("https://")
"""Where to start looking for the slash that begins the path."""

FOREIGN = re.compile(r"(?!https?:|ftp:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""A scheme that the protocol doesn't cover: data:, file:, s3: and the like."""


def _as_handlers_see_it(request: Request) -> str:
    # With the meta key `verbatim_url` (Scrapy 2.18), URLs are as the spider wrote them: with a blank
    # in front, say, which download handlers accept.
    return urlparse_cached(request).geturl()


def as_it_stands(url: str) -> tuple[str, str] | None:
    """Return scheme, host and port of *url*, and its path, if a request wouldn't change it; None if
    only a request can tell, which takes longer."""
    usual = USUAL.match(url) if _PLAIN.fullmatch(url) else None
    return (usual[1], usual[2]) if usual else None


def origin_of(request: Request) -> Origin:
    """Return the origin of the request's URL.

    :raises ValueError: if it has none
    """
    return Origin.from_url(_as_handlers_see_it(request))


def path_in(request: Request) -> str:
    """Return the part of the request's URL that rules match, see :func:`path_of`."""
    return path_of(_as_handlers_see_it(request))
