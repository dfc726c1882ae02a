"""Page-level rules in a crawl (REP.md section 10): those of a response, which of its requests not
to follow, and the middleware for ``REP_NOFOLLOW`` and ``REP_NOINDEX``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, overload
from urllib.parse import urljoin
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.http import HtmlResponse, Response, XmlResponse
from scrapy.link import Link
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.spiders import SitemapSpider

from scrapy_rep.engine.log import Isolation, Limiter, get_logger
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.origins.agents import (
    AGENT_KEY,
    OF_ALL_CRAWLS,
    Agents,
    chain_in_header,
    origin_of,
)
from scrapy_rep.protocol.html import links_of
from scrapy_rep.protocol.page import PageRules
from scrapy_rep.protocol.syntax import chain
from scrapy_rep.settings import RepSettings, settings_beside
from scrapy_rep.text import Encoder

logger = get_logger(
    f"{__name__}.middleware"
)  # loggers are named after folders: "scrapy_rep.pages"

FOLLOW = "rep_follow"
"""Meta key: follow this request whatever its page says."""

EMBEDDED = "rep_embedded"
"""Meta key: the page is embedded in another one, see ``indexifembedded``."""

# Links of each kind that are resolved.
_MAX_LINKS = 2_000
# Characters of unusual links, and of their base, that are resolved; and what each link counts in
# addition: even a short one takes 40 microseconds.
_MAX_WORK, _LINK = 200_000, 500

# Characters that neither urljoin() nor Scrapy changes, except in paths with empty or dot segments.
_PLAIN = r"[!$%&()*+,./0-9=?@A-Z_a-z~-]*"
_RELATIVE = re.compile(rf"/?(?=[0-9A-Za-z_%~-]){_PLAIN}(?<!\?)")
_ABSOLUTE = re.compile(rf"https?://[a-z0-9.-]+(?::[1-9][0-9]{{0,3}})?/{_PLAIN}(?<!\?)")

_HTML = (b"text/html", b"application/xhtml+xml")

_marked: WeakKeyDictionary[Response, frozenset[str]] = WeakKeyDictionary()
_read: WeakKeyDictionary[Response, dict[tuple[str, ...], PageRules]] = (
    WeakKeyDictionary()
)


def page_rules(
    response: Response, agents: str | Sequence[str] | None = None
) -> PageRules:
    """Return the rules in the ``X-Robots-Tag`` headers and the metas of *response*.

    :param agents: product tokens; None for those of the crawl
    """
    if agents is None:
        agents = chain_behind(response.request)
    chain = (agents,) if isinstance(agents, str) else tuple(agents)
    known = _read.setdefault(response, {})
    if chain not in known:
        rules = PageRules.from_headers(response.headers.getlist("X-Robots-Tag"), chain)
        if is_html(response):
            rules |= PageRules.from_html(response.body, encoding_of(response), chain)
        known[chain] = rules
    return known[chain]


def chain_behind(request: Request | None) -> tuple[str, ...]:
    """Return the chain of a request that was sent. If it may belong to crawls with different
    chains, only what the request itself says counts."""
    if request is None:
        return ()
    found = crawls_behind(request)
    if len({one.usual for one in found}) == 1:
        return found[0].chain_sent(request)
    try:
        return chain(request.meta[AGENT_KEY])
    except (KeyError, ValueError):
        return chain_in_header(request)


def crawls_behind(request: Request) -> list[Agents]:
    """Return the agents of crawls that *request* may belong to: its callback's, else all."""
    spider, crawls = getattr(request.callback, "__self__", None), list(OF_ALL_CRAWLS)
    own = [one for one in crawls if spider is not None and one.crawler.spider is spider]
    return own or [one for one in crawls if one.crawler.crawling] or crawls


def is_html(response: Response) -> bool:
    """Return whether a browser would treat *response* as HTML."""
    if isinstance(response, HtmlResponse):
        return True
    return (
        (response.headers.get("Content-Type") or b"").strip().lower().startswith(_HTML)
    )


