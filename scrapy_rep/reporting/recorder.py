"""Reports what happens: in the log, in Scrapy's signals, in counts for the log's
summary (`summary.py`), and in lines (`record.py`) for the file of the record
(`record_file.py`) and for the report (`report/`).

Requests that are simply allowed are only counted, in ``OriginState.allowed``. Most
requests are, and they must cost nothing.
"""

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
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.origins.origins import Origins
from scrapy_rep.origins.policy import Drop
from scrapy_rep.origins.queue import FetchAbandoned, Flight
from scrapy_rep.origins.state import OriginState
from scrapy_rep.origins.status import Stale
from scrapy_rep.protocol import Decision, Origin
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.record import (
    BOT_WALL,
    ChangeWatch,
    answer_fields,
    detailed,
    fields_of,
    kind_of,
    outcome_of_answer,
)
from scrapy_rep.reporting.record_file import RecordFile
from scrapy_rep.reporting.report import Report, check_library
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

# Scrapy's own signal for a parsed robots.txt; None before Scrapy 2.18, which doesn't
# have it.
_ROBOTS_PARSED = getattr(scrapy_signals, "robots_parsed", None)
# At most this many different errors of the project's configuration are logged, each
# once.
_MAX_LOGGED_ERRORS = 1000
# The meta key of start requests, which Scrapy's StartSpiderMiddleware sets.
_START_KEY = "is_start_request"
# Names of settings in the words about a choice (``Status.setting`` in
# origins/status.py).
_SETTING_NAME = re.compile(r"REP_([A-Z_]+)")


