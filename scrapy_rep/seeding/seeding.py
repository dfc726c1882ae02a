"""Sitemaps that robots.txt files list seed the crawl (REP.md section 9).

Here the parts of `scrapy_rep.protocol.sitemaps` meet: what is discovered goes into the spool (`seeding/spool.py`), is
asked for (`seeding/asking.py`) and read (`seeding/intake.py`), and the pages go from the spool to the scheduler
(`seeding/feeder.py`), those of other hosts when it is known that they may (`seeding/proof.py`).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import DontCloseSpider
from scrapy.utils.asyncio import call_later, run_in_thread
from scrapy.utils.job import job_dir

from scrapy_rep import signals
from scrapy_rep.engine.closing import Stage
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.pause import pause, work
from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.upkeep import Upkeep
from scrapy_rep.engine.urls import USUAL, origin_of
from scrapy_rep.engine.words import counted
from scrapy_rep.origins.resolver import ResolutionListener
from scrapy_rep.protocol import Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.seeding.discovery import FED, SITEMAP
from scrapy_rep.seeding.feeder import Feeder
from scrapy_rep.seeding.intake import Reading
from scrapy_rep.seeding.outcome import Report
from scrapy_rep.seeding.proof import Proofs
from scrapy_rep.seeding.spider_options import Conventions
from scrapy_rep.seeding.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from scrapy_rep.holding.deferral import Deferral
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.resolver import Resolution
    from scrapy_rep.protocol import RobotsTxt
    from scrapy_rep.seeding.discovery import Discovery

logger = get_logger(__name__)

# So many spellings of origins are remembered as met.
_SPELLINGS = 20_000


class SitemapSeeding(ResolutionListener):
    """Has sitemaps and their pages requested."""

    part = "seeding from sitemaps"

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        deferral: Deferral,
        discovery: Discovery,
        mode: str | bool,
    ) -> None:
        """:param mode: which origins may seed, ``"start"`` or ``"all"``
        :raises SettingsError: if one of the spider's attributes is wrong
        """
        self._crawler = crawler = context.crawler
        self._stats = context.stats
        self._settings = settings = context.settings
        self._engine = engine = context.engine
        self._cache = cache = origins.cache
        flights = origins.flights
        self._deferral = deferral
        self._discovery = discovery
        self._start_only = mode == "start"
        self._conventions = Conventions(crawler.spider, settings)
        # An origin that is forgotten and met again adds what the spool has already.
        self._met = Recent()
        self.spellings: set[str] = set()
        """How URLs begin whose origins were met: nothing more is to be done about these."""
        self._spool = Spool(job_dir(crawler.settings), settings.defer_max_wait, crawler.spider)
        self._upkeep = Upkeep(self._look)
        self._found: deque[tuple[Origin, str, RobotsTxt | None]] = deque()
        """The robots.txt files of whose sitemaps some are not in the spool yet."""
        self._steps: Iterator[None] | None = None
        """Those of the first, while they are being written."""
        self._feeder = Feeder(crawler, settings, engine, self._conventions, deferral, self._spool)
        self._proofs = Proofs(
            crawler, settings, cache, flights, origins.policy.is_worth_waiting, self._feeder
        )
        self.reading = Reading(
            crawler,
            settings,
            engine,
            self._conventions,
            self._feeder,
            self._proofs,
            discovery.count,
        )
        """What becomes of requests for sitemaps."""
        self._idle_with: list[str] = []
        connect = crawler.signals.connect
        connect(self._spider_opened, scrapy_signals.spider_opened)
        connect(self._spider_idle, scrapy_signals.spider_idle)
        connect(self._spider_closed, scrapy_signals.spider_closed)
        connect(self._request_dropped, scrapy_signals.request_dropped)
        connect(self._request_deferred, signals.request_deferred)

    # What robots.txt files list

    def look_at(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Take note of a request that is about to be sent. Return a check to be awaited first, if a
        site's sitemaps have led to it: may they lead there?"""
        usual = USUAL.match(request.url)
        spelling = usual[1] + "/" if usual else None
        if spelling not in self.spellings:
            self.meet(request, spelling)
        if (FED in request.meta and self.arrive(request)) or SITEMAP in request.meta:
            return self.reading.check(request)
        return None

    async def meet_again(
        self, request: Request, decided: Coroutine[Any, Any, Request | None]
    ) -> Request | None:
        """Await what is decided about *request*: its origin may be forgotten meanwhile."""
        try:
            return await decided
        finally:
            self.meet(request, None)

    def meet(self, request: Request, spelling: str | None) -> None:
        """The crawl asks for a page: its origin may seed, if it is one of those that may.

        :param spelling: how its URL begins, if that is worth remembering
        """
        if SITEMAP in request.meta:
            return  # not a page: who serves sitemaps for others does not seed
        if self._start_only and not request.meta.get("is_start_request"):
            return
        try:
            origin = Origin.from_url(spelling) if spelling else origin_of(request)
        except ValueError:
            return
        if spelling:
            if len(self.spellings) >= _SPELLINGS:
                self.spellings.clear()
            self.spellings.add(spelling)
        if not self._met.add(origin):
            return
        known = self._cache.get(origin)
        if known is not None and not known.unreachable:
            self._seed(origin, known.entry.url or origin.robots_url, known.robots)

    async def resolved(self, resolution: Resolution) -> None:
        """Take the sitemaps that a new robots.txt lists, or the guess where there is none."""
        origin, robots = resolution.known.origin, resolution.robots
        there = robots is not None or resolution.outcome is Outcome.MISSING
        if there and origin in self._met:
            self._seed(origin, resolution.robots_url, robots)

    def _seed(self, origin: Origin, robots_url: str, robots: RobotsTxt | None) -> None:
        """Have what *origin* lists read."""
        self._found.append((origin, robots_url, robots))
        if len(self._found) == 1:  # else those before it are being written yet
            self._write_found()

    def _write_found(self) -> None:
        """Write what was found into the spool: some now, the rest when the event loop has had its
        turn; later, if that does not work now."""
        spool = self._spool
        if self._feeder.stopped:
            return
        try:
            while self._found:
                if self._steps is None:
                    self._steps = self._add(spool, *self._found[0])
                if not work(self._steps):
                    call_later(0, self._write_found)
                    return
                self._steps = None
                spool.patience.worked("seeding")
                self._found.popleft()
        except sqlite3.Error as error:
            self._steps = None  # from its beginning: the spool knows what it has
            seconds = spool.patience.failed("seeding", error)
            if seconds is not None:
                call_later(seconds, self._write_found)

    def _add(
        self, spool: Spool, origin: Origin, robots_url: str, robots: RobotsTxt | None
    ) -> Iterator[None]:
        files, _ = spool.sitemaps.counts(str(origin))
        listed = self._discovery.listed(origin, robots_url, robots, warn=False) if robots else ()
        any_listed = False
        for one in listed:
            if one is not None:
                any_listed = True
                files += self._add_one(spool, origin, files, *one)
            yield
        if not any_listed and self._settings.sitemap_guess:
            url = f"{origin}/sitemap.xml"
            if self._add_one(spool, origin, files, url, str(origin), guessed=True):
                self._discovery.count(url)

    def _add_one(
        self,
        spool: Spool,
        origin: Origin,
        files: int,
        url: str,
        place: str,
        *,
        guessed: bool = False,
    ) -> bool:
        """Take a sitemap, if *origin* may have more than these *files*. Return whether it is new."""
        if files >= self._settings.sitemap_max_files:
            Report(self._crawler, url, str(origin)).too_many()
            return False
        if not spool.sitemaps.add(url, place, str(origin), (), guessed=guessed):
            return False
        self._feeder.asking.added()
        return True

    # Requests on their way

    def arrive(self, request: Request) -> bool:
        """Take a page that was fed from the scheduler. Return whether it may be on any host."""
        self._feeder.arrive(request)
        return self._settings.sitemap_cross_host == "any"

    def _request_dropped(self, request: Request, **_: Any) -> None:
        """The dupe filter has dropped a request of ours."""
        if FED in request.meta:
            self._feeder.dropped(request)
        elif SITEMAP in request.meta and not self._feeder.stopped:
            self.reading.dropped(request)

    def _request_deferred(self, request: Request, **_: Any) -> None:
        self._feeder.held(request)

    # The crawl's beginning and end

    def _spider_opened(self) -> Coroutine[Any, Any, None]:
        self._engine.before_closing(Stage.SEEDING, self._before_closing)
        self._feeder.asking.open()
        return self._upkeep.begin()

    async def _look(self) -> None:
        """Look after the spool: it can be used when that works."""
        if not self._spool.opened and self._feeder.stopped:
            return
        opened = await self._spool.look()
        if opened is None:
            return
        self._feeder.asking.added()
        self._proofs.recover(opened.unproven_origins)
        left = self._spool.waiting + self._spool.unproven
        if left:
            logger.info(
                "Left from an earlier run: %(pages)s that sitemaps list",
                {"pages": counted(left, "page")},
                extra={"spider": self._crawler.spider},
            )

    def _spider_idle(self) -> None:
        if self._feeder.stopped:
            return
        asked = self._feeder.asking.asked
        if asked and asked == self._idle_with and not self._deferral.holding:
            self.reading.lost(asked)
        self._idle_with = asked
        self._feeder.wake()
        if self._feeder or self._proofs or self._found or not self._spool.opened:
            raise DontCloseSpider

    async def _before_closing(self) -> None:
        spool = self._spool
        self._proofs.stop()
        self._write_found()
        while self._steps is not None and not self._feeder.stopped:
            await pause()
        self._found.clear()
        if self._engine.scheduler_outlives and not spool.durable:
            await self._flush()
        self._feeder.stop()
        left = spool.waiting + spool.unproven + self._feeder.outstanding
        if left and not spool.durable:
            logger.info(
                "Not requested: %(pages)s that sitemaps list; the crawl ends, and without JOBDIR "
                "what waits ends with it",
                {"pages": counted(left, "page")},
                extra={"spider": self._crawler.spider},
            )

    async def _flush(self) -> None:
        try:
            while not self._feeder.flush():
                await pause()
        except Exception:
            logger.exception(
                "What sitemaps list can't be handed to the scheduler",
                extra={"spider": self._crawler.spider},
            )

    async def _spider_closed(self) -> None:
        self._feeder.stop()
        self._feeder.close()
        self._feeder.gauge()
        await self._upkeep.end()
        await run_in_thread(self._spool.close)
