"""Sitemaps that no robots.txt lists: guessed ones, and the spider's own; and what the spider makes of the
requests for them."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy import Request

from scrapy_rep.seeding.loader import GUESSES
from tests.helpers.crawling import crawl
from tests.helpers.rows import every_row
from tests.helpers.servers import Sites
from tests.helpers.sitemaps import SeededSpider, index, pages, urlset

pytestmark = [pytest.mark.scrapy_api, pytest.mark.slow]

ON = {"REP_SITEMAPS": True, "REP_SITEMAP_GUESS": True}


async def test_well_known_places_are_tried_one_after_the_other(sites: Sites) -> None:
    every: dict[int, Any] = {}
    for at, place in enumerate(GUESSES):
        every[at] = sites.add(robots=404, pages=dict.fromkeys(GUESSES, 404))
        text = (
            f"{every[at].url('/page')}\n"
            if place.endswith("txt")
            else urlset([every[at].url("/page")])
        )
        every[at].set(place, text)
    forbidden = sites.add(robots=f"User-agent: *\nDisallow: {GUESSES[0]}$\n")
    forbidden.set(GUESSES[1], urlset([forbidden.url("/page")]))
    down = sites.add(robots=404, pages=dict.fromkeys(GUESSES, 503))
    starts = [site.url("/start") for site in (*every.values(), forbidden, down)]
    result = await crawl(SeededSpider, ON, requests=starts)
    with every_row() as checking:
        for at, site in every.items():
            with checking(GUESSES[at]):
                assert site.url("/page") in pages(result)
                asked = [hit.path for hit in site.requests if hit.path in GUESSES]
                assert asked == list(GUESSES[: at + 1])
    assert forbidden.url("/page") in pages(result)
    # Scrapy retries it twice; the next place isn't tried.
    assert [down.count(place) for place in GUESSES] == [3, 0, 0, 0, 0, 0]
    result.assert_clean()


class OwnSpider(SeededSpider):
    rep_sitemaps: Any = ()


@pytest.mark.parametrize("others", [False, True])
async def test_a_spider_names_sitemaps_itself(sites: Sites, others: bool) -> None:
    """Whether other origins seed the crawl remains the setting's choice."""
    own, other = sites.add(), sites.add()
    own.set("/index.xml", index([own.url("/a.xml")]))
    own.set("/a.xml", urlset([own.url("/a"), other.url("/foreign")]))
    other.set("/robots.txt", f"Sitemap: {other.url('/b.xml')}\n")
    other.set("/b.xml", urlset([other.url("/b")]))
    spider = type("Own", (OwnSpider,), {"rep_sitemaps": [own.url("/index.xml")]})
    result = await crawl(spider, {"REP_SITEMAPS": others}, requests=[other.url("/start")])
    found = {own.url("/a"), *([other.url("/b")] if others else [])}
    assert set(pages(result)) == found, "as if robots.txt had listed it: no pages of other hosts"
    assert result.stat("rep/sitemaps/found") == 3
    result.assert_clean()


async def test_a_spider_needs_no_start_request(sites: Sites) -> None:
    own = sites.add(robots="User-agent: *\nDisallow: /private\n")
    own.set("/a.xml", urlset([own.url("/a"), own.url("/private")]))
    spider = type("Own", (OwnSpider,), {"rep_sitemaps": (own.url("/a.xml"),)})
    result = await crawl(spider, requests=[])
    assert [response.url for response in result.spider.responses] == [own.url("/a")]
    assert "INFO Seeding from 1 sitemap that the spider names" in result.log
    result.assert_clean()


@pytest.mark.parametrize(
    "value", [["/sitemap.xml"], ["ftp:x"], ["https://a.example/", 3], "https://a.example/"]
)
async def test_what_is_no_url_ends_the_crawl_at_its_start(sites: Sites, value: Any) -> None:
    site = sites.add()
    spider = type("Own", (OwnSpider,), {"rep_sitemaps": value})
    result = await crawl(spider, requests=[site.url("/start")])
    assert "or a list of sitemaps' URLs." in result.log
    assert site.requests == []


class HookSpider(SeededSpider):
    def sitemap_request(self, request: Request) -> Request | None:
        if request.url.endswith("index.xml"):
            request.headers["X-Token"] = "index"
            return None
        if request.url.endswith("broken.xml"):
            raise ValueError("mine")
        if request.url.endswith("odd.xml"):
            return "odd"  # type: ignore[return-value]
        return request.replace(headers={"X-Token": "file"}, meta={"mine": 1})


async def test_a_hook_of_the_spiders_sees_each_request_for_a_sitemap(sites: Sites) -> None:
    site = sites.add()
    names = ["a", "broken", "odd"]
    site.set("/robots.txt", f"Sitemap: {site.url('/index.xml')}\n")
    site.set("/index.xml", index([site.url(f"/{name}.xml") for name in names]))
    for name in names:
        site.set(f"/{name}.xml", urlset([site.url(f"/{name}")]))
    result = await crawl(HookSpider, {"REP_SITEMAPS": True}, requests=[site.url("/start")])
    assert set(pages(result)) == {site.url(f"/{name}") for name in names}
    tokens = {hit.path: hit.header("X-Token") for hit in site.requests}
    assert tokens["/index.xml"] == "index"
    assert tokens["/a.xml"] == "file"
    assert [path for path, token in tokens.items() if token is None and ".xml" in path] != []
    assert tokens["/start"] is tokens["/robots.txt"] is None
    assert result.log.count("sitemap_request() raised an exception") == 1
    assert result.reason == "finished"


async def test_a_hook_must_be_a_method(sites: Sites) -> None:
    site = sites.add()
    spider = type("Own", (SeededSpider,), {"sitemap_request": 1})
    result = await crawl(spider, {"REP_SITEMAPS": True}, requests=[site.url("/start")])
    assert "The spider's attribute sitemap_request must be a method." in result.log
