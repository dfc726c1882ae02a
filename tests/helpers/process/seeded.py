"""Sites whose pages are found through their sitemaps, for crawls in processes of their own."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import scrapy

from tests.helpers.behaviours import after, answer
from tests.helpers.process import HERE, Crawl
from tests.helpers.process.recorder import PAGE_AS_EVER
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import index, urlset

SPIDER = HERE / "seeded_spider.py"


OLD = scrapy.version_info < (2, 18)
MAPS = 4
COUNT = 60
"""Pages of each of them, unless a test needs fewer."""

# Scrapy hands a response to its callback 0.1 s after it came. Meanwhile come others: eight at a
# time, so with pages as slow as these it is twenty and more.
PAGE_SECONDS = 0.04

SETTINGS = {"REP_SITEMAPS": True, "CONCURRENT_REQUESTS_PER_DOMAIN": 8}


class Listed:
    """A site whose pages are listed in an index of sitemaps; some are listed twice."""

    def __init__(
        self,
        sites: Sites,
        seconds: float = PAGE_SECONDS,
        robots_seconds: float = 0,
        count: int = COUNT,
    ) -> None:
        self.site: Site = sites.add()
        self.wanted: list[str] = []
        site = self.site
        names = [f"/{number}.xml" for number in range(MAPS)]
        robots = f"Sitemap: {site.url('/index.xml')}\nCrawl-delay: 0\n"
        site.set("/robots.txt", after(robots_seconds, robots))
        site.set("/index.xml", index([site.url(name) for name in names]))
        for name in names:
            urls = [site.url(f"/page{name}/{n}") for n in range(count)]
            twice = self.wanted[-5:]
            self.wanted += urls
            for url in urls:
                site.set(url.removeprefix(site.url("")), after(seconds, f"page {url}"))
            site.set(name, answer(gzip.compress(urlset([*twice, *urls]).encode())))

    @property
    def asked(self) -> Counter[str]:
        """How often each page was asked for."""
        return Counter(
            self.site.url(hit.target)
            for hit in list(self.site.requests)
            if hit.path.startswith("/page")
        )

    def start(self, folder: Path, ends: str = "", reactor: str = "asyncio", **more: Any) -> Crawl:
        settings = {**SETTINGS, **more, "JOBDIR": folder / "job"}
        urls = [self.site.url("/start")]
        return Crawl(folder, urls, settings, spider=SPIDER, ends=ends, reactor=reactor)

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
        """At most so many pages: those on their way, and those whose rows were not deleted yet, twenty
        at a time. That they are done is known when their requests are gone: with older Scrapy, that is
        when garbage is collected."""
        on_their_way = len(killed.of("reached")) - len(killed.of("page"))
        return len(self.wanted) if OLD else on_their_way + 3 * 20
