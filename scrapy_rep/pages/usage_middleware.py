"""Finds out how each page of a crawl may be used, if one of the settings for that is set."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from scrapy import signals

from scrapy_rep.engine.closing import Stage
from scrapy_rep.engine.log import Isolation, Limiter, get_logger
from scrapy_rep.engine.startup import StopAtStart
from scrapy_rep.exceptions import UsageDisallowed
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.origins.body import META_KEY
from scrapy_rep.pages.usage_settings import chosen, settings_for
from scrapy_rep.protocol.usage.aipref import EXTRA
from scrapy_rep.protocol.usage.options import DROP_ITEMS, DROP_REQUESTS
from scrapy_rep.protocol.usage.statements import NO
from scrapy_rep.seeding.discovery import SITEMAP

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.pages.usage_lookup import UsageLookup
    from scrapy_rep.protocol import Origin
    from scrapy_rep.protocol.usage import Statement, Usage
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

# Requests of our own, for robots.txt and sitemaps.
_OURS = frozenset({META_KEY, SITEMAP})

_PART = "check of usage preferences (REP_USAGE)"

# Verdicts of REP_DECISIONS: what is dropped, and what counts that.
_DROPPED = {
    "usage_request": ("request to", "rep/usage/requests"),
    "usage_item": ("item from", "rep/usage/items"),
}


class UsageMiddleware:
    """Finds out how pages may be used, records it, and drops requests that robots.txt answers for.

    A downloader middleware, behind :class:`~scrapy_rep.RepMiddleware`. Without a setting there is none.
    """

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        self._crawler = crawler
        self._setting = chosen(settings)
        self._recorded = dict(settings.usage or {})
        self._dry_run = settings.dry_run
        self._isolated = Isolation(crawler)
        self._tell = Limiter(logger, "origins that say no to a use")
        self._rep: RepMiddleware | None = None
        self._lookup: UsageLookup | None = None
        crawler.signals.connect(self._opened, signals.spider_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UsageMiddleware | StopAtStart:
        """:raises NotConfigured: if nothing is to be looked at"""
        settings = settings_for(crawler)
        if find_spec("http_sf") is None:
            return StopAtStart(crawler, f"{chosen(settings)} needs http-sf: {EXTRA}.")
        return cls(crawler, settings)

    def _opened(self) -> None:
        from scrapy_rep.pages.usage_lookup import lookup_of

        self._rep = rep = self._crawler.get_downloader_middleware(RepMiddleware)
        if rep is None:
            logger.warning(
                "%(setting)s has no effect without scrapy_rep.RepMiddleware",
                {"setting": self._setting},
                extra={"spider": self._crawler.spider},
            )
            return
        self._lookup = lookup_of(rep)
        if self._lookup.tdm is not None:
            rep.context.engine.before_closing(Stage.HOLDING, self._lookup.tdm.end)

    def process_request(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Let *request* pass.

        :raises UsageDisallowed: if robots.txt says no to a use that has ``"drop-requests"``
        """
        meta = request.meta
        if DROP_REQUESTS not in self._recorded.values() or not _OURS.isdisjoint(meta):
            return None
        return None if meta.get("dont_obey_robotstxt") else self._check(request)

    async def _check(self, request: Request) -> None:
        refused = None
        if self._lookup is not None and self._rep is not None:
            with self._isolated(_PART):
                chain = self._rep.agents.chain_of(request)
                await self._lookup.read(request, chain)
                refused = self._refusal(self._lookup.robots(request, chain), DROP_REQUESTS)
                if refused is not None:
                    self._say(request, "usage_request", *refused)
            origin, _ = self._lookup.known(request)
            if refused is not None and origin is not None and not self._dry_run:
                raise UsageDisallowed(origin, *refused)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Return *response*. :func:`scrapy_rep.usage` knows about it from now on."""
        if self._lookup is not None and self._rep is not None and _OURS.isdisjoint(request.meta):
            with self._isolated(_PART):
                from scrapy_rep.pages.usage import usage_of

                chain = self._rep.agents.chain_sent(request)
                await self._lookup.read(request, chain)
                await self._lookup.fetch(request, chain)
                usage = usage_of(response, request, self._lookup, chain)
                if self._recorded:
                    self._record(request, usage)
        return response

    def _record(self, request: Request, usage: Usage) -> None:
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value("rep/usage/pages")
        for purpose, verdict in usage.verdicts.items():
            if verdict is not None:
                self._crawler.stats.inc_value(f"rep/usage/{verdict}/{purpose}")
        found = [(purpose, usage.decisive(purpose)) for purpose in self._recorded]
        reason = "; ".join(f"{purpose}: {one}" for purpose, one in found if one is not None)
        self._write(request, "usage", reason or None, usage=usage, dry_run=False)

    def _refusal(self, usage: Usage, *actions: str) -> tuple[str, Statement] | None:
        """Return a purpose that has one of *actions* and to which *usage* says no, and where."""
        for purpose, action in self._recorded.items():
            if action in actions and usage[purpose] == NO:
                statement = usage.decisive(purpose)
                assert statement is not None
                return purpose, statement
        return None

    def unwanted(self, request: Request, usage: Usage) -> bool:
        """Whether items of a page are to be dropped. Records it."""
        refused = self._refusal(usage, DROP_ITEMS, DROP_REQUESTS)
        if refused is not None:
            self._say(request, "usage_item", *refused)
        return refused is not None and not self._dry_run

    def _say(self, request: Request, verdict: str, purpose: str, statement: Statement) -> None:
        """Count, log and record that something is dropped."""
        what, stat = _DROPPED[verdict]
        assert self._crawler.stats is not None
        self._crawler.stats.inc_value(stat)
        origin = self._write(request, verdict, f"{purpose}: {statement}", dry_run=self._dry_run)
        values = {
            "what": what,
            "url": request.url,
            "drops": "Would drop" if self._dry_run else "Dropping",
            "purpose": purpose,
            "statement": statement,
        }
        message = "%(drops)s %(what)s %(url)s: the site says no to %(purpose)s (%(statement)s)"
        more = "; more for this origin at DEBUG level"
        self._tell.log(message, values, self._crawler.spider, (origin, verdict), more)

    def _write(
        self, request: Request, verdict: str, reason: str | None, **more: Any
    ) -> Origin | None:
        assert self._lookup is not None
        assert self._rep is not None
        origin, _ = self._lookup.known(request)
        self._rep.decisions.record(request, origin, verdict, reason=reason, **more)
        return origin
