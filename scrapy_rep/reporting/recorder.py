"""Records decisions: in the log, in the audit trail, and as figures for the summary and the report.

Plain allows are recorded only with ``REP_DECISIONS_ALL``: most requests are, and must cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals as scrapy_signals
from twisted.internet.defer import CancelledError

from scrapy_rep import signals
from scrapy_rep.engine.log import Isolation
from scrapy_rep.engine.startup import is_interactive
from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
from scrapy_rep.origins.answer import DOWNLOAD_ERRORS
from scrapy_rep.origins.flights import ResolutionListener
from scrapy_rep.protocol.availability import Outcome
from scrapy_rep.reporting.audit_trail import AuditTrail
from scrapy_rep.reporting.beginning import log_beginning
from scrapy_rep.reporting.decision_log import DecisionLog, StartRequests
from scrapy_rep.reporting.ledger import ASKED, Ledger
from scrapy_rep.reporting.report import Report
from scrapy_rep.reporting.summary import Figures, log_summary

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.flights import Resolution
    from scrapy_rep.origins.origins import Origins
    from scrapy_rep.origins.state import OriginState
    from scrapy_rep.protocol import Decision, Origin

# Parts that fail independently, as the log calls them.
_LEDGER, _TRAIL, _STARTS = "ledger", "audit trail (REP_DECISIONS)", "watch of start requests"


class Recorder(ResolutionListener):
    """Records each decision other than a plain allow. Called by the gate and the resolver."""

    part = "record of decisions"

    def __init__(self, context: CrawlContext, origins: Origins) -> None:
        """:raises SettingsError: if ``REP_DECISIONS`` or ``REP_REPORT`` can't be written"""
        self._context = context
        self._stats = context.stats
        self._origins = origins
        settings, agents = context.settings, origins.agents
        self.dry_run = settings.dry_run
        """Whether nothing is dropped or held."""
        uri = settings.decisions
        self._trail = AuditTrail(context, uri, agents) if uri else None
        self.everything = self._trail is not None and settings.decisions_all
        """Whether plain allows are recorded too."""
        self._report = Report.of(context)
        self._log = DecisionLog(context)
        self._isolated = Isolation(context.crawler)
        self._ledger = Ledger()
        self._figures = Figures(dry_run=self.dry_run)
        self._starts = StartRequests(context, agents)
        connect = context.crawler.signals.connect
        connect(self._opened, scrapy_signals.spider_opened)
        if not is_interactive(context.crawler):
            connect(self._begin, scrapy_signals.spider_opened)
        connect(self._closed, scrapy_signals.spider_closed)
        connect(self._deferred, signals.request_deferred)
        connect(self._released, signals.request_released)
        connect(self._given_up, signals.request_given_up)
        connect(self._sitemap, signals.sitemap_discovered)

    def _begin(self) -> None:
        log_beginning(self._context, self._origins.agents)

    async def resolved(self, resolution: Resolution) -> None:
        """A robots.txt was fetched, or found in the storage."""
        state, answer = resolution.state, resolution.answer
        entry = state.entry
        failed = entry.unreachable_since is not None
        delay = 0.0
        if self._context.settings.crawl_delay:
            chain = self._origins.agents.chain_of(resolution.request)
            delay = self._origins.crawl_delay.seconds(state, chain)
        with self._isolated(_LEDGER):
            self._ledger.answered(
                state.origin,
                Outcome.UNREACHABLE if failed else entry.outcome,
                asked=answer is not None,
                status=answer.status if answer is not None else entry.status,
                hops=answer.hops if answer is not None else entry.hops,
                error=entry.error if failed else None,
                attempts=entry.attempts,
                now=self._context.clock(),
                delay=delay,
            )

    def failed(self, origin: Origin, error: Exception) -> None:
        """A fetch that was broken off counts as one."""
        if isinstance(error, CancelledError):
            self._count(origin, ASKED)

    def allowed(
        self, request: Request, state: OriginState, decision: Decision | None = None
    ) -> None:
        """*request* passes: robots.txt allows it, or has been unreachable for 30 days."""
        self.record(request, state.origin, "allowed", state=state, decision=decision)

    def passed(self, request: Request, state: OriginState) -> None:
        """*request* passes without an answer: ``REP_UNREACHABLE`` is "allow"."""
        self._figures.passed += 1
        self._count(state.origin, "passed")
        reason = f"REP_UNREACHABLE is 'allow'; {state.entry.error}"
        self.record(request, state.origin, "allowed", state=state, reason=reason)

    def overruled(self, request: Request, state: OriginState, decision: Decision) -> None:
        """*request* passes though *decision* forbids it: a subclass says so."""
        details = {"decision": decision, "reason": "RepMiddleware.overrules()"}
        self.record(request, state.origin, "allowed", state=state, **details)

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
        origin = error.origin
        if isinstance(error, RobotsDisallowed):
            self._figures.forbidden += 1
            with self._isolated(_LEDGER):
                self._ledger.forbidden(error, request.url)
            self._log.forbidden(request, error)
            self.record(request, origin, "disallowed", state=state, decision=error.decision)
            return
        if origin is None:
            self._figures.without_origin += 1
        else:
            self._figures.dropped += 1
            self._count(origin, "dropped")
            self._count_reason(error)
        self._log.unreachable(request, error, direct=direct)
        self.record(request, origin, "unreachable", state=state, reason=error.reason)

    def waits(self) -> None:
        """A request that was looked at isn't decided yet, and will be looked at again."""
        self._figures.undecided += 1

    def would_be_held(self, request: Request, origin: Origin) -> None:
        """*request* passes, since this is a dry run. Otherwise, it would be held."""
        self.waits()
        self._stats.inc_value("rep/deferred")
        state = self._origins.table.get(origin)
        if state is not None and state.unreachable:
            self._stats.inc_value("rep/deferred/unreachable")
        self._log.would_hold(origin, self._why_held(origin))
        self._is_held(request, origin)

    def page_says(
        self, request: Request, origin: Origin | None, verdict: str, reason: str, *, obeyed: bool
    ) -> None:
        """A page's rules are against *request*, or against the items of the page it fetched."""
        self._stats.inc_value(f"rep/page/{verdict}")
        if obeyed:
            self._stats.inc_value("rep/page/dropped")
        self.record(request, origin, verdict, reason=reason, dry_run=not obeyed)

    def _deferred(self, request: Request, origin: Origin) -> None:
        self._change_held(1)
        self._is_held(request, origin)

    def _released(self, request: Request, origin: Origin) -> None:
        self._change_held(-1)
        self._count(origin, "released")
        self.record(request, origin, "released")

    def _given_up(self, request: Request, origin: Origin, reason: str, attempts: int) -> None:
        self._change_held(-1)
        error = RobotsUnreachable(origin, reason, attempts)
        self._refused(request, error, dry_run=False)
        self._count(origin, "given_up")
        self._count_reason(error)
        self.record(request, origin, "given_up", reason=reason)

    def _sitemap(self, origin: Origin) -> None:
        self._count(origin, "sitemaps")

    # Each part, isolated from the others

    def _is_held(self, request: Request, origin: Origin) -> None:
        self._count(origin, "held")
        self.record(request, origin, "held", reason=self._why_held(origin))

    def _why_held(self, origin: Origin) -> str:
        state = self._origins.table.get(origin)
        return (state.entry.error if state else None) or "no answer yet"

    def _change_held(self, change: int) -> None:
        if self._report is not None:
            with self._isolated("timeline"):
                self._report.count_held(change)

    def _count(self, origin: Origin, what: str) -> None:
        with self._isolated(_LEDGER):
            self._ledger.count(origin, what)

    def _count_reason(self, error: RobotsUnreachable) -> None:
        """Count a failed robots.txt in Scrapy's stats as the page's own failure."""
        name = error.reason.partition(":")[0]
        if not self.dry_run and name in DOWNLOAD_ERRORS:
            self._stats.inc_value(f"downloader/exception_type_count/scrapy.exceptions.{name}")

    def _refused(self, request: Request, error: Exception, *, dry_run: bool) -> None:
        with self._isolated(_STARTS):
            self._starts.refused(request, error, dry_run=dry_run)

    def record(self, request: Request, origin: Origin | None, verdict: str, **more: Any) -> None:
        """Write to the audit trail, see :meth:`AuditTrail.record`."""
        if self._trail is not None:
            with self._isolated(_TRAIL):
                self._trail.record(request, origin, verdict, **{"dry_run": self.dry_run, **more})

    # The crawl's beginning and end

    def _opened(self) -> None:
        self._figures.began = self._context.clock()
        if self.dry_run:
            self._stats.set_value("rep/dry_run", True)
        self._log.begin()

    async def _closed(self, reason: str) -> None:
        self._figures.ended = self._context.clock()
        with self._isolated(_LEDGER):
            self._ledger.flush()
        with self._isolated("summary"):
            log_summary(self._ledger, self._figures, self._context)
        if reason == "finished":  # otherwise, some may not have been tried
            with self._isolated(_STARTS):
                self._starts.warn()
        if self._trail is not None:
            with self._isolated(_TRAIL):
                await self._trail.close()
        if self._report is not None:
            with self._isolated("report"):
                await self._report.write(self._ledger, self._figures, reason)
        with self._isolated(_LEDGER):
            self._ledger.close()
