"""Several sites whose robots.txt are down, each in another way, until somebody mends them."""

from __future__ import annotations

from collections import Counter

from tests.helpers.behaviours import after, reset, silence
from tests.helpers.servers import Site, Sites

DOWN = (503, silence(), 503, reset())
UP = "User-agent: *\nDisallow: /private\n"

PAGE_SECONDS = 0.02


class Town:
    """Sites, and what they were asked for."""

    def __init__(self, sites: Sites, *, page_seconds: float = PAGE_SECONDS) -> None:
        self.sites: list[Site] = [sites.add() for _ in DOWN]
        self.page_seconds = page_seconds
        self.down()

    def down(self) -> None:
        for site, behaviour in zip(self.sites, DOWN, strict=True):
            site.set("/robots.txt", behaviour)

    def up(self) -> None:
        for site in self.sites:
            site.set("/robots.txt", UP)

    def pages(self, count: int, name: str = "page") -> list[str]:
        """The URLs of pages, an equal share at each site, by turns. The pages are made anew."""
        urls = []
        for number in range(count):
            site = self.sites[number % len(self.sites)]
            path = f"/{name}-{number}"
            site.set(path, after(self.page_seconds, f"this is {path}"))
            urls.append(site.url(path))
        return urls

    @property
    def asked(self) -> Counter[str]:
        """How often each page was asked for."""
        return Counter(site.url(target) for site in self.sites for target in site.pages_asked)
