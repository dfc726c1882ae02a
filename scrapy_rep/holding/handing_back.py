"""Returns requests to the scheduler: one that outlives the process, or that other processes share.

They go in by the documented ``enqueue_request()``, past the dupe filter, which has seen them, and
without a signal, which was sent. What they were like before is in their meta, for the process that
gets them next.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy.utils.job import job_dir

from scrapy_rep.engine.log import get_logger
from scrapy_rep.holding.serialization import is_serialisable

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from scrapy_rep.holding.held_origins import HeldOrigins
    from scrapy_rep.origins.context import CrawlContext

logger = get_logger(__name__)

HANDED_BACK = "_rep_held"
"""Meta key of a request while the scheduler has it again."""


class HandingBack:
    """Hands requests back, and restores those that come again."""

    def __init__(self, context: CrawlContext, held: HeldOrigins) -> None:
        self._context = context
        self._held = held
        self.on_handed_back: Callable[[Request], object] = lambda _: None
        """Called with each request that the scheduler has taken."""

    @property
    def _scheduler(self) -> Any:
        return self._context.engine.scheduler

    def keeps(self, request: Request) -> bool:
        """Whether the scheduler would keep *request* when the process ends."""
        engine = self._context.engine
        if engine.scheduler_is_foreign:
            return engine.scheduler_outlives
        spider, directory = self._context.spider, job_dir(self._context.crawler.settings)
        return bool(directory) and spider is not None and is_serialisable(request, spider)

    def one(self, request: Request, since: float | None) -> bool:
        """Hand back *request*, for which there is no room, behind all others of its priority. Return
        whether the scheduler took it: only one that other processes share, or that outlives this
        one."""
        if self._held.hold.durable or not self._context.engine.scheduler_outlives:
            return False
        return self.hand_back(request, self._held.now() if since is None else since, last=True)

    def hand_back(self, request: Request, since: float, *, last: bool = False) -> bool:
        """Give *request*, here since then, to the scheduler. Return whether that worked.

        :param last: lower its priority until it comes again
        """
        mark = {
            "dont_filter": request.dont_filter,
            "priority": request.priority,
            "since": time.time() - (self._held.now() - since),
        }
        request.meta[HANDED_BACK] = mark
        request.dont_filter = True
        request.priority -= last
        try:
            if self._scheduler.enqueue_request(request):
                self.on_handed_back(request)
                return True
            error: object = "refused"
        except Exception as raised:  # noqa: BLE001 (its server may be gone, its disk full)
            error = raised
        self.restore(request)
        logger.error(
            "Can't hand %(request)s back to the scheduler, so it fails: %(error)s",
            {"request": request, "error": error},
            extra=self._context.extra,
        )
        return False

    def restore(self, request: Request) -> float | None:
        """Make *request* what it was before. Return since when it has been held, in seconds of the
        crawl's running time; None if that isn't credible."""
        mark = request.meta.pop(HANDED_BACK)
        try:
            since = float(mark["since"])
            request.dont_filter = bool(mark["dont_filter"])
            request.priority = int(mark["priority"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # somebody else's, or damaged
        waited = time.time() - since
        return self._held.now() - waited if 0 <= waited < _MAX_WAITED else None


# Seconds: what is older comes from a clock that was wrong.
_MAX_WAITED = 365 * 86400.0
