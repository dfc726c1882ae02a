"""A site whose pages are listed in sitemaps, and crawls of it in processes of their own."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

from tests.helpers.behaviours import after, answer
from tests.helpers.pages_spider import PAGE_AS_EVER
from tests.helpers.process import Crawl
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import index, urlset


class Listed:
    """An index of sitemaps. Scrapy calls back 0.1 s after a response: others come meanwhile."""

    SETTINGS = {"REP_SITEMAPS": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}

    def __init__(
        self,
        sites: Sites,
        seconds: float = 0.04,
        *,
        robots_seconds: float = 0,
        count: int = 60,
    ) -> None:
        """:param count: pages of each of the four sitemaps"""
        self.site = site = sites.add()
        self.wanted: list[str] = []
        maps = [site.url(f"/{number}.xml") for number in range(4)]
        robots = f"Sitemap: {site.url('/index.xml')}\nCrawl-delay: 0\n"
        site.set("/robots.txt", after(robots_seconds, robots))
        site.set("/index.xml", index(maps))
        for number in range(4):
            paths = [f"/page/{number}/{page}" for page in range(count)]
            listed = self.wanted[-5:] + [site.url(path) for path in paths]
            self.wanted += listed[-count:]
            for path in paths:
                site.set(path, after(seconds, f"page {path}"))
            site.set(f"/{number}.xml", answer(gzip.compress(urlset(listed).encode())))

    @property
    def asked(self) -> Counter[str]:
        hits = list(self.site.requests)
        return Counter(
            self.site.url(one.target) for one in hits if one.path.startswith("/page")
        )

    def start(
        self, folder: Path, ends: str = "", reactor: str = "asyncio", **settings: Any
    ) -> Crawl:
        settings = {**self.SETTINGS, "JOBDIR": folder / "job", **settings}
        urls = [self.site.url("/start")]
        return Crawl(folder, urls, settings, ends=ends, reactor=reactor, seeded="yes")

    def check(self, runs: list[Crawl]) -> None:
        """Nothing is missing; twice were asked for only the pages that a killed run was not done with."""
        asked = self.asked
        got = {url for run in runs for url in run.urls("page")}
        assert set(self.wanted) - set(asked) == set()
        assert set(self.wanted) - got == set()
        again = asked.total() - len(asked)
        most = sum(self._not_done(run) for run in runs if run.reason is None)
        assert again <= most, f"{again} pages were asked for again, {most} may be"
        for run in runs:
            run.assert_clean()
            assert {event.detail for event in run.of("page")} <= {PAGE_AS_EVER}

    def _not_done(self, killed: Crawl) -> int:
        """On their way, or not deleted yet: twenty at a time."""
        return len(killed.of("reached")) - len(killed.of("page")) + 3 * 20
