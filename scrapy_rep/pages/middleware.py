"""Obeys page-level rules (``REP_NOFOLLOW`` and ``REP_NOINDEX``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from scrapy_rep.engine.log import Isolation, Limiter, get_logger
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.origins.requests import origin_of
from scrapy_rep.pages.rules import is_exempt, is_sitemap, page_rules, refusal
from scrapy_rep.settings import RepSettings, settings_beside

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

logger = get_logger(__name__)

EMBEDDED = "rep_embedded"
"""In a request's meta: its page is embedded in another one, see ``indexifembedded``."""


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
        self._rep: RepMiddleware | None = None
        crawler.signals.connect(self._opened, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> PageMiddleware:
        """:raises NotConfigured: if both settings are off"""
        settings = settings_beside(crawler)
        if not settings.nofollow and not settings.noindex:
            raise NotConfigured
        return cls(crawler, settings)

    def _opened(self) -> None:
        self._rep = self.crawler.get_downloader_middleware(RepMiddleware)
        if self._rep is None:
            logger.warning(
                "REP_NOFOLLOW and REP_NOINDEX have no effect without scrapy_rep.RepMiddleware",
                extra={"spider": self.crawler.spider},
            )

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        refused = None
        if response is not None and self._rep is not None and (self._page or self._links):
            with self._isolated("check of links (REP_NOFOLLOW)"):
                refused = self._refusal(request, response, self._rep)
                if refused is not None:
                    self._say(self._rep, request, *refused, obeyed=self._drops_requests)
        return None if refused is not None and self._drops_requests else request

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        refused = None
        if response is not None and self._rep is not None and self._items:
            with self._isolated("check of items (REP_NOINDEX)"):
                refused = self._unwanted(response, self._rep)
                if refused is not None and response.request is not None:
                    self._say(self._rep, response.request, *refused, obeyed=self._drops_items)
        return None if refused is not None and self._drops_items else item

    def _refusal(
        self, request: Request, response: Response, rep: RepMiddleware
    ) -> tuple[str, str] | None:
        if is_exempt(request, response) or is_sitemap(response, self.crawler.spider):
            return None
        chain = self._chain(response, rep)
        return refusal(request, response, chain, page=self._page, links=self._links)

    def _unwanted(self, response: Response, rep: RepMiddleware) -> tuple[str, str] | None:
        """Return verdict and reason if items of *response* should not be kept."""
        meta = response.request.meta if response.request is not None else {}
        if meta.get("dont_obey_robotstxt"):
            return None
        rules = page_rules(response, self._chain(response, rep))
        if not rules or (rules.indexifembedded and meta.get(EMBEDDED)):
            return None
        verdict, rule = "noindex", rules.saying("noindex", "none")
        if rule is None and rules.expired(rep.clock()):
            date = rules.unavailable_after
            verdict, rule = "expired", next(one for one in rules.rules if one.value == date)
        return None if rule is None else (verdict, f"{rule.where}: {rule}")

    @staticmethod
    def _chain(response: Response, rep: RepMiddleware) -> tuple[str, ...]:
        return rep.agents.chain_sent(response.request) if response.request is not None else ()

    def _say(
        self, rep: RepMiddleware, request: Request, verdict: str, reason: str, *, obeyed: bool
    ) -> None:
        try:
            origin = origin_of(request)
        except ValueError:  # a scheme without robots.txt
            origin = None
        rep.decisions.page_says(request, origin, verdict, reason, obeyed=obeyed)
        what = "item from" if verdict in ("noindex", "expired") else "request to"
        message = f"{'Dropping' if obeyed else 'Would drop'} {what} %(url)s: %(reason)s"
        values = {"url": request.url, "reason": reason}
        more = "; more for this origin at DEBUG level"
        self._tell.log(message, values, self.crawler.spider, (origin, verdict), more)
