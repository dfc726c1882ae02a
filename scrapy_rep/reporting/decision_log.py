"""Log lines about decisions, written when :mod:`scrapy_rep.reporting.recorder` says so. The fields of
``REP_DECISIONS`` are in :mod:`scrapy_rep.reporting.audit_trail`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy_rep.engine.interactive import is_interactive
from scrapy_rep.engine.log import Sparse, get_logger
from scrapy_rep.engine.recent import Recent

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_rep.exceptions import RobotsDisallowed, RobotsUnreachable
    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.protocol import Origin

logger = get_logger(__name__)


class DecisionLog:
    """Logs the first refusal of each origin at INFO level, all others at DEBUG level."""

    def __init__(self, context: CrawlContext) -> None:
        self._context = context
        self._dry_run = context.settings.dry_run
        self._interactive = is_interactive(context.crawler)
        self._told = Recent()
        self._forbids = Sparse(logger, "origins whose robots.txt forbids requests")
        self._drops = Sparse(logger, "origins whose requests are dropped")
        self._holds = Sparse(logger, "origins whose requests would be held")

    def begin(self) -> None:
        """Warn of a dry run."""
        if self._dry_run:
            logger.warning(
                "REP_DRY_RUN is on: what robots.txt says is found out and recorded, but nothing is "
                "dropped or held.",
                extra=self._context.extra,
            )

    def forbidden(self, request: Request, error: RobotsDisallowed) -> None:
        """Log that robots.txt forbids *request*."""
        decision = error.decision
        if self._told.add(error.origin) and decision.rule is not None:
            self._first(
                self._forbids,
                "robots.txt of %(origin)s forbids %(url)s (line %(line)d: %(rule)s, group "
                "%(group)s); more of this origin at DEBUG level",
                origin=error.origin,
                url=request.url,
                line=decision.rule.line,
                rule=decision.rule,
                group=decision.agent,
            )
            if not self._dry_run:
                return
        prefix = "Dry run, not dropped: " if self._dry_run else ""
        self._log(logging.DEBUG, f"{prefix}%(error)s: %(request)s", error=error, request=request)

    def unreachable(self, request: Request, error: RobotsUnreachable, *, direct: bool) -> None:
        """Log that *request* is dropped because robots.txt can't be fetched.

        :param direct: a direct download: its item goes on without it, and Scrapy says nothing
        """
        if error.origin is None:
            pass
        elif self._interactive and not self._dry_run:
            self._log(
                logging.ERROR,
                "%(url)s is not fetched: %(error)s. This command asks once and holds nothing; to "
                "fetch the page all the same: -s REP_UNREACHABLE=allow",
                url=request.url,
                error=error,
            )
        elif not direct and self._told.add(error.origin):
            self._first(
                self._drops,
                "Requests of %(origin)s %(are)s dropped: %(error)s",
                origin=error.origin,
                are="would be" if self._dry_run else "are",
                error=error,
            )
        if direct:
            message = "%(url)s is not downloaded: %(error)s"
            self._log(logging.WARNING, message, url=request.url, error=error)
        else:
            dropped = "Dry run, not dropped" if self._dry_run else "Dropped"
            message = "%(dropped)s, %(error)s: %(request)s"
            self._log(logging.DEBUG, message, dropped=dropped, error=error, request=request)

    def would_hold(self, origin: Origin, why: str) -> None:
        """Log that a dry run would hold requests of *origin*."""
        if self._told.add(origin):
            self._first(
                self._holds,
                "Requests of %(origin)s would be held until its robots.txt can be had (%(why)s)",
                origin=origin,
                why=why,
            )

    def _first(self, sparse: Sparse, message: str, **values: Any) -> None:
        sparse.log(message, values, self._context.spider)

    def _log(self, level: int, message: str, **values: Any) -> None:
        logger.log(level, message, values, extra=self._context.extra)
