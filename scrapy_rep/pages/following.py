"""Which requests of a page are not to be followed: by the page's rules, or by the link's ``rel``."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, overload
from urllib.parse import urljoin
from weakref import WeakKeyDictionary

from scrapy.http import XmlResponse
from scrapy.spiders import SitemapSpider
from w3lib.url import safe_url_string

from scrapy_rep.pages.rules import is_html, page_rules
from scrapy_rep.protocol.page import links_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.link import Link

FOLLOW = "rep_follow"
"""In a request's meta: it is followed whatever the page says."""

NOFOLLOW, NOFOLLOW_LINK = "nofollow", "nofollow_link"
"""Verdicts."""

# Of each kind that are made URLs of: some microseconds each.
_MAX_LINKS = 2_000

_marked: WeakKeyDictionary[Response, frozenset[str]] = WeakKeyDictionary()


@overload
def follow_links(links: Iterable[Link]) -> list[Link]: ...
@overload
def follow_links(links: Request, response: Response) -> Request | None: ...
def follow_links(
    links: Iterable[Link] | Request, response: Response | None = None
) -> list[Link] | Request | None:
    """Leave out what a page asks not to follow, for the rules of a ``CrawlSpider``.

    As ``process_request``: whatever the page's rules, or ``rel`` of all links to that URL, say. As
    ``process_links``, which sees no page and of ``rel`` no more than ``nofollow``: that.
    """
    if response is not None:
        request: Request = links  # type: ignore[assignment]
        return request if is_exempt(request, response) or not refusal(request, response) else None
    links = list(links)  # type: ignore[arg-type]
    followed = {link.url for link in links if not link.nofollow}
    return [link for link in links if link.url in followed]


def is_exempt(request: Request, response: Response) -> bool:
    """Whether *request* is no link of the page, or is to be followed in any case."""
    meta = request.meta
    if meta.get(FOLLOW) or meta.get("dont_obey_robotstxt"):
        return True
    return _without_fragment(request.url) in map(_without_fragment, _urls_of(response))


def refusal(
    request: Request,
    response: Response,
    chain: Sequence[str] | None = None,
    *,
    page: bool = True,
    links: bool = True,
) -> tuple[str, str] | None:
    """Return verdict and reason if *request* is not to be followed.

    :param page: whether the page's rules count
    :param links: whether ``rel`` counts
    """
    if page and (rule := page_rules(response, chain).saying("nofollow", "none")):
        return NOFOLLOW, f"{rule.where}: {rule}, of {response.url}"
    if links and is_html(response) and _without_fragment(request.url) in _marked_links(response):
        return NOFOLLOW_LINK, f'rel="nofollow", "ugc" or "sponsored", of {response.url}'
    return None


def is_sitemap(response: Response, spider: object) -> bool:
    """Whether what *response* lists are pages of a sitemap, not links: many are served with
    ``X-Robots-Tag: noindex, nofollow``, which is about the file."""
    if isinstance(spider, SitemapSpider):
        return not is_html(response)
    start = response.body[:2048] if isinstance(response, XmlResponse) else b""
    return b"<urlset" in start or b"<sitemapindex" in start


def _urls_of(response: Response) -> list[str]:
    """Return all URLs by which the page was asked for."""
    request = response.request
    if request is None:
        return [response.url]
    return [response.url, request.url, *request.meta.get("redirect_urls", ())]


def _marked_links(response: Response) -> frozenset[str]:
    """Return the URLs that the page links, but always marked as not vouched for."""
    found = _marked.get(response)
    if found is None:
        encoding = getattr(response, "encoding", None) or "utf-8"
        links = links_of(response.body, encoding)
        base = urljoin(response.url, links.base)
        urls = [
            {_absolute(base, one, encoding) for one in islice(references, _MAX_LINKS)}
            for references in ((links.nofollow, links.follow) if links.nofollow else ((), ()))
        ]
        found = _marked[response] = frozenset(urls[0] - urls[1])
    return found


def _absolute(base: str, reference: str, encoding: str) -> str:
    """Return the URL that a request for *reference* has; nonsense for what is no URL."""
    try:
        return _without_fragment(safe_url_string(urljoin(base, reference), encoding))
    except ValueError:
        return ""


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]
