"""``ADDONS = {"scrapy_rep.Addon": 300}``: the one line that switches everything on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware

from scrapy_rep.middleware import RepMiddleware

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

MIDDLEWARES = "DOWNLOADER_MIDDLEWARES"


class Addon:
    """Puts :class:`~scrapy_rep.RepMiddleware` in the place of Scrapy's RobotsTxtMiddleware."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy calls this before the crawl. What the project sets itself stays."""
        # Priority "addon" is below "project": ROBOTSTXT_OBEY = False in a project wins.
        settings.set("ROBOTSTXT_OBEY", True, "addon")
        try:
            settings.replace_in_component_priority_dict(
                MIDDLEWARES, RobotsTxtMiddleware, RepMiddleware
            )
        except KeyError:
            # The usual case: the built-in is in Scrapy's DOWNLOADER_MIDDLEWARES_BASE only.
            settings.setdefault_in_component_priority_dict(MIDDLEWARES, RobotsTxtMiddleware, None)
            settings.setdefault_in_component_priority_dict(MIDDLEWARES, RepMiddleware, 100)
