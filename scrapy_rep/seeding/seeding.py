"""Seeds the crawl from the sitemaps that robots.txt files list (REP.md section 9): puts the parts
of this folder together, decides which origins may seed, and moves pages from the spool to the
scheduler."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from operator import length_hint
from typing import Any
from weakref import ref

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.job import job_dir

from scrapy_rep.engine.access import Stage
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import PeriodicTask, Slices, in_slices, pause
from scrapy_rep.holding.deferral import Deferral
from scrapy_rep.origins.agents import USUAL, origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import Flight
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.state import OriginState
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.recorder import Recorder
from scrapy_rep.seeding.discovery import (
    LISTED,
    PAGE_KEY,
    ROW_KEY,
    SITEMAP,
    Discovery,
    SpiderOptions,
    listed_by,
    own_sitemaps,
    resolve_all,
)
from scrapy_rep.seeding.loader import Loader
from scrapy_rep.seeding.selection import Reason, SitemapLog, Verifier, registrable_domain
from scrapy_rep.seeding.spool import RETRY_SECONDS, Page, SeedingContext, Site, Spool, next_of
from scrapy_rep.signals import request_deferred, request_given_up
from scrapy_rep.text import counted, text_of

logger = get_logger(__name__)

# URL prefixes that are remembered.
_PREFIXES = 20_000
# Rows of finished pages that are deleted at a time.
_ROWS = 20
# Pages taken from the spool at a time.
_BATCH = 50
# Pages in the scheduler: at most of a single origin, at least of each of many, at most of all.
_ALONE, _EACH, _ALL = 1000, 16, 4000
# Seconds until the next look for room in the scheduler.
_LOOK = 0.05


class Outstanding:
    """The pages in the scheduler, and the rows of pages with which the crawl isn't done yet. A page
    is done when its request is freed, after its callback; the hold, and the scheduler's queue on
    disk, free it once they have it. :data:`ROW_KEY` is in a request's meta from :meth:`add` to
    :meth:`arrive`."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.by_site: Counter[int] = Counter()  # pages in the scheduler, for each site
        self.finished: list[int] = []  # rows of finished pages, to be deleted
        self._requests: dict[int, ref[Request]] = {}  # by row
        self._sites: dict[int, int] = {}  # of the pages in the scheduler, by row

    @property
    def total(self) -> int:
        return len(self._sites)

    def add(self, request: Request, row: int, site: int) -> None:
        """Note that *request*, for the page of *row*, goes to the scheduler."""
        request.meta[ROW_KEY] = row
        self._requests[row] = ref(request, partial(self._freed, row))
        self._sites[row] = site
        self.by_site[site] += 1

    def take_back(self, row: int) -> None:
        """Undo :meth:`add`: the scheduler raised an exception."""
        self._requests.pop(row, None)
        self._leave(row)

    def left(self, request: Request, **_: object) -> None:
        """Note that a page is no longer in the scheduler, or no longer ends with the process."""
        self._leave(self._row_of(request))

    def keep(self, request: Request, **_: object) -> None:
        """Keep the row of a page for the next run: its request fails for want of a robots.txt."""
        self.take_back(self._row_of(request))

    def _row_of(self, request: Request) -> int:
        """Return a page's row; -1 if *request* is from another run, or a copy."""
        known = self._requests.get(row := request.meta.get(ROW_KEY, -1))
        return row if known is not None and known() is request else -1

    def arrive(self, request: Request) -> None:
        """Note that a page has left the gate. From here on its request is like any other."""
        self.left(request)
        del request.meta[ROW_KEY]
        request.dont_filter = False

    def close(self) -> None:
        """End a run that was not killed: pages that left are finished, others are for the next run."""
        self.finished += [row for row in self._requests if row not in self._sites]

    def _freed(self, row: int, request: ref[Request]) -> None:
        # If the crawl is closing, what has not left is for the next run.
        if self._requests.get(row) is request and not (self._spool.over and row in self._sites):
            del self._requests[row]
            self.finished.append(row)
            self._leave(row)  # a filter may have dropped it

    def _leave(self, row: int) -> None:
        site = self._sites.pop(row, None)
        if site is not None:
            self.by_site[site] -= 1
            if self.by_site[site] <= 0:
                del self.by_site[site]
            if len(self.finished) >= _ROWS:
                self._spool.wake()


