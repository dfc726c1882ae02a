"""Seeds the crawl from the sitemaps that robots.txt files list (REP.md section 9): puts
the parts of this folder together (its ``__init__`` explains their words), decides which
origins may seed, and moves pages from the spool to the scheduler."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from operator import length_hint
from typing import Any, NamedTuple

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
from scrapy_rep.origins.agents import USUAL_URL, origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.queue import Flight
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

# At most this many pages of all sites (see Site in seeding/spool.py) are in the
# scheduler. The others wait in the spool, on disk.
_MAX_PAGES = 4000
# Sites with pages that wait share this number: a site may have this many pages in the
# scheduler if no other has pages that wait.
_MAX_PAGES_OF_A_SITE = 1000
# However many sites and sources share these numbers, each may have at least this many
# pages in the scheduler, since with fewer a download slot would be idle until the next
# step.
_GUARANTEED_PAGES = 16
# At most this many sites of one source may have pages in the scheduler. Scrapy lets
# hosts take turns, so a source with more hosts would get more of the crawl.
_MAX_SITES_OF_A_SOURCE = 32
# When it is a source's turn, at most this many of its sites are tried, until one is
# found for whose pages the scheduler has room.
_SITES_TRIED_AT_A_TURN = 16
# At most this many pages are taken from the spool at a time.
_PAGES_AT_A_TIME = 50
# Seconds until the next look for room in the scheduler. (Scrapy tells nobody when a
# request leaves it.)
_SECONDS_UNTIL_NEXT_STEP = 0.05

# Once this many pages are finished, their rows are deleted together, in one
# transaction.
_ROWS_TO_DELETE = 20
# At most this many URLs of pages from sitemaps are remembered for a warning about lost
# callbacks (Twins).
_MAX_SEEDED_URLS = 10_000
# At most this many URL prefixes of visited origins are remembered.
_MAX_VISITED_PREFIXES = 20_000


class _SiteAndSource(NamedTuple):
    """What a page in the scheduler is counted for: its
    :class:`~scrapy_rep.seeding.spool.Site`, by number, and that site's source."""

    site: int
    source: str


