"""Moves pages from the spool to the scheduler, as fast as it drains, origins in turn. Whoever adds to the
spool wakes the :class:`Feeder`."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import counted, text_of
from scrapy_rep.engine.timers import Slices
from scrapy_rep.seeding.discovery import FED, PAGE_KEY
from scrapy_rep.seeding.loader import SitemapRequester
from scrapy_rep.seeding.selection import Reason
from scrapy_rep.seeding.spool import RETRY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.seeding.spool import Page, SeedingContext

logger = get_logger(__name__)

# Pages taken from the spool at a time.
_BATCH = 50
# Pages in the scheduler: at most of a single origin, at least of each of many, at most of all.
_ALONE, _EACH, _ALL = 1000, 16, 4000
# Rows of finished pages that are deleted at a time.
_ROWS = 20
# Seconds until the next look for room in the scheduler; until the next attempt if it has raised.
_LOOK, _RETRY_SECONDS = 0.05, 1.0


class Feeder:
    """Hands pages to the scheduler, and has the loader request sitemaps."""

    def __init__(self, context: SeedingContext, deferral: Deferral) -> None:
        self._crawl = context.crawl
        self._options = context.options
        self._spool = context.spool
        self._engine = context.crawl.engine
        self._signals = context.crawl.crawler.signals
        self._deferral = deferral
        self.sitemaps = SitemapRequester(context, self.wake)
        self.outstanding = Outstanding(self.wake)
        concurrency = context.crawl.crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._each = max(_EACH, 2 * concurrency)
        self._running = self._woken = False
        self._failing_since: float | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether seeding has ended for this run."""
        return self._stopped or self._spool.over

    def __bool__(self) -> bool:
        return not self.stopped and bool(self.sitemaps or self._spool.waiting)

    def stop(self) -> None:
        self._stopped = self.outstanding.stopped = True
        self.sitemaps.transfers.end()

    def close(self) -> None:
        """End a run that was not killed."""
        self.stop()
        self.outstanding.close()
        self._forget()
        self.gauge()

    def wake(self) -> None:
        """Look soon: there may be something new in the spool, or room in the scheduler."""
        self._woken = True
        if not self._running and not self.stopped:
            self._running = True
            call_later(0, self._run)

    def _run(self) -> None:
        if self.stopped:
            return
        self._woken = False
        pause: float | None
        try:
            pause = self._step()
            self._failing_since = None
        except sqlite3.Error:
            pause = None if self.stopped else RETRY_SECONDS
        except Exception as error:  # noqa: BLE001
            pause = self._failed(error)  # the scheduler's server is gone, its disk is full ...
        self.gauge()
        if pause is None and self._woken and not self.stopped:
            pause = 0
        # However often it is woken, one step follows another. The event loop has its turn in between.
        self._running = pause is not None
        if pause is not None:
            call_later(pause, self._run)

    def _failed(self, error: Exception) -> float | None:
        now, extra = time.monotonic(), self._crawl.extra
        if self._failing_since is None:
            self._failing_since = now
            message = "Can't schedule pages from sitemaps, retrying: %(error)s"
            unusual = not isinstance(error, OSError)
            logger.error(message, {"error": text_of(error)}, extra=extra, exc_info=unusual)
        if now - self._failing_since < self._crawl.settings.defer_max_wait:
            return _RETRY_SECONDS
        self.stop()
        message = "Gave up scheduling pages from sitemaps, %(pages)s left: see the error above"
        logger.error(message, {"pages": counted(self._spool.waiting, "page")}, extra=extra)
        return None

    def _step(self) -> float | None:
        """Schedule some. Return the seconds until the next step; None: wait to be woken."""
        if self._engine.paused:
            return _LOOK
        slices = Slices()
        self._forget()
        more = self.sitemaps.request_some()
        blocked = 0
        while (site := self._spool.next_site()) is not None:
            full = self.outstanding.total >= _ALL or self._deferral.held.full
            if full or blocked > len(self._spool.sites):
                return _LOOK
            blocked = 0 if self._feed(site, self._room(site)) else blocked + 1
            if slices.over:
                return 0
        return 0 if more else None

    def _room(self, site: int) -> int:
        """Return how many pages of *site* may go to the scheduler now."""
        if self._deferral.holding and self._deferral.held.full_for(self._spool.origin_of(site)):
            return 0
        if self._engine.scheduler_is_foreign:
            room = _ALONE - self._engine.scheduled
        else:
            share = max(self._each, _ALONE // len(self._spool.sites))
            room = min(share - self.outstanding.by_site[site], _ALL - self.outstanding.total)
        return max(0, min(room, _BATCH))

    def _feed(self, site: int, room: int) -> int:
        """Schedule up to *room* pages of *site*. Return how many."""
        if not room:
            return 0
        pages = self._spool.take(site, room)
        handed = 0
        again = bool(pages and pages[0].again)
        if again:
            # Called after the handler of OffsiteMiddleware, which must see them unchanged.
            self._signals.connect(self._let_pass, scrapy_signals.request_scheduled)
        try:
            for page in pages:
                self._send(page, site)
                handed += 1
        finally:
            if again:
                self._signals.disconnect(self._let_pass, scrapy_signals.request_scheduled)
            self._spool.put_back(site, pages[handed:])
            self._forget()
        return handed

    def _send(self, page: Page, site: int) -> None:
        request = self._request(page)
        if request is None:
            # The spider's rules, or Scrapy's, have changed since the last run.
            self._crawl.stats.inc_value(Reason.NO_RULE.value)
            self.outstanding.finished.append(page.id)
            return
        shared = self._engine.scheduler_is_foreign  # and keeps the page
        if not shared:
            self.outstanding.add(request, page.id, site)
        try:
            self._engine.crawl(request)
        except Exception:
            self.outstanding.take_back(page.id)
            raise
        if shared:
            self.outstanding.finished.append(page.id)
        self._crawl.stats.inc_value("rep/sitemaps/emitted")

    def _let_pass(self, request: Request, **_: object) -> None:
        """Make a page skip the dupe filter, which it has passed in an earlier run."""
        if FED in request.meta:
            request.dont_filter = True

    def _request(self, page: Page) -> Request | None:
        wanted, callback = self._options.callback_for(page.url)
        meta = {**page.entry, "sitemap": page.sitemap}
        priority = self._crawl.settings.sitemap_page_priority
        try:
            request = Request(page.url, callback, priority=priority, meta={PAGE_KEY: meta})
        except ValueError:
            return None
        return request if wanted else None

    def _forget(self) -> None:
        if finished := self.outstanding.finished[:]:
            self._spool.forget(finished)
            del self.outstanding.finished[: len(finished)]  # there may be more by now

    def flush(self) -> bool:
        """Schedule sitemaps and pages without a limit: the scheduler outlives the process. Return whether
        these were the last."""
        more = self.sitemaps.request_some(everything=True)
        slices = Slices()
        while (site := self._spool.next_site()) is not None:
            self._feed(site, _BATCH)
            if slices.over:
                return False
        return not more

    def gauge(self) -> None:
        waiting = self._spool.waiting + self._spool.unproven
        self._crawl.stats.set_value("rep/sitemaps/waiting", waiting)


class Outstanding:
    """The pages that are in the scheduler, and the rows of pages with which the crawl isn't done yet.

    A page is done when its request is freed, after its callback. Requests have
    :data:`~scrapy_rep.seeding.discovery.FED` in their meta from :meth:`add` to :meth:`arrive`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """:param wake: called when there is room in the scheduler, or rows are to be deleted"""
        self._wake = wake
        self.by_site: Counter[int] = Counter()  # pages in the scheduler, for each site
        self.finished: list[int] = []  # rows of finished pages, to be deleted
        self.stopped = False
        """Whether the crawl is closing: pages dropped from now on are for the next run."""
        self._requests: dict[int, ref[Request]] = {}  # by row
        self._sites: dict[int, int] = {}  # of the pages in the scheduler, by row
        self._only_held: set[int] = set()
        """Rows of pages that would end with the process but for these: a hold in memory has them."""

    @property
    def total(self) -> int:
        return len(self._sites)

    def add(self, request: Request, row: int, site: int) -> None:
        """Note that *request*, for the page of *row*, goes to the scheduler."""
        request.meta[FED] = row
        self._requests[row] = ref(request, partial(self._freed, row))
        self._sites[row] = site
        self.by_site[site] += 1

    def take_back(self, row: int) -> None:
        """Undo :meth:`add`: the scheduler raised an exception."""
        self._requests.pop(row, None)
        self._leave(row)

    def arrive(self, request: Request) -> None:
        """Note that a page has left the gate. From here on its request is like any other."""
        row = request.meta[FED]
        if self._is(request, row):
            self._leave(row)
        elif row in self._only_held:
            self._only_held.remove(row)
            self._requests[row] = ref(request, partial(self._freed, row))
        del request.meta[FED]
        request.dont_filter = False

    def held(self, request: Request, *, on_disk: bool) -> None:
        """Note that the hold has the page. Unless it is *on_disk*, its row stays until the page is done."""
        row = request.meta.get(FED, -1)
        if self._is(request, row):
            self.take_back(row)
            (self.finished.append if on_disk else self._only_held.add)(row)

    def handed_back(self, request: Request) -> None:
        """Note that the scheduler has the page again, and keeps it for the next run."""
        row = request.meta.get(FED, -1)
        if self._is(request, row) or row in self._only_held:
            self.take_back(row)
            self._only_held.discard(row)
            self.finished.append(row)

    def dropped(self, request: Request) -> None:
        self._leave(request.meta[FED])

    def close(self) -> None:
        """End a run that was not killed: pages that arrived are finished, others are for the next run."""
        self.finished += [row for row in self._requests if row not in self._sites]

    def _is(self, request: Request, row: int) -> bool:
        """Whether *request* is the one that was added for *row*, not one of another run or a copy."""
        known = self._requests.get(row)
        return known is not None and known() is request

    def _freed(self, row: int, request: ref[Request]) -> None:
        if self._requests.get(row) is request and not (self.stopped and row in self._sites):
            del self._requests[row]
            self.finished.append(row)
            self._leave(row)  # it may never have arrived: a filter has dropped it

    def _leave(self, row: int) -> None:
        site = self._sites.pop(row, None)
        if site is not None:
            self.by_site[site] -= 1
            if self.by_site[site] <= 0:
                del self.by_site[site]
            if len(self.finished) >= _ROWS:
                self._wake()
