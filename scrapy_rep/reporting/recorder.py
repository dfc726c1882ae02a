"""Tells what happens: in the log, in Scrapy's signals, in counts for the summary, and in lines
(`record.py`) for the file of the record and for the report. Plain allows are
just counted: most requests are plain allows and must cost nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import scrapy
from scrapy import Request
from scrapy import signals as scrapy_signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.asyncio import run_in_thread

import scrapy_rep
from scrapy_rep.engine.access import Listener, is_interactive
from scrapy_rep.engine.log import BoundedSet, Isolation, Limiter, get_logger
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.agents import origin_of
from scrapy_rep.origins.answer import CONFIGURATION_ERRORS, DOWNLOAD_ERRORS, Answer
from scrapy_rep.origins.cache import RobotsCache
from scrapy_rep.origins.choices import Choices, chosen
from scrapy_rep.origins.context import CrawlContext
from scrapy_rep.origins.flight import FetchAbandoned, Flight
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Stale
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.record import (
    ChangeWatch,
    answer_fields,
    detailed,
    fields_of,
    is_of_wall,
    outcome_of_answer,
)
from scrapy_rep.reporting.record_file import RecordFile
from scrapy_rep.reporting.report import Report, is_possible
from scrapy_rep.reporting.summary import (
    Counts,
    figures,
    log_beginning,
    log_summary,
    name_of,
)
from scrapy_rep.robotparser import RobotParser
from scrapy_rep.settings import changed_values
from scrapy_rep.signals import (
    request_given_up,
    request_held,
    request_released,
    robots_resolved,
)
from scrapy_rep.text import clean, counted, iso, text_of, without_secrets

logger = get_logger(__name__)

Refusal: TypeAlias = RobotsDisallowed | RobotsUnreachable

# Scrapy has it since 2.18.
_PARSED = getattr(scrapy_signals, "robots_parsed", None)
# Configuration errors that are logged, once each.
_MAX_LOGGED = 1000
# Set by Scrapy's StartSpiderMiddleware.
_START = "is_start_request"
# Names of settings in what is said of a choice.
_SETTING = re.compile(r"REP_([A-Z_]+)")


class Recorder(ResolutionListener):
    """Logs, counts and records each answer, and each decision other than a plain allow. Called by
    the middleware, and by whatever else lets a request pass or drops it."""

    part = "record of decisions"

    def __init__(
        self,
        context: CrawlContext,
        origins: Origins,
        waiting_urls: Callable[[Origin], Iterable[str]],
    ) -> None:
        """*waiting_urls* returns some URLs that wait for an answer of an origin.

        :raises SettingsError: if ``REP_DECISIONS`` or ``REP_REPORT`` can't be written
        """
        self._context = context
        self._stats = context.stats
        self._inc_value = (
            context.stats.inc_value
        )  # Scrapy's collectors take long to look it up
        self._origins = origins
        settings = context.settings
        self.dry_run = settings.dry_run
        """Whether nothing is dropped or held."""
        self._interactive = is_interactive(context.crawler)
        self._isolated = Isolation(context.crawler)
        self._counts = Counts()
        self._counting = self._isolated(Counts.part)
        self._logging_refusals = self._isolated("log of refusals")
        self._listeners: list[RecordFile | Report] = []
        if settings.decisions:
            self._listeners.append(RecordFile(context, settings.decisions))
        if settings.report and is_possible(context):
            self._listeners.append(Report(context, settings.report, origins.table))
        self._misconfigured: set[str] = set()
        self._unreachable = Limiter(
            logger, "failures to fetch the robots.txt of an origin"
        )
        self._walls = BoundedSet()
        self._log_walls = Limiter(logger, "origins for which a bot wall answered")
        self._drops = Limiter(logger, "origins whose requests are dropped")
        self._drop_message = "%(error)s: %(request)s"
        if self.dry_run:
            self._drop_message = f"Dry run, not dropped: {self._drop_message}"
        self._holds = Limiter(logger, "origins whose requests would be held")
        self._changes = ChangeWatch(context, origins.agents)
        self._starts: dict[str, Any] = {"refused": 0, "unreachable": 0, "passed": False}
        """Start requests that were refused, how many of them because robots.txt was unreachable, and
        the first of them; whether others got through."""
        through = (
            scrapy_signals.request_reached_downloader,
            scrapy_signals.response_received,
        )
        self._passing = Listener(context.crawler, dict.fromkeys(through, self._passes))
        self._passing.listen(not self.dry_run)
        self._waiting_urls = waiting_urls
        self._connect(context.crawler.signals.connect)

    def _connect(self, connect: Callable[..., None]) -> None:
        self._origins.table.notify(self._leaves)
        connect(self._opened, scrapy_signals.spider_opened)
        connect(self._closed, scrapy_signals.spider_closed)
        if self._listeners:
            connect(self._held, request_held)
            connect(self._released, request_released)
        connect(self._given_up, request_given_up)

    def tell(
        self,
        verdict: str,
        url: str | None,
        origin: Origin | str | None,
        state: OriginState | None = None,
        decision: Decision | None = None,
        **more: Any,
    ) -> None:
        """Put a line on record, if somebody wants it. *more*: fields of any JSON type."""
        if not self._listeners:
            return
        with self._isolated(self.part):
            name = None if origin is None else str(origin)
            about = {"url": url, "origin": name, "verdict": verdict, **more}
            fields = without_secrets(
                fields_of(self._context.clock(), state, decision, about)
            )
            for listener in self._listeners:
                with self._isolated(listener.part):
                    listener.add(fields)

    # Answers

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Report a robots.txt that was fetched, or found in the storage."""
        answer = flight.answer
        with self._isolated(Counts.part):
            self._counts.fetches += flight.fetches
            self._count(answer, flight.fetches)
            outcome, _ = outcome_of_answer(state.entry, answer)
            if is_of_wall(outcome, state.entry):
                self._count_wall(state)
            status = state.entry.status if answer is None else answer.status
            outcome = detailed(outcome, status, forbids=state.forbids_all)
            self._counts.answers(state.origin, outcome)
        if answer is not None and answer.outcome is Outcome.UNREACHABLE:
            with self._isolated("log of failures"):
                self._log_failure(state, answer)
        if self._listeners:
            with self._isolated(self.part):
                chain = self._origins.agents.chain_of(flight.request)
                delay = self._origins.crawl_delay.seconds(state, chain)
                fields = answer_fields(state, flight, delay, self._context.clock())
                url = answer.url if answer is not None else state.robots_url
                self.tell("answer", url, state.origin, agent=_names(chain), **fields)
        if flight.before is not None:
            change = await self._changes.look(
                state, flight.before, flight.request, self._waiting_urls
            )
            if change is not None:
                self.tell(
                    "changed", state.robots_url, state.origin, state, change=change
                )

    def _count_wall(self, state: OriginState) -> None:
        """Count an origin for which a bot wall answered, once. Log that no rules came, unless the origin
        counts as unreachable, which is logged anyway."""
        if not self._walls.add(state.name):
            return
        self._stats.inc_value("rep/bot_walls")
        entry = state.entry
        if entry.unreachable_since is not None:
            return
        message = (
            "A bot wall answered for robots.txt of %(origin)s (HTTP %(status)s, %(sign)s), so its rules "
            "are unknown; REP_CHALLENGE = 'hold' would hold its requests until they aren't"
        )
        sign = entry.wall or "a page of HTML"
        values = {"origin": state.origin, "status": entry.status, "sign": sign}
        self._log_walls.log(message, values, self._context.spider)

    def _count(self, answer: Answer | None, fetches: int) -> None:
        inc_value = self._stats.inc_value
        if answer is None:
            inc_value("rep/cache/recalled")
            return
        inc_value(f"rep/outcome/{answer.outcome.value}")
        if not fetches:
            return  # a setting's answer
        # Scrapy's own names, for dashboards written for the built-in middleware.
        inc_value("robotstxt/request_count")
        if answer.status is not None:
            inc_value("robotstxt/response_count")
            inc_value(f"robotstxt/response_status_count/{answer.status}")
        elif answer.error is not None and not isinstance(answer.error, IgnoreRequest):
            inc_value(f"robotstxt/exception_count/{type(answer.error)}")

    def _log_failure(self, state: OriginState, answer: Answer) -> None:
        copy = ", so an older copy applies" if isinstance(state.status, Stale) else ""
        message = f"robots.txt of %(origin)s is unreachable (%(reason)s){copy}"
        if not self._interactive:  # there, it is the only attempt
            # Whether there is one then depends on whether requests wait for it.
            message += "; no attempt is due for %(delay).1f s"
        delay = state.entry.next_attempt_at - self._context.clock()
        values = {"origin": state.origin, "reason": answer.reason, "delay": delay}
        self._unreachable.log(message, values, self._context.spider, state.origin)

    def failed(self, origin: Origin, error: Exception) -> None:
        """Record that there is no answer. A fetch that was cancelled counts as one. Log a
        misconfiguration once for each kind."""
        cut = isinstance(error, FetchAbandoned)
        self._counts.fetches += cut
        self._counts.no_answer(origin)
        kind = None if cut else "configuration"
        about = {"outcome": "none", "stored": False, "fetches": int(cut), "kind": kind}
        reason = "the fetch was cancelled" if cut else text_of(error)
        self.tell("answer", origin.robots_url, origin, reason=reason, answer=about)
        if not isinstance(error, CONFIGURATION_ERRORS):
            return  # a bug, which Flights logs
        self._stats.inc_value(f"robotstxt/exception_count/{type(error)}")
        key = f"{origin.scheme} {error}"
        if key not in self._misconfigured and len(self._misconfigured) < _MAX_LOGGED:
            self._misconfigured.add(key)
            logger.error(
                "Can't request the robots.txt of %(origin)s, so its pages are not fetched: "
                "%(error)s",
                {"origin": origin, "error": error},
                extra=self._context.extra,
                exc_info=error.__cause__,
            )

    # Requests

    def record(
        self,
        request: Request,
        origin: Origin | None,
        verdict: str,
        state: OriginState | None = None,
        decision: Decision | None = None,
        **more: Any,
    ) -> None:
        """Count and record a decision about *request*. *more*: fields of the line, of any JSON type."""
        self._counts.requests[verdict] += 1
        if self._listeners:
            agent = _names(self._origins.agents.chain_of(request))
            more = {"agent": agent, "dry_run": self.dry_run, **more}
            self.tell(verdict, request.url, origin, state, decision, **more)

    def dropped(
        self,
        request: Request,
        error: Refusal,
        state: OriginState | None,
        *,
        direct: bool,
    ) -> None:
        """Report that *request* is about to fail with *error*. *direct*: it is a direct download,
        and Scrapy doesn't log that its item goes on without it."""
        self._count_refusal(request, error)
        with self._logging_refusals:
            self._log_drop(request, error, direct=direct)
        if isinstance(error, RobotsUnreachable):
            self.record(
                request, error.origin, "unreachable", state, reason=error.reason
            )
        else:
            self.record(request, error.origin, "disallowed", state, error.decision)

    def _log_drop(self, request: Request, error: Refusal, *, direct: bool) -> None:
        unreachable = isinstance(error, RobotsUnreachable)
        if unreachable and direct:
            logger.warning(
                "Not downloading %(url)s: %(error)s",
                {"url": request.url, "error": error},
                extra=self._context.extra,
            )
        elif (
            unreachable
            and self._interactive
            and error.origin is not None
            and not self.dry_run
        ):
            logger.error(
                "Not fetching %(url)s: %(error)s. This command tries robots.txt only once; to "
                "fetch the page anyway, add -s REP_UNREACHABLE=allow",
                {"url": request.url, "error": error},
                extra=self._context.extra,
            )
        else:
            values = {"error": error, "request": request}
            about = error.origin, unreachable
            self._drops.log(
                self._drop_message, values, self._context.crawler.spider, about
            )

    def would_be_held(self, request: Request, origin: Origin) -> None:
        """Report that *request* would be held if this weren't a dry run."""
        self._stats.inc_value("rep/held")
        state = self._origins.table.get(origin)
        if state is not None and state.unreachable:
            self._stats.inc_value("rep/held/unreachable")
        message = "Would hold requests to %(origin)s until its robots.txt can be fetched (%(why)s)"
        values = {"origin": origin, "why": Drop.of(state).reason}
        self._holds.log(message, values, self._context.spider, origin)
        self._held(request, origin)

    def _held(self, request: Request, origin: Origin) -> None:
        reason = Drop.of(self._origins.table.get(origin)).reason
        self.record(request, origin, "held", reason=reason)

    def _released(self, request: Request, origin: Origin, held_for: float) -> None:
        self.record(request, origin, "released", held_for=round(held_for, 3))

    def _given_up(
        self,
        request: Request,
        origin: Origin,
        reason: str,
        attempts: int,
        held_for: float,
    ) -> None:
        self._count_refusal(request, RobotsUnreachable(origin, reason, attempts))
        self.record(
            request, origin, "given_up", reason=reason, held_for=round(held_for, 3)
        )

    def _count_refusal(self, request: Request, error: Refusal) -> None:
        with self._counting:
            if request.meta.get(_START):
                self._refuse_start(request, error)
            if isinstance(error, RobotsDisallowed):
                self._inc_value("robotstxt/forbidden")
                self._counts.forbids(error)
                self._changes.forbidden(error.origin, request.url)
            elif not self.dry_run and error.origin is not None:
                # A failed robots.txt counts in Scrapy's stats as the page's own failure.
                name = error.reason.partition(":")[0]
                if name in DOWNLOAD_ERRORS:
                    counter = (
                        f"downloader/exception_type_count/scrapy.exceptions.{name}"
                    )
                    self._stats.inc_value(counter)

    def _leaves(self, state: OriginState) -> None:
        """Record how many requests to an origin have passed since the last such record."""
        with self._isolated(Counts.part):
            self._counts.leaves(state)
        count, state.allowed = state.allowed, 0
        if count:
            self._counts.requests["allowed"] += count
            self.tell("allowed_count", None, state.origin, count=count)

    # The crawl's beginning and end

    def _opened(self) -> None:
        context, agents = self._context, self._origins.agents
        if not self._interactive:
            log_beginning(context, agents)
        if self.dry_run:
            self._stats.set_value("rep/dry_run", True)
            logger.warning(
                "REP_DRY_RUN is on: robots.txt is fetched and decisions are recorded, but no request "
                "is dropped or held.",
                extra=context.extra,
            )
        settings = {
            "spider": context.spider.name if context.spider else "",
            "agent": name_of(agents),
            "version": scrapy_rep.__version__,
            "scrapy": scrapy.__version__,
            "changed": changed_values(context.crawler.settings),
        }
        self.tell("crawl_started", None, None, dry_run=self.dry_run, settings=settings)

    async def _closed(self, reason: str) -> None:
        for state in self._origins.table.states():
            self._leaves(state)
        with self._isolated("summary"):
            if self.dry_run:  # all get through
                self._starts["passed"] = self._counts.requests["allowed"] > 0
            told = figures(self._counts, self._stats)
            counts = {**told, "start_requests": self._starts}
            self.tell(
                "crawl_ended",
                None,
                None,
                reason=reason,
                dry_run=self.dry_run,
                counts=counts,
            )
            log_summary(self._counts, told, self._context)
            # If it did not finish, some may not have been tried.
            if (
                self._starts["refused"]
                and reason == "finished"
                and not self._starts["passed"]
            ):
                self._warn_of_starts()
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            with self._isolated(listener.part):
                await listener.end()

    def _passes(self, request: Request) -> None:
        if request.meta.get(_START):
            self._starts["passed"] = True
            self._passing.listen(False)

    def _refuse_start(self, request: Request, error: Exception) -> None:
        self._starts["refused"] += 1
        self._starts["unreachable"] += isinstance(error, RobotsUnreachable)
        if "url" not in self._starts:
            # As --agent takes it. With no token, the rules for all apply.
            agent = _names(self._origins.agents.chain_of(request)) or "*"
            url, why = clean(request.url), str(error).rstrip(".")
            command = f"scrapy robots --explain --agent {shlex.quote(agent)} {shlex.quote(url)}"
            self._starts |= {"url": url, "why": why, "command": command}

    def _warn_of_starts(self) -> None:
        """Tell the user that no start request got through: the spider would seem broken."""
        refused = "refused"
        outcome = "If the crawl found nothing, that is why; your spider may be fine."
        if self.dry_run:
            refused, outcome = (
                "would have refused",
                "A crawl that obeys it may find nothing.",
            )
        forbidden = self._starts["refused"] - self._starts["unreachable"]
        if not self._starts["unreachable"]:
            what = f"robots.txt {refused} every start request (%(refused)d)"
        elif not forbidden:
            what = "robots.txt was unreachable for every start request (%(refused)d)"
        else:
            what = (
                f"robots.txt {refused} {counted(forbidden, 'start request')}, and was unreachable "
                "for the other %(unreachable)d"
            )
        logger.warning(
            f"{what}. {outcome} The first was %(url)s: %(why)s. For details: %(command)s",
            self._starts,
            extra=self._context.extra,
        )


