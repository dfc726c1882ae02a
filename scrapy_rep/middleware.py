"""What happens to a request on its way to the downloader.

1. Before the scheduler's queue, ``EarlyDrops`` (holding/early.py) drops it if fresh
   rules forbid it.
2. At the scheduler's exit, it waits at the gate (holding/gate.py) until its robots.txt
   is known.
3. :meth:`RepMiddleware.process_request` lets it pass if fresh rules plainly allow it,
   and lets it fail if they forbid it: the fast path.
4. ``_look_closer`` does the rest: what the gate has decided about it, what has to be
   checked for sitemaps, robots.txt itself, an origin that is unreachable or unknown, a
   user agent of its own.
5. ``_forbid`` and ``_refuse`` report why it fails, and let it fail with
   ``RobotsDisallowed`` (a rule forbids it) or ``RobotsUnreachable`` (there is no
   robots.txt).

Direct downloads, such as those of a media pipeline, pass no scheduler and no gate. They
wait for robots.txt in this middleware, outside the download slots; so do requests whose
origin was forgotten after they left the gate.
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
from scrapy_rep.engine.failures import PastFailures
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
from scrapy_rep.origins.agents import (
    AGENT_HEADER,
    AGENT_KEY,
    FOREIGN_SCHEME,
    SCHEME_LENGTH,
    origin_of,
)
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Action, Drop
from scrapy_rep.origins.queue import CrawlEnding, StillWaiting
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Stale, Status, Unrestricted
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.matching import ALLOW, SHORTEST, comparable
from scrapy_rep.protocol.origin import ROBOTS_PATH
from scrapy_rep.reporting.record import IMPOLITE, OVERRULED
from scrapy_rep.reporting.recorder import ChoiceListener, Recorder, Refusal, Signals
from scrapy_rep.reporting.summary import log_switched_off
from scrapy_rep.seeding.discovery import (
    PAGE_ROW_KEY,
    SITEMAP_KEY,
    Discovery,
    seeding_mode,
    with_seeding,
)
from scrapy_rep.settings import RepSettings, one_attempt, warn_of_unknown

if TYPE_CHECKING:
    from scrapy_rep.seeding.seeding import SitemapSeeding

logger = get_logger(__name__)

# Meta keys of requests that need a closer look.
_MARKS = frozenset({"dont_obey_robotstxt", AGENT_KEY, PAGE_ROW_KEY, SITEMAP_KEY})


class RepMiddleware:
    """Drops requests that robots.txt forbids (REP.md), in place of Scrapy's
    RobotsTxtMiddleware."""

    clock = staticmethod(time.time)
    """Seconds since the epoch. Tests may replace it."""

    _seeding: SitemapSeeding | None = None
    """None if the crawl reads no sitemaps."""

    def __init__(self, crawler: Crawler, settings: RepSettings) -> None:
        if is_interactive(crawler):
            settings = one_attempt(settings)
        context = CrawlContext(crawler, settings, self.clock)
        origins = Origins(context)
        holding = Holding(context, origins)
        self.context = context
        self.origins = origins
        self.agents = origins.agents
        self.decisions = Recorder(context, origins, holding.some_urls)
        self.usage_lookup: object = None
        """The ``UsageLookup`` of this crawl, once ``lookup_of`` in
        preferences/lookup.py has made it. Its type is ``object``, since this module
        imports nothing from preferences/."""
        self._by_prefix = origins.table.by_prefix
        self._holding = holding
        self._verdicts = holding.releases.verdicts
        """What the gate has decided about requests, some of which are on their way
        here."""
        self._count = context.count
        self._past_failures = PastFailures(context.engine)
        self._in_shell = in_shell(crawler)
        discovery = Discovery(context)
        check = None
        if discovery.mode:
            # Most crawls read no sitemaps, and import nothing for them.
            from scrapy_rep.seeding.seeding import SitemapSeeding

            self._seeding = SitemapSeeding(
                context,
                origins,
                holding,
                discovery,
                self.decisions,
            )
            check = self._seeding.check
        self._early = EarlyDrops(
            context,
            origins,
            self.decisions,
            middleware=self,
            refusal=self._refusal,
            may_seed=self._may_seed,
        )
        self._gate = Gate(context, origins, holding, self._early, check)
        listeners = self._listeners(discovery)
        crawler.signals.connect(self._opened, signals.spider_opened)
        origins.flights.notify(*listeners)

    def _listeners(self, discovery: Discovery) -> list[ResolutionListener]:
        """Return who is told of each answer, in this order. Requests that wait for the
        answer go on after that, since they rely on what the listeners have set."""
        cache = self.origins.cache
        listeners: list[ResolutionListener] = [self.decisions]
        if cache.choices is not None:
            listeners.append(ChoiceListener(self.context, cache, cache.choices))
        if self.context.settings.crawl_delay:
            listeners.append(self.origins.crawl_delay)
        if self._seeding is not None:
            listeners.append(self._seeding)
        listeners.append(Signals(self.context, discovery.announce))
        return listeners

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RepMiddleware | StopAtStart:
        """Return the middleware for *crawler*; if a setting is wrong, what ends the
        crawl in its place.

        :raises NotConfigured: if ``ROBOTSTXT_OBEY`` is off
        """
        if not crawler.settings.getbool("ROBOTSTXT_OBEY"):
            if not is_interactive(crawler):
                log_switched_off(crawler)
            raise NotConfigured
        warn_of_unknown(crawler.settings, crawler.spider)
        try:
            settings = RepSettings.from_settings(crawler.settings)
            middleware_class = cls
            if seeding_mode(crawler, settings):
                middleware_class = with_seeding(cls)
            middleware: RepMiddleware = middleware_class(crawler, settings)
            middleware.agents.check_spider()  # its attribute may be wrong, too
        except SettingsError as error:
            return StopAtStart(crawler, str(error))
        return middleware

    def process_request(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Return None to let *request* pass at once, or a coroutine that lets it pass,
        or raises ``RobotsDisallowed`` (robots.txt forbids it) or ``RobotsUnreachable``
        (robots.txt can't be fetched, and waiting won't help). With ``REP_DRY_RUN`` all
        pass."""
        # The fast path, for a request to an origin with fresh rules (state and rules),
        # which has no mark in its meta and no verdict of the gate (_verdicts), can't
        # tell sitemaps of a new site (_seeding), and has the usual user agent (agents).
        # Each of these checks costs every request some time.
        url = request.url
        slash = url.find("/", SCHEME_LENGTH)
        prefix = url[: slash + 1]
        state = self._by_prefix.get(prefix)
        if (
            state is not None
            and (rules := state.rules) is not None
            and (now := self.clock()) < state.status.until
            and _MARKS.isdisjoint(request.meta)
            and not self._verdicts
            and (self._seeding is None or prefix in self._seeding.visited_prefixes)
            and (
                self.agents.fixed or AGENT_HEADER not in request.headers.keys()  # noqa: SIM118
            )
        ):
            path = url[slash:]
            if "#" in path:
                path = path[: path.index("#")]
            compared = path
            if "%" in path or not path.isascii():
                compared = comparable(path)
            # The key stands for the rule that decides (protocol/matching.py).
            key = rules.find(compared)
            state.used_at = now
            self._count("rep/cache/hit")
            is_from_gate = self._gate.note_arrival(request)
            # This does what allows(key) does, without the call, since it runs for each
            # request.
            if key < SHORTEST or key & ALLOW > 0 or path == ROBOTS_PATH:
                state.allowed += 1
                return None
            decision = self.origins.decision(state, key)
            is_direct = not is_from_gate
            error = self._forbid(request, state, path, decision, direct=is_direct)
            if error is not None:
                raise error
            return None
        if request.meta.get("dont_obey_robotstxt"):
            return None
        return self._look_closer(request)

    def overrules(self, request: Request, decision: Decision) -> bool:
        """Whether *request* passes although *decision* forbids it. For subclasses to
        override."""
        return False

    def held(self) -> list[dict[str, Any]]:
        """Return what is held of each origin, as ``scrapy robots --held --json`` shows
        it."""
        return self._holding.listing()

    def _opened(self) -> None:
        """Warn if Scrapy's own middleware, or a subclass of it, asks for robots.txt as
        well."""
        other = self.context.crawler.get_downloader_middleware(RobotsTxtMiddleware)
        if other is None:
            return
        logger.warning(
            "DOWNLOADER_MIDDLEWARES: %(name)s is enabled beside RepMiddleware, so each robots.txt is "
            "fetched twice, and requests that the other refuses are not in our reports. Set it to "
            "None there, or use the add-on, which does.",
            {"name": global_object_name(type(other))},
            extra=self.context.extra,
        )

    # What the fast path can't decide

    async def _look_closer(self, request: Request) -> None:
        """Let *request* pass, or raise. This waits only if there is something to wait
        for."""
        try:
            await self._check_and_judge(request)
        finally:
            self._gate.note_arrival(request)

    async def _check_and_judge(self, request: Request) -> None:
        """Do what the gate has decided about *request*. If it has decided nothing, do
        what has to be done for sitemaps, and then what robots.txt says."""
        drop = self._holding.releases.pop_verdict(request)
        if drop is not None:
            origin = origin_of(request)
            self._count("rep/cache/hit")
            self._drop(request, origin, drop, self.origins.cache.get(origin))
            return
        if self._seeding is not None:
            was_checked = self._gate.came_through(request)  # the gate checks all
            check = self._seeding.look_at(request, checked=was_checked)
            if check is not None:
                await check
        elif SITEMAP_KEY in request.meta:
            raise IgnoreRequest(
                "another process requested this sitemap; this crawl reads none"
            )
        await self._judge(request)

    async def _judge(self, request: Request) -> None:
        """Act on what is known of the origin of *request*."""
        if FOREIGN_SCHEME.match(request.url):
            return  # data:, s3: and the like have no robots.txt
        try:
            state_or_origin, path = self.origins.find(request)
        except ValueError as error:
            self._count("rep/invalid_url")
            why = f"the URL has no origin: {error}"
            no_origin = RobotsUnreachable(None, why, cause=error)
            self._refuse(request, no_origin, state=None)
            return
        if isinstance(state_or_origin, OriginState):
            state = state_or_origin
            is_stale = isinstance(state.status, Stale)
            self._count("rep/cache/stale" if is_stale else "rep/cache/hit")
            await self._act(request, state, path)
        elif path != ROBOTS_PATH:
            origin = state_or_origin
            await self._act_without_answer(request, origin, path)

    async def _act_without_answer(
        self, request: Request, origin: Origin, path: str
    ) -> None:
        """Do with *request* what has to be done while a fetch of its robots.txt is due:
        apply what was known at the gate, if anything; otherwise wait."""
        state = self.origins.cache.look_up(origin)
        came_through = self._gate.came_through(request)
        if state is not None and came_through and not state.unreachable:
            # The request left the gate by an answer that has expired since.
            self._count("rep/cache/hit")
            await self._act(request, state, path)
            return
        known_at_gate = self._gate.known_at_gate(request)
        if known_at_gate is not None:
            # Since the request left the gate, its origin was forgotten, or an attempt
            # became due.
            if state is None:
                state, _ = known_at_gate
            self._count("rep/cache/hit")
            await self._act(request, state, path)
            return
        self._count("rep/cache/miss" if state is None else "rep/cache/refresh")
        await self._wait(request, origin, path)

    async def _wait(self, request: Request, origin: Origin, path: str) -> None:
        """Have the robots.txt of *origin* fetched, and wait for it. Then do with
        *request* what it says."""
        flight = self.origins.flights.to(origin, request)
        seconds = None
        if self.decisions.dry_run:
            # Wait no longer than until the request would be held.
            seconds = flight.remaining(self.origins.policy.grace)
        with self.context.engine.extra_slot():  # pages need the other slots meanwhile
            answer = await self._answer(flight.wait(seconds))
        if isinstance(answer, OriginState):
            await self._act(request, answer, path)
        elif answer is None:
            self.decisions.would_be_held(request, origin)
        else:
            self._drop(request, origin, answer)

    async def _act(
        self, request: Request, state: OriginState, path: str, *, waited: bool = False
    ) -> None:
        """Do with *request* what has to be done by *state*, which is known of its
        origin: apply the rules or, if the origin is unreachable, do what ``Policy``
        (origins/policy.py) says. *waited*: *request* has waited for an attempt, and
        won't wait for a second one."""
        if path == ROBOTS_PATH:
            return
        chain = self.agents.chain_of(request)
        if self.origins.cache.takes_long(state, chain):
            # This comes before we look whether the origin is unreachable, which it can
            # become while we wait.
            await self.origins.cache.read(state, chain)
        known_at_gate = self._gate.known_at_gate(request)
        if state.unreachable and known_at_gate is not None:
            # The origin is down again since the request left the gate, where it can't
            # be held any more.
            state_then, status_then = known_at_gate
            if not status_then.says_nothing:
                self._apply_rules(request, state_then, path, status_then)
                return
        policy = self.origins.policy
        advice = policy.in_the_middleware(state, self.clock())
        match advice.action:
            case Action.DECIDE:
                self._apply_rules(request, state, path)
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
        """Wait for the next attempt at a robots.txt, which is soon, since *request*
        can't be held here. Then do with *request* what the answer says."""
        try:
            with self.context.engine.extra_slot():
                answer = await self.origins.flights.next_answer(state.origin)
        except CrawlEnding:
            self._drop(request, state.origin, Drop.of(state), state)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            # A wrong configuration, or a bug, which Flights logs.
            self._drop(request, state.origin, Drop.after(error))
        else:
            await self._act(request, answer, path, waited=True)

    async def _answer(
        self, waiting: Awaitable[OriginState]
    ) -> OriginState | Drop | None:
        """Await *waiting*, which waits for a fetch. Return what is known of the origin
        then; or why there is no answer; None if the fetch takes too long."""
        try:
            return await waiting
        except StillWaiting:
            return None
        except CrawlEnding:
            return Drop("the crawl is ending")
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001
            # A wrong configuration, or a bug, which Flights logs.
            return Drop.after(error)

    async def _fetch_answer(
        self, origin: Origin, request: Request
    ) -> OriginState | Drop | None:
        """Fetch the robots.txt of *origin* for *request*, and wait for it, however
        long. Return what :meth:`_answer` returns."""
        flight = self.origins.flights.to(origin, request)
        return await self._answer(flight.wait())

    # What the rules say

    def _apply_rules(
        self,
        request: Request,
        state: OriginState,
        path: str,
        status: Status | None = None,
    ) -> None:
        """Let *request* pass if the rules in *state* allow it; otherwise raise
        ``RobotsDisallowed``. *status*: what counts of the origin, if not what is known
        now."""
        # If a setting decides in place of the protocol (REP.md section 13), each
        # request is recorded, also if it is allowed.
        is_recorded = bool(state.status.setting)
        chain = self.agents.chain_of(request)
        decision = self.origins.decide(
            state,
            chain,
            path,
            always=is_recorded,
            status=status,
        )
        if decision is not None and not decision.allowed:
            is_direct = not self._gate.came_through(request)
            error = self._forbid(request, state, path, decision, direct=is_direct)
            if error is not None:
                raise error from None
        elif is_recorded or isinstance(state.counts_as, Unrestricted):
            self.decisions.record(request, state.origin, "allowed", state, decision)
        else:
            state.allowed += 1

    def _forbid(
        self,
        request: Request,
        state: OriginState,
        path: str,
        decision: Decision,
        *,
        direct: bool,
    ) -> RobotsDisallowed | None:
        """Report that *decision* forbids *request*. Return what it fails with; None if
        it passes all the same, since the decision is overruled, or this is a dry run.
        *direct*: it is a direct download."""
        if self.overrules(request, decision):
            self._count("rep/overruled")
            self.decisions.record(
                request,
                state.origin,
                "allowed",
                state,
                decision,
                reason=OVERRULED,
            )
            return None
        error = RobotsDisallowed(state.origin, decision, state.status.setting)
        is_counted = direct or self._early.remember(request, state, path)
        if is_counted:
            self.decisions.dropped(request, error, state, direct=direct)
        if self.decisions.dry_run:
            return None
        if not direct:
            self._past_failures.add(request, error)
        return error

    # What EarlyDrops (holding/early.py) asks about a request before it is scheduled

    def _refusal(
        self, request: Request, state: OriginState, path: str, key: int | None
    ) -> RobotsDisallowed | None:
        """Return what *request* would fail with if it came here now; None if it would
        pass, or if that isn't known without waiting. *state*, which is known of its
        origin, is fresh. *key* stands for the rule in ``state.rules`` that forbids it;
        None: other rules may decide."""
        if path == ROBOTS_PATH:
            return None
        decision: Decision | None
        if key is not None:  # as on the fast path
            decision = self.origins.decision(state, key)
        else:
            chain = self.agents.chain_of(request)
            if self.origins.cache.takes_long(state, chain):
                return None
            # With always, since this must not open the fast path to later requests,
            # which may have to be recorded.
            decision = self.origins.decide(state, chain, path, always=True)
        if decision is None or decision.allowed or self.overrules(request, decision):
            return None
        return RobotsDisallowed(state.origin, decision, state.status.setting)

    def _may_seed(self, request: Request, prefix: str) -> bool:
        """Whether *request*, whose URL begins with *prefix*, may tell of sitemaps once
        it comes here."""
        if SITEMAP_KEY in request.meta:
            return True
        return self._seeding is not None and self._seeding.learns_from(request, prefix)

    # How a request fails

    def _drop(
        self,
        request: Request,
        origin: Origin,
        drop: Drop,
        state: OriginState | None = None,
    ) -> None:
        """Fail *request*, unless this is a dry run. *drop* says why there is no
        robots.txt of *origin*. *state*: what is known of *origin*."""
        # In all other cases, the crawl ends, or there is a bug or a wrong
        # configuration. This isn't counted.
        if drop.for_room or state is not None:
            self._count("rep/unreachable/dropped")
        error = RobotsUnreachable(origin, drop.reason, drop.attempts, drop.cause)
        self._refuse(request, error, state)

    def _refuse(
        self, request: Request, error: Refusal, state: OriginState | None
    ) -> None:
        """Fail *request* with *error*, unless this is a dry run."""
        is_direct = not self._gate.came_through(request)
        self.decisions.dropped(request, error, state, direct=is_direct)
        if self.decisions.dry_run:
            return
        # "from" keeps the cause that the error has, which is no exception that is being
        # handled here. Without a spider, this isn't the shell, but somebody's test of
        # the middleware alone.
        is_shell = self._in_shell and self.context.spider is not None
        if is_shell and isinstance(error, RobotsUnreachable):
            raise NotFetched(str(error)) from error.__cause__
        raise error from error.__cause__


