"""Pages from sitemaps get what the spider would have given them; and none comes twice, or is lost without a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from tests.helpers.behaviours import page, redirect
from tests.helpers.crawling import ListSpider, crawl
from tests.helpers.held import assert_no_errors
from tests.helpers.log import lines
from tests.helpers.servers import Site, Sites
from tests.helpers.sitemaps import SeededSpider, index, lists, pages, seeded, urlset

ON = {"REP_SITEMAPS": True}


class Shop(CrawlSpider, ListSpider):
    """Its first rule looks at a place in the page, which a URL doesn't tell."""

    name = "shop"
    rules = (
        Rule(LinkExtractor(restrict_xpaths="//nav")),
        Rule(
            LinkExtractor(allow="/item/"),
            callback="parse_item",
            cb_kwargs={"kind": "item"},
            process_request="mark",
        ),
        Rule(LinkExtractor(allow="/list/")),
    )

    def __init__(self, requests: Any = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.urls = [*requests]
        self.found: list[tuple[str, str, str]] = []

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            yield Request(url)

    def parse_item(self, response: Response, kind: str) -> None:
        self.found.append((response.url, kind, response.meta["mark"]))

    def mark(self, request: Request, response: Response) -> Request | None:
        if request.url.endswith("/unwanted"):
            return None
        request.meta["mark"] = response.url.rpartition("/")[2]
        return request


def shop(sites: Sites) -> Site:
    """Its index links to a list, and that to two of its three items; the sitemap lists all."""
    site = lists(sites.add(), "/map.xml")
    items = [site.url(f"/item/{number}") for number in range(3)]
    site.set(
        "/map.xml", urlset([*items, site.url("/list/1"), site.url("/item/unwanted")])
    )
    site.set("/start", page("<a href='/list/1'>x</a>"))
    site.set("/list/1", page("<a href='/item/0'>x</a><a href='/item/1'>y</a>"))
    return site


async def test_rules_of_a_crawl_spider_apply_to_seeded_pages(sites: Sites) -> None:
    site = shop(sites)
    result = await crawl(Shop, ON, requests=[site.url("/start")])
    assert_no_errors(result)
    found = sorted(result.spider.found)  # type: ignore[attr-defined]
    assert [(url, kind) for url, kind, _ in found] == [
        (site.url(f"/item/{number}"), "item") for number in range(3)
    ]
    assert found[2][2] == "map.xml"
    assert site.count("/item/unwanted") == 0
    assert lines(result, level="WARNING") == []


async def test_sitemap_rules_go_before_those_of_a_crawl_spider(sites: Sites) -> None:
    site = shop(sites)

    class Own(Shop):
        sitemap_rules = [("/item/2", "parse_other")]
        others: list[str] = []

        def parse_other(self, response: Response) -> None:
            self.others.append(response.url)

    await crawl(Own, ON, requests=[site.url("/start")])
    assert Own.others == [site.url("/item/2")]


async def test_a_rule_that_raises_costs_its_pages(sites: Sites) -> None:
    """And is told once."""
    site = shop(sites)

    class BuggyShop(Shop):
        def mark(self, request: Request, response: Response) -> Request | None:
            raise ValueError("a bug")

    result = await crawl(BuggyShop, ON, requests=[site.url("/start")])
    [error] = lines(result, "process_request() raised an exception", level="ERROR")
    assert error.endswith("its page is skipped. Further ones are not logged.")
    assert result.reason == "finished"


class TwoCallbacks(SeededSpider):
    def parse(self, response: Response, **_: Any) -> Any:
        self.responses.append(response)
        if response.url.endswith("/start"):
            return None
        return Request(response.urljoin("/item"), self.other)


async def test_a_page_that_is_lost_for_a_callback_is_told(sites: Sites) -> None:
    """It was seeded with the default one, and the spider's own request is a duplicate."""
    site = lists(sites.add(), "/map.xml")
    site.set(
        "/map.xml",
        urlset([site.url("/item"), site.url("/list/1"), site.url("/list/2")]),
    )
    result = await seeded(site, spider=TwoCallbacks)
    [warning] = lines(result, "dropped as a duplicate", level="WARNING")
    assert warning.startswith(
        f"{site.url('/item')}, which a sitemap lists, was requested for"
    )
    assert "the callback other" in warning
    assert "sitemap_rules" in warning

    class WithRules(TwoCallbacks):
        sitemap_rules = [("/item", "other"), ("", "parse")]

    result = await seeded(site, spider=WithRules)
    assert lines(result, "dropped as a duplicate", level="WARNING") == []


async def test_a_start_page_that_the_sitemap_lists_comes_once(sites: Sites) -> None:
    """Scrapy doesn't filter start requests, nor remember them."""

    class Starts(SeededSpider):
        dont_filter = True

    site = lists(sites.add(), "/map.xml")
    starts = [site.url("/start"), site.url("/a")]
    site.set("/map.xml", urlset([*starts, site.url("/b")]))
    result = await crawl(Starts, ON, requests=starts)
    counts = Counter(response.url for response in result.spider.responses)
    assert counts == {site.url("/start"): 1, site.url("/a"): 1, site.url("/b"): 1}
    assert result.stat("rep/sitemaps/rejected/start") == 2


async def test_a_filter_knows_where_its_entries_are_from(sites: Sites) -> None:
    seen: list[tuple[str, str]] = []

    class Filtering(SeededSpider):
        def sitemap_filter(self, entries: Any) -> Any:
            seen.append((entries.type, entries.url))
            return entries

    site = lists(sites.add(), "/map.xml")
    site.set("/map.xml", urlset([site.url("/page")]))
    await seeded(site, spider=Filtering)
    assert {*seen} == {("urlset", site.url("/map.xml"))}


async def test_relative_links_of_a_feed(sites: Sites) -> None:
    """By the URL that the feed came from."""
    site = lists(sites.add(), "/old.xml")
    site.set("/blog/feed.xml", "<feed><entry><link href='post'/></entry></feed>")
    site.set("/old.xml", redirect("/blog/feed.xml"))
    assert pages(await seeded(site)) == [site.url("/blog/post")]


NO_SEEDS = "REP_SITEMAPS is on, but the crawl requested no page of any site"


@pytest.mark.parametrize("named", [True, False])
async def test_sitemaps_without_a_start_request_are_told(
    sites: Sites, named: bool
) -> None:
    site = sites.add(pages={"/map.xml": "<urlset/>"})

    class NamesSitemaps(SeededSpider):
        rep_sitemaps = [site.url("/map.xml")] if named else None

    result = await crawl(NamesSitemaps, ON, requests=[])
    assert len(lines(result, NO_SEEDS, level="WARNING")) == (not named)


async def test_sitemaps_that_end_with_the_crawl_are_told(sites: Sites) -> None:
    site = lists(sites.add(), *[f"/{number}.xml" for number in range(40)])
    for number in range(40):
        site.set(f"/{number}.xml", urlset([site.url(f"/page/{number}")]))
    result = await crawl(
        SeededSpider, {**ON, "CLOSESPIDER_PAGECOUNT": 2}, requests=[site.url("/start")]
    )
    unread = result.stat("rep/sitemaps/unread")
    assert 0 < unread <= 40
    [line] = lines(result, "the crawl is closing", level="INFO")
    assert f"{unread} sitemaps not read" in line


async def test_the_spider_changes_the_request_for_each_page(sites: Sites) -> None:
    """Or skips it, or returns another; if it raises, the page comes as it was."""

    class Own(SeededSpider):
        def sitemap_page(self, request: Request, entry: dict[str, Any]) -> Any:
            name = request.url.rpartition("/")[2]
            if name == "skipped":
                return None
            if name == "broken":
                raise ValueError("a bug")
            if name == "wrong":
                return "a text"
            if name == "another":
                return Request(request.url + "?print=1", self.parse)
            request.headers["X-Since"] = entry["lastmod"]
            return request

    site = lists(sites.add(), "/map.xml")
    names = ["changed", "skipped", "broken", "wrong", "another"]
    site.set("/map.xml", urlset([site.url(f"/{name}") for name in names], "2026-01-31"))
    result = await crawl(Own, ON, requests=[site.url("/start")])
    came = sorted(url.rpartition("/")[2] for url in pages(result))
    assert came == ["another?print=1", "broken", "changed", "wrong"]
    [hit] = [one for one in site.requests if one.path == "/changed"]
    assert hit.header("X-Since") == "2026-01-31"
    assert result.stat("rep/sitemaps/rejected/filtered") == 1
    assert len(lines(result, "sitemap_page() raised an exception", level="ERROR")) == 1
    found = [one for one in result.spider.responses if "print" in one.url]
    assert found[0].meta["rep_sitemap"]["lastmod"] == "2026-01-31"


async def test_pages_of_a_period(sites: Sites) -> None:
    """What has no date comes, and so does an index that has changed since."""
    site = lists(sites.add(), "/index.xml", "/undated.xml")
    days = [
        "2026-01-31",
        "2026-02-01",
        "2026-02-27T10:00:00Z",
        "2026-02-28",
        "2026-03-01",
    ]
    site.set(
        "/index.xml", index([site.url(f"/{day}.xml") for day in days], "2026-03-05")
    )
    for day in days:
        site.set(f"/{day}.xml", urlset([site.url(f"/page/{day}")], day))
    site.set("/undated.xml", urlset([site.url("/page/never")]))
    result = await seeded(
        site, REP_SITEMAP_SINCE="2026-02-01", REP_SITEMAP_UNTIL="2026-02-28"
    )
    assert pages(result) == [site.url(f"/page/{day}") for day in [*days[1:3], "never"]]
    rejected = [result.stat(f"rep/sitemaps/rejected/{name}") for name in ("old", "new")]
    assert rejected == [1, 2]
