"""`scrapy_rep.usage(response)` in real crawls: every source, and what it rests on."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import HtmlResponse, Response

from scrapy_rep import usage
from scrapy_rep.preferences import PURPOSES, Usage
from tests.helpers.behaviours import Behaviour, answer
from tests.helpers.crawling import CrawlResult, ListSpider, crawl
from tests.helpers.servers import Site, Sites

ROBOTS = """\
License: https://example.com/license.xml
Content-Signal: ai-input=no
User-agent: *
Allow: /
Disallow: /private
Content-Usage: train-ai=n, search=y
Content-Usage: /open/ train-ai=y
Content-Signal: search=yes, ai-train=no

User-agent: Google-Extended
Disallow: /secret

User-agent: CCBot
Allow: /
"""


class UsageSpider(ListSpider):
    """Asks about the use of each page."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.usages: dict[str, Usage] = {}

    def parse(self, response: Response, **kwargs: Any) -> Any:
        super().parse(response)
        self.usages[response.url] = usage(response)
        assert usage(response) is self.usages[response.url]
        yield {"url": response.url}


def page(html: str = "<p>", *headers: tuple[str, str]) -> Behaviour:
    return answer(html, headers=list(headers), type="text/html")


async def usages(
    site: Site, *paths: str, **settings: Any
) -> tuple[CrawlResult, dict[str, dict[str, str]]]:
    """The crawl, and for each path the verdicts that are not None."""
    urls = [site.url(path) for path in paths]
    result = await crawl(UsageSpider, settings, requests=urls)
    result.assert_clean()
    found = {path: result.spider.usages[site.url(path)].verdicts for path in paths}  # type: ignore[attr-defined]
    return result, {
        path: {purpose: said for purpose, said in verdicts.items() if said is not None}
        for path, verdicts in found.items()
    }


@pytest.mark.scrapy_api
async def test_what_robots_txt_says_by_path(sites: Sites) -> None:
    site = sites.add(robots=ROBOTS)
    result, verdicts = await usages(site, "/", "/open/page")
    # Content-Usage of the longest path; signals of everybody and of the group. Any n wins.
    assert verdicts == {
        "/": {"train-ai": "n", "search": "y", "ai-input": "n"},
        "/open/page": {"train-ai": "n", "search": "y", "ai-input": "n"},
    }
    found = result.spider.usages[site.url("/open/page")]  # type: ignore[attr-defined]
    assert [str(one) for one in found.statements] == [
        "robots.txt, line 7: Content-Usage: /open/ train-ai=y",
        "robots.txt, line 2: Content-Signal: ai-input=no",
        "robots.txt, line 8: Content-Signal: search=yes, ai-train=no",
    ]
    assert found.licenses == ("https://example.com/license.xml",)
    assert found.robots_sha256 == hashlib.sha256(ROBOTS.encode()).hexdigest()
    now = datetime.now(timezone.utc)
    for time in (found.time, found.robots_fetched_at):
        assert time is not None
        assert 0 <= (now - time).total_seconds() < 60
    assert site.requests[0].path == "/robots.txt"
    assert len(site.requests) == 3  # the license is not fetched


async def test_policy_tokens_that_the_user_names(sites: Sites) -> None:
    robots = ROBOTS.replace("Content-", "X-")
    site = sites.add(robots=robots)
    tokens = {"Google-Extended": ["train-ai", "ai-input"], "CCBot": "train-ai", "NoBot": "search"}
    result, verdicts = await usages(site, "/secret", "/x", REP_USAGE_TOKENS=tokens)
    assert verdicts == {"/secret": {"train-ai": "n", "ai-input": "n"}, "/x": {"train-ai": "y"}}
    found = result.spider.usages[site.url("/secret")]  # type: ignore[attr-defined]
    assert [str(one) for one in found.statements] == [
        "robots.txt for Google-Extended, line 11: Disallow: /secret",
        "robots.txt for CCBot, line 14: Allow: /",
    ]