def _names(chain: tuple[str, ...]) -> str | None:
    return ",".join(chain) or None


class Signals(ResolutionListener):
    """Sends the signals of an answer, if there are handlers. A slow handler must not keep other
    parts waiting, so it is notified after them."""

    part = "announcement of robots.txt"

    def __init__(
        self, context: CrawlContext, announce: Callable[[OriginState], Awaitable[None]]
    ) -> None:
        """*announce* the sitemaps of a robots.txt that lists some."""
        self._context = context
        self._announce = announce

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        answer = flight.answer
        robots = state.robots if flight.outcome is Outcome.RULES else None
        if robots is not None and robots.sitemaps:
            await self._announce(state)
        has_listeners = self._context.engine.has_listeners
        send = self._context.crawler.signals.send_catch_log_async
        if robots is not None and _PARSED is not None and has_listeners(_PARSED):
            await send(_PARSED, robotparser=RobotParser(robots), request=flight.request)
        if answer is not None and has_listeners(robots_resolved):
            await send(
                robots_resolved,
                origin=state.origin,
                outcome=answer.outcome,
                status=answer.status,
                url=answer.url,
                hops=answer.hops,
                robots=robots,
                error=str(answer.error) if answer.error else None,
                attempts=state.entry.attempts,
                spider=self._context.spider,
            )


