"""From the spool to the scheduler: as fast as it drains, site by site in turns.

A page's request carries a mark in its meta from here to :meth:`Feeder.arrive`, where the middleware
sees it next. What has not arrived yet is outstanding: there are so many of these at a time.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.utils.asyncio import call_later

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import SLICE_SECONDS
from scrapy_rep.engine.words import counted, text_of
from scrapy_rep.seeding.asking import Asking
from scrapy_rep.seeding.discovery import FED
from scrapy_rep.seeding.selection import Reason

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.seeding.spider_options import Conventions
    from scrapy_rep.seeding.spool import Page, Spool
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

PAGE_KEY = "rep_sitemap"

# So many pages are taken from the spool at a time.
_BATCH = 50
# So many pages are in the scheduler at a time: of one site that is alone, of each site at least,
# of all sites.
_ALONE, _EACH, _ALL = 1000, 16, 4000
# Seconds after which it is looked again whether the scheduler has room.
_LOOK = 0.05
# When the scheduler raises: so many seconds later again.
_RETRY_SECONDS = 1.0
# So many rows are deleted at a time.
_ROWS = 20


class _Sent(ref["Request"]):
    """Tells when nobody has a page's request any more: its callback has been called."""

    __slots__ = ("arrived", "row", "site")

    row: int
    site: int
    arrived: bool


