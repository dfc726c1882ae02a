"""Seeds the crawl from the sitemaps that robots.txt files list (REP.md section 9): puts the parts
of this folder together, decides which origins may seed, and moves pages from the spool to the
scheduler."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from operator import length_hint
from typing import Any

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.job import job_dir

from scrapy_rep.engine.access import Following, Stage
from scrapy_rep.engine.log import BoundedSet, get_logger
from scrapy_rep.engine.timers import PeriodicTask, Slices, in_slices, pause
from scrapy_rep.holding.holding import Holding
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
    PAGE_ROW_KEY,
    SITEMAP_KEY,
    Discovery,
    SpiderOptions,
    listed_by,
    own_sitemaps,
    resolve_all,
)
from scrapy_rep.seeding.links import PageLinks
from scrapy_rep.seeding.loader import Loader
from scrapy_rep.seeding.selection import (
    Reason,
    SitemapLog,
    Verifier,
    registrable_domain,
)
from scrapy_rep.seeding.since import Since
from scrapy_rep.seeding.spool import (
    RETRY_SECONDS,
    Found,
    Page,
    SeedingContext,
    Site,
    Spool,
    count_down,
)
from scrapy_rep.signals import request_given_up, request_held
from scrapy_rep.text import counted, text_of, without_user

logger = get_logger(__name__)

# URL prefixes that are remembered.
_MAX_PREFIXES = 20_000
# Rows of finished pages that are deleted at a time.
_ROWS_TO_DELETE = 20
# Pages taken from the spool at a time.
_PAGES_AT_A_TIME = 50
# Pages in the scheduler: the most of a single origin, while no others wait.
_MAX_PAGES_OF_A_SITE = 1000
# Of each origin, and of all that one origin's sitemaps name, however many others wait.
_GUARANTEED_PAGES = 16
# Of all.
_MAX_PAGES = 4000
# Hosts that one origin's sitemaps name and that have pages in the scheduler: Scrapy lets hosts take turns.
_MAX_SITES_OF_A_SOURCE = 32
# Hosts that one origin's sitemaps name, of which one step looks for room.
_SITES_TRIED_AT_A_TURN = 16
# URLs of pages from sitemaps that are remembered for a warning.
_MAX_SEEDED_URLS = 10_000
# Seconds until the next look for room in the scheduler.
_SECONDS_UNTIL_NEXT_STEP = 0.05


class Outstanding:
    """The pages in the scheduler, and the rows of pages with which the crawl isn't done yet, see
    :class:`~scrapy_rep.engine.access.Trail`."""

    def __init__(self, spool: Spool, following: Following) -> None:
        self._spool = spool
        self._trail = following.trail(PAGE_ROW_KEY, self._done, is_kept=spool.is_kept)
        # Of pages in the scheduler: for each site, for all that one origin names, and how many sites these are.
        self.by_site: Counter[int] = Counter()
        self.by_source: Counter[str] = Counter()
        self.sites_of: Counter[str] = Counter()
        self.finished: list[int] = []  # rows of finished pages, to be deleted
        self._sites: dict[int, tuple[int, str]] = {}  # by row: site and source
        self._arrived: set[int] = set()  # rows of pages that have left the gate

    @property
    def total(self) -> int:
        return len(self._sites)

    def add(self, request: Request, row: int, site: Site) -> None:
        """Note that *request*, for the page of *row*, is about to go to the scheduler."""
        self._trail.begin(request, row)
        self._sites[row] = site.id, site.named_by
        self.by_source[site.named_by] += 1
        self.by_site[site.id] += 1
        if self.by_site[site.id] == 1:
            self.sites_of[site.named_by] += 1

    def sent(self, row: int) -> None:
        """Note that the page of *row* went to the scheduler, unless that didn't take it: a filter
        dropped it, or a handler of ``request_scheduled`` refused it."""
        self._trail.let_go(row)

    def take_back(self, row: int) -> None:
        """Undo :meth:`add`: the scheduler raised an exception."""
        self._trail.forget(row)
        self._leave(row)
        self._arrived.discard(row)

    def left(self, request: Request, **_: object) -> None:
        """Note that a page is no longer in the scheduler."""
        row = self._trail.number_of(request)
        if row is not None:
            self._leave(row)

    def arrive(self, request: Request) -> None:
        """Note that a page has left the gate."""
        row = self._trail.number_of(request)
        if row is not None:
            self._leave(row)
            self._arrived.add(row)

    def keep(self, request: Request, **_: object) -> None:
        """Keep the row of a page for the next run: its request fails for want of a robots.txt."""
        row = self._trail.number_of(request)
        if row is not None:
            self.take_back(row)

    def close(self) -> None:
        """End a run that was not killed: pages that left the gate are finished (Scrapy's queue has those
        that are to be retried), others are for the next run."""
        self.finished += self._arrived

    def _done(self, row: int) -> None:
        self.finished.append(row)
        self._leave(row)
        self._arrived.discard(row)
        if len(self.finished) >= _ROWS_TO_DELETE:
            self._spool.wake()

    def _leave(self, row: int) -> None:
        if row not in self._sites:
            return
        site, source = self._sites.pop(row)
        count_down(self.by_source, source)
        count_down(self.by_site, site)
        if site not in self.by_site:
            count_down(self.sites_of, source)


def _let_pass(request: Request) -> None:
    """Make a page skip the dupe filter, which has seen it before."""
    request.dont_filter = True


class Twins:
    """Requests of the spider's for pages that a sitemap lists, too."""

    def __init__(self, context: SeedingContext) -> None:
        crawl = context.crawl
        self._spider = crawl.spider
        self._extra = crawl.extra
        self._signals = crawl.crawler.signals
        self._fingerprint: Callable[[Request], bytes] | None = None
        self._crawler: Any = crawl.crawler
        self._starts = BoundedSet()
        self._has_starts = False
        self._seeded: set[int] = (
            set()
        )  # hashes of URLs whose pages go to the default callback
        crawl.engine.following.watch(self._scheduled)
        if not context.options.has_rules:
            self._signals.connect(self._dropped, scrapy_signals.request_dropped)

    def is_start(self, request: Request) -> bool:
        """Whether the spider has requested this page itself to begin with. Scrapy doesn't filter these,
        nor remember them, so the page would come twice."""
        return self._has_starts and self._of(request) in self._starts

    def seeded(self, request: Request) -> None:
        """Note that a page from a sitemap went to the scheduler."""
        if request.callback is None and len(self._seeded) < _MAX_SEEDED_URLS:
            self._seeded.add(hash(request.url))

    def _of(self, request: Request) -> bytes:
        fingerprint: bytes = self._crawler.request_fingerprinter.fingerprint(request)
        return fingerprint

    def _scheduled(self, request: Request) -> None:
        if request.dont_filter and request.meta.get("is_start_request"):
            with suppress(Exception):  # from a project's fingerprinter
                self._starts.add(self._of(request))
                self._has_starts = True

    def _dropped(self, request: Request) -> None:
        """Warn once that a page was lost for a callback: the dupe filter drops the spider's own request."""
        callback = request.callback
        default = getattr(self._spider, "parse", None)
        if callback is None or callback == default or PAGE_KEY in request.meta:
            return
        if hash(request.url) in self._seeded:
            self._seeded.clear()
            self._signals.disconnect(self._dropped, scrapy_signals.request_dropped)
            logger.warning(
                "%(url)s, which a sitemap lists, was requested for the default callback; so the spider's own "
                "request for it, with the callback %(callback)s, was dropped as a duplicate. There may be "
                "more. Say in sitemap_rules which callback pages from sitemaps get.",
                {"url": request.url, "callback": getattr(callback, "__name__", "?")},
                extra=self._extra,
            )