# The page, what it says, and where.
PAGES: dict[str, tuple[Behaviour, dict[str, str], list[str]]] = {
    "/usage": (
        page("<p>", ("Content-Usage", "train-ai=n"), ("Content-Usage", "search=y;x")),
        {"train-ai": "n", "search": "y"},
        ["header Content-Usage: train-ai=n, search=y;x"],
    ),
    "/tag": (
        page("<p>", ("X-Robots-Tag", "testbot: noimageai"), ("X-Robots-Tag", "all")),
        {"train-ai-images": "n"},
        ["X-Robots-Tag 1: noimageai"],
    ),
    "/meta": (
        page('\n<meta name="robots" content="noai">', ("X-Robots-Tag", "otherbot: noai")),
        {"train-ai": "n", "train-ai-images": "n"},
        ["meta robots, line 2: noai"],
    ),
    "/tdm": (
        page("<p>", ("TDM-Reservation", "1"), ("TDM-Policy", "https://a.example/p")),
        {"tdm": "n"},
        ["header tdm-reservation: 1"],
    ),
    "/html": (
        page('<meta name="tdm-reservation" content="0">', ("TDM-Reservation", "1")),
        {},
        ["meta tdm-reservation, line 1: 0"],
    ),
    "/link": (page("<p>", ("Link", "<l>;rel=license;type=application/rsl+xml")), {}, []),
}


async def test_headers_and_metas_of_a_page(sites: Sites) -> None:
    site = sites.add(pages={path: row[0] for path, row in PAGES.items()})
    result, verdicts = await usages(site, *PAGES)
    found = {path: result.spider.usages[site.url(path)] for path in PAGES}  # type: ignore[attr-defined]
    assert verdicts == {path: row[1] for path, row in PAGES.items()}
    statements = {path: [*map(str, one.statements)] for path, one in found.items()}
    assert statements == {path: row[2] for path, row in PAGES.items()}
    assert found["/tdm"].tdm_policy == "https://a.example/p"
    assert found["/link"].licenses == ("l",)
    assert found["/link"].robots_sha256 is None


async def test_a_request_has_the_group_of_its_agent(sites: Sites) -> None:
    """draft-ietf-aipref-attach-05: preferences apply to what can be crawled; signals in any case."""
    robots = (
        "User-agent: *\nContent-Usage: train-ai=n\nContent-Signal: ai-input=no\nDisallow: /private\n"
        "User-agent: shopbot\nContent-Usage: search=n"
    )
    site = sites.add(robots=robots)
    requests = [
        Request(site.url("/"), callback=None),
        Request(site.url("/named"), meta={"rep_user_agent": "ShopBot"}),
        Request(site.url("/sent"), headers={"User-Agent": "ShopBot/1.0"}),
        Request(site.url("/private"), meta={"dont_obey_robotstxt": True}),
    ]
    result = await crawl(UsageSpider, requests=requests)
    found = result.spider.usages  # type: ignore[attr-defined]
    said = [
        {purpose: word for purpose, word in found[one.url].verdicts.items() if word}
        for one in requests
    ]
    assert said == [
        {"train-ai": "n", "ai-input": "n"}, {"search": "n"}, {"search": "n"}, {"ai-input": "n"}
    ]  # fmt: skip


async def test_a_crawl_that_does_not_obey_sees_the_page_alone(sites: Sites) -> None:
    site = sites.add(robots=ROBOTS, pages={"/": page("<p>", ("X-Robots-Tag", "noai"))})
    settings = {"ROBOTSTXT_OBEY": False, "REP_USAGE": {"train-ai": "drop-items"}}
    result = await crawl(UsageSpider, settings, requests=[site.url("/")])
    result.assert_clean()
    found = result.spider.usages[site.url("/")]  # type: ignore[attr-defined]
    assert [one.source for one in found.statements] == ["X-Robots-Tag 1"]
    assert len(result.spider.items) == 1
    assert site.robots_fetches == 0


def test_a_response_without_a_crawl() -> None:
    response = HtmlResponse("http://a.example/", headers={"Content-Usage": "train-ai=n"}, body=b"")
    assert usage(response)["train-ai"] == "n"
    assert usage(HtmlResponse("http://a.example/")).verdicts == dict.fromkeys(PURPOSES)
    with pytest.raises(KeyError):
        usage(response)["ai-train"]