def encoding_of(response: Response) -> str:
    """Return the encoding of the markup of *response*. Finding it is slow, and needed only for
    markup that isn't ASCII: with zeros among its first bytes, or escapes."""
    if b"\0" in response.body[:1024] or b"\x1b" in response.body:
        return getattr(response, "encoding", None) or "utf-8"
    return "utf-8"


@overload
def follow_links(links: Iterable[Link]) -> list[Link]: ...
@overload
def follow_links(links: Request, response: Response) -> Request | None: ...
def follow_links(links: Any, response: Response | None = None) -> Any:
    """Drop what a page asks not to follow, in the rules of a ``CrawlSpider``: as ``process_request``
    by all that the page says, as ``process_links`` only by the ``nofollow`` of links."""
    if response is None:
        return [link for link in links if not link.nofollow]
    return (
        None if not is_exempt(links, response) and refusal(links, response) else links
    )


def is_exempt(request: Request, response: Response) -> bool:
    """Return whether *request* may be followed anyway: to the page itself, or by its meta."""
    meta = request.meta
    if meta.get(FOLLOW) or meta.get("dont_obey_robotstxt"):
        return True
    urls = [response.url]  # before redirects, too
    if response.request is not None:
        urls += [response.request.url, *response.request.meta.get("redirect_urls", ())]
    return _without_fragment(request.url) in map(_without_fragment, urls)


def refusal(
    request: Request,
    response: Response,
    chain: Sequence[str] | None = None,
    page: bool = True,
    links: bool = True,
) -> tuple[str, str] | None:
    """Return verdict and reason against *request*, by *page* rules or the ``rel`` of *links*."""
    if page and (rule := page_rules(response, chain).saying("nofollow", "none")):
        return "nofollow", f"{rule.where}: {rule}, of {response.url}"
    if (
        links
        and is_html(response)
        and _without_fragment(request.url) in _marked_links(response)
    ):
        return (
            "nofollow_link",
            f'rel="nofollow", "ugc" or "sponsored", of {response.url}',
        )
    return None


def is_sitemap(response: Response, spider: object) -> bool:
    """Return whether *response* is a sitemap. Many have ``X-Robots-Tag: noindex, nofollow``, which is
    about the file, not its URLs."""
    if isinstance(spider, SitemapSpider):
        return not is_html(response)
    start = response.body[:2048] if isinstance(response, XmlResponse) else b""
    return b"<urlset" in start or b"<sitemapindex" in start


def _marked_links(response: Response) -> frozenset[str]:
    """Return the URLs to which every link is marked nofollow, ugc or sponsored."""
    if response not in _marked:
        encoding = getattr(response, "encoding", None) or "utf-8"
        base, links = links_of(response.body, encoding)
        resolve = _LinkResolver(response.url, base, encoding)
        marked = [link for link, may_follow in links.items() if not may_follow]
        others = [link for link, may_follow in links.items() if may_follow and marked]
        urls, other_urls = (
            set(map(resolve, some[:_MAX_LINKS])) for some in (marked, others)
        )
        _marked[response] = frozenset(urls - other_urls - {""})
    return _marked[response]


class _LinkResolver:
    """Resolves the links of a page to URLs of requests; to "" if invalid or beyond the limits. A
    usual link takes a microsecond."""

    def __init__(self, url: str, base: str, encoding: str) -> None:
        self._encode = Encoder()
        self._encoding = encoding
        self._work = 0
        self._base = self._root = self._folder = ""
        with suppress(ValueError):  # else only absolute links can be resolved
            base = self._encode(urljoin(url, base), encoding)
            self._root, self._folder = (
                urljoin(base, path)[:-1] for path in ("/x", "x")
            )
            self._base = base

    def __call__(self, reference: str) -> str:
        url = _without_fragment(reference)
        if "/." not in url and _RELATIVE.fullmatch(url) and "//" not in url:
            return self._root + url[1:] if url[0] == "/" else self._folder + url
        if _ABSOLUTE.fullmatch(url):
            return url
        self._work += _LINK + len(self._base) + 3 * len(reference)
        if self._work > _MAX_WORK:
            return ""
        try:
            return _without_fragment(
                self._encode(urljoin(self._base, reference), self._encoding)
            )
        except ValueError:
            return ""


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]