class Outstanding:
    """Counts the pages from sitemaps that are in the scheduler. Also collects the rows
    (numbers in the spool, seeding/spool.py) of pages with which the crawl is done, as a
    :class:`~scrapy_rep.engine.access.Trail` tells, so that they are deleted."""

    def __init__(self, spool: Spool, following: Following) -> None:
        self._spool = spool
        self._trail = following.trail(
            PAGE_ROW_KEY, self._page_is_done, is_kept=spool.is_kept
        )
        self.by_site: Counter[int] = Counter()
        """How many pages of each site are in the scheduler, by the site's number."""
        self.by_source: Counter[str] = Counter()
        """How many pages of each source (the origin whose sitemaps name them) are in
        the scheduler."""
        self.sites_of: Counter[str] = Counter()
        """How many sites of each source have pages in the scheduler."""
        self.finished: list[int] = []
        """Rows of finished pages, to be deleted."""
        # Site and source of each page in the scheduler, by the page's row.
        self._sites: dict[int, _SiteAndSource] = {}
        # Rows of pages that have left the scheduler and passed the gate
        # (holding/gate.py), and with which the crawl isn't done.
        self._past_gate: set[int] = set()

    @property
    def total(self) -> int:
        """How many pages are in the scheduler."""
        return len(self._sites)

    def add(self, request: Request, row: int, site: Site) -> None:
        """Note that *request*, for the page of *row*, is about to go to the
        scheduler."""
        self._trail.begin(request, row)
        source = site.named_by
        self._sites[row] = _SiteAndSource(site.id, source)
        self.by_source[source] += 1
        self.by_site[site.id] += 1
        is_first_of_site = self.by_site[site.id] == 1
        if is_first_of_site:  # the source has one more site in the scheduler
            self.sites_of[source] += 1

    def note_sent(self, row: int) -> None:
        """Note that we have handed the page of *row* to the scheduler. If the
        scheduler didn't take the page (a filter dropped it, or a handler of
        ``request_scheduled`` refused it), the crawl is done with the page."""
        self._trail.let_go(row)

    def take_back(self, row: int) -> None:
        """Undo :meth:`add`, since the scheduler raised an exception, or the page is for
        the next run. The page's row stays in the spool."""
        self._trail.forget(row)
        self._count_out(row)
        self._past_gate.discard(row)

    def note_held(self, request: Request, **_: object) -> None:
        """Note that a page is held (holding/holding.py), and so no longer in the
        scheduler."""
        row = self._trail.number_of(request)
        if row is not None:
            self._count_out(row)

    def pass_gate(self, request: Request) -> None:
        """Note that a page has left the scheduler and passed the gate
        (holding/gate.py)."""
        row = self._trail.number_of(request)
        if row is not None:
            self._count_out(row)
            self._past_gate.add(row)

    def keep_for_next_run(self, request: Request, **_: object) -> None:
        """Keep the row of a page for the next run, since its request fails for want of
        a robots.txt."""
        row = self._trail.number_of(request)
        if row is not None:
            self.take_back(row)

    def finish_passed_pages(self) -> None:
        """End a run that was not killed: pages that have passed the gate are finished
        (Scrapy's queue has those that are to be retried); the next run gets the
        others."""
        self.finished += self._past_gate

    def _page_is_done(self, row: int) -> None:
        """Note that the crawl is done with the page of *row*."""
        self.finished.append(row)
        self._count_out(row)
        self._past_gate.discard(row)
        if len(self.finished) >= _ROWS_TO_DELETE:
            self._spool.wake()

    def _count_out(self, row: int) -> None:
        """Stop counting the page of *row* as being in the scheduler, if it was."""
        if row not in self._sites:
            return
        site, source = self._sites.pop(row)
        count_down(self.by_source, source)
        count_down(self.by_site, site)
        if site not in self.by_site:  # that was the last page of the site
            count_down(self.sites_of, source)


def _skip_dupe_filter(request: Request) -> None:
    """Make the request for a page skip the dupe filter, which may have seen the page
    before. This function is a handler of ``request_scheduled``."""
    request.dont_filter = True


class Twins:
    """Knows the spider's own requests for pages that a sitemap lists, too. Such a page
    must not come twice; and if its request from the sitemap comes first, the spider's
    own request is dropped, and with it the callback."""

    def __init__(self, context: SeedingContext) -> None:
        crawl = context.crawl
        self._spider = crawl.spider
        self._extra = crawl.extra
        self._signals = crawl.crawler.signals
        self._crawler: Any = crawl.crawler
        # Fingerprints of start requests.
        self._starts = BoundedSet()
        # Whether there are start requests. If not, no page needs a fingerprint.
        self._has_starts = False
        # Hashes of the URLs of pages from sitemaps that go to the spider's default
        # callback.
        self._seeded: set[int] = set()
        crawl.engine.following.watch(self._remember_start)
        # With sitemap_rules, the project has chosen the callbacks.
        if not context.options.has_rules:
            self._signals.connect(
                self._warn_of_lost_callback, scrapy_signals.request_dropped
            )

    def is_start(self, request: Request) -> bool:
        """Whether *request*, for a page from a sitemap, is like one of the spider's
        start requests. The dupe filter neither stops nor remembers start requests, so
        the page would come twice."""
        return self._has_starts and self._fingerprint(request) in self._starts

    def add_seeded(self, request: Request) -> None:
        """Note that a page from a sitemap went to the scheduler, if it is for the
        spider's default callback."""
        if request.callback is None and len(self._seeded) < _MAX_SEEDED_URLS:
            self._seeded.add(hash(request.url))

    def _fingerprint(self, request: Request) -> bytes:
        fingerprint: bytes = self._crawler.request_fingerprinter.fingerprint(request)
        return fingerprint

    def _remember_start(self, request: Request) -> None:
        """Remember a start request that the scheduler has taken."""
        if request.dont_filter and request.meta.get("is_start_request"):
            with suppress(Exception):  # a project's fingerprinter may raise anything
                self._starts.add(self._fingerprint(request))
                self._has_starts = True

    def _warn_of_lost_callback(self, request: Request) -> None:
        """Warn once that a callback doesn't get its page: the dupe filter drops the
        spider's own *request*, since the one from a sitemap came first."""
        callback = request.callback
        default_callback = getattr(self._spider, "parse", None)
        is_for_default = callback is None or callback == default_callback
        is_from_sitemap = PAGE_KEY in request.meta
        if is_for_default or is_from_sitemap:
            return
        if hash(request.url) not in self._seeded:
            return
        # There is one warning only, so nothing needs to be remembered any more.
        self._seeded.clear()
        self._signals.disconnect(
            self._warn_of_lost_callback, scrapy_signals.request_dropped
        )
        logger.warning(
            "%(url)s, which a sitemap lists, was requested for the default callback; so the spider's own "
            "request for it, with the callback %(callback)s, was dropped as a duplicate. There may be "
            "more. Say in sitemap_rules which callback pages from sitemaps get.",
            {"url": request.url, "callback": getattr(callback, "__name__", "?")},
            extra=self._extra,
        )


