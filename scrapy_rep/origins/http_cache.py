"""robots.txt in Scrapy's HTTP cache, for replays that contact no server (docs/cache.md).

A robots.txt that can be fetched is always fetched; the cache has the older copy (REP.md section 4).
With ``HTTPCACHE_IGNORE_MISSING`` nothing is fetched, so the cache is all there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.downloadermiddlewares.httpcache import HttpCacheMiddleware
from scrapy.http import TextResponse

from scrapy_rep.engine.log import get_logger
from scrapy_rep.origins.answer import Answer, Transfer, answer_of, header_text
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.fetcher import Fetcher, redirect_target
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, Outcome
from scrapy_rep.protocol.freshness import latest
from scrapy_rep.storages.base import Entry
from scrapy_rep.storages.client import Claim
from scrapy_rep.text import text_of

logger = get_logger(__name__)


class HttpCache:
    """A storage for :class:`~scrapy_rep.origins.cache.RobotsCache`, or, with
    ``HTTPCACHE_IGNORE_MISSING``, its fetcher. Empty if Scrapy's cache fails."""

    def __init__(self, context: CrawlContext, fetcher: Fetcher) -> None:
        """*fetcher* is for projects that remove Scrapy's middleware despite the setting."""
        self._context = context
        self._fetcher = fetcher
        self._warned = False
        settings = context.crawler.settings
        self.enabled = settings.getbool("HTTPCACHE_ENABLED")
        self.offline = self.enabled and settings.getbool("HTTPCACHE_IGNORE_MISSING")
        """Whether only what is in the cache counts."""

    @property
    def _cache(self) -> Any:
        # None if it is off. Its attributes ``storage`` and ``policy`` are undocumented, their methods
        # are not.
        return self._context.crawler.get_downloader_middleware(HttpCacheMiddleware)

    def answers(self, request: Request) -> bool:
        cache = self._cache if self.enabled else None
        if cache is None or request.meta.get("dont_cache"):
            return False

        def is_fresh(request: Request) -> bool:
            if not cache.policy.should_cache_request(request):
                return False
            response = self._load(request)
            return response is not None and cache.policy.is_cached_response_fresh(response, request)

        return bool(self._try(is_fresh, request.copy()))  # a policy may add headers

    async def fetch(self, origin: Origin, like: Request | None = None) -> Answer:
        """Return the cached robots.txt of *origin*. Without one everything is allowed: pages that
        aren't in the cache won't be fetched anyway."""
        if self._cache is None:
            return await self._fetcher.fetch(origin, like)
        url = origin.robots_url
        return self._find(url) or Answer(Outcome.MISSING, url, 0, asked=False)

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the copy of *origin*'s robots.txt. The fetch is always granted."""
        answer = self._find(f"{origin}/robots.txt")
        if answer is None:
            return Claim(None, granted=True)
        date = latest(header_text(answer.headers, "Date") or "")
        fetched_at = max(0.0, date.timestamp()) if date else None
        return Claim(answer.entry(origin, fetched_at=fetched_at), granted=True)

    def publish(self, entry: Entry) -> None:
        """Store *entry* for a replay, unless it is a failure."""
        if entry.unreachable_since is not None or self._cache is None:
            return
        url = f"{entry.origin}/robots.txt"
        status = 200 if entry.outcome is Outcome.RULES else 404
        response = TextResponse(url, status=status, body=entry.body)
        storage, spider = self._cache.storage, self._context.spider
        self._try(lambda: storage.store_response(spider, Request(url), response))

    def give_back(self, origin: str) -> None:
        """Do nothing: there are no leases."""

    def _find(self, url: str) -> Answer | None:
        for hops in range(MAX_HOPS + 1):
            response = self._try(self._load, Request(url))
            if response is None:
                return None
            if response.status not in REDIRECTS:
                soft_404 = self._context.settings.soft_404
                # Scrapy's middleware stores bodies compressed, as they came.
                answer = answer_of(response, Transfer(), url, hops, soft_404=soft_404)
                return None if answer.outcome is Outcome.UNREACHABLE else answer
            target = redirect_target(url, response)
            if target is None or hops == MAX_HOPS:
                break
            url = target
        return Answer(Outcome.MISSING, url, hops, response.status, response.headers)

    def _load(self, request: Request) -> Any:
        cache = self._cache
        return cache and cache.storage.retrieve_response(self._context.spider, request)

    def _try(self, use: Callable[..., Any], *arguments: Any) -> Any:
        """Return what *use* returns; None if Scrapy's cache fails: a full disk, a user's class."""
        try:
            return use(*arguments)
        except Exception as error:  # noqa: BLE001
            if not self._warned:
                self._warned = True
                message = "Can't use the HTTP cache for robots.txt: %(error)s. Further failures are not logged."
                values = {"error": text_of(error)}
                logger.warning(message, values, extra=self._context.extra)
            return None
