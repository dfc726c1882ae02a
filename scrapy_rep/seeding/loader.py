"""Requests sitemaps, a few at a time since their bodies are in memory, and reads them
into the spool (seeding/spool.py): in the middleware's ``process_response``, so that the
request counts as in progress until all of the sitemap is in the spool (docs/DESIGN.md).

A transfer is cut at the size limit. Our reader (protocol/sitemaps.py) unpacks gzip
piece by piece; Scrapy's HttpCompressionMiddleware unpacks other encodings at once, up
to a limit.
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
    "/sitemap.xml",
    "/sitemap_index.xml",
    "/sitemap-index.xml",
    "/wp-sitemap.xml",
    "/sitemap.xml.gz",
    "/sitemap.txt",
)
"""Usual paths of sitemaps that no robots.txt lists, the most usual one first."""

LED_BY_KEY = "rep_sitemap_of"
"""Meta key of requests for sitemaps: the origin whose robots.txt led to the sitemap."""

SITEMAP_ROW_KEY = "_rep_sitemap_row"
"""Meta key of requests for sitemaps: the sitemap's row (its number in the spool), by
which a :class:`~scrapy_rep.engine.access.Trail` follows the request."""

MAXSIZE_KEY = "download_maxsize"
"""Scrapy's meta key that limits what HttpCompressionMiddleware unpacks. We set it for
one response only: :meth:`Loader.check` removes it from retries."""

# At most this many sitemaps of one host are requested at a time.
_MAX_OF_A_HOST = 2
# At most this many sitemaps of all hosts are requested at a time, since their bodies
# are in memory.
_MAX_REQUESTED = 32
# If processes share the scheduler, it gets all sitemaps. In one step, it gets at most
# this many of one host.
_MAX_OF_A_HOST_IN_A_STEP = 8
# While this many pages of all origins wait, no further sitemaps of most origins are
# requested, see Loader._has_enough.
_PAGES_ENOUGH = 1_000_000
# One step tries at most this many hosts of one origin's sitemaps.
_HOSTS_TRIED = 50
# If no sitemap of any origin could be requested, and there are more than this many
# origins, the loader pauses, since each try costs some look-ups in the spool.
_MANY_ORIGINS = 50
# How long it pauses then, unless a place (see Places) becomes free.
_ROUND_PAUSE_SECONDS = 1.0
# Statuses for which the sitemap may be there in the next run.
_TEMPORARY_STATUSES = frozenset({408, 425, 429})
# Encodings that Scrapy may unpack.
_SCRAPYS_ENCODINGS = (b"deflate", b"br", b"zstd")


class _NeedlessRequest(IgnoreRequest):
    """A sitemap needs no request, since another request for it has been made."""


class Places:
    """The sitemaps that this process has requested and is not done with, and how many
    of the _MAX_REQUESTED places they take: each sitemap one, but none while its request
    is held for an unreachable robots.txt (holding/holding.py)."""

    def __init__(self) -> None:
        # The requested sitemaps, by row.
        self._asked: dict[int, SitemapRow] = {}
        # The rows of those sitemaps whose requests are held.
        self._held: set[int] = set()
        self.of_host: Counter[str] = Counter()
        """How many requested sitemaps each host has, held ones included."""
        # How many places the sitemaps take to which each origin's robots.txt led.
        self._places_of: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many sitemaps were requested, held ones included."""
        return len(self._asked)

    def __contains__(self, row: object) -> bool:
        """Whether the sitemap of *row* was requested, and is not done, held or not."""
        return row in self._asked

    @property
    def free(self) -> int:
        """How many places are free."""
        taken = len(self._asked) - len(self._held)
        return _MAX_REQUESTED - taken

    def has_room_for(self, origin: str) -> bool:
        """Whether another sitemap to which *origin* has led may be requested. An origin
        gets another place only while more are free than it has, so that one origin
        alone can't take more than half of them."""
        return self._places_of[origin] < self.free

    def take(self, sitemap: SitemapRow) -> None:
        """Note that *sitemap* is being requested."""
        self._asked[sitemap.id] = sitemap
        self.of_host[sitemap.host] += 1
        self._places_of[sitemap.origin] += 1

    def give_back(self, row: int) -> SitemapRow | None:
        """Free the place of the sitemap of *row*, which is done. Return the sitemap;
        None if it has no place."""
        self.release(row)  # so that it counts for its origin, and can be counted down
        sitemap = self._asked.pop(row, None)
        if sitemap is not None:
            count_down(self.of_host, sitemap.host)
            count_down(self._places_of, sitemap.origin)
        return sitemap

    def hold(self, row: int) -> None:
        """Note that the request for the sitemap of *row* is held. From now on, the
        sitemap counts for its host only."""
        if row in self._asked and row not in self._held:
            self._held.add(row)
            count_down(self._places_of, self._asked[row].origin)

    def release(self, row: int) -> None:
        """Note that the request for the sitemap of *row* is no longer held, if it
        was."""
        if row in self._held:
            self._held.remove(row)
            self._places_of[self._asked[row].origin] += 1