async def may_fetch(crawler: Crawler, url: str) -> bool:
    """Whether robots.txt allows *crawler* to fetch *url*, for requests that bypass
    Scrapy, such as those of a page in a browser.

    Waits for an unknown robots.txt. False also if it can't be fetched, unless
    ``REP_UNREACHABLE`` is "allow". True without ``ROBOTSTXT_OBEY``, in a dry run, or if
    the URL is neither http, https nor ftp. Nothing is counted or recorded.
    """
    rep = crawler.get_downloader_middleware(RepMiddleware)
    if rep is None or FOREIGN_SCHEME.match(url) or rep.decisions.dry_run:
        return True
    origins = rep.origins
    try:
        request = Request(url)
        state_or_origin, path = origins.find(request)
    except ValueError:
        return False
    if path == ROBOTS_PATH:
        return True
    if isinstance(state_or_origin, OriginState):
        answer: OriginState | Drop | None = state_or_origin
    else:
        answer = await rep._fetch_answer(state_or_origin, request)
    if not isinstance(answer, OriginState) or answer.unreachable:
        return origins.policy.unreachable == "allow"
    chain = rep.agents.chain_of(request)
    decision = origins.decide(answer, chain, path, always=True)
    if decision is None or decision.allowed:
        return True
    return rep.overrules(request, decision)