class Feeder:
    """Moves pages from the spool to the scheduler, in steps, whenever the scheduler has
    room. Sources (the origins whose sitemaps name pages) take turns. In each step, the
    feeder also has the loader request sitemaps and the verifier look at sites."""

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
        settings = context.crawl.crawler.settings
        concurrency = settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        # Twice the concurrency, so that no download slot is idle until the next step.
        self._guaranteed_pages = max(_GUARANTEED_PAGES, 2 * concurrency)
        self._running = False
        """Whether a next step is due, now or after a delay."""
        self._woken = False
        """Whether wake() was called since the latest step began, so that there may be
        something to do that this step hasn't seen."""
        self._failing_since: float | None = None
        """Since when the scheduler raises exceptions, in seconds of the monotonic
        clock."""

    @property
    def is_busy(self) -> bool:
        """Whether the crawl has to go on, since there are pages to schedule, or
        sitemaps that were requested and not read."""
        if self._spool.seeding_over:
            return False
        return self._running or self._spool.waiting > 0 or self._loader.is_busy

    @property
    def pages_left(self) -> int:
        """How many pages wait in the spool or the scheduler."""
        return self._spool.waiting + self.outstanding.total

    def wake(self) -> None:
        """Make a step soon, since there may be something new in the spool, or room in
        the scheduler."""
        self._woken = True
        if not self._running and not self._is_over:
            self._running = True
            call_later(0, self._run_step)

    @property
    def _is_over(self) -> bool:
        """Whether no more steps are made, since seeding has ended, or since the crawl
        is closing and the spool keeps the pages for the next run."""
        if self._spool.seeding_over:
            return True
        return self._spool.crawl_closing and self._spool.durable

    def _run_step(self) -> None:
        """Make a step, and arrange for the next one."""
        if self._is_over:
            return
        self._woken = False
        # Seconds until the next step; None: the next step waits for wake(). If this
        # step fails, the value stays as it is here.
        delay: float | None = RETRY_SECONDS
        try:
            delay = self.step()
            self._failing_since = None
        except sqlite3.Error:
            pass  # the spool's file fails, which is logged
        except Exception as error:  # noqa: BLE001
            # The scheduler's server may be gone, or its disk full, for example.
            self._note_failure(error)
        self.forget_finished_pages()
        self.set_waiting_stat()
        if delay is None and self._woken:
            delay = 0
        # Arrange for the next step. However often wake() was called, one step follows another, and between them
        # the event loop does other work.
        self._running = delay is not None
        if delay is not None:
            call_later(delay, self._run_step)
        elif not self.is_busy:
            self._engine.wake()  # the crawl may be over

    def _note_failure(self, error: Exception) -> None:
        """Log that the scheduler raises exceptions, once. After REP_HOLD_MAX_WAIT, end
        seeding."""
        now = time.monotonic()
        seconds = self._crawl.settings.hold_max_wait
        if self._failing_since is None:
            self._failing_since = now
            is_unusual = not isinstance(error, OSError)
            logger.error(
                "Can't schedule pages from sitemaps, retrying for %(seconds)g s: %(error)s",
                {"error": text_of(error), "seconds": seconds},
                extra=self._crawl.extra,
                exc_info=is_unusual,
            )
        if now - self._failing_since >= seconds:
            self._spool.end_seeding()

    def step(self, *, everything: bool = False) -> float | None:
        """Schedule sitemaps and pages for one slice of time (Slices in
        engine/timers.py). Return the seconds until the next step; None: wait to be
        woken. With *everything*, pages are scheduled regardless of the limits, since
        the scheduler outlives the process."""
        if self._engine.paused and not everything:
            return _SECONDS_UNTIL_NEXT_STEP
        slices = Slices()
        self._verifier.look_at_some_sites()
        has_more_sitemaps = self._loader.request_some()
        # Sources with pages that may be requested, see Spool in seeding/spool.py. Each
        # gets some of its pages scheduled in its turn.
        sources = self._spool.proven
        # For how many sources in a row the scheduler had no room.
        sources_without_room = 0
        while len(sources):
            is_stuck = self._is_full or sources_without_room > len(sources)
            if is_stuck and not everything:
                return _SECONDS_UNTIL_NEXT_STEP
            source = sources.next_source()
            had_room = self._send_pages_of(source, everything=everything)
            sources_without_room = 0 if had_room else sources_without_room + 1
            if slices.renew_if_over():
                return 0
        return 0 if has_more_sitemaps else None

    @property
    def _is_full(self) -> bool:
        """Whether the scheduler gets no pages now, whatever their site: it has enough,
        or so many requests are held (holding/hold.py) that there is no room for even
        one of another origin."""
        if self.outstanding.total >= _MAX_PAGES:
            return True
        return not self._holding.held.room_for(None)

    def _send_pages_of(self, source: str, *, everything: bool) -> bool:
        """Schedule pages of a site that *source* names. Return whether there was room
        for any page."""
        sites = self._spool.proven.sites_of(source)
        for _ in range(min(len(sites), _SITES_TRIED_AT_A_TURN)):
            number, site = next(iter(sites.items()))
            sites.move_to_end(number)  # the next turn is another site's
            room = _PAGES_AT_A_TIME if everything else self._room_for(site)
            if room:
                self._send_pages(site, room)
                return True
        return False

    def _room_for(self, site: Site) -> int:
        """Return how many pages of *site* may go to the scheduler now."""
        if self._holding.is_holding:
            # Requests for these pages may have to be held, too. So there must be room
            # among held requests.
            held = self._holding.held
            queue = held.queues.get(Origin.from_url(site.origin))
            if not held.room_for(queue):
                return 0
        if self._engine.scheduler_is_foreign:
            room = self._room_in_foreign_scheduler()
        else:
            room = self._room_in_own_scheduler(site)
        return max(0, min(room, _PAGES_AT_A_TIME))

    def _room_in_foreign_scheduler(self) -> int:
        """Return how many pages may go to a scheduler that isn't Scrapy's, and keeps
        them, perhaps for other processes. Its length has a limit; our own requests that
        are being handed back to it don't count."""
        handed_back = self._holding.handing_back.waiting
        # length_hint() returns 0 if the scheduler can't tell its length.
        length = length_hint(self._engine.scheduler) - handed_back
        return _MAX_PAGES_OF_A_SITE - max(0, length)

    def _room_in_own_scheduler(self, site: Site) -> int:
        """Return how many pages of *site* may go to Scrapy's scheduler, by the limits
        for the site, for its source, and for all. The number may be negative."""
        outstanding = self.outstanding
        pages_of_site = outstanding.by_site[site.id]
        sites_of_source = outstanding.sites_of[site.named_by]
        # A source may have pages of some sites only in the scheduler.
        if pages_of_site == 0 and sites_of_source >= _MAX_SITES_OF_A_SOURCE:
            return 0
        # All sites, and all sources, with pages that wait share two other limits.
        sources = self._spool.proven
        share_of_site = _MAX_PAGES_OF_A_SITE // sources.sites
        share_of_source = _MAX_PAGES // len(sources)
        limit_of_site = max(self._guaranteed_pages, share_of_site)
        limit_of_source = max(self._guaranteed_pages, share_of_source)
        return min(
            limit_of_site - pages_of_site,
            limit_of_source - outstanding.by_source[site.named_by],
            _MAX_PAGES - outstanding.total,
        )

    def _send_pages(self, site: Site, room: int) -> None:
        """Schedule up to *room* pages of *site*."""
        sent = 0
        try:
            for page in self._spool.take_pages(site, room):
                if self._send_page(page, site):
                    sent += 1
        finally:
            # The stat is increased once for all pages, since increasing it takes as
            # long as a large part of the work for one page.
            if sent:
                self._crawl.stats.inc_value("rep/sitemaps/emitted", sent)

    def _send_page(self, page: Page, site: Site) -> bool:
        """Schedule a page, if it is still wanted. Return whether it is."""
        request = self._request_if_wanted(page)
        if isinstance(request, Reason):
            self._crawl.stats.inc_value(request.stat)
            self.outstanding.finished.append(page.id)
            return False
        # A scheduler that isn't Scrapy's keeps the page itself. Then the page's row in
        # the spool is deleted at once, and the page isn't followed.
        is_kept_there = self._engine.scheduler_is_foreign
        if not is_kept_there:
            self.outstanding.add(request, page.id, site)
        self._schedule(request, page, site)
        self._twins.add_seeded(request)
        if is_kept_there:
            self.outstanding.finished.append(page.id)
        else:
            self.outstanding.note_sent(page.id)
        return True

    def _schedule(self, request: Request, page: Page, site: Site) -> None:
        """Hand *request* to the scheduler. If the page went there before (in an earlier
        run, or the scheduler raised an exception), the request skips the dupe filter,
        which may remember it."""
        is_sent_again = page.id <= site.sent
        if is_sent_again:
            # A signal handler sets dont_filter. It is called after the handler of
            # OffsiteMiddleware, which must see the request unchanged.
            self._signals.connect(_skip_dupe_filter, scrapy_signals.request_scheduled)
        try:
            self._engine.crawl(request)
        except Exception:
            self.outstanding.take_back(page.id)
            # The request may have reached the dupe filter, which would drop it the next
            # time. So it is noted that the page was sent.
            site.sent = max(site.sent, page.id)
            raise
        finally:
            if is_sent_again:
                self._signals.disconnect(
                    _skip_dupe_filter, scrapy_signals.request_scheduled
                )
                request.dont_filter = False  # from here on, it is like any other

    def _request_if_wanted(self, page: Page) -> Request | Reason:
        """Return a page's request, or why no request is made."""
        request = self._request_for(page)
        if request is None:
            return Reason.NO_RULE
        if self._twins.is_start(request):
            return Reason.START
        return self._options.changed_page(request) or Reason.FILTERED

    def _request_for(self, page: Page) -> Request | None:
        """Return a page's request; None if it can't be made any more, because something
        (the spider's rules, Scrapy's, or the spool's file) has changed since the page
        was accepted, perhaps in an earlier run."""
        priority = self._crawl.settings.sitemap_page_priority
        try:
            return self._options.page_request(page.url, page.listing, priority)
        except (TypeError, ValueError, RecursionError):
            return None

    def forget_finished_pages(self) -> None:
        """Delete the rows of finished pages."""
        finished_rows = self.outstanding.finished
        self.outstanding.finished = []
        self._spool.delete_pages(finished_rows)

    def set_waiting_stat(self) -> None:
        """Set the stat that says how many pages wait."""
        self._crawl.stats.set_value("rep/sitemaps/waiting", self._spool.waiting)


