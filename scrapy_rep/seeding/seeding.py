"""Seeds the crawl from the sitemaps that robots.txt files list (REP.md section 9): puts the parts of this
folder together, and decides which origins may seed it."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine, Iterable
from typing import Any

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import run_in_thread
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.job import job_dir

from scrapy_rep.engine.lifecycle import Stage
from scrapy_rep.engine.log import BoundedSet, get_logger
from scrapy_rep.engine.resolution import registrable_domain
from scrapy_rep.engine.text import counted
from scrapy_rep.engine.timers import PeriodicTask, Slices, pause
from scrapy_rep.holding.deferral import Deferral
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import Resolution, ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.requests import USUAL, origin_of
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.recorder import Recorder
from scrapy_rep.seeding.discovery import (
    FED,
    LISTED,
    SITEMAP,
    Discovery,
    SpiderOptions,
    listed_sitemaps,
    own_sitemaps,
    seeding_mode,
)
from scrapy_rep.seeding.feeder import Feeder
from scrapy_rep.seeding.loader import Loader, SitemapLog
from scrapy_rep.seeding.selection import Reason, Verifier
from scrapy_rep.seeding.spool import SeedingContext, Spool
from scrapy_rep.signals import request_deferred

logger = get_logger(__name__)

# URL prefixes that are remembered.
_PREFIXES = 20_000


class SitemapSeeding(ResolutionListener):
    """Gets sitemaps, and the pages they list, requested."""

    part = "seeding from sitemaps"

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        deferral: Deferral,
        discovery: Discovery,
        recorder: Recorder,
    ) -> None:
        """:raises SettingsError: if one of the spider's attributes is wrong"""
        crawler, settings = context.crawler, context.settings
        if settings.sitemap_cross_host == "site":
            registrable_domain("www.example.com")  # read its list before the crawl begins
        self._context = context
        self._cache = origins.cache
        self._deferral = deferral
        self._discovery = discovery
        self._mode = seeding_mode(crawler, settings)
        # To forget an origin does no harm: the spool has its sitemaps.
        self._visited = BoundedSet()
        self.visited_prefixes: set[str] = set()
        """Prefixes of URLs whose origins the crawl has visited: a fast path."""
        self._spool = Spool(job_dir(crawler.settings), settings.defer_max_wait, crawler.spider)
        self._upkeep = PeriodicTask(self._look)
        self._adding = 0  # robots.txt files whose sitemaps are on their way into the spool
        parts = SeedingContext(context, discovery, SpiderOptions(crawler.spider), self._spool)
        log = SitemapLog(context, recorder.tell)
        self._verifier = Verifier(parts, origins, log.warn)
        self.loader = Loader(parts, self._verifier, log)
        self._feeder = Feeder(parts, deferral, self.loader)
        self._spool.wake = self._feeder.wake
        self._idle_with: list[str] = []
        connect = crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)
        connect(self._request_dropped, scrapy_signals.request_dropped)
        connect(self._feeder.outstanding.left, request_deferred)
        deferral.handing_back.on_handed_back = self._feeder.outstanding.left

    def look(self, request: Request, *, checked: bool = False) -> Coroutine[Any, Any, None] | None:
        """Note a request that leaves the scheduler. Return a check to await before anything is fetched for
        it: whether its sitemap may lead there. None if there is nothing to check, or it was *checked*."""
        usual = USUAL.match(request.url)
        prefix = usual[1] + "/" if usual else None
        if prefix not in self.visited_prefixes:
            self._visit(request, prefix)
        far = self._context.settings.sitemap_cross_host != "strict" and FED in request.meta
        to_check = not checked and (far or SITEMAP in request.meta)
        return self.loader.check(request) if to_check else None

    def look_at(self, request: Request, *, checked: bool) -> Coroutine[Any, Any, None] | None:
        """Do the same for a request that is about to be sent."""
        check = self.look(request, checked=checked)
        if FED in request.meta:
            self._feeder.outstanding.arrive(request)
        return check

    async def visit_after(self, request: Request, decided: Coroutine[Any, Any, None]) -> None:
        """Await the decision on *request*, then note it: its origin may be forgotten meanwhile."""
        try:
            await decided
        finally:
            self._visit(request, None)

    def _visit(self, request: Request, prefix: str | None) -> None:
        """The crawl requests a page, so its origin may seed. Remember the *prefix* of its URL."""
        if SITEMAP in request.meta:
            return  # hosting a sitemap doesn't make a host a seed
        if self._mode == "start" and not request.meta.get("is_start_request"):
            return
        try:
            origin = origin_of(request)
        except ValueError:
            return
        if prefix:
            if len(self.visited_prefixes) >= _PREFIXES:
                self.visited_prefixes.clear()
            self.visited_prefixes.add(prefix)
        if self._mode == LISTED or not self._visited.add(origin):
            return
        state = self._cache.get(origin)
        if state is not None and not state.unreachable:
            robots_url = state.entry.url or origin.robots_url
            self._seed(origin, robots_url, state.robots.sitemaps if state.robots else ())

    async def resolved(self, resolution: Resolution) -> None:
        """Add the sitemaps that a new robots.txt lists; if it lists none, perhaps a guess."""
        origin, robots = resolution.state.origin, resolution.robots
        there = robots is not None or resolution.outcome is Outcome.MISSING
        if there and origin in self._visited:
            self._seed(origin, resolution.robots_url, robots.sitemaps if robots else ())

    def _seed(self, origin: Origin, robots_url: str, sitemaps: Iterable[str]) -> None:
        """Seed from *sitemaps*, the values of a robots.txt."""
        self._adding += 1
        deferred_from_coro(self._add(str(origin), robots_url, sitemaps))

    async def _add(self, origin: str, robots_url: str, values: Iterable[str]) -> None:
        """Write sitemaps into the spool. Resolving hostile ones takes long."""
        found, slices = {}, Slices()
        try:
            for _, one in listed_sitemaps(robots_url, values):
                if one is not None:
                    found[one.url] = str(one.origin)
                if slices.over:
                    await pause()
            if found:
                await self._spool.retry(self.loader.add_listed, origin, found)
            elif self._context.settings.sitemap_guess:
                await self._spool.retry(self.loader.guess, origin)
        except sqlite3.Error:
            pass  # the file has failed for too long, which is logged
        finally:
            self._adding -= 1

    def _request_dropped(self, request: Request, **_: Any) -> None:
        if FED in request.meta:
            self._feeder.outstanding.left(request)
        elif SITEMAP in request.meta and self._context.engine.scheduler_is_foreign:
            # Another process has asked for this sitemap. It may still come here.
            self._context.stats.inc_value(Reason.KNOWN.stat)

    async def _spider_opened(self) -> None:
        self._context.engine.before_closing(Stage.SEEDING, self._before_closing)
        self.loader.begin()
        await self._upkeep.begin()
        if urls := own_sitemaps(self._context.crawler):
            values = {"sitemaps": counted(len(urls), "sitemap")}
            message = "Seeding from %(sitemaps)s that the spider names"
            logger.info(message, values, extra=self._context.extra)
        by_origin: dict[Origin, list[str]] = {}
        for url in urls:
            self._discovery.count(url)
            by_origin.setdefault(Origin.from_url(url), []).append(url)
        for origin, listed in by_origin.items():
            self._seed(origin, origin.robots_url, listed)  # as if its robots.txt listed them

    async def _look(self) -> None:
        """Open the spool, or write what couldn't be written."""
        if (opened := await self._spool.look()) is None:
            return
        self._feeder.wake()
        self._verifier.recover(opened.origins)
        if left := self._spool.waiting + self._spool.unproven:
            pages = {"pages": counted(left, "page")}
            message = "An earlier run left %(pages)s from sitemaps"
            logger.info(message, pages, extra=self._context.extra)

    def _spider_idle(self) -> None:
        if self._spool.over:
            return
        asked = list(self._spool.sitemaps.asked)
        if asked == self._idle_with and not self._deferral.holding:
            self.loader.lost(asked)
        self._idle_with = asked
        self._feeder.forget()
        if self._feeder or self._verifier or self._adding or not self._spool.opened:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        spool = self._spool
        self._verifier.stop()
        spool.ending = True
        while self._adding and not spool.over:
            await pause()
        if self._context.engine.scheduler_outlives and not spool.durable:
            try:
                while self._feeder.step(everything=True) is not None:
                    await pause()
            except Exception:
                message = "Can't hand pages from sitemaps to the scheduler"
                logger.exception(message, extra=self._context.extra)
        self._feeder.stop()
        left = spool.waiting + spool.unproven + self._feeder.outstanding.total
        if left and not spool.durable:
            logger.info(
                "%(pages)s from sitemaps not requested: the crawl is closing. Set JOBDIR to keep them for "
                "the next run",
                {"pages": counted(left, "page")},
                extra=self._context.extra,
            )

    async def _spider_closed(self) -> None:
        self._feeder.close()
        await self._upkeep.end()
        await run_in_thread(self._spool.close)
