"""What happens to a request.

Requests from the scheduler come through the gate (:mod:`scrapy_rep.holding.gate`), where they wait
until their robots.txt is known. ``process_request`` lets pass what fresh rules plainly allow, and
looks closer at the others. Direct downloads, which pass no gate, and requests whose origin was
forgotten since the gate, wait for robots.txt here, beside the download slots.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.utils.python import global_object_name
from twisted.internet.defer import CancelledError

from scrapy_rep.engine.access import StopAtStart, in_shell, is_interactive
from scrapy_rep.engine.log import get_logger
from scrapy_rep.exceptions import (
    NotFetched,
    RobotsDisallowed,
    RobotsUnreachable,
    SettingsError,
)
from scrapy_rep.holding.early import EarlyDrops
from scrapy_rep.holding.gate import Gate
from scrapy_rep.holding.holding import Holding
from scrapy_rep.origins.agents import FOREIGN, META_KEY, SCHEME, origin_of
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import CrawlEnding, StillWaiting
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Action, Drop
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Stale, Status, Unrestricted
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.matching import allows, comparable
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.reporting.record import IMPOLITE, OVERRULED
from scrapy_rep.reporting.recorder import ChoiceListener, Recorder, Refusal, Signals
from scrapy_rep.reporting.summary import log_switched_off
from scrapy_rep.seeding.discovery import (
    ROW_KEY,
    SITEMAP,
    Discovery,
    seeding_mode,
    with_seeding,
)
from scrapy_rep.settings import RepSettings, one_attempt, warn_of_unknown

if TYPE_CHECKING:
    from scrapy_rep.seeding.seeding import SitemapSeeding

logger = get_logger(__name__)

# Meta keys that need a closer look.
_MARKS = frozenset({"dont_obey_robotstxt", META_KEY, ROW_KEY, SITEMAP})


class RepMiddleware:
    """Drops requests that robots.txt forbids (REP.md), in place of Scrapy's RobotsTxtMiddleware."""

    clock = staticmethod(time.time)
    """Seconds since the epoch. Tests may replace it."""

    _seeding: SitemapSeeding | None = None

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        if is_interactive(crawler):
            settings = one_attempt(settings)
        self.context = context = CrawlContext(crawler, settings, self.clock)
        self.origins = origins = Origins(context)
        self.parts: dict[
            type, Any
        ] = {}  # what our other middlewares keep for the crawl
        self._by_prefix = origins.table.by_prefix
        self.agents = origins.agents
        self._holding = holding = Holding(context, origins)
        self.decisions = Recorder(context, origins, holding.some_urls)
        self._verdicts = holding.releases.verdicts
        self._count = context.stats.inc_value
        self._in_shell = in_shell(crawler)
        discovery = Discovery(context)
        if discovery.mode:
            from scrapy_rep.seeding.seeding import SitemapSeeding  # most crawls don't

            self._seeding = SitemapSeeding(
                context, origins, holding, discovery, self.decisions
            )
        check = self._seeding.check if self._seeding is not None else None
        self._early = EarlyDrops(
            context,
            origins,
            self.decisions,
            middleware=self,
            refusal=self._refusal,
            may_seed=self._may_seed,
        )
        self._gate = Gate(context, origins, holding, self._early, check)
        # Listeners get each answer in this order, before requests that wait for it go on: these rely on
        # what the listeners have set.
        delays = [origins.crawl_delay] if settings.crawl_delay else []
        seeding = [self._seeding] if self._seeding is not None else []
        choices = origins.cache.choices
        beyond = (
            [ChoiceListener(context, origins.cache, choices)]
            if choices is not None
            else []
        )
        announcing = Signals(context, discovery.announce)
        crawler.signals.connect(self._opened, signals.spider_opened)
        origins.notify(self.decisions, *beyond, *delays, *seeding, announcing)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RepMiddleware | StopAtStart:
        """:raises NotConfigured: if ``ROBOTSTXT_OBEY`` is off"""
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            if not is_interactive(crawler):
                log_switched_off(crawler)
            raise NotConfigured
        warn_of_unknown(crawler.settings, crawler.spider)
        try:
            settings = RepSettings.from_settings(crawler.settings)
            kind = with_seeding(cls) if seeding_mode(crawler, settings) else cls
            middleware: RepMiddleware = kind(crawler, settings)
            middleware.agents.check_spider()
        except SettingsError as error:
            return StopAtStart(crawler, str(error))
        return middleware

    def process_request(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Return None to let *request* pass at once, or a coroutine that lets it pass, or raises
        ``RobotsDisallowed`` (robots.txt forbids it) or ``RobotsUnreachable`` (robots.txt can't be
        fetched, and waiting won't help). With ``REP_DRY_RUN`` all pass."""
        # Fast path: every check here costs every request.
        url = request.url
        slash = url.find("/", SCHEME)
        prefix = url[: slash + 1]
        state = self._by_prefix.get(prefix)
        if (
            state is not None
            and (rules := state.rules) is not None
            and (now := self.clock()) < state.status.until
            and _MARKS.isdisjoint(request.meta)
            and not self._verdicts
            and (self._seeding is None or prefix in self._seeding.visited_prefixes)
            and (self.agents.fixed or "User-Agent" not in (request.headers or ()))
        ):
            path = url[slash:]
            if "#" in path:
                path = path[: path.index("#")]
            key = rules.find(comparable(path))
            if allows(key) or path == ROBOTS_PATH:
                state.used_at = now
                state.allowed += 1
                self._count("rep/cache/hit")
                self._gate.arrived(request)
                return None
            state.used_at = now
            self._count("rep/cache/hit")
            is_direct = not self._gate.arrived(request)
            decision = self.origins.decision(state, key)
            error = self._forbid(request, state, path, decision, direct=is_direct)
            if error is not None:
                raise error
            return None
        return (
            None
            if request.meta.get("dont_obey_robotstxt")
            else self._look_closer(request)
        )

    def overrules(self, request: Request, decision: Decision) -> bool:
        """Whether *request* passes although *decision* forbids it. For subclasses to override."""
        return False

    def held(self) -> list[dict[str, Any]]:
        """Return what is held of each origin, as ``scrapy robots --held --json`` shows it."""
        return self._holding.listing()

    def _opened(self) -> None:
        """Warn if Scrapy's own middleware, or a subclass of it, asks for robots.txt as well."""
        other = self.context.crawler.get_downloader_middleware(RobotsTxtMiddleware)
        if other is not None:
            logger.warning(
                "DOWNLOADER_MIDDLEWARES: %(name)s is enabled beside RepMiddleware, so each robots.txt is "
                "fetched twice, and requests that the other refuses are not in our reports. Set it to "
                "None there, or use the add-on, which does.",
                {"name": global_object_name(type(other))},
                extra=self.context.extra,
            )

    async def _look_closer(self, request: Request) -> None:
        """Do what has to be done with *request* when the fast path can't decide. Suspends only if there
        is something to wait for."""
        try:
            await self._find_out(request)
        finally:
            self._gate.arrived(request)

    async def _find_out(self, request: Request) -> None:
        """Find out what *request* is, what the gate says of it, and what its robots.txt does."""
        drop = self._holding.releases.verdict(request)
        if drop is not None:
            origin = origin_of(request)
            self._count("rep/cache/hit")
            self._drop(request, origin, drop, self.origins.cache.get(origin))
            return
        if self._seeding is not None:
            check = self._seeding.look_at(request, checked=request in self._gate)
            if check is not None:
                await check
        elif SITEMAP in request.meta:
            raise IgnoreRequest(
                "another process requested this sitemap; this crawl reads none"
            )
        await self._judge(request)

    async def _judge(self, request: Request, *, waited: bool = False) -> None:
        """Act on what is known of the request's origin. *waited*: it has waited for an attempt."""
        if FOREIGN.match(request.url):
            return
        try:
            found, path = self.origins.find(request)
        except ValueError as error:
            self._count("rep/invalid_url")
            why = f"the URL has no origin: {error}"
            self._refuse(request, RobotsUnreachable(None, why, cause=error), None)
            return
        if isinstance(found, OriginState):
            if not waited:
                stale = isinstance(found.status, Stale)
                self._count("rep/cache/stale" if stale else "rep/cache/hit")
            await self._act(request, found, path, waited=waited)
        elif path != ROBOTS_PATH:
            await self._wait(request, found, path, waited=waited)

    async def _wait(
        self, request: Request, origin: Origin, path: str, *, waited: bool
    ) -> None:
        """Wait for the robots.txt of *origin*, for which a fetch is due."""
        known = self.origins.cache.look_up(origin)
        if known is not None and request in self._gate and not known.unreachable:
            # It passed the gate by an answer that has expired since, and still counts.
            self._count("rep/cache/hit")
            await self._act(request, known, path, waited=waited)
            return
        passport = self._gate.passport_of(request)
        if passport is not None:
            # Since it passed the gate, its origin was forgotten, or an attempt is due.
            self._count("rep/cache/hit")
            state = passport[0] if known is None else known
            await self._act(request, state, path, waited=waited)
            return
        if not waited:
            self._count("rep/cache/miss" if known is None else "rep/cache/refresh")
        flight = self.origins.flights.to(origin, request, again=waited)
        seconds = (
            flight.left_of(self.origins.policy.grace)
            if self.decisions.dry_run
            else None
        )
        with self.context.engine.extra_slot():  # meanwhile, pages need theirs
            answer = await self._answer(flight.wait(seconds))
        if isinstance(answer, OriginState):
            await self._act(request, answer, path, waited=waited)
        elif answer is None:
            self.decisions.would_be_held(request, origin)
        else:
            self._drop(request, origin, answer)

    async def _act(
        self, request: Request, state: OriginState, path: str, *, waited: bool
    ) -> None:
        if path == ROBOTS_PATH:
            return
        chain = self.agents.chain_of(request)
        if self.origins.cache.takes_long(state, chain):
            # Before the policy is asked: the origin can become unreachable meanwhile.
            await self.origins.cache.read(state, chain)
        passport = self._gate.passport_of(request)
        if state.unreachable and passport is not None and not passport[1].says_nothing:
            # It is down again since the request passed the gate, where it can't be held any more.
            self._decide(request, passport[0], path, passport[1])
            return
        policy = self.origins.policy
        advice = policy.in_the_middleware(state, self.clock())
        match advice.action:
            case Action.DECIDE:
                self._decide(request, state, path)
            case Action.ALLOW:
                self._count("rep/unreachable/allowed")
                reason = f"{IMPOLITE}; {state.entry.error}"
                self.decisions.record(
                    request, state.origin, "allowed", state, reason=reason
                )
            case _ if self.decisions.dry_run and policy.is_worth_waiting(state):
                self.decisions.would_be_held(request, state.origin)
            case Action.WAIT if not waited:
                await self._wait_for_next_attempt(request, state, path)
            case _:
                self._drop(request, state.origin, Drop.of(state), state)

    async def _wait_for_next_attempt(
        self, request: Request, state: OriginState, path: str
    ) -> None:
        """Wait for the next attempt at a robots.txt, which is near: *request* can't be held."""
        try:
            with self.context.engine.extra_slot():
                answer = await self.origins.flights.next_answer(state.origin)
        except CrawlEnding:
            self._drop(request, state.origin, Drop.of(state), state)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 (a wrong configuration, or a bug, which is logged)
            self._drop(request, state.origin, Drop.after(error))
        else:
            await self._act(request, answer, path, waited=True)

    def _decide(
        self,
        request: Request,
        state: OriginState,
        path: str,
        status: Status | None = None,
    ) -> None:
        """Let the rules decide; ``RobotsDisallowed`` if they forbid the request. *status*: what counts, if
        not what is known now."""
        is_recorded = bool(state.status.setting)
        chain = self.agents.chain_of(request)
        decision = self.origins.decide(
            state, chain, path, always=is_recorded, status=status
        )
        if decision is None or decision.allowed:
            if is_recorded or isinstance(state.status.counts_as, Unrestricted):
                self.decisions.record(request, state.origin, "allowed", state, decision)
            else:
                state.allowed += 1
        else:
            is_direct = request not in self._gate
            error = self._forbid(request, state, path, decision, direct=is_direct)
            if error is not None:
                raise error from None

    def _forbid(
        self,
        request: Request,
        state: OriginState,
        path: str,
        decision: Decision,
        *,
        direct: bool,
    ) -> RobotsDisallowed | None:
        """Report that *decision* forbids *request*. Return what it fails with; None if it passes all the
        same: it is overruled, or this is a dry run."""
        if self.overrules(request, decision):
            reason = OVERRULED
            self._count("rep/overruled")
            self.decisions.record(
                request, state.origin, "allowed", state, decision, reason=reason
            )
            return None
        error = RobotsDisallowed(state.origin, decision, state.status.setting)
        if direct or self._early.remember(request, state, path):
            self.decisions.dropped(request, error, state, direct=direct)
        return None if self.decisions.dry_run else error

    def _refusal(
        self, request: Request, state: OriginState, path: str
    ) -> RobotsDisallowed | None:
        """Return what *request* would fail with if it came here now; None if it would pass, or if
        that isn't known without waiting. *state* is fresh."""
        if path == ROBOTS_PATH:
            return None
        decision: Decision | None
        if state.rules is not None and self.agents.is_usual(request):
            key = state.rules.find(comparable(path))
            decision = None if allows(key) else self.origins.decision(state, key)
        else:
            chain = self.agents.chain_of(request)
            if self.origins.cache.takes_long(state, chain):
                return None
            # The fast path is left alone: each allowed request may have to be recorded.
            decision = self.origins.decide(state, chain, path, always=True)
        if decision is None or decision.allowed or self.overrules(request, decision):
            return None
        return RobotsDisallowed(state.origin, decision, state.status.setting)

    def _may_seed(self, request: Request, prefix: str) -> bool:
        """Whether sitemaps may learn from *request*, whose URL begins with *prefix*, once it comes
        here."""
        if SITEMAP in request.meta:
            return True
        return self._seeding is not None and self._seeding.learns_from(request, prefix)

    async def _answer(
        self, waiting: Awaitable[OriginState]
    ) -> OriginState | Drop | None:
        """Return the answer, or why there will be none; None if that takes too long."""
        try:
            return await waiting
        except StillWaiting:
            return None
        except CrawlEnding:
            return Drop("the crawl is ending")
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            # A wrong configuration, or a bug, which Flights logs: not the request's fault.
            return Drop.after(error)

    def _drop(
        self,
        request: Request,
        origin: Origin,
        drop: Drop,
        state: OriginState | None = None,
    ) -> None:
        if drop.for_room or state is not None:
            self._count("rep/unreachable/dropped")
        error = RobotsUnreachable(origin, drop.reason, drop.attempts, drop.cause)
        self._refuse(request, error, state)

    def _refuse(
        self, request: Request, error: Refusal, state: OriginState | None
    ) -> None:
        """Fail *request* with *error*, unless this is a dry run."""
        self.decisions.dropped(request, error, state, direct=request not in self._gate)
        if self.decisions.dry_run:
            return
        # Without a spider, the middleware is used alone, in somebody's test.
        if (
            self._in_shell
            and self.context.spider
            and isinstance(error, RobotsUnreachable)
        ):
            raise NotFetched(str(error)) from error.__cause__
        raise error from error.__cause__  # not from what is being handled here


async def may_fetch(crawler: Crawler, url: str) -> bool:
    """Whether robots.txt allows *crawler* to fetch *url*, for requests that bypass Scrapy, such as
    those of a page in a browser.

    Waits for an unknown robots.txt. False also if it can't be fetched, unless ``REP_UNREACHABLE`` is
    "allow". True without ``ROBOTSTXT_OBEY``, in a dry run, or if the URL is neither http, https nor
    ftp. Nothing is counted or recorded.
    """
    rep = crawler.get_downloader_middleware(RepMiddleware)
    if rep is None or FOREIGN.match(url) or rep.decisions.dry_run:
        return True
    origins = rep.origins
    try:
        request = Request(url)
        found, path = origins.find(request)
    except ValueError:
        return False
    if path == ROBOTS_PATH:
        return True
    state: OriginState | Drop | Origin | None = found
    if isinstance(found, Origin):
        state = await rep._answer(origins.flights.to(found, request).wait())
    if not isinstance(state, OriginState) or state.unreachable:
        return origins.policy.unreachable == "allow"
    decision = origins.decide(state, rep.agents.chain_of(request), path, always=True)
    return decision is None or decision.allowed or rep.overrules(request, decision)
