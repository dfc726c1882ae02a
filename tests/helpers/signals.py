"""Collectors of the package's own signals: give their `handlers` to `crawl()`."""

from __future__ import annotations

from typing import Any

from scrapy_rep import signals
from scrapy_rep.protocol import Origin


class Resolved:
    """Collects the signal `robots_resolved`."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def __call__(self, **kwargs: Any) -> None:
        self.all.append(kwargs)

    @property
    def handlers(self) -> dict[Any, Any]:
        return {signals.robots_resolved: self}

    def of(self, url: str) -> list[dict[str, Any]]:
        """Those for the origin of a URL."""
        return [one for one in self.all if one["origin"] == Origin.from_url(url)]


class Discovered:
    """Collects the signal `sitemap_discovered`."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def __call__(self, **kwargs: Any) -> None:
        self.all.append(kwargs)

    @property
    def urls(self) -> list[str]:
        return [one["url"] for one in self.all]

    @property
    def handlers(self) -> dict[Any, Any]:
        return {signals.sitemap_discovered: self}