class Recorder(ResolutionListener):
    """Logs, counts and records each answer, and each decision other than a plain allow.
    Called by the middleware, and by whatever else lets a request pass or drops it."""

    part = "record of decisions"
    """What the log calls it if it fails (``Isolation`` in engine/log.py)."""

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
        self._origins = origins
        settings = context.settings
        self.dry_run = settings.dry_run
        """Whether nothing is dropped or held."""
        self._interactive = is_interactive(context.crawler)
        self._isolated = Isolation(context.crawler)
        self._counts = Counts()
        self._listeners: list[RecordFile | Report] = []
        """What gets the lines of the record; nothing by default."""
        if settings.decisions:
            self._listeners.append(RecordFile(context, settings.decisions))
        if settings.report and check_library(context):
            self._listeners.append(Report(context, settings.report, origins.table))
        self._misconfigured: set[str] = set()
        """Errors of the project's configuration that were logged."""
        self._failure_log = Limiter(
            logger,
            "failures to fetch the robots.txt of an origin",
        )
        self._walled_origins = BoundedSet()
        """Names of origins for which a bot wall answered, so that each counts once."""
        self._wall_log = Limiter(logger, "origins for which a bot wall answered")
        self._refusal_log = Limiter(logger, "origins whose requests are dropped")
        self._refusal_message = "%(error)s: %(request)s"
        if self.dry_run:
            self._refusal_message = f"Dry run, not dropped: {self._refusal_message}"
        self._hold_log = Limiter(logger, "origins whose requests would be held")
        self._changes = ChangeWatch(context, origins.agents)
        self._starts: dict[str, Any] = {
            "refused": 0,
            "unreachable": 0,
            "passed": False,
        }
        """The field ``start_requests`` of the record's last line: how many start
        requests were refused, and how many of these because robots.txt was unreachable;
        whether any start request got through (``passed``). Once one was refused, also
        the first one's ``url``, ``why`` it was refused, and the ``command`` that
        explains it."""
        passing_signals = (
            scrapy_signals.request_reached_downloader,
            scrapy_signals.response_received,
        )
        self._passing_listener = Listener(
            context.crawler,
            dict.fromkeys(passing_signals, self._note_passing),
        )
        # In a dry run, requests that get through prove nothing, see _closed().
        self._passing_listener.listen(not self.dry_run)
        self._waiting_urls = waiting_urls
        self._connect(context.crawler.signals.connect)

    def _connect(self, connect: Callable[..., None]) -> None:
        self._origins.table.notify(self._record_allowed)
        connect(self._opened, scrapy_signals.spider_opened)
        connect(self._closed, scrapy_signals.spider_closed)
        if self._listeners:
            connect(self._record_held, request_held)
            connect(self._record_release, request_released)
        connect(self._record_giving_up, request_given_up)

    def tell(
        self,
        verdict: str,
        url: str | None,
        origin: Origin | str | None,
        state: OriginState | None = None,
        decision: Decision | None = None,
        **given: Any,
    ) -> None:
        """Put a line on record, if there is a file or a report. *given*: fields of any
        JSON type."""
        if not self._listeners:
            return
        with self._isolated(self.part):
            given["url"] = url
            given["origin"] = None if origin is None else str(origin)
            given["verdict"] = verdict
            fields = fields_of(self._context.clock(), state, decision, given)
            fields = without_secrets(fields)  # URLs may have passwords in them
            for listener in self._listeners:
                with self._isolated(listener.part):
                    listener.add(fields)

    # Answers

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Report the answer to *flight*: a robots.txt that was fetched or found in the
        storage, or a failure."""
        answer = flight.answer
        try:
            self._count_answer(state, flight)
        except Exception as bug:  # noqa: BLE001 (whatever a bug raises)
            self._isolated.contain(Counts.part, bug)
        if answer is not None and answer.outcome is Outcome.UNREACHABLE:
            with self._isolated("log of failures"):
                self._log_failure(state, answer)
        if self._listeners:
            with self._isolated(self.part):
                self._record_answer(state, flight)
        if flight.before is None:
            return  # this process didn't request it, so it can't tell what changed
        change = await self._changes.find_change(
            state,
            flight.before,
            flight.request,
            self._waiting_urls,
        )
        if change is not None:
            url = state.robots_url
            self.tell(
                "changed",
                url,
                state.origin,
                state,
                change=change,
            )

    def _count_answer(self, state: OriginState, flight: Flight) -> None:
        """Count the answer to *flight* in Scrapy's stats, and for the summary."""
        self._counts.fetches += flight.fetches
        inc_value = self._stats.inc_value
        entry = state.entry
        status = entry.status
        answer = flight.answer
        if answer is None:  # it comes from the storage
            inc_value("rep/cache/recalled")
        else:
            status = answer.status
            inc_value(f"rep/outcome/{answer.outcome.value}")
            # Without a fetch, a setting has the answer (REP_OVERRIDES, say).
            if flight.fetches:
                # Scrapy's own names, for dashboards written for the built-in
                # middleware.
                inc_value("robotstxt/request_count")
                error = answer.error
                if status is not None:
                    inc_value("robotstxt/response_count")
                    inc_value(f"robotstxt/response_status_count/{status}")
                elif error is not None and not isinstance(error, IgnoreRequest):
                    inc_value(f"robotstxt/exception_count/{type(error)}")
        outcome, _ = outcome_of_answer(entry, answer)
        is_of_wall = outcome == "challenge"
        if outcome == "unreachable":
            is_of_wall = kind_of(entry.error) == BOT_WALL
        if is_of_wall:
            self._count_wall(state)
        if outcome == "missing" or state.forbids_all:
            outcome = detailed(outcome, status, forbids=state.forbids_all)
        self._counts.note_answer(state.origin, outcome)

    def _record_answer(self, state: OriginState, flight: Flight) -> None:
        """Put the answer to *flight* on record."""
        chain = self._origins.agents.chain_of(flight.request)
        delay = self._origins.crawl_delay.seconds(state, chain)
        fields = answer_fields(state, flight, delay, self._context.clock())
        answer = flight.answer
        url = answer.url if answer is not None else state.robots_url
        self.tell(
            "answer",
            url,
            state.origin,
            agent=_names(chain),
            **fields,
        )

    def _count_wall(self, state: OriginState) -> None:
        """Count an origin for which a bot wall answered, once. Log that no rules came,
        unless the origin counts as unreachable, which is logged anyway."""
        is_new = self._walled_origins.add(state.name)
        if not is_new:
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
        values = {
            "origin": state.origin,
            "status": entry.status,
            "sign": sign,
        }
        self._wall_log.log(message, values, self._context.spider)

    def _log_failure(self, state: OriginState, answer: Answer) -> None:
        """Log that robots.txt is unreachable, and what follows from it."""
        message = "robots.txt of %(origin)s is unreachable (%(reason)s)"
        if isinstance(state.status, Stale):
            message += ", so an older copy applies"
        # Interactive commands, such as scrapy shell, make only one attempt.
        if not self._interactive:
            # The message doesn't say "the next attempt is in", since after this time
            # there is an attempt only if requests wait for it.
            message += "; no attempt is due for %(delay).1f s"
        delay = state.entry.next_attempt_at - self._context.clock()
        values = {
            "origin": state.origin,
            "reason": answer.reason,
            "delay": delay,
        }
        self._failure_log.log(message, values, self._context.spider, state.origin)

    def failed(self, origin: Origin, error: Exception) -> None:
        """Record that a fetch ended without an answer, since it was cancelled, or since
        the project's configuration prevents it. This is logged once for each
        *error*."""
        self._counts.note_unanswered(origin)
        details: dict[str, Any] = {"outcome": "none", "stored": False}
        if isinstance(error, FetchAbandoned):
            self._counts.fetches += 1
            reason = "the fetch was cancelled"
            details |= {"fetches": 1, "kind": None}
        else:
            reason = text_of(error)
            details |= {"fetches": 0, "kind": "configuration"}
        self.tell(
            "answer",
            origin.robots_url,
            origin,
            reason=reason,
            answer=details,
        )
        if not isinstance(error, CONFIGURATION_ERRORS):
            return  # cancelled; or a bug, which Flights (origins/flights.py) logs
        self._stats.inc_value(f"robotstxt/exception_count/{type(error)}")
        key = f"{origin.scheme} {error}"
        has_room = len(self._misconfigured) < _MAX_LOGGED_ERRORS
        if key in self._misconfigured or not has_room:
            return
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
        **given: Any,
    ) -> None:
        """Count and record a decision about *request*. *given*: fields of the line, of
        any JSON type."""
        self._counts.requests[verdict] += 1
        if self._listeners:
            agent = _names(self._origins.agents.chain_of(request))
            fields = {
                "agent": agent,
                "dry_run": self.dry_run,
                **given,
            }
            self.tell(
                verdict,
                request.url,
                origin,
                state,
                decision,
                **fields,
            )

    def dropped(
        self,
        request: Request,
        error: Refusal,
        state: OriginState | None,
        *,
        direct: bool,
    ) -> None:
        """Report that *request* is about to fail with *error*. *direct*: whether it is
        a direct download (middleware.py). Scrapy doesn't log that an item goes on
        without the file of such a download."""
        self._count_refusal(request, error, state)
        try:  # in place of a context, which would take longer
            self._log_drop(request, error, direct=direct)
        except Exception as bug:  # noqa: BLE001 (whatever a bug raises)
            self._isolated.contain("log of refusals", bug)
        if isinstance(error, RobotsUnreachable):
            self.record(
                request,
                error.origin,
                "unreachable",
                state,
                reason=error.reason,
            )
        else:
            self.record(
                request,
                error.origin,
                "disallowed",
                state,
                error.decision,
            )

    def _log_drop(
        self,
        request: Request,
        error: Refusal,
        *,
        direct: bool,
    ) -> None:
        """Log that *request* fails with *error*. *direct*: see :meth:`dropped`."""
        is_unreachable = isinstance(error, RobotsUnreachable)
        # Who runs scrapy fetch, say, waits for this page, and has to be told why it
        # doesn't come.
        user_waits = self._interactive and error.origin is not None and not self.dry_run
        if is_unreachable and direct:
            logger.warning(
                "Not downloading %(url)s: %(error)s",
                {"url": request.url, "error": error},
                extra=self._context.extra,
            )
        elif is_unreachable and user_waits:
            logger.error(
                "Not fetching %(url)s: %(error)s. This command tries robots.txt only once; to "
                "fetch the page anyway, add -s REP_UNREACHABLE=allow",
                {"url": request.url, "error": error},
                extra=self._context.extra,
            )
        else:
            values = {"error": error, "request": request}
            spider = self._context.crawler.spider
            # Further refusals by the same origin for the same reason are at DEBUG
            # level.
            topic = (error.origin, is_unreachable)
            self._refusal_log.log(self._refusal_message, values, spider, topic)

    def would_be_held(self, request: Request, origin: Origin) -> None:
        """Report that *request* would be held if this weren't a dry run."""
        self._stats.inc_value("rep/held")
        state = self._origins.table.get(origin)
        if state is not None and state.unreachable:
            self._stats.inc_value("rep/held/unreachable")
        message = "Would hold requests to %(origin)s until its robots.txt can be fetched (%(why)s)"
        values = {"origin": origin, "why": Drop.of(state).reason}
        self._hold_log.log(message, values, self._context.spider, origin)
        self._record_held(request, origin)

    def _record_held(self, request: Request, origin: Origin) -> None:
        reason = Drop.of(self._origins.table.get(origin)).reason
        self.record(request, origin, "held", reason=reason)

    def _record_release(
        self,
        request: Request,
        origin: Origin,
        held_for: float,
    ) -> None:
        self.record(request, origin, "released", held_for=round(held_for, 3))

    def _record_giving_up(
        self,
        request: Request,
        origin: Origin,
        reason: str,
        attempts: int,
        held_for: float,
    ) -> None:
        error = RobotsUnreachable(origin, reason, attempts)
        self._count_refusal(request, error, state=None)
        self.record(
            request,
            origin,
            "given_up",
            reason=reason,
            held_for=round(held_for, 3),
        )

    def _count_refusal(
        self, request: Request, error: Refusal, state: OriginState | None
    ) -> None:
        """Count that *request* fails with *error*. *state*: what is known of its
        origin, if a rule forbids it. This has to be fast, since there may be millions
        of refusals."""
        try:
            if request.meta.get(_START_KEY):
                self._note_refused_start(request, error)
            if isinstance(error, RobotsDisallowed):
                self._context.count("robotstxt/forbidden")
                assert state is not None
                self._counts.count_refusal(error, state.name)
                self._changes.remember_refusal(error.origin, request.url)
            elif not self.dry_run and error.origin is not None:
                # A failed robots.txt counts in Scrapy's stats as the page's own
                # failure.
                name = error.reason.partition(":")[0]
                if name in DOWNLOAD_ERRORS:
                    prefix = "downloader/exception_type_count/scrapy.exceptions"
                    self._stats.inc_value(f"{prefix}.{name}")
        except Exception as bug:  # noqa: BLE001 (whatever a bug raises)
            self._isolated.contain(Counts.part, bug)

    def _record_allowed(self, state: OriginState) -> None:
        """Record how many requests to an origin have been allowed since the last such
        record. Called when the origin leaves memory (``OriginTable.notify()``), and for
        all origins in memory when the crawl ends."""
        with self._isolated(Counts.part):  # a bug in Counts stops nothing else
            self._counts.count_origin(state)
        count = state.allowed
        state.allowed = 0
        if count:
            self._counts.requests["allowed"] += count
            self.tell("allowed_count", url=None, origin=state.origin, count=count)

    # The crawl's beginning and end

    def _opened(self) -> None:
        """Log and record that the crawl begins, and how robots.txt is obeyed."""
        context = self._context
        agents = self._origins.agents
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
        self.tell(
            "crawl_started",
            url=None,
            origin=None,
            dry_run=self.dry_run,
            settings=settings,
        )

    async def _closed(self, reason: str) -> None:
        """Record and log what came of the crawl, and finish the file and the report."""
        for state in self._origins.table.states():
            self._record_allowed(state)
        with self._isolated("summary"):
            # In a dry run, refused requests get through as well, which proves nothing;
            # that a request was allowed does.
            if self.dry_run:
                self._starts["passed"] = self._counts.requests["allowed"] > 0
            numbers = figures(self._counts, self._stats)
            self.tell(
                "crawl_ended",
                url=None,
                origin=None,
                reason=reason,
                dry_run=self.dry_run,
                counts={**numbers, "start_requests": self._starts},
            )
            log_summary(self._counts, numbers, self._context)
            # If the crawl did not finish, some start requests may not have been tried.
            is_finished = reason == "finished"
            if is_finished and self._starts["refused"] and not self._starts["passed"]:
                self._warn_of_starts()
        listeners = self._listeners
        self._listeners = []
        for listener in listeners:
            with self._isolated(listener.part):
                await listener.end()

    def _note_passing(self, request: Request) -> None:
        """Note that a start request got through, and listen no more, since one is
        enough to know."""
        if request.meta.get(_START_KEY):
            self._starts["passed"] = True
            self._passing_listener.listen(False)

    def _note_refused_start(self, request: Request, error: Exception) -> None:
        """Count a start request that was refused, and keep the first one's reason."""
        self._starts["refused"] += 1
        if isinstance(error, RobotsUnreachable):
            self._starts["unreachable"] += 1
        if "url" in self._starts:
            return
        # As the option --agent takes it. With no token, the rules for all apply.
        agent = _names(self._origins.agents.chain_of(request)) or "*"
        url = clean(request.url)
        options = f"--explain --agent {shlex.quote(agent)}"
        address = shlex.quote(url)
        self._starts["url"] = url
        self._starts["why"] = str(error).rstrip(".")
        self._starts["command"] = f"scrapy robots {options} {address}"

    def _warn_of_starts(self) -> None:
        """Tell the user that no start request got through. Otherwise the spider would
        seem broken."""
        refused = "refused"
        outcome = "If the crawl found nothing, that is why; your spider may be fine."
        if self.dry_run:
            refused = "would have refused"
            outcome = "A crawl that obeys it may find nothing."
        forbidden = self._starts["refused"] - self._starts["unreachable"]
        if not self._starts["unreachable"]:
            subject = f"robots.txt {refused} every start request (%(refused)d)"
        elif not forbidden:
            subject = "robots.txt was unreachable for every start request (%(refused)d)"
        else:
            subject = (
                f"robots.txt {refused} {counted(forbidden, 'start request')}, and was unreachable "
                "for the other %(unreachable)d"
            )
        logger.warning(
            f"{subject}. {outcome} The first was %(url)s: %(why)s. For details: %(command)s",
            self._starts,
            extra=self._context.extra,
        )


