"""What the log says about decisions. The fields of ``REP_DECISIONS`` are in
:mod:`scrapy_rep.reporting.audit_trail`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals as scrapy_signals

from scrapy_rep.engine.interactive import is_interactive
from scrapy_rep.engine.listener import Listener
from scrapy_rep.engine.log import Limiter, get_logger
from scrapy_rep.engine.recent import Recent
from scrapy_rep.engine.words import clean

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
    from scrapy_rep.origins.agents import Agents
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)

# Set by Scrapy's StartSpiderMiddleware.
_START = "is_start_request"


class DecisionLog:
    """Logs the first refusal of each origin at INFO level, all others at DEBUG level."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._dry_run = context.settings.dry_run
        self._interactive = is_interactive(context.crawler)
        self._told = Recent()
        self._forbids = Limiter(logger, "origins whose robots.txt forbids requests")
        self._drops = Limiter(logger, "origins whose requests are dropped")
        self._holds = Limiter(logger, "origins whose requests would be held")

    def begin(self) -> None:
        """Warn of a dry run."""
        if self._dry_run:
            logger.warning(
                "REP_DRY_RUN is on: robots.txt is fetched and decisions are recorded, but no "
                "request is dropped or held.",
                extra=self._context.extra,
            )

    def forbidden(self, request: Request, error: RobotsDisallowed) -> None:
        """Log that robots.txt forbids *request*."""
        _, rule, group = error.decision
        if self._told.add(error.origin) and rule is not None:
            message = (
                "robots.txt of %(origin)s forbids %(url)s (line %(line)d: %(rule)s, group "
                "%(group)s); more for this origin at DEBUG level"
            )
            where = {"origin": error.origin, "url": request.url}
            values = {**where, "line": rule.line, "rule": rule, "group": group}
            self._forbids.log(message, values, self._context.spider)
            if not self._dry_run:
                return
        self._log_each(request, error, "")

    def unreachable(self, request: Request, error: RobotsUnreachable, *, direct: bool) -> None:
        """Log that *request* is dropped because robots.txt can't be fetched.

        :param direct: a direct download: Scrapy doesn't log that its item goes on without it
        """
        values = {"origin": error.origin, "url": request.url, "error": error}
        extra = self._context.extra
        if error.origin is None:
            pass
        elif self._interactive and not self._dry_run:
            logger.error(
                "Not fetching %(url)s: %(error)s. This command tries robots.txt only once; to "
                "fetch the page anyway, add -s REP_UNREACHABLE=allow",
                values,
                extra=extra,
            )
        elif not direct and self._told.add(error.origin):
            dropping = "Would drop" if self._dry_run else "Dropping"
            message = f"{dropping} requests to %(origin)s: %(error)s"
            self._drops.log(message, values, self._context.spider)
        if direct:
            logger.warning("Not downloading %(url)s: %(error)s", values, extra=extra)
        else:
            self._log_each(request, error, "Dropped: ")

    def would_hold(self, origin: Origin, why: str) -> None:
        """Log that a dry run would hold requests of *origin*."""
        if self._told.add(origin):
            message = (
                "Would hold requests to %(origin)s until its robots.txt can be fetched (%(why)s)"
            )
            self._holds.log(message, {"origin": origin, "why": why}, self._context.spider)

    def _log_each(self, request: Request, error: Exception, prefix: str) -> None:
        prefix = "Dry run, not dropped: " if self._dry_run else prefix
        values = {"error": error, "request": request}
        logger.debug(f"{prefix}%(error)s: %(request)s", values, extra=self._context.extra)


class StartRequests:
    """Warns if robots.txt refused every start request: the spider would seem broken."""

    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused = 0
        self._first: dict[str, str] | None = None
        self._dry: WeakSet[Request] = WeakSet()
        self._passed = False
        signals = (scrapy_signals.request_reached_downloader, scrapy_signals.response_received)
        self._listener = Listener(context.crawler, dict.fromkeys(signals, self._got_through))
        self._listener.begin()

    def refused(self, request: Request, error: Exception, *, dry_run: bool) -> None:
        """*request* was dropped, or a dry run lets it pass."""
        if request.meta.get(_START):
            self._refused += 1
            if self._first is None:
                # As --agent takes it. With no token, the rules for all apply.
                agent = ",".join(self._agents.chain_of(request)) or "*"
                url, why = clean(request.url), str(error).rstrip(".")
                command = f"scrapy robots --explain --agent {shlex.quote(agent)} {shlex.quote(url)}"
                self._first = {"url": url, "why": why, "command": command}
            if dry_run:
                self._dry.add(request)

    def _got_through(self, request: Request, **_: Any) -> None:
        if request.meta.get(_START) and request not in self._dry:
            self._passed = True
            self._listener.end()

    def fields(self) -> dict[str, Any]:
        """Return what is on record about them."""
        return {"refused": self._refused, "passed": self._passed, **(self._first or {})}

    def warn(self) -> None:
        """Tell the user if no start request got through."""
        if self._passed or self._first is None:
            return
        if self._context.settings.dry_run:
            refused, outcome = "would have refused", "A crawl that obeys it may find nothing."
        else:
            refused = "refused"
            outcome = "If the crawl found nothing, that is why; your spider may be fine."
        logger.warning(
            f"robots.txt {refused} every start request (%(count)d). {outcome} The first was "
            "%(url)s: %(why)s. For details: %(command)s",
            {"count": self._refused, **self._first},
            extra=self._context.extra,
        )
