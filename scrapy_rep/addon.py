"""``ADDONS = {"scrapy_rep.Addon": 300}`` switches everything on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from scrapy_rep.engine.log import get_logger
from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.pages import PageMiddleware
from scrapy_rep.settings import DEFAULTS, USAGE_FIELDS, setting_name

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = get_logger(__name__)

MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
QUEUE = "SCHEDULER_PRIORITY_QUEUE"
POSITION = 100
"""The position of Scrapy's own: after the offsite filter, before all that changes requests."""

PAGES_POSITION = 950
"""Next to the spider: what is dropped there, other middlewares don't count."""


class Addon:
    """Replaces Scrapy's RobotsTxtMiddleware with :class:`~scrapy_rep.RepMiddleware` and Scrapy's default
    priority queue with :class:`~scrapy_rep.BroadPriorityQueue`. Adds
    :class:`~scrapy_rep.PageMiddleware`, and the middlewares for usage preferences only if a setting
    needs them."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change *settings* before the crawl. What the project sets itself stays."""
        settings.setdict(DEFAULTS, "default")
        add = settings.setdefault_in_component_priority_dict
        # Priority "addon" is below "project": ROBOTSTXT_OBEY = False in a project wins.
        settings.set("ROBOTSTXT_OBEY", True, "addon")
        named = settings.getdict(MIDDLEWARES).items()
        listed = {load_object(name): at for name, at in named if at is not None}
        kinds = [kind for kind in listed if isinstance(kind, type)]
        ours = [listed[kind] for kind in kinds if issubclass(kind, RepMiddleware)]
        subclasses = [kind for kind in kinds if issubclass(kind, RobotsTxtMiddleware)]
        subclasses = [kind for kind in subclasses if kind is not RobotsTxtMiddleware]
        scrapys = [
            listed[kind]
            for kind in (*subclasses, RobotsTxtMiddleware)
            if kind in listed
        ]
        position = [*ours, *scrapys, POSITION][0]
        if not ours:
            add(MIDDLEWARES, RepMiddleware, position)
        # Removing it is not enough: Scrapy's default list has it too.
        settings.set_in_component_priority_dict(MIDDLEWARES, RobotsTxtMiddleware, None)
        for kind in subclasses:
            settings.set_in_component_priority_dict(MIDDLEWARES, kind, None)
            if settings.getbool("ROBOTSTXT_OBEY"):
                _say_replaced(kind)
        add("SPIDER_MIDDLEWARES", PageMiddleware, PAGES_POSITION)
        # Waiting for robots.txt makes more hosts wait at once than Scrapy's default queue is made
        # for. What somebody has chosen stays, and so would a future default of Scrapy's.
        is_default = settings.getpriority(QUEUE) == SETTINGS_PRIORITIES["default"]
        is_scrapys = (
            is_default and load_object(settings[QUEUE]) is DownloaderAwarePriorityQueue
        )
        if is_scrapys and settings.getbool("ROBOTSTXT_OBEY"):
            settings.set(QUEUE, "scrapy_rep.BroadPriorityQueue", "addon")
        if any(settings.get(setting_name(name)) for name in USAGE_FIELDS):
            from scrapy_rep.preferences.middlewares import (
                UsageItemMiddleware,
                UsageMiddleware,
            )

            # Right after ours, when the origin's robots.txt is known.
            add(MIDDLEWARES, UsageMiddleware, position + 1)
            add("SPIDER_MIDDLEWARES", UsageItemMiddleware, PAGES_POSITION)


def _say_replaced(kind: type) -> None:
    logger.warning(
        "DOWNLOADER_MIDDLEWARES: scrapy_rep.RepMiddleware takes the place of %(name)s, a subclass of "
        "Scrapy's RobotsTxtMiddleware, which is not used. Subclass scrapy_rep.RepMiddleware instead.",
        {"name": global_object_name(kind)},
    )
