"""What the log says of a crawl's start: whether robots.txt is obeyed, and how; and at the end, if it refused every
start request."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import signals

from scrapy_rep.engine.access import Listener
from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import clean, counted, duration
from scrapy_rep.settings import SPIDER_SITEMAPS, changed

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.requests import Agents

logger = get_logger(__name__)

# Set by Scrapy's StartSpiderMiddleware.
_START = "is_start_request"


class StartRequests:
    """Warns if robots.txt refused every start request: the spider would seem broken."""

    def __init__(self, context: CrawlContext, agents: Agents) -> None:
        self._context = context
        self._agents = agents
        self._refused = 0
        self._first: dict[str, str] | None = None
        self._dry: WeakSet[Request] = WeakSet()
        self._passed = False
        told = (signals.request_reached_downloader, signals.response_received)
        self._listener = Listener(context.crawler, dict.fromkeys(told, self._got_through))
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
        refused = "refused"
        outcome = "If the crawl found nothing, that is why; your spider may be fine."
        if self._context.settings.dry_run:
            refused, outcome = "would have refused", "A crawl that obeys it may find nothing."
        logger.warning(
            f"robots.txt {refused} every start request (%(count)d). {outcome} The first was "
            "%(url)s: %(why)s. For details: %(command)s",
            {"count": self._refused, **self._first},
            extra=self._context.extra,
        )


_STORAGES = {"MemoryStorage": "memory", "SqliteStorage": "SQLite", "RedisStorage": "Redis"}


def log_beginning(context: CrawlContext, agents: Agents) -> None:
    """Log that robots.txt is obeyed."""
    settings = context.settings
    unreachable = {
        "defer": f"held for up to {duration(settings.defer_max_wait)}",
        "drop": "dropped",
        "allow": "let through",
    }
    storage = settings.cache_storage
    name = storage if isinstance(storage, str) else f"{storage.__module__}.{storage.__qualname__}"
    module, _, short = name.rpartition(".")
    logger.info(
        "Obeying robots.txt as %(agent)s. While it is unreachable, requests are %(unreachable)s. "
        "Cache: %(storage)s",
        {
            "agent": in_words(agents),
            "unreachable": unreachable[settings.unreachable],
            "storage": _STORAGES.get(short, name) if module.startswith("scrapy_rep.") else name,
        },
        extra=context.extra,
    )


def in_words(agents: Agents) -> str:
    """Return what the crawler goes by."""
    return " or ".join(agents.default) or "any crawler (*)"


def log_switched_off(crawler: Crawler) -> None:
    """Log that ``ROBOTSTXT_OBEY`` is off, and what is set for nothing."""
    extra = {"spider": crawler.spider}
    logger.info("Not obeying robots.txt: ROBOTSTXT_OBEY is False", extra=extra)
    names = changed(crawler.settings)
    if getattr(crawler.spider, SPIDER_SITEMAPS, None):
        names.append(f"the spider's {SPIDER_SITEMAPS}")
    if names:
        what = f"{counted(len(names), 'setting')} {'has' if len(names) == 1 else 'have'}"
        logger.warning(
            "Without ROBOTSTXT_OBEY, %(what)s no effect: %(names)s",
            {"what": what, "names": ", ".join(names)},
            extra=extra,
        )
