"""Reads responses for sitemaps, in the middleware's ``process_response``: so a request is in progress
until its whole sitemap is in the spool (docs/DESIGN.md)."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import Slices, pause
from scrapy_rep.engine.words import clean, text_of
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.requests import origin_of
from scrapy_rep.origins.targets import Refusal
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps.reader import SitemapReader
from scrapy_rep.seeding.discovery import PAGE_KEY, SITEMAP
from scrapy_rep.seeding.patience import RETRY_SECONDS
from scrapy_rep.seeding.requester import MAXSIZE, SITEMAP_KEY
from scrapy_rep.seeding.selection import Reason, Selection, SitemapLog, host_of
from scrapy_rep.seeding.spool_file import ASKED, MAX_HOSTS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_rep.seeding.discovery import Discovery
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.proof import Proofs
    from scrapy_rep.seeding.spool import SeedingContext
    from scrapy_rep.seeding.spool_file import SitemapRow

logger = get_logger(__name__)


class Intake:
    """Reads sitemaps into the spool, one at a time."""

    def __init__(
        self, context: SeedingContext, feeder: Feeder, proofs: Proofs, discovery: Discovery
    ) -> None:
        self._context = context
        self._crawl = context.crawl
        self._engine = context.crawl.engine
        self._spool = context.spool
        self._feeder = feeder
        self._proofs = proofs
        self.log = SitemapLog(context.crawl)
        self._discovery = discovery
        self.targets = proofs.targets
        self._lock = DeferredLock()

    async def check(self, request: Request) -> None:
        """Check a request for a sitemap, or for a page from one, before it is downloaded.

        :raises IgnoreRequest: if it is no longer needed, or sites may not make us send it
        """
        if SITEMAP not in request.meta:
            by = Origin.from_url(request.meta[PAGE_KEY]["sitemap"])
            if await self._is_private(request, by):
                self._crawl.stats.inc_value(Reason.PRIVATE.value)
                raise IgnoreRequest(f"listed by a sitemap, but {Reason.PRIVATE.text}")
            return
        origin, by = origin_of(request), Origin.from_text(request.meta[SITEMAP_KEY])
        other = origin.host != by.host
        try:
            if self._of(request) is None:
                raise IgnoreRequest("this sitemap was already read")
            if other and not self._spool.sitemaps.may_name(str(by), host_of(origin)):
                raise IgnoreRequest(f"sitemaps of {by} already name {MAX_HOSTS} other hosts")
        except sqlite3.Error:
            pass  # checked again once it is here
        if await self._is_private(request, by):
            raise IgnoreRequest(
                f"its host has a private address, and {by} has a public one (see REP_PRIVATE_HOSTS)"
            )
        request.meta.pop(MAXSIZE, None)  # of the response that this one is a retry of

    async def _is_private(self, request: Request, by: Origin) -> bool:
        """Whether *by* may not name the host of *request*. If its name can't be resolved now, its
        robots.txt will say so: it can't be fetched from a private address, either."""
        return await self.targets.refusal(origin_of(request), by) is Refusal.PRIVATE

    def _of(self, request: Request) -> SitemapRow | None:
        """Return the sitemap of *request*; None if it is done. Raises ``sqlite3.Error``."""
        about = request.meta[SITEMAP]
        url, sitemaps = about["url"], self._spool.sitemaps
        found = sitemaps.get(url)
        if found is None:
            # Another process found it, or our file lost it. If it is done, adding it does no harm.
            host, origin = str(Origin.from_url(url)), request.meta[SITEMAP_KEY]
            chain, guessed = tuple(about["chain"]), about["guessed"]
            sitemaps.add(url, host, origin, chain, guessed=guessed, state=ASKED)
            found = sitemaps.get(url)
        return found

    def dropped(self, request: Request) -> None:
        """The dupe filter has dropped this: another request for the same URL came first."""
        try:
            sitemap = self._spool.patience.attempt("looking", self._of, request)
        except sqlite3.Error:
            if not self._feeder.stopped:
                call_later(RETRY_SECONDS, self.dropped, request)
            return
        if sitemap is None:
            return
        if self._engine.scheduler_is_foreign:
            # Another process has asked for it. It may still come here.
            self._crawl.stats.inc_value(Reason.KNOWN.value)
        elif not request.dont_filter:
            # The first was the spider's own, or from an earlier run: neither was read here.
            call_later(0, lambda: self._feeder.sitemaps.request(sitemap, dont_filter=True))

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that a sitemap can't be fetched.

        :raises IgnoreRequest: in place of other exceptions, which Scrapy would log
        """
        sitemap = None
        with suppress(sqlite3.Error):  # the next run asks for it again
            sitemap = self._spool.patience.attempt("looking", self._of, request)
        if sitemap is not None:
            name = "" if isinstance(exception, IgnoreRequest) else type(exception).__name__ + ": "
            self._end(sitemap, f"{name}{exception}", exception)
        if not isinstance(exception, IgnoreRequest):
            raise IgnoreRequest(clean(f"the sitemap failed: {exception}")) from exception

    def _end(self, sitemap: SitemapRow, why: str, error: Exception | None = None) -> None:
        """Be done with a sitemap that can't be read."""
        if not self._feeder.stopped:
            with suppress(sqlite3.Error):  # the next run asks for it again
                self._spool.patience.attempt("ending", self._spool.sitemaps.done, sitemap)
        self._feeder.sitemaps.came(sitemap.url)
        expected = sitemap.guessed or isinstance(error, RobotsDisallowed)
        self.log.failed(sitemap, why, expected=expected)

    def lost(self, urls: list[str]) -> None:
        """Nothing is on its way any more: another component has dropped these."""
        for url in urls:
            try:
                sitemap = self._spool.sitemaps.get(url)
            except sqlite3.Error:
                return  # there will be another look
            self._feeder.sitemaps.came(url)
            if sitemap is not None:
                self._end(sitemap, "another component dropped its request")

    async def read(self, request: Request, response: Response) -> Response:
        """Read the sitemap of *request* into the spool.

        :raises IgnoreRequest: always: nobody else gets *response*
        """
        await maybe_deferred_to_future(self._lock.acquire())
        try:
            if not self._feeder.stopped:
                sitemap = await self._spool.patience.retry("reading", self._of, request)
                if sitemap is not None:
                    with self._engine.extra_slot():
                        await self._read_into(sitemap, response)
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, sqlite3.Error):  # those are logged already
                logger.error(
                    "Sitemap %(url)s was not read completely: %(error)s",
                    {"url": request.url, "error": text_of(error)},
                    extra=self._crawl.extra,
                )
            self._crawl.stats.inc_value("rep/sitemaps/failed")
            self._feeder.sitemaps.came(request.meta[SITEMAP]["url"])
        finally:
            self._engine.drop_body(response)
            self._lock.release()
        raise IgnoreRequest("the sitemap was read")

    async def _read_into(self, sitemap: SitemapRow, response: Response) -> None:
        if not 200 <= response.status < 300:
            self._end(sitemap, f"HTTP {response.status}")
            return
        settings, spool, retry = self._crawl.settings, self._spool, self._spool.patience.retry
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes,
            max_entries=settings.sitemap_max_urls,
            media=self._context.options.media,
        )
        verdict, found = self._proofs.verdict, self._found
        selection = await retry(
            "reading", Selection, self._context, sitemap, reader, verdict, found
        )
        slices = Slices()
        for entries in reader.read([response.body]):
            selection.add(entries)
            more = True
            while more:
                more = await retry("reading", selection.write)
                if slices.over:
                    self._feeder.wake()
                    await pause()
                    if self._feeder.stopped and not spool.durable:
                        return  # the spool ends with the crawl
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is not a sitemap")
            return
        await retry("reading", spool.sitemaps.done, sitemap)
        self.log.read(sitemap, reader, selection)
        if 0 < selection.accepted == selection.unproven:
            told = partial(self.log.nothing_proven, sitemap)
            self._proofs.expect(sitemap.id, selection.unproven, told)
        self._feeder.sitemaps.came(sitemap.url)
        self._feeder.gauge()

    def _found(self, index: SitemapRow, url: str, host: str) -> bool:
        chain = (*index.chain, index.url)
        if not self._spool.sitemaps.add(url, host, index.origin, chain):
            return False
        self._discovery.count(url)
        if not self._feeder.stopped:
            self._feeder.sitemaps.added()
        return True