class Feeder:
    """Hands pages to the scheduler, and has sitemaps asked for."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        engine: EngineAccess,
        conventions: Conventions,
        deferral: Deferral,
        spool: Spool,
    ) -> None:
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._settings = settings
        self._engine = engine
        self._conventions = conventions
        self._deferral = deferral
        self.spool = spool
        self.asking = Asking(crawler, settings, engine, spool, self.wake)
        self._each = max(_EACH, 2 * crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"))
        self._running = False
        self._woken = False
        self._failing_since: float | None = None
        self._outstanding: Counter[int] = Counter()
        self._total = 0
        self._sent: dict[int, _Sent] = {}
        self._arrived: WeakKeyDictionary[Request, _Sent] = WeakKeyDictionary()
        self._gone: list[int] = []
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether nothing more is handed over in this run."""
        return self._stopped or self.spool.patience.over

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return not self.stopped and bool(self.asking or self.spool.waiting)

    def stop(self) -> None:
        """Hand over nothing more."""
        self._stopped = True
        self.asking.stop()

    def close(self) -> None:
        """End an orderly run: what has arrived was dealt with, the rest is for the next run."""
        self._gone += [row for row, sent in self._sent.items() if sent.arrived]
        try:
            self._forget()
        except sqlite3.Error as error:
            patience = self.spool.patience
            if self.spool.durable and not patience.over:
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
            self.spool.patience.worked("feeder")
        except sqlite3.Error as error:
            pause = self.spool.patience.failed("feeder", error)
        except Exception as error:  # noqa: BLE001
            # A scheduler whose server is gone, whose disk is full, another extension's handler.
            pause = self._failed(error)
        self.gauge()
        if pause is None and self._woken and not self.stopped:
            pause = 0
        # One chain of steps, whoever wakes it: each is to be followed by the event loop's turn.
        self._running = pause is not None
        if pause is not None:
            call_later(pause, self._go_on)

    def _failed(self, error: Exception) -> float | None:
        """Return after how many seconds to try again; None: not at all."""
        now, spider = time.monotonic(), self._crawler.spider
        if self._failing_since is None:
            self._failing_since = now
            logger.error(
                "What sitemaps list can't be requested now, it is tried again: %(error)s",
                {"error": text_of(error)},
                extra={"spider": spider},
                exc_info=not isinstance(error, OSError),
            )
        if now - self._failing_since < self._settings.defer_max_wait:
            return _RETRY_SECONDS
        self._stopped = True
        logger.error(
            "Not requested in this run: %(pages)s that sitemaps list, see the error above",
            {"pages": counted(self.spool.waiting, "page")},
            extra={"spider": spider},
        )
        return None

    def _some(self) -> float | None:
        """Hand some over. Return after how many seconds to go on; None: when woken."""
        if self._engine.paused:
            return _LOOK
        until = time.perf_counter() + SLICE_SECONDS
        self._forget()
        more = self.asking.some()
        blocked = 0
        while time.perf_counter() < until:
            site = self.spool.next_site()
            if site is None:
                return 0 if more else None
            if self._total >= _ALL or blocked > self.spool.sites or self._deferral.held.full:
                return _LOOK
            blocked = 0 if self._feed(site, self._room(site)) else blocked + 1
        return 0

    # Pages

    def _room(self, site: int) -> int:
        """How many pages of *site* may go to the scheduler now."""
        if self._deferral.holding and self._deferral.held.full_for(self.spool.origin_of(site)):
            return 0
        if self._engine.scheduler_is_foreign:
            room = _ALONE - self._engine.scheduled
        else:
            share = max(self._each, _ALONE // self.spool.sites)
            room = min(share - self._outstanding[site], _ALL - self._total)
        return max(0, min(room, _BATCH))

    def _feed(self, site: int, room: int) -> int:
        """Hand up to *room* pages of *site* to the scheduler. Return how many."""
        if not room:
            return 0
        pages = self.spool.take(site, room)
        handed = 0
        again = bool(pages and pages[0].again)
        connect, disconnect = self._crawler.signals.connect, self._crawler.signals.disconnect
        if again:
            # After the handler of OffsiteMiddleware, which shall see them as they are.
            connect(self._let_pass, scrapy_signals.request_scheduled)
        try:
            for page in pages:
                self._send(page, site)
                handed += 1
        finally:
            if again:
                disconnect(self._let_pass, scrapy_signals.request_scheduled)
            # A scheduler may raise, one whose server is gone.
            self.spool.put_back(site, pages[handed:])
            self._forget()
        return handed

    def _send(self, page: Page, site: int) -> None:
        """Hand a page to the scheduler."""
        wanted, callback = self._conventions.callback_for(page.url)
        request = self._request(page, callback) if wanted else None
        if request is None:
            # The spider's rules, or Scrapy's, have changed since the last run.
            self._stats.inc_value(Reason.NO_RULE.value)
            self._gone.append(page.id)
            return
        if self._engine.scheduler_is_foreign:
            self._engine.crawl(request)
            self._gone.append(page.id)  # it is the scheduler's from here on
        else:
            self._watch(request, page, site)
            try:
                self._engine.crawl(request)
            except Exception:
                sent = self._sent.pop(page.id, None)
                if sent is not None and not sent.arrived:
                    self._less(site)
                raise
        self._stats.inc_value("rep/sitemaps/emitted")

    def _watch(self, request: Request, page: Page, site: int) -> None:
        """Know *request* when it arrives, and when it is over."""
        request.meta[FED] = page.id
        sent = _Sent(request, self._over)
        sent.row, sent.site, sent.arrived = page.id, site, False
        self._sent[page.id] = sent
        self._outstanding[site] += 1
        self._total += 1

    def _let_pass(self, request: Request, **_: object) -> None:
        """It passed the dupe filter in the run before."""
        if FED in request.meta:
            request.dont_filter = True

    def _request(self, page: Page, callback: object) -> Request | None:
        meta = {"sitemap": page.sitemap, "lastmod": page.lastmod, "alternate": page.alternate}
        try:
            return Request(
                page.url,
                callback=callback,  # type: ignore[arg-type]
                priority=self._settings.sitemap_page_priority,
                meta={PAGE_KEY: meta},
            )
        except ValueError:
            return None

    def arrive(self, request: Request) -> None:
        """Take a page from the scheduler: from here on it is a request like any other."""
        sent = self._sent.get(request.meta.pop(FED))
        request.dont_filter = False
        if sent is not None and not sent.arrived:
            sent.arrived = True
            self._arrived[request] = sent
            self._less(sent.site)

    def held(self, request: Request) -> None:
        """A page is held, on disk if there is a JOBDIR: it has another keeper from here on."""
        sent = self._arrived.pop(request, None)
        if sent is not None and self._sent.pop(sent.row, None) is not None:
            self._gone.append(sent.row)
            if len(self._gone) >= _ROWS:
                self.wake()

    def dropped(self, request: Request) -> None:
        """The dupe filter has dropped a page."""
        sent = self._sent.get(request.meta[FED])
        if sent is not None and not sent.arrived:
            sent.arrived = True
            self._less(sent.site)

    @property
    def outstanding(self) -> int:
        """How many pages the scheduler has."""
        return self._total

    def _over(self, sent: ref[Request]) -> None:
        assert isinstance(sent, _Sent)
        if self._sent.get(sent.row) is not sent:
            return
        if sent.arrived:
            del self._sent[sent.row]
            self._gone.append(sent.row)
        elif not self.stopped:  # else it ends with the scheduler, and is for the next run
            del self._sent[sent.row]
            self._gone.append(sent.row)
            self._less(sent.site)  # a filter has dropped it

    def _less(self, site: int) -> None:
        self._total -= 1
        self._outstanding[site] -= 1
        if self._outstanding[site] <= 0:
            del self._outstanding[site]
        if len(self._gone) >= _ROWS and not self.stopped:
            self.wake()

    def _forget(self) -> None:
        """Delete the rows of pages that were dealt with."""
        gone, self._gone = self._gone, []
        try:
            if gone:
                self.spool.forget(gone)
        except Exception:
            self._gone += gone
            raise

    def flush(self) -> bool:
        """Hand some over, whatever the scheduler has already, and sitemaps too: it outlives the
        process. Return whether that was the last."""
        more = self.asking.some(everything=True)
        until = time.perf_counter() + SLICE_SECONDS
        while time.perf_counter() < until:
            site = self.spool.next_site()
            if site is None:
                return not more
            self._feed(site, _BATCH)
        return False

    def gauge(self) -> None:
        """Tell how many pages wait."""
        self._stats.set_value("rep/sitemaps/waiting", self.spool.waiting + self.spool.unproven)
