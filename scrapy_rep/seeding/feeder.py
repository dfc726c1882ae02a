"""Moves pages from the spool to the scheduler, as fast as it drains, sites in turn. Whoever adds to the
spool wakes the :class:`Feeder`."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices
from scrapy_rep.engine.words import counted, text_of
from scrapy_rep.seeding.discovery import FED, PAGE_KEY
from scrapy_rep.seeding.outstanding import Outstanding
from scrapy_rep.seeding.requester import SitemapRequester
from scrapy_rep.seeding.selection import Reason
from scrapy_rep.seeding.spool import RETRY_SECONDS

if TYPE_CHECKING:
    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.seeding.spool import Page, SeedingContext

logger = get_logger(__name__)

# Pages taken from the spool at a time.
_BATCH = 50
# Limits of the pages in the scheduler: of a lone site, of each site at least, of all.
_ALONE, _EACH, _ALL = 1000, 16, 4000
# Seconds until the next look for room in the scheduler, and the next attempt if it has raised.
_LOOK, _RETRY_SECONDS = 0.05, 1.0


class Feeder:
    """Hands pages to the scheduler, and has sitemaps requested."""

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
        """Whether anything waits."""
        return not self.stopped and bool(self.sitemaps or self._spool.waiting)

    def stop(self) -> None:
        """Hand over nothing more."""
        self._stopped = self.outstanding.stopped = True
        self.sitemaps.stop()

    def close(self) -> None:
        """End an orderly run."""
        self.stop()
        self.outstanding.close()
        self._forget()
        self.gauge()

    def wake(self) -> None:
        """There may be news in the spool."""
        self._woken = True
        if not self._running and not self.stopped:
            self._running = True
            call_later(0, self._go_on)

    def _go_on(self) -> None:
        if self.stopped:
            return
        self._woken = False
        pause: float | None
        try:
            pause = self._some()
            self._failing_since = None
        except sqlite3.Error:
            pause = None if self.stopped else RETRY_SECONDS
        except Exception as error:  # noqa: BLE001
            pause = self._failed(error)  # the scheduler's server is gone, its disk is full ...
        self.gauge()
        if pause is None and self._woken and not self.stopped:
            pause = 0
        # A single chain of steps, however often it is woken. The event loop has its turn after each.
        self._running = pause is not None
        if pause is not None:
            call_later(pause, self._go_on)

    def _failed(self, error: Exception) -> float | None:
        """Return the seconds until the next attempt; None: give up."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            logger.error(
                "Can't schedule pages from sitemaps, retrying: %(error)s",
                {"error": text_of(error)},
                extra=self._crawl.extra,
                exc_info=not isinstance(error, OSError),
            )
        if now - self._failing_since < self._crawl.settings.defer_max_wait:
            return _RETRY_SECONDS
        self.stop()
        logger.error(
            "Gave up scheduling pages from sitemaps, %(pages)s left: see the error above",
            {"pages": counted(self._spool.waiting, "page")},
            extra=self._crawl.extra,
        )
        return None

    def _some(self) -> float | None:
        """Hand some over. Return the seconds until the next step; None: wait to be woken."""
        if self._engine.paused:
            return _LOOK
        slices = Slices()
        self._forget()
        more = self.sitemaps.some()
        blocked = 0
        while True:
            site = self._spool.next_site()
            if site is None:
                return 0 if more else None
            full = self.outstanding.total >= _ALL or self._deferral.held.full
            if full or blocked > self._spool.sites:
                return _LOOK
            blocked = 0 if self._feed(site, self._room(site)) else blocked + 1
            if slices.over:
                return 0

    def _room(self, site: int) -> int:
        """How many pages of *site* may go to the scheduler now."""
        if self._deferral.holding and self._deferral.held.full_for(self._spool.origin_of(site)):
            return 0
        if self._engine.scheduler_is_foreign:
            room = _ALONE - self._engine.scheduled
        else:
            share = max(self._each, _ALONE // self._spool.sites)
            room = min(share - self.outstanding.by_site[site], _ALL - self.outstanding.total)
        return max(0, min(room, _BATCH))

    def _feed(self, site: int, room: int) -> int:
        """Hand up to *room* pages of *site* to the scheduler. Return how many."""
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
            self.outstanding.gone.append(page.id)
            return
        if self._engine.scheduler_is_foreign:
            self._engine.crawl(request)
            self.outstanding.gone.append(page.id)  # the scheduler keeps it
        else:
            self.outstanding.add(request, page.id, site)
            try:
                self._engine.crawl(request)
            except Exception:
                self.outstanding.take_back(page.id)
                raise
        self._crawl.stats.inc_value("rep/sitemaps/emitted")

    def _let_pass(self, request: Request, **_: object) -> None:
        """It passed the dupe filter in an earlier run."""
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
        """Delete the rows of pages that are done."""
        if gone := self.outstanding.gone[:]:
            self._spool.forget(gone)
            del self.outstanding.gone[: len(gone)]  # there may be more by now

    def flush(self) -> bool:
        """Hand over some sitemaps and pages, without a limit: the scheduler outlives the process.
        Return whether those were the last."""
        more = self.sitemaps.some(everything=True)
        slices = Slices()
        while True:
            site = self._spool.next_site()
            if site is None:
                return not more
            self._feed(site, _BATCH)
            if slices.over:
                return False

    def gauge(self) -> None:
        """Update the stat of waiting pages."""
        waiting = self._spool.waiting + self._spool.unproven
        self._crawl.stats.set_value("rep/sitemaps/waiting", waiting)
