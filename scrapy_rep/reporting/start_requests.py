"""Was any start request fetched at all? If not, people think that their spider is broken."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.listener import Listener
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.agents import Agents
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

# Scrapy's own, of its StartSpiderMiddleware.
_META_KEY = "is_start_request"


class StartRequests:
    """Knows whether every start request was refused."""

    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused = 0
        self._first: tuple[str, str, str] | None = None
        self._dry: WeakSet[Request] = WeakSet()
        self._passed = False
        signals = (scrapy_signals.request_reached_downloader, scrapy_signals.response_received)
        self._listener = Listener(context.crawler, dict.fromkeys(signals, self._got_through))
        self._listener.begin()

    def refused(self, request: Request, error: Exception, *, dry_run: bool) -> None:
        """*request* was dropped, or would have been if this were no dry run."""
        if request.meta.get(_META_KEY):
            self._refused += 1
            if self._first is None:
                # As `--agent` takes it. Where no token can be told, the rules for all apply.
                agent = ",".join(self._agents.chain_of(request)) or "*"
                self._first = clean(request.url), str(error), agent
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
        url, why, agent = self._first
        logger.warning(
            "robots.txt %(refused)s every start request (%(count)d): %(outcome)s. The first was "
            "%(url)s: %(why)s. To see more: scrapy robots --explain --agent %(agent)s "
            "%(quoted)s",
            {
                "refused": "would have refused" if dry_run else "refused",
                "outcome": "a crawl that obeys it may find nothing"
                if dry_run
                else "if this crawl found nothing, that is why, and the spider need not be broken",
                "count": self._refused,
                "url": url,
                "why": why.rstrip("."),
                "agent": shlex.quote(agent),
                "quoted": shlex.quote(url),
            },
            extra=self._context.extra,
        )
