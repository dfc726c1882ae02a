"""Scrapy's HTTP cache, where a replay without the site finds what it had (docs/cache.md).

It never answers for a robots.txt that can be fetched: today's file counts. What is in it is the copy
from an earlier fetch (REP.md section 4). With ``HTTPCACHE_IGNORE_MISSING`` it is all there is, since
nothing is to be asked for then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.http import TextResponse

from scrapy_rep.engine import headers
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import text_of
from scrapy_rep.origins.answer import Answer
from scrapy_rep.origins.body import OTHER_ENCODINGS_MAX, READ_BYTES
from scrapy_rep.origins.fetcher import redirect_target
from scrapy_rep.protocol.availability import MAX_HOPS, REDIRECTS, Outcome, outcome_of
from scrapy_rep.protocol.sitemaps.lastmod import latest
from scrapy_rep.storages.access import Claim
from scrapy_rep.storages.base import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.origins.fetcher import Fetcher
    from scrapy_rep.protocol import Origin
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)


class HttpCache:
    """What the HTTP cache has; nothing, where it fails.

    To :class:`~scrapy_rep.origins.cache.RobotsCache` it is a storage, or with ``HTTPCACHE_IGNORE_MISSING``
    what fetches.
    """

    def __init__(
        self, crawler: Crawler, settings: RepSettings, engine: EngineAccess, fetcher: Fetcher
    ) -> None:
        """:param fetcher: for a project that has switched Scrapy's middleware off after all"""
        self._crawler = crawler
        self._fetcher = fetcher
        self._soft_404 = settings.soft_404
        self._engine = engine
        self._told = False
        self.enabled = crawler.settings.getbool("HTTPCACHE_ENABLED")
        self.offline = self.enabled and crawler.settings.getbool("HTTPCACHE_IGNORE_MISSING")
        """Whether nothing is to be asked for that is not in it."""

    def answers(self, request: Request) -> bool:
        """Whether *request* will be answered from it, so that its site notices nothing."""
        cache = self._engine.http_cache if self.enabled else None
        if cache is None or request.meta.get("dont_cache"):
            return False
        request = request.copy()  # a policy may add headers
        try:
            if not cache.policy.should_cache_request(request):
                return False
            response = self._load(request)
            return response is not None and cache.policy.is_cached_response_fresh(response, request)
        except Exception as error:  # noqa: BLE001 (of a user's class)
            self._failed(error)
            return False

    # As what fetches

    async def fetch(self, origin: Origin, like: Request | None = None) -> Answer:
        """Return the robots.txt of *origin* that was recorded; without one nothing is forbidden:
        what is not recorded either is not asked for."""
        if self._engine.http_cache is None:
            return await self._fetcher.fetch(origin, like)
        return self._find(origin.robots_url) or Answer(Outcome.MISSING, origin.robots_url, 0)

    # As a storage

    async def claim(self, origin: str, is_enough: Callable[[Entry], bool]) -> Claim:
        """Return the copy that it has of *origin*, which is to be asked all the same."""
        url = f"{origin}/robots.txt"
        answer = self._find(url)
        if answer is None:
            return Claim(None, granted=True)
        date = latest(headers.text(answer.headers, "Date") or "")
        fetched_at = max(0.0, date.timestamp()) if date else None
        return Claim(answer.entry(origin, fetched_at=fetched_at), granted=True)

    def publish(self, entry: Entry) -> None:
        """Keep *entry* for a replay, if it is an answer."""
        if entry.unreachable_since is None:
            url = f"{entry.origin}/robots.txt"
            status = 200 if entry.outcome is Outcome.RULES else 404
            response = TextResponse(url, status=status, body=entry.body)
            self._store(Request(url), response)

    def give_back(self, origin: str) -> None:
        """Nothing is lent."""

    # The HTTP cache itself

    def _find(self, url: str) -> Answer | None:
        """Return what it has of a robots.txt, redirects followed."""
        for hops in range(MAX_HOPS + 1):
            try:
                response = self._unpacked(Request(url))
            except Exception as error:  # noqa: BLE001 (a damaged file, a bomb)
                self._failed(error)
                return None
            if response is None:
                return None
            if response.status not in REDIRECTS:
                body = response.body[:READ_BYTES]
                outcome = outcome_of(response.status, body, soft_404=self._soft_404)
                if outcome is Outcome.UNREACHABLE:
                    return None
                return Answer(outcome, url, hops, response.status, response.headers, body)
            target = redirect_target(url, response)
            if target is None or hops == MAX_HOPS:
                break
            url = target
        return Answer(Outcome.MISSING, url, hops, response.status, response.headers)

    def _unpacked(self, request: Request) -> Any:
        """Scrapy's own middleware keeps what it gets as it came."""
        response = self._load(request)
        compression = self._crawler.get_downloader_middleware(HttpCompressionMiddleware)
        if response is None or compression is None or not headers.encodings(response.headers):
            return response
        request.meta["download_maxsize"] = OTHER_ENCODINGS_MAX
        return compression.process_response(request, response)

    def _load(self, request: Request) -> Any:
        cache = self._engine.http_cache
        return cache and cache.storage.retrieve_response(self._crawler.spider, request)

    def _store(self, request: Request, response: TextResponse) -> None:
        cache = self._engine.http_cache
        try:
            if cache is not None:
                cache.storage.store_response(self._crawler.spider, request, response)
        except Exception as error:  # noqa: BLE001 (a full disk)
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            logger.warning(
                "The HTTP cache can't be used for robots.txt: %(error)s. Further failures are not "
                "reported.",
                {"error": text_of(error)},
                extra={"spider": self._crawler.spider},
            )