class ChoiceListener(ResolutionListener):
    """Logs and counts choices beyond the protocol (REP.md section 13); notes which origins still
    answer for pages."""

    part = "log of choices beyond the protocol"

    def __init__(
        self, context: CrawlContext, cache: RobotsCache, choices: Choices
    ) -> None:
        self._context = context
        self._cache = cache
        self._choices = choices
        self._counted = BoundedSet()
        self._log = Limiter(logger, "origins about which a setting decides")
        connect = context.crawler.signals.connect
        connect(self._opened, scrapy_signals.spider_opened)
        if choices.ladder:
            connect(self._answered, scrapy_signals.response_received)

    async def _opened(self) -> None:
        from scrapy_rep.inspection.lint import lint  # most crawls don't need it

        extra = self._context.extra
        values = {"settings": ", ".join(chosen(self._context.settings))}
        logger.info("Beyond the protocol: %(settings)s", values, extra=extra)
        for host, override in self._choices.overrides.items():
            if override.ends_at <= self._context.clock():
                logger.warning(
                    "REP_OVERRIDES: the entry for %(host)s ended on %(end)s, so its own robots.txt applies. "
                    "Remove the entry, or give it a later date",
                    {"host": host, "end": iso(override.ends_at)},
                    extra=extra,
                )
                continue
            has_file = override.outcome is Outcome.RULES
            if has_file and (found := await run_in_thread(lint, override.body)):
                where = f"line {found[0].line}: " if found[0].line else ""
                count, first = (
                    counted(len(found), "finding"),
                    f"{where}{found[0].message}",
                )
                logger.warning(
                    "REP_OVERRIDES: scrapy robots --lint has %(count)s about the file for %(host)s. "
                    "The first: %(first)s",
                    {"host": host, "count": count, "first": first},
                    extra=extra,
                )

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Count and log an origin about which a setting decides."""
        by = (
            flight.answer.setting if flight.answer is not None else ""
        ) or state.status.setting
        if by and self._counted.add((state.name, by)):
            for name in _SETTING.findall(by):
                self._context.stats.inc_value(f"rep/beyond/{name.lower()}")
            message = "robots.txt of %(origin)s: %(by)s"
            self._log.log(
                message, {"origin": state.name, "by": by}, self._context.spider
            )

    def _answered(self, response: Response, request: Request) -> None:
        working = response.status < 500 and response.status != 429
        if working and "cached" not in response.flags:
            try:
                origin = origin_of(request)
            except ValueError:
                return  # the protocol doesn't cover it
            if request.url != origin.robots_url:
                self._cache.page_answered(origin)
