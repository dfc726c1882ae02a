"""Requests sitemaps, a few at a time since their bodies are in memory, and reads them into the
spool: in the middleware's ``process_response``, so that their request is in progress until all of
the sitemap is there (docs/DESIGN.md).

A transfer is cut at the size limit. The reader unpacks gzip piece by piece; Scrapy's
HttpCompressionMiddleware unpacks other encodings at once, up to a limit.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import suppress
from inspect import isabstract
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.answer import OTHER_ENCODINGS_MAX
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.seeding.discovery import PAGE_KEY, SITEMAP
from scrapy_rep.seeding.selection import Reason, Selection, SitemapLog
from scrapy_rep.seeding.spool import ASKED, DONE, MAX_HOSTS, WAITING, SeedingContext, SitemapRow
from scrapy_rep.text import clean, text_of

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
# Of one host in one step, where a scheduler that processes share gets all of them.
_AT_ONCE = 8
# While this many pages wait, no sitemaps are requested.
_PAGES_ENOUGH = 1_000_000

# What Scrapy may undo.
_OTHERS = (b"deflate", b"br", b"zstd")
MAXSIZE = "download_maxsize"
"""Scrapy's meta key that limits what HttpCompressionMiddleware unpacks. It is for one response:
:meth:`Loader.check` removes it from retries."""


class Loader:
    """Hands requests for sitemaps to the scheduler. Reads sitemaps into the spool, one at a time."""

    def __init__(self, context: SeedingContext, log: SitemapLog) -> None:
        self._context = context
        self._crawl = context.crawl
        self._engine = context.crawl.engine
        self._spool = context.spool
        self.targets = context.origins.targets
        self._log = log
        self._handlers = context.crawl.crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self._host = ""  # had the last turn
        self._reading = DeferredLock()
        connect = context.crawl.crawler.signals.connect
        connect(self._bytes_received, scrapy_signals.bytes_received)
        connect(self._response_downloaded, scrapy_signals.response_downloaded)

    # Requests

    def request_some(self) -> bool:
        """Request the next sitemaps. Return whether to go on at once."""
        if self._spool.waiting >= _PAGES_ENOUGH:
            return False
        # If processes share the scheduler, another may read it, so this one doesn't wait for it: only
        # time ends the step.
        shared, asked = self._engine.scheduler_is_foreign, self._spool.asked
        most = _AT_ONCE if shared else _OF_HOST
        requested = Counter(asked.values())
        slices = Slices()
        for host in self._spool.hosts(self._host):
            if len(asked) >= _ALL:
                break
            self._host = host
            while requested[host] < most and (sitemap := self._spool.next_sitemap(host)):
                requested[host] += 1
                self._request(sitemap)
            if shared and slices.over:
                break
        return shared and bool(requested)

    def _request(self, sitemap: SitemapRow) -> None:
        about = {"url": sitemap.url, "chain": list(sitemap.chain), "guessed": sitemap.guessed}
        try:
            request = Request(
                sitemap.url,
                priority=self._crawl.settings.sitemap_priority,
                # The spool has each sitemap once. Processes that share a scheduler share its dupe filter.
                dont_filter=not self._engine.scheduler_is_foreign,
                headers=self._headers(sitemap.url),
                # A sitemap may be on any host: allowed_domains is about pages.
                meta={SITEMAP_KEY: sitemap.origin, SITEMAP: about, "allow_offsite": True},
            )
            self._engine.crawl(self._context.options.prepared(request))
        except Exception:  # the feeder retries
            self._spool.mark(sitemap, WAITING)
            raise
        if not self._engine.scheduler_is_foreign:  # else it may go to another process
            self._spool.asked[sitemap.url] = sitemap.host

    def _headers(self, url: str) -> dict[str, str]:
        """Ask for gzip, which the reader unpacks, if the download handler is Scrapy's or made of
        one. Others may take a header that isn't Scrapy's for the project's."""
        path = self._handlers.get(url.partition(":")[0])
        kinds = getattr(load_object(path), "__mro__", ()) if path else ()
        scrapys = any(one.__module__.startswith("scrapy.") and not isabstract(one) for one in kinds)
        return {"Accept-Encoding": "gzip"} if scrapys else {}

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received[request] = received = self._received.get(request, 0) + len(data)
        if received > self._crawl.settings.sitemap_max_bytes:
            raise StopDownload(fail=False)

    def _response_downloaded(self, request: Request, response: Response, **_: Any) -> None:
        if SITEMAP not in request.meta:
            return
        self._received.pop(request, None)
        encodings = response.headers.getlist("Content-Encoding")
        if len(encodings) == 1 and encodings[0].strip().lower() in _OTHERS:
            most = self._crawl.crawler.settings.getint("DOWNLOAD_MAXSIZE") or OTHER_ENCODINGS_MAX
            request.meta[MAXSIZE] = min(most, OTHER_ENCODINGS_MAX)
        else:
            response.headers.pop("Content-Encoding", None)  # of several, none is undone

    async def check(self, request: Request) -> None:
        """Check a request for a sitemap, or for a page from one, before it is downloaded;
        ``IgnoreRequest`` if it is no longer needed, or may lead to a private address."""
        origin = origin_of(request)
        if SITEMAP not in request.meta:
            by = Origin.from_url(request.meta[PAGE_KEY]["sitemap"])
            if await self.targets.refuses(origin, by):
                self._crawl.stats.inc_value(Reason.PRIVATE.stat)
                raise IgnoreRequest(f"listed by a sitemap, but {Reason.PRIVATE.value}")
            return
        by = Origin.from_url(request.meta[SITEMAP_KEY])
        other = origin.host != by.host
        try:
            if self._of(request) is None:
                raise IgnoreRequest("this sitemap was already read")
            if other and self._spool.site(str(origin), str(by)) is None:
                raise IgnoreRequest(f"sitemaps of {by} already name {MAX_HOSTS} other hosts")
        except sqlite3.Error:
            pass  # checked again once it is here
        if await self.targets.refuses(origin, by):
            raise IgnoreRequest(
                f"its host has a private address, and {by} has a public one (see REP_PRIVATE_HOSTS)"
            )
        request.meta.pop(MAXSIZE, None)  # of the response that this one is a retry of

    def _of(self, request: Request) -> SitemapRow | None:
        """Return the sitemap of *request*; None if it is finished. May raise ``sqlite3.Error``."""
        about, by, spool = request.meta[SITEMAP], request.meta[SITEMAP_KEY], self._spool
        url, chain = about["url"], tuple(about["chain"])
        found = spool.sitemap(url)
        if found is None:
            # Another process found it, or our file lost it. If it is done, it is not new.
            where = {url: str(Origin.from_url(url))}
            if spool.add_sitemaps(by, where, chain, guessed=about["guessed"])[0]:
                found = spool.sitemap(url)
                assert found is not None
                spool.mark(found, ASKED)
        return found

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that a sitemap can't be fetched; ``IgnoreRequest`` if Scrapy would log an error."""
        sitemap, ignored = None, isinstance(exception, IgnoreRequest)
        with suppress(sqlite3.Error):  # the next run asks for it again
            sitemap = self._of(request)
        if sitemap is not None:
            self._end(sitemap, str(exception) if ignored else text_of(exception), exception)
        if not ignored:
            raise IgnoreRequest(clean(f"the sitemap failed: {exception}")) from exception

    def _end(
        self, sitemap: SitemapRow, why: str, error: Exception | None = None, *, down: bool = False
    ) -> None:
        """Mark a sitemap that can't be read as finished, and log why. If it was a guess, and the
        origin is not *down*, make the next one."""
        forbidden = isinstance(error, RobotsDisallowed)
        if not self._spool.over:
            if sitemap.guessed and (error is None or forbidden) and not down:
                with suppress(sqlite3.Error, ValueError):  # another version guesses other places
                    self.guess(sitemap.origin, sitemap.url.removeprefix(sitemap.host))
            self._spool.mark(sitemap, DONE)
        self._log.failed(sitemap, why, expected=sitemap.guessed or forbidden)

    def guess(self, origin: str, after: str | None = None) -> None:
        """Try the first of the usual places, or the next *after* one. May raise ``sqlite3.Error``."""
        at = 0 if after is None else GUESSES.index(after) + 1
        for place in GUESSES[at : at + 1]:
            url = origin + place
            if self._spool.add_sitemaps(origin, {url: origin}, guessed=True)[0]:
                self._context.discovery.count(url)

    def add_listed(self, origin: str, sitemaps: dict[str, str]) -> None:
        """Add *sitemaps* that the robots.txt of *origin* lists, counted already: the origin that
        each is fetched from, by URL; ``sqlite3.Error`` if the spool can't be read."""
        most = self._crawl.settings.sitemap_max_files
        _, beyond = self._spool.add_sitemaps(origin, sitemaps, most=most)
        for url in beyond:
            self._crawl.stats.inc_value(Reason.LIMIT.stat)
            message = "Sitemap %(url)s is skipped: %(origin)s has reached REP_SITEMAP_MAX_FILES"
            self._log.warn(origin, message, url=url, origin=origin)

    def lost(self, urls: list[str]) -> None:
        """Give up *urls*: the crawl is idle, so another component must have dropped the requests."""
        for url in urls:
            with suppress(sqlite3.Error):  # there will be another look
                sitemap = self._spool.sitemap(url)
                self._spool.finished(url)
                if sitemap is not None:
                    self._end(sitemap, "another component dropped its request")

    async def read(self, request: Request, response: Response) -> Response:
        """Read the sitemap of *request* into the spool. Always raises ``IgnoreRequest``, so that
        nobody else gets *response*."""
        await maybe_deferred_to_future(self._reading.acquire())
        try:
            if not self._spool.over:
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
            self._spool.finished(request.meta[SITEMAP]["url"])
        finally:
            self._engine.drop_body(response)
            self._reading.release()
        raise IgnoreRequest("the sitemap was read")

    async def _read_into(self, sitemap: SitemapRow, response: Response) -> None:
        if not 200 <= response.status < 300:
            self._end(sitemap, f"HTTP {response.status}", down=response.status >= 500)
            return
        settings, spool, retry = self._crawl.settings, self._spool, self._spool.retry
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes,
            max_entries=settings.sitemap_max_urls,
            media=self._context.options.media,
        )
        selection = await retry(Selection, self._context, sitemap, reader)
        slices = Slices()
        for entries in reader.read([response.body]):
            await selection.add(entries)
            if slices.over:
                await pause()
            if spool.over and not spool.durable:
                return  # the spool ends with the crawl
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is not a sitemap")
            return
        spool.mark(sitemap, DONE)
        self._log.read(reader.kind, selection)
