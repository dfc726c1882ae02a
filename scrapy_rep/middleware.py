"""What happens to a request.

Requests from the scheduler come through the gate (:mod:`scrapy_rep.holding.gate`), where they wait
until their robots.txt is known. So ``process_request`` lets pass what fresh rules plainly allow, and
hands the others to the judge (:mod:`scrapy_rep.judge`), who applies the rules.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, NotConfigured

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.engine.lifecycle import StopAtStart, is_interactive
from scrapy_rep.exceptions import SettingsError
from scrapy_rep.holding.deferral import Deferral
from scrapy_rep.holding.gate import Gate
from scrapy_rep.judge import Decided, Judge, settled
from scrapy_rep.origins.choices import ChoiceListener
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.requests import SCHEME
from scrapy_rep.protocol import Decision
from scrapy_rep.protocol.matching import comparable
from scrapy_rep.reporting.recorder import Recorder
from scrapy_rep.reporting.summary import log_switched_off
from scrapy_rep.seeding.discovery import FED, SITEMAP, Discovery, seeding_mode, with_seeding
from scrapy_rep.settings import RepSettings, one_attempt, warn_of_unknown

if TYPE_CHECKING:
    from scrapy_rep.seeding.seeding import SitemapSeeding

# Meta keys that need a closer look. Crawl delays add theirs.
_MARKS = frozenset({"dont_obey_robotstxt", FED, SITEMAP})


class RepMiddleware:
    """Drops requests that robots.txt forbids (REP.md), in place of Scrapy's RobotsTxtMiddleware."""

    clock = staticmethod(time.time)
    """Seconds since the epoch. Tests may replace it."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        if is_interactive(crawler):
            settings = one_attempt(settings)
        self.context = context = CrawlContext(crawler, settings, EngineAccess(crawler), self.clock)
        self.origins = origins = Origins(context)
        self.parts: dict[type, Any] = {}
        """What other middlewares of this package keep for the length of the crawl."""
        self._by_prefix = origins.table.by_prefix
        self._marks = _MARKS | origins.crawl_delay.marks
        self.agents = origins.agents
        self.decisions = Recorder(context, origins)
        self._deferral = Deferral(context, origins, self.decisions)
        self._verdicts = self._deferral.releases.verdicts
        self._gate = Gate(context, origins, self._deferral)
        self._judge = Judge(context, origins, self.decisions, self._gate, self.overrules)
        self._count = context.stats.inc_value
        discovery = Discovery(context)
        self._seeding: SitemapSeeding | None = None
        if seeding_mode(crawler, settings):
            from scrapy_rep.seeding.seeding import SitemapSeeding  # most crawls don't

            self._seeding = SitemapSeeding(
                context, origins, self._deferral, discovery, self.decisions
            )
            self._gate.look = self._seeding.look
        # Each new robots.txt is announced in this order: to the hold last, since requests that it
        # releases need all the others' results.
        delays = [origins.crawl_delay] if settings.crawl_delay else []
        seeding = [self._seeding] if self._seeding is not None else []
        choices = origins.cache.choices
        beyond = [ChoiceListener(context, origins.cache, choices)] if choices is not None else []
        listeners = [self.decisions, *beyond, *delays, discovery, *seeding]
        origins.listeners += [*listeners, self._deferral]

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RepMiddleware | StopAtStart:
        """:raises NotConfigured: if ``ROBOTSTXT_OBEY`` is off"""
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            if not is_interactive(crawler):
                log_switched_off(crawler)
            raise NotConfigured
        warn_of_unknown(crawler.settings, crawler.spider)
        try:
            settings = RepSettings.from_settings(crawler.settings)
            kind = with_seeding(cls) if seeding_mode(crawler, settings) else cls
            middleware = kind(crawler, settings)
            middleware.agents.check_spider()
        except SettingsError as error:
            return StopAtStart(crawler, str(error))
        return middleware

    def process_request(self, request: Request) -> Decided:
        """Return None to let *request* pass, or a coroutine that does so later. With ``REP_DRY_RUN``
        all pass.

        :raises RobotsDisallowed: if robots.txt forbids it
        :raises RobotsUnreachable: if robots.txt can't be fetched, and waiting won't help
        """
        # Fast path: every check here costs every request.
        url = request.url
        slash = url.find("/", SCHEME)
        prefix = url[: slash + 1]
        state = self._by_prefix.get(prefix)
        if (
            state is not None
            and (rules := state.rules) is not None
            and (now := self.clock()) < state.usable_until
            and self._marks.isdisjoint(request.meta)
            and not self._verdicts
            and (self._seeding is None or prefix in self._seeding.visited_prefixes)
            and self.agents.is_usual(request)
        ):
            path = url[slash:]
            if "#" in path:
                path = path[: path.index("#")]
            if rules.allows(comparable(path)):
                state.used_at = now
                state.allowed += 1
                self._count("rep/cache/hit")
                return None
        return self._look_closer(request)

    def overrules(self, request: Request, decision: Decision) -> bool:
        """Whether *request* passes though *decision* forbids it. For subclasses."""
        return False

    async def may_fetch(self, url: str) -> bool:
        """Whether robots.txt allows *url*, see :func:`may_fetch`."""
        return await self._judge.may_fetch(url)

    def held(self) -> list[dict[str, Any]]:
        """Return what is held of each origin now, with the fields of ``scrapy robots --held --json``. For
        consoles."""
        return self._deferral.listing()

    def _look_closer(self, request: Request) -> Decided:
        """Any request: see what it is, and what the gate says of it."""
        if request.meta.get("dont_obey_robotstxt"):
            return None
        drop = self._deferral.releases.verdict(request)
        if drop is not None:
            self._judge.drop(request, drop)
            return None
        if self._seeding is not None:
            check = self._seeding.look_at(request, checked=request in self._gate)
            if check is not None:
                return self._ask_after(check, request)
        elif SITEMAP in request.meta:
            raise IgnoreRequest(
                "another process requested this sitemap; this crawl reads no sitemaps"
            )
        return self._ask(request)

    def _ask(self, request: Request) -> Decided:
        decided = self._judge.ask(request)
        if self._seeding is not None and isinstance(decided, Coroutine):
            return self._seeding.visit_after(request, decided)
        return decided

    async def _ask_after(self, check: Awaitable[None], request: Request) -> None:
        await check
        await settled(self._ask(request))


async def may_fetch(crawler: Crawler, url: str) -> bool:
    """Whether robots.txt allows *crawler* to fetch *url*, for requests that bypass Scrapy, such as
    those of a page in a browser.

    Waits for an unknown robots.txt. False also if it can't be fetched, unless ``REP_UNREACHABLE`` is
    "allow". True without ``ROBOTSTXT_OBEY``, or if the URL is neither http, https nor ftp. Nothing is
    counted or recorded.
    """
    middleware = crawler.get_downloader_middleware(RepMiddleware)
    return middleware is None or await middleware.may_fetch(url)
