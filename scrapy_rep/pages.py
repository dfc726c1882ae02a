"""Applies page-level rules in a crawl (REP.md section 10): finds those of a response,
tells which of its requests not to follow, and has the middleware for ``REP_NOFOLLOW``
and ``REP_NOINDEX``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, overload
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
from scrapy_rep.protocol.syntax import chain as read_chain
from scrapy_rep.settings import RepSettings, settings_beside
from scrapy_rep.text import Encoder

# get_logger() names loggers after folders, so this logger is "scrapy_rep.pages".
logger = get_logger(f"{__name__}.middleware")

FOLLOW = "rep_follow"
"""Meta key: follow this request whatever its page says."""

EMBEDDED = "rep_embedded"
"""Meta key: the page is embedded in another one, see ``indexifembedded``."""

# At most this many links that may be followed are resolved in a page, and as many links
# that may not be followed.
_MAX_LINKS = 2_000
# Links that match neither _RELATIVE nor _ABSOLUTE are unusual. The work of resolving
# the unusual links of a page is counted in characters (of the links and of the page's
# base), and ends at this many.
_MAX_WORK = 200_000
# Each unusual link counts as this many characters more, since even a short one takes 40
# microseconds.
_WORK_OF_A_LINK = 500

# Characters that neither urljoin() nor Scrapy changes, except in paths with empty or
# dot segments.
_PLAIN_CHARACTERS = r"[!$%&()*+,./0-9=?@A-Z_a-z~-]*"
# Usual links, which need no urljoin(): relative ones, and absolute ones.
_RELATIVE = re.compile(rf"/?(?=[0-9A-Za-z_%~-]){_PLAIN_CHARACTERS}(?<!\?)")
_ABSOLUTE = re.compile(
    rf"https?://[a-z0-9.-]+(?::[1-9][0-9]{{0,3}})?/{_PLAIN_CHARACTERS}(?<!\?)"
)

# Media types of pages that browsers treat as HTML.
_HTML_TYPES = (b"text/html", b"application/xhtml+xml")

# What _marked_links() has found in each response, as long as the project keeps the
# response.
_marked_links_known: WeakKeyDictionary[Response, frozenset[str]] = WeakKeyDictionary()
# What page_rules() has found in each response, by the crawler's product tokens.
_rules_known: WeakKeyDictionary[Response, dict[tuple[str, ...], PageRules]] = (
    WeakKeyDictionary()
)


class Refusal(NamedTuple):
    """Why a page's rules don't want a request or an item."""

    verdict: str
    """As in stats and in the record of decisions: ``nofollow``, ``nofollow_link``,
    ``noindex`` or ``expired``."""
    reason: str


def page_rules(
    response: Response, agents: str | Sequence[str] | None = None
) -> PageRules:
    """Return the rules in the ``X-Robots-Tag`` headers and the metas of *response*.

    :param agents: the crawler's product tokens; None for those of the crawl behind
        *response*
    """
    if agents is None:
        agents = chain_behind(response.request)
    tokens = (agents,) if isinstance(agents, str) else tuple(agents)
    rules_by_tokens = _rules_known.setdefault(response, {})
    if tokens not in rules_by_tokens:
        headers = response.headers.getlist("X-Robots-Tag")
        rules = PageRules.from_headers(headers, tokens)
        if is_html(response):
            rules |= PageRules.from_html(response.body, encoding_of(response), tokens)
        rules_by_tokens[tokens] = rules
    return rules_by_tokens[tokens]


def chain_behind(request: Request | None) -> tuple[str, ...]:
    """Return the chain of product tokens (origins/agents.py) of a request that was
    sent; empty for None. If the request may belong to crawls with different chains,
    only what the request itself says counts."""
    if request is None:
        return ()
    crawls = crawls_behind(request)
    usual_chains = {agents.usual for agents in crawls}
    if len(usual_chains) == 1:
        return crawls[0].chain_sent(request)
    # Under AGENT_KEY (origins/agents.py) a request may name its agent. If it doesn't,
    # its User-Agent header does.
    try:
        return read_chain(request.meta[AGENT_KEY])
    except (KeyError, ValueError):
        return chain_in_header(request)


def crawls_behind(request: Request) -> list[Agents]:
    """Return the Agents (origins/agents.py) of the crawls that *request* may belong to:
    of the crawl whose spider has the request's callback; else of all crawls that are
    under way; if none is, of all crawls in this process."""
    crawls = list(OF_ALL_CRAWLS)
    spider = getattr(request.callback, "__self__", None)
    if spider is not None:
        own = [agents for agents in crawls if agents.crawler.spider is spider]
        if own:
            return own
    under_way = [agents for agents in crawls if agents.crawler.crawling]
    return under_way or crawls


def is_html(response: Response) -> bool:
    """Return whether a browser would treat *response* as HTML."""
    if isinstance(response, HtmlResponse):
        return True
    content_type = response.headers.get("Content-Type") or b""
    return content_type.strip().lower().startswith(_HTML_TYPES)


def encoding_of(response: Response) -> str:
    """Return the encoding in which the tags of *response* are read. Scrapy is slow to
    find a response's encoding, and tags that are ASCII don't need it. So Scrapy is
    asked only about pages that may be in UTF-16 (zeros among the first bytes) or in
    ISO-2022 (escape characters)."""
    start = response.body[:1024]
    if b"\0" in start or b"\x1b" in response.body:
        return getattr(response, "encoding", None) or "utf-8"
    return "utf-8"


@overload
def follow_links(links: Iterable[Link]) -> list[Link]: ...
@overload
def follow_links(links: Request, response: Response) -> Request | None: ...
def follow_links(links: Any, response: Response | None = None) -> Any:
    """Drop what a page asks not to follow, for the rules of a ``CrawlSpider``. As
    ``process_request``, this obeys all that the page says; as ``process_links``, only
    the ``nofollow`` of links."""
    if response is None:
        return [link for link in links if not link.nofollow]
    # As process_request, *links* is one request.
    request = links
    if is_exempt(request, response):
        return request
    is_refused = refusal(request, response) is not None
    return None if is_refused else request


def is_exempt(request: Request, response: Response) -> bool:
    """Return whether *request* may be followed whatever the page, *response*, says:
    because the request is for the page itself, or because the request's meta says
    so."""
    meta = request.meta
    if meta.get(FOLLOW) or meta.get("dont_obey_robotstxt"):
        return True
    own_urls = [response.url]
    sent_request = response.request
    if sent_request is not None:
        # The URLs that redirected to the page stand for the page itself, too.
        before_redirects = sent_request.meta.get("redirect_urls", ())
        own_urls = [response.url, sent_request.url, *before_redirects]
    return _without_fragment(request.url) in map(_without_fragment, own_urls)


def refusal(
    request: Request,
    response: Response,
    chain: Sequence[str] | None = None,
    by_page: bool = True,
    by_links: bool = True,
) -> Refusal | None:
    """Return why *request*, which was found in *response*, should not be made; None if
    nothing forbids it.

    :param chain: the crawler's product tokens; None for those of the crawl behind
        *response*
    :param by_page: whether the rules of the whole page count
    :param by_links: whether the ``rel`` of the page's links to the URL counts
    """
    if by_page:
        rule = page_rules(response, chain).saying("nofollow", "none")
        if rule is not None:
            reason = f"{rule.where}: {rule}, of {response.url}"
            return Refusal("nofollow", reason)
    if not by_links or not is_html(response):
        return None
    if _without_fragment(request.url) not in _marked_links(response):
        return None
    reason = f'rel="nofollow", "ugc" or "sponsored", of {response.url}'
    return Refusal("nofollow_link", reason)


def is_sitemap(response: Response, spider: object) -> bool:
    """Return whether *response* is a sitemap. Many sitemaps have ``X-Robots-Tag:
    noindex, nofollow``, which is about the file, not its URLs."""
    if isinstance(spider, SitemapSpider):
        return not is_html(response)
    if not isinstance(response, XmlResponse):
        return False
    # Little stands before the root element: a declaration, comments.
    start = response.body[:2048]
    return b"<urlset" in start or b"<sitemapindex" in start


def _marked_links(response: Response) -> frozenset[str]:
    """Return the URLs to which every link is marked nofollow, ugc or sponsored."""
    if response not in _marked_links_known:
        _marked_links_known[response] = _find_marked_links(response)
    return _marked_links_known[response]


def _find_marked_links(response: Response) -> frozenset[str]:
    """Find in the page what :func:`_marked_links` returns."""
    encoding = getattr(response, "encoding", None) or "utf-8"
    base, references = links_of(response.body, encoding)
    marked: list[str] = []
    unmarked: list[str] = []
    for reference, may_follow in references.items():
        if may_follow:
            unmarked.append(reference)
        else:
            marked.append(reference)
    if not marked:
        return frozenset()
    resolve = _LinkResolver(response.url, base, encoding)
    marked_urls = set(map(resolve, marked[:_MAX_LINKS]))
    unmarked_urls = set(map(resolve, unmarked[:_MAX_LINKS]))
    # The empty string stands for links that couldn't be resolved.
    return frozenset(marked_urls - unmarked_urls - {""})


class _LinkResolver:
    """Resolves the links of a page to URLs of requests; invalid ones, and those beyond
    the limits, to "". A usual link takes a microsecond."""

    def __init__(self, url: str, base: str, encoding: str) -> None:
        """*url*: the page's. *base*: the reference in the page's base element; empty if
        the page has none. *encoding*: the page's, in which queries are encoded."""
        self._encode = Encoder()
        self._encoding = encoding
        self._work = 0
        # The URL to which relative links refer. If it isn't valid, _base, _root and
        # _folder are empty, and only absolute links can be resolved.
        self._base = ""
        # What a usual link that begins with "/" has to be appended to.
        self._root = ""
        # What any other usual relative link has to be appended to.
        self._folder = ""
        with suppress(ValueError):
            base_url = self._encode(urljoin(url, base), encoding)
            self._root = urljoin(base_url, "/x").removesuffix("x")
            self._folder = urljoin(base_url, "x").removesuffix("x")
            self._base = base_url

    def __call__(self, reference: str) -> str:
        """Return the URL that *reference*, the text of a link, stands for."""
        url = _without_fragment(reference)
        has_odd_segments = "/." in url or "//" in url
        if not has_odd_segments and _RELATIVE.fullmatch(url):
            if url[0] == "/":
                return self._root + url[1:]
            return self._folder + url
        if _ABSOLUTE.fullmatch(url):
            return url
        # The link is unusual. It is joined with the base, encoded and searched for a
        # fragment, so it counts three times.
        self._work += _WORK_OF_A_LINK
        self._work += len(self._base) + 3 * len(reference)
        if self._work > _MAX_WORK:
            return ""
        try:
            absolute = urljoin(self._base, reference)
            return _without_fragment(self._encode(absolute, self._encoding))
        except ValueError:
            return ""