class PageMiddleware(BaseSpiderMiddleware):
    """Spider middleware: drops requests and items that their page doesn't want followed or kept."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        super().__init__(crawler)
        self._page = settings.nofollow in ("page", "count", True)
        self._links = settings.nofollow in ("links", "count", True)
        self._items = bool(settings.noindex)
        self._drops_requests = settings.nofollow != "count" and not settings.dry_run
        self._drops_items = settings.noindex != "count" and not settings.dry_run
        self._isolated = Isolation(crawler)
        self._tell = Limiter(logger, "origins with pages that are not followed or kept")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> PageMiddleware:
        """:raises NotConfigured: if both settings are off"""
        settings = settings_beside(crawler)
        if not settings.nofollow and not settings.noindex:
            raise NotConfigured
        return cls(crawler, settings)

    def get_processed_request(
        self, request: Request, response: Response | None
    ) -> Request | None:
        obeyed = False
        if response and (page := response.request) and (self._page or self._links):
            with self._isolated("check of links (REP_NOFOLLOW)"):
                rep = self.crawler.get_downloader_middleware(RepMiddleware)
                exempt = is_exempt(request, response) or is_sitemap(
                    response, self.crawler.spider
                )
                if rep and not exempt:
                    chain, what = rep.agents.chain_sent(page), (self._page, self._links)
                    if found := refusal(request, response, chain, *what):
                        obeyed = self._drops_requests
                        self._say(rep, request, *found, obeyed=obeyed)
        return None if obeyed else request

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        obeyed = False
        if response and (page := response.request) and self._items:
            with self._isolated("check of items (REP_NOINDEX)"):
                rep = self.crawler.get_downloader_middleware(RepMiddleware)
                if rep and (found := self._unwanted(rep, response, page)):
                    obeyed = self._drops_items
                    self._say(rep, page, *found, obeyed=obeyed)
        return None if obeyed else item

    def _unwanted(
        self, rep: RepMiddleware, response: Response, request: Request
    ) -> tuple[str, str] | None:
        """Return verdict and reason if items of *response* should not be kept."""
        if request.meta.get("dont_obey_robotstxt"):
            return None
        rules = page_rules(response, rep.agents.chain_sent(request))
        if rules.indexifembedded and request.meta.get(EMBEDDED):
            return None
        verdict, rule = "noindex", rules.saying("noindex", "none")
        if rule is None and rules.expired(rep.clock()):
            date = rules.unavailable_after
            verdict, rule = (
                "expired",
                next(one for one in rules.rules if one.value == date),
            )
        return None if rule is None else (verdict, f"{rule.where}: {rule}")

    def _say(
        self,
        rep: RepMiddleware,
        request: Request,
        verdict: str,
        reason: str,
        *,
        obeyed: bool,
    ) -> None:
        origin = None
        with suppress(ValueError):  # a scheme without robots.txt
            origin = origin_of(request)
        rep.context.stats.inc_value(f"rep/page/{verdict}")
        if obeyed:
            rep.context.stats.inc_value("rep/page/dropped")
        rep.decisions.record(
            request, origin, verdict, reason=reason, dry_run=not obeyed
        )
        what = "item from" if verdict in ("noindex", "expired") else "request to"
        message = f"{'Dropping' if obeyed else 'Would drop'} {what} %(url)s: %(reason)s"
        values = {"url": request.url, "reason": reason}
        self._tell.log(message, values, self.crawler.spider, (origin, verdict))
