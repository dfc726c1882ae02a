"""Moves pages from the spool to the scheduler, as fast as it drains, sites in turn. Whoever adds to the
spool wakes the :class:`Feeder`."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING
from weakref import ref

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices
from scrapy_rep.engine.text import counted, text_of
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
# Pages in the scheduler: at most of a single site, at least of each of many, at most of all.
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
        """Whether any page or sitemap waits."""
        return not self.stopped and bool(self.sitemaps or self._spool.waiting)

    def stop(self) -> None:
        """Schedule nothing more."""
        self._stopped = self.outstanding.stopped = True
        self.sitemaps.stop()

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

    def _step(self) -> float | None:
        """Schedule some. Return the seconds until the next step; None: wait to be woken."""
        if self._engine.paused:
            return _LOOK
        slices = Slices()
        self._forget()
        more = self.sitemaps.request_some()
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
        """Return how many pages of *site* may go to the scheduler now."""
        if self._deferral.holding and self._deferral.held.full_for(self._spool.origin_of(site)):
            return 0
        if self._engine.scheduler_is_foreign:
            room = _ALONE - self._engine.scheduled
        else:
            share = max(self._each, _ALONE // self._spool.sites)
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
        if self._engine.scheduler_is_foreign:
            self._engine.crawl(request)
            self.outstanding.finished.append(page.id)  # the scheduler keeps it
        else:
            self.outstanding.add(request, page.id, site)
            try:
                self._engine.crawl(request)
            except Exception:
                self.outstanding.take_back(page.id)
                raise
        self._crawl.stats.inc_value("rep/sitemaps/emitted")

    def _let_pass(self, request: Request, **_: object) -> None:
        """Have a page skip the dupe filter, which it has passed in an earlier run."""
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
        if finished := self.outstanding.finished[:]:
            self._spool.forget(finished)
            del self.outstanding.finished[: len(finished)]  # there may be more by now

    def flush(self) -> bool:
        """Schedule sitemaps and pages without a limit: the scheduler outlives the process. Return whether
        these were the last."""
        more = self.sitemaps.request_some(everything=True)
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


class _Sent(ref["Request"]):
    """Tells when the request of a page is freed: after its callback."""

    __slots__ = ("arrived", "row", "site")

    row: int
    site: int
    arrived: bool


class Outstanding:
    """The pages that are in the scheduler, and the rows of pages with which the crawl isn't done yet.

    Requests have :data:`~scrapy_rep.seeding.discovery.FED` in their meta from :meth:`add` to
    :meth:`arrive`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """:param wake: called when there is room in the scheduler, or rows are to be deleted"""
        self._wake = wake
        self.total = 0  # pages in the scheduler
        self.by_site: Counter[int] = Counter()  # the same, for each site
        self.finished: list[int] = []  # rows of finished pages, to be deleted
        self.stopped = False
        """Whether the crawl is closing: pages dropped from now on are for the next run."""
        self._sent: dict[int, _Sent] = {}
        self._only_held: set[int] = set()
        """Rows of pages that would end with the process but for these: a hold in memory has them."""

    def add(self, request: Request, row: int, site: int) -> None:
        """Note that *request*, for the page of *row*, goes to the scheduler."""
        request.meta[FED] = row
        sent = _Sent(request, self._released)
        sent.row, sent.site, sent.arrived = row, site, False
        self._sent[row] = sent
        self.by_site[site] += 1
        self.total += 1

    def take_back(self, row: int) -> None:
        """Undo :meth:`add`: the scheduler raised an exception."""
        self._leave(self._sent.pop(row, None))

    def arrive(self, request: Request) -> None:
        """Note that a page has left the gate. From here on its request is like any other."""
        row = request.meta.pop(FED)
        sent = self._sent.get(row)
        request.dont_filter = False
        if row in self._only_held:
            self._only_held.remove(row)
            sent = self._sent[row] = _Sent(request, self._released)
            sent.row, sent.site, sent.arrived = row, 0, True
        elif sent is not None and sent() is request:
            self._leave(sent)

    def held(self, request: Request, *, on_disk: bool) -> None:
        """Note that the hold has the page. Unless it is *on_disk*, its row stays until the page is done."""
        row = self._pop(request)
        if row is not None:
            (self.finished.append if on_disk else self._only_held.add)(row)

    def handed_back(self, request: Request) -> None:
        """Note that the scheduler has the page again, and keeps it for the next run."""
        row = self._pop(request)
        if row is None and (row := request.meta.get(FED)) not in self._only_held:
            return
        self._only_held.discard(row)
        self.finished.append(row)

    def _pop(self, request: Request) -> int | None:
        """Forget the page of *request*. Return its row, None if it is none."""
        sent = self._sent.get(request.meta.get(FED, -1))
        if sent is None or sent() is not request:
            return None
        del self._sent[sent.row]
        self._leave(sent)
        return sent.row

    def dropped(self, request: Request) -> None:
        """Note that the dupe filter has dropped a page."""
        self._leave(self._sent.get(request.meta[FED]))

    def close(self) -> None:
        """End a run that was not killed: pages that arrived are finished, others are for the next run."""
        self.finished += [row for row, sent in self._sent.items() if sent.arrived]

    def _released(self, sent: ref[Request]) -> None:
        assert isinstance(sent, _Sent)
        if self._sent.get(sent.row) is not sent or (self.stopped and not sent.arrived):
            return
        del self._sent[sent.row]
        self.finished.append(sent.row)
        self._leave(sent)  # it may never have arrived: a filter has dropped it

    def _leave(self, sent: _Sent | None) -> None:
        """Note that a page has left the scheduler."""
        if sent is None or sent.arrived:
            return
        sent.arrived = True
        self.total -= 1
        self.by_site[sent.site] -= 1
        if self.by_site[sent.site] <= 0:
            del self.by_site[sent.site]
        if len(self.finished) >= _ROWS:
            self._wake()