class SitemapSeeding(ResolutionListener):
    """Decides which origins seed the crawl, and opens and closes the parts of this
    folder."""

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
            # The first call takes 0.1 s, to read the list of public suffixes. It is
            # better made before the crawl begins.
            registrable_domain("www.example.com")
        self._context = context
        self._cache = origins.cache
        self._holding = holding
        self._discovery = discovery
        self.visited_prefixes: set[str] = set()
        """Prefixes of URLs whose origins the crawl has visited. To forget a prefix does
        no harm, since the spool has the sitemaps of its origin."""
        self._spool = Spool(
            job_dir(crawler.settings), settings.hold_max_wait, crawler.spider
        )
        self._upkeep = PeriodicTask(self._open_or_flush)
        self._adding = 0
        """How many coroutines add sitemaps to the spool now: one for each robots.txt or
        page that names some."""
        options = SpiderOptions(crawler.spider)
        self._since = Since(context, origins.storage)
        parts = SeedingContext(
            context, origins, discovery, options, self._spool, self._since
        )
        self._log = SitemapLog(context, recorder.tell)
        self.loader = Loader(parts, self._log)
        self.links = PageLinks(self._linked) if settings.sitemap_guess else None
        """None if links to sitemaps don't count."""
        verifier = Verifier(parts, self._log)
        self._feeder = Feeder(parts, holding, self.loader, verifier)
        self._spool.call_when_woken(self._feeder.wake)
        self._connect(crawler.signals.connect)

    def _connect(self, connect: Callable[..., None]) -> None:
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)
        connect(self._feeder.outstanding.note_held, request_held)
        connect(self._feeder.outstanding.keep_for_next_run, request_given_up)

    def check(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Return a check to await before anything is fetched for *request*: whether its
        sitemap may lead there. None if there is nothing to check."""
        if SITEMAP_KEY in request.meta:
            return self.loader.check(request)
        # In strict mode, pages on other hosts get this far only after the verifier
        # (seeding/selection.py) has found that their hosts list the sitemap.
        is_strict = self._context.settings.sitemap_cross_host == "strict"
        if PAGE_ROW_KEY in request.meta and not is_strict:
            return self.loader.check(request)
        return None

    def look_at(
        self, request: Request, *, checked: bool
    ) -> Coroutine[Any, Any, None] | None:
        """Note a request that is about to be sent, and let its origin seed. Return the
        check, see :meth:`check`, unless the request was *checked*. Called for each
        request."""
        # The prefix is the URL's scheme, host and port. An unusual URL has none here;
        # _visit() parses it.
        usual_url = USUAL_URL.match(request.url)
        prefix = usual_url[1] + "/" if usual_url else ""
        if prefix not in self.visited_prefixes:
            self._visit(request, prefix)
        check = None if checked else self.check(request)
        if PAGE_ROW_KEY in request.meta:
            self._feeder.outstanding.pass_gate(request)
        return check

    def learns_from(self, request: Request, prefix: str) -> bool:
        """Whether :meth:`look_at` may seed the crawl, given *request*, whose URL begins
        with *prefix*."""
        mode = self._discovery.mode
        if mode == LISTED:
            return False
        if mode == "start" and not request.meta.get("is_start_request"):
            return False
        return prefix not in self.visited_prefixes

    def _visit(self, request: Request, prefix: str) -> None:
        """Let the origin of a page that the crawl requests seed. Remember the *prefix*
        of the page's URL, which is empty if the URL is unusual."""
        if SITEMAP_KEY in request.meta:
            return  # hosting a sitemap doesn't make a host a seed
        if self._discovery.mode == "start" and not request.meta.get("is_start_request"):
            return
        try:
            origin = origin_of(request)
        except ValueError:  # the URL can't have a robots.txt
            return
        # Remember the origin, as its usual prefix and as this one.
        usual_prefix = f"{origin}/"
        is_new = usual_prefix not in self.visited_prefixes
        if len(self.visited_prefixes) >= _MAX_VISITED_PREFIXES:
            self.visited_prefixes.clear()
        self.visited_prefixes.add(usual_prefix)
        if prefix:
            self.visited_prefixes.add(prefix)
        if not is_new or self._discovery.mode == LISTED:
            return
        # Add the sitemaps that its robots.txt lists. If the file isn't known yet,
        # resolved() does so once there is an answer.
        state = self._cache.get(origin)
        if state is not None and not state.unreachable:
            self._run_adding(self._add_listed(origin, listed_by(state)))

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Add the sitemaps that a new robots.txt lists, if its origin may seed; see
        :meth:`_add_listed`. Called with the answer of a *flight*, which is a fetch of
        robots.txt."""
        if flight.outcome is Outcome.UNREACHABLE or self._discovery.mode == LISTED:
            return
        if f"{state.origin}/" in self.visited_prefixes:
            self._run_adding(self._add_listed(state.origin, listed_by(state)))

    def _linked(self, origin: Origin, page: str, urls: list[str]) -> None:
        """Add sitemaps that the page at URL *page*, of *origin*, links to.
        :class:`PageLinks` calls this."""
        self._run_adding(self._add_linked(origin, page, urls))

    def _run_adding(self, adding: Coroutine[Any, Any, None]) -> None:
        """Run *adding*, a coroutine that adds sitemaps to the spool. The crawl doesn't
        end before all of them are done."""
        self._adding += 1
        deferred_from_coro(self._until_added(adding))

    async def _until_added(self, adding: Coroutine[Any, Any, None]) -> None:
        """Await *adding*, and count one coroutine less in the end."""
        try:
            await adding
        except sqlite3.Error:
            pass  # the file has failed for too long, which is logged
        finally:
            self._adding -= 1
            if not self._adding:
                self._context.engine.wake()  # the crawl may be over

    async def _add_listed(
        self, origin: Origin, resolving: Coroutine[Any, Any, dict[str, str]]
    ) -> None:
        """Write the sitemaps that the robots.txt of *origin* lists into the spool.
        *resolving* is a coroutine that returns them, see
        :func:`~scrapy_rep.seeding.discovery.resolve_all`. If there are no sitemaps, and
        ``REP_SITEMAP_GUESS`` is on, look for links to some and guess."""
        source = str(origin)
        hosts = await resolving
        if hosts:
            add_named = self.loader.add_named
            await self._spool.retry(add_named, source, hosts, Found.LISTED)
        elif self.links is not None:
            self.links.look_at_pages_of(origin)
            await self._spool.retry(self.loader.guess, source)

    async def _add_linked(self, origin: Origin, page: str, urls: list[str]) -> None:
        """Write sitemaps that the page at URL *page*, of *origin*, links to into the
        spool."""
        hosts = await resolve_all(page, urls)
        for url in hosts:
            self._discovery.count_if_new(url)
        if hosts:
            add_named = self.loader.add_named
            await self._spool.retry(add_named, str(origin), hosts, Found.LINKED)

    async def _spider_opened(self) -> None:
        """Open the spool, and add the sitemaps that the spider names."""
        self._context.engine.before_closing(Stage.SEEDING, self._before_closing)
        await self._since.load_date()
        await self._upkeep.begin()
        async for url in in_slices(own_sitemaps(self._context.crawler)):
            self._add_own(url)

    def _add_own(self, url: str) -> None:
        """Add a sitemap that the spider names in ``rep_sitemaps``, as if the robots.txt
        of its origin listed it."""
        url_without_user = without_user(url)
        if url != url_without_user:
            logger.warning(
                "User name and password of %(url)s, in rep_sitemaps, are not sent: Scrapy takes none from "
                "URLs. Set the spider's http_user, http_pass and http_auth_domain, or add a header in "
                "sitemap_request().",
                {"url": url},
                extra=self._context.extra,
            )
        self._discovery.count_if_new(url_without_user)
        origin = Origin.from_url(url)
        # As if this URL were all that a robots.txt lists.
        resolving = resolve_all(origin.robots_url, [url])
        self._run_adding(self._add_listed(origin, resolving))

    async def _open_or_flush(self) -> None:
        """Open the spool, or write to it what couldn't be written. Called every
        second."""
        self._feeder.forget_finished_pages()
        is_opened_now = await self._spool.open_or_flush()
        if not is_opened_now:
            return
        self._feeder.wake()
        if self._spool.waiting:
            logger.info(
                "An earlier run left %(pages)s from sitemaps",
                {"pages": counted(self._spool.waiting, "page")},
                extra=self._context.extra,
            )

    def _spider_idle(self) -> None:
        """Keep the crawl open while there are pages to schedule, or sitemaps to read or
        to add."""
        if self._spool.seeding_over:
            return
        self._feeder.forget_finished_pages()
        if self._feeder.is_busy or self._adding or not self._spool.opened:
            raise DontCloseSpider

    @property
    def _has_unfinished(self) -> bool:
        """Whether there are sitemaps or pages that this process has yet to deal with.
        If processes share the scheduler, another process may deal with what it holds,
        so the answer is False."""
        if self._context.engine.scheduler_is_foreign:
            return False
        return self._spool.count_unread() > 0 or self._feeder.pages_left > 0

    async def _before_closing(self) -> None:
        """Decide what becomes of sitemaps and pages that wait, while the scheduler
        still takes requests."""
        self._spool.note_closing()
        self._complete_if_all_was_seen()
        # Wait until all sitemaps are in the spool, since those that aren't read count
        # as left.
        while self._adding and not self._spool.seeding_over:
            await pause()
        if self._spool.durable:
            return  # the next run gets what waits
        if self._context.engine.scheduler_outlives:  # and so keeps what it gets now
            await self._hand_over_everything()
        self._report_unfinished()
        self._spool.end_seeding()

    def _complete_if_all_was_seen(self) -> None:
        """Note, for ``REP_SITEMAP_SINCE``, that this crawl has seen all that sitemaps
        listed, if it has."""
        # If this crawl has read nothing (the sites were down, say), the next one must
        # still request pages that were changed before this one began.
        has_read = self._log.has_read or self._spool.has_done_sitemaps
        started_at = self._spool.started_at
        if started_at is None or self._spool.seeding_over or not has_read:
            return
        if not self._has_unfinished:
            self._since.note_all_seen(started_at)

    async def _hand_over_everything(self) -> None:
        """Move all pages to the scheduler, which keeps them."""
        try:
            while self._feeder.step(everything=True) is not None:
                await pause()
        except Exception:
            message = "Can't hand pages from sitemaps to the scheduler"
            logger.exception(message, extra=self._context.extra)

    def _report_unfinished(self) -> None:
        """Count the sitemaps that were not read, and log what ends with the crawl."""
        unread = self._spool.count_unread()
        self._context.stats.set_value("rep/sitemaps/unread", unread)
        if self._spool.durable:
            return
        unfinished = []
        pages = self._feeder.pages_left
        if pages:
            unfinished.append(f"{counted(pages, 'page')} from sitemaps not requested")
        if unread:
            unfinished.append(f"{counted(unread, 'sitemap')} not read")
        if unfinished:
            logger.info(
                "%(left)s: the crawl is closing. Set JOBDIR to keep them for the next run",
                {"left": ", ".join(unfinished)},
                extra=self._context.extra,
            )

    def _warn_of_no_seeds(self) -> None:
        """Warn if sitemaps should have seeded the crawl, and none could. Otherwise the
        crawl would end without a word."""
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
        """Report what is left, and close the spool."""
        if self._spool.durable:
            # Only now, sitemaps that were being fetched have been read.
            self._report_unfinished()
        self._spool.end_seeding()
        if reason == "finished":
            self._warn_of_no_seeds()
        self._feeder.outstanding.finish_passed_pages()
        self._feeder.forget_finished_pages()
        self._feeder.set_waiting_stat()
        # Write what couldn't be written so far, a last time.
        await self._upkeep.now(last=True)
        await run_in_thread(self._spool.close)
