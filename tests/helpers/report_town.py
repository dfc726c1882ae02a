"""A crawl that has a bit of everything, and what its report has to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.behaviours import in_turn
from tests.helpers.crawling import CrawlResult, crawl
from tests.helpers.held import DEFER
from tests.helpers.servers import Site, Sites

RULES = "User-agent: *\nDisallow: /private\nDisallow: /search\nSitemap: /map.xml\n"


class ReportTown:
    """Sites with rules, without a robots.txt, away for a while, and down."""

    def __init__(self, sites: Sites) -> None:
        self.rules: Site = sites.add(robots=RULES)
        self.other = sites.add(robots="User-agent: testbot\nDisallow: /*?session=\n")
        self.missing = sites.add(robots=404)
        self.away = sites.add(robots=in_turn(503, 503, 503, RULES))
        self.down = sites.refused()

    @property
    def urls(self) -> list[str]:
        rules, other, away = self.rules, self.other, self.away
        return [
            *(rules.url(f"/private/{number}") for number in range(12)),
            *(rules.url(f"/search?q={number}") for number in range(9)),
            *(rules.url(f"/{number}") for number in range(10)),
            *(other.url(f"/?session={number}") for number in range(10)),
            *(self.missing.url(f"/{number}") for number in range(5)),
            *(away.url(f"/{number}") for number in range(30)),
            *(away.url(f"/private/{number}") for number in range(3)),
            *(f"{self.down}/{number}" for number in range(4)),
        ]

    async def crawl(self, report: Path, **settings: Any) -> CrawlResult:
        return await crawl(self.urls, {**DEFER, "REP_REPORT": str(report), **settings})
