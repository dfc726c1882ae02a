"""How a crawl begins: whether a person waits for it (``scrapy shell``, ``fetch``, ``view``, ``parse`` and
``check``), and what ends it at once. A wrong setting does, before anything is fetched, with one
sentence in the log and no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_rep.engine.log import get_logger

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

logger = get_logger(__name__)

REASON = "rep_settings_error"
"""The crawl's ``finish_reason``."""

# Seconds between checks whether the engine runs.
_START_SECONDS = 0.01


# A person waits there, so nothing is held, and no sitemaps are crawled. `scrapy robots`: nothing is
# crawled at all.
_COMMANDS = ("scrapy.commands.", "scrapy_rep.commands.")


def in_shell(crawler: Crawler) -> bool:
    """Whether this is ``scrapy shell``, which makes the engine before the spider. Only to be asked
    while middlewares are made."""
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether this is one of these commands, which put their own start() into the spider's class."""
    start = getattr(crawler.spidercls, "start", None)
    return in_shell(crawler) or getattr(start, "__module__", "").startswith(_COMMANDS)


class StopAtStart:
    """Replaces the middleware and refuses everything until the crawl ends."""

    def __init__(self, crawler: Crawler, message: str) -> None:
        self._crawler = crawler
        self._message = message
        crawler.signals.connect(self._engine_started, signals.engine_started)
        crawler.signals.connect(self._engine_stopped, signals.engine_stopped)

    def process_request(self, request: Request) -> None:
        """Refuse it."""
        raise IgnoreRequest(self._message)

    def _engine_started(self, **_: Any) -> None:
        logger.error(
            "%(message)s The crawl ends.",
            {"message": self._message},
            extra={"spider": self._crawler.spider},
        )
        # Nothing leaves the scheduler meanwhile: with a JOBDIR, requests wait for the next run.
        self._crawler.engine.pause()
        call_later(0, self._close)

    def _close(self) -> None:
        engine = self._crawler.engine
        if engine.spider is None:
            return  # something else closed it
        if engine.running:
            deferred_from_coro(engine.close_spider_async(reason=REASON))
        else:
            # Another handler of engine_started isn't done (Scrapy's remote control starts a server).
            # If the spider closed now, there would be no engine_stopped.
            call_later(_START_SECONDS, self._close)

    def _engine_stopped(self) -> None:
        # Without a spider, the crawl counts as failed to start: Scrapy's runners set
        # `bootstrap_failed`, and its commands exit with status 1. An exception does that too, but is
        # logged with its traceback.
        self._crawler.spider = None
