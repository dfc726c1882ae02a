"""Scrapy's commands for trying things out: a person waits for ``scrapy shell``, ``fetch``, ``view``,
``parse`` or ``check``, so nothing is held there, and no site is crawled by its sitemaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

# These commands put a start() of their own into the spider's class.
_COMMANDS = "scrapy.commands."


def in_shell(crawler: Crawler) -> bool:
    """Whether *crawler* is that of ``scrapy shell``, where the engine is made before the spider.

    Only of use while middlewares are made.
    """
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether *crawler* is that of such a command."""
    start = getattr(crawler.spidercls, "start", None)
    return in_shell(crawler) or getattr(start, "__module__", "").startswith(_COMMANDS)
