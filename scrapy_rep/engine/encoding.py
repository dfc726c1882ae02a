"""URLs percent-encoded as in Scrapy's requests. Needs w3lib, not Scrapy."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from w3lib.url import safe_url_string

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.origin import MAX_HOST

MAX_SITEMAP_URL = 2048
"""Characters: what sitemaps.org allows."""

# What any parser may take for the host: some allow backslashes, or any number of slashes.
_HOST = re.compile(r"[\0-\x20]*(?:[a-z][a-z0-9+.-]*:)?[/\\]*([^/\\?#]*)", re.IGNORECASE)
_DROPPED = dict.fromkeys(map(ord, "\t\r\n"))


def encoded(url: str | bytes) -> str:
    """Return *url* as in a request: percent-encoded, its host in punycode.

    :raises ValueError: if it is no URL, or its host is too long: encoding that could take a second
    """
    if not url.isascii():
        text = url if isinstance(url, str) else url.decode("utf-8", "replace")
        host = _HOST.match(text.translate(_DROPPED))
        if host is not None and len(host[1].rpartition("@")[2]) > MAX_HOST:
            raise ValueError("no valid host: it is too long")
    return safe_url_string(url)


class SitemapURL(NamedTuple):
    """A sitemap's address."""

    url: str
    """Absolute and percent-encoded."""
    origin: Origin
    relative: bool
    """Whether it was listed as a relative URL, which the protocol doesn't allow."""


def resolve_sitemap(value: str, base: str | None = None) -> SitemapURL:
    """Return the address of a sitemap that a file lists as *value* (REP.md section 9).

    A scheme without a host (``http:map.xml``, ``http:/a.example/map.xml``) is refused, although
    RFC 3986 lets a lenient parser take it for a relative URL.

    :param base: the URL of the robots.txt; None if *value* must not be relative
    :raises ValueError: if a sitemap can't have such a URL; says why
    """
    try:
        if len(value) > MAX_SITEMAP_URL:
            raise ValueError
        relative = base is not None and _is_relative(value)
        url = encoded(urljoin(base or "", value) if relative else value)
        origin = Origin.from_url(url)
    except ValueError:
        raise ValueError("not a URL that a sitemap can have") from None
    if origin.scheme not in ("http", "https"):
        raise ValueError("only http and https URLs can be sitemaps")
    return SitemapURL(url, origin, relative)


def _is_relative(url: str) -> bool:
    try:
        return not urlsplit(url).scheme
    except ValueError:  # a bracket after a backslash, say, which Scrapy turns into a slash
        return False
