"""Scrapy's commands for trying things out: somebody waits for ``scrapy shell``, ``fetch``, ``view``,
``parse`` or ``check``, so nothing is held there, and no site is crawled by its sitemaps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_rep.settings import RepSettings

# These commands put a start() of their own into the spider's class.
_COMMANDS = "scrapy.commands."

# Seconds: longer than any fetch of a robots.txt takes.
_PATIENCE = 86400.0


def in_shell(crawler: Crawler) -> bool:
    """Whether *crawler* is that of ``scrapy shell``, where the engine is made before the spider.

    Only of use while middlewares are made.
    """
    return crawler.spider is None


def is_interactive(crawler: Crawler) -> bool:
    """Whether *crawler* is that of such a command."""
    start = getattr(crawler.spidercls, "start", None)
    return in_shell(crawler) or getattr(start, "__module__", "").startswith(_COMMANDS)


def one_attempt(settings: RepSettings) -> RepSettings:
    """Return *settings* with which an unreachable robots.txt is asked for once, and waited for."""
    return replace(
        settings,
        unreachable="drop" if settings.unreachable == "defer" else settings.unreachable,
        defer_grace=_PATIENCE,
    )
