"""Requests sitemaps, a few at a time since their bodies are in memory, and reads them into the
spool: in the middleware's ``process_response``, so that their request is in progress until all of
the sitemap is there (docs/DESIGN.md).

A transfer is cut at the size limit. The reader unpacks gzip piece by piece; Scrapy's
HttpCompressionMiddleware unpacks other encodings at once, up to a limit.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
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

from scrapy_rep.engine.access import Listener
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.answer import OTHER_ENCODINGS_MAX, NotCredible, content_encodings
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.reporting.record import SITEMAP as KIND
from scrapy_rep.seeding.discovery import PAGE_KEY, SITEMAP
from scrapy_rep.seeding.selection import CHOSEN, Reason, Selection, Verifier, host_of
from scrapy_rep.seeding.spool import (
    ASKED,
    DONE,
    MAX_HOSTS,
    WAITING,
    SeedingContext,
    SitemapRow,
)
from scrapy_rep.text import clean, counted, text_of

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

# Warnings per origin: an index may list 50,000 missing sitemaps. Others share one limit.
_WARNINGS, _ORIGINS = 5, 10_000

MAXSIZE = "download_maxsize"
"""Scrapy's meta key that limits what HttpCompressionMiddleware unpacks. It is for one response:
:meth:`Loader.check` removes it from retries."""


_READ = "Sitemap %(url)s (%(kind)s): %(entries)s, %(accepted)s accepted%(unproven)s%(why)s"


def _values(url: str, kind: str, entries: int, selection: Selection) -> dict[str, str]:
    """Return the values for :data:`_READ`."""
    rejected = selection.rejected.items()
    why = ", ".join(f"{count:,} {reason.value}" for reason, count in rejected if count)
    waiting = f" ({selection.unproven:,} waiting for another host's robots.txt)"
    return {
        "url": url,
        "kind": kind,
        "entries": counted(entries, "entry", "entries"),
        "accepted": f"{selection.accepted:,}",
        "unproven": waiting if selection.unproven else "",
        "why": f"; rejected: {why}" if why else "",
    }


class SitemapLog:
    def __init__(self, context: CrawlContext, tell: Callable[..., None]) -> None:
        """*tell* puts a line on record: ``Recorder.tell``."""
        self._context = context
        self._tell = tell
        self._problems: Counter[str] = Counter()  # by origin
        self._read = Limiter(logger, "sitemaps read")
        self._unread = Limiter(logger, "sitemaps not read")
        context.crawler.signals.connect(self._spider_closed, scrapy_signals.spider_closed)

    def read(self, sitemap: SitemapRow, reader: SitemapReader, selection: Selection) -> None:
        assert reader.kind is not None
        rejected = {reason: count for reason, count in selection.rejected.items() if count}
        nothing = bool(rejected and not selection.accepted)
        self._context.stats.inc_value("rep/sitemaps/fetched")
        self._context.stats.inc_value("rep/sitemaps/urls", reader.count)
        if selection.undated:
            self._context.stats.inc_value("rep/sitemaps/undated", selection.undated)
        if nothing:
            self._context.stats.inc_value("rep/sitemaps/nothing_taken")
        for reason, count in rejected.items():
            self._context.stats.inc_value(reason.stat, count)
        self._record(
            sitemap,
            reason=reader.problem or None,
            kind=reader.kind.value,
            entries=reader.count,
            taken=selection.accepted,
            rejected={reason.value: count for reason, count in rejected.items()},
        )
        message, values = _READ, _values(sitemap.url, reader.kind.value, reader.count, selection)
        if nothing and not CHOSEN.issuperset(rejected):
            self.warn(sitemap.origin, message, **values)
        else:
            self._read.log(message, values, self._context.spider)
        if reader.problem:
            message = "Sitemap %(url)s: %(why)s"
            self.warn(sitemap.origin, message, url=sitemap.url, why=reader.problem)

    def failed(self, sitemap: SitemapRow, why: str, *, expected: bool) -> None:
        """Log that *sitemap* can't be read: as a warning unless that was *expected*."""
        self._context.stats.inc_value("rep/sitemaps/failed")
        self._record(sitemap, failed=why)
        message, values = "Sitemap %(url)s was not read: %(why)s", {"url": sitemap.url, "why": why}
        if expected:
            self._unread.log(message, values, self._context.spider)
        else:
            self.warn(sitemap.origin, message, **values)

    def _record(self, sitemap: SitemapRow, reason: str | None = None, **about: Any) -> None:
        found = "guessed" if sitemap.guessed else "index" if sitemap.chain else "listed"
        by = sitemap.chain[-1] if sitemap.chain else f"{sitemap.origin}/robots.txt"
        nothing: Any = {"kind": None, "entries": 0, "taken": 0, "rejected": {}, "failed": None}
        fields: dict[str, Any] = {"found": found, "by": by, **nothing, **about}
        self._tell(KIND, sitemap.url, sitemap.origin, reason=reason, sitemap=fields)

    def warn(self, of: str, message: str, **values: Any) -> None:
        """Log a problem with an origin's sitemaps, as a warning if it is one of the first."""
        of = of if of in self._problems or len(self._problems) < _ORIGINS else ""
        self._problems[of] += 1
        log = logger.warning if self._problems[of] <= _WARNINGS else logger.debug
        log(message, values, extra=self._context.extra)

    def _spider_closed(self) -> None:
        left_out = [count - _WARNINGS for count in self._problems.values() if count > _WARNINGS]
        if left_out:
            message = "%(count)s with sitemaps of %(origins)s: logged at DEBUG level"
            more, origins = counted(sum(left_out), "more problem"), counted(len(left_out), "origin")
            values = {"count": more, "origins": origins}
            logger.warning(message, values, extra=self._context.extra)