class Feeder:
    """Hands pages to the scheduler as it drains, origins in turn, and requests sitemaps."""

    def __init__(
        self,
        context: SeedingContext,
        holding: Holding,
        loader: Loader,
        verifier: Verifier,
    ) -> None:
        self._crawl = context.crawl
        self._options = context.options
        self._spool = context.spool
        self._engine = context.crawl.engine
        self._signals = context.crawl.crawler.signals
        self._holding = holding
        self._loader = loader
        self._verifier = verifier
        self.outstanding = Outstanding(context.spool, context.crawl.engine.following)
        self._twins = Twins(context)
        concurrency = context.crawl.crawler.settings.getint(
            "CONCURRENT_REQUESTS_PER_DOMAIN"
        )
        self._each = max(_GUARANTEED_PAGES, 2 * concurrency)
        self._running = self._woken = False
        self._failing_since: float | None = None

    def __bool__(self) -> bool:
        is_busy = self._running or self._spool.waiting or self._loader.is_busy
        return not self._spool.over and bool(is_busy)

    @property
    def left(self) -> int:
        """How many pages have not reached a callback yet."""
        return self._spool.waiting + self.outstanding.total

    def wake(self) -> None:
        """Look soon: there may be something new in the spool, or room in the scheduler."""
        self._woken = True
        if not self._running and not self._is_over:
            self._running = True
            call_later(0, self._run)

    @property
    def _is_over(self) -> bool:
        return self._spool.over or (self._spool.ending and self._spool.durable)

    def _run(self) -> None:
        if self._is_over:
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
        elif not self:
            self._engine.wake()  # the crawl may be over

    def _failed(self, error: Exception) -> None:
        now, seconds = time.monotonic(), self._crawl.settings.hold_max_wait
        if self._failing_since is None:
            self._failing_since = now
            message = "Can't schedule pages from sitemaps, retrying for %(seconds)g s: %(error)s"
            values = {"error": text_of(error), "seconds": seconds}
            unusual = not isinstance(error, OSError)
            logger.error(message, values, extra=self._crawl.extra, exc_info=unusual)
        if now - self._failing_since >= seconds:
            self._spool.end()

    def step(self, *, everything: bool = False) -> float | None:
        """Schedule sitemaps and pages for one slice of time. Return the seconds until the next
        step; None: wait to be woken. With *everything*, regardless of the limits: the scheduler
        outlives the process."""
        if self._engine.paused and not everything:
            return _SECONDS_UNTIL_NEXT_STEP
        slices = Slices()
        fruitless = 0  # sources without room for a page, in a row
        self._verifier.begin()
        more = self._loader.request_some()
        sources = self._spool.proven
        while len(sources):
            if not everything and (self._is_full or fruitless > len(sources)):
                return _SECONDS_UNTIL_NEXT_STEP
            if self._send_of(sources.next_source(), everything=everything):
                fruitless = 0
            else:
                fruitless += 1
            if slices.renew_if_over():
                return 0
        return 0 if more else None

    @property
    def _is_full(self) -> bool:
        return self.outstanding.total >= _MAX_PAGES or not self._holding.held.room_for(
            None
        )

    def _send_of(self, source: str, *, everything: bool) -> bool:
        """Schedule pages of a site that *source* names. Return whether there was room for some."""
        sites = self._spool.proven.sites_of(source)
        for _ in range(min(len(sites), _SITES_TRIED_AT_A_TURN)):
            number, site = next(iter(sites.items()))
            sites.move_to_end(number)
            room = _PAGES_AT_A_TIME if everything else self._room(site)
            if room:
                self._send_some(site, room)
                return True
        return False

    def _room(self, site: Site) -> int:
        """Return how many pages of *site* may go to the scheduler now."""
        held = self._holding.held
        if self._holding.is_holding and not held.room_for(
            held.queues.get(Origin.from_url(site.origin))
        ):
            return 0
        if self._engine.scheduler_is_foreign:
            # 0 if it can't tell.
            others = (
                length_hint(self._engine.scheduler) - self._holding.handing_back.waiting
            )
            return max(0, min(_MAX_PAGES_OF_A_SITE - max(0, others), _PAGES_AT_A_TIME))
        outstanding = self.outstanding
        of_site = outstanding.by_site[site.id]
        if (
            not of_site
            and outstanding.sites_of[site.named_by] >= _MAX_SITES_OF_A_SOURCE
        ):
            return 0
        sources = self._spool.proven
        room = min(
            max(self._each, _MAX_PAGES_OF_A_SITE // sources.sites) - of_site,
            max(self._each, _MAX_PAGES // len(sources))
            - outstanding.by_source[site.named_by],
            _MAX_PAGES - outstanding.total,
        )
        return max(0, min(room, _PAGES_AT_A_TIME))

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
        request = self._wanted(page)
        if isinstance(request, Reason):
            self._crawl.stats.inc_value(request.stat)
            self.outstanding.finished.append(page.id)
            return False
        if not shared:
            self.outstanding.add(request, page.id, site)
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
                request.dont_filter = False  # from here on, it is like any other
        self._twins.seeded(request)
        if shared:
            self.outstanding.finished.append(page.id)
        else:
            self.outstanding.sent(page.id)
        return True

    def _wanted(self, page: Page) -> Request | Reason:
        """Return a page's request, or why it isn't made."""
        request = self._request_for(page)
        if request is None:
            return Reason.NO_RULE
        if self._twins.is_start(request):
            return Reason.START
        return self._options.changed_page(request) or Reason.FILTERED

    def _request_for(self, page: Page) -> Request | None:
        """Return a page's request; None if the spider's rules, Scrapy's, or the file have changed
        since the last run."""
        priority = self._crawl.settings.sitemap_page_priority
        try:
            return self._options.page_request(page.url, page.listing, priority)
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
        holding: Holding,
        discovery: Discovery,
        recorder: Recorder,
    ) -> None:
        """Raises ``SettingsError`` if one of the spider's attributes is wrong."""
        crawler, settings = context.crawler, context.settings
        if settings.sitemap_cross_host == "site":
            registrable_domain(
                "www.example.com"
            )  # read its list before the crawl begins
        self._context = context
        self._cache = origins.cache
        self._holding = holding
        self._discovery = discovery
        self.visited_prefixes: set[str] = set()
        """Prefixes of URLs whose origins the crawl has visited. Forgetting one does no harm: the
        spool has its sitemaps."""
        self._spool = Spool(
            job_dir(crawler.settings), settings.hold_max_wait, crawler.spider
        )
        self._upkeep = PeriodicTask(self._look)
        self._adding = (
            0  # robots.txt files whose sitemaps are on their way into the spool
        )
        options = SpiderOptions(crawler.spider)
        self._since = Since(context, origins.storage)
        parts = SeedingContext(
            context, origins, discovery, options, self._spool, self._since
        )
        self._log = log = SitemapLog(context, recorder.tell)
        self.loader = Loader(parts, log)
        self.links = PageLinks(self._linked) if settings.sitemap_guess else None
        """None: links to sitemaps don't count."""
        self._feeder = Feeder(parts, holding, self.loader, Verifier(parts, log))
        self._spool.notify(self._feeder.wake)
        self._connect(crawler.signals.connect)

    def _connect(self, connect: Callable[..., None]) -> None:
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)
        connect(self._feeder.outstanding.left, request_held)
        connect(self._feeder.outstanding.keep, request_given_up)

    def check(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Return a check to await before anything is fetched for *request*: whether its sitemap may
        lead there. None if there is nothing to check."""
        far = (
            self._context.settings.sitemap_cross_host != "strict"
            and PAGE_ROW_KEY in request.meta
        )
        return (
            self.loader.check(request) if far or SITEMAP_KEY in request.meta else None
        )

    def look_at(
        self, request: Request, *, checked: bool
    ) -> Coroutine[Any, Any, None] | None:
        """Note a request that is about to be sent. Return the check, unless it was *checked*."""
        usual = USUAL.match(request.url)
        prefix = usual[1] + "/" if usual else ""
        if prefix not in self.visited_prefixes:
            self._visit(request, prefix)
        check = None if checked else self.check(request)
        if PAGE_ROW_KEY in request.meta:
            self._feeder.outstanding.arrive(request)
        return check

    def learns_from(self, request: Request, prefix: str) -> bool:
        """Whether :meth:`look_at` may seed the crawl, given *request*, whose URL begins with
        *prefix*."""
        mode = self._discovery.mode
        if mode == LISTED or (
            mode == "start" and not request.meta.get("is_start_request")
        ):
            return False
        return prefix not in self.visited_prefixes

    def _visit(self, request: Request, prefix: str) -> None:
        """Let the origin of a page that the crawl requests seed. Remember the *prefix* of its URL."""
        if SITEMAP_KEY in request.meta:
            return  # hosting a sitemap doesn't make a host a seed
        if self._discovery.mode == "start" and not request.meta.get("is_start_request"):
            return
        try:
            origin = origin_of(request)
        except ValueError:
            return
        is_new = f"{origin}/" not in self.visited_prefixes
        if len(self.visited_prefixes) >= _MAX_PREFIXES:
            self.visited_prefixes.clear()
        self.visited_prefixes.update((f"{origin}/", prefix or f"{origin}/"))
        state = (
            self._cache.get(origin)
            if is_new and self._discovery.mode != LISTED
            else None
        )
        if state is not None and not state.unreachable:
            self._seed(self._add_listed(origin, listed_by(state)))

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Add the sitemaps that a new robots.txt lists; if it lists none, perhaps a guess."""
        there = flight.outcome is not Outcome.UNREACHABLE
        if (
            there
            and self._discovery.mode != LISTED
            and f"{state.origin}/" in self.visited_prefixes
        ):
            self._seed(self._add_listed(state.origin, listed_by(state)))

    def _linked(self, origin: Origin, page: str, urls: list[str]) -> None:
        """Add sitemaps that a page of *origin* links to."""
        self._seed(self._add_linked(origin, page, urls))

    def _seed(self, adding: Coroutine[Any, Any, None]) -> None:
        self._adding += 1
        deferred_from_coro(self._until_added(adding))

    async def _until_added(self, adding: Coroutine[Any, Any, None]) -> None:
        try:
            await adding
        except sqlite3.Error:
            pass  # the file has failed for too long, which is logged
        finally:
            self._adding -= 1
            self._feeder.wake()  # the crawl may be over

    async def _add_listed(
        self, origin: Origin, listing: Coroutine[Any, Any, dict[str, str]]
    ) -> None:
        """Write the sitemaps that the robots.txt of *origin* lists into the spool; if it lists none, perhaps
        a guess."""
        if listed := await listing:
            await self._spool.retry(
                self.loader.add_named, str(origin), listed, Found.LISTED
            )
        elif self.links is not None:
            self.links.expect(origin)
            await self._spool.retry(self.loader.guess, str(origin))

    async def _add_linked(self, origin: Origin, page: str, urls: list[str]) -> None:
        """Write sitemaps that a page of *origin* links to into the spool."""
        linked = await resolve_all(page, urls)
        for url in linked:
            self._discovery.count(url)
        if linked:
            await self._spool.retry(
                self.loader.add_named, str(origin), linked, Found.LINKED
            )

    async def _spider_opened(self) -> None:
        self._context.engine.before_closing(Stage.SEEDING, self._before_closing)
        await self._since.begin()
        await self._upkeep.begin()
        async for url in in_slices(own_sitemaps(self._context.crawler)):
            if url != without_user(url):
                logger.warning(
                    "User name and password of %(url)s, in rep_sitemaps, are not sent: Scrapy takes none from "
                    "URLs. Set the spider's http_user, http_pass and http_auth_domain, or add a header in "
                    "sitemap_request().",
                    {"url": url},
                    extra=self._context.extra,
                )
            self._discovery.count(without_user(url))
            origin = Origin.from_url(url)
            # As if its robots.txt listed it.
            self._seed(self._add_listed(origin, resolve_all(origin.robots_url, [url])))

    async def _look(self) -> None:
        """Open the spool, or write what couldn't be written; every second."""
        self._feeder.forget()
        if await self._spool.open_or_flush():
            self._feeder.wake()
            if self._spool.waiting:
                pages = {"pages": counted(self._spool.waiting, "page")}
                message = "An earlier run left %(pages)s from sitemaps"
                logger.info(message, pages, extra=self._context.extra)

    def _spider_idle(self) -> None:
        if self._spool.over:
            return
        self._feeder.forget()
        if self._feeder or self._adding or not self._spool.opened:
            raise DontCloseSpider

    @property
    def _is_left(self) -> bool:
        """Whether there are sitemaps or pages that this process has yet to deal with. Those in a scheduler
        that processes share may be another one's."""
        if self._context.engine.scheduler_is_foreign:
            return False
        return bool(self._spool.unread() or self._feeder.left)

    async def _before_closing(self) -> None:
        spool = self._spool
        spool.begin_ending()
        # One that has read nothing (the sites were down, say) must not keep away what was changed before it.
        has_read = self._log.has_read or spool.had_done
        if (
            spool.started_at is not None
            and has_read
            and not spool.over
            and not self._is_left
        ):
            self._since.complete(spool.started_at)
        while self._adding and not spool.over:
            await pause()
        if self._context.engine.scheduler_outlives and not spool.durable:
            try:
                while self._feeder.step(everything=True) is not None:
                    await pause()
            except Exception:
                message = "Can't hand pages from sitemaps to the scheduler"
                logger.exception(message, extra=self._context.extra)
        if not spool.durable:
            self._tell_what_is_left()
            spool.end()

    def _tell_what_is_left(self) -> None:
        """Count the sitemaps that were not read, and log what ends with the crawl."""
        spool = self._spool
        unread = spool.unread()
        self._context.stats.set_value("rep/sitemaps/unread", unread)
        left = []
        if self._feeder.left:
            left.append(
                f"{counted(self._feeder.left, 'page')} from sitemaps not requested"
            )
        if unread:
            left.append(f"{counted(unread, 'sitemap')} not read")
        if left and not spool.durable:
            message = "%(left)s: the crawl is closing. Set JOBDIR to keep them for the next run"
            logger.info(message, {"left": ", ".join(left)}, extra=self._context.extra)

    def _warn_of_no_seeds(self) -> None:
        """Warn that sitemaps should seed the crawl, and none could: it would end without a word."""
        stats = self._context.stats
        if self.visited_prefixes or stats.get_value("rep/sitemaps/found"):
            return
        logger.warning(
            "REP_SITEMAPS is on, but the crawl requested no page of any site, so no robots.txt could list "
            "sitemaps. Yield a request to each site from start(), or name sitemaps in the spider's "
            "rep_sitemaps.",
            extra=self._context.extra,
        )

    async def _spider_closed(self, reason: str) -> None:
        if self._spool.durable:  # sitemaps on their way have been read since
            self._tell_what_is_left()
        self._spool.end()
        if reason == "finished":
            self._warn_of_no_seeds()
        self._feeder.outstanding.close()
        self._feeder.forget()
        self._feeder.gauge()
        await self._upkeep.now(last=True)
        await run_in_thread(self._spool.close)
