"""Requests sitemaps, a few at a time since their bodies are in memory, and reads them into the spool.

They are read in the middleware's ``process_response``, so that their request is in progress until all of
the sitemap is in the spool (docs/DESIGN.md). A transfer is cut at the size limit. The reader unpacks gzip
piece by piece; Scrapy's HttpCompressionMiddleware unpacks other encodings at once, up to a limit.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import suppress
from functools import partial
from inspect import isabstract
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.access import Listener
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import clean, text_of
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.body import OTHER_ENCODINGS_MAX, NotCredible, content_encodings
from scrapy_rep.origins.requests import origin_of
from scrapy_rep.origins.targets import Refusal
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps.reader import SitemapReader
from scrapy_rep.seeding.discovery import PAGE_KEY, SITEMAP
from scrapy_rep.seeding.selection import Reason, Selection, SitemapLog, host_of
from scrapy_rep.seeding.spool import ASKED, DONE, MAX_HOSTS, RETRY_SECONDS, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.http import Response

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.seeding.discovery import Discovery
    from scrapy_rep.seeding.feeder import Feeder
    from scrapy_rep.seeding.spool import SeedingContext, SitemapRow
    from scrapy_rep.seeding.verifier import Verifier

logger = get_logger(__name__)

GUESSES = (
    *("/sitemap.xml", "/sitemap_index.xml", "/sitemap-index.xml", "/wp-sitemap.xml"),
    *("/sitemap.xml.gz", "/sitemap.txt"),
)
"""Where sitemaps are found that no robots.txt lists, the most usual place first."""

SITEMAP_KEY = "rep_sitemap_of"
"""Meta key of requests for sitemaps: the origin whose robots.txt led there."""

# Sitemaps that are requested at a time: of one host, of all.
_OF_HOST, _ALL = 2, 32
# Of one host in one step, when the crawl closes and the scheduler gets all of them.
_AT_ONCE = 50
# While this many pages wait, no sitemaps are requested.
_PAGES_ENOUGH = 1_000_000

MAXSIZE = "download_maxsize"
"""Scrapy's meta key that limits what HttpCompressionMiddleware unpacks. It is for one response:
:meth:`Loader.check` removes it from retries."""


class Transfers(Listener):
    """Limits the transfers of sitemaps, while there are any: a ``bytes_received`` handler is called for
    every piece of every page."""

    def __init__(self, context: CrawlContext) -> None:
        handlers: dict[object, Callable[..., Any]] = {
            signals.bytes_received: self._bytes_received,
            signals.response_downloaded: self._response_downloaded,
        }
        super().__init__(context.crawler, handlers)
        self._max_bytes = context.settings.sitemap_max_bytes
        maxsize = context.crawler.settings.getint("DOWNLOAD_MAXSIZE") or OTHER_ENCODINGS_MAX
        self._other_encodings_max = min(maxsize, OTHER_ENCODINGS_MAX)
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received[request] = received = self._received.get(request, 0) + len(data)
        if received > self._max_bytes:
            raise StopDownload(fail=False)

    def _response_downloaded(self, request: Request, response: Response, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received.pop(request, None)
        try:
            encodings = content_encodings(response.headers)
        except NotCredible:
            encodings = []  # it can't be decoded, so it won't pass as a sitemap
        if len(encodings) == 1 and encodings[0] not in ("gzip", "x-gzip"):
            request.meta[MAXSIZE] = self._other_encodings_max
        else:
            response.headers.pop("Content-Encoding", None)


class SitemapRequester:
    """Hands requests for sitemaps to the scheduler."""

    def __init__(self, context: SeedingContext, wake: Callable[[], None]) -> None:
        """:param wake: makes sure that :meth:`request_some` is called soon"""
        self._settings = context.crawl.settings
        self._engine = context.crawl.engine
        self._spool = context.spool
        self._options = context.options
        self._wake = wake
        self._handlers = context.crawl.crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        self.transfers = Transfers(context.crawl)
        self._waiting = False
        self._host = ""  # had the last turn
        self._outstanding: dict[str, str] = {}  # URL: host
        self._shared = False

    def __bool__(self) -> bool:
        """Whether any sitemap waits, or is requested and not read yet."""
        return self._waiting or bool(self._outstanding)

    def open(self) -> None:
        self._shared = self._engine.scheduler_is_foreign
        if self._shared:  # and may hand us anything at any time
            self.transfers.begin()

    def added(self) -> None:
        self._waiting = True
        self._wake()

    def request_some(self, *, everything: bool = False) -> bool:
        """Request the next sitemaps; with *everything*, regardless of the limits. Return whether to go on at
        once."""
        if self._spool.waiting >= _PAGES_ENOUGH and not everything:
            return False
        # Another process may read it, so this one doesn't wait for it: only time ends the step.
        unlimited = everything or self._shared
        most = _AT_ONCE if everything else _OF_HOST
        requested = Counter(() if everything else self._outstanding.values())
        slices = Slices()
        left = False
        for host in self._spool.sitemaps.hosts(self._host):
            if len(self._outstanding) >= _ALL and not unlimited:
                left = True
                break
            self._host = host
            while requested[host] < most and (sitemap := self._spool.sitemaps.next(host)):
                requested[host] += 1
                self._hand_over(sitemap)
            left = left or requested[host] >= most
            if unlimited and slices.over:
                left = True
                break
        self._waiting = left
        return left and unlimited

    def _hand_over(self, sitemap: SitemapRow) -> None:
        if not self._shared:  # else it may go to another process
            self._outstanding[sitemap.url] = sitemap.host
        try:
            self.request(sitemap)
        except Exception:  # the feeder retries
            self._outstanding.pop(sitemap.url, None)
            self._spool.sitemaps.mark(sitemap, WAITING)
            raise

    def request(self, sitemap: SitemapRow, *, dont_filter: bool = False) -> None:
        about = {"url": sitemap.url, "chain": list(sitemap.chain), "guessed": sitemap.guessed}
        request = Request(
            sitemap.url,
            priority=self._settings.sitemap_priority,
            dont_filter=dont_filter,
            headers=self._headers(sitemap.url),
            # A sitemap may be on any host: allowed_domains is about pages.
            meta={SITEMAP_KEY: sitemap.origin, SITEMAP: about, "allow_offsite": True},
        )
        self.transfers.begin()
        self._engine.crawl(self._options.prepared(request))

    def _headers(self, url: str) -> dict[str, str]:
        """Ask for gzip, which the reader unpacks, if the download handler is Scrapy's or made of one: these
        return bodies as servers encode them. Other handlers may take a header that isn't Scrapy's for the
        project's."""
        path = self._handlers.get(url.partition(":")[0])
        kinds = getattr(load_object(path), "__mro__", ()) if path else ()
        found = any(one.__module__.startswith("scrapy.") and not isabstract(one) for one in kinds)
        return {"Accept-Encoding": "gzip"} if found else {}

    @property
    def outstanding(self) -> list[str]:
        return list(self._outstanding)

    def finished(self, url: str) -> None:
        self._outstanding.pop(url, None)
        if not (self._shared or self._outstanding):
            self.transfers.end()
        self._wake()


