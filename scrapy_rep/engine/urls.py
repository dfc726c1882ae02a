"""URLs as requests have them; a request's origin and path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from scrapy.utils.httpobj import urlparse_cached
from w3lib.url import safe_url_string

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.matching import path_of
from scrapy_rep.protocol.origin import MAX_HOST

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

# What may be the host of a URL, to whichever parser: some take backslashes, or any number of slashes.
_HOST = re.compile(r"[\0-\x20]*(?:[a-z][a-z0-9+.-]*:)?[/\\]*([^/\\?#]*)", re.IGNORECASE)
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))


def encoded(url: str | bytes) -> str:
    """Return *url* as a request for it would have it: percent-encoded, its host in punycode.

    :raises ValueError: if it is no URL, or its host is longer than any: to encode that could take a
        second
    """
    if not url.isascii():
        text = url if isinstance(url, str) else url.decode("utf-8", "replace")
        host = _HOST.match(text.translate(_DROPPED))
        if host is not None and len(host[1].rpartition("@")[2]) > MAX_HOST:
            raise ValueError("no valid host: it is too long")
    return safe_url_string(url)


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