def _names(chain: tuple[str, ...]) -> str | None:
    """Return the product tokens of *chain* (``Agents.chain_of()`` in origins/agents.py)
    as a text, the most specific first; None if there are none."""
    return ",".join(chain) or None


class Signals(ResolutionListener):
    """Sends the signals of an answer, if there are handlers. A slow handler must not
    keep other parts waiting, so middleware.py puts this listener after them."""

    part = "announcement of robots.txt"
    """What the log calls it if it fails (``Isolation`` in engine/log.py)."""

    def __init__(
        self,
        context: CrawlContext,
        announce: Callable[[OriginState], Awaitable[None]],
    ) -> None:
        """*announce* is given the state of an origin whose robots.txt lists
        sitemaps."""
        self._context = context
        self._announce = announce

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Announce the sitemaps of a robots.txt, then the robots.txt itself."""
        answer = flight.answer
        robots = state.robots if flight.outcome is Outcome.RULES else None
        if robots is not None and robots.sitemaps:
            await self._announce(state)
        has_listeners = self._context.engine.has_listeners
        send = self._context.crawler.signals.send_catch_log_async
        if (
            robots is not None
            and _ROBOTS_PARSED is not None
            and has_listeners(_ROBOTS_PARSED)
        ):
            await send(
                _ROBOTS_PARSED, robotparser=RobotParser(robots), request=flight.request
            )
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
    """Logs and counts choices beyond the protocol (REP.md section 13), where a setting
    decides and not robots.txt. For ``REP_UNREACHABLE_RULES``, one of them, it also
    notes which origins still answer with pages."""

    part = "log of choices beyond the protocol"
    """What the log calls it if it fails (``Isolation`` in engine/log.py)."""

    def __init__(
        self,
        context: CrawlContext,
        cache: RobotsCache,
        choices: Choices,
    ) -> None:
        self._context = context
        self._cache = cache
        self._choices = choices
        self._counted = BoundedSet()
        """Pairs of an origin and a choice about it, so that each pair counts once."""
        self._log = Limiter(logger, "origins about which a setting decides")
        connect = context.crawler.signals.connect
        connect(self._opened, scrapy_signals.spider_opened)
        # REP_UNREACHABLE_RULES = "google-2026" asks whether an origin's pages still
        # answer.
        if choices.follows_2026:
            connect(self._note_page, scrapy_signals.response_received)

    async def _opened(self) -> None:
        """Log which settings go beyond the protocol, and what is wrong with
        ``REP_OVERRIDES``."""
        values = {"settings": ", ".join(chosen(self._context.settings))}
        logger.info(
            "Beyond the protocol: %(settings)s",
            values,
            extra=self._context.extra,
        )
        for host, override in self._choices.overrides.items():
            if override.ends_at <= self._context.clock():
                logger.warning(
                    "REP_OVERRIDES: the entry for %(host)s ended on %(end)s, so its own robots.txt applies. "
                    "Remove the entry, or give it a later date",
                    {"host": host, "end": iso(override.ends_at)},
                    extra=self._context.extra,
                )
            elif override.outcome is Outcome.RULES:
                await self._lint(host, override.body)

    async def _lint(self, host: str, body: bytes) -> None:
        """Log what ``scrapy robots --lint`` would find about a robots.txt in
        ``REP_OVERRIDES``."""
        from scrapy_rep.inspection.lint import lint  # most crawls don't need it

        findings = await run_in_thread(lint, body)
        if not findings:
            return
        first = findings[0]
        where = f"line {first.line}: " if first.line else ""
        logger.warning(
            "REP_OVERRIDES: scrapy robots --lint has %(count)s about the file for %(host)s. "
            "The first: %(first)s",
            {
                "host": host,
                "count": counted(len(findings), "finding"),
                "first": f"{where}{first.message}",
            },
            extra=self._context.extra,
        )

    async def resolved(self, state: OriginState, flight: Flight) -> None:
        """Count and log an origin about which a setting decides."""
        answer = flight.answer
        # Both texts have the setting's name in them.
        choice = answer.setting if answer is not None else ""
        choice = choice or state.status.setting
        if not choice:
            return
        is_new = self._counted.add((state.name, choice))
        if not is_new:
            return
        for name in _SETTING_NAME.findall(choice):
            self._context.stats.inc_value(f"rep/beyond/{name.lower()}")
        message = "robots.txt of %(origin)s: %(choice)s"
        values = {"origin": state.name, "choice": choice}
        self._log.log(message, values, self._context.spider)

    def _note_page(self, response: Response, request: Request) -> None:
        """Note that an origin answers with pages, if the response shows that it
        works."""
        works = response.status < 500 and response.status != 429
        if not works or "cached" in response.flags:  # (by Scrapy's HTTP cache)
            return
        try:
            origin = origin_of(request)
        except ValueError:
            return  # the protocol doesn't cover its scheme
        if request.url != origin.robots_url:
            self._cache.page_answered(origin)
