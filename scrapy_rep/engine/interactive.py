"""``scrapy shell``, ``fetch``, ``view``, ``parse`` and ``check``: a person waits, so nothing is held
there, and no sitemaps are crawled. ``scrapy robots``: nothing is crawled at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

_COMMANDS = ("scrapy.commands.", "scrapy_rep.commands.")


def in_shell(crawler: Crawler) -> bool:
    """Whether this is ``scrapy shell``, which makes the engine before the spider. Only to be asked
    while middlewares are made."""
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether this is one of these commands, which put their own start() into the spider's class."""
    start = getattr(crawler.spidercls, "start", None)
    return in_shell(crawler) or getattr(start, "__module__", "").startswith(_COMMANDS)
