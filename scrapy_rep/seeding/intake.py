"""What becomes of requests for sitemaps: they are read in the middleware's ``process_response``, so
that a request is in progress until all of its sitemap is in the spool (docs/DESIGN.md)."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import SLICE_SECONDS, pause
from scrapy_rep.engine.urls import origin_of
from scrapy_rep.engine.words import clean, text_of
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.targets import Targets
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps.reader import SitemapReader
from scrapy_rep.seeding.asking import SITEMAP_KEY
from scrapy_rep.seeding.discovery import SITEMAP
from scrapy_rep.seeding.feeder import PAGE_KEY
from scrapy_rep.seeding.outcome import Report
from scrapy_rep.seeding.patience import RETRY_SECONDS
from scrapy_rep.seeding.selection import Reason, Sorter, host_of
from scrapy_rep.seeding.sitemap_table import ASKED, MAX_HOSTS
from scrapy_rep.seeding.transfer import MAXSIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.engine.access import EngineAccess
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.proof import Proofs
    from scrapy_rep.seeding.sitemap_table import Sitemap
    from scrapy_rep.seeding.spider_options import Conventions
    from scrapy_rep.settings import RepSettings

logger = get_logger(__name__)

T = TypeVar("T")


class Reading:
    """Reads sitemaps into the spool, one at a time."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        engine: EngineAccess,
        conventions: Conventions,
        feeder: Feeder,
        proofs: Proofs,
        on_found: Callable[[str], object],
    ) -> None:
        """:param on_found: called with the URL of each sitemap that an index lists"""
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._settings = settings
        self._engine = engine
        self._conventions = conventions
        self._feeder = feeder
        self._proofs = proofs
        self._on_found = on_found
        self._spool = feeder.spool
        self._targets = Targets(crawler, settings.private_hosts)
        self._lock = DeferredLock()

    async def check(self, request: Request) -> None:
        """A request for a sitemap, or for a page of one, is to be downloaded.

        :raises IgnoreRequest: if nobody needs it any more, or no site may make us send it
        """
        if SITEMAP not in request.meta:
            by = Origin.from_url(request.meta[PAGE_KEY]["sitemap"])
            if await self._targets.refuses(origin_of(request), by):
                self._stats.inc_value(Reason.PRIVATE.value)
                raise IgnoreRequest(f"a sitemap lists it, and it is {Reason.PRIVATE.text}")
            return
        place, by = origin_of(request), Origin.from_text(request.meta[SITEMAP_KEY])
        other = place.host != by.host
        try:
            if self._of(request) is None:
                raise IgnoreRequest("this sitemap was read before")
            if other and not self._spool.sitemaps.may_name(str(by), host_of(place)):
                raise IgnoreRequest(f"{by} has named {MAX_HOSTS} other hosts already")
        except sqlite3.Error:
            pass  # it will be seen when it has come
        if other and await self._targets.refuses(place, by):
            raise IgnoreRequest(
                f"its host has a private address, and {by} has a public one (see REP_PRIVATE_HOSTS)"
            )
        request.meta.pop(MAXSIZE, None)  # of the response that this one is a retry of

    def _of(self, request: Request) -> Sitemap | None:
        """The sitemap that *request* is for; None if it is done with.

        :raises sqlite3.Error: if that can't be told now
        """
        about = request.meta[SITEMAP]
        url, sitemaps = about["url"], self._spool.sitemaps
        found = sitemaps.get(url)
        if found is None:
            # Another process found it, or what was in the file is lost. Else that changes nothing.
            chain, place = tuple(about["chain"]), str(Origin.from_url(url))
            origin = request.meta[SITEMAP_KEY]
            guessed = about["guessed"]
            sitemaps.add(url, place, origin, chain, guessed=guessed, state=ASKED)
            found = sitemaps.get(url)
        return found

    async def _patiently(self, step: Callable[[], T]) -> T:
        """Do *step*; again and again, if the disk fails, as long as that is of any use.

        :raises sqlite3.Error: if it is not
        """
        patience = self._spool.patience
        while True:
            try:
                result = step()
            except sqlite3.Error as error:
                seconds = patience.failed("reading", error)
                if seconds is None or self._feeder.stopped:
                    raise
                await pause(seconds)
            else:
                patience.worked("reading")
                return result

    def _known(self, request: Request) -> Sitemap | None:
        """As :meth:`_of`.

        :raises sqlite3.Error: if that can't be told now, with a word in the log
        """
        patience = self._spool.patience
        try:
            sitemap = self._of(request)
        except sqlite3.Error as error:
            patience.failed("looking", error)
            raise
        patience.worked("looking")
        return sitemap

    def dropped(self, request: Request) -> None:
        """Another request for the same URL came first, and the dupe filter has dropped this."""
        try:
            sitemap = self._known(request)
        except sqlite3.Error:
            if not self._feeder.stopped:
                call_later(RETRY_SECONDS, self.dropped, request)
            return
        if sitemap is None:
            return
        if self._engine.scheduler_is_foreign:
            # Another process has asked for it. It may come here all the same.
            self._stats.inc_value(Reason.KNOWN.value)
        elif not request.dont_filter:
            # One of the spider's own, or ours in an earlier run: neither has read it for us.
            call_later(0, lambda: self._feeder.asking.ask_for(sitemap, dont_filter=True))

    # What the middleware hands on

    def process_response(
        self, request: Request, response: Response
    ) -> Coroutine[Any, Any, Response] | Response:
        """Return *response*; or read it, if it is a sitemap that was asked for here, and raise
        ``IgnoreRequest`` then: that is the end of it."""
        return self._read(request, response) if SITEMAP in request.meta else response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Take note of a sitemap that can't be had.

        :raises IgnoreRequest: it is dealt with here: Scrapy need not log it
        """
        if SITEMAP not in request.meta:
            return
        sitemap = None
        with suppress(sqlite3.Error):  # it is for the next run then
            sitemap = self._known(request)
        if sitemap is not None:
            name = "" if isinstance(exception, IgnoreRequest) else type(exception).__name__ + ": "
            self._end(sitemap, f"{name}{exception}", exception)
        if not isinstance(exception, IgnoreRequest):
            raise IgnoreRequest(clean(f"the sitemap failed: {exception}")) from exception

    def _end(self, sitemap: Sitemap, why: str, error: Exception | None = None) -> None:
        """Be done with a sitemap that can't be read."""
        self._spool_done(sitemap)
        quiet = sitemap.guessed or isinstance(error, RobotsDisallowed)
        Report(self._crawler, sitemap.url, sitemap.origin).failed(why, quiet=quiet)

    def _spool_done(self, sitemap: Sitemap) -> None:
        if not self._feeder.stopped:
            try:
                self._spool.sitemaps.done(sitemap)
                self._spool.patience.worked("ending")
            except sqlite3.Error as error:
                self._spool.patience.failed("ending", error)  # the next run asks for it again
        self._feeder.asking.came(sitemap.url)

    def lost(self, urls: list[str]) -> None:
        """Nothing is on its way any more, so these never come: another component has dropped them."""
        for url in urls:
            try:
                sitemap = self._spool.sitemaps.get(url)
            except sqlite3.Error:
                return  # they are still lost when it is looked again
            if sitemap is not None:
                self._end(sitemap, "its request was dropped on the way")
            else:
                self._feeder.asking.came(url)

    async def _read(self, request: Request, response: Response) -> Response:
        await maybe_deferred_to_future(self._lock.acquire())
        try:
            if not self._feeder.stopped:
                sitemap = await self._patiently(partial(self._of, request))
                if sitemap is not None:
                    with self._engine.extra_slot():
                        await self._read_into(sitemap, response)
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, sqlite3.Error):  # of these the log has a line already
                logger.error(
                    "Sitemap %(url)s was not read to its end: %(error)s",
                    {"url": request.url, "error": text_of(error)},
                    extra={"spider": self._crawler.spider},
                )
            self._stats.inc_value("rep/sitemaps/failed")
            self._feeder.asking.came(request.meta[SITEMAP]["url"])
        finally:
            self._engine.drop_body(response)
            self._lock.release()
        raise IgnoreRequest("the sitemap was read")

    async def _read_into(self, sitemap: Sitemap, response: Response) -> None:
        if not 200 <= response.status < 300:
            self._end(sitemap, f"HTTP status {response.status}")
            return
        settings, spool = self._settings, self._spool
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes, max_entries=settings.sitemap_max_urls
        )
        sorter = await self._patiently(
            lambda: Sorter(
                sitemap,
                reader,
                spool,
                settings,
                self._conventions,
                self._proofs.verdict,
                self._found,
            )
        )
        until = time.perf_counter() + SLICE_SECONDS
        for entries in reader.read([response.body]):
            sorter.add(entries)
            await self._patiently(sorter.go_on)
            if time.perf_counter() > until:
                self._feeder.wake()
                await pause()
                if self._feeder.stopped and not spool.durable:
                    return  # the crawl is ending, and with it what is in the spool
                until = time.perf_counter() + SLICE_SECONDS
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is no sitemap")
            return
        await self._patiently(partial(spool.sitemaps.done, sitemap))
        Report(self._crawler, sitemap.url, sitemap.origin).read(reader, sorter)
        self._feeder.asking.came(sitemap.url)
        self._feeder.gauge()

    def _found(self, index: Sitemap, url: str, place: str) -> bool:
        chain = (*index.chain, index.url)
        if not self._spool.sitemaps.add(url, place, index.origin, chain):
            return False
        self._on_found(url)
        if not self._feeder.stopped:
            self._feeder.asking.added()
        return True
