"""What the log says when a crawl begins: whether robots.txt is obeyed, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_rep.engine.log import get_logger
from scrapy_rep.engine.text import counted, duration
from scrapy_rep.settings import SPIDER_SITEMAPS, changed

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.origins.context import CrawlContext
    from scrapy_rep.origins.requests import Agents

logger = get_logger(__name__)

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
