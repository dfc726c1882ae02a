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
"""The usual position of RepMiddleware, which is Scrapy's for RobotsTxtMiddleware: after
the offsite filter, before all downloader middlewares that change requests."""

PAGES_POSITION = 950
"""The position of PageMiddleware among the spider middlewares: next to the spider, so
that the others don't count what it drops."""


class Addon:
    """Replaces Scrapy's RobotsTxtMiddleware with :class:`~scrapy_rep.RepMiddleware` and
    Scrapy's default priority queue with :class:`~scrapy_rep.BroadPriorityQueue`. Adds
    :class:`~scrapy_rep.PageMiddleware`, and the middlewares for usage preferences only
    if a setting needs them."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Change *settings* before the crawl. What the project sets itself stays."""
        settings.setdict(DEFAULTS, "default")
        # Priority "addon" is below "project": ROBOTSTXT_OBEY = False in a project wins.
        settings.set("ROBOTSTXT_OBEY", True, "addon")
        position = self._add_middleware(settings)
        # This method of Scrapy's adds a class, unless the project lists it.
        add = settings.setdefault_in_component_priority_dict
        add("SPIDER_MIDDLEWARES", PageMiddleware, PAGES_POSITION)
        if settings.getbool("ROBOTSTXT_OBEY") and _has_scrapys_queue(settings):
            settings.set(QUEUE, "scrapy_rep.BroadPriorityQueue", "addon")
        if any(settings.get(setting_name(name)) for name in USAGE_FIELDS):
            from scrapy_rep.preferences.middlewares import (
                UsageItemMiddleware,
                UsageMiddleware,
            )

            # Right after RepMiddleware, when the origin's robots.txt is known.
            add(MIDDLEWARES, UsageMiddleware, position + 1)
            add("SPIDER_MIDDLEWARES", UsageItemMiddleware, PAGES_POSITION)

    def _add_middleware(self, settings: BaseSettings) -> int:
        """Put RepMiddleware in the place of Scrapy's RobotsTxtMiddleware and of the
        project's subclasses of that. Return the position of RepMiddleware, or of the
        subclass of RepMiddleware that the project lists."""
        positions = _listed_middlewares(settings)
        our_classes = [each for each in positions if issubclass(each, RepMiddleware)]
        replaced_classes = [each for each in positions if _is_replaced(each)]
        position = POSITION
        # A position that the project has chosen counts: that of RepMiddleware, or else
        # that of the middleware whose place it takes.
        for listed_class in (*our_classes, *replaced_classes, RobotsTxtMiddleware):
            if listed_class in positions:
                position = positions[listed_class]
                break
        if not our_classes:
            settings.setdefault_in_component_priority_dict(
                MIDDLEWARES,
                RepMiddleware,
                position,
            )
        # None switches a middleware off. To remove RobotsTxtMiddleware from the
        # project's list is not enough: Scrapy's default list has it, too.
        set_position = settings.set_in_component_priority_dict
        set_position(MIDDLEWARES, RobotsTxtMiddleware, None)
        for replaced_class in replaced_classes:
            set_position(MIDDLEWARES, replaced_class, None)
            if settings.getbool("ROBOTSTXT_OBEY"):
                _warn_of_replaced(replaced_class)
        return position


def _listed_middlewares(settings: BaseSettings) -> dict[type, int]:
    """Return the positions of the downloader middlewares that the project lists, by
    their classes."""
    positions = {}
    for name, position in settings.getdict(MIDDLEWARES).items():
        if position is None:
            continue
        listed_class = load_object(name)
        if isinstance(listed_class, type):
            positions[listed_class] = position
    return positions


def _is_replaced(listed_class: type) -> bool:
    """Whether RepMiddleware takes the place of *listed_class*, the project's own
    subclass of Scrapy's."""
    if issubclass(listed_class, RepMiddleware):
        return False
    is_scrapys = listed_class is RobotsTxtMiddleware
    return issubclass(listed_class, RobotsTxtMiddleware) and not is_scrapys


def _has_scrapys_queue(settings: BaseSettings) -> bool:
    """Whether the priority queue is Scrapy's default, which is not made for the many
    hosts that wait for their robots.txt at the same time. A queue that the project has
    chosen stays, and so would another default of a future Scrapy."""
    if settings.getpriority(QUEUE) != SETTINGS_PRIORITIES["default"]:
        return False
    return load_object(settings[QUEUE]) is DownloaderAwarePriorityQueue


def _warn_of_replaced(replaced_class: type) -> None:
    """Warn that *replaced_class*, a middleware of the project's own, isn't used any
    more."""
    logger.warning(
        "DOWNLOADER_MIDDLEWARES: scrapy_rep.RepMiddleware takes the place of %(name)s, a subclass of "
        "Scrapy's RobotsTxtMiddleware, which is not used. Subclass scrapy_rep.RepMiddleware instead.",
        {"name": global_object_name(replaced_class)},
    )
