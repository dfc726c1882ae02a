"""Was any start request fetched at all? If not, people think that their spider is broken."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals

from scrapy_rep.listener import Listener
from scrapy_rep.log import get_logger
from scrapy_rep.words import clean

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = get_logger(__name__)

# Scrapy's own, of its StartSpiderMiddleware.
_META_KEY = "is_start_request"


class Starts:
    """Knows whether every start request was refused."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._refused = 0
        self._first: tuple[str, str] | None = None
        self._dry: WeakSet[Request] = WeakSet()
        self._passed = False
        signals = (scrapy_signals.request_reached_downloader, scrapy_signals.response_received)
        self._listener = Listener(crawler, dict.fromkeys(signals, self._got_through))
        self._listener.begin()

    def refused(self, request: Request, error: Exception, *, dry_run: bool) -> None:
        """*request* was dropped, or would have been if this were no dry run."""
        if request.meta.get(_META_KEY):
            self._refused += 1
            if self._first is None:
                self._first = clean(request.url), str(error)
            if dry_run:
                self._dry.add(request)

    def _got_through(self, request: Request, **_: Any) -> None:
        if not request.meta.get(_META_KEY) or request in self._dry:
            return
        self._passed = True
        self._listener.end()

    def warn(self, *, dry_run: bool) -> None:
        """Tell the user if no start request got through."""
        if self._passed or self._first is None:
            return
        url, why = self._first
        logger.warning(
            "robots.txt %(refused)s every start request (%(count)d): %(outcome)s. The first was "
            "%(url)s: %(why)s. To see more: scrapy robots --explain %(quoted)s",
            {
                "refused": "would have refused" if dry_run else "refused",
                "outcome": "a crawl that obeys it may find nothing"
                if dry_run
                else "if this crawl found nothing, that is why, and the spider need not be broken",
                "count": self._refused,
                "url": url,
                "why": why.rstrip("."),
                "quoted": shlex.quote(url),
            },
            extra={"spider": self._crawler.spider},
        )