class Loader:
    """Reads sitemaps into the spool, one at a time."""

    def __init__(
        self, context: SeedingContext, feeder: Feeder, verifier: Verifier, discovery: Discovery
    ) -> None:
        self._context = context
        self._crawl = context.crawl
        self._engine = context.crawl.engine
        self._spool = context.spool
        self._options = context.options
        self._feeder = feeder
        self._verifier = verifier
        self.log = SitemapLog(context.crawl)
        self._discovery = discovery
        self.targets = verifier.targets
        self._lock = DeferredLock()

    async def check(self, request: Request) -> None:
        """Check a request for a sitemap, or for a page from one, before it is downloaded.

        :raises IgnoreRequest: if it is no longer needed, or may lead to a private address
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
        """Whether the host of *request* is private and *by* isn't. A host whose name can't be resolved now
        passes: its robots.txt can't be fetched from a private address, either."""
        return await self.targets.refusal(origin_of(request), by) is Refusal.PRIVATE

    def _of(self, request: Request) -> SitemapRow | None:
        """Return the sitemap of *request*; None if it is finished. May raise ``sqlite3.Error``."""
        about = request.meta[SITEMAP]
        url, sitemaps = about["url"], self._spool.sitemaps
        found = sitemaps.get(url)
        if found is None:
            # Another process found it, or our file lost it. If it is done, it is not new.
            where, by = {url: str(Origin.from_url(url))}, request.meta[SITEMAP_KEY]
            if sitemaps.add(by, where, tuple(about["chain"]), guessed=about["guessed"])[0]:
                found = sitemaps.get(url)
                assert found is not None
                sitemaps.mark(found, ASKED)
        return found

    def dropped(self, request: Request) -> None:
        """The dupe filter has dropped *request*: another one for the same URL came first."""
        try:
            sitemap = self._of(request)
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
            # That was the spider's own, or from an earlier run: neither was read here.
            call_later(0, lambda: self._feeder.sitemaps.request(sitemap, dont_filter=True))

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that a sitemap can't be fetched.

        :raises IgnoreRequest: instead of other exceptions, which Scrapy would log
        """
        sitemap = None
        with suppress(sqlite3.Error):  # the next run asks for it again
            sitemap = self._of(request)
        if sitemap is not None:
            name = "" if isinstance(exception, IgnoreRequest) else type(exception).__name__ + ": "
            self._end(sitemap, f"{name}{exception}", exception)
        if not isinstance(exception, IgnoreRequest):
            raise IgnoreRequest(clean(f"the sitemap failed: {exception}")) from exception

    def _end(
        self, sitemap: SitemapRow, why: str, error: Exception | None = None, *, down: bool = False
    ) -> None:
        """Mark a sitemap that can't be read as finished, and log why. If it was a guess, and the origin is
        not *down*, make the next one."""
        forbidden = isinstance(error, RobotsDisallowed)
        if not self._feeder.stopped:
            if sitemap.guessed and (error is None or forbidden) and not down:
                with suppress(sqlite3.Error, ValueError):  # another version guesses other places
                    self.guess(sitemap.origin, sitemap.url.removeprefix(sitemap.host))
            self._spool.sitemaps.mark(sitemap, DONE)
        self._feeder.sitemaps.finished(sitemap.url)
        self.log.failed(sitemap, why, expected=sitemap.guessed or forbidden)

    def guess(self, origin: str, after: str | None = None) -> None:
        """Try the first of the usual places, or the next *after* one.

        :raises sqlite3.Error: if the spool can't be read
        """
        at = 0 if after is None else GUESSES.index(after) + 1
        for place in GUESSES[at : at + 1]:
            url = origin + place
            self._added(self._spool.sitemaps.add(origin, {url: origin}, guessed=True)[0])

    def add_listed(self, origin: str, sitemaps: dict[str, str]) -> None:
        """Add sitemaps that the robots.txt of *origin* lists, which are counted already.

        :param sitemaps: the origin that each is fetched from, by its URL
        :raises sqlite3.Error: if the spool can't be read
        """
        most = self._crawl.settings.sitemap_max_files
        _, beyond = self._spool.sitemaps.add(origin, sitemaps, most=most)
        for url in beyond:
            self.log.too_many(url, origin)
        self._feeder.sitemaps.added()

    def _added(self, urls: list[str]) -> None:
        for url in urls:
            self._discovery.count(url)
        if urls and not self._feeder.stopped:
            self._feeder.sitemaps.added()

    def lost(self, urls: list[str]) -> None:
        """The crawl is idle, so another component must have dropped the requests for these *urls*."""
        for url in urls:
            try:
                sitemap = self._spool.sitemaps.get(url)
            except sqlite3.Error:
                return  # there will be another look
            self._feeder.sitemaps.finished(url)
            if sitemap is not None:
                self._end(sitemap, "another component dropped its request")

    async def read(self, request: Request, response: Response) -> Response:
        """Read the sitemap of *request* into the spool.

        :raises IgnoreRequest: always, so that nobody else gets *response*
        """
        await maybe_deferred_to_future(self._lock.acquire())
        try:
            if not self._feeder.stopped:
                sitemap = await self._spool.retry(self._of, request)
                if sitemap is not None:
                    with self._engine.extra_slot():
                        await self._read_into(sitemap, response)
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, sqlite3.Error):  # those are logged already
                message = "Sitemap %(url)s was not read completely: %(error)s"
                values = {"url": request.url, "error": text_of(error)}
                logger.error(message, values, extra=self._crawl.extra)
            self._crawl.stats.inc_value("rep/sitemaps/failed")
            self._feeder.sitemaps.finished(request.meta[SITEMAP]["url"])
        finally:
            self._engine.drop_body(response)
            self._lock.release()
        raise IgnoreRequest("the sitemap was read")

    async def _read_into(self, sitemap: SitemapRow, response: Response) -> None:
        if not 200 <= response.status < 300:
            self._end(sitemap, f"HTTP {response.status}", down=response.status >= 500)
            return
        settings, spool, retry = self._crawl.settings, self._spool, self._spool.retry
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes,
            max_entries=settings.sitemap_max_urls,
            media=self._options.media,
        )
        selection = await retry(Selection, self._context, sitemap, reader, self._verifier.verdict)
        slices = Slices()
        for entries in reader.read([response.body]):
            selection.add(entries)
            more = True
            while more:
                more = await retry(selection.write)
                self._added(selection.take_sitemaps())
                if slices.over:
                    self._feeder.wake()
                    await pause()
                    if self._feeder.stopped and not spool.durable:
                        return  # the spool ends with the crawl
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is not a sitemap")
            return
        spool.sitemaps.mark(sitemap, DONE)
        self.log.read(sitemap, reader, selection)
        if 0 < selection.accepted == selection.unproven:
            told = partial(self.log.nothing_proven, sitemap)
            self._verifier.expect(sitemap.id, selection.unproven, told)
        self._feeder.sitemaps.finished(sitemap.url)
        self._feeder.gauge()