class Loader:
    """Hands requests for sitemaps to the scheduler. Reads sitemaps into the spool, one at a time."""

    def __init__(self, context: SeedingContext, verifier: Verifier, log: SitemapLog) -> None:
        self._context = context
        self._crawl = context.crawl
        self._engine = context.crawl.engine
        self._spool = context.spool
        self._verifier = verifier
        self.targets = verifier.targets
        self._log = log
        self._handlers = context.crawl.crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        # Connected while there are sitemaps: `bytes_received` is sent for every piece of every page.
        handlers: dict[object, Callable[..., Any]] = {
            scrapy_signals.bytes_received: self._bytes_received,
            scrapy_signals.response_downloaded: self._response_downloaded,
        }
        self._transfers = Listener(context.crawl.crawler, handlers)
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self._host = ""  # had the last turn
        self._shared = False
        self._reading = DeferredLock()

    def begin(self) -> None:
        self._shared = self._engine.scheduler_is_foreign
        if self._shared:  # and may hand us anything at any time
            self._transfers.listen(True)

    def end(self) -> None:
        self._transfers.listen(False)

    # Requests

    def request_some(self, *, everything: bool = False) -> bool:
        """Request the next sitemaps (*everything*: all). Return whether to go on at once."""
        if self._spool.waiting >= _PAGES_ENOUGH and not everything:
            return False
        # Another process may read it, so this one doesn't wait for it: only time ends the step.
        unlimited = everything or self._shared
        most, asked = _AT_ONCE if everything else _OF_HOST, self._spool.sitemaps.asked
        requested = Counter(() if everything else asked.values())
        slices, left = Slices(), False
        for host in self._spool.sitemaps.hosts(self._host):
            if len(asked) >= _ALL and not unlimited:
                break
            self._host = host
            while requested[host] < most and (sitemap := self._spool.sitemaps.next(host)):
                requested[host] += 1
                self._request(sitemap)
            left = left or requested[host] >= most
            if unlimited and slices.over:
                return True
        if not (asked or self._shared):
            self._transfers.listen(False)
        return left and unlimited

    def _request(self, sitemap: SitemapRow) -> None:
        about = {"url": sitemap.url, "chain": list(sitemap.chain), "guessed": sitemap.guessed}
        try:
            request = Request(
                sitemap.url,
                priority=self._crawl.settings.sitemap_priority,
                # The spool has each sitemap once. Processes that share a scheduler share its dupe filter.
                dont_filter=not self._shared,
                headers=self._headers(sitemap.url),
                # A sitemap may be on any host: allowed_domains is about pages.
                meta={SITEMAP_KEY: sitemap.origin, SITEMAP: about, "allow_offsite": True},
            )
            self._transfers.listen(True)
            self._engine.crawl(self._context.options.prepared(request))
        except Exception:  # the feeder retries
            self._spool.sitemaps.mark(sitemap, WAITING)
            raise
        if not self._shared:  # else it may go to another process
            self._spool.sitemaps.asked[sitemap.url] = sitemap.host

    def _headers(self, url: str) -> dict[str, str]:
        """Ask for gzip, which the reader unpacks, if the download handler is Scrapy's or made of
        one: these return bodies as servers encode them. Others may take a header that isn't
        Scrapy's for the project's."""
        path = self._handlers.get(url.partition(":")[0])
        kinds = getattr(load_object(path), "__mro__", ()) if path else ()
        found = any(one.__module__.startswith("scrapy.") and not isabstract(one) for one in kinds)
        return {"Accept-Encoding": "gzip"} if found else {}

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
        try:
            encodings = content_encodings(response.headers)
        except NotCredible:
            encodings = []  # it can't be decoded, so it won't pass as a sitemap
        if len(encodings) == 1 and encodings[0] not in ("gzip", "x-gzip"):
            most = self._crawl.crawler.settings.getint("DOWNLOAD_MAXSIZE") or OTHER_ENCODINGS_MAX
            request.meta[MAXSIZE] = min(most, OTHER_ENCODINGS_MAX)
        else:
            response.headers.pop("Content-Encoding", None)

    async def check(self, request: Request) -> None:
        """Check a request for a sitemap, or for a page from one, before it is downloaded;
        ``IgnoreRequest`` if it is no longer needed, or may lead to a private address."""
        if SITEMAP not in request.meta:
            by = Origin.from_url(request.meta[PAGE_KEY]["sitemap"])
            if await self.targets.refuses(origin_of(request), by):
                self._crawl.stats.inc_value(Reason.PRIVATE.stat)
                raise IgnoreRequest(f"listed by a sitemap, but {Reason.PRIVATE.value}")
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
        if await self.targets.refuses(origin_of(request), by):
            raise IgnoreRequest(
                f"its host has a private address, and {by} has a public one (see REP_PRIVATE_HOSTS)"
            )
        request.meta.pop(MAXSIZE, None)  # of the response that this one is a retry of

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

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that a sitemap can't be fetched; ``IgnoreRequest`` if Scrapy would log an error."""
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
        """Mark a sitemap that can't be read as finished, and log why. If it was a guess, and the
        origin is not *down*, make the next one."""
        forbidden = isinstance(error, RobotsDisallowed)
        if not self._spool.over:
            if sitemap.guessed and (error is None or forbidden) and not down:
                with suppress(sqlite3.Error, ValueError):  # another version guesses other places
                    self.guess(sitemap.origin, sitemap.url.removeprefix(sitemap.host))
            self._spool.sitemaps.mark(sitemap, DONE)
        self._log.failed(sitemap, why, expected=sitemap.guessed or forbidden)

    def guess(self, origin: str, after: str | None = None) -> None:
        """Try the first of the usual places, or the next *after* one. May raise ``sqlite3.Error``."""
        at = 0 if after is None else GUESSES.index(after) + 1
        for place in GUESSES[at : at + 1]:
            url = origin + place
            if self._spool.sitemaps.add(origin, {url: origin}, guessed=True)[0]:
                self._context.discovery.count(url)

    def add_listed(self, origin: str, sitemaps: dict[str, str]) -> None:
        """Add *sitemaps* that the robots.txt of *origin* lists, counted already: the origin that
        each is fetched from, by URL; ``sqlite3.Error`` if the spool can't be read."""
        most = self._crawl.settings.sitemap_max_files
        _, beyond = self._spool.sitemaps.add(origin, sitemaps, most=most)
        for url in beyond:
            self._crawl.stats.inc_value(Reason.LIMIT.stat)
            message = "Sitemap %(url)s is skipped: %(origin)s has reached REP_SITEMAP_MAX_FILES"
            self._log.warn(origin, message, url=url, origin=origin)

    def lost(self, urls: list[str]) -> None:
        """Give up *urls*: the crawl is idle, so another component must have dropped the requests."""
        for url in urls:
            with suppress(sqlite3.Error):  # there will be another look
                sitemap = self._spool.sitemaps.get(url)
                self._spool.sitemaps.finished(url)
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
            self._spool.sitemaps.finished(request.meta[SITEMAP]["url"])
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
        selection = await retry(Selection, self._context, sitemap, reader, self._verifier.verdict)
        slices = Slices()
        for entries in reader.read([response.body]):
            selection.add(entries)
            more = True
            while more:
                more = await retry(selection.write)
                if slices.over:
                    await pause()
                    if spool.over and not spool.durable:
                        return  # the spool ends with the crawl
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is not a sitemap")
            return
        spool.sitemaps.mark(sitemap, DONE)
        self._log.read(sitemap, reader, selection)
        if 0 < selection.accepted == selection.unproven:
            self._verifier.expect(sitemap, selection.unproven)
