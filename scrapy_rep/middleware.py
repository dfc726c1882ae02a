"""What happens to a request: ask, decide, act, count.

``process_request`` is a plain function: where the origin is known and fresh it decides on the
spot, else it returns a coroutine that waits for the origin's robots.txt and decides then.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest, NotConfigured

from scrapy_rep.engine.access import EngineAccess
from scrapy_rep.engine.interactive import in_shell, is_interactive, one_attempt
from scrapy_rep.engine.isolation import Isolation
from scrapy_rep.engine.startup import StopAtStart
from scrapy_rep.engine.tally import Tally
from scrapy_rep.engine.urls import FOREIGN, SCHEME, USUAL, origin_of, path_in
from scrapy_rep.exceptions import NotFetched, RobotsDisallowed, RobotsUnreachable, SettingsError
from scrapy_rep.holding.deferral import Deferral
from scrapy_rep.holding.release import MARK as RELEASED
from scrapy_rep.holding.waiting import Waiting
from scrapy_rep.origins.agents import Agents
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.fetcher import Fetcher
from scrapy_rep.origins.flights import Flights
from scrapy_rep.origins.http_cache import HttpCache
from scrapy_rep.origins.resolver import Answers
from scrapy_rep.origins.table import Known, KnownOrigins
from scrapy_rep.protocol.freshness import Standing
from scrapy_rep.protocol.matching import NO_RULES, allows, comparable
from scrapy_rep.reporting.announcements import Announcer
from scrapy_rep.reporting.recorder import Decisions
from scrapy_rep.seeding.discovery import FED, SITEMAP, Discovery, seeding_mode
from scrapy_rep.settings import RepSettings, warn_of_unknown
from scrapy_rep.storages.access import open_storage

if TYPE_CHECKING:
    import re

    from scrapy.crawler import Crawler

    from scrapy_rep.protocol import Decision, Origin
    from scrapy_rep.seeding.seeding import SitemapSeeding
    from scrapy_rep.storages.access import StorageAccess

# What `process_request` returns.
_Decided = Coroutine[Any, Any, Request | None] | Request | None

# RFC 9309, 2.2.2: the file itself is implicitly allowed.
_ROBOTS_PATH = "/robots.txt"

# What in a request's meta means something here, or to the seeding.
_MARKS = frozenset({"dont_obey_robotstxt", RELEASED, FED, SITEMAP})


class RepMiddleware:
    """Drops what robots.txt forbids (REP.md). Replaces Scrapy's RobotsTxtMiddleware."""

    clock = staticmethod(time.time)
    """Seconds since the epoch. A test may set another."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        assert crawler.stats is not None
        if is_interactive(crawler):
            settings = one_attempt(settings)
        self._crawler = crawler
        self._stats = crawler.stats
        self._in_shell = in_shell(crawler)
        self._policy = settings.unreachable
        self._obey_global = settings.obey_global_group
        self._agents = Agents(crawler, settings)
        self._engine = EngineAccess(crawler)
        context = CrawlContext(crawler, settings, self._engine, self.clock)
        self._hits = Tally(crawler, self._engine, "rep/cache/hit")
        self._known = KnownOrigins(settings.cache_max_origins, settings.cache_max_bytes, self.clock)
        self._by_spelling = self._known.by_spelling
        self._decisions = Decisions(crawler, settings, self._agents, self._known, self.clock)
        self._everything = self._decisions.everything
        fetcher = Fetcher(crawler, settings, self._engine)
        self._http_cache = HttpCache(crawler, settings, self._engine, fetcher)
        self._cache = RobotsCache(
            settings,
            self._known,
            self._http_cache if self._http_cache.offline else fetcher,
            self.clock,
            self._storage_of(crawler, settings),
        )
        self._flights = Flights(crawler, lambda flight: self._answers.ask(flight))
        self._deferral = Deferral(
            crawler, settings, self._engine, self._cache, self._known, self._flights, self.clock
        )
        self._waiting = Waiting(crawler, settings, self._engine, self._flights, self._deferral)
        self._discovery = Discovery(crawler)
        self._seeding = self._seeding_of(crawler, settings)
        if self._seeding is not None:
            # Only then: Scrapy spends as much on calling a middleware's method as a decision takes.
            self.process_response = self._seeding.reading.process_response
            self.process_exception = self._seeding.reading.process_exception
        self._answers = Answers(
            self._cache,
            self._agents,
            self._obey_global,
            Announcer(crawler, self.clock),
            self._decisions,
            self._deferral,
            self._discovery,
            self._seeding,
            Isolation(crawler),
        )
        self._catcher = self._deferral.catcher

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RepMiddleware | StopAtStart:
        """:raises NotConfigured: if ``ROBOTSTXT_OBEY`` is off"""
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            raise NotConfigured
        warn_of_unknown(crawler.settings, crawler.spider)
        try:
            middleware = cls(crawler, RepSettings.from_settings(crawler.settings))
            middleware._agents.check_spider()
        except SettingsError as error:
            return StopAtStart(crawler, str(error))
        return middleware

    def _storage_of(
        self, crawler: Crawler, settings: RepSettings
    ) -> StorageAccess | HttpCache | None:
        if self._http_cache.offline:
            return None  # what is old must not be taken for new by others
        storage = open_storage(crawler, settings, self.clock)
        return storage or (self._http_cache if self._http_cache.enabled else None)

    def _seeding_of(self, crawler: Crawler, settings: RepSettings) -> SitemapSeeding | None:
        mode = seeding_mode(crawler.spider, settings)
        if not mode or is_interactive(crawler):
            return None
        from scrapy_rep.seeding.seeding import SitemapSeeding  # most crawls need nothing of it

        return SitemapSeeding(
            crawler,
            settings,
            self._engine,
            self._cache,
            self._flights,
            self._deferral,
            self._discovery,
            mode,
        )

    def process_request(self, request: Request) -> _Decided:
        """Return None to let *request* pass, *request* itself to have it held, or a coroutine
        that does one of these.

        Each raises ``RobotsDisallowed`` if the robots.txt of the URL's origin forbids it, and
        ``RobotsUnreachable`` if that can't be had and waiting is of no use. With ``REP_DRY_RUN``
        all of them pass.
        """
        # The way that nearly all requests of a crawl take. What it does not look at, a request
        # does not pay for: half of what this costs is to fetch code and data from memory. To ask
        # nothing but whether the rules at hand allow it took a sixth off.
        url = request.url
        slash = url.find("/", SCHEME)
        spelling = url[: slash + 1]
        known = self._by_spelling.get(spelling)
        if (
            known is not None
            and (rules := known.rules) is not None
            and (now := self.clock()) < known.usable_until
            and _MARKS.isdisjoint(request.meta)
            and not self._catcher.waiting
            and (self._seeding is None or spelling in self._seeding.spellings)
            and self._agents.is_usual(request)
        ):
            path = url[slash:]
            if "#" in path:
                path = path[: path.index("#")]
            if allows(rules.find(comparable(path))):
                known.used_at = now
                self._hits.add(now)
                return None
        return self._look_closer(request)

    @property
    def decisions(self) -> Decisions:
        """Who is told of what is decided."""
        return self._decisions

    @property
    def agents(self) -> Agents:
        """Which chain a request goes by."""
        return self._agents

    def overrules(self, request: Request, decision: Decision) -> bool:
        """Whether *request* passes though *decision* forbids it. For subclasses."""
        return False

    async def may_fetch(self, url: str) -> bool:
        """Whether robots.txt allows *url*, see :func:`may_fetch`."""
        if FOREIGN.match(url) or self._decisions.dry_run:
            return True
        try:
            request = Request(url)
            origin, path = origin_of(request), path_in(request)
        except ValueError:
            return False
        if path == _ROBOTS_PATH:
            return True
        known = self._cache.get(origin) or await self._waiting.ask(request, origin)
        if known is None or known.unreachable:
            return self._policy == "allow"
        if known.robots is None:
            return True
        token, rules = known.robots.rules(self._agents.chain_of(request), self._obey_global)
        found = rules.find(comparable(path))
        return allows(found) or self.overrules(request, known.robots.decision(token, found))

    def _look_closer(self, request: Request) -> _Decided:
        """Decide about any request: see what it is, find its origin, and what is known of that."""
        meta = request.meta
        if meta.get("dont_obey_robotstxt"):
            return None
        if RELEASED in meta:
            self._deferral.arrive(request)
        usual = USUAL.match(request.url)
        spelling = usual[1] + "/" if usual else None
        direct = self._catcher.waiting and self._catcher.came_back(request)
        seeding = self._seeding
        if seeding is not None:
            if spelling not in seeding.spellings:
                seeding.meet(request, spelling)
            if (FED in meta and seeding.arrive(request)) or SITEMAP in meta:
                return self._look_where(request, usual, direct)
        elif SITEMAP in meta:
            raise IgnoreRequest("another process asked for this sitemap; here none are read")
        return self._look_up(request, usual, direct)

    async def _look_where(
        self, request: Request, usual: re.Match[str] | None, direct: bool
    ) -> Request | None:
        """Decide about a request that a site's sitemaps have led to: may they lead there?"""
        assert self._seeding is not None
        await self._seeding.reading.check(request)
        return await _settled(self._look_up(request, usual, direct))

    def _look_up(self, request: Request, usual: re.Match[str] | None, direct: bool) -> _Decided:
        """Decide by what is known of the origin, or have its robots.txt fetched.

        :param usual: the URL, taken apart, if it is one of the usual ones
        :param direct: a direct download, which can't be held
        """
        spelling = usual[1] + "/" if usual else None
        known = self._by_spelling.get(spelling) if spelling else None
        now = self.clock()
        if usual and known is not None and now < known.usable_until:
            known.used_at = now
            return self._decide(request, known, usual[2], direct, now)
        if FOREIGN.match(request.url):
            return None
        try:
            origin = origin_of(request)
        except ValueError as error:
            # Nothing can be fetched from there, and nothing says that it may.
            self._stats.inc_value("rep/invalid_url")
            self._drop(request, RobotsUnreachable(None, f"the URL has no origin: {error}"))
            return None
        path = usual[2] if usual else path_in(request)
        known = self._cache.get(origin)
        if known is None:
            return None if path == _ROBOTS_PATH else self._wait(request, origin, path, direct)
        if spelling:
            self._known.spell(known, spelling)
        return self._decide(request, known, path, direct, now)

    def _decide(
        self, request: Request, known: Known, path: str, direct: bool, now: float
    ) -> _Decided:
        """Decide by what is known."""
        if known.standing is Standing.STALE:
            self._stats.inc_value("rep/cache/stale")
        else:
            self._hits.add(now)
        if self._cache.takes_long(known, self._agents.chain_of(request), self._obey_global):
            return self._read(request, known, path, direct)
        return self._judge(request, known, path, direct)

    async def _read(
        self, request: Request, known: Known, path: str, direct: bool
    ) -> Request | None:
        """Have robots.txt read for the agent of *request*, and decide."""
        await self._cache.read(known, self._agents.chain_of(request), self._obey_global)
        return await _settled(self._judge(request, known, path, direct))

    async def _wait(
        self, request: Request, origin: Origin, path: str, direct: bool
    ) -> Request | None:
        """Have the robots.txt of *origin* fetched. Wait here for the answer if it is not long in
        coming, else have *request* held.

        :param direct: a direct download, which can't be held
        """
        asked_before = self._known.get(origin) is not None
        self._stats.inc_value("rep/cache/refresh" if asked_before else "rep/cache/miss")
        try:
            known = await self._waiting.answer(request, origin, direct)
        except RobotsUnreachable as error:
            if not self._replays(request, origin):
                self._drop(request, error, direct=direct)
            return None
        if known is None:
            return None if self._replays(request, origin) else self._hold(request, origin)
        if self._seeding is not None:
            self._seeding.meet(request, None)  # it may have been forgotten meanwhile
        return await self._read(request, known, path, direct)

    def _judge(self, request: Request, known: Known, path: str, direct: bool) -> _Decided:
        if path == _ROBOTS_PATH:
            return None
        robots = known.robots
        if robots is None:
            if known.unreachable:
                return self._unreachable(request, known, path, direct)
            if self._everything or known.standing is Standing.UNRESTRICTED:
                self._decisions.allowed(request, known)
            else:
                known.rules = NO_RULES
            return None
        chain = self._agents.chain_of(request)
        token, rules = robots.rules(chain, self._obey_global)
        self._known.weigh(known)
        found = rules.find(comparable(path))
        if allows(found):
            if self._everything:
                self._decisions.allowed(request, known, robots.decision(token, found))
            elif chain is self._agents.usual and known.standing is Standing.FRESH:
                known.rules = rules
            return None
        decision = robots.decision(token, found)
        if self.overrules(request, decision):
            self._decisions.overruled(request, known, decision)
            return None
        self._stats.inc_value("robotstxt/forbidden")
        self._drop(request, RobotsDisallowed(known.origin, decision), known)
        return None

    def _unreachable(self, request: Request, known: Known, path: str, direct: bool) -> _Decided:
        """There is nothing to decide by: hold *request*, drop it, or let it pass."""
        if self._policy == "allow":
            self._stats.inc_value("rep/unreachable/allowed")
            self._decisions.passed(request, known)
            return None
        if self._replays(request, known.origin):
            return None
        if self._deferral.worth_waiting(known):
            if direct:
                return self._once_more(request, known, path)
            if not self._deferral.full_for(known.name):
                return self._hold(request, known.origin)
            self._deferral.warn_full(known.name)
        entry = known.entry
        error = RobotsUnreachable(known.origin, entry.error or "unreachable", entry.attempts)
        self._drop_at_once(request, error, known, direct=direct)
        return None

    async def _once_more(self, request: Request, known: Known, path: str) -> Request | None:
        """Nothing holds a direct download: it waits here for the next answer, if that is soon."""
        seconds = max(0.0, known.entry.next_attempt_at - self.clock())
        look = self._cache.get
        try:
            known = await self._waiting.once_more(request, known, seconds, look)
        except RobotsUnreachable as error:
            self._drop_at_once(request, error, known, direct=True)
            return None
        return await _settled(self._judge(request, known, path, direct=True))

    def _replays(self, request: Request, origin: Origin) -> bool:
        """Whether *request* passes though nothing is known, since its site is not asked for it."""
        if not self._http_cache.answers(request):
            return False
        self._stats.inc_value("rep/unreachable/replayed")
        self._decisions.replayed(request, origin)
        return True

    def _hold(self, request: Request, origin: Origin) -> Request | None:
        self._decisions.handed_over(request, origin)
        return None if self._decisions.dry_run else self._catcher.hand_over(request)

    def _drop_at_once(
        self, request: Request, error: RobotsUnreachable, known: Known, *, direct: bool
    ) -> None:
        self._stats.inc_value("rep/unreachable/dropped")
        self._drop(request, error, known, direct=direct)

    def _drop(
        self,
        request: Request,
        error: RobotsDisallowed | RobotsUnreachable,
        known: Known | None = None,
        *,
        direct: bool = False,
    ) -> None:
        self._decisions.dropped(request, error, known, direct=direct)
        if self._decisions.dry_run:
            return
        # Without a spider it is a middleware by itself, in somebody's test.
        if self._in_shell and self._crawler.spider and isinstance(error, RobotsUnreachable):
            raise NotFetched(str(error)) from None
        raise error from None


async def _settled(decided: _Decided) -> Request | None:
    return await decided if isinstance(decided, Coroutine) else decided


async def may_fetch(crawler: Crawler, url: str) -> bool:
    """Whether the robots.txt of *url* allows *crawler* to fetch it: for what does not go through
    Scrapy, such as the requests of a page in a browser.

    Waits for robots.txt if it is not known. False also where it can't be had, unless
    ``REP_UNREACHABLE`` is "allow". True where nothing is obeyed: ``ROBOTSTXT_OBEY`` is off, or the
    URL is none of http, https and ftp. Nothing is counted or recorded.
    """
    middleware = crawler.get_downloader_middleware(RepMiddleware)
    return middleware is None or await middleware.may_fetch(url)
