"""``ADDONS = {"scrapy_rep.Addon": 300}``: the one line that switches everything on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.utils.misc import load_object

from scrapy_rep.middleware import RepMiddleware
from scrapy_rep.settings import set_defaults

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"
POSITION = 100
"""Where Scrapy has its own: after the offsite filter, before everything that changes requests."""


class Addon:
    """Puts :class:`~scrapy_rep.RepMiddleware` in the place of Scrapy's RobotsTxtMiddleware."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy calls this before the crawl. What the project sets itself stays."""
        set_defaults(settings)
        # Priority "addon" is below "project": ROBOTSTXT_OBEY = False in a project wins.
        settings.set("ROBOTSTXT_OBEY", True, "addon")
        listed = {load_object(name): at for name, at in settings.getdict(MIDDLEWARES).items()}
        position = listed.get(RobotsTxtMiddleware)
        if not any(_is_ours(kind) for kind, at in listed.items() if at is not None):
            settings.setdefault_in_component_priority_dict(
                MIDDLEWARES, RepMiddleware, POSITION if position is None else position
            )
        # Taking it out of the list is not enough: Scrapy's own list has it too.
        settings.set_in_component_priority_dict(MIDDLEWARES, RobotsTxtMiddleware, None)


def _is_ours(kind: object) -> bool:
    """Whether the project has listed our middleware, or a subclass of it."""
    return isinstance(kind, type) and issubclass(kind, RepMiddleware)
