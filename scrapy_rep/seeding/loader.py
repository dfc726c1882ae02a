"""Requests sitemaps, a few at a time since their bodies are in memory, and reads them into the
spool: in the middleware's ``process_response``, so that their request is in progress until all of
the sitemap is there (docs/DESIGN.md).

A transfer is cut at the size limit. The reader unpacks gzip piece by piece; Scrapy's
HttpCompressionMiddleware unpacks other encodings at once, up to a limit.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from contextlib import suppress
from inspect import isabstract
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest, StopDownload
from scrapy.http import Response
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.misc import load_object
from twisted.internet.defer import DeferredLock

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.timers import Slices, pause
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.answer import OTHER_ENCODINGS_MAX
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.sitemaps import SitemapReader
from scrapy_rep.seeding.discovery import PAGE_KEY, SITEMAP_KEY
from scrapy_rep.seeding.selection import Reason, Selection, SitemapLog
from scrapy_rep.seeding.spool import (
    ASKED,
    DONE,
    FAILED,
    MAX_HOSTS,
    WAITING,
    Found,
    SeedingContext,
    SitemapRow,
    count_down,
)
from scrapy_rep.signals import request_held, request_released
from scrapy_rep.text import clean, text_of

logger = get_logger(__name__)

GUESSES = (
    *("/sitemap.xml", "/sitemap_index.xml", "/sitemap-index.xml", "/wp-sitemap.xml"),
    *("/sitemap.xml.gz", "/sitemap.txt"),
)
"""Where sitemaps are found that no robots.txt lists, the most usual place first."""

LED_BY_KEY = "rep_sitemap_of"
"""Meta key of requests for sitemaps: the origin whose robots.txt led there."""

SITEMAP_ROW_KEY = "_rep_sitemap_row"
"""Meta key of requests for sitemaps: the sitemap's row, see :class:`~scrapy_rep.engine.access.Trail`."""

# Sitemaps of one host that are requested at a time.
_OF_HOST = 2
# Sitemaps that are requested at a time, of all hosts. Those to which one origin's robots.txt has led are
# no more than the places that are left, so that there is always one for another origin.
_ALL = 32
# Of one host in one step, where a scheduler that processes share gets all of them.
_AT_ONCE = 8
# An origin with pages that wait is asked for no more sitemaps if it has more of them than are left of
# this many. One whose pages were all requested may bring a further sitemap in any case.
_PAGES_ENOUGH = 1_000_000
# Hosts that one step looks at, of an origin's; and origins without anything to request after which the
# next look is made some seconds later.
_LOOKS = 50
_PAUSE_SECONDS = 1.0
# What may be otherwise in the next run.
_FOR_NOW = frozenset({408, 425, 429})

# What Scrapy may undo.
_OTHERS = (b"deflate", b"br", b"zstd")
MAXSIZE_KEY = "download_maxsize"
"""Scrapy's meta key that limits what HttpCompressionMiddleware unpacks. It is for one response:
:meth:`Loader.check` removes it from retries."""


class _NeedlessRequest(IgnoreRequest):
    """Another request has read a sitemap, or will."""


class Places:
    """The sitemaps that this process has requested and is not done with, and how many places they take."""

    def __init__(self) -> None:
        self._asked: dict[int, SitemapRow] = {}  # by row
        self._held: set[int] = set()  # those that wait for an unreachable robots.txt
        self.of_host: Counter[str] = Counter()
        self._of_origin: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._asked)

    def __contains__(self, row: object) -> bool:
        return row in self._asked

    @property
    def left(self) -> int:
        return _ALL - (len(self._asked) - len(self._held))

    def has_room_for(self, origin: str) -> bool:
        """Whether another sitemap to which *origin* has led may be requested."""
        return self._of_origin[origin] < self.left

    def take(self, sitemap: SitemapRow) -> None:
        self._asked[sitemap.id] = sitemap
        self.of_host[sitemap.host] += 1
        self._of_origin[sitemap.origin] += 1

    def give_back(self, row: int) -> SitemapRow | None:
        """Return the sitemap of *row*, whose place is free now; None if it has none."""
        self.release(row)
        sitemap = self._asked.pop(row, None)
        if sitemap is not None:
            count_down(self.of_host, sitemap.host)
            count_down(self._of_origin, sitemap.origin)
        return sitemap

    def hold(self, row: int) -> None:
        """Note that the request of *row* is held. It counts for its own host only."""
        if row in self._asked and row not in self._held:
            self._held.add(row)
            count_down(self._of_origin, self._asked[row].origin)

    def release(self, row: int) -> None:
        """Note that the request of *row* is no longer held, if it was."""
        if row in self._held:
            self._held.remove(row)
            self._of_origin[self._asked[row].origin] += 1


