"""Passes what happens, as records (`record.py`), to the listeners: the log, the counts for the summary,
the audit trail, the report.

Plain allows are recorded one by one only with ``REP_DECISIONS_ALL``; otherwise they are only counted,
because most requests are plain allows and must cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import signals as scrapy_signals
from twisted.internet.defer import CancelledError

import scrapy_rep
from scrapy_rep import signals
from scrapy_rep.engine.lifecycle import is_interactive
from scrapy_rep.engine.log import Isolation
from scrapy_rep.engine.text import text_of
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.answer import DOWNLOAD_ERRORS
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.reporting.announcements import ChangeWatch, agents_in_words, log_beginning
from scrapy_rep.reporting.audit_trail import AuditTrail
from scrapy_rep.reporting.decision_log import DecisionLog, StartRequests
from scrapy_rep.reporting.record import (
    ALLOWED_COUNT,
    ANSWER,
    CHANGED,
    CONFIGURATION,
    ENDED,
    IMPOLITE,
    STARTED,
    UNKNOWN_YET,
    Basis,
    Record,
    answer_fields,
)
from scrapy_rep.reporting.report import Report, is_possible
from scrapy_rep.reporting.summary import Counts, log_summary
from scrapy_rep.settings import changed_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision, Origin

# Parts that fail independently, as the log calls them.
_STARTS, _CHANGES = "watch of start requests", "comparison of robots.txt files"


class Recorder(ResolutionListener):
    """Records each decision other than a plain allow, and each robots.txt result. The judge calls it,
    and whatever else lets a request pass or drops it."""

    part = "record of decisions"

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        """:raises SettingsError: if ``REP_DECISIONS`` or ``REP_REPORT`` can't be written"""
        self._context = context
        self._stats = context.stats
        self._origins = origins
        settings = context.settings
        self.dry_run = settings.dry_run
        """Whether nothing is dropped or held."""
        self._isolated = Isolation(context.crawler)
        self._counts = Counts(self._isolated)
        uri = settings.decisions
        self._trail = AuditTrail(context, uri, self._isolated) if uri else None
        wanted = settings.report and is_possible(context)
        self._report = Report(context, origins.table, self._isolated) if wanted else None
        self.everything = self._trail is not None and settings.decisions_all
        """Whether plain allows are recorded one by one."""
        listeners = (self._counts, self._trail, self._report)
        context.channel.handlers += [one for one in listeners if one is not None]
        self._log = DecisionLog(context)
        self._changes = ChangeWatch(context)
        self._starts = StartRequests(context, origins.agents)
        self.waiting: Callable[[str], Iterable[str]] = lambda _: ()
        """Returns some URLs that wait for an answer of an origin."""
        origins.table.on_leave = self._allowed_so_far
        for handler, signal in (
            (self._opened, scrapy_signals.spider_opened),
            (self._closed, scrapy_signals.spider_closed),
            (self._held, signals.request_deferred),
            (self._released, signals.request_released),
            (self._given_up, signals.request_given_up),
        ):
            context.crawler.signals.connect(handler, signal)

    # Answers

    async def resolved(self, resolution: Resolution) -> None:
        """A robots.txt was fetched, or found in the storage."""
        state = resolution.state
        chain = self._origins.agents.chain_of(resolution.request)
        obeyed = self._context.settings.crawl_delay
        delay = self._origins.crawl_delay.seconds(state, chain) if obeyed else 0.0
        fields = answer_fields(resolution, delay, self._context.clock())
        self._tell(ANSWER, fields.pop("url"), state.origin, agent=_names(chain), **fields)
        with self._isolated(_CHANGES):
            change = await self._changes.look(resolution, chain, self.waiting)
            if change is not None:
                url = resolution.robots_url
                self._tell(CHANGED, url, state.origin, Basis(state), change=change)

    def failed(self, origin: Origin, error: Exception) -> None:
        """Record that there is no answer. A fetch that was cancelled counts as one."""
        cut = isinstance(error, CancelledError)
        reason = "the fetch was cancelled" if cut else text_of(error)
        kind = None if cut else CONFIGURATION
        answer = {"outcome": "none", "stored": False, "fetches": int(cut), "kind": kind}
        self._tell(ANSWER, origin.robots_url, origin, reason=reason, answer=answer)

    # Requests

    def allowed(
        self, request: Request, state: OriginState, decision: Decision | None = None
    ) -> None:
        """*request* passes: robots.txt allows it, or has been unreachable for 30 days."""
        self.record(request, state.origin, "allowed", Basis(state, decision))

    def passed(self, request: Request, state: OriginState) -> None:
        """*request* passes without an answer: ``REP_UNREACHABLE`` is "allow"."""
        reason = f"{IMPOLITE}; {state.entry.error}"
        self.record(request, state.origin, "allowed", Basis(state), reason=reason)

    def overruled(self, request: Request, state: OriginState, decision: Decision) -> None:
        """*request* passes though *decision* forbids it: a subclass says so."""
        reason = "RepMiddleware.overrules()"
        self.record(request, state.origin, "allowed", Basis(state, decision), reason=reason)

    def replayed(self, request: Request, origin: Origin) -> None:
        """*request* passes without an answer: it is in the HTTP cache."""
        reason = f"the HTTP cache answers it; {self._why_held(origin)}"
        self.record(request, origin, "allowed", reason=reason)

    def dropped(
        self,
        request: Request,
        error: RobotsDisallowed | RobotsUnreachable,
        state: OriginState | None = None,
        *,
        direct: bool = False,
    ) -> None:
        """*request* is about to fail with *error*.

        :param direct: a direct download: Scrapy doesn't log that its item goes on without it
        """
        self._refused(request, error, dry_run=self.dry_run)
        if isinstance(error, RobotsDisallowed):
            self._log.forbidden(request, error)
            self._changes.forbidden(error.origin, request.url)
            self.record(request, error.origin, "disallowed", Basis(state, error.decision))
            return
        if error.origin is not None:
            self._count_reason(error)
        self._log.unreachable(request, error, direct=direct)
        self.record(request, error.origin, "unreachable", Basis(state), reason=error.reason)

    def would_be_held(self, request: Request, origin: Origin) -> None:
        """*request* passes, since this is a dry run. Otherwise, it would be held."""
        self._stats.inc_value("rep/deferred")
        state = self._origins.table.get(origin)
        if state is not None and state.unreachable:
            self._stats.inc_value("rep/deferred/unreachable")
        self._log.would_hold(origin, self._why_held(origin))
        self._held(request, origin)

    def page_says(
        self, request: Request, origin: Origin | None, verdict: str, reason: str, *, obeyed: bool
    ) -> None:
        """A page's rules are against *request*, or against the items of the page it fetched."""
        self._stats.inc_value(f"rep/page/{verdict}")
        if obeyed:
            self._stats.inc_value("rep/page/dropped")
        self.record(request, origin, verdict, reason=reason, dry_run=not obeyed)

    def _released(self, request: Request, origin: Origin, held_for: float) -> None:
        self.record(request, origin, "released", held_for=round(held_for, 3))

    def _given_up(
        self,
        request: Request,
        origin: Origin,
        reason: str,
        attempts: int,
        held_for: float | None = None,
    ) -> None:
        error = RobotsUnreachable(origin, reason, attempts)
        self._refused(request, error, dry_run=False)
        self._count_reason(error)
        held_for = held_for and round(held_for, 3)
        self.record(request, origin, "given_up", reason=reason, held_for=held_for)

    def _held(self, request: Request, origin: Origin) -> None:
        self.record(request, origin, "held", reason=self._why_held(origin))

    def _why_held(self, origin: Origin) -> str:
        state = self._origins.table.get(origin)
        return (state.entry.error if state else None) or UNKNOWN_YET

    def _count_reason(self, error: RobotsUnreachable) -> None:
        """Count a failed robots.txt in Scrapy's stats as the page's own failure."""
        name = error.reason.partition(":")[0]
        if not self.dry_run and name in DOWNLOAD_ERRORS:
            self._stats.inc_value(f"downloader/exception_type_count/scrapy.exceptions.{name}")

    def _refused(self, request: Request, error: Exception, *, dry_run: bool) -> None:
        with self._isolated(_STARTS):
            self._starts.refused(request, error, dry_run=dry_run)

    def _allowed_so_far(self, state: OriginState) -> None:
        """Record how many requests to an origin have passed since the last such record."""
        count, state.allowed = state.allowed, 0
        if count:
            self._tell(ALLOWED_COUNT, None, state.name, count=count)

    def record(
        self,
        request: Request,
        origin: Origin | None,
        verdict: str,
        basis: Basis = Basis(),  # noqa: B008 (immutable)
        **more: Any,
    ) -> None:
        """Record a decision about *request*.

        :param more: fields of the record, of any JSON type
        """
        agent = _names(self._origins.agents.chain_of(request))
        more = {"agent": agent, "dry_run": self.dry_run, **more}
        self._tell(verdict, request.url, origin, basis, **more)

    def _tell(
        self,
        verdict: str,
        url: str | None = None,
        origin: Origin | str | None = None,
        basis: Basis = Basis(),  # noqa: B008 (immutable)
        **more: Any,
    ) -> None:
        at = self._context.clock()
        self._context.channel.tell(Record(verdict, at, (url, origin), basis, **more))

    # The crawl's beginning and end

    def _opened(self) -> None:
        context, agents = self._context, self._origins.agents
        if not is_interactive(context.crawler):
            log_beginning(context, agents)
        if self.dry_run:
            self._stats.set_value("rep/dry_run", True)
            self._log.begin()
        settings = {
            "spider": context.spider.name if context.spider else "",
            "agent": agents_in_words(agents),
            "version": scrapy_rep.__version__,
            "scrapy": scrapy.__version__,
            "changed": changed_values(context.crawler.settings),
        }
        self._tell(STARTED, dry_run=self.dry_run, settings=settings)

    async def _closed(self, reason: str) -> None:
        for state in self._origins.table.states():
            self._allowed_so_far(state)
        with self._isolated("summary"):
            counts = self._counts.all(self._stats)
            counts["start_requests"] = self._starts.fields()
            self._tell(ENDED, reason=reason, dry_run=self.dry_run, counts=counts)
            log_summary(self._counts, self._context)
        if reason == "finished":  # otherwise, some may not have been tried
            with self._isolated(_STARTS):
                self._starts.warn()
        if self._trail is not None:
            with self._isolated(self._trail.part):
                await self._trail.end()
        if self._report is not None:
            with self._isolated(self._report.part):
                await self._report.write()


def _names(chain: tuple[str, ...]) -> str | None:
    return ",".join(chain) or None
