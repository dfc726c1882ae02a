"""Requests for pages, from the spool to the scheduler: as fast as it drains, site by site in turns.

`seeding.py` makes the :class:`Feeder`, and everything that puts something into the spool wakes it.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import SLICE_SECONDS
from scrapy_rep.engine.words import counted, text_of
from scrapy_rep.seeding.discovery import FED
from scrapy_rep.seeding.outstanding import Outstanding
from scrapy_rep.seeding.requester import SitemapRequester
from scrapy_rep.seeding.selection import Reason

if TYPE_CHECKING:
    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.seeding.context import SeedingContext
    from scrapy_rep.seeding.spool import Page

logger = get_logger(__name__)

PAGE_KEY = "rep_sitemap"

# Pages that are taken from the spool at a time.
_BATCH = 50
# The most pages that the scheduler has: of one site that is alone, of each site at least, of all.
_ALONE, _EACH, _ALL = 1000, 16, 4000
# Seconds until another look whether the scheduler has room.
_LOOK = 0.05
# When the scheduler raises: seconds until the next attempt.
_RETRY_SECONDS = 1.0


class Feeder:
    """Hands pages to the scheduler, and has sitemaps requested."""

    def __init__(self, context: SeedingContext, deferral: Deferral) -> None:
        self._context = context
        self._signals = context.crawl.crawler.signals
        self._engine = context.crawl.engine
        self._deferral = deferral
        self._spool = context.spool
        self.sitemaps = SitemapRequester(context, self.wake)
        """Requests sitemaps."""
        self.outstanding = Outstanding(self.wake)
        """The pages that the scheduler has."""
        concurrency = context.crawl.crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._each = max(_EACH, 2 * concurrency)
        self._running = False
        self._woken = False
        self._failing_since: float | None = None
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether nothing more is handed over in this run."""
        return self._stopped or self._spool.patience.over

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return not self.stopped and bool(self.sitemaps or self._spool.waiting)

    def stop(self) -> None:
        """Hand over nothing more."""
        self._stopped = self.outstanding.stopped = True
        self.sitemaps.stop()

    def close(self) -> None:
        """End an orderly run."""
        self.outstanding.close()
        try:
            self._forget()
        except sqlite3.Error as error:
            patience = self._spool.patience
            if self._spool.durable and not patience.over:
                patience.trouble.begins(error, "the next run requests some pages once more")

    def wake(self) -> None:
        """There may be something new in the spool."""
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
            self._spool.patience.worked("feeder")
        except sqlite3.Error as error:
            pause = self._spool.patience.failed("feeder", error)
        except Exception as error:  # noqa: BLE001
            # A scheduler whose server is gone, whose disk is full, another extension's handler.
            pause = self._failed(error)
        self.gauge()
        if pause is None and self._woken and not self.stopped:
            pause = 0
        # One chain of steps, whatever wakes it: the event loop has its turn after each.
        self._running = pause is not None
        if pause is not None:
            call_later(pause, self._go_on)

    def _failed(self, error: Exception) -> float | None:
        """Return after how many seconds to try again; None: not at all."""
        now, extra = time.monotonic(), self._context.crawl.extra
        if self._failing_since is None:
            self._failing_since = now
            logger.error(
                "What sitemaps list can't be requested now, it is tried again: %(error)s",
                {"error": text_of(error)},
                extra=extra,
                exc_info=not isinstance(error, OSError),
            )
        if now - self._failing_since < self._context.crawl.settings.defer_max_wait:
            return _RETRY_SECONDS
        self.stop()
        logger.error(
            "Not requested in this run: %(pages)s that sitemaps list, see the error above",
            {"pages": counted(self._spool.waiting, "page")},
            extra=extra,
        )
        return None

    def _some(self) -> float | None:
        """Hand some over. Return after how many seconds to go on; None: when woken."""
        if self._engine.paused:
            return _LOOK
        until = time.perf_counter() + SLICE_SECONDS
        self._forget()
        more = self.sitemaps.some()
        blocked = 0
        while time.perf_counter() < until:
            site = self._spool.next_site()
            if site is None:
                return 0 if more else None
            if (
                self.outstanding.total >= _ALL
                or blocked > self._spool.sites
                or self._deferral.held.full
            ):
                return _LOOK
            blocked = 0 if self._feed(site, self._room(site)) else blocked + 1
        return 0

    # Pages

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
            # After the handler of OffsiteMiddleware, which has to see them as they are.
            self._signals.connect(self._let_pass, scrapy_signals.request_scheduled)
        try:
            for page in pages:
                self._send(page, site)
                handed += 1
        finally:
            if again:
                self._signals.disconnect(self._let_pass, scrapy_signals.request_scheduled)
            # A scheduler may raise, one whose server is gone.
            self._spool.put_back(site, pages[handed:])
            self._forget()
        return handed

    def _send(self, page: Page, site: int) -> None:
        """Hand a page to the scheduler."""
        request = self._request(page)
        if request is None:
            # The spider's rules, or Scrapy's, have changed since the last run.
            self._context.crawl.stats.inc_value(Reason.NO_RULE.value)
            self.outstanding.gone.append(page.id)
            return
        if self._engine.scheduler_is_foreign:
            self._engine.crawl(request)
            self.outstanding.gone.append(page.id)  # it is the scheduler's from here on
        else:
            self.outstanding.add(request, page.id, site)
            try:
                self._engine.crawl(request)
            except Exception:
                self.outstanding.take_back(page.id)
                raise
        self._context.crawl.stats.inc_value("rep/sitemaps/emitted")

    def _let_pass(self, request: Request, **_: object) -> None:
        """It passed the dupe filter in the run before."""
        if FED in request.meta:
            request.dont_filter = True

    def _request(self, page: Page) -> Request | None:
        wanted, callback = self._context.options.callback_for(page.url)
        if not wanted:
            return None
        meta = {"sitemap": page.sitemap, "lastmod": page.lastmod, "alternate": page.alternate}
        try:
            return Request(
                page.url,
                callback=callback,
                priority=self._context.crawl.settings.sitemap_page_priority,
                meta={PAGE_KEY: meta},
            )
        except ValueError:
            return None

    def _forget(self) -> None:
        """Delete the rows of pages that were dealt with."""
        gone = self.outstanding.gone[:]
        if gone:
            self._spool.forget(gone)
            del self.outstanding.gone[: len(gone)]  # others may have been added meanwhile

    def flush(self) -> bool:
        """Hand some over, whatever the scheduler has already, and sitemaps too: it outlives the
        process. Return whether that was the last."""
        more = self.sitemaps.some(everything=True)
        until = time.perf_counter() + SLICE_SECONDS
        while time.perf_counter() < until:
            site = self._spool.next_site()
            if site is None:
                return not more
            self._feed(site, _BATCH)
        return False

    def gauge(self) -> None:
        """Tell how many pages wait."""
        self._context.crawl.stats.set_value(
            "rep/sitemaps/waiting", self._spool.waiting + self._spool.unproven
        )