class Loader:
    """Hands requests for sitemaps to the scheduler. Reads sitemaps into the spool, in turns."""

    def __init__(self, context: SeedingContext, log: SitemapLog) -> None:
        self._context = context
        self._crawl = context.crawl
        self._engine = context.crawl.engine
        self._spool = context.spool
        self.targets = context.origins.targets
        self._log = log
        self._handlers = context.crawl.crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self.places = Places()
        self._ending: dict[str, SitemapRow] = {}
        """Sitemaps whose requests have ended, and of which it will be told why, by URL."""
        self._failures: dict[str, Exception] = {}  # of requests, by the sitemap's URL
        # In memory where others are held on disk: the spool has them already.
        self._trail = self._engine.following.trail(
            SITEMAP_ROW_KEY, self._ended, is_kept=context.spool.is_kept, in_memory=True
        )
        # Whose turn was the last one.
        self._origin = ""
        self._host = ""
        self._fruitless: str | None = None
        """The first of a row of origins from which nothing could be requested."""
        self._has_wrapped = (
            False  # whether this row went on with the first of all origins
        )
        self._looked = 0  # how many origins this row has
        self._next_look = 0.0  # in seconds of the monotonic clock
        self._reading = DeferredLock()  # whoever has it may read for one slice of time
        connect = context.crawl.crawler.signals.connect
        connect(self._bytes_received, scrapy_signals.bytes_received)
        connect(self._response_downloaded, scrapy_signals.response_downloaded)
        connect(self._held, request_held)
        connect(self._released, request_released)

    # Requests

    def request_some(self) -> bool:
        """Request the next sitemaps. Return whether to go on at once."""
        if self._engine.scheduler_is_foreign:
            return self._request_for_all()
        slices = Slices()
        while self.places.left > 0 and time.monotonic() >= self._next_look:
            origin = self._next_origin()
            if origin is None or self._is_looked_at(origin):
                if self._looked > _LOOKS:
                    self._next_look = time.monotonic() + _PAUSE_SECONDS
                self._begin_row()
                return False
            if self._request_one(origin):
                self._begin_row()
            else:
                self._fruitless = self._fruitless or origin
                self._looked += 1
            if slices.renew_if_over():
                return True
        return False

    def _next_origin(self) -> str | None:
        """Return the origin whose turn it is of those that have led to sitemaps that wait."""
        origin = self._spool.next_origin(self._origin)
        if origin is None:
            self._has_wrapped = True
            origin = self._spool.next_origin("")
        self._origin = origin or ""
        return origin

    def _is_looked_at(self, origin: str) -> bool:
        """Whether *origin* was looked at in this row."""
        return (
            self._fruitless is not None
            and self._has_wrapped
            and origin >= self._fruitless
        )

    def _begin_row(self) -> None:
        self._fruitless = None
        self._has_wrapped = False
        self._looked = 0

    def _request_one(self, origin: str) -> bool:
        """Request a sitemap to which *origin* has led. Return whether there was one to request."""
        waiting = self._spool.waiting_of(origin)
        is_enough = waiting > 0 and waiting >= _PAGES_ENOUGH - self._spool.waiting
        if is_enough or not self.places.has_room_for(origin):
            return False
        return self._request_from_a_host(origin, self.places.of_host, _OF_HOST)

    def _request_from_a_host(
        self, origin: str, requested: Counter[str], most: int
    ) -> bool:
        """Request a sitemap to which *origin* has led, from the next host of which fewer than *most*
        were *requested*. Return whether there was one."""
        host = self._host
        first: str | None = None
        for _ in range(_LOOKS):
            following = self._spool.next_host(origin, host) or self._spool.next_host(
                origin, ""
            )
            if following is None or following == first:
                return False
            host = following
            first = first or host
            if requested[host] < most:
                sitemap = self._spool.next_sitemap(origin, host)
                if sitemap is not None:
                    self._host = host
                    self._request(sitemap)
                    return True
        return False

    def _request_for_all(self) -> bool:
        """Hand sitemaps to a scheduler that processes share. Another one may read them, so this one
        doesn't wait for them: only time ends the step. Return whether there were any."""
        slices = Slices()
        requested: Counter[str] = Counter()
        self._begin_row()
        while not slices.renew_if_over():
            origin = self._next_origin()
            if origin is None or self._is_looked_at(origin):
                break
            if self._request_from_a_host(origin, requested, _AT_ONCE):
                requested[self._host] += 1
                self._begin_row()
            else:
                self._fruitless = self._fruitless or origin
        return bool(requested)

    def _request(self, sitemap: SitemapRow) -> None:
        is_shared = self._engine.scheduler_is_foreign
        about = {
            "url": sitemap.url,
            "chain": list(sitemap.chain),
            "found": int(sitemap.found),
        }
        try:
            request = Request(
                sitemap.url,
                # Without one, Scrapy logs an error with its traceback for each that fails. Another process
                # couldn't call it.
                errback=None if is_shared else self._request_failed,
                priority=self._crawl.settings.sitemap_priority,
                # The spool has each sitemap once. Processes that share a scheduler share its dupe filter.
                dont_filter=not is_shared,
                headers=self._headers(sitemap.url),
                # A sitemap may be on any host: allowed_domains is about pages.
                meta={
                    LED_BY_KEY: sitemap.origin,
                    SITEMAP_KEY: about,
                    "allow_offsite": True,
                },
            )
            request = self._context.options.prepared(request)
            if not is_shared:  # else it may go to another process
                self.places.take(sitemap)
                self._trail.begin(request, sitemap.id)
            self._engine.crawl(request)
        except Exception:  # the feeder retries
            self._trail.forget(sitemap.id)
            self._give_back(sitemap.id)
            self._spool.mark(sitemap, WAITING)
            raise
        self._trail.let_go(sitemap.id)

    def _held(self, request: Request) -> None:
        row = self._trail.number_of(request)
        if row is not None:
            self.places.hold(row)
            self._next_look = 0.0
            self._spool.wake()

    def _released(self, request: Request) -> None:
        row = self._trail.number_of(request)
        if row is not None:
            self.places.release(row)

    @property
    def is_busy(self) -> bool:
        """Whether there are sitemaps that were requested and are neither read nor failed."""
        return bool(len(self.places) or self._ending)

    def _request_failed(self, failure: Any) -> None:
        url = failure.request.meta[SITEMAP_KEY]["url"]
        row = self._trail.number_of(failure.request)
        if url in self._ending or (row is not None and row in self.places):
            self._failures[url] = failure.value

    def _ended(self, row: int) -> None:
        """Note that the crawl is done with the request for a sitemap. If that was neither read nor
        failed, another component has dropped it, or the rules did before it was queued."""
        sitemap = self._give_back(row)
        if sitemap is not None and not self._spool.ending:
            self._ending[sitemap.url] = sitemap
            call_later(0, self._tell_end, sitemap)  # the errback may be called then

    def _tell_end(self, sitemap: SitemapRow) -> None:
        self._ending.pop(sitemap.url, None)
        error = self._failures.pop(sitemap.url, None)
        if isinstance(error, RobotsDisallowed):
            self._end(sitemap, str(error), DONE, error)
        else:
            about = "" if error is None else f" ({text_of(error)})"
            self._end(sitemap, f"another component dropped its request{about}", FAILED)
        self._spool.wake()
        self._engine.wake()  # the crawl may be over

    def _mark(self, sitemap: SitemapRow, state: int) -> None:
        """Note what became of a sitemap."""
        self._spool.mark(sitemap, state)
        self._give_back(sitemap.id)

    def _give_back(self, row: int) -> SitemapRow | None:
        """Return the sitemap of *row*, if it had a place, which is free now."""
        sitemap = self.places.give_back(row)
        self._next_look = 0.0
        self._spool.wake()
        return sitemap

    def _headers(self, url: str) -> dict[str, str]:
        """Ask for gzip, which the reader unpacks, if the download handler is Scrapy's or made of
        one. Others may take a header that isn't Scrapy's for the project's."""
        path = self._handlers.get(url.partition(":")[0])
        kinds = getattr(load_object(path), "__mro__", ()) if path else ()
        scrapys = any(
            one.__module__.startswith("scrapy.") and not isabstract(one)
            for one in kinds
        )
        return {"Accept-Encoding": "gzip"} if scrapys else {}

    def _bytes_received(self, data: bytes, request: Request, **_: Any) -> None:
        if SITEMAP_KEY not in request.meta:
            return
        self._received[request] = received = self._received.get(request, 0) + len(data)
        if received > self._crawl.settings.sitemap_max_bytes:
            raise StopDownload(fail=False)

    def _response_downloaded(
        self, request: Request, response: Response, **_: Any
    ) -> None:
        if SITEMAP_KEY not in request.meta:
            return
        self._received.pop(request, None)
        encodings = response.headers.getlist("Content-Encoding")
        if len(encodings) == 1 and encodings[0].strip().lower() in _OTHERS:
            most = (
                self._crawl.crawler.settings.getint("DOWNLOAD_MAXSIZE")
                or OTHER_ENCODINGS_MAX
            )
            request.meta[MAXSIZE_KEY] = min(most, OTHER_ENCODINGS_MAX)
        else:
            response.headers.pop("Content-Encoding", None)  # of several, none is undone

    async def check(self, request: Request) -> None:
        """Check a request for a sitemap, or for a page from one, before it is downloaded;
        ``IgnoreRequest`` if it is no longer needed, or may lead to a private address."""
        origin = origin_of(request)
        if SITEMAP_KEY not in request.meta:
            by = Origin.from_url(request.meta[PAGE_KEY]["sitemap"])
            if await self.targets.refuses(origin, by):
                self._crawl.stats.inc_value(Reason.PRIVATE.stat)
                raise IgnoreRequest(f"listed by a sitemap, but {Reason.PRIVATE.value}")
            return
        by = Origin.from_url(request.meta[LED_BY_KEY])
        other = origin.host != by.host
        try:
            sitemap = self._of(request)
            if sitemap is None:
                raise _NeedlessRequest("this sitemap was already read")
            self._adopt(request, sitemap)
            if other and self._spool.site(str(origin), str(by)) is None:
                raise IgnoreRequest(
                    f"sitemaps of {by} already name {MAX_HOSTS} other hosts"
                )
        except sqlite3.Error:
            pass  # checked again once it is here
        if await self.targets.refuses(origin, by):
            raise IgnoreRequest(
                f"its host has a private address, and {by} has a public one (see REP_PRIVATE_HOSTS)"
            )
        request.meta.pop(
            MAXSIZE_KEY, None
        )  # of the response that this one is a retry of

    def _adopt(self, request: Request, sitemap: SitemapRow) -> None:
        """Take a request that an earlier run has left in Scrapy's queue for this run's own;
        ``IgnoreRequest`` if this run has requested *sitemap* itself."""
        if (
            self._engine.scheduler_is_foreign
            or self._trail.number_of(request) is not None
        ):
            return
        if sitemap.id in self.places:
            raise _NeedlessRequest("this sitemap was requested already")
        if self._spool.is_waiting(sitemap.url):
            self._spool.mark(sitemap, ASKED)
            self.places.take(sitemap)
            self._trail.begin(request, sitemap.id)

    def _of(self, request: Request) -> SitemapRow | None:
        """Return the sitemap of *request*; None if it is finished. May raise ``sqlite3.Error``."""
        about, by, spool = (
            request.meta[SITEMAP_KEY],
            request.meta[LED_BY_KEY],
            self._spool,
        )
        url, chain = about["url"], tuple(about["chain"])
        found = spool.sitemap(url)
        if found is None:
            # Another process found it, or our file lost it. If it is done, it is not new.
            where = {url: str(Origin.from_url(url))}
            if spool.add_sitemaps(by, where, chain, how=Found.of(about.get("found")))[
                0
            ]:
                found = spool.sitemap(url)
                assert found is not None
                spool.mark(found, ASKED)
        return found

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that a sitemap can't be fetched; ``IgnoreRequest`` if Scrapy would log an error."""
        if isinstance(exception, _NeedlessRequest):
            return
        sitemap = None
        is_ignored = isinstance(exception, IgnoreRequest)
        if not self._spool.ending:  # the next run asks for it again
            with suppress(sqlite3.Error):  # so it does then
                sitemap = self._of(request)
        if sitemap is not None:
            is_final = is_ignored and not isinstance(exception, RobotsUnreachable)
            why = str(exception) if is_ignored else text_of(exception)
            self._end(sitemap, why, DONE if is_final else FAILED, exception)
        if not is_ignored:
            raise IgnoreRequest(
                clean(f"the sitemap failed: {exception}")
            ) from exception

    def _end(
        self, sitemap: SitemapRow, why: str, state: int, error: Exception | None = None
    ) -> None:
        """Note that a sitemap can't be read, and log why. If it was a guess, and that is final, make the
        next one."""
        is_forbidden = isinstance(error, RobotsDisallowed)
        if not self._spool.over:
            if sitemap.found is Found.GUESSED and state == DONE:
                with suppress(
                    sqlite3.Error, ValueError
                ):  # another version guesses other places
                    self.guess(sitemap.origin, sitemap.url.removeprefix(sitemap.host))
            self._mark(sitemap, state)
        is_guess = sitemap.found is Found.GUESSED
        self._log.failed(sitemap, why, expected=is_guess or is_forbidden)

    def guess(self, origin: str, after: str | None = None) -> None:
        """Try the first of the usual places, or the next *after* one that isn't known already: a page may
        link to it. May raise ``sqlite3.Error``."""
        places = GUESSES[:1] if after is None else GUESSES[GUESSES.index(after) + 1 :]
        for place in places:
            url = origin + place
            if self._spool.add_sitemaps(origin, {url: origin}, how=Found.GUESSED)[0]:
                self._context.discovery.count(url)
                return

    def add_named(self, origin: str, sitemaps: dict[str, str], how: Found) -> None:
        """Add *sitemaps* that the robots.txt of *origin* or one of its pages names, counted already: the
        origin that each is fetched from, by URL; ``sqlite3.Error`` if the spool can't be read."""
        most = self._crawl.settings.sitemap_max_files
        _, beyond = self._spool.add_sitemaps(origin, sitemaps, how=how, most=most)
        for url in beyond:
            self._crawl.stats.inc_value(Reason.LIMIT.stat)
            message = "Sitemap %(url)s is skipped: %(origin)s has too many sitemaps"
            self._log.warn(origin, message, url=url, origin=origin)

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
            row = self._trail.number_of(request)
            if row is not None:
                self._give_back(row)  # the next run reads it
        finally:
            self._engine.drop_body(response)
            self._reading.release()
        raise IgnoreRequest("the sitemap was read")

    async def _next_turn(self) -> None:
        """Let another sitemap be read for a while: a long one must not keep a short one waiting."""
        await pause()
        self._reading.release()
        await maybe_deferred_to_future(self._reading.acquire())

    async def _read_into(self, sitemap: SitemapRow, response: Response) -> None:
        if not 200 <= response.status < 300:
            is_final = response.status < 500 and response.status not in _FOR_NOW
            self._end(sitemap, f"HTTP {response.status}", DONE if is_final else FAILED)
            return
        settings, spool, retry = self._crawl.settings, self._spool, self._spool.retry
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes,
            max_entries=settings.sitemap_max_urls,
            media=self._context.options.media,
            url=response.url,
        )
        selection = await retry(Selection, self._context, sitemap, reader)
        slices = Slices()
        for entries in reader.read([response.body]):
            await selection.add(entries)
            if slices.renew_if_over():
                await self._next_turn()
            if spool.over:
                return  # the spool ends with the crawl
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is not a sitemap", DONE)
            return
        self._mark(sitemap, DONE)
        self._log.read(reader.kind, selection)
