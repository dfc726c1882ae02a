"""What a project's subclass of RepMiddleware can change (docs/api.md)."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_rep import RepMiddleware, may_fetch
from tests.helpers.behaviours import RULES
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import HOLD
from tests.helpers.log import summary
from tests.helpers.recorded import decisions
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import urlset

pytestmark = pytest.mark.usefixtures("in_time")


class Overruling(RepMiddleware):
    seen: list[str] = []

    def overrules(self, request: Request, decision: Any) -> bool:
        return "/private/licensed/" in request.url and decision.rule.line == 2

    def process_response(self, request: Request, response: Response) -> Response:
        self.seen.append(response.url)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self.seen.append(f"{request.url} {type(exception).__name__}")


class Waiting(RepMiddleware):
    outcomes: dict[str, Any] = {}

    async def process_request(self, request: Request) -> Request | None:  # type: ignore[override]
        if request.url.endswith("/unseen"):
            return None
        outcome: Any = super().process_request(request)
        outcome = await outcome if inspect.isawaitable(outcome) else outcome
        self.outcomes[request.url] = outcome
        return outcome


def enabled(middleware: type) -> dict[str, Any]:
    return {"DOWNLOADER_MIDDLEWARES": {middleware: 100}}


async def test_a_subclass_overrules_some_decisions(
    sites: Sites, tmp_path: Path
) -> None:
    Overruling.seen.clear()
    site = sites.add(pages={"/map.xml": urlset([])})
    site.set("/robots.txt", f"{RULES}Sitemap: {site.url('/map.xml')}\n")
    licensed, closed = site.url("/private/licensed/a"), site.url("/private/b")
    trail = tmp_path / "decisions.jsonl"

    class MayFetchSpider(ListSpider):
        async def parse(self, response: Any, **kwargs: Any) -> None:
            super().parse(response)
            self.may = [
                await may_fetch(self.crawler, url) for url in (licensed, closed)
            ]

    settings = {
        **enabled(Overruling),
        "REP_DECISIONS": str(trail),
        "REP_SITEMAPS": True,
    }
    result = await crawl(MayFetchSpider, settings, requests=[licensed, closed])
    assert result.responses == {licensed: 200}
    assert result.spider.may == [True, False]
    assert result.disallowed(closed)
    assert result.stat("robotstxt/forbidden") == 1
    assert site.count("/robots.txt") == 1  # the add-on does not add another one
    [told] = [line for line in decisions(trail) if line["url"] == licensed]
    assert (told["verdict"], told["line"]) == ("allowed", 2)
    assert told["reason"] == "RepMiddleware.overrules()"
    assert result.stat("rep/overruled") == 1
    assert summary(result)[1] == (
        "Requests: 1 allowed, 1 forbidden, 1 allowed by overrules() though forbidden"
    )
    expected = [f"{closed} RobotsDisallowed", licensed, site.url("/robots.txt")]
    assert sorted(Overruling.seen) == sorted(expected)
    assert site.count("/map.xml") == 1
    result.assert_clean()


async def test_process_request_of_a_subclass_may_be_a_coroutine(sites: Sites) -> None:
    Waiting.outcomes.clear()
    site, down = sites.add(robots=RULES), sites.add(robots=503)
    urls = [site.url(path) for path in ("/a", "/private", "/private/unseen")] + [
        down.url("/x")
    ]
    settings = {**HOLD, "REP_HOLD_MAX_WAIT": 0.2, **enabled(Waiting)}
    result = await crawl(urls, settings)
    assert set(result.responses) == {site.url("/a"), site.url("/private/unseen")}
    assert set(result.failures) == {site.url("/private"), down.url("/x")}
    assert Waiting.outcomes[site.url("/a")] is None
    assert (
        down.url("/x") not in Waiting.outcomes
    )  # it got there only when it was given up
    assert result.stat("rep/given_up") == 1
    result.assert_clean()