class Loader:
    """Hands requests for sitemaps to the scheduler. Reads sitemaps into the spool, in
    turns."""

    def __init__(self, context: SeedingContext, log: SitemapLog) -> None:
        self._context = context
        self._crawl = context.crawl
        self._engine = context.crawl.engine
        self._spool = context.spool
        self.targets = context.origins.targets
        self._log = log
        self._handlers = context.crawl.crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
        # How many bytes have arrived of the response to each request for a sitemap.
        self._bytes_received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()
        self.places = Places()
        # Sitemaps that were not read although the crawl is done with their requests, by
        # URL, until _report_end() has logged why.
        self._ended_unread: dict[str, SitemapRow] = {}
        # The exceptions that the errbacks of these sitemaps' requests got, by the
        # sitemap's URL.
        self._failures: dict[str, Exception] = {}
        # The trail tells when the crawl is done with a request for a sitemap. Where
        # held requests are kept on disk, such requests are kept in memory all the same
        # (in_memory), since the spool has the sitemaps already.
        self._trail = self._engine.following.trail(
            SITEMAP_ROW_KEY,
            self._request_ended,
            is_kept=context.spool.is_kept,
            in_memory=True,
        )
        # Origins take turns in alphabetical order, and so do the hosts of an origin's
        # sitemaps.
        self._last_origin = ""
        self._last_host = ""
        # A round consists of the origins that were tried, without success, since a
        # sitemap was last requested. The round is over when it would come to its first origin
        # again.
        self._round_began_with: str | None = None
        self._tried_in_round = 0
        # Whether the round has come to the last origin, and gone on with the first one.
        self._has_round_wrapped = False
        # Before this time, in seconds of the monotonic clock, no sitemap is requested.
        self._paused_until = 0.0
        # Sitemaps are read in turns. Whoever has the lock may read for one slice of
        # time.
        self._reading_lock = DeferredLock()
        connect = context.crawl.crawler.signals.connect
        connect(self._cut_at_limit, scrapy_signals.bytes_received)
        connect(self._response_downloaded, scrapy_signals.response_downloaded)
        connect(self._request_held, request_held)
        connect(self._request_released, request_released)

    # Requests

    def request_some(self) -> bool:
        """Request the next sitemaps, as many as have a place. Return whether to go on
        at once, since one slice of time (Slices in engine/timers.py) was too short."""
        if self._engine.scheduler_is_foreign:  # processes may share it
            return self._request_for_all_processes()
        slices = Slices()
        while self.places.free > 0 and time.monotonic() >= self._paused_until:
            origin = self._next_origin()
            if origin is None or self._is_round_over(origin):
                if self._tried_in_round > _MANY_ORIGINS:
                    self._paused_until = time.monotonic() + _ROUND_PAUSE_SECONDS
                self._begin_round()
                return False
            if self._request_one(origin):
                self._begin_round()
            else:
                self._add_to_round(origin)
            if slices.renew_if_over():
                return True
        return False

    def _next_origin(self) -> str | None:
        """Return the origin whose turn it is, of those whose robots.txt led to sitemaps
        that wait."""
        origin = self._spool.next_origin(self._last_origin)
        if origin is None:  # the last one had its turn, so the first one is next
            self._has_round_wrapped = True
            origin = self._spool.next_origin("")
        self._last_origin = origin or ""
        return origin

    def _begin_round(self) -> None:
        """Begin a new round, which has no origins yet."""
        self._round_began_with = None
        self._has_round_wrapped = False
        self._tried_in_round = 0

    def _add_to_round(self, origin: str) -> None:
        """Note that *origin* has no sitemap that may be requested now."""
        if self._round_began_with is None:
            self._round_began_with = origin
        self._tried_in_round += 1

    def _is_round_over(self, origin: str) -> bool:
        """Whether *origin*, whose turn it is, was tried in this round already, and so
        were all others."""
        if self._round_began_with is None or not self._has_round_wrapped:
            return False
        return origin >= self._round_began_with

    def _request_one(self, origin: str) -> bool:
        """Request a sitemap to which *origin* has led. Return whether one was
        requested."""
        if self._has_enough(origin) or not self.places.has_room_for(origin):
            return False
        return self._request_from_a_host(origin, self.places.of_host, _MAX_OF_A_HOST)

    def _has_enough(self, origin: str) -> bool:
        """Whether so many pages from sitemaps of *origin* wait that no further sitemaps
        of *origin* are requested: at least as many as may still be added until
        _PAGES_ENOUGH pages of all origins wait. While none of its pages waits, an
        origin never has enough."""
        waiting = self._spool.waiting_of(origin)
        room_for_all = _PAGES_ENOUGH - self._spool.waiting
        return waiting > 0 and waiting >= room_for_all

    def _request_from_a_host(
        self, origin: str, requested: Counter[str], limit: int
    ) -> bool:
        """Request a sitemap to which *origin* has led, from the next host from which
        fewer than *limit* were requested (*requested* counts them by host). Return
        whether one was requested."""
        host = self._last_host
        first_host: str | None = None
        for _ in range(_HOSTS_TRIED):
            next_host = self._spool.next_host(origin, host)
            if next_host is None:  # after the last host, the first one
                next_host = self._spool.next_host(origin, "")
            if next_host is None or next_host == first_host:
                return False
            host = next_host
            if first_host is None:
                first_host = host
            if requested[host] >= limit:
                continue
            sitemap = self._spool.next_sitemap(origin, host)
            if sitemap is not None:
                self._last_host = host
                self._request(sitemap)
                return True
        return False

    def _request_for_all_processes(self) -> bool:
        """Hand sitemaps to a scheduler that processes share. Another process may read
        them, so this process doesn't wait for the sitemaps, and they take no places.
        The step ends when its time is over. Return whether any were handed over."""
        slices = Slices()
        requested: Counter[str] = Counter()  # by host
        limit = _MAX_OF_A_HOST_IN_A_STEP
        self._begin_round()
        while not slices.renew_if_over():
            origin = self._next_origin()
            if origin is None or self._is_round_over(origin):
                break
            if self._request_from_a_host(origin, requested, limit):
                requested[self._last_host] += 1
                self._begin_round()
            else:
                self._add_to_round(origin)
        return bool(requested)

    def _request(self, sitemap: SitemapRow) -> None:
        """Hand the request for *sitemap* to the scheduler. If that raises an exception,
        the sitemap waits again, and the feeder (seeding/seeding.py) retries."""
        is_shared = self._engine.scheduler_is_foreign
        try:
            request = self._context.options.changed_sitemap(self._request_for(sitemap))
            if not is_shared:  # otherwise, the request may go to another process
                self.places.take(sitemap)
                self._trail.begin(request, sitemap.id)
            self._engine.crawl(request)
        except Exception:
            self._trail.forget(sitemap.id)
            self._give_back(sitemap.id)
            self._spool.mark(sitemap, WAITING)
            raise
        self._trail.let_go(sitemap.id)

    def _request_for(self, sitemap: SitemapRow) -> Request:
        """Return the request for *sitemap*, before the spider's ``sitemap_request`` has
        changed it."""
        is_shared = self._engine.scheduler_is_foreign
        # If processes share the scheduler, another process may get the response. This
        # is all that it needs to read the sitemap.
        description = {
            "url": sitemap.url,
            "chain": list(sitemap.chain),
            "found": int(sitemap.found),
        }
        return Request(
            sitemap.url,
            # Without an errback, Scrapy logs an error with its traceback for each
            # request that fails. Another process couldn't call our errback.
            errback=None if is_shared else self._keep_failure,
            priority=self._crawl.settings.sitemap_priority,
            # The spool has each sitemap once, so the dupe filter is needed only by
            # processes that share a scheduler, each with its own spool.
            dont_filter=not is_shared,
            headers=self._headers(sitemap.url),
            meta={
                LED_BY_KEY: sitemap.origin,
                SITEMAP_KEY: description,
                # A sitemap may be on any host. Allowed_domains is about pages.
                "allow_offsite": True,
            },
        )

    def _headers(self, url: str) -> dict[str, str]:
        """Return headers that ask for gzip, which our reader unpacks, if the download
        handler for *url* is one of Scrapy's or a subclass. Other handlers (a browser's,
        say) may take our header for the project's wish."""
        path = self._handlers.get(url.partition(":")[0])
        if not path:
            return {}
        handler = load_object(path)
        for base in getattr(handler, "__mro__", ()):
            is_scrapys = base.__module__.startswith("scrapy.")
            if is_scrapys and not isabstract(base):
                return {"Accept-Encoding": "gzip"}
        return {}

    def _request_held(self, request: Request) -> None:
        """Handle the signal ``request_held``: the place of a sitemap is free while its
        request is held."""
        row = self._trail.number_of(request)
        if row is not None:
            self.places.hold(row)
            self._end_pause()

    def _request_released(self, request: Request) -> None:
        """Handle the signal ``request_released``: the sitemap takes a place again."""
        row = self._trail.number_of(request)
        if row is not None:
            self.places.release(row)

    def _end_pause(self) -> None:
        """Look for sitemaps to request soon, even if the loader pauses, since there is
        a place for one."""
        self._paused_until = 0.0
        self._spool.wake()

    @property
    def is_busy(self) -> bool:
        """Whether there are sitemaps that were requested and are neither read nor
        failed."""
        return bool(len(self.places) or self._ended_unread)

    def _keep_failure(self, failure: Any) -> None:
        """Remember why the request for a sitemap failed, for :meth:`_report_end`. This
        is the errback of such requests."""
        url = failure.request.meta[SITEMAP_KEY]["url"]
        row = self._trail.number_of(failure.request)
        has_place = row is not None and row in self.places
        if has_place or url in self._ended_unread:
            self._failures[url] = failure.value

    def _request_ended(self, row: int) -> None:
        """Note that the crawl is done with the request for a sitemap. The trail calls
        this.

        If the sitemap still has its place, it was neither read nor has it failed. Then
        another component has dropped the request, or the rules did before it was
        queued.
        """
        sitemap = self._give_back(row)
        if sitemap is not None and not self._spool.crawl_closing:
            self._ended_unread[sitemap.url] = sitemap
            # If Scrapy calls the errback, _keep_failure(), it does so before
            # _report_end() runs.
            call_later(0, self._report_end, sitemap)

    def _report_end(self, sitemap: SitemapRow) -> None:
        """Note why *sitemap* was not read although the crawl is done with its
        request."""
        self._ended_unread.pop(sitemap.url, None)
        error = self._failures.pop(sitemap.url, None)
        if isinstance(error, RobotsDisallowed):
            # No run requests the sitemap again.
            self._fail(sitemap, str(error), DONE, error)
        else:
            # The next run requests the sitemap again.
            why = "another component dropped its request"
            if error is not None:
                why += f" ({text_of(error)})"
            self._fail(sitemap, why, FAILED)
        self._spool.wake()

    def _mark(self, sitemap: SitemapRow, state: int) -> None:
        """Note the *state* of a sitemap that was read or has failed, and free its
        place."""
        self._spool.mark(sitemap, state)
        self._give_back(sitemap.id)

    def _give_back(self, row: int) -> SitemapRow | None:
        """Free the place of the sitemap of *row*, and return the sitemap; None if it
        had none."""
        sitemap = self.places.give_back(row)
        self._end_pause()  # another sitemap may get the place
        return sitemap

    # Downloads

    def _cut_at_limit(self, data: bytes, request: Request, **_: Any) -> None:
        """Cut the transfer of a sitemap at the size limit."""
        if SITEMAP_KEY not in request.meta:
            return
        received = self._bytes_received.get(request, 0) + len(data)
        self._bytes_received[request] = received
        if received > self._crawl.settings.sitemap_max_bytes:
            raise StopDownload(fail=False)  # what has arrived is read

    def _response_downloaded(
        self, request: Request, response: Response, **_: Any
    ) -> None:
        """Let Scrapy undo the encoding of a sitemap, up to a size limit, only if our
        reader can't undo it."""
        if SITEMAP_KEY not in request.meta:
            return
        self._bytes_received.pop(request, None)
        encodings = response.headers.getlist("Content-Encoding")
        is_for_scrapy = (
            len(encodings) == 1 and encodings[0].strip().lower() in _SCRAPYS_ENCODINGS
        )
        if not is_for_scrapy:
            # Our reader sees by itself whether the body is gzip. Of several encodings,
            # none is undone.
            response.headers.pop("Content-Encoding", None)
            return
        max_size = self._crawl.crawler.settings.getint("DOWNLOAD_MAXSIZE")
        if max_size == 0:  # the project sets no limit, so ours alone counts
            max_size = OTHER_ENCODINGS_MAX
        request.meta[MAXSIZE_KEY] = min(max_size, OTHER_ENCODINGS_MAX)

    async def check(self, request: Request) -> None:
        """Check a request for a sitemap, or for a page from a sitemap, before it is
        downloaded. Raise ``IgnoreRequest`` if the request is no longer needed, or may
        lead to a private address."""
        if SITEMAP_KEY in request.meta:
            await self._check_sitemap(request)
        else:
            await self._check_page(request)

    async def _check_page(self, request: Request) -> None:
        """Raise ``IgnoreRequest`` if a page is at a private address, and its sitemap
        isn't (origins/targets.py)."""
        listed_by = Origin.from_url(request.meta[PAGE_KEY]["sitemap"])
        if await self.targets.refuses(origin_of(request), listed_by):
            self._crawl.stats.inc_value(Reason.PRIVATE.stat)
            raise IgnoreRequest(f"listed by a sitemap, but {Reason.PRIVATE.value}")

    async def _check_sitemap(self, request: Request) -> None:
        """Raise ``IgnoreRequest`` if a sitemap needs no request any more, is on one
        host too many, or at a private address to which a public origin has led."""
        origin = origin_of(request)
        led_by = Origin.from_url(request.meta[LED_BY_KEY])
        try:
            sitemap = self._sitemap_of(request)
            if sitemap is None:
                raise _NeedlessRequest("this sitemap was already read")
            self._adopt_from_earlier_run(request, sitemap)
            if origin.host != led_by.host:
                # Another host counts as if it had pages, so that an index can't make us
                # ask any number of hosts.
                site_number = self._spool.site_number(str(origin), str(led_by))
                if site_number is None:
                    raise IgnoreRequest(
                        f"sitemaps of {led_by} already name {MAX_HOSTS} other hosts"
                    )
        except sqlite3.Error:
            pass  # read() looks the sitemap up again
        if await self.targets.refuses(origin, led_by):
            raise IgnoreRequest(
                f"its host has a private address, and {led_by} has a public one (see REP_PRIVATE_HOSTS)"
            )
        # If the request is a retry, it still has the limit that was set for the
        # response before.
        request.meta.pop(MAXSIZE_KEY, None)

    def _adopt_from_earlier_run(self, request: Request, sitemap: SitemapRow) -> None:
        """If an earlier run has left *request* in Scrapy's queue, treat it as this
        run's own. But raise ``IgnoreRequest`` if this run has requested *sitemap*
        itself."""
        # The trail knows only requests of this run.
        is_of_this_run = self._trail.number_of(request) is not None
        if is_of_this_run or self._engine.scheduler_is_foreign:
            return
        if sitemap.id in self.places:
            raise _NeedlessRequest("this sitemap was requested already")
        if self._spool.is_waiting(sitemap.url):
            self._spool.mark(sitemap, ASKED)
            self.places.take(sitemap)
            self._trail.begin(request, sitemap.id)

    def _sitemap_of(self, request: Request) -> SitemapRow | None:
        """Return the sitemap of *request*; None if it is finished. May raise
        ``sqlite3.Error``."""
        description = request.meta[SITEMAP_KEY]
        url = description["url"]
        sitemap = self._spool.unfinished_sitemap(url)
        if sitemap is not None:
            return sitemap
        # Either the sitemap is finished, and isn't added below; or the spool doesn't
        # know it, since another process has found it, or our file has lost it.
        added = self._spool.add_sitemaps(
            request.meta[LED_BY_KEY],
            {url: str(Origin.from_url(url))},
            tuple(description["chain"]),
            how=Found.of(description.get("found")),
        )
        if not added.new:
            return None
        sitemap = self._spool.unfinished_sitemap(url)
        assert sitemap is not None  # it was just added
        self._spool.mark(sitemap, ASKED)
        return sitemap

    # Failures

    def failed(self, request: Request, exception: Exception) -> None:
        """Note that the sitemap of *request* can't be fetched. If *exception* is no
        ``IgnoreRequest``, raises one, since Scrapy would log any other as an error."""
        if isinstance(exception, _NeedlessRequest):
            return
        is_ignored = isinstance(exception, IgnoreRequest)
        sitemap = None
        # While the crawl is closing, or the spool fails, nothing is noted, since the
        # next run requests the sitemap again.
        if not self._spool.crawl_closing:
            with suppress(sqlite3.Error):
                sitemap = self._sitemap_of(request)
        if sitemap is not None:
            is_final = is_ignored and not isinstance(exception, RobotsUnreachable)
            # After DONE, no run requests the sitemap again. After FAILED, the next run
            # does.
            state = DONE if is_final else FAILED
            why = str(exception) if is_ignored else text_of(exception)
            self._fail(sitemap, why, state, exception)
        if not is_ignored:
            why = clean(f"the sitemap failed: {exception}")
            raise IgnoreRequest(why) from exception

    def _fail(
        self, sitemap: SitemapRow, why: str, state: int, error: Exception | None = None
    ) -> None:
        """Note that a sitemap can't be read, and log *why*. *state*: DONE if the
        failure is final, or FAILED if the next run is to request the sitemap again. If
        the failure is final, and the sitemap was a guess, make the next guess."""
        is_guess = sitemap.found is Found.GUESSED
        is_forbidden = isinstance(error, RobotsDisallowed)
        if not self._spool.seeding_over:
            if is_guess and state == DONE:
                path = sitemap.url.removeprefix(sitemap.host)
                # ValueError: the path is none of our GUESSES. Another version of this
                # package, which guessed other paths, has left the sitemap in the file.
                with suppress(sqlite3.Error, ValueError):
                    self.guess(sitemap.origin, path)
            self._mark(sitemap, state)
        self._log.note_failed(sitemap, why, expected=is_guess or is_forbidden)

    def guess(self, origin: str, after: str | None = None) -> None:
        """Add the first of the GUESSES for *origin*. With *after*, which is one of the
        GUESSES, add the next one that isn't known already (because a page links to it,
        say). May raise ``sqlite3.Error``; ``ValueError`` if *after* is no guess."""
        paths: tuple[str, ...] = GUESSES[:1]
        if after is not None:
            paths = GUESSES[GUESSES.index(after) + 1 :]
        for path in paths:
            url = origin + path
            added = self._spool.add_sitemaps(origin, {url: origin}, how=Found.GUESSED)
            if added.new:
                self._context.discovery.count_if_new(url)
                return

    def add_named(self, origin: str, hosts: dict[str, str], how: Found) -> None:
        """Add sitemaps that the robots.txt of *origin* or one of its pages names, and
        that Discovery has counted; ``sqlite3.Error`` if the spool can't be read.
        *hosts*: the origin that each is fetched from, by the sitemap's URL."""
        limit = self._crawl.settings.sitemap_max_files
        added = self._spool.add_sitemaps(origin, hosts, how=how, limit=limit)
        for url in added.beyond_limit:
            self._crawl.stats.inc_value(Reason.LIMIT.stat)
            message = "Sitemap %(url)s is skipped: %(origin)s has too many sitemaps"
            self._log.warn(origin, message, url=url, origin=origin)

    # Reading

    async def read(self, request: Request, response: Response) -> Response:
        """Read the sitemap of *request* into the spool. Always raises
        ``IgnoreRequest``, so that nobody else gets *response*."""
        await maybe_deferred_to_future(self._reading_lock.acquire())
        try:
            if not self._spool.seeding_over:
                sitemap = await self._spool.retry(self._sitemap_of, request)
                if sitemap is not None:
                    # While the sitemap is read, its request is in a middleware, and so
                    # still takes a download slot. The crawl gets an extra one for it.
                    with self._engine.extra_slot():
                        await self._read_into(sitemap, response)
        except Exception as error:  # noqa: BLE001
            self._reading_failed(request, error)
        finally:
            self._engine.drop_body(response)
            self._reading_lock.release()
        raise IgnoreRequest("the sitemap was read")

    def _reading_failed(self, request: Request, error: Exception) -> None:
        """Log and count that the sitemap of *request* was not read. The next run reads
        it."""
        if not isinstance(error, sqlite3.Error):  # the journal has logged those
            message = "Sitemap %(url)s was not read completely: %(error)s"
            values = {"url": request.url, "error": text_of(error)}
            logger.error(message, values, extra=self._crawl.extra)
        self._crawl.stats.inc_value("rep/sitemaps/failed")
        row = self._trail.number_of(request)
        if row is not None:
            self._give_back(row)

    async def _next_turn(self) -> None:
        """Let another sitemap be read for a while, since a long one must not keep a
        short one waiting."""
        await pause()
        self._reading_lock.release()
        await maybe_deferred_to_future(self._reading_lock.acquire())

    async def _read_into(self, sitemap: SitemapRow, response: Response) -> None:
        """Read *sitemap* from *response* into the spool, and note what became of it."""
        if not 200 <= response.status < 300:
            is_temporary = (
                response.status >= 500 or response.status in _TEMPORARY_STATUSES
            )
            # After FAILED, the next run requests the sitemap again.
            state = FAILED if is_temporary else DONE
            self._fail(sitemap, f"HTTP {response.status}", state)
            return
        reader = SitemapReader(
            max_bytes=self._crawl.settings.sitemap_max_bytes,
            max_entries=self._crawl.settings.sitemap_max_urls,
            media=self._context.options.media,
            url=response.url,
        )
        # The selection reads the spool as it is made, hence retry().
        selection = await self._spool.retry(Selection, self._context, sitemap, reader)
        slices = Slices()
        for entries in reader.read([response.body]):
            await selection.add(entries)
            if slices.renew_if_over():
                await self._next_turn()
            if self._spool.seeding_over:
                return  # seeding has ended meanwhile
        if reader.kind is None:  # the reader has recognised no kind of sitemap
            self._fail(sitemap, reader.problem or "it is not a sitemap", DONE)
            return
        self._mark(sitemap, DONE)
        self._log.note_read(reader.kind, selection)