def _let_pass(request: Request) -> None:
    """Make a page skip the dupe filter, which has seen it before."""
    request.dont_filter = True


class Feeder:
    """Hands pages to the scheduler as it drains, origins in turn, and requests sitemaps."""

    def __init__(
        self, context: SeedingContext, deferral: Deferral, loader: Loader, verifier: Verifier
    ) -> None:
        self._crawl = context.crawl
        self._options = context.options
        self._spool = context.spool
        self._engine = context.crawl.engine
        self._signals = context.crawl.crawler.signals
        self._deferral = deferral
        self._loader = loader
        self._verifier = verifier
        self.outstanding = Outstanding(context.spool)
        concurrency = context.crawl.crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._each = max(_EACH, 2 * concurrency)
        self._running = self._woken = False
        self._failing_since: float | None = None

    def __bool__(self) -> bool:
        busy = self._running or self._spool.waiting or self._spool.asked
        return not self._spool.over and bool(busy)

    @property
    def left(self) -> int:
        """How many pages have not reached a callback yet."""
        return self._spool.waiting + self.outstanding.total

    def wake(self) -> None:
        """Look soon: there may be something new in the spool, or room in the scheduler."""
        self._woken = True
        if not self._running and not self._spool.over:
            self._running = True
            call_later(0, self._run)

    def _run(self) -> None:
        if self._spool.over:
            return
        self._woken = False
        pause: float | None = RETRY_SECONDS
        try:
            pause = self.step()
            self._failing_since = None
        except sqlite3.Error:
            pass  # the spool's file fails, which is logged
        except Exception as error:  # noqa: BLE001
            self._failed(error)  # the scheduler's server is gone, its disk is full ...
        self.forget()
        self.gauge()
        if pause is None and self._woken:
            pause = 0
        # However often it is woken, one step follows another, with a turn of the event loop in between.
        self._running = pause is not None
        if pause is not None:
            call_later(pause, self._run)

    def _failed(self, error: Exception) -> None:
        now, seconds = time.monotonic(), self._crawl.settings.defer_max_wait
        if self._failing_since is None:
            self._failing_since = now
            message = "Can't schedule pages from sitemaps, retrying for %(seconds)g s: %(error)s"
            values = {"error": text_of(error), "seconds": seconds}
            unusual = not isinstance(error, OSError)
            logger.error(message, values, extra=self._crawl.extra, exc_info=unusual)
        if now - self._failing_since >= seconds:
            self._spool.over = True

    def step(self, *, everything: bool = False) -> float | None:
        """Schedule sitemaps and pages for one slice of time. Return the seconds until the next
        step; None: wait to be woken. With *everything*, regardless of the limits: the scheduler
        outlives the process."""
        if self._engine.paused and not everything:
            return _LOOK
        slices, blocked = Slices(), 0
        self._verifier.begin()
        more = self._loader.request_some()
        while (site := next_of(self._spool.sites)) is not None:
            full = self.outstanding.total >= _ALL or not self._deferral.held.room_for(None)
            if not everything and (full or blocked > len(self._spool.sites)):
                return _LOOK
            room = _BATCH if everything else self._room(site)
            blocked += 1
            if room:
                blocked = 0
                self._send_some(site, room)
            if slices.over:
                return 0
        return 0 if more else None

    def _room(self, site: Site) -> int:
        """Return how many pages of *site* may go to the scheduler now."""
        held = self._deferral.held
        if self._deferral.holding and not held.room_for(
            held.queues.get(Origin.from_url(site.origin))
        ):
            return 0
        if self._engine.scheduler_is_foreign:
            # 0 if it can't tell.
            others = length_hint(self._engine.scheduler) - self._deferral.handing_back.waiting
            room = _ALONE - max(0, others)
        else:
            share = max(self._each, _ALONE // len(self._spool.sites))
            room = min(share - self.outstanding.by_site[site.id], _ALL - self.outstanding.total)
        return max(0, min(room, _BATCH))

    def _send_some(self, site: Site, room: int) -> None:
        """Schedule up to *room* pages of *site*."""
        shared = self._engine.scheduler_is_foreign  # and keeps the pages
        sent = 0
        try:
            for page in self._spool.take(site, room):
                sent += self._send(page, site, shared=shared)
        finally:  # counted at once: a stat takes as long as much of the rest
            if sent:
                self._crawl.stats.inc_value("rep/sitemaps/emitted", sent)

    def _send(self, page: Page, site: Site, *, shared: bool) -> bool:
        """Schedule a page. Return whether it still is one."""
        if (request := self._request_for(page)) is None:
            self._crawl.stats.inc_value(Reason.NO_RULE.stat)
            self.outstanding.finished.append(page.id)
            return False
        if not shared:
            self.outstanding.add(request, page.id, site.id)
        if again := page.id <= site.sent:
            # After the handler of OffsiteMiddleware, which must see the page unchanged.
            self._signals.connect(_let_pass, scrapy_signals.request_scheduled)
        try:
            self._engine.crawl(request)
        except Exception:
            self.outstanding.take_back(page.id)
            # It may have reached the dupe filter, which would drop it the next time.
            site.sent = max(site.sent, page.id)
            raise
        finally:
            if again:
                self._signals.disconnect(_let_pass, scrapy_signals.request_scheduled)
        if shared:
            self.outstanding.finished.append(page.id)
        return True

    def _request_for(self, page: Page) -> Request | None:
        """Return a page's request; None if the spider's rules, Scrapy's, or the file have changed
        since the last run."""
        wanted, callback = self._options.callback_for(page.url)
        priority = self._crawl.settings.sitemap_page_priority
        try:
            meta = {PAGE_KEY: page.about}
            return Request(page.url, callback, priority=priority, meta=meta) if wanted else None
        except (TypeError, ValueError, RecursionError):
            return None

    def forget(self) -> None:
        """Delete the rows of pages that are done."""
        finished, self.outstanding.finished = self.outstanding.finished, []
        self._spool.forget(finished)

    def gauge(self) -> None:
        self._crawl.stats.set_value("rep/sitemaps/waiting", self._spool.waiting)


class SitemapSeeding(ResolutionListener):
    part = "seeding from sitemaps"

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        deferral: Deferral,
        discovery: Discovery,
        recorder: Recorder,
    ) -> None:
        """Raises ``SettingsError`` if one of the spider's attributes is wrong."""
        crawler, settings = context.crawler, context.settings
        if settings.sitemap_cross_host == "site":
            registrable_domain("www.example.com")  # read its list before the crawl begins
        self._context = context
        self._cache = origins.cache
        self._deferral = deferral
        self._discovery = discovery
        self.visited_prefixes: set[str] = set()
        """Prefixes of URLs whose origins the crawl has visited. Forgetting one does no harm: the
        spool has its sitemaps."""
        self._spool = Spool(job_dir(crawler.settings), settings.defer_max_wait, crawler.spider)
        self._upkeep = PeriodicTask(self._look)
        self._adding = 0  # robots.txt files whose sitemaps are on their way into the spool
        options = SpiderOptions(crawler.spider)
        parts = SeedingContext(context, origins, discovery, options, self._spool)
        log = SitemapLog(context, recorder.tell)
        self.loader = Loader(parts, log)
        self._feeder = Feeder(parts, deferral, self.loader, Verifier(parts, log))
        self._idle_with: list[str] = []
        self._spool.wake = self._feeder.wake
        self._connect(crawler.signals.connect)

    def _connect(self, connect: Callable[..., None]) -> None:
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)
        connect(self._feeder.outstanding.left, scrapy_signals.request_dropped)
        connect(self._feeder.outstanding.left, request_deferred)
        connect(self._feeder.outstanding.keep, request_given_up)
        self._deferral.handing_back.notify(self._feeder.outstanding.left)

    def check(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Return a check to await before anything is fetched for *request*: whether its sitemap may
        lead there. None if there is nothing to check."""
        far = self._context.settings.sitemap_cross_host != "strict" and ROW_KEY in request.meta
        return self.loader.check(request) if far or SITEMAP in request.meta else None

    def look_at(self, request: Request, *, checked: bool) -> Coroutine[Any, Any, None] | None:
        """Note a request that is about to be sent. Return the check, unless it was *checked*."""
        usual = USUAL.match(request.url)
        prefix = usual[1] + "/" if usual else ""
        if prefix not in self.visited_prefixes:
            self._visit(request, prefix)
        check = None if checked else self.check(request)
        if ROW_KEY in request.meta:
            self._feeder.outstanding.arrive(request)
        return check

    def _visit(self, request: Request, prefix: str) -> None:
        """Let the origin of a page that the crawl requests seed. Remember the *prefix* of its URL."""
        if SITEMAP in request.meta:
            return  # hosting a sitemap doesn't make a host a seed
        if self._discovery.mode == "start" and not request.meta.get("is_start_request"):
            return
        try:
            origin = origin_of(request)
        except ValueError:
            return
        is_new = f"{origin}/" not in self.visited_prefixes
        if len(self.visited_prefixes) >= _PREFIXES:
            self.visited_prefixes.clear()
        self.visited_prefixes.update((f"{origin}/", prefix or f"{origin}/"))
        state = self._cache.get(origin) if is_new and self._discovery.mode != LISTED else None
        if state is not None and not state.unreachable:
            self._seed(origin, listed_by(state))

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Add the sitemaps that a new robots.txt lists; if it lists none, perhaps a guess."""
        there = flight.outcome is not Outcome.UNREACHABLE
        if there and self._discovery.mode != LISTED and f"{state.origin}/" in self.visited_prefixes:
            self._seed(state.origin, listed_by(state))

    def _seed(self, origin: Origin, listing: Coroutine[Any, Any, dict[str, str]]) -> None:
        self._adding += 1
        deferred_from_coro(self._add(str(origin), listing))

    async def _add(self, origin: str, listing: Coroutine[Any, Any, dict[str, str]]) -> None:
        """Write sitemaps into the spool."""
        try:
            if found := await listing:
                await self._spool.retry(self.loader.add_listed, origin, found)
            elif self._context.settings.sitemap_guess:
                await self._spool.retry(self.loader.guess, origin)
        except sqlite3.Error:
            pass  # the file has failed for too long, which is logged
        finally:
            self._adding -= 1

    async def _spider_opened(self) -> None:
        self._context.engine.before_closing(Stage.SEEDING, self._before_closing)
        await self._upkeep.begin()
        async for url in in_slices(own_sitemaps(self._context.crawler)):
            self._discovery.count(url)
            origin = Origin.from_url(url)
            # As if its robots.txt listed it.
            self._seed(origin, resolve_all(origin.robots_url, [url]))

    async def _look(self) -> None:
        """Open the spool, or write what couldn't be written."""
        if await self._spool.look():
            self._feeder.wake()
            if self._spool.waiting:
                pages = {"pages": counted(self._spool.waiting, "page")}
                message = "An earlier run left %(pages)s from sitemaps"
                logger.info(message, pages, extra=self._context.extra)

    def _spider_idle(self) -> None:
        if self._spool.over:
            return
        asked = list(self._spool.asked)
        if asked == self._idle_with and not self._deferral.holding:
            self.loader.lost(asked)
        self._idle_with = asked
        self._feeder.forget()
        if self._feeder or self._adding or not self._spool.opened:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        spool = self._spool
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
        if spool.durable and not (spool.over or self._context.engine.scheduler_is_foreign):
            # The next run asks for them itself: in Scrapy's queue they would be doubled.
            checked = self._deferral.releases.checked
            checked -= {request for request in checked if SITEMAP in request.meta}
        spool.over = True
        if self._feeder.left and not spool.durable:
            logger.info(
                "%(pages)s from sitemaps not requested: the crawl is closing. Set JOBDIR to keep them for "
                "the next run",
                {"pages": counted(self._feeder.left, "page")},
                extra=self._context.extra,
            )

    async def _spider_closed(self) -> None:
        self._spool.over = True
        self._feeder.outstanding.close()
        self._feeder.forget()
        self._feeder.gauge()
        await self._upkeep.now(last=True)
        await run_in_thread(self._spool.close)
