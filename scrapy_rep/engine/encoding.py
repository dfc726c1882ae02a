"""URLs percent-encoded as in Scrapy's requests. Needs w3lib, not Scrapy."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from w3lib.url import safe_url_string

from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.origin import MAX_HOST

MAX_URL = 8192
"""Characters of a page's URL. The protocol's limit is 2,048; no server takes more than this."""

MAX_SITEMAP_URL = 2048
"""Characters: what sitemaps.org allows."""

# What any parser may take for the host: some allow backslashes, or any number of slashes.
_HOST = re.compile(r"[\0-\x20]*(?:[a-z][a-z0-9+.-]*:)?[/\\]*([^/\\?#]*)", re.IGNORECASE)
# A fast path for pages. Longer hosts and ports are left to Origin.
_USUAL = re.compile(r"(https?://[a-z0-9.-]{1,255}(?::[0-9]{1,4})?)(?:/[!$-~]*)?", re.ASCII)
_BEFORE_PATH = re.compile(r"https?://[^/\\?#]*", re.IGNORECASE)
_MAX_IDN_HOSTS = 1000
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


class PageURLs:
    """Resolves what one sitemap lists. Encoding a host that isn't ASCII takes up to a
    millisecond, so each is encoded once, and only so many are."""

    def __init__(self) -> None:
        self._hosts: dict[str, str | None] = {}

    def resolve(self, value: Any) -> tuple[str, str]:
        """Return the URL of a `loc`, and its prefix: scheme, host and port.

        :raises ValueError: if it is not an absolute http(s) URL
        """
        if not isinstance(value, str) or not 0 < len(value) <= MAX_URL:
            raise ValueError
        if usual := _USUAL.fullmatch(value):
            return value, usual[1]
        url = encoded(self.with_ascii_host(value.strip())).partition("#")[0]
        origin = Origin.from_url(url)
        if origin.scheme not in ("http", "https"):
            raise ValueError
        return url, str(origin)

    def with_ascii_host(self, url: str) -> str:
        """Return *url* with its host in punycode.

        :raises ValueError: if that is no host, or there are too many
        """
        found = None if url.isascii() else _BEFORE_PATH.match(url)
        if found is None or found[0].isascii():
            return url
        return self._encoded(found[0]) + url[found.end() :]

    def _encoded(self, start: str) -> str:
        if start not in self._hosts:
            if len(self._hosts) >= _MAX_IDN_HOSTS:
                raise ValueError(f"more than {_MAX_IDN_HOSTS} hosts that are not ASCII")
            self._hosts[start] = None
            ascii_start = encoded(start)
            Origin.from_url(ascii_start)
            self._hosts[start] = ascii_start
        if (found := self._hosts[start]) is None:
            raise ValueError
        return found


def _is_relative(url: str) -> bool:
    try:
        return not urlsplit(url).scheme
    except ValueError:  # a bracket after a backslash, say, which Scrapy turns into a slash
        return False
