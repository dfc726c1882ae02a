"""Finds sitemaps that pages link to, by a ``Link`` header or in their heads, where
robots.txt lists none (``REP_SITEMAP_GUESS``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urljoin

from scrapy.http import HtmlResponse, Response

from scrapy_rep.engine.log import BoundedSet
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.html import sitemaps_of
from scrapy_rep.protocol.link_header import targets_of

# At most this many links of a page count. More can only be an attack.
_MAX_SITEMAP_LINKS = 10


class PageLinks:
    """Looks for links to sitemaps in pages of origins whose robots.txt lists none."""

    def __init__(self, add: Callable[[Origin, str, list[str]], None]) -> None:
        """*add* is called with the origin of a page, the page's URL, and the URLs of
        sitemaps to which the page links. A sitemap to which another page of the origin
        has linked is left out (unless very many others have come in between)."""
        self._add_sitemaps = add
        # Origins at whose pages to look (look_at_pages_of()), as text.
        self._origins = BoundedSet()
        # Links that were passed on to *add*, each as the origin's text and the URL.
        self._passed_on = BoundedSet()

    def look_at_pages_of(self, origin: Origin) -> None:
        """Look at pages of *origin* from now on."""
        self._origins.add(str(origin))

    def look_at(self, response: Response) -> None:
        """Look for links in a page, if it is of one of the origins. Never raises."""
        if not 200 <= response.status < 300:
            return
        try:
            origin = Origin.from_url(response.url)
        except ValueError:
            return
        source = str(origin)
        if source not in self._origins:
            return
        new_urls = []
        for url in _linked_sitemaps(response)[:_MAX_SITEMAP_LINKS]:
            is_new = self._passed_on.add((source, url))  # whether it wasn't in there
            if is_new:
                new_urls.append(url)
        if new_urls:
            self._add_sitemaps(origin, response.url, new_urls)


def _linked_sitemaps(response: Response) -> list[str]:
    """Return the URLs of sitemaps that a page links to, those of its headers first."""
    header_values = response.headers.getlist("Link")
    targets = targets_of(header_values, "sitemap")
    urls = _joined(response.url, targets[:_MAX_SITEMAP_LINKS])
    if isinstance(response, HtmlResponse):
        base, references = sitemaps_of(response.body, response.encoding)
        # The page's base element may be relative to the page's URL. If it is no URL at
        # all, the page's URL counts.
        base_urls = _joined(response.url, [base]) or [response.url]
        urls += _joined(base_urls[0], references)
    return urls


def _joined(base: str, references: Iterable[str]) -> list[str]:
    """Return the URLs that *references* in a document at *base* stand for. Leave
    out references that can't be URLs."""
    urls = []
    for reference in references:
        with suppress(ValueError):
            urls.append(urljoin(base, reference))
    return urls
