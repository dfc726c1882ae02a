"""scrapy-rep: robots.txt for Scrapy, obeyed as Google's crawlers do.

Names are imported on first use: :mod:`scrapy_rep.protocol` works without Scrapy, and ``scrapy``
commands that don't crawl load nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_rep.addon import Addon
    from scrapy_rep.engine.pqueue import BroadPriorityQueue
    from scrapy_rep.middleware import RepMiddleware, may_fetch
    from scrapy_rep.pages import PageMiddleware, follow_links, page_rules
    from scrapy_rep.preferences.lookup import usage
    from scrapy_rep.preferences.middlewares import UsageItemMiddleware, UsageMiddleware
    from scrapy_rep.robotparser import RobotParser

# This list is written out, since mypy would take `list(_HOMES)` for an empty list.
# fmt: off
__all__ = [
    "Addon", "BroadPriorityQueue", "PageMiddleware", "RepMiddleware", "RobotParser",
    "UsageItemMiddleware", "UsageMiddleware", "follow_links", "may_fetch", "page_rules", "usage",
]
# fmt: on

__version__ = "0.1.0"

# In which module of this package each of these names is defined.
_HOMES = {
    "Addon": "addon",
    "BroadPriorityQueue": "engine.pqueue",
    "PageMiddleware": "pages",
    "RepMiddleware": "middleware",
    "RobotParser": "robotparser",
    "UsageItemMiddleware": "preferences.middlewares",
    "UsageMiddleware": "preferences.middlewares",
    "follow_links": "pages",
    "may_fetch": "middleware",
    "page_rules": "pages",
    "usage": "preferences.lookup",
}

if not TYPE_CHECKING:  # with this function, type checkers would take any name for right

    def __getattr__(name):
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