def _without_fragment(url: str) -> str:
    return url.partition("#")[0]


class PageMiddleware(BaseSpiderMiddleware):
    """Spider middleware: drops requests and items that their page doesn't want followed
    or kept."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        super().__init__(crawler)
        # Whether rules against following are looked at: rules of whole pages, and rules
        # of single links. For REP_NOFOLLOW, "count" and True mean both kinds.
        self._by_page = settings.nofollow in ("page", "count", True)
        self._by_links = settings.nofollow in ("links", "count", True)
        self._has_noindex = bool(settings.noindex)
        # Whether what the rules don't want is dropped, or only counted.
        in_earnest = not settings.dry_run
        self._drops_requests = in_earnest and settings.nofollow != "count"
        self._drops_items = in_earnest and settings.noindex != "count"
        # In a context of this, an error is logged, and the request or item passes.
        self._isolated = Isolation(crawler)
        self._log = Limiter(logger, "origins with pages that are not followed or kept")

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
        is_dropped = False
        # The request for the page in which *request* was found; None for a start
        # request.
        page_request = response.request if response else None
        if response and page_request and (self._by_page or self._by_links):
            with self._isolated("check of links (REP_NOFOLLOW)"):
                rep = self.crawler.get_downloader_middleware(RepMiddleware)
                refused = self._request_refusal(rep, request, response, page_request)
                if rep and refused:
                    # is_dropped is set before the report, so that *request* is dropped
                    # even if reporting fails.
                    is_dropped = self._drops_requests
                    self._report(rep, request, refused, is_dropped=is_dropped)
        return None if is_dropped else request

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        is_dropped = False
        # The request for the page that the item is from.
        page_request = response.request if response else None
        if response and page_request and self._has_noindex:
            with self._isolated("check of items (REP_NOINDEX)"):
                rep = self.crawler.get_downloader_middleware(RepMiddleware)
                refused = self._item_refusal(rep, response, page_request)
                if rep and refused:
                    # is_dropped is set before the report, so that *item* is dropped
                    # even if reporting fails.
                    is_dropped = self._drops_items
                    self._report(rep, page_request, refused, is_dropped=is_dropped)
        return None if is_dropped else item

    def _request_refusal(
        self,
        rep: RepMiddleware | None,
        request: Request,
        response: Response,
        page_request: Request,
    ) -> Refusal | None:
        """Return why *request*, from *response* to *page_request*, should not be made.
        *rep*: None if the crawl has no RepMiddleware; then nothing is refused."""
        if rep is None or is_exempt(request, response):
            return None
        if is_sitemap(response, self.crawler.spider):
            return None
        chain = rep.agents.chain_sent(page_request)
        return refusal(request, response, chain, self._by_page, self._by_links)

    def _item_refusal(
        self, rep: RepMiddleware | None, response: Response, page_request: Request
    ) -> Refusal | None:
        """Return why items of *response* to *page_request* should not be kept. *rep*:
        as in :meth:`_request_refusal`."""
        if rep is None or page_request.meta.get("dont_obey_robotstxt"):
            return None
        rules = page_rules(response, rep.agents.chain_sent(page_request))
        if rules.indexifembedded and page_request.meta.get(EMBEDDED):
            return None
        rule = rules.saying("noindex", "none")
        if rule is not None:
            return Refusal("noindex", f"{rule.where}: {rule}")
        if not rules.expired(rep.clock()):
            return None
        # The page has expired. Of its dates, the earliest counts.
        earliest_date = rules.unavailable_after
        rule = next(rule for rule in rules.rules if rule.value == earliest_date)
        return Refusal("expired", f"{rule.where}: {rule}")

    def _report(
        self,
        rep: RepMiddleware,
        request: Request,
        refused: Refusal,
        *,
        is_dropped: bool,
    ) -> None:
        """Count, record and log that *request*, or an item of the page that it is for,
        is dropped, or would be if the rules weren't only counted."""
        verdict, reason = refused
        origin = None
        with suppress(ValueError):  # a scheme without robots.txt
            origin = origin_of(request)
        rep.context.stats.inc_value(f"rep/page/{verdict}")
        if is_dropped:
            rep.context.stats.inc_value("rep/page/dropped")
        rep.decisions.record(
            request, origin, verdict, reason=reason, dry_run=not is_dropped
        )
        action = "Dropping" if is_dropped else "Would drop"
        is_item = verdict in ("noindex", "expired")
        subject = "item from" if is_item else "request to"
        message = f"{action} {subject} %(url)s: %(reason)s"
        values = {"url": request.url, "reason": reason}
        # Further messages about this origin with this verdict are logged at DEBUG
        # level.
        topic = (origin, verdict)
        self._log.log(message, values, self.crawler.spider, topic)
