"""Sitemaps that robots.txt files list seed the crawl (REP.md section 9).

Here the parts of `scrapy_rep.sitemaps` meet: what is discovered goes into the spool, the feeder has
it requested, what comes is read here (in the middleware's ``process_response``, so that the request
is in progress until all of it is in the spool), and the pages take the same way.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.job import job_dir
from twisted.internet.defer import Deferred, DeferredLock

from scrapy_rep import signals
from scrapy_rep.exceptions import RobotsDisallowed
from scrapy_rep.protocol import Origin
from scrapy_rep.sitemaps.conventions import Conventions
from scrapy_rep.sitemaps.feeding import MARK, SITEMAP_KEY, Feeder
from scrapy_rep.sitemaps.outcome import Report
from scrapy_rep.sitemaps.proof import Proofs
from scrapy_rep.sitemaps.reader import SitemapReader
from scrapy_rep.sitemaps.sorting import Sorter
from scrapy_rep.sitemaps.spool import Sitemap, Spool, open_spool
from scrapy_rep.sitemaps.transfer import META_KEY
from scrapy_rep.urls import origin_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_rep.cache import RobotsCache
    from scrapy_rep.deferral import Deferral
    from scrapy_rep.engine import EngineAccess
    from scrapy_rep.flights import Flights
    from scrapy_rep.protocol import RobotsTxt
    from scrapy_rep.settings import RepSettings

__all__ = ["MARK", "META_KEY", "SITEMAP_KEY", "SitemapSeeding"]

logger = logging.getLogger(__name__)

# As many as Google lets a site submit. A file of 512,000 bytes has room for 20,000.
MAX_SITEMAPS = 500

# The event loop has its turn after so many seconds.
_SLICE_SECONDS = 0.01
# So many spellings of origins are remembered as met.
_SPELLINGS = 20_000


class SitemapSeeding:
    """Announces each sitemap once; has it and its pages requested if ``REP_SITEMAPS`` is on."""

    def __init__(
        self,
        crawler: Crawler,
        settings: RepSettings,
        engine: EngineAccess,
        cache: RobotsCache,
        flights: Flights,
        deferral: Deferral,
    ) -> None:
        """:raises SettingsError: if one of the spider's attributes is wrong"""
        assert crawler.stats is not None
        self._crawler = crawler
        self._stats = crawler.stats
        self._settings = settings
        self._engine = engine
        self._cache = cache
        self._deferral = deferral
        self._conventions = Conventions(crawler.spider, settings)
        # Hashes: the URLs of a million sites would be a hundred megabytes.
        self._seen: set[int] = set()
        self._met: set[int] = set()
        self.spellings: set[str] = set()
        """How URLs begin whose origins were met: nothing more is to be done about these."""
        self.watching = bool(self._conventions.mode)
        """Whether :meth:`meet` wants to hear of requests."""
        self._lock = DeferredLock()
        self._spool: Spool | None = None
        self._feeder = Feeder(crawler, settings, engine, self._conventions, lambda: deferral.full)
        self._proofs = Proofs(
            crawler, settings, cache, flights, deferral.worth_waiting, self._feeder.wake
        )
        self._idle_with: list[str] = []
        if self.watching:
            connect = crawler.signals.connect
            connect(self._spider_opened, scrapy_signals.spider_opened)
            connect(self._spider_idle, scrapy_signals.spider_idle)
            connect(self._spider_closed, scrapy_signals.spider_closed)
            connect(self._request_dropped, scrapy_signals.request_dropped)
            connect(self._request_deferred, signals.request_deferred)

    # What robots.txt files list

    def meet(self, request: Request, spelling: str | None) -> None:
        """The crawl asks for a page: its origin may seed, if it is one of those that may.

        :param spelling: how its URL begins, if that is worth remembering
        """
        if META_KEY in request.meta:
            return  # not a page: who serves sitemaps for others does not seed
        if self._conventions.mode == "start" and not request.meta.get("is_start_request"):
            return
        try:
            origin = Origin.from_url(spelling) if spelling else origin_of(request)
        except ValueError:
            return
        if spelling:
            if len(self.spellings) >= _SPELLINGS:
                self.spellings.clear()
            self.spellings.add(spelling)
        if hash(origin) in self._met:
            return
        self._met.add(hash(origin))
        known = self._cache.get(origin)
        if known is not None and not known.unreachable:
            self._seed(origin, known.entry.url or origin.robots_url, known.robots)

    def discovered(self, origin: Origin, robots_url: str, robots: RobotsTxt) -> None:
        """Take the sitemaps that *robots*, the robots.txt of *origin*, lists.

        :param robots_url: where the file came from, for relative URLs
        """
        for url, _ in self._listed(origin, robots_url, robots, warn=True):
            if hash(url) not in self._seen:
                self._seen.add(hash(url))
                self._stats.inc_value("rep/sitemaps/found")
                self._crawler.signals.send_catch_log(
                    signals.sitemap_discovered,
                    origin=origin,
                    url=url,
                    spider=self._crawler.spider,
                )
        if hash(origin) in self._met:
            self._seed(origin, robots_url, robots)

    def nothing_listed(self, origin: Origin) -> None:
        """There is no robots.txt of *origin*."""
        if hash(origin) in self._met:
            self._seed(origin, origin.robots_url, None)

    def _listed(
        self, origin: Origin, robots_url: str, robots: RobotsTxt, *, warn: bool
    ) -> list[tuple[str, str]]:
        """The sitemaps that a robots.txt lists: their URLs and where these are."""
        listed = list(dict.fromkeys(robots.sitemaps))
        if len(listed) > MAX_SITEMAPS and warn:
            logger.warning(
                "robots.txt of %(origin)s lists %(count)d sitemaps; those after the first "
                "%(limit)d are ignored",
                {"origin": origin, "count": len(listed), "limit": MAX_SITEMAPS},
                extra={"spider": self._crawler.spider},
            )
        urls = {}
        for value in listed[:MAX_SITEMAPS]:
            message = None
            try:
                url = value
                if not urlsplit(value).scheme:
                    url = urljoin(robots_url, value)
                    message = "robots.txt of %(origin)s lists a sitemap by a relative URL"
                url = Request(url).url
                place = Origin.from_url(url)
                if place.scheme not in ("http", "https"):
                    raise ValueError
                urls[url] = str(place)
            except ValueError:
                message = "robots.txt of %(origin)s lists a sitemap that is no URL"
            if message and warn:
                logger.warning(
                    f"{message}: %(value)s",
                    {"origin": origin, "value": value[:200]},
                    extra={"spider": self._crawler.spider},
                )
        return list(urls.items())

    def _seed(self, origin: Origin, robots_url: str, robots: RobotsTxt | None) -> None:
        """Have what *origin* lists read."""
        spool = self._spool
        if spool is None or self._feeder.stopped:
            return
        listed = self._listed(origin, robots_url, robots, warn=False) if robots else []
        guessed = not listed and self._settings.sitemap_guess
        if guessed:
            listed = [(f"{origin}/sitemap.xml", str(origin))]
        files, _ = spool.counts(str(origin))
        for url, place in listed:
            if files >= self._settings.sitemap_max_files:
                self._reject_root(origin, url)
            elif spool.add_sitemap(url, place, str(origin), (), guessed=guessed):
                files += 1
                if guessed:
                    self._stats.inc_value("rep/sitemaps/found")
                self._feeder.add_host(place)

    def _reject_root(self, origin: Origin, url: str) -> None:
        Report(self._crawler, url).too_many(str(origin))

    # Requests on their way

    def arrive(self, request: Request) -> None:
        """Take a page that was fed from the scheduler."""
        self._feeder.arrive(request)

    def check(self, request: Request) -> None:
        """A request for a sitemap is to be downloaded.

        :raises IgnoreRequest: if nobody needs it any more
        """
        if self._spool is None or self._of(request, self._spool) is None:
            raise IgnoreRequest("this sitemap was read before")

    def _of(self, request: Request, spool: Spool) -> Sitemap | None:
        """The sitemap that *request* is for; None if it is done with."""
        about = request.meta[META_KEY]
        found = spool.sitemap(about["url"])
        if found is None and self._engine.scheduler_is_foreign:
            # Another process found it.
            chain = tuple(about["chain"])
            place = str(Origin.from_url(about["url"]))
            origin = request.meta[SITEMAP_KEY]
            spool.add_sitemap(about["url"], place, origin, chain, guessed=about["guessed"])
            found = spool.sitemap(about["url"])
        return found

    def _request_dropped(self, request: Request, **_: Any) -> None:
        """Another request for the same URL came first, and the dupe filter has dropped ours."""
        if MARK in request.meta:
            self._feeder.dropped(request)
        if META_KEY not in request.meta or self._spool is None or self._feeder.stopped:
            return
        sitemap = self._of(request, self._spool)
        if sitemap is None:
            return
        if self._engine.scheduler_is_foreign:
            # Another process has it, or had it.
            self._end(sitemap, "asked for by another process")
        elif not request.dont_filter:
            # One of the spider's own, or ours in an earlier run: neither has read it for us.
            call_later(0, lambda: self._feeder.ask_for(sitemap, dont_filter=True))

    def _request_deferred(self, request: Request, **_: Any) -> None:
        self._feeder.held(request)

    def failed(self, request: Request, exception: Exception) -> None:
        """A request for a sitemap has failed.

        :raises IgnoreRequest: it is dealt with here: Scrapy need not log it
        """
        spool = self._spool
        sitemap = self._of(request, spool) if spool is not None else None
        if sitemap is not None:
            name = "" if isinstance(exception, IgnoreRequest) else type(exception).__name__ + ": "
            self._end(sitemap, f"{name}{exception}", exception)
        if not isinstance(exception, IgnoreRequest):
            raise IgnoreRequest(f"the sitemap failed: {exception}") from exception

    def _end(self, sitemap: Sitemap, why: str, error: Exception | None = None) -> None:
        """Be done with a sitemap that can't be read."""
        if self._spool is not None and not self._feeder.stopped:
            self._spool.done(sitemap)
        self._feeder.came(sitemap.url)
        quiet = sitemap.guessed or isinstance(error, RobotsDisallowed)
        Report(self._crawler, sitemap.url).failed(why, quiet=quiet)

    # Reading

    def read(self, request: Request, response: Response) -> Coroutine[Any, Any, Response]:
        """Read a sitemap. The coroutine always raises ``IgnoreRequest``: that is the end of it."""
        return self._read(request, response)

    async def _read(self, request: Request, response: Response) -> Response:
        await maybe_deferred_to_future(self._lock.acquire())
        try:
            spool = self._spool
            if spool is not None and (not self._feeder.stopped):
                sitemap = self._of(request, spool)
                if sitemap is not None:
                    with self._engine.extra_slot():
                        await self._read_into(spool, sitemap, response)
        except Exception as error:  # noqa: BLE001
            # A disk that is full or gone; nothing else is known that could raise.
            logger.error(
                "Sitemap %(url)s was not read to its end: %(error)s",
                {"url": request.url, "error": f"{type(error).__name__}: {error}"},
                extra={"spider": self._crawler.spider},
            )
            self._stats.inc_value("rep/sitemaps/failed")
            self._feeder.came(request.meta[META_KEY]["url"])
        finally:
            self._lock.release()
        raise IgnoreRequest("the sitemap was read")

    async def _read_into(self, spool: Spool, sitemap: Sitemap, response: Response) -> None:
        if not 200 <= response.status < 300:
            self._end(sitemap, f"HTTP status {response.status}")
            return
        settings = self._settings
        reader = SitemapReader(
            max_bytes=settings.sitemap_max_bytes, max_entries=settings.sitemap_max_urls
        )
        sorter = Sorter(
            sitemap,
            reader,
            spool,
            settings,
            self._conventions,
            self._proofs.proven,
            self._found_in_index,
        )
        until = time.perf_counter() + _SLICE_SECONDS
        for entries in reader.read([response.body]):
            sorter.take(entries)
            if time.perf_counter() > until:
                self._feeder.wake()
                await turn()
                if self._feeder.stopped and not spool.durable:
                    return  # the crawl is ending, and with it what is in the spool
                until = time.perf_counter() + _SLICE_SECONDS
        if reader.kind is None:
            self._end(sitemap, reader.problem or "it is no sitemap")
            return
        spool.done(sitemap)
        Report(self._crawler, sitemap.url).read(reader, sorter)
        self._feeder.came(sitemap.url)
        self._feeder.gauge()

    def _found_in_index(self, index: Sitemap, url: str, place: str) -> bool:
        assert self._spool is not None
        chain = (*index.chain, index.url)
        if not self._spool.add_sitemap(url, place, index.origin, chain):
            return False
        if hash(url) not in self._seen:
            self._seen.add(hash(url))
            self._stats.inc_value("rep/sitemaps/found")
        if not self._feeder.stopped:
            self._feeder.add_host(place)
        return True

    # The crawl's beginning and end

    def _spider_opened(self, spider: Spider) -> None:
        self._engine.before_closing(self._before_closing)
        self._spool = open_spool(job_dir(self._crawler.settings), spider)
        self._feeder.open(self._spool)
        self._proofs.open(self._spool)
        left = self._spool.waiting + self._spool.unproven
        if left:
            logger.info(
                "%(count)d pages that sitemaps list are left from an earlier run",
                {"count": left},
                extra={"spider": spider},
            )

    def _spider_idle(self) -> None:
        asked = self._feeder.asked
        if asked and asked == self._idle_with and not self._deferral.holding:
            self._lost(asked)
        self._idle_with = asked
        self._feeder.wake()
        if self._feeder or self._proofs:
            raise DontCloseSpider

    def _lost(self, urls: list[str]) -> None:
        """Nothing is on its way, so these never come: another component has dropped them."""
        for url in urls:
            sitemap = self._spool.sitemap(url) if self._spool is not None else None
            if sitemap is not None:
                self._end(sitemap, "its request was dropped on the way")
            else:
                self._feeder.came(url)

    async def _before_closing(self) -> None:
        spool = self._spool
        if self._feeder.stopped or spool is None:
            return
        self._proofs.stop()
        if self._engine.scheduler_outlives and not spool.durable:
            await self._flush()
        self._feeder.stop()
        left = spool.waiting + spool.unproven + self._feeder.outstanding
        if left and not spool.durable:
            logger.info(
                "%(count)d pages that sitemaps list were not requested: the crawl ends, and without "
                "JOBDIR what waits ends with it",
                {"count": left},
                extra={"spider": self._crawler.spider},
            )

    async def _flush(self) -> None:
        try:
            while not self._feeder.flush():
                await turn()
        except Exception:
            logger.exception(
                "What sitemaps list can't be handed to the scheduler",
                extra={"spider": self._crawler.spider},
            )

    def _spider_closed(self) -> None:
        if self._spool is None:
            return
        self._feeder.stop()
        self._feeder.close()
        self._feeder.gauge()
        self._spool.close()
        self._spool = None


async def turn() -> None:
    """Let the event loop have its turn."""
    turn: Deferred[None] = Deferred()
    call_later(0, turn.callback, None)
    await maybe_deferred_to_future(turn)
